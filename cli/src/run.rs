//! `tegula run`: a model answers, on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use super::answer::{Answer, Limits};
use super::model::{Load, Opened};
use super::note;
use super::numbers::{MOST_TOKENS, whole};
use super::table::counted;
use super::talk::{Prompt, Talk};
use tegula_engine::Error;
use tegula_engine::sampling::{Draw, SamplingParams, unpredictable_seed};
use tegula_engine::session::Session;
use tegula_engine::tokenizer::Special;

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
    #[arg(short = 'n', long, default_value_t = 512, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    max_tokens: usize,
    /// Longest conversation in tokens, prompt and answers; when it is full, the oldest turns are forgotten [default:
    /// 4096, or what the model was made for if that is less]
    #[arg(long, value_parser = whole::<usize>(2..=MOST_TOKENS), allow_negative_numbers = true)]
    context: Option<usize>,
    /// Randomness; 0 always takes the most likely token
    #[arg(long, default_value_t = 0.7, allow_negative_numbers = true)]
    temperature: f32,
    /// Choose among this many most likely tokens only; 0 means all
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=u64::from(u32::MAX)), allow_negative_numbers = true)]
    top_k: u32,
    /// Choose among the most likely tokens that make up this share of the probability
    #[arg(long, default_value_t = 0.95, allow_negative_numbers = true)]
    top_p: f32,
    /// Drop tokens less likely than this share of the most likely one's probability
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f32,
    /// Seed of the randomness: the same seed gives the same answer [default: a new one each time]
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    seed: Option<u64>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let params = SamplingParams {
        temperature: args.temperature,
        top_k: i32::try_from(args.top_k).unwrap_or(i32::MAX),
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
        ..SamplingParams::default()
    };
    params.validate()?;
    let draw = params.draw(args.seed.unwrap_or_else(unpredictable_seed));
    let model = args.load.open()?;
    let limits = Limits { answer: args.max_tokens, context: context(args.context, model.config.context) };
    match args.prompt {
        Some(text) if args.raw => go_on(&model, &text, draw, limits, out),
        prompt => converse(&model, args.system.as_deref(), prompt, draw, limits, out),
    }
}

/// The context to use: what was asked for, and no more than the model was made for.
fn context(asked: Option<usize>, made_for: usize) -> usize {
    if let Some(asked) = asked.filter(|n| *n > made_for) {
        note(format_args!("--context {asked}: the model was made for {}; using these", counted(made_for, "token")));
    }
    asked.unwrap_or(4096).min(made_for)
}

/// Continues a text.
fn go_on(model: &Opened, text: &str, draw: Draw, limits: Limits, out: &mut dyn Write) -> Result<(), Error> {
    let mut tokens = model.tokenizer.encode(text, Special::AsText);
    if model.tokenizer.add_bos() {
        tokens.splice(0..0, model.tokenizer.bos());
    }
    if tokens.is_empty() {
        return Err(Error::Usage("the prompt is empty: there is nothing to continue".into()));
    }
    if tokens.len() >= limits.context {
        return Err(too_long(tokens.len(), limits.context));
    }
    let mut decoder = model.decoder()?;
    let mut session = Session::new(&mut decoder, limits.context)?;
    Answer::write(&mut session, &model.tokenizer, &tokens, draw, limits, out)?.report();
    Ok(())
}

/// Answers `prompt`, or lines from standard input until its end.
fn converse(
    model: &Opened,
    system: Option<&str>,
    prompt: Option<String>,
    draw: Draw,
    limits: Limits,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let template = model
        .template
        .as_ref()
        .ok_or_else(|| Error::Usage("this model has no chat template; use --raw to continue a text".into()))?;
    let mut talk = Talk::new(template, &model.tokenizer, system, limits);
    let once = match &prompt {
        Some(text) => Some(match talk.hear(text)? {
            Prompt::Ready { tokens, .. } => tokens,
            Prompt::TooLong(n) => return Err(too_long(n, limits.context)),
        }),
        None => None,
    };
    let mut decoder = model.decoder()?;
    let mut session = Session::new(&mut decoder, limits.context)?;
    if let Some(tokens) = once {
        Answer::write(&mut session, &model.tokenizer, &tokens, draw, limits, out)?.report();
        return Ok(());
    }
    // What the cache holds: a longer conversation begins with the same tokens, and only the rest is computed.
    let mut held: Vec<u32> = vec![];
    while let Some(text) = ask()? {
        let tokens = match talk.hear(&text)? {
            Prompt::Ready { tokens, forgotten } => {
                if forgotten > 0 {
                    note(format_args!(
                        "the context of {} is full: the oldest {} forgotten",
                        counted(limits.context, "token"),
                        if forgotten == 1 { "turn is".to_owned() } else { format!("{forgotten} turns are") }
                    ));
                }
                tokens
            }
            Prompt::TooLong(n) => {
                note(too_long(n, limits.context));
                continue;
            }
        };
        if !tokens.starts_with(&held) || held.is_empty() {
            session.clear();
            held.clear();
        }
        let answer = Answer::write(&mut session, &model.tokenizer, &tokens[held.len()..], draw, limits, out)?;
        held = tokens;
        held.extend(&answer.tokens);
        // The last token was chosen and not computed.
        held.truncate(session.len());
        answer.report();
        talk.said(&answer.text);
    }
    Ok(())
}

fn too_long(tokens: usize, context: usize) -> Error {
    Error::Usage(format!(
        "the prompt has {tokens} tokens; the context holds {context}, and one must be left for the answer"
    ))
}

/// Reads a line of a conversation; `None` at the end of input.
fn ask() -> Result<Option<String>, Error> {
    let reading = |source| Error::Io { doing: "reading standard input", source };
    loop {
        if io::stdin().is_terminal() {
            eprint!("> ");
        }
        let mut line = vec![];
        if io::stdin().lock().read_until(b'\n', &mut line).map_err(reading)? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8(line).unwrap_or_else(|e| {
            note("the line is not UTF-8 throughout; what is not is replaced by U+FFFD");
            String::from_utf8_lossy(e.as_bytes()).into_owned()
        });
        if !text.trim().is_empty() {
            return Ok(Some(text.trim().to_owned()));
        }
    }
}
