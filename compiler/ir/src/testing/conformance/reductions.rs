//! Reductions, scans, sorting, histograms.

use super::{
    super::{K, Row, data, ints},
    noise,
};
use crate::{Attr, Attrs, Elem, Elem::*, Key, OpKind::*, ReduceKind, TileType, Value};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        sum_of_sums(),
        all_axes(),
        one_column(),
        scan_matrices(),
        scan_first_last(),
        recurrence(),
        reverse_scan(),
        reverse_cancellation(),
        count_true(),
        argmax_infinities(),
        argmax_ties(),
        running_max_nan(),
        histogram(I8, 300, 4),
        histogram(I16, 70_000, 2),
        softmax(),
        wide_sum(),
        narrow_sums(),
        batched_sum(),
    ];
    rows.extend([3, 5, 6, 7].map(row_sums));
    rows.extend([I32, F16, BF16].map(top_one));
    rows.extend([U32, U64].map(abs_of_unsigned));
    rows
}

fn sum_of_sums() -> Row {
    let mut k = K::new("sum_of_sums");
    let y = k.view_mut("y", F32, 1);
    let t = k.splat(F32, 1.0 / 128.0, &[128, 128]);
    let t = k.reduce(t, 1, ReduceKind::Sum);
    let t = k.reduce(t, 0, ReduceKind::Sum);
    let t = k.broadcast(t, &[1, 128]);
    let t = k.reshape(t, &[128]);
    k.write(y, t);
    Row::new("C06", "a sum of sums counts no replica", k.finish()).output(F32, &[128], &data(F32, &[128.0; 128]))
}

fn all_axes() -> Row {
    let mut k = K::new("all_axes");
    let y = k.view_mut("y", I32, 1);
    let t = k.iota(I32, 128);
    let all = k.reduce(t, 0, ReduceKind::Sum);
    let t = k.reshape(t, &[8, 16]);
    let mut by = |axes: [usize; 2]| {
        let s = k.reduce(t, axes[0], ReduceKind::Sum);
        let s = k.reduce(s, axes[1], ReduceKind::Sum);
        k.reshape(s, &[1])
    };
    let (a, b) = (by([0, 1]), by([1, 0]));
    let t = k.cat(&[all, a, b], 0);
    k.write(y, t);
    Row::new("C07", "all axes at once or one by one", k.finish()).output(I32, &[3], &ints(I32, [8128; 3]))
}

fn row_sums(columns: i64) -> Row {
    let mut k = K::new("row_sums");
    let (x, y) = (k.view("x", F32, 2), k.view_mut("y", F32, 2));
    let t = k.read(x, &[16, 8]);
    let t = k.reduce(t, 1, ReduceKind::Sum);
    k.write(y, t);
    let v = noise(10 * columns as usize, columns as u64);
    let want: Vec<f64> = v.chunks(columns as usize).map(|r| r.iter().sum()).collect();
    Row::new("C08", "row sums of 3, 5, 6, 7 columns", k.finish()).input(F32, &[10, columns], &data(F32, &v)).output(
        F32,
        &[10, 1],
        &data(F32, &want),
    )
}

fn one_column() -> Row {
    let mut k = K::new("one_column");
    let y = k.view_mut("y", F32, 2);
    let i = k.iota(I32, 16);
    let zero = k.splat(I32, 0.0, &[16]);
    let m = k.ew(Eq, &[i, zero]);
    let m = k.cast(m, F32);
    let m = k.reshape(m, &[1, 16]);
    let m = k.broadcast(m, &[16, 16]);
    let z = k.splat(F32, 0.0, &[16, 16]);
    let t = k.add(z, m);
    k.write(y, t);
    let want: Vec<f64> = (0..256).map(|i| (i % 16 == 0) as u8 as f64).collect();
    Row::new("C09", "a row mask broadcast down", k.finish()).output(F32, &[16, 16], &data(F32, &want))
}

/// 2×2 matrices over i64, wrapping, as four tiles: products are associative and do not commute.
fn scan_matrices() -> Row {
    let mut k = K::new("scan_matrices");
    let (x, y) = (k.view("x", I64, 2), k.view_mut("y", I64, 2));
    let t = k.read(x, &[4, 8]);
    let rows: Vec<Value> = (0..4).map(|i| k.slice(t, 0, i, 1)).collect();
    let r = k.combine(ScanWith, &rows, 1, false, |k, a, b| {
        let mut cell = |i: usize, j: usize| {
            let (p, q) = (k.mul(a[2 * i], b[j]), k.mul(a[2 * i + 1], b[2 + j]));
            k.add(p, q)
        };
        vec![cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)]
    });
    let t = k.cat(&r, 0);
    k.write(y, t);
    let v: Vec<i64> = (0..32).map(|i| i * 13 % 7 - 3).collect();
    let mut m = [v[0], v[8], v[16], v[24]];
    let mut want = vec![0; 32];
    for n in 0..8 {
        if n > 0 {
            let b = [v[n], v[8 + n], v[16 + n], v[24 + n]];
            m = [
                m[0] * b[0] + m[1] * b[2],
                m[0] * b[1] + m[1] * b[3],
                m[2] * b[0] + m[3] * b[2],
                m[2] * b[1] + m[3] * b[3],
            ];
        }
        (0..4).for_each(|c| want[c * 8 + n] = m[c]);
    }
    Row::new("C11", "scan of matrix products keeps the order", k.finish()).input(I64, &[4, 8], &ints(I64, v)).output(
        I64,
        &[4, 8],
        &ints(I64, want),
    )
}

fn scan_first_last() -> Row {
    let mut k = K::new("scan_first_last");
    let (x, y) = (k.view("x", I32, 1), k.view_mut("y", I32, 1));
    let t = k.read(x, &[16]);
    let forward = k.combine(ScanWith, &[t, t], 0, false, |_, a, b| vec![a[0], b[1]]);
    let backward = k.combine(ScanWith, &[t, t], 0, true, |_, a, b| vec![a[0], b[1]]);
    let t = k.cat(&[forward, backward].concat(), 0);
    k.write(y, t);
    let want = [vec![100; 16], (100..116).collect(), vec![115; 16], (100..116).collect()].concat();
    Row::new("C11", "scan of (first, last) pairs, both directions", k.finish())
        .input(I32, &[16], &ints(I32, 100..116))
        .output(I32, &[64], &ints(I32, want))
}

fn recurrence() -> Row {
    let mut k = K::new("recurrence");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let t = k.read(x, &[4]);
    let half = k.splat(F32, 0.5, &[4]);
    let r = k.combine(ScanWith, &[half, t], 0, false, |k, a, b| {
        let decay = k.mul(a[0], b[0]);
        let kept = k.mul(a[1], b[0]);
        vec![decay, k.add(kept, b[1])]
    });
    k.write(y, r[1]);
    Row::new("C12", "a linear recurrence as a pair scan", k.finish())
        .input(F32, &[4], &data(F32, &[1.0, 2.0, 3.0, 4.0]))
        .output(F32, &[4], &data(F32, &[1.0, 2.5, 4.25, 6.125]))
}

fn reverse_scan() -> Row {
    let mut k = K::new("reverse_scan");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let t = k.read(x, &[8]);
    let t = k.scan(t, 0, ReduceKind::Sum, true);
    k.write(y, t);
    let v: Vec<f64> = (1..9).map(f64::from).collect();
    Row::new("C13", "reverse prefix sums", k.finish()).input(F32, &[8], &data(F32, &v)).output(
        F32,
        &[8],
        &data(F32, &[36.0, 35.0, 33.0, 30.0, 26.0, 21.0, 15.0, 8.0]),
    )
}

fn reverse_cancellation() -> Row {
    let mut k = K::new("reverse_cancellation");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let t = k.read(x, &[64]);
    let t = k.scan(t, 0, ReduceKind::Sum, true);
    let t = k.slice(t, 0, 32, 32);
    k.write(y, t);
    let v: Vec<f64> = (0..64).map(|i| if i < 32 { 1e8 } else { 1.0 }).collect();
    let want: Vec<f64> = (1..33).rev().map(f64::from).collect();
    Row::new("C14", "suffix sums are no total minus a prefix", k.finish()).input(F32, &[64], &data(F32, &v)).output(
        F32,
        &[32],
        &data(F32, &want),
    )
}

fn count_true() -> Row {
    let mut k = K::new("count_true");
    let (n, b, i) = (k.view_mut("n", I32, 1), k.view_mut("b", Bool, 1), k.view_mut("i", I8, 1));
    let t = k.constant(crate::Scalar::bool(true), &[256]);
    let count = k.reduce(t, 0, ReduceKind::Sum);
    k.write(n, count);
    let values = [256.0, 512.0, 0.0].map(|v| k.splat(I32, v, &[1]));
    let t = k.cat(&[&[count][..], &values].concat(), 0);
    let t = k.cast(t, Bool);
    k.write(b, t);
    let values = [256.0, 257.0, 300.0].map(|v| k.splat(I32, v, &[1]));
    let t = k.cat(&values, 0);
    let t = k.cast(t, I8);
    k.write(i, t);
    Row::new("C16", "a sum over bool counts; casts to bool and i8", k.finish())
        .output(I32, &[1], &ints(I32, [256]))
        .output(Bool, &[4], &[1, 1, 1, 0])
        .output(I8, &[3], &ints(I8, [0, 1, 44]))
}

/// Top 3 by taking the largest and masking it, three times.
fn argmax_infinities() -> Row {
    let mut k = K::new("argmax_infinities");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", I32, 1));
    let mut t = k.read(x, &[8]);
    let lane = k.iota(I32, 8);
    let mut found = vec![];
    for _ in 0..3 {
        let i = k.reduce(t, 0, ReduceKind::Argmax);
        found.push(i);
        let i = k.broadcast(i, &[8]);
        let m = k.ew(Eq, &[lane, i]);
        let low = k.constant(crate::Scalar::from_f64(F32, f64::NEG_INFINITY), &[8]);
        t = k.ew(Select, &[m, low, t]);
    }
    let t = k.cat(&found, 0);
    k.write(y, t);
    let v = [f64::INFINITY, f64::INFINITY, 3.0, -1.0, 9.5, 2.0, -7.0, 9.0];
    Row::new("C19", "top-k by repeated argmax over infinities", k.finish()).input(F32, &[8], &data(F32, &v)).output(
        I32,
        &[3],
        &ints(I32, [0, 1, 4]),
    )
}

fn argmax_ties() -> Row {
    let mut k = K::new("argmax_ties");
    let (x, y) = (k.view("x", I32, 1), k.view_mut("y", I32, 1));
    let t = k.read(x, &[5]);
    let (a, b) = (k.reduce(t, 0, ReduceKind::Argmax), k.reduce(t, 0, ReduceKind::Argmin));
    let f = k.cast(t, F16);
    let (c, d) = (k.reduce(f, 0, ReduceKind::Argmax), k.reduce(f, 0, ReduceKind::Argmin));
    let t = k.cat(&[a, b, c, d], 0);
    k.write(y, t);
    Row::new("C21", "ties: the lowest index", k.finish()).input(I32, &[5], &ints(I32, [3, 7, 7, 1, 1])).output(
        I32,
        &[4],
        &ints(I32, [1, 3, 1, 3]),
    )
}

fn running_max_nan() -> Row {
    let mut k = K::new("running_max_nan");
    let (x, y) = (k.view("x", F32, 2), k.view_mut("y", F32, 2));
    let (lo, hi, step) = (k.at(0), k.at(6), k.at(2));
    let start = k.splat(F32, -100.0, &[1, 3]);
    let r = k.for_loop([lo, hi, step], &[start, start], |k, i, m| {
        let zero = k.at(0);
        let t = k.load(x, &[i, zero], &[2, 3]);
        let (keep, ignore) = (k.reduce(t, 0, ReduceKind::MaxNan), k.reduce(t, 0, ReduceKind::Max));
        vec![k.ew(MaxNan, &[m[0], keep]), k.ew(Max, &[m[1], ignore])]
    });
    let t = k.cat(&r, 0);
    k.write(y, t);
    let nan = f64::NAN;
    // Columns: NaN first, NaN last, none.
    let v = [nan, 1.0, 5.0, 2.0, 8.0, -3.0, 7.0, 3.0, 4.0, 1.0, 2.0, 6.0, 0.5, 0.0, -8.0, -1.0, nan, 2.5];
    Row::new("C22", "running maximum that keeps or ignores NaN", k.finish()).input(F32, &[6, 3], &data(F32, &v)).output(
        F32,
        &[2, 3],
        &data(F32, &[nan, nan, 6.0, 7.0, 8.0, 6.0]),
    )
}

fn histogram(elem: Elem, zeros: usize, bins: usize) -> Row {
    let mut k = K::new("histogram");
    let y = k.view_mut("y", I32, 1);
    let t = k.splat(elem, 0.0, &[zeros]);
    let t = k.histogram(t, None, bins);
    k.write(y, t);
    let mut want = vec![0; bins];
    want[0] = zeros as i64;
    Row::new("C37", "counts are not of the elements' type", k.finish()).output(I32, &[bins as i64], &ints(I32, want))
}

fn softmax() -> Row {
    let mut k = K::new("softmax");
    let (x, y) = (k.view("x", F32, 2), k.view_mut("y", F32, 2));
    let t = k.read(x, &[2, 2]);
    let m = k.reduce(t, 1, ReduceKind::Max);
    let m = k.broadcast(m, &[2, 2]);
    let t = k.ew(Sub, &[t, m]);
    let e = k.ew(Exp, &[t]);
    let s = k.reduce(e, 1, ReduceKind::Sum);
    let s = k.broadcast(s, &[2, 2]);
    let t = k.ew(Div, &[e, s]);
    k.write(y, t);
    let p = 1.0 / (1.0 + 2f64.exp());
    Row::new("C54", "softmax along the rows", k.finish()).input(F32, &[2, 2], &data(F32, &[0.0, 2.0, 3.0, 1.0])).near(
        F32,
        &[2, 2],
        &[p, 1.0 - p, 1.0 - p, p],
        1e-6,
    )
}

/// The largest and the smallest by top-1, the smallest as the largest of the negated.
fn top_one(elem: Elem) -> Row {
    let mut k = K::new("top_one");
    let (x, y, at) = (k.view("x", elem, 1), k.view_mut("y", elem, 1), k.view_mut("at", I32, 1));
    let t = k.read(x, &[16]);
    let (a, ai) = k.top_k(t, 1);
    let n = k.ew(Neg, &[t]);
    let (b, bi) = k.top_k(n, 1);
    let b = k.ew(Neg, &[b]);
    let t = k.cat(&[a, b], 0);
    k.write(y, t);
    let t = k.cat(&[ai, bi], 0);
    k.write(at, t);
    let v: Vec<f64> = (0..16).map(|i| f64::from(i * 5 % 16 - 8)).collect();
    Row::new("C64", "top-k of one", k.finish())
        .input(elem, &[16], &data(elem, &v))
        .output(elem, &[2], &data(elem, &[7.0, -8.0]))
        .output(I32, &[2], &ints(I32, [3, 0]))
}

fn abs_of_unsigned(elem: Elem) -> Row {
    let mut k = K::new("abs_of_unsigned");
    let (x, y) = (k.view("x", elem, 1), k.view_mut("y", elem, 1));
    let t = k.read(x, &[4]);
    let t = k.ew(Abs, &[t]);
    let (a, b) = (k.reduce(t, 0, ReduceKind::Max), k.reduce(t, 0, ReduceKind::Sum));
    let t = k.cat(&[a, b], 0);
    k.write(y, t);
    Row::new("C81", "largest and sum of unsigned magnitudes", k.finish())
        .input(elem, &[4], &ints(elem, [100, 10, 20, 30]))
        .output(elem, &[2], &ints(elem, [100, 160]))
}

fn wide_sum() -> Row {
    let mut k = K::new("wide_sum");
    let (x, y) = (k.view("x", I64, 1), k.view_mut("y", I64, 1));
    let t = k.read(x, &[8]);
    let (a, b) = (k.reduce(t, 0, ReduceKind::Sum), k.reduce(t, 0, ReduceKind::Max));
    let t = k.cat(&[a, b], 0);
    k.write(y, t);
    let v: Vec<i64> = (0..8).map(|i| (i - 2) << 33 | i).collect();
    let want = [v.iter().sum(), v[7]];
    Row::new("C82", "i64 reductions keep 64 bits", k.finish()).input(I64, &[8], &ints(I64, v)).output(
        I64,
        &[2],
        &ints(I64, want),
    )
}

fn narrow_sums() -> Row {
    let mut k = K::new("narrow_sums");
    let (x, a, b) = (k.view("x", I8, 1), k.view_mut("a", I8, 1), k.view_mut("b", I32, 1));
    let t = k.read(x, &[8]);
    let narrow = k.reduce(t, 0, ReduceKind::Sum);
    k.write(a, narrow);
    let attrs = Attrs::new().with(Key::Axis, Attr::Int(0)).with(Key::Kind, ReduceKind::Sum.into());
    let wide = k.with(Reduce, &[t], TileType::new(I32, [1]), attrs);
    k.write(b, wide);
    Row::new("C82", "an i8 sum wraps in i8 and not in i32", k.finish())
        .input(I8, &[8], &ints(I8, [10, 25, 40, 30, 15, 42, 20, 20]))
        .output(I8, &[1], &ints(I8, [-54]))
        .output(I32, &[1], &ints(I32, [202]))
}

fn batched_sum() -> Row {
    let mut k = K::new("batched_sum");
    let (x, y) = (k.view("x", F32, 3), k.view_mut("y", F32, 3));
    let t = k.read(x, &[2, 8, 16]);
    let t = k.reduce(t, 2, ReduceKind::Sum);
    k.write(y, t);
    let v = noise(256, 11);
    let want: Vec<f64> = v.chunks(16).map(|r| r.iter().sum()).collect();
    Row::new("C87", "row sums of a batch", k.finish()).input(F32, &[2, 8, 16], &data(F32, &v)).output(
        F32,
        &[2, 8, 1],
        &data(F32, &want),
    )
}
