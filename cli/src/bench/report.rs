//! What a run against a server came to: figures, the block of text that `vllm bench serve` prints, and its JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::client::Outcome;

/// A kind of latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Ttft,
    Tpot,
    Itl,
    E2el,
}

impl Metric {
    pub const ALL: [Metric; 4] = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2el];

    /// As options and JSON name it.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Ttft => "ttft",
            Metric::Tpot => "tpot",
            Metric::Itl => "itl",
            Metric::E2el => "e2el",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Metric::Ttft => "Time to First Token",
            Metric::Tpot => "Time per Output Token (excl. 1st token)",
            Metric::Itl => "Inter-token Latency",
            Metric::E2el => "End-to-end Latency",
        }
    }

    /// In seconds, of one answer; several values only of the last of these.
    fn of(self, outcome: &Outcome) -> Vec<f64> {
        match self {
            Metric::Ttft => vec![outcome.ttft],
            Metric::Tpot => outcome.tpot().into_iter().collect(),
            Metric::Itl => outcome.itl.clone(),
            Metric::E2el => vec![outcome.latency],
        }
    }
}

impl Outcome {
    /// Seconds per token after the first; none of an answer of one token.
    fn tpot(&self) -> Option<f64> {
        (self.output_tokens > 1).then(|| (self.latency - self.ttft) / (self.output_tokens - 1) as f64)
    }
}

/// What is to be told.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub metrics: Vec<Metric>,
    /// Between 0 and 100.
    pub percentiles: Vec<f64>,
    /// The most milliseconds of a good answer.
    pub goodput: Vec<(Metric, f64)>,
}

/// The figures of a run.
pub(super) struct Report {
    outcomes: Vec<Outcome>,
    wanted: Wanted,
    /// Seconds from the start to the last answer's end.
    duration: f64,
    completed: usize,
    input: usize,
    output: usize,
    /// Tokens in the best second.
    peak_output: f64,
    /// Requests that were open in the same second.
    peak_requests: usize,
}

impl Report {
    pub fn new(outcomes: Vec<Outcome>, duration: f64, wanted: Wanted) -> Report {
        let good = || outcomes.iter().filter(|o| o.error.is_none());
        let (completed, output) = (good().count(), good().map(|o| o.output_tokens).sum());
        let input = good().filter_map(|o| o.prompt_tokens).sum();
        let (peak_output, peak_requests) = peaks(good());
        Report { wanted, duration, completed, input, output, peak_output, peak_requests, outcomes }
    }

    fn good(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|o| o.error.is_none())
    }

    pub fn failed(&self) -> usize {
        self.outcomes.len() - self.completed
    }

    /// The first failure's reason.
    pub fn first_error(&self) -> Option<&str> {
        self.outcomes.iter().find_map(|o| o.error.as_deref())
    }

    fn per_second(&self, n: usize) -> f64 {
        if self.duration > 0.0 { n as f64 / self.duration } else { 0.0 }
    }

    /// Answers within all limits.
    fn num_good(&self) -> usize {
        let within = |o: &Outcome| {
            self.wanted.goodput.iter().all(|(metric, most)| metric.of(o).iter().all(|seconds| seconds * 1e3 <= *most))
        };
        self.good().filter(|o| within(o)).count()
    }

    fn milliseconds(&self, metric: Metric) -> Vec<f64> {
        let mut values: Vec<f64> = self.good().flat_map(|o| metric.of(o)).map(|s| s * 1e3).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The block of text. `settings` are lines about how the load was made.
    pub fn text(&self, settings: &[(&str, String)]) -> String {
        let mut text = format!("{:=^50}\n", " Serving Benchmark Result ");
        let mut line =
            |name: &str, value: String| _ = writeln!(text, "{}", format!("{name:<40} {value:<10}").trim_end());
        line("Successful requests:", self.completed.to_string());
        line("Failed requests:", self.failed().to_string());
        settings.iter().for_each(|(name, value)| line(name, value.clone()));
        line("Benchmark duration (s):", format!("{:.2}", self.duration));
        line("Total input tokens:", self.input.to_string());
        line("Total generated tokens:", self.output.to_string());
        line("Request throughput (req/s):", format!("{:.2}", self.per_second(self.completed)));
        if !self.wanted.goodput.is_empty() {
            line("Request goodput (req/s):", format!("{:.2}", self.per_second(self.num_good())));
        }
        line("Output token throughput (tok/s):", format!("{:.2}", self.per_second(self.output)));
        line("Peak output token throughput (tok/s):", format!("{:.2}", self.peak_output));
        line("Peak concurrent requests:", format!("{:.2}", self.peak_requests as f64));
        line("Total token throughput (tok/s):", format!("{:.2}", self.per_second(self.input + self.output)));
        for &metric in &self.wanted.metrics {
            let values = self.milliseconds(metric);
            let name = metric.name().to_uppercase();
            text += &format!("{:-^50}\n", metric.title());
            let mut line = |what: String, value: f64| {
                _ = writeln!(text, "{}", format!("{:<40} {value:<10.2}", what + " (ms):").trim_end())
            };
            line(format!("Mean {name}"), mean(&values));
            line(format!("Median {name}"), percentile(&values, 50.0));
            for p in &self.wanted.percentiles {
                line(format!("P{p} {name}"), percentile(&values, *p));
            }
        }
        text + &"=".repeat(50) + "\n"
    }

    /// The figures with the names of vLLM's results; `detailed`: those of each request too.
    pub fn json(&self, detailed: bool) -> Map<String, Value> {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| _ = out.insert(name.to_owned(), value);
        put("duration", json!(self.duration));
        put("completed", json!(self.completed));
        put("failed", json!(self.failed()));
        put("total_input_tokens", json!(self.input));
        put("total_output_tokens", json!(self.output));
        put("request_throughput", json!(self.per_second(self.completed)));
        let goodput = (!self.wanted.goodput.is_empty()).then(|| self.per_second(self.num_good()));
        put("request_goodput", json!(goodput));
        put("output_throughput", json!(self.per_second(self.output)));
        put("total_token_throughput", json!(self.per_second(self.input + self.output)));
        put("max_output_tokens_per_s", json!(self.peak_output));
        put("max_concurrent_requests", json!(self.peak_requests));
        if detailed {
            let all = |f: &dyn Fn(&Outcome) -> Value| Value::Array(self.outcomes.iter().map(f).collect());
            put("input_lens", all(&|o| json!(o.prompt_tokens)));
            put("output_lens", all(&|o| json!(o.output_tokens)));
            put("start_times", all(&|o| json!(o.sent)));
            put("ttfts", all(&|o| json!(o.ttft)));
            put("itls", all(&|o| json!(o.itl)));
            put("generated_texts", all(&|o| json!(o.text)));
            put("errors", all(&|o| json!(o.error.as_deref().unwrap_or(""))));
        }
        for &metric in &self.wanted.metrics {
            let (values, name) = (self.milliseconds(metric), metric.name());
            put(&format!("mean_{name}_ms"), json!(mean(&values)));
            put(&format!("median_{name}_ms"), json!(percentile(&values, 50.0)));
            put(&format!("std_{name}_ms"), json!(deviation(&values)));
            for p in &self.wanted.percentiles {
                put(&format!("p{p}_{name}_ms"), json!(percentile(&values, *p)));
            }
        }
        out
    }
}

/// Tokens in the best second of the run, and requests that were open in the same second.
fn peaks<'o>(outcomes: impl Iterator<Item = &'o Outcome>) -> (f64, usize) {
    let (mut tokens, mut requests) = (vec![], vec![]);
    let add = |counts: &mut Vec<usize>, second: usize| {
        if counts.len() <= second {
            counts.resize(second + 1, 0);
        }
        counts[second] += 1;
    };
    for o in outcomes {
        let mut at = o.sent + o.ttft;
        add(&mut tokens, at as usize);
        for wait in &o.itl {
            at += wait;
            add(&mut tokens, at as usize);
        }
        (o.sent as usize..=(o.sent + o.latency) as usize).for_each(|second| add(&mut requests, second));
    }
    let most = |counts: Vec<usize>| counts.into_iter().max().unwrap_or(0);
    (most(tokens) as f64, most(requests))
}

pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn deviation(values: &[f64]) -> f64 {
    let mean_value = mean(values);
    mean(&values.iter().map(|v| (v - mean_value).powi(2)).collect::<Vec<_>>()).sqrt()
}

/// Of sorted values, with what lies between two of them in proportion (numpy's default); 0 of none.
pub(super) fn percentile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = (p / 100.0).clamp(0.0, 1.0) * last as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    sorted[below] + (sorted[(below + 1).min(last)] - sorted[below]) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sent: f64, ttft: f64, itl: &[f64]) -> Outcome {
        let (output_tokens, latency) = (itl.len() + 1, ttft + itl.iter().sum::<f64>());
        Outcome { sent, ttft, itl: itl.to_vec(), latency, output_tokens, prompt_tokens: Some(10), ..Outcome::default() }
    }

    #[test]
    fn percentiles_are_numpys() {
        // numpy.percentile([1, 2, 4, 8], p)
        let values = [1.0, 2.0, 4.0, 8.0];
        let expected = [(0.0, 1.0), (25.0, 1.75), (50.0, 3.0), (90.0, 6.8), (99.0, 7.88), (100.0, 8.0)];
        for (p, value) in expected {
            assert!((percentile(&values, p) - value).abs() < 1e-12, "{p}");
        }
        assert_eq!(percentile(&[], 99.0), 0.0);
        assert_eq!(percentile(&[5.0], 10.0), 5.0);
    }

    #[test]
    fn the_block_has_the_lines_and_columns_of_vllms() {
        let failed = Outcome { error: Some("refused".into()), ..Outcome::default() };
        let outcomes = vec![outcome(0.0, 0.1, &[0.02; 4]), outcome(0.5, 0.3, &[0.05; 8]), failed];
        let wanted = Wanted {
            metrics: vec![Metric::Ttft, Metric::Tpot, Metric::Itl],
            percentiles: vec![50.0, 99.0],
            goodput: vec![(Metric::Ttft, 200.0)],
        };
        let report = Report::new(outcomes, 2.0, wanted);
        let expected = "\
============ Serving Benchmark Result ============
Successful requests:                     2
Failed requests:                         1
Maximum request concurrency:             16
Benchmark duration (s):                  2.00
Total input tokens:                      20
Total generated tokens:                  14
Request throughput (req/s):              1.00
Request goodput (req/s):                 0.50
Output token throughput (tok/s):         7.00
Peak output token throughput (tok/s):    9.00
Peak concurrent requests:                2.00
Total token throughput (tok/s):          17.00
---------------Time to First Token----------------
Mean TTFT (ms):                          200.00
Median TTFT (ms):                        200.00
P50 TTFT (ms):                           200.00
P99 TTFT (ms):                           298.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          35.00
Median TPOT (ms):                        35.00
P50 TPOT (ms):                           35.00
P99 TPOT (ms):                           49.70
---------------Inter-token Latency----------------
Mean ITL (ms):                           40.00
Median ITL (ms):                         50.00
P50 ITL (ms):                            50.00
P99 ITL (ms):                            50.00
==================================================
";
        // Tokens: 0.10 0.12 0.14 0.16 0.18 and 0.80 0.85 0.90 0.95 in the first second; 1.00 and later in the second.
        assert_eq!(report.text(&[("Maximum request concurrency:", "16".into())]), expected);
        let json = report.json(true);
        assert_eq!(json["p99_ttft_ms"].as_f64().map(|p| p.round()), Some(298.0));
        assert_eq!((&json["errors"][2], &json["itls"][0][0]), (&json!("refused"), &json!(0.02)));
        assert!(report.json(false).get("ttfts").is_none());
    }
}
