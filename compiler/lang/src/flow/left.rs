//! A float literal on the left of an operator. The right side decides the type of the result, at once, so that
//! `(2.0 * t).exp()` finds its method.

use crate::elem::Num;
use crate::shape::Shape;
use crate::tile::{Operand, Tile, binary};
use tegula_ir::OpKind;

/// What may stand right of a float literal.
#[diagnostic::on_unimplemented(
    message = "a literal `{A}` cannot be an operand beside `{Self}`",
    label = "the literal does not fit this",
    note = "a float tile takes `2.0`, an integer tile takes `2`"
)]
pub trait AfterLiteral<A> {
    #[doc(hidden)]
    type Output;
    #[doc(hidden)]
    #[track_caller]
    fn apply(self, op: LeftOp, a: A) -> Self::Output;
}

/// The operator.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub enum LeftOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl<T: Num, S: Shape, A: Operand<T>> AfterLiteral<A> for Tile<T, S> {
    type Output = Tile<T, S>;
    fn apply(self, op: LeftOp, a: A) -> Self {
        let kind = match op {
            LeftOp::Add => OpKind::Add,
            LeftOp::Sub => OpKind::Sub,
            LeftOp::Mul => OpKind::Mul,
            LeftOp::Div => OpKind::Div,
            LeftOp::Rem => OpKind::Rem,
        };
        let a = a.to_handle();
        binary(kind, a, self.handle())
    }
}

macro_rules! host { ($($t:ty)*) => {$(
    impl AfterLiteral<$t> for $t {
        type Output = $t;
        fn apply(self, op: LeftOp, a: $t) -> $t {
            match op {
                LeftOp::Add => a + self,
                LeftOp::Sub => a - self,
                LeftOp::Mul => a * self,
                LeftOp::Div => a / self,
                LeftOp::Rem => a % self,
            }
        }
    }
)*} }
host! { f32 f64 }

macro_rules! functions { ($($f:ident $op:ident;)*) => {$(
    #[track_caller]
    pub fn $f<A, B: AfterLiteral<A>>(a: A, b: B) -> B::Output { b.apply(LeftOp::$op, a) }
)*} }
functions! { left_add Add; left_sub Sub; left_mul Mul; left_div Div; left_rem Rem; }
