//! Choosing tokens on a device: rules, draws and log-probabilities, each one launch for all rows of a step.

use tegula::{Device, Stream, Tensor};
use tegula_kernels::logprobs::logprobs;
use tegula_kernels::registry;
use tegula_kernels::rules::{copy_rows, edit_logits, mask_logits};
use tegula_kernels::sample::sample;

use super::edit::Edit;
use super::logprobs::{Logprob, TokenLogprobs};
use super::params::Draw;
use crate::Error;

/// The rules of one row of logits, for one step.
#[derive(Clone, Copy, Debug)]
pub struct RowRules<'a> {
    /// Which row; each at most once.
    pub row: usize,
    /// Each token at most once.
    pub edits: &'a [Edit],
    /// One bit a token: what is allowed.
    pub mask: Option<&'a [u32]>,
}

/// What log-probabilities are wanted of one row of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogprobsOf {
    /// Which row.
    pub row: usize,
    /// The token that follows it.
    pub token: u32,
    /// How many of the most likely tokens.
    pub top: u32,
}

/// Rows of so many numbers of 32 bits or a few more begin at multiples of 16 bytes: a kernel is compiled for aligned rows
/// and for others, and so only for these.
fn aligned(width: usize) -> usize {
    width.next_multiple_of(4)
}

/// Tile sizes of the kernels on a device.
#[derive(Clone, Copy, Debug)]
pub struct Chooser {
    edits: usize,
    mask_words: usize,
    copy: usize,
    sample: usize,
    logprobs: usize,
}

impl Chooser {
    /// For kernels that run on this device.
    pub fn new(device: &Device) -> Result<Chooser, Error> {
        let target = device.compiles_for();
        let tile = |kernel| Ok::<_, Error>(registry::find(kernel)?.dims_on(&target)[0]);
        Ok(Chooser {
            edits: tile("edit_logits")?,
            mask_words: tile("mask_logits")?,
            copy: tile("copy_rows")?,
            sample: tile("sample")?,
            logprobs: tile("logprobs")?,
        })
    }

    /// Applies rules to `logits` [rows, vocabulary], in place: masks first. Rows without rules cost nothing, and without
    /// any nothing is launched. Edits of tokens outside the vocabulary are left out.
    pub fn apply(&self, stream: &Stream, logits: &mut Tensor<f32>, rules: &[RowRules<'_>]) -> Result<(), Error> {
        let device = stream.device();
        let vocabulary = logits.shape()[1];
        let masked: Vec<(i32, &[u32])> = rules.iter().filter_map(|r| Some((r.row as i32, r.mask?))).collect();
        if !masked.is_empty() {
            let words = aligned(vocabulary.div_ceil(32));
            let mut masks = vec![0u32; masked.len() * words];
            for (to, (_, mask)) in masks.chunks_exact_mut(words).zip(&masked) {
                to.iter_mut().zip(*mask).for_each(|(to, word)| *to = *word);
            }
            let rows: Vec<i32> = masked.iter().map(|m| m.0).collect();
            let rows = device.tensor([rows.len()], &rows)?;
            let masks = device.tensor([masked.len(), words], &masks)?;
            let parts = vocabulary.div_ceil(32 * self.mask_words);
            mask_logits::launch(&rows, &masks, &mut *logits)
                .dims(self.mask_words)
                .grid([masked.len(), parts])
                .run(stream)?;
        }
        let edits: Vec<(i32, Edit)> = rules
            .iter()
            .flat_map(|r| r.edits.iter().map(|e| (r.row as i32, *e)))
            .filter(|(_, e)| (e.token as usize) < vocabulary)
            .collect();
        if !edits.is_empty() {
            let n = edits.len();
            let mut places = vec![0i32; 2 * aligned(n)];
            let mut values = vec![0f32; 3 * aligned(n)];
            for (i, (row, edit)) in edits.iter().enumerate() {
                let at = |line: usize| line * aligned(n) + i;
                (places[at(0)], places[at(1)]) = (*row, edit.token as i32);
                (values[at(0)], values[at(1)], values[at(2)]) = (edit.bias, edit.repetition, edit.penalty);
            }
            let places = device.tensor([2, aligned(n)], &places)?;
            let values = device.tensor([3, aligned(n)], &values)?;
            let (places, values) = (places.slice(1, 0..n)?, values.slice(1, 0..n)?);
            edit_logits::launch(places, values, logits).dims(self.edits).grid(n.div_ceil(self.edits)).run(stream)?;
        }
        Ok(())
    }

    /// Copies rows of `logits` [rows, vocabulary] to the first rows of `to`, which is as wide.
    pub fn copy(
        &self,
        stream: &Stream,
        logits: &Tensor<f32>,
        rows: &[usize],
        to: &mut Tensor<f32>,
    ) -> Result<(), Error> {
        let (n, vocabulary) = (rows.len(), logits.shape()[1]);
        if n == 0 {
            return Ok(());
        }
        let rows = stream.device().tensor([n], &rows.iter().map(|row| *row as i32).collect::<Vec<_>>())?;
        let to = to.view_mut()?.slice(0, 0..n)?;
        copy_rows::launch(logits, &rows, to).dims(self.copy).grid([n, vocabulary.div_ceil(self.copy)]).run(stream)?;
        Ok(())
    }

    /// One token for each row of `logits` [rows, vocabulary] from the first on: drawn so, for this position. `None` where
    /// all logits of a row are NaN or −∞.
    pub fn draw(&self, stream: &Stream, logits: &Tensor<f32>, rows: &[(Draw, u32)]) -> Result<Vec<Option<u32>>, Error> {
        let (device, n) = (stream.device(), rows.len());
        let params = rows.iter().flat_map(|(d, _)| [d.temperature, d.top_p, d.min_p, d.typical_p]);
        let params = device.tensor([n, 4], &params.collect::<Vec<f32>>())?;
        let top_k = device.tensor([n], &rows.iter().map(|(d, _)| d.top_k).collect::<Vec<i32>>())?;
        let seeds = device.tensor([n], &rows.iter().map(|(d, _)| d.seed).collect::<Vec<u64>>())?;
        let positions = device.tensor([n], &rows.iter().map(|r| r.1 as i32).collect::<Vec<i32>>())?;
        if n == 0 {
            return Ok(vec![]);
        }
        let mut tokens = device.zeros::<i32>([n])?;
        sample::launch(logits, &params, &top_k, &seeds, &positions, &mut tokens)
            .dims(self.sample)
            .grid(n)
            .run(stream)?;
        Ok(tokens.try_as_slice()?.iter().map(|&t| u32::try_from(t).ok()).collect())
    }

    /// Log-probabilities of rows of `logits` [rows, vocabulary]; rows may come several times, and in any order. Applied
    /// before the rules they are the model's own (vLLM's `raw_logprobs`).
    pub fn logprobs(
        &self,
        stream: &Stream,
        logits: &Tensor<f32>,
        items: &[LogprobsOf],
    ) -> Result<Vec<TokenLogprobs>, Error> {
        let (device, n) = (stream.device(), items.len());
        let vocabulary = logits.shape()[1];
        let Some(most) = items.iter().map(|i| vocabulary.min(i.top as usize)).max() else { return Ok(vec![]) };
        let width = aligned(1 + most);
        let of = |i: &LogprobsOf| [i.row as i32, i.token as i32, vocabulary.min(i.top as usize) as i32, 0];
        let wanted: Vec<[i32; 4]> = items.iter().map(of).collect();
        let wanted = device.tensor([n, 4], wanted.as_flattened())?;
        let (mut tokens, mut values) = (device.zeros::<i32>([n, width])?, device.zeros::<f32>([n, width])?);
        let mut ranks = device.zeros::<i32>([n])?;
        logprobs::launch(logits, &wanted, &mut tokens, &mut values, &mut ranks)
            .dims(self.logprobs)
            .grid(n)
            .run(stream)?;
        let (tokens, values, ranks) = (tokens.try_as_slice()?, values.try_as_slice()?, ranks.try_as_slice()?);
        Ok(items
            .iter()
            .enumerate()
            .map(|(i, item)| {
                let at = |j: usize| Logprob::new(tokens[i * width + j] as u32, values[i * width + j]);
                let top = vocabulary.min(item.top as usize);
                TokenLogprobs { chosen: at(0), rank: ranks[i] as u32, top: (1..=top).map(at).collect() }
            })
            .collect())
    }
}
