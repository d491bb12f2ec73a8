//! Atomics, as inline PTX: LLVM's own lose order and scope.
//!
//! Integer operations of 32 and 64 bits, and f64 addition, are instructions. Everything else computes and compares and
//! swaps until nobody came between: narrow types, maxima of floats (whose NaN rules differ), and f32 addition, whose
//! instruction flushes subnormal numbers (it is used where `fast` allows that).

use super::{
    super::{
        build::{Cmp, V},
        machine::{carrier, from_memory, memory_type, to_memory},
    },
    Error,
    asm::ptx,
    cx::{Cx, Regs},
    elementwise::accumulate,
};
use tegula_ir::{AtomicKind, Class, Elem, Key, MemOrder, Op, OpKind};

fn order_of(op: &Op) -> MemOrder {
    op.attrs.sym(Key::Order).and_then(MemOrder::from_name).unwrap_or(MemOrder::AcqRel)
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `atomic` and `atomic_cas`.
    pub fn atomic(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, view, result) = (self.b, self.view(op.operands[0]), op.results[0]);
        let rank = view.extents.len();
        let (e, order) = (view.elem, order_of(op));
        let swaps = op.kind == OpKind::AtomicCas;
        let named = self.named(op, &view, if swaps { 2 } else { 1 });
        self.before_write(&view, None);
        // What other threads of the block did before a release belongs to it.
        if matches!(order, MemOrder::Release | MemOrder::AcqRel) {
            self.barrier();
            self.before_write(&view, None);
        }
        let x = self.regs(op.operands[1 + rank]);
        let new = swaps.then(|| self.regs(op.operands[2 + rank]));
        let pieces = self.pieces(result);
        let mut regs: Regs = vec![];
        for (p, piece) in pieces.iter().enumerate() {
            let owner = self.is_owner(&piece.layout);
            let mut own = vec![];
            for (r, (offset, ok)) in named[p].iter().enumerate() {
                let ok = owner.map_or(*ok, |o| b.and(o, *ok));
                let at = b.gep(view.base, memory_type(b, e), *offset);
                let zero = b.constant_bits(carrier(b, e), 0, 0);
                let old = b.if_(
                    ok,
                    &[carrier(b, e)],
                    || {
                        vec![match &new {
                            Some(new) => self.swap(order, at, x[p][r], new[p][r], e),
                            None => self.modify(op, order, at, x[p][r], e),
                        }]
                    },
                    || vec![zero],
                )[0];
                own.push(old);
            }
            regs.push(own);
        }
        if matches!(order, MemOrder::Acquire | MemOrder::AcqRel) {
            self.barrier();
        }
        // Owners have the old values: their copies get them from there.
        if self.is_used(result) && pieces.iter().any(|p| p.layout.redundant_threads() != 0) {
            let staged = self.staged_regs(op, result, &regs);
            regs = self.read_staged(&staged, &pieces);
        }
        self.set_regs(result, regs)
    }

    /// An element as the integer that memory holds.
    fn raw(&self, x: V<'c>, e: Elem) -> V<'c> {
        self.b.bitcast(to_memory(self.b, x, e), self.b.int(e.bytes() as u32 * 8))
    }
    fn cooked(&self, x: V<'c>, e: Elem) -> V<'c> {
        from_memory(self.b, self.b.bitcast(x, memory_type(self.b, e)), e)
    }

    /// Compare and swap: the old value.
    fn swap(&self, order: MemOrder, p: V<'c>, expected: V<'c>, new: V<'c>, e: Elem) -> V<'c> {
        let b = self.b;
        let (expected, new) = (self.raw(expected, e), self.raw(new, e));
        if e.bytes() > 1 {
            return self.cooked(self.compare_and_swap(order, p, expected, new), e);
        }
        // Another byte of the word may change meanwhile: only a byte that differs ends it.
        let old = self.in_word(order, p, |old| {
            let same = b.cmp(Cmp::Eq, old, expected);
            (b.select(same, new, old), same)
        });
        self.cooked(old, e)
    }

    /// `cas` of an integer of 16, 32 or 64 bits.
    fn compare_and_swap(&self, order: MemOrder, p: V<'c>, expected: V<'c>, new: V<'c>) -> V<'c> {
        let b = self.b;
        let (bits, c) = (b.bits(new), register(b.bits(new)));
        let text = format!("atom.{}.gpu.global.cas.b{bits} $0, [$1], $2, $3;", order.name());
        ptx(b, &text, &format!("={c},l,{c},{c}"), &[p, expected, new], Some(b.int(bits)))[0]
    }

    /// Read-modify-write: the old value.
    fn modify(&self, op: &Op, order: MemOrder, p: V<'c>, x: V<'c>, e: Elem) -> V<'c> {
        let b = self.b;
        let kind = op.attrs.sym(Key::Kind).and_then(AtomicKind::from_name).unwrap_or(AtomicKind::Xchg);
        let bits = e.bytes() as u32 * 8;
        let sign = if e.is_signed() { "s" } else { "u" };
        let direct = match (kind, e.class()) {
            _ if bits < 32 => None,
            (AtomicKind::Xchg, _) => Some(format!("exch.b{bits}")),
            (AtomicKind::Add, Class::Float) if bits == 64 || op.attrs.has(Key::Fast) => Some(format!("add.f{bits}")),
            (_, Class::Float) => None,
            (AtomicKind::Add, _) => Some(format!("add.u{bits}")),
            (AtomicKind::And, _) => Some(format!("and.b{bits}")),
            (AtomicKind::Or, _) => Some(format!("or.b{bits}")),
            (AtomicKind::Xor, _) => Some(format!("xor.b{bits}")),
            (AtomicKind::Max, _) => Some(format!("max.{sign}{bits}")),
            (AtomicKind::Min, _) => Some(format!("min.{sign}{bits}")),
        };
        if let Some(what) = direct {
            let text = format!("atom.{}.gpu.global.{what} $0, [$1], $2;", order.name());
            // Float instructions want float registers.
            let (c, v, ty) = match what.contains(".f") {
                true => (if bits == 64 { "d" } else { "f" }, x, carrier(b, e)),
                false => (register(bits), self.raw(x, e), b.int(bits)),
            };
            let old = ptx(b, &text, &format!("={c},l,{c}"), &[p, v], Some(ty))[0];
            return self.cooked(b.bitcast(old, b.int(bits)), e);
        }
        let next = |old: V<'c>| self.raw(self.combined(kind, e, self.cooked(old, e), x), e);
        if bits == 8 {
            return self.cooked(self.in_word(order, p, |old| (next(old), b.cbool(true))), e);
        }
        let c = register(bits);
        let text = format!("ld.relaxed.gpu.global.b{bits} $0, [$1];");
        let first = ptx(b, &text, &format!("={c},l"), &[p], Some(b.int(bits)))[0];
        let last = b.while_(
            &[first, b.cbool(true)],
            |v| v[1],
            |v| {
                let seen = self.compare_and_swap(order, p, v[0], next(v[0]));
                vec![seen, b.cmp(Cmp::Ne, seen, v[0])]
            },
        );
        self.cooked(last[0], e)
    }

    /// What is stored.
    fn combined(&self, kind: AtomicKind, e: Elem, old: V<'c>, x: V<'c>) -> V<'c> {
        let b = self.b;
        match (kind, e.class()) {
            (AtomicKind::Xchg, _) => x,
            (_, Class::Float) => accumulate(b, kind, e, old, x),
            (AtomicKind::Add, _) => b.add(old, x),
            (AtomicKind::And, _) => b.and(old, x),
            (AtomicKind::Or, _) => b.or(old, x),
            (AtomicKind::Xor, _) => b.xor(old, x),
            (AtomicKind::Max, Class::Signed) => b.maxs(old, x),
            (AtomicKind::Max, _) => b.maxu(old, x),
            (AtomicKind::Min, Class::Signed) => b.mins(old, x),
            (AtomicKind::Min, _) => b.minu(old, x),
        }
    }

    /// An atomic on a byte, by its aligned word. `next` gives the byte to store and whether to store it at all.
    fn in_word(&self, order: MemOrder, p: V<'c>, next: impl Fn(V<'c>) -> (V<'c>, V<'c>)) -> V<'c> {
        let b = self.b;
        let address = b.ptr_to_int(p);
        let word = b.op("llvm.inttoptr", &[b.and_c(address, !3)], b.ptr_in(1), &[]);
        let shift = b.shl_c(b.and_c(b.trunci(address, b.i32()), 3), 3);
        let first = ptx(b, "ld.relaxed.gpu.global.b32 $0, [$1];", "=r,l", &[word], Some(b.i32()))[0];
        let byte = |w: V<'c>| b.trunci(b.shru(w, shift), b.i8());
        let hole = b.not(b.shl(b.c32(0xff), shift));
        let last = b.while_(
            &[first, b.cbool(true)],
            |v| v[1],
            |v| {
                let (new, wanted) = next(byte(v[0]));
                let full = b.or(b.and(v[0], hole), b.shl(b.zext(new, b.i32()), shift));
                let again = b.if_(
                    wanted,
                    &[b.i32(), b.i1()],
                    || {
                        let seen = self.compare_and_swap(order, word, v[0], full);
                        vec![seen, b.cmp(Cmp::Ne, seen, v[0])]
                    },
                    || vec![v[0], b.cbool(false)],
                );
                vec![again[0], again[1]]
            },
        );
        // A byte that was not wanted was only looked at.
        if matches!(order, MemOrder::Acquire | MemOrder::AcqRel) {
            ptx(b, "fence.acq_rel.gpu;", "", &[], None);
        }
        byte(last[0])
    }
}

fn register(bits: u32) -> &'static str {
    match bits {
        16 => "h",
        32 => "r",
        _ => "l",
    }
}
