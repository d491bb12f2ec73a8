//! One conversation on a model: a sequence whose tokens are computed as they come.

use crate::Error;
use crate::model::{Batch, Chunk, Decoder, KvCache, kv::BLOCK};
use crate::sampling::Draw;

/// Most tokens of a prompt that are computed in one step.
pub const CHUNK: usize = 512;

/// A sequence on a decoder.
pub struct Session<'m> {
    decoder: &'m mut Decoder,
    kv: KvCache,
    blocks: Vec<u32>,
    /// Tokens that are in the cache.
    computed: usize,
    /// Most tokens of a prompt in one step.
    pub chunk: usize,
}

impl<'m> Session<'m> {
    /// An empty sequence of at most `tokens` tokens.
    pub fn new(decoder: &'m mut Decoder, tokens: usize) -> Result<Session<'m>, Error> {
        let kv = KvCache::new(decoder.device(), decoder.config(), tokens)?;
        let blocks = kv.table();
        Ok(Session { decoder, kv, blocks, computed: 0, chunk: CHUNK })
    }

    /// Tokens computed so far.
    pub fn len(&self) -> usize {
        self.computed
    }

    /// Whether nothing was computed yet.
    pub fn is_empty(&self) -> bool {
        self.computed == 0
    }

    /// Computes `tokens`, in chunks, and leaves the logits of the last with the decoder. `each` is told how many tokens
    /// each step computed.
    pub fn feed(&mut self, tokens: &[u32], mut each: impl FnMut(usize)) -> Result<(), Error> {
        let (end, most) = (self.computed + tokens.len(), self.blocks.len() * BLOCK);
        if end > most {
            return Err(Error::Usage(format!("the KV cache is full: {end} tokens, it has room for {most}")));
        }
        let mut last = 0;
        for part in tokens.chunks(self.chunk.max(1)) {
            let chunk = Chunk { tokens: part, position: self.computed, blocks: &self.blocks };
            self.decoder.forward(&mut self.kv, &Batch::new(&[chunk], BLOCK)?)?;
            self.computed += part.len();
            last = part.len() - 1;
            each(part.len());
        }
        if !tokens.is_empty() {
            self.decoder.head(&[last])?;
        }
        Ok(())
    }

    /// Chooses the token that follows what was fed.
    pub fn sample(&mut self, draw: Draw) -> Result<u32, Error> {
        let position = self.computed;
        let token = self.decoder.sample(&[(draw, position as u32)])?;
        token.first().copied().flatten().ok_or(Error::NoLogits { position })
    }

    /// The logits after the last token fed.
    pub fn logits(&mut self) -> Result<Vec<f32>, Error> {
        self.decoder.logits()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.computed = 0;
    }
}
