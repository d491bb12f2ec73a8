//! `+ - * / %`, bitwise operators and their assigning forms; `-x`, `!x`.

use super::{Operand, Tile, binary};
use crate::elem::{Bitwise, Float, Int, Num};
use crate::shape::{Fit, FitsWith, Shape};
use std::ops::*;
use tegula_ir::OpKind;

macro_rules! operators { ($bound:ident: $($tr:ident $m:ident $tra:ident $ma:ident $kind:ident;)*) => {$(
    impl<T: $bound, S: Shape + FitsWith<R::Shape>, R: Operand<T>> $tr<R> for Tile<T, S> {
        type Output = Tile<T, Fit<S, R::Shape>>;
        #[track_caller]
        fn $m(self, r: R) -> Self::Output { self.with(OpKind::$kind, r) }
    }
    impl<T: $bound, S: Shape + FitsWith<R::Shape, Together = S>, R: Operand<T>> $tra<R> for Tile<T, S> {
        #[track_caller]
        fn $ma(&mut self, r: R) { *self = binary(OpKind::$kind, self.handle, r.to_handle()) }
    }
)*} }
operators! { Num: Add add AddAssign add_assign Add; Sub sub SubAssign sub_assign Sub; Mul mul MulAssign mul_assign Mul; Div div DivAssign div_assign Div; Rem rem RemAssign rem_assign Rem; }
operators! { Bitwise: BitAnd bitand BitAndAssign bitand_assign And; BitOr bitor BitOrAssign bitor_assign Or; BitXor bitxor BitXorAssign bitxor_assign Xor; }
operators! { Int: Shl shl ShlAssign shl_assign Shl; Shr shr ShrAssign shr_assign Shr; }

/// A compile-time number on the left.
macro_rules! left { ($bound:ident [$($h:ty)*] $ops:tt) => {$( left!(@ $bound $h $ops); )*};
    (@ $bound:ident $h:ty { $($tr:ident $m:ident $kind:ident;)* }) => {$(
        impl<T: $bound, S: Shape> $tr<Tile<T, S>> for $h {
            type Output = Tile<T, S>;
            #[track_caller]
            fn $m(self, r: Tile<T, S>) -> Tile<T, S> { binary(OpKind::$kind, Operand::<T>::to_handle(self), r.handle) }
        }
    )*};
}
left! { Float [f32 f64] { Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; Rem rem Rem; } }
left! { Int [i8 i16 i32 i64 u8 u16 u32 u64 usize] {
    Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; Rem rem Rem;
    BitAnd bitand And; BitOr bitor Or; BitXor bitxor Xor; Shl shl Shl; Shr shr Shr;
} }

impl<T: Num, S: Shape> Neg for Tile<T, S> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        self.unary(OpKind::Neg)
    }
}
impl<T: Bitwise, S: Shape> Not for Tile<T, S> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        self.unary(OpKind::Not)
    }
}
