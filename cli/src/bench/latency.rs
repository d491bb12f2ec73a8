//! `tegula bench latency`: how long one batch of requests takes, again and again.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Map, json};
use tegula_engine::Error;
use tegula_engine::engine::Engine;

use super::dataset::{Sample, generator};
use super::offline;
use super::report::{mean, percentile};
use super::words::Words;
use crate::engine::EngineArgs;
use crate::model::Load;
use crate::numbers::{MOST_TOKENS, whole};

/// Measure how long a batch of requests takes, as `vllm bench latency` does
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula bench latency smollm2 --batch-size 1 --input-len 32 --output-len 128\n  \
                        tegula bench latency smollm2 --num-iters 5 --output-json latency.json")]
pub(super) struct Args {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    engine: EngineArgs,
    /// Tokens of each prompt
    #[arg(long, default_value_t = 32, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    input_len: usize,
    /// Tokens of each answer
    #[arg(long, default_value_t = 128, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    output_len: usize,
    /// Requests at once
    #[arg(long, default_value_t = 8, value_parser = whole::<usize>(1..=100_000), allow_negative_numbers = true)]
    batch_size: usize,
    /// Answers of each request
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=128), allow_negative_numbers = true)]
    n: u32,
    /// Batches before the first that counts
    #[arg(long, default_value_t = 10, value_parser = whole::<usize>(0..=100_000), allow_negative_numbers = true)]
    num_iters_warmup: usize,
    /// Batches that count
    #[arg(long, default_value_t = 30, value_parser = whole::<usize>(1..=100_000), allow_negative_numbers = true)]
    num_iters: usize,
    /// Makes the same prompts in each run
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the figures to this file, as JSON
    #[arg(long)]
    output_json: Option<PathBuf>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    // Each batch computes its prompts anew.
    let builder = args.engine.builder(&args.load.name()).max_waiting(usize::MAX).prefix_cache(false);
    let engine = args.load.engine(builder)?;
    let batch = args.batch(&engine)?;
    for _ in 0..args.num_iters_warmup {
        offline::work(&engine, &batch, args.n)?;
    }
    let latencies = measure(&engine, &batch, args.n, args.num_iters)?;
    write!(out, "{}", text(&latencies)).map_err(Error::output)?;
    args.output_json.map_or(Ok(()), |path| super::write_json(&path, &json(&latencies)))
}

impl Args {
    fn batch(&self, engine: &Engine) -> Result<Vec<Sample>, Error> {
        let (words, mut rng) = (Words::of(engine.tokenizer())?, generator(self.seed));
        let sample = |_| {
            let prompt = words.text(self.input_len, &mut rng);
            Sample { tokens: words.tokens(&prompt), prompt, output: self.output_len }
        };
        Ok((0..self.batch_size).map(sample).collect())
    }
}

/// Seconds of each of `times` batches.
fn measure(engine: &Engine, batch: &[Sample], n: u32, times: usize) -> Result<Vec<f64>, Error> {
    let one = |_| {
        let start = Instant::now();
        offline::work(engine, batch, n)?;
        Ok(start.elapsed().as_secs_f64())
    };
    (0..times).map(one).collect()
}

const PERCENTILES: [u32; 6] = [10, 25, 50, 75, 90, 99];

fn sorted(latencies: &[f64]) -> Vec<f64> {
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn text(latencies: &[f64]) -> String {
    let sorted = sorted(latencies);
    let line = |p| format!("{p}% percentile latency: {} seconds\n", percentile(&sorted, f64::from(p)));
    format!("Avg latency: {} seconds\n", mean(latencies)) + &PERCENTILES.map(line).concat()
}

fn json(latencies: &[f64]) -> serde_json::Value {
    let sorted = sorted(latencies);
    let percentiles: Map<_, _> =
        PERCENTILES.iter().map(|p| (p.to_string(), json!(percentile(&sorted, f64::from(*p))))).collect();
    json!({ "avg_latency": mean(latencies), "latencies": latencies, "percentiles": percentiles })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::{engine, sample};
    use std::time::Duration;

    #[test]
    fn a_batch_takes_its_steps() {
        let engine = engine(Duration::from_millis(10));
        let batch = [sample(1, 20, 5), sample(2, 20, 5)];
        let latencies = measure(&engine, &batch, 1, 3).unwrap();
        assert_eq!(latencies.len(), 3);
        assert!(latencies.iter().all(|l| (0.05..0.5).contains(l)), "{latencies:?}");
    }

    #[test]
    fn figures_have_vllms_names() {
        let latencies = [0.5, 0.125, 0.25];
        let text = text(&latencies);
        assert!(text.starts_with("Avg latency: 0.2916666666666667 seconds\n10% percentile latency: 0.1"), "{text}");
        assert!(
            text.contains("25% percentile latency: 0.1875 seconds\n50% percentile latency: 0.25 seconds\n"),
            "{text}"
        );
        let json = json(&latencies);
        assert_eq!((&json["latencies"], &json["percentiles"]["50"]), (&json!([0.5, 0.125, 0.25]), &json!(0.25)));
    }
}
