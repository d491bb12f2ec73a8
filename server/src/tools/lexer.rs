//! Where a JSON value ends, in a text that comes character by character.

/// What a character is to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Part of it.
    Inside,
    /// Its last character.
    Last,
    /// The first one after it: numbers and names do not show their own end.
    After,
    /// It cannot be in JSON here.
    Wrong,
}

/// Follows one value from its first character on.
///
/// It knows strings, escapes and nesting, and is no validator: what models write in place of JSON, such as `True` or a line
/// break in a string, passes. A `<` outside of strings does not, since there it begins a tag.
#[derive(Clone, Debug, Default)]
pub(super) struct Lexer {
    /// The closing brackets that are due, outermost first.
    open: Vec<char>,
    in_string: bool,
    escaped: bool,
    /// It began as a number or a name, such as `-1` or `true`.
    bare: bool,
}

impl Lexer {
    pub fn push(&mut self, c: char) -> Step {
        if self.in_string {
            return self.push_string(c);
        }
        if self.bare {
            return match c {
                '0'..='9' | 'a'..='z' | 'A'..='Z' | '+' | '-' | '.' => Step::Inside,
                ',' | '}' | ']' | ' ' | '\t' | '\n' | '\r' => Step::After,
                _ => Step::Wrong,
            };
        }
        let nested = !self.open.is_empty();
        match c {
            '"' => self.in_string = true,
            '{' => self.open.push('}'),
            '[' => self.open.push(']'),
            '}' | ']' if self.open.pop() == Some(c) => return self.closed(),
            '}' | ']' | '<' => return Step::Wrong,
            _ if nested => {}
            '0'..='9' | 'a'..='z' | 'A'..='Z' | '-' => self.bare = true,
            _ => return Step::Wrong,
        }
        Step::Inside
    }

    fn push_string(&mut self, c: char) -> Step {
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => {
                self.in_string = false;
                return self.closed();
            }
            _ => {}
        }
        Step::Inside
    }

    /// After the end of a string or a bracket.
    fn closed(&self) -> Step {
        if self.open.is_empty() { Step::Last } else { Step::Inside }
    }
}
