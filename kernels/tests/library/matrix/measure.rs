//! Errors, counted in units.

use std::hash::{DefaultHasher, Hash, Hasher};
use tegula::prelude::*;

/// What is allowed for one value.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// The unit that its error is counted in: not 0.
    pub unit: f64,
    /// So many of them.
    pub bound: f64,
}

/// The unit in the last place of a type, halved: what a rounding to nearest may be off by, relative to the value.
pub const F32: f64 = 1.0 / (1u64 << 24) as f64;
pub const F16: f64 = 1.0 / (1u64 << 11) as f64;
pub const BF16: f64 = 1.0 / (1u64 << 8) as f64;

/// What was compared on one device, and how far off it was.
pub struct Measure {
    /// For messages.
    pub name: String,
    /// Values that were compared.
    pub values: usize,
    /// The largest error, in units.
    pub worst: f64,
    /// The largest part of its bound that an error was.
    pub share: f64,
    failures: Vec<String>,
    hash: DefaultHasher,
}

impl Measure {
    pub fn new(name: &str) -> Measure {
        let (failures, hash) = (vec![], DefaultHasher::new());
        Measure { name: name.to_owned(), values: 0, worst: 0.0, share: 0.0, failures, hash }
    }

    /// Stands for all bits that were compared.
    pub fn bits(&self) -> u64 {
        self.hash.finish()
    }

    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().map(String::as_str)
    }

    /// Takes in what another device gave.
    pub fn merge(&mut self, other: Measure) {
        self.values += other.values;
        self.worst = self.worst.max(other.worst);
        self.share = self.share.max(other.share);
        self.failures.extend(other.failures);
    }

    /// Something that must be so.
    pub fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(what());
        }
    }

    fn fails(&mut self, what: String) {
        // Of a tensor that is wrong everywhere the first few places say enough.
        if self.failures.len() < 4 {
            self.failures.push(format!("{}, {what}", self.name));
        }
    }

    /// Bits that must be equal.
    pub fn exact<T: Elem>(&mut self, what: &str, got: &[T], want: &[T]) {
        self.require(got.len() == want.len(), || format!("{what}: {} values, not {}", got.len(), want.len()));
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            g.bits().hash(&mut self.hash);
            if g.bits() != w.bits() {
                self.fails(format!("{what}: value {i} is {g:?}, want {w:?}"));
            }
        }
        self.values += want.len();
    }

    /// Values that must be near these; `allowed` of each.
    pub fn near(&mut self, what: &str, got: &[f32], want: &[f64], allowed: impl Fn(usize) -> Allowed) {
        self.require(got.len() == want.len(), || format!("{what}: {} values, not {}", got.len(), want.len()));
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            g.to_bits().hash(&mut self.hash);
            let Allowed { unit, bound } = allowed(i);
            let error = (f64::from(*g) - w).abs() / unit;
            if error.is_nan() || error > bound {
                self.fails(format!("{what}: value {i} is {g}, want {w}: {error:.2} units of {unit:e}, not {bound:.2}"));
            }
            self.worst = self.worst.max(error);
            self.share = self.share.max(error / bound);
        }
        self.values += want.len();
    }
}
