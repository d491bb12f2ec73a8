//! Conversions (exhaustive) and arithmetic in every rounding mode, against tables that `tables/make.py` computes with
//! exact rationals; approximations against f64.

mod common;
use common::*;
use std::collections::BTreeMap;
use tegula_ptx::cases;

/// CRC-32 (IEEE), as zlib's.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for b in bytes {
        crc ^= *b as u32;
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}

#[test]
fn conversions_agree_with_exact_tables() {
    let table: BTreeMap<&str, (usize, u32)> = include_str!("tables/conversions.tsv")
        .lines()
        .map(|l| {
            let f: Vec<&str> = l.split('\t').collect();
            (f[0], (f[1].parse().unwrap(), u32::from_str_radix(f[2], 16).unwrap()))
        })
        .collect();
    let cases = cases::conversions();
    assert_eq!(cases.len(), table.len(), "every table is tested");
    for options in tiers() {
        for case in &cases {
            let (n, crc) = table[case.name.as_str()];
            assert_eq!(case.threads(), n, "{}", case.name);
            let got = case.run(options.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert_eq!(crc32(&got[0].bytes()), crc, "{} ({})", case.name, case.body);
        }
    }
}

/// The packed conversions give what two single ones give, in the right halves.
#[test]
fn packed_conversions_put_the_first_source_high() {
    let mut random = Random(7);
    let a: Vec<u64> = (0..4000).map(|_| random.next() & 0xffff_ffff).collect();
    let b: Vec<u64> = (0..4000).map(|_| random.next() & 0xffff_ffff).collect();
    for options in tiers() {
        for ty in ["f16", "bf16"] {
            for mode in ["rn", "rz"] {
                let both = map(
                    &format!("cvt.{mode}.{ty}x2.f32 %d, %a, %b;"),
                    &[("b32", &a), ("b32", &b)],
                    "b32",
                    options.clone(),
                );
                let high = map(&format!("cvt.{mode}.{ty}.f32 %d, %a;"), &[("b32", &a)], "b16", options.clone());
                let low = map(&format!("cvt.{mode}.{ty}.f32 %d, %a;"), &[("b32", &b)], "b16", options.clone());
                for i in 0..a.len() {
                    assert_eq!(both[i], high[i] << 16 | low[i], "{mode} {ty} {:x} {:x}", a[i], b[i]);
                }
            }
        }
    }
}

#[test]
fn arithmetic_agrees_with_exact_tables() {
    let cases = cases::arithmetic();
    assert_eq!(cases.len(), 2 * 4 * 5 + 2 * 3);
    for options in tiers() {
        for case in &cases {
            let got = case.run(options.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let truth = case.truth.as_ref().expect("the table has the result");
            for (i, (got, want)) in got[0].values.iter().zip(truth).enumerate() {
                let operands: Vec<u64> = case.inputs.iter().map(|c| c.values[i]).collect();
                assert_eq!(got, want, "{} {operands:x?}: {got:x}, not {want:x}", case.name);
            }
        }
    }
}

/// Two values in a register behave as one each.
#[test]
fn packed_halves_agree_with_single_ones() {
    let mut random = Random(11);
    let column = |random: &mut Random| -> Vec<u64> { (0..3000).map(|_| random.next() & 0xffff_ffff).collect() };
    let (a, b, c) = (column(&mut random), column(&mut random), column(&mut random));
    let half = |v: &[u64], shift: u32| -> Vec<u64> { v.iter().map(|x| x >> shift & 0xffff).collect() };
    for op in ["add.rn", "sub.rn", "mul.rn", "fma.rn", "fma.rn.relu", "min", "max.NaN", "min.xorsign.abs", "neg", "abs"]
    {
        for ty in ["f16", "bf16"] {
            let arity = if op.starts_with("fma") {
                3
            } else if op == "neg" || op == "abs" {
                1
            } else {
                2
            };
            let names = ["%a", "%b", "%c"][..arity].join(", ");
            let columns = [&a, &b, &c];
            let wide: Vec<(&str, &[u64])> = columns[..arity].iter().map(|c| ("b32", c.as_slice())).collect();
            let both = map(&format!("{op}.{ty}x2 %d, {names};"), &wide, "b32", tiers()[0].clone());
            let one = |shift| {
                let halves: Vec<Vec<u64>> = columns[..arity].iter().map(|c| half(c, shift)).collect();
                let inputs: Vec<(&str, &[u64])> = halves.iter().map(|c| ("b16", c.as_slice())).collect();
                map(&format!("{op}.{ty} %d, {names};"), &inputs, "b16", tiers()[1].clone())
            };
            let (low, high) = (one(0), one(16));
            for i in 0..a.len() {
                assert_eq!(both[i], high[i] << 16 | low[i], "{op}.{ty} {:x} {:x} {:x}", a[i], b[i], c[i]);
            }
        }
    }
}

/// The documented model: within one unit in the last place of the true value; equal bits in all tiers.
#[test]
fn approximations_are_close_to_the_true_value() {
    let mut random = Random(3);
    let mut x: Vec<f32> = (0..20000).map(|_| (random.next() as f64 / u64::MAX as f64 * 260.0 - 130.0) as f32).collect();
    x.extend((0..20000).map(|_| f32::from_bits(random.next() as u32)));
    x.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 0.5, 2.0, 3.0]);
    let bits: Vec<u64> = x.iter().map(|v| v.to_bits() as u64).collect();
    type True = fn(f64) -> f64;
    let cases: [(&str, True, f64); 6] = [
        ("ex2.approx.f32", f64::exp2, 130.0),
        ("lg2.approx.f32", f64::log2, f64::INFINITY),
        ("sin.approx.f32", f64::sin, 1e4),
        ("cos.approx.f32", f64::cos, 1e4),
        ("tanh.approx.f32", f64::tanh, f64::INFINITY),
        ("rsqrt.approx.f32", |x| 1.0 / x.sqrt(), f64::INFINITY),
    ];
    for (op, f, range) in cases {
        let got = map(&format!("{op} %d, %a;"), &[("b32", &bits)], "b32", tiers()[0].clone());
        assert_eq!(got, map(&format!("{op} %d, %a;"), &[("b32", &bits)], "b32", tiers()[1].clone()), "{op} portable");
        let mut checked = 0;
        for (x, got) in x.iter().zip(got) {
            let (want, got) = (f(*x as f64), f32::from_bits(got as u32));
            if x.abs() as f64 > range && x.is_finite() {
                continue;
            }
            checked += 1;
            if want.is_nan() {
                assert_eq!(got.to_bits(), 0x7fff_ffff, "{op} {x}");
            } else if (want as f32).is_infinite() || want == 0.0 {
                assert_eq!(got.to_bits(), (want as f32).to_bits(), "{op} {x}");
            } else {
                let near = want as f32;
                // One ulp; near zeros of sine and cosine the absolute bound of PTX.
                let ulp = (f32::from_bits(near.to_bits() + 1) - near).abs() as f64;
                let bound = if op.starts_with("sin") || op.starts_with("cos") { ulp.max(1e-9) } else { ulp };
                assert!((got as f64 - want).abs() <= bound, "{op} {x:e}: {got:e}, not {want:e}");
            }
        }
        assert!(checked > 10000, "{op}");
    }
}

#[test]
fn floats_to_integers_saturate_and_round_as_asked() {
    let x: Vec<f32> =
        vec![0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, 3e9, -3e9, f32::NAN, f32::INFINITY, 1e20, -1e-40, 255.5, -0.0];
    let bits: Vec<u64> = x.iter().map(|v| v.to_bits() as u64).collect();
    let round: [(&str, fn(f32) -> f32); 4] =
        [("rni", f32::round_ties_even), ("rzi", f32::trunc), ("rmi", f32::floor), ("rpi", f32::ceil)];
    for options in tiers() {
        for (mode, f) in round {
            let go = |ty: &str, out: &'static str| {
                map(&format!("cvt.{mode}.{ty}.f32 %d, %a;"), &[("b32", &bits)], out, options.clone())
            };
            // Rust's `as` saturates and takes NaN to 0.
            for (x, got) in x.iter().zip(go("s32", "b32")) {
                assert_eq!(got as u32 as i32, f(*x) as i32, "{mode} s32 {x}");
            }
            for (x, got) in x.iter().zip(go("u32", "b32")) {
                assert_eq!(got as u32, f(*x) as u32, "{mode} u32 {x}");
            }
            for (x, got) in x.iter().zip(go("u8", "b16")) {
                assert_eq!(got, (f(*x) as u8) as u64, "{mode} u8 {x}");
            }
            for (x, got) in x.iter().zip(go("s64", "b64")) {
                let want = if x.is_nan() { i64::MIN } else { f(*x) as i64 };
                assert_eq!(got as i64, want, "{mode} s64 {x}");
            }
            for (x, got) in x.iter().zip(go("f32", "b32")) {
                let want = if x.is_nan() { 0x7fff_ffff } else { f(*x).to_bits() };
                assert_eq!(got as u32, want, "{mode} f32 {x}");
            }
        }
    }
}

#[test]
fn integers_to_floats_and_to_each_other() {
    let mut random = Random(5);
    let mut v: Vec<u64> = (0..2000).map(|i| random.next() >> (i % 60)).collect();
    v.extend([
        0,
        1,
        u64::MAX,
        i64::MAX as u64,
        i64::MIN as u64,
        0xffff_ffff,
        0x8000_0000,
        0x7fff_ffff,
        0x80,
        0x7f,
        0xff,
    ]);
    let low: Vec<u64> = v.iter().map(|x| x & 0xffff_ffff).collect();
    for options in tiers() {
        let go64 = |op: &str, out: &'static str| map(&format!("{op} %d, %a;"), &[("b64", &v)], out, options.clone());
        let go32 = |op: &str, out: &'static str| map(&format!("{op} %d, %a;"), &[("b32", &low)], out, options.clone());
        let check = |got: Vec<u64>, want: &dyn Fn(u64) -> u64, from: &[u64], what: &str| {
            for (x, got) in from.iter().zip(got) {
                assert_eq!(got, want(*x), "{what} {x:x}");
            }
        };
        check(go64("cvt.rn.f32.s64", "b32"), &|x| (x as i64 as f32).to_bits() as u64, &v, "f32.s64");
        check(go64("cvt.rn.f32.u64", "b32"), &|x| (x as f32).to_bits() as u64, &v, "f32.u64");
        check(go64("cvt.rn.f64.u64", "b64"), &|x| (x as f64).to_bits(), &v, "f64.u64");
        check(go32("cvt.rn.f32.s32", "b32"), &|x| (x as i32 as f32).to_bits() as u64, &low, "f32.s32");
        check(go32("cvt.rn.f32.u32", "b32"), &|x| (x as u32 as f32).to_bits() as u64, &low, "f32.u32");
        check(go32("cvt.s64.s32", "b64"), &|x| x as i32 as i64 as u64, &low, "s64.s32");
        check(go32("cvt.s64.s8", "b64"), &|x| x as i8 as i64 as u64, &low, "s64.s8");
        check(go32("cvt.u64.u16", "b64"), &|x| x & 0xffff, &low, "u64.u16");
        check(go32("cvt.s32.s16", "b32"), &|x| x as i16 as i32 as u32 as u64, &low, "s32.s16");
        check(go64("cvt.u32.u64", "b32"), &|x| x & 0xffff_ffff, &v, "u32.u64");
        check(
            go64("cvt.sat.s32.s64", "b32"),
            &|x| (x as i64).clamp(i32::MIN as i64, i32::MAX as i64) as u32 as u64,
            &v,
            "sat",
        );
        check(go64("cvt.sat.u8.s64", "b16"), &|x| (x as i64).clamp(0, 255) as u64, &v, "sat u8");
        check(go32("cvt.sat.s8.s32", "b32"), &|x| (x as i32).clamp(-128, 127) as u32 as u64, &low, "sat s8, extended");
    }
}
