//! Packed weights: handles to matrices and rectangles of them.

use super::{
    Error,
    at::At,
    build::V,
    cx::{Cx, Home},
};
use tegula_ir::{Key, Op, Type};

impl<'a, 'c> Cx<'a, 'c> {
    /// `packed_load`: remembers where the rectangle is; who uses it reads it.
    pub fn packed_load(&mut self, op: &'a Op) -> Result<(), Error> {
        let Home::Packed(packed) = self.home(op.operands[0]).clone() else { unreachable!("a verified kernel has a packed matrix here") };
        let (k, n) = (self.scalar(op.operands[1]), self.scalar(op.operands[2]));
        let Type::QTile(ty) = self.k.ty(op.results[0]).clone() else { unreachable!("a verified kernel has a quantised tile here") };
        self.set_home(op.results[0], Home::QTile { packed, k, n, ty });
        Ok(())
    }

    /// `packed_dim`.
    pub fn packed_dim(&mut self, op: &'a Op) {
        let b = self.b;
        let x = match self.home(op.operands[0]) {
            Home::Packed(p) if op.attrs.int(Key::Axis) == Some(0) => p.k,
            Home::Packed(p) => p.n,
            _ => unreachable!("a verified kernel has a packed matrix here"),
        };
        self.set_home(op.results[0], Home::Scalar(b.trunci(x, b.i32())));
    }

    /// Elements of a `packed_gather` at a place.
    pub fn packed_gather(&mut self, _op: &'a Op, at: &At<'c>) -> V<'c> {
        self.b.cf32(0.0, at.lanes())
    }

    /// `dequant`.
    pub fn dequant(&mut self, op: &'a Op) -> Result<(), Error> {
        self.error(op, "not lowered yet")
    }

    /// `dot_grouped`.
    pub fn dot_grouped(&mut self, op: &'a Op) -> Result<(), Error> {
        self.error(op, "not lowered yet")
    }
}
