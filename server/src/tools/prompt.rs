//! How the model learns of functions, of its earlier calls, and of their results.

use serde_json::{Value, json};
use tegula_engine::chat::{ChatTemplate, Conversation, Message};

use super::hermes::{CLOSE, OPEN};
use super::{ToolChoice, Tools};

/// Who puts functions before the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// The chat template, which knows `tools` and the format of calls.
    Template,
    /// Instructions in the first message, since the template knows nothing of it or another format.
    Instructions {
        /// Whether the template has system messages; else they are at the beginning of what the user says.
        system: bool,
    },
}

impl ToolFormat {
    /// That of a template.
    pub fn of(template: &ChatTemplate) -> ToolFormat {
        if template.mentions("tools") && template.mentions(OPEN) {
            return ToolFormat::Template;
        }
        const PROBE: &str = "You answer questions.";
        let conversation = Conversation::new([Message::system(PROBE), Message::user("What is a tile?")]);
        ToolFormat::Instructions { system: template.render(&conversation).is_ok_and(|text| text.contains(PROBE)) }
    }

    /// Makes a conversation what the template takes: functions, calls and results are where the model expects them.
    ///
    /// The messages are a request's, the content of each a text or null. Without functions, calls and results in it it stays
    /// as it is.
    pub fn prepare(self, conversation: &mut Conversation, tools: &Tools) {
        match self {
            ToolFormat::Template => {
                conversation.messages.iter_mut().for_each(decode_arguments);
                let entries: Vec<Value> = tools.shown().iter().map(|tool| tool.entry.clone()).collect();
                conversation.tools = (!entries.is_empty()).then_some(entries);
            }
            ToolFormat::Instructions { system } => {
                conversation.messages = as_text(std::mem::take(&mut conversation.messages));
                if !tools.shown().is_empty() {
                    instruct(&mut conversation.messages, &instructions(tools), system);
                }
            }
        }
    }
}

/// Arguments of calls are JSON in a string; templates want the object.
fn decode_arguments(message: &mut Message) {
    for call in calls_mut(message) {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok())
            && object.is_object()
        {
            *arguments = object;
        }
    }
    if message.0.contains_key("tool_calls") && message.0.get("content").is_none_or(Value::is_null) {
        message.0.insert("content".to_owned(), json!(""));
    }
}

fn calls_mut(message: &mut Message) -> impl Iterator<Item = &mut Value> {
    message.0.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Calls and results as the text of messages, for templates that know only that.
fn as_text(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = vec![];
    let mut in_results = false;
    for mut message in messages {
        let is_result = message.0.get("role").is_some_and(|role| role == "tool");
        if is_result {
            let result = format!("<tool_response>\n{}\n</tool_response>", content(&message));
            match out.last_mut().filter(|_| in_results) {
                // Results that follow each other are one message, so that roles alternate.
                Some(last) => append(last, &result),
                None => out.push(Message::user(&result)),
            }
        } else {
            let calls: Vec<String> = calls_mut(&mut message).map(|call| call_text(call)).collect();
            if message.0.contains_key("tool_calls") {
                let said = content(&message);
                let parts = [said].into_iter().filter(|said| !said.is_empty()).chain(calls);
                let text = parts.collect::<Vec<_>>().join("\n");
                message.0.insert("content".to_owned(), json!(text));
                message.0.shift_remove("tool_calls");
            }
            out.push(message);
        }
        in_results = is_result;
    }
    out
}

/// A call as the model writes it.
fn call_text(call: &Value) -> String {
    let name = call.pointer("/function/name").unwrap_or(&Value::Null);
    let arguments = match call.pointer("/function/arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    format!("{OPEN}\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{CLOSE}")
}

fn content(message: &Message) -> String {
    match message.0.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn append(message: &mut Message, text: &str) {
    match message.0.get_mut("content") {
        // In place: a request may have very many results.
        Some(Value::String(before)) => {
            before.push('\n');
            before.push_str(text);
        }
        _ => {
            let before = content(message);
            message.0.insert("content".to_owned(), json!(format!("{before}\n{text}")));
        }
    }
}

fn instructions(tools: &Tools) -> String {
    let list: Vec<String> = tools.shown().iter().map(|tool| tool.entry.to_string()).collect();
    let may = match (tools.choice(), tools.most_calls()) {
        (ToolChoice::Named(name), _) => format!("You must call the function {} once.", json!(name)),
        (ToolChoice::Required, 1) => "You must call one of them.".to_owned(),
        (ToolChoice::Required, _) => "You must call one or more of them.".to_owned(),
        (_, 1) => "You may call one of them to help with what the user wants.".to_owned(),
        _ => "You may call one or more of them to help with what the user wants.".to_owned(),
    };
    format!(
        "# Tools\n\nThese are functions, each as JSON with a schema of its parameters:\n<tools>\n{}\n</tools>\n\n{may} A \
         call is a JSON object with the function's name and its arguments, between tags:\n{OPEN}\n{{\"name\": \"the \
         name\", \"arguments\": {{\"a parameter\": \"its value\"}}}}\n{CLOSE}",
        list.join("\n")
    )
}

/// Puts instructions into the system message, or what stands in for it.
fn instruct(messages: &mut Vec<Message>, text: &str, system: bool) {
    let role = if system { "system" } else { "user" };
    match messages.first_mut().filter(|first| first.0.get("role").is_some_and(|it| it == role)) {
        Some(first) if system => append(first, &format!("\n{text}")),
        Some(first) => {
            let said = content(first);
            first.0.insert("content".to_owned(), json!(format!("{text}\n\n{said}")));
        }
        None => messages.insert(0, Message::new(role, text)),
    }
}
