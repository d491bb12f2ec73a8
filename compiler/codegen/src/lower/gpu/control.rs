//! Control flow. What is carried is registers: a tile as many as its layout has.

use super::{
    super::{
        build::{Cmp, V},
        machine::carrier,
    },
    Error,
    cx::{Cx, Home},
    view::split,
};
use melior::ir::Type;
use tegula_ir::{Op, Region, Value};

impl<'a, 'c> Cx<'a, 'c> {
    /// All ops of a region in order; gives the registers of what it yields.
    pub fn region(&mut self, r: &'a Region) -> Result<Vec<V<'c>>, Error> {
        for op in &r.ops {
            self.b.set_loc(&op.loc);
            self.op(op)?;
        }
        Ok(self.flat(&r.yields))
    }

    /// The registers of tiles, one after the other.
    fn flat(&self, values: &[Value]) -> Vec<V<'c>> {
        values.iter().flat_map(|v| self.regs(*v).into_iter().flatten()).collect()
    }

    /// Gives tiles their registers out of such a list. `like` are tiles with the same layouts that have attributes.
    fn bind(&mut self, values: &[Value], regs: &[V<'c>]) {
        let mut rest = regs;
        for v in values {
            let counts: Vec<usize> = self.layout(*v).0.iter().map(tegula_ir::linear::Linear::regs).collect();
            let (own, after) = rest.split_at(counts.iter().sum());
            rest = after;
            self.set_home(*v, Home::Tile(split(own, &counts)));
        }
    }

    fn types(&self, values: &[Value]) -> Vec<Type<'c>> {
        let of = |v: &Value| vec![carrier(self.b, self.elem(*v)); self.layout(*v).regs()];
        values.iter().flat_map(of).collect()
    }

    /// Only tiles can be carried or chosen.
    fn check_carried(&self, op: &Op) -> Result<(), Error> {
        if op.results.iter().any(|v| self.k.ty(*v).as_tile().is_none()) {
            return self.error(op, "views and packed matrices cannot be carried or chosen at run time: only tiles can");
        }
        Ok(())
    }

    /// `for`.
    pub fn for_loop(&mut self, op: &'a Op) -> Result<(), Error> {
        self.check_carried(op)?;
        let b = self.b;
        let e = self.elem(op.operands[0]);
        let wide = |x: V<'c>| if e.is_signed() { b.sext(x, b.i64()) } else { b.zext(x, b.i64()) };
        // A step that is not positive is the kernel's fault, which the oracle reports; here it must not hang.
        let [lo, hi, step] = [0, 1, 2].map(|i| wide(self.scalar(op.operands[i])));
        let step = if e.is_signed() { b.maxs(step, b.c64(1)) } else { b.maxu(step, b.c64(1)) };
        let init = self.flat(&op.operands[3..]);
        let body = &op.regions[0];
        self.enter_loop(&op.regions);
        let before = self.pending_now();
        let mut result = Ok(());
        let mut run = |i: V<'c>, carried: &[V<'c>]| {
            self.set_home(body.args[0], Home::Tile(vec![vec![b.trunci(i, carrier(b, e))]]));
            self.bind(&body.args[1..], carried);
            self.region(body).unwrap_or_else(|e| {
                result = Err(e);
                carried.to_vec()
            })
        };
        let last = if e.bits() == 64 {
            // Near the ends of i64 the next index could wrap round: count the turns instead.
            let (less, sub) = (if e.is_signed() { Cmp::Slt } else { Cmp::Ult }, b.sub(hi, lo));
            let some = b.cmp(less, lo, hi);
            let turns = b.select(some, b.add_c(b.divu(b.add_c(sub, -1), step), 1), b.c64(0));
            b.for_(b.c64(0), turns, b.c64(1), &init, |t, carried| run(b.add(lo, b.mul(t, step)), carried))
        } else {
            b.for_(lo, hi, step, &init, run)
        };
        result?;
        self.pending_also(before);
        self.bind(&op.results, &last);
        Ok(())
    }

    /// `while`.
    pub fn while_loop(&mut self, op: &'a Op) -> Result<(), Error> {
        self.check_carried(op)?;
        let b = self.b;
        let init = self.flat(&op.operands);
        let (condition, body) = (&op.regions[0], &op.regions[1]);
        self.enter_loop(&op.regions);
        let before = self.pending_now();
        let cell = std::cell::RefCell::new((&mut *self, Ok(())));
        let last = b.while_(
            &init,
            |carried| {
                let mut guard = cell.borrow_mut();
                let (cx, result) = &mut *guard;
                cx.bind(&condition.args, carried);
                match cx.region(condition) {
                    Ok(v) => v[0],
                    Err(e) => {
                        *result = Err(e);
                        b.cbool(false)
                    }
                }
            },
            |carried| {
                let mut guard = cell.borrow_mut();
                let (cx, result) = &mut *guard;
                cx.bind(&body.args, carried);
                cx.region(body).unwrap_or_else(|e| {
                    *result = Err(e);
                    carried.to_vec()
                })
            },
        );
        cell.into_inner().1?;
        self.pending_also(before);
        self.bind(&op.results, &last);
        Ok(())
    }

    /// `if`.
    pub fn if_else(&mut self, op: &'a Op) -> Result<(), Error> {
        self.check_carried(op)?;
        let b = self.b;
        let condition = self.scalar(op.operands[0]);
        let types = self.types(&op.results);
        let before = self.pending_now();
        let mut after = vec![];
        let cell = std::cell::RefCell::new((&mut *self, Ok(()), &mut after));
        let branch = |r: &'a Region| {
            let mut guard = cell.borrow_mut();
            let (cx, result, after) = &mut *guard;
            cx.pending_swap(before.clone());
            let values = cx.region(r);
            after.push(cx.pending_now());
            values.unwrap_or_else(|e| {
                *result = Err(e);
                vec![]
            })
        };
        let values = b.if_(condition, &types, || branch(&op.regions[0]), || branch(&op.regions[1]));
        cell.into_inner().1?;
        self.pending_swap(super::sync::Pending::default());
        after.into_iter().for_each(|p| self.pending_also(p));
        self.bind(&op.results, &values);
        Ok(())
    }
}
