//! Structured control flow through closures.

use super::{Build, V};
use melior::ir::{Type, ValueLike};

impl<'c> Build<'c> {
    /// `for i in lo..hi step step`, i64. `f` gets the index and the carried values and gives the next ones; the loop gives
    /// the last.
    pub fn for_(
        &self,
        lo: V<'c>,
        hi: V<'c>,
        step: V<'c>,
        init: &[V<'c>],
        f: impl FnOnce(V<'c>, &[V<'c>]) -> Vec<V<'c>>,
    ) -> Vec<V<'c>> {
        let types: Vec<Type> = init.iter().map(|v| v.r#type()).collect();
        let mut args = vec![lo.r#type()];
        args.extend(&types);
        let (body, ()) = self.block(&args, |a| {
            let next = f(a[0], &a[1..]);
            self.op0("scf.yield", &next, &[]);
        });
        let mut operands = vec![lo, hi, step];
        operands.extend(init);
        self.op_n("scf.for", &operands, &types, &[], vec![body])
    }

    /// `for i in lo..hi step step` over constants, without carried values.
    pub fn for_each(&self, lo: i64, hi: i64, step: i64, f: impl FnOnce(V<'c>)) {
        self.for_(self.c64(lo), self.c64(hi), self.c64(step), &[], |i, _| {
            f(i);
            vec![]
        });
    }

    /// `if condition { then } else { other }`; both give values of these types.
    pub fn if_(
        &self,
        condition: V<'c>,
        results: &[Type<'c>],
        then: impl FnOnce() -> Vec<V<'c>>,
        other: impl FnOnce() -> Vec<V<'c>>,
    ) -> Vec<V<'c>> {
        let (then, ()) = self.block(&[], |_| {
            let v = then();
            self.op0("scf.yield", &v, &[]);
        });
        let (other, ()) = self.block(&[], |_| {
            let v = other();
            self.op0("scf.yield", &v, &[]);
        });
        self.op_n("scf.if", &[condition], results, &[], vec![then, other])
    }

    /// `if condition { then }`.
    pub fn when(&self, condition: V<'c>, then: impl FnOnce()) {
        self.if_(
            condition,
            &[],
            || {
                then();
                vec![]
            },
            Vec::new,
        );
    }

    /// `while`: `condition` maps the carried values to the condition, `body` to the next ones; gives the last.
    pub fn while_(
        &self,
        init: &[V<'c>],
        condition: impl FnOnce(&[V<'c>]) -> V<'c>,
        body: impl FnOnce(&[V<'c>]) -> Vec<V<'c>>,
    ) -> Vec<V<'c>> {
        let types: Vec<Type> = init.iter().map(|v| v.r#type()).collect();
        let (before, ()) = self.block(&types, |args| {
            let mut operands = vec![condition(args)];
            operands.extend(args);
            self.op0("scf.condition", &operands, &[]);
        });
        let (after, ()) = self.block(&types, |args| {
            let next = body(args);
            self.op0("scf.yield", &next, &[]);
        });
        self.op_n("scf.while", init, &types, &[], vec![before, after])
    }
}
