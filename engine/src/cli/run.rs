//! `tegula run`: a model answers, on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::model::{Load, Loaded};
use crate::Error;
use crate::chat::{Conversation, Message};
use crate::sampling::SamplingParams;
use crate::session::Session;
use crate::tokenizer::{Special, Utf8Stream};

/// Ask a model something, or talk with it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula run smollm2 -p \"Why is the sky blue?\"\n  tegula run smollm2\n  \
                        tegula run smollm2 --raw -p \"The capital of France is\" --temperature 0 -n 20")]
pub(super) struct Args {
    #[command(flatten)]
    load: Load,
    /// The question; without it you talk with the model, line by line, until end of input
    #[arg(short, long)]
    prompt: Option<String>,
    /// What the model is told about its role
    #[arg(long, conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the prompt as it is, without the model's chat template
    #[arg(long, requires = "prompt")]
    raw: bool,
    /// Most tokens of an answer
    #[arg(short = 'n', long, default_value_t = 512)]
    max_tokens: usize,
    /// Longest conversation in tokens, prompt and answers [default: 4096, or what the model was made for if that is less]
    #[arg(long)]
    context: Option<usize>,
    /// Randomness; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.7, allow_negative_numbers = true)]
    temperature: f32,
    /// Choose among this many most likely tokens only; 0 means all
    #[arg(long, default_value_t = 0)]
    top_k: u32,
    /// Choose among the most likely tokens that make up this share of the probability
    #[arg(long, default_value_t = 0.95, allow_negative_numbers = true)]
    top_p: f32,
    /// Drop tokens less likely than this share of the most likely one's probability
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f32,
    /// Seed of the randomness: the same seed gives the same answer [default: a new one each time]
    #[arg(long)]
    seed: Option<u64>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let params = SamplingParams {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed.unwrap_or_else(new_seed),
    };
    params.validate()?;
    let mut model = args.load.load()?;
    let context = args.context.unwrap_or(4096).min(model.decoder.config().context).max(2);
    if args.raw {
        let text = args.prompt.unwrap_or_default();
        let mut tokens = model.tokenizer.encode(&text, Special::AsText);
        if model.tokenizer.add_bos() {
            tokens.extend(model.tokenizer.bos());
            tokens.rotate_right(1);
        }
        if tokens.is_empty() {
            return Err(Error::Usage("the prompt is empty: there is nothing to continue".into()));
        }
        let Loaded { decoder, tokenizer, .. } = &mut model;
        let mut session = Session::new(decoder, context)?;
        let (_, speed) = answer(&mut session, tokenizer, &tokens, &params, args.max_tokens, context, out)?;
        return report(&speed);
    }
    let mut messages: Vec<Message> = args.system.iter().map(|s| Message::system(s)).collect();
    let Loaded { decoder, tokenizer, template, .. } = &mut model;
    let template = template
        .as_ref()
        .ok_or_else(|| Error::Usage("this model has no chat template; use --raw to continue a text".into()))?;
    let mut session = Session::new(decoder, context)?;
    // What the cache holds: a longer conversation begins with the same tokens, and only the rest is computed.
    let mut held: Vec<u32> = vec![];
    let once = args.prompt.is_some();
    let mut next = args.prompt;
    loop {
        let Some(text) = next.take().map_or_else(ask, |t| Ok(Some(t)))? else { return Ok(()) };
        messages.push(Message::user(&text));
        let tokens = template.encode(&Conversation::new(messages.clone()), tokenizer)?;
        if !tokens.starts_with(&held) || held.is_empty() {
            session.clear();
            held.clear();
        }
        let (said, speed) =
            answer(&mut session, tokenizer, &tokens[held.len()..], &params, args.max_tokens, context, out)?;
        held = tokens;
        held.extend(&said.tokens);
        // The last token was chosen and not computed.
        held.truncate(session.len());
        messages.push(Message::assistant(&said.text));
        report(&speed)?;
        if once {
            return Ok(());
        }
    }
}

/// Reads a line of a conversation; `None` at the end of input.
fn ask() -> Result<Option<String>, Error> {
    let reading = |source| Error::Io { doing: "reading standard input", source };
    loop {
        if io::stdin().is_terminal() {
            eprint!("> ");
        }
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).map_err(reading)? == 0 {
            return Ok(None);
        }
        if !line.trim().is_empty() {
            return Ok(Some(line.trim().to_owned()));
        }
    }
}

/// An answer: its tokens and its text.
struct Said {
    tokens: Vec<u32>,
    text: String,
}

/// How long an answer took.
struct Speed {
    prompt: (usize, Duration),
    answer: (usize, Duration),
}

fn answer(
    session: &mut Session<'_>,
    tokenizer: &crate::tokenizer::Tokenizer,
    prompt: &[u32],
    params: &SamplingParams,
    most: usize,
    context: usize,
    out: &mut dyn Write,
) -> Result<(Said, Speed), Error> {
    if session.len() + prompt.len() >= context {
        let long = session.len() + prompt.len();
        return Err(Error::Usage(format!(
            "the conversation has {long} tokens; the context holds {context}: start anew, or raise --context"
        )));
    }
    let start = Instant::now();
    session.feed(prompt, |_| {})?;
    let mut said = Said { tokens: vec![], text: String::new() };
    let mut stream = Utf8Stream::new();
    let mut token = session.sample(params)?;
    let prompt_time = start.elapsed();
    let start = Instant::now();
    let most = most.min(context - session.len());
    while said.tokens.len() < most {
        said.tokens.push(token);
        if tokenizer.is_end(token) {
            break;
        }
        let text = stream.push(tokenizer.text_bytes(token));
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
        said.text += &text;
        if said.tokens.len() == most {
            break;
        }
        session.feed(&[token], |_| {})?;
        token = session.sample(params)?;
    }
    let rest = stream.finish();
    writeln!(out, "{rest}").and_then(|()| out.flush()).map_err(Error::output)?;
    said.text += &rest;
    let steps = said.tokens.len().saturating_sub(1);
    Ok((said, Speed { prompt: (prompt.len(), prompt_time), answer: (steps, start.elapsed()) }))
}

fn report(speed: &Speed) -> Result<(), Error> {
    let rate = |(n, t): (usize, Duration)| n as f64 / t.as_secs_f64().max(1e-9);
    eprintln!(
        "[prompt {} tokens, {:.1} tokens/s, first token after {:.0} ms; answer {} tokens, {:.1} tokens/s]",
        speed.prompt.0,
        rate(speed.prompt),
        speed.prompt.1.as_secs_f64() * 1e3,
        speed.answer.0 + 1,
        rate(speed.answer),
    );
    Ok(())
}

/// A seed nobody chose.
fn new_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
