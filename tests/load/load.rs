//! Many clients for minutes: no error, every answer as alone, and afterwards the server holds what it held before.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tegula_tests::figure::Figure;

use crate::server::{Holdings, Server};
use crate::traffic::{self, Known};
use crate::{Options, Outcome};

/// Memory that the process may have more than after the first part of the load. Allocators give back late.
const GROWTH_MB: f64 = 32.0;

pub fn run(server: &mut Server, known: &[Known], options: &Options) -> Outcome<Vec<Figure>> {
    let time = options.time;
    // What is only made once, such as threads, and logs that have a length, are there after a part of it.
    let first = (time / 5).clamp(Duration::from_secs(4), Duration::from_secs(60));
    let warm = traffic::run(server, known, options.clients, first, options.seed);
    let before = rest(server, None)?;
    println!("  at rest after {} s: {}", first.as_secs(), shown(&before));
    let began = Instant::now();
    let tally = traffic::run(server, known, options.clients, time, options.seed + 1);
    let seconds = began.elapsed().as_secs_f64();
    let emptied = server.idle(Duration::from_secs(10));
    let after = rest(server, Some(&before))?;
    println!("  at rest after {seconds:.0} s more: {}", shown(&after));
    server.is_well()?;
    for detail in warm.details.lock().iter().chain(tally.details.lock().iter()).flat_map(|details| details.iter()) {
        println!("  WRONG {detail}");
    }
    let count = |name: &str, value: u64| Figure::new(format!("load: {name}"), value as f64, "");
    let more = |name: &str, after: usize, before: usize| count(name, after.saturating_sub(before) as u64).at_most(0.0);
    let growth = (after.memory_kb as f64 - before.memory_kb as f64) / 1024.0;
    let left = match emptied {
        Ok(_) => 0,
        Err(error) => {
            println!("  WRONG {error}");
            1
        }
    };
    println!("  preempted {} times", server.metric("vllm:num_preemptions_total")?);
    Ok(vec![
        Figure::new("load: duration", seconds / 60.0, "minutes"),
        count("answers as alone", tally.answered.load(Relaxed)),
        count("answers left by their clients", tally.cancelled.load(Relaxed)),
        count("answers that differ", warm.differing.load(Relaxed) + tally.differing.load(Relaxed)).at_most(0.0),
        count("errors", warm.errors.load(Relaxed) + tally.errors.load(Relaxed)).at_most(0.0),
        Figure::new("load: output of answers", tally.output_tokens.load(Relaxed) as f64 / seconds, "tokens/s"),
        count("requests or blocks left", left).at_most(0.0),
        more("descriptors left", after.descriptors, before.descriptors),
        more("threads left", after.threads, before.threads),
        Figure::new("load: growth of memory", growth.max(0.0), "MB").at_most(GROWTH_MB),
    ])
}

/// What it holds when nothing runs: without connections, and threads that wait in vain for work have ended.
fn rest(server: &Server, before: Option<&Holdings>) -> Outcome<Holdings> {
    server.idle(Duration::from_secs(30))?;
    match before {
        Some(before) => server.holdings_within(before, Duration::from_secs(20)),
        None => {
            // Threads for blocking work end after ten seconds.
            std::thread::sleep(Duration::from_secs(11));
            server.holdings()
        }
    }
}

fn shown(holdings: &Holdings) -> String {
    let Holdings { memory_kb, descriptors, threads } = holdings;
    format!("{} MB, {descriptors} descriptors, {threads} threads", memory_kb / 1024)
}
