//! Text from tokens that arrive one by one: a token may end in the middle of a character, so bytes are held back until
//! the character is complete.

/// Collects bytes and gives out text as soon as it is complete.
///
/// Bytes that can never become valid UTF-8 come out as U+FFFD, exactly as [`String::from_utf8_lossy`] would have it on
/// the whole.
#[derive(Debug, Default, Clone)]
pub struct Utf8Stream {
    /// At most 3 bytes: the start of a character.
    held: Vec<u8>,
}

impl Utf8Stream {
    /// A stream with nothing held back.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes; returns the text that is complete now, perhaps none.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest: &[u8] = &self.held;
        for chunk in self.held.utf8_chunks() {
            text.push_str(chunk.valid());
            rest = &rest[chunk.valid().len()..];
            // The start of a character at the very end may still be completed.
            let unfinished = rest.len() == chunk.invalid().len()
                && std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            if chunk.invalid().is_empty() || unfinished {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[chunk.invalid().len()..];
        }
        self.held = rest.to_vec();
        text
    }

    /// Ends the stream: what is held back is no character and comes out as U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_character_in_two_tokens_comes_out_whole() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(b"a\xf0\x9f"), "a");
        assert_eq!(stream.push(b"\x98"), "");
        assert_eq!(stream.push(b"\x80b"), "😀b");
        assert_eq!(stream.push(b"\xe4"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    /// Bytes of real characters, so that most sequences are nearly valid.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![any::<u8>(), prop::sample::select("é世😀a\u{7ff}\u{ffff}".as_bytes().to_vec())]
    }

    proptest! {
        #[test]
        fn pieces_give_the_same_text_as_the_whole(parts in prop::collection::vec(prop::collection::vec(byte(), 0..5), 0..12)) {
            let mut stream = Utf8Stream::new();
            let mut text: String = parts.iter().map(|part| stream.push(part)).collect();
            text += &stream.finish();
            let whole = parts.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }

        #[test]
        fn valid_text_is_never_held_back_after_a_whole_character(text in "\\PC{0,20}") {
            let mut stream = Utf8Stream::new();
            prop_assert_eq!(stream.push(text.as_bytes()), text);
        }
    }
}
