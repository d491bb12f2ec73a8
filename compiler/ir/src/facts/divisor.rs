//! Divisibility: the largest number known to divide every element. 0 stands for "every number": the elements are zero.

use super::range::Range;
use crate::ops::OpKind::{self, *};

/// The greatest common divisor; 0 is its neutral element.
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A number that both divide a multiple of: the least common multiple, or the larger if that is too large.
pub(super) fn lcm(a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 {
        return 0;
    }
    (a / gcd(a, b)).checked_mul(b).unwrap_or(a.max(b))
}

/// The divisor of one value. The least i64 is divisible by 2^63.
pub(super) fn of(v: i128) -> u64 {
    u64::try_from(v.unsigned_abs()).unwrap_or(1 << 63)
}

/// What still divides a value of which only the low bits are kept: the power of two.
pub(super) fn wrapped(d: u64) -> u64 {
    d & d.wrapping_neg()
}

fn product(a: u64, b: u64) -> u64 {
    // The power of two survives whatever the product's size.
    a.checked_mul(b).unwrap_or_else(|| 1 << (a.trailing_zeros() + b.trailing_zeros()).min(63))
}

/// The divisor of an elementwise op's integer result before it wraps, from the operands' divisors `d` and ranges `r`.
pub(super) fn elementwise(kind: OpKind, bits: u32, d: &[u64], r: &[Range]) -> u64 {
    let amount = |r: Range| r.single().map(|v| v.rem_euclid(bits as i128) as u32);
    match (kind, d) {
        (Neg | Abs | Cast, &[a]) => a,
        (Bitcast, &[a]) => wrapped(a),
        (Add | Sub | Min | Max, &[a, b]) | (Rem, &[a, b]) => gcd(a, b),
        (Select, &[_, y, z]) => match r[0].single() {
            Some(1) => y,
            Some(_) => z,
            None => gcd(y, z),
        },
        (Mul, &[a, b]) => product(a, b),
        (Shl, &[a, _]) => match amount(r[1]) {
            Some(n) => product(a, 1 << n),
            None => wrapped(a),
        },
        (Shr, &[a, _]) => match amount(r[1]) {
            Some(n) if a.trailing_zeros() >= n => a >> n,
            _ => 1,
        },
        (Div, &[a, _]) => match r[1].single() {
            Some(0) => 0,
            Some(c) if a.is_multiple_of(of(c)) => a / of(c),
            _ => 1,
        },
        // The low bits that are zero in both, or in one.
        (And, &[a, b]) => {
            if a == 0 || b == 0 {
                0
            } else {
                wrapped(a).max(wrapped(b))
            }
        }
        (Or | Xor, &[a, b]) => wrapped(gcd(wrapped(a), wrapped(b))),
        _ => 1,
    }
}
