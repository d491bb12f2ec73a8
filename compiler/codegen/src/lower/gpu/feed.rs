//! Operands of products, brought to shared memory a chunk of K at a time.
//!
//! What a product alone reads from memory or from quantised weights ([`tegula_ir::gpu::streams`]) goes there directly.
//! Other operands are in registers: the threads that hold a chunk's elements write them. A chunk is as long as a part of
//! shared memory holds, and as threads can have in flight; the outputs' chains go on from chunk to chunk, so that their
//! bits do not depend on it.

use super::{
    super::build::{Cmp, V},
    cx::{Cx, Home, Piece, Regs, pieces_of},
    stage::{Staged, bytes, strides},
};
use tegula_ir::{
    Elem, Key, Op, OpKind, Value,
    linear::{TileLayout, blocked::Blocking},
};

/// Registers of a thread that hold elements on their way to shared memory.
const IN_FLIGHT: usize = 32;

/// Where an operand's elements are.
enum Source<'a, 'c> {
    Registers(Vec<Piece>, Regs<'c>),
    Load(&'a Op),
    Dequant(&'a Op),
}

/// An operand of a product, of two axes after some of extent 1.
pub struct Operand<'a, 'c> {
    source: Source<'a, 'c>,
    shape: Vec<usize>,
    /// The axis along K.
    axis: usize,
    /// How far the next element along it is along K: more than 1 for scales of groups.
    per: usize,
    /// Its elements as they are in shared memory.
    elem: Elem,
    /// Elements between rows there.
    skew: usize,
}

/// A chunk of K.
#[derive(Clone, Copy)]
pub struct Chunk<'c> {
    /// Where it begins, i64.
    pub first: V<'c>,
    /// The same, where a loop is written out.
    known: usize,
    /// How long it is.
    pub len: usize,
    /// What divides its beginning.
    step: usize,
}

impl<'c> Operand<'_, 'c> {
    /// The same with rows so many bytes apart.
    pub fn skewed(mut self, bytes: usize) -> Self {
        self.skew = bytes / self.elem.bytes();
        self
    }

    /// Shape of a chunk.
    fn chunk(&self, len: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[self.axis] = len / self.per;
        shape
    }
    /// Elements from a row of a chunk to the next.
    fn row(&self, len: usize) -> usize {
        self.chunk(len).last().map_or(1, |n| n + self.skew)
    }
    /// Bytes that a chunk takes.
    fn bytes(&self, len: usize) -> usize {
        bytes(&self.chunk(len), self.row(len), self.elem)
    }
    /// Whether it comes from memory.
    fn is_direct(&self) -> bool {
        !matches!(self.source, Source::Registers(..))
    }
}

impl<'a, 'c> Cx<'a, 'c> {
    /// The operand `v` of a product, whose axis `axis` of two runs along K, an element for each `per` of it.
    pub fn operand(&self, v: Value, axis: usize, per: usize) -> Operand<'a, 'c> {
        let mut of = v;
        while let Some(op) = self.streams.get(&of) {
            let source = match op.kind {
                OpKind::Load => Source::Load(op),
                OpKind::Dequant => Source::Dequant(op),
                _ => {
                    of = op.operands[0];
                    continue;
                }
            };
            let t = self.tile(of);
            return Operand { source, shape: t.shape.clone(), axis: axis + t.rank() - 2, per, elem: t.elem, skew: 0 };
        }
        let t = self.tile(v);
        let source = Source::Registers(self.pieces(v), self.regs(v));
        Operand { source, shape: t.shape.clone(), axis, per, elem: t.elem, skew: 0 }
    }

    /// Length of a chunk: all of K, or a power of two of at least `least`.
    fn chunk_len(&self, operands: &[Operand<'a, 'c>], k: usize, least: usize) -> usize {
        // A third of what there is, so that several programs share a multiprocessor.
        let most = self.target.shared_bytes / 3;
        let fits = |len: usize| {
            let direct = operands.iter().filter(|o| o.is_direct());
            let flying: usize = direct.map(|o| o.bytes(len).div_ceil(4 * self.threads())).sum();
            operands.iter().map(|o| o.bytes(len)).sum::<usize>() <= most && flying <= 2 * IN_FLIGHT
        };
        let mut len = k.next_power_of_two();
        if fits(k) {
            return k;
        }
        while len > least && !fits(len) {
            len /= 2;
        }
        len.min(k)
    }

    /// Runs `body` for every chunk of a K of `k` in order, with the chunk's operands in shared memory; it gets the outputs
    /// so far and gives them after the chunk.
    pub fn by_chunks(
        &mut self,
        op: &'a Op,
        operands: &[Operand<'a, 'c>],
        (k, least): (usize, usize),
        init: &[V<'c>],
        body: &mut dyn FnMut(&mut Self, &[Staged<'c>], Chunk<'c>, &[V<'c>]) -> Vec<V<'c>>,
    ) -> Vec<V<'c>> {
        let b = self.b;
        let len = self.chunk_len(operands, k, least);
        let step = if len == k { 0 } else { len };
        let whole = k / len * len;
        let mut acc = init.to_vec();
        if whole > len && operands.iter().all(Operand::is_direct) {
            // The chunk before is read when the next one is written.
            self.enter_loop(&[]);
            acc = b.for_(b.c64(0), b.c64(whole as i64), b.c64(len as i64), &acc, |first, acc| {
                let chunk = Chunk { first, known: 0, len, step };
                let staged = self.staged_chunk(op, operands, chunk);
                body(self, &staged, chunk, acc)
            });
        } else {
            for known in (0..whole).step_by(len) {
                let chunk = Chunk { first: b.c64(known as i64), known, len, step };
                let staged = self.staged_chunk(op, operands, chunk);
                acc = body(self, &staged, chunk, &acc);
            }
        }
        if whole < k {
            let chunk = Chunk { first: b.c64(whole as i64), known: whole, len: k - whole, step };
            let staged = self.staged_chunk(op, operands, chunk);
            acc = body(self, &staged, chunk, &acc);
        }
        acc
    }

    /// Puts a chunk of each operand in shared memory.
    fn staged_chunk(&mut self, op: &'a Op, operands: &[Operand<'a, 'c>], chunk: Chunk<'c>) -> Vec<Staged<'c>> {
        // Memory is read before the readers of the last chunk are waited for.
        let fetched: Vec<Option<(Vec<Piece>, Regs)>> = operands.iter().map(|o| self.fetch(o, chunk)).collect();
        let sizes = operands.iter().map(|o| o.bytes(chunk.len));
        self.begin_shared(sizes.map(|n| n.next_multiple_of(16)).sum(), op);
        let mut at = 0;
        let mut out = vec![];
        for (o, fetched) in operands.iter().zip(fetched) {
            let (shape, size) = (o.chunk(chunk.len), o.bytes(chunk.len));
            self.fill_up(at, size);
            let strides = strides(&shape, o.row(chunk.len));
            let s = Staged { base: self.shared_at(at), elem: o.elem, shape, strides };
            match (&o.source, fetched) {
                (Source::Registers(pieces, regs), _) => self.write_chunk(&s, o, chunk, pieces, regs),
                (_, Some((pieces, regs))) => self.write_staged(&s, &pieces, &regs),
                _ => {}
            }
            out.push(s);
            at += size.next_multiple_of(16);
        }
        self.shared_written();
        out
    }

    /// The elements of a chunk from where they lie, as threads read them best.
    fn fetch(&mut self, o: &Operand<'a, 'c>, chunk: Chunk<'c>) -> Option<(Vec<Piece>, Regs<'c>)> {
        let b = self.b;
        let (shape, warp_bits) = (o.chunk(chunk.len), self.k.warps().trailing_zeros());
        match &o.source {
            Source::Registers(..) => None,
            Source::Load(load) => {
                let last = o.axis + 1 == shape.len();
                let row = if last { chunk.step / o.per } else { 0 };
                let first = b.shru_c(chunk.first, o.per.trailing_zeros().into());
                let access = self.access_part(load, o.axis, first, row, &shape);
                let regs = self.load_access(&access, Self::pad_bits(load));
                Some((access.pieces, regs))
            }
            Source::Dequant(dequant) => {
                let pieces = pieces_of(&shape, &TileLayout::blocked(&shape, &Blocking::runs_of_k(warp_bits)));
                let Home::QTile { packed, k, n, .. } = self.home(dequant.operands[0]).clone() else { return None };
                let regs = self.dequantised(&packed, b.add(k, chunk.first), n, &pieces);
                Some((pieces, regs))
            }
        }
    }

    /// Writes the registers that hold elements of a chunk.
    fn write_chunk(
        &mut self,
        s: &Staged<'c>,
        o: &Operand<'a, 'c>,
        chunk: Chunk<'c>,
        pieces: &[Piece],
        regs: &Regs<'c>,
    ) {
        let b = self.b;
        if chunk.step == 0 {
            return self.write_staged(s, pieces, regs);
        }
        let (first, len) = (chunk.known / o.per, chunk.step / o.per);
        // The tile's first row, as if all of it were there.
        let before = (first * s.strides[o.axis] * s.elem.bytes()) as i64;
        let whole = Staged { base: b.offset_c(s.base, -before), ..s.clone() };
        for (piece, regs) in pieces.iter().zip(regs) {
            let start = piece.start(o.axis);
            let n = piece.segments[o.axis].len;
            if n <= len {
                // A piece starts at a multiple of its length: it is in one chunk.
                if (first..first + len).contains(&start) {
                    self.write_staged(&whole, std::slice::from_ref(piece), &vec![regs.clone()]);
                }
                continue;
            }
            // Bits of the index that tell chunks apart: those that the register has, and those that the thread has.
            let which = |flat: u64| piece.axes.coordinate(o.axis, flat) & !(len as u64 - 1);
            let images: Vec<u64> = piece.layout.threads().iter().map(|v| which(*v)).collect();
            let Some(wanted) = first.checked_sub(start).filter(|w| *w < n) else { continue };
            let mut by_thread: std::collections::BTreeMap<u64, Vec<usize>> = std::collections::BTreeMap::new();
            for r in 0..regs.len() {
                by_thread.entry(which(piece.layout.of_reg(r)) ^ wanted as u64).or_default().push(r);
            }
            let touched = images.iter().fold(0, |a, v| a | v);
            for (thread, own) in by_thread {
                if thread & !touched != 0 {
                    continue;
                }
                if touched == 0 {
                    self.write_registers(&whole, piece, regs, &own, len);
                    continue;
                }
                let there = b.cmp(Cmp::Eq, self.of_thread(&images), b.c32(thread as i32));
                b.when(there, || self.write_registers(&whole, piece, regs, &own, len));
            }
        }
    }

    /// A remark if a product asks for less than f32.
    pub fn remark_on_precision(&mut self, op: &Op) {
        if let Some(precision @ ("tf32" | "tf32x3")) = op.attrs.sym(Key::Precision) {
            let remark = format!(
                "`{}` may be in {precision}: it is in f32, by fused multiply-adds ({})",
                op.kind.name(),
                op.loc
            );
            self.remarks.push(remark);
        }
    }
}
