//! Parsing the text form (see [`mod@crate::print`]), with errors that name the line.

use crate::{
    attr::{Attr, Attrs, Key, intern_sym},
    elem::{Elem, Quant},
    kernel::{Kernel, MOST_NESTED, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
    scalar::Scalar,
    types::{PackedType, QTileType, TileType, Type, ViewFacts, ViewType},
};
use logos::Logos;
use std::collections::HashMap;

/// A fault in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected, what was found.
    pub message: String,
}

#[derive(Logos, Clone, Debug, PartialEq)]
#[logos(skip r"[ \t\r\n]+", skip(r"//[^\n]*", allow_greedy = true))]
enum Token {
    #[regex(r"%[0-9]+", |l| l.slice()[1..].parse().ok())]
    Value(u32),
    #[regex(r"@[A-Za-z_][A-Za-z0-9_:.<>,]*", |l| l.slice()[1..].to_string())]
    Symbol(String),
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*", |l| l.slice().to_string())]
    Word(String),
    #[regex(r"-?0x[0-9a-f]+|-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", |l| l.slice().to_string())]
    Number(String),
    #[regex(r#""([^"\\]|\\.)*""#, |l| unescape(l.slice()))]
    Text(String),
    #[token("(")]
    #[token(")")]
    #[token("{")]
    #[token("}")]
    #[token("<")]
    #[token(">")]
    #[token("[")]
    #[token("]")]
    #[token(",")]
    #[token(":")]
    #[token("=")]
    #[token("@")]
    Punct,
}

/// Undoes Rust's `{:?}` of a string.
fn unescape(quoted: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = quoted[1..quoted.len() - 1].chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '0' => out.push('\0'),
            'u' => {
                let hex: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                out.push(char::from_u32(u32::from_str_radix(&hex, 16).ok()?)?);
            }
            c => out.push(c),
        }
    }
    Some(out)
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, std::ops::Range<usize>)>,
    at: usize,
    kernel: Kernel,
    names: HashMap<u32, Value>,
    files: HashMap<String, std::sync::Arc<str>>,
    /// What to call the text in the locations of ops that have none.
    origin: Option<std::sync::Arc<str>>,
    /// Regions around the token at hand, the kernel's body not counted.
    depth: usize,
}

type R<T = ()> = Result<T, ParseError>;

impl Kernel {
    /// Parses one kernel. The result is not verified: call [`Kernel::verify`].
    pub fn parse(text: &str) -> R<Kernel> {
        Kernel::parse_with(text, None)
    }
    /// As [`Kernel::parse`], but ops without a location get their place in the text, which is called `file`.
    pub fn parse_located(text: &str, file: &str) -> R<Kernel> {
        Kernel::parse_with(text, Some(file.into()))
    }

    fn parse_with(text: &str, origin: Option<std::sync::Arc<str>>) -> R<Kernel> {
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let mut tokens = vec![];
        for (token, span) in Token::lexer(text).spanned() {
            match token {
                Ok(t) => tokens.push((t, span)),
                Err(()) => {
                    let message = format!("unexpected text `{}`", text[span.clone()].escape_debug());
                    return Err(ParseError { line: line_of(span.start), message });
                }
            }
        }
        let mut p = Parser {
            text,
            tokens,
            at: 0,
            kernel: Kernel::new(""),
            names: HashMap::new(),
            files: HashMap::new(),
            origin,
            depth: 0,
        };
        p.kernel()?;
        if p.at < p.tokens.len() {
            return p.fail("the end of the text");
        }
        Ok(p.kernel)
    }
}

impl Parser<'_> {
    fn fail<T>(&self, expected: &str) -> R<T> {
        let (at, found) = match self.tokens.get(self.at) {
            Some((_, span)) => (span.start, format!("`{}`", &self.text[span.clone()])),
            None => (self.text.len(), "the end".into()),
        };
        Err(ParseError {
            line: self.text[..at].matches('\n').count() + 1,
            message: format!("expected {expected}, found {found}"),
        })
    }
    fn error<T>(&self, message: String) -> R<T> {
        let at = self.tokens.get(self.at.saturating_sub(1)).map_or(self.text.len(), |t| t.1.start);
        Err(ParseError { line: self.text[..at].matches('\n').count() + 1, message })
    }
    fn slice(&self) -> &str {
        self.tokens.get(self.at).map_or("", |t| &self.text[t.1.clone()])
    }
    fn is(&self, s: &str) -> bool {
        self.slice() == s
    }
    fn eat(&mut self, s: &str) -> bool {
        let yes = self.is(s);
        self.at += yes as usize;
        yes
    }
    fn expect(&mut self, s: &str) -> R {
        if self.eat(s) { Ok(()) } else { self.fail(&format!("`{s}`")) }
    }
    fn word(&mut self, what: &str) -> R<String> {
        match self.tokens.get(self.at) {
            Some((Token::Word(w), _)) => {
                let w = w.clone();
                self.at += 1;
                Ok(w)
            }
            _ => self.fail(what),
        }
    }
    fn text_lit(&mut self) -> R<String> {
        match self.tokens.get(self.at) {
            Some((Token::Text(w), _)) => {
                let w = w.clone();
                self.at += 1;
                Ok(w)
            }
            _ => self.fail("a quoted text"),
        }
    }
    fn number<T: std::str::FromStr>(&mut self, what: &str) -> R<T> {
        match self.tokens.get(self.at) {
            Some((Token::Number(n), _)) if n.parse::<T>().is_ok() => {
                let v = n.parse::<T>();
                self.at += 1;
                v.or_else(|_| self.fail(what))
            }
            _ => self.fail(what),
        }
    }
    fn is_value(&self) -> bool {
        matches!(self.tokens.get(self.at), Some((Token::Value(_), _)))
    }
    fn raw_value(&mut self) -> R<u32> {
        match self.tokens.get(self.at) {
            Some((Token::Value(v), _)) => {
                let v = *v;
                self.at += 1;
                Ok(v)
            }
            _ => self.fail("a value"),
        }
    }
    fn raw_values(&mut self) -> R<Vec<u32>> {
        let mut out = vec![];
        if self.is_value() {
            out.push(self.raw_value()?);
            while self.eat(",") {
                out.push(self.raw_value()?);
            }
        }
        Ok(out)
    }
    fn uses(&mut self) -> R<Vec<Value>> {
        let raw = self.raw_values()?;
        raw.into_iter()
            .map(|v| self.names.get(&v).copied().map_or_else(|| self.error(format!("value %{v} is not defined")), Ok))
            .collect()
    }
    fn define(&mut self, raw: u32, ty: Type) -> R<Value> {
        let v = self.kernel.value(ty);
        if self.names.insert(raw, v).is_some() { self.error(format!("value %{raw} is defined twice")) } else { Ok(v) }
    }

    fn kernel(&mut self) -> R {
        self.expect("kernel")?;
        match self.tokens.get(self.at) {
            Some((Token::Symbol(s), _)) => self.kernel.name = s.clone(),
            _ => return self.fail("the kernel's name, `@name`"),
        }
        self.at += 1;
        self.expect("(")?;
        while !self.eat(")") {
            let raw = self.raw_value()?;
            let name = self.text_lit()?;
            self.expect(":")?;
            let ty = self.ty()?;
            let v = self.define(raw, ty)?;
            self.kernel.params.push(name);
            self.kernel.body.args.push(v);
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        if self.is("{") && self.attr_follows() {
            self.kernel.attrs = self.attrs()?;
        }
        self.expect("{")?;
        while !self.eat("}") {
            let op = self.op()?;
            self.kernel.body.ops.push(op);
        }
        Ok(())
    }

    fn op(&mut self) -> R<Op> {
        let start = self.at;
        let results = self.raw_values()?;
        if !results.is_empty() {
            self.expect("=")?;
        }
        let name = self.word("the name of an op")?;
        let Some(kind) = OpKind::from_name(&name) else {
            return self.error(format!("there is no op `{name}`"));
        };
        let operands = if self.defines() { vec![] } else { self.uses()? };
        // `{` opens attributes when a key (or nothing) follows and the op is no region op without attributes: a region
        // starts with `(`, a value, an op name or `yield`, none of which is an attribute key.
        let attrs = if self.is("{") && self.attr_follows() { self.attrs()? } else { Attrs::new() };
        let mut defined = vec![];
        if !results.is_empty() {
            self.expect(":")?;
            for (i, raw) in results.iter().enumerate() {
                if i > 0 {
                    self.expect(",")?;
                }
                let ty = self.ty()?;
                defined.push(self.define(*raw, ty)?);
            }
        }
        let loc = self.loc(start)?;
        let mut regions = vec![];
        while self.is("{") {
            regions.push(self.region()?);
        }
        Ok(Op { kind, operands, results: defined, attrs, regions, loc })
    }

    /// Whether the values here are results of the next op, `%1, %2 =`, and not operands of the one before.
    fn defines(&self) -> bool {
        let slice = |at: usize| self.tokens.get(at).map_or("", |t| &self.text[t.1.clone()]);
        let mut at = self.at;
        while slice(at).starts_with('%') && slice(at + 1) == "," {
            at += 2;
        }
        slice(at).starts_with('%') && slice(at + 1) == "="
    }

    fn attr_follows(&self) -> bool {
        match self.tokens.get(self.at + 1) {
            Some((Token::Word(w), _)) => Key::from_name(w).is_some() && OpKind::from_name(w).is_none(),
            _ => false,
        }
    }

    /// The location of the op that starts at a token.
    fn loc(&mut self, start: usize) -> R<Loc> {
        if !self.eat("@") {
            let Some(file) = &self.origin else { return Ok(Loc::unknown()) };
            let before = &self.text[..self.tokens.get(start).map_or(0, |t| t.1.start)];
            let col = before.len() - before.rfind('\n').map_or(0, |i| i + 1) + 1;
            return Ok(Loc::new(file.clone(), before.matches('\n').count() as u32 + 1, col as u32));
        }
        let file = self.text_lit()?;
        self.expect(":")?;
        let line = self.number("a line")?;
        self.expect(":")?;
        let col = self.number("a column")?;
        let file = self.files.entry(file).or_insert_with_key(|k| k.as_str().into()).clone();
        Ok(Loc { file, line, col })
    }

    fn region(&mut self) -> R<Region> {
        self.expect("{")?;
        self.depth += 1;
        if self.depth > MOST_NESTED {
            return self.error(format!("regions nest deeper than {MOST_NESTED}"));
        }
        let mut r = Region::default();
        if self.eat("(") {
            while !self.eat(")") {
                let raw = self.raw_value()?;
                self.expect(":")?;
                let ty = self.ty()?;
                r.args.push(self.define(raw, ty)?);
                if !self.is(")") {
                    self.expect(",")?;
                }
            }
        }
        while !self.eat("yield") {
            let op = self.op()?;
            r.ops.push(op);
        }
        r.yields = self.uses()?;
        self.expect("}")?;
        self.depth -= 1;
        Ok(r)
    }

    fn attrs(&mut self) -> R<Attrs> {
        self.expect("{")?;
        let mut attrs = Attrs::new();
        while !self.eat("}") {
            let name = self.word("the name of an attribute")?;
            let Some(key) = Key::from_name(&name) else {
                return self.error(format!("there is no attribute `{name}`"));
            };
            let value = match self.eat("=") {
                true if key == Key::Layouts => self.layouts()?,
                true => self.attr()?,
                false => Attr::Flag,
            };
            attrs.set(key, value);
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Ok(attrs)
    }

    /// `"LAYOUT; -; LAYOUT"`: one for each result.
    fn layouts(&mut self) -> R<Attr> {
        let text = self.text_lit()?;
        let one = |part: &str| if part == "-" { Ok(None) } else { part.parse().map(Some) };
        let all = text.split(';').map(|part| one(part.trim())).collect::<Result<_, String>>();
        all.map(Attr::Layouts).or_else(|e| self.error(e))
    }

    fn attr(&mut self) -> R<Attr> {
        if self.eat("[") {
            let mut v = vec![];
            while !self.eat("]") {
                v.push(self.number("a number")?);
                if !self.is("]") {
                    self.expect(",")?;
                }
            }
            return Ok(Attr::Ints(v));
        }
        match self.tokens.get(self.at).map(|t| t.0.clone()) {
            Some(Token::Text(s)) => {
                self.at += 1;
                Ok(Attr::Str(s))
            }
            Some(Token::Word(w)) if w != "bits" && w != "true" && w != "false" => {
                self.at += 1;
                intern_sym(&w).map(Attr::Sym).map_or_else(|| self.error(format!("there is no symbol `{w}`")), Ok)
            }
            Some(_) => {
                let start = self.at;
                let bits = self.eat("bits");
                if bits {
                    self.expect("(")?;
                }
                let digits = self.slice().to_string();
                self.at += 1;
                if bits {
                    self.expect(")")?;
                }
                if !self.eat(":") {
                    self.at = start;
                    return Ok(Attr::Int(self.number("a number")?));
                }
                let elem = self.elem()?;
                match scalar(elem, &digits, bits) {
                    Some(s) => Ok(Attr::Scalar(s)),
                    None => self.error(format!("`{digits}` is no value of `{elem}`")),
                }
            }
            None => self.fail("the value of an attribute"),
        }
    }

    fn elem(&mut self) -> R<Elem> {
        let w = self.word("an element type")?;
        Elem::from_name(&w).map_or_else(|| self.error(format!("there is no element type `{w}`")), Ok)
    }
    fn quant(&mut self) -> R<Quant> {
        let w = self.word("a format")?;
        Quant::from_name(&w).map_or_else(|| self.error(format!("there is no packed format `{w}`")), Ok)
    }

    fn ty(&mut self) -> R<Type> {
        let w = self.word("a type")?;
        let ty = match w.as_str() {
            "tile" => {
                self.expect("<")?;
                let elem = self.elem()?;
                let mut shape = vec![];
                while self.eat(",") {
                    shape.push(self.number("an extent")?);
                }
                Type::Tile(TileType { elem, shape })
            }
            "view" | "view_mut" => {
                self.expect("<")?;
                let elem = self.elem()?;
                self.expect(",")?;
                let rank = self.number("a rank")?;
                let mut facts = ViewFacts::default();
                while self.eat(",") {
                    match self.word("a fact")?.as_str() {
                        "unit" => facts.unit = true,
                        "align16" => facts.align16 = true,
                        "small" => facts.small = true,
                        f => return self.error(format!("there is no fact `{f}`")),
                    }
                }
                Type::View(ViewType { elem, rank, mutable: w == "view_mut", facts })
            }
            "packed" => {
                self.expect("<")?;
                let quant = self.quant()?;
                self.expect(",")?;
                Type::Packed(PackedType { quant, layout: self.word("a layout")? })
            }
            "qtile" => {
                self.expect("<")?;
                let quant = self.quant()?;
                self.expect(",")?;
                let k = self.number("an extent")?;
                self.expect(",")?;
                Type::QTile(QTileType { quant, k, n: self.number("an extent")? })
            }
            w => {
                return Elem::from_name(w)
                    .map(Type::scalar)
                    .map_or_else(|| self.error(format!("there is no type `{w}`")), Ok);
            }
        };
        self.expect(">")?;
        Ok(ty)
    }
}

fn scalar(elem: Elem, digits: &str, bits: bool) -> Option<Scalar> {
    if bits {
        let v = u64::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
        let s = Scalar::from_bits(elem, v);
        return (s.bits == v).then_some(s);
    }
    match elem {
        Elem::Bool => match digits {
            "true" => Some(Scalar::bool(true)),
            "false" => Some(Scalar::bool(false)),
            _ => None,
        },
        e if e.is_float() => digits.parse().ok().map(|v| Scalar::from_f64(e, v)),
        Elem::U64 => digits.parse().ok().map(|v| Scalar::from_bits(elem, v)),
        e => {
            let v: i64 = digits.parse().ok()?;
            let s = Scalar::from_i64(e, v);
            (s.to_i64() == v).then_some(s)
        }
    }
}
