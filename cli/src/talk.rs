//! A conversation that does not end when the context is full: then its oldest turns are forgotten.

use super::answer::Limits;
use tegula_engine::Error;
use tegula_engine::chat::{ChatTemplate, Conversation, Message};
use tegula_engine::tokenizer::Tokenizer;

/// What was said, and the rules for what comes.
pub(super) struct Talk<'m> {
    template: &'m ChatTemplate,
    tokenizer: &'m Tokenizer,
    limits: Limits,
    system: Option<Message>,
    /// Question, answer, question, … without what was forgotten.
    turns: Vec<Message>,
}

/// What becomes of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// The tokens of the whole conversation, and how many turns (question and answer) were forgotten to make room.
    Ready { tokens: Vec<u32>, forgotten: usize },
    /// It alone has so many tokens, which is too many. It was not heard.
    TooLong(usize),
}

impl<'m> Talk<'m> {
    /// A conversation that has not begun.
    pub fn new(template: &'m ChatTemplate, tokenizer: &'m Tokenizer, system: Option<&str>, limits: Limits) -> Talk<'m> {
        Talk { template, tokenizer, limits, system: system.map(Message::system), turns: vec![] }
    }

    /// Adds a question. A quarter of the context, or the longest answer if that is less, is kept free for the answer; if
    /// turns must go for that, they go until half of it is free, since each time the whole rest is computed anew.
    pub fn hear(&mut self, question: &str) -> Result<Prompt, Error> {
        let Limits { answer, context } = self.limits;
        let mut turns = self.turns.clone();
        turns.push(Message::user(question));
        let mut tokens = self.encode(&turns)?;
        let mut forgotten = 0;
        if tokens.len() + answer.min(context / 4) > context {
            while turns.len() > 2 && tokens.len() > context / 2 {
                turns.drain(..2);
                forgotten += 1;
                tokens = self.encode(&turns)?;
            }
        }
        if tokens.len() >= context {
            return Ok(Prompt::TooLong(tokens.len()));
        }
        self.turns = turns;
        Ok(Prompt::Ready { tokens, forgotten })
    }

    /// Adds the answer to the last question.
    pub fn said(&mut self, answer: &str) {
        self.turns.push(Message::assistant(answer));
    }

    fn encode(&self, turns: &[Message]) -> Result<Vec<u32>, Error> {
        let conversation = Conversation::new(self.system.iter().chain(turns).cloned());
        Ok(self.template.encode(&conversation, self.tokenizer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegula_engine::gguf::{Gguf, Writer};

    /// A token for each letter of a message; `s`, `q` and `r` say whose it is, `.` asks for the answer.
    const TEMPLATE: &str = "{% for m in messages %}{{ {'system': 's', 'user': 'q', 'assistant': 'r'}[m.role] }}\
                            {{ m.content }}{% endfor %}.";

    fn tokenizer() -> Tokenizer {
        let mut writer = Writer::new();
        writer
            .meta("general.architecture", "llama")
            .meta("tokenizer.ggml.model", "gpt2")
            .meta("tokenizer.ggml.tokens", ["a", "b", "s", "q", "r", "."].as_slice())
            .meta("tokenizer.ggml.merges", [].as_slice() as &[&str]);
        Tokenizer::from_gguf(&Gguf::from_bytes("tiny.gguf", writer.finish()).unwrap()).unwrap()
    }

    #[test]
    fn the_oldest_turns_are_forgotten_and_the_system_message_stays() {
        let (template, tokenizer) = (ChatTemplate::new(TEMPLATE).unwrap(), tokenizer());
        let mut talk = Talk::new(&template, &tokenizer, Some("b"), Limits { answer: 100, context: 24 });
        let mut hear = |question: &str, answer: &str| {
            let prompt = talk.hear(question).unwrap();
            if let Prompt::Ready { .. } = prompt {
                talk.said(answer);
            }
            match prompt {
                Prompt::Ready { tokens, forgotten } => (tokenizer.decode(&tokens), forgotten),
                Prompt::TooLong(n) => ("too long".into(), n),
            }
        };
        assert_eq!(hear("aa", "bb"), ("sbqaa.".into(), 0));
        assert_eq!(hear("ab", "ba"), ("sbqaarbbqab.".into(), 0));
        // 18 tokens leave a quarter of 24.
        assert_eq!(hear("aa", "bb"), ("sbqaarbbqabrbaqaa.".into(), 0));
        // 24 do not; two turns go, until at most 12 are left.
        assert_eq!(hear("bb", "a"), ("sbqaarbbqbb.".into(), 2));
        // Alone it leaves no room for an answer: nothing is forgotten for it.
        assert_eq!(hear(&"a".repeat(20), ""), ("too long".into(), 24));
        assert_eq!(hear("b", "b"), ("sbqaarbbqbbraqb.".into(), 0));
        // Alone it leaves room for one token, which will do.
        assert_eq!(hear(&"a".repeat(19), "").1, 3);
    }
}
