//! Inline PTX: what LLVM cannot say or gets wrong.

use super::super::build::{Build, V};
use melior::ir::{Attribute, Type, attribute::StringAttribute};

/// Inline PTX with at most one result. Operands are `$0`, `$1`, … with the result first.
pub fn ptx<'c>(
    b: &Build<'c>,
    text: &str,
    constraints: &str,
    operands: &[V<'c>],
    result: Option<Type<'c>>,
) -> Vec<V<'c>> {
    let string = |s: &str| -> Attribute<'c> { StringAttribute::new(b.context, s).into() };
    let attributes = [
        ("asm_string", string(text)),
        ("constraints", string(constraints)),
        ("has_side_effects", Attribute::unit(b.context)),
        ("asm_dialect", b.int_attr(64, 0)),
    ];
    let results: Vec<Type<'c>> = result.into_iter().collect();
    b.op_n("llvm.inline_asm", operands, &results, &attributes, vec![])
}

/// How a value of that many bits is passed: constraint, PTX type, bits of the register.
fn class(bits: u32) -> (&'static str, &'static str, u32) {
    match bits {
        0..=8 => ("h", "b8", 16),
        9..=16 => ("h", "b16", 16),
        17..=32 => ("r", "b32", 32),
        _ => ("l", "b64", 64),
    }
}

/// The integer of `bits` at a global address where `ok` holds, else `otherwise`; touches no memory there.
pub fn load_if<'c>(b: &Build<'c>, p: V<'c>, ok: V<'c>, otherwise: V<'c>, bits: u32) -> V<'c> {
    let (c, ty, width) = class(bits);
    let text = format!("mov.b{width} $0, $3;\n\t@$2 ld.global.{ty} $0, [$1];");
    let wide = b.int(width);
    let got = ptx(b, &text, &format!("=&{c},l,b,{c}"), &[p, ok, b.zext(otherwise, wide)], Some(wide));
    b.trunci(got[0], b.int(bits))
}

/// Stores an integer at a global address where `ok` holds.
pub fn store_if<'c>(b: &Build<'c>, x: V<'c>, p: V<'c>, ok: V<'c>) {
    let (c, ty, width) = class(b.bits(x));
    ptx(b, &format!("@$2 st.global.{ty} [$1], $0;"), &format!("{c},l,b"), &[b.zext(x, b.int(width)), p, ok], None);
}
