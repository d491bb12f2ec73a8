//! mbarriers: barriers in shared memory that count arrivals and bytes.
//!
//! A phase is over when all expected arrivals have come and the bytes expected (`expect_tx`) minus those arrived
//! (`complete_tx`) are zero. The state is kept beside shared memory, so that a kernel that overwrites the 8 bytes does
//! not confuse it, and its phase is a counter of which PTX shows the parity.

/// One barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mbarrier {
    /// Arrivals of a phase.
    pub expected: u32,
    /// Arrivals missing in this phase.
    pub pending: u32,
    /// Bytes missing.
    pub bytes: i64,
    /// Phases completed.
    pub phase: u64,
}

/// The greatest count, and the greatest number of bytes under way.
pub const MOST: u32 = (1 << 20) - 1;

impl Mbarrier {
    /// A barrier for `expected` arrivals (1 to [`MOST`]).
    pub fn new(expected: u32) -> Result<Mbarrier, String> {
        if expected == 0 || expected > MOST {
            return Err(format!("mbarrier.init with a count of {expected}; 1 to {MOST} are possible"));
        }
        Ok(Mbarrier { expected, pending: expected, bytes: 0, phase: 0 })
    }

    /// The opaque value that an arrival gives: phase and arrivals missing before it.
    pub fn token(&self) -> u64 {
        self.phase << 20 | self.pending as u64
    }

    /// `count` arrivals; with `drop` they are expected no more in later phases.
    pub fn arrive(&mut self, count: u32, drop: bool) -> Result<u64, String> {
        let token = self.token();
        if count == 0 || count > self.pending {
            return Err(format!(
                "{count} arrivals at an mbarrier where {} of {} are missing in phase {}",
                self.pending, self.expected, self.phase
            ));
        }
        self.pending -= count;
        if drop {
            self.expected -= count.min(self.expected);
        }
        self.settle();
        Ok(token)
    }

    /// One arrival more is expected in this phase (cp.async.mbarrier.arrive without .noinc).
    pub fn expect_arrivals(&mut self, count: u32) -> Result<(), String> {
        if self.pending + count > MOST {
            return Err(format!("an mbarrier would miss {} arrivals; at most {MOST} can be", self.pending + count));
        }
        self.pending += count;
        Ok(())
    }

    /// More bytes are expected.
    pub fn expect_bytes(&mut self, bytes: u32) -> Result<(), String> {
        self.change(bytes as i64)
    }

    /// Bytes have come.
    pub fn complete_bytes(&mut self, bytes: u32) -> Result<(), String> {
        self.change(-(bytes as i64))?;
        self.settle();
        Ok(())
    }

    fn change(&mut self, bytes: i64) -> Result<(), String> {
        let sum = self.bytes + bytes;
        if sum.unsigned_abs() > MOST as u64 {
            return Err(format!("an mbarrier would miss {sum} bytes; at most {MOST} can be under way"));
        }
        self.bytes = sum;
        Ok(())
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase += 1;
            self.pending = self.expected;
        }
    }

    /// What the phase lacks, for messages.
    pub fn describe(&self) -> String {
        let Mbarrier { expected, pending, bytes, phase } = self;
        format!("phase {phase} (parity {}), which lacks {pending} of {expected} arrivals and {bytes} bytes", phase & 1)
    }
}

/// The barriers of a block, by offset in shared memory.
#[derive(Clone, Debug, Default)]
pub struct Mbarriers(Vec<(u32, Mbarrier)>);

impl Mbarriers {
    /// Adds their state to a hash.
    pub fn digest(&self, hash: &mut impl std::hash::Hasher) {
        for (address, b) in &self.0 {
            super::endless::words(hash, &[*address, b.expected, b.pending]);
            hash.write_i64(b.bytes);
            hash.write_u64(b.phase);
        }
    }

    /// The barrier at an address.
    #[inline]
    pub fn get(&mut self, address: u32) -> Option<&mut Mbarrier> {
        self.0.iter_mut().find(|(a, _)| *a == address).map(|(_, b)| b)
    }

    /// The barrier at an address, to look at.
    pub fn peek(&self, address: u32) -> Option<&Mbarrier> {
        self.0.iter().find(|(a, _)| *a == address).map(|(_, b)| b)
    }

    /// Makes one.
    pub fn insert(&mut self, address: u32, barrier: Mbarrier) {
        self.remove(address);
        self.0.push((address, barrier));
    }

    /// Ends one. False when there is none.
    pub fn remove(&mut self, address: u32) -> bool {
        let before = self.0.len();
        self.0.retain(|(a, _)| *a != address);
        self.0.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_needs_arrivals_and_bytes() {
        let mut b = Mbarrier::new(2).unwrap();
        b.expect_bytes(96).unwrap();
        assert_eq!(b.arrive(1, false), Ok(2));
        assert_eq!(b.arrive(1, true), Ok(1));
        assert_eq!(b.phase, 0);
        b.complete_bytes(32).unwrap();
        assert!(b.arrive(1, false).unwrap_err().contains("where 0 of 1 are missing in phase 0"));
        b.complete_bytes(64).unwrap();
        assert_eq!((b.phase, b.pending, b.expected), (1, 1, 1));
        // Bytes may come before they are expected.
        b.complete_bytes(8).unwrap();
        assert_eq!(b.phase, 1);
        b.expect_bytes(8).unwrap();
        b.arrive(1, false).unwrap();
        assert_eq!(b.phase, 2);
        assert!(Mbarrier::new(0).is_err() && Mbarrier::new(MOST + 1).is_err());
    }
}
