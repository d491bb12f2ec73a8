//! What an engine refuses, and what it says.

use std::sync::mpsc::channel;
use std::time::Duration;

use tegula_engine::engine::{Engine, EngineBuilder, Request, Scripted, Step, SubmitError};
use tegula_engine::grammar::Form;
use tegula_engine::sampling::SamplingParams;

use super::support::{exactly, model, prompt, request, start, tokenizer, until};

#[test]
fn limits_that_make_no_sense_are_refused_before_anything_starts() {
    let refused = |configure: fn(EngineBuilder) -> EngineBuilder| {
        configure(Engine::builder("none")).build_on(model(16, 8), tokenizer(), None).unwrap_err().to_string()
    };
    assert_eq!(
        refused(|b| b.max_num_seqs(64).max_num_batched_tokens(32)),
        "max_num_batched_tokens is 32, and max_num_seqs 64: every sequence that runs has a token in every step, so the \
         former must be at least the latter"
    );
    assert_eq!(refused(|b| b.max_num_seqs(0)), "max_num_seqs is 0; it must be at least 1");
    assert_eq!(
        refused(|b| b.max_num_seqs(usize::MAX)),
        format!("max_num_seqs is {}; it may be at most 65536", usize::MAX)
    );
    assert_eq!(
        refused(|b| b.max_num_batched_tokens(usize::MAX / 2)),
        format!("max_num_batched_tokens is {}; it may be at most 1048576", usize::MAX / 2)
    );
    assert_eq!(refused(|b| b.max_waiting(0)), "max_waiting is 0; it must be at least 1");
    assert_eq!(refused(|b| b.max_model_len(1)), "max_model_len is 1; it must be at least 2");
    assert_eq!(
        refused(|b| b.max_model_len(5000)),
        "max_model_len is 5000; the model was made for sequences of at most 4096 tokens"
    );
    assert!(refused(|b| b.heartbeat(Duration::ZERO)).starts_with("heartbeat is 0;"));
    let small = Engine::builder("none").build_on(Scripted::new(100, 4, 8, 64), tokenizer(), None).unwrap_err();
    assert_eq!(
        small.to_string(),
        "the tokenizer has 257 tokens, and the model logits for 100: they do not belong together"
    );
    // More sequences than the usual step has tokens: the step grows.
    let many = Engine::builder("many").max_num_seqs(1000).build_on(model(16, 8), tokenizer(), None).unwrap();
    assert_eq!(many.config().max_num_batched_tokens, 1000);
    assert_eq!(many.memory().kv_tokens(), 128);
    assert!(many.memory().to_string().contains("128 tokens in 8 blocks of 16 tokens"), "{}", many.memory());
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_the_reason() {
    let engine = start(model(4, 8), |b| b.max_model_len(100));
    let refused = |request: Request| engine.generate(request).unwrap_err();
    let text = |request| refused(request).to_string();
    assert_eq!(text(Request::new(vec![], exactly(1))), "the prompt is empty; it must have at least one token");
    assert_eq!(
        text(Request::new(vec![1, 257], exactly(1))),
        "token 257 at place 1 of the prompt; the vocabulary has tokens 0 to 256"
    );
    assert_eq!(text(request(1, 40, 1)), "the prompt has 40 tokens; the KV cache has room for 32");
    assert!(text(request(1, 100, 1)).contains("the maximum context length is 100 tokens"));
    let hot = SamplingParams { temperature: f32::NAN, ..exactly(1) };
    assert!(matches!(refused(Request::new(vec![1], hot)), SubmitError::Param(error) if error.field == "temperature"));
    let form = |form| Request { form: Some(form), ..request(1, 4, 4) };
    assert!(matches!(refused(form(Form::Regex("(".into()))), SubmitError::Grammar(_)));
    let digits = SamplingParams { allowed_token_ids: Some(vec![48, 49]), ..exactly(1) };
    assert_eq!(
        text(Request { params: digits, ..form(Form::Regex("[a-z]+".into())) }),
        "allowed_token_ids is 2 tokens; it must be of tokens with one that the answer's form can begin with"
    );
    assert_eq!(engine.num_waiting(), 0, "whoever is refused has no place");
    assert!(engine.is_idle());
    assert!(engine.ended().is_empty());
}

/// However many come at once, no more wait than may, and those that are taken are answered.
#[test]
fn the_queue_has_an_end_whoever_races_for_it() {
    let (release, go_on) = channel::<()>();
    let held = model(4, 256).before_each_step(move |_, _| {
        let _ = go_on.recv();
        Step::Run
    });
    let engine = start(held, |b| b.max_num_seqs(2).max_waiting(10));
    let running: Vec<_> = (0..2).map(|i| engine.generate(request(i, 4, 3)).unwrap()).collect();
    until("both run", || engine.stats().scheduler.num_running == 2 && engine.num_waiting() == 0);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let ask = |_| scope.spawn(|| (0..10).map(|i| engine.generate(request(i, 4, 3))).collect::<Vec<_>>());
        let threads: Vec<_> = (0..8).map(ask).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (taken, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refused.len(), engine.num_waiting()), (10, 70, 10));
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert_eq!(error, SubmitError::QueueFull { waiting: 10, most: 10 });
        assert_eq!(error.to_string(), "10 sequences are waiting; 10 may: try again later");
    }
    // One that goes makes room for one.
    let mut taken: Vec<_> = taken.into_iter().map(Result::unwrap).collect();
    drop(taken.pop());
    until("there is room again", || engine.num_waiting() == 9);
    taken.push(engine.generate(request(7, 4, 3)).unwrap());
    assert!(engine.generate(request(7, 4, 3)).is_err());
    drop(release);
    for generation in running.into_iter().chain(taken) {
        assert_eq!(generation.wait().answers[0].tokens.len(), 3);
    }
    assert_eq!(engine.num_waiting(), 0);
}

/// A request waits as often as it wants answers.
#[test]
fn every_sample_has_a_place_in_the_queue() {
    let (release, go_on) = channel::<()>();
    let held = model(4, 256).before_each_step(move |_, _| {
        let _ = go_on.recv();
        Step::Run
    });
    let engine = start(held, |b| b.max_num_seqs(1).max_waiting(4));
    let of = |n: u32| {
        let params = SamplingParams { n, seed: Some(1), temperature: 1.0, ..exactly(3) };
        engine.generate(Request::new(prompt(n, 5), params))
    };
    // The queue is empty: it is taken, whatever its size.
    let first = of(6).unwrap();
    until("its first sample runs", || engine.num_waiting() == 5);
    assert_eq!(of(1).unwrap_err(), SubmitError::QueueFull { waiting: 5, most: 4 });
    drop(first);
    until("all of its places are free", || engine.num_waiting() == 0);
    let running = of(1).unwrap();
    until("the step that is held is planned", || engine.num_waiting() <= 1);
    let left = 4 - engine.num_waiting();
    let fits = of(left as u32).unwrap();
    assert!(matches!(of(2), Err(SubmitError::QueueFull { .. })));
    drop(release);
    for (generation, n) in [(running, 1), (fits, left)] {
        let completion = generation.wait();
        assert_eq!(completion.answers.iter().filter(|answer| answer.tokens.len() == 3).count(), n);
    }
    assert_eq!(engine.num_waiting(), 0);
}
