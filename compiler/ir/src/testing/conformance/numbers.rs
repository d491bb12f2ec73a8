//! Integer and float arithmetic, casts, `bool`.

use super::super::{K, Row, data, ints};
use crate::{Elem, Elem::*, OpKind, OpKind::*, Scalar, Value};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        compare_bytes(),
        invert_bool(),
        nan_equality(),
        shift_right(I32, -8, 1, -4),
        shift_right(U32, 0x8000_0000, 1, 0x4000_0000),
        shift_right(U16, 0xdead, 4, 0x0dea),
        shift_right(U32, 0xdead_beef, 4, 0x0dea_dbee),
        shift_right(U8, 0xf0, 4, 0x0f),
        upper_half(),
        signed_remainder(),
        to_fp8(F16, F8E5M2, &[9.0, 1.125], &[8.0, 1.0]),
        to_fp8(F32, F8E4M3, &[1.0625001, 1.0625], &[1.125, 1.0]),
        fp8_constants(F8E4M3, &[0.3125, 448.0, 448.0, 448.0, 0.001953125, 448.0, f64::NAN]),
        fp8_constants(F8E5M2, &[0.3125, 448.0, 448.0, 57344.0, 0.001953125, 57344.0, f64::NAN]),
        bf16_products(),
        f16_scalar(),
        saturate(F16, I8, &[f64::INFINITY, 510.0, -200.0, f64::NAN], &[127, 127, -128, 0]),
        saturate(F32, I32, &[3e9, -3e9, f64::NAN, 2.9], &[i32::MAX as i64, i32::MIN as i64, 0, 2]),
        negative_fill(4),
        negative_fill(32),
        nibbles(),
        product_beside_fma(),
        folder_edges(),
        or_table(),
    ];
    for elem in [I8, I16, I32, I64] {
        rows.extend([false, true].map(|scalar| division(elem, scalar)));
        rows.push(division_by_zero(elem));
    }
    rows
}

/// `f` of the two tiles x and y, once of loaded values and once of constants.
fn pairs(
    id: &'static str,
    about: &'static str,
    elem: Elem,
    kinds: &[OpKind],
    x: &[i64],
    y: &[i64],
    want: &[Vec<i64>],
) -> Row {
    let n = x.len();
    let mut k = K::new("pairs");
    let (xv, yv) = (k.view("x", elem, 1), k.view("y", elem, 1));
    let outs: Vec<Value> = (0..2).map(|i| k.view_mut(["loaded", "constant"][i], elem, 2)).collect();
    let loaded = [k.read(xv, &[n]), k.read(yv, &[n])];
    let mut constant = |v: &[i64]| {
        let parts: Vec<Value> = v.iter().map(|&v| k.constant(Scalar::from_i64(elem, v), &[1])).collect();
        k.cat(&parts, 0)
    };
    let constant = [constant(x), constant(y)];
    for (operands, out) in [loaded, constant].iter().zip(outs) {
        let rows: Vec<Value> = kinds
            .iter()
            .map(|&kind| {
                let t = k.ew(kind, operands);
                k.reshape(t, &[1, n])
            })
            .collect();
        let t = k.cat(&rows, 0);
        k.write(out, t);
    }
    let want = ints(elem, want.concat());
    let extents = [kinds.len() as i64, n as i64];
    let row = Row::new(id, about, k.finish()).input(elem, &[n as i64], &ints(elem, x.to_vec())).input(
        elem,
        &[n as i64],
        &ints(elem, y.to_vec()),
    );
    row.output(elem, &extents, &want).output(elem, &extents, &want)
}

fn compare_bytes() -> Row {
    let mut k = K::new("compare_bytes");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", Bool, 1));
    let t = k.read(x, &[6]);
    let zero = k.splat(F32, 0.0, &[6]);
    let t = k.ew(Gt, &[t, zero]);
    k.write(y, t);
    Row::new("C17", "a comparison is stored as 0 or 1", k.finish())
        .input(F32, &[6], &data(F32, &[1.0, -1.0, 0.0, 2.0, f64::NAN, f64::INFINITY]))
        .output(Bool, &[6], &[1, 0, 0, 1, 0, 1])
}

fn invert_bool() -> Row {
    let mut k = K::new("invert_bool");
    let (x, y) = (k.view("x", Bool, 1), k.view_mut("y", Bool, 1));
    let t = k.read(x, &[5]);
    let t = k.ew(Not, &[t]);
    k.write(y, t);
    // Any non-zero byte is true.
    Row::new("C18", "not of a loaded bool", k.finish()).input(Bool, &[5], &[0, 1, 2, 255, 0]).output(
        Bool,
        &[5],
        &[1, 0, 0, 0, 1],
    )
}

fn nan_equality() -> Row {
    let mut k = K::new("nan_equality");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", Bool, 2));
    let t = k.read(x, &[2]);
    let rows = [Ne, Eq, Lt, Le, Gt, Ge].map(|kind| {
        let t = k.ew(kind, &[t, t]);
        k.reshape(t, &[1, 2])
    });
    let t = k.cat(&rows, 0);
    k.write(y, t);
    Row::new("C23", "NaN differs from itself", k.finish()).input(F32, &[2], &data(F32, &[f64::NAN, 1.5])).output(
        Bool,
        &[6, 2],
        &[1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
    )
}

/// As tiles, and as one-element tiles, which an executor may treat as scalars.
fn division(elem: Elem, scalar: bool) -> Row {
    let (x, y) = ([-7, 7, -1, -7, 7], [2, -2, 2, 3, -3]);
    let n = if scalar { 1 } else { 5 };
    let (quotients, remainders) = (vec![-3, -3, 0, -2, -2], vec![-1, 1, -1, -1, 1]);
    pairs(
        "C24",
        "integer division truncates",
        elem,
        &[Div, Rem],
        &x[..n],
        &y[..n],
        &[quotients[..n].to_vec(), remainders[..n].to_vec()],
    )
}

fn division_by_zero(elem: Elem) -> Row {
    let least = Scalar::from_i64(elem, 1 << (elem.bits() - 1)).to_i64();
    pairs(
        "C26",
        "x/0 = 0, x%0 = x, the least value / −1 wraps",
        elem,
        &[Div, Rem],
        &[5, -5, 0, least],
        &[0, 0, 0, -1],
        &[vec![0, 0, 0, least], vec![5, -5, 0, 0]],
    )
}

fn shift_right(elem: Elem, x: i64, by: i64, want: i64) -> Row {
    let id = if elem == I32 || by == 1 { "C27" } else { "C28" };
    pairs(id, "shift right, arithmetic or logical by type", elem, &[Shr], &[x], &[by], &[vec![want]])
}

fn upper_half() -> Row {
    let x = [-1, -2, -7, -255];
    pairs("C36", "upper half of an unsigned product of i32", I32, &[Umulhi], &x, &x, &[vec![-2, -4, -14, -510]])
}

fn signed_remainder() -> Row {
    let (x, y) = ([-7, 7, -7, 7], [3, -3, -3, 3]);
    pairs("C73", "a remainder has the sign of the dividend", I32, &[Rem], &x, &y, &[vec![-1, 1, -1, 1]])
}

fn to_fp8(from: Elem, to: Elem, x: &[f64], want: &[f64]) -> Row {
    let n = x.len();
    let mut k = K::new("to_fp8");
    let (xv, y) = (k.view("x", from, 1), k.view_mut("y", to, 1));
    let t = k.read(xv, &[n]);
    let t = k.cast(t, to);
    k.write(y, t);
    Row::new("C48", "8-bit floats: to nearest even, once", k.finish()).input(from, &[n as i64], &data(from, x)).output(
        to,
        &[n as i64],
        &data(to, want),
    )
}

fn fp8_constants(elem: Elem, want: &[f64]) -> Row {
    let x = [0.3, 448.0, 449.0, 1e9, 0.001953125, f64::INFINITY, f64::NAN];
    let mut k = K::new("fp8_constants");
    let (xv, y, z) = (k.view("x", F32, 1), k.view_mut("y", elem, 1), k.view_mut("z", elem, 1));
    let t = k.read(xv, &[7]);
    let t = k.cast(t, elem);
    k.write(y, t);
    let parts = x.map(|v| {
        let c = k.splat(F32, v, &[1]);
        k.cast(c, elem)
    });
    let t = k.cat(&parts, 0);
    k.write(z, t);
    Row::new("C49", "8-bit float constants, saturation", k.finish())
        .input(F32, &[7], &data(F32, &x))
        .output(elem, &[7], &data(elem, want))
        .output(elem, &[7], &data(elem, want))
}

fn bf16_products() -> Row {
    let n = 256;
    let mut state = 17;
    let mut pattern = || super::super::random::next(&mut state) >> 48;
    let (mut x, mut y): (Vec<u64>, Vec<u64>) =
        ((0..n).map(|_| pattern()).collect(), (0..n).map(|_| pattern()).collect());
    // NaN with only low mantissa bits, infinities, ∞·0.
    x[..4].copy_from_slice(&[0x7f81, 0x7f80, 0x7f80, 0xff81]);
    y[..4].copy_from_slice(&[0x3f80, 0x4000, 0x0000, 0xc000]);
    let mut k = K::new("bf16_products");
    let (xv, yv, out, wide) =
        (k.view("x", BF16, 1), k.view("y", BF16, 1), k.view_mut("product", BF16, 1), k.view_mut("wide", F32, 1));
    let (a, b) = (k.read(xv, &[n]), k.read(yv, &[n]));
    let t = k.mul(a, b);
    k.write(out, t);
    let t = k.cast(t, F32);
    k.write(wide, t);
    let float = |bits: u64| f32::from_bits((bits as u32) << 16);
    // The product of two bf16 is exact in f64.
    let want: Vec<u64> =
        x.iter().zip(&y).map(|(&a, &b)| round_bf16(f64::from(float(a)) * f64::from(float(b)))).collect();
    let wide: Vec<u64> = want.iter().map(|b| b << 16).collect();
    let extents = [n as i64];
    Row::new("C51", "bf16 products round once; NaN stays NaN", k.finish())
        .input(BF16, &extents, &x)
        .input(BF16, &extents, &y)
        .output(BF16, &extents, &want)
        .output(F32, &extents, &wide)
}

/// To nearest even by searching between the neighbours: slow and obvious.
fn round_bf16(v: f64) -> u64 {
    if v.is_nan() {
        return 0x7fc0;
    }
    let value = |bits: u64| f64::from(f32::from_bits((bits as u32) << 16));
    let sign = if v.is_sign_negative() { 0x8000 } else { 0 };
    let a = v.abs();
    // The last finite pattern not above `a`.
    let below = (0..15)
        .rev()
        .fold(0u64, |b, bit| if b | 1 << bit <= 0x7f7f && value(b | 1 << bit) <= a { b | 1 << bit } else { b });
    // What infinity stands for: one step beyond the largest.
    let above = if below == 0x7f7f { 2f64.powi(128) } else { value(below + 1) };
    let middle = (value(below) + above) / 2.0;
    sign | if a > middle || (a == middle && below % 2 == 1) { below + 1 } else { below }
}

fn f16_scalar() -> Row {
    let mut k = K::new("f16_scalar");
    let (a, y) = (k.param("a", F16), k.view_mut("y", F16, 1));
    let mut t = k.splat(F16, 0.0, &[]);
    for _ in 0..3 {
        t = k.add(t, a);
    }
    let wide = k.splat(F32, 65500.0, &[]);
    let c = k.cast(wide, F16);
    let (t, c) = (k.reshape(t, &[1]), k.reshape(c, &[1]));
    let t = k.cat(&[t, c], 0);
    k.write(y, t);
    Row::new("C52", "an f16 scalar argument", k.finish()).scalar(Scalar::from_f64(F16, 1.0)).output(
        F16,
        &[2],
        &data(F16, &[3.0, 65504.0]),
    )
}

fn saturate(from: Elem, to: Elem, x: &[f64], want: &[i64]) -> Row {
    let n = x.len();
    let mut k = K::new("saturate");
    let (xv, y) = (k.view("x", from, 1), k.view_mut("y", to, 1));
    let t = k.read(xv, &[n]);
    let t = k.cast(t, to);
    k.write(y, t);
    Row::new("C53", "float to integer saturates", k.finish()).input(from, &[n as i64], &data(from, x)).output(
        to,
        &[n as i64],
        &ints(to, want.to_vec()),
    )
}

fn negative_fill(n: usize) -> Row {
    let mut k = K::new("negative_fill");
    let y = k.view_mut("y", I8, 1);
    let (a, b) = (k.splat(I8, -7.0, &[n]), k.splat(I8, -37.0, &[n]));
    let t = k.cat(&[a, b], 0);
    k.write(y, t);
    let want = [vec![-7; n], vec![-37; n]].concat();
    Row::new("C83", "a negative i8 in every lane", k.finish()).output(I8, &[2 * n as i64], &ints(I8, want))
}

fn nibbles() -> Row {
    let mut k = K::new("nibbles");
    let (x, y) = (k.view("x", I8, 1), k.view_mut("y", I8, 2));
    let t = k.read(x, &[16]);
    let four = k.splat(I8, 4.0, &[16]);
    let up = k.ew(Shl, &[t, four]);
    let low = k.ew(Shr, &[up, four]);
    let high = k.ew(Shr, &[t, four]);
    let rows = [low, high].map(|t| k.reshape(t, &[1, 16]));
    let t = k.cat(&rows, 0);
    k.write(y, t);
    let signed = |i: i64| if i < 8 { i } else { i - 16 };
    let v = (0..16).map(|i| i | (15 - i) << 4);
    let want = (0..16).map(signed).chain((0..16).map(|i| signed(15 - i)));
    Row::new("C84", "signed nibbles", k.finish()).input(I8, &[16], &ints(I8, v)).output(I8, &[2, 16], &ints(I8, want))
}

/// (1 + ε)² − (1 + 2ε) is ε² when fused and 0 when the product is rounded first.
fn product_beside_fma() -> Row {
    let mut k = K::new("product_beside_fma");
    let (x, c, y) = (k.view("x", F32, 1), k.view("c", F32, 1), k.view_mut("y", F32, 2));
    let (x, c) = (k.read(x, &[8]), k.read(c, &[8]));
    let p = k.mul(x, x);
    let sum = k.add(p, c);
    let fused = k.ew(Fma, &[x, x, c]);
    let rows = [p, sum, fused].map(|t| k.reshape(t, &[1, 8]));
    let t = k.cat(&rows, 0);
    k.write(y, t);
    let e = 2f64.powi(-20);
    let want = [[1.0 + 2.0 * e; 8], [0.0; 8], [e * e; 8]].concat();
    Row::new("C91", "no contraction unless asked", k.finish())
        .input(F32, &[8], &data(F32, &[1.0 + e; 8]))
        .input(F32, &[8], &data(F32, &[-1.0 - 2.0 * e; 8]))
        .output(F32, &[3, 8], &data(F32, &want))
}

fn folder_edges() -> Row {
    let least = i32::MIN as i64;
    let (x, y) = ([1, 1, -8, least, 5], [32, 33, 63, -1, -1]);
    let shl = vec![1, 2, (-8i64) << 31, least << 31, 5i64 << 31];
    let shr = vec![1, 0, -1, -1, 0];
    let div = vec![0, 0, 0, least, -5];
    pairs("C93", "shifts by the width and more; the least value / −1", I32, &[Shl, Shr, Div], &x, &y, &[shl, shr, div])
}

fn or_table() -> Row {
    let mut k = K::new("or_table");
    let (a, b, y) = (k.view("a", Bool, 1), k.view("b", Bool, 1), k.view_mut("y", Bool, 2));
    let (a, b) = (k.read(a, &[4]), k.read(b, &[4]));
    let rows = [Or, And, Xor, Ne, Lt].map(|kind| {
        let t = k.ew(kind, &[a, b]);
        k.reshape(t, &[1, 4])
    });
    let t = k.cat(&rows, 0);
    k.write(y, t);
    let want = [0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0];
    Row::new("C72", "truth tables", k.finish())
        .input(Bool, &[4], &[0, 0, 1, 1])
        .input(Bool, &[4], &[0, 1, 0, 1])
        .output(Bool, &[5, 4], &want)
}
