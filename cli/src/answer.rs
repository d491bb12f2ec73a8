//! One answer of a model, written as it comes, and the line that says how long it took.

use std::io::Write;
use std::time::{Duration, Instant};

use super::table::counted;
use tegula_engine::Error;
use tegula_engine::sampling::Draw;
use tegula_engine::session::Session;
use tegula_engine::tokenizer::{Tokenizer, Utf8Stream};

/// How long an answer may get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most tokens of the answer; at least 1.
    pub answer: usize,
    /// Most tokens of prompt and answer together.
    pub context: usize,
}

/// What a model said.
pub(super) struct Answer {
    /// Its tokens. The last was chosen and not computed.
    pub tokens: Vec<u32>,
    /// Its text.
    pub text: String,
    /// Why it ends before the model was done, if so.
    pub cut: Option<String>,
    prompt: (usize, Duration),
    /// Tokens after the first, and their time.
    steps: (usize, Duration),
}

impl Answer {
    /// Computes `prompt`, which together with what the session holds must be shorter than the context, and what follows.
    pub fn write(
        session: &mut Session<'_>,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        draw: Draw,
        limits: Limits,
        out: &mut dyn Write,
    ) -> Result<Answer, Error> {
        let start = Instant::now();
        session.feed(prompt, |_| {})?;
        let mut token = session.sample(draw)?;
        let prompt = (prompt.len(), start.elapsed());

        let start = Instant::now();
        let room = limits.context.saturating_sub(session.len());
        let (mut tokens, mut text, mut cut) = (vec![], String::new(), None);
        let mut stream = Utf8Stream::new();
        loop {
            tokens.push(token);
            if tokenizer.is_end(token) {
                break;
            }
            let piece = stream.push(tokenizer.text_bytes(token));
            out.write_all(piece.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
            text += &piece;
            if tokens.len() >= limits.answer {
                cut = Some(format!("cut short by -n {}", limits.answer));
                break;
            }
            if tokens.len() >= room {
                cut = Some(format!("cut short: the context holds {}", counted(limits.context, "token")));
                break;
            }
            session.feed(&[token], |_| {})?;
            token = session.sample(draw)?;
        }
        let rest = stream.finish();
        writeln!(out, "{rest}").and_then(|()| out.flush()).map_err(Error::output)?;
        text += &rest;
        let steps = (tokens.len() - 1, start.elapsed());
        Ok(Answer { tokens, text, cut, prompt, steps })
    }

    /// Says on standard error how long it took, and whether it was cut short.
    pub fn report(&self) {
        let rate = |(n, t): (usize, Duration)| n as f64 / t.as_secs_f64().max(1e-9);
        let speed = match self.steps.0 {
            0 => String::new(),
            _ => format!(", {:.1} tokens/s", rate(self.steps)),
        };
        let cut = self.cut.as_ref().map_or(String::new(), |why| format!(", {why}"));
        eprintln!(
            "[prompt {}, {:.1} tokens/s, first token after {:.0} ms; answer {}{speed}{cut}]",
            counted(self.prompt.0, "token"),
            rate(self.prompt),
            self.prompt.1.as_secs_f64() * 1e3,
            counted(self.tokens.len(), "token"),
        );
    }
}
