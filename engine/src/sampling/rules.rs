//! The rules of one sequence, as its tokens come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edit::{Edit, allows, mask_of};
use super::params::SamplingParams;

/// What a sequence's next token may be, and how its logits are changed: a function of the parameters, the prompt and the
/// answer so far.
#[derive(Clone, Debug)]
pub struct LogitRules {
    params: Arc<SamplingParams>,
    /// Tokens that would end the answer: banned until it has as many tokens as it must.
    ends: Arc<[u32]>,
    /// What `allowed_token_ids` allows.
    mask: Option<Arc<[u32]>>,
    vocab_size: usize,
    /// Tokens of the prompt in order, each once, if a penalty asks for them.
    prompt: Arc<[u32]>,
    /// How often each token was in the answer, if a penalty asks for it.
    counts: BTreeMap<u32, u32>,
    /// Biases and penalties for the next token, in the order of tokens.
    standing: Vec<Edit>,
    /// The last tokens of the answer: as many as the longest bad word can need.
    tail: Vec<u32>,
    num_output_tokens: usize,
}

impl LogitRules {
    /// The rules at the start of an answer. `ends`: all tokens that would end it ([`SamplingParams::ending_tokens`]). For
    /// the other answers to the same prompt, clone them.
    pub fn new(params: Arc<SamplingParams>, prompt: &[u32], ends: &[u32], vocab_size: usize) -> LogitRules {
        let mask = params.allowed_token_ids.as_ref().map(|ids| mask_of(ids, vocab_size).into());
        let mut prompt = if params.repetition_penalty == 1.0 { vec![] } else { prompt.to_vec() };
        prompt.sort_unstable();
        prompt.dedup();
        let mut changed: Vec<u32> = params.logit_bias.keys().chain(&prompt).copied().collect();
        changed.sort_unstable();
        changed.dedup();
        let standing = changed.into_iter().map(|t| params.edit(t, 0, prompt.binary_search(&t).is_ok())).collect();
        LogitRules {
            params,
            ends: ends.into(),
            mask,
            vocab_size,
            prompt: prompt.into(),
            counts: BTreeMap::new(),
            standing,
            tail: vec![],
            num_output_tokens: 0,
        }
    }

    /// Takes in the next token of the answer.
    pub fn push(&mut self, token: u32) {
        self.num_output_tokens += 1;
        if self.counts_tokens() {
            let count = self.counts.entry(token).or_default();
            *count += 1;
            let edit = self.params.edit(token, *count, self.prompt.binary_search(&token).is_ok());
            match self.standing.binary_search_by_key(&token, |e| e.token) {
                Ok(at) => self.standing[at] = edit,
                Err(at) => self.standing.insert(at, edit),
            }
        }
        let longest = self.params.bad_words.iter().map(Vec::len).max().unwrap_or(0);
        if longest > 1 {
            self.tail.push(token);
            let extra = self.tail.len().saturating_sub(longest - 1);
            self.tail.drain(..extra);
        }
    }

    /// The mask of allowed tokens, which is the same for all tokens of an answer.
    pub fn mask(&self) -> Option<&[u32]> {
        self.mask.as_deref()
    }

    /// The edits for the next token, in the order of tokens, each token once at most. `mask`: all that is allowed now,
    /// [`LogitRules::mask`] or a grammar's.
    ///
    /// Where bans would leave nothing of the mask, or of the vocabulary, there are none: that there is an answer, and what a
    /// grammar or a list demands, comes before `min_tokens` and `bad_words`.
    pub fn edits(&self, mask: Option<&[u32]>) -> Vec<Edit> {
        let mut edits = self.standing.clone();
        let bans = self.bans();
        if leaves_any(mask, &bans, self.vocab_size) {
            for token in bans {
                match edits.binary_search_by_key(&token, |e| e.token) {
                    Ok(at) => edits[at] = Edit::ban(token),
                    Err(at) => edits.insert(at, Edit::ban(token)),
                }
            }
        }
        edits
    }

    fn counts_tokens(&self) -> bool {
        let p = &*self.params;
        p.repetition_penalty != 1.0 || p.presence_penalty != 0.0 || p.frequency_penalty != 0.0
    }

    /// Tokens that cannot be the next.
    fn bans(&self) -> BTreeSet<u32> {
        let follows = |word: &Vec<u32>| {
            let (last, before) = word.split_last()?;
            self.tail.ends_with(before).then_some(*last)
        };
        let mut bans: BTreeSet<u32> = self.params.bad_words.iter().filter_map(follows).collect();
        if self.num_output_tokens < self.params.min_tokens {
            bans.extend(self.ends.iter());
        }
        bans
    }
}

/// Whether a mask, or the vocabulary, has any token that is not banned.
fn leaves_any(mask: Option<&[u32]>, bans: &BTreeSet<u32>, vocab_size: usize) -> bool {
    let Some(mask) = mask else {
        return bans.range(..vocab_size as u32).count() < vocab_size;
    };
    let allowed: usize = mask.iter().map(|word| word.count_ones() as usize).sum();
    allowed > bans.iter().filter(|&&token| allows(mask, token)).count()
}
