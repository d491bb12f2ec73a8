//! Functions that the model may call: from a request's `tools` to the calls in an answer.
//!
//! [`Tools`] is what a request says. [`ToolFormat`] puts it before the model: as the template's own, or as instructions in
//! the system message where the template knows of no tools or of another format. The model calls in the format of Hermes
//! and Qwen; [`ToolParser`] finds the calls in its answer. Where it must call, a grammar sees to it that it does
//! ([`Tools::form`]).

mod force;
mod hermes;
mod lexer;
mod prompt;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use tegula_engine::grammar::{Form, json_part};
use tegula_engine::tokenizer::Tokenizer;

pub use hermes::{ToolDelta, ToolParser};
pub use prompt::ToolFormat;

use crate::fields::short;

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The schema of its arguments, an object.
    pub parameters: Map<String, Value>,
    /// The request's entry.
    pub entry: Value,
}

/// Which calls the answer shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// None; the model does not even learn of the functions.
    None,
    /// What the model thinks right.
    Auto,
    /// One at least.
    Required,
    /// One of this function and no other.
    Named(String),
}

/// What a request says about functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Tools {
    list: Vec<Tool>,
    choice: ToolChoice,
    parallel: bool,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{param}: {message}")]
pub struct ToolError {
    /// Where: `tools[0].function.name`, for example.
    pub param: String,
    /// What was wrong, and what would be right.
    pub message: String,
}

impl ToolError {
    fn new(param: impl Into<String>, message: impl Into<String>) -> ToolError {
        ToolError { param: param.into(), message: message.into() }
    }
}

impl Tools {
    /// From the values of `tools`, `tool_choice` and `parallel_tool_calls` (true without one).
    ///
    /// # Errors
    /// If they are not what OpenAI's API says, or the choice names no function of the list.
    pub fn new(tools: Option<&Value>, choice: Option<&Value>, parallel: Option<bool>) -> Result<Tools, ToolError> {
        let list = match tools {
            None | Some(Value::Null) => vec![],
            Some(Value::Array(entries)) => {
                entries.iter().enumerate().map(|(i, entry)| tool(i, entry)).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(ToolError::new("tools", format!("expected a list, found {}", short(other)))),
        };
        let choice = match choice {
            None | Some(Value::Null) if list.is_empty() => ToolChoice::None,
            None | Some(Value::Null) => ToolChoice::Auto,
            Some(choice) => chosen(choice, &list)?,
        };
        Ok(Tools { list, choice, parallel: parallel.unwrap_or(true) })
    }

    /// Which calls the answer shall have.
    pub fn choice(&self) -> &ToolChoice {
        &self.choice
    }

    /// The functions that the model learns of.
    pub fn shown(&self) -> &[Tool] {
        if self.choice == ToolChoice::None { &[] } else { &self.list }
    }

    /// Calls that an answer has at most.
    fn most_calls(&self) -> usize {
        match self.choice {
            _ if self.shown().is_empty() => 0,
            ToolChoice::Named(_) => 1,
            _ if self.parallel => usize::MAX,
            _ => 1,
        }
    }

    /// The form of the answer, if it must be calls. Such a request can have no other form beside it.
    pub fn form(&self, tokenizer: &Tokenizer) -> Option<Form> {
        let may_call: Vec<&Tool> = match &self.choice {
            ToolChoice::None | ToolChoice::Auto => return None,
            ToolChoice::Required => self.list.iter().collect(),
            ToolChoice::Named(name) => self.list.iter().filter(|tool| tool.name == *name).take(1).collect(),
        };
        Some(force::form(&may_call, self.most_calls() > 1, tokenizer))
    }

    /// Finds the calls in one answer; `None` if its text is only text.
    pub fn parser(&self) -> Option<ToolParser> {
        (self.most_calls() > 0).then(|| ToolParser::new(self.most_calls()))
    }

    /// The control tokens that the parser must see as text, for
    /// [`Request::visible`](tegula_engine::engine::Request::visible).
    pub fn visible(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        if self.most_calls() == 0 {
            return vec![];
        }
        [hermes::OPEN, hermes::CLOSE].into_iter().filter_map(|tag| force::control_token(tag, tokenizer)).collect()
    }
}

impl Tool {
    /// The schema of its arguments as part of a grammar.
    fn arguments(&self) -> Value {
        let mut schema = self.parameters.clone();
        schema.insert("type".into(), json!("object"));
        json_part(schema)
    }
}

fn tool(i: usize, entry: &Value) -> Result<Tool, ToolError> {
    let param = |rest: &str| format!("tools[{i}]{rest}");
    match entry.get("type") {
        Some(kind) if kind == "function" => {}
        Some(other) => {
            let message = format!("expected \"function\", the one kind that is supported, found {}", short(other));
            return Err(ToolError::new(param(".type"), message));
        }
        None => {
            return Err(ToolError::new(param(""), "expected {\"type\": \"function\", \"function\": {\"name\": …}}"));
        }
    }
    let function = entry.get("function").and_then(Value::as_object);
    let function = function.ok_or_else(|| ToolError::new(param(".function"), "expected an object with a name"))?;
    let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| ToolError::new(param(".function.name"), "expected a name of one character or more"))?;
    let parameters = match function.get("parameters") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(schema)) => schema.clone(),
        Some(other) => {
            let message = format!("expected a JSON schema of an object, found {}", short(other));
            return Err(ToolError::new(param(".function.parameters"), message));
        }
    };
    if let Some(kind) = parameters.get("type").filter(|kind| *kind != "object") {
        let message = format!("arguments are an object: expected \"object\", found {}", short(kind));
        return Err(ToolError::new(param(".function.parameters.type"), message));
    }
    Ok(Tool { name: name.to_owned(), parameters, entry: entry.clone() })
}

fn chosen(choice: &Value, list: &[Tool]) -> Result<ToolChoice, ToolError> {
    const EXPECTED: &str = "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": …}}";
    let bad = || ToolError::new("tool_choice", format!("expected {EXPECTED}, found {}", short(choice)));
    let some = |choice| match list.is_empty() {
        true => Err(ToolError::new("tool_choice", "there are no tools to choose from; add them as `tools`")),
        false => Ok(choice),
    };
    match choice {
        Value::String(word) => match word.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" if list.is_empty() => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => some(ToolChoice::Required),
            _ => Err(bad()),
        },
        Value::Object(object) => {
            let name = object.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
            let is_function = object.get("type").is_none_or(|kind| kind == "function");
            let name = name.filter(|_| is_function).ok_or_else(bad)?;
            if !list.is_empty() && !list.iter().any(|tool| tool.name == name) {
                let names: Vec<&str> = list.iter().map(|tool| tool.name.as_str()).collect();
                let message = format!("no tool is named {name:?}; there are {}", names.join(", "));
                return Err(ToolError::new("tool_choice.function.name", message));
            }
            some(ToolChoice::Named(name.to_owned()))
        }
        _ => Err(bad()),
    }
}
