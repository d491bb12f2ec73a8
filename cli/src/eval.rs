//! `tegula eval`: how well a model predicts a text.

use std::io::Write;
use std::path::PathBuf;

use super::model::Load;
use super::note;
use super::numbers::{MOST_TOKENS, whole};
use super::table::counted;
use tegula_engine::Error;
use tegula_engine::eval::perplexity;
use tegula_engine::progress;
use tegula_engine::tokenizer::Special;

/// Measure a model's quality
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula eval perplexity smollm2 --text book.txt\n  \
                        tegula eval perplexity smollm2 --text book.txt --activations f32 --windows 4")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Perplexity on a text: windows of 512 tokens, the second half of each scored (llama.cpp's method)
    Perplexity {
        #[command(flatten)]
        load: Load,
        /// The text, UTF-8
        #[arg(long)]
        text: PathBuf,
        /// How many windows [default: 12, or as many as the text has if those are fewer]
        #[arg(long, value_parser = whole::<usize>(1..=1_000_000), allow_negative_numbers = true)]
        windows: Option<usize>,
        /// Tokens in a window
        #[arg(long, default_value_t = 512, value_parser = whole::<usize>(4..=MOST_TOKENS), allow_negative_numbers = true)]
        window: usize,
        /// Print one JSON object instead of a line per window
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let What::Perplexity { load, text, windows, window, json } = args.what;
    let text = std::fs::read_to_string(&text)
        .map_err(|source| Error::Usage(format!("cannot read the text {}: {source}", text.display())))?;
    let model = load.open()?;
    model.check_length("--window", window)?;
    // No window needs more than 8 bytes a token on average; a shorter slice saves tokenising megabytes.
    let asked = windows.unwrap_or(12);
    let most = text.floor_char_boundary(text.len().min(asked.saturating_mul(window).saturating_mul(8)));
    let tokens = model.tokenizer.encode(&text[..most], Special::AsText);
    let bos = model.tokenizer.bos().filter(|_| model.tokenizer.add_bos());
    let windows = match tokens.len() / window {
        0 => {
            let long = counted(tokens.len(), "token");
            return Err(Error::Usage(format!("the text has {long}; one window alone takes {window} (--window)")));
        }
        n if n >= asked => asked,
        n if windows.is_none() => {
            note(format_args!("the text has {} of {window} tokens", counted(n, "window")));
            n
        }
        n => {
            let enough = counted(n, "window");
            return Err(Error::Usage(format!("the text is enough for {enough} of {window} tokens: use --windows {n}")));
        }
    };
    let mut decoder = model.decoder()?;
    let bar = progress::steps(windows as u64, "scoring windows");
    let nll = perplexity(&mut decoder, &tokens, bos, windows, window, |_| bar.inc(1))?;
    bar.finish_and_clear();
    let mean = nll.iter().sum::<f64>() / nll.len() as f64;
    let written = if json {
        writeln!(out, "{}", serde_json::json!({ "perplexity": mean.exp(), "nll": mean, "nll_per_window": nll }))
    } else {
        nll.iter().enumerate().try_for_each(|(i, x)| writeln!(out, "window {:3}  nll {x:.5}", i + 1)).and_then(|()| {
            writeln!(out, "perplexity {:.4} over {} windows of {window} tokens (nll {mean:.5})", mean.exp(), nll.len())
        })
    };
    written.map_err(Error::output)
}
