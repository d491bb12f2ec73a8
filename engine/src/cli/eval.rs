//! `tegula eval`: how well a model predicts a text.

use std::io::Write;
use std::path::PathBuf;

use super::model::{Load, Loaded};
use crate::Error;
use crate::eval::perplexity;
use crate::progress;
use crate::tokenizer::Special;

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
        /// How many windows
        #[arg(long, default_value_t = 12)]
        windows: usize,
        /// Tokens in a window
        #[arg(long, default_value_t = 512)]
        window: usize,
        /// Print one JSON object instead of a line per window
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let What::Perplexity { load, text, windows, window, json } = args.what;
    if window < 4 || windows == 0 {
        return Err(Error::Usage("--window must be at least 4 and --windows at least 1".into()));
    }
    let text = std::fs::read_to_string(&text)
        .map_err(|source| Error::Usage(format!("cannot read the text {}: {source}", text.display())))?;
    let Loaded { mut decoder, tokenizer, .. } = load.load()?;
    // No window needs more than 8 bytes a token on average; a shorter slice saves tokenising megabytes.
    let most = text.floor_char_boundary(text.len().min(windows * window * 8));
    let tokens = tokenizer.encode(&text[..most], Special::AsText);
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
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
