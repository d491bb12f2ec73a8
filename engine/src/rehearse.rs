//! Every kernel that running a model may launch, launched once: on a device that notes them
//! ([`tegula::bundle::Recorder`]), which is how a model's bundle is made.
//!
//! A step's kernels depend on its shape in three ways: products have tiles for up to 1, 2, 4 … 64 rows; attention has one
//! for single tokens and one for longer pieces; and a block table's rows are multiples of 16 bytes, or not.

use crate::Error;
use crate::gguf::Gguf;
use crate::model::{Activations, Batch, Chunk, Decoder, KvCache, batch::Logits, kv::BLOCK};
use crate::sampling::{Edit, LogprobsOf, RowRules, SamplingParams};
use tegula::Device;

/// Rows of a step with one chunk: products have no larger tiles than for 64.
const MOST_ROWS: usize = 65;
/// Widths of block tables, in blocks: up to where one is a multiple of 16 bytes, and beyond.
const MOST_BLOCKS: usize = 5;

/// Loads the model with each kind of activations, and runs steps of all kinds. What the device computes is not looked at.
pub fn rehearse(file: &Gguf, device: &Device) -> Result<(), Error> {
    for activations in [Activations::Q8, Activations::F32] {
        let mut decoder = Decoder::load(file, device, activations)?;
        let most = (MOST_BLOCKS * BLOCK).min(decoder.config().context);
        let mut kv = KvCache::new(device, decoder.config(), most)?;
        let blocks: Vec<u32> = (0..most.div_ceil(BLOCK) as u32).collect();
        for width in 1..=blocks.len() {
            let tokens = (width * BLOCK).min(most);
            for rows in 1..=MOST_ROWS.min(tokens) {
                for logits in [Logits::None, Logits::Last, Logits::All] {
                    step(&mut decoder, &mut kv, &[(tokens - rows, rows)], &blocks[..width], logits)?;
                }
            }
            // Several sequences: of one token each, and mixed.
            for chunks in [&[(0, 1), (1, 1), (2, 1)][..], &[(0, 3), (0, 1)]] {
                if chunks.iter().all(|(position, rows)| position + rows <= tokens) {
                    step(&mut decoder, &mut kv, chunks, &blocks[..width], Logits::Last)?;
                }
            }
        }
    }
    Ok(())
}

/// A step of chunks, each a position and a number of tokens; then a choice of tokens.
fn step(
    decoder: &mut Decoder,
    kv: &mut KvCache,
    chunks: &[(usize, usize)],
    blocks: &[u32],
    logits: Logits,
) -> Result<(), Error> {
    let tokens = [0; MOST_ROWS];
    let chunks: Vec<Chunk<'_>> = chunks
        .iter()
        .map(|(position, rows)| Chunk { tokens: &tokens[..*rows], position: *position, blocks, logits })
        .collect();
    let batch = Batch::new(&chunks, BLOCK);
    decoder.forward(kv, &batch)?;
    if !batch.logit_rows.is_empty() {
        let all: Vec<usize> = (0..batch.logit_rows.len()).collect();
        let (edits, mask) = ([Edit::none(0)], [1]);
        let rules: Vec<_> = all.iter().map(|&row| RowRules { row, edits: &edits, mask: Some(&mask) }).collect();
        let wanted: Vec<_> = all.iter().map(|&row| LogprobsOf { row, token: 0, top: 1 }).collect();
        decoder.logprobs(&wanted)?;
        decoder.apply(&rules)?;
        let draw = SamplingParams::default().draw(0);
        decoder.sample(&vec![(draw, 0); batch.logit_rows.len()])?;
    }
    Ok(())
}
