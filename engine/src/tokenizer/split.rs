//! Cutting text into the pieces that BPE merges within.
//!
//! Each vocabulary was trained with one cutting rule, named by the model file (`tokenizer.ggml.pre`) and usually given
//! as regular expressions; here each rule is a small scanner, so its cost is linear on any input. A rule is a sequence
//! of scanners: the first cuts the text, the next cuts each piece further. What a scanner does not match stays
//! together as a piece of its own. Letters, numbers and punctuation are Unicode 16's; a tool with older tables may cut
//! differently at characters added since.

use std::ops::Range;

use unicode_general_category::{GeneralCategory as Category, get_general_category};

/// A cutting rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Gpt2,
    SmolLm,
    Qwen2,
    /// Used when the model file names no rule.
    Default,
}

impl Rule {
    /// The rules by the names model files use.
    const NAMES: &[(&str, Rule)] =
        &[("gpt-2", Rule::Gpt2), ("smollm", Rule::SmolLm), ("qwen2", Rule::Qwen2), ("default", Rule::Default)];

    pub(super) fn from_name(name: &str) -> Option<Rule> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule)
    }

    pub(super) fn names() -> String {
        Self::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    fn scanners(self) -> &'static [Scanner] {
        match self {
            Rule::Gpt2 => &[gpt2],
            Rule::SmolLm => &[one_number, gpt2],
            Rule::Qwen2 => &[qwen2],
            Rule::Default => &[punctuation, gpt2, numbers, three_digits],
        }
    }

    /// The pieces of `text` in order; together they are the text.
    pub(super) fn split(self, text: &str) -> Vec<&str> {
        let chars: Vec<Char> = text.char_indices().map(|(at, c)| Char { at, c, class: Class::of(c) }).collect();
        let mut pieces: Vec<_> = std::iter::once(0..chars.len()).collect();
        for &scanner in self.scanners() {
            pieces = pieces.into_iter().flat_map(|piece| cut(&chars, piece, scanner)).collect();
        }
        let byte = |i: usize| chars.get(i).map_or(text.len(), |c| c.at);
        pieces.into_iter().map(|p| &text[byte(p.start)..byte(p.end)]).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Punctuation,
    Other,
}

impl Class {
    fn of(c: char) -> Class {
        use Category::*;
        if c.is_whitespace() {
            return Class::Space;
        }
        match get_general_category(c) {
            UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter => Class::Letter,
            DecimalNumber | LetterNumber | OtherNumber => Class::Number,
            ConnectorPunctuation | DashPunctuation | OpenPunctuation | ClosePunctuation | InitialPunctuation
            | FinalPunctuation | OtherPunctuation => Class::Punctuation,
            _ => Class::Other,
        }
    }

    /// Neither letter, number nor white space.
    fn is_symbol(self) -> bool {
        matches!(self, Class::Punctuation | Class::Other)
    }
}

#[derive(Debug, Clone, Copy)]
struct Char {
    /// Its first byte in the text.
    at: usize,
    c: char,
    class: Class,
}

/// How many characters a match at the start of `rest` takes; 0 if there is none.
type Scanner = fn(rest: &[Char]) -> usize;

fn cut(chars: &[Char], piece: Range<usize>, scanner: Scanner) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut unmatched = piece.start;
    let mut at = piece.start;
    while at < piece.end {
        let taken = scanner(&chars[at..piece.end]);
        if taken == 0 {
            at += 1;
            continue;
        }
        if unmatched < at {
            out.push(unmatched..at);
        }
        out.push(at..at + taken);
        at += taken;
        unmatched = at;
    }
    if unmatched < piece.end {
        out.push(unmatched..piece.end);
    }
    out
}

/// The length of the run of characters for which `test` holds.
fn run(rest: &[Char], test: impl Fn(&Char) -> bool) -> usize {
    rest.iter().position(|c| !test(c)).unwrap_or(rest.len())
}

/// `\p{N}`
fn one_number(rest: &[Char]) -> usize {
    usize::from(rest[0].class == Class::Number)
}

/// `\p{N}+`
fn numbers(rest: &[Char]) -> usize {
    run(rest, |c| c.class == Class::Number)
}

/// `[0-9][0-9][0-9]`
fn three_digits(rest: &[Char]) -> usize {
    if run(rest, |c| c.c.is_ascii_digit()) >= 3 { 3 } else { 0 }
}

/// `[\p{P}\$\+<=>\^\~\|]+`
fn punctuation(rest: &[Char]) -> usize {
    run(rest, |c| c.class == Class::Punctuation || matches!(c.c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|'))
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, with capitals too if `any_case`.
fn contraction(rest: &[Char], any_case: bool) -> usize {
    if rest[0].c != '\'' {
        return 0;
    }
    let letter = |i: usize| rest.get(i).map(|c| if any_case { c.c.to_ascii_lowercase() } else { c.c });
    match (letter(1), letter(2)) {
        (Some('s' | 't' | 'm' | 'd'), _) => 2,
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        _ => 0,
    }
}

/// `\s+(?!\S)|\s+`: a run of white space without its last character, which goes with what follows; all of it at the
/// end of the text or if it is a single character.
fn spaces(rest: &[Char]) -> usize {
    let n = run(rest, |c| c.class == Class::Space);
    if n > 1 && n < rest.len() { n - 1 } else { n }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
fn gpt2(rest: &[Char]) -> usize {
    let short = contraction(rest, false);
    if short > 0 {
        return short;
    }
    let space = usize::from(rest[0].c == ' ');
    let body = &rest[space..];
    let taken = match body.first().map(|c| c.class) {
        None | Some(Class::Space) => return spaces(rest),
        Some(class @ (Class::Letter | Class::Number)) => run(body, |c| c.class == class),
        Some(_) => run(body, |c| c.class.is_symbol()),
    };
    space + taken
}

/// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
fn qwen2(rest: &[Char]) -> usize {
    let short = contraction(rest, true);
    if short > 0 {
        return short;
    }
    let newline = |c: &Char| matches!(c.c, '\r' | '\n');
    let letters = |from: usize| run(&rest[from..], |c| c.class == Class::Letter);
    let first = rest[0];
    match first.class {
        Class::Letter => return letters(0),
        Class::Number => return 1,
        _ if !newline(&first) && letters(1) > 0 => return 1 + letters(1),
        _ => {}
    }
    let space = usize::from(first.c == ' ');
    let symbols = run(&rest[space..], |c| c.class.is_symbol());
    if symbols > 0 {
        let end = space + symbols;
        return end + run(&rest[end..], newline);
    }
    let blank = run(rest, |c| c.class == Class::Space);
    match rest[..blank].iter().rposition(newline) {
        Some(last) => last + 1,
        None => spaces(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gpt2_pieces() {
        let text = "I'll see  2 trees,\n\n  don't   ";
        assert_eq!(
            Rule::Gpt2.split(text),
            ["I", "'ll", " see", " ", " 2", " trees", ",", "\n\n ", " don", "'t", "   "]
        );
    }

    #[test]
    fn smollm_takes_digits_one_by_one() {
        assert_eq!(Rule::SmolLm.split("in 2024 x²"), ["in", " ", "2", "0", "2", "4", " x", "²"]);
    }

    #[test]
    fn qwen2_pieces() {
        let text = "It'S (ok)\r\n\n  x=12 !\n\t y ";
        assert_eq!(
            Rule::Qwen2.split(text),
            ["It", "'S", " (", "ok", ")\r\n\n", " ", " x", "=", "1", "2", " !\n", "\t", " y", " "]
        );
    }

    #[test]
    fn default_pieces() {
        assert_eq!(Rule::Default.split("a+=1234 'll"), ["a", "+=", "123", "4", " ", "'", "ll"]);
    }

    proptest! {
        #[test]
        fn pieces_are_the_text(text in "[a-z A-Z0-9\\s\\p{L}\\p{N}\\p{P}\\p{S}'\\r\\n]{0,60}") {
            for (_, rule) in Rule::NAMES {
                let pieces = rule.split(&text);
                prop_assert!(pieces.iter().all(|piece| !piece.is_empty()) || text.is_empty());
                prop_assert_eq!(pieces.concat(), text.as_str());
            }
        }
    }
}
