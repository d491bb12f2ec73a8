//! Matrix products, and moving tiles between layouts.

use super::{
    super::{K, Row, data, ints},
    noise,
};
use crate::{Elem, Elem::*, OpKind::*};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        int8_small(),
        int8_long(),
        upcast(),
        transposed_chain(),
        three_products(4),
        three_products(8),
        reshape_order(),
        pointer_advance(),
        ragged_columns(),
    ];
    rows.extend([64, 128].map(two_dots));
    rows.extend([F8E4M3, F8E5M2].map(moved_patterns));
    rows
}

fn int8_small() -> Row {
    let mut k = K::new("int8_small");
    let (a, b, y) = (k.view("a", I8, 2), k.view("b", I8, 2), k.view_mut("y", I32, 2));
    let (a, b) = (k.read(a, &[16, 32]), k.read(b, &[32, 16]));
    let z = k.splat(I32, 0.0, &[16, 16]);
    let t = k.dot(a, b, z);
    k.write(y, t);
    Row::new("C38", "i8 products add up in i32", k.finish())
        .input(I8, &[1, 2], &ints(I8, [10, 20]))
        .input(I8, &[2, 1], &ints(I8, [10, 20]))
        .output(I32, &[1, 1], &ints(I32, [500]))
}

fn int8_long() -> Row {
    let mut k = K::new("int8_long");
    let (a, b, y) = (k.view("a", I8, 2), k.view("b", I8, 2), k.view_mut("y", I32, 2));
    let (lo, hi, step) = (k.at(0), k.at(4608), k.at(128));
    let z = k.splat(I32, 0.0, &[1, 4]);
    let r = k.for_loop([lo, hi, step], &[z], |k, at, acc| {
        let zero = k.at(0);
        let (a, b) = (k.load(a, &[zero, at], &[1, 128]), k.load(b, &[at, zero], &[128, 4]));
        vec![k.dot(a, b, acc[0])]
    });
    k.write(y, r[0]);
    let mut v = vec![127; 4608];
    v[1234] = 0;
    let w = (0..4608 * 4).map(|i| if i / 4 == 1234 { 0 } else { 127 });
    Row::new("C39", "i8 products over a long K are exact", k.finish())
        .input(I8, &[1, 4608], &ints(I8, v))
        .input(I8, &[4608, 4], &ints(I8, w))
        .output(I32, &[1, 4], &ints(I32, [74_306_303; 4]))
}

/// One fma chain per output in ascending k.
fn f32_chain(a: &[f64], b: &[f64], (m, depth, n): (usize, usize, usize)) -> Vec<f64> {
    let cell = |i: usize, j: usize| {
        (0..depth).fold(0f32, |acc, k| (a[i * depth + k] as f32).mul_add(b[k * n + j] as f32, acc))
    };
    (0..m * n).map(|i| f64::from(cell(i / n, i % n))).collect()
}

fn upcast() -> Row {
    let (m, depth, n) = (16usize, 32usize, 16usize);
    let mut k = K::new("upcast");
    let (a, b, y) = (k.view("a", BF16, 2), k.view("b", F32, 2), k.view_mut("y", F32, 2));
    let (a, b) = (k.read(a, &[m, depth]), k.read(b, &[depth, n]));
    let a = k.cast(a, F32);
    let z = k.splat(F32, 0.0, &[m, n]);
    let t = k.dot(a, b, z);
    k.write(y, t);
    let va = noise(m * depth, 21);
    // Mantissas that a product in bf16 or tf32 would lose.
    let vb: Vec<f64> = noise(depth * n, 22).iter().map(|v| f64::from((v * 1.000_123) as f32)).collect();
    let want = f32_chain(&va, &vb, (m, depth, n));
    Row::new("C41", "bf16 widened to f32 multiplies as f32", k.finish())
        .input(BF16, &[16, 32], &data(BF16, &va))
        .input(F32, &[32, 16], &data(F32, &vb))
        .output(F32, &[16, 16], &data(F32, &want))
}

fn transposed_chain() -> Row {
    let mut k = K::new("transposed_chain");
    let y = k.view_mut("y", F32, 2);
    let one = k.splat(F32, 1.0, &[64, 64]);
    let z = k.splat(F32, 0.0, &[64, 64]);
    let t = k.dot(one, one, z);
    let t = k.permute(t, &[1, 0]);
    let t = k.dot(t, one, z);
    k.write(y, t);
    Row::new("C42", "a product of a transposed product", k.finish()).output(
        F32,
        &[64, 64],
        &data(F32, &[4096.0; 64 * 64]),
    )
}

fn two_dots(m: usize) -> Row {
    let mut k = K::new("two_dots");
    let y = k.view_mut("y", F32, 2);
    let (a, b) = (k.splat(F16, 1.0, &[m, 64]), k.splat(F16, 1.0, &[64, 32]));
    let z = k.splat(F32, 0.0, &[m, 32]);
    let t = k.dot(a, b, z);
    let t = k.dot(a, b, t);
    k.write(y, t);
    Row::new("C43", "two products into one accumulator", k.finish()).output(
        F32,
        &[m as i64, 32],
        &data(F32, &vec![128.0; m * 32]),
    )
}

/// On GPUs, by so many warps.
fn three_products(warps: usize) -> Row {
    let mut k = K::new("three_products");
    let y = k.view_mut("y", F32, 2);
    let (q, kk, v) = (k.splat(BF16, 1.0, &[64, 64]), k.splat(BF16, 1.0, &[64, 128]), k.splat(BF16, 1.0, &[128, 64]));
    let z = k.splat(F32, 0.0, &[64, 128]);
    let s = k.dot(q, kk, z);
    let s = k.cast(s, BF16);
    let z = k.splat(F32, 0.0, &[64, 64]);
    let t = k.dot(s, v, z);
    k.write(y, t);
    let mut kernel = k.finish();
    kernel.set_warps(warps);
    Row::new("C44", "(q·k)·v of ones", kernel).output(F32, &[64, 64], &data(F32, &[8192.0; 64 * 64]))
}

fn reshape_order() -> Row {
    let mut k = K::new("reshape_order");
    let (x, y, z) = (k.view("x", I32, 2), k.view_mut("y", I32, 3), k.view_mut("z", I32, 1));
    let t = k.read(x, &[4, 32]);
    let r = k.reshape(t, &[4, 2, 16]);
    k.write(y, r);
    let r = k.reshape(t, &[4, 1, 32]);
    let r = k.broadcast(r, &[4, 2, 32]);
    let r = k.reshape(r, &[256]);
    k.write(z, r);
    let twice = (0..256).map(|i| i / 64 * 32 + i % 32);
    Row::new("C46", "reshape keeps row-major order", k.finish())
        .input(I32, &[4, 32], &ints(I32, 0..128))
        .output(I32, &[4, 2, 16], &ints(I32, 0..128))
        .output(I32, &[256], &ints(I32, twice))
}

/// All 256 patterns through transposition, reshape, slices and back.
fn moved_patterns(elem: Elem) -> Row {
    let mut k = K::new("moved_patterns");
    let (x, y) = (k.view("x", elem, 2), k.view_mut("y", U8, 2));
    let t = k.read(x, &[16, 16]);
    let t = k.permute(t, &[1, 0]);
    let (a, b) = (k.slice(t, 0, 0, 5), k.slice(t, 0, 5, 11));
    let t = k.cat(&[a, b], 0);
    let t = k.permute(t, &[1, 0]);
    let t = k.op(Bitcast, &[t], crate::TileType::new(U8, [16, 16]));
    k.write(y, t);
    let v = ints(U8, 0..256);
    Row::new("C47", "every 8-bit float pattern survives being moved", k.finish()).input(elem, &[16, 16], &v).output(
        U8,
        &[16, 16],
        &v,
    )
}

fn pointer_advance() -> Row {
    let mut k = K::new("pointer_advance");
    let (a, b, trips, y) = (k.view("a", F32, 2), k.view("b", F32, 2), k.param("trips", I32), k.view_mut("y", F32, 2));
    let (lo, one) = (k.int(I32, 0), k.int(I32, 1));
    let z = k.splat(F32, 0.0, &[4, 8]);
    let start = k.at(0);
    let r = k.for_loop([lo, trips, one], &[z, z, start], |k, _, c| {
        let (zero, step) = (k.at(0), k.at(8));
        let (x, w) = (k.load(a, &[zero, c[2]], &[4, 8]), k.load(b, &[c[2], zero], &[8, 8]));
        let first = k.dot(x, w, c[0]);
        let second = k.dot(x, w, c[1]);
        let two = k.splat(F32, 2.0, &[4, 8]);
        let second = k.mul(second, two);
        vec![first, second, k.add(c[2], step)]
    });
    let t = k.cat(&r[..2], 0);
    k.write(y, t);
    let (va, vb) = (noise(4 * 24, 23), noise(24 * 8, 24));
    let first = f32_chain(&va, &vb, (4, 24, 8));
    let mut second = [0f32; 32];
    for block in 0..3 {
        for (i, s) in second.iter_mut().enumerate() {
            let chain = (0..8).fold(*s, |acc, d| {
                (va[i / 8 * 24 + block * 8 + d] as f32).mul_add(vb[(block * 8 + d) * 8 + i % 8] as f32, acc)
            });
            *s = chain * 2.0;
        }
    }
    let want: Vec<f64> = first.into_iter().chain(second.iter().map(|&v| f64::from(v))).collect();
    Row::new("C59", "a carried position and accumulators of two products", k.finish())
        .input(F32, &[4, 24], &data(F32, &va))
        .input(F32, &[24, 8], &data(F32, &vb))
        .scalar(crate::Scalar::from_i64(I32, 3))
        .output(F32, &[8, 8], &data(F32, &want))
}

fn ragged_columns() -> Row {
    let (m, depth, n) = (20usize, 40usize, 104usize);
    let mut k = K::new("ragged_columns");
    let (a, b, y) = (k.view("a", F32, 2), k.view("b", F32, 2), k.view_mut("y", F32, 2));
    let at = [0, 1].map(|axis| {
        let p = k.program_id(axis);
        let p = k.cast(p, I64);
        let extent = k.at([16, 32][axis]);
        k.mul(p, extent)
    });
    let (lo, step) = (k.at(0), k.at(16));
    let hi = k.dim(a, 1);
    let hi = k.cast(hi, I64);
    let z = k.splat(F32, 0.0, &[16, 32]);
    let r = k.for_loop([lo, hi, step], &[z], |k, d, acc| {
        let (x, w) = (k.load(a, &[at[0], d], &[16, 16]), k.load(b, &[d, at[1]], &[16, 32]));
        vec![k.dot(x, w, acc[0])]
    });
    k.store(y, &at, r[0]);
    let (va, vb) = (noise(m * depth, 25), noise(depth * n, 26));
    let want = f32_chain(&va, &vb, (m, depth, n));
    Row::new("C79", "every column of a product whose N is no multiple of the tile", k.finish())
        .input(F32, &[20, 40], &data(F32, &va))
        .input(F32, &[40, 104], &data(F32, &vb))
        .output(F32, &[20, 104], &data(F32, &want))
        .grid([2, 4, 1])
}
