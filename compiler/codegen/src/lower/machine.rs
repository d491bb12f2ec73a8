//! How elements are held: in registers ([`carrier`]) and in memory ([`memory_type`]).
//!
//! f16 is held as itself, bf16 and the 8-bit floats as integers of their width (arithmetic goes through f32), bool as i1;
//! in memory a bool is a byte, and any non-zero byte is true.

use super::build::{Build, Cmp, V};
use melior::ir::Type;
use tegula_ir::Elem;

/// The type of an element in a register.
pub fn carrier<'c>(b: &Build<'c>, e: Elem) -> Type<'c> {
    match e {
        Elem::F64 => b.f64(),
        Elem::F32 => b.f32(),
        Elem::F16 => b.f16(),
        e => b.int(e.bits()),
    }
}

/// The type of an element in memory.
pub fn memory_type<'c>(b: &Build<'c>, e: Elem) -> Type<'c> {
    if e == Elem::Bool { b.i8() } else { carrier(b, e) }
}

/// From memory form to register form.
pub fn from_memory<'c>(b: &Build<'c>, x: V<'c>, e: Elem) -> V<'c> {
    if e == Elem::Bool { b.cmp(Cmp::Ne, x, b.int_like(x, 0)) } else { x }
}

/// From register form to memory form.
pub fn to_memory<'c>(b: &Build<'c>, x: V<'c>, e: Elem) -> V<'c> {
    if e == Elem::Bool { b.zext(x, b.i8()) } else { x }
}

/// Loads elements.
pub fn load<'c>(b: &Build<'c>, p: V<'c>, e: Elem, lanes: usize) -> V<'c> {
    from_memory(b, b.load(p, memory_type(b, e), lanes, e.bytes()), e)
}

/// Stores elements.
pub fn store<'c>(b: &Build<'c>, x: V<'c>, p: V<'c>, e: Elem) {
    b.store(to_memory(b, x, e), p, e.bytes());
}
