//! The form of answers that must call.

use serde_json::json;
use tegula_engine::grammar::Form;
use tegula_engine::tokenizer::{Kind, Special, Tokenizer};

use super::Tool;
use super::hermes::{CLOSE, OPEN};

/// Answers that are a call of one of these functions, or several, one after the other.
pub(super) fn form(tools: &[&Tool], several: bool, tokenizer: &Tokenizer) -> Form {
    let (open, close) = (tag(OPEN, tokenizer), tag(CLOSE, tokenizer));
    let names: Vec<String> = (0..tools.len()).map(|i| format!("f{i}")).collect();
    let mut lark = format!(
        "start: call{}\ncall: {open} \"\\n\" ({}) \"\\n\" {close}\n",
        if several { " (\"\\n\" call)*" } else { "" },
        names.join(" | ")
    );
    for (rule, tool) in names.iter().zip(tools) {
        let begin = format!("{{\"name\": {}, \"arguments\": ", json!(tool.name));
        lark += &format!("{rule}: {} {rule}_arguments \"}}\"\n", json!(begin));
        lark += &format!("{rule}_arguments: %json {}\n", tool.arguments());
    }
    Form::Grammar(lark)
}

/// A tag in a grammar: its text, or its token where the vocabulary has it as one that no text contains.
fn tag(text: &str, tokenizer: &Tokenizer) -> String {
    match control_token(text, tokenizer) {
        Some(token) => format!("<[{token}]>"),
        None => json!(text).to_string(),
    }
}

/// The control token of this name.
pub(super) fn control_token(name: &str, tokenizer: &Tokenizer) -> Option<u32> {
    match tokenizer.encode(name, Special::Parse)[..] {
        [token] if tokenizer.kind(token) == Some(Kind::Control) => Some(token),
        _ => None,
    }
}
