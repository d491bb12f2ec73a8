//! Launching a kernel: arguments, dims, options and grid are gathered in a [`Launch`], checked, and handed to an
//! [`Executor`] as a [`LaunchDesc`]. Nothing here allocates unless there is an error.

mod arg;
mod desc;
mod error;
mod info;
mod ir;

pub use arg::{Arg, ArgData, MAX_RANK, PackedArg, ViewArg};
pub use desc::{BuildKernel, Executor, LaunchDesc, LaunchKey, MAX_DIMS, MAX_PARAMS};
pub use error::LaunchError;
pub use info::{Instance, KernelInfo, Param, ParamInfo, ParamKind, Params};
pub use ir::Ir;

use crate::error::BuildError;
use std::any::TypeId;
use std::hash::{DefaultHasher, Hash, Hasher};
use tegula_ir::{Kernel, gpu::MAX_WARPS};

/// Most elements that a tile has, and so the largest dim.
pub(crate) const MOST_ELEMENTS: usize = 1 << 30;

/// Build-time options of a kernel: its `#[build]` parameter. Implemented for every type that has these traits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `#[build]` parameter of a kernel",
    note = "it needs `#[derive(Clone, Debug, PartialEq, Eq, Hash)]`: launches with equal options share their code"
)]
pub trait Options: Clone + Hash + Eq + std::fmt::Debug + 'static {}
impl<T: Clone + Hash + Eq + std::fmt::Debug + 'static> Options for T {}

/// A launch being put together: a kernel and its arguments; then dims, options, grid; then [`Launch::run`].
/// `B` is the type of the options (`()` without), `D` the number of dims, `N` that of arguments.
#[must_use = "a launch does nothing until `.run(..)`"]
pub struct Launch<'a, B, const D: usize, const N: usize> {
    info: &'static KernelInfo,
    instance: TypeId,
    body: Instance<B>,
    args: [ArgData<'a>; N],
    dims: Option<[usize; D]>,
    options: Option<B>,
    warps: Option<usize>,
    grid: Option<[u32; 3]>,
    checked: bool,
}

impl<'a, B: Options, const D: usize, const N: usize> Launch<'a, B, D, N> {
    /// What the code that `#[kernel]` makes calls. `instance` is the type of the function item `body`.
    #[doc(hidden)]
    pub fn new(info: &'static KernelInfo, instance: TypeId, body: Instance<B>, args: [ArgData<'a>; N]) -> Self {
        const { assert!(N <= MAX_PARAMS, "a kernel takes at most 24 parameters") };
        const { assert!(D <= MAX_DIMS, "a kernel has at most 8 dims") };
        Launch { info, instance, body, args, dims: None, options: None, warps: None, grid: None, checked: false }
    }

    fn with_dims(mut self, dims: [usize; D]) -> Self {
        self.dims = Some(dims);
        self
    }

    /// The value of the kernel's `#[build]` parameter.
    pub fn cfg(mut self, options: B) -> Self {
        self.options = Some(options);
        self
    }

    /// How many programs to run along each grid axis: `n`, `[n, m]` or `[n, m, l]`. Without it a kernel with at least
    /// as many dims as its first mutable view has axes runs one program per tile of that view, numbered along the first
    /// grid axis, where the tile's extents are the first dims.
    pub fn grid(mut self, grid: impl Grid) -> Self {
        self.grid = Some(grid.axes());
        self
    }

    /// How many warps, of 32 threads, run a program on a GPU: a power of two up to 32. Without it the compiler takes as
    /// many as the tiles keep busy and as their registers need. It changes no bit of a result. CPUs ignore it.
    pub fn warps(mut self, warps: usize) -> Self {
        self.warps = Some(warps);
        self
    }

    /// Reports indices out of range and failed `device_assert`s, at some cost.
    pub fn checked(mut self) -> Self {
        self.checked = true;
        self
    }

    /// Checks the launch and runs it. A grid without programs runs nothing.
    pub fn run(self, executor: &(impl Executor + ?Sized)) -> Result<(), LaunchError> {
        self.check()?;
        let grid = self.resolve_grid()?;
        if grid.contains(&0) {
            return Ok(());
        }
        let desc = LaunchDesc {
            kernel: self.info,
            key: self.key(),
            args: &self.args,
            grid,
            checked: self.checked,
            source: &self,
        };
        executor.launch(&desc)
    }

    /// The IR of this launch: specialised for its dims, options and what its arguments guarantee.
    pub fn ir(&self) -> Result<Kernel, LaunchError> {
        self.check()?;
        Ok(self.build_kernel()?)
    }

    fn check(&self) -> Result<(), LaunchError> {
        let name = self.info.name;
        for (param, arg) in self.info.params.iter().zip(&self.args) {
            arg.check(param).map_err(|(expected, found)| LaunchError::Argument {
                kernel: name,
                argument: param.name,
                expected,
                found,
            })?;
        }
        match self.dims {
            None if D > 0 => return Err(LaunchError::NoDims { kernel: name, dims: self.info.dims }),
            Some(d) => {
                if let Some(i) = d.iter().position(|n| *n == 0 || *n > MOST_ELEMENTS) {
                    return Err(LaunchError::Dim { kernel: name, dim: self.info.dims[i], found: d[i] });
                }
            }
            None => {}
        }
        if self.info.options.is_some() && self.options.is_none() {
            return Err(LaunchError::NoOptions { kernel: name, argument: self.info.options.unwrap_or("cfg") });
        }
        match self.warps {
            Some(found) if !found.is_power_of_two() || found > MAX_WARPS => {
                Err(LaunchError::Warps { kernel: name, found })
            }
            _ => Ok(()),
        }
    }

    fn resolve_grid(&self) -> Result<[u32; 3], LaunchError> {
        let no_grid = |reason: String| LaunchError::Grid { kernel: self.info.name, reason };
        if let Some(g) = self.grid {
            return match g.iter().find(|n| **n > i32::MAX as u32) {
                // An extent that does not fit comes as the largest that does.
                Some(_) => Err(no_grid(format!("at most {} programs run along an axis", i32::MAX))),
                None => Ok(g),
            };
        }
        let out = self.args.iter().find_map(|a| match a {
            ArgData::View(v) if v.mutable => Some(v),
            _ => None,
        });
        let (Some(out), Some(dims)) = (out, self.dims) else {
            return Err(no_grid(
                "give it with `.grid(..)`: there are no dims, or no view that the kernel writes, to take it from"
                    .into(),
            ));
        };
        let rank = out.rank as usize;
        if D < rank {
            return Err(no_grid(format!(
                "give it with `.grid(..)`: the kernel's {D} dims do not cover the {rank} axes of the first view that it \
                 writes"
            )));
        }
        let tiles =
            (0..rank).try_fold(1u64, |n, i| n.checked_mul((out.extents[i].max(0) as u64).div_ceil(dims[i] as u64)));
        match tiles {
            Some(n) if n <= i32::MAX as u64 => Ok([n as u32, 1, 1]),
            _ => Err(no_grid(format!("the first view that it writes has more than {} tiles", i32::MAX))),
        }
    }

    fn key(&self) -> LaunchKey {
        let mut key = LaunchKey {
            instance: self.instance,
            dims: [0; MAX_DIMS],
            options: 0,
            // At most `MAX_WARPS`: `check` saw to it.
            warps: self.warps.unwrap_or(0) as u8,
            facts: [0; MAX_PARAMS],
        };
        if let Some(d) = self.dims {
            for (slot, n) in key.dims.iter_mut().zip(d) {
                *slot = n as u32;
            }
        }
        if self.info.options.is_some()
            && let Some(o) = &self.options
        {
            let mut h = DefaultHasher::new();
            o.hash(&mut h);
            key.options = h.finish();
        }
        for (slot, a) in key.facts.iter_mut().zip(&self.args) {
            *slot = a.facts();
        }
        key
    }
}

impl<B: Options, const D: usize, const N: usize> BuildKernel for Launch<'_, B, D, N> {
    fn build_kernel(&self) -> Result<Kernel, BuildError> {
        let dims = self.dims.as_ref().map_or(&[][..], |d| d);
        let types = |i: usize, _: &ParamInfo| self.args[i].ir_type();
        let mut kernel = info::build(self.info, self.body, self.options.as_ref(), dims, types)?;
        if let Some(warps) = self.warps {
            kernel.set_warps(warps);
        }
        Ok(kernel)
    }
}

/// What `.grid(..)` takes: one, two or three numbers of programs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grid",
    note = "a grid is `n`, `[n, m]` or `[n, m, l]`, of `usize`, `u32` or `i32`"
)]
pub trait Grid {
    /// Programs along the three axes. Negative counts as 0, too large as `u32::MAX`.
    fn axes(self) -> [u32; 3];
}

macro_rules! grids { ($($t:ty)*) => {$(
    impl Grid for $t { fn axes(self) -> [u32; 3] { [self].axes() } }
    impl Grid for [$t; 1] { fn axes(self) -> [u32; 3] { [self[0], 1, 1].axes() } }
    impl Grid for [$t; 2] { fn axes(self) -> [u32; 3] { [self[0], self[1], 1].axes() } }
    impl Grid for [$t; 3] { fn axes(self) -> [u32; 3] { self.map(|n| (n as i128).clamp(0, u32::MAX as i128) as u32) } }
)*} }
grids! { usize u32 i32 }

macro_rules! dims { ($($d:literal: $($n:ident)+;)*) => {$(
    impl<'a, B: Options, const N: usize> Launch<'a, B, $d, N> {
        /// The values of the kernel's dims, in the order in which it declares them.
        pub fn dims(self, $($n: usize),+) -> Self { self.with_dims([$($n),+]) }
    }
)*} }
dims! { 1: a; 2: a b; 3: a b c; 4: a b c d; 5: a b c d e; 6: a b c d e f; 7: a b c d e f g; 8: a b c d e f g h; }
