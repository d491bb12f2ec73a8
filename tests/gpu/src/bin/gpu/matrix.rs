//! The cases of the kernels' own tests: kernels/tests/library/matrix, where their references and bounds are.

#[path = "../../../../../kernels/tests/library/matrix/activations.rs"]
mod activations;
#[path = "../../../../../kernels/tests/library/matrix/choice.rs"]
mod choice;
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

/// All cases by name.
pub fn cases() -> Vec<(String, &'static Case)> {
    let all = [dense::CASES, activations::CASES, weights::CASES, paged::CASES, choice::CASES, examples::CASES];
    let all = all.into_iter().flatten();
    all.map(|c| (if c.of.is_empty() { c.kernel.to_string() } else { format!("{} {}", c.kernel, c.of) }, c)).collect()
}
