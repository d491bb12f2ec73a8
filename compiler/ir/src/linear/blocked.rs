//! The layouts that values start from.

use super::{Axes, LANE_BITS, Linear};

/// What a blocked layout is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// Elements that a thread holds side by side, at most; a power of two.
    pub contiguous: usize,
    /// Along which axis it does.
    pub along: usize,
    /// Axes from the fastest to the slowest: neighbours along the first are neighbours in memory.
    pub order: Vec<usize>,
    /// Base-two logarithm of the number of warps.
    pub warp_bits: u32,
}

impl Blocking {
    /// Row-major: the last axis is the fastest.
    pub fn row_major(rank: usize, contiguous: usize, warp_bits: u32) -> Blocking {
        Blocking { contiguous, along: rank.saturating_sub(1), order: (0..rank).rev().collect(), warp_bits }
    }

    /// For weights (K, n) in groups of 32 along K with a scale each: threads take runs of a group, side by side along the
    /// second axis, so that they write rows of shared memory together.
    pub fn runs_of_k(warp_bits: u32) -> Blocking {
        Blocking { contiguous: 32, along: 0, ..Blocking::row_major(2, 1, warp_bits) }
    }

    /// The layout of a piece with these extents (powers of two): registers take `contiguous` elements, then lanes, warps and
    /// again registers take what is left, axis by axis. Threads too many hold copies.
    pub fn layout(&self, extents: &[usize]) -> Linear {
        let axes = Axes::of(extents);
        let bits = axes.bits();
        let threads = LANE_BITS as u32 + self.warp_bits;
        let most = if extents.is_empty() { 0 } else { axes.width(self.along) };
        // Better many threads with little than few with much.
        let low = self.contiguous.trailing_zeros().min(most).min(bits.saturating_sub(threads));
        let mut reg: Vec<u64> = (0..low).map(|i| axes.place(self.along, 1 << i)).collect();
        // The other index bits in order, fastest first.
        let first = |a: usize| if a == self.along { low } else { 0 };
        let mut all = self.order.iter().flat_map(|a| (first(*a)..axes.width(*a)).map(|i| axes.place(*a, 1 << i)));
        let lane = std::array::from_fn(|_| all.next().unwrap_or(0));
        let warp = (0..self.warp_bits).map(|_| all.next().unwrap_or(0)).collect();
        reg.extend(all);
        Linear { bits, reg, lane, warp }
    }
}

/// The layout of the result of a product (m, n) by fused multiply-adds: a thread holds a block of registers as square as
/// can be, at most 4 columns side by side; lanes lie 4 × 8 if they can.
pub fn product(m: usize, n: usize, warp_bits: u32) -> Linear {
    let axes = Axes::of(&[m, n]);
    let (m_bits, n_bits) = (axes.width(0), axes.width(1));
    let threads = LANE_BITS as u32 + warp_bits;
    let regs = (m_bits + n_bits).saturating_sub(threads);
    // Columns first, then rows, in turn.
    let (mut reg_m, mut reg_n) = (0, 0);
    for _ in 0..regs {
        let columns = reg_n < n_bits && (reg_n <= reg_m || reg_m >= m_bits);
        *(if columns { &mut reg_n } else { &mut reg_m }) += 1;
    }
    let near = reg_n.min(2);
    let column = |i: u32| axes.place(1, 1 << i);
    let row = |i: u32| axes.place(0, 1 << i);
    let mut reg: Vec<u64> = (0..near).map(column).collect();
    // Lanes: up to 3 bits of columns, then rows, then whatever is left.
    let far = reg_n - near;
    let columns: Vec<u64> = (near..n_bits - far).map(column).collect();
    let rows: Vec<u64> = (0..m_bits - reg_m).map(row).collect();
    let first = columns.len().min(3);
    let by_lane = rows.len().min(LANE_BITS - first);
    let mut spread = columns[..first].iter().chain(&rows[..by_lane]).chain(&columns[first..]).chain(&rows[by_lane..]);
    let lane = std::array::from_fn(|_| spread.next().copied().unwrap_or(0));
    let warp = (0..warp_bits).map(|_| spread.next().copied().unwrap_or(0)).collect();
    reg.extend((m_bits - reg_m..m_bits).map(row));
    reg.extend((n_bits - far..n_bits).map(column));
    Linear { bits: m_bits + n_bits, reg, lane, warp }
}
