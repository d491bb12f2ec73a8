//! Values out of nothing.

use super::{
    super::{build::V, machine::carrier},
    Error,
    cx::Cx,
};
use tegula_ir::{Key, Op, OpKind};

impl<'a, 'c> Cx<'a, 'c> {
    /// `const`.
    pub fn constant(&mut self, op: &'a Op) -> Result<(), Error> {
        let v = op.results[0];
        let bits = op.attrs.scalar(Key::Value).map_or(0, |s| s.bits);
        let x = self.b.constant_bits(carrier(self.b, self.elem(v)), bits, 0);
        let regs = self.layout(v).0.iter().map(|l| vec![x; l.regs()]).collect();
        self.set_regs(v, regs)
    }

    /// `iota`.
    pub fn iota(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, v) = (self.b, op.results[0]);
        let ty = self.carrier(v);
        let mut regs = vec![];
        for piece in self.pieces(v) {
            let mut own: Vec<V> = vec![];
            for r in 0..piece.layout.regs() {
                let i = self.index(&piece, 0, r);
                own.push(if b.bits(b.c(ty, 0)) > 32 { b.zext(i, ty) } else { b.trunci(i, ty) });
            }
            regs.push(own);
        }
        self.set_regs(v, regs)
    }

    /// `program_id` and `num_programs`.
    pub fn grid(&mut self, op: &'a Op) -> Result<(), Error> {
        let axis = ["x", "y", "z"][op.attrs.int(Key::Axis).unwrap_or(0) as usize];
        let what = if op.kind == OpKind::ProgramId { "ctaid" } else { "nctaid" };
        let x = self.b.intrinsic(&format!("llvm.nvvm.read.ptx.sreg.{what}.{axis}"), &[], self.b.i32());
        self.set_regs(op.results[0], vec![vec![x]])
    }
}
