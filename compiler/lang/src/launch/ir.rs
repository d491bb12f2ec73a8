//! A kernel's IR without a launch: for tests, dumps and ahead-of-time compilation.

use super::info::{Instance, KernelInfo, ParamKind, build};
use super::{LaunchError, Options};
use tegula_ir::layout::Layout;
use tegula_ir::{Kernel, PackedType, Quant, Type, ViewFacts, ViewType};

/// A kernel's IR being asked for: `k::ir::<f32>().dims(..).cfg(..).build()`. `B` is the type of the options, `D` the
/// number of dims.
#[must_use = "call `.build()`"]
pub struct Ir<B, const D: usize> {
    info: &'static KernelInfo,
    body: Instance<B>,
    dims: [usize; D],
    options: Option<B>,
    facts: ViewFacts,
    quant: Quant,
    layout: Layout,
}

impl<B: Options, const D: usize> Ir<B, D> {
    #[doc(hidden)]
    pub fn new(info: &'static KernelInfo, body: Instance<B>) -> Self {
        let facts = ViewFacts { unit: true, align16: true, small: true };
        Ir { info, body, dims: [0; D], options: None, facts, quant: Quant::Q8_0, layout: Layout::Gguf }
    }
    /// The value of the kernel's `#[build]` parameter.
    pub fn cfg(mut self, options: B) -> Self {
        self.options = Some(options);
        self
    }
    /// What is guaranteed of every view. Without it: unit innermost stride, 16-byte alignment, small offsets.
    pub fn facts(mut self, facts: ViewFacts) -> Self {
        self.facts = facts;
        self
    }
    /// Format (for a `Packed` of any format) and layout of packed parameters. Without it `q8_0` in GGUF's layout.
    pub fn packed(mut self, quant: Quant, layout: Layout) -> Self {
        (self.quant, self.layout) = (quant, layout);
        self
    }
    /// Builds and verifies it.
    pub fn build(self) -> Result<Kernel, LaunchError> {
        let name = self.info.name;
        if let Some(i) = self.dims.iter().position(|n| *n == 0) {
            return Err(LaunchError::Dim { kernel: name, dim: self.info.dims[i], found: 0 });
        }
        if let (Some(argument), None) = (self.info.options, &self.options) {
            return Err(LaunchError::NoOptions { kernel: name, argument });
        }
        let types = |_: usize, p: &super::ParamInfo| match p.kind {
            ParamKind::View { elem, rank, mutable } => Type::View(ViewType { elem, rank, mutable, facts: self.facts }),
            ParamKind::Scalar { elem } => Type::scalar(elem),
            ParamKind::Packed { quant } => {
                Type::Packed(PackedType { quant: quant.unwrap_or(self.quant), layout: self.layout.name().into() })
            }
        };
        Ok(build(self.info, self.body, self.options.as_ref(), &self.dims, types)?)
    }
}

macro_rules! dims { ($($d:literal: $($n:ident)+;)*) => {$(
    impl<B: Options> Ir<B, $d> {
        /// The values of the kernel's dims, in the order in which it declares them.
        pub fn dims(self, $($n: usize),+) -> Self { Ir { dims: [$($n),+], ..self } }
    }
)*} }
dims! { 1: a; 2: a b; 3: a b c; 4: a b c d; 5: a b c d e; 6: a b c d e f; 7: a b c d e f g; 8: a b c d e f g h; }
