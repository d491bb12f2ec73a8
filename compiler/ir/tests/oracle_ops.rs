//! Every op against values computed by hand or by other code. Conversions and small-float arithmetic: `oracle_numbers`.

mod oracle_common;

use oracle_common::*;
use proptest::prelude::*;
use tegula_ir::{
    Attr, Attrs, Elem, Key, OpKind, Precision, Quant, ReduceKind, Scalar, TileType,
    layout::Layout,
    testing::{Arg, Buffer, K, data, ints},
};

fn f32s(v: &[f32]) -> Vec<u64> {
    v.iter().map(|x| x.to_bits().into()).collect()
}
fn to_f32(bits: &[u64]) -> Vec<f32> {
    bits.iter().map(|&b| f32::from_bits(b as u32)).collect()
}
fn to_ints(elem: Elem, bits: &[u64]) -> Vec<i64> {
    bits.iter().map(|&b| Scalar::from_bits(elem, b).to_i64()).collect()
}

const INTS: [Elem; 8] = [Elem::I8, Elem::I16, Elem::I32, Elem::I64, Elem::U8, Elem::U16, Elem::U32, Elem::U64];

/// Integer ops against Rust's wrapping operations of the same width.
macro_rules! wrapping_test {
    ($name:ident $ty:ty, $unsigned:ty, $elem:expr) => {
        #[test]
        fn $name() {
            let mut r = Random(9);
            let edges = [0, 1, <$ty>::MAX, <$ty>::MIN, (0 as $ty).wrapping_sub(1), 2, 7];
            let mut x: Vec<$ty> = (0..3000).map(|_| r.bits() as $ty).collect();
            let mut y: Vec<$ty> =
                (0..3000).map(|i| if i % 2 == 0 { r.bits() as $ty } else { (r.bits() % 9) as $ty }).collect();
            for a in edges {
                for b in edges {
                    x.push(a);
                    y.push(b);
                }
            }
            let bits = |v: &[$ty]| v.iter().map(|&a| a as $unsigned as u64).collect::<Vec<u64>>();
            let (xb, yb) = (bits(&x), bits(&y));
            let check = |kind: OpKind, f: &dyn Fn($ty, $ty) -> $ty| {
                let want: Vec<$ty> = x.iter().zip(&y).map(|(&a, &b)| f(a, b)).collect();
                let operands = [($elem, &xb[..]), ($elem, &yb[..])];
                assert_eq!(elementwise(kind, &operands, $elem), bits(&want), "{} of {}", kind.name(), $elem);
            };
            check(OpKind::Add, &|a, b| a.wrapping_add(b));
            check(OpKind::Sub, &|a, b| a.wrapping_sub(b));
            check(OpKind::Mul, &|a, b| a.wrapping_mul(b));
            check(OpKind::Div, &|a, b| if b == 0 { 0 } else { a.wrapping_div(b) });
            check(OpKind::Rem, &|a, b| if b == 0 { a } else { a.wrapping_rem(b) });
            check(OpKind::Min, &|a, b| a.min(b));
            check(OpKind::Max, &|a, b| a.max(b));
            check(OpKind::And, &|a, b| a & b);
            check(OpKind::Or, &|a, b| a | b);
            check(OpKind::Xor, &|a, b| a ^ b);
            // Rust's wrapping shifts take the low bits of the amount, which is the amount modulo the width.
            check(OpKind::Shl, &|a, b| a.wrapping_shl(b as u32));
            check(OpKind::Shr, &|a, b| a.wrapping_shr(b as u32));
            check(OpKind::Umulhi, &|a, b| ((a as $unsigned as u128 * b as $unsigned as u128) >> <$ty>::BITS) as $ty);
            let unary = |kind: OpKind, f: &dyn Fn($ty) -> $ty| {
                let want: Vec<$ty> = x.iter().map(|&a| f(a)).collect();
                assert_eq!(elementwise(kind, &[($elem, &xb)], $elem), bits(&want), "{} of {}", kind.name(), $elem);
            };
            unary(OpKind::Neg, &|a| (0 as $ty).wrapping_sub(a));
            unary(OpKind::Not, &|a| !a);
            unary(OpKind::Abs, &|a| if a < (0 as $ty) { (0 as $ty).wrapping_sub(a) } else { a });
            let compare = |kind: OpKind, f: &dyn Fn(&$ty, &$ty) -> bool| {
                let want: Vec<u64> = x.iter().zip(&y).map(|(a, b)| f(a, b).into()).collect();
                assert_eq!(
                    elementwise(kind, &[($elem, &xb), ($elem, &yb)], Elem::Bool),
                    want,
                    "{} of {}",
                    kind.name(),
                    $elem
                );
            };
            compare(OpKind::Eq, &|a, b| a == b);
            compare(OpKind::Ne, &|a, b| a != b);
            compare(OpKind::Lt, &|a, b| a < b);
            compare(OpKind::Le, &|a, b| a <= b);
            compare(OpKind::Gt, &|a, b| a > b);
            compare(OpKind::Ge, &|a, b| a >= b);
        }
    };
}
wrapping_test!(i8_wraps i8, u8, Elem::I8);
wrapping_test!(i16_wraps i16, u16, Elem::I16);
wrapping_test!(i32_wraps i32, u32, Elem::I32);
wrapping_test!(i64_wraps i64, u64, Elem::I64);
wrapping_test!(u8_wraps u8, u8, Elem::U8);
wrapping_test!(u16_wraps u16, u16, Elem::U16);
wrapping_test!(u32_wraps u32, u32, Elem::U32);
wrapping_test!(u64_wraps u64, u64, Elem::U64);

#[test]
fn float_extremes_and_signs() {
    let nan = f32::NAN;
    let (x, y) = (f32s(&[1.0, nan, 2.0, nan, -0.0, f32::INFINITY]), f32s(&[2.0, 3.0, nan, nan, 5.0, 1.0]));
    let two = |kind| to_f32(&elementwise(kind, &[(Elem::F32, &x), (Elem::F32, &y)], Elem::F32));
    let same = |a: &[f32], b: &[f32]| {
        assert!(a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan()), "{a:?} and {b:?}")
    };
    same(&two(OpKind::Min), &[1.0, 3.0, 2.0, nan, 0.0, 1.0]);
    same(&two(OpKind::Max), &[2.0, 3.0, 2.0, nan, 5.0, f32::INFINITY]);
    same(&two(OpKind::MinNan), &[1.0, nan, nan, nan, 0.0, 1.0]);
    same(&two(OpKind::MaxNan), &[2.0, nan, nan, nan, 5.0, f32::INFINITY]);
    // Signs are bits: NaNs keep their payload.
    let odd = [0x7fc0_1234, 0x8000_0000, 0xff80_0000, 0x3f80_0000];
    assert_eq!(elementwise(OpKind::Neg, &[(Elem::F32, &odd)], Elem::F32), [0xffc0_1234, 0, 0x7f80_0000, 0xbf80_0000]);
    assert_eq!(elementwise(OpKind::Abs, &[(Elem::F32, &odd)], Elem::F32), [0x7fc0_1234, 0, 0x7f80_0000, 0x3f80_0000]);
    assert_eq!(elementwise(OpKind::Neg, &[(Elem::F8E4M3, &[0x7f, 0x38])], Elem::F8E4M3), [0xff, 0xb8]);
}

#[test]
fn rounding_functions_and_remainder() {
    let x = f32s(&[2.5, 3.5, -2.5, -0.3, 0.49999997, 8388609.0, -7.75]);
    let one = |kind| to_f32(&elementwise(kind, &[(Elem::F32, &x)], Elem::F32));
    assert_eq!(one(OpKind::Round), [2.0, 4.0, -2.0, 0.0, 0.0, 8388609.0, -8.0]);
    assert_eq!(one(OpKind::Floor), [2.0, 3.0, -3.0, -1.0, 0.0, 8388609.0, -8.0]);
    assert_eq!(one(OpKind::Ceil), [3.0, 4.0, -2.0, 0.0, 1.0, 8388609.0, -7.0]);
    let (x, y) = (f32s(&[7.5, -7.5, 7.5, 1e10, 5.0, 3.0]), f32s(&[2.0, 2.0, -2.0, 3.0, 0.0, f32::INFINITY]));
    let r = to_f32(&elementwise(OpKind::Rem, &[(Elem::F32, &x), (Elem::F32, &y)], Elem::F32));
    assert_eq!(r[..4], [1.5, -1.5, 1.5, 1.0]); // 10^10 = 3 · 3333333333 + 1
    assert!(r[4].is_nan());
    assert_eq!(r[5], 3.0);
}

/// Functions without an exact result: at points whose values are known to 20 digits, and against the system's libm.
#[test]
fn functions_are_the_reference() {
    let known = [
        (OpKind::Exp, 1.0, std::f64::consts::E),
        (OpKind::Exp2, 0.5, std::f64::consts::SQRT_2),
        (OpKind::Log, 2.0, std::f64::consts::LN_2),
        (OpKind::Log2, 10.0, std::f64::consts::LOG2_10),
        (OpKind::Sin, 1.0, 0.841_470_984_807_896_5),
        (OpKind::Cos, 1.0, 0.540_302_305_868_139_8),
        (OpKind::Tanh, 0.5, 0.462_117_157_260_009_76),
        (OpKind::Erf, 0.5, 0.520_499_877_813_046_5),
        (OpKind::Erf, -1.5, -0.966_105_146_475_310_8),
        (OpKind::Rsqrt, 2.0, std::f64::consts::FRAC_1_SQRT_2),
        (OpKind::Sigmoid, 1.0, 0.731_058_578_630_004_9),
    ];
    for (kind, x, want) in known {
        let x = data(Elem::F64, &[x]);
        let found = value(Elem::F64, elementwise(kind, &[(Elem::F64, &x)], Elem::F64)[0]);
        assert!((found - want).abs() <= 4e-16 * want.abs(), "{}: {want} expected, found {found}", kind.name());
    }
    let mut r = Random(10);
    let x: Vec<f64> = (0..3000).map(|_| (r.below(32001) as f64 - 16000.0) / 1000.0).collect();
    let reference: [(OpKind, fn(f64) -> f64); 9] = [
        (OpKind::Exp, f64::exp),
        (OpKind::Exp2, f64::exp2),
        (OpKind::Log, f64::ln),
        (OpKind::Log2, f64::log2),
        (OpKind::Sin, f64::sin),
        (OpKind::Cos, f64::cos),
        (OpKind::Tanh, f64::tanh),
        (OpKind::Rsqrt, |x| 1.0 / x.sqrt()),
        (OpKind::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
    ];
    for elem in [Elem::F64, Elem::F32, Elem::F16, Elem::BF16] {
        let bits = data(elem, &x);
        for (kind, f) in reference {
            for (&b, &found) in bits.iter().zip(&elementwise(kind, &[(elem, &bits)], elem)) {
                let want = f(value(elem, b));
                let found = value(elem, found);
                let unit = want.abs()
                    * match elem {
                        Elem::F64 => 2f64.powi(-51),
                        Elem::F32 => 2f64.powi(-24),
                        Elem::F16 => 2f64.powi(-11),
                        _ => 2f64.powi(-8),
                    };
                // Half a unit, and what the subnormals and the reference itself leave.
                let floor = match elem {
                    Elem::F64 => 1e-15,
                    Elem::F32 => 1e-40,
                    Elem::F16 => 3.1e-8,
                    _ => 1e-38,
                };
                let limit = match elem {
                    Elem::F16 => 65520.0,
                    _ => f64::INFINITY,
                };
                let fine = if want.is_nan() {
                    found.is_nan()
                } else if want.abs() >= limit {
                    found.is_infinite()
                } else {
                    want == found || (want - found).abs() <= unit * 1.001 + floor
                };
                assert!(fine, "{} of {} in {elem}: {want} expected, found {found}", kind.name(), value(elem, b));
            }
        }
    }
    let (a, b) = (data(Elem::F32, &[2.0, 0.0, -2.0, 9.0, f64::NAN]), data(Elem::F32, &[10.0, 0.0, 3.0, 0.5, 0.0]));
    assert_eq!(
        to_f32(&elementwise(OpKind::Pow, &[(Elem::F32, &a), (Elem::F32, &b)], Elem::F32)),
        [1024.0, 1.0, -8.0, 3.0, 1.0]
    );
}

#[test]
fn bits_and_bool() {
    let (a, b) = ([0, 0, 1, 1], [0, 1, 0, 1]);
    let of = |kind| elementwise(kind, &[(Elem::Bool, &a), (Elem::Bool, &b)], Elem::Bool);
    assert_eq!(of(OpKind::And), [0, 0, 0, 1]);
    assert_eq!(of(OpKind::Or), [0, 1, 1, 1]);
    assert_eq!(of(OpKind::Xor), [0, 1, 1, 0]);
    assert_eq!(of(OpKind::Lt), [0, 1, 0, 0]);
    assert_eq!(elementwise(OpKind::Not, &[(Elem::Bool, &a)], Elem::Bool), [1, 1, 0, 0]);
    assert_eq!(elementwise(OpKind::Bitcast, &[(Elem::F32, &[0x3f80_0001])], Elem::I32), [0x3f80_0001]);
    for to in INTS.into_iter().chain([Elem::F16, Elem::F8E5M2]) {
        let one = Scalar::from_i64(to, 1).bits;
        assert_eq!(elementwise(OpKind::Cast, &[(Elem::Bool, &[0, 1])], to), [0, one], "bool to {to}");
    }
}

#[test]
fn moving_elements() {
    let x: Vec<u64> = (0..24).collect();
    let of = |shape: &[usize], f: &dyn Fn(&mut K, tegula_ir::Value) -> tegula_ir::Value| {
        function(&[(Elem::U16, &x)], Elem::U16, shape, |k, v| {
            let t = k.reshape(v[0], &[2, 3, 4]);
            f(k, t)
        })
    };
    let at = |i: usize, j: usize, l: usize| (i * 12 + j * 4 + l) as u64;
    let mut want = vec![];
    for l in 0..4 {
        for i in 0..2 {
            for j in 0..3 {
                want.push(at(i, j, l));
            }
        }
    }
    assert_eq!(of(&[4, 2, 3], &|k, t| k.permute(t, &[2, 0, 1])), want);
    assert_eq!(of(&[2, 2, 4], &|k, t| k.slice(t, 1, 1, 2)), [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]);
    let doubled = of(&[2, 4, 4], &|k, t| {
        let s = k.slice(t, 1, 2, 1);
        k.cat(&[t, s], 1)
    });
    assert_eq!(doubled[8..16], [8, 9, 10, 11, 8, 9, 10, 11]);
    assert_eq!(doubled[24..32], [20, 21, 22, 23, 20, 21, 22, 23]);
    let repeated = of(&[2, 5, 4], &|k, t| {
        let s = k.slice(t, 1, 1, 1);
        k.broadcast(s, &[2, 5, 4])
    });
    assert_eq!(repeated[..12], [4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7]);
    assert_eq!(repeated[36..], [16, 17, 18, 19]);
}

fn reduced(elem: Elem, x: &[u64], kind: ReduceKind, result: Elem) -> u64 {
    function(&[(elem, x)], result, &[1], |k, v| k.reduce_to(v[0], 0, kind, result))[0]
}

#[test]
fn reductions_by_hand() {
    let x = ints(Elem::I8, [100, 27, 1, -3]);
    assert_eq!(reduced(Elem::I8, &x, ReduceKind::Sum, Elem::I8), 125);
    assert_eq!(reduced(Elem::I8, &ints(Elem::I8, [100, 28]), ReduceKind::Sum, Elem::I8), 128); // −128
    assert_eq!(reduced(Elem::I8, &ints(Elem::I8, [100, 100, -1]), ReduceKind::Sum, Elem::I32), 199);
    assert_eq!(to_ints(Elem::I64, &[reduced(Elem::I8, &x, ReduceKind::Prod, Elem::I64)]), [-8100]);
    assert_eq!(reduced(Elem::U8, &[200, 100], ReduceKind::Sum, Elem::U8), 44);
    assert_eq!(reduced(Elem::Bool, &[1; 200], ReduceKind::Sum, Elem::I32), 200);
    assert_eq!(reduced(Elem::Bool, &[0, 1, 0], ReduceKind::Any, Elem::Bool), 1);
    assert_eq!(reduced(Elem::Bool, &[1, 1, 0], ReduceKind::All, Elem::Bool), 0);
    assert_eq!(reduced(Elem::Bool, &[1, 1, 1], ReduceKind::Xor, Elem::Bool), 1);
    assert_eq!(reduced(Elem::U32, &[0b1100, 0b1010, 1], ReduceKind::Xor, Elem::U32), 0b0111);
    assert_eq!(reduced(Elem::U32, &[3, 0xffff_ffff, 7], ReduceKind::Max, Elem::U32), 0xffff_ffff);
    let nan = f64::NAN;
    let f = |v: &[f64]| data(Elem::F16, v);
    let v = f(&[nan, 3.0, -1.0, nan, 3.0]);
    assert_eq!(value(Elem::F16, reduced(Elem::F16, &v, ReduceKind::Max, Elem::F16)), 3.0);
    assert_eq!(value(Elem::F16, reduced(Elem::F16, &v, ReduceKind::Min, Elem::F16)), -1.0);
    assert!(value(Elem::F16, reduced(Elem::F16, &v, ReduceKind::MaxNan, Elem::F16)).is_nan());
    assert_eq!(reduced(Elem::F16, &v, ReduceKind::Argmax, Elem::I32), 1);
    assert_eq!(reduced(Elem::F16, &v, ReduceKind::Argmin, Elem::I32), 2);
    let all_nan = f(&[nan; 4]);
    assert!(value(Elem::F16, reduced(Elem::F16, &all_nan, ReduceKind::Max, Elem::F16)).is_nan());
    assert_eq!(reduced(Elem::F16, &all_nan, ReduceKind::Argmax, Elem::I32), 0);
    // 2048 ones: a running f16 sum would stop at 2048 and could not tell 2049 ones.
    assert_eq!(value(Elem::F16, reduced(Elem::F16, &f(&[1.0; 3000]), ReduceKind::Sum, Elem::F16)), 3000.0);
    assert_eq!(value(Elem::F32, reduced(Elem::F16, &f(&[1.0; 2049]), ReduceKind::Sum, Elem::F32)), 2049.0);
    assert_eq!(
        value(Elem::F8E4M3, reduced(Elem::F8E4M3, &data(Elem::F8E4M3, &[400.0; 4]), ReduceKind::Sum, Elem::F8E4M3)),
        448.0
    );
}

#[test]
fn sorting_and_selecting() {
    let nan = f64::NAN;
    let x = data(Elem::F32, &[3.0, nan, -1.0, 3.0, f64::NEG_INFINITY, 7.0]);
    let sorted = |descending| to_f32(&function(&[(Elem::F32, &x)], Elem::F32, &[6], |k, v| k.sort(v[0], descending)));
    assert_eq!(sorted(false)[..5], [f32::NEG_INFINITY, -1.0, 3.0, 3.0, 7.0]);
    assert!(sorted(false)[5].is_nan());
    assert_eq!(sorted(true)[..5], [7.0, 3.0, 3.0, -1.0, f32::NEG_INFINITY]);
    assert!(sorted(true)[5].is_nan());
    let indices = function(&[(Elem::F32, &x)], Elem::I32, &[6], |k, v| k.top_k(v[0], 6).1);
    assert_eq!(indices, [5, 0, 3, 2, 4, 1]);
    let u = ints(Elem::U8, [3, 200, 7, 200]);
    assert_eq!(function(&[(Elem::U8, &u)], Elem::U8, &[2], |k, v| k.top_k(v[0], 2).0), [200, 200]);
    // Rows of a matrix are sorted apart.
    let rows = function(&[(Elem::I32, &ints(Elem::I32, [3, 1, 2, -5, -6, 9]))], Elem::I32, &[2, 3], |k, v| {
        let t = k.reshape(v[0], &[2, 3]);
        k.sort(t, false)
    });
    assert_eq!(to_ints(Elem::I32, &rows), [1, 2, 3, -6, -5, 9]);
    let x = ints(Elem::I16, [0, 2, 2, 5, -1, 4, 2, 300]);
    assert_eq!(function(&[(Elem::I16, &x)], Elem::I32, &[5], |k, v| k.histogram(v[0], None, 5)), [1, 0, 3, 0, 1]);
    let counts = function(&[(Elem::I16, &x), (Elem::Bool, &[1, 0, 1, 1, 1, 0, 1, 1])], Elem::I32, &[5], |k, v| {
        k.histogram(v[0], Some(v[1]), 5)
    });
    assert_eq!(counts, [1, 0, 2, 0, 0]);
    let taken =
        function(&[(Elem::I16, &x), (Elem::U8, &[7, 0, 255, 3])], Elem::I16, &[4], |k, v| k.take(v[0], v[1], 0));
    assert_eq!(to_ints(Elem::I16, &taken), [300, 0, 0, 5]);
    let along = function(
        &[(Elem::I32, &ints(Elem::I32, 0..12)), (Elem::I64, &ints(Elem::I64, [2, 0, -1, 1, 5, 2]))],
        Elem::I32,
        &[2, 3],
        |k, v| {
            let (t, i) = (k.reshape(v[0], &[4, 3]), k.reshape(v[1], &[2, 3]));
            k.take(t, i, 0)
        },
    );
    assert_eq!(to_ints(Elem::I32, &along), [6, 1, 0, 3, 0, 8]);
}

#[test]
fn scans_by_hand() {
    let x = ints(Elem::I32, [1, 2, 3, 4, 5, 6]);
    let scan = |axis, reverse, kind| {
        to_ints(
            Elem::I32,
            &function(&[(Elem::I32, &x)], Elem::I32, &[2, 3], |k, v| {
                let t = k.reshape(v[0], &[2, 3]);
                k.scan(t, axis, kind, reverse)
            }),
        )
    };
    assert_eq!(scan(1, false, ReduceKind::Sum), [1, 3, 6, 4, 9, 15]);
    assert_eq!(scan(1, true, ReduceKind::Sum), [6, 5, 3, 15, 11, 6]);
    assert_eq!(scan(0, false, ReduceKind::Prod), [1, 2, 3, 4, 10, 18]);
    assert_eq!(scan(0, true, ReduceKind::Max), [4, 5, 6, 4, 5, 6]);
}

/// f32: exactly one fma chain per output; f16 and bf16 accumulate in f32; u8 and i8 in i32.
#[test]
fn dot_is_a_chain_in_ascending_k() {
    let (m, depth, n) = (3usize, 37usize, 5usize);
    let mut r = Random(11);
    let mut noise =
        |n: usize| (0..n).map(|_| (r.bits() as u32 as f32 / 2f32.powi(31) - 1.0) * 1.3).collect::<Vec<f32>>();
    let (a, b, c) = (noise(m * depth), noise(depth * n), noise(m * n));
    for elem in [Elem::F32, Elem::F16, Elem::BF16, Elem::F8E4M3, Elem::F8E5M2] {
        let round = |v: &[f32]| v.iter().map(|&x| Scalar::from_f64(elem, x.into())).collect::<Vec<_>>();
        let (sa, sb) = (round(&a), round(&b));
        let bits = |v: &[Scalar]| v.iter().map(|s| s.bits).collect::<Vec<u64>>();
        let found =
            function(&[(elem, &bits(&sa)), (elem, &bits(&sb)), (Elem::F32, &f32s(&c))], Elem::F32, &[m, n], |k, v| {
                let t = [k.reshape(v[0], &[m, depth]), k.reshape(v[1], &[depth, n]), k.reshape(v[2], &[m, n])];
                k.dot(t[0], t[1], t[2])
            });
        let cell = |i: usize, j: usize| {
            (0..depth).fold(c[i * n + j], |acc, k| {
                (sa[i * depth + k].to_f64() as f32).mul_add(sb[k * n + j].to_f64() as f32, acc)
            })
        };
        assert_eq!(to_f32(&found), (0..m * n).map(|i| cell(i / n, i % n)).collect::<Vec<_>>(), "{elem}");
    }
    let bytes = |elem: Elem| {
        let x: Vec<u64> = (0..64).map(|i| i * 37 % 256).collect();
        let found = function(&[(elem, &x)], Elem::I32, &[2, 2], |k, v| {
            let (a, b) = (k.slice(v[0], 0, 0, 32), k.slice(v[0], 0, 32, 32));
            let (a, b, z) = (k.reshape(a, &[2, 16]), k.reshape(b, &[16, 2]), k.splat(Elem::I32, -5.0, &[2, 2]));
            k.dot(a, b, z)
        });
        let v = |i: usize| Scalar::from_bits(elem, x[i]).to_i64();
        let want: Vec<i64> =
            (0..4).map(|i| (0..16).map(|k| v(i / 2 * 16 + k) * v(32 + k * 2 + i % 2)).sum::<i64>() - 5).collect();
        assert_eq!(to_ints(Elem::I32, &found), want, "{elem}");
    };
    bytes(Elem::I8);
    bytes(Elem::U8);
}

/// tf32 drops mantissa bits; three products of it give nearly f32.
#[test]
fn dot_precisions() {
    let mut r = Random(12);
    let a: Vec<f32> = (0..64).map(|_| 1.0 + (r.bits() >> 40) as f32 / 2f32.powi(24)).collect();
    let by = |p: Precision| {
        let found = function(&[(Elem::F32, &f32s(&a))], Elem::F32, &[1, 1], |k, v| {
            let (x, y, z) = (k.reshape(v[0], &[1, 64]), k.reshape(v[0], &[64, 1]), k.splat(Elem::F32, 0.0, &[1, 1]));
            k.with(
                OpKind::Dot,
                &[x, y, z],
                TileType::new(Elem::F32, [1, 1]),
                Attrs::new().with(Key::Precision, p.into()),
            )
        });
        f64::from(to_f32(&found)[0])
    };
    let exact: f64 = a.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let error = |p| (by(p) - exact).abs() / exact;
    assert!(error(Precision::Ieee) < 1e-6);
    assert!(error(Precision::Tf32x3) < 1e-6);
    let coarse = error(Precision::Tf32);
    assert!((1e-7..1e-3).contains(&coarse), "{coarse}");
}

/// Against the rule written out on decoded groups, for every quantised format and both layouts, ragged N.
#[test]
fn packed_matrices() {
    for (seed, &quant) in Quant::ALL.iter().enumerate() {
        for layout in [Layout::Gguf, Layout::Panel16] {
            let (k_all, n_all, m) = (quant.block().max(32) * 2, 20usize, 2usize);
            let mut r = Random(seed as u64);
            let bytes = tegula_ir::testing::random::packed(seed as u64, quant, layout, k_all, n_all);
            let (rows, columns) = (k_all / 2, 16);
            // The second rectangle along both axes: columns 16..32 of 20.
            let decode =
                |k: usize, n: usize| if n < n_all { layout.decode(quant, &bytes, (k_all, n_all), k, n) } else { 0.0 };
            let mut k = K::new("packed");
            let (w, y) = (k.packed("w", quant, layout), k.view_mut("y", Elem::F32, 2));
            let at = [k.at(rows as i64), k.at(16)];
            let q = k.packed_load(w, at, rows, columns);
            let t = k.op(OpKind::Dequant, &[q], TileType::new(Elem::F32, [rows, columns]));
            k.write(y, t);
            let arg = || Arg::Packed(bytes.clone(), k_all, n_all, quant, layout);
            let found =
                run_for(&k.finish(), &mut [arg(), Arg::View(Buffer::poisoned(Elem::F32, &[rows as i64, 16]))], 1);
            let want: Vec<f32> = (0..rows * columns).map(|i| decode(rows + i / columns, 16 + i % columns)).collect();
            assert_eq!(to_f32(&found), want, "{quant} {}", layout.name());
            assert!(want.iter().any(|&v| v != 0.0));
            if quant.is_float() {
                continue;
            }
            let codes = ints(Elem::I8, (0..m * rows).map(|_| r.below(255) as i64 - 127));
            let scales: Vec<f32> = (0..m * rows / 32).map(|_| r.below(1000) as f32 / 4096.0).collect();
            let x = |row: usize, k: usize| Scalar::from_bits(Elem::I8, codes[row * rows + k]).to_i64();
            let sums: Vec<i64> = (0..m * rows / 32)
                .map(|i| (0..32).map(|j| x(i / (rows / 32), i % (rows / 32) * 32 + j)).sum())
                .collect();
            let start: Vec<f32> = (0..m * columns).map(|i| i as f32 * 0.25 - 3.0).collect();
            let mut k = K::new("grouped");
            let views =
                [("x", Elem::I8), ("s", Elem::F32), ("u", Elem::I32), ("c", Elem::F32)].map(|(n, e)| k.view(n, e, 2));
            let (w, y) = (k.packed("w", quant, layout), k.view_mut("y", Elem::F32, 2));
            let groups = rows / 32;
            let shapes = [[m, rows], [m, groups], [m, groups], [m, columns]];
            let t: Vec<_> = views.iter().zip(shapes).map(|(&v, s)| k.read(v, &s)).collect();
            let zero = k.at(0);
            let q = k.packed_load(w, [zero, zero], rows, columns);
            let d = k.op(OpKind::DotGrouped, &[t[0], t[1], t[2], q, t[3]], TileType::new(Elem::F32, [m, columns]));
            k.write(y, d);
            let view =
                |elem, [a, b]: [usize; 2], bits: &[u64]| Arg::View(Buffer::new(elem, &[a as i64, b as i64], bits));
            let mut args = vec![
                view(Elem::I8, shapes[0], &codes),
                view(Elem::F32, shapes[1], &f32s(&scales)),
                view(Elem::I32, shapes[2], &ints(Elem::I32, sums.clone())),
                view(Elem::F32, shapes[3], &f32s(&start)),
                arg(),
                Arg::View(Buffer::poisoned(Elem::F32, &[m as i64, columns as i64])),
            ];
            let found = to_f32(&run_for(&k.finish(), &mut args, 5));
            for row in 0..m {
                for n in 0..columns {
                    let mut acc = start[row * columns + n];
                    let mut reference = f64::from(acc);
                    for g in 0..groups {
                        let group = layout.group(quant, &bytes, k_all, g, n);
                        let integer: i64 =
                            (0..32).map(|i| i64::from(group.sub[i / 16] * group.codes[i]) * x(row, g * 32 + i)).sum();
                        let s = scales[row * groups + g];
                        acc = (integer as f32).mul_add(group.scale * s, acc);
                        if let Some(min) = group.min {
                            acc = (sums[row * groups + g] as f32).mul_add(min * s, acc);
                        }
                        reference +=
                            (0..32).map(|i| f64::from(decode(g * 32 + i, n)) * x(row, g * 32 + i) as f64).sum::<f64>()
                                * f64::from(s);
                    }
                    assert_eq!(found[row * columns + n], acc, "{quant} {}", layout.name());
                    assert!(
                        (f64::from(acc) - reference).abs() <= 1e-3 * reference.abs().max(1.0),
                        "{quant}: {acc} against {reference}"
                    );
                }
            }
        }
    }
}

#[test]
fn packed_gather_reads_elements() {
    let (quant, layout) = (Quant::Q4_1, Layout::Gguf);
    let bytes = tegula_ir::testing::random::packed(5, quant, layout, 64, 3);
    let mut k = K::new("rows");
    let (w, y) = (k.packed("w", quant, layout), k.view_mut("y", Elem::F32, 1));
    let (i, n) = (k.iota(Elem::I64, 66), k.splat(Elem::I64, 2.0, &[66]));
    let t = k.op(OpKind::PackedGather, &[w, i, n], TileType::new(Elem::F32, [66]));
    k.write(y, t);
    let found = run_for(
        &k.finish(),
        &mut [Arg::Packed(bytes.clone(), 64, 3, quant, layout), Arg::View(Buffer::poisoned(Elem::F32, &[66]))],
        1,
    );
    let want: Vec<f32> =
        (0..66).map(|k| if k < 64 { layout.decode(quant, &bytes, (64, 3), k, 2) } else { 0.0 }).collect();
    assert_eq!(to_f32(&found), want);
}

#[test]
fn views_with_strides_pads_and_parts() {
    // A 4 × 6 matrix read as its transpose.
    let x = ints(Elem::I32, 0..24);
    let mut k = K::new("transposed");
    let (v, y) = (k.view("x", Elem::I32, 2), k.view_mut("y", Elem::I32, 2));
    let (r, c) = (k.at(-1), k.at(2));
    let t = k.load_pad(v, &[r, c], &[3, 4], -9.0);
    k.write(y, t);
    let b = Buffer::new(Elem::I32, &[4, 6], &x).part(&[6, 4]).strides(&[1, 6]);
    let found = run_for(&k.finish(), &mut [Arg::View(b), Arg::View(Buffer::poisoned(Elem::I32, &[3, 4]))], 1);
    assert_eq!(to_ints(Elem::I32, &found), [-9, -9, -9, -9, 12, 18, -9, -9, 13, 19, -9, -9]);
    // Rows 1..3 of 4, seen as a view of its own; starts and lengths beyond the ends are cut.
    for (start, len, rows) in
        [(1, 2, 1..3), (-5, 2, 0..2), (3, 9, 3..4), (9, 1, 4..4), (2, -1, 2..2), (i64::MIN, i64::MAX, 0..4)]
    {
        let mut k = K::new("part");
        let (v, y) = (k.view("x", Elem::I32, 2), k.view_mut("y", Elem::I32, 2));
        let (s, l) = (k.at(start), k.at(len));
        let p = k.narrow(v, 0, s, l);
        let n = k.dim(p, 0);
        let t = k.read(p, &[4, 2]);
        let n = k.broadcast(n, &[1, 2]);
        let t = k.cat(&[t, n], 0);
        k.write(y, t);
        let found = run_for(
            &k.finish(),
            &mut [Arg::View(Buffer::new(Elem::I32, &[4, 6], &x)), Arg::View(Buffer::poisoned(Elem::I32, &[5, 2]))],
            1,
        );
        let n = rows.end - rows.start;
        let mut want: Vec<i64> = rows.flat_map(|r| [r * 6, r * 6 + 1]).collect();
        want.resize(8, 0);
        want.extend([n, n]);
        assert_eq!(to_ints(Elem::I32, &found), want, "{start} {len}");
    }
    // A view of rank 0.
    let mut k = K::new("single");
    let (v, y) = (k.view("x", Elem::F32, 0), k.view_mut("y", Elem::F32, 0));
    let t = k.read(v, &[]);
    let t = k.add(t, t);
    k.write(y, t);
    let found = run_for(
        &k.finish(),
        &mut [Arg::View(Buffer::new(Elem::F32, &[], &f32s(&[1.5]))), Arg::View(Buffer::poisoned(Elem::F32, &[]))],
        1,
    );
    assert_eq!(to_f32(&found), [3.0]);
}

#[test]
fn scatter_keeps_the_last_of_duplicates() {
    let mut k = K::new("scatter");
    let (i, y) = (k.view("i", Elem::I64, 1), k.view_mut("y", Elem::I32, 1));
    let (i, v) = (k.read(i, &[6]), k.iota(Elem::I32, 6));
    k.scatter(y, &[i], v, None);
    let found = run_for(
        &k.finish(),
        &mut [
            Arg::View(Buffer::new(Elem::I64, &[6], &ints(Elem::I64, [2, 0, 2, -1, 2, 4]))),
            Arg::View(Buffer::new(Elem::I32, &[4], &[50; 4])),
        ],
        1,
    );
    assert_eq!(found, [1, 50, 4, 50]);
}

#[test]
fn compare_and_swap_gives_old_values() {
    let mut k = K::new("cas");
    let (y, old) = (k.view_mut("y", Elem::I32, 1), k.view_mut("old", Elem::I32, 1));
    let i = k.iota(Elem::I64, 4);
    let (e, n) = (k.splat(Elem::I32, 7.0, &[4]), k.splat(Elem::I32, 1.0, &[4]));
    let t = k.compare_and_swap(y, &[i], e, n, None);
    k.write(old, t);
    let mut args = [Arg::View(Buffer::new(Elem::I32, &[3], &[7, 8, 7])), Arg::View(Buffer::poisoned(Elem::I32, &[4]))];
    assert_eq!(run_for(&k.finish(), &mut args, 1), [7, 8, 7, 0]);
    let Arg::View(b) = &args[0] else { unreachable!() };
    assert_eq!(b.bits(), [1, 8, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// A sum is the last of its prefix sums, and the first of its suffix sums.
    #[test]
    fn sums_end_scans(x in prop::collection::vec(any::<i32>(), 1..40)) {
        let bits = ints(Elem::I32, x.iter().map(|&v| i64::from(v)));
        let sum = reduced(Elem::I32, &bits, ReduceKind::Sum, Elem::I32);
        let n = x.len();
        let scan = |reverse| function(&[(Elem::I32, &bits)], Elem::I32, &[n], |k, v| k.scan(v[0], 0, ReduceKind::Sum, reverse));
        prop_assert_eq!(scan(false)[n - 1], sum);
        prop_assert_eq!(scan(true)[0], sum);
        prop_assert_eq!(Scalar::from_bits(Elem::I32, sum).to_i64(), i64::from(x.iter().fold(0i32, |a, &b| a.wrapping_add(b))));
    }
    /// A closure that adds is the same reduction and the same scan.
    #[test]
    fn closures_are_like_kinds(x in prop::collection::vec(any::<u64>(), 1..30), reverse: bool) {
        let n = x.len();
        let by = |kind: ReduceKind| function(&[(Elem::U64, &x)], Elem::U64, &[n], |k, v| k.scan(v[0], 0, kind, reverse));
        let with = |op: OpKind| function(&[(Elem::U64, &x)], Elem::U64, &[n], |k, v| k.combine(OpKind::ScanWith, &[v[0]], 0, reverse, |k, a, b| vec![k.ew(op, &[a[0], b[0]])])[0]);
        prop_assert_eq!(by(ReduceKind::Sum), with(OpKind::Add));
        prop_assert_eq!(by(ReduceKind::Prod), with(OpKind::Mul));
        prop_assert_eq!(by(ReduceKind::Max), with(OpKind::Max));
        prop_assert_eq!(by(ReduceKind::Xor), with(OpKind::Xor));
    }
    /// Sorting permutes; top-k agrees with it; indices name the values.
    #[test]
    fn sort_and_top_k(x in prop::collection::vec(any::<i16>(), 1..50)) {
        let bits = ints(Elem::I16, x.iter().map(|&v| i64::from(v)));
        let n = x.len();
        let sorted = to_ints(Elem::I16, &function(&[(Elem::I16, &bits)], Elem::I16, &[n], |k, v| k.sort(v[0], true)));
        let mut want: Vec<i64> = x.iter().map(|&v| v.into()).collect();
        want.sort_by(|a, b| b.cmp(a));
        prop_assert_eq!(&sorted, &want);
        let (values, indices) = (
            function(&[(Elem::I16, &bits)], Elem::I16, &[n], |k, v| k.top_k(v[0], n).0),
            function(&[(Elem::I16, &bits)], Elem::I32, &[n], |k, v| k.top_k(v[0], n).1),
        );
        prop_assert_eq!(to_ints(Elem::I16, &values), want);
        for i in 0..n {
            prop_assert_eq!(bits[indices[i] as usize], values[i]);
            prop_assert!(i == 0 || values[i] != values[i - 1] || indices[i - 1] < indices[i]);
        }
    }
    /// Moves undo each other, whatever the patterns.
    #[test]
    fn moves_undo_each_other(x in prop::collection::vec(any::<u64>(), 24..=24), cut in 1usize..4) {
        let found = function(&[(Elem::U64, &x)], Elem::U64, &[24], |k, v| {
            let t = k.reshape(v[0], &[2, 4, 3]);
            let t = k.permute(t, &[2, 0, 1]);
            let (a, b) = (k.slice(t, 2, 0, cut), k.slice(t, 2, cut, 4 - cut));
            let t = k.cat(&[a, b], 2);
            let t = k.permute(t, &[1, 2, 0]);
            k.reshape(t, &[24])
        });
        prop_assert_eq!(found, x);
    }
}

#[test]
fn attributes_of_loads_are_typed() {
    // A constant NaN keeps its pattern on the way to memory.
    let nan = Scalar::from_bits(Elem::BF16, 0x7f91);
    let found = function(&[(Elem::BF16, &[0])], Elem::BF16, &[3], |k, _| {
        k.with(OpKind::Const, &[], TileType::new(Elem::BF16, [3]), Attrs::new().with(Key::Value, Attr::Scalar(nan)))
    });
    assert_eq!(found, [0x7f91; 3]);
}
