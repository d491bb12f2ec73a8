//! PTX text to tokens.

use logos::Logos;

/// A token. Text is borrowed from the source.
#[derive(Logos, Clone, Copy, Debug, PartialEq)]
#[logos(skip r"[ \t\r\n\f]+", skip(r"//[^\n]*", allow_greedy = true))]
#[logos(skip r"/\*([^*]|\*+[^*/])*\*+/")]
pub enum Token<'t> {
    /// An opcode, a register, a label, a symbol.
    #[regex(r"[A-Za-z_$][A-Za-z0-9_$]*|%[A-Za-z0-9_$]+", |l| l.slice())]
    Word(&'t str),
    /// `.b32`, `.shared::cta`; without the dot.
    #[regex(r"\.[A-Za-z0-9_]+(::[A-Za-z0-9_]+)*", |l| &l.slice()[1..])]
    Dot(&'t str),
    /// An integer in any base, with an optional `U`.
    #[regex(r"0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+U?", |l| integer(l.slice()))]
    Int(u64),
    /// `0f3F800000`: the bits of an f32.
    #[regex(r"0[fF][0-9a-fA-F]{8}", |l| u32::from_str_radix(&l.slice()[2..], 16).ok(), priority = 20)]
    F32(u32),
    /// `0d3FF0000000000000` or a decimal number with a point: the bits of an f64.
    #[regex(r"0[dD][0-9a-fA-F]{16}", |l| u64::from_str_radix(&l.slice()[2..], 16).ok(), priority = 20)]
    #[regex(r"[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?", |l| l.slice().parse::<f64>().ok().map(f64::to_bits))]
    F64(u64),
    /// A string, without its quotes.
    #[regex(r#""[^"\n]*""#, |l| &l.slice()[1..l.slice().len() - 1])]
    Text(&'t str),
    /// One of `{ } ( ) [ ] , ; : @ ! + - * / | & ^ ~ = < > ? %`.
    #[regex(r"[{}()\[\],;:@!+\-*/|&^~=<>?%]", |l| l.slice().as_bytes()[0] as char)]
    Punct(char),
}

fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if let Some(binary) = lower.strip_prefix("0b") {
        u64::from_str_radix(binary, 2).ok()
    } else if lower.len() > 1 && lower.starts_with('0') {
        u64::from_str_radix(&lower, 8).ok()
    } else {
        lower.parse().ok()
    }
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Spanned<'t> {
    /// What it is.
    pub token: Token<'t>,
    /// Line, from 1.
    pub line: u32,
    /// Byte range in the text.
    pub start: usize,
    /// End of the byte range.
    pub end: usize,
}

/// Every token of `text`, or the line and the piece that is none.
pub fn lex(text: &str) -> Result<Vec<Spanned<'_>>, (u32, String)> {
    let mut out = Vec::with_capacity(text.len() / 4);
    let (mut line, mut counted) = (1u32, 0usize);
    for (token, span) in Token::lexer(text).spanned() {
        line += text.as_bytes()[counted..span.start].iter().filter(|b| **b == b'\n').count() as u32;
        counted = span.start;
        match token {
            Ok(token) => out.push(Spanned { token, line, start: span.start, end: span.end }),
            Err(()) => return Err((line, text[span].chars().take(40).collect())),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_base() {
        let tokens: Vec<_> = lex("10 0x1F 0b101 017 0f3F800000 0d3FF0000000000000 1.5 5U /* a * b */ 7 // 8").unwrap();
        let tokens: Vec<_> = tokens.iter().map(|t| t.token).collect();
        let half = 1.5f64.to_bits();
        let want = [
            Token::Int(10),
            Token::Int(31),
            Token::Int(5),
            Token::Int(15),
            Token::F32(0x3f80_0000),
            Token::F64(1f64.to_bits()),
            Token::F64(half),
            Token::Int(5),
            Token::Int(7),
        ];
        assert_eq!(tokens, want);
    }

    #[test]
    fn words_dots_and_lines() {
        let tokens = lex("ld.global.L1::evict_last.b32\n{%r1}, [%rd2+4];\n\"a\"").unwrap();
        let lines: Vec<_> = tokens.iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!(tokens[2].token, Token::Dot("L1::evict_last"));
        assert_eq!(tokens[5].token, Token::Word("%r1"));
        assert_eq!(tokens[14].token, Token::Text("a"));
    }

    #[test]
    fn a_strange_character_is_named() {
        assert_eq!(lex("add\n \u{20ac}").unwrap_err(), (2, "\u{20ac}".to_string()));
    }
}
