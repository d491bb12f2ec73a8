//! Control flow. Carried scalars are SSA; a carried tile has one buffer for the whole loop, in which each turn's yield is
//! made directly where the plan allows, and copied to otherwise.

use super::{
    Error,
    build::{Cmp, V},
    cx::{Buf, Cx, Home},
    machine::carrier,
    plan::Mode,
};
use melior::ir::Type;
use tegula_ir::{Op, OpKind, Region, Value};

impl<'a, 'c> Cx<'a, 'c> {
    /// All ops of a region in order, then its yields: tiles into the buffers `to`, scalars as the result.
    pub fn region(&mut self, r: &'a Region, to: &[Option<Buf<'c>>]) -> Result<Vec<V<'c>>, Error> {
        let mut live: Vec<(usize, Buf<'c>)> = vec![];
        for (index, op) in r.ops.iter().enumerate() {
            self.b.set_loc(&op.loc);
            self.op(op)?;
            for v in &op.results {
                if self.mode(*v) == Mode::Buffer
                    && let Some(buf) = self.buf(*v)
                {
                    live.push((self.plan.last(*v), buf));
                }
            }
            live.retain(|(last, buf)| {
                if *last <= index {
                    self.release(buf);
                }
                *last > index
            });
        }
        let scalars = self.yields(r, to)?;
        live.iter().for_each(|(_, buf)| self.release(buf));
        Ok(scalars)
    }

    /// Parallel assignment of a region's yields: what is not computed in its place is computed aside, then everything
    /// moves.
    fn yields(&mut self, r: &'a Region, to: &[Option<Buf<'c>>]) -> Result<Vec<V<'c>>, Error> {
        let b = self.b;
        let (mut scalars, mut aside) = (vec![], vec![]);
        let mut moves: Vec<(Buf<'c>, Buf<'c>)> = vec![];
        let targets: Vec<V> = to.iter().flatten().map(|t| t.ptr).collect();
        for (v, to) in r.yields.iter().zip(to) {
            let Some(to) = to else {
                scalars.push(self.scalar(*v));
                continue;
            };
            if self.plan.in_place(*v).is_some() || self.buf(*v).is_some_and(|buf| buf.ptr == to.ptr) {
                continue;
            }
            let from = match self.buf(*v) {
                // Another carried argument's buffer may be overwritten before it is read.
                Some(buf) if !targets.contains(&buf.ptr) => buf,
                _ => {
                    let buf = self.buffer(&to.ty);
                    self.fill(&buf, *v)?;
                    aside.push(buf.clone());
                    buf
                }
            };
            moves.push((from, to.clone()));
        }
        for (v, to) in r.yields.iter().zip(to) {
            if let Some(to) = to
                && self.plan.in_place(*v).is_some()
            {
                self.fill(to, *v)?;
            }
        }
        for (from, to) in &moves {
            b.copy(to.ptr, from.ptr, to.ty.len() * to.ty.elem.bytes());
        }
        aside.iter().for_each(|buf| self.release(buf));
        Ok(scalars)
    }

    /// Buffers of the tiles among `values`; each is made here and belongs to the results.
    fn carried(&mut self, inits: &[Value]) -> Result<Vec<Option<Buf<'c>>>, Error> {
        let mut bufs = vec![];
        for v in inits {
            if self.mode(*v) == Mode::Scalar || self.tile(*v).len() == 1 {
                bufs.push(None);
                continue;
            }
            let buf = self.buffer(self.tile(*v));
            self.fill(&buf, *v)?;
            bufs.push(Some(buf));
        }
        Ok(bufs)
    }

    fn bind(&mut self, values: &[Value], bufs: &[Option<Buf<'c>>], scalars: &[V<'c>]) {
        let mut scalars = scalars.iter();
        for (v, buf) in values.iter().zip(bufs) {
            match buf {
                Some(buf) => self.set_home(*v, Home::Buffer(buf.clone())),
                None => {
                    if let Some(x) = scalars.next() {
                        self.set_home(*v, Home::Scalar(*x));
                    }
                }
            }
        }
    }

    fn scalars_of(&mut self, values: &[Value], bufs: &[Option<Buf<'c>>]) -> Vec<V<'c>> {
        values.iter().zip(bufs).filter(|(_, b)| b.is_none()).map(|(v, _)| self.scalar(*v)).collect()
    }

    /// `for`.
    pub fn for_loop(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let [lo, hi, step] = [0, 1, 2].map(|i| self.scalar(op.operands[i]));
        let e = self.elem(op.operands[0]);
        let wide = |x: V<'c>| if e.is_signed() { b.sext(x, b.i64()) } else { b.zext(x, b.i64()) };
        // A step that is not positive is the kernel's fault, which the oracle reports; here it must not hang.
        let (lo, hi, step) = (wide(lo), wide(hi), wide(step));
        let step = if e.is_signed() { b.maxs(step, b.c64(1)) } else { b.maxu(step, b.c64(1)) };
        let bufs = self.carried(&op.operands[3..])?;
        let init = self.scalars_of(&op.operands[3..], &bufs);
        let body = &op.regions[0];
        let mut result = Ok(());
        // An unsigned count beyond 2^63 would look negative: compare as what it is.
        let run = |cx: &mut Self, i: V<'c>, carried: &[V<'c>]| -> Result<Vec<V<'c>>, Error> {
            let index = b.trunci(i, carrier(b, e));
            cx.set_home(body.args[0], Home::Scalar(index));
            cx.bind(&body.args[1..], &bufs, carried);
            cx.region(body, &bufs)
        };
        let last = if e.bits() == 64 {
            // Near the ends of i64 the next index could wrap round: count the turns instead.
            let (less, sub) = (if e.is_signed() { Cmp::Slt } else { Cmp::Ult }, b.sub(hi, lo));
            let some = b.cmp(less, lo, hi);
            let turns = b.select(some, b.add_c(b.divu(b.add_c(sub, -1), step), 1), b.c64(0));
            b.for_(b.c64(0), turns, b.c64(1), &init, |t, carried| {
                run(self, b.add(lo, b.mul(t, step)), carried).unwrap_or_else(|e| {
                    result = Err(e);
                    carried.to_vec()
                })
            })
        } else {
            b.for_(lo, hi, step, &init, |i, carried| {
                run(self, i, carried).unwrap_or_else(|e| {
                    result = Err(e);
                    carried.to_vec()
                })
            })
        };
        result?;
        self.bind(&op.results, &bufs, &last);
        Ok(())
    }

    /// `while`.
    pub fn while_loop(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let bufs = self.carried(&op.operands)?;
        let init = self.scalars_of(&op.operands, &bufs);
        let (condition, body) = (&op.regions[0], &op.regions[1]);
        let cell = std::cell::RefCell::new((&mut *self, Ok(())));
        let last = b.while_(
            &init,
            |carried| {
                let mut guard = cell.borrow_mut();
                let (cx, result) = &mut *guard;
                cx.bind(&condition.args, &bufs, carried);
                let value = cx.region(condition, &[None]);
                match value {
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
                cx.bind(&body.args, &bufs, carried);
                let next = cx.region(body, &bufs);
                next.unwrap_or_else(|e| {
                    *result = Err(e);
                    carried.to_vec()
                })
            },
        );
        let result = cell.into_inner().1;
        result?;
        self.bind(&op.results, &bufs, &last);
        Ok(())
    }

    /// `if`.
    pub fn if_else(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let condition = self.scalar(op.operands[0]);
        let mut bufs = vec![];
        let mut types: Vec<Type> = vec![];
        for v in &op.results {
            if self.mode(*v) == Mode::Scalar {
                types.push(carrier(b, self.elem(*v)));
                bufs.push(None);
            } else {
                bufs.push(Some(self.buffer(self.tile(*v))));
            }
        }
        let cell = std::cell::RefCell::new((&mut *self, Ok(())));
        let branch = |r: &'a Region| {
            let mut guard = cell.borrow_mut();
            let (cx, result) = &mut *guard;
            let values = cx.region(r, &bufs);
            values.unwrap_or_else(|e| {
                *result = Err(e);
                vec![]
            })
        };
        let values = b.if_(condition, &types, || branch(&op.regions[0]), || branch(&op.regions[1]));
        cell.into_inner().1?;
        self.bind(&op.results, &bufs, &values);
        Ok(())
    }

    /// Any op with regions that is no combiner.
    pub fn control(&mut self, op: &'a Op) -> Result<(), Error> {
        let carried = op.operands.iter().chain(&op.results);
        if op.kind != OpKind::If && carried.clone().any(|v| self.k.ty(*v).as_tile().is_none())
            || op.results.iter().any(|v| self.k.ty(*v).as_tile().is_none())
        {
            return self.error(op, "views and packed matrices cannot be carried or chosen at run time: only tiles can");
        }
        self.depth += 1;
        let result = match op.kind {
            OpKind::For => self.for_loop(op),
            OpKind::While => self.while_loop(op),
            _ => self.if_else(op),
        };
        self.depth -= 1;
        result
    }
}
