//! Rewrites of kernels that keep their meaning, each in a file: what `tegula opt` runs on text and what comes before a
//! lowering.
//!
//! A pass takes a kernel that [`Kernel::verify`] accepts, leaves such a kernel, and tells whether it changed anything.

mod canonicalise;
mod cse;
mod dce;
mod float;
pub(crate) mod fold;
mod licm;
mod rewrite;

pub use fold::fold;

use crate::{kernel::Kernel, parse::ParseError, verify::VerifyError};

/// A pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name in a pipeline.
    pub name: &'static str,
    /// What it does, for `tegula opt --help`.
    pub doc: &'static str,
    /// Runs it; whether it changed the kernel.
    pub run: fn(&mut Kernel) -> bool,
}

/// Every pass, in the order in which [`optimise`] runs them.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "canonicalise",
        doc: "folds constants, applies exact identities, composes shape ops and casts, unfolds control flow that is known",
        run: canonicalise::run,
    },
    Pass { name: "cse", doc: "computes equal values once", run: cse::run },
    Pass { name: "licm", doc: "moves what does not change in a loop before it", run: licm::run },
    Pass { name: "dce", doc: "removes what no effect needs", run: dce::run },
];

/// Rounds of [`optimise`]: each pass opens work for the others, but little after the second round.
const ROUNDS: usize = 8;

/// Runs every pass until none changes anything.
pub fn optimise(kernel: &mut Kernel) {
    for _ in 0..ROUNDS {
        // Every pass runs in every round: `|`, not `||`.
        if !PASSES.iter().fold(false, |changed, pass| changed | (pass.run)(kernel)) {
            break;
        }
    }
}

/// The pipeline names a pass that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no pass `{name}`; passes: {}, or `optimise` for all of them until nothing changes", PASSES.iter().map(|p| p.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownPass {
    /// The name that was asked for.
    pub name: String,
}

/// Runs the passes of a comma-separated pipeline, such as `canonicalise,cse,dce`, in order. `optimise` stands for
/// [`optimise`]. Nothing runs if a name is unknown or missing.
pub fn run_named(kernel: &mut Kernel, pipeline: &str) -> Result<(), UnknownPass> {
    let names = pipeline.split(',').map(str::trim);
    let mut runs: Vec<Box<dyn Fn(&mut Kernel)>> = vec![];
    for name in names {
        match PASSES.iter().find(|p| p.name == name) {
            Some(pass) => runs.push(Box::new(|k| {
                (pass.run)(k);
            })),
            None if name == "optimise" => runs.push(Box::new(optimise)),
            None => return Err(UnknownPass { name: name.into() }),
        }
    }
    runs.iter().for_each(|run| run(kernel));
    Ok(())
}

/// Why [`opt_text`] failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptError {
    /// The text is no kernel.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The kernel is not well-formed; an op without a location of its own is named by its line in the text.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The pipeline is wrong.
    #[error(transparent)]
    Pipeline(#[from] UnknownPass),
}

/// Parses a kernel, verifies it, runs a pipeline ([`run_named`]) and prints the result, its values numbered in order.
pub fn opt_text(text: &str, pipeline: &str) -> Result<String, OptError> {
    let mut kernel = Kernel::parse(text)?;
    if let Err(e) = kernel.verify() {
        // Again, with every op knowing its line, for the message.
        Kernel::parse_located(text, "<text>")?.verify()?;
        return Err(e.into());
    }
    run_named(&mut kernel, pipeline)?;
    kernel.verify()?;
    Ok(kernel.renumbered().text())
}
