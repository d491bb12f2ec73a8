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
const BLOCKS: usize = ROWS[ROWS.len() - 1].div_ceil(BLOCK);

/// Loads the model with each kind of activations, and runs steps of all kinds. What the device computes is not looked at.
pub fn rehearse(file: &Gguf, device: &Device) -> Result<(), Error> {
    for activations in [Activations::Q8, Activations::F32] {
        let mut decoder = Decoder::load(file, device, activations)?;
        let mut kv = KvCache::with_blocks(device, decoder.config(), BLOCKS)?;
        rehearse_steps(&mut decoder, &mut kv)?;
    }
    Ok(())
}

/// Runs steps of all kinds, as far as the model's context and the cache have room for them, through one layer of each kind. They
/// write to the cache's first blocks.
pub(crate) fn rehearse_steps(decoder: &mut Decoder, kv: &mut KvCache) -> Result<(), Error> {
    let blocks: Vec<u32> = (0..BLOCKS.min(kv.num_blocks()) as u32).collect();
    let most = decoder.config().context.min(blocks.len() * BLOCK);
    for rows in ROWS.map(|rows| rows.min(most)) {
        // A piece of a prompt, and as many answers.
        step(decoder, kv, &[(0, rows)], &blocks)?;
        decoder.head(&[rows - 1])?;
        step(decoder, kv, &Vec::from_iter((0..rows).map(|position| (position, 1))), &blocks)?;
        decoder.head(&Vec::from_iter(0..rows))?;
    }
    // One row may be aligned where several are not.
    choose(decoder, &[0])?;
    choose(decoder, &[0, most.min(2) - 1])
}

/// A step of chunks, each a position and a number of tokens.
fn step(decoder: &mut Decoder, kv: &mut KvCache, chunks: &[(usize, usize)], blocks: &[u32]) -> Result<(), Error> {
    let tokens = [0; ROWS[ROWS.len() - 1]];
    let chunk = |&(position, rows): &(usize, usize)| Chunk { tokens: &tokens[..rows], position, blocks };
    decoder.rehearse(kv, &Batch::new(&chunks.iter().map(chunk).collect::<Vec<_>>(), BLOCK)?)
}

/// The choice of tokens by rows of the last step.
fn choose(decoder: &mut Decoder, rows: &[usize]) -> Result<(), Error> {
    let all = Vec::from_iter(0..rows.len());
    decoder.head(rows)?;
    decoder.logprobs(&Vec::from_iter(all.iter().map(|&row| LogprobsOf { row, token: 0, top: 1 })))?;
    decoder.keep_raw(&all)?;
    let (edits, mask) = ([Edit::none(0)], [1]);
    decoder.apply(&Vec::from_iter(all.iter().map(|&row| RowRules { row, edits: &edits, mask: Some(&mask) })))?;
    decoder.sample(&vec![(SamplingParams::default().draw(0), 0); rows.len()])?;
    Ok(())
}
