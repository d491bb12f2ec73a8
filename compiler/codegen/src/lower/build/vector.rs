//! Moving lanes.

use super::{Build, V};
use melior::ir::{
    Attribute, Type,
    attribute::{DenseI32ArrayAttribute, DenseI64ArrayAttribute},
};

impl<'c> Build<'c> {
    /// A scalar in every lane; itself for 0 lanes.
    pub fn splat(&self, x: V<'c>, lanes: usize) -> V<'c> {
        if lanes == 0 { x } else { self.op("vector.broadcast", &[x], self.vec(self.elem(x), lanes), &[]) }
    }
    /// Lane `i`, a constant.
    pub fn extract(&self, x: V<'c>, i: usize) -> V<'c> {
        let at = DenseI64ArrayAttribute::new(self.context, &[i as i64]);
        self.op("vector.extract", &[x], self.elem(x), &[("static_position", at.into())])
    }
    /// x with lane `i`, a constant, replaced.
    pub fn insert(&self, x: V<'c>, lane: V<'c>, i: usize) -> V<'c> {
        let at = DenseI64ArrayAttribute::new(self.context, &[i as i64]);
        let ty = self.vec(self.elem(x), self.lanes(x));
        self.op("vector.insert", &[lane, x], ty, &[("static_position", at.into())])
    }
    /// Lanes of x followed by lanes of y, picked by constant indices.
    pub fn shuffle(&self, x: V<'c>, y: V<'c>, indices: &[usize]) -> V<'c> {
        let mask: Vec<i64> = indices.iter().map(|i| *i as i64).collect();
        let mask: Attribute = DenseI64ArrayAttribute::new(self.context, &mask).into();
        self.op("vector.shuffle", &[x, y], self.vec(self.elem(x), indices.len()), &[("mask", mask)])
    }
    /// `lanes` lanes of x from `start`.
    pub fn part(&self, x: V<'c>, start: usize, lanes: usize) -> V<'c> {
        self.shuffle(x, x, &(start..start + lanes).collect::<Vec<_>>())
    }
    /// The lanes of x, then the lanes of y.
    pub fn concat(&self, x: V<'c>, y: V<'c>) -> V<'c> {
        self.shuffle(x, y, &(0..self.lanes(x) + self.lanes(y)).collect::<Vec<_>>())
    }
    /// A vector of given scalars.
    pub fn gather_lanes(&self, lanes: &[V<'c>]) -> V<'c> {
        self.op("vector.from_elements", lanes, self.vec(self.elem(lanes[0]), lanes.len()), &[])
    }
    /// The same bits as lanes of another element type; the total width stays.
    pub fn recast(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        let lanes = self.lanes(x) * self.bits(x) as usize / super::bits_of(elem) as usize;
        self.op("vector.bitcast", &[x], self.vec(elem, lanes), &[])
    }
    /// A vector of i1 as an integer of as many bits, lane 0 lowest.
    pub fn mask_bits(&self, mask: V<'c>) -> V<'c> {
        self.op("llvm.bitcast", &[mask], self.int(self.lanes(mask) as u32), &[])
    }
    /// Whether every lane of an i1 vector (or scalar) is set.
    pub fn all(&self, mask: V<'c>) -> V<'c> {
        if self.lanes(mask) == 0 { mask } else { self.reduce_bits(mask, "and") }
    }
    /// Whether any lane of an i1 vector (or scalar) is set.
    pub fn any(&self, mask: V<'c>) -> V<'c> {
        if self.lanes(mask) == 0 { mask } else { self.reduce_bits(mask, "or") }
    }
    fn reduce_bits(&self, mask: V<'c>, how: &str) -> V<'c> {
        let op = format!("llvm.intr.vector.reduce.{how}");
        self.op(&op, &[mask], self.i1(), &[])
    }
    #[doc(hidden)]
    pub fn i32_array(&self, v: &[i32]) -> Attribute<'c> {
        DenseI32ArrayAttribute::new(self.context, v).into()
    }
}
