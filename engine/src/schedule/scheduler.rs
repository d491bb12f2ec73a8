//! The scheduler's state, and everything that changes it except the making of a plan.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::config::{ConfigError, SchedulerConfig};
use super::output::{FinishReason, Finished, NewToken, SchedulerStats, StepError, StepOutput};
use super::pending::Pending;
use super::plan::{Row, StepPlan};
use super::queue::{Queue, Rank};
use super::request::{AdmissionError, NewRequest, SequenceId};
use super::sequence::{Run, Sequence};
use crate::kv::{BlockPool, PrefixCacheStats};

/// Decides what each step computes. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    pub(super) config: SchedulerConfig,
    pub(super) pool: BlockPool,
    pub(super) waiting: Queue,
    pub(super) running: Queue,
    /// Where every sequence is, in one of the two queues.
    pub(super) ranks: BTreeMap<SequenceId, Rank>,
    pub(super) pending: Pending,
    /// Oldest first.
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) next_step: u64,
    next_arrival: u64,
    next_generation: u64,
    num_preemptions: u64,
    num_discarded_rows: u64,
    prefix_cache: PrefixCacheStats,
}

/// What is to be remembered of a planned step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InFlight {
    pub(super) step: u64,
    pub(super) rows: Vec<PlannedRow>,
}

/// What is to be remembered of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlannedRow {
    pub(super) id: SequenceId,
    pub(super) generation: u64,
    pub(super) end: usize,
    pub(super) samples: bool,
}

impl InFlight {
    pub(super) fn of(plan: &StepPlan) -> InFlight {
        let row = |r: &Row| PlannedRow { id: r.id, generation: r.generation, end: r.end(), samples: r.samples };
        InFlight { step: plan.step, rows: plan.rows.iter().map(row).collect() }
    }
}

impl Scheduler {
    /// A scheduler without requests.
    pub fn new(config: SchedulerConfig) -> Result<Scheduler, ConfigError> {
        config.validate()?;
        Ok(Scheduler {
            pool: BlockPool::new(config.num_blocks),
            config,
            waiting: Queue::default(),
            running: Queue::default(),
            ranks: BTreeMap::new(),
            pending: Pending::default(),
            in_flight: VecDeque::new(),
            next_step: 0,
            next_arrival: 0,
            next_generation: 0,
            num_preemptions: 0,
            num_discarded_rows: 0,
            prefix_cache: PrefixCacheStats::default(),
        })
    }

    /// Its limits.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Its blocks.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Whether any request is left.
    pub fn has_unfinished_requests(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Whether a step is planned and not complete.
    pub fn has_steps_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether another step may be in flight: [`Scheduler::plan`] has nothing to give before.
    pub fn may_plan(&self) -> bool {
        self.in_flight.len() < self.config.max_concurrent_batches
    }

    /// Whether a planned row's sequence still wants what the row computes.
    pub fn is_live(&self, row: &Row) -> bool {
        self.live(row.id, row.generation).is_some()
    }

    /// Whether anybody still wants what a step in flight computes.
    pub fn is_wanted(&self, step: u64) -> bool {
        let mut rows = self.in_flight.iter().filter(|planned| planned.step == step).flat_map(|planned| &planned.rows);
        rows.any(|row| self.live(row.id, row.generation).is_some())
    }

    /// For each row of a step in flight that samples, in order: its sequence, if that still wants what the row computes.
    pub fn wanted(&self, step: u64) -> Vec<Option<SequenceId>> {
        let of = self.in_flight.iter().find(|planned| planned.step == step);
        let rows = of.into_iter().flat_map(|planned| &planned.rows).filter(|row| row.samples);
        rows.map(|row| self.live(row.id, row.generation).map(|_| row.id)).collect()
    }

    /// What the metrics say.
    pub fn stats(&self) -> SchedulerStats {
        let deferred = |s: &&Sequence| self.is_deferred(s);
        SchedulerStats {
            num_running: self.running.len(),
            num_waiting: self.waiting.len(),
            num_deferred: self.waiting.iter().filter(deferred).count(),
            num_in_flight: self.in_flight.len(),
            num_preemptions: self.num_preemptions,
            num_discarded_rows: self.num_discarded_rows,
            kv: self.pool.usage(),
            prefix_cache: self.prefix_cache,
        }
    }

    /// Whether a waiting sequence waits for what another is about to compute.
    pub(super) fn is_deferred(&self, sequence: &Sequence) -> bool {
        let reads = |first: Rank| {
            let running = self.running.get(first).is_some_and(Sequence::is_prefilling);
            running || self.waiting.get(first).is_some()
        };
        sequence.follows.is_some_and(reads) || sequence.deferred.is_some_and(|hash| self.pending.contains(&hash))
    }

    /// Takes a request into the queue.
    ///
    /// # Errors
    /// If it can never be served. Nothing was changed.
    pub fn add(&mut self, request: NewRequest) -> Result<(), AdmissionError> {
        request.admissible(&self.config)?;
        if self.samples_of(request.request).next().is_some() {
            return Err(AdmissionError::DuplicateRequest(request.request));
        }
        let mut places = vec![];
        for id in request.sequences() {
            let rank = Rank { priority: request.priority, arrival: self.next_arrival };
            self.next_arrival += 1;
            self.ranks.insert(id, rank);
            places.push((id, rank));
        }
        let mut places = places.into_iter();
        let Some((id, rank)) = places.next() else { return Ok(()) };
        let first = Sequence::new(id, rank, &request, &self.config);
        places.for_each(|(id, rank)| self.waiting.insert(first.sibling(id, rank)));
        self.waiting.insert(first);
        Ok(())
    }

    /// Ends all samples of a request that are left, at any time; their blocks are free at once. A step in flight may go
    /// on computing for them: what it gives is dropped.
    pub fn abort(&mut self, request: u64) -> Vec<Finished> {
        let samples: Vec<SequenceId> = self.samples_of(request).collect();
        samples.into_iter().filter_map(|id| self.finish(id, FinishReason::Abort)).collect()
    }

    /// Ends one sequence, at any time, as when its text contains a stop string. `None` if it ended before.
    pub fn finish(&mut self, id: SequenceId, reason: FinishReason) -> Option<Finished> {
        let rank = self.ranks.remove(&id)?;
        let sequence = self.waiting.remove(rank).or_else(|| self.stop_running(rank))?;
        Some(sequence.finished(reason))
    }

    /// Takes in what the oldest step in flight sampled: a token for each of its rows that sample, in order.
    ///
    /// # Errors
    /// If these are not that step's tokens. Nothing was changed.
    pub fn complete(&mut self, step: u64, tokens: &[u32]) -> Result<StepOutput, StepError> {
        let expected = self.oldest(step)?.rows.iter().filter(|row| row.samples).count();
        if tokens.len() != expected {
            return Err(StepError::TokenCount { step, expected, found: tokens.len() });
        }
        let rows = self.in_flight.pop_front().map(|f| f.rows).unwrap_or_default();
        let mut tokens = tokens.iter().copied();
        let mut output = StepOutput::default();
        for row in rows {
            let token = if row.samples { tokens.next() } else { None };
            match self.live(row.id, row.generation) {
                Some(rank) => self.complete_row(rank, row, token, &mut output),
                None => self.num_discarded_rows += 1,
            }
        }
        Ok(output)
    }

    /// Ends every sequence that the oldest step in flight computed for: it failed, and what it wrote is unknown. Others
    /// are not touched, since nobody reads a block of a step that is not complete except its own sequence.
    ///
    /// # Errors
    /// If that is another step. Nothing was changed.
    pub fn fail(&mut self, step: u64) -> Result<Vec<Finished>, StepError> {
        self.oldest(step)?;
        let rows = self.in_flight.pop_front().map(|f| f.rows).unwrap_or_default();
        let live: Vec<SequenceId> =
            rows.iter().filter(|row| self.live(row.id, row.generation).is_some()).map(|row| row.id).collect();
        self.num_discarded_rows += (rows.len() - live.len()) as u64;
        Ok(live.into_iter().filter_map(|id| self.finish(id, FinishReason::Error)).collect())
    }

    /// Forgets what is cached, as when the weights change. Sequences that run go on, and share nothing from now on.
    pub fn reset_prefix_cache(&mut self) {
        self.pool.reset_prefix_cache();
        self.pending.clear();
        self.running.iter_mut().for_each(|sequence| sequence.run.outdated = true);
    }

    fn complete_row(&mut self, rank: Rank, row: PlannedRow, token: Option<u32>, output: &mut StepOutput) {
        let Some(sequence) = self.running.get_mut(rank) else { return };
        sequence.run.num_completed_tokens = row.end;
        let mut finished = None;
        if let Some(token) = token {
            let (id, index) = (row.id, sequence.num_output_tokens());
            finished = sequence.accept(token, &self.config);
            output.tokens.push(NewToken { id, index, token });
        }
        self.commit(rank);
        output.finished.extend(finished.and_then(|reason| self.finish(row.id, reason)));
    }

    /// Makes the full blocks that complete steps computed known to all.
    fn commit(&mut self, rank: Rank) {
        let Some(sequence) = self.running.get_mut(rank) else { return };
        let run = &mut sequence.run;
        if !self.config.enable_prefix_caching || run.outdated {
            return;
        }
        let full = run.num_completed_tokens / self.config.block_size;
        for i in run.num_committed_blocks..full {
            self.pool.commit(run.blocks[i], sequence.hashes[i]);
            self.pending.release(sequence.id, &sequence.hashes[i..=i]);
        }
        run.num_committed_blocks = run.num_committed_blocks.max(full);
    }

    /// Makes a waiting sequence a running one: a new run.
    pub(super) fn start_running(&mut self, mut sequence: Sequence, mut run: Run) {
        run.generation = self.next_generation;
        self.next_generation += 1;
        if self.config.enable_prefix_caching {
            self.pending.claim(sequence.id, &sequence.hashes[run.num_committed_blocks..]);
        }
        if sequence.num_cached_tokens.is_none() {
            sequence.num_cached_tokens = Some(run.num_computed_tokens);
            if self.config.enable_prefix_caching && !sequence.skip_reading_prefix_cache {
                self.prefix_cache.queries += sequence.tokens.len() as u64;
                self.prefix_cache.hits += run.num_computed_tokens as u64;
            }
        }
        sequence.deferred = None;
        sequence.run = run;
        self.running.insert(sequence);
    }

    /// Takes a sequence out of those that run, and its blocks from it: last to first, so that its beginning stays in the
    /// cache longest.
    fn stop_running(&mut self, rank: Rank) -> Option<Sequence> {
        let mut sequence = self.running.remove(rank)?;
        let run = std::mem::take(&mut sequence.run);
        run.blocks.iter().rev().for_each(|&block| {
            self.pool.release(block);
        });
        let committed = run.num_committed_blocks.min(sequence.hashes.len());
        self.pending.release(sequence.id, &sequence.hashes[committed..]);
        Some(sequence)
    }

    /// Sends a running sequence back to wait, at its old place; what it computed is computed again, unless it is still in
    /// the cache by then. Tokens that steps in flight sample for it are dropped, and sampled again.
    pub(super) fn preempt(&mut self, rank: Rank) -> Option<SequenceId> {
        let mut sequence = self.stop_running(rank)?;
        sequence.num_preemptions += 1;
        self.num_preemptions += 1;
        let id = sequence.id;
        self.waiting.insert(sequence);
        Some(id)
    }

    /// The rank of a sequence, if this run of it goes on.
    pub(super) fn live(&self, id: SequenceId, generation: u64) -> Option<Rank> {
        let &rank = self.ranks.get(&id)?;
        (self.running.get(rank)?.run.generation == generation).then_some(rank)
    }

    fn oldest(&self, step: u64) -> Result<&InFlight, StepError> {
        match self.in_flight.front() {
            Some(oldest) if oldest.step == step => Ok(oldest),
            other => Err(StepError::OutOfOrder { found: step, next: other.map(|f| f.step) }),
        }
    }

    fn samples_of(&self, request: u64) -> impl Iterator<Item = SequenceId> + '_ {
        let sample = |sample| SequenceId { request, sample };
        self.ranks.range(sample(0)..=sample(u32::MAX)).map(|(&id, _)| id)
    }
}
