//! Tiles in scratch memory: making them, filling them, reading and writing their elements.

use super::{
    Error,
    at::At,
    build::V,
    cx::{Buf, Cx, Home},
    machine::{self, memory_type},
};
use tegula_ir::{TileType, Value};

impl<'a, 'c> Cx<'a, 'c> {
    /// A new buffer.
    pub fn buffer(&mut self, ty: &TileType) -> Buf<'c> {
        let place = self.arena.alloc(ty.len() * ty.elem.bytes());
        Buf { ptr: self.scratch_at(place), ty: ty.clone(), place: Some(place) }
    }
    /// Scratch memory at an offset.
    pub fn scratch_at(&mut self, offset: usize) -> V<'c> {
        let (b, scratch) = (self.b, self.scratch);
        *self.buffers.entry(offset).or_insert_with(|| b.at_level(0, || b.offset_c(scratch, offset as i64)))
    }
    /// Gives a buffer back.
    pub fn release(&mut self, buf: &Buf<'c>) {
        if let Some(place) = buf.place {
            self.arena.free(place);
        }
    }
    /// The buffer behind a value that is one.
    pub fn buf(&self, v: Value) -> Option<Buf<'c>> {
        match &self.homes[v.0 as usize] {
            Some(Home::Buffer(buf)) => Some(buf.clone()),
            _ => None,
        }
    }
    /// Computes a tile into a buffer of its shape.
    pub fn fill(&mut self, buf: &Buf<'c>, v: Value) -> Result<(), Error> {
        if let Some(from) = self.buf(v) {
            if from.ptr != buf.ptr {
                self.b.copy(buf.ptr, from.ptr, buf.ty.len() * buf.ty.elem.bytes());
            }
            return Ok(());
        }
        let shape = buf.ty.shape.clone();
        self.nest(&shape, &[v], None, &mut |cx, at| {
            let x = cx.eval(v, at);
            cx.write(buf, at, x);
            Ok(())
        })
    }
    /// A tile in memory: its buffer, or a new one that the caller releases.
    pub fn in_memory(&mut self, v: Value) -> Result<(Buf<'c>, bool), Error> {
        if let Some(buf) = self.buf(v) {
            return Ok((buf, false));
        }
        let buf = self.buffer(self.tile(v));
        self.fill(&buf, v)?;
        Ok((buf, true))
    }

    /// Address of an element of a buffer.
    pub fn address(&self, buf: &Buf<'c>, at: &At<'c>) -> V<'c> {
        let b = self.b;
        let (mut index, mut constant, mut stride) = (None, 0, 1i64);
        for (c, n) in at.coords.iter().zip(&buf.ty.shape).rev() {
            constant += c.plus * stride;
            if let Some((v, _)) = c.var {
                let term = b.mul_c(v, stride);
                index = Some(index.map_or(term, |i| b.add(i, term)));
            }
            stride *= *n as i64;
        }
        let elem = memory_type(b, buf.ty.elem);
        let base = index.map_or(buf.ptr, |i| b.gep(buf.ptr, elem, i));
        b.offset_c(base, constant * buf.ty.elem.bytes() as i64)
    }
    fn lane_stride(buf: &Buf<'c>, at: &At<'c>) -> usize {
        at.lane.map_or(1, |(axis, _)| buf.ty.shape[axis + 1..].iter().product())
    }
    /// Elements of a buffer.
    pub fn read(&self, buf: &Buf<'c>, at: &At<'c>) -> V<'c> {
        let (b, elem, p) = (self.b, buf.ty.elem, self.address(buf, at));
        let stride = Self::lane_stride(buf, at);
        if stride == 1 {
            return machine::load(b, p, elem, at.lanes());
        }
        let lanes: Vec<V> = (0..at.lanes())
            .map(|i| machine::load(b, b.offset_c(p, (i * stride * elem.bytes()) as i64), elem, 0))
            .collect();
        b.gather_lanes(&lanes)
    }
    /// Stores elements of a buffer.
    pub fn write(&self, buf: &Buf<'c>, at: &At<'c>, x: V<'c>) {
        let (b, elem, p) = (self.b, buf.ty.elem, self.address(buf, at));
        let stride = Self::lane_stride(buf, at);
        if stride == 1 {
            return machine::store(b, x, p, elem);
        }
        for i in 0..at.lanes() {
            machine::store(b, b.extract(x, i), b.offset_c(p, (i * stride * elem.bytes()) as i64), elem);
        }
    }

    /// Decides where the results of an op that makes buffers go, and whether that is an argument's storage.
    pub fn result_buffer(&mut self, v: Value) -> Buf<'c> {
        if let Some(mut buf) = self.plan.in_place(v).and_then(|arg| self.buf(arg)) {
            buf.place = None; // the loop's to give back
            return buf;
        }
        self.buffer(self.tile(v))
    }

    /// Gives a value its buffer; a tile of one element is read back into SSA.
    pub fn finish_buffer(&mut self, v: Value, buf: Buf<'c>) {
        if buf.ty.len() == 1 {
            let x = machine::load(self.b, buf.ptr, buf.ty.elem, 0);
            self.release(&buf);
            self.set_home(v, Home::Scalar(x));
        } else {
            self.set_home(v, Home::Buffer(buf));
        }
    }
}
