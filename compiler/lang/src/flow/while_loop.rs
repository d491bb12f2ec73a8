//! `while`: on a `bool` it unrolls, on a `Scalar<bool>` it is an IR loop.

use super::carry::{Carried, Carries, Carry, Cursor, arguments, build_time};
use crate::context::{self, Handle};
use std::panic::Location;
use tegula_ir::{OpKind, Region};

/// A `while` being run at build time or built for run time.
#[doc(hidden)]
pub trait WhileLoop {
    #[track_caller]
    fn new() -> Self;
    /// Whether to go through the body again.
    fn again(&mut self) -> bool;
}

/// A `while` on a `bool`.
#[derive(Debug)]
pub struct BuildTimeWhile;

build_time! { BuildTimeWhile; }

impl WhileLoop for BuildTimeWhile {
    fn new() -> Self {
        BuildTimeWhile
    }
    fn again(&mut self) -> bool {
        true
    }
}

/// A `while` on a `Scalar<bool>`.
#[derive(Debug)]
pub struct RunTimeWhile {
    carried: Carried,
    condition: Region,
    /// The condition region's arguments: what the variables hold while the condition is built.
    seen: Vec<Handle>,
    turned: Cursor,
    built: bool,
}

impl WhileLoop for RunTimeWhile {
    fn new() -> Self {
        context::with(|c| c.open(&[]));
        RunTimeWhile {
            carried: Carried::new("a variable of this `while`", Location::caller()),
            condition: Region::default(),
            seen: vec![],
            turned: Cursor::default(),
            built: false,
        }
    }
    fn again(&mut self) -> bool {
        if !std::mem::replace(&mut self.built, true) {
            return true;
        }
        let last = std::mem::take(&mut self.carried.last);
        let last = self.carried.check(&self.carried.types(), last);
        let body = context::with(|c| c.close(&last, self.carried.at));
        let condition = std::mem::take(&mut self.condition);
        let (init, types) = (self.carried.init.clone(), self.carried.types());
        self.carried.finish(OpKind::While, &init, &types, vec![condition, body]);
        false
    }
}

impl RunTimeWhile {
    /// Ends the condition's region and opens the body's.
    pub(super) fn condition(&mut self, cond: Handle) {
        self.condition = context::with(|c| {
            let region = c.close(&[cond], self.carried.at);
            c.open(&[]);
            region
        });
    }
}

impl<V: Carry + ?Sized> Carries<V> for RunTimeWhile {
    fn enter(&mut self, v: &mut V) {
        self.carried.enter_as_args(v);
        v.collect(&mut self.seen);
    }
    /// From the condition to the body: the body's region has arguments of its own.
    fn mid(&mut self, v: &mut V) {
        let (now, range) = self.carried.next(v, &mut self.turned);
        if self.seen.get(range.clone()) != Some(&now[..]) {
            let message = "the condition of a run-time `while` changes a variable: change it in the body";
            context::with(|c| c.fault(self.carried.at, message.into()));
        }
        v.replace(&mut arguments(&self.carried.init[range], self.carried.at).into_iter());
    }
    fn latch(&mut self, v: &mut V) {
        self.carried.latch(v)
    }
    fn exit(&mut self, v: &mut V) {
        self.carried.exit(v)
    }
}

/// A `while` whose stage its condition will decide.
#[doc(hidden)]
#[track_caller]
pub fn new_while<W: WhileLoop>() -> W {
    W::new()
}
