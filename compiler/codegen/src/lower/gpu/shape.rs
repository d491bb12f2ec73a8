//! Ops that only move elements.

use super::{
    super::{
        build::V,
        machine::{memory_type, to_memory},
    },
    Error,
    cx::{Cx, Piece, Regs},
    stage::{Staged, bytes, strides},
};
use tegula_ir::{
    Key, Op, OpKind, Value,
    linear::{Axes, Linear, algebra::Span, combine},
};

/// The register that holds an element in every thread that holds what `reg` vectors say, if one does.
fn register_of(layout: &Linear, element: u64) -> usize {
    // The caller's layout has the element's image among its registers: it is made from the same vectors.
    Span::of(layout.reg().iter().copied()).coordinates(element).unwrap_or(0) as usize
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `broadcast` and `permute`: each piece of the result is the image of a piece of the operand. It is in the right
    /// threads already, but for pieces of odd extents, which are converted.
    pub fn shape(&mut self, op: &'a Op) -> Result<(), Error> {
        let (from, to) = (op.operands[0], op.results[0]);
        let (source, e) = (self.regs(from), self.elem(to));
        if self.tile(from).len() == 1 {
            let regs = self.layout(to).0.iter().map(|l| vec![source[0][0]; l.regs()]).collect();
            return self.set_regs(to, regs);
        }
        let perm: Vec<usize> = match op.attrs.ints(Key::Perm) {
            Some(p) if op.kind == OpKind::Permute => p.iter().map(|p| *p as usize).collect(),
            _ => (0..self.tile(to).rank()).collect(),
        };
        let (have, want) = (self.pieces(from), self.pieces(to));
        let mut regs: Regs = vec![];
        for piece in &want {
            // The piece of the operand that this one shows: along broadcast axes the only one.
            let shows = |p: &Piece| {
                (0..perm.len()).all(|i| {
                    let (a, b) = (p.segments[perm[i]], piece.segments[i]);
                    a == b || self.tile(from).shape[perm[i]] == 1
                })
            };
            let Some(i) = have.iter().position(shows) else { return self.error(op, "pieces do not match") };
            let axes = Axes::of(&have[i].extents());
            let back =
                |flat: u64| (0..perm.len()).fold(0, |r, d| r | axes.place(perm[d], piece.axes.coordinate(d, flat)));
            let wanted = piece.layout.image(have[i].layout.bits(), back);
            let x = self.convert_piece(op, &source[i], &have[i].layout, &wanted, e);
            let own = (0..piece.layout.regs()).map(|r| x[register_of(&wanted, back(piece.layout.of_reg(r)))]);
            regs.push(own.collect());
        }
        self.set_regs(to, regs)
    }

    /// `reshape`: the flat index stays. Pieces that do not keep theirs go through shared memory.
    pub fn reshape(&mut self, op: &'a Op) -> Result<(), Error> {
        let (from, to) = (op.operands[0], op.results[0]);
        let (a, b) = (self.tile(from).clone(), self.tile(to).clone());
        let same = tegula_ir::gpu::image(op, &a, &b, &self.layout(from)).is_some() || a.len() == 1;
        if same {
            // Piece by piece: one more conversion where the layouts differ.
            let (source, have, want) = (self.regs(from), self.layout(from), self.layout(to));
            let mut regs = vec![];
            for ((x, l), m) in source.iter().zip(&have.0).zip(&want.0) {
                regs.push(self.convert_piece(op, x, l, m, b.elem));
            }
            return self.set_regs(to, regs);
        }
        let mut staged = self.staged(op, &[from])[0].clone();
        staged.strides = strides(&b.shape, b.shape.last().copied().unwrap_or(1));
        staged.shape = b.shape;
        let pieces = self.pieces(to);
        let regs = self.read_staged(&staged, &pieces);
        self.set_regs(to, regs)
    }

    /// `slice`.
    pub fn slice(&mut self, op: &'a Op) -> Result<(), Error> {
        let (from, to) = (op.operands[0], op.results[0]);
        let axis = op.attrs.int(Key::Axis).unwrap_or(0) as usize;
        let start = op.attrs.int(Key::Start).unwrap_or(0) as usize;
        let shift = |d: usize| if d == axis { start } else { 0 };
        if let Some(regs) =
            self.by_registers(&[from], to, &|at| (0, at.iter().enumerate().map(|(d, i)| i + shift(d)).collect()))
        {
            return self.set_regs(to, regs);
        }
        let b = self.b;
        let mut staged = self.staged(op, &[from])[0].clone();
        let memory = memory_type(b, staged.elem);
        staged.base = b.gep(staged.base, memory, b.c64((start * staged.strides[axis]) as i64));
        let pieces = self.pieces(to);
        let regs = self.read_staged(&staged, &pieces);
        self.set_regs(to, regs)
    }

    /// `cat`.
    pub fn cat(&mut self, op: &'a Op) -> Result<(), Error> {
        let to = op.results[0];
        let axis = op.attrs.int(Key::Axis).unwrap_or(0) as usize;
        let extents: Vec<usize> = op.operands.iter().map(|v| self.tile(*v).shape[axis]).collect();
        let find = |at: &[usize]| {
            let (mut i, mut at) = (0, at.to_vec());
            while at[axis] >= extents[i] {
                at[axis] -= extents[i];
                i += 1;
            }
            (i, at)
        };
        if let Some(regs) = self.by_registers(&op.operands, to, &find) {
            return self.set_regs(to, regs);
        }
        // All operands into one row-major tile.
        let t = self.tile(to).clone();
        let row = t.shape.last().copied().unwrap_or(1);
        let whole = Staged { base: self.shared, elem: t.elem, strides: strides(&t.shape, row), shape: t.shape.clone() };
        let size = bytes(&t.shape, row, t.elem);
        self.begin_shared(size, op);
        self.fill_up(0, size);
        let (b, mut start) = (self.b, 0);
        for v in &op.operands {
            let offset = start * whole.strides[axis];
            let memory = memory_type(b, t.elem);
            let mut part = whole.clone();
            part.base = b.gep(whole.base, memory, b.c64(offset as i64));
            let (pieces, regs) = (self.pieces(*v), self.regs(*v));
            self.write_elements(&part, &pieces, &regs);
            start += self.tile(*v).shape[axis];
        }
        self.shared_written();
        let pieces = self.pieces(to);
        let regs = self.read_staged(&whole, &pieces);
        self.set_regs(to, regs)
    }

    /// Writes registers one by one.
    fn write_elements(&mut self, s: &Staged<'c>, pieces: &[Piece], regs: &Regs<'c>) {
        let b = self.b;
        for (piece, regs) in pieces.iter().zip(regs) {
            self.by_owners(&piece.layout, |cx| {
                for (r, x) in regs.iter().enumerate() {
                    let p = cx.staged_address(s, piece, r);
                    b.store(to_memory(b, *x, s.elem), p, s.elem.bytes());
                }
            });
        }
    }

    /// The registers of a tile whose element at an index is that of operand `i` at another index, if every thread has all
    /// that it needs.
    fn by_registers(
        &self,
        operands: &[Value],
        to: Value,
        from: &dyn Fn(&[usize]) -> (usize, Vec<usize>),
    ) -> Option<Regs<'c>> {
        let sources: Vec<_> = operands.iter().map(|v| (self.pieces(*v), self.regs(*v))).collect();
        let mut out = vec![];
        for piece in self.pieces(to) {
            let mut own = vec![];
            for r in 0..piece.layout.regs() {
                // Which operand, piece and register thread t finds its element in must not depend on t.
                let mut found: Option<(usize, usize, usize)> = None;
                for t in 0..self.threads() {
                    let flat = piece.layout.of_reg(r) ^ combine(&piece.layout.threads(), t);
                    let at: Vec<usize> = (0..piece.segments.len())
                        .map(|d| piece.start(d) + piece.axes.coordinate(d, flat) as usize)
                        .collect();
                    let (i, at) = from(&at);
                    let (pieces, _) = &sources[i];
                    let p = pieces.iter().position(|p| {
                        p.segments.iter().zip(&at).all(|(s, i)| (s.start..s.start + s.len).contains(i))
                    })?;
                    let q = &pieces[p];
                    let flat = (0..at.len()).fold(0, |f, d| f | q.axes.place(d, (at[d] - q.start(d)) as u64));
                    let held = combine(&q.layout.threads(), t);
                    let reg = Span::of(q.layout.reg().iter().copied()).coordinates(flat ^ held)? as usize;
                    match found {
                        Some(f) if f != (i, p, reg) => return None,
                        _ => found = Some((i, p, reg)),
                    }
                }
                let (i, p, reg) = found?;
                let x: V<'c> = sources[i].1[p][reg];
                own.push(x);
            }
            out.push(own);
        }
        Some(out)
    }
}
