//! Shared memory between two layouts: which address an element gets, so that both sides access it with wide, conflict-free
//! instructions.
//!
//! Shared memory has 32 banks of 4 bytes. The lanes of one instruction are served together in groups: all 32 lanes for
//! accesses of up to 4 bytes, 16 for 8 bytes, 8 for 16 bytes. A group takes as many wavefronts as a bank has different
//! words asked of it.
//!
//! An address is a linear function of the flat index: element = V·v + C·c + R·r, where v counts within a vector, c picks
//! the bank, r the row of 128 bytes. Two lanes conflict if their elements differ by something in the span of V and R. So
//! R is made of vectors that lie in neither side's span of (V, lanes), as long as there are any: first those outside both
//! together, then sums of a lane vector of one side and one of the other (the exclusive or that gives a swizzle its name).

use super::{
    LANE_BITS, Linear,
    algebra::{Span, apply, independent, intersection, inverse},
};

/// The place of every element of a piece in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swizzle {
    /// Address (in elements) of each flat index bit; addresses add by exclusive or.
    columns: Vec<u64>,
    /// Elements per access when writing and when reading, of consecutive addresses.
    vectors: [usize; 2],
    bytes: usize,
}

/// A side's access: which registers make a vector, and the lanes that are served together.
fn phase(vector: usize, bytes: usize) -> usize {
    match vector * bytes {
        16.. => 3,
        8.. => 4,
        _ => LANE_BITS,
    }
}

impl Swizzle {
    /// Row-major, element by element.
    pub fn plain(bits: u32, bytes: usize) -> Swizzle {
        Swizzle { columns: (0..bits).map(|b| 1 << b).collect(), vectors: [1; 2], bytes }
    }

    /// The best of what is known for data written as `from` and read as `to`, elements of that many bytes (a power of
    /// two up to 16).
    pub fn best(from: &Linear, to: &Linear, bytes: usize) -> Swizzle {
        let widest = (16 / bytes).max(1).trailing_zeros() as usize;
        let common = intersection(from.reg(), to.reg());
        let mut shared = common.clone();
        // Vectors need a register bit each on both sides: single register vectors, not sums of them.
        shared.retain(|v| from.reg().contains(v) && to.reg().contains(v));
        shared.truncate(widest);
        let one = |l: &Linear| {
            let mut v: Vec<u64> = l.reg().to_vec();
            v.truncate(widest);
            v
        };
        let candidates = [shared, one(from), one(to), vec![]];
        let made = candidates.iter().filter_map(|v| Swizzle::with(v, from, to, bytes));
        // `with` makes one for the empty vector always.
        made.min_by_key(|s| (s.cost(from, 0) + s.cost(to, 1), usize::MAX - s.vectors[0] * s.vectors[1]))
            .unwrap_or_else(|| Swizzle::plain(from.bits(), bytes))
    }

    /// The swizzle whose consecutive addresses are `v`.
    fn with(v: &[u64], from: &Linear, to: &Linear, bytes: usize) -> Option<Swizzle> {
        let bits = from.bits() as usize;
        let vector = |l: &Linear| 1usize << v.iter().take_while(|x| l.reg().contains(x)).count();
        let vectors = [vector(from), vector(to)];
        let lanes = |l: &Linear, width: usize| {
            let mut span = Span::of(v.iter().copied());
            l.lane()[..phase(width, bytes)].iter().copied().filter(|x| span.insert(*x)).collect::<Vec<u64>>()
        };
        let (a, b) = (lanes(from, vectors[0]), lanes(to, vectors[1]));
        // Address bits above a row of all banks.
        let rows = bits.saturating_sub((128 / bytes).trailing_zeros() as usize);

        let mut basis = Span::of(v.iter().copied());
        let mut r: Vec<u64> = vec![];
        let take = |x: u64, basis: &mut Span, r: &mut Vec<u64>| {
            if r.len() < rows && basis.insert(x) {
                r.push(x);
            }
        };
        // Outside both sides.
        let mut both = Span::of(v.iter().chain(&a).chain(&b).copied());
        for x in (0..bits).map(|i| 1 << i) {
            if both.insert(x) {
                take(x, &mut basis, &mut r);
            }
        }
        // A lane vector of one side that the other's span lacks, plus one of the other's.
        let outside = |x: &[u64], y: &[u64]| {
            let mut span = Span::of(v.iter().chain(y).copied());
            x.iter().copied().filter(|x| span.insert(*x)).collect::<Vec<u64>>()
        };
        for (x, y) in outside(&a, &b).into_iter().zip(outside(&b, &a)) {
            take(x ^ y, &mut basis, &mut r);
        }
        // Whatever is left conflicts: prefer what only one side asks for.
        for x in outside(&a, &b).into_iter().chain(outside(&b, &a)).chain((0..bits).map(|i| 1 << i)) {
            take(x, &mut basis, &mut r);
        }
        // Bits below the word, then banks: lanes first.
        let mut low: Vec<u64> = v.to_vec();
        let others = a.iter().chain(&b).copied().chain((0..bits).map(|i| 1 << i));
        for x in others {
            if low.len() + r.len() < bits && basis.insert(x) {
                low.push(x);
            }
        }
        let columns: Vec<u64> = low.into_iter().chain(r).collect();
        // Column i is the element at address 1 << i; the inverse gives the address of an element.
        let columns = inverse(&independent(&columns)).filter(|c| c.len() == bits)?;
        let mut s = Swizzle { columns, vectors, bytes };
        for (side, l) in [from, to].into_iter().enumerate() {
            while !s.aligned(l, s.vectors[side]) {
                s.vectors[side] /= 2;
            }
        }
        Some(s)
    }

    /// Whether nothing but the registers of a vector moves the address within the vector.
    fn aligned(&self, l: &Linear, width: usize) -> bool {
        let addresses = l.reg().iter().copied().chain(l.threads()).map(|v| self.address(v));
        addresses.filter(|a| *a as usize & (width - 1) != 0).all(|a| (a as usize) < width)
            && l.threads().iter().all(|v| self.address(*v) as usize & (width - 1) == 0)
    }

    /// Address, in elements, of a flat index.
    pub fn address(&self, flat: u64) -> u64 {
        apply(&self.columns, flat)
    }
    /// Elements per write.
    pub fn write_vector(&self) -> usize {
        self.vectors[0]
    }
    /// Elements per read.
    pub fn read_vector(&self) -> usize {
        self.vectors[1]
    }
    /// The registers of a side in order of access: groups of a vector's worth, at consecutive addresses. `side` is 0 for
    /// the writer, 1 for the reader.
    pub fn accesses(&self, layout: &Linear, side: usize) -> Vec<Vec<usize>> {
        let n = self.vectors[side];
        // Register bits whose addresses are the lowest.
        let bits: Vec<usize> = (0..n.trailing_zeros())
            .filter_map(|i| layout.reg().iter().position(|v| self.address(*v) == 1 << i))
            .collect();
        let low = bits.iter().fold(0usize, |m, b| m | 1 << b);
        (0..layout.regs())
            .filter(|r| r & low == 0)
            .map(|r| (0..n).map(|i| bits.iter().enumerate().fold(r, |r, (k, b)| r | (i >> k & 1) << b)).collect())
            .collect()
    }
    /// Wavefronts that a side's instructions take in all, per warp.
    pub fn cost(&self, layout: &Linear, side: usize) -> usize {
        let width = self.vectors[side];
        self.wavefronts(layout, side) * (layout.regs() / width).max(1)
    }
    /// Wavefronts of one instruction of a side: its groups of lanes, times the conflicts in each.
    pub fn wavefronts(&self, layout: &Linear, side: usize) -> usize {
        let width = self.vectors[side];
        let lanes = phase(width, self.bytes);
        let word_bits = (4 / self.bytes).max(1).trailing_zeros();
        let words: Vec<u64> = layout.lane()[..lanes].iter().map(|v| self.address(*v) >> word_bits).collect();
        let scale = (self.bytes / 4).max(1).trailing_zeros();
        let bank_mask = (32u64 >> scale) - 1;
        let banks: Vec<u64> = words.iter().map(|w| w & bank_mask).collect();
        // Lanes spread over 2^rank words in 2^rank banks; each bank has the quotient of words.
        let conflicts = 1 << (Span::of(words).rank() - Span::of(banks).rank());
        (32 >> lanes) * conflicts
    }
}
