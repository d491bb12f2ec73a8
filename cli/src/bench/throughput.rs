//! `tegula bench throughput`: how many requests an engine works through in a second, all of them given at once.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;
use tegula_engine::Error;
use tegula_engine::engine::Engine;

use super::dataset::{DatasetArgs, Sample};
use super::offline;
use crate::engine::EngineArgs;
use crate::model::Load;
use crate::numbers::whole;

/// Measure how many requests and tokens an engine works through in a second, as `vllm bench throughput` does
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tegula bench throughput smollm2 --num-prompts 32 --input-len 128 --output-len 64\n  \
                        tegula bench throughput smollm2 --dataset-name sharegpt --dataset-path ShareGPT.json"
)]
pub(super) struct Args {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    dataset: DatasetArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Answers of each request
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=128), allow_negative_numbers = true)]
    n: u32,
    /// Write the figures to this file, as JSON
    #[arg(long)]
    output_json: Option<PathBuf>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    // Everything may wait.
    let builder = args.engine.builder(&args.load.name()).max_waiting(usize::MAX);
    let engine = args.load.engine(builder)?;
    let (samples, spare) = args.dataset.samples(Some(engine.tokenizer()))?;
    // The first steps load kernels.
    offline::work(&engine, &[spare], 1)?;
    let work = measure(&engine, &samples, args.n)?;
    write!(out, "{}", work.text()).map_err(Error::output)?;
    args.output_json.map_or(Ok(()), |path| super::write_json(&path, &work.json()))
}

/// Requests, tokens and seconds of a run.
#[derive(Clone, Copy, Debug)]
struct Throughput {
    seconds: f64,
    requests: usize,
    prompt: usize,
    output: usize,
}

fn measure(engine: &Engine, samples: &[Sample], n: u32) -> Result<Throughput, Error> {
    let start = Instant::now();
    let (prompt, output) = offline::work(engine, samples, n)?;
    Ok(Throughput { seconds: start.elapsed().as_secs_f64(), requests: samples.len(), prompt, output })
}

impl Throughput {
    fn text(&self) -> String {
        let per_second = |n: usize| n as f64 / self.seconds;
        format!(
            "Throughput: {:.2} requests/s, {:.2} total tokens/s, {:.2} output tokens/s\n\
             Total num prompt tokens:  {}\nTotal num output tokens:  {}\n",
            per_second(self.requests),
            per_second(self.prompt + self.output),
            per_second(self.output),
            self.prompt,
            self.output
        )
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "elapsed_time": self.seconds,
            "num_requests": self.requests,
            "total_num_tokens": self.prompt + self.output,
            "requests_per_second": self.requests as f64 / self.seconds,
            "tokens_per_second": (self.prompt + self.output) as f64 / self.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::{engine, sample};
    use std::time::Duration;

    #[test]
    fn tokens_and_steps_are_counted() {
        // Steps of 10 ms; 4 requests of 20 tokens fit in one, so 8 answer tokens take 8 steps and few more to begin.
        let engine = engine(Duration::from_millis(10));
        let samples: Vec<Sample> = (0..4).map(|i| sample(i, 20, 8)).collect();
        let work = measure(&engine, &samples, 1).unwrap();
        assert_eq!((work.requests, work.prompt, work.output), (4, 80, 32));
        assert!((0.08..0.5).contains(&work.seconds), "{work:?}");
        assert!(work.text().contains("Total num output tokens:  32\n"), "{}", work.text());
        let json = work.json();
        assert_eq!(json["total_num_tokens"], 112);
        let rate = json["tokens_per_second"].as_f64().unwrap();
        assert!((rate - 112.0 / work.seconds).abs() < 1e-6, "{rate}");
        // Several answers of a request are answers too; their prompt is one.
        let work = measure(&engine, &samples[..1], 3).unwrap();
        assert_eq!((work.prompt, work.output), (20, 24));
    }
}
