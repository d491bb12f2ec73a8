//! How the data of a piece get from one layout to another, by the cheapest means that serve.

use super::{LANE_BITS, Linear, Place, algebra::Span, swizzle::Swizzle};

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Every thread has what it needs: register i of the result is this one of the source.
    Registers(Vec<usize>),
    /// Every warp has what it needs.
    Shuffles(Vec<Shuffle>),
    /// Through shared memory, laid out like this.
    Shared(Swizzle),
}

/// How a register of the result is made: in each round lane l reads source register `reg` of lane `source[l]`, and keeps
/// it if `rounds` says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shuffle {
    /// From which lane each lane reads.
    pub source: [u8; 32],
    /// Registers read, with the lanes (a bit each) that keep the value.
    pub rounds: Vec<(usize, u32)>,
}

impl Plan {
    /// From `from` to `to`, both of one piece and one number of warps, for elements of that many bytes.
    pub fn new(from: &Linear, to: &Linear, bytes: usize) -> Plan {
        if let Some(regs) = registers(from, to) {
            return Plan::Registers(regs);
        }
        if let Some(shuffles) = shuffles(from, to) {
            let rounds: usize = shuffles.iter().map(|s| s.rounds.len()).sum();
            // A round costs about what a store or a load does, and shared memory two barriers besides.
            if rounds <= 2 * to.regs().max(from.regs()) {
                return Plan::Shuffles(shuffles);
            }
        }
        Plan::Shared(Swizzle::best(from, to, bytes))
    }
}

/// The register of `from` for each one of `to`, if they are in the same threads.
pub fn registers(from: &Linear, to: &Linear) -> Option<Vec<usize>> {
    // What a thread needs beyond what it holds must be the same for all threads: then it is a choice of register.
    let held = Span::of(from.reg.iter().copied());
    let same = |a: &u64, b: &u64| a == b;
    let threads = from.lane.iter().chain(&from.warp).zip(to.lane.iter().chain(&to.warp));
    if !threads.into_iter().all(|(a, b)| same(a, b)) {
        return None;
    }
    (0..to.regs()).map(|r| held.coordinates(to.of_reg(r)).map(|r| r as usize)).collect()
}

/// Shuffles for each register of `to`, if every warp holds all that its lanes need.
fn shuffles(from: &Linear, to: &Linear) -> Option<Vec<Shuffle>> {
    if from.warp != to.warp {
        return None;
    }
    let within = Span::of(from.reg.iter().chain(&from.lane).copied());
    let split = |at: u64| (at as usize & (from.regs() - 1), at as usize >> from.reg.len() & ((1 << LANE_BITS) - 1));
    (0..to.regs())
        .map(|reg| {
            let mut rounds: Vec<(usize, u32)> = vec![];
            let mut source = [0; 32];
            for (lane, from_lane) in source.iter_mut().enumerate() {
                let (r, l) = split(within.coordinates(to.at(Place { reg, lane, warp: 0 }))?);
                *from_lane = l as u8;
                match rounds.iter_mut().find(|(reg, _)| *reg == r) {
                    Some((_, keep)) => *keep |= 1 << lane,
                    None => rounds.push((r, 1 << lane)),
                }
            }
            Some(Shuffle { source, rounds })
        })
        .collect()
}
