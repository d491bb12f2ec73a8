//! Well-formed files that are no model, and one that is, made here.

use std::fs;
use std::process::{Command, Output};

use tegula::Device;
use tegula_engine::Error;
use tegula_engine::gguf::{GgmlType, Gguf, Problem, Writer};
use tegula_engine::model::{Activations, Decoder};
use tegula_engine::session::Session;
use tempfile::TempDir;

/// Layers of the model made here.
const LAYERS: u32 = 2;
/// Its width, inside the feed-forward network too; of two heads.
const WIDTH: u64 = 64;
const TOKENS: [&str; 5] = ["a", "b", "ab", "c", "<e>"];

/// A model of random weights, and what else it takes to run, with `change` made to its metadata and `norm` as weights of
/// the last norm.
fn model(change: impl Fn(&mut Writer), norm: f32) -> Vec<u8> {
    let mut w = Writer::new();
    change(&mut w);
    let mut meta = |key: &str, value: u32| {
        if !w.has(key) {
            w.meta(key, value);
        }
    };
    for (key, value) in [
        ("llama.block_count", LAYERS),
        ("llama.embedding_length", WIDTH as u32),
        ("llama.feed_forward_length", WIDTH as u32),
        ("llama.attention.head_count", 2),
        ("llama.context_length", 128),
    ] {
        meta(key, value);
    }
    if !w.has("llama.attention.layer_norm_rms_epsilon") {
        w.meta("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    }
    w.meta("general.architecture", "llama")
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.tokens", TOKENS.as_slice())
        .meta("tokenizer.ggml.token_type", [1i32, 1, 1, 1, 3].as_slice())
        .meta("tokenizer.ggml.merges", ["a b"].as_slice());
    let mut state = 1u32;
    let mut tensor = |name: String, shape: &[u64], value: Option<f32>| {
        let data = (0..shape.iter().product()).flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            value.unwrap_or((state >> 8) as f32 / (1 << 24) as f32 - 0.5).to_le_bytes()
        });
        w.tensor(&name, shape, GgmlType::F32, data.collect());
    };
    tensor("token_embd.weight".into(), &[WIDTH, TOKENS.len() as u64], None);
    for layer in 0..LAYERS {
        for part in ["attn_norm", "ffn_norm"] {
            tensor(format!("blk.{layer}.{part}.weight"), &[WIDTH], Some(1.0));
        }
        for part in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
            tensor(format!("blk.{layer}.{part}.weight"), &[WIDTH, WIDTH], None);
        }
    }
    tensor("output_norm.weight".into(), &[WIDTH], Some(norm));
    w.finish()
}

/// Runs `tegula run --raw` on a file of that content.
fn run(content: &[u8], variables: &[(&str, &str)]) -> (Output, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("made.gguf");
    fs::write(&path, content).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    let output = command.arg("run").arg(path).args(["--raw", "-p", "ab", "-n", "3"]).envs(variables.to_vec()).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

/// The message of a run that must fail.
fn error(content: &[u8]) -> String {
    let (output, errors) = run(content, &[]);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    errors
}

#[test]
fn numbers_that_make_no_model_are_refused_by_file_and_key() {
    const EPSILON: &str = "llama.attention.layer_norm_rms_epsilon";
    const BASE: &str = "llama.rope.freq_base";
    for (key, wrong, why) in [
        (EPSILON, f32::NAN, "NaN where a finite number of at least 0 is expected"),
        (EPSILON, -1.0, "-1 where a finite number of at least 0 is expected"),
        (EPSILON, f32::INFINITY, "inf where a finite number of at least 0 is expected"),
        (BASE, 0.0, "0 where a finite number above 0 is expected"),
        (BASE, -1.0, "-1 where a finite number above 0 is expected"),
        (BASE, f32::NAN, "NaN where a finite number above 0 is expected"),
    ] {
        let message = error(&model(
            |w| {
                w.meta(key, wrong);
            },
            1.0,
        ));
        assert!(message.ends_with(&format!("made.gguf: key `{key}`: {why}\n")), "{message}");
    }
    let message = error(&model(
        |w| {
            w.meta("llama.attention.head_count", 128u32);
        },
        1.0,
    ));
    assert!(message.contains("rope.dimension_count`: 0 rotated of 0 coordinates"), "{message}");
    let message = error(&model(
        |w| {
            w.meta("llama.rope.scaling.type", "yarn");
        },
        1.0,
    ));
    assert!(message.contains("key `llama.rope.scaling.type`: `yarn`: scaled rotary angles"), "{message}");
}

#[test]
fn tensors_that_nothing_reads_are_refused() {
    let message = error(&model(
        |w| {
            w.meta("llama.block_count", 1u32);
        },
        1.0,
    ));
    assert!(
        message.contains("made.gguf: tensor `blk.1.attn_norm.weight`: nothing reads it, nor 8 more: "),
        "{message}"
    );
    let bias = error(&model(
        |w| {
            w.tensor("blk.0.attn_q.bias", &[WIDTH], GgmlType::F32, vec![0; 256]);
        },
        1.0,
    ));
    assert!(bias.contains("made.gguf: tensor `blk.0.attn_q.bias`: nothing reads it: "), "{bias}");
}

#[test]
fn logits_that_are_nan_are_an_error_and_not_an_empty_answer() {
    let (output, errors) = run(&model(|_| (), 1.0), &[]);
    assert!(output.status.success() && errors.contains("; answer "), "{errors}");
    let message = error(&model(|_| (), f32::NAN));
    assert!(
        message.contains("error: no token can be chosen at position 1: the model's logits are all NaN"),
        "{message}"
    );
}

#[test]
fn a_context_longer_than_the_model_was_made_for_is_refused() {
    let file = Gguf::from_bytes("made.gguf", model(|_| (), 1.0)).unwrap();
    let mut decoder = Decoder::load(&file, &Device::cpu(), Activations::Q8).unwrap();
    assert!(Session::new(&mut decoder, 128).is_ok());
    let error = Session::new(&mut decoder, 129).err().unwrap();
    assert_eq!(error.to_string(), "a context of 129 tokens: the model was made for 128");
}

#[test]
fn variables_that_make_no_sense_are_named() {
    let content = model(
        |w| {
            w.meta("llama.block_count", 1u32);
        },
        1.0,
    );
    for wrong in ["junk", "0", "3000000"] {
        let (output, errors) = run(&content, &[("TEGULA_THREADS", wrong)]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(errors, format!("error: TEGULA_THREADS: expected a number from 1 to 1024, found `{wrong}`\n"));
    }
    for wrong in ["junk", "0", "-1"] {
        let errors = run(&content, &[("TEGULA_CACHE_MB", wrong)]).1;
        let warning = format!("WARN TEGULA_CACHE_MB: expected a number of megabytes above 0, found `{wrong}`");
        assert!(errors.contains(&warning), "{errors}");
    }
    assert!(!run(&content, &[("TEGULA_CACHE_MB", "10")]).1.contains("WARN"));
    let errors = run(&content, &[("TEGULA_THREADS", "1000")]).1;
    assert!(errors.contains("note: 1000 threads on ") && errors.contains(": more threads than CPUs"), "{errors}");
}

#[test]
fn a_file_cut_short_while_it_is_packed_is_an_error() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    fs::write(&path, model(|_| (), 1.0)).unwrap();
    let file = Gguf::open(&path).unwrap();
    // The embedding comes first in the file and is packed after the layers.
    fs::File::options().write(true).open(&path).unwrap().set_len(file.tensors()[3].range().start as u64).unwrap();
    match Decoder::load(&file, &Device::cpu(), Activations::Q8).err() {
        Some(Error::Gguf(e)) if matches!(e.problem, Problem::Cut) => {
            assert!(e.to_string().contains("tensor `blk.0.attn_q.weight`: the file has been cut short"), "{e}");
        }
        other => panic!("{other:?}"),
    }
}
