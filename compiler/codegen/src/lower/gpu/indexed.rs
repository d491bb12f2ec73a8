//! Access by index tiles: gather and scatter.

use super::{
    super::{
        build::{Cmp, V},
        machine::{from_memory, memory_type, to_memory},
    },
    Error, asm,
    cx::{Cx, Piece, ViewVal},
    stage::{Staged, strides},
};
use tegula_ir::{Elem, Key, Op, protocol::SiteKind};

/// The element that a register's indices name: its offset in the view (i64, in elements), and whether it is inside and not
/// masked off.
pub type Named<'c> = (V<'c>, V<'c>);

impl<'a, 'c> Cx<'a, 'c> {
    /// What the index tiles of an op name, for each piece and register. `extra` operands stand between indices and mask.
    /// Checked kernels report indices outside.
    pub fn named(&mut self, op: &'a Op, view: &ViewVal<'c>, extra: usize) -> Vec<Vec<Named<'c>>> {
        let b = self.b;
        let rank = view.extents.len();
        let first = op.operands[1];
        let indices: Vec<_> = (0..rank).map(|d| self.regs(op.operands[1 + d])).collect();
        let mask = op.attrs.has(Key::Masked).then(|| self.regs(op.operands[1 + rank + extra]));
        let pieces = self.pieces(first);
        let proven: Vec<bool> = (0..rank).map(|d| self.facts.in_bounds_along(op, d)).collect();
        // Offsets of elements inside fit in 32 bits where the launch says so; others are not used.
        let ty = if view.small { b.i32() } else { b.i64() };
        let mut out = vec![];
        for (p, piece) in pieces.iter().enumerate() {
            let mut own = vec![];
            let owner = if self.checked { self.is_owner(&piece.layout) } else { None };
            for r in 0..piece.layout.regs() {
                let mut ok = mask.as_ref().map(|m| m[p][r]);
                let mut offset: Option<V> = None;
                for d in 0..rank {
                    let index = indices[d][p][r];
                    if !proven[d] {
                        let inside = b.cmp(Cmp::Ult, index, view.extents[d]);
                        if self.checked {
                            let name = format!("index outside `{}` along axis {d}", view.name);
                            let mut bad = b.not(inside);
                            for also in mask.as_ref().map(|m| m[p][r]).into_iter().chain(owner) {
                                bad = b.and(bad, also);
                            }
                            self.report_if(op, SiteKind::Index, &name, bad, index);
                        }
                        ok = Some(ok.map_or(inside, |o| b.and(o, inside)));
                    }
                    let part = b.mul(b.trunci(index, ty), b.trunci(view.strides[d], ty));
                    offset = Some(offset.map_or(part, |o| b.add(o, part)));
                }
                let offset = offset.map(|o| if view.small { b.sext(o, b.i64()) } else { o });
                own.push((offset.unwrap_or_else(|| b.c64(0)), ok.unwrap_or_else(|| b.cbool(true))));
            }
            out.push(own);
        }
        out
    }

    /// `gather`.
    pub fn gather(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, view, v) = (self.b, self.view(op.operands[0]), op.results[0]);
        self.before_read(&view, None);
        let e = view.elem;
        let bits = e.bytes() as u32 * 8;
        let pad = b.constant_bits(b.int(bits), Self::pad_bits(op), 0);
        let mut regs = vec![];
        for piece in self.named(op, &view, 0) {
            let load = |(offset, ok): Named<'c>| {
                let p = b.gep(view.base, memory_type(b, e), offset);
                let raw = asm::load_if(b, p, ok, pad, bits);
                from_memory(b, b.bitcast(raw, memory_type(b, e)), e)
            };
            regs.push(piece.into_iter().map(load).collect());
        }
        self.set_regs(v, regs)
    }

    /// `scatter`. Of lanes that name one element the last stays: the others are found out first, unless the facts say that
    /// there are none.
    pub fn scatter(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, view) = (self.b, self.view(op.operands[0]));
        let values = op.operands[1 + view.extents.len()];
        let named = self.named(op, &view, 1);
        let pieces = self.pieces(values);
        let named = self.last_ones(op, &pieces, named);
        self.before_write(&view, None);
        let regs = self.regs(values);
        for ((piece, regs), named) in pieces.iter().zip(&regs).zip(named) {
            let owner = self.is_owner(&piece.layout);
            for (x, (offset, ok)) in regs.iter().zip(named) {
                let ok = owner.map_or(ok, |o| b.and(o, ok));
                let p = b.gep(view.base, memory_type(b, view.elem), offset);
                let raw = b.bitcast(to_memory(b, *x, view.elem), b.int(view.elem.bytes() as u32 * 8));
                asm::store_if(b, raw, p, ok);
            }
        }
        Ok(())
    }

    /// The same without lanes that name what a later lane names too.
    fn last_ones(&mut self, op: &'a Op, pieces: &[Piece], named: Vec<Vec<Named<'c>>>) -> Vec<Vec<Named<'c>>> {
        let b = self.b;
        let shape = self.tile(op.operands[1]).shape.clone();
        let rank = match self.k.ty(op.operands[0]).as_view() {
            Some(v) => v.rank,
            None => 0,
        };
        // An index that advances along one axis only tells lanes apart that differ there.
        let told_apart = |axis: usize| {
            (0..rank).any(|d| {
                let step = |a: usize| self.facts.exact_step(op.operands[1 + d], a);
                step(axis).is_some_and(|s| s != 0)
                    && (0..shape.len()).all(|a| a == axis || shape[a] == 1 || step(a) == Some(0))
            })
        };
        let loose: Vec<usize> = (0..shape.len()).filter(|a| shape[*a] > 1 && !told_apart(*a)).collect();
        if loose.is_empty() {
            return named;
        }
        let total: usize = shape.iter().product();
        let staged = Staged {
            base: self.shared,
            elem: Elem::I64,
            strides: strides(&shape, shape.last().copied().unwrap_or(1)),
            shape: shape.clone(),
        };
        self.begin_shared(total * 8, op);
        self.fill_up(0, total * 8);
        // No offset inside: memory ends before.
        let nowhere = b.c64(i64::MIN);
        let places: Vec<Vec<V>> =
            named.iter().map(|p| p.iter().map(|(offset, ok)| b.select(*ok, *offset, nowhere)).collect()).collect();
        self.write_staged(&staged, pieces, &places);
        self.shared_written();

        // Lanes that may meet: those that share the coordinates along all other axes. Their row-major order is that of
        // the loose coordinates.
        let count: usize = loose.iter().map(|a| shape[*a]).product();
        let mut out = vec![];
        for (p, piece) in pieces.iter().enumerate() {
            let mut own = vec![];
            for (r, (offset, ok)) in named[p].iter().enumerate() {
                let coordinates: Vec<V> = (0..shape.len()).map(|d| self.index(piece, d, r)).collect();
                let fixed = (0..shape.len())
                    .filter(|d| !loose.contains(d))
                    .map(|d| b.mul_c(coordinates[d], staged.strides[d] as i64))
                    .reduce(|x, y| b.add(x, y))
                    .unwrap_or_else(|| b.c32(0));
                let mine = loose.iter().fold(b.c32(0), |n, a| b.add(b.mul_c(n, shape[*a] as i64), coordinates[*a]));
                let start = b.zext(b.add_c(mine, 1), b.i64());
                let last = b.for_(start, b.c64(count as i64), b.c64(1), &[*ok], |j, last| {
                    let (mut rest, mut flat) = (b.trunci(j, b.i32()), fixed);
                    for a in loose.iter().rev() {
                        let n = b.c32(shape[*a] as i32);
                        flat = b.add(flat, b.mul_c(b.remu(rest, n), staged.strides[*a] as i64));
                        rest = b.divu(rest, n);
                    }
                    let other = self.staged_at(&staged, flat);
                    vec![b.and(last[0], b.cmp(Cmp::Ne, other, *offset))]
                });
                own.push((*offset, last[0]));
            }
            out.push(own);
        }
        out
    }
}
