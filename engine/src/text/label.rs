//! How a single token is shown.

use std::fmt::Write;

/// A token's bytes as a text of its own: its text, or, where its bytes are no whole characters, `bytes:\xe4\xbd` as
/// OpenAI's interfaces have it. Different bytes have different labels, save for tokens whose text looks like that.
pub fn token_label(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |mut label, byte| {
            // Writing to a string cannot fail.
            let _ = write!(label, "\\x{byte:02x}");
            label
        }),
    }
}
