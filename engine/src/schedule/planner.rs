//! How a step is planned: first for those who run, then for those who wait, best first, from one budget of tokens.

use super::plan::{Admitted, StepPlan};
use super::queue::Rank;
use super::scheduler::{InFlight, Scheduler};
use super::sequence::{Run, Sequence};
use crate::kv::BlockRef;

/// A plan in the making.
struct Draft {
    plan: StepPlan,
    /// Tokens left to hand out.
    budget: usize,
}

/// What a waiting sequence can be told.
enum Verdict {
    /// It starts, with what was found and taken for it.
    Start(Run),
    /// It waits for another to compute what both begin with; those behind need not.
    Deferred,
    /// There is no room for it, and those behind it must not take what it waits for.
    NoRoom,
}

impl Scheduler {
    /// Plans the next step. `None` if there is nothing to do before a step in flight completes or a request comes, or if
    /// [`super::SchedulerConfig::max_concurrent_batches`] are in flight.
    pub fn plan(&mut self) -> Option<StepPlan> {
        if !self.may_plan() {
            return None;
        }
        let plan = StepPlan { step: self.next_step, rows: vec![], admitted: vec![], preempted: vec![] };
        let mut draft = Draft { plan, budget: self.config.max_num_batched_tokens };
        self.plan_running(&mut draft);
        if draft.plan.preempted.is_empty() {
            self.plan_waiting(&mut draft);
        }
        if draft.plan.rows.is_empty() {
            return None;
        }
        self.next_step += 1;
        self.in_flight.push_back(InFlight::of(&draft.plan));
        Some(draft.plan)
    }

    /// Rows for sequences that run.
    fn plan_running(&mut self, draft: &mut Draft) {
        let mut ranks = self.running.ranks();
        let mut served = 0;
        while served < ranks.len() && draft.budget > 0 {
            let rank = ranks[served];
            served += 1;
            // One token is kept for each sequence behind: a long chunk must not stop their answers.
            let behind = ranks.len() - served;
            let n = self.chunk(rank, draft.budget.saturating_sub(behind).max(1));
            if n == 0 {
                continue;
            }
            if self.make_room(rank, n, &mut ranks, draft) {
                self.add_row(rank, n, draft);
            }
        }
    }

    /// Sees to it that a sequence has blocks for `n` more tokens, if need be by preempting the worst of those that run,
    /// `ranks`, one after the other. If that is the sequence itself: false, and it waits for better ones to finish; with
    /// what it has if nobody is served in this step, since then better ones are about to.
    fn make_room(&mut self, rank: Rank, n: usize, ranks: &mut Vec<Rank>, draft: &mut Draft) -> bool {
        while !self.grow(rank, n) {
            if ranks.last() == Some(&rank) && draft.plan.rows.is_empty() {
                return false;
            }
            let Some(worst) = ranks.pop() else { return false };
            draft.plan.preempted.extend(self.preempt(worst));
            if worst == rank {
                return false;
            }
        }
        true
    }

    /// Starts sequences that wait, as long as there is budget and room.
    fn plan_waiting(&mut self, draft: &mut Draft) {
        let mut considered = None;
        while draft.budget > 0 && self.running.len() < self.config.max_num_seqs {
            considered = self.waiting.after(considered);
            let Some(rank) = considered else { return };
            match self.consider(rank) {
                Verdict::Deferred => {}
                Verdict::NoRoom => return,
                Verdict::Start(run) => {
                    let Some(sequence) = self.waiting.remove(rank) else { return };
                    draft.plan.admitted.push(Admitted {
                        id: sequence.id,
                        num_cached_tokens: run.num_computed_tokens,
                        resumed: sequence.num_preemptions > 0,
                    });
                    self.start_running(sequence, run);
                    let n = self.chunk(rank, draft.budget);
                    self.add_row(rank, n, draft);
                }
            }
        }
    }

    /// Whether a waiting sequence can start: with blocks for all its tokens and the next few, those that are cached and
    /// others.
    fn consider(&mut self, rank: Rank) -> Verdict {
        if self.waiting.get(rank).is_none_or(|sequence| self.is_deferred(sequence)) {
            return Verdict::Deferred;
        }
        let Some(sequence) = self.waiting.get_mut(rank) else { return Verdict::Deferred };
        let findable = sequence.findable(&self.config);
        let found: Vec<BlockRef> = findable.iter().map_while(|hash| self.pool.lookup(hash)).collect();
        let pending = findable[found.len()..].iter().take_while(|hash| self.pending.contains(hash));
        sequence.deferred = pending.last().copied();
        if sequence.deferred.is_some() {
            return Verdict::Deferred;
        }
        let missing = self.config.blocks_for(sequence.num_tokens_ahead(&self.config)) - found.len();
        let found_free = found.iter().filter(|&&block| self.pool.ref_count(block) == 0).count();
        let watermark = if self.running.len() == 0 { 0 } else { self.config.watermark_blocks };
        if missing + found_free + watermark > self.pool.num_free() {
            return Verdict::NoRoom;
        }
        found.iter().for_each(|&block| {
            self.pool.share(block);
        });
        let Some(new) = self.pool.allocate(missing) else { return Verdict::NoRoom };
        let num_cached_tokens = found.len() * self.config.block_size;
        Verdict::Start(Run {
            num_computed_tokens: num_cached_tokens,
            num_completed_tokens: num_cached_tokens,
            num_committed_blocks: found.len(),
            blocks: [found, new].concat(),
            ..Run::default()
        })
    }

    /// Tokens that a running sequence computes in this step, of so many left.
    fn chunk(&self, rank: Rank, budget: usize) -> usize {
        let threshold = match self.config.long_prefill_token_threshold {
            0 => usize::MAX,
            threshold => threshold,
        };
        self.running.get(rank).map_or(0, Sequence::num_new_tokens).min(budget).min(threshold)
    }

    /// Gives a running sequence blocks for `n` more tokens; false, with nothing taken, if too few are free.
    fn grow(&mut self, rank: Rank, n: usize) -> bool {
        let Some(sequence) = self.running.get_mut(rank) else { return true };
        let needed = self.config.blocks_for(sequence.run.num_computed_tokens + n);
        let missing = needed.saturating_sub(sequence.run.blocks.len());
        let new = self.pool.allocate(missing);
        let grown = new.is_some();
        sequence.run.blocks.extend(new.into_iter().flatten());
        grown
    }

    fn add_row(&mut self, rank: Rank, n: usize, draft: &mut Draft) {
        if let Some(sequence) = self.running.get_mut(rank) {
            draft.plan.rows.push(sequence.advance(n, draft.plan.step, draft.plan.rows.len(), &self.config));
            draft.budget -= n;
        }
    }
}
