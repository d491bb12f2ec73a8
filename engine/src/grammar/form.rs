//! What form an answer is to have.

use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// White space between the tokens of JSON, where some is allowed: no more, or a model can go on with it for ever.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

/// Most bytes of forms. What takes longest to compile for its size takes a second or so.
const MOST_SCHEMA: usize = 128 << 10;
const MOST_REGEX: usize = 64 << 10;
const MOST_CHOICE: usize = 1 << 20;
const MOST_GRAMMAR: usize = 128 << 10;
/// Most levels of brackets in a grammar.
const MOST_DEPTH: usize = 500;

/// The form of an answer: the whole of its text, from the first token on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema; `{}` is any.
    JsonSchema(Value),
    /// A regular expression in Rust's syntax, without anchors, look-around and back references: it is the whole text.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A context-free grammar in llguidance's variant of Lark's syntax; the rule `start` is the whole text.
    Grammar(String),
}

impl Form {
    /// Its name in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Form::JsonObject => "JSON object",
            Form::JsonSchema(_) => "JSON schema",
            Form::Regex(_) => "regular expression",
            Form::Choice(_) => "choice",
            Form::Grammar(_) => "grammar",
        }
    }

    /// That it is no larger than what can be compiled in good time, and no deeper than a stack.
    pub(super) fn check_size(&self) -> Result<(), String> {
        let bounded = |what: &str, found: usize, most: usize| match found <= most {
            true => Ok(()),
            false => Err(format!("it has {found} {what}; it must have at most {most}")),
        };
        match self {
            Form::JsonObject => Ok(()),
            Form::JsonSchema(schema) => bounded("bytes", schema.to_string().len(), MOST_SCHEMA),
            Form::Regex(text) => bounded("bytes", text.len(), MOST_REGEX),
            Form::Choice(texts) => bounded("bytes", texts.iter().map(|text| text.len() + 1).sum(), MOST_CHOICE),
            Form::Grammar(text) => {
                bounded("bytes", text.len(), MOST_GRAMMAR)?;
                bounded("levels of brackets", depth(text), MOST_DEPTH)
            }
        }
    }

    pub(super) fn grammar(&self) -> Result<TopLevelGrammar, String> {
        match self {
            Form::JsonObject => schema(&json!({ "type": "object" })),
            Form::JsonSchema(value) => schema(value),
            Form::Regex(regex) => Ok(TopLevelGrammar::from_regex(regex)),
            Form::Choice(texts) if texts.is_empty() => Err("there is nothing to choose from".into()),
            // One expression, since a rule of so many alternatives takes long to compile, and cannot be followed.
            Form::Choice(texts) => {
                let literals: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                Ok(TopLevelGrammar::from_regex(&literals.join("|")))
            }
            Form::Grammar(text) if text.trim().is_empty() => Err("it is empty; it must have a rule `start`".into()),
            Form::Grammar(text) => Ok(TopLevelGrammar::from_lark(text.clone())),
        }
    }
}

/// A JSON schema as `%json` takes it in a [`Form::Grammar`], with white space bounded as under [`Form::JsonSchema`].
pub fn json_part(mut schema: Map<String, Value>) -> Value {
    schema.insert("x-guidance".into(), json!({ "whitespace_pattern": JSON_SPACE }));
    Value::Object(schema)
}

/// How deep brackets are nested, those in quotes left out.
fn depth(text: &str) -> usize {
    let (mut depth, mut most, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            // No quoted text goes over a line's end.
            b'\n' => quoted = false,
            b'(' | b'[' | b'{' if !quoted => depth += 1,
            b')' | b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

/// A regular expression of this text alone.
fn literal(text: &str) -> String {
    let escaped = |c: char| if c.is_ascii_punctuation() { vec!['\\', c] } else { vec![c] };
    text.chars().flat_map(escaped).collect()
}

fn schema(value: &Value) -> Result<TopLevelGrammar, String> {
    match value {
        Value::Bool(true) => Ok(TopLevelGrammar::from_json_schema(json_part(Map::new()))),
        Value::Object(schema) => Ok(TopLevelGrammar::from_json_schema(json_part(schema.clone()))),
        other => Err(format!("it is {other}; it must be an object")),
    }
}
