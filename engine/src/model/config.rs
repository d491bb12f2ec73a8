//! The numbers that describe a decoder.

use tegula_kernels::rope::Pairs;

/// A decoder's dimensions and constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Architecture, as GGUF names it.
    pub architecture: String,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the feed-forward network.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Longest sequence the model was made for.
    pub context: usize,
    /// Base of the rotary angles: pair i of d/2 turns by `position · base^(−2i/d)`.
    pub rope_base: f64,
    /// Which coordinates turn together.
    pub rope_pairs: Pairs,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f32,
}

impl Config {
    /// Query heads that share a KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
    /// Width of all query heads.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }
    /// Width of all key heads (and of all value heads).
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}
