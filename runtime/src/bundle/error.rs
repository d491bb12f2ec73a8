//! What can be wrong with a bundle, or missing in it.

use super::{Bundle, Machine};
use std::{fmt, io};
use tegula_ir::Kernel;

/// Why a bundle cannot be used: which, at which byte, and what is wrong there.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bundle of kernels {file} cannot be used: {}{what}", .offset.map(|n| format!("at byte {n}: ")).unwrap_or_default())]
pub struct BundleError {
    /// Its path, or `inside the program`.
    pub file: String,
    /// Where the fault is; none if the file cannot be read at all.
    pub offset: Option<u64>,
    /// What is wrong, and what would be right.
    pub what: String,
}

crate::readable_debug!(BundleError);

impl BundleError {
    pub(super) fn unreadable(file: &str, e: &io::Error) -> BundleError {
        BundleError { file: file.into(), offset: None, what: format!("it cannot be read: {e}") }
    }
}

/// A fault in the bytes of a bundle, before it is known whose they are.
#[derive(Debug)]
pub(super) struct Fault {
    pub offset: usize,
    pub what: String,
}

impl Fault {
    pub fn new(offset: usize, what: impl Into<String>) -> Fault {
        Fault { offset, what: what.into() }
    }

    pub fn of(self, file: &str) -> BundleError {
        BundleError { file: file.into(), offset: Some(self.offset as u64), what: self.what }
    }
}

/// A kernel that is not in the bundle, where nothing can compile it either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The kernel.
    pub kernel: String,
    /// Whether checks were asked for.
    pub checked: bool,
    /// What it must run on.
    pub machine: Machine,
    /// The bundle.
    pub bundle: String,
    /// What the bundle was made for.
    pub targets: Vec<String>,
    /// Variants of a kernel of this name that it has for the machine.
    pub variants: usize,
    /// How many artifacts it has.
    pub items: usize,
}

impl Missing {
    /// What to say about a kernel that `bundle` does not have.
    pub(crate) fn of(kernel: &Kernel, checked: bool, machine: &Machine, bundle: &Bundle) -> Missing {
        let fits = |target: &str, kind| machine.takes().any(|t| (t.0.as_str(), t.1) == (target, kind));
        let variants = bundle
            .items()
            .filter(|i| i.kernel == kernel.name && i.checked == checked && fits(i.target, i.kind))
            .map(|i| i.key)
            .collect::<std::collections::BTreeSet<_>>();
        Missing {
            kernel: kernel.name.clone(),
            checked,
            machine: machine.clone(),
            bundle: bundle.name().into(),
            targets: bundle.targets().into_iter().map(str::to_owned).collect(),
            variants: variants.len(),
            items: bundle.items().count(),
        }
    }
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { kernel, machine, bundle, items, variants, .. } = self;
        let checked = if self.checked { " with checks" } else { "" };
        write!(f, "kernel `{kernel}`{checked} for {machine} is not in the bundle {bundle}, which has ")?;
        match (self.targets.join(", "), variants) {
            (_, 0) if *items == 0 => write!(f, "nothing")?,
            (targets, 0) => write!(f, "{items} artifacts for {targets}, none of a kernel of this name that runs here")?,
            (targets, n) => {
                let s = if *n == 1 { "" } else { "s" };
                write!(f, "{items} artifacts for {targets}, of this kernel {n} other variant{s}")?;
            }
        }
        let target = machine.target();
        write!(
            f,
            ". There is no compiler to make it either. Make a bundle where there is one: `tegula bundle MODEL --target \
             {target} -o FILE` for a model, or `tegula::bundle::make` for kernels of your own"
        )
    }
}
