//! Packed weights in panels: dequant, gather, products of floats and of codes.

use crate::harness::*;
use tegula_ir::{
    Elem, Quant,
    layout::{Layout, pack_reference},
};

/// A random matrix: any bits are codes; scales are kept to moderate finite f16 numbers.
fn weights(quant: Quant, k: usize, n: usize, rng: &mut Rng) -> Arg {
    let size = quant.block_bytes();
    let blocks = Layout::Gguf.bytes(quant, k, n).unwrap() / size;
    let mut gguf = vec![];
    for _ in 0..blocks {
        let mut block: Vec<u8> = (0..size).map(|_| rng.next() as u8).collect();
        let mut half =
            |at: usize, rng: &mut Rng| block[at..at + 2].copy_from_slice(&(rng.bits(Elem::F16) as u16).to_le_bytes());
        match quant {
            Quant::F32 => block.copy_from_slice(&(rng.bits(Elem::F32) as u32).to_le_bytes()),
            Quant::F16 => half(0, rng),
            Quant::BF16 => block.copy_from_slice(&(rng.bits(Elem::BF16) as u16).to_le_bytes()),
            Quant::Q6_K => half(208, rng),
            Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 => half(0, rng),
            _ => {
                half(0, rng);
                half(2, rng);
            }
        }
        gguf.extend(block);
    }
    let bytes = pack_reference(quant, &gguf, k, n).unwrap();
    Arg::Packed { bytes, k, n, quant, layout: Layout::Panel16 }
}

#[test]
fn values() {
    let mut rng = Rng(21);
    for &quant in Quant::ALL {
        let (bk, bn) = (quant.block().max(32), 16);
        let (k, n) = (2 * bk, 40);
        let text = format!(
            "kernel @k(%0 \"w\": packed<{quant}, panel16>, %1 \"y\": view_mut<f32, 2, unit>, %2 \"i\": view<i64, 1, unit>, %3 \"j\": view<i64, 1, unit>, %4 \"z\": view_mut<f32, 1, unit>) {{
              %5 = program_id {{axis = 0}} : i32
              %6 = program_id {{axis = 1}} : i32
              %7 = cast %5 : i64
              %8 = cast %6 : i64
              %9 = const {{value = {bk}: i64}} : i64
              %10 = const {{value = {bn}: i64}} : i64
              %11 = mul %7, %9 : i64
              %12 = mul %8, %10 : i64
              %13 = packed_load %0, %11, %12 : qtile<{quant}, {bk}, {bn}>
              %14 = dequant %13 : tile<f32, {bk}, {bn}>
              store %1, %11, %12, %14
              %15 = const {{value = 0: i64}} : i64
              %16 = load %2, %15 : tile<i64, 21>
              %17 = load %3, %15 : tile<i64, 21>
              %18 = packed_gather %0, %16, %17 : tile<f32, 21>
              store %4, %15, %18
              %19 = packed_dim %0 {{axis = 0}} : i32
              %20 = packed_dim %0 {{axis = 1}} : i32
              %21 = cast %19 : f32
              %22 = cast %20 : f32
              %23 = broadcast %21 : tile<f32, 1>
              %24 = broadcast %22 : tile<f32, 1>
              %25 = const {{value = 22: i64}} : i64
              store %4, %25, %23
              %26 = const {{value = 23: i64}} : i64
              store %4, %26, %24
            }}"
        );
        let index = |rng: &mut Rng, n: u64| {
            Arg::view(Elem::I64, &[21], (0..21).map(|_| (rng.below(n + 4) as i64 - 2) as u64).collect::<Vec<_>>())
        };
        let args = [
            weights(quant, k, n, &mut rng),
            Arg::random(Elem::F32, &[3 * bk as i64, 50], &mut rng),
            index(&mut rng, k as u64),
            index(&mut rng, n as u64),
            Arg::random(Elem::F32, &[24], &mut rng),
        ];
        check(&text, &args, [3, 3, 1], Near::Exact);
    }
}

#[test]
fn products() {
    let mut rng = Rng(22);
    for &quant in Quant::ALL {
        let (bk, bn) = (quant.block().max(32), 32);
        let (k, n) = (2 * bk, 40);
        let ragged = if quant.is_float() { k - 5 } else { k };
        for m in [1, 5] {
            let product = if quant.is_float() {
                format!(
                    "%20 = dequant %19 : tile<f32, {bk}, {bn}>
                     %21 = load %0, %15, %18 : tile<f32, {m}, {bk}>
                     %22 = dot %21, %20, %17 : tile<f32, {m}, {bn}>"
                )
            } else {
                format!(
                    "%20 = load %0, %15, %18 : tile<i8, {m}, {bk}>
                     %30 = const {{value = 32: i64}} : i64
                     %31 = div %18, %30 : i64
                     %32 = load %4, %15, %31 : tile<f32, {m}, {}>
                     %33 = load %5, %15, %31 : tile<i32, {m}, {}>
                     %22 = dot_grouped %20, %32, %33, %19, %17 : tile<f32, {m}, {bn}>",
                    bk / 32,
                    bk / 32
                )
            };
            let x = if quant.is_float() { Elem::F32 } else { Elem::I8 };
            let text = format!(
                "kernel @k(%0 \"x\": view<{x}, 2, unit>, %1 \"w\": packed<{quant}, panel16>, %2 \"y\": view_mut<f32, 2, unit>, %4 \"s\": view<f32, 2, unit>, %5 \"u\": view<i32, 2, unit>) {{
                  %6 = program_id {{axis = 0}} : i32
                  %7 = cast %6 : i64
                  %8 = const {{value = {bn}: i64}} : i64
                  %9 = mul %7, %8 : i64
                  %10 = packed_dim %1 {{axis = 0}} : i32
                  %11 = const {{value = 0: i32}} : i32
                  %12 = const {{value = {bk}: i32}} : i32
                  %13 = const {{value = 0.5: f32}} : tile<f32, {m}, {bn}>
                  %15 = const {{value = 0: i64}} : i64
                  %14 = for %11, %10, %12, %13 : tile<f32, {m}, {bn}> {{
                    (%16: i32, %17: tile<f32, {m}, {bn}>)
                    %18 = cast %16 : i64
                    %19 = packed_load %1, %18, %9 : qtile<{quant}, {bk}, {bn}>
                    {product}
                    yield %22
                  }}
                  store %2, %15, %9, %14
                }}"
            );
            let rows = m as i64;
            let args = [
                Arg::random(x, &[rows, ragged as i64], &mut rng),
                weights(quant, ragged, n, &mut rng),
                Arg::random(Elem::F32, &[rows, n as i64], &mut rng),
                Arg::random(Elem::F32, &[rows, k as i64 / 32], &mut rng),
                Arg::random(Elem::I32, &[rows, k as i64 / 32], &mut rng),
            ];
            check(&text, &args, [2, 1, 1], Near::Exact);
        }
    }
}
