//! How well SmolLM2 135M Instruct predicts a text, beside llama.cpp's own figures on the same windows.

use tegula::Device;
use tegula_engine::{
    eval::perplexity,
    gguf::Gguf,
    model::{Activations, Decoder},
    tokenizer::{Special, Tokenizer},
};
use tegula_tests::{figure::Figure, model, skip};

/// Mean negative log-likelihoods of 12 windows of 512 tokens, as llama.cpp computes them from the weights as f32, and with
/// 8-bit activations (SmolLM2-135M-Instruct.Q4_1.gguf of llama-cpp-python, the text that perplexity/text.py writes).
const F32: [f64; 12] =
    [3.05014, 3.65543, 2.82366, 3.29825, 3.11494, 2.78277, 3.37594, 3.42681, 2.547, 3.32515, 2.84068, 3.29785];
const PEER: [f64; 12] =
    [3.05209, 3.6605, 2.82308, 3.29817, 3.1169, 2.79192, 3.37417, 3.43094, 2.55735, 3.3339, 2.84699, 3.31615];

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of each window, unless the model or the text is not here.
fn windows(activations: Activations) -> Option<Vec<f64>> {
    let file = Gguf::open(model("smollm2")?).unwrap();
    let Some(text) = std::env::var_os("TEGULA_TEXT").and_then(|path| std::fs::read_to_string(path).ok()) else {
        skip("TEGULA_TEXT names no text for perplexity; `./x test --full` makes one (tests/perplexity/text.py)");
        return None;
    };
    let tokens = Tokenizer::from_gguf(&file).unwrap().encode(&text, Special::AsText);
    let mut decoder = Decoder::load(&file, &Device::cpu(), activations).unwrap();
    Some(perplexity(&mut decoder, &tokens, None, 12, 512, |_| {}).unwrap())
}

#[test]
#[ignore = "long"]
fn f32_activations_are_within_two_thousandths_of_the_reference() {
    let Some(found) = windows(Activations::F32) else { return };
    let (found, reference) = (mean(&found).exp(), mean(&F32).exp());
    Figure::new("SmolLM2 135M, activations f32: perplexity", found, "").record();
    let off = (found / reference - 1.0).abs() * 100.0;
    Figure::new("SmolLM2 135M, activations f32: perplexity off llama.cpp's by", off, "%").at_most(0.2).must_hold();
}

#[test]
#[ignore = "long"]
fn quantised_activations_are_as_good_as_the_peer_s() {
    let Some(found) = windows(Activations::Q8) else { return };
    Figure::new("SmolLM2 135M: perplexity", mean(&found).exp(), "").record();
    let off = (mean(&found) - mean(&PEER)).abs();
    Figure::new("SmolLM2 135M: mean NLL of 12 windows off llama.cpp's by", off, "nats").at_most(0.005).must_hold();
}
