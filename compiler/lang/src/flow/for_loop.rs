//! `for`: over a [`Span`] with a run-time end it is one IR loop, over everything else it unrolls.

use super::carry::{Carried, Carries, Carry, build_time};
use crate::context;
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
    #[doc(hidden)]
    #[track_caller]
    fn one() -> Self;
    /// The next one.
    #[doc(hidden)]
    #[track_caller]
    fn successor(self) -> Self;
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
        fn one() -> $t { 1 }
        fn successor(self) -> $t { self + 1 }
    }
    impl CountsTo<$t> for $t {
        fn lift(self, _: &$t) -> $t { self }
    }
    impl<T: Int> CountsTo<Scalar<T>> for $t {
        fn lift(self, _: &Scalar<T>) -> Scalar<T> { Tile::new(int_handle(T::ELEM, self as i128)) }
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
    fn one() -> Self {
        Tile::new(int_handle(T::ELEM, 1))
    }
    fn successor(self) -> Self {
        self + Self::one()
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

#[track_caller]
pub fn into_loop<I: IntoLoop>(i: I) -> I::Loop {
    i.into_loop()
}
pub fn next<L: Loop>(l: &mut L) -> Option<L::Item> {
    l.next()
}

/// A loop's start that can count to an end of type `B`.
#[diagnostic::on_unimplemented(
    message = "a loop cannot count from `{Self}` to `{B}`",
    label = "the start does not fit the end",
    note = "make both compile-time integers, or the end a `Scalar`: `scalar(..)`"
)]
pub trait CountsTo<B> {
    #[doc(hidden)]
    #[track_caller]
    fn lift(self, end: &B) -> B;
}
impl<T: Int> CountsTo<Scalar<T>> for Scalar<T> {
    fn lift(self, _: &Scalar<T>) -> Scalar<T> {
        self
    }
}

/// What `lo..hi` in the head of a `for` becomes. The end decides the type.
#[track_caller]
pub fn span<A: CountsTo<B>, B: Counter>(lo: A, hi: B) -> Span<B> {
    Span { lo: lo.lift(&hi), hi, step: B::one() }
}

/// What `lo..=hi` becomes.
#[track_caller]
pub fn span_inclusive<A: CountsTo<B>, B: Counter>(lo: A, hi: B) -> Span<B> {
    span(lo, hi.successor())
}

/// A run-time loop, also for compile-time bounds: `for i in range(0, 100)`.
#[track_caller]
pub fn range<T: Int>(lo: impl Operand<T, Shape = ()>, hi: impl Operand<T, Shape = ()>) -> Span<Scalar<T>> {
    let (lo, hi) = (Tile::new(lo.to_handle()), Tile::new(hi.to_handle()));
    Span { lo, hi, step: Scalar::one() }
}

impl<T: Int> Span<Scalar<T>> {
    /// The same loop in steps of `step`, which must be positive.
    #[track_caller]
    pub fn step_by(self, step: impl Operand<T, Shape = ()>) -> Self {
        Span { step: Tile::new(step.to_handle()), ..self }
    }
}
