//! Whole small kernels: the first thing to look at when something is broken.

use crate::harness::*;
use tegula_ir::Elem;

fn vector_add(facts: &str, n: usize) -> String {
    format!(
        "kernel @add(%0 \"x\": view<f32, 1{facts}>, %1 \"y\": view<f32, 1{facts}>, %2 \"z\": view_mut<f32, 1{facts}>) {{
          %3 = program_id {{axis = 0}} : i32
          %4 = cast %3 : i64
          %5 = const {{value = {n}: i64}} : i64
          %6 = mul %4, %5 : i64
          %7 = load %0, %6 : tile<f32, {n}>
          %8 = load %1, %6 : tile<f32, {n}>
          %9 = add %7, %8 : tile<f32, {n}>
          store %2, %6, %9
        }}"
    )
}

#[test]
fn vector_addition() {
    let mut rng = Rng(1);
    for n in [1, 2, 7, 16, 33, 100] {
        for len in [1i64, 16, 17, 99, 100, 257] {
            for facts in ["", ", unit"] {
                let args = [0, 1, 2].map(|_| Arg::random(Elem::F32, &[len], &mut rng));
                check(&vector_add(facts, n), &args, [(len as usize).div_ceil(n) as i32, 1, 1], Near::Exact);
            }
        }
    }
}

fn softmax(rows: usize, n: usize) -> String {
    format!(
        "kernel @softmax(%0 \"x\": view<f32, 2, unit>, %1 \"y\": view_mut<f32, 2, unit>) {{
          %2 = program_id {{axis = 0}} : i32
          %3 = cast %2 : i64
          %4 = const {{value = {rows}: i64}} : i64
          %5 = mul %3, %4 : i64
          %6 = const {{value = 0: i64}} : i64
          %7 = load %0, %5, %6 {{pad = bits(0xff800000): f32}} : tile<f32, {rows}, {n}>
          %8 = reduce %7 {{axis = 1, kind = max}} : tile<f32, {rows}, 1>
          %9 = broadcast %8 : tile<f32, {rows}, {n}>
          %10 = sub %7, %9 : tile<f32, {rows}, {n}>
          %11 = exp %10 : tile<f32, {rows}, {n}>
          %12 = reduce %11 {{axis = 1, kind = sum}} : tile<f32, {rows}, 1>
          %13 = broadcast %12 : tile<f32, {rows}, {n}>
          %14 = div %11, %13 : tile<f32, {rows}, {n}>
          store %1, %5, %6, %14
        }}"
    )
}

#[test]
fn softmax_of_rows() {
    let mut rng = Rng(2);
    for (rows, n) in [(1, 1), (1, 17), (3, 33), (4, 128), (2, 300)] {
        for (m, len) in [(1, n as i64), (5, n as i64), (7, (n as i64 + 1) / 2)] {
            let args = [Arg::random(Elem::F32, &[m, len], &mut rng), Arg::random(Elem::F32, &[m, len], &mut rng)];
            check(&softmax(rows, n), &args, [(m as usize).div_ceil(rows) as i32, 1, 1], Near::Within(1e-6));
        }
    }
}

/// Values used twice at every level: work may not double with each.
#[test]
fn long_chains_compile() {
    let n = 20;
    let mut text = format!(
        "kernel @k(%0 \"x\": view_mut<f32, 1, unit>) {{\n%1 = const {{value = 0: i64}} : i64\n%2 = load %0, %1 : tile<f32, {n}>\n"
    );
    for i in 3..80 {
        let (op, a, b) = if i % 2 == 0 { ("mul", i - 1, i - 1) } else { ("sub", i - 1, i - 1 - (i > 4) as usize * 2) };
        text += &format!("%{i} = {op} %{a}, %{b} : tile<f32, {n}>\n");
    }
    text += "store %0, %1, %79\n}";
    check(&text, &[Arg::random(Elem::F32, &[n], &mut Rng(9))], [1, 1, 1], Near::Exact);
}
