//! Byte-pair encoding: a piece of text starts as single bytes, and the adjacent pair with the best rank is merged,
//! leftmost first, until no known pair is left.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::alphabet::char_of;

/// A symbol: a token, or (numbers from the vocabulary's size on) a merge result that is no token.
type Symbol = u32;

/// The merge table of one vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    /// The symbol of each byte.
    bytes: [Symbol; 256],
    /// Left and right symbol → rank (lower merges first) and merged symbol.
    merges: HashMap<(Symbol, Symbol), (u32, Symbol)>,
    /// The tokens of the single bytes of each symbol that is no token.
    extra: Vec<Vec<u32>>,
    vocab_size: u32,
}

/// A line of the merge list that is not two symbols with a space between.
#[derive(Debug)]
pub(super) struct BadMerge {
    pub line: usize,
}

impl Bpe {
    /// Builds the table from the tokens' texts and the merge list, best first.
    pub(super) fn new(tokens: &HashMap<&str, u32>, vocab_size: u32, merges: &[&str]) -> Result<Bpe, BadMerge> {
        let mut extra = Vec::new();
        let mut extra_index = HashMap::new();
        let mut symbol = |text: &str| {
            if let Some(&token) = tokens.get(text) {
                return token;
            }
            *extra_index.entry(text.to_owned()).or_insert_with(|| {
                let token = |c: char| tokens.get(c.encode_utf8(&mut [0; 4]) as &str).copied();
                extra.push(text.chars().filter_map(token).collect());
                vocab_size + extra.len() as u32 - 1
            })
        };
        let bytes = std::array::from_fn(|b| symbol(char_of(b as u8).encode_utf8(&mut [0; 4])));
        let mut table = HashMap::with_capacity(merges.len());
        for (line, merge) in merges.iter().enumerate() {
            let (left, right) = merge
                .split_once(' ')
                .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
                .ok_or(BadMerge { line })?;
            let merged = symbol(&format!("{left}{right}"));
            table.entry((symbol(left), symbol(right))).or_insert((line as u32, merged));
        }
        Ok(Bpe { bytes, merges: table, extra, vocab_size })
    }

    /// Appends the tokens of one piece.
    pub(super) fn encode(&self, piece: &[u8], out: &mut Vec<u32>) {
        let mut symbols: Vec<Symbol> = piece.iter().map(|&byte| self.bytes[usize::from(byte)]).collect();
        self.merge(&mut symbols);
        for symbol in symbols {
            match symbol.checked_sub(self.vocab_size) {
                None => out.push(symbol),
                Some(extra) => out.extend(&self.extra[extra as usize]),
            }
        }
    }

    /// Merges in place. Symbols form a linked list over their first positions; the heap holds candidate pairs, those
    /// that a later merge has made stale are skipped when they come up.
    fn merge(&self, symbols: &mut Vec<Symbol>) {
        const GONE: Symbol = Symbol::MAX;
        let n = symbols.len();
        let mut next: Vec<usize> = (1..=n).collect();
        let mut previous: Vec<usize> = (0..n).map(|i| i.wrapping_sub(1)).collect();
        let candidate = |symbols: &[Symbol], left: usize, right: usize| {
            let pair = (symbols[left], symbols[right]);
            self.merges.get(&pair).map(|&(rank, merged)| Reverse((rank, left, right, pair, merged)))
        };
        let mut heap: BinaryHeap<_> = (1..n).filter_map(|right| candidate(symbols, right - 1, right)).collect();
        while let Some(Reverse((_, left, right, pair, merged))) = heap.pop() {
            if (symbols[left], symbols[right]) != pair || next[left] != right {
                continue;
            }
            symbols[left] = merged;
            symbols[right] = GONE;
            let after = next[right];
            next[left] = after;
            if after < n {
                previous[after] = left;
                heap.extend(candidate(symbols, left, after));
            }
            if previous[left] < n {
                heap.extend(candidate(symbols, previous[left], left));
            }
        }
        symbols.retain(|&symbol| symbol != GONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKENS: &[&str] = &["a", "b", "c", "ab", "bc", "aa", "aab", "abc"];
    /// `cc` and `cca` are merge results that are no tokens.
    const MERGES: &[&str] = &["a b", "b c", "a a", "c c", "aa b", "ab c", "cc a"];

    fn small() -> Bpe {
        let tokens = TOKENS.iter().enumerate().map(|(i, &text)| (text, i as u32)).collect();
        Bpe::new(&tokens, TOKENS.len() as u32, MERGES).unwrap()
    }

    fn encode(bpe: &Bpe, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        bpe.encode(text.as_bytes(), &mut out);
        out
    }

    #[test]
    fn best_rank_first_then_leftmost() {
        let bpe = small();
        assert_eq!(encode(&bpe, "abc"), [7]);
        assert_eq!(encode(&bpe, "aab"), [0, 3]);
        assert_eq!(encode(&bpe, "aaa"), [5, 0]);
        assert_eq!(encode(&bpe, "bcc"), [4, 2]);
    }

    #[test]
    fn a_merge_result_that_is_no_token_falls_back_to_its_bytes() {
        assert_eq!(encode(&small(), "cca"), [2, 2, 0]);
    }

    #[test]
    fn a_byte_without_a_token_is_dropped() {
        assert_eq!(encode(&small(), "axb"), [0, 1]);
    }

    #[test]
    fn bad_merge_lines_are_errors() {
        let tokens = HashMap::from([("a", 0)]);
        for bad in ["a", "", " a", "a ", "a a a"] {
            assert_eq!(Bpe::new(&tokens, 1, &["a a", bad]).unwrap_err().line, 1, "{bad:?}");
        }
    }

    proptest! {
        /// The heap does what the definition says: look for the best pair, merge it, start again.
        #[test]
        fn equals_the_definition(text in "[abc]{0,40}") {
            let mut parts: Vec<String> = text.chars().map(String::from).collect();
            loop {
                let rank = |w: &[String]| MERGES.iter().position(|m| *m == format!("{} {}", w[0], w[1]));
                let best = parts.windows(2).enumerate().filter_map(|(i, w)| Some((rank(w)?, i))).min();
                let Some((_, i)) = best else { break };
                let right = parts.remove(i + 1);
                parts[i].push_str(&right);
            }
            let token = |part: &str| TOKENS.iter().position(|t| *t == part).map(|i| i as u32);
            let expected: Vec<u32> = parts
                .iter()
                .flat_map(|part| token(part).map_or_else(|| part.chars().filter_map(|c| token(&c.to_string())).collect(), |t| vec![t]))
                .collect();
            prop_assert_eq!(encode(&small(), &text), expected);
        }
    }
}
