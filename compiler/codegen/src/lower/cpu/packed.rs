//! Packed weights: handles to matrices and rectangles of them, and the ops that read them.
//!
//! The layout for speed is `panel16`, in rectangles of whole panels: their arithmetic is [`micro`](super::micro)'s. Any
//! other is read element by element, with a remark; packing is what such kernels are for.

pub mod element;

use super::{
    Error,
    at::{At, Coord},
    build::{Cmp, V},
    cx::{Buf, Cx, Home, PackedVal},
    micro::{
        Code, Stride,
        dequant::{Dequant, DequantOperands},
        grouped::{Grouped, GroupedOperands},
    },
};
use element::Place;
use tegula_ir::{
    Key, Op, QTileType, Type,
    layout::{GROUP, Layout, panel},
};

impl<'a, 'c> Cx<'a, 'c> {
    /// `packed_load`: remembers where the rectangle is; who uses it reads it.
    pub fn packed_load(&mut self, op: &'a Op) -> Result<(), Error> {
        let Home::Packed(packed) = self.home(op.operands[0]).clone() else {
            unreachable!("a verified kernel has a packed matrix here")
        };
        let (k, n) = (self.scalar(op.operands[1]), self.scalar(op.operands[2]));
        let Type::QTile(ty) = self.k.ty(op.results[0]).clone() else {
            unreachable!("a verified kernel has a quantised tile here")
        };
        self.set_home(op.results[0], Home::QTile { packed, k, n, ty });
        Ok(())
    }

    /// `packed_dim`.
    pub fn packed_dim(&mut self, op: &'a Op) {
        let b = self.b;
        let x = match self.home(op.operands[0]) {
            Home::Packed(p) if op.attrs.int(Key::Axis) == Some(0) => p.k,
            Home::Packed(p) => p.n,
            _ => unreachable!("a verified kernel has a packed matrix here"),
        };
        self.set_home(op.results[0], Home::Scalar(b.trunci(x, b.i32())));
    }

    /// The rectangle that an operand names.
    fn rectangle(&self, v: tegula_ir::Value) -> (PackedVal<'c>, V<'c>, V<'c>, QTileType) {
        let Home::QTile { packed, k, n, ty } = self.home(v).clone() else {
            unreachable!("a verified kernel has a quantised tile here")
        };
        (packed, k, n, ty)
    }

    /// Where single elements of a matrix are.
    fn place_of(&self, op: &Op, packed: &PackedVal<'c>) -> Result<Place<'c>, Error> {
        match Layout::from_name(&packed.layout) {
            Some(layout) => Ok(Place { quant: packed.quant, layout, base: packed.base, rows: packed.k }),
            None => {
                let known: Vec<&str> = Layout::ALL.iter().map(|l| l.name()).collect();
                self.error(
                    op,
                    format!("`{}` has layout `{}`: CPU kernels read {}", packed.name, packed.layout, known.join(", ")),
                )
            }
        }
    }

    /// The first block of the rectangle at (k, n), the distance of panels, and how many rows and panels exist from there.
    pub(super) fn panels(&mut self, packed: &PackedVal<'c>, k: V<'c>, n: V<'c>) -> (V<'c>, Stride<'c>, (V<'c>, V<'c>)) {
        let b = self.b;
        let f = panel::format(packed.quant);
        let (zero, shift) = (b.c64(0), f.block.trailing_zeros().into());
        let panel_bytes = b.mul_c(b.shru_c(packed.k, shift), f.block_bytes as i64);
        let first = b.shru_c(n, panel::COLUMNS.trailing_zeros().into());
        let offset = b.add(b.mul(first, panel_bytes), b.mul_c(b.shru_c(k, shift), f.block_bytes as i64));
        let count = b.shru_c(b.add_c(packed.n, panel::COLUMNS as i64 - 1), panel::COLUMNS.trailing_zeros().into());
        let valid = b.and(b.cmp(Cmp::Sge, k, zero), b.cmp(Cmp::Sge, n, zero));
        let left = |all: V<'c>, before: V<'c>| b.select(valid, b.maxs(b.sub(all, before), zero), zero);
        let exists = (left(packed.k, k), left(count, first));
        (b.offset(packed.base, offset), Stride::Run(panel_bytes), exists)
    }

    /// Elements of a `packed_gather` at a place.
    pub fn packed_gather(&mut self, op: &'a Op, at: &At<'c>) -> V<'c> {
        let b = self.b;
        let Home::Packed(packed) = self.home(op.operands[0]).clone() else {
            unreachable!("a verified kernel has a packed matrix here")
        };
        // The layout was checked when the op was met.
        let Ok(place) = self.place_of(op, &packed) else { return b.cf32(0.0, at.lanes()) };
        let lanes = at.lanes();
        let (k, n) = (self.eval(op.operands[1], at), self.eval(op.operands[2], at));
        let mask = op.attrs.has(Key::Masked).then(|| self.eval(op.operands[3], at));
        let inside = |v: V<'c>, extent: V<'c>| b.cmp(Cmp::Ult, v, b.splat(extent, lanes));
        let mut ok = b.and(inside(k, packed.k), inside(n, packed.n));
        if let Some(m) = mask {
            ok = b.and(ok, m);
        }
        let one = |ok: V<'c>, k: V<'c>, n: V<'c>| {
            b.if_(ok, &[b.f32()], || vec![place.value(b, k, n)], || vec![b.cf32(0.0, 0)])[0]
        };
        if lanes == 0 {
            return one(ok, k, n);
        }
        let lane = |i| one(b.extract(ok, i), b.extract(k, i), b.extract(n, i));
        b.gather_lanes(&(0..lanes).map(lane).collect::<Vec<_>>())
    }

    /// Checks what `packed_gather` needs before its elements are asked for.
    pub fn check_packed_gather(&self, op: &Op) -> Result<(), Error> {
        match self.home(op.operands[0]) {
            Home::Packed(p) => self.place_of(op, p).map(|_| ()),
            _ => unreachable!("a verified kernel has a packed matrix here"),
        }
    }

    /// `dequant`.
    pub fn dequant(&mut self, op: &'a Op) -> Result<(), Error> {
        let (packed, k, n, ty) = self.rectangle(op.operands[0]);
        let Some(d) = Dequant::new((ty.k, ty.n), ty.quant).filter(|_| in_panels(&packed)) else {
            return self.dequant_slowly(op, &packed, k, n, &ty);
        };
        let out = self.result_buffer(op.results[0]);
        let (weights, panel, exists) = self.panels(&packed, k, n);
        let to = (out.ptr, Stride::Fixed(4 * ty.n as i64));
        d.emit(&Code::new(self.b, self.target.isa), &DequantOperands { weights, panel, exists, to });
        self.finish_buffer(op.results[0], out);
        Ok(())
    }

    /// `dot_grouped`.
    pub fn dot_grouped(&mut self, op: &'a Op) -> Result<(), Error> {
        let (packed, k, n, ty) = self.rectangle(op.operands[3]);
        let m = self.tile(op.operands[0]).shape[0];
        let out = self.result_buffer(op.results[0]);
        self.fill(&out, op.operands[4])?;
        let Some(grouped) = Grouped::new((m, ty.n, ty.k), ty.quant).filter(|_| in_panels(&packed)) else {
            return self.grouped_slowly(op, &packed, k, n, &ty, out);
        };
        let mut operands = vec![];
        for v in &op.operands[..3] {
            operands.push(self.matrix(*v, false)?);
        }
        let (weights, panel, exists) = self.panels(&packed, k, n);
        let place = self.arena.alloc(grouped.scratch_bytes());
        let scratch = self.scratch_at(place);
        let at = |i: usize| (operands[i].ptr, operands[i].row);
        grouped.emit(
            &Code::new(self.b, self.target.isa),
            &GroupedOperands {
                codes: at(0),
                scales: at(1),
                sums: at(2),
                weights,
                panel,
                exists: Some(exists),
                c: (out.ptr, Stride::Fixed(4 * ty.n as i64)),
                scratch,
            },
        );
        self.arena.free(place);
        for buf in operands.into_iter().filter_map(|m| m.aside) {
            self.release(&buf);
        }
        self.finish_buffer(op.results[0], out);
        Ok(())
    }

    fn remark_slow(&mut self, op: &Op, packed: &PackedVal<'c>, ty: &QTileType) {
        self.remarks.push(format!(
            "{}: `{}` reads `{}` element by element: fast are rectangles of multiples of {} columns (here {}) in layout \
             `{}` (here `{}`)",
            op.loc,
            op.kind.name(),
            packed.name,
            panel::COLUMNS,
            ty.n,
            Layout::Panel16.name(),
            packed.layout
        ));
    }

    /// Whether element (k, n) exists: i1.
    fn exists(&self, packed: &PackedVal<'c>, k: V<'c>, n: V<'c>) -> V<'c> {
        let b = self.b;
        b.and(b.cmp(Cmp::Ult, k, packed.k), b.cmp(Cmp::Ult, n, packed.n))
    }

    fn dequant_slowly(
        &mut self,
        op: &'a Op,
        packed: &PackedVal<'c>,
        k: V<'c>,
        n: V<'c>,
        ty: &QTileType,
    ) -> Result<(), Error> {
        let b = self.b;
        let place = self.place_of(op, packed)?;
        self.remark_slow(op, packed, ty);
        let out = self.result_buffer(op.results[0]);
        self.loops(&[ty.k, ty.n], None, 1, &mut At::origin(2), 0, &mut |cx, at| {
            let (k, n) = (b.add(k, at.coords[0].value(b)), b.add(n, at.coords[1].value(b)));
            let there = cx.exists(packed, k, n);
            let x = b.if_(there, &[b.f32()], || vec![place.value(b, k, n)], || vec![b.cf32(0.0, 0)])[0];
            cx.write(&out, at, x);
            Ok(())
        })?;
        self.finish_buffer(op.results[0], out);
        Ok(())
    }

    fn grouped_slowly(
        &mut self,
        op: &'a Op,
        packed: &PackedVal<'c>,
        k: V<'c>,
        n: V<'c>,
        ty: &QTileType,
        out: Buf<'c>,
    ) -> Result<(), Error> {
        let b = self.b;
        let place = self.place_of(op, packed)?;
        self.remark_slow(op, packed, ty);
        let [codes, scales, sums] = [op.operands[0], op.operands[1], op.operands[2]];
        let shape = out.ty.shape.clone();
        let groups = (ty.k / GROUP) as i64;
        self.versioned(&[codes, scales, sums], None, &[], &mut |cx| {
            cx.loops(&shape, None, 1, &mut At::origin(2), 0, &mut |cx, at| {
                let column = b.add(n, at.coords[1].value(b));
                let first = cx.read(&out, at);
                let acc = b.for_(b.c64(0), b.c64(groups), b.c64(1), &[first], |g, acc| {
                    let row = |c: V<'c>| At {
                        coords: vec![at.coords[0], Coord { var: Some((c, b.top())), plus: 0 }],
                        lane: None,
                    };
                    let (sx, sum) = (cx.eval(scales, &row(g)), cx.eval(sums, &row(g)));
                    let start = b.mul_c(g, GROUP as i64);
                    let there = cx.exists(packed, b.add(k, start), column);
                    b.if_(
                        there,
                        &[b.f32()],
                        || {
                            let whole = b.for_(b.c64(0), b.c64(GROUP as i64), b.c64(1), &[b.c32(0)], |i, total| {
                                let i = b.add(start, i);
                                let x = b.sext(cx.eval(codes, &row(i)), b.i64());
                                let p = place.parts(b, b.add(k, i), column);
                                let w = p.sub.map_or(p.code, |s| b.mul(s, p.code));
                                vec![b.add(total[0], b.trunci(b.mul(w, x), b.i32()))]
                            })[0];
                            let p = place.parts(b, b.add(k, start), column);
                            let acc = b.fma(b.sitofp(whole, b.f32()), b.mulf(p.scale, sx), acc[0]);
                            vec![p.min.map_or(acc, |m| b.fma(b.sitofp(sum, b.f32()), b.mulf(m, sx), acc))]
                        },
                        || vec![acc[0]],
                    )
                });
                cx.write(&out, at, acc[0]);
                Ok(())
            })?;
            Ok(vec![])
        })?;
        self.finish_buffer(op.results[0], out);
        Ok(())
    }
}

/// Whether a matrix lies as the register-blocked products read it.
fn in_panels(packed: &PackedVal) -> bool {
    packed.layout == Layout::Panel16.name()
}
