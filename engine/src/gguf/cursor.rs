//! A bounded reader over the bytes of a file: every read is checked against what is left, so a damaged count can never
//! lead to a read outside the file or to an allocation the file does not justify.

use super::error::Problem;

/// Reads little-endian values one after another.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Cursor { bytes, at: at.min(bytes.len()) }
    }

    /// The offset of the next byte to be read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], Problem> {
        let truncated = Problem::Truncated { at: self.at as u64, needs: n, has: self.left() };
        if n > self.left() {
            return Err(truncated);
        }
        // `n` is at most the length of a slice, so it fits in usize.
        let start = self.at;
        self.at += n as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub(super) fn magic(&mut self) -> Result<[u8; 4], Problem> {
        self.array()
    }

    pub(super) fn u32(&mut self) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string: its length in bytes as u64, then UTF-8.
    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a str, Problem> {
        let len = self.u64()?;
        std::str::from_utf8(self.take(len)?).map_err(|_| Problem::NotUtf8 { what })
    }

    /// Checks a declared count against the room left, given the fewest bytes one item can take.
    pub(super) fn check_count(&self, what: &'static str, found: u64, fewest_bytes: u64) -> Result<(), Problem> {
        let most = self.left() / fewest_bytes;
        if found > most { Err(Problem::Count { what, found, most }) } else { Ok(()) }
    }
}
