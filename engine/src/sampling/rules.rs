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
    /// Tokens of the prompt, if a penalty asks for them.
    prompt: Arc<BTreeSet<u32>>,
    /// How often each token was in the answer, if a penalty asks for it.
    counts: BTreeMap<u32, u32>,
    /// The last tokens of the answer: as many as the longest bad word can need.
    tail: Vec<u32>,
    num_output_tokens: usize,
}

impl LogitRules {
    /// The rules at the start of an answer. `ends`: all tokens that would end it ([`SamplingParams::ending_tokens`]). For
    /// the other answers to the same prompt, clone them.
    pub fn new(params: Arc<SamplingParams>, prompt: &[u32], ends: &[u32], vocab_size: usize) -> LogitRules {
        let mask = params.allowed_token_ids.as_ref().map(|ids| mask_of(ids, vocab_size).into());
        let prompt = if params.repetition_penalty == 1.0 { BTreeSet::new() } else { prompt.iter().copied().collect() };
        LogitRules {
            params,
            ends: ends.into(),
            mask,
            prompt: Arc::new(prompt),
            counts: BTreeMap::new(),
            tail: vec![],
            num_output_tokens: 0,
        }
    }

    /// Takes in the next token of the answer.
    pub fn push(&mut self, token: u32) {
        self.num_output_tokens += 1;
        if self.counts_tokens() {
            *self.counts.entry(token).or_default() += 1;
        }
        let longest = self.params.bad_words.iter().map(Vec::len).max().unwrap_or(0);
        if longest > 1 {
            self.tail.push(token);
            let extra = self.tail.len().saturating_sub(longest - 1);
            self.tail.drain(..extra);
        }
    }

    /// Whether there is any rule, now or later: of sequences without, nothing else need be asked.
    pub fn any(&self) -> bool {
        let p = &*self.params;
        let ends_are_banned = self.num_output_tokens < p.min_tokens && !self.ends.is_empty();
        self.mask.is_some()
            || !p.logit_bias.is_empty()
            || !p.bad_words.is_empty()
            || self.counts_tokens()
            || ends_are_banned
    }

    /// Whether the next token's rules depend on which tokens the answer has: then they must be known when rules are applied.
    /// Otherwise [`LogitRules::push`] may be told any token, or late.
    pub fn depends_on_tokens(&self) -> bool {
        self.counts_tokens() || self.params.bad_words.iter().any(|word| word.len() > 1)
    }

    /// The mask of allowed tokens, which is the same for all tokens of an answer.
    pub fn mask(&self) -> Option<&[u32]> {
        self.mask.as_deref()
    }

    /// The edits for the next token, in the order of tokens, each token once at most. `mask`: all that is allowed now,
    /// [`LogitRules::mask`] or a grammar's.
    ///
    /// Where bans would leave nothing of the mask there are none: what a grammar or a list demands comes before
    /// `min_tokens` and `bad_words`.
    pub fn edits(&self, mask: Option<&[u32]>) -> Vec<Edit> {
        let p = &*self.params;
        let mut edits: BTreeMap<u32, Edit> = BTreeMap::new();
        let changed = p.logit_bias.keys().chain(self.prompt.iter()).chain(self.counts.keys());
        for &token in changed {
            edits.entry(token).or_insert_with(|| {
                let count = self.counts.get(&token).copied().unwrap_or(0);
                p.edit(token, count, self.prompt.contains(&token))
            });
        }
        let bans = self.bans();
        if mask.is_none_or(|mask| leaves_any(mask, &bans)) {
            edits.extend(bans.into_iter().map(|token| (token, Edit::ban(token))));
        }
        edits.into_values().collect()
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

/// Whether a mask allows any token that is not banned.
fn leaves_any(mask: &[u32], bans: &BTreeSet<u32>) -> bool {
    let allowed: usize = mask.iter().map(|word| word.count_ones() as usize).sum();
    allowed > bans.iter().filter(|&&token| allows(mask, token)).count()
}
