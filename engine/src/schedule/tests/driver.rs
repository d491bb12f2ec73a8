//! Runs a scheduler on the mock device and checks every law after every event.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::device::{Device, reference};
use crate::schedule::{
    AdmissionError, FinishReason, Finished, NewRequest, Recorder, Scheduler, SchedulerConfig, SequenceId, StepPlan,
};

pub struct Driver {
    pub recorder: Recorder,
    pub device: Device,
    /// In flight, oldest first.
    planned: VecDeque<StepPlan>,
    requests: BTreeMap<u64, NewRequest>,
    /// Order of arrival.
    arrivals: BTreeMap<SequenceId, (i32, usize)>,
    pub streams: BTreeMap<SequenceId, Vec<u32>>,
    pub finished: BTreeMap<SequenceId, Finished>,
    /// In the order in which they ended.
    pub ended: Vec<SequenceId>,
    pub steps: u64,
}

impl Driver {
    pub fn new(config: SchedulerConfig) -> Driver {
        Driver {
            recorder: Recorder::new(Scheduler::new(config).unwrap(), usize::MAX / 2),
            device: Device::default(),
            planned: VecDeque::new(),
            requests: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            streams: BTreeMap::new(),
            finished: BTreeMap::new(),
            ended: vec![],
            steps: 0,
        }
    }

    pub fn scheduler(&self) -> &Scheduler {
        self.recorder.scheduler()
    }

    pub fn add(&mut self, request: NewRequest) -> Result<(), AdmissionError> {
        self.recorder.add(request.clone())?;
        self.device.learn(&request);
        for id in request.sequences() {
            let arrival = self.arrivals.len();
            self.arrivals.insert(id, (request.priority, arrival));
            self.streams.insert(id, vec![]);
        }
        self.requests.insert(request.request, request);
        self.check();
        Ok(())
    }

    pub fn abort(&mut self, request: u64) {
        let ended = self.recorder.abort(request);
        assert!(ended.iter().all(|f| f.reason == FinishReason::Abort && f.id.request == request));
        self.end(ended);
        assert!(self.streams.keys().filter(|id| id.request == request).all(|id| self.finished.contains_key(id)));
    }

    /// As when the text of the answer contains a stop string.
    pub fn stop(&mut self, id: SequenceId) {
        let ended = self.recorder.finish(id, FinishReason::Stop);
        self.end(ended);
    }

    pub fn reset(&mut self) {
        self.recorder.reset_prefix_cache();
        assert_eq!(self.scheduler().stats().kv.cached, 0);
        self.check();
    }

    /// Plans a step, if there is anything to do.
    pub fn plan(&mut self) -> bool {
        let Some(plan) = self.recorder.plan() else {
            self.check();
            return false;
        };
        self.check_plan(&plan);
        self.check();
        self.planned.push_back(plan);
        self.steps += 1;
        true
    }

    /// Runs the oldest planned step and hands in its tokens.
    pub fn complete(&mut self) -> bool {
        let Some(plan) = self.planned.pop_front() else { return false };
        let tokens = self.device.run(&plan, self.scheduler().config().block_size);
        let output = self.recorder.complete(plan.step, &tokens).unwrap();
        for new in output.tokens {
            let stream = self.streams.get_mut(&new.id).unwrap();
            assert_eq!(stream.len(), new.index, "{} repeats or skips a token", new.id);
            assert!(!self.finished.contains_key(&new.id), "{} goes on after its end", new.id);
            stream.push(new.token);
        }
        self.end(output.finished);
        true
    }

    pub fn fail(&mut self) -> bool {
        let Some(plan) = self.planned.pop_front() else { return false };
        self.device.fail(&plan);
        let ended = self.recorder.fail(plan.step).unwrap();
        assert!(ended.iter().all(|f| f.reason == FinishReason::Error));
        self.end(ended);
        true
    }

    /// Goes on until nothing is left to do, as the engine does: plans as far ahead as it may, then waits for a step.
    ///
    /// The bound: of those that are left the best one that runs makes progress in every step and is never preempted, so
    /// every `max_len` steps somebody who cannot lose it to a worse one ends.
    pub fn drain(&mut self) {
        let left = self.arrivals.len() - self.finished.len();
        let longest = self.scheduler().config().max_len() as u64;
        let bound = self.steps + (1 + left as u64 * left as u64) * (longest + 8);
        while self.scheduler().has_unfinished_requests() {
            let planned = self.plan();
            assert!(planned || !self.planned.is_empty(), "nothing is in flight and nothing is planned");
            while self.plan() {}
            self.complete();
            assert!(self.steps < bound, "starvation");
        }
        while self.complete() {}
        let stats = self.scheduler().stats();
        assert_eq!((stats.num_running, stats.num_waiting, stats.num_in_flight, stats.kv.used), (0, 0, 0, 0));
        assert_eq!(stats.kv.total(), self.scheduler().config().num_blocks as usize);
    }

    /// Every answer is what it would have been alone; that of an ended request, the beginning of it.
    pub fn assert_answers(&self) {
        let max_len = self.scheduler().config().max_len();
        for (id, stream) in &self.streams {
            let (answer, reason) = reference(&self.requests[&id.request], id.sample, max_len);
            let finished = self.finished[id];
            let whole = !matches!(finished.reason, FinishReason::Abort | FinishReason::Error);
            if whole && (stream.len() == answer.len() || finished.reason != FinishReason::Stop) {
                assert_eq!((stream, finished.reason), (&answer, reason), "{id}");
            } else {
                assert!(answer.starts_with(stream), "{id}: {stream:?} is no beginning of {answer:?}");
            }
            assert_eq!(finished.num_output_tokens, stream.len());
            assert_eq!(finished.num_prompt_tokens, self.requests[&id.request].prompt.len());
        }
    }

    /// The same events give the same plans, also through text.
    pub fn assert_replays(&self) {
        let log = self.recorder.log();
        let text = serde_json::to_string(log).unwrap();
        let parsed: crate::schedule::Log = serde_json::from_str(&text).unwrap();
        assert_eq!(&parsed, log);
        assert_eq!(&parsed.replay().unwrap(), self.scheduler());
    }

    fn end(&mut self, ended: impl IntoIterator<Item = Finished>) {
        for finished in ended {
            assert_eq!(self.finished.insert(finished.id, finished), None, "{} ended twice", finished.id);
            self.ended.push(finished.id);
        }
        self.check();
    }

    fn check(&self) {
        if let Err(e) = self.scheduler().check_integrity() {
            panic!("after {:?}:\n{e}", self.recorder.log().entries.last());
        }
    }

    fn check_plan(&self, plan: &StepPlan) {
        let scheduler = self.scheduler();
        let config = scheduler.config();
        let size = config.block_size;
        assert!((1..=config.max_num_batched_tokens).contains(&plan.num_scheduled_tokens()), "budget");
        assert!(plan.rows.len() <= config.max_num_seqs);
        let mut slots = HashSet::new();
        for row in &plan.rows {
            assert!(scheduler.is_live(row));
            assert!(row.num_tokens() > 0);
            if config.long_prefill_token_threshold > 0 {
                assert!(row.num_tokens() <= config.long_prefill_token_threshold);
            }
            assert_eq!(row.block_table.len(), row.end().div_ceil(size));
            for (i, &slot) in row.slot_mapping.iter().enumerate() {
                let position = row.start + i;
                assert_eq!(slot as usize, row.block_table[position / size] as usize * size + position % size);
                assert!(slots.insert(slot), "two tokens in slot {slot}");
            }
            let written: BTreeSet<u32> = row.slot_mapping.iter().map(|slot| slot / size as u32).collect();
            assert_eq!(written, row.writes.iter().map(|block| block.id).collect());
            for &block in &row.writes {
                assert_eq!(scheduler.pool().ref_count(block), 1, "{} writes what others read", row.id);
            }
            // Nobody reads in this step what another writes.
            for other in plan.rows.iter().filter(|other| other.id != row.id) {
                assert!(other.block_table.iter().all(|block| !written.contains(block)));
            }
        }
        let ids: BTreeSet<SequenceId> = plan.rows.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), plan.rows.len(), "a sequence has two rows");
        self.check_ranks(plan);
        self.check_everyone_is_served(plan);
    }

    /// Victims are worse than everyone who is served; nobody starts before a better one, unless that one is deferred.
    fn check_ranks(&self, plan: &StepPlan) {
        let rank = |id: &SequenceId| self.arrivals[id];
        if let Some(best_victim) = plan.preempted.iter().map(rank).min() {
            assert!(plan.admitted.is_empty(), "somebody starts where another is preempted");
            assert!(plan.rows.iter().all(|row| rank(&row.id) < best_victim), "a better one was preempted");
        }
        if let Some(worst_start) = plan.admitted.iter().map(|a| rank(&a.id)).max() {
            for waiting in self.scheduler().waiting.iter().filter(|s| rank(&s.id) < worst_start) {
                let deferred = waiting.deferred.is_some() || self.scheduler().is_deferred(waiting);
                assert!(deferred, "{} was passed by", waiting.id);
            }
        }
    }

    /// Everyone who runs and has a token to compute gets one, if the budget has one for each and blocks are not lacking.
    fn check_everyone_is_served(&self, plan: &StepPlan) {
        let config = self.scheduler().config();
        if config.max_num_batched_tokens >= config.max_num_seqs && self.scheduler().pool().num_free() > 0 {
            let served: BTreeSet<SequenceId> = plan.rows.iter().map(|row| row.id).collect();
            for sequence in self.scheduler().running.iter().filter(|s| !served.contains(&s.id)) {
                assert_eq!(sequence.num_new_tokens(), 0, "{} was passed by", sequence.id);
            }
        }
    }
}
