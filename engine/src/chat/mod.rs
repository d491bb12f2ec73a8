//! From a conversation to a prompt, by the chat template (Jinja) inside the model file.
//!
//! Templates come from strangers: they run in a sandbox with a bounded number of steps. What users write comes from
//! strangers too: the text of a message never becomes a control token, whatever it contains; only the template's own
//! text does.
//!
//! ```
//! use tegula_engine::chat::{ChatTemplate, Conversation, Message};
//!
//! let source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}\
//!               {% if add_generation_prompt %}<|assistant|>{% endif %}";
//! let template = ChatTemplate::new(source)?;
//! let conversation = Conversation::new([Message::user("Why is the sky blue?")]);
//! assert_eq!(template.render(&conversation)?, "<|user|>Why is the sky blue?<|assistant|>");
//! # Ok::<(), tegula_engine::chat::ChatError>(())
//! ```

mod error;
mod json;

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

pub use error::ChatError;

use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

const KEY: &str = "tokenizer.chat_template";
/// Steps a template may take: a long conversation takes thousands, a runaway loop more than this at once.
const MOST_STEPS: u64 = 20_000_000;
/// Marks an error that `raise_exception` made.
const REFUSED: &str = "raise_exception: ";

/// One message of a conversation: at least `role` and `content`, and whatever else the template knows (for example
/// `tool_calls`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Message(pub Map<String, Json>);

impl Message {
    /// A message of plain text.
    pub fn new(role: &str, content: &str) -> Message {
        Message(Map::from_iter([("role".to_owned(), json!(role)), ("content".to_owned(), json!(content))]))
    }

    /// What the user says.
    pub fn user(content: &str) -> Message {
        Message::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: &str) -> Message {
        Message::new("assistant", content)
    }

    /// Instructions to the model.
    pub fn system(content: &str) -> Message {
        Message::new("system", content)
    }
}

/// What a template is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The functions the model may call, as JSON schemas; `None` leaves them undefined.
    pub tools: Option<Vec<Json>>,
    /// Whether the prompt shall end where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the prompt shall end within the last message, right behind its text, so that the model goes on with it. Then
    /// `add_generation_prompt` does not count.
    pub continue_final_message: bool,
    /// Whether the sequence-begin token is put in front if the model wants it and the template does not have it.
    pub add_bos: bool,
    /// Further variables of the template, for example `enable_thinking`.
    pub extra: Map<String, Json>,
}

impl Conversation {
    /// A conversation that the model shall answer.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Conversation {
        Conversation {
            messages: messages.into_iter().collect(),
            tools: None,
            add_generation_prompt: true,
            continue_final_message: false,
            add_bos: true,
            extra: Map::new(),
        }
    }

    /// The template's variables.
    fn variables(&self) -> Map<String, Json> {
        let mut variables = self.extra.clone();
        variables.insert("messages".to_owned(), json!(self.messages));
        if let Some(tools) = &self.tools {
            variables.insert("tools".to_owned(), json!(tools));
        }
        let add_generation_prompt = self.add_generation_prompt && !self.continue_final_message;
        variables.insert("add_generation_prompt".to_owned(), json!(add_generation_prompt));
        variables
    }
}

/// A model's chat template, ready to use.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The model file, for errors.
    file: Option<PathBuf>,
    /// The texts of the sequence-begin and sequence-end tokens, which templates may use.
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// The template of a model file.
    pub fn from_gguf(file: &Gguf, tokenizer: &Tokenizer) -> Result<ChatTemplate, ChatError> {
        let no_template = || ChatError::NoTemplate { file: file.path().display().to_string() };
        let source: &str = file.get(KEY)?.ok_or_else(no_template)?;
        let name = |token: Option<u32>| {
            token.map_or(String::new(), |token| String::from_utf8_lossy(tokenizer.token_bytes(token)).into_owned())
        };
        let template = ChatTemplate::named(source, Some(file.path()))?;
        Ok(template.with_tokens(&name(tokenizer.bos()), &name(tokenizer.eos())))
    }

    /// A template from its source.
    pub fn new(source: &str) -> Result<ChatTemplate, ChatError> {
        ChatTemplate::named(source, None)
    }

    fn named(source: &str, file: Option<&Path>) -> Result<ChatTemplate, ChatError> {
        let file = file.map(Path::to_owned);
        let broken = |error: Error| ChatError::Broken { file: file.clone(), line: error.line(), why: explain(&error) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(broken)?);
        environment.set_fuel(Some(MOST_STEPS));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned("chat", source.to_owned()).map_err(broken)?;
        Ok(ChatTemplate { environment, file, bos: String::new(), eos: String::new() })
    }

    /// The same with the values of `bos_token` and `eos_token`.
    pub fn with_tokens(mut self, bos: &str, eos: &str) -> ChatTemplate {
        (self.bos, self.eos) = (bos.to_owned(), eos.to_owned());
        self
    }

    /// Whether its source contains this text: a sign of what the template knows.
    pub fn mentions(&self, text: &str) -> bool {
        self.environment.get_template("chat").is_ok_and(|template| template.source().contains(text))
    }

    /// The prompt as text. To get tokens use [`ChatTemplate::encode`], which tells the template's text from the users'.
    pub fn render(&self, conversation: &Conversation) -> Result<String, ChatError> {
        let variables = conversation.variables();
        let [_, end] = unused_chars(&variables);
        self.render_up_to(conversation, variables, end)
    }

    /// The prompt as tokens, with the sequence-begin token in front if the model wants it. Only the template's own
    /// text becomes control tokens.
    pub fn encode(&self, conversation: &Conversation, tokenizer: &Tokenizer) -> Result<Vec<u32>, ChatError> {
        let mut variables = conversation.variables();
        let [guard, end] = unused_chars(&variables);
        variables.values_mut().for_each(|value| map_strings(value, &|text| tokenizer.guard(text, guard)));
        let mut tokens = tokenizer.encode_guarded(&self.render_up_to(conversation, variables, end)?, guard);
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.add_bos() && conversation.add_bos)
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// Renders, if the last message is to be continued up to the end of its text: there stands `end`, a character that is
    /// nowhere else.
    fn render_up_to(
        &self,
        conversation: &Conversation,
        mut variables: Map<String, Json>,
        end: char,
    ) -> Result<String, ChatError> {
        if !conversation.continue_final_message {
            return self.render_variables(variables);
        }
        let messages = variables.get_mut("messages").and_then(Json::as_array_mut);
        match messages.and_then(|all| all.last_mut()).and_then(|last| last.get_mut("content")) {
            Some(Json::String(text)) => text.push(end),
            _ => return Err(ChatError::Continue("it has no text")),
        }
        let mut text = self.render_variables(variables)?;
        let cut = text.rfind(end).ok_or(ChatError::Continue("the chat template does not show all of its text"))?;
        text.truncate(cut);
        Ok(text)
    }

    fn render_variables(&self, mut variables: Map<String, Json>) -> Result<String, ChatError> {
        variables.insert("bos_token".to_owned(), json!(self.bos));
        variables.insert("eos_token".to_owned(), json!(self.eos));
        let rendered =
            self.environment.get_template("chat").and_then(|template| template.render(Serde(Json::Object(variables))));
        rendered.map_err(|error| match error.detail().and_then(|detail| detail.strip_prefix(REFUSED)) {
            Some(message) => ChatError::Refused(message.to_owned()),
            None => ChatError::Failed { file: self.file.clone(), line: error.line(), why: explain(&error) },
        })
    }
}

/// The error without its place, which is shown elsewhere.
fn explain(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps; perhaps it loops forever".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSED}{message}")))
}

/// The present local time by a `strftime` format.
fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::ZonedDateTime::now())
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}

/// Applies `change` to every string in `value`, except the keys of objects.
fn map_strings(value: &mut Json, change: &impl Fn(&str) -> String) {
    match value {
        Json::String(text) => *text = change(text),
        Json::Array(items) => items.iter_mut().for_each(|item| map_strings(item, change)),
        Json::Object(map) => map.values_mut().for_each(|item| map_strings(item, change)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Two characters that occur nowhere in the variables: the first such noncharacters or private-use characters.
fn unused_chars(variables: &Map<String, Json>) -> [char; 2] {
    let text = json!(variables).to_string();
    let used: std::collections::HashSet<char> = text.chars().filter(|&c| c >= '\u{e000}').collect();
    let candidates = ('\u{fdd0}'..='\u{fdef}').chain('\u{f0000}'..='\u{10ffff}').chain('\u{e000}'..='\u{f8ff}');
    let mut unused = candidates.filter(|c| !used.contains(c));
    // A text that uses all of these 137,000 characters would be the first; it loses only its protection.
    [unused.next().unwrap_or('\u{fdd0}'), unused.next().unwrap_or('\u{fdd1}')]
}
