//! How often kinds of characters occur in a text: a table read by gather, counts by atomic addition.

use std::time::{Duration, Instant};
use tegula::prelude::*;

#[kernel]
pub fn histogram<N: Dim>(text: View<u8, 1>, kinds: View<i32, 1>, counts: ViewMut<i32, 1>) {
    let i = program_id(0);
    let bytes = text.load::<(N,)>(i);
    let inside = iota::<N>() + i * N::extent() < text.dim::<0>();
    let kind = kinds.gather(bytes.cast::<i32>());
    counts.atomic_add_masked(kind, 1, inside, MemOrder::Relaxed);
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let names = ["letters", "digits", "spaces", "others"];
    let kind = |byte: u8| match byte {
        b if b.is_ascii_alphabetic() => 0,
        b if b.is_ascii_digit() => 1,
        b if b.is_ascii_whitespace() => 2,
        _ => 3,
    };
    let source = include_bytes!("histogram.rs").repeat(100);
    let text = Tensor::<u8>::from_slice([source.len()], &source)?;
    let kinds = Tensor::<i32>::from_fn([256], |i| kind(i[0] as u8))?;
    let mut counts = Tensor::<i32>::zeros([names.len()])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        counts = Tensor::zeros([names.len()])?;
        let begun = Instant::now();
        histogram::launch(&text, &kinds, &mut counts).dims(1024).grid(source.len().div_ceil(1024)).run(&stream)?;
        time = begun.elapsed();
    }

    let mut want = vec![0; names.len()];
    source.iter().for_each(|&b| want[kind(b) as usize] += 1);
    let error = counts.as_slice().iter().zip(&want).map(|(c, w)| (c - w).abs()).max().unwrap_or(0);
    let found: Vec<String> = names.iter().zip(counts.as_slice()).map(|(n, c)| format!("{c} {n}")).collect();
    println!("histogram: {}, largest error {error}, {time:.0?}", found.join(", "));
    assert_eq!(error, 0);
    Ok(())
}
