//! The scheduler's books, checked.

use super::scheduler::Scheduler;
use super::sequence::{Run, Sequence};
use crate::kv::IntegrityError;

impl Scheduler {
    /// Checks that every block is accounted for and that all that is known of a sequence agrees. Cheap enough for whenever
    /// the engine is idle, and for every event of a test.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let mut e = IntegrityError::default();
        e.include(self.pool.check_integrity(self.running.iter().map(|s| &s.run.blocks[..])));
        self.check_queues(&mut e);
        self.running.iter().for_each(|sequence| self.check_run(sequence, &mut e));
        for (hash, id) in self.pending.iter() {
            let holder = self.ranks.get(id).and_then(|&rank| self.running.get(rank));
            let computes = holder.is_some_and(|s| s.hashes[s.run.num_committed_blocks..].contains(hash));
            e.check(computes, || format!("{id} is said to compute {hash:?}"));
        }
        e.finish()
    }

    fn check_queues(&self, e: &mut IntegrityError) {
        let (waiting, running) = (self.waiting.len(), self.running.len());
        e.check(waiting + running == self.ranks.len(), || {
            format!("{waiting} wait and {running} run, {} are known", self.ranks.len())
        });
        for sequence in self.waiting.iter().chain(self.running.iter()) {
            e.check(self.ranks.get(&sequence.id) == Some(&sequence.rank), || format!("{} is misplaced", sequence.id));
        }
        for sequence in self.waiting.iter() {
            e.check(sequence.run == Run::default(), || format!("{} waits and holds {:?}", sequence.id, sequence.run));
        }
        e.check(running <= self.config.max_num_seqs, || format!("{running} run"));
        let in_flight = self.in_flight.len();
        e.check(in_flight <= self.config.max_concurrent_batches, || format!("{in_flight} steps are in flight"));
    }

    fn check_run(&self, sequence: &Sequence, e: &mut IntegrityError) {
        let (id, run) = (sequence.id, &sequence.run);
        let in_order = run.num_committed_blocks * self.config.block_size <= run.num_completed_tokens
            && run.num_completed_tokens <= run.num_computed_tokens
            && run.num_computed_tokens <= sequence.num_tokens()
            && sequence.num_tokens() <= sequence.max_len;
        e.check(in_order, || format!("{id} is ahead of itself: {sequence:?}"));

        let (least, most) = (run.num_computed_tokens, sequence.num_tokens_ahead(&self.config));
        let enough = self.config.blocks_for(least)..=self.config.blocks_for(most);
        let held = run.blocks.len();
        e.check(enough.contains(&held), || format!("{id} holds {held} blocks for {least} to {most} tokens"));

        let rows =
            self.in_flight.iter().flat_map(|f| &f.rows).filter(|row| (row.id, row.generation) == (id, run.generation));
        let (sampled, planned) = rows.fold((0, 0), |(n, end), row| (n + usize::from(row.samples), row.end.max(end)));
        e.check(sampled == run.num_placeholders, || {
            format!("{id} waits for {} tokens; {sampled} are in flight", run.num_placeholders)
        });
        e.check(run.num_computed_tokens == planned.max(run.num_completed_tokens), || {
            format!("{id} has {} tokens computed; planned are {planned}", run.num_computed_tokens)
        });
        for &block in &run.blocks[run.num_committed_blocks.min(held)..] {
            let holders = self.pool.ref_count(block);
            e.check(holders == 1, || format!("{id} writes to {block:?}, which has {holders} holders"));
        }
    }
}
