//! What the metrics say, against what readers were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tegula_engine::engine::{Completion, Engine, Request, SampleEnd, Scripted, Step, Update};
use tegula_engine::metrics::{Ended, Observer};
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::FinishReason;
use tegula_engine::tokenizer::small::small;

/// Values by `name{labels}`, without the labels that all have.
fn scrape(engine: &Engine) -> BTreeMap<String, f64> {
    let text = engine.metrics().text();
    let values = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap());
    let plain = |series: &str| {
        let (name, labels) = series.split_once('{').unwrap();
        let labels = labels.trim_end_matches('}').split(',');
        let labels: Vec<&str> = labels.filter(|l| !l.starts_with("engine=") && !l.starts_with("model_name=")).collect();
        if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
    };
    values.map(|(series, value)| (plain(series), value.parse().unwrap())).collect()
}

fn ended(found: &BTreeMap<String, f64>, reason: FinishReason) -> f64 {
    found[&format!("vllm:request_success_total{{finished_reason=\"{}\"}}", reason.as_str())]
}

/// Keeps what an observer is told of each end: the request's name, the sample, the reason, the tokens.
#[derive(Default)]
struct Book(Mutex<Vec<(String, u32, FinishReason, usize)>>);

impl Observer for Book {
    fn ended(&self, ended: &Ended<'_>) {
        let SampleEnd { sample, reason, num_output_tokens, .. } = *ended.end;
        self.0.lock().unwrap().push((ended.asked.id.clone(), sample, reason, num_output_tokens));
    }
}

fn wait_idle(engine: &Engine) {
    let started = Instant::now();
    // The last step may still run, for nobody.
    while !engine.is_idle() || engine.stats().scheduler.num_in_flight > 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", engine.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Nothing runs, waits or is held; every block is where it belongs.
fn check_idle(engine: &Engine) {
    wait_idle(engine);
    let found = scrape(engine);
    let names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"];
    for name in names.into_iter().chain(["tegula_kv_blocks{state=\"used\"}", "tegula_last_step_age_seconds"]) {
        assert_eq!(found[name], 0.0, "{name}");
    }
    let free = found["tegula_kv_blocks{state=\"cached\"}"] + found["tegula_kv_blocks{state=\"unused\"}"];
    assert_eq!(free, f64::from(engine.info().num_blocks));
    assert_eq!(engine.check_integrity(), Ok(()));
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It is read to its end.
    Read,
    /// Its reader leaves after so many updates.
    Leave(usize),
}

#[derive(Clone, Debug)]
struct Asked {
    prompt: Vec<u32>,
    n: u32,
    max_tokens: usize,
    fate: Fate,
}

fn asked() -> impl Strategy<Value = Asked> {
    let fate = prop_oneof![3 => Just(Fate::Read), 2 => (0usize..40).prop_map(Fate::Leave)];
    // Prompts that share beginnings, longer than a block.
    let prompt =
        (0usize..3, 1usize..60).prop_map(|(which, len)| (0..len).map(|i| 32 + (which * 7 + i) as u32 % 90).collect());
    (prompt, 1u32..4, 1usize..40, fate).prop_map(|(prompt, n, max_tokens, fate)| Asked { prompt, n, max_tokens, fate })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Requests of all kinds at once, some given up, in a cache small enough to preempt, with rows and steps that fail:
    /// when all have ended, the metrics say what their readers and the observer were told.
    #[test]
    fn metrics_agree_with_what_readers_were_told(
        requests in prop::collection::vec(asked(), 1..16),
        faults in prop::collection::vec((1u64..60, any::<bool>()), 0..4),
    ) {
        let book = Arc::new(Book::default());
        let faults: BTreeMap<u64, bool> = faults.into_iter().collect();
        let model = Scripted::new(257, 16, 12, 160).before_each_step(move |step, _| match faults.get(&step) {
            None => Step::Run,
            Some(true) => Step::Fail("a step that fails".into()),
            Some(false) => Step::FailRow(0, "a row that fails".into()),
        });
        let engine = Engine::builder("demo")
            .observer(book.clone())
            .build_on(model, Arc::new(small(&[], &["<end>"])), None)
            .unwrap();
        let mut usage = (0, 0);
        let mut left = vec![];
        let mut readers = vec![];
        for (number, asked) in requests.iter().enumerate() {
            let params = SamplingParams {
                n: asked.n,
                temperature: 1.0,
                seed: Some(number as u64),
                max_tokens: Some(asked.max_tokens),
                ..SamplingParams::default()
            };
            let id = Some(format!("request {number}"));
            let generation = engine.generate(Request { id, ..Request::new(asked.prompt.clone(), params) }).unwrap();
            match asked.fate {
                Fate::Read => readers.push((number, std::thread::spawn(move || {
                    let mut completion = Completion::default();
                    generation.blocking().for_each(|update| completion.push(update));
                    completion
                }))),
                Fate::Leave(after) => left.push((number, std::thread::spawn(move || {
                    generation.blocking().take(after).filter(|update| matches!(update, Update::Token(_))).count()
                }))),
            }
        }
        let mut reasons: BTreeMap<FinishReason, usize> = BTreeMap::new();
        let mut first_tokens = 0;
        for (number, reader) in readers {
            let completion = reader.join().unwrap();
            prop_assert_eq!(completion.answers.len(), requests[number].n as usize);
            if completion.answers.iter().any(|answer| !answer.tokens.is_empty()) {
                usage.0 += completion.num_prompt_tokens;
            }
            for answer in &completion.answers {
                let end = answer.end.as_ref().unwrap();
                prop_assert_eq!(end.num_output_tokens, answer.tokens.len());
                usage.1 += answer.tokens.len();
                first_tokens += usize::from(!answer.tokens.is_empty());
                *reasons.entry(end.reason).or_insert(0) += 1;
            }
        }
        for (_, reader) in left {
            reader.join().unwrap();
        }
        check_idle(&engine);

        // Of those that were given up only the observer knows the end.
        let book = book.0.lock().unwrap();
        let given_up = |number: &usize| matches!(requests[*number].fate, Fate::Leave(_));
        for number in (0..requests.len()).filter(given_up) {
            let id = format!("request {number}");
            let ends: Vec<_> = book.iter().filter(|(of, ..)| *of == id).collect();
            prop_assert_eq!(ends.len(), requests[number].n as usize, "each sample ends once");
            usage.0 += if ends.iter().any(|end| end.3 > 0) { requests[number].prompt.len() } else { 0 };
            for (_, _, reason, tokens) in ends {
                usage.1 += tokens;
                first_tokens += usize::from(*tokens > 0);
                *reasons.entry(*reason).or_insert(0) += 1;
            }
        }
        let total: u32 = requests.iter().map(|asked| asked.n).sum();
        prop_assert_eq!(book.len(), total as usize);
        let found = scrape(&engine);
        for reason in [FinishReason::Stop, FinishReason::Length, FinishReason::Abort, FinishReason::Error] {
            prop_assert_eq!(ended(&found, reason), reasons.get(&reason).copied().unwrap_or(0) as f64, "{:?}", reason);
        }
        for (series, expected) in [
            ("vllm:e2e_request_latency_seconds_count", total as usize),
            ("vllm:time_to_first_token_seconds_count", first_tokens),
            ("vllm:inter_token_latency_seconds_count", usage.1 - first_tokens),
            ("vllm:generation_tokens_total", usage.1),
            ("vllm:request_generation_tokens_sum", usage.1),
            ("vllm:prompt_tokens_total", usage.0),
            ("vllm:request_params_n_count", requests.len()),
            ("vllm:request_params_n_sum", total as usize),
            ("vllm:request_params_max_tokens_sum", requests.iter().map(|asked| asked.max_tokens).sum()),
            ("vllm:request_prompt_tokens_sum", requests.iter().map(|asked| asked.prompt.len()).sum()),
        ] {
            prop_assert_eq!(found[series], expected as f64, "{}", series);
        }
        let (stats, sources) = (engine.stats(), "vllm:prompt_tokens_by_source_total{source=");
        let by_source = found[&format!("{sources}\"local_compute\"}}")] + found[&format!("{sources}\"local_cache_hit\"}}")];
        prop_assert_eq!(by_source, usage.0 as f64);
        prop_assert_eq!(found["vllm:prefix_cache_hits_total"], stats.scheduler.prefix_cache.hits as f64);
        prop_assert_eq!(found["vllm:num_preemptions_total"], stats.scheduler.num_preemptions as f64);
        prop_assert_eq!(found["tegula_discarded_rows_total"], stats.scheduler.num_discarded_rows as f64);
        prop_assert_eq!(found["tegula_steps_total"] + found["tegula_failed_steps_total"], stats.num_steps as f64);
        prop_assert_eq!(found["tegula_failed_steps_total"], stats.num_failed_steps as f64);
        prop_assert_eq!(found["vllm:iteration_tokens_total_count"], found["tegula_steps_total"]);
    }
}

/// Twenty readers leave at any token: nothing is left of their requests.
#[test]
fn nothing_is_left_of_requests_whose_readers_leave() {
    let model = Scripted::new(257, 16, 64, 512).step_time(Duration::from_micros(200));
    let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None).unwrap();
    for round in 1..3 {
        let readers = (0..20).map(|i| {
            let params = SamplingParams { max_tokens: Some(400), ignore_eos: true, ..SamplingParams::default() };
            let generation = engine.generate(Request::new(vec![65 + i as u32; 20], params)).unwrap();
            std::thread::spawn(move || generation.blocking().take(i * 3).count())
        });
        let readers: Vec<_> = readers.collect();
        let read: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(read, 3 * (19 * 20 / 2), "each has read as many updates as it wanted");
        check_idle(&engine);
        assert_eq!(ended(&scrape(&engine), FinishReason::Abort), f64::from(20 * round));
    }
}

/// All that runs and waits is ended at once: each end is told and counted.
#[test]
fn everybody_aborted_is_counted_as_such() {
    let model = Scripted::new(257, 16, 24, 512).step_time(Duration::from_millis(1));
    let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None).unwrap();
    let params = || SamplingParams {
        n: 2,
        max_tokens: Some(300),
        ignore_eos: true,
        temperature: 1.0,
        ..SamplingParams::default()
    };
    let generations: Vec<_> =
        (0..6).map(|i| engine.generate(Request::new(vec![70 + i; 100], params())).unwrap()).collect();
    let readers: Vec<_> =
        generations.into_iter().map(|g| std::thread::spawn(move || g.blocking().collect::<Vec<_>>())).collect();
    std::thread::sleep(Duration::from_millis(30));
    let found = scrape(&engine);
    assert!(
        found["vllm:num_requests_running"] > 0.0 && found["vllm:num_requests_waiting"] > 0.0,
        "{:?}",
        engine.stats()
    );
    assert!(found["vllm:kv_cache_usage_perc"] > 0.5);
    engine.abort_all();
    let mut ends = 0;
    for reader in readers {
        for update in reader.join().unwrap() {
            if let Update::Finished(end) = update {
                assert_eq!(end.reason, FinishReason::Abort);
                ends += 1;
            }
        }
    }
    assert_eq!(ends, 12);
    check_idle(&engine);
    assert_eq!(ended(&scrape(&engine), FinishReason::Abort), 12.0);
}

/// A device that hangs is seen in the metrics, which do not wait for it.
#[test]
fn a_step_that_does_not_end_grows_old() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let model = Scripted::new(257, 16, 64, 512).before_each_step(move |step, _| {
        if step == 2 {
            let _ = gate.recv();
        }
        Step::Run
    });
    let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None).unwrap();
    let params = SamplingParams { max_tokens: Some(8), ignore_eos: true, ..SamplingParams::default() };
    let generation = engine.generate(Request::new(vec![65; 20], params)).unwrap();
    let reader = std::thread::spawn(move || generation.blocking().count());
    std::thread::sleep(Duration::from_millis(150));
    let started = Instant::now();
    let found = scrape(&engine);
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
    assert!(found["tegula_last_step_age_seconds"] > 0.1, "{}", found["tegula_last_step_age_seconds"]);
    assert_eq!(found["vllm:num_requests_running"], 1.0);
    drop(go);
    assert_eq!(reader.join().unwrap(), 1 + 8 + 1);
    check_idle(&engine);
}

/// Keeps the events of requests, each as its fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "tegula::request"
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(BTreeMap<&'static str, String>);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.insert(field.name(), format!("{value:?}"));
            }
        }
        let mut fields = Fields(BTreeMap::from([("level", event.metadata().level().to_string())]));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Each sample's end is one line in the log, with numbers and names, and without what was said.
#[test]
fn an_end_is_a_line_without_texts() {
    let lines = Lines::default();
    // For all threads; the other tests' lines have other names.
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let secret: Vec<u32> = b"a secret, of more than a block".iter().map(|byte| u32::from(*byte)).collect();
    let model = Scripted::new(257, 16, 64, 512).answers(&secret);
    let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None).unwrap();
    let params = SamplingParams { n: 2, temperature: 1.0, max_tokens: Some(5), ..SamplingParams::default() };
    for name in ["logged 1", "logged 2"] {
        let traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        let request = Request { id: Some(name.into()), traceparent, ..Request::new(secret.clone(), params.clone()) };
        engine.generate(request).unwrap().blocking().for_each(drop);
    }
    let lines: Vec<_> = lines.0.lock().unwrap().iter().filter(|line| line["id"].contains("logged")).cloned().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (place, line) in lines.iter().enumerate() {
        let seconds = |name: &str| line[name].parse::<f64>().is_ok_and(|time| (0.0..10.0).contains(&time));
        for name in ["queue_s", "ttft_s", "tpot_s", "e2e_s"] {
            assert!(seconds(name), "{name} of {line:?}");
        }
        let cached = if place == 0 { "0" } else { "16" };
        for (name, expected) in [
            ("level", "INFO"),
            ("message", "request ended"),
            ("reason", "\"length\""),
            ("prompt_tokens", "30"),
            ("completion_tokens", "5"),
            ("preemptions", "0"),
            ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("cached_tokens", cached),
        ] {
            assert_eq!(line[name], expected, "{name} of line {place}");
        }
        assert_eq!(line["id"], format!("\"logged {}\"", place / 2 + 1));
        assert!(!line.contains_key("error") && !format!("{line:?}").contains("secret"), "{line:?}");
    }
}
