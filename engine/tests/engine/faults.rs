//! What goes wrong on the device, and whom it concerns.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use tegula_engine::engine::{
    FaultLog, Health, Heartbeat, ModelInfo, Request, RowFault, Scripted, Step, StepFault, StepModel, StepResult,
    SubmitError, Work,
};
use tegula_engine::metrics::{Ended, Observer};
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::{Event, FinishReason};

use super::support::{Checked, assert_alone, exactly, model, prompt, request, start, until};

/// An engine whose steps a function decides on.
fn faulty(hook: impl FnMut(u64, &Work) -> Step + Send + 'static) -> Checked {
    start(model(4, 256).before_each_step(hook), |b| b)
}

fn is_of(work: &Work, request: u64) -> bool {
    work.plan.rows.iter().any(|row| row.id.request == request)
}

#[test]
fn a_row_ends_its_own_sequence() {
    // Of the second request, its third token.
    let engine = faulty(|_, work| {
        let row = work.plan.sampling_rows().position(|(_, row)| row.id.request == 1 && row.start == 11);
        row.map_or(Step::Run, |row| Step::FailRow(row, "no logits".into()))
    });
    let all: Vec<_> = (0..3).map(|i| engine.generate(request(i, 10, 20)).unwrap()).collect();
    for (i, generation) in all.into_iter().enumerate() {
        let completion = generation.wait();
        if i != 1 {
            assert_alone(&completion, &prompt(i as u32, 10), &exactly(20), 1000);
            continue;
        }
        let end = completion.answers[0].end.as_ref().unwrap();
        assert_eq!((end.reason, end.error.as_deref()), (FinishReason::Error, Some("no logits")));
        assert_eq!(completion.answers[0].tokens.len(), 2);
    }
    assert_eq!(engine.health(), Health::Ready);
    assert!(
        engine.metrics().text().contains("vllm:corrupted_requests_total{engine=\"0\",model_name=\"scripted\"} 1\n")
    );
}

/// A row whose form cannot be followed ends its sequence too, but says nothing of the model's logits.
#[test]
fn a_form_that_cannot_be_followed_is_no_corruption() {
    struct Formless(Scripted);
    impl StepModel for Formless {
        fn info(&self) -> ModelInfo {
            self.0.info()
        }
        fn run(&mut self, work: &Work, beat: &Heartbeat) -> Result<StepResult, StepFault> {
            let mut result = self.0.run(work, beat)?;
            result.rows.iter_mut().for_each(|row| row.fault = Some(RowFault::Form("no way on".into())));
            Ok(result)
        }
    }
    let engine = start(Formless(model(4, 64)), |b| b);
    let completion = engine.generate(request(1, 10, 5)).unwrap().wait();
    let end = completion.answers[0].end.as_ref().unwrap();
    assert_eq!((end.reason, end.error.as_deref()), (FinishReason::Error, Some("no way on")));
    let text = engine.metrics().text();
    assert!(text.contains("vllm:corrupted_requests_total{engine=\"0\",model_name=\"scripted\"} 0\n"));
}

#[test]
fn a_step_ends_those_it_was_for() {
    for panics in [false, true] {
        // A step that the first two are in, and the third, which waits for a place, is not.
        let slow = model(4, 256).before_each_step(move |step, work| match step {
            5 if panics => panic!("a bug in a kernel"),
            5 => Step::Fail("a kernel failed".into()),
            _ => {
                assert!(step > 5 || !is_of(work, 2));
                Step::Run
            }
        });
        let engine = start(slow, |b| b.max_num_seqs(2));
        let all: Vec<_> = (0..3).map(|i| engine.generate(request(i, 10, 20)).unwrap()).collect();
        for (i, generation) in all.into_iter().enumerate() {
            let completion = generation.wait();
            if i == 2 {
                assert_alone(&completion, &prompt(2, 10), &exactly(20), 1000);
                continue;
            }
            let end = completion.answers[0].end.as_ref().unwrap();
            let why = if panics { "a panic: a bug in a kernel" } else { "a kernel failed" };
            assert_eq!((end.reason, end.error.as_deref()), (FinishReason::Error, Some(why)));
        }
        engine.until_idle();
        let stats = engine.stats();
        assert_eq!((engine.health(), stats.num_failed_steps), (Health::Ready, 1));
        assert!(stats.num_steps > 20);
    }
}

/// A step that fails while the next, which is for others too, is in flight: only those of the first end.
#[test]
fn who_joins_after_a_failed_step_goes_on() {
    let (entered, steps) = channel();
    let (release, go_on) = channel::<Step>();
    let held = model(4, 256).before_each_step(move |step, _| {
        entered.send(step).unwrap();
        go_on.recv().unwrap_or(Step::Run)
    });
    let engine = start(held, |b| b.max_num_seqs(4).max_num_batched_tokens(10));
    // While this one's only step is held, two come. The first takes all of step 1, the second comes with step 2.
    let plug = engine.generate(request(0, 10, 1)).unwrap();
    assert_eq!(steps.recv().unwrap(), 0);
    let [first, second] = [1, 2].map(|i| engine.generate(request(i, 10, 20)).unwrap());
    release.send(Step::Run).unwrap();
    assert_eq!(steps.recv().unwrap(), 1);
    until("step 2 is planned", || engine.stats().scheduler.num_running == 2);
    release.send(Step::Fail("once".into())).unwrap();
    drop(release);
    assert_eq!(plug.wait().answers[0].tokens.len(), 1);
    assert_eq!(first.wait().answers[0].end.as_ref().unwrap().reason, FinishReason::Error);
    assert_alone(&second.wait(), &prompt(2, 10), &exactly(20), 1000);
    assert_eq!(engine.stats().num_failed_steps, 1);
}

/// Three in a row are the end: all requests end, health says why, nothing more is taken, and asking is answered at once.
#[test]
fn three_failed_steps_in_a_row_are_the_end() {
    let mut engine =
        faulty(|step, _| if !(2..=10).contains(&step) { Step::Fail(format!("step {step}")) } else { Step::Run });
    // Two in a row are not.
    for i in 0..2 {
        assert!(engine.generate(request(i, 10, 1)).unwrap().wait().answers[0].tokens.is_empty());
    }
    assert_alone(&engine.generate(request(1, 10, 8)).unwrap().wait(), &prompt(1, 10), &exactly(8), 1000);
    assert_eq!(engine.health(), Health::Ready);
    engine.until_idle();
    let failed = |engine: &Checked| matches!(engine.health(), Health::Failed(_));
    while !failed(&engine) {
        match engine.generate(request(1, 10, 8)) {
            Ok(generation) => drop(generation.wait()),
            Err(error) => assert!(matches!(error, SubmitError::Failed(_)), "{error}"),
        }
    }
    let Health::Failed(why) = engine.health() else { panic!() };
    assert!(why.starts_with("3 steps failed one after the other; the last: step 1"), "{why}");
    let Err(SubmitError::Failed(told)) = engine.generate(request(1, 10, 8)) else { panic!() };
    assert_eq!(told, why);
    assert!(engine.is_idle());
    engine.expect_failed();
}

/// A request that its steps fail for fails two of them, one of which is for nobody any more: it counts once, so that two
/// such requests are not the end of the engine.
#[test]
fn two_bad_requests_are_not_the_end() {
    for overlap in [true, false] {
        let model = model(4, 64).step_time(Duration::from_millis(1)).before_each_step(|_, work| {
            if is_of(work, 0) || is_of(work, 1) { Step::Fail("bad".into()) } else { Step::Run }
        });
        let engine = start(model, |b| b.overlap(overlap));
        for i in 0..2 {
            let completion = engine.generate(request(i, 10, 5)).unwrap().wait();
            assert_eq!(completion.answers[0].end.as_ref().unwrap().error.as_deref(), Some("bad"));
            engine.until_idle();
        }
        assert_alone(&engine.generate(request(2, 10, 5)).unwrap().wait(), &prompt(2, 10), &exactly(5), 1000);
        assert_eq!(engine.health(), Health::Ready);
    }
}

/// The prompt's log-probabilities are computed with the first sample only. When that fails the others cannot be answered as
/// they were asked for, and are not answered half.
#[test]
fn lost_log_probabilities_are_an_error() {
    let scripted =
        model(4, 64).before_each_step(|step, _| if step == 0 { Step::Fail("bad".into()) } else { Step::Run });
    let engine = start(scripted, |b| b.max_num_batched_tokens(64).max_num_seqs(1));
    let params = SamplingParams { n: 2, seed: Some(1), temperature: 1.0, prompt_logprobs: Some(0), ..exactly(3) };
    let ask = || engine.generate(Request::new(prompt(1, 30), params.clone())).unwrap().wait();
    let completion = ask();
    let errors = completion.answers.iter().map(|answer| answer.end.clone().unwrap().error.unwrap());
    let lost = "the log-probabilities of its prompt were lost in a step that failed";
    assert_eq!(errors.collect::<Vec<_>>(), ["bad", lost]);
    assert!(completion.answers.iter().all(|answer| answer.tokens.is_empty()));
    assert_eq!(completion.prompt_logprobs, None);
    let again = ask();
    assert_alone(&again, &prompt(1, 30), &params, 1000);
    assert_eq!(again.prompt_logprobs.unwrap().iter().flatten().count(), 29);
}

/// A step that was planned ahead of a failure, and is for nobody, succeeds: that is no sign that the device is well.
#[test]
fn steps_for_nobody_do_not_count() {
    for overlap in [true, false] {
        let model = model(4, 64).before_each_step(|_, work| match work.starts.is_empty() {
            true => Step::Run,
            false => {
                std::thread::sleep(Duration::from_millis(5));
                Step::Fail("whoever starts".into())
            }
        });
        let mut engine = start(model, |b| b.overlap(overlap));
        for i in 0..3 {
            assert_eq!(engine.health(), Health::Ready);
            drop(engine.generate(request(i, 10, 5)).unwrap().wait());
            until("it is over", || engine.stats().scheduler.num_in_flight == 0);
        }
        assert!(matches!(engine.health(), Health::Failed(_)));
        engine.expect_failed();
    }
}

/// An observer that panics costs nobody an answer, and no other observer its news.
#[test]
fn an_observer_that_panics_ends_nothing() {
    struct Panics;
    impl Observer for Panics {
        fn ended(&self, ended: &Ended<'_>) {
            panic!("of {}", ended.asked.id);
        }
    }
    let engine = start(model(4, 256), |b| b.observer(Arc::new(Panics)));
    let all: Vec<_> = (0..6).map(|i| engine.generate(request(i, 10, 5)).unwrap()).collect();
    for (i, generation) in all.into_iter().enumerate() {
        assert_alone(&generation.wait(), &prompt(i as u32, 10), &exactly(5), 1000);
    }
    assert_eq!((engine.health(), engine.ended().len()), (Health::Ready, 6));
}

#[test]
fn a_lost_device_is_the_end() {
    let mut engine = faulty(|step, _| if step == 3 { Step::Lose("it fell off the bus".into()) } else { Step::Run });
    let all: Vec<_> = (0..5).map(|i| engine.generate(request(i, 10, 50)).unwrap()).collect();
    for generation in all {
        let completion = generation.wait();
        let end = completion.answers.first().and_then(|answer| answer.end.clone()).unwrap();
        assert_eq!(end.reason, FinishReason::Error);
        assert_eq!(end.error.as_deref(), Some("the device is lost: it fell off the bus"));
    }
    assert_eq!(engine.health(), Health::Failed("the device is lost: it fell off the bus".into()));
    assert_eq!(engine.drain(Duration::from_secs(5)).blocking(), 0);
    engine.expect_failed();
}

/// What led to a failed step is on disk, for its owner alone, and leads to the same plan again.
#[test]
fn a_failed_step_can_be_planned_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/yet/there");
    let (seen, failed) = channel();
    let hook = move |step, work: &Work| {
        if step % 9 != 7 {
            return Step::Run;
        }
        seen.send(work.plan.clone()).unwrap();
        Step::Fail("every ninth".into())
    };
    let model = model(4, 40).before_each_step(hook);
    let engine = start(model, |b| b.max_num_seqs(4).max_num_batched_tokens(16).fault_log(&path));
    let all: Vec<_> = (0..60).map(|i| engine.generate(request(i % 5, 30, 20)).unwrap()).collect();
    all.into_iter().for_each(|generation| drop(generation.wait()));
    engine.until_idle();
    // With it all logs are written.
    drop(engine);
    let mut logs: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.sort();
    let plans: Vec<_> = failed.try_iter().collect();
    assert!(plans.len() >= 8, "{}", plans.len());
    // The first few; disks are finite.
    assert_eq!(logs.len(), 8);
    for log in &logs {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
            assert_eq!(std::fs::metadata(log).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let read = FaultLog::read(log).unwrap();
        assert_eq!((read.error.as_str(), read.model.as_str()), ("every ninth", "scripted"));
        let plan = plans.iter().find(|plan| plan.step == read.step).unwrap();
        let logged = read.log.entries.iter().filter_map(|entry| entry.plan.as_ref());
        assert!(logged.into_iter().any(|of| of == plan), "the log has the plan that failed");
        assert!(read.log.entries.iter().any(|entry| matches!(entry.event, Event::Add(_))));
        let scheduler = read.log.replay().unwrap();
        scheduler.check_integrity().unwrap();
        assert!(scheduler.has_steps_in_flight());
    }
    assert!(FaultLog::read(folder.path().join("none")).is_err());
}

/// A server that is started again and again does not fill the disk.
#[test]
fn a_folder_of_logs_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..62 {
        std::fs::write(folder.path().join(format!("fault-{n}-step-1.json")), "").unwrap();
    }
    for _ in 0..2 {
        let model =
            model(4, 40).before_each_step(|step, _| if step % 2 == 1 { Step::Fail("x".into()) } else { Step::Run });
        let engine = start(model, |b| b.fault_log(folder.path()));
        (0..3).for_each(|_| drop(engine.generate(request(1, 10, 5)).unwrap().wait()));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 64);
}

/// A folder that cannot be written to costs the log, and nothing else.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let model = model(4, 40).before_each_step(|step, _| if step == 1 { Step::Fail("x".into()) } else { Step::Run });
    let engine = start(model, |b| b.fault_log(file.path()));
    assert_eq!(engine.generate(request(1, 10, 5)).unwrap().wait().answers[0].tokens.len(), 1);
    assert_alone(&engine.generate(request(1, 10, 5)).unwrap().wait(), &prompt(1, 10), &exactly(5), 1000);
}
