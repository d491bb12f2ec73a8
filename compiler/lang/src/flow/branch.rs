//! `if`: on a `bool` it picks code, on a `Scalar<bool>` it branches.

use super::carry::{Carried, Carries, Carry, Cursor, build_time};
use crate::context::{self, Handle};
use crate::dim::One;
use crate::flow::{BuildTimeWhile, RunTimeWhile, WhileLoop};
use crate::shape::Shape;
use crate::tile::Tile;
use std::panic::Location;
use tegula_ir::{Attrs, OpKind, Region};

/// A condition: `bool` or `Scalar<bool>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a condition",
    label = "expected `bool` or `Scalar<bool>`",
    note = "a tile of bools has many answers: use `select(mask, a, b)`, or reduce it first (`any`, `all`)"
)]
pub trait Condition {
    #[doc(hidden)]
    type If: Branch;
    #[doc(hidden)]
    type While: WhileLoop;
    #[doc(hidden)]
    #[track_caller]
    fn begin(self) -> Self::If;
    #[doc(hidden)]
    #[track_caller]
    fn test(self, w: &mut Self::While) -> bool;
}

/// The shape of a condition: a scalar's, or `One` along every axis (what a reduction leaves).
#[diagnostic::on_unimplemented(
    message = "a tile of bools, shape `{Self}`, cannot be a condition",
    label = "expected `bool` or `Scalar<bool>`",
    note = "a tile has many answers: use `select(mask, a, b)`, or reduce it first (`any`, `all`)"
)]
pub trait OneAnswer: Shape {}
impl OneAnswer for () {}
impl OneAnswer for (One,) {}
impl OneAnswer for (One, One) {}
impl OneAnswer for (One, One, One) {}
impl OneAnswer for (One, One, One, One) {}

/// An `if` being run at build time or built for run time.
#[doc(hidden)]
pub trait Branch {
    /// Whether to run the first arm.
    fn then(&mut self) -> bool;
    /// Whether to run the second.
    fn otherwise(&mut self) -> bool;
    /// Ends it.
    fn done(&mut self);
}

/// An `if` on a `bool`.
#[derive(Debug)]
pub struct BuildTimeIf(bool);

build_time! { BuildTimeIf; }

impl Branch for BuildTimeIf {
    fn then(&mut self) -> bool {
        self.0
    }
    fn otherwise(&mut self) -> bool {
        !self.0
    }
    fn done(&mut self) {}
}

/// An `if` on a `Scalar<bool>`.
#[derive(Debug)]
pub struct RunTimeIf {
    cond: Handle,
    carried: Carried,
    /// Values at the end of the first arm.
    first: Vec<Handle>,
    then: Region,
    /// Variables put back for the second arm so far.
    restored: Cursor,
    /// In a combiner both arms are built in line, and selected from.
    inline: bool,
}

impl Condition for bool {
    type If = BuildTimeIf;
    type While = BuildTimeWhile;
    fn begin(self) -> BuildTimeIf {
        BuildTimeIf(self)
    }
    fn test(self, _: &mut BuildTimeWhile) -> bool {
        self
    }
}

/// The scalar that a condition holds.
#[track_caller]
fn one<S: OneAnswer>(condition: Tile<bool, S>) -> Handle {
    if S::RANK == 0 { condition.handle() } else { condition.reshape::<()>().handle() }
}

impl<S: OneAnswer> Condition for Tile<bool, S> {
    type If = RunTimeIf;
    type While = RunTimeWhile;
    fn begin(self) -> RunTimeIf {
        let inline = context::with(|c| c.in_combiner());
        let carried = Carried::new("a variable of this `if`", Location::caller());
        RunTimeIf {
            cond: one(self),
            carried,
            first: vec![],
            then: Region::default(),
            restored: Cursor::default(),
            inline,
        }
    }
    fn test(self, w: &mut RunTimeWhile) -> bool {
        w.condition(one(self));
        true
    }
}

impl Branch for RunTimeIf {
    fn then(&mut self) -> bool {
        if !self.inline {
            context::with(|c| c.open(&[]));
        }
        true
    }
    fn otherwise(&mut self) -> bool {
        if !self.inline {
            let first = std::mem::take(&mut self.first);
            self.first = first.clone();
            self.then = context::with(|c| {
                let region = c.close(&first, self.carried.at);
                c.open(&[]);
                region
            });
        }
        true
    }
    fn done(&mut self) {
        let types: Vec<_> = self.first.iter().map(|&v| context::with(|c| c.ty(v))).collect();
        let last = std::mem::take(&mut self.carried.last);
        let last = self.carried.check(&types, last);
        if self.inline {
            let at = self.carried.at;
            self.carried.results = context::with(|c| {
                let pairs = self.first.iter().zip(&last).zip(&types);
                pairs.map(|((&a, &b), ty)| c.select(self.cond, a, b, ty, at)).collect()
            });
            return;
        }
        let otherwise = context::with(|c| c.close(&last, self.carried.at));
        let then = std::mem::take(&mut self.then);
        self.carried.finish(OpKind::If, &[self.cond], &types, vec![then, otherwise]);
    }
}

impl<V: Carry + ?Sized> Carries<V> for RunTimeIf {
    fn enter(&mut self, v: &mut V) {
        self.carried.enter(v)
    }
    fn mid(&mut self, v: &mut V) {
        let (values, range) = self.carried.next(v, &mut self.restored);
        self.first.extend(values);
        v.replace(&mut self.carried.init[range].iter().copied());
    }
    fn latch(&mut self, v: &mut V) {
        self.carried.latch(v)
    }
    fn exit(&mut self, v: &mut V) {
        self.carried.exit(v)
    }
}

impl context::Context {
    /// `a` where the scalar `cond` is true, else `b`; both of type `ty`.
    fn select(
        &mut self,
        cond: Handle,
        a: Handle,
        b: Handle,
        ty: &tegula_ir::Type,
        at: &'static Location<'static>,
    ) -> Handle {
        let Some(tile) = ty.as_tile() else { return a };
        let mask = tile.with_elem(tegula_ir::Elem::Bool);
        let cond = if tile.shape.is_empty() {
            cond
        } else {
            self.op(OpKind::Broadcast, &[cond], &[mask.into()], Attrs::new(), vec![], at)[0]
        };
        self.op(OpKind::Select, &[cond, a, b], std::slice::from_ref(ty), Attrs::new(), vec![], at)[0]
    }
}

/// An `if` that may give a `V`.
#[doc(hidden)]
pub trait Gives<V> {
    fn first(&mut self, v: V) -> V;
    fn second(&mut self, v: V) -> V;
    fn value(&mut self, first: Option<V>, second: Option<V>) -> V;
}

impl<V> Gives<V> for BuildTimeIf {
    fn first(&mut self, v: V) -> V {
        v
    }
    fn second(&mut self, v: V) -> V {
        v
    }
    fn value(&mut self, first: Option<V>, second: Option<V>) -> V {
        match first.or(second) {
            Some(v) => v,
            // One arm ran, and gave a value or left the function.
            None => unreachable!("no arm of a build-time `if` ran"),
        }
    }
}

impl<V: Carry> Gives<V> for RunTimeIf {
    fn first(&mut self, v: V) -> V {
        v.collect(&mut self.first);
        v
    }
    fn second(&mut self, v: V) -> V {
        v.collect(&mut self.carried.last);
        v
    }
    fn value(&mut self, _: Option<V>, second: Option<V>) -> V {
        match second {
            Some(mut v) => {
                self.carried.exit(&mut v);
                v
            }
            // Both arms of a run-time `if` are built, and neither can be left by a jump.
            None => unreachable!("an arm of a run-time `if` was left"),
        }
    }
}

/// [`Gives`] turned round, so that rustc names the value in its message: a value that an `if` of type `F` can give.
#[diagnostic::on_unimplemented(
    message = "a run-time `if` cannot give a compile-time `{Self}`",
    label = "this `if` has a run-time condition, its arms are compile-time values",
    note = "make the arms run-time values: `scalar(1.0)`, or use `select(cond, a, b)`"
)]
pub trait ValueOf<F>: Sized {
    #[doc(hidden)]
    fn first(self, construct: &mut F) -> Option<Self>;
    #[doc(hidden)]
    fn second(self, construct: &mut F) -> Option<Self>;
    #[doc(hidden)]
    fn value(first: Option<Self>, second: Option<Self>, construct: &mut F) -> Self;
}
#[diagnostic::do_not_recommend]
impl<V, F: Gives<V>> ValueOf<F> for V {
    fn first(self, f: &mut F) -> Option<V> {
        Some(f.first(self))
    }
    fn second(self, f: &mut F) -> Option<V> {
        Some(f.second(self))
    }
    fn value(first: Option<V>, second: Option<V>, f: &mut F) -> V {
        f.value(first, second)
    }
}

/// The second arm's value, which is of the first one's type.
#[doc(hidden)]
pub fn as_first<V>(_: &Option<V>, v: V) -> V {
    v
}
