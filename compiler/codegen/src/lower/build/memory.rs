//! Memory: pointers, loads and stores of scalars and vectors, atomics.

use super::{Build, V};
use melior::ir::{
    Attribute, Type, ValueLike,
    attribute::{DenseI32ArrayAttribute, TypeAttribute},
};

impl<'c> Build<'c> {
    /// `base + index` in elements of type `elem`; index is i64.
    pub fn gep(&self, base: V<'c>, elem: Type<'c>, index: V<'c>) -> V<'c> {
        let dynamic = DenseI32ArrayAttribute::new(self.context, &[i32::MIN]);
        let attributes: [(&str, Attribute); 2] =
            [("rawConstantIndices", dynamic.into()), ("elem_type", TypeAttribute::new(elem).into())];
        self.op("llvm.getelementptr", &[base, index], base.r#type(), &attributes)
    }
    /// A vector of pointers: `base + index` for each lane of the i64 vector `index`.
    pub fn gep_lanes(&self, base: V<'c>, elem: Type<'c>, index: V<'c>) -> V<'c> {
        let dynamic = DenseI32ArrayAttribute::new(self.context, &[i32::MIN]);
        let attributes: [(&str, Attribute); 2] =
            [("rawConstantIndices", dynamic.into()), ("elem_type", TypeAttribute::new(elem).into())];
        let ty = self.vec(self.ptr(), self.lanes(index));
        self.op("llvm.getelementptr", &[base, index], ty, &attributes)
    }
    /// `base + bytes`.
    pub fn offset(&self, base: V<'c>, bytes: V<'c>) -> V<'c> {
        self.gep(base, self.i8(), bytes)
    }
    /// `base + bytes`, a constant.
    pub fn offset_c(&self, base: V<'c>, bytes: i64) -> V<'c> {
        if bytes == 0 { base } else { self.gep(base, self.i8(), self.c64(bytes)) }
    }
    /// An address as a pointer.
    pub fn int_to_ptr(&self, address: V<'c>) -> V<'c> {
        self.op("llvm.inttoptr", &[address], self.ptr(), &[])
    }
    /// A pointer as an address.
    pub fn ptr_to_int(&self, p: V<'c>) -> V<'c> {
        self.op("llvm.ptrtoint", &[p], self.i64(), &[])
    }

    /// Loads a scalar (0 lanes) or that many consecutive elements; the address is a multiple of `align` bytes.
    pub fn load(&self, p: V<'c>, elem: Type<'c>, lanes: usize, align: usize) -> V<'c> {
        let ty = self.vec(elem, lanes);
        self.op("llvm.load", &[p], ty, &[("alignment", self.int_attr(64, align as i64))])
    }
    /// Stores a scalar or a vector; the address is a multiple of `align` bytes.
    pub fn store(&self, v: V<'c>, p: V<'c>, align: usize) {
        self.op0("llvm.store", &[v, p], &[("alignment", self.int_attr(64, align as i64))]);
    }
    /// Stores around the caches: for data that is not read again soon. The address must be a multiple of the vector's size
    /// for it to have effect.
    pub fn store_streaming(&self, v: V<'c>, p: V<'c>, align: usize) {
        let attributes =
            [("alignment", self.int_attr(64, align as i64)), ("nontemporal", Attribute::unit(self.context))];
        self.op0("llvm.store", &[v, p], &attributes);
    }
    /// Loads the lanes whose mask is set, the others are those of `rest`; touches no memory of the others.
    pub fn masked_load(&self, p: V<'c>, mask: V<'c>, rest: V<'c>, align: usize) -> V<'c> {
        let ty = self.vec(self.elem(rest), self.lanes(rest));
        self.op("llvm.intr.masked.load", &[p, mask, rest], ty, &[("alignment", self.int_attr(32, align as i64))])
    }
    /// Stores the lanes whose mask is set.
    pub fn masked_store(&self, v: V<'c>, p: V<'c>, mask: V<'c>, align: usize) {
        self.op0("llvm.intr.masked.store", &[v, p, mask], &[("alignment", self.int_attr(32, align as i64))]);
    }
    /// Loads from a vector of pointers the lanes whose mask is set, the others are those of `rest`.
    pub fn masked_gather(&self, p: V<'c>, mask: V<'c>, rest: V<'c>, align: usize) -> V<'c> {
        let ty = self.vec(self.elem(rest), self.lanes(rest));
        self.op("llvm.intr.masked.gather", &[p, mask, rest], ty, &[("alignment", self.int_attr(32, align as i64))])
    }
    /// Stores the lanes whose mask is set to a vector of pointers, in order of lanes.
    pub fn masked_scatter(&self, v: V<'c>, p: V<'c>, mask: V<'c>, align: usize) {
        self.op0("llvm.intr.masked.scatter", &[v, p, mask], &[("alignment", self.int_attr(32, align as i64))]);
    }
    /// Hints that the line at `p` is read soon. `locality` 3 keeps it in all caches, 0 in none.
    pub fn prefetch(&self, p: V<'c>, locality: i64) {
        self.hint(p, 0, locality);
    }
    /// Hints that the line at `p` is written soon.
    pub fn prefetch_to_write(&self, p: V<'c>, locality: i64) {
        self.hint(p, 1, locality);
    }
    fn hint(&self, p: V<'c>, write: i64, locality: i64) {
        let attributes =
            [("rw", self.int_attr(32, write)), ("hint", self.int_attr(32, locality)), ("cache", self.int_attr(32, 1))];
        self.op0("llvm.intr.prefetch", &[p], &attributes);
    }
    /// Copies a constant number of bytes between places that do not overlap.
    pub fn copy(&self, to: V<'c>, from: V<'c>, bytes: usize) {
        let volatile = self.int_attr(1, 0);
        self.op0("llvm.intr.memcpy", &[to, from, self.c64(bytes as i64)], &[("isVolatile", volatile)]);
    }
    /// Fills a constant number of bytes.
    pub fn fill(&self, to: V<'c>, byte: u8, bytes: usize) {
        let value = self.c(self.i8(), byte.into());
        self.op0("llvm.intr.memset", &[to, value, self.c64(bytes as i64)], &[("isVolatile", self.int_attr(1, 0))]);
    }
    /// Stack memory of a constant size, reserved at the function's start.
    pub fn stack(&self, bytes: usize, align: usize) -> V<'c> {
        self.at_level(0, || {
            let attributes: [(&str, Attribute); 2] =
                [("elem_type", TypeAttribute::new(self.i8()).into()), ("alignment", self.int_attr(64, align as i64))];
            self.op("llvm.alloca", &[self.c64(bytes as i64)], self.ptr(), &attributes)
        })
    }

    /// Atomic read-modify-write of a scalar; gives the old value. `kind` and `order` are numbers of MLIR's enums.
    pub fn atomic_rmw(&self, kind: i64, p: V<'c>, v: V<'c>, order: i64, align: usize) -> V<'c> {
        let attributes = [
            ("bin_op", self.int_attr(64, kind)),
            ("ordering", self.int_attr(64, order)),
            ("alignment", self.int_attr(64, align as i64)),
        ];
        self.op("llvm.atomicrmw", &[p, v], self.elem(v), &attributes)
    }
    /// Compare and swap of a scalar integer; gives the old value and whether it was swapped.
    pub fn atomic_cas(
        &self,
        p: V<'c>,
        expected: V<'c>,
        new: V<'c>,
        orders: (i64, i64),
        align: usize,
    ) -> (V<'c>, V<'c>) {
        let attributes = [
            ("success_ordering", self.int_attr(64, orders.0)),
            ("failure_ordering", self.int_attr(64, orders.1)),
            ("alignment", self.int_attr(64, align as i64)),
        ];
        let elem = self.elem(expected);
        let pair = melior::dialect::llvm::r#type::r#struct(self.context, &[elem, self.i1()], false);
        let r = self.op("llvm.cmpxchg", &[p, expected, new], pair, &attributes);
        let field = |i, ty| {
            let at = melior::ir::attribute::DenseI64ArrayAttribute::new(self.context, &[i]);
            self.op("llvm.extractvalue", &[r], ty, &[("position", at.into())])
        };
        (field(0, elem), field(1, self.i1()))
    }
    /// Calls a C function through a pointer; no result.
    pub fn call_pointer(&self, function: V<'c>, args: &[V<'c>]) {
        let mut operands = vec![function];
        operands.extend(args);
        let sizes = DenseI32ArrayAttribute::new(self.context, &[operands.len() as i32, 0]);
        let none = DenseI32ArrayAttribute::new(self.context, &[]);
        self.op0("llvm.call", &operands, &[("operandSegmentSizes", sizes.into()), ("op_bundle_sizes", none.into())]);
    }
}
