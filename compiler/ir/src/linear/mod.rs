//! Where the elements of a tile are in the registers of a GPU program's threads: linear maps over F2.
//!
//! A *piece* has power-of-two extents, so that the row-major flat index of an element is a string of bits. A [`Linear`]
//! gives each bit of the hardware index (register number, lane in the warp, warp in the program) a flat index, and a
//! hardware index the exclusive or of those of its set bits. A zero vector replicates: both values of that hardware bit
//! hold the same element. Every element is somewhere, and registers of one thread never hold copies.
//!
//! ```text
//! register bits 1 2 | lane bits 4 8 16 32 64 | warp bits 128 256
//! ```
//!
//! is a row of 512 elements, four neighbours a thread, threads side by side, four warps.
//!
//! | file | what |
//! |---|---|
//! | this one | the map, its images and what may be asked of it |
//! | [`algebra`] | spans and inverses over F2 |
//! | [`blocked`] | the layouts for coalesced memory access and for products by registers |
//! | [`tile`] | extents that are no power of two: a tile as a grid of pieces |
//! | [`plan`] | how to get from one layout to another |
//! | [`swizzle`] | where elements lie in shared memory meanwhile |
//! | [`text`] | printing and parsing |

pub mod algebra;
pub mod blocked;
pub mod plan;
pub mod swizzle;
pub mod text;
pub mod tile;

use algebra::Span;
pub use plan::Plan;
pub use swizzle::Swizzle;
pub use tile::{Segment, TileLayout, pieces, segments};

/// Lane bits of a warp.
pub const LANE_BITS: usize = 5;

/// A layout of a piece; see the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Flat index bits.
    bits: u32,
    reg: Vec<u64>,
    lane: [u64; LANE_BITS],
    warp: Vec<u64>,
}

/// A place in the registers of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Register of the thread.
    pub reg: usize,
    /// Lane of the warp.
    pub lane: usize,
    /// Warp of the program.
    pub warp: usize,
}

impl Linear {
    /// The layout of 2^`bits` elements with these vectors.
    ///
    /// # Errors
    /// A vector leaves the piece, or an element is nowhere.
    pub fn new(bits: u32, reg: Vec<u64>, lane: [u64; LANE_BITS], warp: Vec<u64>) -> Result<Linear, String> {
        if bits > 40 {
            return Err(format!("a piece of 2^{bits} elements"));
        }
        let l = Linear { bits, reg, lane, warp };
        if let Some(v) = l.vectors().find(|v| *v >> bits != 0) {
            return Err(format!("vector {v} lies outside a piece of 2^{bits} elements"));
        }
        if l.reg.contains(&0) {
            return Err("a register bit replicates: only lanes and warps may".into());
        }
        let rank = Span::of(l.vectors()).rank();
        if rank != bits as usize {
            return Err(format!("only 2^{rank} of 2^{bits} elements are in a register"));
        }
        Ok(l)
    }

    /// Flat index bits of the piece.
    pub fn bits(&self) -> u32 {
        self.bits
    }
    /// Register vectors, lowest bit first.
    pub fn reg(&self) -> &[u64] {
        &self.reg
    }
    /// Lane vectors.
    pub fn lane(&self) -> &[u64; LANE_BITS] {
        &self.lane
    }
    /// Warp vectors.
    pub fn warp(&self) -> &[u64] {
        &self.warp
    }
    /// Lane vectors, then warp vectors: the images of the bits of a thread's number.
    pub fn threads(&self) -> Vec<u64> {
        self.lane.iter().chain(&self.warp).copied().collect()
    }
    /// Registers a thread holds.
    pub fn regs(&self) -> usize {
        1 << self.reg.len()
    }
    fn vectors(&self) -> impl Iterator<Item = u64> {
        self.reg.iter().chain(&self.lane).chain(&self.warp).copied()
    }

    /// The flat index of the element at a place.
    pub fn at(&self, p: Place) -> u64 {
        combine(&self.reg, p.reg) ^ combine(&self.lane, p.lane) ^ combine(&self.warp, p.warp)
    }
    /// The part of the flat index that depends on the register alone.
    pub fn of_reg(&self, reg: usize) -> u64 {
        combine(&self.reg, reg)
    }

    /// Where an element is: the place that has zero in every replicated bit.
    pub fn place(&self, element: u64) -> Place {
        let all: Vec<u64> = self.vectors().collect();
        // Every element is somewhere: `new` saw to it.
        let at = Span::of(all).coordinates(element).unwrap_or(0) as usize;
        let (r, l) = (self.reg.len(), LANE_BITS);
        Place { reg: at & ((1 << r) - 1), lane: at >> r & ((1 << l) - 1), warp: at >> (r + l) }
    }

    /// Bits of the thread number (lane, then warp) without which every element is still held by exactly one thread: those
    /// threads that have them all zero store, the others hold copies.
    pub fn redundant_threads(&self) -> u64 {
        let mut span = Span::of(self.reg.iter().copied());
        self.threads().iter().enumerate().fold(0, |mask, (i, v)| if span.insert(*v) { mask } else { mask | 1 << i })
    }

    /// Whether no vector has more than one bit and no flat index bit has two vectors: each hardware bit is an index bit,
    /// or replicates.
    pub fn is_permutation(&self) -> bool {
        let mut seen = 0;
        self.vectors().all(|v| {
            let fresh = seen & v == 0;
            seen |= v;
            fresh && v.count_ones() <= 1
        })
    }

    /// The image under a linear map of flat indices to those of a piece of 2^`bits` elements, which must reach all of
    /// them. Register bits that come to replicate are dropped.
    pub fn image(&self, bits: u32, f: impl Fn(u64) -> u64) -> Linear {
        let map = |v: &[u64]| v.iter().map(|v| f(*v)).collect::<Vec<_>>();
        let reg = map(&self.reg).into_iter().filter(|v| *v != 0).collect();
        let lane = self.lane.map(&f);
        let warp = map(&self.warp);
        let l = Linear { bits, reg, lane, warp };
        debug_assert_eq!(Span::of(l.vectors()).rank(), bits as usize, "the image covers its piece");
        l
    }

    /// The layout of the transposed piece: its axis i is this one's axis `perm[i]`.
    pub fn permute(&self, extents: &[usize], perm: &[usize]) -> Linear {
        let (from, to) = (Axes::of(extents), Axes::of(&perm.iter().map(|p| extents[*p]).collect::<Vec<_>>()));
        self.image(self.bits, |v| (0..perm.len()).fold(0, |r, i| r | to.place(i, from.coordinate(perm[i], v))))
    }

    /// The layout of the piece whose axes marked in `gone` have extent 1: what a reduction leaves, and what a broadcast
    /// along them reads.
    pub fn project(&self, extents: &[usize], gone: &[bool]) -> Linear {
        let from = Axes::of(extents);
        let left: Vec<usize> = extents.iter().zip(gone).map(|(n, g)| if *g { 1 } else { *n }).collect();
        let to = Axes::of(&left);
        let kept = (0..extents.len()).filter(|a| !gone[*a]).collect::<Vec<_>>();
        self.image(to.bits(), |v| kept.iter().fold(0, |r, a| r | to.place(*a, from.coordinate(*a, v))))
    }

    /// A layout of a larger piece with the extents `to`, of which this is the projection: broadcasting it moves nothing.
    /// New index bits go to threads that held copies, then to registers.
    pub fn expand(&self, from: &[usize], to: &[usize]) -> Linear {
        let (a, b) = (Axes::of(from), Axes::of(to));
        let mut l = self.image_into(b.bits(), |v| (0..from.len()).fold(0, |r, d| r | b.place(d, a.coordinate(d, v))));
        let mut fresh: Vec<u64> = vec![];
        for d in (0..to.len()).rev().filter(|d| from[*d] != to[*d]) {
            fresh.extend((0..b.width(d)).map(|i| b.place(d, 1 << i)));
        }
        let mut fresh = fresh.into_iter();
        for slot in l.lane.iter_mut().chain(l.warp.iter_mut()).filter(|v| **v == 0) {
            *slot = fresh.next().unwrap_or(0);
        }
        l.reg.extend(fresh);
        l
    }

    fn image_into(&self, bits: u32, f: impl Fn(u64) -> u64) -> Linear {
        let map = |v: &[u64]| v.iter().map(|v| f(*v)).collect::<Vec<_>>();
        Linear { bits, reg: map(&self.reg), lane: self.lane.map(&f), warp: map(&self.warp) }
    }

    /// The layout of the half, quarter, … that has the given flat index bits fixed, if these are register bits: a slice
    /// that moves nothing. `keep` squeezes the fixed bits out of a flat index.
    pub fn slice(&self, fixed: u64, keep: impl Fn(u64) -> u64) -> Option<Linear> {
        let inside = |v: &u64| *v & fixed == 0;
        let (reg, cut): (Vec<u64>, Vec<u64>) = self.reg.iter().partition(|v| inside(v));
        let held = cut.iter().all(|v| v.count_ones() == 1) && cut.len() == fixed.count_ones() as usize;
        let apart = self.lane.iter().chain(&self.warp).all(inside);
        (held && apart).then(|| Linear {
            bits: self.bits - fixed.count_ones(),
            reg: reg.into_iter().map(&keep).collect(),
            lane: self.lane.map(&keep),
            warp: self.warp.iter().map(|v| keep(*v)).collect(),
        })
    }

    /// Two such pieces side by side: `bit` is the flat index of the second one's first element, `spread` makes room for it
    /// in a flat index.
    pub fn join(&self, bit: u64, spread: impl Fn(u64) -> u64) -> Linear {
        let mut l = self.image_into(self.bits + 1, spread);
        l.reg.push(bit);
        l
    }

    /// Which lanes share an axis: the bits of the lane number whose vectors touch the flat index bits `mask`.
    pub fn lanes_along(&self, mask: u64) -> u64 {
        along(&self.lane, mask)
    }
    /// Which warps share an axis, likewise.
    pub fn warps_along(&self, mask: u64) -> u64 {
        along(&self.warp, mask)
    }
    /// The hardware bit that is the flat index bit `bit` in a permutation layout.
    pub fn bit(&self, bit: u32) -> Option<Hardware> {
        let find = |v: &[u64]| v.iter().position(|v| *v == 1 << bit);
        find(&self.reg)
            .map(Hardware::Reg)
            .or_else(|| find(&self.lane).map(Hardware::Lane))
            .or_else(|| find(&self.warp).map(Hardware::Warp))
    }

    /// Consecutive elements that consecutive registers hold from an aligned start: how wide memory accesses may be.
    pub fn contiguous(&self) -> usize {
        let n = (0..).zip(&self.reg).take_while(|(i, v)| **v == 1 << i).count();
        // The low bits must not move with anything else.
        let n = (0..=n).rev().find(|n| {
            let low = (1u64 << n) - 1;
            self.vectors().skip(*n).all(|v| v & low == 0)
        });
        1 << n.unwrap_or(0)
    }
}

/// Which part of the hardware index a flat index bit is, and which bit of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// A bit of the register number.
    Reg(usize),
    /// A bit of the lane number.
    Lane(usize),
    /// A bit of the warp number.
    Warp(usize),
}

fn along(vectors: &[u64], mask: u64) -> u64 {
    vectors.iter().enumerate().fold(0, |m, (i, v)| if v & mask != 0 { m | 1 << i } else { m })
}

/// The exclusive or of the vectors whose bit is set in `index`.
pub fn combine(vectors: &[u64], index: usize) -> u64 {
    vectors.iter().enumerate().filter(|(i, _)| index >> i & 1 != 0).fold(0, |a, (_, v)| a ^ v)
}

/// Which bits of a flat index are an axis, for power-of-two extents in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    low: Vec<u32>,
    width: Vec<u32>,
}

impl Axes {
    /// Of a piece with these extents, each a power of two.
    pub fn of(extents: &[usize]) -> Axes {
        let width: Vec<u32> = extents.iter().map(|n| n.trailing_zeros()).collect();
        let low = (0..extents.len()).map(|a| width[a + 1..].iter().sum()).collect();
        Axes { low, width }
    }
    /// Bits of the whole flat index.
    pub fn bits(&self) -> u32 {
        self.width.iter().sum()
    }
    /// Bits of an axis.
    pub fn width(&self, axis: usize) -> u32 {
        self.width[axis]
    }
    /// The axis's bits.
    pub fn mask(&self, axis: usize) -> u64 {
        ((1 << self.width[axis]) - 1) << self.low[axis]
    }
    /// The axis's lowest bit.
    pub fn low(&self, axis: usize) -> u32 {
        self.low[axis]
    }
    /// The coordinate along an axis.
    pub fn coordinate(&self, axis: usize, flat: u64) -> u64 {
        (flat & self.mask(axis)) >> self.low[axis]
    }
    /// The flat index of a coordinate, zero along the other axes.
    pub fn place(&self, axis: usize, coordinate: u64) -> u64 {
        coordinate << self.low[axis] & self.mask(axis)
    }
}
