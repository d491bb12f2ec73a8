//! `tegula tokenize`: how a model sees a text.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use super::table::{self, Align, counted};
use tegula_engine::Error;
use tegula_engine::chat::{ChatTemplate, Conversation, Message};
use tegula_engine::gguf::Gguf;
use tegula_engine::pull;
use tegula_engine::tokenizer::{Kind, Special, Tokenizer};

/// Show the tokens of a text, as a model sees it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula tokenize smollm2 \"Why is the sky blue?\"\n  \
                        tegula tokenize smollm2 --chat \"Hi\"\n  tegula tokenize smollm2 --ids < text.txt")]
pub(super) struct Args {
    /// A GGUF file or a model name (downloaded if it is not here)
    #[arg(value_name = "MODEL")]
    model: OsString,
    /// The text; standard input if it is left out
    text: Option<String>,
    /// Print the token numbers only, in one line
    #[arg(long)]
    ids: bool,
    /// Read the names of control tokens in the text as the tokens they name
    #[arg(long, conflicts_with = "chat")]
    special: bool,
    /// Show the whole prompt the model's chat template makes of the text
    #[arg(long)]
    chat: bool,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let file = Gguf::open(pull::fetch(&args.model)?)?;
    let tokenizer = Tokenizer::from_gguf(&file)?;
    let text = args.text.map_or_else(read_input, Ok)?;
    let tokens = if args.chat {
        let template = ChatTemplate::from_gguf(&file, &tokenizer)?;
        template.encode(&Conversation::new([Message::user(&text)]), &tokenizer)?
    } else {
        tokenizer.encode(&text, if args.special { Special::Parse } else { Special::AsText })
    };
    let written = if args.ids {
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        writeln!(out, "{}", ids.join(" "))
    } else {
        let rows: Vec<Vec<String>> = tokens.iter().map(|&token| row(&tokenizer, token)).collect();
        table::write(out, &[Align::Right, Align::Left, Align::Left], &rows)
            .and_then(|()| writeln!(out, "{}", counted(tokens.len(), "token")))
    };
    written.map_err(Error::output)
}

fn read_input() -> Result<String, Error> {
    let mut text = String::new();
    match io::stdin().read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(source) => Err(Error::Io { doing: "reading standard input", source }),
    }
}

/// Number, text in quotes with what is not readable escaped, and what it is if it is not plain text.
fn row(tokenizer: &Tokenizer, token: u32) -> Vec<String> {
    let bytes = tokenizer.token_bytes(token);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
    };
    let kind = match tokenizer.kind(token) {
        None | Some(Kind::Normal) => "",
        Some(Kind::Unknown) => "unknown",
        Some(Kind::Control) => "control",
        Some(Kind::UserDefined) => "user-defined",
        Some(Kind::Unused) => "unused",
        Some(Kind::Byte) => "byte",
    };
    vec![token.to_string(), text, kind.to_owned()]
}
