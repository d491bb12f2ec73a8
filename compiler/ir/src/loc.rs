//! Source locations: every op knows the user's line that made it.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// A place in the user's source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loc {
    /// Path as rustc knows it.
    pub file: Arc<str>,
    /// Line, from 1; 0 when unknown.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub col: u32,
}

impl Loc {
    /// A location.
    pub fn new(file: impl Into<Arc<str>>, line: u32, col: u32) -> Loc {
        Loc { file: file.into(), line, col }
    }
    /// "Somewhere": ops made by a pass out of nothing, or parsed from text without locations.
    pub fn unknown() -> Loc {
        Loc { file: Arc::from("?"), line: 0, col: 0 }
    }
    /// Whether this is [`Loc::unknown`].
    pub fn is_unknown(&self) -> bool {
        self.line == 0
    }
}

impl From<&std::panic::Location<'_>> for Loc {
    fn from(l: &std::panic::Location<'_>) -> Loc {
        Loc::new(l.file(), l.line(), l.column())
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.col)
    }
}
