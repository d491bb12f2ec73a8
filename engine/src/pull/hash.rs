//! SHA-256 as something to write into.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

/// Hashes everything written to it.
#[derive(Debug, Default)]
pub(super) struct Hasher(Sha256);

impl Hasher {
    /// The hash so far, as 64 lower-case hexadecimal digits.
    pub(super) fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hash() {
        let mut hash = Hasher::default();
        hash.write_all(b"a").unwrap();
        hash.write_all(b"bc").unwrap();
        assert_eq!(hash.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
