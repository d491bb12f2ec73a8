//! Every kernel that running a model may launch, launched once: on a device that notes them
//! ([`tegula::bundle::Recorder`]), which is how a model's bundle is made; or on the device that will serve, so that no
//! request waits for a kernel to be made or loaded.
//!
//! A step's kernels depend on its shape in two ways: products have tiles for up to 1, 2, 4 … 64 rows; attention has one for
//! single tokens and one for longer pieces.

use crate::Error;
use crate::gguf::Gguf;
use crate::model::{Activations, Batch, Chunk, Decoder, KvCache, kv::BLOCK};
use crate::sampling::{Edit, LogprobsOf, RowRules, SamplingParams};
use tegula::Device;

/// Rows of a step: products have no larger tiles than for 64.
const ROWS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 65];
/// Blocks that these steps need.
pub const BLOCKS: usize = ROWS[ROWS.len() - 1].div_ceil(BLOCK);

/// Loads the model with each kind of activations, and runs steps of all kinds. What the device computes is not looked at.
pub fn rehearse(file: &Gguf, device: &Device) -> Result<(), Error> {
    for activations in [Activations::Q8, Activations::F32] {
        let mut decoder = Decoder::load(file, device, activations)?;
        let mut kv = KvCache::with_blocks(device, decoder.config(), BLOCKS)?;
        rehearse_steps(&mut decoder, &mut kv)?;
    }
    Ok(())
}

/// Runs steps of all kinds, as far as the model's context has room for them. They write to the first [`BLOCKS`] blocks of the
/// cache, which must have so many.
pub fn rehearse_steps(decoder: &mut Decoder, kv: &mut KvCache) -> Result<(), Error> {
    let context = decoder.config().context;
    let blocks: Vec<u32> = (0..BLOCKS as u32).collect();
    for rows in ROWS {
        // One piece of a prompt, and as many answers.
        if rows <= context {
            step(decoder, kv, &[(0, rows)], &blocks)?;
        }
        let answers: Vec<(usize, usize)> = (0..rows).map(|i| (i % context.min(BLOCKS * BLOCK), 1)).collect();
        step(decoder, kv, &answers, &blocks)?;
    }
    Ok(())
}

/// A step of chunks, each a position and a number of tokens; then logits of all rows, and a choice of tokens.
fn step(decoder: &mut Decoder, kv: &mut KvCache, chunks: &[(usize, usize)], blocks: &[u32]) -> Result<(), Error> {
    let tokens = [0; ROWS[ROWS.len() - 1]];
    let chunks: Vec<Chunk<'_>> =
        chunks.iter().map(|&(position, rows)| Chunk { tokens: &tokens[..rows], position, blocks }).collect();
    let batch = Batch::new(&chunks, BLOCK)?;
    decoder.forward(kv, &batch)?;
    let all: Vec<usize> = (0..batch.rows()).collect();
    decoder.head(&all)?;
    let (edits, mask) = ([Edit::none(0)], [1]);
    let rules: Vec<_> = all.iter().map(|&row| RowRules { row, edits: &edits, mask: Some(&mask) }).collect();
    let wanted: Vec<_> = all.iter().map(|&row| LogprobsOf { row, token: 0, top: 1 }).collect();
    decoder.keep_raw(&all)?;
    decoder.apply(&rules)?;
    decoder.logprobs(&wanted)?;
    decoder.sample(&vec![(SamplingParams::default().draw(0), 0); all.len()])?;
    Ok(())
}
