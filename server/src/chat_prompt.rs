//! From the messages of a request to a prompt.

use serde_json::{Map, Value, json};
use tegula_engine::chat::{ChatError, ChatTemplate, Conversation, Message};

use crate::error::ApiError;
use crate::fields::{Fields, short};
use crate::limits;
use crate::state::App;
use crate::tools::{ToolError, Tools};

/// The parameter that messages come from.
const MESSAGES: &str = "messages";

/// A conversation as the chat template takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatPrompt {
    /// With functions, calls and results where the model expects them.
    pub conversation: Conversation,
    /// Which functions the model may call.
    pub tools: Tools,
}

/// Takes all parameters that a conversation's prompt depends on.
///
/// # Errors
/// 400 for what is not as it should be, and if the model has no chat template.
pub fn parse(app: &App, fields: &mut Fields) -> Result<ChatPrompt, ApiError> {
    let (template, format) = app.chat()?;
    let messages = messages(fields.take(MESSAGES)?, template)?;
    let parallel = fields.take("parallel_tool_calls")?;
    let (tools, choice) = (fields.take::<Value>("tools")?, fields.take::<Value>("tool_choice")?);
    // The message says where in the parameter.
    let bad = |error: ToolError| {
        let name = error.param.split(['.', '[']).next().unwrap_or_default().to_owned();
        ApiError::param(name, error.to_string())
    };
    let tools = Tools::new(tools.as_ref(), choice.as_ref(), parallel).map_err(bad)?;
    let generation_prompt = fields.take::<bool>("add_generation_prompt")?;
    let continue_final_message = fields.take("continue_final_message")?.unwrap_or(false);
    if continue_final_message && generation_prompt == Some(true) {
        const NAME: &str = "continue_final_message";
        let message = format!("{NAME} and add_generation_prompt exclude each other: set one of them to false");
        return Err(ApiError::param(NAME, message));
    }
    let mut conversation = Conversation {
        add_generation_prompt: generation_prompt.unwrap_or(!continue_final_message),
        continue_final_message,
        // Templates write what the model wants; where one does not, it is put there unless somebody objects.
        add_bos: fields.take("add_special_tokens")?.unwrap_or(true),
        extra: fields.take("chat_template_kwargs")?.unwrap_or_default(),
        ..Conversation::new(messages)
    };
    format.prepare(&mut conversation, &tools);
    Ok(ChatPrompt { conversation, tools })
}

impl ChatPrompt {
    /// The text that the answer goes on with, if it goes on with one.
    pub fn continued(&self) -> Option<&str> {
        let last = self.conversation.messages.last().filter(|_| self.conversation.continue_final_message)?;
        last.0.get("content")?.as_str()
    }

    /// That the messages are not too long, before any work is done for them.
    ///
    /// # Errors
    /// 400 if they are.
    pub fn check_length(&self, app: &App) -> Result<(), ApiError> {
        let contents = self.conversation.messages.iter().filter_map(|message| message.0.get("content")?.as_str());
        limits::check_bytes(app, MESSAGES, contents.map(str::len).sum())
    }

    /// The prompt: at least one token.
    ///
    /// # Errors
    /// 400 if the template does not take them.
    pub fn tokens(&self, app: &App) -> Result<Vec<u32>, ApiError> {
        let (template, _) = app.chat()?;
        let tokens = template.encode(&self.conversation, app.engine()?.tokenizer()).map_err(chat_error)?;
        if tokens.is_empty() {
            let message =
                format!("{MESSAGES}: the chat template makes nothing of them; the prompt must have one token or more");
            return Err(ApiError::param(MESSAGES, message));
        }
        Ok(tokens)
    }
}

/// What a template says: about the messages, or about itself.
fn chat_error(error: ChatError) -> ApiError {
    let message = error.to_string();
    match error {
        ChatError::Refused(_) => ApiError::param(MESSAGES, message),
        ChatError::Continue(_) => ApiError::param("continue_final_message", message),
        // Templates are written for messages as they should be, and do not always say what is missing.
        ChatError::Failed { .. } => ApiError::param(MESSAGES, message),
        ChatError::NoTemplate { .. } | ChatError::Broken { .. } | ChatError::Gguf(_) => ApiError::internal(message),
    }
}

/// The messages, the content of each a text or null.
fn messages(value: Option<Value>, template: &ChatTemplate) -> Result<Vec<Message>, ApiError> {
    let bad = |message: String| ApiError::param(MESSAGES, message);
    let expected = |found: &str| bad(format!("{MESSAGES}: expected a list of one message or more, found {found}"));
    let items = match value {
        None => return Err(expected("nothing")),
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(other) => return Err(expected(&short(&other))),
    };
    let message = |(place, item): (usize, Value)| {
        let place = format!("{MESSAGES}[{place}]");
        match item {
            Value::Object(map) => message(map, &place, template).map_err(bad),
            other => Err(bad(format!("{place}: expected an object with a role and content, found {}", short(&other)))),
        }
    };
    items.into_iter().enumerate().map(message).collect()
}

fn message(mut map: Map<String, Value>, place: &str, template: &ChatTemplate) -> Result<Message, String> {
    let role = match map.get("role") {
        Some(Value::String(role)) if !role.is_empty() => role.clone(),
        other => return Err(format!("{place}.role: expected a text, found {}", other.map_or("nothing".into(), short))),
    };
    if role == "developer" && !template.mentions("developer") {
        // The newer name of the same.
        map.insert("role".to_owned(), json!("system"));
    }
    if map.get("tool_calls").is_some_and(Value::is_null) {
        map.shift_remove("tool_calls");
    }
    if let Some(calls) = map.get("tool_calls") {
        check_calls(calls, place)?;
    }
    let may_be_silent = role == "assistant";
    let content = match map.remove("content") {
        None | Some(Value::Null) if map.contains_key("tool_calls") => Value::Null,
        Some(Value::Null) if may_be_silent => json!(""),
        Some(Value::String(text)) => Value::String(text),
        Some(Value::Array(parts)) => Value::String(text_of(&parts, place)?),
        other => {
            let found = other.as_ref().map_or("nothing".into(), short);
            return Err(format!("{place}.content: expected a text or a list of parts, found {found}"));
        }
    };
    map.insert("content".to_owned(), content);
    Ok(Message(map))
}

/// The parts of a content as one text, a line each.
fn text_of(parts: &[Value], place: &str) -> Result<String, String> {
    let text = |(i, part): (usize, &'_ Value)| part_text(part).map_err(|why| format!("{place}.content[{i}]{why}"));
    let texts: Vec<String> = parts.iter().enumerate().map(text).collect::<Result<_, _>>()?;
    Ok(texts.join("\n"))
}

/// The text of one part.
fn part_text(part: &Value) -> Result<String, String> {
    let key = match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        _ => {
            let found = short(part.get("type").unwrap_or(part));
            return Err(format!(": expected a part of type \"text\", the one kind that is supported, found {found}"));
        }
    };
    let text = part.get(key).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| format!(".{key}: expected a text"))
}

/// Calls in earlier answers name functions and have arguments.
fn check_calls(calls: &Value, place: &str) -> Result<(), String> {
    let Value::Array(calls) = calls else {
        return Err(format!("{place}.tool_calls: expected a list, found {}", short(calls)));
    };
    for (i, call) in calls.iter().enumerate() {
        let function = call.get("function");
        let name = function.and_then(|function| function.get("name")).and_then(Value::as_str);
        let arguments = function.and_then(|function| function.get("arguments"));
        if name.is_none() || arguments.is_some_and(|arguments| !(arguments.is_string() || arguments.is_object())) {
            let expected = "{\"type\": \"function\", \"function\": {\"name\": …, \"arguments\": …}}";
            return Err(format!("{place}.tool_calls[{i}]: expected {expected}, found {}", short(call)));
        }
    }
    Ok(())
}
