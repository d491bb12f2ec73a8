//! The kernels of a language model of 4096 wide: packed weights, the cache, sampling.

use super::{Failure, Ready, Work, numbers, tiles};
use crate::{options::Sizes, support};
use tegula::{
    ir::{Quant, layout::Layout},
    prelude::*,
};
use tegula_kernels::{
    activation, attention, embed, linear, norm, pack,
    quantise::{self, Bits},
    rope, sample,
};

pub const WORKS: &[Work] = &[
    Work { name: "rms_norm_rows", peer: "", make: rms_norm_rows },
    Work { name: "rms_norm_quantise", peer: "", make: rms_norm_quantise },
    Work { name: "quantise", peer: "", make: quantised },
    Work { name: "swiglu_quantise", peer: "", make: swiglu_quantise },
    Work { name: "linear Q8_0, 1 row", peer: "linear bf16 1 row", make: |s, z| linear(s, z, Quant::Q8_0, 1) },
    Work { name: "linear Q4_K, 1 row", peer: "linear bf16 1 row", make: |s, z| linear(s, z, Quant::Q4_K, 1) },
    Work { name: "linear F16, 1 row", peer: "linear bf16 1 row", make: |s, z| linear(s, z, Quant::F16, 1) },
    Work { name: "linear Q8_0, 512 rows", peer: "linear bf16 512 rows", make: |s, z| linear(s, z, Quant::Q8_0, 512) },
    Work {
        name: "linear_quantised Q8_0, 1 row",
        peer: "linear bf16 1 row",
        make: |s, z| grouped(s, z, Quant::Q8_0, 1),
    },
    Work {
        name: "linear_quantised Q4_K, 1 row",
        peer: "linear bf16 1 row",
        make: |s, z| grouped(s, z, Quant::Q4_K, 1),
    },
    Work {
        name: "linear_quantised Q8_0, 512 rows",
        peer: "linear bf16 512 rows",
        make: |s, z| grouped(s, z, Quant::Q8_0, 512),
    },
    Work { name: "embed Q8_0", peer: "embed bf16", make: embedding },
    Work { name: "rope_and_cache", peer: "", make: rope_and_cache },
    Work { name: "attention, 16 sequences decode", peer: "attention bf16 decode", make: |s, z| paged(s, z, 16, 1) },
    Work { name: "attention, one prompt", peer: "attention bf16 prompt", make: |s, z| paged(s, z, 1, 1024) },
    Work { name: "sample greedy", peer: "argmax f32", make: |s, z| sampled(s, z, 0.0) },
    Work { name: "sample top-k, top-p", peer: "", make: |s, z| sampled(s, z, 0.8) },
    Work { name: "pack_blocks", peer: "", make: |s, z| packed(s, z, Quant::Q4_K) },
    Work { name: "pack_floats", peer: "", make: |s, z| packed(s, z, Quant::F16) },
];

/// Tokens, and the width of the model.
fn extents(sizes: Sizes) -> (usize, usize) {
    if sizes == Sizes::Real { (2048, 4096) } else { (4, 256) }
}

fn rms_norm_rows(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (tokens, n) = extents(sizes);
    let device = stream.device();
    let (x, w) = (device.tensor([tokens, n], &numbers(tokens * n))?, device.tensor([1, n], &numbers(n))?);
    let chosen: Vec<i32> = (0..tokens as i32).step_by(4).collect();
    let m = chosen.len();
    let (rows, mut y) = (device.tensor([m], &chosen)?, device.empty::<f32>([m, n])?);
    Ok(Ready {
        size: format!("{m} of {tokens} × {n}"),
        bytes: (8 * m * n + 4 * n) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| norm::rms_norm_rows::launch(&x, &w, &rows, &mut y, 1e-5).dims(n).grid(m).run(s)),
    })
}

/// Codes, scales and sums of rows.
type Groups = (Tensor<i8>, Tensor<f32>, Tensor<i32>);

fn groups(device: &Device, rows: usize, k: usize) -> Result<Groups, Failure> {
    let g = k / 32;
    Ok((device.empty([rows, k])?, device.empty([rows, g])?, device.empty([rows, g])?))
}

/// Bytes of them.
fn group_bytes(rows: usize, k: usize) -> f64 {
    (rows * k + rows * k / 4) as f64
}

fn rms_norm_quantise(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (tokens, n) = extents(sizes);
    let device = stream.device();
    let (x, w) = (device.tensor([tokens, n], &numbers(tokens * n))?, device.tensor([1, n], &numbers(n))?);
    let (mut c, mut f, mut u) = groups(device, tokens, n)?;
    Ok(Ready {
        size: format!("{tokens} × {n}"),
        bytes: (4 * tokens * n) as f64 + group_bytes(tokens, n),
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = norm::rms_norm_quantise::launch(&x, &w, &mut c, &mut f, &mut u, 1e-5);
            launch.dims(n / 32).cfg(Bits::Eight).grid(tokens).run(s)
        }),
    })
}

fn quantised(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (tokens, n) = extents(sizes);
    let device = stream.device();
    let x = device.tensor([tokens, n], &numbers(tokens * n))?;
    let (mut c, mut f, mut u) = groups(device, tokens, n)?;
    Ok(Ready {
        size: format!("{tokens} × {n}"),
        bytes: (4 * tokens * n) as f64 + group_bytes(tokens, n),
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = quantise::quantise::launch(&x, &mut c, &mut f, &mut u);
            launch.dims(n / 32).cfg(Bits::Eight).grid(tokens).run(s)
        }),
    })
}

fn swiglu_quantise(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (tokens, n) = extents(sizes);
    let device = stream.device();
    let x = device.tensor([tokens, 2 * n], &numbers(2 * tokens * n))?;
    let (mut c, mut f, mut u) = groups(device, tokens, n)?;
    Ok(Ready {
        size: format!("{tokens} × {n}"),
        bytes: (8 * tokens * n) as f64 + group_bytes(tokens, n),
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = activation::swiglu_quantise::launch(&x, &mut c, &mut f, &mut u);
            launch.dims(n / 32).cfg(Bits::Eight).grid(tokens).run(s)
        }),
    })
}

/// Weights k by n.
fn weights(stream: &Stream, quant: Quant, k: usize, n: usize) -> Result<(PackedTensor, f64), Failure> {
    let gguf = support::gguf(quant, k, n, &mut support::Rng(7));
    let packed = pack::pack(stream, quant, &gguf, k, n)?;
    Ok((packed, gguf.len() as f64))
}

fn linear(stream: &Stream, sizes: Sizes, quant: Quant, m: usize) -> Result<Ready, Failure> {
    let (_, k) = extents(sizes);
    let (n, m) = (k, m.min(extents(sizes).0));
    let device = stream.device();
    let (w, bytes) = weights(stream, quant, k, n)?;
    let (x, mut y) = (device.tensor([m, k], &numbers(m * k))?, device.empty::<f32>([m, n])?);
    let [bm, bn, bk] = tiles(stream, "linear")?;
    let bm = bm.min(m);
    Ok(Ready {
        size: format!("{m} × {k} times {k} × {n}"),
        bytes: bytes + (4 * m * (k + n)) as f64,
        flops: 2.0 * (m * k * n) as f64,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = linear::linear::launch(&x, &w, &mut y).dims(bm, bn, bk);
            launch.cfg(linear::Epilogue::default()).grid([n.div_ceil(bn), m.div_ceil(bm)]).run(s)
        }),
    })
}

fn grouped(stream: &Stream, sizes: Sizes, quant: Quant, m: usize) -> Result<Ready, Failure> {
    let (_, k) = extents(sizes);
    let (n, m) = (k, m.min(extents(sizes).0));
    let device = stream.device();
    let (w, bytes) = weights(stream, quant, k, n)?;
    let codes: Vec<i8> = (0..m * k).map(|i: usize| (i.wrapping_mul(40503) >> 5) as i8).collect();
    let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|x| i32::from(*x)).sum()).collect();
    let (c, u) = (device.tensor([m, k], &codes)?, device.tensor([m, k / 32], &sums)?);
    let (f, mut y) = (device.tensor([m, k / 32], &numbers(m * k / 32))?, device.empty::<f32>([m, n])?);
    let [bm, bn, bk, gk] = tiles(stream, "linear_quantised")?;
    let bm = bm.min(m);
    Ok(Ready {
        size: format!("{m} × {k} times {k} × {n}"),
        bytes: bytes + group_bytes(m, k) + (4 * m * n) as f64,
        flops: 2.0 * (m * k * n) as f64,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = linear::linear_quantised::launch(&c, &f, &u, &w, &mut y).dims(bm, bn, bk, gk);
            launch.cfg(linear::Quantised::default()).grid([n.div_ceil(bn), m.div_ceil(bm)]).run(s)
        }),
    })
}

fn embedding(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (rows, h) = extents(sizes);
    let vocabulary = if sizes == Sizes::Real { 32000 } else { 50 };
    let (w, bytes) = weights(stream, Quant::Q8_0, h, vocabulary)?;
    let device = stream.device();
    let tokens: Vec<i32> = (0..rows).map(|i| (i * 7919 % vocabulary) as i32).collect();
    let (tokens, mut y) = (device.tensor([rows], &tokens)?, device.empty::<f32>([rows, h])?);
    Ok(Ready {
        size: format!("{rows} of {vocabulary} × {h}"),
        bytes: bytes / vocabulary as f64 * rows as f64 + (4 * rows * h) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| embed::embed::launch(&w, &tokens, &mut y).dims(h).grid(rows).run(s)),
    })
}

/// Heads of queries and of keys, and their length.
fn heads(sizes: Sizes) -> (usize, usize, usize) {
    if sizes == Sizes::Real { (32, 8, 128) } else { (3, 1, 64) }
}
const BLOCK: usize = 32;

fn rope_and_cache(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let ((tokens, _), (q, kv, d)) = (extents(sizes), heads(sizes));
    let device = stream.device();
    let width = (q + 2 * kv) * d;
    let blocks = tokens.div_ceil(BLOCK);
    let qkv = device.tensor([tokens, width], &numbers(tokens * width))?;
    let turns = || device.tensor([tokens, d / 2], &numbers(tokens * d / 2));
    let (cos, sin) = (turns()?, turns()?);
    let order: Vec<i32> = (0..tokens as i32).collect();
    let (positions, slots) = (device.tensor([tokens], &order)?, device.tensor([tokens], &order)?);
    let mut out = device.empty::<f32>([tokens, q * d])?;
    let mut k = device.empty::<f16>([blocks, kv, d, BLOCK])?;
    let mut v = device.empty::<f16>([blocks, kv, BLOCK, d])?;
    let heads = rope::Heads { q, kv, pairs: rope::Pairs::Halves };
    Ok(Ready {
        size: format!("{tokens} tokens, {q} and {kv} heads of {d}"),
        bytes: (4 * tokens * (width + q * d) + 4 * tokens * kv * d + 4 * tokens * d) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = rope::rope_and_cache::launch(&qkv, &cos, &sin, &positions, &slots, &mut out, &mut k, &mut v);
            launch.dims(d / 2).cfg(heads).grid([tokens, q + 2 * kv]).run(s)
        }),
    })
}

/// `sequences` of a long context, each with `new` tokens at its end.
fn paged(stream: &Stream, sizes: Sizes, sequences: usize, new: usize) -> Result<Ready, Failure> {
    let (heads, kv, d) = heads(sizes);
    let (context, new) = if sizes == Sizes::Real { (4096.min(new.max(4) * 1024), new) } else { (64, new.min(4)) };
    let device = stream.device();
    let [bt, ..]: [usize; 4] = tiles(stream, "attention")?;
    let (group, tokens, blocks) = (heads / kv, sequences * new, sequences * context / BLOCK);
    let q = device.tensor([tokens, heads * d], &numbers(tokens * heads * d))?;
    let cache: Vec<f16> = numbers(blocks * kv * d * BLOCK).into_iter().map(f16::from_f32).collect();
    let (k, v) = (device.tensor([blocks, kv, d, BLOCK], &cache)?, device.tensor([blocks, kv, BLOCK, d], &cache)?);
    let per = context / BLOCK;
    // Blocks in no order.
    let tables: Vec<i32> = (0..blocks).map(|i| (i * 7 % blocks) as i32).collect();
    let tables = device.tensor([sequences, per], &tables)?;
    let mut work: Vec<i32> = vec![];
    for sequence in 0..sequences {
        for start in (0..new).step_by(bt) {
            let item = [sequence * new + start, bt.min(new - start), context - new + start, sequence];
            work.extend(item.map(|x| x as i32));
        }
    }
    let items = work.len() / 4;
    let (work, mut out) = (device.tensor([items, 4], &work)?, device.empty::<f32>([tokens, heads * d])?);
    // Keys that a token sees, on average.
    let seen = context as f64 - (new as f64 - 1.0) / 2.0;
    Ok(Ready {
        size: format!("{sequences} × {new} tokens at the end of {context}, {heads} and {kv} heads of {d}"),
        bytes: (4 * blocks * kv * d * BLOCK + 8 * tokens * heads * d) as f64,
        flops: 4.0 * seen * (tokens * heads * d) as f64,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = attention::attention::launch(&q, &k, &v, &tables, &work, &mut out, 0.1);
            let order = attention::Order { blocks_per_cut: 16 };
            launch.dims(bt, group, d, BLOCK).cfg(order).grid([kv, items]).run(s)
        }),
    })
}

fn sampled(stream: &Stream, sizes: Sizes, temperature: f32) -> Result<Ready, Failure> {
    let (rows, v) = if sizes == Sizes::Real { (16, 128_256) } else { (2, 3000) };
    let device = stream.device();
    let logits = device.tensor([rows, v], &numbers(rows * v))?;
    let params: Vec<f32> = (0..rows).flat_map(|_| [temperature, 0.9, 0.0, 1.0]).collect();
    let (params, top_k) = (device.tensor([rows, 4], &params)?, device.tensor([rows], &vec![40i32; rows])?);
    let (seeds, positions) = (device.tensor([rows], &vec![9u64; rows])?, device.tensor([rows], &vec![5i32; rows])?);
    let mut tokens = device.empty::<i32>([rows])?;
    let [bv] = tiles(stream, "sample")?;
    Ok(Ready {
        size: format!("{rows} × {v}"),
        bytes: (4 * rows * v) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            sample::sample::launch(&logits, &params, &top_k, &seeds, &positions, &mut tokens).dims(bv).grid(rows).run(s)
        }),
    })
}

/// Into panels, as CPUs have them: GPUs take weights as they are, and can do it all the same.
fn packed(stream: &Stream, sizes: Sizes, quant: Quant) -> Result<Ready, Failure> {
    let (_, k) = extents(sizes);
    let n = k;
    let device = stream.device();
    let row = k / quant.block() * quant.block_bytes();
    let gguf = support::gguf(quant, k, n, &mut support::Rng(8));
    let raw = device.tensor([n, row], &gguf)?;
    let panels = n.div_ceil(16);
    let bytes = Layout::Panel16.bytes(quant, k, n).ok_or("weights that are too large")?;
    let mut out = device.empty::<u8>([panels, bytes / panels])?;
    Ok(Ready {
        size: format!("{k} × {n} {quant}"),
        bytes: (gguf.len() + bytes) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            if quant.is_float() {
                let launch = pack::pack_floats::launch(&raw, &mut out).dims(64, quant.block_bytes());
                return launch.grid([panels, k.div_ceil(64)]).run(s);
            }
            let launch = pack::pack_blocks::launch(&raw, &mut out).dims(quant.block_bytes()).cfg(quant);
            launch.grid([panels, k / quant.block()]).run(s)
        }),
    })
}
