//! A model's decoder as what runs steps.
//!
//! ```text
//!  forward ─▶ prompts' rows, some at a time: head, log-probabilities
//!         └─▶ rows that sample: head ─▶ keep raw ─▶ rules ─▶ draw ─▶ log-probabilities ─▶ rules and forms take the tokens
//! ```

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use super::rows::{Recent, chunks};
use super::sampler::{NextRules, Sampler};
use super::{Heartbeat, ModelInfo, RowFault, Sampled, StepFault, StepModel, StepResult, Work};
use crate::Error;
use crate::gguf::Gguf;
use crate::model::{Activations, Batch, Decoder, KvCache, kv::BLOCK};
use crate::rehearse::rehearse_steps;
use crate::sampling::{LogprobsOf, RowRules, TokenLogprobs};
use crate::schedule::{Row, SequenceId, StepPlan};
use tegula::Device;

/// Rows of prompts whose logits are computed at once.
const PROMPT_ROWS: usize = 64;

/// A decoder, its cache, and the sequences that run on it.
pub struct DecoderModel {
    decoder: Decoder,
    kv: KvCache,
    identity: String,
    sequences: HashMap<SequenceId, Sampler>,
    recent: Recent,
}

impl DecoderModel {
    /// The model of a file, on a device. It has no cache yet: [`DecoderModel::prepare`] follows.
    ///
    /// # Errors
    /// If the file is no model that can run, or there is not memory enough for its weights.
    pub fn load(file: &Gguf, device: &Device, activations: Activations) -> Result<DecoderModel, Error> {
        let decoder = Decoder::load(file, device, activations)?;
        let (vocab, named) = (decoder.config().vocab, file.get::<Vec<&str>>("tokenizer.ggml.tokens")?);
        if let Some(named) = named.filter(|named| named.len() > vocab) {
            let found = named.len();
            return Err(Error::Usage(format!(
                "{}: its tokenizer has {found} tokens, its embedding {vocab} rows; each token must have one",
                file.path().display()
            )));
        }
        let kv = KvCache::with_blocks(device, decoder.config(), 0)?;
        let identity = identity(file, activations);
        Ok(DecoderModel { decoder, kv, identity, sequences: HashMap::new(), recent: Recent::default() })
    }

    /// Bytes of the weights.
    pub fn weight_bytes(&self) -> u64 {
        self.decoder.weight_bytes() as u64
    }

    /// Bytes of a block of the cache, all layers together.
    pub fn block_bytes(&self) -> u64 {
        KvCache::bytes_per_block(self.decoder.config()) as u64
    }

    /// Bytes that steps of up to so many tokens and sequences need besides: what [`DecoderModel::prepare`] takes for them.
    pub fn step_bytes(&self, max_num_batched_tokens: usize, max_num_seqs: usize) -> u64 {
        self.decoder.step_bytes(max_num_batched_tokens, max_num_seqs.max(PROMPT_ROWS)) as u64
    }

    /// Tokens of the longest sequence that the model was made for.
    pub fn context(&self) -> usize {
        self.decoder.config().context
    }

    /// Takes the memory for a cache of so many blocks of [`BLOCK`] tokens, and for steps of up to so many tokens and
    /// sequences: none of those can lack memory later.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn prepare(
        &mut self,
        num_blocks: u32,
        max_num_batched_tokens: usize,
        max_num_seqs: usize,
    ) -> Result<(), Error> {
        self.decoder.reserve(max_num_batched_tokens, max_num_seqs.max(PROMPT_ROWS))?;
        self.kv = KvCache::with_blocks(self.decoder.device(), self.decoder.config(), num_blocks as usize)?;
        Ok(())
    }

    /// Launches every kernel that a step may need, so that none is made or loaded while somebody waits. What is in the cache
    /// is lost.
    ///
    /// # Errors
    /// If a kernel cannot be compiled, loaded or run.
    pub fn warm(&mut self) -> Result<(), Error> {
        self.kv.touch()?;
        let device = self.decoder.device().clone();
        device.preparing(|| rehearse_steps(&mut self.decoder, &mut self.kv))
    }

    fn step(&mut self, plan: &StepPlan, beat: &Heartbeat) -> Result<StepResult, Error> {
        let batch = Batch::new(&chunks(plan, &self.recent)?, BLOCK)?;
        self.decoder.forward_layers(&mut self.kv, &batch, || beat.tick())?;
        let prompt_logprobs = self.prompt_logprobs(plan, &batch, beat)?;
        Ok(StepResult { rows: self.sample(plan, &batch, beat)?, prompt_logprobs })
    }

    /// Log-probabilities of the prompts' tokens that follow the step's rows, where they are wanted: of a request's first
    /// sample, since they are those of all. One that resumes has told them before.
    fn prompt_logprobs(
        &mut self,
        plan: &StepPlan,
        batch: &Batch,
        beat: &Heartbeat,
    ) -> Result<Vec<(SequenceId, usize, TokenLogprobs)>, Error> {
        // Row of the batch, whose token is wanted, at which position, of how many.
        let mut wanted: Vec<(usize, SequenceId, usize, LogprobsOf)> = vec![];
        for (row, [first, ..]) in plan.rows.iter().zip(&batch.chunks) {
            let sampler = self.sequences.get(&row.id).filter(|sampler| row.id.sample == 0 && !sampler.resumed);
            let spec = sampler.map(|sampler| &sampler.spec);
            let Some((spec, top)) = spec.and_then(|spec| Some((spec, spec.params.prompt_logprobs?))) else { continue };
            for position in row.start + 1..(row.end() + 1).min(spec.prompt.len()) {
                let token = spec.prompt[position];
                let at = *first as usize + position - 1 - row.start;
                wanted.push((at, row.id, position, LogprobsOf { row: 0, token, top }));
            }
        }
        let mut out = vec![];
        for part in wanted.chunks(PROMPT_ROWS) {
            self.decoder.head(&part.iter().map(|w| w.0).collect::<Vec<_>>())?;
            let items: Vec<LogprobsOf> = part.iter().enumerate().map(|(row, w)| LogprobsOf { row, ..w.3 }).collect();
            let values = self.decoder.logprobs(&items)?;
            out.extend(part.iter().zip(values).map(|((_, id, position, _), value)| (*id, *position, value)));
            beat.tick();
        }
        Ok(out)
    }

    /// The tokens that follow the step's rows that sample.
    fn sample(&mut self, plan: &StepPlan, batch: &Batch, beat: &Heartbeat) -> Result<Vec<Sampled>, Error> {
        let rows: Vec<(usize, &Row)> = plan.sampling_rows().collect();
        if rows.is_empty() {
            return Ok(vec![]);
        }
        let last = batch.last_rows();
        self.decoder.head(&rows.iter().map(|(place, _)| last[*place]).collect::<Vec<_>>())?;

        let (mut rules, mut draws, mut tops) = (vec![], vec![], vec![]);
        for (_, row) in &rows {
            let sampler = self.sequences.get_mut(&row.id).ok_or_else(|| unknown(row.id))?;
            rules.push(sampler.next_rules());
            draws.push((sampler.spec.draw, row.end() as u32));
            tops.push(sampler.spec.params.logprobs);
            // A form may take milliseconds.
            beat.tick();
        }
        let ruled = |i: &usize| !rules[*i].is_empty();
        let kept: Vec<usize> = (0..rows.len()).filter(|&i| tops[i].is_some() && ruled(&i)).collect();
        self.decoder.keep_raw(&kept)?;
        let of_row = |row: usize| {
            let NextRules { edits, mask } = &rules[row];
            RowRules { row, edits, mask: mask.as_deref() }
        };
        self.decoder.apply(&(0..rows.len()).filter(ruled).map(of_row).collect::<Vec<_>>())?;
        let tokens = self.decoder.sample(&draws)?;

        let wanted: Vec<LogprobsOf> =
            (0..rows.len()).filter_map(|row| Some(LogprobsOf { row, token: tokens[row]?, top: tops[row]? })).collect();
        let mut logprobs: HashMap<usize, TokenLogprobs> =
            wanted.iter().map(|item| item.row).zip(self.decoder.logprobs(&wanted)?).collect();

        let mut sampled = vec![];
        for (i, (place, row)) in rows.into_iter().enumerate() {
            let sampler = self.sequences.get_mut(&row.id).ok_or_else(|| unknown(row.id))?;
            let token = tokens[i].unwrap_or(0);
            let form = |sampler: &Sampler| sampler.fault().map(|why| RowFault::Form(why.to_owned()));
            let no_logits = || RowFault::NoLogits(Error::NoLogits { position: row.end() }.to_string());
            // What was wrong before the token, or there is none, or it is the last that the form can be followed to.
            let before = form(sampler).or_else(|| tokens[i].is_none().then(no_logits));
            sampler.push(token);
            let fault = before.or_else(|| form(sampler));
            self.recent.set(place, token);
            sampled.push(Sampled { token, logprobs: logprobs.remove(&i), fault });
            beat.tick();
        }
        Ok(sampled)
    }
}

/// Which file, of what size and time, and how it is computed. A file that is written anew in place is another.
fn identity(file: &Gguf, activations: Activations) -> String {
    let path = file.path();
    let time =
        std::fs::metadata(path).and_then(|of| of.modified()).ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    let time = time.map_or(String::new(), |time| format!(", of {}.{:09} s", time.as_secs(), time.subsec_nanos()));
    format!("{} ({} bytes{time}), {}", path.display(), file.file_bytes(), activations.name())
}

fn unknown(id: SequenceId) -> Error {
    Error::Step(format!("sequence {id} never started"))
}

impl StepModel for DecoderModel {
    fn info(&self) -> ModelInfo {
        let config = self.decoder.config();
        ModelInfo {
            architecture: config.architecture.clone(),
            device: self.decoder.device().name(),
            identity: self.identity.clone(),
            vocab_size: config.vocab,
            context: config.context,
            block_size: BLOCK,
            num_blocks: self.kv.num_blocks() as u32,
            block_bytes: self.block_bytes(),
            weight_bytes: self.weight_bytes(),
            order: self.decoder.order(),
            kernels: self.decoder.kernels().into_iter().map(str::to_owned).collect(),
        }
    }

    fn run(&mut self, work: &Work, beat: &Heartbeat) -> Result<StepResult, StepFault> {
        // First of all: the next step may ask for this one's tokens, whatever becomes of it.
        self.recent.begin(work.plan.step, work.plan.rows.len());
        for id in &work.ends {
            self.sequences.remove(id);
        }
        let vocab = self.decoder.config().vocab;
        for start in &work.starts {
            self.sequences.insert(start.id, Sampler::new(start, vocab));
        }
        self.step(&work.plan, beat).map_err(|error| {
            // A device that cannot even wait is of no use any more.
            match self.decoder.device().synchronize() {
                Ok(()) => StepFault::Step(error.to_string()),
                Err(lost) => StepFault::Lost(format!("{error}; then {lost}")),
            }
        })
    }
}
