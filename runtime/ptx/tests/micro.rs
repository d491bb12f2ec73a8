//! Conversions of microscaling formats against their definition: every code, and nearest values by search.

// Shifts and masks read like the formulas.
#![allow(clippy::precedence)]

mod common;
use common::Random;
use tegula_ptx::{
    Options,
    arch::Need,
    cases::{Case, Column},
};

fn run(body: &str, inputs: Vec<Column>, out: &'static str) -> Vec<u64> {
    let case = Case { need: Need::special(100, 86), ..Case::new(body, body, inputs, out) };
    let results = case.run(Options::default()).unwrap_or_else(|e| panic!("{body}: {e}"));
    let portable = case.run(Options { portable: true, ..Options::fast() }).unwrap();
    assert_eq!(results, portable);
    results[0].values.clone()
}

fn column(ty: &'static str, values: Vec<u64>) -> Column {
    Column { ty, values }
}

/// All values of a format of one sign bit, by code, as the OCP specification lists them.
fn values(exponent: u32, fraction: u32) -> Vec<f64> {
    let bias = (1i32 << (exponent - 1)) - 1;
    (0..1u32 << (1 + exponent + fraction))
        .map(|code| {
            let f = f64::from(code & ((1 << fraction) - 1)) / f64::from(1 << fraction);
            let e = (code >> fraction & ((1 << exponent) - 1)) as i32;
            let magnitude = if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) };
            if code >> (exponent + fraction) == 1 { -magnitude } else { magnitude }
        })
        .collect()
}

/// The code nearest to `x`, ties to the even one, beyond the largest the largest.
fn nearest(x: f64, values: &[f64]) -> u64 {
    let half = values.len() / 2;
    // Beyond all numbers distances differ less than f64 tells.
    let x = x.clamp(-100.0, 100.0);
    if x.is_nan() {
        return half as u64 - 1;
    }
    let code = (0..half)
        .min_by(|a, b| {
            let (da, db) = ((values[*a] - x.abs()).abs(), (values[*b] - x.abs()).abs());
            da.total_cmp(&db).then((a % 2).cmp(&(b % 2)))
        })
        .unwrap();
    code as u64 | if x.is_sign_negative() { half as u64 } else { 0 }
}

fn inputs(values: &[f64]) -> Vec<f32> {
    let mut random = Random(41);
    let mut x: Vec<f32> = values.iter().map(|v| *v as f32).collect();
    // What lies half-way, and its neighbours.
    for pair in values[..values.len() / 2].windows(2) {
        let middle = ((pair[0] + pair[1]) / 2.0) as f32;
        for m in [middle, f32::from_bits(middle.to_bits() + 1), f32::from_bits(middle.to_bits() - 1)] {
            x.extend([m, -m]);
        }
    }
    x.extend((0..600).map(|_| (random.next() as f64 / u64::MAX as f64 * 80.0 - 40.0) as f32));
    x.extend((0..600).map(|_| (random.next() as f64 / u64::MAX as f64 - 0.5) as f32));
    x.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, 1e-40, -1e-40]);
    x
}

#[test]
fn small_floats_convert_both_ways() {
    for (name, exponent, fraction, step) in [("e2m1", 2, 1, 4), ("e2m3", 2, 3, 8), ("e3m2", 3, 2, 8)] {
        let values = values(exponent, fraction);
        let count = values.len() as u64;
        // Every pair of codes widens.
        let codes: Vec<u64> = (0..count * count).map(|i| i / count << step | i % count).collect();
        let ty = if step == 4 { "b8" } else { "b16" };
        let narrow = if step == 4 { ".reg .b8 %q; cvt.u8.u16 %q, %a;" } else { ".reg .b16 %q; mov.b16 %q, %a;" };
        let wide = run(&format!("{narrow} cvt.rn.f16x2.{name}x2 %d, %q;"), vec![column(ty, codes)], "b32");
        let half = |v: f64| -> u64 {
            // Exact: all of these values are normal in f16, but zero.
            if v == 0.0 {
                return if v.is_sign_negative() { 0x8000 } else { 0 };
            }
            let e = v.abs().log2().floor() as i32;
            let f = ((v.abs() / 2f64.powi(e) - 1.0) * 1024.0) as u64;
            (v < 0.0) as u64 * 0x8000 | ((e + 15) as u64) << 10 | f
        };
        for (i, got) in wide.iter().enumerate() {
            let (high, low) = (values[i / count as usize], values[i % count as usize]);
            assert_eq!(*got, half(high) << 16 | half(low), "{name} {i:#x}");
        }
        let x = inputs(&values);
        let y: Vec<f32> = x.iter().rev().copied().collect();
        let bits = |x: &[f32]| column("b32", x.iter().map(|v| v.to_bits() as u64).collect());
        for relu in ["", ".relu"] {
            let body = if step == 4 {
                format!(".reg .b8 %q; cvt.rn.satfinite{relu}.{name}x2.f32 %q, %a, %b; cvt.u16.u8 %d, %q;")
            } else {
                format!("cvt.rn.satfinite{relu}.{name}x2.f32 %d, %a, %b;")
            };
            let got = run(&body, vec![bits(&x), bits(&y)], "b16");
            for ((x, y), got) in x.iter().zip(&y).zip(got) {
                let want = |v: f32| {
                    let v = if relu.is_empty() || v.is_nan() || v > 0.0 { v } else { v.max(0.0) };
                    nearest(v as f64, &values)
                };
                let zero = |v: u64| if relu.is_empty() { v } else { v & !(count / 2) };
                let (x_code, y_code) = (zero(want(*x)), zero(want(*y)));
                let got = if relu.is_empty() {
                    got
                } else {
                    // The sign of a zero is left open by .relu.
                    got & !((count / 2) << step | count / 2)
                };
                assert_eq!(got, x_code << step | y_code, "{name}{relu} {x:e} {y:e}");
            }
        }
    }
}

#[test]
fn scales_are_powers_of_two() {
    let codes: Vec<u64> = (0..65536).collect();
    let wide = run("cvt.rn.bf16x2.ue8m0x2 %d, %a;", vec![column("b16", codes)], "b32");
    let bf16 = |code: u64| match code {
        255 => 0x7fff,
        // 2^-127 has no normal bf16: half of the least one.
        0 => 0x0040,
        c => c << 7,
    };
    for (i, got) in wide.iter().enumerate() {
        assert_eq!(*got, bf16(i as u64 >> 8) << 16 | bf16(i as u64 & 255), "{i:#x}");
    }
    let mut random = Random(43);
    let mut x: Vec<f32> = (0..2000).map(|_| f32::from_bits(random.next() as u32)).collect();
    x.extend((0..=254u32).flat_map(|e| [e << 23, (e << 23) + 1, (e << 23 | 1 << 31) + 77].map(f32::from_bits)));
    x.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, 1e-45]);
    let bits = column("b32", x.iter().map(|v| v.to_bits() as u64).collect());
    for (mode, up) in [("rz", false), ("rp", true)] {
        for sat in ["", ".satfinite"] {
            let got = run(&format!("cvt.{mode}{sat}.ue8m0x2.f32 %d, %a, 0f40400000;"), vec![bits.clone()], "b16");
            for (x, got) in x.iter().zip(got) {
                // By search: the power of two next to |x|, below or above.
                let magnitude = f64::from(x.abs());
                let power = |code: i32| 2f64.powi(code - 127);
                let code = if x.is_nan() {
                    255
                } else if up {
                    (0..=254).find(|c| power(*c) >= magnitude).unwrap_or(if sat.is_empty() { 255 } else { 254 })
                } else if magnitude.is_infinite() {
                    if sat.is_empty() { 255 } else { 254 }
                } else {
                    (0..=254).rev().find(|c| power(*c) <= magnitude).unwrap_or(0)
                };
                // Three is between 2 and 4.
                let three = if up { 129 } else { 128 };
                assert_eq!(got, (code as u64) << 8 | three, "{mode}{sat} {x:e}");
            }
        }
    }
}
