//! What the micro-kernels add to [`Build`]: strides that are known or not, partial vectors, loops of known length.

use super::Isa;
use crate::lower::cpu::build::{Build, V};
use melior::ir::Type;
use std::ops::Deref;

/// A builder, and the instructions its code may use. Byte offsets and counts are i64.
#[derive(Clone, Copy)]
pub struct Code<'b, 'c> {
    build: &'b Build<'c>,
    /// The instruction set.
    pub isa: Isa,
}

impl<'c> Deref for Code<'_, 'c> {
    type Target = Build<'c>;
    fn deref(&self) -> &Build<'c> {
        self.build
    }
}

/// A distance in bytes.
#[derive(Clone, Copy, Debug)]
pub enum Stride<'c> {
    /// Known when the kernel is compiled.
    Fixed(i64),
    /// Known when it runs.
    Run(V<'c>),
}

impl<'b, 'c> Code<'b, 'c> {
    /// Code for `isa` where `build` is.
    pub fn new(build: &'b Build<'c>, isa: Isa) -> Self {
        Code { build, isa }
    }

    /// `base + index · stride`.
    pub fn step(&self, base: V<'c>, index: V<'c>, stride: Stride<'c>) -> V<'c> {
        self.offset(
            base,
            match stride {
                Stride::Fixed(bytes) => self.mul_c(index, bytes),
                Stride::Run(bytes) => self.mul(index, bytes),
            },
        )
    }
    /// `base + index · stride` for a known index.
    pub fn step_c(&self, base: V<'c>, index: usize, stride: Stride<'c>) -> V<'c> {
        match stride {
            Stride::Fixed(bytes) => self.offset_c(base, index as i64 * bytes),
            Stride::Run(_) if index == 0 => base,
            Stride::Run(bytes) => self.offset(base, self.mul_c(bytes, index as i64)),
        }
    }

    /// Integers of `bits` bits, all `value`.
    pub fn ints(&self, bits: u32, lanes: usize, value: i64) -> V<'c> {
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        self.constant_bits(self.int(bits), value as u64 & mask, lanes)
    }
    /// Zeros.
    pub fn zeros(&self, elem: Type<'c>, lanes: usize) -> V<'c> {
        self.constant_bits(elem, 0, lanes)
    }

    /// Loads a scalar (0 lanes) or a vector from any address.
    pub fn read(&self, at: V<'c>, elem: Type<'c>, lanes: usize) -> V<'c> {
        self.load(at, elem, lanes, 1)
    }
    /// Stores a scalar or a vector to any address.
    pub fn write(&self, v: V<'c>, at: V<'c>) {
        self.store(v, at, 1);
    }
    /// Loads the first `valid` lanes, the others 0, touching no memory beyond.
    pub fn read_first(&self, at: V<'c>, elem: Type<'c>, lanes: usize, valid: usize) -> V<'c> {
        if valid >= lanes {
            return self.read(at, elem, lanes);
        }
        self.masked_load(at, self.first(lanes, valid), self.zeros(elem, lanes), 1)
    }
    /// Stores the first `valid` lanes.
    pub fn write_first(&self, v: V<'c>, at: V<'c>, valid: usize) {
        let lanes = self.lanes(v);
        if valid >= lanes {
            return self.write(v, at);
        }
        self.masked_store(v, at, self.first(lanes, valid), 1);
    }
    fn first(&self, lanes: usize, valid: usize) -> V<'c> {
        self.int_vector(self.i1(), &(0..lanes).map(|i| i64::from(i < valid)).collect::<Vec<_>>())
    }

    /// `for i in (0..count).step_by(step)`; no loop for a single turn.
    pub fn times(&self, count: usize, step: usize, f: impl FnOnce(V<'c>)) {
        match count {
            0 => {}
            _ if count <= step => f(self.c64(0)),
            _ => self.for_each(0, count as i64, step as i64, f),
        }
    }
}
