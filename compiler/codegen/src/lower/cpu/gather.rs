//! Access by index tiles: gather, scatter and atomics on views, `take` and `histogram` within a tile.

use super::{
    Error,
    at::At,
    build::{Build, Cmp, V},
    cx::Cx,
    elementwise::accumulate,
    machine::{self, carrier, from_memory, memory_type, to_memory},
};
use tegula_ir::{AtomicKind, Elem, Key, MemOrder, Op, OpKind, protocol::SiteKind};

/// Elements of type `e` at base + offset (i64, in elements), of the lanes that `ok` holds for; `pad` elsewhere. Touches
/// nothing else.
pub fn gather_from<'c>(b: &Build<'c>, base: V<'c>, e: Elem, offset: V<'c>, ok: V<'c>, pad: V<'c>) -> V<'c> {
    let lanes = b.lanes(offset);
    let memory = memory_type(b, e);
    if lanes == 0 {
        let p = b.gep(base, memory, offset);
        return b.if_(ok, &[carrier(b, e)], || vec![machine::load(b, p, e, 0)], || vec![pad])[0];
    }
    let rest = to_memory(b, pad, e);
    from_memory(b, b.masked_gather(b.gep_lanes(base, memory, offset), ok, rest, e.bytes()), e)
}

impl<'a, 'c> Cx<'a, 'c> {
    /// Offsets (i64, in elements) of the elements that index tiles name, and which of them are inside and not masked off.
    /// Checked kernels report indices outside.
    fn named(&mut self, op: &'a Op, extra: usize, at: &At<'c>) -> (V<'c>, V<'c>) {
        let (b, view, lanes) = (self.b, self.view(op.operands[0]), at.lanes());
        let rank = view.extents.len();
        let mut mask = op.attrs.has(Key::Masked).then(|| self.eval(op.operands[1 + rank + extra], at));
        let (mut offset, mut ok) = (b.splat(b.c64(0), lanes), b.splat(b.cbool(true), lanes));
        for d in 0..rank {
            let index = self.eval(op.operands[1 + d], at);
            let inside = b.cmp(Cmp::Ult, index, b.splat(view.extents[d], lanes));
            if self.checked {
                let name = format!("index outside `{}` along axis {d}", view.name);
                let bad = b.not(inside);
                let bad = mask.map_or(bad, |m| b.and(m, bad));
                self.report_lanes(op, SiteKind::Index, &name, bad, index);
            }
            ok = b.and(ok, inside);
            offset = b.add(offset, b.mul(index, b.splat(view.strides[d], lanes)));
        }
        if let Some(m) = mask.take() {
            ok = b.and(ok, m);
        }
        (offset, ok)
    }

    /// Elements of a gather at a place.
    pub fn gather(&mut self, op: &'a Op, at: &At<'c>) -> V<'c> {
        let (b, view) = (self.b, self.view(op.operands[0]));
        let (offset, ok) = self.named(op, 0, at);
        let pad = b.constant_bits(carrier(b, view.elem), Self::pad_bits(op), at.lanes());
        gather_from(b, view.base, view.elem, offset, ok, pad)
    }

    /// `scatter`: lanes in order, so that the last of equal indices stays.
    pub fn scatter(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, view) = (self.b, self.view(op.operands[0]));
        let values = op.operands[1 + view.extents.len()];
        let shape = self.tile(values).shape.clone();
        self.nest(&shape, &op.operands[1..], None, &mut |cx, at| {
            let x = to_memory(b, cx.eval(values, at), view.elem);
            let (offset, ok) = cx.named(op, 1, at);
            let memory = memory_type(b, view.elem);
            if at.lanes() == 0 {
                b.when(ok, || b.store(x, b.gep(view.base, memory, offset), view.elem.bytes()));
            } else {
                b.masked_scatter(x, b.gep_lanes(view.base, memory, offset), ok, view.elem.bytes());
            }
            Ok(())
        })
    }

    /// `atomic` and `atomic_cas`: element by element.
    pub fn atomic(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, view, result) = (self.b, self.view(op.operands[0]), op.results[0]);
        let rank = view.extents.len();
        let ty = self.tile(result).clone();
        let buf = self.buffer(&ty);
        let e = view.elem;
        self.versioned(&op.operands[1..], None, &[], &mut |cx| {
            cx.loops(&ty.shape, None, 1, &mut At::origin(ty.rank()), 0, &mut |cx, at| {
                let x = cx.eval(op.operands[1 + rank], at);
                let new = (op.kind == OpKind::AtomicCas).then(|| cx.eval(op.operands[2 + rank], at));
                let (offset, ok) = cx.named(op, if new.is_some() { 2 } else { 1 }, at);
                let p = b.gep(view.base, memory_type(b, e), offset);
                let zero = b.constant_bits(carrier(b, e), 0, 0);
                let mut old = zero;
                let mut go = || match new {
                    Some(new) => compare_and_swap(b, op, p, x, new, e),
                    None => read_modify_write(cx, op, p, x, e),
                };
                old = b.if_(ok, &[carrier(b, e)], || vec![go()], || vec![old])[0];
                cx.write(&buf, at, old);
                Ok(())
            })?;
            Ok(vec![])
        })?;
        self.finish_buffer(result, buf);
        Ok(())
    }

    /// `take`.
    pub fn take(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, axis) = (self.b, super::reduce::axis_of(op));
        let (source, fresh) = self.in_memory(op.operands[0])?;
        let ty = self.tile(op.results[0]).clone();
        let index_type = self.elem(op.operands[1]);
        let stride: usize = source.ty.shape[axis + 1..].iter().product();
        let buf = self.buffer(&ty);
        self.nest(&ty.shape, &op.operands[1..], None, &mut |cx, at| {
            let lanes = at.lanes();
            let raw = cx.eval(op.operands[1], at);
            let index = if index_type.is_signed() { b.sext(raw, b.i64()) } else { b.zext(raw, b.i64()) };
            let ok = b.cmp(Cmp::Ult, index, b.int_like(index, source.ty.shape[axis] as i64));
            if cx.checked {
                cx.report_lanes(
                    op,
                    SiteKind::Index,
                    &format!("index outside a tile along axis {axis}"),
                    b.not(ok),
                    index,
                );
            }
            // The other coordinates, as an offset of each lane.
            let mut offset = b.mul_c(index, stride as i64);
            let mut step = 1;
            for d in (0..ty.rank()).rev() {
                if d != axis {
                    let mut c = b.splat(at.coords[d].value(b), lanes);
                    if at.lane.is_some_and(|(l, _)| l == d) {
                        c = b.add(c, b.iota(b.i64(), lanes));
                    }
                    offset = b.add(offset, b.mul_c(c, step));
                }
                step *= source.ty.shape[d] as i64;
            }
            let pad = b.constant_bits(carrier(b, ty.elem), 0, lanes);
            cx.write(&buf, at, gather_from(b, source.ptr, ty.elem, offset, ok, pad));
            Ok(())
        })?;
        if fresh {
            self.release(&source);
        }
        self.finish_buffer(op.results[0], buf);
        Ok(())
    }

    /// `histogram`.
    pub fn histogram(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let (values, ty) = (self.tile(op.operands[0]).clone(), self.tile(op.results[0]).clone());
        let buf = self.buffer(&ty);
        b.fill(buf.ptr, 0, ty.len() * 4);
        let masked = op.attrs.has(Key::Masked);
        self.versioned(&op.operands, None, &[], &mut |cx| {
            cx.counted(values.len(), 1, |cx, c| {
                let at = At { coords: vec![c], lane: None };
                let raw = cx.eval(op.operands[0], &at);
                let i = if values.elem.is_signed() { b.sext(raw, b.i64()) } else { b.zext(raw, b.i64()) };
                let mut ok = b.cmp(Cmp::Ult, i, b.c64(ty.len() as i64));
                if masked {
                    ok = b.and(ok, cx.eval(op.operands[1], &at));
                }
                b.when(ok, || {
                    let p = b.gep(buf.ptr, b.i32(), i);
                    b.store(b.add_c(b.load(p, b.i32(), 0, 4), 1), p, 4);
                });
                Ok(())
            })?;
            Ok(vec![])
        })?;
        self.finish_buffer(op.results[0], buf);
        Ok(())
    }

    /// Tells the host about each lane for which `bad` holds.
    pub fn report_lanes(&mut self, op: &Op, kind: SiteKind, message: &str, bad: V<'c>, value: V<'c>) {
        let b = self.b;
        let site = self.site(kind, message, op);
        let any = b.any(bad);
        b.when(any, || {
            for i in 0..b.lanes(bad).max(1) {
                let lane = |x: V<'c>| if b.lanes(x) == 0 { x } else { b.extract(x, i) };
                let value = b.zext(lane(value), b.i64());
                b.when(lane(bad), || self.report(site, value));
            }
        });
    }
}

/// MLIR's number of a memory order.
fn order_of(op: &Op) -> i64 {
    match op.attrs.sym(Key::Order).and_then(MemOrder::from_name) {
        Some(MemOrder::Relaxed) => 2,
        Some(MemOrder::Acquire) => 4,
        Some(MemOrder::Release) => 5,
        _ => 6,
    }
}

fn compare_and_swap<'c>(b: &Build<'c>, op: &Op, p: V<'c>, expected: V<'c>, new: V<'c>, e: Elem) -> V<'c> {
    let order = order_of(op);
    // A failed exchange only reads: it cannot release.
    let failure = match order {
        5 => 2,
        6 => 4,
        o => o,
    };
    b.atomic_cas(p, expected, new, (order, failure), e.bytes()).0
}

fn read_modify_write<'c>(cx: &mut Cx<'_, 'c>, op: &Op, p: V<'c>, x: V<'c>, e: Elem) -> V<'c> {
    let b = cx.b;
    let kind = op.attrs.sym(Key::Kind).and_then(AtomicKind::from_name).unwrap_or(AtomicKind::Xchg);
    let direct = match (kind, e.class()) {
        (AtomicKind::Xchg, _) => Some(0),
        (_, tegula_ir::Class::Float) => None,
        (AtomicKind::Add, _) => Some(1),
        (AtomicKind::And, _) => Some(3),
        (AtomicKind::Or, _) => Some(5),
        (AtomicKind::Xor, _) => Some(6),
        (AtomicKind::Max, tegula_ir::Class::Signed) => Some(7),
        (AtomicKind::Min, tegula_ir::Class::Signed) => Some(8),
        (AtomicKind::Max, _) => Some(9),
        (AtomicKind::Min, _) => Some(10),
    };
    // As integers of the element's width in memory.
    let bits = b.int(e.bytes() as u32 * 8);
    let raw = |v: V<'c>| b.bitcast(to_memory(b, v, e), bits);
    let cooked = |v: V<'c>| from_memory(b, b.bitcast(v, memory_type(b, e)), e);
    if let Some(kind) = direct {
        return cooked(b.atomic_rmw(kind, p, raw(x), order_of(op), e.bytes()));
    }
    // Floats: compute, and try to exchange until nobody came between.
    let first = b.load(p, bits, 0, e.bytes());
    let order = order_of(op);
    let failure = if order == 5 {
        2
    } else if order == 6 {
        4
    } else {
        order
    };
    let again = b.cbool(true);
    let last = b.while_(
        &[first, again],
        |v| v[1],
        |v| {
            let next = accumulate(cx, kind, e, cooked(v[0]), x);
            let (seen, done) = b.atomic_cas(p, v[0], raw(next), (order, failure), e.bytes());
            vec![seen, b.not(done)]
        },
    );
    cooked(last[0])
}
