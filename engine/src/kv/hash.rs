//! Names of block contents: a chain of SHA-256 hashes, from what the whole sequence runs under to its last token.
//!
//! Two blocks of one name have one content, so a collision would hand one user's keys and values to another: the hash
//! is a cryptographic one, and every field that goes into it is preceded by its kind and its length, so that no two
//! different inputs are the same bytes.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Kinds of what is hashed. Never renumber: hashes may outlive the process.
#[repr(u8)]
#[derive(Clone, Copy)]
enum Kind {
    Root = 0,
    Block = 1,
    Model = 2,
    Salt = 3,
    Adapter = 4,
}

/// What a sequence's keys and values depend on besides its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheKey {
    /// Identity of the model's weights and numerics.
    pub model: String,
    /// The adapter on top of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    /// Keeps users apart who must not learn, from the time an answer takes, what others asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
}

/// A set of adapter weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adapter {
    /// The name it is served under.
    pub name: String,
    /// Which loading under that name: new weights under an old name are another adapter.
    pub generation: u64,
}

impl CacheKey {
    /// The key of a model without adapter and salt.
    pub fn model(model: &str) -> CacheKey {
        CacheKey { model: model.to_owned(), ..CacheKey::default() }
    }

    /// The hash that chains under this key begin with.
    pub fn root(&self) -> BlockHash {
        let mut hash = Sha256::new();
        hash.update([Kind::Root as u8]);
        field(&mut hash, Kind::Model, self.model.as_bytes());
        if let Some(adapter) = &self.adapter {
            field(&mut hash, Kind::Adapter, adapter.name.as_bytes());
            hash.update(adapter.generation.to_le_bytes());
        }
        if let Some(salt) = &self.cache_salt {
            field(&mut hash, Kind::Salt, salt.as_bytes());
        }
        BlockHash(hash.finalize().into())
    }
}

fn field(hash: &mut Sha256, kind: Kind, bytes: &[u8]) {
    hash.update([kind as u8]);
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// The name of a block's content. As text: 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BlockHash([u8; 32]);

impl BlockHash {
    /// The name of the block that holds `tokens` and follows this one.
    pub fn chain(&self, tokens: &[u32]) -> BlockHash {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut hash = Sha256::new();
        hash.update([Kind::Block as u8]);
        hash.update(self.0);
        hash.update(bytes);
        BlockHash(hash.finalize().into())
    }
}

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The first digits: enough to tell blocks apart in a log.
impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

impl From<BlockHash> for String {
    fn from(hash: BlockHash) -> String {
        hash.to_string()
    }
}

/// A text that is no block hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block hash is 64 hexadecimal digits")]
pub struct NotAHash;

impl TryFrom<String> for BlockHash {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<BlockHash, NotAHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NotAHash);
        }
        let digit = |byte: u8| (byte as char).to_digit(16).ok_or(NotAHash);
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(BlockHash(hash))
    }
}
