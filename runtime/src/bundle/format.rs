//! The bytes of a bundle.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `TGLBUNDL` |
//! | 8..12 | [`VERSION`] of this format |
//! | 12..16 | [`protocol::VERSION`]: how artifacts are called and described |
//! | 16..24 | length of the file |
//! | 24..32 | length of the index |
//! | 32..40 | checksum of the index |
//! | 40..48 | checksum of bytes 0 to 40 |
//! | 48.. | the index: postcard's encoding of [`Index`] |
//! | after it | the blobs, one after the other, to the end of the file |
//!
//! Integers are little-endian, checksums XXH3's 64 bits. Equal artifacts share a blob. A blob is compressed (zlib), or as it
//! is where that is no longer. Entries are sorted by key, target and kind, blobs by their first use, so equal contents are
//! equal bytes.

use super::{Kind, error::Fault};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tegula_ir::protocol::{self, Meta};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"TGLBUNDL";
/// Version of the format.
pub const VERSION: u32 = 1;
const HEADER: usize = 48;
/// Longest artifact in bytes: guards against damaged lengths.
const LONGEST: u32 = 1 << 28;
/// zlib's level: the artifacts are small, and packed once.
const EFFORT: u8 = 9;

/// What is in a bundle, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Which compiler made the artifacts.
    pub compiler: String,
    /// Sorted by [`Entry::order`].
    pub entries: Vec<Entry>,
    /// The blobs, in the order in which they lie.
    pub blobs: Vec<Blob>,
}

/// An artifact of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of the kernel's IR.
    pub key: u128,
    /// The kernel's name.
    pub kernel: String,
    /// Whether checks are compiled in.
    pub checked: bool,
    /// What it was compiled for.
    pub target: String,
    /// What it is.
    pub kind: Kind,
    /// What goes with it.
    pub meta: Meta,
    /// Number of the blob with its bytes.
    pub blob: u32,
}

impl Entry {
    /// What entries are sorted by, and found by.
    pub fn order(&self) -> (u128, &str, Kind) {
        (self.key, &self.target, self.kind)
    }
}

/// Some bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// Bytes in the file.
    pub packed: u32,
    /// Bytes of the artifact. As many as in the file: they are not compressed.
    pub bytes: u32,
    /// Of the bytes in the file.
    pub sum: u64,
}

/// Puts a bundle together. `entries` are sorted, without two of equal order; their blob numbers are set here. `artifacts`:
/// one for each.
pub fn compose(compiler: &str, mut entries: Vec<Entry>, artifacts: &[&[u8]]) -> Result<Vec<u8>, String> {
    let mut known: HashMap<&[u8], u32> = HashMap::new();
    let (mut blobs, mut data) = (vec![], vec![]);
    for (entry, artifact) in entries.iter_mut().zip(artifacts) {
        let next = blobs.len() as u32;
        entry.blob = *known.entry(artifact).or_insert(next);
        if entry.blob < next {
            continue;
        }
        let bytes = u32::try_from(artifact.len()).ok().filter(|n| *n <= LONGEST);
        let bytes = bytes.ok_or(format!("kernel `{}`: an artifact of {} bytes", entry.kernel, artifact.len()))?;
        let shorter = miniz_oxide::deflate::compress_to_vec_zlib(artifact, EFFORT);
        let packed = if shorter.len() < artifact.len() { &shorter } else { *artifact };
        blobs.push(Blob { packed: packed.len() as u32, bytes, sum: xxh3_64(packed) });
        data.extend_from_slice(packed);
    }
    let index = postcard::to_stdvec(&Index { compiler: compiler.into(), entries, blobs }).map_err(|e| e.to_string())?;
    let mut file = vec![];
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend(protocol::VERSION.to_le_bytes());
    file.extend(((HEADER + index.len() + data.len()) as u64).to_le_bytes());
    file.extend((index.len() as u64).to_le_bytes());
    file.extend(xxh3_64(&index).to_le_bytes());
    file.extend(xxh3_64(&file).to_le_bytes());
    file.extend(index);
    file.extend(data);
    Ok(file)
}

/// Checks all of a bundle.
pub fn parse(file: &[u8]) -> Result<Index, Fault> {
    let Some((header, body)) = file.split_first_chunk::<HEADER>() else {
        let what = format!("the file ends here; a bundle begins with a header of {HEADER} bytes");
        return Err(Fault::new(file.len(), what));
    };
    if header[..8] != MAGIC {
        return Err(Fault::new(0, format!("expected \"TGLBUNDL\", found {:02x?}: this is no bundle", &header[..8])));
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    for (at, name, known) in [(8, "format", VERSION), (12, "protocol", protocol::VERSION)] {
        if word(at) != known {
            let found = word(at);
            let what = format!(
                "{name} version {found}, and this program knows {known}: make the bundle with the `tegula` of the \
                 program's own version"
            );
            return Err(Fault::new(at, what));
        }
    }
    if xxh3_64(&header[..40]) != long(40) {
        return Err(Fault::new(40, "the header's checksum is wrong: the file is damaged"));
    }
    if long(16) != file.len() as u64 {
        let what =
            format!("expected a file of {} bytes, found {}: it was cut, or something was added", long(16), file.len());
        return Err(Fault::new(16, what));
    }
    let index_bytes = usize::try_from(long(24)).ok().and_then(|n| body.get(..n));
    let index_bytes =
        index_bytes.ok_or_else(|| Fault::new(24, format!("an index of {} bytes ends after the file", long(24))))?;
    if xxh3_64(index_bytes) != long(32) {
        return Err(Fault::new(HEADER, "the index's checksum is wrong: the file is damaged"));
    }
    let index: Index = match postcard::take_from_bytes(index_bytes) {
        Ok((index, [])) => index,
        Ok((_, rest)) => {
            let at = HEADER + index_bytes.len() - rest.len();
            return Err(Fault::new(at, format!("{} bytes follow the index's end", rest.len())));
        }
        Err(e) => return Err(Fault::new(HEADER, format!("the index cannot be read: {e}"))),
    };
    check(&index, file, HEADER + index_bytes.len())?;
    Ok(index)
}

/// That entries are sorted and name blobs that exist, and that the blobs, which begin at `start`, are what was written.
fn check(index: &Index, file: &[u8], start: usize) -> Result<(), Fault> {
    if let Some(pair) = index.entries.windows(2).find(|w| w[0].order() >= w[1].order()) {
        return Err(Fault::new(HEADER, format!("the index is not sorted at kernel `{}`", pair[1].kernel)));
    }
    if let Some(e) = index.entries.iter().find(|e| e.blob as usize >= index.blobs.len()) {
        let (n, kernel) = (index.blobs.len(), &e.kernel);
        return Err(Fault::new(HEADER, format!("kernel `{kernel}` names blob {} of {n}", e.blob)));
    }
    let mut at = start;
    for (i, blob) in index.blobs.iter().enumerate() {
        let bytes = at.checked_add(blob.packed as usize).and_then(|end| file.get(at..end));
        let bytes =
            bytes.ok_or_else(|| Fault::new(at, format!("blob {i} of {} bytes ends after the file", blob.packed)))?;
        if xxh3_64(bytes) != blob.sum {
            return Err(Fault::new(at, format!("the checksum of blob {i} is wrong: the file is damaged")));
        }
        if blob.bytes > LONGEST || blob.bytes < blob.packed {
            return Err(Fault::new(at, format!("blob {i} cannot hold {} bytes in {}", blob.bytes, blob.packed)));
        }
        at += bytes.len();
    }
    if at != file.len() {
        return Err(Fault::new(at, format!("{} bytes follow the last blob", file.len() - at)));
    }
    Ok(())
}

/// The artifact in a blob of a bundle whose index this is.
pub fn unpack(file: &[u8], index: &Index, blob: u32) -> Result<Vec<u8>, Fault> {
    let after: usize = index.blobs[blob as usize..].iter().map(|b| b.packed as usize).sum();
    let Blob { packed, bytes, .. } = index.blobs[blob as usize];
    let at = file.len() - after;
    let stored = &file[at..at + packed as usize];
    if packed == bytes {
        return Ok(stored.to_vec());
    }
    match miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(stored, bytes as usize) {
        Ok(artifact) if artifact.len() == bytes as usize => Ok(artifact),
        Ok(artifact) => Err(Fault::new(at, format!("blob {blob} unpacks to {} bytes, not {bytes}", artifact.len()))),
        Err(e) => Err(Fault::new(at, format!("blob {blob} does not unpack to {bytes} bytes: {}", e.status as i8))),
    }
}
