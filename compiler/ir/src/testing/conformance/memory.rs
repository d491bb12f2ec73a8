//! Edges, masks, strides, aliasing, atomics, checked indices.

use super::{
    super::{Arg, Buffer, Expected, K, Row, data, ints},
    noise,
};
use crate::{AtomicKind, Attr, Attrs, Elem::*, Key, OpKind::*, ReduceKind, Scalar};

pub(super) fn rows() -> Vec<Row> {
    vec![
        padded_sum(),
        masked_sum(),
        masked_without_other(),
        masked_before_the_start(),
        box_filter(),
        narrow_offset(),
        wide_offset(),
        reassociated_offset(),
        checked_wrapped_index(),
        checked_remainder_index(),
        checked_gather(),
        zero_grid(),
        old_value(),
        pitched_store(),
        odd_pitch(),
        ragged_copy(),
        persistent_tiles(),
        scan_of_a_region(),
        duplicate_atomics(),
        atomic_min_max(),
        atomic_neighbour(),
        strided_reduction(),
    ]
}

fn padded_sum() -> Row {
    let mut k = K::new("padded_sum");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let t = k.read(x, &[256]);
    let s = k.reduce(t, 0, ReduceKind::Sum);
    k.write(y, s);
    let v = noise(16, 1);
    Row::new("C01", "sum of a tile past the edge", k.finish()).input(F32, &[16], &data(F32, &v)).output(
        F32,
        &[1],
        &data(F32, &[v.iter().sum()]),
    )
}

fn masked_sum() -> Row {
    let mut k = K::new("masked_sum");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let i = k.iota(I64, 256);
    let n = k.splat(I64, 16.0, &[256]);
    let m = k.ew(Lt, &[i, n]);
    let t = k.gather(x, &[i], Some(m));
    let s = k.reduce(t, 0, ReduceKind::Sum);
    k.write(y, s);
    let v = noise(256, 2);
    let sum = v[..16].iter().sum();
    Row::new("C01", "sum of a masked gather", k.finish()).input(F32, &[256], &data(F32, &v)).output(
        F32,
        &[1],
        &data(F32, &[sum]),
    )
}

fn masked_without_other() -> Row {
    let mut k = K::new("masked_without_other");
    let (a, b, y) = (k.view("a", F32, 1), k.view("b", F32, 1), k.view_mut("y", F32, 1));
    let i = k.iota(I64, 32);
    let n = k.splat(I64, 20.0, &[32]);
    let m = k.ew(Lt, &[i, n]);
    let (ta, tb) = (k.gather(a, &[i], Some(m)), k.gather(b, &[i], Some(m)));
    let s = k.add(ta, tb);
    k.scatter(y, &[i], s, Some(m));
    // Lanes that are off read 0: x + 0 of another load shows it.
    let (va, vb) = (noise(32, 3), noise(32, 4));
    let mut want = data(F32, &[7.0; 32]);
    want[..20].copy_from_slice(&data(F32, &(0..20).map(|i| va[i] + vb[i]).collect::<Vec<_>>()));
    Row::new("C02", "masked loads combined under the mask", k.finish())
        .input(F32, &[32], &data(F32, &va))
        .input(F32, &[32], &data(F32, &vb))
        .inout(F32, &[32], &data(F32, &[7.0; 32]), &want)
}

fn masked_before_the_start() -> Row {
    let mut k = K::new("masked_before_the_start");
    let (x, y) = (k.view("x", I32, 1), k.view_mut("y", I32, 1));
    let i = k.iota(I64, 128);
    let big = k.splat(I64, 64.0, &[128]);
    let i = k.ew(Sub, &[i, big]);
    let zero = k.splat(I64, 0.0, &[128]);
    let m = k.ew(Ge, &[i, zero]);
    let attrs = Attrs::new().with(Key::Masked, Attr::Flag).with(Key::Pad, Attr::Scalar(Scalar::from_i64(I32, -5)));
    let t = k.tile(i).with_elem(I32);
    let t = k.with(Gather, &[x, i, m], t, attrs);
    k.write(y, t);
    let mut want = ints(I32, [-5; 64]);
    want.extend(ints(I32, 100..164));
    let mut row = Row::new("C03", "masked lanes before the buffer", k.finish())
        .input(I32, &[64], &ints(I32, 100..164))
        .output(I32, &[128], &want);
    row.checked = true; // Masked lanes are no fault.
    row
}

fn box_filter() -> Row {
    let (h, w, n) = (5usize, 6usize, 3usize);
    let shape = [h, w, n, n];
    let mut k = K::new("box_filter");
    let (x, y) = (k.view("x", F32, 2), k.view_mut("y", F32, 2));
    let mut index = |extents: [(usize, usize); 2]| {
        let [a, b] = extents.map(|(axis, n)| {
            let i = k.iota(I64, n);
            let mut s = [1; 4];
            s[axis] = n;
            let i = k.reshape(i, &s);
            k.broadcast(i, &shape)
        });
        let one = k.splat(I64, 1.0, &shape);
        let s = k.add(a, b);
        k.ew(Sub, &[s, one])
    };
    let (row, col) = (index([(0, h), (2, n)]), index([(1, w), (3, n)]));
    let mut inside = |i, n: usize| {
        let (zero, end) = (k.splat(I64, 0.0, &shape), k.splat(I64, n as f64, &shape));
        let (a, b) = (k.ew(Ge, &[i, zero]), k.ew(Lt, &[i, end]));
        k.ew(And, &[a, b])
    };
    let (a, b) = (inside(row, h), inside(col, w));
    let m = k.ew(And, &[a, b]);
    let t = k.gather(x, &[row, col], Some(m));
    let t = k.reduce(t, 2, ReduceKind::Sum);
    let t = k.reshape(t, &[h, w, n]);
    let t = k.reduce(t, 2, ReduceKind::Sum);
    let t = k.reshape(t, &[h, w]);
    k.write(y, t);
    let v = noise(h * w, 5);
    let at = |i: i64, j: i64| {
        if (0..h as i64).contains(&i) && (0..w as i64).contains(&j) { v[i as usize * w + j as usize] } else { 0.0 }
    };
    let sum = |i: i64, j: i64| (0..9).map(|d| at(i + d / 3 - 1, j + d % 3 - 1)).sum::<f64>();
    let want: Vec<f64> = (0..h * w).map(|i| sum((i / w) as i64, (i % w) as i64)).collect();
    Row::new("C04", "4-D window, axis 2 summed twice", k.finish()).input(F32, &[5, 6], &data(F32, &v)).output(
        F32,
        &[5, 6],
        &data(F32, &want),
    )
}

fn narrow_offset() -> Row {
    let mut k = K::new("narrow_offset");
    let (x, o, y) = (k.view("x", I32, 1), k.view("o", U8, 1), k.view_mut("y", I32, 1));
    let t = k.read(o, &[4]);
    let i = k.cast(t, I64);
    let t = k.gather(x, &[i], None);
    k.write(y, t);
    Row::new("C29", "u8 offsets are unsigned", k.finish())
        .input(I32, &[256], &ints(I32, 1000..1256))
        .input(U8, &[4], &ints(U8, [200, 0, 255, 128]))
        .output(I32, &[4], &ints(I32, [1200, 1000, 1255, 1128]))
}

fn wide_offset() -> Row {
    let mut k = K::new("wide_offset");
    let (row, stride, y) = (k.param("row", I32), k.param("stride", I32), k.view_mut("y", I64, 1));
    let product = k.mul(row, stride);
    let wrapped = k.cast(product, I64);
    let (a, b) = (k.cast(row, I64), k.cast(stride, I64));
    let exact = k.mul(a, b);
    let (a, b) = (k.reshape(exact, &[1]), k.reshape(wrapped, &[1]));
    let t = k.cat(&[a, b], 0);
    k.write(y, t);
    Row::new("C31", "products are exact once the factors are widened, and wrap before", k.finish())
        .scalar(Scalar::from_i64(I32, 319))
        .scalar(Scalar::from_i64(I32, 7_864_320))
        .output(I64, &[2], &ints(I64, [2_508_718_080, -1_786_249_216]))
}

fn reassociated_offset() -> Row {
    let mut k = K::new("reassociated_offset");
    let (base, y) = (k.param("base", I32), k.view_mut("y", I64, 1));
    let (big, small) = (k.int(I32, i32::MAX as i64), k.int(I32, 9));
    let t = k.add(base, big);
    let t = k.add(t, small);
    let t = k.cast(t, I64);
    let t = k.reshape(t, &[1]);
    k.write(y, t);
    Row::new("C32", "no overflow that the source does not have", k.finish()).scalar(Scalar::from_i64(I32, -20)).output(
        I64,
        &[1],
        &ints(I64, [i32::MAX as i64 - 11]),
    )
}

/// `max(i·(−2·10⁹), i)` for i in 0..3 as an i32 index: −4·10⁹ wraps to 294967296, outside.
fn checked_wrapped_index() -> Row {
    let mut k = K::new("checked_wrapped_index");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let i = k.iota(I32, 3);
    let c = k.splat(I32, -2e9, &[3]);
    let p = k.mul(i, c);
    let m = k.ew(Max, &[p, i]);
    let m = k.cast(m, I64);
    let t = k.gather(x, &[m], None);
    k.write(y, t);
    Row::new("C33", "a wrapped index is caught", k.finish())
        .input(F32, &[8], &data(F32, &noise(8, 6)))
        .arg(Arg::View(Buffer::poisoned(F32, &[3])))
        .faults()
}

/// `(i·2·10⁹) % 1000` in i32 is negative for i = 2.
fn checked_remainder_index() -> Row {
    let mut k = K::new("checked_remainder_index");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let i = k.iota(I32, 3);
    let (c, n) = (k.splat(I32, 2e9, &[3]), k.splat(I32, 1000.0, &[3]));
    let p = k.mul(i, c);
    let m = k.ew(Rem, &[p, n]);
    let m = k.cast(m, I64);
    let t = k.gather(x, &[m], None);
    k.write(y, t);
    Row::new("C33", "a remainder may be negative", k.finish())
        .input(F32, &[1000], &data(F32, &noise(1000, 7)))
        .arg(Arg::View(Buffer::poisoned(F32, &[3])))
        .faults()
}

fn checked_gather() -> Row {
    let mut k = K::new("checked_gather");
    let (x, j, y) = (k.view("x", F32, 1), k.param("j", I64), k.view_mut("y", F32, 1));
    let i = k.reshape(j, &[1]);
    let t = k.gather(x, &[i], None);
    k.write(y, t);
    let arg = Arg::View(Buffer::poisoned(F32, &[1]));
    Row::new("C92", "an index past the end is an error, not a silent zero", k.finish())
        .input(F32, &[5], &data(F32, &noise(5, 8)))
        .scalar(Scalar::from_i64(I64, 5))
        .arg(arg)
        .faults()
}

fn zero_grid() -> Row {
    let mut k = K::new("zero_grid");
    let y = k.view_mut("y", I32, 1);
    let t = k.splat(I32, 1.0, &[4]);
    k.write(y, t);
    let seven = ints(I32, [7; 4]);
    Row::new("C74", "an empty grid does nothing", k.finish()).inout(I32, &[4], &seven, &seven).grid([2, 0, 1])
}

fn old_value() -> Row {
    let mut k = K::new("old_value");
    let (x, out) = (k.view_mut("x", I32, 1), k.view_mut("out", I32, 1));
    let y = k.read(x, &[4]);
    let nine = k.splat(I32, 9.0, &[4]);
    k.write(x, nine);
    let now = k.read(x, &[4]);
    let t = k.cat(&[y, now], 0);
    k.write(out, t);
    Row::new("C76", "a load keeps its value when memory changes", k.finish())
        .inout(I32, &[4], &ints(I32, 1..5), &ints(I32, [9; 4]))
        .output(I32, &[8], &ints(I32, [1, 2, 3, 4, 9, 9, 9, 9]))
}

fn pitched_store() -> Row {
    let (rows, cols, pitch) = (3usize, 466usize, 512usize);
    let mut k = K::new("pitched_store");
    let (x, y) = (k.view("x", I8, 2), k.view_mut("y", I8, 2));
    let p = k.program_id(0);
    let p = k.cast(p, I64);
    let n = k.at(128);
    let at = k.mul(p, n);
    let zero = k.at(0);
    let t = k.load(x, &[zero, at], &[4, 128]);
    k.store(y, &[zero, at], t);
    let v = ints(I8, (0..(rows * cols) as i64).map(|i| i * 37 % 251 - 125));
    let mut want = ints(I8, vec![7; rows * pitch]);
    for r in 0..rows {
        want[r * pitch..r * pitch + cols].copy_from_slice(&v[r * cols..(r + 1) * cols]);
    }
    let y = Buffer::new(I8, &[3, 512], &ints(I8, vec![7; rows * pitch])).part(&[3, 466]).expect(Expected::Exact(want));
    Row::new("C66", "a store leaves the pitch alone", k.finish())
        .input(I8, &[3, 466], &v)
        .arg(Arg::View(y))
        .grid([4, 1, 1])
}

fn odd_pitch() -> Row {
    let mut k = K::new("odd_pitch");
    let (x, y) = (k.view("x", BF16, 2), k.view_mut("y", F32, 2));
    let t = k.read(x, &[4, 512]);
    let t = k.cast(t, F32);
    k.write(y, t);
    let v = noise(4 * 511, 9);
    let x = Buffer::new(BF16, &[4, 511], &data(BF16, &v)).part(&[4, 510]);
    let want: Vec<f64> = (0..4 * 510).map(|i| v[i / 510 * 511 + i % 510]).collect();
    Row::new("C67", "rows 1022 bytes apart", k.finish()).arg(Arg::View(x)).output(F32, &[4, 510], &data(F32, &want))
}

fn ragged_copy() -> Row {
    let mut k = K::new("ragged_copy");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let n = k.dim(x, 0);
    let n = k.cast(n, I64);
    let (lo, step) = (k.at(0), k.at(64));
    k.for_loop([lo, n, step], &[lo], |k, _, at| {
        let t = k.load(x, &[at[0]], &[64]);
        k.store(y, &[at[0]], t);
        vec![k.add(at[0], step)]
    });
    let v = data(F32, &noise(333, 10));
    Row::new("C68", "a carried offset over a length that is no multiple of the tile", k.finish())
        .input(F32, &[333], &v)
        .output(F32, &[333], &v)
}

fn persistent_tiles() -> Row {
    let mut k = K::new("persistent_tiles");
    let y = k.view_mut("y", I32, 1);
    let p = k.program_id(0);
    let programs = k.with(NumPrograms, &[], crate::TileType::new(I32, []), Attrs::new().with(Key::Axis, Attr::Int(0)));
    let tiles = k.int(I32, 9);
    k.for_loop([p, tiles, programs], &[], |k, t, _| {
        let four = k.int(I32, 4);
        let at = k.mul(t, four);
        let at = k.cast(at, I64);
        let old = k.load(y, &[at], &[4]);
        let t = k.broadcast(t, &[4]);
        let t = k.add(old, t);
        k.store(y, &[at], t);
        vec![]
    });
    let want = ints(I32, (0..36).map(|i| 100 + i / 4));
    Row::new("C78", "9 tiles among 8 programs, each once", k.finish())
        .inout(I32, &[36], &ints(I32, [100; 36]), &want)
        .grid([8, 1, 1])
}

fn scan_of_a_region() -> Row {
    let mut k = K::new("scan_of_a_region");
    let (x, y) = (k.view("x", I32, 2), k.view_mut("y", I32, 2));
    let (r, c) = (k.at(1), k.at(3));
    let t = k.load(x, &[r, c], &[2, 4]);
    let t = k.scan(t, 1, ReduceKind::Sum, false);
    k.store(y, &[r, c], t);
    let v: Vec<i64> = (0..50).map(|i| i * 7 % 11).collect();
    let mut want = [5; 50];
    for r in 1..3 {
        let mut sum = 0;
        for c in 3..7 {
            sum += v[r * 10 + c];
            want[r * 10 + c] = sum;
        }
    }
    let strided = |b: Buffer| Arg::View(b.part(&[5, 8]));
    Row::new("C86", "scan of a region inside a pitched matrix", k.finish())
        .arg(strided(Buffer::new(I32, &[5, 10], &ints(I32, v))))
        .arg(strided(Buffer::new(I32, &[5, 10], &ints(I32, [5; 50])).expect(Expected::Exact(ints(I32, want)))))
}

fn duplicate_atomics() -> Row {
    let n = 64;
    let mut k = K::new("duplicate_atomics");
    let (count, order) = (k.view_mut("count", I32, 1), k.view_mut("order", I32, 1));
    let lane = k.iota(I64, n);
    let (limit, three) = (k.splat(I64, 50.0, &[n]), k.splat(I64, 0.0, &[n]));
    let m = k.ew(Lt, &[lane, limit]);
    let one = k.splat(I32, 1.0, &[n]);
    let old = k.atomic(AtomicKind::Add, count, &[three], one, Some(m));
    // The old value is used twice: as an index and as a value.
    let at = k.cast(old, I64);
    k.scatter(order, &[at], old, Some(m));
    Row::new("C62", "atomics on one element: old values are a permutation", k.finish())
        .inout(I32, &[2], &ints(I32, [0, 77]), &ints(I32, [50, 77]))
        .inout(I32, &[52], &ints(I32, [-1; 52]), &ints(I32, (0..52).map(|i| if i < 50 { i } else { -1 })))
}

fn atomic_min_max() -> Row {
    let mut k = K::new("atomic_min_max");
    let (x, y) = (k.view_mut("x", I32, 1), k.view_mut("y", I32, 1));
    let i = k.iota(I64, 4);
    let t = k.splat(I32, 5.0, &[4]);
    let low = k.atomic(AtomicKind::Min, x, &[i], t, None);
    let t = k.splat(I32, 3.0, &[4]);
    let high = k.atomic(AtomicKind::Max, x, &[i], t, None);
    let t = k.cat(&[low, high], 0);
    k.write(y, t);
    Row::new("C63", "atomic min and max give old values", k.finish())
        .inout(I32, &[4], &ints(I32, [-9, 4, 9, 5]), &ints(I32, [3, 4, 5, 5]))
        .output(I32, &[8], &ints(I32, [-9, 4, 9, 5, -9, 4, 5, 5]))
}

fn atomic_neighbour() -> Row {
    let mut k = K::new("atomic_neighbour");
    let (x, v) = (k.view_mut("x", F16, 1), k.view("v", F32, 1));
    let i = k.iota(I64, 3);
    let two = k.splat(I64, 2.0, &[3]);
    let i = k.mul(i, two);
    let t = k.read(v, &[3]);
    let t = k.cast(t, F16);
    k.atomic(AtomicKind::Max, x, &[i], t, None);
    Row::new("C63", "a 16-bit atomic leaves its neighbour alone", k.finish())
        .inout(
            F16,
            &[6],
            &data(F16, &[1.0, -2.0, 3.0, -4.0, 5.0, -6.0]),
            &data(F16, &[2.5, -2.0, 3.0, -4.0, 7.5, -6.0]),
        )
        .input(F32, &[3], &data(F32, &[2.5, -1.0, 7.5]))
}

fn strided_reduction() -> Row {
    let mut k = K::new("strided_reduction");
    let (a, x, y) = (k.view("a", F32, 2), k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let p = k.program_id(0);
    let p = k.cast(p, I64);
    let zero = k.at(0);
    let a = k.load(a, &[zero, p], &[4, 1]);
    let x = k.load(x, &[p], &[1]);
    let x = k.reshape(x, &[1, 1]);
    let x = k.broadcast(x, &[4, 1]);
    let t = k.mul(a, x);
    let t = k.reshape(t, &[4]);
    let i = k.iota(I64, 4);
    k.atomic(AtomicKind::Add, y, &[i], t, None);
    Row::new("C94", "columns summed by different programs", k.finish())
        .input(F32, &[4, 4], &data(F32, &[1.0; 16]))
        .input(F32, &[4], &data(F32, &[1.0; 4]))
        .inout(F32, &[4], &data(F32, &[0.0; 4]), &data(F32, &[4.0; 4]))
        .grid([4, 1, 1])
}
