//! Whatever comes, in whatever order: the laws hold, and every answer is what it would have been alone.

use proptest::prelude::*;

use super::driver::Driver;
use crate::kv::CacheKey;
use crate::schedule::{NewRequest, SchedulerConfig, SequenceId};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Action {
    Add(NewRequest),
    /// The n-th request so far.
    Abort(prop::sample::Index),
    Stop(prop::sample::Index, u32),
    Plan,
    Complete,
    Fail,
    Reset,
}

fn requests() -> impl Strategy<Value = NewRequest> {
    // Few beginnings, so that many prompts share one.
    let prompt = (0..3u32, 1..40usize, 0..4u32).prop_map(|(kind, len, last)| {
        let mut prompt: Vec<u32> = (0..len as u32).map(|i| (i * 5 + kind * 31) % 97).collect();
        prompt[len - 1] += last;
        prompt
    });
    let salt = prop_oneof![3 => Just(None), 1 => Just(Some("a".to_owned())), 1 => Just(Some("b".to_owned()))];
    let shape = (prop_oneof![4 => Just(1u32), 1 => 2..4u32], -1..2i32, proptest::option::weighted(0.9, 1..30usize));
    (prompt, salt, shape, prop::bool::weighted(0.1), 0..4usize).prop_map(
        |(prompt, cache_salt, (n, priority, max_tokens), skip_reading_prefix_cache, min_tokens)| NewRequest {
            n,
            priority,
            max_tokens,
            min_tokens,
            stop_token_ids: vec![11, 12, 13],
            skip_reading_prefix_cache,
            ..NewRequest::new(0, prompt, CacheKey { cache_salt, ..CacheKey::model("m") })
        },
    )
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => requests().prop_map(Action::Add),
        2 => any::<prop::sample::Index>().prop_map(Action::Abort),
        1 => (any::<prop::sample::Index>(), 0..3u32).prop_map(|(i, sample)| Action::Stop(i, sample)),
        14 => Just(Action::Plan),
        14 => Just(Action::Complete),
        1 => Just(Action::Fail),
        1 => Just(Action::Reset),
    ]
}

/// Small caches: most runs preempt.
fn configs() -> impl Strategy<Value = SchedulerConfig> {
    let cache = (prop_oneof![Just(1usize), Just(3), Just(4), Just(16)], 4..24u32, prop::bool::weighted(0.85));
    let limits = (1..10usize, 1..40usize, prop_oneof![Just(0usize), 1..10usize], 0..3usize, 1..4usize);
    (cache, limits).prop_map(
        |((block_size, num_blocks, enable_prefix_caching), (seqs, tokens, threshold, mark, depth))| SchedulerConfig {
            block_size,
            max_num_seqs: seqs,
            max_num_batched_tokens: tokens,
            long_prefill_token_threshold: threshold,
            watermark_blocks: mark,
            enable_prefix_caching,
            max_concurrent_batches: depth,
            ..SchedulerConfig::new(num_blocks, 64)
        },
    )
}

/// Lets it all happen, then goes on until nothing is left.
fn run(config: &SchedulerConfig, actions: &[Action]) -> Driver {
    let mut d = Driver::new(config.clone());
    let mut next = 0u64;
    for action in actions {
        let nth = |index: &prop::sample::Index| index.index(next.max(1) as usize) as u64;
        match action {
            Action::Add(request) => {
                let taken = d.add(NewRequest { request: next, ..request.clone() });
                let len = request.prompt.len();
                assert_eq!(taken.is_ok(), len < config.max_model_len && len <= config.capacity());
                next += 1;
            }
            Action::Abort(i) => d.abort(nth(i)),
            Action::Stop(i, sample) => d.stop(SequenceId { request: nth(i), sample: *sample }),
            Action::Plan => drop(d.plan()),
            Action::Complete => drop(d.complete()),
            Action::Fail => drop(d.fail()),
            Action::Reset => d.reset(),
        }
    }
    d.drain();
    d.assert_answers();
    d
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Arrivals, aborts, ends, faults and resets at any time: the driver checks the laws after each.
    #[test]
    fn whatever_happens_answers_are_right(config in configs(), actions in prop::collection::vec(actions(), 0..150)) {
        let d = run(&config, &actions);
        d.assert_replays();
    }

    /// Planning ahead changes no answer, and neither do the budget, the cache or the other limits.
    #[test]
    fn limits_change_no_answer(configs in prop::collection::vec(configs(), 2..4),
                               requests in prop::collection::vec(requests(), 1..12)) {
        let runs: Vec<Driver> = configs.iter().map(|config| {
            // Room for every prompt and the same end for every answer, in fewer or more blocks.
            let num_blocks = 64usize.div_ceil(config.block_size) as u32 + config.num_blocks % 4;
            let adds: Vec<Action> = requests.iter().cloned().map(Action::Add).collect();
            run(&SchedulerConfig { num_blocks, ..config.clone() }, &adds)
        }).collect();
        for other in &runs[1..] {
            prop_assert_eq!(&other.streams, &runs[0].streams);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A request ended at any moment, whatever is in flight then: nothing is left of it and nobody else notices.
    #[test]
    fn requests_can_be_cancelled_at_every_moment(
        config in configs(),
        requests in prop::collection::vec(requests(), 2..5),
        victim in any::<prop::sample::Index>(),
    ) {
        let adds: Vec<Action> = requests.iter().cloned().map(Action::Add).collect();
        let turns = (run(&config, &adds).steps * 2).min(60) as usize;
        let index = victim.index(requests.len()) as u64;
        for moment in 0..=turns {
            let mut d = Driver::new(config.clone());
            for (i, request) in requests.iter().enumerate() {
                let _ = d.add(NewRequest { request: i as u64, ..request.clone() });
            }
            for turn in 0..moment {
                // Plans as far ahead as it may, every other turn a completion between.
                if turn % 2 == 0 || !d.complete() { d.plan(); }
            }
            d.abort(index);
            d.drain();
            d.assert_answers();
        }
    }

    /// One request after another in a cache that holds all: hits are the full blocks of the longest beginning that any
    /// before had under its salt, without the last token.
    #[test]
    fn hits_are_counted_right(block_size in 1..9usize, requests in prop::collection::vec(requests(), 1..10)) {
        let config = SchedulerConfig { block_size, watermark_blocks: 0, ..SchedulerConfig::new(700, 64) };
        let mut d = Driver::new(config);
        let mut computed: Vec<(CacheKey, Vec<u32>)> = vec![];
        let (mut queries, mut hits) = (0, 0);
        for (i, request) in requests.into_iter().enumerate() {
            let request = NewRequest { request: i as u64, n: 1, skip_reading_prefix_cache: false, ..request };
            let common = |tokens: &[u32]| tokens.iter().zip(&*request.prompt).take_while(|(a, b)| a == b).count();
            let known = computed.iter().filter(|(key, _)| *key == request.key);
            let longest = known.map(|(_, tokens)| common(tokens) / block_size).max().unwrap_or(0);
            let expected = longest.min((request.prompt.len() - 1) / block_size) * block_size;
            queries += request.prompt.len() as u64;
            hits += expected as u64;

            d.add(request.clone()).unwrap();
            d.drain();
            let id = SequenceId { request: request.request, sample: 0 };
            prop_assert_eq!(d.finished[&id].num_cached_tokens, expected);
            let mut tokens = [&request.prompt[..], &d.streams[&id]].concat();
            tokens.pop(); // the last was not computed
            computed.push((request.key, tokens));
        }
        let stats = d.scheduler().stats().prefix_cache;
        prop_assert_eq!((stats.queries, stats.hits), (queries, hits));
    }
}
