//! Largest errors of the f32 functions, in units of the last place, against f64: over a dense sample of all f32 numbers
//! of the stated range and every bf16 number in it, and at special values. The docs of `Tile::exp` and others state these
//! bounds.

use crate::harness::*;
use tegula_ir::{Elem, protocol::Emit};

const N: usize = 1 << 16;

fn run(op: &str, x: &[f32]) -> Vec<f32> {
    let text = format!(
        "kernel @k(%0 \"x\": view<f32, 1, unit>, %1 \"y\": view_mut<f32, 1, unit>) {{
          %2 = program_id {{axis = 0}} : i32
          %3 = cast %2 : i64
          %4 = const {{value = 64: i64}} : i64
          %5 = mul %3, %4 : i64
          %6 = load %0, %5 : tile<f32, 64>
          %7 = {op} %6 : tile<f32, 64>
          store %1, %5, %7
        }}"
    );
    let bits = |v: &[f32]| v.iter().map(|v| u64::from(v.to_bits())).collect::<Vec<_>>();
    let mut first: Option<Vec<f32>> = None;
    for target in targets() {
        let mut args = [
            Arg::view(Elem::F32, &[x.len() as i64], bits(x)),
            Arg::view(Elem::F32, &[x.len() as i64], vec![0; x.len()]),
        ];
        native(&text, &mut args, [x.len().div_ceil(64) as i32, 1, 1], target, false);
        let y: Vec<f32> = args[1].bits().into_iter().map(|b| f32::from_bits(b as u32)).collect();
        if let Some(first) = &first {
            for ((x, a), b) in x.iter().zip(first).zip(&y) {
                assert!(
                    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
                    "{op}({x}): {a} and {b} on two targets"
                );
            }
        }
        first.get_or_insert(y);
    }
    first.unwrap_or_default()
}

/// Error in units of the last place of the exact value (of the smallest normal number below it).
fn ulps(got: f32, exact: f64) -> f64 {
    if got.is_nan() && exact.is_nan() || f64::from(got) == exact || got == exact as f32 {
        return 0.0;
    }
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(got) - exact).abs() / 2f64.powf(exponent - 23.0)
}

fn measure(op: &str, range: (f32, f32), bound: f64, exact: fn(f64) -> f64) {
    let mut rng = Rng(op.len() as u64 + 3);
    // Half of the sample is even in value, half in exponent.
    let mut x: Vec<f32> = (0..N / 2).map(|_| range.0 + (range.1 - range.0) * rng.unit() as f32).collect();
    x.extend((0..=u16::MAX).map(|b| f32::from_bits(u32::from(b) << 16)).filter(|v| (range.0..=range.1).contains(v)));
    let all = x.len() + N / 2;
    while x.len() < all {
        let v = f32::from_bits(rng.next() as u32);
        if v >= range.0 && v <= range.1 {
            x.push(v);
        }
    }
    let y = run(op, &x);
    if y.is_empty() {
        return; // no target runs here
    }
    let (worst, at) = x
        .iter()
        .zip(&y)
        .map(|(x, y)| (ulps(*y, exact(f64::from(*x))), *x))
        .fold((0.0, 0.0), |m, v| if v.0 > m.0 { v } else { m });
    println!("{op}: at most {worst:.2} ulp, at {at:e}");
    assert!(worst <= bound, "{op}: {worst} ulp at {at:e}, more than {bound}");
}

unsafe extern "C" {
    /// libm's: Rust's library has no erf of f64.
    safe fn erf(x: f64) -> f64;
}

#[test]
fn largest_errors() {
    measure("exp", (-103.0, 88.7), 1.5, f64::exp);
    measure("exp2", (-149.0, 127.9), 1.5, f64::exp2);
    measure("log", (1e-45, 3e38), 1.5, f64::ln);
    measure("log2", (1e-45, 3e38), 2.0, f64::log2);
    measure("sin", (-1e8, 1e8), 1.5, f64::sin);
    measure("cos", (-1e8, 1e8), 1.5, f64::cos);
    measure("tanh", (-12.0, 12.0), 2.0, f64::tanh);
    measure("sigmoid", (-103.0, 87.0), 3.0, |x| 1.0 / (1.0 + (-x).exp()));
    measure("rsqrt", (1e-38, 3e38), 1.5, |x| 1.0 / x.sqrt());
    measure("erf", (-6.0, 6.0), 2.5, |x| erf(x));
    // x to the x: `measure` knows functions of one argument.
    measure("pow %6,", (1e-3, 30.0), 1.0, |x| x.powf(x));
}

#[test]
fn special_values() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let expect = |op: &str, pairs: &[(f32, f32)]| {
        let x: Vec<f32> = pairs.iter().map(|p| p.0).collect();
        for ((x, want), got) in pairs.iter().zip(run(op, &x)) {
            let same = got == *want || (got.is_nan() && want.is_nan());
            assert!(same, "{op}({x}) is {got}, not {want}");
        }
    };
    expect(
        "exp",
        &[(-inf, 0.0), (inf, inf), (nan, nan), (0.0, 1.0), (-200.0, 0.0), (100.0, inf), (88.8, inf), (-104.5, 0.0)],
    );
    expect(
        "exp2",
        &[
            (-inf, 0.0),
            (inf, inf),
            (nan, nan),
            (0.0, 1.0),
            (10.0, 1024.0),
            (-149.0, 1e-45),
            (-151.0, 0.0),
            (128.0, inf),
        ],
    );
    expect("log", &[(0.0, -inf), (-0.0, -inf), (-1.0, nan), (inf, inf), (nan, nan), (1.0, 0.0), (-inf, nan)]);
    expect("log2", &[(0.0, -inf), (-1.0, nan), (inf, inf), (nan, nan), (1.0, 0.0), (8.0, 3.0), (1e-45, -149.0)]);
    expect("sin", &[(inf, nan), (-inf, nan), (nan, nan), (0.0, 0.0), (1e30, 1e30f32.sin())]);
    expect("cos", &[(inf, nan), (nan, nan), (0.0, 1.0), (1e30, 1e30f32.cos())]);
    expect("tanh", &[(inf, 1.0), (-inf, -1.0), (nan, nan), (0.0, 0.0), (50.0, 1.0)]);
    expect("erf", &[(inf, 1.0), (-inf, -1.0), (nan, nan), (0.0, 0.0), (20.0, 1.0)]);
    // Subnormal results too; the double is rounded once.
    let tiny = |x: f32| (x, (1.0 / (1.0 + (-f64::from(x)).exp())) as f32);
    expect("sigmoid", &[(inf, 1.0), (-inf, 0.0), (nan, nan), (0.0, 0.5), tiny(-91.5), tiny(-100.0), (-105.0, 0.0)]);
    expect("rsqrt", &[(0.0, inf), (inf, 0.0), (nan, nan), (4.0, 0.5), (-1.0, nan)]);
}

/// erf has no f64 form in Rust's library: values from tables of the function.
#[test]
fn erf_at_known_points() {
    let table: [(f32, f64); 8] = [
        (0.1, 0.1124629160182849),
        (0.5, 0.5204998778130465),
        (0.9375, 0.8151024010343998),
        (1.0, 0.8427007929497149),
        (1.5, 0.9661051464753108),
        (2.0, 0.9953222650189527),
        (2.5, 0.999593047982555),
        (3.5, 0.9999992569016276),
    ];
    let x: Vec<f32> = table.iter().flat_map(|t| [t.0, -t.0]).collect();
    for (x, y) in x.iter().zip(run("erf", &x)) {
        let exact = table.iter().find(|t| t.0 == x.abs()).unwrap().1.copysign(f64::from(*x));
        // 0.1 is no f32: the slope there is 1.117.
        let exact = exact + if x.abs() == 0.1 { 1.117 * (f64::from(*x) - 0.1f64.copysign(f64::from(*x))) } else { 0.0 };
        assert!(ulps(y, exact) <= 2.0, "erf({x}) is {y}, not {exact}");
    }
}

#[test]
fn functions_are_vector_code() {
    for op in ["exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid", "rsqrt"] {
        let text = format!(
            "kernel @k(%0 \"x\": view_mut<f32, 1, unit>) {{\n%1 = const {{value = 0: i64}} : i64\n%2 = load %0, %1 : tile<f32, 64>\n%3 = {op} %2 : tile<f32, 64>\nstore %0, %1, %3\n}}"
        );
        let asm = String::from_utf8(request(&text, "cpu:x86-64-v3", Emit::Asm, false).0).unwrap();
        assert!(!asm.contains("call"), "{op} calls a function");
    }
}
