//! An executable instruction, and what it sees of the machine.

use super::{cta::Cluster, fault::Fault, launch::Launch, program::Program, regs::Pred, warp::Warp};
use crate::{counters::Counters, mem::watch::Order};

/// An instruction of the flat program. Its operands are fields of the implementing type; the decoder made them.
pub trait Op: Send + Sync {
    /// Executes for the lanes of `mask`, which is never empty.
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome;
}

/// What an instruction hands back.
pub type Outcome = Result<Flow, Box<Fault>>;

/// What comes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction.
    Next,
    /// The next instruction, but other warps run first (a poll that failed, a sleep).
    Yield,
    /// The instruction set the current group's pc (or ended it) itself.
    Jumped,
    /// The lanes wait ([`super::warp::Group::wait`] says for what). When that has come the instruction runs again with
    /// [`Warp::take_woken`] giving the wait.
    Blocked,
}

/// What an executing instruction can reach.
pub struct Cx<'a> {
    /// The warp that executes.
    pub warp: &'a mut Warp,
    /// The blocks of its cluster: shared memory and barriers.
    pub cluster: &'a mut Cluster,
    /// Rank of its block in the cluster.
    pub rank: usize,
    /// The launch: options, global memory, parameters, sizes.
    pub launch: &'a Launch<'a>,
    /// The code.
    pub program: &'a Program,
    /// Sums of this thread.
    pub counters: &'a mut Counters,
}

impl Cx<'_> {
    /// Lanes of the current group, guard or no guard.
    pub fn active(&self) -> u32 {
        self.warp.current.mask
    }

    /// The lanes named by a member mask must include and, in strict mode, equal the executing ones.
    pub fn check_aligned(&self, mask: u32, what: &str) -> Result<(), Box<Fault>> {
        if self.launch.options.strict.participation && mask != self.warp.live() {
            return Err(Fault::new(
                super::fault::FaultKind::Synchronisation,
                format!(
                    "{what} is .aligned: all threads of the warp must execute it together, here lanes {:#010x} of \
                     {:#010x} do",
                    mask,
                    self.warp.live()
                ),
            ));
        }
        Ok(())
    }

    /// Tells the detector of races, if there is one, what orders this warp with others.
    #[inline]
    pub fn order(&mut self, order: Order) {
        if let Some(races) = &mut self.cluster.races {
            races.ordered(self.rank, self.warp.index, order);
        }
    }

    /// Sets predicate `p` (if any) in the lanes of `mask`.
    pub fn put_pred(&mut self, p: Option<Pred>, mask: u32, value: u32) {
        if let Some(p) = p {
            self.warp.regs.put_pred(p, mask, value);
        }
    }
}
