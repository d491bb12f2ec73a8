//! Packed weights: handles to matrices and rectangles of them, and the ops that read them. The layout is `panel16`; its
//! arithmetic is [`micro`](super::micro)'s.

use super::{
    Error,
    at::At,
    build::{Cmp, V},
    cx::{Cx, Home, PackedVal},
    micro::{
        Code, Stride,
        dequant::{self, Dequant, DequantOperands},
        grouped::{Grouped, GroupedOperands},
    },
};
use tegula_ir::{
    Key, Op, QTileType, Type,
    layout::{Layout, panel},
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

    /// The rectangle that an operand names, if its layout is one that the CPU reads.
    fn rectangle(&self, op: &Op, v: tegula_ir::Value) -> Result<(PackedVal<'c>, V<'c>, V<'c>, QTileType), Error> {
        let Home::QTile { packed, k, n, ty } = self.home(v).clone() else {
            unreachable!("a verified kernel has a quantised tile here")
        };
        self.expect_panels(op, &packed)?;
        Ok((packed, k, n, ty))
    }

    fn expect_panels(&self, op: &Op, packed: &PackedVal<'c>) -> Result<(), Error> {
        if packed.layout == Layout::Panel16.name() {
            return Ok(());
        }
        self.error(
            op,
            format!(
                "`{}` has layout `{}`, but CPU kernels read `{}`: pack the weights for this device first",
                packed.name,
                packed.layout,
                Layout::Panel16.name()
            ),
        )
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
        let lanes = at.lanes();
        let (k, n) = (self.eval(op.operands[1], at), self.eval(op.operands[2], at));
        let mask = op.attrs.has(Key::Masked).then(|| self.eval(op.operands[3], at));
        let inside = |v: V<'c>, extent: V<'c>| b.cmp(Cmp::Ult, v, b.splat(extent, lanes));
        let mut ok = b.and(inside(k, packed.k), inside(n, packed.n));
        if let Some(m) = mask {
            ok = b.and(ok, m);
        }
        let one = |ok: V<'c>, k: V<'c>, n: V<'c>| {
            b.if_(
                ok,
                &[b.f32()],
                || vec![dequant::element(b, packed.quant, packed.base, packed.k, k, n)],
                || vec![b.cf32(0.0, 0)],
            )[0]
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
            Home::Packed(p) => self.expect_panels(op, p),
            _ => unreachable!("a verified kernel has a packed matrix here"),
        }
    }

    /// `dequant`.
    pub fn dequant(&mut self, op: &'a Op) -> Result<(), Error> {
        let (packed, k, n, ty) = self.rectangle(op, op.operands[0])?;
        let (Some(d), Some(isa)) = (Dequant::new((ty.k, ty.n), ty.quant), self.target.isa) else {
            return self.unsupported_rectangle(op, &ty);
        };
        let out = self.result_buffer(op.results[0]);
        let (weights, panel, exists) = self.panels(&packed, k, n);
        let to = (out.ptr, Stride::Fixed(4 * ty.n as i64));
        d.emit(&Code::new(self.b, isa), &DequantOperands { weights, panel, exists, to });
        self.finish_buffer(op.results[0], out);
        Ok(())
    }

    /// `dot_grouped`.
    pub fn dot_grouped(&mut self, op: &'a Op) -> Result<(), Error> {
        let (packed, k, n, ty) = self.rectangle(op, op.operands[3])?;
        let m = self.tile(op.operands[0]).shape[0];
        let (Some(grouped), Some(isa)) = (Grouped::new((m, ty.n, ty.k), ty.quant), self.target.isa) else {
            return self.unsupported_rectangle(op, &ty);
        };
        let out = self.result_buffer(op.results[0]);
        self.fill(&out, op.operands[4])?;
        let mut operands = vec![];
        for v in &op.operands[..3] {
            operands.push(self.matrix(*v, false)?);
        }
        let (weights, panel, exists) = self.panels(&packed, k, n);
        let place = self.arena.alloc(grouped.scratch_bytes());
        let scratch = self.scratch_at(place);
        let at = |i: usize| (operands[i].ptr, operands[i].row);
        grouped.emit(
            &Code::new(self.b, isa),
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

    fn unsupported_rectangle(&self, op: &Op, ty: &QTileType) -> Result<(), Error> {
        let message = format!(
            "a rectangle of {} × {} of `{}`: on CPUs (with AVX2 or more) its columns must be a multiple of {}",
            ty.k,
            ty.n,
            ty.quant,
            panel::COLUMNS
        );
        self.error(op, message)
    }
}
