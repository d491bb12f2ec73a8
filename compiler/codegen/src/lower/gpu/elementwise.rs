//! Elementwise ops on registers.
//!
//! Floats below f32 are computed in f32 and rounded: for + − × ÷ √ and everything exact that gives the correctly rounded
//! result, as f32 has more than twice their digits. `fma` does not fit that rule and has code of its own.

use super::{
    super::{
        arith::{float_compare, integer, keep_nan},
        build::{Build, Cmp, V},
        convert::{self, narrow, widen},
        machine::carrier,
    },
    Error,
    cx::{Cx, Regs},
    fmod, math,
};
use tegula_ir::{AtomicKind, Elem, Op, OpKind, protocol::SiteKind};

impl<'a, 'c> Cx<'a, 'c> {
    /// Any elementwise op: register by register.
    pub fn elementwise(&mut self, op: &'a Op) -> Result<(), Error> {
        let v = op.results[0];
        let (from, to): (Vec<Elem>, Elem) = (op.operands.iter().map(|v| self.elem(*v)).collect(), self.elem(v));
        let operands: Vec<Regs> = op.operands.iter().map(|v| self.regs(*v)).collect();
        let Some(first) = operands.first() else { return self.error(op, "has no code on GPUs") };
        let divides = self.checked && matches!(op.kind, OpKind::Div | OpKind::Rem) && !from[0].is_float();
        let pieces = if divides { self.pieces(v) } else { vec![] };
        let mut regs = vec![];
        for (p, piece) in first.iter().enumerate() {
            // In a combiner each thread has elements of its own, though its values look like scalars.
            let owner = pieces.get(p).filter(|_| !self.in_combiner).and_then(|p| self.is_owner(&p.layout));
            let mut own = vec![];
            for r in 0..piece.len() {
                let x: Vec<V> = operands.iter().map(|o| o[p][r]).collect();
                if divides {
                    self.check_division(op, from[0], &x, owner);
                }
                own.push(self.apply(op, &from, to, &x));
            }
            regs.push(own);
        }
        self.set_regs(v, regs)
    }

    /// An elementwise op on scalars.
    fn apply(&self, op: &Op, from: &[Elem], to: Elem, x: &[V<'c>]) -> V<'c> {
        let b = self.b;
        match op.kind {
            OpKind::Cast => convert::cast(b, x[0], from[0], to),
            OpKind::Bitcast => b.bitcast(x[0], carrier(b, to)),
            OpKind::Select => b.select(x[0], x[1], x[2]),
            OpKind::MultipleOf => x[0],
            kind if from[0].is_float() => float(b, kind, from[0], x),
            OpKind::Div | OpKind::Rem => divide(b, op.kind, from[0], x[0], x[1]),
            kind => integer(b, kind, from[0], x),
        }
    }

    /// Checked launches report divisions by zero and MIN / −1; the value is the divisor. Of threads with copies `owner`
    /// tells which one reports.
    fn check_division(&mut self, op: &Op, e: Elem, x: &[V<'c>], owner: Option<V<'c>>) {
        let b = self.b;
        let mut bad = b.cmp(Cmp::Eq, x[1], b.int_like(x[1], 0));
        if e.is_signed() {
            let overflow = b.and(b.cmp(Cmp::Eq, x[0], least(b, e)), b.cmp(Cmp::Eq, x[1], b.int_like(x[1], -1)));
            bad = b.or(bad, overflow);
        }
        let bad = owner.map_or(bad, |o| b.and(o, bad));
        let value = b.zext(x[1], b.i64());
        self.report_if(op, SiteKind::Division, "integer division by zero or overflow", bad, value);
    }
}

/// An op on floats.
pub fn float<'c>(b: &Build<'c>, kind: OpKind, e: Elem, x: &[V<'c>]) -> V<'c> {
    if let Some(how) = float_compare(kind) {
        return b.cmpf(how, widen(b, x[0], e), widen(b, x[1], e));
    }
    if e.bits() < 32 {
        let sign = 1i64 << (e.bits() - 1);
        let as_bits = |x| b.bitcast(x, b.int(e.bits()));
        return match kind {
            OpKind::Neg => b.bitcast(b.xor(as_bits(x[0]), b.int_like(as_bits(x[0]), sign)), carrier(b, e)),
            OpKind::Abs => b.bitcast(b.and(as_bits(x[0]), b.int_like(as_bits(x[0]), sign - 1)), carrier(b, e)),
            OpKind::Fma => convert::fma_small(b, e, x),
            _ => {
                let wide: Vec<V> = x.iter().map(|v| widen(b, *v, e)).collect();
                narrow(b, float(b, kind, Elem::F32, &wide), e)
            }
        };
    }
    match kind {
        OpKind::Neg => b.negf(x[0]),
        OpKind::Abs => b.absf(x[0]),
        OpKind::Sqrt => b.sqrt(x[0]),
        OpKind::Floor => b.floor(x[0]),
        OpKind::Ceil => b.ceil(x[0]),
        OpKind::Round => b.round_even(x[0]),
        OpKind::Add => b.addf(x[0], x[1]),
        OpKind::Sub => b.subf(x[0], x[1]),
        OpKind::Mul => b.mulf(x[0], x[1]),
        OpKind::Div => b.divf(x[0], x[1]),
        OpKind::Rem => fmod::fmod(b, x[0], x[1]),
        OpKind::Min => b.minnumf(x[0], x[1]),
        OpKind::Max => b.maxnumf(x[0], x[1]),
        OpKind::MinNan => keep_nan(b, x, b.minnumf(x[0], x[1])),
        OpKind::MaxNan => keep_nan(b, x, b.maxnumf(x[0], x[1])),
        OpKind::Fma => b.fma(x[0], x[1], x[2]),
        _ => math::apply(b, kind, e, x),
    }
}

fn least<'c>(b: &Build<'c>, e: Elem) -> V<'c> {
    b.constant_bits(carrier(b, e), 1 << (e.bits() - 1), 0)
}

/// x / 0 = 0, x % 0 = x, MIN / −1 = MIN: the divisor is made harmless first.
fn divide<'c>(b: &Build<'c>, kind: OpKind, e: Elem, x: V<'c>, y: V<'c>) -> V<'c> {
    let (zero, one) = (b.int_like(y, 0), b.int_like(y, 1));
    let by_zero = b.cmp(Cmp::Eq, y, zero);
    let mut unsafe_divisor = by_zero;
    if e.is_signed() {
        let overflow = b.and(b.cmp(Cmp::Eq, x, least(b, e)), b.cmp(Cmp::Eq, y, b.int_like(y, -1)));
        unsafe_divisor = b.or(by_zero, overflow);
    }
    let d = b.select(unsafe_divisor, one, y);
    match (kind, e.is_signed()) {
        (OpKind::Div, true) => b.select(by_zero, zero, b.divs(x, d)),
        (OpKind::Div, false) => b.select(by_zero, zero, b.divu(x, d)),
        (_, true) => b.select(by_zero, x, b.rems(x, d)),
        (_, false) => b.select(by_zero, x, b.remu(x, d)),
    }
}

/// What an atomic on floats stores: `old` with `x` added, or the larger or smaller of the two.
pub fn accumulate<'c>(b: &Build<'c>, kind: AtomicKind, e: Elem, old: V<'c>, x: V<'c>) -> V<'c> {
    let op = match kind {
        AtomicKind::Max => OpKind::Max,
        AtomicKind::Min => OpKind::Min,
        _ => OpKind::Add,
    };
    float(b, op, e, &[old, x])
}
