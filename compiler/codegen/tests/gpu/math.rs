//! Largest errors of the functions, in units of the last place, against the oracle's f64 (for f32 results) or against it
//! directly (f64), over samples even in value and in exponent.

use crate::harness::{Rng, bits, kernel, run};
use tegula_ir::{
    Elem, Scalar,
    testing::{Arg, Buffer, on_oracle},
};

const N: usize = 1 << 13;

fn text(op: &str, elem: Elem, operands: usize) -> String {
    let second = if operands == 2 { ", %9" } else { "" };
    format!(
        r#"kernel @k(%0 "x": view<{elem}, 1, unit>, %1 "z": view<{elem}, 1, unit>, %2 "y": view_mut<{elem}, 1, unit>) {{
  %3 = program_id {{axis = 0}} : i32
  %4 = cast %3 : i64
  %5 = const {{value = 256: i64}} : i64
  %6 = mul %4, %5 : i64
  %7 = load %0, %6 : tile<{elem}, 256>
  %9 = load %1, %6 : tile<{elem}, 256>
  %8 = {op} %7{second} : tile<{elem}, 256>
  store %2, %6, %8
}}
"#
    )
}

/// The results on the GPU and on the oracle, which computes in `exact`.
fn both(op: &str, elem: Elem, operands: usize, x: &[f64], z: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = [x.len() as i64];
    let args = |e: Elem| {
        let v = |v: &[f64]| {
            Arg::View(Buffer::new(e, &n, &v.iter().map(|v| Scalar::from_f64(e, *v).bits).collect::<Vec<_>>()))
        };
        [v(x), v(z), Arg::View(Buffer::poisoned(e, &n))]
    };
    let grid = [x.len().div_ceil(256) as u32, 1, 1];
    let (mut got, mut want) = (args(elem), args(Elem::F64));
    run("sm_80", &kernel(&text(op, elem, operands), 4), &mut got, grid, false).unwrap_or_else(|e| panic!("{op}: {e}"));
    on_oracle(&kernel(&text(op, Elem::F64, operands), 4), &mut want, grid, false)
        .unwrap_or_else(|e| panic!("{op}: {e}"));
    let values = |a: &Arg, e: Elem| bits(a).into_iter().map(|bits| Scalar { elem: e, bits }.to_f64()).collect();
    (values(&got[2], elem), values(&want[2], Elem::F64))
}

/// Error in units of the last place of the exact value, or of the smallest normal number.
fn ulps(got: f64, exact: f64, elem: Elem) -> f64 {
    let rounded = Scalar::from_f64(elem, exact).to_f64();
    if got == rounded || (got.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    let (digits, least) = if elem == Elem::F64 { (52, -1022) } else { (23, -126) };
    let exponent = (exact.abs().log2().floor() as i32).max(least);
    (got - exact).abs() / 2f64.powf(f64::from(exponent - digits))
}

/// A sample of `elem` numbers in a range.
fn sample(rng: &mut Rng, (lo, hi): (f64, f64), elem: Elem, n: usize) -> Vec<f64> {
    let mut x: Vec<f64> = (0..n / 2).map(|_| lo + (hi - lo) * rng.unit()).collect();
    while x.len() < n {
        let v = Scalar::from_bits(elem, rng.next()).to_f64();
        if v >= lo && v <= hi {
            x.push(v);
        }
    }
    x.iter().map(|v| Scalar::from_f64(elem, *v).to_f64()).collect()
}

fn measure(op: &str, elem: Elem, range: (f64, f64), second: Option<(f64, f64)>, bound: f64) {
    let mut rng = Rng(op.len() as u64 * 31 + u64::from(elem.bits()));
    let x = sample(&mut rng, range, elem, N);
    let z = second.map_or(vec![1.0; N], |r| sample(&mut rng, r, elem, N));
    let (got, want) = both(op, elem, 1 + usize::from(second.is_some()), &x, &z);
    let (worst, at) =
        (0..N).map(|i| (ulps(got[i], want[i], elem), i)).fold((0.0, 0), |m, v| if v.0 > m.0 { v } else { m });
    println!("{op} {elem}: at most {worst:.2} ulp, at {:e}, {:e}", x[at], z[at]);
    assert!(worst <= bound, "{op} {elem}: {worst} ulp at {:e}, {:e}: {:e}, not {:e}", x[at], z[at], got[at], want[at]);
}

#[test]
fn errors_of_f32() {
    measure("exp", Elem::F32, (-103.0, 88.7), None, 1.5);
    measure("exp2", Elem::F32, (-149.0, 127.9), None, 1.5);
    measure("log", Elem::F32, (1e-45, 3e38), None, 1.5);
    measure("log2", Elem::F32, (1e-45, 3e38), None, 2.0);
    measure("sin", Elem::F32, (-1e8, 1e8), None, 1.5);
    measure("cos", Elem::F32, (-1e8, 1e8), None, 1.5);
    // Beyond 2^28: by the bits of 2/π.
    measure("sin", Elem::F32, (2.7e8, 3e38), None, 1.5);
    measure("cos", Elem::F32, (-3e38, -2.7e8), None, 1.5);
    measure("tanh", Elem::F32, (-12.0, 12.0), None, 2.0);
    measure("erf", Elem::F32, (-4.0, 4.0), None, 2.5);
    measure("sigmoid", Elem::F32, (-87.0, 87.0), None, 3.0);
    measure("rsqrt", Elem::F32, (1e-38, 3e38), None, 1.5);
    measure("pow", Elem::F32, (1e-3, 1e3), Some((-8.0, 8.0)), 1.0);
}

#[test]
fn errors_of_f64() {
    measure("exp", Elem::F64, (-700.0, 709.0), None, 2.0);
    measure("exp2", Elem::F64, (-1020.0, 1023.0), None, 2.0);
    measure("log", Elem::F64, (1e-300, 1e300), None, 2.0);
    measure("log2", Elem::F64, (1e-300, 1e300), None, 2.0);
    measure("sin", Elem::F64, (-1e3, 1e3), None, 4.0);
    measure("cos", Elem::F64, (-1e3, 1e3), None, 4.0);
    measure("tanh", Elem::F64, (-20.0, 20.0), None, 4.0);
    measure("erf", Elem::F64, (-6.0, 6.0), None, 8.0);
    measure("sigmoid", Elem::F64, (-700.0, 700.0), None, 4.0);
    measure("rsqrt", Elem::F64, (1e-300, 1e300), None, 1.5);
    measure("pow", Elem::F64, (1e-3, 1e3), Some((-20.0, 20.0)), 4.0);
}

/// The special cases of C's `pow`, and remainders of all sizes exactly.
#[test]
fn special_cases() {
    let inf = f64::INFINITY;
    let x = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, inf, -inf, f64::NAN, -3.0];
    let pairs: Vec<(f64, f64)> = x.iter().flat_map(|a| x.iter().map(|b| (*a, *b))).collect();
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    for elem in [Elem::F32, Elem::F64] {
        let (got, want) = both("pow", elem, 2, &a, &b);
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let near = ulps(*g, *w, elem) <= 1.0 || g == w || (g.is_nan() && w.is_nan());
            assert!(near, "pow({}, {}) {elem}: {g}, not {w}", a[i], b[i]);
        }
        let mut rng = Rng(5);
        let wild: Vec<f64> = (0..1024).map(|_| Scalar::from_bits(elem, rng.next()).to_f64()).collect();
        let (x, y) = (&wild[..512], &wild[512..]);
        let (got, _) = both("rem", elem, 2, x, y);
        for i in 0..512 {
            // The remainder of two numbers of a type is one of that type.
            let want = x[i] % y[i];
            assert!(
                got[i] == want || (got[i].is_nan() && want.is_nan()),
                "{:e} % {:e} {elem}: {:e}, not {want:e}",
                x[i],
                y[i],
                got[i]
            );
        }
    }
}
