//! `for`: over a [`Span`] with a run-time end it is one IR loop, over everything else it unrolls.

use super::carry::{Carried, Carries, Carry, build_time};
use crate::context::{self, Handle};
use crate::elem::{Elem, Int};
use crate::tile::{Operand, Scalar, Tile, int_handle};
use std::panic::Location;
use tegula_ir::OpKind;

/// What a `for` can go over: a range, whose end decides whether it is a run-time loop, or any iterator, which unrolls.
#[diagnostic::on_unimplemented(
    message = "a loop cannot go over `{Self}`",
    label = "expected a range or an iterator",
    note = "`0..n` with a `Scalar` end is a run-time loop, with a compile-time end it unrolls; `range(a, b)` is always a run-time loop"
)]
pub trait IntoLoop {
    #[doc(hidden)]
    type Item;
    #[doc(hidden)]
    type Loop: Loop<Item = Self::Item>;
    #[doc(hidden)]
    #[track_caller]
    fn into_loop(self) -> Self::Loop;
}

/// A `for` being run at build time or built for run time.
#[doc(hidden)]
pub trait Loop {
    type Item;
    fn next(&mut self) -> Option<Self::Item>;
}

/// A `for` that unrolls.
#[derive(Debug)]
pub struct BuildTimeFor<I>(I);

build_time! { BuildTimeFor<I>; }

impl<I: IntoIterator> IntoLoop for I {
    type Item = I::Item;
    type Loop = BuildTimeFor<I::IntoIter>;
    fn into_loop(self) -> Self::Loop {
        BuildTimeFor(self.into_iter())
    }
}
impl<I: Iterator> Loop for BuildTimeFor<I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }
}

/// `lo..hi` in steps, in the head of a `for`.
#[derive(Clone, Copy, Debug)]
pub struct Span<A> {
    lo: A,
    hi: A,
    step: A,
}

/// What a loop can count in: integers, or scalars of integers.
#[diagnostic::on_unimplemented(
    message = "a loop cannot count in `{Self}`",
    label = "expected an integer or a `Scalar` of integers"
)]
pub trait Counter: Copy {
    #[doc(hidden)]
    type Loop: Loop<Item = Self>;
    #[doc(hidden)]
    #[track_caller]
    fn start(span: Span<Self>) -> Self::Loop;
}

impl<A: Counter> IntoLoop for Span<A> {
    type Item = A;
    type Loop = A::Loop;
    fn into_loop(self) -> A::Loop {
        A::start(self)
    }
}

macro_rules! host { ($($t:ty)*) => {$(
    impl Counter for $t {
        type Loop = BuildTimeFor<std::ops::Range<$t>>;
        fn start(s: Span<Self>) -> Self::Loop { BuildTimeFor(s.lo..s.hi) }
    }
    impl CountsTo<$t> for $t {
        fn to(self, hi: $t) -> Span<$t> { Span { lo: self, hi, step: 1 } }
        fn to_inclusive(self, hi: $t) -> Span<$t> { self.to(hi + 1) }
    }
    impl<T: Int> CountsTo<Scalar<T>> for $t {
        fn to(self, hi: Scalar<T>) -> Span<Scalar<T>> { run_time(int_handle(T::ELEM, self as i128), hi) }
        fn to_inclusive(self, hi: Scalar<T>) -> Span<Scalar<T>> { self.to(hi + one()) }
    }
)*} }
host! { i8 i16 i32 i64 u8 u16 u32 u64 usize }

/// A `for` that is an IR loop.
#[derive(Debug)]
pub struct RunTimeFor<T: Elem> {
    span: Span<Scalar<T>>,
    index: Scalar<T>,
    carried: Carried,
    built: bool,
}

impl<T: Int> Counter for Scalar<T> {
    type Loop = RunTimeFor<T>;
    fn start(span: Span<Self>) -> RunTimeFor<T> {
        let index = context::with(|c| c.open(&[tegula_ir::Type::scalar(T::ELEM)])[0]);
        RunTimeFor {
            span,
            index: Tile::new(index),
            carried: Carried::new("a variable of this `for`", Location::caller()),
            built: false,
        }
    }
}

impl<T: Int> Loop for RunTimeFor<T> {
    type Item = Scalar<T>;
    fn next(&mut self) -> Option<Scalar<T>> {
        if !std::mem::replace(&mut self.built, true) {
            return Some(self.index);
        }
        let last = std::mem::take(&mut self.carried.last);
        let last = self.carried.check(&self.carried.types(), last);
        let body = context::with(|c| c.close(&last, self.carried.at));
        let bounds = [self.span.lo.handle(), self.span.hi.handle(), self.span.step.handle()];
        let types = self.carried.types();
        self.carried.finish(OpKind::For, &[&bounds, &self.carried.init[..]].concat(), &types, vec![body]);
        None
    }
}

impl<V: Carry + ?Sized, T: Elem> Carries<V> for RunTimeFor<T> {
    fn enter(&mut self, v: &mut V) {
        self.carried.enter_as_args(v)
    }
    fn mid(&mut self, _: &mut V) {}
    fn latch(&mut self, v: &mut V) {
        self.carried.latch(v)
    }
    fn exit(&mut self, v: &mut V) {
        self.carried.exit(v)
    }
}

/// A loop's start that can count to an end of type `B`.
#[diagnostic::on_unimplemented(
    message = "a loop cannot count from `{Self}` to `{B}`",
    label = "the start does not fit the end",
    note = "make both compile-time integers, or the end a `Scalar`: `scalar(..)`"
)]
pub trait CountsTo<B> {
    /// `lo..hi`. The end decides the type.
    #[doc(hidden)]
    #[track_caller]
    fn to(self, hi: B) -> Span<B>;
    /// `lo..=hi`.
    #[doc(hidden)]
    #[track_caller]
    fn to_inclusive(self, hi: B) -> Span<B>;
}
impl<T: Int> CountsTo<Scalar<T>> for Scalar<T> {
    fn to(self, hi: Scalar<T>) -> Span<Scalar<T>> {
        run_time(self.handle(), hi)
    }
    fn to_inclusive(self, hi: Scalar<T>) -> Span<Scalar<T>> {
        self.to(hi + one())
    }
}

#[track_caller]
fn one<T: Int>() -> Scalar<T> {
    Tile::new(int_handle(T::ELEM, 1))
}

#[track_caller]
fn run_time<T: Int>(lo: Handle, hi: Scalar<T>) -> Span<Scalar<T>> {
    Span { lo: Tile::new(lo), hi, step: one() }
}

/// A bound of [`range`] that counts in `T`: a `Scalar<T>` or a compile-time integer. A `usize` counts in `i32`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot bound a run-time loop that counts in `{T}`",
    label = "expected a `Scalar<{T}>` or a compile-time integer"
)]
pub trait RangeBound<T: Int> {
    #[doc(hidden)]
    #[track_caller]
    fn bound(self) -> Scalar<T>;
}
impl<T: Int> RangeBound<T> for Scalar<T> {
    fn bound(self) -> Scalar<T> {
        self
    }
}
// One implementation per host type, so that rustc knows the counter's type when nothing else says it.
macro_rules! bounds { ($($t:ty => $c:ty;)*) => {$(
    impl RangeBound<$c> for $t {
        fn bound(self) -> Scalar<$c> { Tile::new(int_handle(<$c>::ELEM, self as i128)) }
    }
)*} }
bounds! { i8 => i8; i16 => i16; i32 => i32; i64 => i64; u8 => u8; u16 => u16; u32 => u32; u64 => u64; usize => i32; }

/// A run-time loop, also for compile-time bounds: `for i in range(0, 100)`.
#[track_caller]
pub fn range<T: Int>(lo: impl RangeBound<T>, hi: impl RangeBound<T>) -> Span<Scalar<T>> {
    Span { lo: lo.bound(), hi: hi.bound(), step: one() }
}

impl<T: Int> Span<Scalar<T>> {
    /// The same loop in steps of `step`, which must be positive.
    #[track_caller]
    pub fn step_by(self, step: impl Operand<T, Shape = ()>) -> Self {
        Span { step: Tile::new(step.to_handle()), ..self }
    }
}
