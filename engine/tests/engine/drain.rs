//! Ending well.

use std::time::{Duration, Instant};

use tegula_engine::engine::{Health, SubmitError};
use tegula_engine::schedule::FinishReason;

use super::cancel::block_on;
use super::support::{assert_alone, exactly, model, prompt, request, start};

#[test]
fn what_runs_is_finished_and_nothing_new_is_taken() {
    let slow = model(4, 256).step_time(Duration::from_millis(1));
    let engine = start(slow, |b| b.max_num_seqs(2));
    let all: Vec<_> = (0..4).map(|i| engine.generate(request(i, 10, 20)).unwrap()).collect();
    let drain = engine.drain(Duration::from_secs(20));
    assert_eq!(engine.health(), Health::Draining);
    assert!(matches!(engine.generate(request(9, 10, 1)), Err(SubmitError::Draining)));
    assert_eq!(block_on(drain), 0);
    assert!(engine.is_idle());
    for (i, generation) in all.into_iter().enumerate() {
        assert_alone(&generation.wait(), &prompt(i as u32, 10), &exactly(20), 1000);
    }
    assert!(matches!(engine.generate(request(9, 10, 1)), Err(SubmitError::Draining)));
    // With nothing left it is drained at once.
    assert_eq!(engine.drain(Duration::from_secs(20)).blocking(), 0);
}

#[test]
fn grace_has_an_end() {
    let slow = model(4, 256).step_time(Duration::from_millis(2));
    let engine = start(slow, |b| b.max_num_seqs(2));
    let all: Vec<_> = (0..3).map(|i| engine.generate(request(i, 10, 3000)).unwrap()).collect();
    let began = Instant::now();
    assert_eq!(engine.drain(Duration::from_millis(60)).blocking(), 3);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(60) && took < Duration::from_secs(5), "{took:?}");
    // Who waited for it finds all of it told.
    assert_eq!(engine.ended().len(), 3);
    assert_eq!((engine.stats().scheduler.num_running, engine.stats().scheduler.num_waiting), (0, 0));
    for generation in all {
        assert_eq!(generation.wait().answers[0].end.as_ref().unwrap().reason, FinishReason::Abort);
    }
}

/// The end of a drain does not depend on who waits for it; a second one, or an abort, may end it sooner.
#[test]
fn a_drain_that_nobody_waits_for_goes_on() {
    let slow = model(4, 256).step_time(Duration::from_millis(2));
    let engine = start(slow, |b| b);
    let generation = engine.generate(request(1, 10, 3000)).unwrap();
    drop(engine.drain(Duration::from_secs(3000)));
    let second = engine.drain(Duration::from_secs(3000));
    engine.abort_all();
    assert_eq!(second.blocking(), 0);
    assert_eq!(generation.wait().answers[0].end.as_ref().unwrap().reason, FinishReason::Abort);
}

/// A grace that no clock can count to.
#[test]
fn grace_may_be_endless() {
    let engine = start(model(4, 256), |b| b);
    let generation = engine.generate(request(1, 10, 50)).unwrap();
    assert_eq!(engine.drain(Duration::MAX).blocking(), 0);
    assert_alone(&generation.wait(), &prompt(1, 10), &exactly(50), 1000);
}
