//! Tool calls in the answer's text, in the format of the Hermes and Qwen models:
//!
//! ```text
//! What the model says first.
//! <tool_call>
//! {"name": "weather", "arguments": {"city": "Paris"}}
//! </tool_call>
//! ```
//!
//! [`ToolParser`] takes the text in pieces of any size and gives out what each settles. Streams send that as it comes and
//! other answers collect it, so both say the same.
//!
//! - What stands outside of calls is content, as it is; only white space that has nothing but calls or the ends of the
//!   text beside it is left out.
//! - A call is given out when its name is known and its arguments begin; from then on it stays, and its arguments are the
//!   bytes that the model writes, valid or not. Arguments in a string are those that the string holds.
//! - What does not get that far is no call: its text is content, tags included.

use std::hash::{BuildHasher, RandomState};

use serde_json::{Map, Value};

use super::lexer::{Lexer, Step};

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolDelta {
    /// More of what the model says besides calling. Never empty.
    Content(String),
    /// A call begins.
    Call {
        /// Which of the answer's, from 0.
        index: usize,
        /// By which its result is sent back; no two calls have the same.
        id: String,
        /// Of the function.
        name: String,
    },
    /// More of a call's arguments, which are JSON when complete. Never empty.
    Arguments {
        /// Of the call.
        index: usize,
        /// The next bytes.
        text: String,
    },
}

/// Finds the calls in one answer.
#[derive(Debug)]
pub struct ToolParser {
    state: State,
    /// Not given out yet: white space, what may be the beginning of a tag, and all of what may become a call.
    held: String,
    /// Whether any content was given out since the beginning or the last call.
    said: bool,
    num_calls: usize,
    most_calls: usize,
    random: RandomState,
}

#[derive(Debug)]
enum State {
    /// Outside of calls. `tag` characters at the end of what is held are the beginning of a tag.
    Text { tag: usize },
    /// Inside one.
    Call(Box<Call>),
    /// All calls were made that may be; nothing more counts.
    Done,
}

/// The object between the tags.
#[derive(Debug, Default)]
struct Call {
    at: At,
    lexer: Lexer,
    /// Of the string or value that is being read, where its text is needed.
    text: String,
    key: String,
    name: Option<String>,
    /// Arguments that came before the name, or as a string.
    arguments: Option<String>,
    /// It was given out.
    is_out: bool,
}

/// Where in the object.
#[derive(Debug, Default, PartialEq)]
enum At {
    #[default]
    Open,
    /// Before a key, or the end of an object without any.
    FirstKey,
    /// Before a key that must come.
    NextKey,
    Key,
    Colon,
    Before,
    Value,
    /// Before a comma or the end.
    Comma,
}

/// What follows from a character inside a call.
enum Then {
    On,
    /// The object is complete.
    End,
    /// It is none.
    Wrong,
}

impl ToolParser {
    /// For an answer with at most so many calls: after the last of them nothing counts.
    pub fn new(most_calls: usize) -> ToolParser {
        let state = if most_calls == 0 { State::Done } else { State::Text { tag: 0 } };
        let random = RandomState::new();
        ToolParser { state, held: String::new(), said: false, num_calls: 0, most_calls, random }
    }

    /// Takes in the next piece: what it settles, in order.
    pub fn push(&mut self, text: &str) -> Vec<ToolDelta> {
        let mut out = Out::default();
        text.chars().for_each(|c| self.step(c, &mut out));
        out.0
    }

    /// The text is at its end: what was held back.
    pub fn finish(&mut self) -> Vec<ToolDelta> {
        let mut out = Out::default();
        let state = std::mem::replace(&mut self.state, State::Done);
        let kept = match &state {
            State::Text { .. } => !self.is_after_call() || !CLOSE.starts_with(self.held.trim_start()),
            State::Call(call) => !call.is_out,
            State::Done => false,
        };
        if kept {
            out.content(&self.held);
        }
        self.held.clear();
        out.0
    }

    /// Calls that were given out.
    pub fn num_calls(&self) -> usize {
        self.num_calls
    }

    /// Whether nothing that may still come counts, so that the answer can end here.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    fn step(&mut self, c: char, out: &mut Out) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Text { tag } => self.step_text(tag, c, out),
            State::Call(call) => self.step_call(call, c, out),
            State::Done => {}
        }
    }

    fn step_text(&mut self, tag: usize, c: char, out: &mut Out) {
        let so_far = self.held[self.held.len() - tag..].to_owned() + c.encode_utf8(&mut [0; 4]);
        let closes = self.is_after_call() && CLOSE.starts_with(&so_far);
        if OPEN.starts_with(&so_far) || closes {
            self.held.push(c);
            self.state = State::Text { tag: so_far.len() };
            if so_far == OPEN {
                self.state = State::Call(Box::default());
            } else if so_far == CLOSE {
                self.held.clear();
                self.state = State::Text { tag: 0 };
            }
            return;
        }
        if tag > 0 {
            // It was no tag. The character may be the beginning of one: tags have `<` nowhere else.
            self.say(out);
            return self.step_text(0, c, out);
        }
        self.held.push(c);
        self.state = State::Text { tag: 0 };
        if self.said || !c.is_whitespace() {
            self.say(out);
        }
    }

    /// Whether a call came last, to which a closing tag and white space belong.
    fn is_after_call(&self) -> bool {
        self.num_calls > 0 && !self.said
    }

    /// What is held is content.
    fn say(&mut self, out: &mut Out) {
        out.content(&self.held);
        self.held.clear();
        self.said = true;
    }

    fn step_call(&mut self, mut call: Box<Call>, c: char, out: &mut Out) {
        let index = self.num_calls - usize::from(call.is_out);
        let then = call.push(c, index, out, &mut || self.id(index));
        if call.is_out && index == self.num_calls {
            self.num_calls += 1;
            self.held.clear();
        }
        match then {
            Then::On => {
                if !call.is_out {
                    self.held.push(c);
                }
                self.state = State::Call(call);
            }
            Then::End => self.after_call(),
            Then::Wrong if call.is_out => {
                self.after_call();
                self.step(c, out);
            }
            Then::Wrong => {
                self.say(out);
                self.step_text(0, c, out);
            }
        }
    }

    fn after_call(&mut self) {
        self.said = false;
        self.state = if self.num_calls == self.most_calls { State::Done } else { State::Text { tag: 0 } };
    }

    fn id(&self, index: usize) -> String {
        format!("call_{:016x}{:08x}", self.random.hash_one(index), self.random.hash_one((index, "id")) as u32)
    }
}

impl Call {
    fn push(&mut self, c: char, index: usize, out: &mut Out, id: &mut dyn FnMut() -> String) -> Then {
        let is_space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match self.at {
            At::Key | At::Value => {}
            _ if is_space => return Then::On,
            _ => {}
        }
        match (&self.at, c) {
            (At::Open, '{') => self.at = At::FirstKey,
            (At::FirstKey | At::NextKey, '"') => self.begin(c, At::Key),
            (At::Colon, ':') => self.at = At::Before,
            (At::Before, _) => return self.begin_value(c, index, out, id),
            (At::Comma, ',') => self.at = At::NextKey,
            (At::Comma, '}') => return self.end(index, out, id),
            (At::Key, _) => {
                self.text.push(c);
                if self.lexer.push(c) == Step::Last {
                    match serde_json::from_str(&self.text) {
                        Ok(key) => (self.key, self.at) = (key, At::Colon),
                        Err(_) => return Then::Wrong,
                    }
                }
            }
            (At::Value, _) => return self.push_value(c, index, out, id),
            _ => return Then::Wrong,
        }
        Then::On
    }

    fn begin(&mut self, c: char, at: At) {
        (self.lexer, self.at) = (Lexer::default(), at);
        self.text.clear();
        self.text.push(c);
        self.lexer.push(c);
    }

    fn begin_value(&mut self, c: char, index: usize, out: &mut Out, id: &mut dyn FnMut() -> String) -> Then {
        // Of two values of one key the first counts.
        let again = match self.key.as_str() {
            "name" => self.name.is_some(),
            "arguments" => self.arguments.is_some() || self.is_out,
            _ => false,
        };
        if again {
            self.key.clear();
        }
        let fits = match self.key.as_str() {
            "name" => c == '"',
            "arguments" => matches!(c, '{' | '"'),
            _ => true,
        };
        self.lexer = Lexer::default();
        self.text.clear();
        self.at = At::Value;
        if !fits {
            return Then::Wrong;
        }
        if self.key == "arguments" && c == '{' && self.name.is_some() {
            self.announce(index, out, id);
        }
        self.push_value(c, index, out, id)
    }

    fn push_value(&mut self, c: char, index: usize, out: &mut Out, id: &mut dyn FnMut() -> String) -> Then {
        let step = self.lexer.push(c);
        if matches!(step, Step::Inside | Step::Last) {
            match self.key.as_str() {
                // Those that come after the call was given out; a second time the key is not known as such.
                "arguments" if self.is_out => out.arguments(index, c),
                "arguments" | "name" => self.text.push(c),
                _ => {}
            }
        }
        match step {
            Step::Inside => Then::On,
            Step::Wrong => Then::Wrong,
            Step::After => {
                self.at = At::Comma;
                self.push(c, index, out, id)
            }
            Step::Last => {
                self.at = At::Comma;
                if self.take_value() { self.announce_complete(index, out, id) } else { Then::Wrong }
            }
        }
    }

    /// Takes in a value that is complete; whether it is right.
    fn take_value(&mut self) -> bool {
        match self.key.as_str() {
            "name" => {
                self.name = serde_json::from_str(&self.text).ok().filter(|name: &String| !name.is_empty());
                self.name.is_some()
            }
            "arguments" if !self.is_out && self.text.starts_with('"') => {
                self.arguments = serde_json::from_str(&self.text).ok();
                let object = |text: &String| serde_json::from_str::<Map<String, Value>>(text).is_ok();
                self.arguments.as_ref().is_some_and(object)
            }
            "arguments" if !self.is_out => {
                self.arguments = Some(std::mem::take(&mut self.text));
                true
            }
            _ => true,
        }
    }

    /// Gives the call out if all of it is known.
    fn announce_complete(&mut self, index: usize, out: &mut Out, id: &mut dyn FnMut() -> String) -> Then {
        if !self.is_out && self.name.is_some() && self.arguments.is_some() {
            self.announce(index, out, id);
            let arguments = self.arguments.take().unwrap_or_default();
            arguments.chars().for_each(|c| out.arguments(index, c));
        }
        Then::On
    }

    fn announce(&mut self, index: usize, out: &mut Out, id: &mut dyn FnMut() -> String) {
        self.is_out = true;
        let name = self.name.clone().unwrap_or_default();
        out.0.push(ToolDelta::Call { index, id: id(), name });
    }

    fn end(&mut self, index: usize, out: &mut Out, id: &mut dyn FnMut() -> String) -> Then {
        if self.name.is_none() {
            return Then::Wrong;
        }
        if !self.is_out {
            // Functions without parameters are called without arguments.
            self.arguments = Some("{}".to_owned());
            self.announce_complete(index, out, id);
        }
        Then::End
    }
}

/// What was given out, neighbours of one kind joined.
#[derive(Default)]
struct Out(Vec<ToolDelta>);

impl Out {
    fn content(&mut self, more: &str) {
        match self.0.last_mut() {
            _ if more.is_empty() => {}
            Some(ToolDelta::Content(text)) => text.push_str(more),
            _ => self.0.push(ToolDelta::Content(more.to_owned())),
        }
    }

    fn arguments(&mut self, index: usize, c: char) {
        match self.0.last_mut() {
            Some(ToolDelta::Arguments { index: last, text }) if *last == index => text.push(c),
            _ => self.0.push(ToolDelta::Arguments { index, text: c.to_string() }),
        }
    }
}
