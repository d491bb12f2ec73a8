//! What the engine itself costs: processor time of its thread for each step and token, over a model that only waits.
//!
//! ```text
//! cargo run --release -p tegula-engine --example engine_overhead
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use futures_core::Stream;
use tegula_engine::engine::{Engine, Generation, Request, Scripted, Update};
use tegula_engine::sampling::SamplingParams;
use tegula_engine::tokenizer::small::small;

const BLOCK: usize = 64;
const STEP: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("sequences  prompt  blocks   steps  µs/step  µs/token  mean step, of {STEP:?}");
    for (sequences, prompt, blocks) in
        [(1, 128, 1_000), (16, 128, 1_000), (64, 128, 1_000), (64, 1024, 10_000), (256, 128, 10_000)]
    {
        measure(sequences, prompt, blocks)?;
    }
    Ok(())
}

fn measure(sequences: u32, prompt: usize, blocks: u32) -> Result<(), Box<dyn std::error::Error>> {
    let model = Scripted::new(257, BLOCK, blocks, 4096).says(|_, answer| 97 + answer.len() as u32 % 26).step_time(STEP);
    let engine = Engine::builder("overhead").max_num_seqs(sequences as usize).max_num_batched_tokens(2048).build_on(
        model,
        Arc::new(small(&[], &["<end>"])),
        None,
    )?;
    let params = SamplingParams {
        max_tokens: Some(600),
        ignore_eos: true,
        stop: vec!["\n\n".into()],
        ..SamplingParams::greedy()
    };
    let ask = |i: u32| {
        let prompt = (0..prompt as u32).map(|j| (i * 31 + j * 7) % 256).collect();
        engine.generate(Request::new(prompt, params.clone()))
    };
    let generations: Vec<Generation> = (0..sequences).map(ask).collect::<Result<_, _>>()?;
    let mut readers = Readers { generations, tokens: 0, waker: Arc::new(Unpark(std::thread::current())) };
    // All run, and no prompt is left to compute.
    readers.until(100 * sequences as usize);
    let (steps, cpu, tokens, began) = (engine.stats().num_steps, cpu_time()?, readers.tokens, Instant::now());
    readers.until(500 * sequences as usize);
    let steps = (engine.stats().num_steps - steps) as f64;
    let (cpu, tokens) = ((cpu_time()? - cpu).as_secs_f64() * 1e6, (readers.tokens - tokens) as f64);
    let step = began.elapsed().as_secs_f64() / steps * 1e3;
    println!(
        "{sequences:>9}  {prompt:>6}  {blocks:>6}  {steps:>6}  {:>7.1}  {:>8.2}  {step:.3} ms",
        cpu / steps,
        cpu / tokens
    );
    Ok(())
}

/// Processor time that the engine's thread has had.
fn cpu_time() -> std::io::Result<Duration> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == "tegula-engine" {
            let stat = std::fs::read_to_string(task.join("schedstat"))?;
            let nanoseconds = stat.split(' ').next().and_then(|field| field.parse().ok());
            return Ok(Duration::from_nanos(nanoseconds.unwrap_or(0)));
        }
    }
    Err(std::io::Error::other("there is no thread of an engine"))
}

/// One thread that reads all streams, as a server's worker does.
struct Readers {
    generations: Vec<Generation>,
    tokens: usize,
    waker: Arc<Unpark>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Readers {
    fn until(&mut self, tokens: usize) {
        let waker = self.waker.clone().into();
        let mut context = Context::from_waker(&waker);
        while self.tokens < tokens {
            for generation in &mut self.generations {
                while let Poll::Ready(Some(update)) = Pin::new(&mut *generation).poll_next(&mut context) {
                    self.tokens += usize::from(matches!(update, Update::Token(_)));
                }
            }
            if self.tokens < tokens {
                std::thread::park();
            }
        }
    }
}
