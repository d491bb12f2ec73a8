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
    /// Tokens of the last step.
    computed: usize,
    logits: Logits,
    chooser: Chooser,
    /// Tokens of a prompt that share an attention program.
    prompt_tokens: usize,
}

/// Memory of a step, for up to `rows` tokens.
struct Work {
    rows: usize,
    /// The residual stream: a row a token of the last step.
    x: Tensor<f32>,
    /// Inputs of products, wide enough for each.
    input: Input,
    qkv: Tensor<f32>,
    q: Tensor<f32>,
    gate_up: Tensor<f32>,
}

/// Logits of the last call of [`Decoder::head`].
struct Logits {
    /// The first `rows` rows, [at least rows, vocabulary].
    of: Tensor<f32>,
    rows: usize,
    /// Rows as they were before [`Decoder::apply`], and which those are.
    raw: Tensor<f32>,
    kept: Vec<usize>,
}

impl Decoder {
    /// Loads the model of a file onto a device.
    pub fn load(file: &Gguf, device: &Device, activations: Activations) -> Result<Decoder, Error> {
        let config = (arch::of(file)?.config)(file)?;
        let stream = device.stream();
        let weights = Weights::load(file, &config, &stream)?;
        let rope = rope_tables(device, &config)?;
        let work = Work::new(device, &config, activations, 1)?;
        let logits = Logits::new(device, config.vocab, 1)?;
        let target = device.compiles_for();
        let chooser = Chooser::new(device)?;
        let prompt_tokens = prompt_tokens(&target, config.group());
        Ok(Decoder { config, stream, activations, weights, rope, work, computed: 0, logits, chooser, prompt_tokens })
    }

    /// The model's dimensions.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Bytes of the weights as they lie in memory.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Bytes that [`Decoder::reserve`] takes.
    pub fn step_bytes(&self, rows: usize, logits: usize) -> usize {
        let c = &self.config;
        let row = c.hidden + 2 * (c.q_width() + c.kv_width()) + 2 * c.ffn;
        let rows = rows.saturating_mul(4 * row + Input::row_bytes(widest_input(c)));
        rows.saturating_add(logits.saturating_mul(2 * 4 * c.vocab))
    }

    /// What fixes the bits of results besides the weights: names and values.
    pub fn order(&self) -> Vec<(String, String)> {
        let of = |name: &str, value: String| (name.to_owned(), value);
        vec![
            of("activations", self.activations.name().into()),
            of("attention.block", BLOCK.to_string()),
            of("attention.blocks_per_cut", ORDER.blocks_per_cut.to_string()),
        ]
    }

    /// The names of the kernels that steps may launch.
    pub fn kernels(&self) -> Vec<&'static str> {
        let layers = self.weights.layers.iter().flat_map(|l| [&l.qkv, &l.output, &l.gate_up, &l.down]);
        let forms: Vec<_> = layers.chain([&self.weights.head]).map(|p| self.work.input.forms_of(p)).collect();
        let mut names = vec!["embed", "rope_and_cache", "attention", "rms_norm_rows"];
        if forms.iter().any(|f| f.codes.is_some()) {
            names.extend(["rms_norm_quantise", "swiglu_quantise", "quantise", "linear_quantised"]);
        }
        if forms.iter().any(|f| f.plain) {
            names.extend(["rms_norm", "swiglu", "linear"]);
        }
        names.extend(["copy_rows", "mask_logits", "edit_logits", "sample", "logprobs"]);
        names
    }

    /// Takes the memory of steps of up to `rows` tokens and `logits` rows of logits, so that none of those can lack it.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn reserve(&mut self, rows: usize, logits: usize) -> Result<(), Error> {
        let device = self.stream.device();
        if rows > self.work.rows {
            self.work = Work::new(device, &self.config, self.activations, rows)?;
            self.computed = 0;
        }
        if logits > self.logits.of.shape()[0] {
            self.logits = Logits::new(device, self.config.vocab, logits)?;
        }
        Ok(())
    }

    /// Computes a batch: keys and values go to the cache; of each row what its logits follow from stays here for
    /// [`Decoder::head`].
    ///
    /// # Errors
    /// If the batch names tokens, positions or blocks that there are not; if memory lacks that was not
    /// [reserved](Decoder::reserve); if a kernel fails. What is in the batch's slots is then unknown.
    pub fn forward(&mut self, kv: &mut KvCache, batch: &Batch) -> Result<(), Error> {
        self.forward_layers(kv, batch, || ())
    }

    /// [`Decoder::forward`], telling `each` when a layer is computed.
    pub fn forward_layers(&mut self, kv: &mut KvCache, batch: &Batch, each: impl FnMut()) -> Result<(), Error> {
        self.compute(kv, batch, &Vec::from_iter(0..self.config.layers), each)
    }

    /// [`Decoder::forward`] through one layer of each kind: every kernel that a forward pass of such a batch launches, and
    /// no result.
    pub fn rehearse(&mut self, kv: &mut KvCache, batch: &Batch) -> Result<(), Error> {
        self.compute(kv, batch, &self.weights.first_of_each_kind(), || ())
    }

    fn compute(
        &mut self,
        kv: &mut KvCache,
        batch: &Batch,
        layers: &[usize],
        mut each: impl FnMut(),
    ) -> Result<(), Error> {
        batch.check(&self.config, kv.num_blocks())?;
        let rows = batch.rows();
        (self.computed, self.logits.rows) = (0, 0);
        // Grown in powers of two: a longer prompt later is likely to fit.
        if rows > self.work.rows {
            self.reserve(rows.next_power_of_two(), 0)?;
        }
        let device = self.stream.device().clone();
        let Decoder { config, stream, weights, rope, work, .. } = self;
        let (c, stream) = (&*config, &*stream);
        let positions = device.tensor([rows], &batch.positions)?;
        let slots = device.tensor([rows], &batch.slots)?;
        let tables = device.tensor([batch.tables.len() / batch.width, batch.width], &batch.tables)?;
        // Tiles for single tokens and for many: schedules, which give a row the same bits.
        let mut attentions = vec![];
        for (tile, items) in [1, self.prompt_tokens].into_iter().zip(batch.work(self.prompt_tokens)) {
            if !items.is_empty() {
                attentions.push((tile, device.tensor([items.len(), 4], items.as_flattened())?));
            }
        }
        let tokens = device.tensor([rows], &batch.tokens)?;
        let scale = 1.0 / (c.head_dim as f32).sqrt();

        embed::launch(&weights.embedding, &tokens, &mut work.x).dims(c.hidden).grid(rows).run(stream)?;
        for &at in layers {
            let (layer, (keys, values)) = (&weights.layers[at], &mut kv.layers[at]);
            let next = work.input.forms_of(&layer.qkv);
            work.input.norm(&work.x, &layer.attention_norm, rows, c, next, stream)?;
            work.input.project(&layer.qkv, rows, &mut work.qkv.view_mut()?, false, stream)?;
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
            for (tile, items) in &attentions {
                let attended = work.input.write(rows, c.q_width())?;
                attention::launch(&work.q, &*keys, &*values, &tables, items, attended, scale)
                    .dims(*tile, c.group(), c.head_dim, BLOCK)
                    .cfg(ORDER)
                    .grid([c.kv_heads, items.shape()[0]])
                    .run(stream)?;
            }
            let next = work.input.forms_of(&layer.output);
            work.input.written(rows, c.q_width(), next, stream)?;
            work.input.project(&layer.output, rows, &mut work.x.view_mut()?, true, stream)?;

            let next = work.input.forms_of(&layer.gate_up);
            work.input.norm(&work.x, &layer.ffn_norm, rows, c, next, stream)?;
            work.input.project(&layer.gate_up, rows, &mut work.gate_up.view_mut()?, false, stream)?;
            let next = work.input.forms_of(&layer.down);
            work.input.swiglu(&work.gate_up, rows, c.ffn, next, stream)?;
            work.input.project(&layer.down, rows, &mut work.x.view_mut()?, true, stream)?;
            each();
        }
        self.computed = rows;
        Ok(())
    }

    /// Computes the logits of rows of the last step, in this order: they stay here as rows 0, 1, 2 … for what follows. Each
    /// call replaces those of the last.
    ///
    /// # Errors
    /// If the last step has no such row, memory lacks that was not [reserved](Decoder::reserve), or a kernel fails.
    pub fn head(&mut self, rows: &[usize]) -> Result<(), Error> {
        if let Some(row) = rows.iter().find(|row| **row >= self.computed) {
            return Err(Error::Step(format!("logits of row {row}; the last step computed {} rows", self.computed)));
        }
        let n = rows.len();
        self.reserve(0, n)?;
        self.logits.rows = 0;
        self.logits.kept.clear();
        if n == 0 {
            return Ok(());
        }
        let Decoder { config: c, stream, weights, work, logits, .. } = self;
        // The input has a row for each row of the step, and the step may have fewer than logits are asked for.
        for (part, rows) in rows.chunks(work.rows).enumerate() {
            let first = part * work.rows;
            let chosen: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
            let chosen = stream.device().tensor([chosen.len()], &chosen)?;
            let normed = work.input.write(rows.len(), c.hidden)?;
            rms_norm_rows::launch(&work.x, &weights.norm, &chosen, normed, c.norm_eps)
                .dims(c.hidden)
                .grid(rows.len())
                .run(stream)?;
            work.input.written(rows.len(), c.hidden, work.input.forms_of(&weights.head), stream)?;
            let mut to = logits.of.view_mut()?.slice(0, first..first + rows.len())?;
            work.input.project(&weights.head, rows.len(), &mut to, false, stream)?;
        }
        logits.rows = n;
        Ok(())
    }

    /// The logits, row after row.
    pub fn logits(&self) -> Result<Vec<f32>, Error> {
        Ok(self.logits.of.slice(0, 0..self.logits.rows)?.try_to_vec()?)
    }

    /// Keeps these rows of the logits as they are: [`Decoder::logprobs`] reads them as they were now, whatever is applied
    /// later.
    pub fn keep_raw(&mut self, rows: &[usize]) -> Result<(), Error> {
        self.check_rows(rows.iter().copied())?;
        self.chooser.copy(&self.stream, &self.logits.of, rows, &mut self.logits.raw)?;
        self.logits.kept = rows.to_vec();
        Ok(())
    }

    /// Applies rules to the logits: [`Decoder::sample`] draws by them.
    pub fn apply(&mut self, rules: &[RowRules<'_>]) -> Result<(), Error> {
        self.check_rows(rules.iter().map(|r| r.row))?;
        self.chooser.apply(&self.stream, &mut self.logits.of, rules)
    }

    /// Log-probabilities by the logits: of rows that were [kept](Decoder::keep_raw), as they were then; of others, as they are.
    pub fn logprobs(&self, items: &[LogprobsOf]) -> Result<Vec<TokenLogprobs>, Error> {
        self.check_rows(items.iter().map(|i| i.row))?;
        let Logits { of, raw, kept, .. } = &self.logits;
        let (mut plain, mut before) = (vec![], vec![]);
        let places: Vec<(bool, usize)> = items
            .iter()
            .map(|item| {
                let at = kept.iter().position(|row| *row == item.row);
                let list = if at.is_some() { &mut before } else { &mut plain };
                list.push(LogprobsOf { row: at.unwrap_or(item.row), ..*item });
                (at.is_some(), list.len() - 1)
            })
            .collect();
        let plain = self.chooser.logprobs(&self.stream, of, &plain)?;
        let before = self.chooser.logprobs(&self.stream, raw, &before)?;
        Ok(places.into_iter().map(|(kept, i)| if kept { before[i].clone() } else { plain[i].clone() }).collect())
    }

    /// One token for each row of the logits, drawn so, for this position. `None` of a row that has no logit above −∞: it has
    /// no token that could be chosen. That is its own affair, and other rows' tokens are what they are.
    pub fn sample(&self, rows: &[(Draw, u32)]) -> Result<Vec<Option<u32>>, Error> {
        let of = self.logits.rows;
        if rows.len() != of {
            return Err(Error::Step(format!("draws for {} rows; there are {of} rows of logits", rows.len())));
        }
        self.chooser.draw(&self.stream, &self.logits.of, rows)
    }

    fn check_rows(&self, mut rows: impl Iterator<Item = usize>) -> Result<(), Error> {
        let of = self.logits.rows;
        let outside = rows.find(|row| *row >= of);
        outside.map_or(Ok(()), |row| Err(Error::Step(format!("row {row} of {of} rows of logits"))))
    }
}

impl Work {
    fn new(device: &Device, c: &Config, activations: Activations, rows: usize) -> Result<Work, Error> {
        Ok(Work {
            rows,
            x: device.zeros([rows, c.hidden])?,
            input: Input::new(device, activations, rows, widest_input(c))?,
            qkv: device.zeros([rows, c.q_width() + 2 * c.kv_width()])?,
            q: device.zeros([rows, c.q_width()])?,
            gate_up: device.zeros([rows, 2 * c.ffn])?,
        })
    }
}

/// The widest input of a product.
fn widest_input(c: &Config) -> usize {
    c.hidden.max(c.ffn).max(c.q_width())
}

impl Logits {
    fn new(device: &Device, vocab: usize, rows: usize) -> Result<Logits, Error> {
        Ok(Logits { of: device.zeros([rows, vocab])?, rows: 0, raw: device.zeros([rows, vocab])?, kept: vec![] })
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
    let turns: Vec<f64> = (0..half).map(|i| c.rope_base.powf(-2.0 * i as f64 / c.head_dim as f64)).collect();
    let angles = || (0..c.context).flat_map(|p| turns.iter().map(move |turn| p as f64 * turn));
    let table =
        |f: fn(f64) -> f64| device.tensor([c.context, half], &angles().map(|a| f(a) as f32).collect::<Vec<_>>());
    Ok((table(f64::cos)?, table(f64::sin)?))
}
