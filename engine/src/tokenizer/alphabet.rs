//! The alphabet of byte-level BPE: every byte is written as one printable character, so that a vocabulary of text can
//! hold tokens of arbitrary bytes. Printable Latin-1 bytes stand for themselves; the 68 others, in ascending order,
//! are the characters from U+0100.

/// Whether a byte is written as itself.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes that are written as U+0100, U+0101 and so on.
const SHIFTED: [u8; 68] = {
    let mut table = [0; 68];
    let (mut byte, mut n) = (0, 0);
    while n < 68 {
        if !is_plain(byte) {
            table[n] = byte;
            n += 1;
        }
        byte = byte.wrapping_add(1);
    }
    table
};

/// The byte a character stands for; `None` if it is not in the alphabet.
fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0..=0xff => Some(code as u8).filter(|&byte| is_plain(byte)),
        code => SHIFTED.get(code as usize - 0x100).copied(),
    }
}

/// The bytes a token's text stands for; a text with characters outside the alphabet stands for itself.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| text.as_bytes().to_vec())
}

/// The character that stands for a byte.
pub(super) fn char_of(byte: u8) -> char {
    match SHIFTED.iter().position(|&shifted| shifted == byte) {
        Some(n) => char::from_u32(0x100 + n as u32).unwrap_or('\u{fffd}'),
        None => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        assert_eq!(char_of(0xad), 'Ń');
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(bytes_of("Ġthe"), b" the");
        assert_eq!(bytes_of("a b"), b"a b");
    }
}
