//! What is known of a kernel at compile time, and how its parameters are made when it is built.

use crate::context::{self, DimValue, Handle};
use crate::elem::Elem;
use crate::error::BuildError;
use crate::packed::{Format, Packed};
use crate::tile::Scalar;
use crate::view::{View, ViewMut};
use std::any::TypeId;
use std::fmt;
use tegula_ir::{Elem as IrElem, Kernel, Quant, Type};

/// A kernel.
#[derive(Debug)]
pub struct KernelInfo {
    /// Its name with its module.
    pub name: &'static str,
    /// Its parameters, without the `#[build]` parameter.
    pub params: &'static [ParamInfo],
    /// Names of its dims.
    pub dims: &'static [&'static str],
    /// Types that stand for its dims.
    #[doc(hidden)]
    pub tags: &'static [TypeId],
    /// Name of its `#[build]` parameter.
    pub options: Option<&'static str>,
}

/// A parameter.
#[derive(Debug)]
pub struct ParamInfo {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
}

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A tensor.
    View {
        /// Element type.
        elem: IrElem,
        /// Number of axes.
        rank: usize,
        /// Whether the kernel writes it.
        mutable: bool,
    },
    /// A number.
    Scalar {
        /// Element type.
        elem: IrElem,
    },
    /// A packed matrix, of any format if none is named.
    Packed {
        /// Format.
        quant: Option<Quant>,
    },
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::View { elem, rank, mutable: false } => write!(f, "a tensor of `{elem}` of rank {rank}"),
            ParamKind::View { elem, rank, mutable: true } => write!(f, "a writable tensor of `{elem}` of rank {rank}"),
            ParamKind::Scalar { elem } => write!(f, "a scalar of `{elem}`"),
            ParamKind::Packed { quant: Some(q) } => write!(f, "a packed matrix of `{q}`"),
            ParamKind::Packed { quant: None } => f.write_str("a packed matrix"),
        }
    }
}

/// A type that a kernel parameter may have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel parameter",
    label = "not a kernel parameter",
    note = "parameters are `View<T, R>`, `ViewMut<T, R>`, `Packed<Q>` and `Scalar<T>`; a build-time value is a `const` generic or the `#[build]` parameter"
)]
pub trait Param: Copy {
    /// What it takes.
    const KIND: ParamKind;
    #[doc(hidden)]
    fn from_handle(h: Handle) -> Self;
}

/// The rank of a view, if kernels take such.
const fn rank<const R: usize>() -> usize {
    assert!(R >= 1 && R <= super::MAX_RANK, "a view has 1 to 4 axes; a single value is a `Scalar` parameter");
    R
}

impl<T: Elem, const R: usize> Param for View<T, R> {
    const KIND: ParamKind = ParamKind::View { elem: T::ELEM, rank: rank::<R>(), mutable: false };
    fn from_handle(h: Handle) -> Self {
        View::new(h)
    }
}
impl<T: Elem, const R: usize> Param for ViewMut<T, R> {
    const KIND: ParamKind = ParamKind::View { elem: T::ELEM, rank: rank::<R>(), mutable: true };
    fn from_handle(h: Handle) -> Self {
        ViewMut::new(h)
    }
}
impl<T: Elem> Param for Scalar<T> {
    const KIND: ParamKind = ParamKind::Scalar { elem: T::ELEM };
    fn from_handle(h: Handle) -> Self {
        Scalar::new(h)
    }
}
impl<Q: Format> Param for Packed<Q> {
    const KIND: ParamKind = ParamKind::Packed { quant: Q::QUANT };
    fn from_handle(h: Handle) -> Self {
        Packed::new(h)
    }
}

/// The function that `#[kernel]` makes of a kernel's body: it takes its parameters from [`Params`].
pub type Instance<B> = fn(&mut Params, Option<&B>);

/// The parameters of the kernel being built.
pub struct Params {
    handles: std::vec::IntoIter<Handle>,
}

impl Params {
    /// The next one.
    #[doc(hidden)]
    pub fn take<P: Param>(&mut self) -> P {
        match self.handles.next() {
            Some(h) => P::from_handle(h),
            // The macro takes as many as KernelInfo names, and `build` makes as many.
            None => unreachable!("more parameters taken than declared"),
        }
    }
}

pub(super) fn build<B>(
    info: &'static KernelInfo,
    body: Instance<B>,
    options: Option<&B>,
    dims: &[usize],
    types: impl Fn(usize, &ParamInfo) -> Type,
) -> Result<Kernel, BuildError> {
    let dims = info
        .tags
        .iter()
        .zip(info.dims)
        .zip(dims)
        .map(|((&tag, &name), &extent)| DimValue { tag, name, extent })
        .collect();
    context::build_with(info.name, dims, || {
        let handles = info
            .params
            .iter()
            .enumerate()
            .map(|(i, p)| context::with(|c| c.param(p.name, types(i, p))))
            .collect::<Vec<_>>();
        body(&mut Params { handles: handles.into_iter() }, options);
    })
}
