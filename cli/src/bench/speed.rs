//! `tegula bench speed`, or `tegula bench` alone: tokens per second of a prompt (pp) and of generation (tg), as llama-bench counts them.

use std::io::Write;
use std::time::Instant;

use tegula_engine::Error;
use tegula_engine::sampling::SamplingParams;
use tegula_engine::session::Session;

use crate::model::Load;
use crate::numbers::{MOST_TOKENS, whole};
use crate::table::{self, Align};

/// Measure a model's speed: a prompt of 512 tokens, 128 generated tokens
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tegula bench speed smollm2\n  tegula bench speed smollm2 --threads 1 --repeat 10 --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    load: Load,
    /// Length of the prompt
    #[arg(long, default_value_t = 512, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    prompt: usize,
    /// Tokens to generate, one by one, from an empty context
    #[arg(long, default_value_t = 128, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    generate: usize,
    /// Repetitions
    #[arg(short, long, default_value_t = 5, value_parser = whole::<usize>(1..=1_000_000), allow_negative_numbers = true)]
    repeat: usize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = args.load.open()?;
    model.check_length("--prompt", args.prompt)?;
    // The first token is not generated.
    model.check_length("--generate", args.generate + 1)?;
    let mut decoder = model.decoder()?;
    let vocab = decoder.config().vocab as u64;
    // Any tokens do; a multiplicative sequence touches the whole table.
    let tokens: Vec<u32> = (1..=args.prompt as u64).map(|i| (i * 7919 % vocab) as u32).collect();
    let mut session = Session::new(&mut decoder, args.prompt.max(args.generate + 1))?;
    let greedy = SamplingParams::greedy().draw(0);
    let (mut pp, mut tg) = (vec![], vec![]);
    // The first round compiles what is not cached and fills the caches; it is not counted.
    for round in 0..=args.repeat {
        session.clear();
        let start = Instant::now();
        session.feed(&tokens, |_| {})?;
        session.sample(greedy)?;
        let prompt = args.prompt as f64 / start.elapsed().as_secs_f64();
        session.clear();
        session.feed(&tokens[..1], |_| {})?;
        let start = Instant::now();
        for _ in 0..args.generate {
            let token = session.sample(greedy)?;
            session.feed(&[token], |_| {})?;
        }
        let generate = args.generate as f64 / start.elapsed().as_secs_f64();
        if round > 0 {
            pp.push(prompt);
            tg.push(generate);
        }
    }
    let rows: Vec<(String, [f64; 3])> =
        vec![(format!("pp{}", args.prompt), spread(&mut pp)), (format!("tg{}", args.generate), spread(&mut tg))];
    if args.json {
        let entries: serde_json::Map<String, serde_json::Value> = rows
            .into_iter()
            .map(|(name, [min, median, max])| (name, serde_json::json!({ "min": min, "median": median, "max": max })))
            .collect();
        return writeln!(out, "{}", serde_json::Value::Object(entries)).map_err(Error::output);
    }
    let mut cells = vec![["test", "min", "median", "max tokens/s"].map(str::to_owned).to_vec()];
    cells
        .extend(rows.into_iter().map(|(name, v)| [vec![name], v.iter().map(|x| format!("{x:.1}")).collect()].concat()));
    table::write(out, &[Align::Left, Align::Right, Align::Right, Align::Right], &cells).map_err(Error::output)
}

/// Smallest, median, largest.
fn spread(v: &mut [f64]) -> [f64; 3] {
    v.sort_by(f64::total_cmp);
    [v[0], v[v.len() / 2], v[v.len() - 1]]
}
