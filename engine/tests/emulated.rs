//! The demo model on emulated GPUs: its first layers, prompt and answer, beside the CPU.

mod common;
#[path = "common/twin.rs"]
mod twin;

use tegula::{
    Device,
    device::{Completion, EmulatedOptions},
};
use tegula_engine::gguf::{Gguf, Value, Writer};
use tegula_engine::model::{Activations, Decoder};
use tegula_engine::session::Session;

const LAYERS: u32 = 4;
/// A prompt, and what is fed after it token by token.
const PROMPT: [u32; 14] = [504, 3575, 282, 4649, 314, 9, 1200, 33, 20_000, 7, 28, 504, 45_000, 260];
const NEXT: [u32; 2] = [1024, 216];

/// The first layers of a model as a model of its own.
fn shortened(file: &Gguf) -> Gguf {
    let mut w = Writer::new();
    w.meta("general.architecture", "llama").meta("llama.block_count", LAYERS);
    let known = |key: &str| key.starts_with("llama.") && key != "llama.block_count";
    for (key, value) in file.metadata().iter().filter(|m| known(&m.0)) {
        match value {
            Value::U32(n) => w.meta(key, *n),
            Value::F32(x) => w.meta(key, *x),
            other => panic!("{key} is {other:?}"),
        };
    }
    let kept = |name: &str| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        layer.is_none_or(|layer| layer < LAYERS)
    };
    for t in file.tensors().iter().filter(|t| kept(&t.name)) {
        w.tensor(&t.name, &t.shape, t.ty, file.data(t).unwrap().into_owned());
    }
    Gguf::from_bytes("shortened.gguf", w.finish()).unwrap()
}

/// Logits after the prompt and after each token that follows.
fn logits(file: &Gguf, device: &Device, activations: Activations) -> Vec<Vec<f32>> {
    let mut decoder = Decoder::load(file, device, activations).unwrap();
    let mut session = Session::new(&mut decoder, 32).unwrap();
    let mut all = vec![];
    for part in [&PROMPT[..], &NEXT[..1], &NEXT[1..]] {
        session.feed(part, |_| {}).unwrap();
        all.push(session.logits().unwrap());
    }
    all
}

/// Root of the mean square of the difference.
fn rms(x: &[f32], y: &[f32]) -> f64 {
    let squares: f64 = x.iter().zip(y).map(|(x, y)| f64::from(x - y).powi(2)).sum();
    (squares / y.len() as f64).sqrt()
}

/// Index of the largest, and how far it is above the next.
fn top(x: &[f32]) -> (usize, f32) {
    let best = (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
    let next = x.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, v)| *v).fold(f32::NEG_INFINITY, f32::max);
    (best, x[best] - next)
}

fn emulated(completion: Completion) -> EmulatedOptions {
    EmulatedOptions { completion, ..EmulatedOptions::default() }
}

const GPUS: [(&str, Completion); 2] = [("sm_80", Completion::Early), ("sm_90a", Completion::Late)];

#[test]
fn logits_are_those_of_the_cpu() {
    let Some(path) = common::model("smollm2") else { return };
    let file = shortened(&Gguf::open(path).unwrap());
    let exact = logits(&file, &Device::cpu(), Activations::F32);
    for (arch, completion) in GPUS {
        let device = Device::emulated_with(arch, emulated(completion)).unwrap();
        let plain = logits(&file, &device, Activations::F32);
        for (i, want) in exact.iter().enumerate() {
            let what = format!("{arch}, step {i}");
            let error = rms(&plain[i], want);
            println!("{what}: {error:.2e}");
            // All thirty layers may be ten times as far off.
            assert!(error <= 0.002, "{what}: {error}");
            let (best, margin) = top(want);
            assert!(margin < 0.1 || top(&plain[i]).0 == best, "{what}: another token");
        }
    }
}

/// Quantised runs drift apart, since a last bit decides to which of two codes a value is rounded: so their logits say
/// little. Each launch says much: from the same memory products, embeddings and turns have the CPU's bits, and the others
/// its values.
#[test]
fn each_launch_does_what_the_cpu_does() {
    let Some(path) = common::model("smollm2") else { return };
    let file = shortened(&Gguf::open(path).unwrap());
    for (arch, completion) in GPUS {
        let (device, compared) = twin::twin(arch, emulated(completion));
        let after = logits(&file, &device, Activations::Q8);
        assert!(after.iter().flatten().all(|x| x.is_finite()));
        let compared = compared.lock().unwrap();
        println!("{arch}: {:?}", compared.launches);
        assert!(compared.wrong.is_empty(), "{arch}: {}", compared.wrong.join("\n"));
        // Of each kind one a step and layer, or more.
        let least = (LAYERS as usize) * 3;
        for kernel in ["rms_norm_quantise", "linear_quantised", "rope_and_cache", "attention", "swiglu_quantise"] {
            let launches = compared.launches.get(kernel).copied().unwrap_or(0);
            assert!(launches >= least, "{arch}: {launches} launches of {kernel}");
        }
        assert!(compared.launches.contains_key("embed"), "{arch}: {:?}", compared.launches);
        // Queries, keys and values take 16 bits, once a step and layer, and nothing else does.
        let wide: Vec<(&str, usize)> = compared.sixteen_bits.iter().map(|(k, n)| (k.as_str(), *n)).collect();
        assert_eq!(wide, [("linear_quantised", least), ("rms_norm_quantise", least)], "{arch}");
    }
}
