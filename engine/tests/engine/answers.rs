//! The law: an answer is what its request alone would be answered, whatever else comes, in whatever order, with steps
//! planned ahead or not, in any room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tegula_engine::engine::{Generation, Request, Scripted, SequenceSpec, Step, SubmitError, Update};
use tegula_engine::grammar::Form;
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::FinishReason;

use super::support::{Checked, END, alone, assert_alone, exactly, model, prompt, request, start};

/// What is asked, and what becomes of it.
#[derive(Clone, Debug)]
struct Asked {
    prompt: Vec<u32>,
    params: SamplingParams,
    priority: i32,
    salt: Option<String>,
    /// Cancelled after so many updates.
    abort: Option<usize>,
    /// Before it, cached prefixes are forgotten.
    reset: bool,
    /// Milliseconds after the one before.
    later: u64,
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let stop = prop::collection::vec("[a-e]{1,3}", 0..3);
    let logprobs = (prop::option::weighted(0.3, 0..3u32), prop::option::weighted(0.2, 0..3u32));
    let counts = (1..4u32, 1..40usize, 0..6usize, any::<u32>());
    (counts, stop, logprobs, any::<(bool, bool)>(), prop::option::weighted(0.3, 97..123u32)).prop_map(
        |((n, max_tokens, min_tokens, seed), stop, (logprobs, prompt_logprobs), (greedy, ignore_eos), token)| {
            SamplingParams {
                n: if greedy { 1 } else { n },
                temperature: if greedy { 0.0 } else { 1.0 },
                max_tokens: Some(max_tokens),
                min_tokens: min_tokens.min(max_tokens),
                seed: Some(seed.into()),
                stop,
                logprobs,
                prompt_logprobs,
                ignore_eos,
                stop_token_ids: token.into_iter().collect(),
                ..SamplingParams::default()
            }
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let rare = |p| prop::bool::weighted(p);
    let salt = prop::option::weighted(0.2, "[ab]");
    // Few beginnings, so that many prompts share one.
    let prompt = (0..3u32, 1..60usize).prop_map(|(first, len)| prompt(first, len));
    let abort = prop::option::weighted(0.2, 0..12usize);
    (prompt, params(), -1..2i32, salt, abort, rare(0.05), 0..2u64).prop_map(
        |(prompt, params, priority, salt, abort, reset, later)| Asked {
            prompt,
            params,
            priority,
            salt,
            abort,
            reset,
            later,
        },
    )
}

/// An engine's shape, and what goes wrong in it.
#[derive(Clone, Debug)]
struct Setting {
    num_blocks: u32,
    max_num_seqs: usize,
    step: usize,
    threshold: usize,
    prefix_cache: bool,
    /// Steps that fail.
    fail: BTreeSet<u64>,
    /// Steps in which a row fails, and which.
    fail_row: BTreeSet<(u64, usize)>,
}

fn setting(faults: usize) -> impl Strategy<Value = Setting> {
    let shape = (16..60u32, 1..9usize, 0..40usize, prop_oneof![Just(0usize), 1..20usize], any::<bool>());
    // Never two steps one after the other: three would be the end.
    let fail = prop::collection::btree_set((0..60u64).prop_map(|step| 2 * step), 0..=faults);
    let fail_row = prop::collection::btree_set((0..100u64, 0..3usize), 0..=2 * faults);
    (shape, fail, fail_row).prop_map(|((num_blocks, max_num_seqs, more, threshold, prefix_cache), fail, fail_row)| {
        Setting { num_blocks, max_num_seqs, step: max_num_seqs + more, threshold, prefix_cache, fail, fail_row }
    })
}

fn engine(setting: &Setting, overlap: bool) -> Checked {
    let Setting { fail, fail_row, .. } = setting.clone();
    let model = model(4, setting.num_blocks).before_each_step(move |step, _| {
        if fail.contains(&step) {
            return Step::Fail("as planned".into());
        }
        fail_row
            .iter()
            .find(|(of, _)| *of == step)
            .map_or(Step::Run, |(_, row)| Step::FailRow(*row, "a bad row".into()))
    });
    start(model, |builder| {
        builder
            .max_num_seqs(setting.max_num_seqs)
            .max_num_batched_tokens(setting.step)
            .long_prefill_token_threshold(setting.threshold)
            .prefix_cache(setting.prefix_cache)
            .overlap(overlap)
    })
}

/// Asks for all, and checks all that comes.
fn serve(setting: &Setting, all: &[Asked], overlap: bool) {
    let engine = engine(setting, overlap);
    let mut running: Vec<Option<Generation>> = vec![];
    for asked in all {
        if asked.reset {
            engine.reset_prefix_cache();
        }
        std::thread::sleep(Duration::from_millis(asked.later));
        let generation = engine.generate(Request {
            priority: asked.priority,
            cache_salt: asked.salt.clone(),
            ..Request::new(asked.prompt.clone(), asked.params.clone())
        });
        running.push(Some(generation.unwrap()));
    }
    let room = setting.num_blocks as usize * 4 + 1;
    let faults = !setting.fail.is_empty() || !setting.fail_row.is_empty();
    for (asked, generation) in all.iter().zip(&mut running) {
        let generation = generation.take().unwrap();
        let mut completion = tegula_engine::engine::Completion::default();
        let mut last = BTreeMap::new();
        let mut updates = generation.blocking();
        let most = asked.abort.unwrap_or(usize::MAX);
        for update in updates.by_ref().take(most) {
            if let Update::Token(token) = &update {
                let so_far = completion.answers.get(token.sample as usize).map_or(0, |answer| answer.tokens.len());
                assert_eq!(token.index, so_far, "tokens come in order, each once");
                assert_eq!(token.logprobs.is_some(), asked.params.logprobs.is_some());
                last.insert(token.sample, token.last);
            }
            if let Update::Finished(end) = &update {
                // The last token of an answer is known to be it, unless the end came later, from elsewhere.
                let whole = !matches!(end.reason, FinishReason::Error | FinishReason::Abort);
                assert_eq!(last.get(&end.sample).copied().unwrap_or(false), whole, "{end:?}");
            }
            completion.push(update);
        }
        drop(updates);
        let ended = |reason| completion.answers.iter().any(|a| a.end.as_ref().is_some_and(|end| end.reason == reason));
        if asked.abort.is_none() && !ended(FinishReason::Error) {
            assert_alone(&completion, &asked.prompt, &asked.params, room - asked.prompt.len());
            check_prompt_logprobs(asked, &completion);
            continue;
        }
        assert!(faults || asked.abort.is_some(), "{completion:?}");
        for (sample, answer) in completion.answers.iter().enumerate() {
            let whole = alone(&asked.prompt, &asked.params, sample as u32, room - asked.prompt.len());
            assert!(whole.tokens.starts_with(&answer.tokens));
            assert!(whole.text.starts_with(&answer.text) || answer.end.as_ref().is_some_and(|e| !e.text.is_empty()));
        }
    }
}

/// As the scripted model has them: of all tokens but the first.
fn check_prompt_logprobs(asked: &Asked, completion: &tegula_engine::engine::Completion) {
    let Some(top) = asked.params.prompt_logprobs else { return assert_eq!(completion.prompt_logprobs, None) };
    let all = completion.prompt_logprobs.as_ref().unwrap();
    assert_eq!(all.len(), asked.prompt.len());
    assert_eq!(all[0], None);
    for (found, &token) in all.iter().zip(&asked.prompt).skip(1) {
        let found = found.as_ref().unwrap();
        assert_eq!((found.chosen.token, found.top.len()), (token, top as usize));
    }
    assert_eq!(completion.num_cached_tokens, 0, "each token has to be computed for its log-probability");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_each_request_alone(
        setting in setting(0), all in prop::collection::vec(asked(), 1..14), overlap in any::<bool>(),
    ) {
        serve(&setting, &all, overlap);
    }

    #[test]
    fn faults_end_what_they_hit_and_nothing_else(
        setting in setting(4), all in prop::collection::vec(asked(), 1..14), overlap in any::<bool>(),
    ) {
        serve(&setting, &all, overlap);
    }
}

/// As many as there is room for and more, in one go.
#[test]
fn a_hundred_at_once() {
    for overlap in [false, true] {
        let engine = start(model(4, 256), |b| b.max_num_seqs(16).max_num_batched_tokens(64).overlap(overlap));
        let all: Vec<_> = (0..100).map(|i| engine.generate(request(i % 7, 5 + i as usize, 30)).unwrap()).collect();
        for (i, generation) in all.into_iter().enumerate() {
            assert_alone(&generation.wait(), &prompt(i as u32 % 7, 5 + i), &exactly(30), 1000);
        }
        let stats = engine.stats();
        assert!(stats.scheduler.prefix_cache.hits > 0, "{stats:?}");
        assert_eq!(engine.ended().len(), 100);
    }
}

/// Requests with the same seed, and sub-seeds that anybody can name: three different choices, again and again, each of
/// them what a request for one with that seed is answered (row T20 of the conformance list).
#[test]
fn samples_of_one_request_differ_and_are_known() {
    let engine = start(model(4, 256), |b| b);
    let params = |n, seed| SamplingParams { n, seed: Some(seed), ..SamplingParams::default() };
    let ask = |params| engine.generate(Request::new(prompt(1, 9), params)).unwrap().wait();
    let texts = |n, seed| ask(params(n, seed)).answers.into_iter().map(|a| a.text).collect::<Vec<_>>();
    let three = texts(3, 1);
    assert_eq!(three, texts(3, 1));
    assert_eq!(three.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(three, [texts(1, 1), texts(1, 2), texts(1, 3)].concat());
}

/// Log-probabilities of a prompt are computed once, however many answers follow it.
#[test]
fn a_prompt_with_log_probabilities_is_computed_once() {
    let rows = Arc::new(AtomicUsize::new(0));
    let (counted, len) = (rows.clone(), 64);
    let model = model(4, 256).before_each_step(move |_, work| {
        let of_prompts = work.plan.rows.iter().map(|row| row.end().min(len).saturating_sub(row.start));
        counted.fetch_add(of_prompts.sum(), Ordering::Relaxed);
        Step::Run
    });
    let engine = start(model, |b| b.max_num_seqs(16).max_num_batched_tokens(24));
    let params = SamplingParams { prompt_logprobs: Some(1), n: 8, temperature: 1.0, seed: Some(1), ..exactly(3) };
    // The second time the whole prompt is cached.
    for _ in 0..2 {
        let completion = engine.generate(Request::new(prompt(1, len), params.clone())).unwrap().wait();
        assert_alone(&completion, &prompt(1, len), &params, 1000);
        assert!(completion.prompt_logprobs.unwrap().iter().skip(1).all(Option::is_some));
        // The others compute the last block alone, of four tokens.
        assert_eq!(rows.swap(0, Ordering::Relaxed), len + 7 * 4);
    }
}

/// A form is compiled once for neighbours that share it.
#[test]
fn a_form_is_compiled_once_for_requests_that_share_it() {
    let forms = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = forms.clone();
    let model = Scripted::new(257, 4, 64, 4096).says(move |spec: &SequenceSpec, answer| {
        seen.lock().unwrap().insert(spec.prompt[0], spec.form.clone().unwrap());
        if answer.is_empty() { spec.prompt[0] } else { END }
    });
    let engine = start(model, |b| b);
    let asked = |(letter, form): (u8, &str)| Request {
        form: Some(Form::Regex(form.into())),
        ..Request::new(vec![letter.into()], SamplingParams::greedy())
    };
    let all = engine.generate_all([(b'a', "[ab]"), (b'b', "[ab]"), (b'c', "c|d")].map(asked)).unwrap();
    let texts: Vec<String> = all.into_iter().map(|one| one.wait().answers.remove(0).text).collect();
    assert_eq!(texts, ["a", "b", "c"]);
    let forms = forms.lock().unwrap();
    let [a, b, c] = [b'a', b'b', b'c'].map(|letter| &forms[&letter.into()]);
    assert!(Arc::ptr_eq(a, b) && !Arc::ptr_eq(a, c));
    // None is taken if one cannot be.
    let bad = [asked((b'a', "[ab]")), asked((b'b', "("))];
    assert!(matches!(engine.generate_all(bad), Err(SubmitError::Grammar(_))));
}

/// Without a seed nobody can tell what comes, and two engines say two things; a seed of 0 is a seed (row T21).
#[test]
fn two_engines_without_a_seed_differ() {
    let engines = [start(model(4, 64), |b| b), start(model(4, 64), |b| b.index(1))];
    let ask = |of: usize, seed| {
        let params = SamplingParams { seed, max_tokens: Some(30), ignore_eos: true, ..SamplingParams::default() };
        engines[of].generate(Request::new(prompt(1, 9), params)).unwrap().wait().answers.remove(0).text
    };
    assert_ne!(ask(0, None), ask(1, None));
    assert_ne!(ask(0, None), ask(0, None));
    assert_eq!(ask(0, Some(0)), ask(1, Some(0)));
    assert_ne!(ask(0, Some(0)), ask(0, None));
}

/// Two prompts that differ in their salt share nothing; in nothing, all full blocks but the last token's.
#[test]
fn a_salt_keeps_prefixes_apart() {
    let engine = start(model(4, 64), |b| b);
    let cached = |salt: Option<&str>| {
        let request = Request { cache_salt: salt.map(str::to_owned), ..request(1, 17, 2) };
        engine.generate(request).unwrap().wait().num_cached_tokens
    };
    assert_eq!(
        [cached(None), cached(None), cached(Some("a")), cached(Some("b")), cached(Some("a"))],
        [0, 16, 0, 0, 16]
    );
    engine.reset_prefix_cache();
    assert_eq!([cached(None), cached(Some("a"))], [0, 0]);
}
