//! The cases of the kernels' own tests: kernels/tests/library/matrix, where their references and bounds are.

#[path = "../../../../../kernels/tests/library/matrix/activations.rs"]
mod activations;
#[path = "../../../../../kernels/tests/library/matrix/dense.rs"]
mod dense;
#[path = "../../../../../kernels/tests/library/matrix/examples.rs"]
#[allow(dead_code)]
mod examples;
#[path = "../../../../../kernels/tests/library/matrix/gguf.rs"]
mod gguf;
#[path = "../../../../../kernels/tests/library/matrix/measure.rs"]
#[allow(dead_code)]
pub mod measure;
#[path = "../../../../../kernels/tests/library/matrix/paged.rs"]
mod paged;
#[path = "../../../../../kernels/tests/library/matrix/weights.rs"]
mod weights;

use measure::Measure;
use tegula::prelude::*;

/// A kernel, for one choice of element types or settings.
pub struct Case {
    /// Its name in the registry, or that of the example.
    pub kernel: &'static str,
    /// The choice; empty where there is none.
    pub of: &'static str,
    /// In what errors are counted; empty where bits must be equal.
    pub unit: &'static str,
    /// How many of these are allowed.
    pub bound: &'static str,
    /// Runs it at several sizes and measures what comes out.
    pub run: fn(&Stream, &mut Measure),
}

/// All cases. Names are made unique by what they are of and, for the examples, by saying so.
pub fn cases() -> Vec<(String, &'static Case)> {
    let library = [dense::CASES, activations::CASES, weights::CASES, paged::CASES];
    let named = |prefix: &'static str| {
        move |c: &'static Case| {
            let of = if c.of.is_empty() { String::new() } else { format!(" {}", c.of) };
            (format!("{prefix}{}{of}", c.kernel), c)
        }
    };
    let all = library.into_iter().flatten().map(named(""));
    all.chain(examples::CASES.iter().map(named("example "))).collect()
}
