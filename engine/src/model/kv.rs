//! The memory of the paged KV cache, in blocks of tokens. Which sequence has which is [`crate::kv`]'s.

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
    blocks: usize,
}

impl KvCache {
    /// A cache for one sequence of `tokens` tokens, whose block table is 0, 1, 2 … ([`KvCache::table`]).
    pub fn new(device: &Device, config: &Config, tokens: usize) -> Result<KvCache, Error> {
        if tokens > config.context {
            let made_for = config.context;
            return Err(Error::Usage(format!("a context of {tokens} tokens: the model was made for {made_for}")));
        }
        let blocks = tokens.div_ceil(BLOCK).max(1);
        KvCache::with_blocks(device, config, blocks)
            .map_err(|e| Error::Usage(format!("the KV cache of a context of {tokens} tokens: {e}; use a shorter one")))
    }

    /// A cache of so many blocks, for any number of sequences: [`KvCache::bytes_per_block`] says what one takes.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn with_blocks(device: &Device, config: &Config, blocks: usize) -> Result<KvCache, TensorError> {
        let (h, d) = (config.kv_heads, config.head_dim);
        let layers = (0..config.layers)
            .map(|_| Ok((device.zeros([blocks, h, d, BLOCK])?, device.zeros([blocks, h, BLOCK, d])?)))
            .collect::<Result<_, TensorError>>()?;
        Ok(KvCache { layers, blocks })
    }

    /// Writes the first block of each layer. On a host its memory is only had once it is written, in pages of millions of
    /// bytes: so the first request need not wait for those of its first blocks.
    ///
    /// # Errors
    /// If the device fails.
    pub fn touch(&mut self) -> Result<(), TensorError> {
        let first = self.blocks.min(1);
        for tensor in self.layers.iter_mut().flat_map(|(keys, values)| [keys, values]) {
            let mut block = tensor.view_mut()?.slice(0, 0..first)?;
            block.copy_from_slice(&vec![f16::ZERO; block.len()])?;
        }
        Ok(())
    }

    /// Bytes of a block's keys and values in all layers.
    pub fn bytes_per_block(config: &Config) -> usize {
        config.layers * 2 * config.kv_width() * BLOCK * size_of::<f16>()
    }

    /// Blocks of the cache.
    pub fn num_blocks(&self) -> usize {
        self.blocks
    }

    /// The block table of a sequence that has all blocks.
    pub fn table(&self) -> Vec<u32> {
        (0..self.blocks as u32).collect()
    }
}
