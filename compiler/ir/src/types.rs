//! Types of IR values.

use crate::elem::{Elem, Quant};
use std::fmt;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tile: elements in row-major order. Rank 0 is a scalar.
    Tile(TileType),
    /// A kernel parameter that is a strided array in memory, of a rank that is known.
    View(ViewType),
    /// A kernel parameter that is a packed weight matrix of K rows (the contracted axis) and N columns.
    Packed(PackedType),
    /// A rectangle of a packed matrix: codes, scales and minima, never materialised.
    QTile(QTileType),
}

/// Element type and extents of a tile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    /// Element type.
    pub elem: Elem,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
}

/// Element type and rank of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewType {
    /// Element type.
    pub elem: Elem,
    /// Number of axes.
    pub rank: usize,
    /// Whether stores, scatters and atomics are allowed.
    pub mutable: bool,
    /// What the launch guarantees about every tensor passed here; part of the specialisation key.
    pub facts: ViewFacts,
}

/// What a launch guarantees of a view. Nothing is assumed of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewFacts {
    /// The innermost stride is 1 element.
    pub unit: bool,
    /// Base address and all strides but the innermost are divisible by 16 bytes.
    pub align16: bool,
    /// Extents and all byte offsets lie below 2^31.
    pub small: bool,
}

/// Format and layout of a packed operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackedType {
    /// What the blocks mean.
    pub quant: Quant,
    /// How they lie in memory: a name that the target's lowering knows.
    pub layout: String,
}

/// A `k` × `n` rectangle of a packed operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QTileType {
    /// What the blocks mean.
    pub quant: Quant,
    /// Extent along the contracted axis.
    pub k: usize,
    /// Extent along the output axis.
    pub n: usize,
}

impl TileType {
    /// A tile type.
    pub fn new(elem: Elem, shape: impl Into<Vec<usize>>) -> TileType {
        TileType { elem, shape: shape.into() }
    }
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// Whether there is no element (never for a type that the verifier accepts).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// The same shape with another element type.
    pub fn with_elem(&self, elem: Elem) -> TileType {
        TileType { elem, shape: self.shape.clone() }
    }
}

impl Type {
    /// A tile type.
    pub fn tile(elem: Elem, shape: impl Into<Vec<usize>>) -> Type {
        Type::Tile(TileType::new(elem, shape))
    }
    /// A scalar type.
    pub fn scalar(elem: Elem) -> Type {
        Type::tile(elem, [])
    }
    /// The tile type, if it is one.
    pub fn as_tile(&self) -> Option<&TileType> {
        match self {
            Type::Tile(t) => Some(t),
            _ => None,
        }
    }
    /// The view type, if it is one.
    pub fn as_view(&self) -> Option<&ViewType> {
        match self {
            Type::View(v) => Some(v),
            _ => None,
        }
    }
    /// Whether this is a scalar of `elem`.
    pub fn is_scalar_of(&self, elem: Elem) -> bool {
        matches!(self, Type::Tile(t) if t.elem == elem && t.shape.is_empty())
    }
}

impl From<TileType> for Type {
    fn from(t: TileType) -> Type {
        Type::Tile(t)
    }
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shape.is_empty() {
            return write!(f, "{}", self.elem);
        }
        write!(f, "tile<{}", self.elem)?;
        for n in &self.shape {
            write!(f, ", {n}")?;
        }
        f.write_str(">")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tile(t) => t.fmt(f),
            Type::View(v) => {
                write!(f, "{}<{}, {}", if v.mutable { "view_mut" } else { "view" }, v.elem, v.rank)?;
                for (on, name) in [(v.facts.unit, "unit"), (v.facts.align16, "align16"), (v.facts.small, "small")] {
                    if on {
                        write!(f, ", {name}")?;
                    }
                }
                f.write_str(">")
            }
            Type::Packed(p) => write!(f, "packed<{}, {}>", p.quant, p.layout),
            Type::QTile(q) => write!(f, "qtile<{}, {}, {}>", q.quant, q.k, q.n),
        }
    }
}
