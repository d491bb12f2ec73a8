//! A step model without a model, for tests of what is around one: it needs no kernels and no weights.
//!
//! The token after others is a function of all of them: by default a hash, over the bytes of printable text; or any
//! function. It takes nothing on trust: a step whose rows do not have the right tokens, or whose blocks do not hold what
//! their sequences computed or may share, fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Heartbeat, ModelInfo, RowFault, Sampled, SequenceSpec, StepFault, StepModel, StepResult, Work};
use crate::sampling::{Logprob, TokenLogprobs, allows};
use crate::schedule::{Input, Row, SequenceId};

/// The token that follows: of a sequence, and its answer so far.
pub type Script = dyn Fn(&SequenceSpec, &[u32]) -> u32 + Send + Sync;

/// Called before each step, with its number and its work: it may wait, panic, or say what becomes of the step.
pub type Hook = dyn FnMut(u64, &Work) -> Step + Send;

/// What becomes of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It runs.
    Run,
    /// It fails.
    Fail(String),
    /// The device is lost.
    Lose(String),
    /// It runs, but for this sampling row, which has no logits.
    FailRow(usize, String),
}

/// A step model that follows a script.
pub struct Scripted {
    info: ModelInfo,
    script: Arc<Script>,
    hook: Box<Hook>,
    step_time: Duration,
    sequences: BTreeMap<SequenceId, Sequence>,
    /// What is in each slot of the cache.
    cells: Vec<u64>,
    /// Runs of sequences that the step that runs now is for; after it, those of a step that failed.
    hit: Vec<(SequenceId, u64)>,
    /// Runs of sequences that a failed step was for: they are nobody's any more.
    lost: BTreeSet<(SequenceId, u64)>,
    /// Tokens that the last steps sampled, by step.
    sampled: VecDeque<(u64, Vec<u32>)>,
}

struct Sequence {
    spec: Arc<SequenceSpec>,
    form: Option<crate::grammar::Grammar>,
    answer: Vec<u32>,
}

impl Scripted {
    /// A model of so many tokens, whose cache has so many blocks of `block_size` tokens, for sequences of up to `context`. It
    /// says random text.
    pub fn new(vocab_size: usize, block_size: usize, num_blocks: u32, context: usize) -> Scripted {
        Scripted {
            info: ModelInfo {
                architecture: "scripted".into(),
                device: "none".into(),
                identity: "scripted".into(),
                vocab_size,
                context,
                block_size,
                num_blocks,
                block_bytes: 4 * block_size as u64,
                weight_bytes: 0,
                order: vec![],
                kernels: vec![],
            },
            script: Arc::new(random_text),
            hook: Box::new(|_, _| Step::Run),
            step_time: Duration::ZERO,
            sequences: BTreeMap::new(),
            cells: vec![UNKNOWN; block_size * num_blocks as usize],
            hit: vec![],
            lost: BTreeSet::new(),
            sampled: VecDeque::new(),
        }
    }

    /// Says what a function says.
    pub fn says(mut self, script: impl Fn(&SequenceSpec, &[u32]) -> u32 + Send + Sync + 'static) -> Scripted {
        self.script = Arc::new(script);
        self
    }

    /// Answers each prompt with these tokens, one after the other, and then with the first token that ends the answer (or,
    /// if none does, with these again).
    pub fn answers(self, tokens: &[u32]) -> Scripted {
        let tokens = tokens.to_vec();
        self.says(move |spec, answer| match tokens.get(answer.len()) {
            Some(token) => *token,
            None => spec.ends.first().copied().unwrap_or_else(|| tokens[answer.len() % tokens.len().max(1)]),
        })
    }

    /// Takes this long for a step.
    pub fn step_time(mut self, time: Duration) -> Scripted {
        self.step_time = time;
        self
    }

    /// Asks before each step.
    pub fn before_each_step(mut self, hook: impl FnMut(u64, &Work) -> Step + Send + 'static) -> Scripted {
        self.hook = Box::new(hook);
        self
    }
}

/// A printable byte that depends on all tokens before, on the seed and on the parameters of the draw.
fn random_text(spec: &SequenceSpec, answer: &[u32]) -> u32 {
    let mut hash = if spec.draw.temperature == 0.0 { 0 } else { spec.draw.seed ^ 0x5bd1_e995_9e37_79b9 };
    for &token in spec.prompt.iter().chain(answer) {
        hash = (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
    32 + (hash >> 32) as u32 % 95
}

impl StepModel for Scripted {
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn run(&mut self, work: &Work, beat: &Heartbeat) -> Result<StepResult, StepFault> {
        self.take_in(work);
        let step = work.plan.step;
        let fails = match (self.hook)(step, work) {
            Step::Run => None,
            Step::Fail(why) => return Err(StepFault::Step(why)),
            Step::Lose(why) => return Err(StepFault::Lost(why)),
            Step::FailRow(row, why) => Some((row, why)),
        };
        if !self.step_time.is_zero() {
            std::thread::sleep(self.step_time);
        }
        beat.tick();
        let mut result = StepResult::default();
        let mut sampled = vec![0; work.plan.rows.len()];
        for (index, row) in work.plan.rows.iter().enumerate() {
            let fault = fails.as_ref().filter(|(of, _)| row.samples && *of == result.rows.len());
            let fault = fault.map(|(_, why)| RowFault::NoLogits(why.clone()));
            let row_of = self.row(row, fault, &mut result.prompt_logprobs)?;
            if let Some(of) = row_of {
                sampled[index] = of.token;
                result.rows.push(of);
            }
        }
        self.sampled.push_front((step, sampled));
        self.sampled.truncate(4);
        self.hit.clear();
        Ok(result)
    }
}

impl Scripted {
    /// What has to be known before anything can go wrong with a step.
    fn take_in(&mut self, work: &Work) {
        for id in &work.ends {
            self.sequences.remove(id);
        }
        for start in &work.starts {
            let mut form = start.spec.form.as_deref().cloned();
            for &token in &start.answer {
                // An answer that was accepted is of its form.
                let _ = form.as_mut().map(|form| form.push(token));
            }
            let sequence = Sequence { spec: start.spec.clone(), form, answer: start.answer.clone() };
            self.sequences.insert(start.id, sequence);
        }
        // Until it has run, nobody knows what a step left where it writes.
        self.lost.extend(std::mem::take(&mut self.hit));
        self.hit = work.plan.rows.iter().map(|row| (row.id, row.generation)).collect();
        for row in &work.plan.rows {
            row.slot_mapping.iter().for_each(|&slot| self.cells[slot as usize] = UNKNOWN);
        }
    }

    /// Computes a row: what it samples, if it does.
    fn row(
        &mut self,
        row: &Row,
        fault: Option<RowFault>,
        prompt_logprobs: &mut Vec<(SequenceId, usize, TokenLogprobs)>,
    ) -> Result<Option<Sampled>, StepFault> {
        if self.lost.contains(&(row.id, row.generation)) {
            return Ok(row.samples.then(Sampled::default));
        }
        let Some(sequence) = self.sequences.get_mut(&row.id) else {
            return Err(StepFault::Step(format!("sequence {} was never started", row.id)));
        };
        let known: Vec<u32> = sequence.spec.prompt.iter().chain(&sequence.answer).copied().collect();
        let tokens = match &row.input {
            Input::Tokens(tokens) => tokens.clone(),
            Input::SampledBy { step, row: by } => {
                let of = self.sampled.iter().find(|(of, _)| of == step);
                of.and_then(|(_, tokens)| tokens.get(*by).copied()).into_iter().collect()
            }
        };
        if known.get(row.start..row.end()) != Some(&tokens[..]) {
            return Err(StepFault::Step(format!("{}: not its tokens {}..{}", row.id, row.start, row.end())));
        }
        let size = self.info.block_size;
        let slot = |position: usize| row.block_table[position / size] as usize * size + position % size;
        for (position, to) in (row.start..row.end()).zip(&row.slot_mapping) {
            if slot(position) != *to as usize {
                return Err(StepFault::Step(format!("{}: token {position} goes to slot {to}", row.id)));
            }
        }
        // All that the row attends to must be what the sequence says: found, or computed before; and what it computes now.
        let mut cell = 1;
        for (position, token) in known[..row.end()].iter().enumerate() {
            cell = mix(cell, *token);
            let at = &mut self.cells[slot(position)];
            if position >= row.start {
                *at = cell;
            } else if *at != cell {
                return Err(StepFault::Step(format!(
                    "{}: slot {} is not its token {position}",
                    row.id,
                    slot(position)
                )));
            }
        }
        // Of a request's first sample, since they are those of all; of one that resumes they were told before.
        let wanted = row.id.sample == 0 && sequence.answer.is_empty();
        if let Some(top) = sequence.spec.params.prompt_logprobs.filter(|_| wanted) {
            let (from, to) = (row.start.max(1), row.end().min(sequence.spec.prompt.len()));
            let tokens = known.iter().enumerate().take(to).skip(from);
            prompt_logprobs.extend(tokens.map(|(position, &token)| (row.id, position, logprobs(token, top))));
        }
        if !row.samples {
            return Ok(None);
        }
        let mut token = (self.script)(&sequence.spec, &sequence.answer);
        let mut fault = fault;
        if let Some(form) = &mut sequence.form {
            // The next allowed token at or after the one it would say.
            match form.mask() {
                Ok(mask) => {
                    let n = self.info.vocab_size as u32;
                    token = (0..n).map(|i| (token + i) % n).find(|&t| allows(&mask, t)).unwrap_or(token);
                    fault = fault.or_else(|| form.push(token).err().map(|e| RowFault::Form(e.to_string())));
                }
                Err(error) => fault = fault.or_else(|| Some(RowFault::Form(error.to_string()))),
            }
        }
        sequence.answer.push(token);
        let logprobs = sequence.spec.params.logprobs.map(|top| logprobs(token, top));
        Ok(Some(Sampled { token, logprobs, fault }))
    }
}

/// In a cell of which nobody knows what is in it.
const UNKNOWN: u64 = 0;

/// A cell, of the one before and its token: what keys and values are to a model. None is [`UNKNOWN`].
fn mix(before: u64, token: u32) -> u64 {
    (before ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1
}

/// Log-probabilities that can be told apart: −token/1000, then those of the tokens that follow.
fn logprobs(token: u32, top: u32) -> TokenLogprobs {
    let of = |token: u32| Logprob::new(token, -(token as f32) / 1000.0);
    TokenLogprobs { chosen: of(token), rank: 1, top: (token..token + top).map(of).collect() }
}
