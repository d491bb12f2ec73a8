//! The demo model on emulated GPUs: its first layers, prompt and answer, beside the CPU.

mod common;

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

#[test]
fn logits_are_those_of_the_cpu() {
    let Some(path) = common::model("smollm2") else { return };
    let file = shortened(&Gguf::open(path).unwrap());
    let exact = logits(&file, &Device::cpu(), Activations::F32);
    let coarse = logits(&file, &Device::cpu(), Activations::Q8);
    for (arch, completion) in [("sm_80", Completion::Early), ("sm_90a", Completion::Late)] {
        let options = EmulatedOptions { completion, ..EmulatedOptions::default() };
        let device = Device::emulated_with(arch, options).unwrap();
        let (plain, quantised) = (logits(&file, &device, Activations::F32), logits(&file, &device, Activations::Q8));
        for (i, want) in exact.iter().enumerate() {
            let what = format!("{arch}, step {i}");
            let error = rms(&plain[i], want);
            assert!(error <= 0.02, "{what}: {error}");
            let (best, margin) = top(want);
            assert!(margin < 0.1 || top(&plain[i]).0 == best, "{what}: another token");
            // A last bit decides to which of two codes a value is rounded: quantised runs are as near the exact one as
            // the CPU's are, not bit-equal to it.
            let (error, of_cpu) = (rms(&quantised[i], want), rms(&coarse[i], want));
            println!("{what}: quantised {error:.3}, on the CPU {of_cpu:.3}");
            assert!(error <= 1.5 * of_cpu, "{what}: {error}, on the CPU {of_cpu}");
        }
    }
}
