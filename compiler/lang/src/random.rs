//! Stateless random numbers: Philox 4×32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"). The same
//! seed and counter give the same numbers on every executor.

use crate::context;
use crate::shape::Shape;
use crate::tile::{Operand, Scalar, Tile, broadcast_to};
use tegula_ir::Elem as IrElem;

/// Four random words per element: `counter` gives words 0 and 1 of the 128-bit counter (low half first; words 2 and 3
/// are 0), `seed` the 64-bit key.
#[track_caller]
pub fn philox<S: Shape>(seed: impl Operand<u64, Shape = ()>, counter: Tile<u64, S>) -> [Tile<u32, S>; 4] {
    let seed: Scalar<u64> = Tile::new(seed.to_handle());
    let shape = context::shape(counter.handle());
    let zero: Tile<u32, S> = Tile::new(context::constant(tegula_ir::Scalar::zero(IrElem::U32), &shape));
    philox_words([seed.cast(), (seed >> 32).cast()], [counter.cast(), (counter >> 32).cast(), zero, zero])
}

/// Philox 4×32-10 itself: a two-word key, a four-word counter, four random words.
#[track_caller]
pub fn philox_words<S: Shape>(key: [Scalar<u32>; 2], counter: [Tile<u32, S>; 4]) -> [Tile<u32, S>; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let shape = context::shape(counter[0].handle());
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for round in 0..10 {
        if round > 0 {
            k0 += WEYL[0];
            k1 += WEYL[1];
        }
        let (high0, low0) = (c0.umulhi(MULTIPLIERS[0]), c0 * MULTIPLIERS[0]);
        let (high1, low1) = (c2.umulhi(MULTIPLIERS[1]), c2 * MULTIPLIERS[1]);
        let spread0: Tile<u32, S> = Tile::new(broadcast_to(k0.handle(), &shape));
        let spread1: Tile<u32, S> = Tile::new(broadcast_to(k1.handle(), &shape));
        (c0, c1, c2, c3) = (high1 ^ c1 ^ spread0, low1, high0 ^ c3 ^ spread1, low0);
    }
    [c0, c1, c2, c3]
}

impl<S: Shape> Tile<u32, S> {
    /// Random words as f32, uniform in [0, 1): the upper 24 bits over 2^24.
    #[track_caller]
    pub fn uniform(self) -> Tile<f32, S> {
        (self >> 8).cast::<f32>() * (1.0 / 16777216.0)
    }
}

/// Uniform f32 in [0, 1), one per counter. `rand(seed, offsets)` with `offsets` the element's own number.
#[track_caller]
pub fn rand<S: Shape>(seed: impl Operand<u64, Shape = ()>, counter: Tile<u64, S>) -> Tile<f32, S> {
    philox(seed, counter)[0].uniform()
}

/// Uniform integers in 0..bound, one per counter, with a bias below bound / 2^32.
#[track_caller]
pub fn rand_int<S: Shape>(seed: impl Operand<u64, Shape = ()>, counter: Tile<u64, S>, bound: u32) -> Tile<u32, S> {
    if bound == 0 {
        context::fault("`rand_int` below 0: the bound must be at least 1");
    }
    philox(seed, counter)[0].umulhi(bound)
}
