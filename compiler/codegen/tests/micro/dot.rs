//! `Dot`: tiles in memory of every element type, order and size; packed operands that end inside the tile.

use crate::harness::{Random, Scratch, TARGETS, compile, runs};
use half::{bf16, f16};
use tegula_codegen::lower::cpu::micro::{
    Stride,
    dot::{Dot, DotOperands, Order},
};
use tegula_ir::{Elem, Quant, layout};

/// A random matrix of `elem`, as bytes and as f64 (exact for every type).
fn matrix(random: &mut Random, elem: Elem, n: usize) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = vec![];
    let mut values = vec![];
    for _ in 0..n {
        let x = random.float() * 2.0;
        let value = match elem {
            Elem::F64 => {
                let x = f64::from(x) * 1.000000001;
                bytes.extend(x.to_le_bytes());
                x
            }
            Elem::F32 => {
                bytes.extend(x.to_le_bytes());
                x.into()
            }
            Elem::F16 => {
                bytes.extend(f16::from_f32(x).to_le_bytes());
                f16::from_f32(x).into()
            }
            Elem::BF16 => {
                bytes.extend(bf16::from_f32(x).to_le_bytes());
                bf16::from_f32(x).into()
            }
            _ => {
                let byte = (random.bits() >> 30) as u8;
                bytes.push(byte);
                if elem == Elem::I8 { f64::from(byte as i8) } else { f64::from(byte) }
            }
        };
        values.push(value);
    }
    (bytes, values)
}

/// A with rows 5 elements too long, B 3, C 2, compared with one fma chain an output (integers: exactly).
fn check(random: &mut Random, target: &str, dot: Dot, run_strides: bool) {
    let Dot { m, n, k, order, .. } = dot;
    let (b_rows, b_columns) = if order == Order::Columns { (n, k) } else { (k, n) };
    let (lda, ldb, ldc) = (k + 5, b_columns + 3, n + 2);
    let out = dot.accumulator();
    let row = |elem: Elem, n: usize| (elem.bytes() * n) as i64;
    let f = compile(target, |c, p| {
        let stride = |bytes: i64, at: usize| {
            if run_strides {
                Stride::Run(c.read(c.offset_c(p[4], at as i64 * 8), c.i64(), 0))
            } else {
                Stride::Fixed(bytes)
            }
        };
        dot.emit(
            c,
            &DotOperands {
                a: p[0],
                a_row: stride(row(dot.a, lda), 0),
                b: p[1],
                b_row: stride(row(dot.b, ldb), 1),
                exists: None,
                c: p[2],
                c_row: Stride::Fixed(row(out, ldc)),
                scratch: p[3],
            },
        );
    });
    if !runs(target) {
        return;
    }
    let ((a, av), (b, bv)) = (matrix(random, dot.a, m * lda), matrix(random, dot.b, b_rows * ldb));
    let (mut c, before) = matrix(random, if out == Elem::I32 { Elem::F32 } else { out }, m * ldc);
    let mut scratch = Scratch::new(dot.scratch_bytes());
    let strides = [row(dot.a, lda), row(dot.b, ldb)];
    let first = c.clone();
    unsafe { f.call(&[a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), scratch.address(), strides.as_ptr().cast()]) };
    let bv = |q: usize, j: usize| if order == Order::Columns { bv[j * ldb + q] } else { bv[q * ldb + j] };
    let size = out.bytes();
    for i in 0..m {
        for j in 0..ldc {
            let at = i * ldc + j;
            let got = &c[at * size..][..size];
            let want = if j >= n {
                first[at * size..][..size].to_vec()
            } else {
                let chain = || (0..k).map(|q| (av[i * lda + q], bv(q, j)));
                match out {
                    Elem::F64 => chain().fold(before[at], |s, (x, y)| x.mul_add(y, s)).to_le_bytes().to_vec(),
                    Elem::F32 => chain()
                        .fold(before[at] as f32, |s, (x, y)| (x as f32).mul_add(y as f32, s))
                        .to_le_bytes()
                        .to_vec(),
                    _ => {
                        let start = i32::from_le_bytes(first[at * 4..][..4].try_into().unwrap());
                        chain().fold(start, |s, (x, y)| s.wrapping_add(x as i32 * y as i32)).to_le_bytes().to_vec()
                    }
                }
            };
            assert_eq!(got, want, "{target} {dot:?} at ({i}, {j})");
        }
    }
}

#[test]
fn every_type_order_and_size() {
    let mut random = Random::new(3);
    use Elem::*;
    let types =
        [(F32, F32), (F64, F64), (F16, F16), (BF16, BF16), (I8, I8), (U8, U8), (F32, F16), (F32, BF16), (F16, F32)];
    let sizes = [(1, 48, 40), (3, 20, 17), (14, 37, 30), (9, 70, 300)];
    for target in TARGETS.into_iter().filter(|t| !t.contains("vnni")) {
        for (t, (a, b)) in types.into_iter().enumerate() {
            for (s, (m, n, k)) in sizes.into_iter().enumerate() {
                for order in [Order::Rows, Order::Columns] {
                    check(&mut random, target, Dot { m, n, k, a, b, order }, (t + s) % 2 == 0);
                }
            }
        }
    }
}

#[test]
fn packed_floats_may_end_inside_the_tile() {
    let mut random = Random::new(4);
    for target in TARGETS.into_iter().filter(|t| !t.contains("vnni")) {
        for (quant, elem) in [(Quant::F32, Elem::F32), (Quant::F16, Elem::F16), (Quant::BF16, Elem::BF16)] {
            for (m, bn, bk) in [(1, 128, 20), (5, 48, 32), (13, 64, 7)] {
                let dot = Dot::packed((m, bn, bk), Elem::F32, quant).unwrap();
                // A matrix of 2.5 tiles each way; the tile at (k0, n0).
                let (kk, nn) = (bk * 5 / 2, bn * 5 / 2 - 8);
                let panel = layout::panel::format(quant).panel_bytes(kk).unwrap() as i64;
                let f = compile(target, |c, p| {
                    let word = |i: i64| c.read(c.offset_c(p[4], i * 8), c.i64(), 0);
                    dot.emit(
                        c,
                        &DotOperands {
                            a: p[0],
                            a_row: Stride::Fixed(bk as i64 * 4),
                            b: p[1],
                            b_row: Stride::Fixed(panel),
                            exists: Some((word(0), word(1))),
                            c: p[2],
                            c_row: Stride::Fixed(bn as i64 * 4),
                            scratch: p[3],
                        },
                    );
                });
                if !runs(target) {
                    continue;
                }
                let (gguf, values) = matrix(&mut random, elem, kk * nn);
                let packed = layout::pack_reference(quant, &gguf, kk, nn).unwrap();
                for (k0, n0) in [(0, 0), (2 * bk, 0), (0, 2 * bn), (2 * bk, 2 * bn)] {
                    let a = random.floats(m * bk);
                    let before = random.floats(m * bn);
                    let mut c = before.clone();
                    let mut scratch = Scratch::new(dot.scratch_bytes());
                    let exists = [kk - k0, (nn - n0).div_ceil(16)];
                    let b = &packed[n0 / 16 * panel as usize + k0 * 16 * elem.bytes()..];
                    unsafe {
                        f.call(&[
                            a.as_ptr().cast(),
                            b.as_ptr(),
                            c.as_mut_ptr().cast(),
                            scratch.address(),
                            exists.as_ptr().cast(),
                        ])
                    };
                    for (i, j) in (0..m).flat_map(|i| (0..bn).map(move |j| (i, j))) {
                        let weight = |q: usize| {
                            if k0 + q < kk && n0 + j < nn { values[(n0 + j) * kk + k0 + q] as f32 } else { 0.0 }
                        };
                        let want = (0..bk).fold(before[i * bn + j], |s, q| a[i * bk + q].mul_add(weight(q), s));
                        let got = c[i * bn + j];
                        assert_eq!(
                            got.to_bits(),
                            want.to_bits(),
                            "{target} {quant} {m}x{bn}x{bk} tile ({k0}, {n0}) at ({i}, {j})"
                        );
                    }
                }
            }
        }
    }
}
