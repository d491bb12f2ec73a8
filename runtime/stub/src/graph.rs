//! Recorded work.

use crate::stream::{Stream, Work};

/// What a stream recorded.
pub struct Graph {
    pub work: Vec<Work>,
}

/// A graph that can be launched.
pub struct Executable {
    pub work: Vec<Work>,
}

impl Executable {
    /// Puts all of it into a stream.
    pub fn launch(&self, stream: &Stream) {
        self.work.iter().for_each(|w| stream.put(w.clone()));
    }
}
