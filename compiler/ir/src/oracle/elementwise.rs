//! The meaning of every elementwise op, one row an op.
//!
//! Integers (and `bool`, as one bit) are computed in `i128`, where nothing overflows, and keep their low bits. f32 and
//! f64 use the machine's IEEE operations. The smaller floats compute in f64 and round once: f64 has more than twice
//! their precision plus two bits, and its exponents reach beyond theirs, so for + − × ÷ and sqrt the two roundings give
//! what one would; `fma` does its own ([`number::fma_small`]). Functions without an exact result (`exp`, …) are computed
//! in f64 and rounded, so for f32 and below they are the float64 reference itself.

use super::{
    error::{Fault, Trap},
    number,
    value::Tile,
};
use crate::{
    elem::{Class, Elem},
    ops::OpKind,
    types::TileType,
};

/// From the value to the result; integers also get the type's width in bits.
enum Meaning {
    /// Numbers and bit patterns to the same type.
    Unary {
        int: Option<fn(i128, u32) -> i128>,
        float: Option<Float1>,
    },
    /// Two operands of the result's type.
    Binary {
        int: Option<fn(i128, i128, u32) -> i128>,
        float: Option<Float2>,
    },
    /// Two operands to `bool`.
    Compare {
        int: fn(i128, i128) -> bool,
        float: fn(f64, f64) -> bool,
    },
    Select,
    Fma,
    Cast,
    Bitcast,
    /// Not elementwise: its meaning is in another file.
    Elsewhere,
}

enum Float1 {
    /// By value, in f32 and in f64.
    Value(fn(f32) -> f32, fn(f64) -> f64),
    /// On the pattern, given the sign bit's mask: NaNs keep their payload.
    Bits(fn(u64, u64) -> u64),
}

struct Float2(fn(f32, f32) -> f32, fn(f64, f64) -> f64);

/// A function without an exact result: always computed in f64.
macro_rules! real {
    ($x:ident => $body:expr) => {
        Meaning::Unary {
            int: None,
            float: Some(Float1::Value(
                |$x| {
                    let $x = f64::from($x);
                    $body as f32
                },
                |$x| $body,
            )),
        }
    };
}
/// A float function that the type itself rounds correctly.
macro_rules! exact {
    ($x:ident => $body:expr) => {
        Meaning::Unary { int: None, float: Some(Float1::Value(|$x| $body, |$x| $body)) }
    };
}
/// A row for integers and floats.
macro_rules! num2 {
    (|$x:ident, $y:ident| $int:expr, $float:expr) => {
        Meaning::Binary { int: Some(|$x, $y, _| $int), float: Some(Float2(|$x, $y| $float, |$x, $y| $float)) }
    };
}
macro_rules! float2 {
    (|$x:ident, $y:ident| $float:expr) => {
        Meaning::Binary { int: None, float: Some(Float2(|$x, $y| $float, |$x, $y| $float)) }
    };
}
macro_rules! int2 {
    (|$x:ident, $y:ident, $w:pat_param| $int:expr) => {
        Meaning::Binary { int: Some(|$x, $y, $w| $int), float: None }
    };
}
macro_rules! compare {
    ($op:tt) => { Meaning::Compare { int: |x, y| x $op y, float: |x, y| x $op y } };
}

fn meaning(kind: OpKind) -> Meaning {
    use OpKind::*;
    match kind {
        Neg => Meaning::Unary { int: Some(|x, _| -x), float: Some(Float1::Bits(|b, sign| b ^ sign)) },
        Abs => Meaning::Unary { int: Some(|x, _| x.abs()), float: Some(Float1::Bits(|b, sign| b & !sign)) },
        Not => Meaning::Unary { int: Some(|x, _| !x), float: None },
        Exp => real!(x => libm::exp(x)),
        Exp2 => real!(x => libm::exp2(x)),
        Log => real!(x => libm::log(x)),
        Log2 => real!(x => libm::log2(x)),
        Sin => real!(x => libm::sin(x)),
        Cos => real!(x => libm::cos(x)),
        Tanh => real!(x => libm::tanh(x)),
        Erf => real!(x => libm::erf(x)),
        Rsqrt => real!(x => 1.0 / x.sqrt()),
        Sigmoid => real!(x => 1.0 / (1.0 + libm::exp(-x))),
        Sqrt => exact!(x => x.sqrt()),
        Floor => exact!(x => x.floor()),
        Ceil => exact!(x => x.ceil()),
        Round => exact!(x => x.round_ties_even()),
        Cast => Meaning::Cast,
        Bitcast => Meaning::Bitcast,

        Add => num2!(|x, y| x + y, x + y),
        Sub => num2!(|x, y| x - y, x - y),
        Mul => num2!(|x, y| x.wrapping_mul(y), x * y),
        // `/` of i128 truncates; the quotient MIN/−1 is representable there and wraps when its low bits are kept.
        Div => num2!(|x, y| if y == 0 { 0 } else { x / y }, x / y),
        // Rust's `%` on floats is C's fmod, which is exact.
        Rem => num2!(|x, y| if y == 0 { x } else { x % y }, x % y),
        Min => num2!(|x, y| x.min(y), if x.is_nan() || y < x { y } else { x }),
        Max => num2!(|x, y| x.max(y), if x.is_nan() || y > x { y } else { x }),
        MinNan => float2!(|x, y| if x.is_nan() || y.is_nan() {
            x + y
        } else if y < x {
            y
        } else {
            x
        }),
        MaxNan => float2!(|x, y| if x.is_nan() || y.is_nan() {
            x + y
        } else if y > x {
            y
        } else {
            x
        }),
        Pow => {
            Meaning::Binary { int: None, float: Some(Float2(|x, y| libm::pow(x.into(), y.into()) as f32, libm::pow)) }
        }
        And => int2!(|x, y, _| x & y),
        Or => int2!(|x, y, _| x | y),
        Xor => int2!(|x, y, _| x ^ y),
        Shl => int2!(|x, y, width| x << y.rem_euclid(width.into())),
        // Operands are sign-extended for signed types and zero-extended for unsigned ones, so this is both shifts.
        Shr => int2!(|x, y, width| x >> y.rem_euclid(width.into())),
        Umulhi => int2!(|x, y, width| {
            let pattern = |v: i128| v as u128 & ((1 << width) - 1);
            ((pattern(x) * pattern(y)) >> width) as i128
        }),
        Eq => compare!(==),
        Ne => compare!(!=),
        Lt => compare!(<),
        Le => compare!(<=),
        Gt => compare!(>),
        Ge => compare!(>=),
        Select => Meaning::Select,
        Fma => Meaning::Fma,

        Const | Iota | ProgramId | NumPrograms | Broadcast | Reshape | Permute | Slice | Cat | ConvertLayout => {
            Meaning::Elsewhere
        }
        Reduce | ReduceWith | Scan | ScanWith | Sort | TopK | Histogram | Take => Meaning::Elsewhere,
        Dim | Narrow | Load | Store | Gather | Scatter | Atomic | AtomicCas => Meaning::Elsewhere,
        Dot | DotGrouped | PackedLoad | PackedGather | PackedDim | Dequant => Meaning::Elsewhere,
        For | While | If | Assume | MultipleOf | Assert | Print => Meaning::Elsewhere,
    }
}

fn undefined(kind: OpKind, elem: Elem) -> Fault {
    Fault::Invalid(format!("`{}` has no meaning on `{elem}`", kind.name()))
}

/// Applies an elementwise op to operands that its type rule accepts.
pub(super) fn apply(kind: OpKind, x: &[&Tile], result: &TileType) -> Result<Tile, Fault> {
    let (elem, out) = (x[0].elem, result.elem);
    let absent = || undefined(kind, elem);
    let bits: Vec<u64> = match meaning(kind) {
        Meaning::Unary { int, float } => match float {
            _ if elem.class() != Class::Float => {
                let f = int.ok_or_else(absent)?;
                map(x[0], |a| number::wrap(elem, f(number::int(elem, a), elem.bits())))
            }
            Some(Float1::Bits(f)) => map(x[0], |a| f(a, 1 << (elem.bits() - 1))),
            Some(Float1::Value(f, _)) if elem == Elem::F32 => map(x[0], |a| bits32(f(f32::from_bits(a as u32)))),
            Some(Float1::Value(_, f)) => map(x[0], |a| bits64(elem, f(number::widen(elem, a)))),
            None => return Err(absent()),
        },
        Meaning::Binary { .. } | Meaning::Compare { .. } => zip(x[0], x[1], binary(kind, elem)?),
        Meaning::Select => {
            (0..x[0].bits.len()).map(|i| if x[0].bits[i] != 0 { x[1].bits[i] } else { x[2].bits[i] }).collect()
        }
        Meaning::Fma => (0..x[0].bits.len()).map(|i| fma(elem, x[0].bits[i], x[1].bits[i], x[2].bits[i])).collect(),
        Meaning::Cast => map(x[0], |a| number::cast(elem, out, a)),
        Meaning::Bitcast => x[0].bits.clone(),
        Meaning::Elsewhere => return Err(absent()),
    };
    Ok(Tile::new(result, bits))
}

/// An op of two operands, or a comparison, on patterns of one element each.
pub(super) fn binary(kind: OpKind, elem: Elem) -> Result<Box<dyn Fn(u64, u64) -> u64>, Fault> {
    let wide = move |b| number::int(elem, b);
    let real = move |b| number::widen(elem, b);
    let single = |b| f32::from_bits(b as u32);
    Ok(match meaning(kind) {
        Meaning::Compare { float, .. } if elem.is_float() => Box::new(move |a, b| float(real(a), real(b)) as u64),
        Meaning::Compare { int, .. } => Box::new(move |a, b| int(wide(a), wide(b)) as u64),
        Meaning::Binary { float: Some(Float2(f, _)), .. } if elem == Elem::F32 => {
            Box::new(move |a, b| bits32(f(single(a), single(b))))
        }
        Meaning::Binary { float: Some(Float2(_, f)), .. } if elem.is_float() => {
            Box::new(move |a, b| bits64(elem, f(real(a), real(b))))
        }
        Meaning::Binary { int: Some(f), .. } if !elem.is_float() => {
            Box::new(move |a, b| number::wrap(elem, f(wide(a), wide(b), elem.bits())))
        }
        _ => return Err(undefined(kind, elem)),
    })
}

fn fma(elem: Elem, x: u64, y: u64, z: u64) -> u64 {
    match elem {
        Elem::F32 => bits32(f32::from_bits(x as u32).mul_add(f32::from_bits(y as u32), f32::from_bits(z as u32))),
        Elem::F64 => bits64(elem, f64::from_bits(x).mul_add(f64::from_bits(y), f64::from_bits(z))),
        _ => number::fma_small(elem, x, y, z),
    }
}

fn map(x: &Tile, f: impl Fn(u64) -> u64) -> Vec<u64> {
    x.bits.iter().map(|&a| f(a)).collect()
}
fn zip(x: &Tile, y: &Tile, f: Box<dyn Fn(u64, u64) -> u64>) -> Vec<u64> {
    x.bits.iter().zip(&y.bits).map(|(&a, &b)| f(a, b)).collect()
}

/// Which NaN arithmetic gives is unspecified; the oracle always gives the same one.
fn bits32(v: f32) -> u64 {
    if v.is_nan() { f32::NAN.to_bits() as u64 } else { v.to_bits() as u64 }
}
fn bits64(elem: Elem, v: f64) -> u64 {
    number::round(elem, if v.is_nan() { f64::NAN } else { v })
}

/// In checked mode: the first lane whose integer division has no mathematical result in its type.
pub(super) fn check_division(kind: OpKind, x: &[&Tile]) -> Result<(), Trap> {
    let elem = x[0].elem;
    if !matches!(kind, OpKind::Div | OpKind::Rem) || !elem.is_int() {
        return Ok(());
    }
    for i in 0..x[0].bits.len() {
        let (a, b) = (x[0].int(i), x[1].int(i));
        if b == 0 {
            return Err(Fault::DivisionByZero.at(x[0].index(i)));
        }
        if elem.is_signed() && b == -1 && a == -(1 << (elem.bits() - 1)) {
            return Err(Fault::DivisionOverflow.at(x[0].index(i)));
        }
    }
    Ok(())
}
