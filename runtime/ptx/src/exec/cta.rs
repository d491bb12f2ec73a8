//! A block (CTA), its barriers, and the cluster of blocks that one host thread runs.

use super::{
    cluster_barrier::ClusterBarrier,
    endless,
    fault::{Fault, FaultKind},
    in_flight::{Key, Transit},
    mbarrier::Mbarriers,
};
use crate::mem::{races::Races, shared::Shared};
use std::hash::Hasher;

/// Barriers of a block.
pub const BARRIERS: usize = 16;

/// One of the 16 barriers.
#[derive(Clone, Debug)]
pub struct Barrier {
    /// How often it has completed.
    generation: u32,
    /// Lanes of each warp that have arrived.
    arrived: [u32; 32],
    /// Threads that it waits for, when an instruction gave a number.
    expected: Option<u32>,
    /// Threads whose predicate was true, and those that voted, for bar.red.
    votes: (u32, u32),
    /// `votes` of the last completed generation.
    result: (u32, u32),
    /// Whether anyone has arrived since the last completion.
    open: bool,
}

impl Barrier {
    const NEW: Barrier =
        Barrier { generation: 0, arrived: [0; 32], expected: None, votes: (0, 0), result: (0, 0), open: false };
}

/// One block.
pub struct Cta {
    /// `%ctaid`.
    pub index: [u32; 3],
    /// Its shared memory.
    pub shared: Shared,
    /// Lanes of each warp that have not exited.
    pub live: [u32; 32],
    /// Its mbarriers.
    pub mbarriers: Mbarriers,
    barriers: [Barrier; BARRIERS],
}

impl Cta {
    /// A block whose warps have the given lanes.
    pub fn new(index: [u32; 3], shared: Shared, live: [u32; 32]) -> Cta {
        Cta { index, shared, live, mbarriers: Mbarriers::default(), barriers: [Barrier::NEW; BARRIERS] }
    }

    /// Completions of a barrier.
    pub fn barrier_generation(&self, id: u8) -> u32 {
        self.barriers[id as usize].generation
    }

    /// Votes of the last completion: threads whose predicate was true, threads that voted.
    pub fn barrier_votes(&self, id: u8) -> (u32, u32) {
        self.barriers[id as usize].result
    }

    /// Lanes of a warp arrive at a barrier that `expected` threads use (all of the block's when None), with the lanes
    /// whose predicate is true. Gives the generation to wait for.
    pub fn arrive(
        &mut self,
        id: u8,
        warp: u32,
        mask: u32,
        expected: Option<u32>,
        votes: Option<u32>,
    ) -> Result<u32, Box<Fault>> {
        let barrier = &mut self.barriers[id as usize];
        let wrong = |message: String| Err(Fault::new(FaultKind::Synchronisation, message));
        if let Some(n) = expected
            && (n == 0 || !n.is_multiple_of(32))
        {
            return wrong(format!("barrier {id} for {n} threads: the count must be a multiple of 32"));
        }
        if barrier.open && barrier.expected != expected {
            let say = |n: Option<u32>| n.map_or("all threads".to_string(), |n| format!("{n} threads"));
            return wrong(format!(
                "barrier {id} is used for {} here, while others wait at it for {}",
                say(expected),
                say(barrier.expected)
            ));
        }
        if barrier.arrived[warp as usize] & mask != 0 {
            return wrong(format!("warp {warp} arrives at barrier {id} a second time before the barrier completed"));
        }
        barrier.open = true;
        barrier.expected = expected;
        barrier.arrived[warp as usize] |= mask;
        if let Some(votes) = votes {
            barrier.votes.0 += (votes & mask).count_ones();
            barrier.votes.1 += mask.count_ones();
        }
        let generation = barrier.generation;
        self.settle(id);
        Ok(generation)
    }

    /// Ends lanes; barriers that waited only for them complete.
    pub fn exit(&mut self, warp: u32, live: u32) {
        self.live[warp as usize] = live;
        for id in 0..BARRIERS as u8 {
            self.settle(id);
        }
    }

    /// Completes a barrier whose threads are all there. A warp counts, with 32, once all its live lanes have arrived.
    fn settle(&mut self, id: u8) {
        let barrier = &mut self.barriers[id as usize];
        if !barrier.open {
            return;
        }
        let (mut there, mut missing) = (0, false);
        for (arrived, live) in barrier.arrived.iter().zip(&self.live) {
            let complete = live & !arrived == 0;
            // An exited warp that arrived before (bar.arrive, then exit) still counts.
            if *arrived != 0 && complete {
                there += 32;
            }
            missing |= !complete;
        }
        let complete = barrier.expected.map_or(!missing, |n| there >= n);
        if complete {
            barrier.generation = barrier.generation.wrapping_add(1);
            barrier.arrived = [0; 32];
            barrier.result = std::mem::take(&mut barrier.votes);
            barrier.open = false;
        }
    }
}

/// The blocks of a cluster; a launch without clusters has one block in each.
pub struct Cluster {
    /// By rank.
    pub ctas: Vec<Cta>,
    /// The detector of races, in strict mode.
    pub races: Option<Box<Races>>,
    /// Its barrier.
    pub barrier: ClusterBarrier,
    /// Copies that complete on mbarriers.
    pub transit: Transit,
    /// Whether something that other clusters or the host may change was looked at, or changed: global memory, the clock.
    pub outside: bool,
}

impl Cluster {
    /// Adds everything that decides what the cluster will do to a hash, but for its warps.
    pub fn digest(&self, hash: &mut impl Hasher) {
        for cta in &self.ctas {
            endless::words(hash, &cta.live);
            hash.write(cta.shared.bytes());
            cta.mbarriers.digest(hash);
            for b in &cta.barriers {
                endless::words(hash, &b.arrived);
                endless::words(hash, &[b.generation, b.expected.unwrap_or(0), b.votes.0, b.votes.1]);
            }
        }
        self.barrier.digest(hash);
        let (performed, all) = self.transit.counts();
        hash.write_usize(performed);
        hash.write_usize(all);
    }

    /// Lets the cluster's barrier complete if it may: after an arrival, after threads have ended.
    pub fn settle_barrier(&mut self) {
        self.barrier.settle(self.ctas.iter().map(|c| &c.live));
    }

    /// Whether `phase` of an mbarrier is over; None when there is no such barrier.
    pub fn phase_over(&mut self, key: Key, phase: u64) -> Option<bool> {
        let cta = self.ctas.get_mut(key.rank as usize)?;
        self.transit.over(key, phase, &mut cta.mbarriers)
    }
}
