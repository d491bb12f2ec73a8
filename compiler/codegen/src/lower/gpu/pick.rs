//! By index within a tile: `take` and `histogram`.

use super::{
    super::{
        build::{Cmp, V},
        cpu::reduce::axis_of,
        machine::carrier,
    },
    Error,
    asm::ptx,
    cx::{Cx, Regs},
    stage::Staged,
};
use tegula_ir::{Elem, Key, Op, protocol::SiteKind};

impl<'a, 'c> Cx<'a, 'c> {
    /// An index of any integer type as i64.
    fn wide(&self, x: V<'c>, e: Elem) -> V<'c> {
        if e.is_signed() { self.b.sext(x, self.b.i64()) } else { self.b.zext(x, self.b.i64()) }
    }

    /// `take`.
    pub fn take(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, axis, v) = (self.b, axis_of(op), op.results[0]);
        let index_type = self.elem(op.operands[1]);
        // Before the other tile: both may need shared memory.
        let source = self.convert_to(op, op.operands[1], v);
        let staged = self.staged(op, &[op.operands[0]])[0].clone();
        let n = staged.shape[axis] as i64;
        let mut regs: Regs = vec![];
        for (piece, indices) in self.pieces(v).iter().zip(&source) {
            let mut own = vec![];
            for (r, raw) in indices.iter().enumerate() {
                let index = self.wide(*raw, index_type);
                let ok = b.cmp(Cmp::Ult, index, b.c64(n));
                if self.checked {
                    let mut bad = b.not(ok);
                    if let Some(owner) = self.is_owner(&piece.layout) {
                        bad = b.and(bad, owner);
                    }
                    let message = format!("index outside a tile along axis {axis}");
                    self.report_if(op, SiteKind::Index, &message, bad, index);
                }
                let index = b.trunci(b.select(ok, index, b.c64(0)), b.i32());
                let mut flat = b.mul_c(index, staged.strides[axis] as i64);
                for d in (0..staged.shape.len()).filter(|d| *d != axis) {
                    let c = self.index(piece, d, r);
                    flat = b.add(flat, b.mul_c(c, staged.strides[d] as i64));
                }
                let zero = b.constant_bits(carrier(b, staged.elem), 0, 0);
                own.push(b.select(ok, self.staged_at(&staged, flat), zero));
            }
            regs.push(own);
        }
        self.set_regs(v, regs)
    }

    /// `histogram`: counters in shared memory.
    pub fn histogram(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, v) = (self.b, op.results[0]);
        let bins = self.tile(v).shape[0];
        let values = op.operands[0];
        // Before the counters: both may need shared memory.
        let mask = op.attrs.has(Key::Masked).then(|| self.convert_to(op, op.operands[1], values));
        let counters = Staged { base: self.shared, elem: Elem::I32, shape: vec![bins], strides: vec![1] };
        self.begin_shared(bins * 4, op);
        self.fill_up(0, bins * 4);
        self.each_of(bins, &mut |cx, i| cx.put_staged(&counters, i, b.c32(0)));
        self.barrier();
        let e = self.elem(values);
        let regs = self.regs(values);
        for (p, piece) in self.pieces(values).iter().enumerate() {
            let owner = self.is_owner(&piece.layout);
            for (r, x) in regs[p].iter().enumerate() {
                let i = self.wide(*x, e);
                let mut ok = b.cmp(Cmp::Ult, i, b.c64(bins as i64));
                for also in mask.as_ref().map(|m| m[p][r]).into_iter().chain(owner) {
                    ok = b.and(ok, also);
                }
                let at = b.gep(self.shared, b.i32(), b.select(ok, i, b.c64(0)));
                ptx(b, "@$1 red.shared.relaxed.cta.add.u32 [$0], 1;", "r,b", &[at, ok], None);
            }
        }
        self.shared_written();
        let pieces = self.pieces(v);
        let regs = self.read_staged(&counters, &pieces);
        self.set_regs(v, regs)
    }
}
