//! What form an answer is to have.

use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// White space between the tokens of JSON, where some is allowed: no more, or a model can go on with it for ever.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

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

    pub(super) fn grammar(&self) -> Result<TopLevelGrammar, String> {
        match self {
            Form::JsonObject => schema(&json!({ "type": "object" })),
            Form::JsonSchema(value) => schema(value),
            Form::Regex(regex) => Ok(TopLevelGrammar::from_regex(regex)),
            Form::Choice(texts) if texts.is_empty() => Err("there is nothing to choose from".into()),
            Form::Choice(texts) => {
                let quoted: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
                Ok(TopLevelGrammar::from_lark(format!("start: {}", quoted.join(" | "))))
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

fn schema(value: &Value) -> Result<TopLevelGrammar, String> {
    match value {
        Value::Bool(true) => Ok(TopLevelGrammar::from_json_schema(json_part(Map::new()))),
        Value::Object(schema) => Ok(TopLevelGrammar::from_json_schema(json_part(schema.clone()))),
        other => Err(format!("it is {other}; it must be an object")),
    }
}
