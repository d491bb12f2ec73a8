//! What an IR value is at run time.

use super::{memory::View, number};
use crate::{elem::Elem, scalar::Scalar, types::TileType};
use std::{fmt, rc::Rc};

/// A tile: its elements' bit patterns in row-major order, each zero-extended to 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub elem: Elem,
    pub shape: Vec<usize>,
    pub bits: Vec<u64>,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Tile(Rc<Tile>),
    /// A view parameter or a part of one.
    View(Rc<View>),
    /// A packed parameter, by its number among the arguments.
    Packed(usize),
    /// A rectangle of a packed parameter, decoded when it is used.
    QTile {
        param: usize,
        k0: i64,
        n0: i64,
    },
}

impl Tile {
    pub fn new(ty: &TileType, bits: Vec<u64>) -> Tile {
        Tile { elem: ty.elem, shape: ty.shape.clone(), bits }
    }
    pub fn splat(ty: &TileType, bits: u64) -> Tile {
        Tile::new(ty, vec![bits; ty.len()])
    }
    pub fn scalar(elem: Elem, bits: u64) -> Tile {
        Tile { elem, shape: vec![], bits: vec![bits] }
    }
    pub fn from_f32(shape: Vec<usize>, v: &[f32]) -> Tile {
        Tile { elem: Elem::F32, shape, bits: v.iter().map(|x| x.to_bits() as u64).collect() }
    }
    /// The integer at `i`.
    pub fn int(&self, i: usize) -> i128 {
        number::int(self.elem, self.bits[i])
    }
    /// The elements as f32 (exact for f32 and the floats below it).
    pub fn to_f32(&self) -> Vec<f32> {
        match self.elem {
            Elem::F32 => self.bits.iter().map(|&b| f32::from_bits(b as u32)).collect(),
            e => self.bits.iter().map(|&b| number::widen(e, b) as f32).collect(),
        }
    }
    /// Each element changed by `f`.
    pub fn map(&self, elem: Elem, f: impl Fn(u64) -> u64) -> Tile {
        Tile { elem, shape: self.shape.clone(), bits: self.bits.iter().map(|&b| f(b)).collect() }
    }
    /// The index of lane `i` along every axis.
    pub fn index(&self, i: usize) -> Vec<i64> {
        unravel(&self.shape, i)
    }
    /// The lanes of every line along `axis`, in row-major order of the lines.
    pub fn lines(&self, axis: usize, reverse: bool) -> impl Iterator<Item = Vec<usize>> + use<> {
        let (extent, inner): (usize, usize) = (self.shape[axis], self.shape[axis + 1..].iter().product());
        let count = self.bits.len() / extent;
        (0..count).map(move |line| {
            let first = line / inner * extent * inner + line % inner;
            let lane = |i| first + i * inner;
            if reverse { (0..extent).rev().map(lane).collect() } else { (0..extent).map(lane).collect() }
        })
    }
}

/// Row-major lane `i` of a tile of this shape, as one index an axis.
pub(super) fn unravel(shape: &[usize], mut i: usize) -> Vec<i64> {
    let mut index = vec![0; shape.len()];
    for d in (0..shape.len()).rev() {
        index[d] = (i % shape[d]) as i64;
        i /= shape[d];
    }
    index
}

/// Nested brackets; a scalar is bare.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn level(t: &Tile, axis: usize, at: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Some(&n) = t.shape.get(axis) else {
                return element(t.elem, t.bits[at]).fmt(f);
            };
            let inner: usize = t.shape[axis + 1..].iter().product();
            f.write_str("[")?;
            for i in 0..n {
                if i > 0 {
                    f.write_str(", ")?;
                }
                level(t, axis + 1, at + i * inner, f)?;
            }
            f.write_str("]")
        }
        level(self, 0, 0, f)
    }
}

/// One element as text: `1.5`, `-3`, `true`, `NaN`.
pub fn element(elem: Elem, bits: u64) -> String {
    match elem {
        Elem::F32 => f32::from_bits(bits as u32).to_string(),
        e if e.is_float() => number::widen(e, bits).to_string(),
        e => Scalar::from_bits(e, bits).to_string(),
    }
}
