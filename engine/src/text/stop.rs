//! Stop strings in a text that comes in pieces.
//!
//! Of all occurrences of all stop strings the one that *ends first* counts, and of those that end together the one that
//! begins first: so a text is cut at the same place however it comes in pieces. Held back is only what could still become
//! an occurrence: the longest end of the text that is a beginning, and not the whole, of a stop string.

/// A stop string that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which of the stop strings.
    pub stop: usize,
    /// Bytes of the text, from its beginning, before it.
    pub start: usize,
    /// And up to its end.
    pub end: usize,
}

/// Looks for stop strings. The text is that of all pieces.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<Pattern>,
    /// Bytes that came.
    len: usize,
}

/// Knuth, Morris and Pratt's search for one string.
#[derive(Clone, Debug)]
struct Pattern {
    /// Which of the stop strings.
    which: usize,
    /// At least one.
    bytes: Box<[u8]>,
    /// For each length of a beginning, the longest shorter beginning that it ends with.
    fallback: Box<[usize]>,
    /// Length of the longest beginning that the text ends with.
    matched: usize,
}

impl Pattern {
    fn new(which: usize, text: &str) -> Pattern {
        let bytes = text.as_bytes();
        let mut fallback = vec![0; bytes.len() + 1];
        for i in 1..bytes.len() {
            let mut k = fallback[i];
            while k > 0 && bytes[k] != bytes[i] {
                k = fallback[k];
            }
            fallback[i + 1] = if bytes[k] == bytes[i] { k + 1 } else { 0 };
        }
        Pattern { which, bytes: bytes.into(), fallback: fallback.into(), matched: 0 }
    }

    /// Whether an occurrence ends with this byte.
    fn push(&mut self, byte: u8) -> bool {
        let mut k = self.matched;
        if k == self.bytes.len() {
            k = self.fallback[k];
        }
        while k > 0 && self.bytes[k] != byte {
            k = self.fallback[k];
        }
        self.matched = if self.bytes[k] == byte { k + 1 } else { 0 };
        self.matched == self.bytes.len()
    }

    /// Bytes that may be the beginning of an occurrence.
    fn held(&self) -> usize {
        if self.matched == self.bytes.len() { self.fallback[self.matched] } else { self.matched }
    }
}

impl StopStrings {
    /// Looks for these. An empty one would be everywhere; it is left out.
    pub fn new(stops: &[String]) -> StopStrings {
        let stops = stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        StopStrings { stops: stops.map(|(which, stop)| Pattern::new(which, stop)).collect(), len: 0 }
    }

    /// Takes in the next piece. With `counts`, the first occurrence that ends in it is the end; nothing after it was looked
    /// at, and nothing more may come. Without, occurrences that end in it are none, and what comes later goes on.
    pub fn push(&mut self, text: &str, counts: bool) -> Option<Found> {
        for byte in text.bytes() {
            self.len += 1;
            let mut longest: Option<(usize, usize)> = None;
            for pattern in &mut self.stops {
                // Of equal ones the first.
                if pattern.push(byte) && longest.is_none_or(|(_, len)| len < pattern.bytes.len()) {
                    longest = Some((pattern.which, pattern.bytes.len()));
                }
            }
            if let Some((stop, len)) = longest.filter(|_| counts) {
                return Some(Found { stop, start: self.len - len, end: self.len });
            }
        }
        None
    }

    /// Bytes at the end of the text that may be the beginning of an occurrence.
    pub fn held(&self) -> usize {
        self.stops.iter().map(Pattern::held).max().unwrap_or(0)
    }
}
