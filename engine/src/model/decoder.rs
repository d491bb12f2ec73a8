//! The forward pass of a decoder, for every architecture, always on a ragged batch.
//!
//! Per layer: norm, merged QKV product, rotary embedding with keys and values into the cache, attention, output product
//! onto the residual; norm, merged gate and up product, SwiGLU, down product onto the residual. Inputs of products are
//! quantised by the kernel that makes them.

use super::{Activations, Batch, Config, KvCache, Weights, arch, input::Input, kv::BLOCK};
use crate::Error;
use crate::gguf::Gguf;
use crate::sampling::{Chooser, Draw, LogprobsOf, RowRules, TokenLogprobs};
use tegula::{Device, Stream, Tensor};
use tegula_kernels::{
    attention::{Order, attention},
    embed::embed,
    norm::rms_norm_rows,
    rope::{Heads, rope_and_cache},
};

/// The order of attention's operations: part of what fixes a model's bits.
const ORDER: Order = Order { blocks_per_cut: 4 };
/// Most tokens of a prompt that share an attention program.
const PROMPT_TOKENS: usize = 16;
/// Most rows, a token's query heads, that one has on a GPU: their scores and outputs are in registers.
const GPU_ROWS: usize = 64;

/// A model on a device.
pub struct Decoder {
    config: Config,
    stream: Stream,
    activations: Activations,
    weights: Weights,
    /// [context, d/2] each.
    rope: (Tensor<f32>, Tensor<f32>),
    work: Work,
    chooser: Chooser,
    /// Tokens of a prompt that share an attention program.
    prompt_tokens: usize,
}

/// Memory of a step, for up to `rows` tokens.
struct Work {
    rows: usize,
    x: Tensor<f32>,
    /// Inputs of products, wide enough for each.
    input: Input,
    qkv: Tensor<f32>,
    q: Tensor<f32>,
    gate_up: Tensor<f32>,
    /// Logits of the last step.
    logits: Tensor<f32>,
    logit_rows: usize,
}

impl Decoder {
    /// Loads the model of a file onto a device.
    pub fn load(file: &Gguf, device: &Device, activations: Activations) -> Result<Decoder, Error> {
        let config = (arch::of(file)?.config)(file)?;
        let stream = device.stream();
        let weights = Weights::load(file, &config, &stream)?;
        let rope = rope_tables(device, &config)?;
        let work = Work::new(device, &config, activations, 1)?;
        let target = device.compiles_for();
        let chooser = Chooser::new(device)?;
        let prompt_tokens = prompt_tokens(&target, config.group());
        Ok(Decoder { config, stream, activations, weights, rope, work, chooser, prompt_tokens })
    }

    /// The model's dimensions.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Computes a batch: keys and values go to the cache, logits of the rows the batch names stay here for
    /// [`Decoder::sample`] and [`Decoder::logits`].
    pub fn forward(&mut self, kv: &mut KvCache, batch: &Batch) -> Result<(), Error> {
        let rows = batch.tokens.len();
        let device = self.stream.device().clone();
        if rows > self.work.rows {
            // Grown in powers of two: a longer prompt later is likely to fit.
            self.work = Work::new(&device, &self.config, self.activations, rows.next_power_of_two())?;
        }
        let Decoder { config, stream, weights, rope, work, .. } = self;
        let (c, stream) = (&*config, &*stream);
        let positions = device.tensor([rows], &batch.positions)?;
        let slots = device.tensor([rows], &batch.slots)?;
        let tables = device.tensor([batch.tables.len() / batch.width, batch.width], &batch.tables)?;
        let attention_rows = if batch.chunks.iter().all(|c| c[1] == 1) { 1 } else { self.prompt_tokens };
        let items = batch.work(attention_rows);
        let items = device.tensor([items.len(), 4], items.as_flattened())?;
        let tokens = device.tensor([rows], &batch.tokens)?;
        let scale = 1.0 / (c.head_dim as f32).sqrt();

        embed::launch(&weights.embedding, &tokens, &mut work.x).dims(c.hidden).grid(rows).run(stream)?;
        for (layer, (keys, values)) in weights.layers.iter().zip(&mut kv.layers) {
            let next = work.input.forms_of(&layer.qkv);
            work.input.norm(&work.x, &layer.attention_norm, rows, c, next, stream)?;
            work.input.project(&layer.qkv, rows, &mut work.qkv, false, stream)?;
            rope_and_cache::launch(
                &work.qkv,
                &rope.0,
                &rope.1,
                &positions,
                &slots,
                &mut work.q,
                &mut *keys,
                &mut *values,
            )
            .dims(c.head_dim / 2)
            .cfg(Heads { q: c.heads, kv: c.kv_heads, pairs: c.rope_pairs })
            .grid([rows, c.heads + 2 * c.kv_heads])
            .run(stream)?;
            let attended = work.input.write(rows, c.q_width())?;
            attention::launch(&work.q, &*keys, &*values, &tables, &items, attended, scale)
                .dims(attention_rows, c.group(), c.head_dim, BLOCK)
                .cfg(ORDER)
                .grid([c.kv_heads, items.shape()[0]])
                .run(stream)?;
            let next = work.input.forms_of(&layer.output);
            work.input.written(rows, c.q_width(), next, stream)?;
            work.input.project(&layer.output, rows, &mut work.x, true, stream)?;

            let next = work.input.forms_of(&layer.gate_up);
            work.input.norm(&work.x, &layer.ffn_norm, rows, c, next, stream)?;
            work.input.project(&layer.gate_up, rows, &mut work.gate_up, false, stream)?;
            let next = work.input.forms_of(&layer.down);
            work.input.swiglu(&work.gate_up, rows, c.ffn, next, stream)?;
            work.input.project(&layer.down, rows, &mut work.x, true, stream)?;
        }
        self.head(batch)
    }

    /// Logits of the rows that the batch names.
    fn head(&mut self, batch: &Batch) -> Result<(), Error> {
        let Decoder { config: c, stream, weights, work, .. } = self;
        let rows = batch.logit_rows.len();
        work.logit_rows = rows;
        if rows == 0 {
            return Ok(());
        }
        let device = stream.device();
        if work.logits.shape()[0] < rows {
            work.logits = device.zeros([rows, c.vocab])?;
        }
        let chosen = device.tensor([rows], &batch.logit_rows)?;
        let normed = work.input.write(rows, c.hidden)?;
        rms_norm_rows::launch(&work.x, &weights.norm, &chosen, normed, c.norm_eps)
            .dims(c.hidden)
            .grid(rows)
            .run(stream)?;
        work.input.written(rows, c.hidden, work.input.forms_of(&weights.head), stream)?;
        work.input.project(&weights.head, rows, &mut work.logits, false, stream)
    }

    /// Logits of the last step, row after row.
    pub fn logits(&self) -> Result<Vec<f32>, Error> {
        Ok(self.work.logits.slice(0, 0..self.work.logit_rows)?.try_to_vec()?)
    }

    /// Applies rules to logits of the last step: [`Decoder::sample`] draws by them, and [`Decoder::logprobs`] no longer gives
    /// the model's own.
    pub fn apply(&mut self, rules: &[RowRules<'_>]) -> Result<(), Error> {
        self.check_rows(rules.iter().map(|r| r.row))?;
        self.chooser.apply(&self.stream, &mut self.work.logits, rules)
    }

    /// Log-probabilities by logits of the last step.
    pub fn logprobs(&self, items: &[LogprobsOf]) -> Result<Vec<TokenLogprobs>, Error> {
        self.check_rows(items.iter().map(|i| i.row))?;
        self.chooser.logprobs(&self.stream, &self.work.logits, items)
    }

    fn check_rows(&self, mut rows: impl Iterator<Item = usize>) -> Result<(), Error> {
        let of = self.work.logit_rows;
        let outside = rows.find(|row| *row >= of);
        outside.map_or(Ok(()), |row| Err(Error::Usage(format!("row {row} of {of} rows of logits"))))
    }

    /// One token for each row of logits of the last step, drawn so, for this position.
    ///
    /// # Errors
    /// If a row has no logit above −∞: a NaN somewhere in the model spreads to all.
    pub fn sample(&self, rows: &[(Draw, u32)]) -> Result<Vec<u32>, Error> {
        if rows.len() != self.work.logit_rows {
            return Err(Error::Usage(format!(
                "draws for {} rows of {} rows of logits",
                rows.len(),
                self.work.logit_rows
            )));
        }
        let tokens = self.chooser.draw(&self.stream, &self.work.logits, rows)?;
        for (row, &token) in tokens.iter().enumerate() {
            let at = token as usize;
            let logit = self.work.logits.slice(0, row..row + 1)?.slice(1, at..at + 1)?.try_to_vec()?;
            if logit[0].is_nan() || logit[0] == f32::NEG_INFINITY {
                return Err(Error::NoLogits { position: rows[row].1 as usize });
            }
        }
        Ok(tokens)
    }
}

impl Work {
    fn new(device: &Device, c: &Config, activations: Activations, rows: usize) -> Result<Work, Error> {
        Ok(Work {
            rows,
            x: device.zeros([rows, c.hidden])?,
            input: Input::new(device, activations, rows, c.hidden.max(c.ffn).max(c.q_width()))?,
            qkv: device.zeros([rows, c.q_width() + 2 * c.kv_width()])?,
            q: device.zeros([rows, c.q_width()])?,
            gate_up: device.zeros([rows, 2 * c.ffn])?,
            logits: device.zeros([1, c.vocab])?,
            logit_rows: 0,
        })
    }
}

/// Tokens of a prompt that share an attention program, each with `group` query heads: a power of two. A schedule: a row's
/// result depends on its position alone.
fn prompt_tokens(target: &str, group: usize) -> usize {
    if !target.starts_with("sm_") {
        return PROMPT_TOKENS;
    }
    let most = (GPU_ROWS / group).clamp(1, PROMPT_TOKENS);
    // The power of two below.
    1 << most.ilog2()
}

fn rope_tables(device: &Device, c: &Config) -> Result<(Tensor<f32>, Tensor<f32>), Error> {
    let half = c.head_dim / 2;
    let angles: Vec<f64> = (0..c.context)
        .flat_map(|p| (0..half).map(move |i| p as f64 * c.rope_base.powf(-2.0 * i as f64 / c.head_dim as f64)))
        .collect();
    let table =
        |f: fn(f64) -> f64| device.tensor([c.context, half], &angles.iter().map(|&a| f(a) as f32).collect::<Vec<_>>());
    Ok((table(f64::cos)?, table(f64::sin)?))
}
