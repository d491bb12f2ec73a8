//! A small random decoder in every weight format, against a plain f64 forward pass over its dequantised weights, on the
//! CPU; and on the oracle where that is fast enough.

use half::f16;
use tegula::Device;
use tegula_engine::{
    gguf::{GgmlType, Gguf, Writer},
    model::{Activations, Batch, Chunk, Decoder, KvCache, kv::BLOCK},
};

const HIDDEN: usize = 256;
const FFN: usize = 512;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const D: usize = 32;
const LAYERS: usize = 2;
const VOCAB: usize = 77;
const EPS: f32 = 1e-5;
const ROPE_BASE: f32 = 10_000.0;

/// A small generator: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Uniform in −1 .. 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Random blocks whose f16 scales are small and finite; all other bits are free.
fn weights(ty: GgmlType, elements: usize, r: &mut Random) -> Vec<u8> {
    match ty {
        GgmlType::F32 => return (0..elements).flat_map(|_| (r.unit() * 0.1).to_le_bytes()).collect(),
        GgmlType::F16 => return (0..elements).flat_map(|_| f16::from_f32(r.unit() * 0.1).to_le_bytes()).collect(),
        GgmlType::BF16 => {
            return (0..elements).flat_map(|_| half::bf16::from_f32(r.unit() * 0.1).to_le_bytes()).collect();
        }
        _ => {}
    }
    let (block, bytes) = (ty.block_len() as usize, ty.block_bytes() as usize);
    // Byte offsets of a block's f16 scales and what to put there: weights near 0.1 on both sides of 0, as real ones are,
    // so minima undo the mean of the codes.
    let scales: &[(usize, f32)] = match ty {
        GgmlType::Q4_0 => &[(0, 0.012)],
        GgmlType::Q4_1 => &[(0, 0.012), (2, -7.5 * 0.012)],
        GgmlType::Q5_0 => &[(0, 0.006)],
        GgmlType::Q5_1 => &[(0, 0.006), (2, -15.5 * 0.006)],
        GgmlType::Q8_0 => &[(0, 0.0008)],
        GgmlType::Q4_K => &[(0, 0.0004), (2, 7.5 * 0.0004)],
        GgmlType::Q5_K => &[(0, 0.0002), (2, 15.5 * 0.0002)],
        GgmlType::Q6_K => &[(208, 0.00003)],
        other => panic!("{} is no weight format", other.name()),
    };
    let mut out: Vec<u8> = (0..elements / block * bytes).map(|_| r.next() as u8).collect();
    for b in out.chunks_exact_mut(bytes) {
        let factor = 1.0 + 0.3 * r.unit();
        for &(at, size) in scales {
            b[at..at + 2].copy_from_slice(&f16::from_f32(size * factor).to_le_bytes());
        }
    }
    out
}

fn model(ty: GgmlType, seed: u64) -> Gguf {
    let mut r = Random(seed);
    let mut w = Writer::new();
    w.meta("general.architecture", "llama");
    for (key, v) in [
        ("embedding_length", HIDDEN),
        ("feed_forward_length", FFN),
        ("block_count", LAYERS),
        ("context_length", 256),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("attention.key_length", D),
        ("rope.dimension_count", D),
    ] {
        w.meta(&format!("llama.{key}"), v as u32);
    }
    w.meta("llama.attention.layer_norm_rms_epsilon", EPS);
    w.meta("llama.rope.freq_base", ROPE_BASE);
    let (q, kv) = (HEADS * D, KV_HEADS * D);
    let mut matrix = |name: &str, k: usize, n: usize, ty: GgmlType| {
        // A row of K that is no whole number of blocks takes plain floats.
        let ty = if k.is_multiple_of(ty.block_len() as usize) { ty } else { GgmlType::Q8_0 };
        w.tensor(name, &[k as u64, n as u64], ty, weights(ty, k * n, &mut r));
    };
    matrix("token_embd.weight", HIDDEN, VOCAB, ty);
    matrix("output.weight", HIDDEN, VOCAB, ty);
    for i in 0..LAYERS {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        matrix(&name("attn_q"), HIDDEN, q, ty);
        matrix(&name("attn_k"), HIDDEN, kv, ty);
        // Another format than its neighbours: not merged with them.
        matrix(&name("attn_v"), HIDDEN, kv, GgmlType::Q6_K);
        matrix(&name("attn_output"), q, HIDDEN, ty);
        matrix(&name("ffn_gate"), HIDDEN, FFN, ty);
        matrix(&name("ffn_up"), HIDDEN, FFN, ty);
        matrix(&name("ffn_down"), FFN, HIDDEN, ty);
    }
    let norms = (0..LAYERS).flat_map(|i| [format!("blk.{i}.attn_norm.weight"), format!("blk.{i}.ffn_norm.weight")]);
    for name in norms.chain(["output_norm.weight".to_owned()]) {
        let values: Vec<u8> = (0..HIDDEN).flat_map(|_| (1.0 + 0.3 * r.unit()).to_le_bytes()).collect();
        w.tensor(&name, &[HIDDEN as u64], GgmlType::F32, values);
    }
    Gguf::from_bytes("small.gguf", w.finish()).unwrap()
}

/// A tensor's values, in f64.
fn values(file: &Gguf, name: &str) -> Vec<f64> {
    file.dequantize(file.find(name).unwrap()).unwrap().into_iter().map(f64::from).collect()
}

fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn norm(x: &[f64], w: &[f64]) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + EPS as f64).sqrt();
    x.iter().zip(w).map(|(x, w)| x * scale * w).collect()
}

fn rotate(head: &mut [f64], position: usize) {
    for i in 0..D / 2 {
        let angle = position as f64 * (ROPE_BASE as f64).powf(-2.0 * i as f64 / D as f64);
        let (a, b) = (head[2 * i], head[2 * i + 1]);
        head[2 * i] = a * angle.cos() - b * angle.sin();
        head[2 * i + 1] = a * angle.sin() + b * angle.cos();
    }
}

/// Logits after every token, in f64; keys and values are rounded to f16, as the cache keeps them.
fn reference(file: &Gguf, tokens: &[u32]) -> Vec<f64> {
    let embedding = values(file, "token_embd.weight");
    let mut xs: Vec<Vec<f64>> = tokens.iter().map(|&t| embedding[t as usize * HIDDEN..][..HIDDEN].to_vec()).collect();
    let add = |x: &mut Vec<f64>, y: Vec<f64>| x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    for i in 0..LAYERS {
        let w = |part: &str| values(file, &format!("blk.{i}.{part}.weight"));
        let [wn, wq, wk, wv, wo] = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"].map(w);
        let (mut keys, mut vals): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (vec![], vec![]);
        for (position, x) in xs.iter_mut().enumerate() {
            let n = norm(x, &wn);
            let (mut q, mut k, v) = (product(&wq, &n), product(&wk, &n), product(&wv, &n));
            q.chunks_exact_mut(D).chain(k.chunks_exact_mut(D)).for_each(|h| rotate(h, position));
            let rounded = |v: Vec<f64>| v.into_iter().map(|x| f16::from_f64(x).to_f64()).collect();
            keys.push(rounded(k));
            vals.push(rounded(v));
            let mut out = vec![];
            for (h, q) in q.chunks_exact(D).enumerate() {
                let at = h / (HEADS / KV_HEADS) * D;
                let scores: Vec<f64> = keys
                    .iter()
                    .map(|k| k[at..at + D].iter().zip(q).map(|(a, b)| a * b).sum::<f64>() / (D as f64).sqrt())
                    .collect();
                let max = scores.iter().copied().fold(f64::MIN, f64::max);
                let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let total: f64 = p.iter().sum();
                out.extend((0..D).map(|d| p.iter().zip(&vals).map(|(p, v)| p * v[at + d]).sum::<f64>() / total));
            }
            add(x, product(&wo, &out));
        }
        let [wn, wg, wu, wd] = ["ffn_norm", "ffn_gate", "ffn_up", "ffn_down"].map(w);
        for x in &mut xs {
            let n = norm(x, &wn);
            let (g, u) = (product(&wg, &n), product(&wu, &n));
            let act: Vec<f64> = g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(x, product(&wd, &act));
        }
    }
    let (wn, head) = (values(file, "output_norm.weight"), values(file, "output.weight"));
    xs.iter().flat_map(|x| product(&head, &norm(x, &wn))).collect()
}

fn logits(file: &Gguf, device: &Device, activations: Activations, tokens: &[u32]) -> Vec<f32> {
    let mut decoder = Decoder::load(file, device, activations).unwrap();
    let mut kv = KvCache::new(device, decoder.config(), tokens.len()).unwrap();
    let chunk = Chunk { tokens, position: 0, blocks: &kv.table() };
    decoder.forward(&mut kv, &Batch::new(&[chunk], BLOCK).unwrap()).unwrap();
    decoder.head(&Vec::from_iter(0..tokens.len())).unwrap();
    decoder.logits().unwrap()
}

/// Root mean square of the differences, relative to that of the reference.
fn distance(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let off: f64 = found.iter().zip(expected).map(|(&a, b)| square(a as f64 - b)).sum();
    (off / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}

fn formats() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|t| t.is_supported())
}

#[test]
fn every_weight_format_computes_what_its_values_say() {
    let tokens: Vec<u32> = (0..70).map(|i| i * 31 % VOCAB as u32).collect();
    let device = Device::cpu();
    let mut tried = 0;
    for ty in formats() {
        let file = model(ty, 7);
        let expected = reference(&file, &tokens);
        let f32_off = distance(&logits(&file, &device, Activations::F32, &tokens), &expected);
        let q8_off = distance(&logits(&file, &device, Activations::Q8, &tokens), &expected);
        println!("{:6} f32 activations {f32_off:.2e}, 8-bit activations {q8_off:.2e}", ty.name());
        // Rounding in f32 over sums of a few hundred terms; a group of 32 codes is off by at most 1/254 of its largest.
        assert!(f32_off < 2e-4, "{}: f32 activations are off by {f32_off}", ty.name());
        assert!(q8_off < 4e-2, "{}: 8-bit activations are off by {q8_off}", ty.name());
        tried += 1;
    }
    assert_eq!(tried, 11);
}

/// `dot_grouped` and every kernel around it give the same logits on the oracle, but for the last bits of sums and
/// exponentials.
#[test]
fn the_oracle_agrees() {
    let tokens = [3, 14, 15, 9, 26];
    for ty in [GgmlType::Q4_1, GgmlType::Q6_K] {
        let file = model(ty, 11);
        let expected: Vec<f64> =
            logits(&file, &Device::oracle(), Activations::Q8, &tokens).into_iter().map(f64::from).collect();
        let off = distance(&logits(&file, &Device::cpu(), Activations::Q8, &tokens), &expected);
        // A last bit may move a code by one step, which is worth 1/254 of a group's largest.
        assert!(off < 4e-3, "{}: the CPU is off the oracle by {off}", ty.name());
    }
}
