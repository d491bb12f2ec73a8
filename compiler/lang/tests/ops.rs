//! Every operation of the language: run on the oracle, beside plain Rust.
#![allow(clippy::erasing_op)]
extern crate tegula_lang as tegula;
mod support;
use support::*;
use tegula::prelude::*;

/// A kernel from one view of 8 elements to one of `$n`, and its run on random numbers. Gives the input and the output.
macro_rules! map {
    (|$x:ident: $t:ty, $n:literal| $u:ty, $n2:literal: $body:expr) => {{
        #[kernel]
        fn k(x: View<$t, 1>, y: ViewMut<$u, 1>) {
            let $x = x.load::<(C<$n>,)>(0);
            y.store(0, $body);
        }
        let mut r = random(7);
        let x = Tensor::<$t>::new(&[$n], |i| {
            let v = r(i) * 10.0;
            constant_of::<$t>(v)
        });
        let mut y = Tensor::<$u>::poisoned(&[$n2]);
        k::launch(&x, &mut y).grid(1).run(&Oracle::default()).unwrap();
        (x.data, y.data)
    }};
}

fn constant_of<T: Elem>(v: f64) -> T {
    T::from_bits(tegula_ir::Scalar::from_f64(T::ELEM, v).bits)
}

#[test]
fn math() {
    macro_rules! unary { ($($f:ident $host:expr;)*) => {$({
        let (x, y) = map!(|x: f32, 8| f32, 8: x.$f());
        let host: fn(f64) -> f64 = $host;
        for (x, y) in x.iter().zip(y) {
            let want = host(*x as f64) as f32;
            assert!(y == want || (y - want).abs() <= 2e-6 * want.abs() || (y.is_nan() && want.is_nan()), "{} of {x}: {y} for {want}", stringify!($f));
        }
    })*} }
    unary! {
        exp f64::exp; exp2 f64::exp2; log f64::ln; log2 f64::log2; sin f64::sin; cos f64::cos; tanh f64::tanh; sqrt f64::sqrt;
        rsqrt |x| 1.0 / x.sqrt(); sigmoid |x| 1.0 / (1.0 + (-x).exp()); floor f64::floor; ceil f64::ceil; round f64::round_ties_even; abs f64::abs;
        erf erf;
    }
    fn erf(x: f64) -> f64 {
        // The series converges everywhere; 200 terms are enough to |x| = 10 only by asymptotics, so cut there.
        if x.abs() > 5.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }
}

#[test]
fn arithmetic() {
    let (x, y) = map!(|x: f32, 8| f32, 8: -(x * 2.0 + 1.0) / (x - 0.25) % 3.0);
    assert_eq!(y, x.iter().map(|x| -(x * 2.0 + 1.0) / (x - 0.25) % 3.0).collect::<Vec<_>>());
    let (x, y) = map!(|x: i32, 8| i32, 8: (2 - x * 3) / 4 % 5 + (7 % (x + 100)));
    assert_eq!(y, x.iter().map(|x| (2 - x * 3) / 4 % 5 + 7 % (x + 100)).collect::<Vec<_>>());
    let (x, y) = map!(|x: u8, 8| u8, 8: (!x & 15 | 16) ^ (x << 3) ^ (x >> 1));
    assert_eq!(y, x.iter().map(|x| (!x & 15 | 16) ^ (x << 3) ^ (x >> 1)).collect::<Vec<_>>());
    let (x, y) = map!(|x: f32, 8| f32, 8: x.fma(x, 0.5).maximum(3.0).minimum(x + 50.0).clamp(-1.0, 40.0));
    assert_eq!(y, x.iter().map(|x| x.mul_add(*x, 0.5).max(3.0).min(x + 50.0).clamp(-1.0, 40.0)).collect::<Vec<_>>());
    let (x, y) = map!(|x: u32, 8| u32, 8: x.umulhi(0xDEAD_BEEFu32));
    assert_eq!(y, x.iter().map(|x| ((*x as u64 * 0xDEAD_BEEF) >> 32) as u32).collect::<Vec<_>>());
    let (x, y) = map!(|x: f64, 8| f64, 8: x.abs().pow(1.5));
    close(y, x.iter().map(|x| x.abs().powf(1.5)), 1e-14);
    let (x, y) = map!(|x: f32, 8| f32, 8: { let mut z = x; z += 1.0; z -= x * 0.5; z *= x; z /= 3.0; z %= 4.0; z });
    assert_eq!(y, x.iter().map(|x| (x + 1.0 - x * 0.5) * x / 3.0 % 4.0).collect::<Vec<_>>());
    let (x, y) = map!(|x: i16, 8| i16, 8: { let mut z = x; z &= 0x7f; z |= 0x100; z ^= x; z <<= 2; z >>= 1; z });
    assert_eq!(y, x.iter().map(|x| ((((x & 0x7f) | 0x100) ^ x) << 2) >> 1).collect::<Vec<_>>());
}

#[test]
fn literals_on_the_left() {
    let (x, y) = map!(|x: f32, 8| f32, 8: (2.0 * x).exp() + (1.0 - x) * (3.0 / x) + (-1.5 + x) + 7.0 % x);
    close(
        y.iter().map(|v| *v as f64),
        x.iter().map(|x| ((2.0 * x).exp() + (1.0 - x) * (3.0 / x) + (-1.5 + x) + 7.0 % x) as f64),
        1e-6,
    );
}

#[test]
fn compares_and_select() {
    let (x, y) = map!(|x: f32, 8| f32, 8: select(x < 1.0 && !(x <= -3.0) || x == 2.0 || 5.0 < x && x != 6.0, x, -1.0));
    assert_eq!(
        y,
        x.iter()
            .map(|x| if *x < 1.0 && *x > -3.0 || *x == 2.0 || *x > 5.0 && *x != 6.0 { *x } else { -1.0 })
            .collect::<Vec<_>>()
    );
    let (x, y) = map!(|x: i32, 8| bool, 8: (x >= 0) ^ (x > 3));
    assert_eq!(y, x.iter().map(|x| (*x >= 0) ^ (*x > 3)).collect::<Vec<_>>());
}

#[test]
fn casts() {
    let (x, y) = map!(|x: f32, 8| i8, 8: (x * 40.0).cast());
    assert_eq!(y, x.iter().map(|x| (x * 40.0) as i8).collect::<Vec<_>>());
    let (x, y) = map!(|x: f32, 8| bf16, 8: x.cast());
    assert_eq!(y, x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
    let (x, y) = map!(|x: f32, 8| f8e4m3, 8: (x * 100.0).cast());
    assert_eq!(y, x.iter().map(|x| f8e4m3::from_f32(x * 100.0)).collect::<Vec<_>>());
    let (x, y) = map!(|x: f32, 8| u32, 8: x.bitcast());
    assert_eq!(y, x.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    let (x, y) = map!(|x: i32, 8| u8, 8: (x * 1000).cast());
    assert_eq!(y, x.iter().map(|x| (x * 1000) as u8).collect::<Vec<_>>());
    let (x, y) = map!(|x: i32, 8| f16, 8: x.cast::<bool>().cast::<i64>().cast::<f16>());
    assert_eq!(y, x.iter().map(|x| f16::from_f32((*x != 0) as u8 as f32)).collect::<Vec<_>>());
}

#[test]
fn constants() {
    let (_, y) = map!(|x: f32, 8| f32, 8: full::<f32, (C<4>,)>(1.5).cat::<0, _>(zeros::<f32, (C<4>,)>()).same::<0, C<8>>() + x * 0.0);
    assert_eq!(y, [1.5, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0, 0.0]);
    let (_, y) = map!(|x: i64, 8| i64, 8: iota_of::<i64, C<8>>() * 3 + x * 0);
    assert_eq!(y, [0, 3, 6, 9, 12, 15, 18, 21]);
    let (_, y) = map!(|x: u8, 8| u8, 8: select(x == x, highest(), lowest()));
    assert_eq!(y, [255; 8]);
    #[kernel]
    fn extremes(a: ViewMut<f32, 1>, b: ViewMut<i16, 1>, c: ViewMut<bf16, 1>, d: ViewMut<f8e4m3, 1>) {
        a.set(0, lowest());
        a.set(1, highest());
        b.set(0, lowest());
        b.set(1, highest());
        c.set(0, lowest());
        c.set(1, constant(bf16::from_f32(0.3)));
        d.set(0, highest());
        d.set(1, constant(f8e4m3::from_f32(-2.0)));
    }
    let (mut a, mut b) = (Tensor::poisoned(&[2]), Tensor::poisoned(&[2]));
    let (mut c, mut d) = (Tensor::poisoned(&[2]), Tensor::poisoned(&[2]));
    extremes::launch(&mut a, &mut b, &mut c, &mut d).grid(1).run(&Oracle::default()).unwrap();
    assert_eq!(a.data, [f32::NEG_INFINITY, f32::INFINITY]);
    assert_eq!(b.data, [i16::MIN, i16::MAX]);
    assert_eq!(c.data, [bf16::NEG_INFINITY, bf16::from_f32(0.3)]);
    assert_eq!((d.data[0].to_f32(), d.data[1].to_f32()), (448.0, -2.0));
}

/// A kernel from a 3 × 5 matrix to another tensor.
macro_rules! matrix {
    (|$x:ident: $t:ty| $u:ty, $shape:expr, $pos:expr, $body:expr) => {{
        #[kernel]
        fn k(x: View<$t, 2>, y: ViewMut<$u, { $shape.len() }>) {
            let $x = x.load::<(C<3>, C<5>)>((0, 0));
            y.store($pos, $body);
        }
        let mut r = random(3);
        let x = Tensor::<$t>::new(&[3, 5], |i| constant_of::<$t>(r(i) * 9.0));
        let mut y = Tensor::<$u>::poisoned(&$shape);
        k::launch(&x, &mut y).grid(1).run(&Oracle::default()).unwrap();
        (x.data, y.data)
    }};
}

#[test]
fn reductions() {
    let columns = |x: &[f32]| -> Vec<Vec<f32>> { (0..5).map(|j| (0..3).map(|i| x[i * 5 + j]).collect()).collect() };
    let (x, y) = matrix!(|x: f32| f32, [3, 1], (0, 0), x.sum::<1>());
    close(y.iter().map(|v| *v as f64), x.chunks(5).map(|r| r.iter().map(|v| *v as f64).sum()), 1e-6);
    let (x, y) = matrix!(|x: f32| f32, [1, 5], (0, 0), x.prod::<0>());
    close(y.iter().map(|v| *v as f64), columns(&x).iter().map(|c| c.iter().map(|v| *v as f64).product()), 1e-6);
    let (x, y) = matrix!(|x: f32| f32, [3, 1], (0, 0), x.max::<1>() - x.min::<1>());
    assert_eq!(
        y,
        x.chunks(5)
            .map(|r| r.iter().cloned().fold(f32::MIN, f32::max) - r.iter().cloned().fold(f32::MAX, f32::min))
            .collect::<Vec<_>>()
    );
    let (x, y) = matrix!(|x: f32| i32, [1, 5], (0, 0), x.argmax::<0>() * 10 + x.argmin::<0>());
    let arg = |c: &[f32], f: fn(&f32, &f32) -> bool| {
        (0..c.len()).reduce(|a, b| if f(&c[b], &c[a]) { b } else { a }).unwrap() as i32
    };
    assert_eq!(y, columns(&x).iter().map(|c| arg(c, |p, q| p > q) * 10 + arg(c, |p, q| p < q)).collect::<Vec<_>>());
    let (x, y) = matrix!(
        |x: i32| i32,
        [3, 1],
        (0, 0),
        (x > 0).count::<1>() + (x > 0).any::<1>().cast() * 100 + (x > -8).all::<1>().cast() * 1000
    );
    let want = |r: &[i32]| {
        r.iter().filter(|v| **v > 0).count() as i32
            + r.iter().any(|v| *v > 0) as i32 * 100
            + r.iter().all(|v| *v > -8) as i32 * 1000
    };
    assert_eq!(y, x.chunks(5).map(want).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: i32| i32, [3, 1], (0, 0), x.xor::<1>());
    assert_eq!(y, x.chunks(5).map(|r| r.iter().fold(0, |a, b| a ^ b)).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: i8| i32, [3, 1], (0, 0), (x * 14).sum_as::<1, i32>());
    assert_eq!(y, x.chunks(5).map(|r| r.iter().map(|v| v.wrapping_mul(14) as i32).sum::<i32>()).collect::<Vec<_>>());
    let (_, y) = matrix!(
        |x: f32| f32,
        [3, 1],
        (0, 0),
        select(x == x.max::<1>(), f32::NAN, x).max_nan::<1>() + x.min_nan::<1>() * 0.0
    );
    assert!(y.iter().all(|v| v.is_nan()));
    let (x, y) = matrix!(|x: i32| i32, [3, 1], (0, 0), x.reduce::<1>(|a, b| a * 3 + b));
    // Not associative on purpose would be a mistake; a·3 + b over 5 elements is only checked for its own order here.
    let fold = |r: &[i32]| r[1..].iter().fold(r[0], |a, b| a * 3 + b);
    assert_eq!(y, x.chunks(5).map(fold).collect::<Vec<_>>());
}

#[test]
fn reductions_of_pairs() {
    #[kernel]
    fn k(x: View<f32, 2>, best: ViewMut<f32, 2>, at: ViewMut<i32, 2>) {
        let x = x.load::<(C<3>, C<5>)>((0, 0));
        let cols = iota::<C<5>>().expand::<0>().broadcast::<(C<3>, C<5>)>();
        let (b, i) = (x, cols).reduce2::<1>(|(a, i), (b, j)| {
            let first = a > b || a == b && i < j;
            (select(first, a, b), select(first, i, j))
        });
        best.store((0, 0), b);
        at.store((0, 0), i);
    }
    let x = Tensor::new(&[3, 5], random_f32(21));
    let (mut b, mut i) = (Tensor::poisoned(&[3, 1]), Tensor::poisoned(&[3, 1]));
    k::launch(&x, &mut b, &mut i).grid(1).run(&Oracle::default()).unwrap();
    for (r, (b, i)) in x.data.chunks(5).zip(b.data.iter().zip(&i.data)) {
        assert_eq!(*b, r.iter().cloned().fold(f32::MIN, f32::max));
        assert_eq!(r[*i as usize], *b);
    }
}

#[test]
fn scans() {
    fn scan<T: Copy>(r: &[T], f: impl Fn(T, T) -> T) -> Vec<T> {
        let mut out = vec![r[0]];
        for v in &r[1..] {
            out.push(f(out[out.len() - 1], *v));
        }
        out
    }
    fn back<T: Copy>(r: &[T], f: impl Fn(T, T) -> T) -> Vec<T> {
        let mut rev: Vec<T> = r.iter().rev().cloned().collect();
        rev = scan(&rev, f);
        rev.reverse();
        rev
    }
    let rows = |x: &[i32], f: &dyn Fn(&[i32]) -> Vec<i32>| x.chunks(5).flat_map(f).collect::<Vec<_>>();
    let (x, y) = matrix!(|x: i32| i32, [3, 5], (0, 0), x.cumsum::<1>());
    assert_eq!(y, rows(&x, &|r| scan(r, |a, b| a + b)));
    let (x, y) = matrix!(|x: i32| i32, [3, 5], (0, 0), x.cumsum_reverse::<1>() + x.cumprod::<1>());
    assert_eq!(y, rows(&x, &|r| back(r, |a, b| a + b).iter().zip(scan(r, |a, b| a * b)).map(|(a, b)| a + b).collect()));
    let (x, y) = matrix!(|x: i32| i32, [3, 5], (0, 0), x.cummax::<1>() * 100 + x.cummin_reverse::<1>());
    assert_eq!(
        y,
        rows(&x, &|r| scan(r, |a, b| a.max(b))
            .iter()
            .zip(back(r, |a, b| a.min(b)))
            .map(|(a, b)| a * 100 + b)
            .collect())
    );
    let (x, y) = matrix!(|x: i32| i32, [3, 5], (0, 0), x.scan::<1>(|a, b| if a > b { a } else { b }));
    assert_eq!(y, rows(&x, &|r| scan(r, |a, b| a.max(b))));
    let (x, y) = matrix!(|x: i32| i32, [3, 5], (0, 0), x.scan_reverse::<1>(|a, b| a.minimum(b)));
    assert_eq!(y, rows(&x, &|r| back(r, |a, b| a.min(b))));
    // The first-order recurrence y = a·y + b as a scan of pairs.
    let (x, y) = matrix!(|x: i32| i32, [3, 5], (0, 0), (x, x + 1).scan2::<1>(|(a, b), (c, d)| (a * c, b * c + d)).1);
    let recurrence = |r: &[i32]| {
        scan(&r.iter().map(|v| (*v, v + 1)).collect::<Vec<_>>(), |(a, b), (c, d)| (a.wrapping_mul(c), b * c + d))
            .iter()
            .map(|p| p.1)
            .collect()
    };
    assert_eq!(y, rows(&x, &recurrence));
    let (x, y) =
        matrix!(|x: i32| i32, [3, 5], (0, 0), (x, x).scan2_reverse::<1>(|(a, b), (c, d)| (a + c, b.maximum(d))).1);
    assert_eq!(y, rows(&x, &|r| back(r, |a, b| a.max(b))));
}

#[test]
fn moving() {
    let (x, y) = matrix!(|x: f32| f32, [5, 3], (0, 0), x.t());
    assert_eq!(y, (0..15).map(|i| x[i % 3 * 5 + i / 3]).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [15], 0, x.reshape::<(C<15>,)>());
    assert_eq!(y, x);
    let (x, y) = matrix!(|x: f32| f32, [3, 2], (0, 0), x.slice::<1, C<2>>(3));
    assert_eq!(y, (0..6).map(|i| x[i / 2 * 5 + 3 + i % 2]).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [1, 5], (0, 0), x.at::<0>(2));
    assert_eq!(y, x[10..]);
    let (x, y) = matrix!(|x: f32| f32, [6, 5], (0, 0), x.cat::<0, _>(x * 2.0));
    assert_eq!(y, x.iter().cloned().chain(x.iter().map(|v| v * 2.0)).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [3, 5, 2], (0, 0, 0), x.join(-x));
    assert_eq!(y, x.iter().flat_map(|v| [*v, -v]).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [3, 5], (0, 0), {
        let (a, b) = x.join(x * 3.0).split();
        b - a
    });
    assert_eq!(y, x.iter().map(|v| v * 3.0 - v).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [5, 3, 2], (0, 0, 0), x.join(-x).permute::<Order3<1, 0, 2>>());
    let want = (0..30).map(|i| {
        let v = x[(i / 2 % 3) * 5 + i / 6];
        if i % 2 == 0 { v } else { -v }
    });
    assert_eq!(y, want.collect::<Vec<_>>());
    let (x, y) = matrix!(
        |x: f32| f32,
        [3, 5],
        (0, 0),
        x.expand::<0>().squeeze::<0>() + x.max::<0>().broadcast::<(C<3>, C<5>)>()
    );
    assert_eq!(
        y,
        (0..15).map(|i| x[i] + (0..3).map(|r| x[r * 5 + i % 5]).fold(f32::MIN, f32::max)).collect::<Vec<_>>()
    );
    let (x, y) = matrix!(
        |x: i32| i32,
        [3, 2],
        (0, 0),
        x.take::<1, _, _>((iota::<C<2>>() * 4).expand::<0>() + iota::<C<3>>().expand::<1>() * 2)
    );
    let want = (0..6).map(|i| {
        let at = i % 2 * 4 + i / 2 * 2;
        if at < 5 { x[i / 2 * 5 + at] } else { 0 }
    });
    assert_eq!(y, want.collect::<Vec<_>>());
}

#[test]
fn derived_extents() {
    #[kernel]
    fn k<BM: Dim, BN: Dim>(x: View<f32, 2>, flat: ViewMut<f32, 1>, halves: ViewMut<f32, 2>, longer: ViewMut<f32, 2>) {
        let t = x.load::<(BM, BN)>((0, 0));
        flat.store(0, t.reshape::<(Prod<BM, BN>,)>());
        let (even, odd) = t.reshape::<(BM, Half<BN>, C<2>)>().split();
        halves.store((0, 0), even - odd);
        let both = t.cat::<0, _>(x.load::<(C<1>, BN)>((1, 0)));
        longer.store((0, 0), both.max::<1>() + zeros::<f32, (Sum<BM, C<1>>, One)>());
    }
    let x = Tensor::new(&[3, 6], random_f32(8));
    let (mut flat, mut halves) = (Tensor::<f32>::poisoned(&[18]), Tensor::<f32>::poisoned(&[3, 3]));
    let mut longer = Tensor::<f32>::poisoned(&[4, 1]);
    k::launch(&x, &mut flat, &mut halves, &mut longer).dims(3, 6).grid(1).run(&Oracle::default()).unwrap();
    assert_eq!(flat.data, x.data);
    assert_eq!(halves.data, x.data.chunks(2).map(|p| p[0] - p[1]).collect::<Vec<_>>());
    let max = |r: usize| x.data[r * 6..][..6].iter().cloned().fold(f32::MIN, f32::max);
    assert_eq!(longer.data, [max(0), max(1), max(2), max(1)]);
}

#[test]
fn order() {
    let (x, y) = matrix!(|x: f32| f32, [3, 5], (0, 0), x.sort());
    let sorted = |r: &[f32]| {
        let mut r = r.to_vec();
        r.sort_by(f32::total_cmp);
        r
    };
    assert_eq!(y, x.chunks(5).flat_map(sorted).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [3, 5], (0, 0), x.sort_descending());
    assert_eq!(y, x.chunks(5).flat_map(|r| sorted(r).into_iter().rev()).collect::<Vec<_>>());
    let (x, y) = matrix!(|x: f32| f32, [3, 2], (0, 0), {
        let (v, i) = x.topk::<C<2>>();
        v + x.take::<1, _, _>(i)
    });
    assert_eq!(y, x.chunks(5).flat_map(|r| sorted(r).into_iter().rev().take(2).map(|v| v + v)).collect::<Vec<_>>());
    #[kernel]
    fn counts(x: View<u8, 1>, y: ViewMut<i32, 1>, z: ViewMut<i32, 1>) {
        let x = x.load::<(C<32>,)>(0);
        y.store(0, x.histogram::<C<7>>());
        z.store(0, x.histogram_masked::<C<7>>(x % 2 == 0));
    }
    let x = Tensor::new(&[32], |i| (i * i * 7 % 11) as u8);
    let (mut y, mut z) = (Tensor::poisoned(&[7]), Tensor::poisoned(&[7]));
    counts::launch(&x, &mut y, &mut z).grid(1).run(&Oracle::default()).unwrap();
    for b in 0..7 {
        let n = x.data.iter().filter(|v| **v as usize == b).count() as i32;
        assert_eq!((y.data[b], z.data[b]), (n, if b % 2 == 0 { n } else { 0 }));
    }
}

#[test]
fn views() {
    #[kernel]
    fn k(x: View<f32, 2>, y: ViewMut<f32, 2>, n: Scalar<i64>) {
        let t = x.load_padded::<(C<4>, C<4>)>((0, 1), -7.0);
        y.store_at((0, 0), t);
        y.store_at((n, 0), x.load_at::<(One, C<4>)>((n - 3, 2)));
        y.store_at((5, 0), x.load_at_padded::<(One, C<4>)>((100, 0), 0.5));
        y.set((6, n - 4), x.at((1, 1)) + x.at((9, 9)));
        y.set((6, 1), x.dim::<0>().cast::<f32>() + x.dim::<1>().cast::<f32>() * 0.25);
        y.set((6, 2), 2.5);
        let part = x.narrow::<1>(1, 3).narrow::<0>(n - 3, 1);
        y.set((6, 3), part.load::<(C<2>, C<8>)>((0, 0)).sum::<1>().sum::<0>().reshape());
    }
    let x = Tensor::new(&[3, 6], |i| i as f32 + 1.0);
    let mut y = Tensor::<f32>::new(&[7, 4], |_| 0.0);
    k::launch(&x, &mut y, 4i64).grid(1).run(&Oracle::default()).unwrap();
    let at = |r: usize, c: usize| x.data[r * 6 + c];
    let mut want = vec![];
    for r in 0..4 {
        want.extend((0..4).map(|c| if r < 3 && c + 4 < 6 { at(r, c + 4) } else { -7.0 }));
    }
    want.extend((2..6).map(|c| at(1, c)));
    want.extend([0.5; 4]);
    want.extend([at(1, 1), 3.0 + 6.0 * 0.25, 2.5, at(1, 1) + at(1, 2) + at(1, 3)]);
    assert_eq!(y.data, want);
}

#[test]
fn gather_and_scatter() {
    #[kernel]
    fn k(table: View<f32, 2>, ids: View<i32, 1>, y: ViewMut<f32, 2>, z: ViewMut<f32, 1>) {
        let ids = ids.load::<(C<4>,)>(0);
        let cols = iota::<C<3>>().expand::<0>();
        let rows = ids.expand::<1>();
        y.store((0, 0), table.gather((rows, cols)));
        y.store((1, 0), table.gather_padded((rows, 2), 9.0).broadcast::<(C<4>, C<3>)>());
        y.store((2, 0), table.gather_masked((rows, cols), cols != 1));
        z.scatter(ids * 2, ids.cast::<f32>());
        z.scatter_masked(ids * 2 + 1, 5.0, ids > 1);
    }
    let table = Tensor::new(&[5, 3], |i| i as f32 + 1.0);
    let ids = Tensor::new(&[4], |i| [3, 0, 7, 2][i]);
    let mut y = Tensor::<f32>::poisoned(&[12, 3]);
    let mut z = Tensor::<f32>::new(&[10], |_| -1.0);
    k::launch(&table, &ids, &mut y, &mut z).grid(1).run(&Oracle::default()).unwrap();
    let at = |r: i32, c: usize| (r < 5).then(|| table.data[r as usize * 3 + c]);
    let mut want = vec![];
    want.extend(ids.data.iter().flat_map(|r| (0..3).map(move |c| at(*r, c).unwrap_or(0.0))));
    want.extend(ids.data.iter().flat_map(|r| [at(*r, 2).unwrap_or(9.0); 3]));
    want.extend(ids.data.iter().flat_map(|r| (0..3).map(move |c| if c == 1 { 0.0 } else { at(*r, c).unwrap_or(0.0) })));
    assert_eq!(y.data, want);
    assert_eq!(z.data, [0.0, -1.0, -1.0, -1.0, 2.0, 5.0, 3.0, 5.0, -1.0, -1.0]);
}

#[test]
fn atomics() {
    use MemOrder::*;
    #[kernel]
    fn k(x: View<i32, 1>, y: ViewMut<i32, 1>, old: ViewMut<i32, 1>) {
        let v = x.load::<(C<4>,)>(program_id(0));
        y.atomic_add(v % 3, 1, Relaxed);
        y.atomic_max(3, v.max::<0>().item(), Relaxed);
        y.atomic_min(v * 0 + 4, v, AcqRel);
        y.atomic_and(5, v.reduce::<0>(|a, b| a & b).item(), Relaxed);
        y.atomic_or(6, v.reduce::<0>(|a, b| a | b).item(), Release);
        y.atomic_xor(7, v.xor::<0>().item(), Acquire);
        y.atomic_add_masked(8, 1, v.max::<0>().item() > 20, Relaxed);
        old.set(program_id(0), y.atomic_xchg(9 + program_id(0), 77, Relaxed));
        old.set(program_id(0) + 3, y.atomic_cas(12 + program_id(0), 0, program_id(0), Relaxed));
    }
    let x = Tensor::new(&[12], |i| (i * 5 % 31 + 1) as i32);
    let mut y = Tensor::new(&[15], |i| [0, 0, 0, 0, 99, -1, 0, 0, 0, 1, 2, 3, 0, 1, 0][i]);
    let mut old = Tensor::poisoned(&[6]);
    k::launch(&x, &mut y, &mut old).grid(3).run(&Oracle::default()).unwrap();
    let d = &x.data;
    for r in 0..3 {
        assert_eq!(y.data[r], d.iter().filter(|v| **v as usize % 3 == r).count() as i32);
    }
    assert_eq!(y.data[3..5], [*d.iter().max().unwrap(), *d.iter().min().unwrap()]);
    assert_eq!(
        y.data[5..8],
        [d.iter().fold(-1, |a, b| a & b), d.iter().fold(0, |a, b| a | b), d.iter().fold(0, |a, b| a ^ b)]
    );
    assert_eq!(y.data[8], d.chunks(4).filter(|c| c.iter().any(|v| *v > 20)).count() as i32);
    assert_eq!(y.data[9..], [77, 77, 77, 0, 1, 2]);
    assert_eq!(old.data, [1, 2, 3, 0, 1, 0]);
}

#[test]
fn programs() {
    #[kernel]
    fn k(y: ViewMut<i32, 3>, n: Scalar<i32>) {
        let at = (program_id(0), program_id(1), program_id(2));
        assume(n > 0);
        device_assert(n < 100, "n is small");
        print("program", (n, program_id(2)));
        let v = num_programs(0) * 100 + num_programs(1) * 10 + num_programs(2);
        y.set(at, v + cdiv(n.multiple_of(5), 4) * 1000 + max(min(n, 3), 2) * 10000);
    }
    let mut y = Tensor::<i32>::poisoned(&[2, 3, 4]);
    let oracle = Oracle::default();
    k::launch(&mut y, 5).grid([2, 3, 4]).run(&oracle).unwrap();
    assert_eq!(y.data, [32234; 24]);
    assert_eq!(oracle.printed.borrow().len(), 24);
    let e = k::launch(&mut y, 105).grid([2, 3, 4]).run(&Oracle::default()).unwrap_err().to_string();
    assert!(e.contains("n is small") && e.contains("ops.rs"), "{e}");
}

#[test]
fn grouped_covers_every_tile_once() {
    #[kernel]
    fn k<BM: Dim, BN: Dim, const G: usize>(y: ViewMut<i32, 2>, c: View<i32, 2>) {
        let (pm, pn) = grouped::<BM, BN>(program_id(0), &c, G);
        y.set((pm, pn), program_id(0) + 1);
    }
    let c = Tensor::<i32>::new(&[21, 13], |_| 0);
    let mut y = Tensor::<i32>::new(&[6, 5], |_| 0);
    k::launch::<4>(&mut y, &c).dims(4, 3).grid(30).run(&Oracle::default()).unwrap();
    let mut all = y.data.clone();
    all.sort();
    assert_eq!(all, (1..=30).collect::<Vec<_>>());
    // The first 4·5 programs stay in the first 4 tile rows, column by column.
    assert_eq!((y.data[0], y.data[5], y.data[15], y.data[1], y.data[20]), (1, 2, 4, 5, 21));
}

#[test]
fn dots() {
    #[kernel]
    fn k<T: DotInto<A>, A: Elem>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<A, 2>) {
        let x = a.load::<(C<3>, C<4>)>((0, 0));
        c.store((0, 0), dot(x, b.load((0, 0)), full_of::<A>()));
    }
    fn full_of<A: Elem>() -> Tile<A, (C<3>, C<2>)> {
        zeros()
    }
    macro_rules! check {
        ($t:ty, $acc:ty) => {{
            let (mut r, mut s) = (random(1), random(2));
            let a = Tensor::<$t>::new(&[3, 4], |i| constant_of(r(i) * 8.0));
            let b = Tensor::<$t>::new(&[4, 2], |i| constant_of(s(i) * 8.0));
            let mut c = Tensor::<$acc>::poisoned(&[3, 2]);
            k::launch(&a, &b, &mut c).grid(1).run(&Oracle::default()).unwrap();
            let f = |v: $t| tegula_ir::Scalar::from_bits(<$t as Elem>::ELEM, v.bits()).to_f64();
            let want = (0..6).map(|j| (0..4).map(|q| f(a.data[j / 2 * 4 + q]) * f(b.data[q * 2 + j % 2])).sum());
            close(c.data.iter().map(|v| *v as f64), want, 1e-6);
        }};
    }
    check!(f32, f32);
    check!(f64, f64);
    check!(bf16, f32);
    check!(f16, f32);
    check!(f8e4m3, f32);
    check!(f8e5m2, f32);
    check!(i8, i32);
    check!(u8, i32);
}

#[test]
fn packed_operands() {
    use tegula_ir::{Quant, layout::Layout};
    let (k, n) = (64, 5);
    // Blocks of q8_0: an f16 scale, then 32 codes.
    let mut r = random(5);
    let bytes: Vec<u8> = (0..n * k / 32)
        .flat_map(|b| {
            let scale = f16::from_f64(r(b) * 0.1).to_bits().to_le_bytes();
            scale.into_iter().chain((0..32).map(|i| (b * 37 + i * 11) as u8)).collect::<Vec<_>>()
        })
        .collect();
    let w = PackedTensor { bytes, k, n, quant: Quant::Q8_0 };
    let value = |kk: usize, nn: usize| Layout::Gguf.decode(Quant::Q8_0, &w.bytes, (k, n), kk, nn);
    #[kernel]
    fn read(w: Packed, full: ViewMut<f32, 2>, picked: ViewMut<f32, 1>, row: ViewMut<f32, 1>, sizes: ViewMut<i32, 1>) {
        for i in w.tiles_along_k::<C<32>>() {
            full.store((i, 0), w.load::<(C<32>, C<4>)>((i, 0)).dequant());
            full.store((i, 1), w.load::<(C<32>, C<4>)>((i, 1)).dequant());
        }
        picked.store(0, w.gather((iota::<C<8>>() * 9, iota::<C<8>>() % 5)));
        row.store(0, w.column::<C<64>>(0, 3));
        sizes.set(0, w.k());
        sizes.set(1, w.n());
    }
    let mut full = Tensor::<f32>::poisoned(&[k, n]);
    let (mut picked, mut row) = (Tensor::<f32>::poisoned(&[8]), Tensor::<f32>::poisoned(&[64]));
    let mut sizes = Tensor::<i32>::poisoned(&[2]);
    read::launch(&w, &mut full, &mut picked, &mut row, &mut sizes).grid(1).run(&Oracle::default()).unwrap();
    assert_eq!(full.data, (0..k * n).map(|i| value(i / n, i % n)).collect::<Vec<_>>());
    assert_eq!(
        picked.data,
        (0..8).map(|i| value(i * 9, i % 5)).map(|v| if v.is_nan() { 0.0 } else { v }).collect::<Vec<_>>()
    );
    assert_eq!(row.data, (0..k).map(|i| value(i, 3)).collect::<Vec<_>>());
    assert_eq!(sizes.data, [64, 5]);

    #[kernel]
    fn product<Q: Format>(x: View<i8, 2>, sx: View<f32, 2>, w: Packed<Q>, y: ViewMut<f32, 2>) {
        let codes = x.load::<(C<2>, C<64>)>((0, 0));
        let sums = codes.reshape::<(C<2>, C<2>, C<32>)>().sum_as::<2, i32>().squeeze::<2>();
        let scales = sx.load::<(C<2>, C<2>)>((0, 0));
        y.store((0, 0), dot_grouped(codes, scales, sums, w.load::<(C<64>, C<8>)>((0, 0)), zeros()));
    }
    let x = Tensor::new(&[2, 64], |i| (i * 13 % 251) as u8 as i8);
    let sx = Tensor::new(&[2, 2], random_f32(4));
    let mut y = Tensor::<f32>::poisoned(&[2, n]);
    product::launch::<tegula_lang::packed::formats::Q8_0>(&x, &sx, &w, &mut y).grid(1).run(&Oracle::default()).unwrap();
    let want = (0..2 * n).map(|i| {
        (0..k).map(|j| x.data[i / n * k + j] as f64 * sx.data[i / n * 2 + j / 32] as f64 * value(j, i % n) as f64).sum()
    });
    close(y.data.iter().map(|v| *v as f64), want, 1e-5);
}

#[test]
fn random_numbers() {
    #[kernel]
    fn k(words: ViewMut<u32, 2>, u: ViewMut<f32, 1>, d: ViewMut<u32, 1>, seed: Scalar<u64>) {
        let key = [scalar(0xa4093822u32), scalar(0x299f31d0u32)];
        let c = [0x243f6a88u32, 0x85a308d3, 0x13198a2e, 0x03707344].map(|w| full::<u32, (One,)>(w));
        let zero = [zeros::<u32, (One,)>(); 4];
        for (i, w) in philox_words(key, c).into_iter().enumerate() {
            words.store((0, i), w.expand::<0>());
        }
        for (i, w) in philox_words([scalar(0u32), scalar(0u32)], zero).into_iter().enumerate() {
            words.store((1, i), w.expand::<0>());
        }
        let at = iota_of::<u64, C<1024>>();
        u.store(0, rand(seed, at));
        d.store(0, rand_int(seed, at, 6));
    }
    let mut words = Tensor::<u32>::poisoned(&[2, 4]);
    let (mut u, mut d) = (Tensor::<f32>::poisoned(&[1024]), Tensor::<u32>::poisoned(&[1024]));
    k::launch(&mut words, &mut u, &mut d, 42u64).grid(1).run(&Oracle::default()).unwrap();
    // Known answers of Random123 (kat_vectors, philox4x32 10).
    assert_eq!(words.data[..4], [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
    assert_eq!(words.data[4..], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    assert!(u.data.iter().all(|v| (0.0..1.0).contains(v)));
    let mean = u.data.iter().sum::<f32>() / 1024.0;
    assert!((mean - 0.5).abs() < 0.04, "{mean}");
    let counts: Vec<usize> = (0..6).map(|v| d.data.iter().filter(|x| **x == v).count()).collect();
    assert!(counts.iter().all(|c| (120..=222).contains(c)) && counts.iter().sum::<usize>() == 1024, "{counts:?}");
}
