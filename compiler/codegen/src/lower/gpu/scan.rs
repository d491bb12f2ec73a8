//! Prefix sums and the like, through shared memory.
//!
//! **Order.** It depends on the axis's extent alone: the axis is cut into runs of 16. Threads fold one run each, one thread
//! a line folds the runs' totals from left to right, then each run is scanned again from what came before it.

use super::{
    super::{
        build::{Build, Cmp, V},
        cpu::reduce::{Combine, axis_of, kind_of},
    },
    Error,
    cx::Cx,
    reduce::{Merge, State},
    stage::{Staged, bytes, strides},
};
use melior::ir::Type;
use tegula_ir::{Elem, Key, Op, OpKind};

/// Elements of a run.
const RUN: usize = 16;

/// How elements become states and results come out, and the registers of a state.
struct Rule<'r, 'c> {
    lift: &'r dyn Fn(&[V<'c>]) -> State<'c>,
    finish: &'r dyn Fn(&[V<'c>]) -> State<'c>,
    types: Vec<Type<'c>>,
}

/// The lines of a tile along an axis.
struct Lines {
    shape: Vec<usize>,
    axis: usize,
    reverse: bool,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `scan` and `scan_with`.
    pub fn scan(&mut self, op: &'a Op) -> Result<(), Error> {
        if op.kind == OpKind::ScanWith {
            let body = &op.regions[0];
            let types = op.operands.iter().map(|v| self.carrier(*v)).collect();
            let mut merge = |cx: &mut Cx<'a, 'c>, x: &[V<'c>], y: &[V<'c>]| {
                let args: Vec<V> = x.iter().chain(y).copied().collect();
                cx.inline(body, &args)
            };
            let same = |x: &[V<'c>]| x.to_vec();
            return self.scan_by(op, &Rule { lift: &same, finish: &same, types }, &mut merge);
        }
        let b = self.b;
        let combine = Combine::new(b, kind_of(op), self.elem(op.operands[0]), self.elem(op.results[0])).careful();
        let lift = |x: &[V<'c>]| combine.lift(x[0], b.c32(0));
        let finish = |s: &[V<'c>]| vec![combine.finish(s)];
        let mut merge = |_: &mut Cx<'a, 'c>, x: &[V<'c>], y: &[V<'c>]| combine.merge(x, y);
        self.scan_by(op, &Rule { lift: &lift, finish: &finish, types: combine.types(0) }, &mut merge)
    }

    fn scan_by(&mut self, op: &'a Op, rule: &Rule<'_, 'c>, merge: &mut Merge<'_, 'a, 'c>) -> Result<(), Error> {
        let b = self.b;
        let t = self.tile(op.operands[0]).clone();
        let lines = Lines { shape: t.shape.clone(), axis: axis_of(op), reverse: op.attrs.has(Key::Reverse) };
        let n = t.shape[lines.axis];
        let (count, runs) = (t.len() / n, n.div_ceil(RUN));
        // Shared memory: operands, results, totals of runs (8 bytes a register).
        let row = t.shape.last().copied().unwrap_or(1);
        let rows = vec![row; op.operands.len()];
        let place = |e: Elem| bytes(&t.shape, row, e).next_multiple_of(16);
        let inputs: usize = op.operands.iter().map(|v| place(self.elem(*v))).sum();
        let outputs: usize = op.results.iter().map(|v| place(self.elem(*v))).sum();
        let totals = count * runs * rule.types.len() * 8;
        let source = self.staged_with(op, &op.operands, &rows, outputs + totals);
        let mut at = inputs;
        let mut target = vec![];
        for v in &op.results {
            let e = self.elem(*v);
            target.push(Staged {
                base: self.shared_at(at),
                elem: e,
                shape: t.shape.clone(),
                strides: strides(&t.shape, row),
            });
            self.fill_up(at, bytes(&t.shape, row, e));
            at += place(e);
        }
        let totals = self.shared_at(at);
        let total = |i: V<'c>, part: usize| {
            let slot = b.add_c(b.mul_c(i, rule.types.len() as i64), part as i64);
            b.gep(totals, b.i64(), slot)
        };
        let read_total = |i: V<'c>| -> State<'c> {
            let one = |(k, ty): (usize, &Type<'c>)| from_raw(b, b.load(total(i, k), b.i64(), 0, 8), *ty);
            rule.types.iter().enumerate().map(one).collect()
        };
        let write_total = |i: V<'c>, s: &[V<'c>]| {
            s.iter().enumerate().for_each(|(k, x)| b.store(to_raw(b, *x), total(i, k), 8));
        };
        let element = |cx: &mut Self, line: V<'c>, i: V<'c>| -> Vec<V<'c>> {
            let flat = lines.flat(cx, line, i, n);
            source.iter().map(|s| cx.staged_at(s, flat)).collect()
        };

        if runs > 1 {
            self.each_of(count * runs, &mut |cx, task| {
                let (line, run) = (b.divu(task, b.c32(runs as i32)), b.remu(task, b.c32(runs as i32)));
                let first = b.mul_c(run, RUN as i64);
                let end = run_end(cx, first, n);
                let x = element(cx, line, first);
                let start = (rule.lift)(&x);
                let (lo, hi) = (b.zext(b.add_c(first, 1), b.i64()), b.zext(end, b.i64()));
                let all = b.for_(lo, hi, b.c64(1), &start, |i, acc| {
                    let x = element(cx, line, b.trunci(i, b.i32()));
                    let y = (rule.lift)(&x);
                    merge(cx, acc, &y)
                });
                write_total(task, &all);
            });
            self.barrier();
            self.each_of(count, &mut |cx, line| {
                let base = b.mul_c(line, runs as i64);
                let start = read_total(base);
                b.for_(b.c64(1), b.c64(runs as i64), b.c64(1), &start, |run, acc| {
                    let i = b.add(base, b.trunci(run, b.i32()));
                    let own = read_total(i);
                    let next = merge(cx, acc, &own);
                    write_total(i, acc);
                    next
                });
            });
            self.barrier();
        }
        self.each_of(count * runs, &mut |cx, task| {
            let (line, run) = (b.divu(task, b.c32(runs as i32)), b.remu(task, b.c32(runs as i32)));
            let first = b.mul_c(run, RUN as i64);
            let end = run_end(cx, first, n);
            let put = |cx: &mut Self, i: V<'c>, s: &[V<'c>]| {
                let flat = lines.flat(cx, line, i, n);
                for (t, x) in target.iter().zip((rule.finish)(s)) {
                    cx.put_staged(t, flat, x);
                }
            };
            let x = element(cx, line, first);
            let own = (rule.lift)(&x);
            let start = if runs > 1 {
                let later = b.cmp(Cmp::Ne, run, b.c32(0));
                let merged = {
                    let before = read_total(task);
                    merge(cx, &before, &own)
                };
                own.iter().zip(&merged).map(|(x, y)| b.select(later, *y, *x)).collect()
            } else {
                own
            };
            put(cx, first, &start);
            let (lo, hi) = (b.zext(b.add_c(first, 1), b.i64()), b.zext(end, b.i64()));
            b.for_(lo, hi, b.c64(1), &start, |i, acc| {
                let i = b.trunci(i, b.i32());
                let x = element(cx, line, i);
                let y = (rule.lift)(&x);
                let next = merge(cx, acc, &y);
                put(cx, i, &next);
                next
            });
        });
        self.shared_written();
        for (v, s) in op.results.iter().zip(&target) {
            let pieces = self.pieces(*v);
            let regs = self.read_staged(s, &pieces);
            self.set_regs(*v, regs)?;
        }
        Ok(())
    }

    /// `f` for each number below `n` (i32), shared out over the block's threads.
    pub fn each_of(&mut self, n: usize, f: &mut dyn FnMut(&mut Self, V<'c>)) {
        let b = self.b;
        let (lo, step) = (b.zext(self.tid, b.i64()), b.c64(self.threads() as i64));
        b.for_(lo, b.c64(n as i64), step, &[], |i, _| {
            f(self, b.trunci(i, b.i32()));
            vec![]
        });
    }
}

/// Where a run that starts at `first` ends.
fn run_end<'c>(cx: &Cx<'_, 'c>, first: V<'c>, n: usize) -> V<'c> {
    let b = cx.b;
    let end = b.add_c(first, RUN as i64);
    if n.is_multiple_of(RUN) { end } else { b.mins(end, b.c32(n as i32)) }
}

impl Lines {
    /// Flat index of the `i`-th element in order of line `line`.
    fn flat<'c>(&self, cx: &Cx<'_, 'c>, line: V<'c>, i: V<'c>, n: usize) -> V<'c> {
        let b = cx.b;
        let inner: usize = self.shape[self.axis + 1..].iter().product();
        let i = if self.reverse { b.sub(b.c32(n as i32 - 1), i) } else { i };
        let (outer, rest) = (b.divu(line, b.c32(inner as i32)), b.remu(line, b.c32(inner as i32)));
        b.add(b.mul_c(b.add(b.mul_c(outer, n as i64), i), inner as i64), rest)
    }
}

/// A register as 64 bits, and back.
fn to_raw<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    b.zext(b.bitcast(x, b.int(b.bits(x))), b.i64())
}
fn from_raw<'c>(b: &Build<'c>, x: V<'c>, ty: Type<'c>) -> V<'c> {
    let bits = b.bits(b.constant_bits(ty, 0, 0));
    b.bitcast(b.trunci(x, b.int(bits)), ty)
}
