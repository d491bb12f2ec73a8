//! Signs of life.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc::channel};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use tegula_engine::engine::{Engine, Health, Heartbeat, ModelInfo, Step, StepFault, StepModel, StepResult, Work};
use tegula_engine::schedule::FinishReason;

use super::support::{assert_alone, exactly, model, prompt, request, start, tokenizer, until};

const BEAT: Duration = Duration::from_millis(150);

/// A device that stops while work is queued is noticed within its heartbeat, asking is answered at once, and when it goes
/// on all is well again (row T43).
#[test]
fn a_device_that_stops_is_noticed_and_one_that_goes_on_too() {
    let (release, go_on) = channel::<()>();
    let stuck = model(4, 256).before_each_step(move |step, _| {
        if step == 4 {
            let _ = go_on.recv();
        }
        Step::Run
    });
    let engine = start(stuck, |b| b.heartbeat(BEAT));
    // An engine without work may be silent as long as it likes.
    std::thread::sleep(BEAT + BEAT / 2);
    assert_eq!(engine.health(), Health::Ready);
    let generation = engine.generate(request(1, 10, 20)).unwrap();
    // Not at once: the silence before the work does not count.
    assert_eq!(engine.health(), Health::Ready);
    let began = Instant::now();
    until("it is noticed", || matches!(engine.health(), Health::Stalled { .. }));
    assert!(began.elapsed() < BEAT * 4, "{:?}", began.elapsed());
    let Health::Stalled { age } = engine.health() else { panic!() };
    assert!(age > BEAT && engine.last_step_age() >= age);
    // Requests still come, and wait; who goes is let go.
    let second = engine.generate(request(2, 10, 20)).unwrap();
    drop(engine.generate(request(3, 10, 20)).unwrap());
    until("the third is let go", || engine.ended() == [("req-2".into(), 0, FinishReason::Abort)]);
    release.send(()).unwrap();
    assert_alone(&generation.wait(), &prompt(1, 10), &exactly(20), 1000);
    assert_alone(&second.wait(), &prompt(2, 10), &exactly(20), 1000);
    assert_eq!(engine.health(), Health::Ready);
}

/// Steps that take long and say so are no silence; saturation is none either.
#[test]
fn work_is_no_silence() {
    struct Layers;
    impl StepModel for Layers {
        fn info(&self) -> ModelInfo {
            model(4, 64).info()
        }
        fn run(&mut self, work: &Work, beat: &Heartbeat) -> Result<StepResult, StepFault> {
            for _ in 0..6 {
                std::thread::sleep(BEAT / 3);
                beat.tick();
            }
            Ok(StepResult {
                rows: vec![Default::default(); work.plan.sampling_rows().count()],
                ..StepResult::default()
            })
        }
    }
    let engine = start(Layers, |b| b.heartbeat(BEAT).max_num_seqs(2));
    let all: Vec<_> = (0..4).map(|i| engine.generate(request(i, 4, 1)).unwrap()).collect();
    while !engine.is_idle() {
        assert_eq!(engine.health(), Health::Ready);
        std::thread::sleep(Duration::from_millis(5));
    }
    all.into_iter().for_each(|generation| assert_eq!(generation.wait().answers[0].tokens, [0]));
}

/// An engine whose device never answers can be dropped all the same, within a heartbeat.
#[test]
fn an_engine_on_a_dead_device_can_be_dropped() {
    let hangs = Arc::new(AtomicBool::new(false));
    let (park, parked) = channel::<()>();
    let seen = hangs.clone();
    let dead = model(4, 64).before_each_step(move |_, _| {
        seen.store(true, Ordering::SeqCst);
        let _ = parked.recv();
        Step::Run
    });
    let engine = Engine::builder("dead").heartbeat(BEAT).build_on(dead, tokenizer(), None).unwrap();
    let generation = engine.generate(request(1, 4, 10)).unwrap();
    until("it hangs", || hangs.load(Ordering::SeqCst));
    let began = Instant::now();
    drop(engine);
    assert!(began.elapsed() < BEAT * 5, "{:?}", began.elapsed());
    assert_eq!(generation.wait().answers[0].end.as_ref().unwrap().reason, FinishReason::Abort);
    // The thread that was left behind ends when its device does.
    drop(park);
}

/// A panic on the engine thread itself, here of a caller's waker, ends requests with an error, and no caller hangs.
#[test]
fn a_panic_of_the_engine_ends_requests_and_is_told() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker's bug");
        }
    }
    let slow = model(4, 256).step_time(Duration::from_millis(1));
    let engine = Engine::builder("buggy").build_on(slow, tokenizer(), None).unwrap();
    let [long, mut other] = [1, 2].map(|i| engine.generate(request(i, 10, 900)).unwrap());
    // What has come is read; the next is what wakes.
    let waker = Waker::from(Arc::new(Panics));
    while pin!(other.next()).poll(&mut Context::from_waker(&waker)).is_ready() {}
    for generation in [long, other] {
        let end = generation.wait().answers.remove(0).end.unwrap();
        assert_eq!(end.reason, FinishReason::Error);
        assert!(end.error.unwrap().contains("a waker's bug"));
    }
    assert!(matches!(engine.health(), Health::Failed(why) if why.contains("a waker's bug")));
    // Nothing is left, and the numbers say so.
    until("it is idle", || engine.is_idle());
    let now = engine.stats().scheduler;
    assert_eq!((now.num_running, now.num_waiting, now.num_in_flight, now.kv.used), (0, 0, 0, 0));
    assert_eq!(now.kv.total(), 256);
    assert!(engine.metrics().text().contains("vllm:num_requests_running{engine=\"0\",model_name=\"buggy\"} 0\n"));
    assert!(engine.generate(request(1, 10, 3)).is_err());
    assert_eq!(engine.drain(Duration::from_secs(3)).blocking(), 0);
}
