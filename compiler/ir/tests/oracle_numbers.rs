//! Conversions and arithmetic of the oracle against tables made from other crates, and against exact integers.

mod oracle_common;

use oracle_common::*;
use std::cmp::Ordering;
use tegula_ir::{Elem, OpKind, Scalar, testing::same_value};

fn assert_same(elem: Elem, found: &[u64], want: &[u64], what: impl Fn(usize) -> String) {
    assert_eq!(found.len(), want.len());
    for i in 0..want.len() {
        assert!(
            same_value(elem, found[i], want[i]),
            "{}: {elem} {:#x} expected, found {:#x}",
            what(i),
            want[i],
            found[i]
        );
    }
}

#[test]
fn widening_is_exact_for_every_pattern() {
    for elem in SMALL {
        let all: Vec<u64> = (0..1 << elem.bits()).collect();
        for to in [Elem::F32, Elem::F64] {
            let found = elementwise(OpKind::Cast, &[(elem, &all)], to);
            for (&b, &f) in all.iter().zip(&found) {
                let (want, got) = (value(elem, b), value(to, f));
                assert!(
                    want == got && want.is_sign_negative() == got.is_sign_negative() || want.is_nan() && got.is_nan(),
                    "{elem} {b:#x}: {want} expected, found {got}"
                );
            }
        }
    }
}

/// Every value of the format, every middle between neighbours, and the f64 next to each on both sides, both signs.
#[test]
fn rounding_is_to_nearest_even_everywhere() {
    for elem in SMALL {
        let t = table(elem);
        let mut x = vec![];
        for i in 0..t.len() {
            let next = if i + 1 < t.len() { t[i + 1] } else { 2.0 * t[i] - t[i - 1] };
            for v in [t[i], (t[i] + next) / 2.0] {
                x.extend([v, f64::from_bits(v.to_bits() + 1)]);
                if v > 0.0 {
                    x.push(f64::from_bits(v.to_bits() - 1));
                }
            }
        }
        x.extend([1e300, f64::MAX, f64::INFINITY, f64::MIN_POSITIVE, 5e-324]);
        let sign = 1 << (elem.bits() - 1);
        let want: Vec<u64> = x.iter().map(|&v| nearest(elem, &t, |c| v.total_cmp(&c))).collect();
        let check = |x: &[f64], want: &[u64]| {
            let bits: Vec<u64> = x.iter().map(|v| v.to_bits()).collect();
            let found = elementwise(OpKind::Cast, &[(Elem::F64, &bits)], elem);
            for i in 0..x.len() {
                assert_eq!(found[i], want[i], "{} to {elem}", x[i]);
                // Constants are made by other code, and must agree.
                assert_eq!(Scalar::from_f64(elem, x[i]).bits, want[i], "a constant {} of {elem}", x[i]);
            }
            // What f32 can hold rounds the same from there.
            let (bits, want): (Vec<u64>, Vec<u64>) = x
                .iter()
                .zip(want)
                .filter(|e| f64::from(*e.0 as f32) == *e.0)
                .map(|(v, w)| (u64::from((*v as f32).to_bits()), *w))
                .unzip();
            assert!(bits.len() > t.len());
            assert_eq!(elementwise(OpKind::Cast, &[(Elem::F32, &bits)], elem), want, "f32 to {elem}");
        };
        check(&x, &want);
        let (minus, want): (Vec<f64>, Vec<u64>) = x.iter().zip(&want).map(|(v, w)| (-v, w | sign)).unzip();
        check(&minus, &want);
    }
}

/// Between small formats: through the exact value.
#[test]
fn casts_between_small_floats() {
    for from in SMALL {
        let all: Vec<u64> = (0..1 << from.bits()).collect();
        for to in SMALL.into_iter().filter(|&to| to != from) {
            let t = table(to);
            let found = elementwise(OpKind::Cast, &[(from, &all)], to);
            for (&b, &f) in all.iter().zip(&found) {
                let v = value(from, b);
                if v.is_nan() {
                    assert!(value(to, f).is_nan(), "{from} {b:#x} to {to}");
                } else {
                    let sign = if v.is_sign_negative() { 1 << (to.bits() - 1) } else { 0 };
                    assert_eq!(f, sign | nearest(to, &t, |c| v.abs().total_cmp(&c)), "{from} {v} to {to}");
                }
            }
        }
        assert_eq!(elementwise(OpKind::Cast, &[(from, &all)], from), all, "{from} to itself");
    }
}

const INTS: [Elem; 8] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::U8, Elem::U16, Elem::U32, Elem::U64];

/// Rust's `as`, whose meaning the language took over.
fn rust_as_int(v: f64, to: Elem) -> u64 {
    match to {
        Elem::I8 => u64::from(v as i8 as u8),
        Elem::I16 => u64::from(v as i16 as u16),
        Elem::I32 => u64::from(v as i32 as u32),
        Elem::I64 => v as i64 as u64,
        Elem::U8 => u64::from(v as u8),
        Elem::U16 => u64::from(v as u16),
        Elem::U32 => u64::from(v as u32),
        _ => v as u64,
    }
}

#[test]
fn floats_to_integers_saturate() {
    let mut random = Random(3);
    for from in [Elem::F64, Elem::F32, Elem::F16, Elem::BF16, Elem::F8E4M3, Elem::F8E5M2] {
        let mut x = random.patterns(from, 20_000);
        if from == Elem::F64 {
            // Exponents near the integers' ends.
            x.extend((0..20_000).map(|_| {
                (((random.below(70) as f64).exp2() * (1.0 + random.below(1 << 20) as f64 / (1 << 20) as f64))
                    * [1.0, -1.0][random.below(2) as usize])
                    .to_bits()
            }));
        }
        for to in INTS {
            let want: Vec<u64> = x.iter().map(|&b| rust_as_int(value(from, b), to)).collect();
            assert_eq!(elementwise(OpKind::Cast, &[(from, &x)], to), want, "{from} to {to}");
        }
        let want: Vec<u64> = x.iter().map(|&b| u64::from(value(from, b) != 0.0)).collect();
        assert_eq!(elementwise(OpKind::Cast, &[(from, &x)], Elem::Bool), want, "{from} to bool");
    }
}

fn signed_value(elem: Elem, bits: u64) -> i128 {
    match elem {
        Elem::I8 => (bits as i8).into(),
        Elem::I16 => (bits as i16).into(),
        Elem::I32 => (bits as i32).into(),
        Elem::I64 => (bits as i64).into(),
        _ => bits.into(),
    }
}

/// Integers at random, and one beside every middle that a 7- or 10-bit mantissa has at 2^62.
#[test]
fn integers_to_floats_round_once() {
    let mut random = Random(4);
    for from in INTS {
        let mut x = random.patterns(from, 5_000);
        if from.bits() == 64 {
            for e in 50..=62 {
                for step in [e - 8, e - 11, e - 24, e - 53].into_iter().filter(|&s| s > 0) {
                    for i in 0..4u64 {
                        let middle = (1u64 << e) + i * (1 << step);
                        x.extend([middle - 1, middle, middle + 1]);
                    }
                }
            }
        }
        for to in SMALL {
            let t = table(to);
            let found = elementwise(OpKind::Cast, &[(from, &x)], to);
            for (&b, &f) in x.iter().zip(&found) {
                let v = signed_value(from, b);
                // Table entries and middles beyond 2^7 are integers; below, all integers of 8-bit mantissas are exact.
                let order = |c: f64| {
                    if c > 1e30 { Ordering::Less } else { v.abs().cmp(&(c as i128)).then(0f64.total_cmp(&c.fract())) }
                };
                let sign = if v < 0 { 1 << (to.bits() - 1) } else { 0 };
                assert_eq!(f, sign | nearest(to, &t, order), "{from} {v} to {to}");
                if let Ok(v) = i64::try_from(v) {
                    assert_eq!(Scalar::from_i64(to, v).bits, f, "a constant {v} of {to}");
                }
            }
        }
        let want: Vec<u64> = x.iter().map(|&b| (signed_value(from, b) as f32).to_bits().into()).collect();
        assert_eq!(elementwise(OpKind::Cast, &[(from, &x)], Elem::F32), want);
        let want: Vec<u64> = x.iter().map(|&b| (signed_value(from, b) as f64).to_bits()).collect();
        assert_eq!(elementwise(OpKind::Cast, &[(from, &x)], Elem::F64), want);
        for to in INTS {
            let mask = if to.bits() == 64 { u64::MAX } else { (1 << to.bits()) - 1 };
            let want: Vec<u64> = x.iter().map(|&b| signed_value(from, b) as u64 & mask).collect();
            assert_eq!(elementwise(OpKind::Cast, &[(from, &x)], to), want, "{from} to {to}");
        }
    }
}

/// + and − and × of small floats are exact in f64 (for bf16: where exponents are near), so the table rounds them.
#[test]
fn small_sums_and_products_round_once() {
    let mut random = Random(5);
    for elem in SMALL {
        let t = table(elem);
        let (x, y) = (random.patterns(elem, 40_000), random.patterns(elem, 40_000));
        // Half of the pairs have equal exponents.
        let exponent = ((1u64 << (elem.bits() - 1)) - 1)
            & !match elem {
                Elem::F16 => 0x3ff,
                Elem::BF16 => 0x7f,
                Elem::F8E4M3 => 7,
                _ => 3,
            };
        let y: Vec<u64> = x
            .iter()
            .zip(y)
            .enumerate()
            .map(|(i, (a, b))| if i % 2 == 0 { b } else { (b & !exponent) | (a & exponent) })
            .collect();
        for (kind, f) in [
            (OpKind::Add, (|a, b| a + b) as fn(f64, f64) -> f64),
            (OpKind::Sub, |a, b| a - b),
            (OpKind::Mul, |a, b| a * b),
        ] {
            let found = elementwise(kind, &[(elem, &x), (elem, &y)], elem);
            let want: Vec<u64> = x
                .iter()
                .zip(&y)
                .zip(&found)
                .map(|((&a, &b), &found)| {
                    let (a, b) = (value(elem, a), value(elem, b));
                    let v = f(a, b);
                    // Two-sum: an inexact sum in f64 is left out.
                    let inexact = kind != OpKind::Mul
                        && v.is_finite()
                        && (v - a != [b, -b][(kind == OpKind::Sub) as usize]
                            || (v - [b, -b][(kind == OpKind::Sub) as usize]) != a);
                    if inexact {
                        return found;
                    }
                    let sign = if v.is_sign_negative() { 1 << (elem.bits() - 1) } else { 0 };
                    if v.is_nan() { nan(elem) } else { sign | nearest(elem, &t, |c| v.abs().total_cmp(&c)) }
                })
                .collect();
            assert_same(elem, &found, &want, |i| {
                format!("{} {} {}", value(elem, x[i]), kind.name(), value(elem, y[i]))
            });
        }
    }
}

fn nan(elem: Elem) -> u64 {
    match elem {
        Elem::F16 => 0x7e00,
        Elem::BF16 => 0x7fc0,
        _ => 0x7f,
    }
}

/// Quotients and roots, by comparing a with m·b and m² for the middles m: exact in f64.
#[test]
fn small_quotients_and_roots_round_once() {
    let mut random = Random(6);
    for elem in SMALL {
        let t = table(elem);
        let finite = |r: &mut Random| 1 + r.below(t.len() as u64 - 1);
        let (x, y): (Vec<u64>, Vec<u64>) = (0..40_000).map(|_| (finite(&mut random), finite(&mut random))).unzip();
        let found = elementwise(OpKind::Div, &[(elem, &x), (elem, &y)], elem);
        for i in 0..x.len() {
            let (a, b) = (value(elem, x[i]), value(elem, y[i]));
            let want = nearest(elem, &t, |c| a.total_cmp(&(c * b)));
            assert_eq!(found[i], want, "{a} / {b} in {elem}");
        }
        let all: Vec<u64> = (0..t.len() as u64).collect();
        let found = elementwise(OpKind::Sqrt, &[(elem, &all)], elem);
        for (i, &a) in t.iter().enumerate() {
            assert_eq!(found[i], nearest(elem, &t, |c| a.total_cmp(&(c * c))), "sqrt {a} in {elem}");
        }
    }
}

/// x·y + z as an exact integer number of units of 2^−60 (exponents kept near 0).
#[test]
fn small_fma_rounds_once() {
    let mut random = Random(7);
    for elem in SMALL {
        let t = table(elem);
        let near_one = |r: &mut Random| loop {
            let b = r.below(t.len() as u64);
            if t[b as usize] == 0.0 || (1e-3..1e3).contains(&t[b as usize]) {
                return b | (r.below(2) << (elem.bits() - 1));
            }
        };
        let n = 60_000;
        let x: Vec<u64> = (0..n).map(|_| near_one(&mut random)).collect();
        let y: Vec<u64> = (0..n).map(|_| near_one(&mut random)).collect();
        // Mostly far smaller than the product, so that it only breaks ties.
        let z: Vec<u64> = (0..n).map(|_| near_one(&mut random)).collect();
        let found = elementwise(OpKind::Fma, &[(elem, &x), (elem, &y), (elem, &z)], elem);
        let unit = 2f64.powi(60);
        let exact = |v: f64| {
            assert_eq!((v * unit).fract(), 0.0);
            (v * unit) as i128
        };
        for i in 0..n {
            // Factors in units of 2^−30 each.
            let factor = |b| (value(elem, b) * 2f64.powi(30)) as i128;
            let v = factor(x[i]) * factor(y[i]) + exact(value(elem, z[i]));
            let want = nearest(elem, &t, |c| {
                if c * unit >= 1e38 {
                    Ordering::Less
                } else {
                    v.abs().cmp(&((c * unit) as i128)).then(0f64.total_cmp(&(c * unit).fract()))
                }
            });
            let sign = if v < 0 { 1 << (elem.bits() - 1) } else { 0 };
            assert!(
                same_value(elem, found[i], sign | want),
                "{} · {} + {} in {elem}: {:#x} expected, found {:#x}",
                value(elem, x[i]),
                value(elem, y[i]),
                value(elem, z[i]),
                sign | want,
                found[i]
            );
        }
    }
}

/// The case that double rounding gets wrong: a product in the middle between two f16, and a tiny addend.
#[test]
fn fma_breaks_ties_by_the_smallest_addend() {
    let f16 = |v: f64| half::f16::from_f64(v).to_bits() as u64;
    let (x, y) = (f16(683.0 / 1024.0), f16(3.0)); // 2049/1024: the middle of 2 and 2 + 2^−9
    let tiny = 1; // 2^−24
    let z = [0, tiny, tiny | 0x8000];
    let found = elementwise(OpKind::Fma, &[(Elem::F16, &[x; 3]), (Elem::F16, &[y; 3]), (Elem::F16, &z)], Elem::F16);
    assert_eq!(found, [f16(2.0), f16(2.0 + 1.0 / 512.0), f16(2.0)]);
    let bf16 = |v: f64| half::bf16::from_f64(v).to_bits() as u64;
    let (x, y) = (bf16(9.0), bf16(29.0 / 256.0)); // 261/256: the middle of 130/128 and 131/128
    let z = [0, tiny, tiny | 0x8000]; // 2^−133, which no f64 holds beside 1
    let found = elementwise(OpKind::Fma, &[(Elem::BF16, &[x; 3]), (Elem::BF16, &[y; 3]), (Elem::BF16, &z)], Elem::BF16);
    assert_eq!(found, [bf16(130.0 / 128.0), bf16(131.0 / 128.0), bf16(130.0 / 128.0)]);
}

/// f32 and f64 go by Rust's IEEE operations; here against exact integers for products and sums of f32.
#[test]
fn f32_arithmetic_is_ieee() {
    let mut random = Random(8);
    let (x, y, z) =
        (random.patterns(Elem::F32, 20_000), random.patterns(Elem::F32, 20_000), random.patterns(Elem::F32, 20_000));
    let f = |b: u64| f32::from_bits(b as u32);
    // Products of f32 are exact in f64 unless they are subnormal there.
    let found = elementwise(OpKind::Mul, &[(Elem::F32, &x), (Elem::F32, &y)], Elem::F32);
    let want: Vec<u64> =
        x.iter().zip(&y).map(|(&a, &b)| ((f64::from(f(a)) * f64::from(f(b))) as f32).to_bits().into()).collect();
    assert_same(Elem::F32, &found, &want, |i| format!("{} · {}", f(x[i]), f(y[i])));
    let found = elementwise(OpKind::Fma, &[(Elem::F32, &x), (Elem::F32, &y), (Elem::F32, &z)], Elem::F32);
    let want: Vec<u64> = (0..x.len()).map(|i| f(x[i]).mul_add(f(y[i]), f(z[i])).to_bits().into()).collect();
    assert_same(Elem::F32, &found, &want, |i| format!("{} · {} + {}", f(x[i]), f(y[i]), f(z[i])));
    // Quotients: q is nearest if the remainder is at most half a unit.
    let found = elementwise(OpKind::Div, &[(Elem::F32, &x), (Elem::F32, &y)], Elem::F32);
    for i in 0..x.len() {
        let (a, b, q) = (f64::from(f(x[i])), f64::from(f(y[i])), f(found[i]));
        if !q.is_normal() {
            continue;
        }
        let (lower, upper) =
            (f64::from(f32::from_bits(q.abs().to_bits() - 1)), f64::from(f32::from_bits(q.abs().to_bits() + 1)));
        let q = f64::from(q.abs());
        // a against the middles times b: 25 + 24 bits, exact.
        assert!(
            a.abs() >= (lower + q) / 2.0 * b.abs() && (a.abs() <= (upper + q) / 2.0 * b.abs() || upper.is_infinite()),
            "{a} / {b}"
        );
    }
}
