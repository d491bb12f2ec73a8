//! Single situations, each with its outcome worked out by hand.

use super::device::reference;
use super::driver::Driver;
use crate::kv::{Adapter, CacheKey};
use crate::schedule::*;

fn config(block_size: usize, num_blocks: u32) -> SchedulerConfig {
    SchedulerConfig {
        block_size,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        watermark_blocks: 0,
        max_concurrent_batches: 1,
        ..SchedulerConfig::new(num_blocks, 1000)
    }
}

fn key() -> CacheKey {
    CacheKey::model("m")
}

/// A prompt of `len` tokens that begins differently for each `first`.
fn prompt(first: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| if i == 0 { first } else { (i * 7 + 3) % 90 }).collect()
}

fn request(id: u64, len: usize, max_tokens: usize) -> NewRequest {
    NewRequest { max_tokens: Some(max_tokens), ..NewRequest::new(id, prompt(id as u32, len), key()) }
}

fn id(request: u64) -> SequenceId {
    SequenceId { request, sample: 0 }
}

/// (request, start, tokens, samples) of each row.
fn rows(plan: &StepPlan) -> Vec<(u64, usize, usize, bool)> {
    plan.rows.iter().map(|row| (row.id.request, row.start, row.num_tokens(), row.samples)).collect()
}

#[test]
fn requests_that_can_never_be_served_are_refused() {
    let mut s = Scheduler::new(SchedulerConfig { max_model_len: 50, ..config(4, 10) }).unwrap();
    let before = s.clone();
    let text = |r: Result<(), AdmissionError>| r.unwrap_err().to_string();
    assert_eq!(s.add(request(1, 0, 1)), Err(AdmissionError::EmptyPrompt));
    assert_eq!(s.add(request(1, 1, 0)), Err(AdmissionError::NothingToGenerate));
    assert_eq!(s.add(NewRequest { n: 0, ..request(1, 1, 1) }), Err(AdmissionError::NothingToGenerate));
    assert_eq!(
        text(s.add(request(1, 500, 1))),
        "the prompt has 500 tokens; the maximum context length is 50 tokens, one of them for the answer"
    );
    assert_eq!(s.add(request(1, 50, 1)), Err(AdmissionError::PromptTooLong { num_tokens: 50, max_model_len: 50 }));
    assert_eq!(text(s.add(request(1, 41, 1))), "the prompt has 41 tokens; the KV cache has room for 40");
    assert_eq!(s, before);
    s.add(request(1, 40, 1)).unwrap();
    assert_eq!(s.add(request(1, 3, 1)), Err(AdmissionError::DuplicateRequest(1)));
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let refused = |c: SchedulerConfig| Scheduler::new(c).unwrap_err().to_string();
    assert_eq!(
        refused(SchedulerConfig { max_num_seqs: 0, ..config(4, 4) }),
        "max_num_seqs is 0; it must be at least 1"
    );
    assert_eq!(refused(config(0, 4)), "block_size is 0; it must be at least 1");
    assert_eq!(refused(config(4, 0)), "num_blocks is 0; it must be at least 1");
    assert!(refused(config(64, u32::MAX)).contains("at most 2,147,483,647 slots"));
}

/// One request whose prompt and answer exceed the whole cache: it ends when the cache is full, and the queue goes on.
#[test]
fn an_answer_that_outgrows_the_cache_ends_with_length() {
    let mut d = Driver::new(config(16, 3));
    d.add(request(1, 40, 1000)).unwrap();
    d.add(request(2, 48, 1000)).unwrap();
    d.add(request(3, 5, 3)).unwrap();
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished[&id(1)].reason, FinishReason::Length);
    assert_eq!(d.finished[&id(1)].num_output_tokens, 9, "48 computed tokens, and one that need not be");
    assert_eq!(d.finished[&id(2)].num_output_tokens, 1);
    assert_eq!(d.finished[&id(3)].num_output_tokens, 3);
}

/// Blocks of 16, 7 of them, two prompts of 34 tokens with answers of 30: they cannot both grow to 4 blocks.
#[test]
fn preempted_answers_equal_those_of_requests_alone() {
    for max_concurrent_batches in [1, 2] {
        let mut d = Driver::new(SchedulerConfig { max_concurrent_batches, ..config(16, 7) });
        d.add(request(1, 34, 30)).unwrap();
        d.add(request(2, 34, 30)).unwrap();
        d.drain();
        d.assert_answers();
        assert_eq!(d.scheduler().stats().num_preemptions, 1);
        assert_eq!((d.finished[&id(1)].num_preemptions, d.finished[&id(2)].num_preemptions), (0, 1));
        assert_eq!(d.streams[&id(2)].len(), 30);
        assert_eq!(d.ended, [id(1), id(2)]);
    }
}

/// What a preempted request had computed is still there if nobody needed the room.
#[test]
fn a_preempted_request_resumes_from_the_cache() {
    let mut d = Driver::new(config(16, 7));
    d.add(request(1, 34, 30)).unwrap();
    d.add(request(2, 34, 30)).unwrap();
    d.drain();
    assert_eq!(d.scheduler().stats().num_preemptions, 1);
    assert_eq!(d.device.tokens_computed, 63 + 63, "48 tokens of the second were found again");
    let resumed = d.recorder.log().entries.iter().flat_map(|e| &e.plan).flat_map(|p| &p.admitted).find(|a| a.resumed);
    assert_eq!(resumed, Some(&Admitted { id: id(2), num_cached_tokens: 48, resumed: true }));
    let stats = d.scheduler().stats().prefix_cache;
    assert_eq!((stats.queries, stats.hits), (34 + 34, 0), "only first starts count");
    assert_eq!(d.finished[&id(2)].num_cached_tokens, 0);
}

/// All that is left of the better one is on its way: who lacks a block keeps what it has and waits for that.
#[test]
fn nobody_is_preempted_for_a_step_that_serves_nobody() {
    let mut d = Driver::new(SchedulerConfig { max_concurrent_batches: 2, ..config(4, 3) });
    d.add(NewRequest { priority: 1, ..request(2, 4, 8) }).unwrap();
    while d.scheduler().running.iter().all(|s| s.run.num_computed_tokens < 7) {
        d.plan();
        d.complete();
    }
    d.add(request(1, 3, 1)).unwrap();
    assert!(d.plan(), "the eighth token of one, all of the other: the cache is full");
    assert_eq!(d.scheduler().stats().kv.free(), 0);
    assert!(!d.plan());
    d.drain();
    d.assert_answers();
    assert_eq!(d.scheduler().stats().num_preemptions, 0);
}

#[test]
fn a_long_prompt_is_computed_beside_answers() {
    let mut s = Scheduler::new(SchedulerConfig { max_num_batched_tokens: 8, ..config(4, 40) }).unwrap();
    let plan = |s: &mut Scheduler| {
        let plan = s.plan().unwrap();
        let tokens = vec![90; plan.sampling_rows().count()];
        s.complete(plan.step, &tokens).unwrap();
        rows(&plan)
    };
    s.add(request(1, 3, 9)).unwrap();
    assert_eq!(plan(&mut s), [(1, 0, 3, true)]);
    s.add(request(2, 16, 9)).unwrap();
    assert_eq!(plan(&mut s), [(1, 3, 1, true), (2, 0, 7, false)]);
    s.add(NewRequest { priority: -1, ..request(3, 12, 9) }).unwrap();
    // The better one starts with the next free budget; then it comes first, and leaves a token for each behind it.
    assert_eq!(plan(&mut s), [(1, 4, 1, true), (2, 7, 7, false)]);
    assert_eq!(plan(&mut s), [(1, 5, 1, true), (2, 14, 2, true), (3, 0, 5, false)]);
    assert_eq!(plan(&mut s), [(3, 5, 6, false), (1, 6, 1, true), (2, 16, 1, true)]);
    assert_eq!(plan(&mut s), [(3, 11, 1, true), (1, 7, 1, true), (2, 17, 1, true)]);
}

#[test]
fn the_threshold_cuts_long_prompts() {
    let mut s = Scheduler::new(SchedulerConfig { long_prefill_token_threshold: 6, ..config(4, 40) }).unwrap();
    s.add(request(1, 10, 2)).unwrap();
    s.add(request(2, 7, 2)).unwrap();
    assert_eq!(rows(&s.plan().unwrap()), [(1, 0, 6, false), (2, 0, 6, false)]);
    s.complete(0, &[]).unwrap();
    assert_eq!(rows(&s.plan().unwrap()), [(1, 6, 4, true), (2, 6, 1, true)]);
}

#[test]
fn whole_prompts_are_admitted_and_the_watermark_stays_free() {
    let mut s = Scheduler::new(SchedulerConfig { watermark_blocks: 2, ..config(4, 10) }).unwrap();
    s.add(request(1, 36, 3)).unwrap(); // alone: all 10, with that of its second token, the watermark notwithstanding
    s.add(request(2, 4, 3)).unwrap();
    assert_eq!(rows(&s.plan().unwrap()), [(1, 0, 36, true)]);
    s.abort(1);
    s.add(request(3, 24, 3)).unwrap();
    s.complete(0, &[1]).unwrap();
    // 2 and 7 blocks would fit into 10, but not with 2 to spare.
    assert_eq!(rows(&s.plan().unwrap()), [(2, 0, 4, true)]);
    // Nor may a smaller one, that would fit, pass by the one that waits for room.
    s.add(request(4, 4, 3)).unwrap();
    s.complete(1, &[1]).unwrap();
    assert_eq!(rows(&s.plan().unwrap()), [(2, 4, 1, true)]);
    assert_eq!(s.stats().num_waiting, 2);
    assert_eq!(s.stats().num_deferred, 0);
}

#[test]
fn samples_of_a_request_share_the_full_blocks_of_its_prompt() {
    let mut d = Driver::new(config(4, 30));
    d.add(NewRequest { n: 3, ..request(1, 10, 5) }).unwrap();
    assert!(d.plan() && d.scheduler().stats().num_deferred == 2, "the others wait for the first");
    d.complete();
    d.plan();
    let tables: Vec<Vec<u32>> =
        d.scheduler().running.iter().map(|s| s.run.blocks.iter().map(|block| block.id).collect()).collect();
    assert_eq!(tables.len(), 3);
    assert!(tables.iter().all(|table| table[..2] == tables[0][..2]), "{tables:?}");
    assert_eq!(d.scheduler().pool().usage().used, 2 + 3, "two blocks of all, one of each");
    d.drain();
    d.assert_answers();
    let answers: std::collections::BTreeSet<_> = d.streams.values().collect();
    assert_eq!(answers.len(), 3, "samples differ");
    assert_eq!(d.finished.values().map(|f| f.num_cached_tokens).collect::<Vec<_>>(), [0, 8, 8]);
    let stats = d.scheduler().stats().prefix_cache;
    assert_eq!((stats.queries, stats.hits), (30, 16));
}

/// A burst with one system prompt computes it once; what follows, each for itself.
#[test]
fn a_burst_computes_its_common_beginning_once() {
    let mut d = Driver::new(config(4, 60));
    for i in 0..6 {
        let prompt = [prompt(1, 20), vec![40 + i, 2, 3]].concat();
        d.add(NewRequest { max_tokens: Some(1), ..NewRequest::new(i.into(), prompt, key()) }).unwrap();
    }
    d.drain();
    d.assert_answers();
    assert_eq!(d.device.tokens_computed, 23 + 5 * 3);
    assert_eq!(d.steps, 2);
}

#[test]
fn who_waits_for_another_goes_on_when_that_one_is_gone() {
    let mut d = Driver::new(SchedulerConfig { max_num_batched_tokens: 4, ..config(4, 60) });
    let same = |id| NewRequest { max_tokens: Some(3), ..NewRequest::new(id, prompt(1, 20), key()) };
    d.add(same(1)).unwrap();
    d.add(same(2)).unwrap();
    d.plan();
    d.complete();
    assert_eq!(d.scheduler().stats().num_waiting, 1);
    d.abort(1);
    d.plan();
    assert_eq!(d.scheduler().stats().num_running, 1);
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished[&id(2)].num_cached_tokens, 4, "what the first had computed");
}

#[test]
fn the_last_token_of_a_prompt_is_always_computed() {
    let mut d = Driver::new(config(4, 30));
    for (i, len, cached) in [(1, 8, 0), (2, 8, 4), (3, 9, 8), (4, 7, 4), (5, 4, 0), (6, 5, 4)] {
        d.add(NewRequest { max_tokens: Some(1), ..NewRequest::new(i, prompt(1, len), key()) }).unwrap();
        d.drain();
        assert_eq!(d.finished[&id(i)].num_cached_tokens, cached, "prompt {i} of {len}");
    }
    d.assert_answers();
}

#[test]
fn the_beginning_of_what_ended_is_kept_longest() {
    let mut d = Driver::new(config(4, 6));
    let same = |id| NewRequest { max_tokens: Some(1), ..NewRequest::new(id, prompt(1, 21), key()) };
    d.add(same(1)).unwrap();
    d.drain();
    d.add(request(2, 9, 1)).unwrap(); // three blocks: the one without a name, and two of the five with
    d.drain();
    d.add(same(3)).unwrap();
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished[&id(3)].num_cached_tokens, 12);
}

/// The next turn of a conversation finds the answer of the one before too.
#[test]
fn answers_are_cached_as_prompts_are() {
    let mut d = Driver::new(config(4, 30));
    let first = request(1, 6, 7);
    d.add(first.clone()).unwrap();
    d.drain();
    let (answer, _) = reference(&first, 0, 1000);
    let prompt = [&first.prompt[..], &answer, &[5]].concat();
    d.add(NewRequest { max_tokens: Some(2), ..NewRequest::new(2, prompt, key()) }).unwrap();
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished[&id(2)].num_cached_tokens, 12, "13 tokens, of which the last was never computed");
}

/// Base, two adapters, one reloaded under its name, two salts, and a salt that is an adapter's name: nobody shares.
#[test]
fn salts_and_adapters_never_share() {
    let adapter =
        |name: &str, generation| CacheKey { adapter: Some(Adapter { name: name.into(), generation }), ..key() };
    let salt = |salt: &str| CacheKey { cache_salt: Some(salt.into()), ..key() };
    let both = CacheKey { cache_salt: Some("s1".into()), ..adapter("a", 1) };
    let keys =
        [key(), adapter("a", 1), adapter("b", 1), adapter("a", 2), salt("s1"), salt("s2"), salt("a"), salt(""), both];
    let mut d = Driver::new(config(4, 200));
    for twice in 0..2 {
        for (i, key) in keys.iter().enumerate() {
            let request = NewRequest::new((twice * 100 + i) as u64, prompt(1, 13), key.clone());
            d.add(NewRequest { max_tokens: Some(6), ..request }).unwrap();
        }
        d.plan();
        let held: usize = d.scheduler().running.iter().map(|s| s.run.blocks.len()).sum();
        assert_eq!(d.scheduler().stats().kv.used, held, "no block is held twice");
        d.drain();
    }
    d.assert_answers();
    for (id, finished) in &d.finished {
        assert_eq!(finished.num_cached_tokens, if id.request < 100 { 0 } else { 12 }, "{id}");
    }
}

#[test]
fn requests_may_refuse_what_is_cached() {
    let mut d = Driver::new(config(4, 30));
    d.add(request(1, 12, 2)).unwrap();
    d.drain();
    let again = NewRequest { skip_reading_prefix_cache: true, ..NewRequest::new(2, prompt(1, 12), key()) };
    d.add(NewRequest { max_tokens: Some(2), ..again }).unwrap();
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished[&id(2)].num_cached_tokens, 0);
    assert_eq!(d.scheduler().stats().prefix_cache.queries, 12, "it did not ask");
    assert_eq!(d.scheduler().stats().kv.cached, 3, "its blocks are the ones that were known");
}

/// One sample computes the prompt, though it is cached, and in pieces; the others wait for it and compute the last block.
#[test]
fn of_samples_that_refuse_what_is_cached_one_computes_the_prompt() {
    let mut d = Driver::new(SchedulerConfig { max_num_batched_tokens: 5, ..config(4, 60) });
    d.add(request(1, 12, 2)).unwrap();
    d.drain();
    let again = NewRequest { skip_reading_prefix_cache: true, n: 3, ..NewRequest::new(2, prompt(1, 12), key()) };
    d.add(NewRequest { max_tokens: Some(3), ..again }).unwrap();
    for _ in 0..3 {
        d.plan();
        let stats = d.scheduler().stats();
        assert_eq!((stats.num_running, stats.num_deferred), (1, 2), "the others wait for the first");
        d.complete();
    }
    d.drain();
    d.assert_answers();
    let cached = |sample| d.finished[&SequenceId { request: 2, sample }].num_cached_tokens;
    assert_eq!([cached(0), cached(1), cached(2)], [0, 8, 8]);
}

#[test]
fn after_a_reset_nothing_from_before_is_found() {
    let mut d = Driver::new(SchedulerConfig { max_num_batched_tokens: 6, ..config(4, 40) });
    let same = |id| NewRequest { max_tokens: Some(6), ..NewRequest::new(id, prompt(1, 20), key()) };
    d.add(same(1)).unwrap();
    d.plan();
    d.reset(); // the first block is on its way
    d.complete();
    d.add(same(2)).unwrap();
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished[&id(2)].num_cached_tokens, 0);
    d.add(same(3)).unwrap();
    d.drain();
    assert_eq!(d.finished[&id(3)].num_cached_tokens, 16, "what the second computed after the reset");
}

#[test]
fn without_a_prefix_cache_nothing_is_kept() {
    let mut d = Driver::new(SchedulerConfig { enable_prefix_caching: false, ..config(4, 40) });
    for i in 0..3 {
        d.add(NewRequest { max_tokens: Some(3), n: 2, ..NewRequest::new(i, prompt(1, 20), key()) }).unwrap();
        d.drain();
    }
    d.assert_answers();
    let stats = d.scheduler().stats();
    assert_eq!((stats.kv.cached, stats.prefix_cache.queries, stats.prefix_cache.hits), (0, 0, 0));
    assert_eq!(d.device.tokens_computed, 6 * 22);
}

/// The step after a stop token was planned before the token was known: its row is dropped, its blocks are free at once.
#[test]
fn a_row_planned_beyond_a_stop_is_dropped() {
    let plain = request(1, 9, 50);
    let (answer, _) = reference(&plain, 0, 1000);
    let stop = answer[3];
    let at = answer.iter().position(|&token| token == stop).unwrap() + 1;
    let mut d = Driver::new(SchedulerConfig { max_concurrent_batches: 2, ..config(4, 30) });
    d.add(NewRequest { stop_token_ids: vec![stop], ..plain.clone() }).unwrap();
    d.drain();
    d.assert_answers();
    assert_eq!((d.streams[&id(1)].len(), d.steps), (at, at as u64 + 1));
    assert_eq!(d.scheduler().stats().num_discarded_rows, 1);

    // An end by length is foreseen.
    let mut d = Driver::new(SchedulerConfig { max_concurrent_batches: 2, ..config(4, 30) });
    d.add(NewRequest { max_tokens: Some(4), ..plain.clone() }).unwrap();
    d.drain();
    assert_eq!((d.steps, d.scheduler().stats().num_discarded_rows), (4, 0));

    // Not before its time.
    let mut d = Driver::new(config(4, 30));
    d.add(NewRequest { stop_token_ids: vec![stop], min_tokens: at + 1, ..plain }).unwrap();
    d.drain();
    d.assert_answers();
    assert!(d.streams[&id(1)].len() > at);
}

/// An aborted request's blocks go to another while the device still writes to them, under the same id even.
#[test]
fn an_abort_in_flight_leaves_nothing_behind() {
    let mut d = Driver::new(SchedulerConfig { max_concurrent_batches: 2, ..config(4, 5) });
    d.add(request(1, 16, 10)).unwrap();
    d.plan();
    d.plan();
    d.abort(1);
    assert_eq!(d.scheduler().stats().kv.used, 0);
    let mut s = d.scheduler().clone();
    s.add(request(1, 12, 3)).unwrap();
    assert_eq!(s.complete(0, &[7]).unwrap(), StepOutput::default(), "not the new request's token");
    assert_eq!(s.stats().kv.cached, 0, "nor its blocks");
    s.check_integrity().unwrap();

    d.add(request(2, 17, 4)).unwrap();
    d.complete();
    d.plan();
    d.complete();
    d.drain();
    d.assert_answers();
    assert_eq!(d.scheduler().stats().num_discarded_rows, 2);
}

#[test]
fn a_failed_step_ends_its_batch_and_nobody_else() {
    let mut d = Driver::new(SchedulerConfig { max_concurrent_batches: 2, max_num_seqs: 2, ..config(4, 40) });
    for i in 1..=4 {
        d.add(NewRequest { max_tokens: Some(5), ..NewRequest::new(i, prompt(1, 10), key()) }).unwrap();
    }
    d.plan();
    d.plan();
    d.fail();
    assert_eq!(d.ended, [id(1)], "the others wait for what the first computes");
    d.complete();
    d.drain();
    d.assert_answers();
    assert_eq!(d.finished.values().filter(|f| f.reason == FinishReason::Length).count(), 3);
    assert_eq!(d.finished[&id(2)].num_cached_tokens, 0, "nothing of a failed step is shared");
}

#[test]
fn better_ones_are_served_first_and_worse_ones_preempted() {
    let mut d = Driver::new(SchedulerConfig { max_num_seqs: 1, ..config(4, 40) });
    for (i, priority) in [5, 0, -3, 0, 5, -3].into_iter().enumerate() {
        d.add(NewRequest { priority, ..request(i as u64, 6, 3) }).unwrap();
    }
    d.drain();
    assert_eq!(d.ended, [2, 5, 1, 3, 0, 4].map(id));

    // Three that grow in a cache for two: the worst loses its blocks, though it came first.
    let mut d = Driver::new(config(4, 6));
    for (i, priority) in [(1, 9), (2, 0), (3, 5)] {
        d.add(NewRequest { priority, ..request(i, 7, 5) }).unwrap();
    }
    d.drain();
    d.assert_answers();
    assert_eq!([1, 2, 3].map(|i| d.finished[&id(i)].num_preemptions), [1, 0, 0]);
}

#[test]
fn reports_of_other_steps_are_refused() {
    let mut s = Scheduler::new(SchedulerConfig { max_concurrent_batches: 2, ..config(4, 30) }).unwrap();
    assert_eq!(s.complete(0, &[]).unwrap_err().to_string(), "step 0 was reported; none is in flight");
    s.add(request(1, 5, 9)).unwrap();
    s.plan().unwrap();
    s.plan().unwrap();
    assert_eq!(s.plan(), None, "two are in flight");
    let before = s.clone();
    assert_eq!(s.complete(1, &[3]).unwrap_err().to_string(), "step 1 was reported; step 0 is to be next");
    assert_eq!(s.fail(1), Err(StepError::OutOfOrder { found: 1, next: Some(0) }));
    let text = s.complete(0, &[3, 4]).unwrap_err().to_string();
    assert_eq!(text, "2 tokens were reported for step 0; 1 of its rows sample");
    assert_eq!(s, before);
}

/// A step planned ahead names its unknown token by the row that samples it.
#[test]
fn unknown_tokens_are_named_by_the_rows_that_sample_them() {
    let mut s = Scheduler::new(SchedulerConfig { max_concurrent_batches: 3, ..config(4, 30) }).unwrap();
    s.add(request(1, 5, 9)).unwrap();
    s.add(request(2, 5, 9)).unwrap();
    s.plan().unwrap();
    let second = s.plan().unwrap();
    assert_eq!(second.rows[1].input, Input::SampledBy { step: 0, row: 1 });
    assert_eq!(s.plan().unwrap().rows[1].input, Input::SampledBy { step: 1, row: 1 });
    s.abort(1);
    s.complete(0, &[8, 9]).unwrap();
    assert_eq!(s.plan().unwrap().rows[0].input, Input::SampledBy { step: 2, row: 1 });
}

#[test]
fn the_log_keeps_what_happened_lately_and_replays_from_there() {
    let mut recorder = Recorder::new(Scheduler::new(config(4, 30)).unwrap(), 10);
    for i in 0..40 {
        let _ = recorder.add(request(i % 7, 6, 3));
        if let Some(plan) = recorder.plan() {
            let tokens = vec![4; plan.sampling_rows().count()];
            recorder.complete(plan.step, &tokens).unwrap();
        }
        let kept = recorder.log().entries.len();
        assert!(kept <= 20 && (kept >= 10 || i < 5));
        assert_eq!(&recorder.log().replay().unwrap(), recorder.scheduler());
    }
    let mut log = recorder.log().clone();
    let planned = log.entries.iter().rposition(|entry| entry.plan.is_some()).unwrap();
    log.entries[planned].plan.as_mut().unwrap().rows[0].start += 1;
    assert_eq!(log.replay().unwrap_err().entry, planned);
}

#[test]
fn sequences_are_written_as_request_and_sample() {
    let id = SequenceId { request: 17, sample: 2 };
    assert_eq!((id.to_string().as_str(), "17.2".parse()), ("17.2", Ok(id)));
    for text in ["17", "17.", ".2", "a.b", "17.-2"] {
        assert!(text.parse::<SequenceId>().is_err(), "{text}");
    }
}
