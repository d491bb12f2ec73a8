//! Kernels that have peers everywhere: sums, rows, products; and the examples'.

use super::{Failure, Ready, Work, numbers, tiles};
use crate::options::Sizes;
use tegula::prelude::*;
use tegula_kernels::{activation, basic, norm};

#[path = "../../../../../../kernels/examples/dropout.rs"]
#[allow(dead_code)]
mod dropout;
#[path = "../../../../../../kernels/examples/flash_attention.rs"]
#[allow(dead_code)]
mod flash_attention;
#[path = "../../../../../../kernels/examples/histogram.rs"]
#[allow(dead_code)]
mod histogram;
#[path = "../../../../../../kernels/examples/layer_norm.rs"]
#[allow(dead_code)]
mod layer_norm;

pub const WORKS: &[Work] = &[
    Work { name: "vector_add f32", peer: "add f32", make: vector_add },
    Work { name: "softmax f32", peer: "softmax f32", make: |s, z| softmax::<f32>(s, z, |x| x) },
    Work { name: "softmax bf16", peer: "softmax bf16", make: |s, z| softmax::<bf16>(s, z, bf16::from_f32) },
    Work { name: "matmul f32", peer: "matmul f32", make: |s, z| matmul::<f32>(s, z, |x| x) },
    Work { name: "matmul f16", peer: "matmul f16", make: |s, z| matmul::<f16>(s, z, f16::from_f32) },
    Work { name: "matmul bf16", peer: "matmul bf16", make: |s, z| matmul::<bf16>(s, z, bf16::from_f32) },
    Work { name: "rms_norm", peer: "rms_norm f32", make: rms_norm },
    Work { name: "swiglu", peer: "swiglu f32", make: swiglu },
    Work { name: "example layer_norm", peer: "layer_norm f32", make: example_layer_norm },
    Work { name: "example dropout", peer: "dropout f32", make: example_dropout },
    Work { name: "example flash_attention", peer: "attention f32", make: example_flash_attention },
    Work { name: "example histogram", peer: "histogram u8", make: example_histogram },
];

fn vector_add(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let n = if sizes == Sizes::Real { 64 << 20 } else { 4096 };
    let x = numbers(n);
    let device = stream.device();
    let (a, b, mut c) = (device.tensor([n], &x)?, device.tensor([n], &x)?, device.empty::<f32>([n])?);
    let [bn] = tiles(stream, "vector_add")?;
    Ok(Ready {
        size: format!("{n}"),
        bytes: 12.0 * n as f64,
        flops: n as f64,
        tensor: false,
        launch: Box::new(move |s| basic::vector_add::launch(&a, &b, &mut c).dims(bn).run(s)),
    })
}

/// Rows and columns of activations.
fn rows(sizes: Sizes) -> (usize, usize) {
    if sizes == Sizes::Real { (8192, 4096) } else { (4, 256) }
}

fn softmax<T: Float>(stream: &Stream, sizes: Sizes, of: fn(f32) -> T) -> Result<Ready, Failure> {
    let (rows, n) = rows(sizes);
    let x: Vec<T> = numbers(rows * n).into_iter().map(of).collect();
    let device = stream.device();
    let (x, mut y) = (device.tensor([rows, n], &x)?, device.empty::<T>([rows, n])?);
    Ok(Ready {
        size: format!("{rows} × {n}"),
        bytes: (2 * rows * n * size_of::<T>()) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| basic::softmax::launch(&x, &mut y).dims(n).grid(rows).run(s)),
    })
}

fn matmul<T: Float>(stream: &Stream, sizes: Sizes, of: fn(f32) -> T) -> Result<Ready, Failure> {
    let n = if sizes == Sizes::Real { 2048 } else { 64 };
    let x: Vec<T> = numbers(n * n).into_iter().map(of).collect();
    let device = stream.device();
    let (a, b, mut c) = (device.tensor([n, n], &x)?, device.tensor([n, n], &x)?, device.empty::<T>([n, n])?);
    let [bm, bn, bk] = tiles(stream, "matmul")?;
    Ok(Ready {
        size: format!("{n} × {n} × {n}"),
        bytes: (3 * n * n * size_of::<T>()) as f64,
        flops: 2.0 * (n as f64).powi(3),
        tensor: size_of::<T>() == 2,
        launch: Box::new(move |s| basic::matmul::launch(&a, &b, &mut c).dims(bm, bn, bk).run(s)),
    })
}

fn rms_norm(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (rows, n) = rows(sizes);
    let device = stream.device();
    let (x, w) = (device.tensor([rows, n], &numbers(rows * n))?, device.tensor([1, n], &numbers(n))?);
    let mut y = device.empty::<f32>([rows, n])?;
    Ok(Ready {
        size: format!("{rows} × {n}"),
        bytes: (8 * rows * n + 4 * n) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| norm::rms_norm::launch(&x, &w, &mut y, 1e-5).dims(n).grid(rows).run(s)),
    })
}

fn swiglu(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (rows, n) = rows(sizes);
    let device = stream.device();
    let x = device.tensor([rows, 2 * n], &numbers(2 * rows * n))?;
    let mut y = device.empty::<f32>([rows, n])?;
    Ok(Ready {
        size: format!("{rows} × {n}"),
        bytes: 12.0 * (rows * n) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| activation::swiglu::launch(&x, &mut y).dims(n).grid(rows).run(s)),
    })
}

fn example_layer_norm(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (rows, n) = rows(sizes);
    let device = stream.device();
    let x = device.tensor([rows, n], &numbers(rows * n))?;
    let (w, b) = (device.tensor([n], &numbers(n))?, device.tensor([n], &numbers(n))?);
    let mut y = device.empty::<f32>([rows, n])?;
    Ok(Ready {
        size: format!("{rows} × {n}"),
        bytes: (8 * rows * n + 8 * n) as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| layer_norm::layer_norm::launch(&x, &w, &b, &mut y, 1e-5).dims(n).grid(rows).run(s)),
    })
}

fn example_dropout(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let n = if sizes == Sizes::Real { 64 << 20 } else { 4096 };
    let device = stream.device();
    let (x, mut y) = (device.tensor([n], &numbers(n))?, device.empty::<f32>([n])?);
    Ok(Ready {
        size: format!("{n}"),
        bytes: 8.0 * n as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| dropout::dropout::launch(&x, &mut y, 0.3, 7).dims(1024).run(s)),
    })
}

fn example_flash_attention(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let (heads, n, d) = if sizes == Sizes::Real { (32, 2048, 64) } else { (1, 64, 64) };
    let device = stream.device();
    let x = numbers(heads * n * d);
    let input = || device.tensor([heads, n, d], &x);
    let (q, k, v, mut o) = (input()?, input()?, input()?, device.empty::<f32>([heads, n, d])?);
    Ok(Ready {
        size: format!("{heads} heads, {n} tokens of {d}, causal"),
        bytes: (16 * heads * n * d) as f64,
        // Two products over half of the square.
        flops: 2.0 * (heads * n * n * d) as f64,
        tensor: false,
        launch: Box::new(move |s| {
            let launch = flash_attention::flash::launch(&q, &k, &v, &mut o, 0.125);
            launch.dims(32, 32, d).grid([n.div_ceil(32), heads]).run(s)
        }),
    })
}

fn example_histogram(stream: &Stream, sizes: Sizes) -> Result<Ready, Failure> {
    let n = if sizes == Sizes::Real { 64 << 20 } else { 4096 };
    let device = stream.device();
    let text: Vec<u8> = (0..n).map(|i: usize| (i.wrapping_mul(40503) >> 5) as u8).collect();
    let kinds: Vec<i32> = (0..256).map(|i| i % 4).collect();
    let (text, kinds) = (device.tensor([n], &text)?, device.tensor([256], &kinds)?);
    let mut counts = device.zeros::<i32>([4])?;
    Ok(Ready {
        size: format!("{n} bytes"),
        bytes: n as f64,
        flops: 0.0,
        tensor: false,
        launch: Box::new(move |s| {
            histogram::histogram::launch(&text, &kinds, &mut counts).dims(1024).grid(n.div_ceil(1024)).run(s)
        }),
    })
}
