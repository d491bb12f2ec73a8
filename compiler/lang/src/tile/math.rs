//! Elementwise functions.

use super::{Operand, Tile, broadcast_to, fit};
use crate::context;
use crate::elem::{Elem, Float, Int, Num};
use crate::shape::{Fit, FitsWith, Shape};
use tegula_ir::{Attrs, OpKind, Type};

impl<T: Elem, S: Shape> Tile<T, S> {
    /// Converts each element: floats round once to nearest even (8-bit floats saturate), float to integer truncates and
    /// saturates (NaN gives 0), integers wrap, anything to `bool` is `!= 0`.
    #[track_caller]
    pub fn cast<U: Elem>(self) -> Tile<U, S> {
        if U::ELEM == T::ELEM {
            return Tile::new(self.handle);
        }
        self.derive(OpKind::Cast, U::ELEM, context::shape(self.handle), Attrs::new())
    }

    /// The same bits as another type of the same width.
    #[track_caller]
    pub fn bitcast<U: Elem>(self) -> Tile<U, S> {
        if T::ELEM.bits() != U::ELEM.bits() {
            context::fault(format!(
                "`bitcast` from `{}` ({} bits) to `{}` ({} bits): the widths differ",
                T::ELEM,
                T::ELEM.bits(),
                U::ELEM,
                U::ELEM.bits()
            ));
            return Tile::new(context::stand_in(Type::tile(U::ELEM, context::shape(self.handle))));
        }
        self.derive(OpKind::Bitcast, U::ELEM, context::shape(self.handle), Attrs::new())
    }
}

macro_rules! unary { ($bound:ident: $($(#[$doc:meta])* $m:ident $kind:ident;)*) => {
    impl<T: $bound, S: Shape> Tile<T, S> {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $m(self) -> Self { self.unary(OpKind::$kind) }
    )*}
} }
unary! { Num:
    /// |x|; the least signed integer stays itself.
    abs Abs;
}
// The bounds are asserted by the compiler's tests, over random numbers and all of bf16: ulp are units of the last place
// of an f32. Narrower types round that once more; f64 is libm's.
unary! { Float:
    /// e to the x: within 1.5 ulp in f32, subnormal results included.
    exp Exp;
    /// 2 to the x: within 1.5 ulp in f32, subnormal results included.
    exp2 Exp2;
    /// Natural logarithm: within 1.5 ulp in f32.
    log Log;
    /// Logarithm to base 2: within 2 ulp in f32.
    log2 Log2;
    /// Sine (radians): within 1.5 ulp in f32 for |x| up to 1e8.
    sin Sin;
    /// Cosine (radians): within 1.5 ulp in f32 for |x| up to 1e8.
    cos Cos;
    /// Hyperbolic tangent: within 2 ulp in f32.
    tanh Tanh;
    /// Error function: within 2.5 ulp in f32.
    erf Erf;
    /// Square root, correctly rounded.
    sqrt Sqrt;
    /// 1/√x: within 1.5 ulp in f32.
    rsqrt Rsqrt;
    /// 1/(1 + e^−x): within 3 ulp in f32, subnormal results included.
    sigmoid Sigmoid;
    /// Largest integer not above.
    floor Floor;
    /// Smallest integer not below.
    ceil Ceil;
    /// Nearest integer, ties to even.
    round Round;
}

macro_rules! binary_fns { ($bound:ident: $($(#[$doc:meta])* $m:ident $kind:ident;)*) => {
    impl<T: $bound, S: Shape> Tile<T, S> {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $m<R: Operand<T>>(self, r: R) -> Tile<T, Fit<S, R::Shape>> where S: FitsWith<R::Shape> { self.with(OpKind::$kind, r) }
    )*}
} }
binary_fns! { Num:
    /// The larger of each two elements; a NaN is ignored. (`max::<AX>()` reduces.)
    maximum Max;
    /// The smaller of each two elements; a NaN is ignored. (`min::<AX>()` reduces.)
    minimum Min;
}
binary_fns! { Float:
    /// The larger of each two elements; a NaN is kept.
    maximum_nan MaxNan;
    /// The smaller of each two elements; a NaN is kept.
    minimum_nan MinNan;
    /// x to the y: within 1 ulp in f32.
    pow Pow;
}
binary_fns! { Int:
    /// Upper half of the product of the bit patterns taken as unsigned.
    umulhi Umulhi;
}

impl<T: Num, S: Shape> Tile<T, S> {
    /// The element held within `lo..=hi`.
    #[track_caller]
    pub fn clamp(self, lo: impl Operand<T, Shape = ()>, hi: impl Operand<T, Shape = ()>) -> Self {
        let shape = context::shape(self.handle);
        let lo = broadcast_to(lo.to_handle(), &shape);
        let up = context::emit(OpKind::Max, &[self.handle, lo], Type::tile(T::ELEM, shape.clone()), Attrs::new());
        let hi = broadcast_to(hi.to_handle(), &shape);
        Tile::new(context::emit(OpKind::Min, &[up, hi], Type::tile(T::ELEM, shape), Attrs::new()))
    }
}

impl<T: Float, S: Shape> Tile<T, S> {
    /// self · b + c, rounded once.
    #[track_caller]
    pub fn fma<B: Operand<T>, A: Operand<T>>(self, b: B, c: A) -> Tile<T, Fit<Fit<S, B::Shape>, A::Shape>>
    where
        S: FitsWith<B::Shape>,
        Fit<S, B::Shape>: FitsWith<A::Shape>,
    {
        let (b, c) = (b.to_handle(), c.to_handle());
        let shape = fit(&fit(&context::shape(self.handle), &context::shape(b)), &context::shape(c));
        let operands = [broadcast_to(self.handle, &shape), broadcast_to(b, &shape), broadcast_to(c, &shape)];
        Tile::new(context::emit(OpKind::Fma, &operands, Type::tile(T::ELEM, shape), Attrs::new()))
    }
}
