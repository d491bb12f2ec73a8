//! Instruction forms: which qualifiers an opcode takes, and who makes it executable.
//!
//! A [`Form`] is one row of the table. Adding an instruction is adding a row to a family's `FORMS` (see [`crate::isa`]).

use super::build::Build;
use crate::{counters::Kind, error::Error, exec::op::Op, types::Ty};

/// An executable instruction, or why there is none.
pub type Built = Result<Box<dyn Op>, Error>;

/// One row of the table of instructions.
pub struct Form {
    /// Opcode with the qualifiers that always follow it: `add`, `cp.async.commit_group`. The longest match wins.
    pub opcode: &'static str,
    /// Further qualifiers, then a colon and the types: `"rn|rz|rm|rp ftz sat : f32 f64"`. Of each group of alternatives
    /// at most one may stand; groups may come in any order. `#` in a word stands for a number.
    pub quals: &'static str,
    /// For counting.
    pub kind: Kind,
    /// Makes the instruction.
    pub build: fn(&mut Build<'_, '_>) -> Built,
}

/// A row of the table.
pub const fn form(
    opcode: &'static str,
    quals: &'static str,
    kind: Kind,
    build: fn(&mut Build<'_, '_>) -> Built,
) -> Form {
    Form { opcode, quals, kind, build }
}

/// The qualifiers of an instruction, matched with its form.
#[derive(Clone, Debug, Default)]
pub struct Quals {
    words: Vec<String>,
    /// Types, in order.
    pub types: Vec<Ty>,
}

impl Quals {
    /// Whether a qualifier stands.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    /// The first qualifier that starts so.
    pub fn starting(&self, prefix: &str) -> Option<&str> {
        self.words.iter().map(String::as_str).find(|w| w.starts_with(prefix))
    }

    /// Which of some alternatives stands.
    pub fn pick<'w>(&self, words: &[&'w str]) -> Option<&'w str> {
        words.iter().copied().find(|w| self.has(w))
    }

    /// The i-th type; a missing one is `.b32`, which only a form without types can meet.
    pub fn ty(&self, i: usize) -> Option<Ty> {
        self.types.get(i).copied()
    }
}

/// The form that an instruction has, and its qualifiers.
pub fn find(opcode: &str, quals: &[String], line: u32) -> Result<(&'static Form, Quals), Error> {
    let mut best: Option<(&'static Form, usize)> = None;
    let mut failure = None;
    let mut known = false;
    for form in crate::isa::forms().filter(|f| f.opcode.split('.').next() == Some(opcode)) {
        known = true;
        let fixed: Vec<&str> = form.opcode.split('.').skip(1).collect();
        if quals.len() < fixed.len() || !quals.iter().zip(&fixed).all(|(q, f)| q == f) {
            continue;
        }
        if best.is_none_or(|(_, n)| fixed.len() > n) {
            best = Some((form, fixed.len()));
        }
    }
    // Several rows may share the longest opcode: the first whose qualifiers fit is it.
    if let Some((_, fixed)) = best {
        let rows = crate::isa::forms().filter(|f| {
            let mut parts = f.opcode.split('.');
            parts.next() == Some(opcode)
                && f.opcode.split('.').count() == fixed + 1
                && parts.zip(quals).all(|(f, q)| f == q)
        });
        for form in rows {
            match matches(form, &quals[fixed..]) {
                Ok(quals) => return Ok((form, quals)),
                Err(word) => failure = failure.or(Some((form, word))),
            }
        }
    }
    let name = std::iter::once(opcode).chain(quals.iter().map(String::as_str)).collect::<Vec<_>>().join(".");
    Err(Error::new(
        line,
        match failure {
            Some((form, word)) => {
                format!("unknown qualifier `.{word}` in `{name}`: {} takes {}", form.opcode, form.quals)
            }
            None if known => format!("unknown form `{name}` of `{opcode}`"),
            None => format!("unknown instruction `{name}`"),
        },
    ))
}

/// Whether a word is one of the form's, in which `#` stands for a number.
fn fits(form: &str, word: &str) -> bool {
    let Some((before, after)) = form.split_once('#') else { return form == word };
    let middle = word.strip_prefix(before).and_then(|w| w.strip_suffix(after));
    middle.is_some_and(|m| !m.is_empty() && m.bytes().all(|b| b.is_ascii_digit()))
}

/// Matches qualifiers with a form, or gives the one that it does not take.
fn matches(form: &Form, quals: &[String]) -> Result<Quals, String> {
    let (groups, types) = match form.quals.strip_prefix(": ") {
        Some(types) => ("", types),
        None => form.quals.split_once(" : ").unwrap_or((form.quals, "")),
    };
    let mut out = Quals::default();
    for q in quals {
        if types.split_whitespace().any(|t| t == q)
            && let Some(ty) = Ty::parse(q)
        {
            out.types.push(ty);
            continue;
        }
        let group = groups.split_whitespace().find(|g| g.split('|').any(|w| fits(w, q)));
        let Some(group) = group else { return Err(q.clone()) };
        if out.words.iter().any(|w| group.split('|').any(|g| fits(g, w))) {
            return Err(q.clone());
        }
        out.words.push(q.clone());
    }
    Ok(out)
}
