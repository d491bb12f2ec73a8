//! Every op points at the user's line.
#![allow(clippy::assign_op_pattern)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;
use tegula_ir::OpKind;

/// Uses every operation of the language once, below the line of `FIRST`.
const FIRST: u32 = line!();
#[derive(Carry, Clone, Copy)]
struct State {
    a: Scalar<i32>,
}
#[func]
fn control(n: Scalar<i32>) -> Scalar<i32> {
    let mut s = State { a: n };
    for i in 0..n {
        s.a += i;
    }
    for i in range(0, n).step_by(2) {
        s.a -= i;
    }
    while s.a > 10 && n != 3 || n == 7 {
        s.a = s.a / 2;
    }
    for i in 0..=n {
        s.a = 3 - s.a * i;
    }
    if s.a < 4 { s.a + 1 } else { -s.a }
}
#[kernel]
fn everything(
    x: View<f32, 2>,
    y: ViewMut<f32, 2>,
    ids: View<i32, 1>,
    counts: ViewMut<i32, 1>,
    w: Packed,
    n: Scalar<i32>,
    d: View<i8, 2>,
) {
    let (pm, pn) = grouped::<C<4>, C<8>>(program_id(0), &y, 2);
    let t = x.load::<(C<4>, C<8>)>((pm, pn));
    let t = t
        + x.load_padded::<(C<4>, C<8>)>((0, pn), 1.0)
        + x.load_at::<(C<4>, C<8>)>((n, 0))
        + x.load_at_padded::<(C<4>, C<8>)>((0, 0), 2.0);
    let t = select(t <= 0.0, t, 1.0) + x.at((n, n)) * 2.0 + 2.0 * t - t.fma(2.0, t);
    let u = t.exp().exp2().log().log2().sin().cos().tanh().erf().sqrt().rsqrt().sigmoid().floor().ceil().round().abs();
    let u = u.pow(2.0).maximum(1.0).minimum(2.0).maximum_nan(t).minimum_nan(0.5).clamp(0.0, 1.0) % 2.0 / t;
    let v = u.cast::<bf16>().cast::<f32>().bitcast::<i32>();
    let v = (!v & 3 | 4) ^ (v << 1) ^ (v >> 2) ^ v.umulhi(5).multiple_of(1);
    let r = u.sum::<1>() + u.prod::<1>() + u.max::<1>() + u.min::<1>() + u.max_nan::<1>() + u.min_nan::<1>();
    let i = v.argmax::<0>()
        + v.argmin::<0>()
        + v.xor::<0>()
        + (v > 1).count::<0>()
        + (v > 1).any::<0>().cast()
        + (v >= 1).all::<0>().cast();
    let i = i + v.sum_as::<0, i32>() + v.reduce::<0>(|a, b| if a > b { a } else { b + 1 });
    let (p, q) = (v, u).reduce2::<1>(|(a, b), (c, d)| (a + c, b * d));
    let (e, f) = (v, u).scan2::<1>(|(a, b), (c, d)| (a + c, b * d));
    let (g, h) = (v, u).scan2_reverse::<1>(|(a, b), (c, d)| (a + c, b * d));
    let s = v.cumsum::<1>()
        + v.cumprod_reverse::<1>()
        + v.cummax::<0>()
        + v.cummin::<1>()
        + v.scan::<1>(|a, b| a + b)
        + v.scan_reverse::<1>(|a, b| a + b);
    let (k, at) = s.sort().sort_descending().topk::<C<8>>();
    let moved = s
        .t()
        .t()
        .reshape::<(C<2>, C<2>, C<8>)>()
        .permute::<Order3<1, 0, 2>>()
        .at::<0>(1)
        .broadcast::<(C<2>, C<2>, C<8>)>();
    let moved =
        moved.reshape::<(C<4>, C<8>)>().slice::<1, C<4>>(2).cat::<1, _>(k.slice::<1, C<4>>(0)).same::<1, C<8>>();
    let (half, other) = moved.join(s).split();
    let taken = half.take::<1, _, _>(at) + other.expand::<0>().squeeze::<0>();
    let sum = taken + e + g + p + (i * 2);
    let floats = f + h + q + r + full::<f32, (One, One)>(2.0) + zeros::<f32, (C<4>, C<8>)>() + sum.cast::<f32>();
    let id = ids.load::<(C<8>,)>(0);
    let got = x.gather((id, 0)) + x.gather_padded((id, id), 1.0) + x.gather_masked((id, id), id > 0);
    y.scatter((id, 1), got);
    y.scatter_masked((id, 1), got, id < 5);
    let old = counts.atomic_add(id, 1, MemOrder::Relaxed) + counts.atomic_max_masked(id, id, id > 2, MemOrder::Relaxed);
    let old = old + counts.atomic_cas(id, 0, 1, MemOrder::Relaxed) + counts.atomic_xchg(0, 1, MemOrder::Relaxed);
    counts.set(1, (id.histogram::<C<4>>() + id.histogram_masked::<C<4>>(old > 0)).sum::<0>().item());
    let weights = w.load::<(C<64>, C<8>)>((0, n));
    let codes = d.load::<(C<4>, C<64>)>((0, 0));
    let sums = codes.reshape::<(C<4>, C<2>, C<32>)>().sum_as::<2, i32>().squeeze::<2>();
    let dots =
        dot_grouped(codes, sums.cast(), sums, weights, floats) + dot(codes.cast::<f32>(), weights.dequant(), floats);
    let dots = dots
        + dot_with_precision(Precision::Tf32, codes.cast(), weights.dequant(), zeros())
        + w.gather((id, 0)).expand::<0>();
    let dots = dots + (w.column::<C<8>>(n, 2) + w.k().cast() + w.n().cast()).expand::<0>();
    for i in w.tiles_along_k::<C<64>>() {
        counts.set(2, i + counts.narrow::<0>(n, 2).dim::<0>() + num_programs(1) + control(n));
    }
    assume(n > 0);
    device_assert(id != 0, "zero");
    print("values", (id, n));
    let noise = rand(7u64, iota_of::<u64, C<8>>())
        + rand_int(7u64, iota_of::<u64, C<8>>(), 5).cast::<f32>()
        + constant(1.5f32)
        + lowest::<f32>()
        + highest();
    let noise = noise + min(n, 3).cast() + max(n, 4).cast() + cdiv(n, 3).cast() + scalar(1.0) + iota::<C<8>>().cast();
    y.store_at((n, 0), dots + noise.expand::<0>());
    y.store((0, 0), -dots);
}
const LAST: u32 = line!();

#[test]
fn no_op_lies_in_the_library() {
    let k = everything::ir().build().unwrap_or_else(|e| panic!("{e}"));
    let mut seen = std::collections::BTreeSet::new();
    k.body.walk(&mut |op| {
        seen.insert(op.kind);
        assert!(op.loc.file.ends_with("tests/locations.rs"), "`{}` at {}", op.kind.name(), op.loc);
        assert!((FIRST..LAST).contains(&op.loc.line), "`{}` at {}", op.kind.name(), op.loc);
        // A column within the function's text, not that of the attribute.
        assert!(op.loc.col > 4, "`{}` at {}", op.kind.name(), op.loc);
    });
    let missing: Vec<_> =
        OpKind::ALL.iter().filter(|k| !seen.contains(k) && !k.is_made_by_passes()).map(|k| k.name()).collect();
    assert!(missing.is_empty(), "not made by this kernel: {missing:?}");
}
