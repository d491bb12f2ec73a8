//! A kernel with its facts as comments: what golden tests compare and people read.

use super::{Facts, Range};
use crate::{
    kernel::{Kernel, Op, Value},
    types::Type,
};
use std::fmt::Write;

/// One line for every value and access of which more is known than its type says, in order:
/// `%7: 0..=63, multiple of 16, steps [0, 1]` and `load %9: inside [true, false], aligned to 16`.
pub fn show(kernel: &Kernel) -> String {
    let facts = Facts::of(kernel);
    let mut s = String::new();
    kernel.body.args.iter().for_each(|&v| line(&facts, v, &mut s));
    kernel.body.walk(&mut |op| show_op(&facts, op, &mut s));
    s
}

fn show_op(facts: &Facts, op: &Op, s: &mut String) {
    op.results.iter().for_each(|&v| line(facts, v, s));
    if let Some(a) = facts.accesses.get(&std::ptr::from_ref(op)) {
        let at = op.operands.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ");
        let run = if facts.contiguous(op) { ", contiguous" } else { "" };
        let _ = writeln!(s, "{} {at}: inside {:?}, aligned to {}{run}", op.kind.name(), a.inside, a.alignment);
    }
    op.regions.iter().flat_map(|r| &r.args).for_each(|&v| line(facts, v, s));
}

fn line(facts: &Facts, v: Value, s: &mut String) {
    let (Some(f), Type::Tile(t)) = (facts.get(v), facts.kernel.ty(v)) else { return };
    let mut parts = vec![];
    match f.range {
        Some(r) if Some(r) != Range::full(t.elem) => parts.push(match r.single() {
            Some(v) => format!("{v}"),
            None => format!("{}..={}", r.lo, r.hi),
        }),
        _ => {}
    }
    if f.divisor > 1 && f.range.is_some_and(|r| r.single().is_none()) {
        parts.push(format!("multiple of {}", f.divisor));
    }
    if f.first != f.divisor {
        parts.push(format!("rows start at multiples of {}", f.first));
    }
    if f.steps.iter().flatten().any(|step| step.by != 0) {
        let steps = f.steps.iter().map(|step| match step {
            Some(step) if step.bits == t.elem.bits() => step.by.to_string(),
            Some(step) => format!("{} mod 2^{}", step.by, step.bits),
            None => "?".into(),
        });
        parts.push(format!("steps [{}]", steps.collect::<Vec<_>>().join(", ")));
    }
    if !parts.is_empty() {
        let _ = writeln!(s, "%{}: {}", v.0, parts.join(", "));
    }
}
