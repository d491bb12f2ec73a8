//! SmolLM2, all its layers, on an emulated GPU beside the CPU: sixteen given tokens, logits after each.

use std::time::Instant;
use tegula::Device;
use tegula_engine::{
    gguf::Gguf,
    model::{Activations, Batch, Chunk, Decoder, KvCache, kv::BLOCK},
};
use tegula_tests::{figure::Figure, model};

/// "The capital of France is …" and what follows, as the reference's run of that prompt begins.
fn tokens() -> Vec<u32> {
    let text = std::fs::read_to_string(tegula_tests::data("smollm2/f32.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ids =
        |v: &serde_json::Value| v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect::<Vec<_>>();
    let run = &json["results"].as_array().unwrap()[2];
    let mut tokens = [ids(&run["prompt_ids"]), ids(&run["gen_ids"])].concat();
    tokens.truncate(16);
    assert_eq!(tokens.len(), 16);
    tokens
}

/// Logits after each token: the first eight in one chunk, as a prompt, the others one by one, as an answer.
fn logits(file: &Gguf, device: &Device, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut decoder = Decoder::load(file, device, Activations::F32).unwrap();
    let mut kv = KvCache::new(decoder.device(), decoder.config(), tokens.len()).unwrap();
    let blocks = kv.table();
    let (prompt, answer) = tokens.split_at(8);
    let (mut all, mut position) = (vec![], 0);
    for part in [prompt].into_iter().chain(answer.chunks(1)) {
        let chunk = Chunk { tokens: part, position, blocks: &blocks };
        decoder.forward(&mut kv, &Batch::new(&[chunk], BLOCK).unwrap()).unwrap();
        decoder.head(&Vec::from_iter(0..part.len())).unwrap();
        all.extend(decoder.logits().unwrap());
        position += part.len();
    }
    all.chunks(decoder.config().vocab).map(<[f32]>::to_vec).collect()
}

/// Index of the largest, and how far it is above the next.
fn top(x: &[f32]) -> (usize, f32) {
    let best = (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
    let next = x.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, v)| *v).fold(f32::NEG_INFINITY, f32::max);
    (best, x[best] - next)
}

#[test]
#[ignore = "long"]
fn all_layers_on_an_emulated_gpu_as_on_the_cpu() {
    let Some(path) = model("smollm2") else { return };
    let (file, tokens) = (Gguf::open(path).unwrap(), tokens());
    let want = logits(&file, &Device::cpu(), &tokens);
    let begun = Instant::now();
    let got = logits(&file, &Device::emulated("sm_80").unwrap(), &tokens);
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    assert_eq!((got.len(), want.len()), (16, 16));
    let rms = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        let squares: f64 = a.iter().zip(b).map(|(x, y)| f64::from(x - y).powi(2)).sum();
        (squares / b.len() as f64).sqrt()
    };
    let worst = got.iter().zip(&want).map(rms).fold(0.0, f64::max);
    let mut clear = 0;
    let mut same = 0;
    for (got, want) in got.iter().zip(&want) {
        let (best, margin) = top(want);
        if margin > 0.1 {
            clear += 1;
            same += usize::from(top(got).0 == best);
        }
    }
    println!("worst rms {worst:.2e}, {same} of {clear} tokens that are clear, {minutes:.2} minutes");
    assert!(clear > 8, "only {clear} of 16 tokens are clear");
    let name = |what: &str| format!("SmolLM2 135M, 30 layers, 16 tokens on emulated sm_80: {what}");
    let figures = [
        Figure::new(name("worst rms of the logits to the CPU's"), worst, "").at_most(0.02),
        Figure::new(name("share of clear tokens that are the CPU's"), same as f64 / clear as f64, "").at_least(1.0),
        Figure::new(name("time"), minutes, "minutes").at_most(5.0),
    ];
    figures.iter().for_each(Figure::record);
    figures.iter().for_each(|f| assert!(f.holds(), "{f}"));
}
