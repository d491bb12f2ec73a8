//! Arithmetic on scalars and vectors. Operands of an op have one type; results too unless a type is given.

use super::{Build, V};
use melior::ir::{Attribute, Type, ValueLike};

/// Integer comparisons, with MLIR's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq = 0,
    Ne = 1,
    Slt = 2,
    Sle = 3,
    Sgt = 4,
    Sge = 5,
    Ult = 6,
    Ule = 7,
    Ugt = 8,
    Uge = 9,
}

/// Float comparisons, with MLIR's numbering: `O…` are false for NaN, `U…` true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FCmp {
    Oeq = 1,
    Ogt = 2,
    Oge = 3,
    Olt = 4,
    Ole = 5,
    One = 6,
    Ord = 7,
    Ueq = 8,
    Ugt = 9,
    Uge = 10,
    Ult = 11,
    Ule = 12,
    Une = 13,
    Uno = 14,
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $op:literal;)*) => {
        $($(#[$doc])* pub fn $name(&self, x: V<'c>, y: V<'c>) -> V<'c> { self.op($op, &[x, y], x.r#type(), &[]) })*
    };
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $op:literal;)*) => {
        $($(#[$doc])* pub fn $name(&self, x: V<'c>) -> V<'c> { self.op($op, &[x], x.r#type(), &[]) })*
    };
}

impl<'c> Build<'c> {
    binary! {
        /// x + y, integers.
        add "arith.addi";
        /// x − y, integers.
        sub "arith.subi";
        /// x · y, integers.
        mul "arith.muli";
        /// Signed quotient; undefined for a zero divisor and MIN/−1.
        divs "arith.divsi";
        /// Unsigned quotient; undefined for a zero divisor.
        divu "arith.divui";
        /// Signed remainder; undefined where `divs` is.
        rems "arith.remsi";
        /// Unsigned remainder; undefined for a zero divisor.
        remu "arith.remui";
        /// Bitwise and.
        and "arith.andi";
        /// Bitwise or.
        or "arith.ori";
        /// Bitwise exclusive or.
        xor "arith.xori";
        /// Shift left; the amount must be below the width.
        shl "arith.shli";
        /// Logical shift right; the amount must be below the width.
        shru "arith.shrui";
        /// Arithmetic shift right; the amount must be below the width.
        shrs "arith.shrsi";
        /// Signed minimum.
        mins "arith.minsi";
        /// Signed maximum.
        maxs "arith.maxsi";
        /// Unsigned minimum.
        minu "arith.minui";
        /// Unsigned maximum.
        maxu "arith.maxui";
        /// x + y, floats.
        addf "arith.addf";
        /// x − y, floats.
        subf "arith.subf";
        /// x · y, floats.
        mulf "arith.mulf";
        /// x / y, floats.
        divf "arith.divf";
        /// fmod.
        remf "arith.remf";
        /// The smaller; a NaN is ignored.
        minnumf "arith.minnumf";
        /// The larger; a NaN is ignored.
        maxnumf "arith.maxnumf";
        /// The smaller; a NaN is kept.
        minimumf "arith.minimumf";
        /// The larger; a NaN is kept.
        maximumf "arith.maximumf";
        /// Magnitude of x with the sign of y.
        copysign "math.copysign";
    }

    unary! {
        /// −x, floats.
        negf "arith.negf";
        /// |x|, floats.
        absf "math.absf";
        /// |x|, integers; the least stays itself.
        absi "math.absi";
        /// Square root.
        sqrt "math.sqrt";
        /// Largest integer not above.
        floor "math.floor";
        /// Smallest integer not below.
        ceil "math.ceil";
        /// Nearest integer, ties to even.
        round_even "math.roundeven";
        /// Towards zero.
        trunc "math.trunc";
        /// Leading zero bits.
        ctlz "math.ctlz";
    }

    /// x·y + z rounded once. (`vector.fma` may become two roundings.)
    pub fn fma(&self, x: V<'c>, y: V<'c>, z: V<'c>) -> V<'c> {
        self.op("math.fma", &[x, y, z], x.r#type(), &[])
    }
    /// Bitwise complement.
    pub fn not(&self, x: V<'c>) -> V<'c> {
        self.xor(x, self.int_like(x, -1))
    }
    /// Integer comparison: i1, or a vector of it.
    pub fn cmp(&self, how: Cmp, x: V<'c>, y: V<'c>) -> V<'c> {
        let ty = self.vec(self.i1(), self.lanes(x));
        self.op("arith.cmpi", &[x, y], ty, &[("predicate", self.int_attr(64, how as i64))])
    }
    /// Float comparison: i1, or a vector of it.
    pub fn cmpf(&self, how: FCmp, x: V<'c>, y: V<'c>) -> V<'c> {
        let ty = self.vec(self.i1(), self.lanes(x));
        self.op("arith.cmpf", &[x, y], ty, &[("predicate", self.int_attr(64, how as i64))])
    }
    /// x where the condition holds, else y. The condition is i1 or a vector of as many lanes.
    pub fn select(&self, condition: V<'c>, x: V<'c>, y: V<'c>) -> V<'c> {
        self.op("arith.select", &[condition, x, y], x.r#type(), &[])
    }
    /// x + constant.
    pub fn add_c(&self, x: V<'c>, c: i64) -> V<'c> {
        if c == 0 { x } else { self.add(x, self.int_like(x, c)) }
    }
    /// x · constant.
    pub fn mul_c(&self, x: V<'c>, c: i64) -> V<'c> {
        if c == 1 { x } else { self.mul(x, self.int_like(x, c)) }
    }
    /// x & constant.
    pub fn and_c(&self, x: V<'c>, c: i64) -> V<'c> {
        self.and(x, self.int_like(x, c))
    }
    /// x << constant.
    pub fn shl_c(&self, x: V<'c>, c: i64) -> V<'c> {
        if c == 0 { x } else { self.shl(x, self.int_like(x, c)) }
    }
    /// x >> constant, logical.
    pub fn shru_c(&self, x: V<'c>, c: i64) -> V<'c> {
        if c == 0 { x } else { self.shru(x, self.int_like(x, c)) }
    }
    /// Upper half of the unsigned product.
    pub fn umulhi(&self, x: V<'c>, y: V<'c>) -> V<'c> {
        let (bits, ty) = (self.bits(x), x.r#type());
        if bits == 64 {
            // The sum of cross products fits: standard schoolbook by 32-bit halves.
            let (xl, xh) = (self.and_c(x, 0xffff_ffff), self.shru_c(x, 32));
            let (yl, yh) = (self.and_c(y, 0xffff_ffff), self.shru_c(y, 32));
            let t = self.add(self.mul(xh, yl), self.shru_c(self.mul(xl, yl), 32));
            let u = self.add(self.mul(xl, yh), self.and_c(t, 0xffff_ffff));
            return self.add(self.mul(xh, yh), self.add(self.shru_c(t, 32), self.shru_c(u, 32)));
        }
        let wide = self.int(bits * 2);
        let p = self.mul(self.zext(x, wide), self.zext(y, wide));
        let high = self.shru_c(p, bits.into());
        self.op("arith.trunci", &[high], ty, &[])
    }

    fn convert(&self, op: &str, x: V<'c>, elem: Type<'c>) -> V<'c> {
        self.op(op, &[x], self.vec(elem, self.lanes(x)), &[])
    }
    /// Zero extension to the element type `elem`.
    pub fn zext(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        if self.elem(x) == elem { x } else { self.convert("arith.extui", x, elem) }
    }
    /// Sign extension.
    pub fn sext(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        if self.elem(x) == elem { x } else { self.convert("arith.extsi", x, elem) }
    }
    /// Low bits.
    pub fn trunci(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        if self.elem(x) == elem { x } else { self.convert("arith.trunci", x, elem) }
    }
    /// Wider float.
    pub fn extf(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        if self.elem(x) == elem { x } else { self.convert("arith.extf", x, elem) }
    }
    /// Narrower float, rounded to nearest even.
    pub fn truncf(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        if self.elem(x) == elem { x } else { self.convert("arith.truncf", x, elem) }
    }
    /// Signed integer to float.
    pub fn sitofp(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        self.convert("arith.sitofp", x, elem)
    }
    /// Unsigned integer to float.
    pub fn uitofp(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        self.convert("arith.uitofp", x, elem)
    }
    /// Float to signed integer; undefined outside its range.
    pub fn fptosi(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        self.convert("arith.fptosi", x, elem)
    }
    /// The same bits under another element type of the same width.
    pub fn bitcast(&self, x: V<'c>, elem: Type<'c>) -> V<'c> {
        if self.elem(x) == elem { x } else { self.convert("arith.bitcast", x, elem) }
    }

    /// An LLVM intrinsic by name, as `llvm.x86.avx2.pmadd.ub.sw`.
    pub fn intrinsic(&self, name: &str, operands: &[V<'c>], result: Type<'c>) -> V<'c> {
        self.intrinsic_n(name, operands, &[result])[0]
    }
    /// An LLVM intrinsic with results of these types (none or one).
    pub fn intrinsic_n(&self, name: &str, operands: &[V<'c>], results: &[Type<'c>]) -> Vec<V<'c>> {
        let text = melior::ir::attribute::StringAttribute::new(self.context, name).into();
        let sizes = melior::ir::attribute::DenseI32ArrayAttribute::new(self.context, &[operands.len() as i32, 0]);
        let none = melior::ir::attribute::DenseI32ArrayAttribute::new(self.context, &[]);
        let attributes: [(&str, Attribute); 3] =
            [("intrin", text), ("operandSegmentSizes", sizes.into()), ("op_bundle_sizes", none.into())];
        self.op_n("llvm.call_intrinsic", operands, results, &attributes, vec![])
    }
}
