//! A tile in shared memory, row-major: for whatever needs elements of other threads in an irregular way.

use super::{
    super::{
        build::{Cmp, V},
        machine::{from_memory, memory_type, to_memory},
    },
    cx::{Cx, Piece, Regs},
};
use tegula_ir::{Elem, Op, Value};

/// A tile, or a part of one, in shared memory.
#[derive(Clone, Debug)]
pub struct Staged<'c> {
    pub base: V<'c>,
    pub elem: Elem,
    pub shape: Vec<usize>,
    /// Elements from an index to the next along each axis; the last is 1.
    pub strides: Vec<usize>,
}

/// Row-major strides with rows of `row` elements.
pub fn strides(shape: &[usize], row: usize) -> Vec<usize> {
    let mut s = vec![1; shape.len()];
    for d in (0..shape.len().saturating_sub(1)).rev() {
        s[d] = s[d + 1] * if d + 2 == shape.len() { row } else { shape[d + 1] };
    }
    s
}

/// Bytes that a tile takes with rows of `row` elements.
pub fn bytes(shape: &[usize], row: usize, e: Elem) -> usize {
    let rows: usize = shape[..shape.len().saturating_sub(1)].iter().product();
    rows * if shape.is_empty() { 1 } else { row } * e.bytes()
}

impl<'a, 'c> Cx<'a, 'c> {
    /// Puts tiles in shared memory one after the other, each without gaps, for all threads to read.
    pub fn staged(&mut self, op: &Op, tiles: &[Value]) -> Vec<Staged<'c>> {
        let rows: Vec<usize> = tiles.iter().map(|v| self.tile(*v).shape.last().copied().unwrap_or(1)).collect();
        self.staged_with(op, tiles, &rows, 0)
    }

    /// The same with rows of that many elements, and `more` bytes left free at the end.
    pub fn staged_with(&mut self, op: &Op, tiles: &[Value], rows: &[usize], more: usize) -> Vec<Staged<'c>> {
        let mut at = 0;
        let mut places = vec![];
        for (v, row) in tiles.iter().zip(rows) {
            let t = self.tile(*v);
            places.push(at);
            at += bytes(&t.shape, *row, t.elem).next_multiple_of(16);
        }
        self.begin_shared(at + more, op);
        let mut out = vec![];
        for ((v, row), at) in tiles.iter().zip(rows).zip(places) {
            let t = self.tile(*v);
            self.fill_up(at, bytes(&t.shape, *row, t.elem));
            let s = Staged {
                base: self.shared_at(at),
                elem: t.elem,
                shape: t.shape.clone(),
                strides: strides(&t.shape, *row),
            };
            let (pieces, regs) = (self.pieces(*v), self.regs(*v));
            self.write_staged(&s, &pieces, &regs);
            out.push(s);
        }
        self.shared_written();
        out
    }

    /// Puts registers that are not a value's yet in shared memory, as `like` will be.
    pub fn staged_regs(&mut self, op: &Op, like: Value, regs: &Regs<'c>) -> Staged<'c> {
        let t = self.tile(like);
        let row = t.shape.last().copied().unwrap_or(1);
        let size = bytes(&t.shape, row, t.elem);
        self.begin_shared(size, op);
        self.fill_up(0, size);
        let s = Staged { base: self.shared, elem: t.elem, shape: t.shape.clone(), strides: strides(&t.shape, row) };
        let pieces = self.pieces(like);
        self.write_staged(&s, &pieces, regs);
        self.shared_written();
        s
    }

    /// Writes zeros behind `size` bytes from `start` up to a multiple of 16: LLVM merges neighbouring reads into wider ones
    /// that may reach there, and what is read should have been written.
    pub fn fill_up(&mut self, start: usize, size: usize) {
        let (b, end) = (self.b, (start + size) as i64);
        let rest = -end & 15;
        if rest != 0 {
            // As many threads as bytes: a block has more.
            let own = b.cmp(Cmp::Ult, self.tid, b.c32(rest as i32));
            let p = b.gep(self.shared_at(end as usize), b.i8(), self.tid);
            b.when(own, || b.store(b.c(b.i8(), 0), p, 1));
        }
    }

    /// A place in shared memory.
    pub fn shared_at(&self, bytes: usize) -> V<'c> {
        self.b.offset_c(self.shared, bytes as i64)
    }

    /// Writes registers where they belong.
    pub fn write_staged(&mut self, s: &Staged<'c>, pieces: &[Piece], regs: &Regs<'c>) {
        for (piece, regs) in pieces.iter().zip(regs) {
            let all: Vec<usize> = (0..regs.len()).collect();
            self.write_registers(s, piece, regs, &all, usize::MAX);
        }
    }

    /// Writes these registers of a piece where they belong; neighbours among them, of at most so many, at once.
    pub fn write_registers(&mut self, s: &Staged<'c>, piece: &Piece, regs: &[V<'c>], which: &[usize], most: usize) {
        let b = self.b;
        let row = piece.segments.last().map_or(1, |s| s.len);
        let step = s.strides.iter().rev().nth(1).copied().unwrap_or(16);
        let mut width = piece.layout.contiguous().min(row).min((16 / s.elem.bytes()).max(1)).min(most);
        let start = piece.segments.last().map_or(0, |s| s.start);
        while !step.is_multiple_of(width) || !start.is_multiple_of(width) {
            width /= 2;
        }
        self.by_owners(&piece.layout, |cx| {
            for access in which.chunks(width) {
                let p = cx.staged_address(s, piece, access[0]);
                let x: Vec<V> = access.iter().map(|r| to_memory(b, regs[*r], s.elem)).collect();
                let x = if width == 1 { x[0] } else { b.gather_lanes(&x) };
                b.store(x, p, width * s.elem.bytes());
            }
        });
    }

    /// Where a register of a piece of the staged tile is.
    pub fn staged_address(&mut self, s: &Staged<'c>, piece: &Piece, reg: usize) -> V<'c> {
        let b = self.b;
        let (mut thread, mut own): (Option<V>, i64) = (None, 0);
        for d in 0..s.shape.len() {
            let (v, c) = self.coordinate(piece, d, reg);
            own += c * s.strides[d] as i64;
            let part = b.mul_c(v, s.strides[d] as i64);
            thread = Some(thread.map_or(part, |t| b.add(t, part)));
        }
        let memory = memory_type(b, s.elem);
        let p = thread.map_or(s.base, |t| b.gep(s.base, memory, t));
        if own == 0 { p } else { b.gep(p, memory, b.c64(own)) }
    }

    /// The element at a flat index (i32) of the staged tile, counted in its strides.
    pub fn staged_at(&self, s: &Staged<'c>, flat: V<'c>) -> V<'c> {
        let b = self.b;
        let p = b.gep(s.base, memory_type(b, s.elem), flat);
        from_memory(b, b.load(p, memory_type(b, s.elem), 0, s.elem.bytes()), s.elem)
    }
    /// Puts an element there.
    pub fn put_staged(&self, s: &Staged<'c>, flat: V<'c>, x: V<'c>) {
        let b = self.b;
        let p = b.gep(s.base, memory_type(b, s.elem), flat);
        b.store(to_memory(b, x, s.elem), p, s.elem.bytes());
    }

    /// Reads the registers of a tile that is staged.
    pub fn read_staged(&mut self, s: &Staged<'c>, pieces: &[Piece]) -> Regs<'c> {
        let b = self.b;
        let memory = memory_type(b, s.elem);
        let mut out = vec![];
        for piece in pieces {
            let mut own = vec![];
            for r in 0..piece.layout.regs() {
                let p = self.staged_address(s, piece, r);
                own.push(from_memory(b, b.load(p, memory, 0, s.elem.bytes()), s.elem));
            }
            out.push(own);
        }
        out
    }
}
