use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::engine::{SampleEnd, Times};
use crate::kv::{KvUsage, PrefixCacheStats};
use crate::sampling::SamplingParams;

/// Prometheus' text, read back by its own rules: values by `name{labels}`, types by name.
struct Scrape {
    types: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

impl Scrape {
    fn of(metrics: &Metrics) -> Scrape {
        let (mut types, mut values) = (BTreeMap::new(), BTreeMap::new());
        for line in metrics.text().lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "{name} is there twice");
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.split_once(' ').is_some_and(|(_, help)| help.ends_with('.')), "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let labels = "engine=\"3\"";
                assert!(series.contains(labels) && series.contains("model_name=\"tiny\""), "{series}");
                let series = series.replace(labels, "").replace("model_name=\"tiny\"", "");
                let kept: Vec<&str> = series.split(['{', ',', '}']).filter(|part| !part.is_empty()).collect();
                let key =
                    if kept.len() > 1 { format!("{}{{{}}}", kept[0], kept[1..].join(",")) } else { kept[0].into() };
                assert_eq!(values.insert(key, value.parse().unwrap()), None, "{series} is there twice");
            }
        }
        Scrape { types, values }
    }

    fn get(&self, series: &str) -> f64 {
        *self.values.get(series).unwrap_or_else(|| panic!("{series} is not among {:?}", self.values.keys()))
    }
}

fn tiny() -> Labels {
    Labels { block_size: 16, num_blocks: 640, ..Labels::new("tiny", 3, 2000) }
}

fn params(n: u32, max_tokens: Option<usize>) -> SamplingParams {
    SamplingParams { n, max_tokens, ..SamplingParams::default() }
}

/// Everything that is exposed. Names that begin with `vllm:` are an interface that others read.
#[test]
fn names_and_types_are_those_that_others_read() {
    let scrape = Scrape::of(&Metrics::new(&tiny()));
    let found: Vec<String> = scrape.types.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let expected = [
        "tegula_discarded_rows_total counter",
        "tegula_failed_steps_total counter",
        "tegula_kv_blocks gauge",
        "tegula_last_step_age_seconds gauge",
        "tegula_steps_total counter",
        "vllm:cache_config_info gauge",
        "vllm:corrupted_requests_total counter",
        "vllm:e2e_request_latency_seconds histogram",
        "vllm:engine_sleep_state gauge",
        "vllm:generation_tokens_total counter",
        "vllm:inter_token_latency_seconds histogram",
        "vllm:iteration_tokens_total histogram",
        "vllm:kv_cache_usage_perc gauge",
        "vllm:lora_requests_info gauge",
        "vllm:num_preemptions_total counter",
        "vllm:num_requests_running gauge",
        "vllm:num_requests_waiting gauge",
        "vllm:num_requests_waiting_by_reason gauge",
        "vllm:prefix_cache_hits_total counter",
        "vllm:prefix_cache_queries_total counter",
        "vllm:prompt_tokens_by_source_total counter",
        "vllm:prompt_tokens_cached_total counter",
        "vllm:prompt_tokens_total counter",
        "vllm:request_decode_time_seconds histogram",
        "vllm:request_generation_tokens histogram",
        "vllm:request_inference_time_seconds histogram",
        "vllm:request_max_num_generation_tokens histogram",
        "vllm:request_params_max_tokens histogram",
        "vllm:request_params_n histogram",
        "vllm:request_prefill_kv_computed_tokens histogram",
        "vllm:request_prefill_time_seconds histogram",
        "vllm:request_prompt_tokens histogram",
        "vllm:request_queue_time_seconds histogram",
        "vllm:request_success_total counter",
        "vllm:request_time_per_output_token_seconds histogram",
        "vllm:time_to_first_token_seconds histogram",
    ];
    assert_eq!(found, expected);
}

/// The series that are there before anything happened, so that rates over them have a beginning.
#[test]
fn every_value_of_a_label_is_there_from_the_start() {
    let scrape = Scrape::of(&Metrics::new(&tiny()));
    let zero = |series: &str| assert_eq!(scrape.get(series), 0.0, "{series}");
    for reason in ["stop", "length", "abort", "error"] {
        zero(&format!("vllm:request_success_total{{finished_reason=\"{reason}\"}}"));
    }
    for reason in ["capacity", "deferred"] {
        zero(&format!("vllm:num_requests_waiting_by_reason{{reason=\"{reason}\"}}"));
    }
    for source in ["local_compute", "local_cache_hit"] {
        zero(&format!("vllm:prompt_tokens_by_source_total{{source=\"{source}\"}}"));
    }
    zero("vllm:engine_sleep_state{sleep_state=\"weights_offloaded\"}");
    zero("vllm:engine_sleep_state{sleep_state=\"discard_all\"}");
    assert_eq!(scrape.get("vllm:engine_sleep_state{sleep_state=\"awake\"}"), 1.0);
    let config = "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"f16\",enable_prefix_caching=\"True\",\
                  num_cpu_blocks=\"None\",num_gpu_blocks=\"640\"}";
    assert_eq!(scrape.get(config), 1.0);
    let adapters = "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"}";
    assert!(scrape.get(adapters) > 1.7e9, "seconds since 1970");
}

#[test]
fn buckets_are_those_of_dashboards() {
    let scrape = Scrape::of(&Metrics::new(&tiny()));
    let bounds = |name: &str| -> String {
        let prefix = format!("{name}_bucket{{le=\"");
        let bound = |series: &String| Some(series.strip_prefix(&prefix)?.strip_suffix("\"}")?.to_owned());
        let mut bounds: Vec<String> = scrape.values.keys().filter_map(bound).collect();
        bounds.sort_by(|a, b| a.parse::<f64>().unwrap().total_cmp(&b.parse().unwrap()));
        bounds.join(" ")
    };
    let first = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560 +Inf";
    let next = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80 +Inf";
    let request = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680 +Inf";
    let tokens = "1 2 5 10 20 50 100 200 500 1000 2000 +Inf";
    let step = "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 +Inf";
    for (name, expected) in [
        ("vllm:time_to_first_token_seconds", first),
        ("vllm:inter_token_latency_seconds", next),
        ("vllm:request_time_per_output_token_seconds", next),
        ("vllm:e2e_request_latency_seconds", request),
        ("vllm:request_queue_time_seconds", request),
        ("vllm:request_inference_time_seconds", request),
        ("vllm:request_prefill_time_seconds", request),
        ("vllm:request_decode_time_seconds", request),
        ("vllm:request_prompt_tokens", tokens),
        ("vllm:request_generation_tokens", tokens),
        ("vllm:request_max_num_generation_tokens", tokens),
        ("vllm:request_params_max_tokens", tokens),
        ("vllm:request_prefill_kv_computed_tokens", tokens),
        ("vllm:request_params_n", "1 2 5 10 20 +Inf"),
        ("vllm:iteration_tokens_total", step),
    ] {
        assert_eq!(bounds(name), expected, "{name}");
    }
}

#[test]
fn bounds_of_tokens_reach_as_far_as_the_longest_sequence() {
    assert_eq!(buckets::tokens(0), [1.0]);
    assert_eq!(buckets::tokens(1), [1.0]);
    assert_eq!(buckets::tokens(19), [1.0, 2.0, 5.0, 10.0]);
    assert_eq!(buckets::tokens(20), [1.0, 2.0, 5.0, 10.0, 20.0]);
    assert_eq!(buckets::tokens(131_072).last(), Some(&100_000.0));
}

#[test]
fn a_model_may_have_any_name() {
    let metrics = Metrics::new(&Labels::new("a \"b\"\\c\nd", 0, 8));
    assert!(metrics.text().contains(r#"model_name="a \"b\"\\c\nd""#), "{}", metrics.text());
}

#[test]
fn the_scheduler_is_shown_as_it_is() {
    let metrics = Metrics::new(&tiny());
    let stats = SchedulerStats {
        num_running: 5,
        num_waiting: 7,
        num_deferred: 3,
        num_in_flight: 1,
        num_preemptions: 11,
        num_discarded_rows: 13,
        kv: KvUsage { used: 30, cached: 50, unused: 20 },
        prefix_cache: PrefixCacheStats { queries: 170, hits: 64 },
    };
    metrics.step(48, &stats);
    metrics.step_failed(&SchedulerStats { num_preemptions: 12, ..stats });
    let scrape = Scrape::of(&metrics);
    for (series, expected) in [
        ("vllm:num_requests_running", 5.0),
        ("vllm:num_requests_waiting", 7.0),
        ("vllm:num_requests_waiting_by_reason{reason=\"capacity\"}", 4.0),
        ("vllm:num_requests_waiting_by_reason{reason=\"deferred\"}", 3.0),
        ("vllm:kv_cache_usage_perc", 0.3),
        ("tegula_kv_blocks{state=\"used\"}", 30.0),
        ("tegula_kv_blocks{state=\"cached\"}", 50.0),
        ("tegula_kv_blocks{state=\"unused\"}", 20.0),
        ("vllm:prefix_cache_queries_total", 170.0),
        ("vllm:prefix_cache_hits_total", 64.0),
        ("vllm:num_preemptions_total", 12.0),
        ("tegula_discarded_rows_total", 13.0),
        ("tegula_steps_total", 1.0),
        ("tegula_failed_steps_total", 1.0),
        ("vllm:iteration_tokens_total_sum", 48.0),
        ("vllm:iteration_tokens_total_count", 1.0),
    ] {
        assert_eq!(scrape.get(series), expected, "{series}");
    }
}

#[test]
fn a_step_is_awaited_only_while_there_is_work() {
    let metrics = Metrics::new(&tiny());
    let (idle, busy) = (SchedulerStats::default(), SchedulerStats { num_waiting: 1, ..SchedulerStats::default() });
    let wait = || std::thread::sleep(Duration::from_millis(30));
    wait();
    assert_eq!(metrics.last_step_age(), Duration::ZERO);
    // Work after a long time: the wait begins with it, and goes on when more comes.
    metrics.scheduler(&busy);
    assert!(metrics.last_step_age() < Duration::from_millis(30));
    wait();
    metrics.scheduler(&busy);
    assert!(metrics.last_step_age() >= Duration::from_millis(30));
    assert!(Scrape::of(&metrics).get("tegula_last_step_age_seconds") >= 0.03);
    metrics.step(1, &busy);
    assert!(metrics.last_step_age() < Duration::from_millis(30));
    wait();
    metrics.step(1, &idle);
    assert_eq!(metrics.last_step_age(), Duration::ZERO);
}

#[test]
fn intervals_are_counted_between_the_right_moments() {
    let arrival = Instant::now();
    let at = |ms: u64| arrival + Duration::from_millis(ms);
    let times = Times {
        arrival,
        queued: at(3),
        scheduled: Some(at(13)),
        first_token: Some(at(113)),
        last_token: Some(at(613)),
        finished: at(614),
    };
    let end = |times, reason, num_output_tokens| SampleEnd {
        sample: 0,
        reason,
        stop: None,
        text: String::new(),
        num_output_tokens,
        num_preemptions: 0,
        error: None,
        times,
    };
    let metrics = Metrics::new(&tiny());
    let asked = Asked::new("a", 40, &params(1, Some(9)), None);
    let done = end(times, FinishReason::Length, 6);
    metrics.ended(&Ended { asked: &asked, end: &done, num_cached_tokens: 16, longest: Some(6) });
    // One that waits, and is given up before its first step.
    let times = Times { scheduled: None, first_token: None, last_token: None, finished: at(1003), ..times };
    let gone = end(times, FinishReason::Abort, 0);
    metrics.ended(&Ended { asked: &asked, end: &gone, num_cached_tokens: 0, longest: Some(0) });

    let scrape = Scrape::of(&metrics);
    for (name, count, sum) in [
        ("vllm:request_queue_time_seconds", 2.0, 0.010 + 1.0),
        ("vllm:request_prefill_time_seconds", 1.0, 0.1),
        ("vllm:request_decode_time_seconds", 1.0, 0.5),
        ("vllm:request_inference_time_seconds", 1.0, 0.6),
        ("vllm:e2e_request_latency_seconds", 2.0, 0.614 + 1.003),
        ("vllm:request_time_per_output_token_seconds", 1.0, 0.1),
        ("vllm:request_prompt_tokens", 2.0, 80.0),
        ("vllm:request_generation_tokens", 2.0, 6.0),
        ("vllm:request_prefill_kv_computed_tokens", 2.0, 24.0 + 40.0),
        ("vllm:request_params_max_tokens", 2.0, 18.0),
    ] {
        assert_eq!(scrape.get(&format!("{name}_count")), count, "{name}");
        let found = scrape.get(&format!("{name}_sum"));
        assert!((found - sum).abs() < 1e-9, "{name}: {found}, expected {sum}");
    }
    assert_eq!(scrape.get("vllm:request_success_total{finished_reason=\"length\"}"), 1.0);
    assert_eq!(scrape.get("vllm:request_success_total{finished_reason=\"abort\"}"), 1.0);
}

/// A request of the test below: tokens of its prompt and those cached, and of each sample its tokens and its end.
#[derive(Clone, Debug)]
struct Story {
    prompt: usize,
    cached: usize,
    max_tokens: Option<usize>,
    samples: Vec<(usize, FinishReason)>,
}

fn story() -> impl Strategy<Value = Story> {
    let reason = prop::sample::select(REASONS.to_vec());
    let samples = prop::collection::vec((0usize..30, reason), 1..4);
    (1usize..300, 0usize..300, prop::option::of(1usize..100), samples).prop_map(
        |(prompt, cached, max_tokens, samples)| Story { prompt, cached: cached.min(prompt - 1), max_tokens, samples },
    )
}

proptest! {
    /// What the module says is counted when, on requests of all kinds.
    #[test]
    fn counts_and_sums_agree_with_what_readers_were_told(stories in prop::collection::vec(story(), 0..20)) {
        let metrics = Metrics::new(&tiny());
        let now = Instant::now();
        let mut reasons = BTreeMap::new();
        let (mut usage, mut first_tokens) = ((0, 0), 0);
        for story in &stories {
            let asked = Asked::new("x", story.prompt, &params(story.samples.len() as u32, story.max_tokens), None);
            if story.samples.iter().any(|(tokens, _)| *tokens > 0) {
                metrics.prompt(story.prompt, story.cached);
                usage.0 += story.prompt;
            }
            let longest = story.samples.iter().map(|(tokens, _)| *tokens).max();
            for (sample, (tokens, reason)) in story.samples.iter().enumerate() {
                if *tokens > 0 {
                    metrics.first_token(Duration::from_millis(5));
                    first_tokens += 1;
                }
                (1..*tokens).for_each(|_| metrics.next_token(Duration::from_millis(2)));
                usage.1 += tokens;
                *reasons.entry(reason.as_str()).or_insert(0) += 1;
                let moment = (*tokens > 0).then_some(now);
                let (first_token, last_token) = (moment, moment);
                let times = Times { arrival: now, queued: now, scheduled: moment, first_token, last_token, finished: now };
                let end = SampleEnd {
                    sample: sample as u32,
                    reason: *reason,
                    stop: None,
                    text: String::new(),
                    num_output_tokens: *tokens,
                    num_preemptions: 0,
                    error: None,
                    times,
                };
                let longest = longest.filter(|_| sample + 1 == story.samples.len());
                metrics.ended(&Ended { asked: &asked, end: &end, num_cached_tokens: story.cached, longest });
            }
        }
        let scrape = Scrape::of(&metrics);
        let is = |series: &str, expected: usize| prop_assert_eq_f64(&scrape, series, expected);
        for reason in REASONS.map(FinishReason::as_str) {
            let ended = reasons.get(reason).copied().unwrap_or(0);
            is(&format!("vllm:request_success_total{{finished_reason=\"{reason}\"}}"), ended)?;
        }
        is("vllm:time_to_first_token_seconds_count", first_tokens)?;
        is("vllm:generation_tokens_total", usage.1)?;
        is("vllm:inter_token_latency_seconds_count", usage.1 - first_tokens)?;
        is("vllm:request_generation_tokens_sum", usage.1)?;
        is("vllm:prompt_tokens_total", usage.0)?;
        let cached: usize =
            stories.iter().filter(|s| s.samples.iter().any(|(tokens, _)| *tokens > 0)).map(|s| s.cached).sum();
        is("vllm:prompt_tokens_cached_total", cached)?;
        is("vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"}", cached)?;
        is("vllm:prompt_tokens_by_source_total{source=\"local_compute\"}", usage.0 - cached)?;
        is("vllm:request_params_n_count", stories.len())?;
        is("vllm:request_params_n_sum", stories.iter().map(|s| s.samples.len()).sum())?;
        is("vllm:request_prompt_tokens_sum", stories.iter().map(|s| s.prompt).sum())?;
        is("vllm:request_params_max_tokens_count", stories.iter().filter(|s| s.max_tokens.is_some()).count())?;
    }
}

fn prop_assert_eq_f64(scrape: &Scrape, series: &str, expected: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(scrape.get(series), expected as f64, "{}", series);
    Ok(())
}
