//! Seeds.

use std::hash::{BuildHasher, Hasher};

/// The seed of one of several answers: `seed + sample`. So each of them is the answer that a request for one, with that
/// seed, would get.
pub fn sub_seed(seed: u64, sample: u32) -> u64 {
    seed.wrapping_add(u64::from(sample))
}

/// A seed that nobody chose: another one each time, in each process.
pub fn unpredictable_seed() -> u64 {
    // Keys from the operating system, and a count within a thread, through SipHash.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
