//! The running program: which one it is, facts it may rely on, what it reports.

use crate::context;
use crate::dim::Dim;
use crate::elem::{Elem, Int, Num};
use crate::flow::Carry;
use crate::shape::{Fit, FitsWith, Shape};
use crate::tile::{Operand, Scalar, Tile};
use crate::view::AnyView;
use tegula_ir::{Attr, Attrs, Elem as IrElem, Key, OpKind, Type};

#[track_caller]
fn grid(kind: OpKind, axis: usize) -> Scalar<i32> {
    if axis > 2 {
        context::fault(format!("grid axis {axis}: a grid has the axes 0, 1 and 2"));
        return Tile::new(context::stand_in(Type::scalar(IrElem::I32)));
    }
    Tile::new(context::emit(kind, &[], Type::scalar(IrElem::I32), Attrs::new().with(Key::Axis, Attr::Int(axis as i64))))
}

/// The index of this program along a grid axis (0, 1 or 2).
#[track_caller]
pub fn program_id(axis: usize) -> Scalar<i32> {
    grid(OpKind::ProgramId, axis)
}

/// The number of programs along a grid axis (0, 1 or 2).
#[track_caller]
pub fn num_programs(axis: usize) -> Scalar<i32> {
    grid(OpKind::NumPrograms, axis)
}

/// a / b rounded up, for positive b and a ≥ 0.
#[track_caller]
pub fn cdiv<T: Int, S: Shape + FitsWith<R::Shape>, R: Operand<T>>(a: Tile<T, S>, b: R) -> Tile<T, Fit<S, R::Shape>> {
    // Not (a + b − 1) / b, which wraps for a near the largest number.
    let b = b.to_handle();
    let quotient: Tile<T, Fit<S, R::Shape>> = crate::tile::binary(OpKind::Div, a.handle(), b);
    let rest: Tile<T, Fit<S, R::Shape>> = crate::tile::binary(OpKind::Rem, a.handle(), b);
    let more: Tile<bool, Fit<S, R::Shape>> =
        crate::tile::binary(OpKind::Ne, rest.handle(), crate::tile::int_handle(T::ELEM, 0));
    crate::tile::binary(OpKind::Add, quotient.handle(), more.cast::<T>().handle())
}

/// The smaller of each two elements; a NaN is ignored. The same as `a.minimum(b)`.
#[track_caller]
pub fn min<T: Num, S: Shape + FitsWith<R::Shape>, R: Operand<T>>(a: Tile<T, S>, b: R) -> Tile<T, Fit<S, R::Shape>> {
    a.minimum(b)
}

/// The larger of each two elements; a NaN is ignored. The same as `a.maximum(b)`.
#[track_caller]
pub fn max<T: Num, S: Shape + FitsWith<R::Shape>, R: Operand<T>>(a: Tile<T, S>, b: R) -> Tile<T, Fit<S, R::Shape>> {
    a.maximum(b)
}

/// The tile position of program `id` in a matrix `c` covered by tiles of `BM` × `BN`, so that programs near each other
/// share rows and columns: they go down `group` tile rows before they go on to the next tile column.
#[track_caller]
pub fn grouped<BM: Dim, BN: Dim>(id: Scalar<i32>, c: &impl AnyView<2>, group: usize) -> (Scalar<i32>, Scalar<i32>) {
    if group == 0 {
        context::fault("`grouped` by 0 rows: a group has at least one");
        return (id, id);
    }
    let rows = cdiv(c.extent(0), BM::extent());
    let columns = cdiv(c.extent(1), BN::extent());
    let per_group = columns * group;
    let first = id / per_group * group;
    let height = (rows - first).minimum(group);
    let within = id % per_group;
    (first + within % height, within / height)
}

/// Says that `cond` holds: the compiler may use it. It must be true; the oracle and checked launches test it.
#[track_caller]
pub fn assume(cond: Scalar<bool>) {
    context::emit_effect(OpKind::Assume, &[cond.handle()], Attrs::new())
}

/// Reports `message` with this line if an element of `cond` is false, in checked launches and on the oracle. Otherwise
/// it costs nothing.
#[track_caller]
pub fn device_assert<S: Shape>(cond: Tile<bool, S>, message: &str) {
    context::emit_effect(OpKind::Assert, &[cond.handle()], Attrs::new().with(Key::Message, Attr::Str(message.into())))
}

/// Prints `message` and run-time values (a tile, or a tuple of tiles) from every program.
#[track_caller]
pub fn print(message: &str, values: impl Carry) {
    let mut operands = vec![];
    values.collect(&mut operands);
    context::emit_effect(OpKind::Print, &operands, Attrs::new().with(Key::Message, Attr::Str(message.into())))
}

impl<T: Int, S: Shape> Tile<T, S> {
    /// The same value, known to be a multiple of `n` in every element. It must be; the oracle tests it.
    #[track_caller]
    pub fn multiple_of(self, n: usize) -> Self {
        if n == 0 || n > i64::MAX as usize {
            context::fault(format!("`multiple_of({n})`: expected 1 to {}", i64::MAX));
            return self;
        }
        self.derive(
            OpKind::MultipleOf,
            <T as Elem>::ELEM,
            context::shape(self.handle()),
            Attrs::new().with(Key::N, Attr::Int(n as i64)),
        )
    }
}
