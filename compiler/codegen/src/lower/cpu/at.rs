//! Where in a tile: one coordinate an axis, and perhaps an axis along which a vector of lanes runs.

use super::build::{Build, V};
use melior::ir::ValueLike;

/// An index along one axis: a loop's variable plus a constant. A loop-free one has no variable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coord<'c> {
    /// The variable part (i64), and the level of the block that made it.
    pub var: Option<(V<'c>, usize)>,
    /// The constant part.
    pub plus: i64,
}

/// A place in a tile, or `lanes` consecutive places along an axis from it.
#[derive(Clone, Debug, Default)]
pub struct At<'c> {
    /// Index along each axis; of the first lane.
    pub coords: Vec<Coord<'c>>,
    /// The axis of the lanes and how many: at least 2. `None` is a single element, a scalar.
    pub lane: Option<(usize, usize)>,
}

/// What identifies a place: for memoising.
pub type Key = (Vec<(usize, i64)>, Option<(usize, usize)>);

impl<'c> Coord<'c> {
    /// A constant.
    pub fn constant(plus: i64) -> Self {
        Coord { var: None, plus }
    }
    /// As an i64, made at the level of the variable.
    pub fn value(&self, b: &Build<'c>) -> V<'c> {
        match self.var {
            None => b.c64(self.plus),
            Some((v, level)) => b.at_level(level, || b.add_c(v, self.plus)),
        }
    }
    fn level(&self) -> usize {
        self.var.map_or(0, |v| v.1)
    }
}

impl<'c> At<'c> {
    /// The only element of a tile of that rank, or the first.
    pub fn origin(rank: usize) -> Self {
        At { coords: vec![Coord::default(); rank], lane: None }
    }
    /// Lanes as [`Build`] counts them: 0 for a scalar.
    pub fn lanes(&self) -> usize {
        self.lane.map_or(0, |l| l.1)
    }
    /// The outermost level at which the place is known.
    pub fn level(&self) -> usize {
        self.coords.iter().map(Coord::level).max().unwrap_or(0)
    }
    /// For memoising.
    pub fn key(&self) -> Key {
        let coords = self.coords.iter().map(|c| (c.var.map_or(0, |v| v.0.to_raw().ptr as usize), c.plus)).collect();
        (coords, self.lane)
    }
    /// The same with another index along an axis.
    pub fn with(&self, axis: usize, c: Coord<'c>) -> Self {
        let mut at = self.clone();
        at.coords[axis] = c;
        at
    }
    /// Lane `i` alone.
    pub fn single(&self, i: usize) -> Self {
        let mut at = self.clone();
        if let Some((axis, _)) = at.lane.take() {
            at.coords[axis].plus += i as i64;
        }
        at
    }
}
