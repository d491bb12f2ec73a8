//! What lives across control flow, and how.

use crate::context::{self, Handle};
use crate::elem::Elem;
use crate::shape::Shape;
use crate::tile::Tile;
use std::panic::Location;
use tegula_ir::{OpKind, Region, Type};

/// A value that run-time loops and branches may change: tiles, and tuples, arrays, `Vec`s and structs
/// (`#[derive(Carry)]`) of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a compile-time value and cannot change under a run-time loop or branch",
    label = "changed inside a run-time `for`, `while` or `if`",
    note = "make it a run-time value where it is declared: `let mut x = scalar(0.0);`, or make the loop bound or condition a compile-time one",
    note = "a struct of tiles takes `#[derive(Carry)]`",
    note = "only read, not changed? then rebind it without `mut` before the loop: `let x = x;`"
)]
pub trait Carry {
    /// Adds the run-time values in it, in a fixed order.
    fn collect(&self, out: &mut Vec<Handle>);
    /// Puts in others, in the same order.
    fn replace(&mut self, values: &mut dyn Iterator<Item = Handle>);
}

impl<T: Elem, S: Shape> Carry for Tile<T, S> {
    fn collect(&self, out: &mut Vec<Handle>) {
        out.push(self.handle())
    }
    fn replace(&mut self, values: &mut dyn Iterator<Item = Handle>) {
        if let Some(h) = values.next() {
            *self = Tile::new(h);
        }
    }
}

macro_rules! tuples { ($([$($a:ident)*])*) => {$(
    #[diagnostic::do_not_recommend]
    #[allow(non_snake_case, unused_variables)]
    impl<$($a: Carry),*> Carry for ($($a,)*) {
        fn collect(&self, out: &mut Vec<Handle>) {
            let ($($a,)*) = self;
            $($a.collect(out);)*
        }
        fn replace(&mut self, values: &mut dyn Iterator<Item = Handle>) {
            let ($($a,)*) = self;
            $($a.replace(values);)*
        }
    }
)*} }
tuples! { [] [A] [A B] [A B D] [A B D E] [A B D E F] [A B D E F G] [A B D E F G H] }

macro_rules! many { ($([$($generics:tt)*] $t:ty;)*) => {$(
    #[diagnostic::do_not_recommend]
    impl<$($generics)*> Carry for $t {
        fn collect(&self, out: &mut Vec<Handle>) { self.iter().for_each(|v| v.collect(out)) }
        fn replace(&mut self, values: &mut dyn Iterator<Item = Handle>) { self.iter_mut().for_each(|v| v.replace(values)) }
    }
)*} }
many! { [V: Carry, const N: usize] [V; N]; [V: Carry] Vec<V>; [V: Carry] Option<V>; }

#[diagnostic::do_not_recommend]
impl<V: Carry + ?Sized> Carry for Box<V> {
    fn collect(&self, out: &mut Vec<Handle>) {
        (**self).collect(out)
    }
    fn replace(&mut self, values: &mut dyn Iterator<Item = Handle>) {
        (**self).replace(values)
    }
}

/// A construct across which a variable of type `V` may change. Build-time ones take every type, run-time ones [`Carry`].
pub trait Carries<V: ?Sized> {
    /// Before the body.
    fn enter(&mut self, v: &mut V);
    /// Between the arms of an `if`; between the condition and the body of a `while`.
    fn mid(&mut self, v: &mut V);
    /// At the end of the body, or of the last arm.
    fn latch(&mut self, v: &mut V);
    /// After the construct.
    fn exit(&mut self, v: &mut V);
}

/// [`Carries`] turned round, so that rustc names the variable in its message and not the construct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a compile-time value and cannot change under a run-time loop or branch",
    label = "changed under a run-time `for`, `while` or `if`",
    note = "make it a run-time value where it is declared: `let mut x = scalar(0.0);`, or make the loop bound or condition a compile-time one",
    note = "a struct of tiles takes `#[derive(Carry)]`",
    note = "only read, not changed? then rebind it without `mut` before the loop: `let x = x;`"
)]
pub trait ChangesUnder<F> {
    /// Before the construct.
    #[doc(hidden)]
    fn enter(&mut self, construct: &mut F);
    /// Between the arms of an `if`.
    #[doc(hidden)]
    fn mid(&mut self, construct: &mut F);
    /// Between the condition and the body of a `while`.
    #[doc(hidden)]
    fn turn(&mut self, construct: &mut F);
    /// At the end of the body, or of the last arm.
    #[doc(hidden)]
    fn latch(&mut self, construct: &mut F);
    /// After the construct.
    #[doc(hidden)]
    fn exit(&mut self, construct: &mut F);
}

#[diagnostic::do_not_recommend]
impl<V: ?Sized, F: Carries<V>> ChangesUnder<F> for V {
    fn enter(&mut self, f: &mut F) {
        f.enter(self)
    }
    fn mid(&mut self, f: &mut F) {
        f.mid(self)
    }
    fn turn(&mut self, f: &mut F) {
        f.mid(self)
    }
    fn latch(&mut self, f: &mut F) {
        f.latch(self)
    }
    fn exit(&mut self, f: &mut F) {
        f.exit(self)
    }
}

/// A construct that `break`, `continue` and `return` may leave.
#[diagnostic::on_unimplemented(
    message = "`break`, `continue` and `return` cannot leave a run-time loop or branch",
    label = "this jumps out of run-time control flow",
    note = "use the loop's own condition (`while`), or `if`/`select` around the rest; jumps out of compile-time loops and branches are fine"
)]
pub trait MayBeLeft {
    /// Checks, by type alone, a jump out of it.
    #[doc(hidden)]
    fn jump(&self) {}
}

/// A construct that runs while the kernel is built.
#[doc(hidden)]
pub trait BuildTime {}
#[diagnostic::do_not_recommend]
impl<F: BuildTime> MayBeLeft for F {}

/// Implements the protocol for a build-time construct: nothing to do.
macro_rules! build_time { ($($t:ident $(<$g:ident>)?;)*) => {$(
    impl<V: ?Sized $(, $g)?> crate::flow::Carries<V> for $t $(<$g>)? {
        fn enter(&mut self, _: &mut V) {}
        fn mid(&mut self, _: &mut V) {}
        fn latch(&mut self, _: &mut V) {}
        fn exit(&mut self, _: &mut V) {}
    }
    impl $(<$g>)? crate::flow::BuildTime for $t $(<$g>)? {}
)*} }
pub(super) use build_time;

/// The values that a run-time construct carries. Every variable takes part in every stage, in the same order, with as
/// many values.
#[derive(Debug)]
pub(super) struct Carried {
    /// Where the construct stands in the source.
    pub at: &'static Location<'static>,
    /// What a message calls a variable of it.
    what: &'static str,
    /// Values before.
    pub init: Vec<Handle>,
    /// Values at the end of the body, or of the last arm.
    pub last: Vec<Handle>,
    /// Results of the construct's op.
    pub results: Vec<Handle>,
    /// How many values each variable has.
    counts: Vec<usize>,
    exited: Cursor,
    latched: Cursor,
}

/// How far a stage is: variables and values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    variable: usize,
    value: usize,
}

impl Carried {
    pub fn new(what: &'static str, at: &'static Location<'static>) -> Self {
        let start = Cursor::default();
        Carried { at, what, init: vec![], last: vec![], results: vec![], counts: vec![], exited: start, latched: start }
    }

    /// Takes a variable's values in.
    pub fn enter<V: Carry + ?Sized>(&mut self, v: &mut V) {
        let before = self.init.len();
        v.collect(&mut self.init);
        self.counts.push(self.init.len() - before);
    }

    /// Takes a variable's values in; in the open region each becomes an argument.
    pub fn enter_as_args<V: Carry + ?Sized>(&mut self, v: &mut V) {
        let before = self.init.len();
        self.enter(v);
        v.replace(&mut arguments(&self.init[before..], self.at).into_iter());
    }

    /// The values of the next variable of a stage, as many as it had before, and where they lie among all.
    pub fn next<V: Carry + ?Sized>(&self, v: &V, stage: &mut Cursor) -> (Vec<Handle>, std::ops::Range<usize>) {
        let count = self.counts.get(stage.variable).copied().unwrap_or(0);
        let range = stage.value..stage.value + count;
        *stage = Cursor { variable: stage.variable + 1, value: range.end };
        let mut values = vec![];
        v.collect(&mut values);
        if values.len() != count {
            let message = format!(
                "{}: its {count} run-time values became {}: a `Vec` or `Option` may not grow, shrink or be filled there",
                self.what,
                values.len()
            );
            context::with(|c| c.fault(self.at, message));
            values.truncate(count);
            values.extend_from_slice(&self.init[range.start + values.len()..range.end]);
        }
        (values, range)
    }

    pub fn latch<V: Carry + ?Sized>(&mut self, v: &mut V) {
        let mut stage = self.latched;
        let (values, _) = self.next(v, &mut stage);
        self.latched = stage;
        self.last.extend(values);
    }

    /// Puts the next results into a variable.
    pub fn exit<V: Carry + ?Sized>(&mut self, v: &mut V) {
        let mut rest = self.results.iter().copied().skip(self.exited.value);
        v.replace(&mut rest);
        self.exited.value = self.results.len() - rest.count();
    }

    /// Types of the values before.
    pub fn types(&self) -> Vec<Type> {
        self.init.iter().map(|&v| context::with(|c| c.ty(v))).collect()
    }

    /// Notes a mistake for each of `values` that has not the type given for it; then makes it so.
    pub fn check(&self, types: &[Type], mut values: Vec<Handle>) -> Vec<Handle> {
        context::with(|c| {
            if types.len() != values.len() {
                let (n, m) = (types.len(), values.len());
                c.fault(self.at, format!("{}: {n} run-time values became {m}", self.what));
                values.truncate(n);
                while values.len() < n {
                    let v = c.stand_in(types[values.len()].clone(), self.at);
                    values.push(v);
                }
            }
            for (v, t) in values.iter_mut().zip(types) {
                let found = c.ty(*v);
                if found != *t {
                    c.fault(self.at, format!("{}: a value of type `{t}` became one of `{found}`", self.what));
                    *v = c.stand_in(t.clone(), self.at);
                }
            }
            values
        })
    }

    /// Adds the construct's op.
    pub fn finish(&mut self, kind: OpKind, operands: &[Handle], types: &[Type], regions: Vec<Region>) {
        self.results = context::with(|c| c.op(kind, operands, types, Default::default(), regions, self.at));
    }
}

/// Arguments in the open region, of the types of `values`.
pub(super) fn arguments(values: &[Handle], at: &'static Location<'static>) -> Vec<Handle> {
    context::with(|c| {
        let mut args = vec![];
        for &v in values {
            c.check(v, at);
            let ty = c.ty(v);
            args.push(c.arg(ty));
        }
        args
    })
}
