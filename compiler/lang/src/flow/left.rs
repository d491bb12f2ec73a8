//! A float literal on the left of an operator. The right side decides the type of the result, at once, so that
//! `(2.0 * t).exp()` finds its method.

use crate::elem::Num;
use crate::shape::Shape;
use crate::tile::{Operand, Tile, binary};
use tegula_ir::OpKind;

macro_rules! left { ($($m:ident $kind:ident $op:tt;)*) => {
    /// What may stand right of a float literal of type `A`.
    #[diagnostic::on_unimplemented(
        message = "a literal `{A}` cannot be an operand beside `{Self}`",
        label = "the literal does not fit this",
        note = "a float tile takes `2.0`, an integer tile takes `2`"
    )]
    pub trait AfterLiteral<A> {
        #[doc(hidden)]
        type Output;
        $(
            #[doc(hidden)]
            #[track_caller]
            fn $m(self, left: A) -> Self::Output;
        )*
    }
    impl<T: Num, S: Shape, A: Operand<T>> AfterLiteral<A> for Tile<T, S> {
        type Output = Tile<T, S>;
        $(fn $m(self, left: A) -> Self {
            let left = left.to_handle();
            binary(OpKind::$kind, left, self.handle())
        })*
    }
    left!(@host f32 $($m $op;)*);
    left!(@host f64 $($m $op;)*);
};
(@host $t:ident $($m:ident $op:tt;)*) => {
    impl AfterLiteral<$t> for $t {
        type Output = $t;
        $(fn $m(self, left: $t) -> $t { left $op self })*
    }
}; }
left! { left_add Add +; left_sub Sub -; left_mul Mul *; left_div Div /; left_rem Rem %; }
