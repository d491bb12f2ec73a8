//! Tiles of any extents: each axis is cut into power-of-two segments, the largest first (192 = 128 + 64), and the tile is
//! the grid of pieces that the cuts leave. Nothing is padded.

use super::{
    LANE_BITS, Linear,
    blocked::{self, Blocking},
};

/// A power-of-two run of indices along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// First index.
    pub start: usize,
    /// Number of indices.
    pub len: usize,
}

/// The segments of an extent, largest first.
pub fn segments(extent: usize) -> Vec<Segment> {
    let mut start = 0;
    (0..usize::BITS)
        .rev()
        .map(|b| extent & (1 << b))
        .filter(|n| *n != 0)
        .map(|len| {
            start += len;
            Segment { start: start - len, len }
        })
        .collect()
}

/// The pieces of a tile of that shape in row-major order of their grid: a segment per axis.
pub fn pieces(shape: &[usize]) -> Vec<Vec<Segment>> {
    shape.iter().fold(vec![vec![]], |all, n| {
        let cut = segments(*n);
        all.iter().flat_map(|p| cut.iter().map(move |s| p.iter().copied().chain([*s]).collect())).collect()
    })
}

/// Extents of a piece.
pub fn extents(piece: &[Segment]) -> Vec<usize> {
    piece.iter().map(|s| s.len).collect()
}

/// The layout of a tile: that of each of its [`pieces`], in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileLayout(pub Vec<Linear>);

impl TileLayout {
    /// The same construction for every piece.
    pub fn by(shape: &[usize], f: impl Fn(&[usize]) -> Linear) -> TileLayout {
        TileLayout(pieces(shape).iter().map(|p| f(&extents(p))).collect())
    }
    /// A blocked layout.
    pub fn blocked(shape: &[usize], blocking: &Blocking) -> TileLayout {
        TileLayout::by(shape, |e| blocking.layout(e))
    }
    /// The result of a product by fused multiply-adds.
    pub fn product(shape: &[usize], warp_bits: u32) -> TileLayout {
        TileLayout::by(shape, |e| blocked::product(e[0], e[1], warp_bits))
    }
    /// Every thread holds every element: what a single element has.
    pub fn everywhere(shape: &[usize], warp_bits: u32) -> TileLayout {
        TileLayout::by(shape, |e| {
            let bits = e.iter().map(|n| n.trailing_zeros()).sum();
            let reg = (0..bits).map(|b| 1 << b).collect();
            Linear { bits, reg, lane: [0; LANE_BITS], warp: vec![0; warp_bits as usize] }
        })
    }
    /// Registers a thread holds.
    pub fn regs(&self) -> usize {
        self.0.iter().map(Linear::regs).sum()
    }
    /// Transposed; see [`Linear::permute`].
    pub fn permute(&self, shape: &[usize], perm: &[usize]) -> TileLayout {
        // Pieces move in the grid as elements do in a piece.
        let from: Vec<Vec<Segment>> = pieces(shape);
        let to = pieces(&perm.iter().map(|p| shape[*p]).collect::<Vec<_>>());
        let find = |piece: &Vec<Segment>| {
            let source: Vec<Segment> =
                (0..piece.len()).map(|a| perm.iter().position(|p| *p == a).map_or(piece[a], |i| piece[i])).collect();
            from.iter().position(|p| *p == source).unwrap_or(0)
        };
        TileLayout(to.iter().map(find).map(|i| self.0[i].permute(&extents(&from[i]), perm)).collect())
    }
    /// The layout left when the axes marked in `gone` become 1. Where pieces along such an axis differ, the first, largest
    /// one counts; `None` if the others do not hold its elements in the same threads.
    pub fn project(&self, shape: &[usize], gone: &[bool]) -> TileLayout {
        let from = pieces(shape);
        let first = |p: &&Vec<Segment>| p.iter().zip(gone).all(|(s, g)| !g || s.start == 0);
        let kept = from.iter().zip(&self.0).filter(|(p, _)| first(p));
        TileLayout(kept.map(|(p, l)| l.project(&extents(p), gone)).collect())
    }
    /// A layout of shape `to` from that of `from`, equal but for axes of extent 1; see [`Linear::expand`].
    pub fn expand(&self, from: &[usize], to: &[usize]) -> TileLayout {
        let source = pieces(from);
        let of = |piece: &Vec<Segment>| {
            let at = |p: &Vec<Segment>| p.iter().zip(piece).zip(from).all(|((s, t), n)| *n == 1 || s == t);
            let i = source.iter().position(at).unwrap_or(0);
            self.0[i].expand(&extents(&source[i]), &extents(piece))
        };
        TileLayout(pieces(to).iter().map(of).collect())
    }
}
