//! What a running engine tells the systems that watch and route: counters, gauges and histograms under vLLM's names, as
//! Prometheus text.
//!
//! The engine's thread calls [`Metrics`] as things happen; each call is a few atomic additions. Reading them
//! ([`Metrics::text`]) waits for nobody. Nothing is global: every engine has a registry of its own, and its metrics carry
//! the labels `model_name` and `engine`.
//!
//! # What is counted when
//!
//! A sample of a request counts as one request, as in vLLM, in all but these: the tokens of the prompt, the parameters `n`
//! and `max_tokens` and the longest answer are counted once for all samples. So, of any time in which all requests end,
//!
//! - the sum of `vllm:request_success_total` is the number of samples that ended, for whatever reason;
//! - the count of `vllm:time_to_first_token_seconds` is the number of those that had a token;
//! - the count of `vllm:inter_token_latency_seconds` and that of the former are, together, `vllm:generation_tokens_total`;
//! - `vllm:prompt_tokens_total` and `vllm:generation_tokens_total` are the sums of what the answers' `usage` says. (A
//!   prompt counts when its first answer has a token: one that is aborted before has no usage either.)
//!
//! ```
//! use std::time::Duration;
//! use tegula_engine::metrics::{Labels, Metrics};
//!
//! let metrics = Metrics::new(&Labels::new("smollm2", 0, 2048));
//! metrics.prompt(12, 0);
//! metrics.first_token(Duration::from_millis(30));
//! metrics.next_token(Duration::from_millis(20));
//! let text = metrics.text();
//! assert!(text.contains("vllm:generation_tokens_total{engine=\"0\",model_name=\"smollm2\"} 2\n"));
//! ```

mod buckets;
mod ended;
mod families;
#[cfg(test)]
mod tests;
mod times;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use prometheus::{Gauge, Histogram, IntCounter, IntGauge, Registry, TextEncoder};

pub use ended::{Asked, Ended, Observer};
use families::Families;

use crate::schedule::{FinishReason, SchedulerStats};

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What does not change while an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The name that the model is served under.
    pub model_name: String,
    /// Tells the engines of one process apart.
    pub engine: u32,
    /// Most tokens of a sequence: how far histograms of tokens go.
    pub max_model_len: usize,
    /// Tokens in a block of the KV cache.
    pub block_size: usize,
    /// Blocks in the KV cache.
    pub num_blocks: usize,
    /// The type of its elements, as in `f16`.
    pub cache_dtype: String,
    pub enable_prefix_caching: bool,
}

impl Labels {
    /// For an engine without a cache, as yet.
    pub fn new(model_name: &str, engine: u32, max_model_len: usize) -> Labels {
        Labels {
            model_name: model_name.to_owned(),
            engine,
            max_model_len,
            block_size: 0,
            num_blocks: 0,
            cache_dtype: "f16".to_owned(),
            enable_prefix_caching: true,
        }
    }
}

/// The metrics of one engine.
pub struct Metrics {
    registry: Registry,
    started: Instant,
    /// When the last step ended, in nanoseconds since `started`; [`IDLE`] while there is nothing to do.
    last_step: AtomicU64,

    running: IntGauge,
    waiting: IntGauge,
    waiting_by_reason: [IntGauge; 2],
    kv_usage: Gauge,
    kv_blocks: [IntGauge; 3],
    lora_info: Gauge,
    last_step_age: Gauge,

    prefix_queries: IntCounter,
    prefix_hits: IntCounter,
    preemptions: IntCounter,
    prompt_tokens: IntCounter,
    prompt_tokens_by_source: [IntCounter; 2],
    prompt_tokens_cached: IntCounter,
    generation_tokens: IntCounter,
    success: [IntCounter; 4],
    corrupted: IntCounter,
    steps: IntCounter,
    failed_steps: IntCounter,
    discarded_rows: IntCounter,

    first_token: Histogram,
    next_token: Histogram,
    per_output_token: Histogram,
    e2e: Histogram,
    queue: Histogram,
    inference: Histogram,
    prefill: Histogram,
    decode: Histogram,
    request_prompt: Histogram,
    request_generation: Histogram,
    request_longest: Histogram,
    params_n: Histogram,
    params_max_tokens: Histogram,
    prefill_computed: Histogram,
    step_tokens: Histogram,
}

/// In the place of a moment: no step is awaited.
const IDLE: u64 = u64::MAX;

/// In the order of [`Metrics::success`].
const REASONS: [FinishReason; 4] = [FinishReason::Stop, FinishReason::Length, FinishReason::Abort, FinishReason::Error];

impl Metrics {
    /// All at zero.
    pub fn new(labels: &Labels) -> Metrics {
        let registry = Registry::new();
        let engine = labels.engine.to_string();
        let f = Families::new(&registry, &[("model_name", &labels.model_name), ("engine", &engine)]);
        let tokens = buckets::tokens(labels.max_model_len);

        let configured = f.with(&[
            ("block_size", &labels.block_size.to_string()),
            ("cache_dtype", &labels.cache_dtype),
            // As vLLM writes them, whatever the device.
            ("enable_prefix_caching", if labels.enable_prefix_caching { "True" } else { "False" }),
            ("num_gpu_blocks", &labels.num_blocks.to_string()),
            ("num_cpu_blocks", "None"),
        ]);
        configured.gauge("vllm:cache_config_info", "The KV cache: its labels say how it is configured.").set(1);
        let [awake, ..] = f.gauges(
            "vllm:engine_sleep_state",
            "1 for the state that the engine is in; it never sleeps.",
            "sleep_state",
            ["awake", "weights_offloaded", "discard_all"],
        );
        awake.set(1);
        let adapters = f.with(&[("max_lora", "0"), ("running_lora_adapters", ""), ("waiting_lora_adapters", "")]);

        let metrics = Metrics {
            started: Instant::now(),
            last_step: AtomicU64::new(IDLE),

            running: f.gauge("vllm:num_requests_running", "Sequences that are computed in steps."),
            waiting: f.gauge("vllm:num_requests_waiting", "Sequences that wait for their first step, or to resume."),
            waiting_by_reason: f.gauges(
                "vllm:num_requests_waiting_by_reason",
                "Sequences that wait: for room, or for another to compute what both begin with.",
                "reason",
                ["capacity", "deferred"],
            ),
            kv_usage: f.real("vllm:kv_cache_usage_perc", "Share of the KV cache that sequences hold; 1 is all of it."),
            kv_blocks: f.gauges(
                "tegula_kv_blocks",
                "Blocks of the KV cache: held by sequences, kept for whoever begins alike, empty.",
                "state",
                ["used", "cached", "unused"],
            ),
            lora_info: adapters
                .real("vllm:lora_requests_info", "The time now; there are no adapters, as its labels say."),
            last_step_age: f.real(
                "tegula_last_step_age_seconds",
                "Seconds since a step last ended while there is work; 0 while there is none.",
            ),

            prefix_queries: f
                .counter("vllm:prefix_cache_queries_total", "Tokens that were looked up in the prefix cache."),
            prefix_hits: f.counter("vllm:prefix_cache_hits_total", "Tokens that were found in the prefix cache."),
            preemptions: f.counter("vllm:num_preemptions_total", "Sequences that lost their blocks to better ones."),
            prompt_tokens: f.counter("vllm:prompt_tokens_total", "Tokens of prompts."),
            prompt_tokens_by_source: f.counters(
                "vllm:prompt_tokens_by_source_total",
                "Tokens of prompts, by where their keys and values come from.",
                "source",
                ["local_compute", "local_cache_hit"],
            ),
            prompt_tokens_cached: f.counter("vllm:prompt_tokens_cached_total", "Tokens of prompts found in the cache."),
            generation_tokens: f.counter("vllm:generation_tokens_total", "Tokens of answers."),
            success: f.counters(
                "vllm:request_success_total",
                "Requests that ended, by the reason.",
                "finished_reason",
                REASONS.map(FinishReason::as_str),
            ),
            corrupted: f
                .counter("vllm:corrupted_requests_total", "Requests for which the model gave no usable logits."),
            steps: f.counter("tegula_steps_total", "Steps that the device computed."),
            failed_steps: f.counter("tegula_failed_steps_total", "Steps that failed."),
            discarded_rows: f.counter(
                "tegula_discarded_rows_total",
                "Rows of steps, failed ones too, for a sequence that had ended or been preempted meanwhile.",
            ),

            first_token: f.histogram(
                "vllm:time_to_first_token_seconds",
                "From a request's arrival to its first token.",
                buckets::FIRST_TOKEN,
            ),
            next_token: f.histogram(
                "vllm:inter_token_latency_seconds",
                "From one token of an answer to the next.",
                buckets::NEXT_TOKEN,
            ),
            per_output_token: f.histogram(
                "vllm:request_time_per_output_token_seconds",
                "Mean time from one token to the next, of each request with two or more.",
                buckets::NEXT_TOKEN,
            ),
            e2e: f.histogram(
                "vllm:e2e_request_latency_seconds",
                "From a request's arrival to its end.",
                buckets::REQUEST,
            ),
            queue: f.histogram(
                "vllm:request_queue_time_seconds",
                "From the queue to the first step.",
                buckets::REQUEST,
            ),
            inference: f.histogram(
                "vllm:request_inference_time_seconds",
                "From the first step to the last token.",
                buckets::REQUEST,
            ),
            prefill: f.histogram(
                "vllm:request_prefill_time_seconds",
                "From the first step to the first token.",
                buckets::REQUEST,
            ),
            decode: f.histogram(
                "vllm:request_decode_time_seconds",
                "From the first token to the last.",
                buckets::REQUEST,
            ),
            request_prompt: f.histogram("vllm:request_prompt_tokens", "Tokens of a request's prompt.", &tokens),
            request_generation: f.histogram("vllm:request_generation_tokens", "Tokens of an answer.", &tokens),
            request_longest: f.histogram(
                "vllm:request_max_num_generation_tokens",
                "Tokens of the longest answer to a request.",
                &tokens,
            ),
            params_n: f.histogram("vllm:request_params_n", "The parameter n of requests.", buckets::SAMPLES),
            params_max_tokens: f.histogram(
                "vllm:request_params_max_tokens",
                "The parameter max_tokens of requests.",
                &tokens,
            ),
            prefill_computed: f.histogram(
                "vllm:request_prefill_kv_computed_tokens",
                "Tokens of a request's prompt that were not in the cache.",
                &tokens,
            ),
            step_tokens: f.histogram("vllm:iteration_tokens_total", "Tokens of a step.", buckets::STEP_TOKENS),
            registry: registry.clone(),
        };
        metrics.scheduler(&SchedulerStats::default());
        metrics
    }

    /// A step is complete that computed so many tokens; this is how the scheduler is now.
    pub fn step(&self, num_tokens: usize, stats: &SchedulerStats) {
        self.steps.inc();
        self.step_tokens.observe(num_tokens as f64);
        self.beat();
        self.scheduler(stats);
    }

    /// A step failed; this is how the scheduler is now.
    pub fn step_failed(&self, stats: &SchedulerStats) {
        self.failed_steps.inc();
        self.beat();
        self.scheduler(stats);
    }

    fn beat(&self) {
        self.last_step.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(IDLE - 1)
    }

    /// How the scheduler is now: after whatever changes it between steps (a request comes, or leaves).
    pub fn scheduler(&self, stats: &SchedulerStats) {
        let set = |gauge: &IntGauge, value: usize| gauge.set(value as i64);
        set(&self.running, stats.num_running);
        set(&self.waiting, stats.num_waiting);
        let [capacity, deferred] = &self.waiting_by_reason;
        set(capacity, stats.num_waiting.saturating_sub(stats.num_deferred));
        set(deferred, stats.num_deferred);
        self.kv_usage.set(stats.kv.perc());
        let [used, cached, unused] = &self.kv_blocks;
        set(used, stats.kv.used);
        set(cached, stats.kv.cached);
        set(unused, stats.kv.unused);

        // The scheduler counts from its start; so do these, and only this thread adds to them.
        let reach = |counter: &IntCounter, value: u64| counter.inc_by(value.saturating_sub(counter.get()));
        reach(&self.prefix_queries, stats.prefix_cache.queries);
        reach(&self.prefix_hits, stats.prefix_cache.hits);
        reach(&self.preemptions, stats.num_preemptions);
        reach(&self.discarded_rows, stats.num_discarded_rows);

        let busy = stats.num_running + stats.num_waiting + stats.num_in_flight > 0;
        let awaited = self.last_step.load(Ordering::Relaxed);
        match (busy, awaited) {
            // Work after idleness: from now on a step is awaited.
            (true, IDLE) => self.beat(),
            (true, _) => {}
            (false, _) => self.last_step.store(IDLE, Ordering::Relaxed),
        }
    }

    /// A request's first answer has its first token, so its prompt is computed: so many tokens, and how many of them were
    /// in the cache. Once a request, whatever its `n`.
    pub fn prompt(&self, num_prompt_tokens: usize, num_cached_tokens: usize) {
        let (all, cached) = (num_prompt_tokens as u64, num_cached_tokens as u64);
        self.prompt_tokens.inc_by(all);
        self.prompt_tokens_cached.inc_by(cached);
        let [computed, hit] = &self.prompt_tokens_by_source;
        computed.inc_by(all.saturating_sub(cached));
        hit.inc_by(cached);
    }

    /// A sample has its first token, so long after the request's arrival.
    pub fn first_token(&self, since_arrival: Duration) {
        self.generation_tokens.inc();
        self.first_token.observe(since_arrival.as_secs_f64());
    }

    /// A sample has a further token, so long after the one before.
    pub fn next_token(&self, since_last: Duration) {
        self.generation_tokens.inc();
        self.next_token.observe(since_last.as_secs_f64());
    }

    /// The model gave no logits that a token of this sample could be chosen by; its end is reported apart.
    pub fn corrupted(&self) {
        self.corrupted.inc();
    }

    /// A sample has ended.
    pub fn ended(&self, ended: &Ended<'_>) {
        let Ended { asked, end, num_cached_tokens, longest } = *ended;
        let [stop, length, abort, error] = &self.success;
        match end.reason {
            FinishReason::Stop => stop,
            FinishReason::Length => length,
            FinishReason::Abort => abort,
            FinishReason::Error => error,
        }
        .inc();

        let tokens = |histogram: &Histogram, tokens: usize| histogram.observe(tokens as f64);
        let time = |histogram: &Histogram, time: Option<Duration>| {
            if let Some(time) = time {
                histogram.observe(time.as_secs_f64());
            }
        };
        time(&self.queue, Some(end.times.queue()));
        time(&self.prefill, end.times.prefill());
        time(&self.decode, end.times.decode());
        time(&self.inference, end.times.inference());
        time(&self.e2e, Some(end.times.end_to_end()));
        time(&self.per_output_token, end.times.time_per_output_token(end.num_output_tokens));
        tokens(&self.request_generation, end.num_output_tokens);
        tokens(&self.prefill_computed, asked.num_prompt_tokens.saturating_sub(num_cached_tokens));
        if let Some(longest) = longest {
            tokens(&self.request_prompt, asked.num_prompt_tokens);
            tokens(&self.request_longest, longest);
            self.params_n.observe(f64::from(asked.n));
            if let Some(most) = asked.max_tokens {
                tokens(&self.params_max_tokens, most);
            }
        }
    }

    /// Seconds since a step last ended while there is work; zero while there is none.
    pub fn last_step_age(&self) -> Duration {
        match self.last_step.load(Ordering::Relaxed) {
            IDLE => Duration::ZERO,
            last => Duration::from_nanos(self.now().saturating_sub(last)),
        }
    }

    /// All of it as Prometheus' text format 0.0.4 ([`CONTENT_TYPE`]).
    pub fn text(&self) -> String {
        self.last_step_age.set(self.last_step_age().as_secs_f64());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.lora_info.set(now.as_secs_f64());
        // It fails for families without a metric; there is none such here.
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}
