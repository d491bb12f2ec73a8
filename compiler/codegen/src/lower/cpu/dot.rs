//! `dot`: finds where the operands lie, and hands them to [`micro::dot`](super::micro::dot).
//!
//! A tile that is loaded from a view is read where it is when it lies inside the view with unit stride; at an edge it is
//! copied into scratch memory first, padded. Transposed tiles and packed floats are read as they lie too.

use super::{
    Error,
    at::At,
    build::V,
    convert::cast,
    cx::{Buf, Cx, Home},
    micro::{
        Code, Stride,
        dot::{Dot, DotOperands, Order},
    },
};
use tegula_ir::{Elem, Key, Op, OpKind, Quant, TileType, Value};

/// A matrix in memory: rows of contiguous elements.
pub(super) struct Matrix<'c> {
    pub ptr: V<'c>,
    pub row: Stride<'c>,
    /// Rows are the tile's columns.
    pub transposed: bool,
    /// Scratch memory to give back.
    pub aside: Option<Buf<'c>>,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `dot`.
    pub fn dot(&mut self, op: &'a Op) -> Result<(), Error> {
        let (lhs, rhs, acc, result) = (op.operands[0], op.operands[1], op.operands[2], op.results[0]);
        let out = self.result_buffer(result);
        self.fill(&out, acc)?;
        let (m, k, n) = (self.tile(lhs).shape[0], self.tile(lhs).shape[1], self.tile(rhs).shape[1]);
        let small = |e: Elem| matches!(e, Elem::F8E4M3 | Elem::F8E5M2);
        let (lhs, rhs) = (self.before_widening(lhs), self.before_widening(rhs));
        let (ea, eb) = (self.elem(lhs), self.elem(rhs));
        let (a, ea) =
            if small(ea) { (self.staged(lhs, Elem::F32)?, Elem::F32) } else { (self.matrix(lhs, false)?, ea) };
        let panels = self.packed_floats(rhs, (m, n, k), ea);
        let (b, eb) = match &panels {
            Some(_) => (None, eb),
            None if small(eb) => (Some(self.staged(rhs, Elem::F32)?), Elem::F32),
            None => (Some(self.matrix(rhs, true)?), eb),
        };
        let order = if b.as_ref().is_some_and(|b| b.transposed) { Order::Columns } else { Order::Rows };
        let dot = panels.as_ref().map_or(Dot { m, n, k, a: ea, b: eb, order }, |p| p.0);
        let (b_ptr, b_row, exists) = match (&b, &panels) {
            (Some(b), _) => (b.ptr, b.row, None),
            (None, Some((_, ptr, row, exists))) => (*ptr, *row, Some(*exists)),
            (None, None) => unreachable!("one of the two was made above"),
        };
        let place = self.arena.alloc(dot.scratch_bytes());
        let scratch = self.scratch_at(place);
        let c_row = Stride::Fixed((n * out.ty.elem.bytes()) as i64);
        let operands = DotOperands { a: a.ptr, a_row: a.row, b: b_ptr, b_row, exists, c: out.ptr, c_row, scratch };
        dot.emit(&Code::new(self.b, self.target.isa), &operands);
        self.arena.free(place);
        for buf in [Some(a), b].into_iter().flatten().filter_map(|m| m.aside) {
            self.release(&buf);
        }
        self.finish_buffer(result, out);
        Ok(())
    }

    /// Where a tile of rank 2 lies with contiguous rows; `columns` allows the transpose to.
    pub(super) fn matrix(&mut self, v: Value, columns: bool) -> Result<Matrix<'c>, Error> {
        if let Some(buf) = self.buf(v) {
            return Ok(Matrix { ptr: buf.ptr, row: row_of(&buf), transposed: false, aside: None });
        }
        if let (Home::Virtual, Some(op)) = (self.home(v), self.def(v)) {
            if let Some((load, axis)) = self.rows_of_load(v, op) {
                return self.loaded(load, v, axis);
            }
            if columns && op.kind == OpKind::Permute && op.attrs.ints(Key::Perm) == Some(&[1, 0]) {
                let inner = self.matrix(op.operands[0], false)?;
                return Ok(Matrix { transposed: true, ..inner });
            }
        }
        let (buf, _) = self.in_memory(v)?;
        Ok(Matrix { ptr: buf.ptr, row: row_of(&buf), transposed: false, aside: Some(buf) })
    }

    /// The tile of f16 or bf16 that is cast to this one: products widen it as they read.
    fn before_widening(&self, v: Value) -> Value {
        match (self.home(v), self.def(v)) {
            (Home::Virtual, Some(op)) if op.kind == OpKind::Cast && self.elem(v) == Elem::F32 => {
                let from = op.operands[0];
                if matches!(self.elem(from), Elem::F16 | Elem::BF16) { from } else { v }
            }
            _ => v,
        }
    }

    /// The load that makes the virtual tile `v` by `op`, perhaps through a reshape that drops axes of extent 1, and which
    /// axis of it are `v`'s rows; its last axis must be the columns.
    fn rows_of_load(&self, v: Value, op: &'a Op) -> Option<(&'a Op, usize)> {
        if op.kind == OpKind::Load {
            return Some((op, 0));
        }
        let from = *op.operands.first().filter(|_| op.kind == OpKind::Reshape)?;
        let load = self.def(from).filter(|o| o.kind == OpKind::Load && matches!(self.home(from), Home::Virtual))?;
        let (shape, tile) = (&self.tile(from).shape, &self.tile(v).shape);
        let (columns, rest) = shape.split_last().filter(|(n, _)| **n == tile[1])?;
        debug_assert_eq!(
            columns * rest.iter().product::<usize>(),
            tile.iter().product(),
            "a reshape keeps the elements"
        );
        let mut long = (0..rest.len()).filter(|d| rest[*d] != 1);
        let axis = long.next().unwrap_or(0);
        (long.next().is_none() && !rest.is_empty()).then_some((load, axis))
    }

    /// A tile that `load` makes, its rows along `axis` of the view: in the view if it lies inside, else in scratch memory.
    fn loaded(&mut self, load: &'a Op, v: Value, axis: usize) -> Result<Matrix<'c>, Error> {
        let b = self.b;
        let view = self.view(load.operands[0]);
        let buf = self.buffer(self.tile(v));
        let inside = self.is_inside(load);
        let outside = b.not(inside);
        let mut done = Ok(());
        let (shape, lanes) = (buf.ty.shape.clone(), self.target.lanes);
        b.when(outside, || {
            done = self.from_here(|cx| {
                cx.loops(&shape, Self::lane_axis(&shape), lanes, &mut At::origin(2), 0, &mut |cx, at| {
                    let x = cx.eval(v, at);
                    cx.write(&buf, at, x);
                    Ok(())
                })
            });
        });
        done?;
        let index: Vec<V> = (0..view.extents.len()).map(|d| self.scalar(load.operands[1 + d])).collect();
        let ptr = b.select(inside, view.address(b, &index), buf.ptr);
        let bytes = view.elem.bytes() as i64;
        let row = b.select(inside, b.mul_c(view.strides[axis], bytes), b.c64(buf.ty.shape[1] as i64 * bytes));
        Ok(Matrix { ptr, row: Stride::Run(row), transposed: false, aside: Some(buf) })
    }

    /// An operand in memory, cast.
    fn staged(&mut self, v: Value, e: Elem) -> Result<Matrix<'c>, Error> {
        let buf = self.cast_buffer(v, e)?;
        Ok(Matrix { ptr: buf.ptr, row: row_of(&buf), transposed: false, aside: Some(buf) })
    }

    fn cast_buffer(&mut self, v: Value, e: Elem) -> Result<Buf<'c>, Error> {
        let b = self.b;
        let ty = self.tile(v).clone();
        let buf = self.buffer(&TileType::new(e, ty.shape.clone()));
        self.nest(&ty.shape, &[v], None, &mut |cx, at| {
            let x = cx.eval(v, at);
            cx.write(&buf, at, cast(b, x, ty.elem, e));
            Ok(())
        })?;
        Ok(buf)
    }

    /// A packed float matrix that is multiplied without being unpacked.
    fn packed_floats(
        &mut self,
        v: Value,
        sizes: (usize, usize, usize),
        a: Elem,
    ) -> Option<(Dot, V<'c>, Stride<'c>, (V<'c>, V<'c>))> {
        let op = self.def(v).filter(|op| op.kind == OpKind::Dequant)?;
        let Home::QTile { packed, k, n, ty } = self.home(op.operands[0]).clone() else { return None };
        debug_assert!(matches!(ty.quant, Quant::F32 | Quant::F16 | Quant::BF16));
        let dot = Dot::packed(sizes, a, ty.quant)?;
        let (ptr, panel, exists) = self.panels(&packed, k, n);
        Some((dot, ptr, panel, exists))
    }
}

fn row_of<'c>(buf: &Buf<'c>) -> Stride<'c> {
    Stride::Fixed((buf.ty.shape[1] * buf.ty.elem.bytes()) as i64)
}
