//! Requests that nobody wants any more, handles that go, readers that do not read.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tegula_engine::engine::{Engine, Request, Step, Update};
use tegula_engine::schedule::FinishReason;

use super::support::{alone, assert_alone, exactly, model, prompt, request, start, tokenizer, until};

/// A generation that is dropped frees its blocks within a step: the device is held in a step until they are free.
#[test]
fn a_drop_frees_blocks_within_one_step() {
    for overlap in [false, true] {
        let (entered, steps) = channel();
        let (release, go_on) = channel::<()>();
        let model = model(4, 64).before_each_step(move |step, _| {
            entered.send(step).unwrap();
            go_on.recv().unwrap();
            Step::Run
        });
        let engine = start(model, |b| b.overlap(overlap));
        let generation = engine.generate(request(1, 40, 100)).unwrap();
        // Once the first token is there the second step is running, and held.
        assert_eq!(steps.recv().unwrap(), 0);
        release.send(()).unwrap();
        assert_eq!(steps.recv().unwrap(), 1);
        let mut updates = generation.blocking();
        assert!(updates.any(|update| matches!(update, Update::Token(_))));
        assert!(engine.stats().scheduler.kv.used > 0);
        drop(updates);
        until("the blocks are free", || engine.stats().scheduler.kv.used == 0);
        assert!(engine.is_idle());
        let stats = engine.stats();
        assert!(stats.scheduler.num_in_flight > 0, "the step is still running: {stats:?}");
        assert_eq!(engine.ended(), [("req-0".into(), 0, FinishReason::Abort)]);
        // And from here on steps run as they come.
        (0..10).for_each(|_| release.send(()).unwrap());
    }
}

/// Cancelled at any time: before it starts, while its prompt is computed, while it answers; others see nothing of it.
#[test]
fn whoever_goes_leaves_the_others_alone() {
    let slow = model(4, 256).step_time(Duration::from_micros(300));
    let engine = start(slow, |b| b.max_num_seqs(4).max_num_batched_tokens(8));
    let all: Vec<_> = (0..40).map(|i| engine.generate(request(i, 20, 20)).unwrap()).collect();
    for (i, generation) in all.into_iter().enumerate() {
        match i % 4 {
            0 => drop(generation),
            1 => assert!(generation.blocking().take(i % 9).count() <= i % 9),
            _ => assert_alone(&generation.wait(), &prompt(i as u32, 20), &exactly(20), 1000),
        }
    }
    engine.until_idle();
    let aborted = engine.ended().iter().filter(|(.., reason)| *reason == FinishReason::Abort).count();
    // One that had ended before its reader went is none.
    assert!((10..=20).contains(&aborted), "{aborted}");
    let text = engine.metrics().text();
    let line = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=\"scripted\"}";
    assert!(text.contains(&format!("{line} {aborted}\n")), "{text}");
}

/// The engine never waits for a reader.
#[test]
fn a_reader_that_never_reads_holds_up_nobody() {
    let engine = start(model(4, 256), |b| b);
    let unread = engine.generate(request(1, 10, 200)).unwrap();
    let read = engine.generate(request(2, 10, 200)).unwrap().wait();
    assert_alone(&read, &prompt(2, 10), &exactly(200), 1000);
    engine.until_idle();
    assert_alone(&unread.wait(), &prompt(1, 10), &exactly(200), 1000);
}

/// Clones are the same engine; the last ends it. What was being generated ends, and can still be read.
#[test]
fn a_generation_outlives_its_engine() {
    let slow = model(4, 256).step_time(Duration::from_millis(1));
    let engine = Engine::builder("short").build_on(slow, tokenizer(), None).unwrap();
    let clone = engine.clone();
    let mut generation = engine.generate(request(1, 10, 2000)).unwrap().blocking();
    let mut before: Vec<u32> = vec![];
    while before.len() < 3 {
        before.extend(generation.next().and_then(|u| if let Update::Token(t) = u { Some(t.token) } else { None }));
    }
    drop(engine);
    while before.len() < 6 {
        before.extend(generation.next().and_then(|u| if let Update::Token(t) = u { Some(t.token) } else { None }));
    }
    drop(clone);
    let mut last = None;
    for update in generation {
        match update {
            Update::Token(token) => before.push(token.token),
            other => last = Some(other),
        }
    }
    let Some(Update::Finished(end)) = last else { panic!("{last:?}") };
    assert_eq!((end.reason, end.num_output_tokens), (FinishReason::Abort, before.len()));
    assert!(alone(&prompt(1, 10), &exactly(2000), 0, 2000).tokens.starts_with(&before));
}

/// An observer holds a handle, and lets go of the last one on the engine's own thread.
#[test]
fn the_last_handle_may_go_anywhere() {
    use std::sync::Mutex;
    use tegula_engine::metrics::{Ended, Observer};
    #[derive(Default)]
    struct Holder(Mutex<Option<Engine>>);
    impl Observer for Holder {
        fn ended(&self, _: &Ended<'_>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let holder = Arc::new(Holder::default());
    let engine = Engine::builder("held").observer(holder.clone()).build_on(model(4, 64), tokenizer(), None).unwrap();
    *holder.0.lock().unwrap() = Some(engine.clone());
    let generation = engine.generate(request(1, 10, 5)).unwrap();
    drop(engine);
    assert_alone(&generation.wait(), &prompt(1, 10), &exactly(5), 1000);
    until("the threads have ended", || Arc::strong_count(&holder) == 1);
}

/// Streams of two engines in one process, read by turns, as futures.
#[test]
fn two_engines_stream_side_by_side() {
    let engines = [start(model(4, 64), |b| b), start(model(8, 64), |b| b.index(1))];
    let mut streams: Vec<_> = engines.iter().map(|engine| engine.generate(request(5, 20, 30)).unwrap()).collect();
    let [first, second] = &mut streams[..] else { unreachable!() };
    let (a, b) = block_on(async {
        let (mut a, mut b) = (vec![], vec![]);
        while let (Some(x), Some(y)) = (first.next().await, second.next().await) {
            a.push(x);
            b.push(y);
        }
        (a, b)
    });
    let tokens = |updates: &[Update]| -> Vec<u32> {
        updates.iter().filter_map(|u| if let Update::Token(t) = u { Some(t.token) } else { None }).collect()
    };
    assert_eq!(tokens(&a), tokens(&b));
    assert_eq!(tokens(&a), alone(&prompt(5, 20), &exactly(30), 0, 1000).tokens);
    assert!(
        engines[1].metrics().text().contains("vllm:generation_tokens_total{engine=\"1\",model_name=\"scripted\"} 30\n")
    );
}

/// All that runs is ended at once.
#[test]
fn all_can_be_aborted() {
    let slow = model(4, 256).step_time(Duration::from_millis(1));
    let engine = start(slow, |b| b.max_num_seqs(4));
    let all: Vec<_> = (0..20).map(|i| engine.generate(request(i, 20, 2000)).unwrap()).collect();
    let began = Instant::now();
    engine.abort_all();
    for generation in all {
        let completion = generation.wait();
        assert_eq!(completion.answers[0].end.as_ref().unwrap().reason, FinishReason::Abort);
    }
    assert!(began.elapsed() < Duration::from_secs(2));
    // And the engine goes on.
    let again = engine.generate(request(1, 20, 5)).unwrap().wait();
    assert_alone(&again, &prompt(1, 20), &exactly(5), 1000);
}

/// Drives a future on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Names of the caller's are only names: two may be the same.
#[test]
fn names_are_the_callers() {
    let engine = start(model(4, 64), |b| b);
    let named = || engine.generate(Request { id: Some("mine".into()), ..request(1, 5, 3) }).unwrap();
    let (a, b) = (named(), named());
    assert_eq!((a.id(), b.id()), ("mine", "mine"));
    assert_eq!(a.wait().answers[0].tokens, b.wait().answers[0].tokens);
    assert_eq!(engine.generate(request(1, 5, 1)).unwrap().id(), "req-2");
}
