//! Answers of a given form: JSON, a JSON schema, a regular expression, a choice, a grammar.
//!
//! [`Grammars`] belongs to a model's tokenizer and compiles what a request asks for; mistakes in it are errors then, not
//! while the model speaks. A [`Grammar`] follows one answer: before each token [`Grammar::mask`] says which tokens go on in
//! the form, as the bits that [`crate::sampling::RowRules`] take, and [`Grammar::push`] takes the one that was chosen. When
//! the form is complete, and at no other time, the mask allows the tokens that end an answer.
//!
//! The work is llguidance's: a lexer of derivatives and an Earley parser, walked over the tree of the vocabulary.
//!
//! A mask depends on all tokens before it: it is made where those are first known, on the thread that runs steps. A step may
//! be planned before.

mod form;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::sync::Arc;

use llguidance::{Matcher, ParserFactory};

use crate::tokenizer::Tokenizer;
pub use form::{Form, json_part};

/// What is wrong with a form, or with an answer under it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The model's vocabulary does not do.
    #[error("answers of a given form need {0}")]
    Vocabulary(String),
    /// The form makes no sense, or is too large.
    #[error("this {kind} cannot be followed: {message}")]
    Form {
        /// What it was to be: "JSON schema", "regular expression" …
        kind: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The answer cannot be followed any more.
    #[error("the form cannot be followed any further: {0}")]
    Answer(String),
}

/// Bytes of the stack that a form is compiled on; what is not used takes no memory.
const STACK: usize = 256 << 20;

/// Compiles forms for a vocabulary.
pub struct Grammars {
    factory: ParserFactory,
}

impl Grammars {
    /// For the vocabulary of this tokenizer: a tree of all tokens is made once.
    ///
    /// # Errors
    /// If it has no token that ends an answer.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Grammars, GrammarError> {
        let vocabulary = vocabulary::Vocabulary::new(tokenizer)?;
        let mut factory = ParserFactory::new_simple(&(Arc::new(vocabulary) as _))
            .map_err(|e| GrammarError::Vocabulary(format!("a vocabulary that can be walked: {e}")))?;
        // Errors go to whoever asked, without the state of the parser; nothing is printed.
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Grammars { factory })
    }

    /// What follows one answer of this form. Clones follow other answers to the same request.
    ///
    /// # Errors
    /// If the form is malformed, uses what is not supported, is too large, or if there is no answer of this form.
    pub fn compile(&self, form: &Form) -> Result<Grammar, GrammarError> {
        let fails = |message: String| GrammarError::Form { kind: form.kind(), message };
        form.check_size().map_err(fails)?;
        // Rules that refer to each other are followed by recursion, and a stack that overflows would end the process.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("tegula-grammar".into()).stack_size(STACK);
            let thread = thread.spawn_scoped(scope, || self.compile_here(form));
            let thread = thread.map_err(|e| fails(format!("there is no thread to compile it on: {e}")))?;
            thread.join().unwrap_or_else(|_| Err(fails("its compiler failed".into())))
        })
    }

    fn compile_here(&self, form: &Form) -> Result<Grammar, GrammarError> {
        let fails = |message: String| GrammarError::Form { kind: form.kind(), message };
        let parser = form.grammar().and_then(|grammar| self.factory.create_parser(grammar).map_err(plain));
        let parser = parser.map_err(fails)?;
        let mut grammar = Grammar { matcher: Matcher::new(Ok(parser)) };
        let first = grammar.mask().map_err(|e| match e {
            GrammarError::Answer(message) => fails(message),
            other => other,
        })?;
        let Some(token) = lowest(&first) else { return Err(fails("no text is of this form".into())) };
        // What is too much work inside an answer mostly is behind its first token: better told now.
        let mut ahead = grammar.clone();
        ahead.push(token).and_then(|()| ahead.mask()).map_err(|e| match e {
            GrammarError::Answer(message) => fails(message),
            other => other,
        })?;
        Ok(grammar)
    }
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

/// An error's text for whoever asked: behind it may be the backtrace of a panic that was caught, or the parser's state.
fn plain(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let end = ["\n<backtrace>", "\n<non-verbose/>"].into_iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim().to_owned()
}

/// The lowest token of a mask.
fn lowest(mask: &[u32]) -> Option<u32> {
    let (word, bits) = mask.iter().enumerate().find(|(_, bits)| **bits != 0)?;
    Some(word as u32 * u32::BITS + bits.trailing_zeros())
}

/// Follows one answer.
pub struct Grammar {
    matcher: Matcher,
}

impl Grammar {
    /// What may come next: a bit for each token of the tokenizer, see [`crate::sampling::allows`]. In a complete answer
    /// that cannot go on these are the tokens that end it.
    ///
    /// # Errors
    /// If there is no way on, or finding one takes too much work.
    pub fn mask(&mut self) -> Result<Vec<u32>, GrammarError> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|e| GrammarError::Answer(plain(e)))?;
        Ok(mask.as_slice().to_vec())
    }

    /// Takes in the next token.
    ///
    /// # Errors
    /// If the mask did not allow it.
    pub fn push(&mut self, token: u32) -> Result<(), GrammarError> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return match crate::sampling::allows(&self.mask()?, token) {
                true => Ok(()),
                false => Err(GrammarError::Answer(format!("token {token} after its end"))),
            };
        }
        self.matcher.consume_token(token).map_err(|e| GrammarError::Answer(plain(e)))
    }

    /// Whether the answer so far is of the form, and could end here.
    pub fn is_complete(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }
}

impl Clone for Grammar {
    /// Shares nothing that either changes.
    fn clone(&self) -> Grammar {
        Grammar { matcher: self.matcher.deep_clone() }
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar").field("stopped", &self.matcher.is_stopped()).finish_non_exhaustive()
    }
}
