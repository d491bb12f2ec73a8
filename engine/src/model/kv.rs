//! The paged KV cache: blocks of tokens that sequences take and give back.

use crate::Error;
use crate::model::Config;
use half::f16;
use tegula::{Device, Tensor, TensorError};

/// Tokens in a block.
pub const BLOCK: usize = 64;

/// Keys and values of every layer, in blocks. Keys lie `[block][kv_head][d][token]`, values `[block][kv_head][token][d]`.
pub struct KvCache {
    /// One pair a layer.
    pub layers: Vec<(Tensor<f16>, Tensor<f16>)>,
    free: Vec<u32>,
    blocks: usize,
}

impl KvCache {
    /// A cache for `tokens` tokens (rounded up to whole blocks), zeroed: a masked key must be finite.
    pub fn new(device: &Device, config: &Config, tokens: usize) -> Result<KvCache, Error> {
        if tokens > config.context {
            let made_for = config.context;
            return Err(Error::Usage(format!("a context of {tokens} tokens: the model was made for {made_for}")));
        }
        let blocks = tokens.div_ceil(BLOCK).max(1);
        let (h, d) = (config.kv_heads, config.head_dim);
        let layers = (0..config.layers)
            .map(|_| Ok((device.zeros([blocks, h, d, BLOCK])?, device.zeros([blocks, h, BLOCK, d])?)))
            .collect::<Result<_, TensorError>>()
            .map_err(|e| {
                Error::Usage(format!("the KV cache of a context of {tokens} tokens: {e}; use a shorter one"))
            })?;
        Ok(KvCache { layers, free: (0..blocks as u32).rev().collect(), blocks })
    }

    /// Blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Bytes of the whole cache.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|(k, v)| (k.len() + v.len()) * 2).sum()
    }

    /// Makes `table` large enough for `tokens` tokens; an error, with nothing taken, if too few blocks are free.
    pub fn grow(&mut self, table: &mut BlockTable, tokens: usize) -> Result<(), Error> {
        let more = tokens.div_ceil(BLOCK).saturating_sub(table.0.len());
        if more > self.free.len() {
            return Err(Error::Usage(format!(
                "the KV cache is full: {tokens} tokens need {more} more blocks of {BLOCK}, {} of {} are free",
                self.free.len(),
                self.blocks
            )));
        }
        table.0.extend(self.free.drain(self.free.len() - more..).rev());
        Ok(())
    }

    /// Gives a sequence's blocks back.
    pub fn release(&mut self, table: &mut BlockTable) {
        self.free.extend(table.0.drain(..).rev());
    }
}

/// The blocks of one sequence, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable(pub Vec<u32>);
