//! What goes along an axis one element after the other: scans, and reductions by a combiner that is given as a region.
//! Lanes run along another axis where there is one.

use super::{
    Error,
    at::{At, Coord},
    build::V,
    cx::{Buf, Cx, Home},
    elementwise,
    machine::carrier,
    reduce::{Combine, axis_of, kind_of},
};
use melior::ir::Type;
use std::collections::HashSet;
use tegula_ir::{Elem, Key, Op, OpKind, Region, Value};

impl<'a, 'c> Cx<'a, 'c> {
    /// `reduce_with`.
    pub fn reduce_with(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, axis) = (self.b, axis_of(op));
        let from = self.tile(op.operands[0]).clone();
        let shape = self.tile(op.results[0]).shape.clone();
        let n = from.shape[axis];
        let body = &op.regions[0];
        let fold = |cx: &mut Self, at: &At<'c>| -> Vec<V<'c>> {
            let first: Vec<V> = op.operands.iter().map(|v| cx.eval(*v, &at.with(axis, Coord::constant(0)))).collect();
            b.for_(b.c64(1), b.c64(n as i64), b.c64(1), &first, |i, acc| {
                let place = at.with(axis, Coord { var: Some((i, b.top())), plus: 0 });
                let mut args = acc.to_vec();
                args.extend(op.operands.iter().map(|v| cx.eval(*v, &place)));
                cx.inline(body, &args, at.lanes())
            })
        };
        if shape.iter().all(|n| *n == 1) {
            let types: Vec<Type> = op.results.iter().map(|v| carrier(b, self.elem(*v))).collect();
            let values =
                self.versioned(&op.operands, None, &types, &mut |cx| Ok(fold(cx, &At::origin(shape.len()))))?;
            for (v, x) in op.results.iter().zip(values) {
                self.set_home(*v, Home::Scalar(x));
            }
            return Ok(());
        }
        let bufs: Vec<Buf> = op.results.iter().map(|v| self.result_buffer(*v)).collect();
        self.nest(&shape, &op.operands, None, &mut |cx, at| {
            let values = fold(cx, at);
            for (buf, x) in bufs.iter().zip(values) {
                cx.write(buf, at, x);
            }
            Ok(())
        })?;
        for (v, buf) in op.results.iter().zip(bufs) {
            self.set_home(*v, Home::Buffer(buf));
        }
        Ok(())
    }

    /// The yields of a combiner's region on registers of `lanes` lanes.
    pub fn inline(&mut self, region: &'a Region, args: &[V<'c>], lanes: usize) -> Vec<V<'c>> {
        // Its values live for this use alone: bound as scalars, whatever their width.
        for (v, x) in region.args.iter().zip(args) {
            self.set_home(*v, Home::Scalar(*x));
        }
        let inside: HashSet<Value> =
            region.args.iter().chain(region.ops.iter().flat_map(|o| &o.results)).copied().collect();
        let get = |cx: &mut Self, v: Value| -> V<'c> {
            let x = cx.scalar(v);
            if inside.contains(&v) { x } else { cx.b.splat(x, lanes) }
        };
        for op in &region.ops {
            let x = match op.kind {
                OpKind::Const => {
                    let bits = op.attrs.scalar(Key::Value).map_or(0, |s| s.bits);
                    self.b.constant_bits(carrier(self.b, self.elem(op.results[0])), bits, lanes)
                }
                k if k.is_elementwise() => {
                    let args: Vec<V> = op.operands.iter().map(|v| get(self, *v)).collect();
                    let elems: Vec<Elem> = op.operands.iter().map(|v| self.elem(*v)).collect();
                    elementwise::apply(self, op, &elems, self.elem(op.results[0]), &args)
                }
                // Shape ops on scalars, facts.
                _ => get(self, op.operands[0]),
            };
            self.set_home(op.results[0], Home::Scalar(x));
        }
        region.yields.iter().map(|v| get(self, *v)).collect()
    }

    /// `scan` and `scan_with`: in operand order, one element after the other; lanes along another axis where there is one.
    pub fn scan(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, axis) = (self.b, axis_of(op));
        let ty = self.tile(op.operands[0]).clone();
        let n = ty.shape[axis];
        let reverse = op.attrs.has(Key::Reverse);
        let bufs: Vec<Buf> = op
            .results
            .iter()
            .map(|v| if self.tile(*v).len() == 1 { self.buffer(self.tile(*v)) } else { self.result_buffer(*v) })
            .collect();
        let mut outer = ty.shape.clone();
        outer[axis] = 1;
        let combine = (op.kind == OpKind::Scan)
            .then(|| Combine::new(b, kind_of(op), ty.elem, self.elem(op.results[0])).careful());
        self.nest(&outer, &op.operands, None, &mut |cx, at| {
            let place = |i: V<'c>| -> At<'c> {
                let i = if reverse { b.sub(b.c64(n as i64 - 1), i) } else { i };
                at.with(axis, Coord { var: Some((i, b.top())), plus: 0 })
            };
            let first: Vec<V> = match &combine {
                Some(c) => c.identity(at.lanes()),
                None => {
                    let start = at.with(axis, Coord::constant(if reverse { n as i64 - 1 } else { 0 }));
                    let x: Vec<V> = op.operands.iter().map(|v| cx.eval(*v, &start)).collect();
                    bufs.iter().zip(&x).for_each(|(buf, x)| cx.write(buf, &start, *x));
                    x
                }
            };
            let start = if combine.is_some() { 0 } else { 1 };
            b.for_(b.c64(start), b.c64(n as i64), b.c64(1), &first, |i, acc| {
                let place = place(i);
                let x: Vec<V> = op.operands.iter().map(|v| cx.eval(*v, &place)).collect();
                let next = match &combine {
                    Some(c) => c.merge(acc, &c.lift(x[0], b.splat(b.c32(0), at.lanes()))),
                    None => {
                        let args: Vec<V> = acc.iter().chain(&x).copied().collect();
                        cx.inline(&op.regions[0], &args, at.lanes())
                    }
                };
                for (j, buf) in bufs.iter().enumerate() {
                    let out = combine.as_ref().map_or(next[j], |c| c.finish(&next));
                    cx.write(buf, &place, out);
                }
                next
            });
            Ok(())
        })?;
        for (v, buf) in op.results.iter().zip(bufs) {
            self.finish_buffer(*v, buf);
        }
        Ok(())
    }
}
