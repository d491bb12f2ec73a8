//! A decoder's weights: checked, packed for the device, merged where products share their input.

use super::Config;
use crate::Error;
use crate::gguf::{GgmlType, Gguf, GgufError, Problem, TensorInfo};
use crate::progress;
use indicatif::ProgressBar;
use tegula::ir::Quant;
use tegula::{PackedTensor, Stream, Tensor};
use tegula_kernels::{pack::pack, quantise::Bits};

/// All weights of a decoder.
pub struct Weights {
    /// Token embedding, `hidden` × `vocab`.
    pub embedding: PackedTensor,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Weight of the last norm, [1, hidden].
    pub norm: Tensor<f32>,
    /// The head, `hidden` × `vocab`: the embedding, unless the file has another.
    pub head: Projection,
    /// Whether the head is the embedding.
    tied: bool,
}

/// One decoder layer.
pub struct Layer {
    /// Weight of the norm before attention, [1, hidden].
    pub attention_norm: Tensor<f32>,
    /// Queries, keys and values. Their input takes 16 bits: scores are differences of large sums, and the softmax over them
    /// makes more of an error than any other product does.
    pub qkv: Projection,
    /// Attention's output.
    pub output: Projection,
    /// Weight of the norm before the feed-forward network, [1, hidden].
    pub ffn_norm: Tensor<f32>,
    /// The gate, and the factor it is multiplied with.
    pub gate_up: Projection,
    /// Back to the residual stream.
    pub down: Projection,
}

/// Products with one input whose outputs lie side by side. Neighbours of one format are merged into one matrix.
pub struct Projection {
    /// Matrices and the columns their outputs begin at.
    pub parts: Vec<(PackedTensor, usize)>,
    /// Length of the contracted axis.
    pub k: usize,
    /// Outputs of all parts.
    pub n: usize,
    /// How finely the input is quantised, if it is.
    pub bits: Bits,
}

impl Weights {
    /// Loads and packs all weights of `file`, tensor by tensor.
    pub fn load(file: &Gguf, config: &Config, stream: &Stream) -> Result<Weights, Error> {
        check_all_are_read(file, config)?;
        let loader = Loader { file, stream, bar: progress::bytes(file.file_bytes(), "packing weights") };
        let (h, q, kv, f) = (config.hidden, config.q_width(), config.kv_width(), config.ffn);
        let layers = (0..config.layers)
            .map(|i| {
                let name = |part: &str| format!("blk.{i}.{part}.weight");
                Ok(Layer {
                    attention_norm: loader.vector(&name("attn_norm"), h)?,
                    qkv: Projection {
                        bits: Bits::Sixteen,
                        ..loader.merged(&[(name("attn_q"), q), (name("attn_k"), kv), (name("attn_v"), kv)], h)?
                    },
                    output: loader.merged(&[(name("attn_output"), h)], q)?,
                    ffn_norm: loader.vector(&name("ffn_norm"), h)?,
                    gate_up: loader.merged(&[(name("ffn_gate"), f), (name("ffn_up"), f)], h)?,
                    down: loader.merged(&[(name("ffn_down"), h)], f)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let embedding = loader.matrix("token_embd.weight", h, config.vocab)?;
        let head = match file.find("output.weight") {
            Some(_) => loader.merged(&[("output.weight".into(), config.vocab)], h)?,
            None => Projection { parts: vec![(embedding.clone(), 0)], k: h, n: config.vocab, bits: Bits::Eight },
        };
        let (norm, tied) = (loader.vector("output_norm.weight", h)?, file.find("output.weight").is_none());
        let weights = Weights { embedding, layers, norm, head, tied };
        loader.bar.finish_and_clear();
        Ok(weights)
    }
}

impl Weights {
    /// Layers that between them have all formats that layers have: those whose formats no earlier one has.
    pub fn first_of_each_kind(&self) -> Vec<usize> {
        let formats = |p: &Projection| p.parts.iter().map(|(w, _)| w.quant()).collect::<Vec<_>>();
        let kind = |l: &Layer| [&l.qkv, &l.output, &l.gate_up, &l.down].map(formats);
        let mut seen = vec![];
        let mut first = vec![];
        for (i, layer) in self.layers.iter().enumerate() {
            if !seen.contains(&kind(layer)) {
                seen.push(kind(layer));
                first.push(i);
            }
        }
        first
    }

    /// Bytes of all of them, as they lie in memory.
    pub fn bytes(&self) -> usize {
        let of = |p: &Projection| p.parts.iter().map(|(w, _)| w.bytes_view().len()).sum::<usize>();
        let layer = |l: &Layer| {
            [&l.qkv, &l.output, &l.gate_up, &l.down].map(of).iter().sum::<usize>()
                + 4 * (l.attention_norm.len() + l.ffn_norm.len())
        };
        // A head that is the embedding is there once.
        let head = if self.tied { 0 } else { of(&self.head) };
        let embedding = self.embedding.bytes_view().len();
        self.layers.iter().map(layer).sum::<usize>() + embedding + head + 4 * self.norm.len()
    }
}

struct Loader<'f> {
    file: &'f Gguf,
    stream: &'f Stream,
    bar: ProgressBar,
}

impl Loader<'_> {
    /// A tensor that must have `n` rows of `k` elements, and its format.
    fn find(&self, name: &str, k: usize, n: usize) -> Result<(&TensorInfo, Quant), GgufError> {
        let info = self.file.tensor(name, &[k as u64, n as u64])?;
        let quant =
            quant_of(info.ty).ok_or_else(|| self.file.tensor_error(name, Problem::Unsupported { ty: info.ty }))?;
        Ok((info, quant))
    }

    fn done(&self, info: &TensorInfo) {
        self.bar.inc(info.bytes());
    }

    fn matrix(&self, name: &str, k: usize, n: usize) -> Result<PackedTensor, Error> {
        let (info, quant) = self.find(name, k, n)?;
        let packed = pack(self.stream, quant, &self.file.data(info)?, k, n)?;
        self.done(info);
        Ok(packed)
    }

    /// A vector as [1, n] f32.
    fn vector(&self, name: &str, n: usize) -> Result<Tensor<f32>, Error> {
        let info = self.file.tensor(name, &[n as u64])?;
        let values = self.file.dequantize(info)?;
        self.done(info);
        Ok(self.stream.device().tensor([1, n], &values)?)
    }

    /// Several matrices of one input, of 8 bits. Runs of one format become one matrix.
    fn merged(&self, tensors: &[(String, usize)], k: usize) -> Result<Projection, Error> {
        let found = tensors
            .iter()
            .map(|(name, n)| self.find(name, k, *n).map(|(i, q)| (i, q, *n)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut parts = vec![];
        let mut column = 0;
        for run in found.chunk_by(|a, b| a.1 == b.1) {
            // Rows of a GGUF tensor lie one after the other: merging outputs is appending bytes.
            let mut bytes = vec![];
            run.iter().try_for_each(|(info, ..)| self.file.append_data(info, &mut bytes))?;
            let n = run.iter().map(|r| r.2).sum::<usize>();
            parts.push((pack(self.stream, run[0].1, &bytes, k, n)?, column));
            column += n;
            run.iter().for_each(|(info, ..)| self.done(info));
        }
        Ok(Projection { parts, k, n: column, bits: Bits::Eight })
    }
}

/// Tensors of a layer: `blk.0.attn_q.weight` and so on.
const OF_LAYER: [&str; 9] =
    ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"];
/// Those of no layer.
const OF_NO_LAYER: [&str; 3] = ["token_embd.weight", "output_norm.weight", "output.weight"];

/// That the file has no tensor which [`Weights::load`] does not read: a model that was made with it is another model without.
fn check_all_are_read(file: &Gguf, config: &Config) -> Result<(), GgufError> {
    let of_layer = |name: &str| -> Option<bool> {
        let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
        let layer = layer.parse::<usize>().ok()?;
        Some(layer < config.layers && OF_LAYER.contains(&part.strip_suffix(".weight")?))
    };
    let is_read = |name: &str| OF_NO_LAYER.contains(&name) || of_layer(name).unwrap_or(false);
    let mut unread = file.tensors().iter().filter(|t| !is_read(&t.name));
    match unread.next() {
        Some(first) => Err(file.tensor_error(&first.name, Problem::Unread { others: unread.count() })),
        None => Ok(()),
    }
}

/// The packed format of a GGUF type, if kernels can multiply with it.
fn quant_of(ty: GgmlType) -> Option<Quant> {
    Quant::from_name(&ty.name().to_ascii_lowercase())
}
