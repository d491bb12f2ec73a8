//! What one sequence's next token depends on besides its logits: rules and form, as far as its answer is.

use std::sync::Arc;

use super::{SequenceSpec, Start};
use crate::grammar::Grammar;
use crate::sampling::{Edit, LogitRules, allows};

/// The state of a sequence that runs. A resumed one is made anew from its answer: tokens that were sampled for it and then
/// dropped leave no trace.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) spec: Arc<SequenceSpec>,
    rules: LogitRules,
    form: Option<Grammar>,
    /// It had tokens before: what is told of its prompt was told.
    pub(super) resumed: bool,
    /// Why its form cannot be followed on.
    fault: Option<String>,
}

/// The rules for one token.
#[derive(Debug, Default)]
pub(super) struct NextRules {
    pub(super) edits: Vec<Edit>,
    pub(super) mask: Option<Vec<u32>>,
}

impl NextRules {
    /// Whether logits stay as they are.
    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.mask.is_none()
    }
}

impl Sampler {
    /// Of a sequence that starts or resumes, on a model of so many tokens.
    pub(super) fn new(start: &Start, vocab_size: usize) -> Sampler {
        let spec = start.spec.clone();
        let rules = LogitRules::new(spec.params.clone(), &spec.prompt, &spec.ends, vocab_size);
        let (form, resumed) = (spec.form.as_deref().cloned(), !start.answer.is_empty());
        let mut sampler = Sampler { rules, form, spec, resumed, fault: None };
        start.answer.iter().for_each(|&token| sampler.push(token));
        sampler
    }

    /// Takes in the next token of the answer.
    pub(super) fn push(&mut self, token: u32) {
        self.rules.push(token);
        if let Some(form) = &mut self.form {
            let fault = form.push(token).err().map(|e| e.to_string());
            self.fault = self.fault.take().or(fault);
        }
    }

    /// The rules for the next token. None if there is a [fault](Sampler::fault).
    pub(super) fn next_rules(&mut self) -> NextRules {
        if self.fault.is_some() {
            return NextRules::default();
        }
        let allowed = self.rules.mask();
        let mask = match self.form.as_mut().map(Grammar::mask) {
            None => allowed.map(<[u32]>::to_vec),
            Some(Ok(mask)) => {
                let complete = || self.form.as_mut().is_some_and(Grammar::is_complete);
                let mask = match allowed {
                    None => mask,
                    Some(allowed) => both(&mask, allowed, complete, &self.spec.ends),
                };
                if mask.iter().all(|word| *word == 0) {
                    self.fault = Some("no token is both of the answer's form and in allowed_token_ids".into());
                }
                Some(mask)
            }
            Some(Err(error)) => {
                self.fault = Some(error.to_string());
                None
            }
        };
        if self.fault.is_some() {
            return NextRules::default();
        }
        NextRules { edits: self.rules.edits(mask.as_deref()), mask }
    }

    /// Why the sequence cannot go on in its form, if it cannot.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

/// The tokens that both the form and the request allow. A complete answer that cannot go on so may end, whether the tokens
/// that end it are among those or not.
fn both(form: &[u32], allowed: &[u32], complete: impl FnOnce() -> bool, ends: &[u32]) -> Vec<u32> {
    let words = allowed.iter().chain(std::iter::repeat(&0));
    let mut mask: Vec<u32> = form.iter().zip(words).map(|(form, allowed)| form & allowed).collect();
    if mask.iter().all(|word| *word == 0) && complete() {
        let ends = ends.iter().filter(|token| allows(form, **token));
        ends.for_each(|token| mask[*token as usize / 32] |= 1 << (token % 32));
    }
    mask
}
