//! Arguments: what a host value becomes for a launch.

use super::info::{ParamInfo, ParamKind};
use crate::elem::Elem;
use crate::tile::Scalar;
use std::any::Any;
use std::marker::PhantomData;
use tegula_ir::layout::Layout;
use tegula_ir::{Elem as IrElem, PackedType, Quant, Type, ViewFacts, ViewType};

/// Most axes of a view.
pub const MAX_RANK: usize = 4;

/// A host value that can be passed for a kernel parameter of type `P`. For tensors the runtime implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the kernel parameter `{P}`",
    label = "wrong argument",
    note = "a `View<T, R>` takes `&Tensor<T>`, a `ViewMut<T, R>` takes `&mut Tensor<T>`, a `Packed<Q>` takes a packed tensor, a `Scalar<T>` (that is `Tile<T, ()>`) takes `T`"
)]
pub trait Arg<'a, P> {
    /// The argument as data.
    fn arg(self) -> ArgData<'a>;
}

impl<'a, T: Elem> Arg<'a, Scalar<T>> for T {
    fn arg(self) -> ArgData<'a> {
        ArgData::Scalar { elem: T::ELEM, bits: self.bits() }
    }
}

/// An argument. It borrows what it points to for `'a`.
#[derive(Clone, Copy, Debug)]
pub enum ArgData<'a> {
    /// For a `View` or `ViewMut`.
    View(ViewArg<'a>),
    /// For a `Scalar`.
    Scalar {
        /// Element type.
        elem: IrElem,
        /// Bit pattern, zero-extended.
        bits: u64,
    },
    /// For a `Packed`.
    Packed(PackedArg<'a>),
}

/// A strided array in memory. Axes beyond `rank` are unused.
#[derive(Clone, Copy, Debug)]
pub struct ViewArg<'a> {
    /// Address of element (0, …, 0), in the executor's memory.
    pub ptr: *mut u8,
    /// Element type.
    pub elem: IrElem,
    /// Whether it may be written.
    pub mutable: bool,
    /// Number of axes.
    pub rank: u8,
    /// Extents in elements.
    pub extents: [i64; MAX_RANK],
    /// Strides in elements.
    pub strides: [i64; MAX_RANK],
    /// What keeps the memory alive, for executors that finish later.
    pub owner: Option<&'a (dyn Any + Send + Sync)>,
    /// The memory is borrowed.
    pub borrow: PhantomData<&'a [u8]>,
}

/// A packed matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct PackedArg<'a> {
    /// Address of the packed bytes.
    pub ptr: *const u8,
    /// Rows (the contracted axis).
    pub k: i64,
    /// Columns.
    pub n: i64,
    /// What the blocks mean.
    pub quant: Quant,
    /// How they lie in memory.
    pub layout: Layout,
    /// What keeps the memory alive, for executors that finish later.
    pub owner: Option<&'a (dyn Any + Send + Sync)>,
    /// The memory is borrowed.
    pub borrow: PhantomData<&'a [u8]>,
}

impl ViewArg<'_> {
    /// What this launch guarantees of the view.
    pub fn view_facts(&self) -> ViewFacts {
        let rank = self.rank as usize;
        let bytes = self.elem.bytes() as i64;
        let (mut align16, mut small) = ((self.ptr as usize).is_multiple_of(16), true);
        let mut span = bytes;
        for i in 0..rank {
            let stride = self.strides[i].saturating_mul(bytes);
            align16 &= i + 1 == rank || stride % 16 == 0;
            span = span.saturating_add(stride.saturating_abs().saturating_mul((self.extents[i] - 1).max(0)));
            small &= self.extents[i] < 1 << 31;
        }
        let unit = rank == 0 || self.strides[rank - 1] == 1;
        ViewFacts { unit, align16, small: small && span < 1 << 31 }
    }
}

impl ArgData<'_> {
    /// What is specialised on, in one byte.
    pub(super) fn facts(&self) -> u8 {
        match self {
            ArgData::View(v) => {
                let f = v.view_facts();
                f.unit as u8 | (f.align16 as u8) << 1 | (f.small as u8) << 2
            }
            ArgData::Scalar { .. } => 0,
            ArgData::Packed(p) => p.quant as u8 | (p.layout as u8) << 5,
        }
    }

    /// The parameter's type in the IR of this launch.
    pub fn ir_type(&self) -> Type {
        match self {
            ArgData::View(v) => {
                Type::View(ViewType { elem: v.elem, rank: v.rank as usize, mutable: v.mutable, facts: v.view_facts() })
            }
            ArgData::Scalar { elem, .. } => Type::scalar(*elem),
            ArgData::Packed(p) => Type::Packed(PackedType { quant: p.quant, layout: p.layout.name().into() }),
        }
    }

    /// Whether this fits the parameter: otherwise what was expected, and found.
    pub(super) fn check(&self, param: &ParamInfo) -> Result<(), (String, String)> {
        let wrong = |found: String| Err((param.kind.to_string(), found));
        match (self, param.kind) {
            (ArgData::View(v), ParamKind::View { elem, rank, mutable }) => {
                if v.elem != elem || v.rank as usize != rank || (mutable && !v.mutable) {
                    return wrong(format!(
                        "{} `{}` of rank {}",
                        if v.mutable { "a writable tensor of" } else { "a tensor of" },
                        v.elem,
                        v.rank
                    ));
                }
                match v.extents[..rank].iter().find(|n| !(0..1 << 31).contains(*n)) {
                    Some(n) => Err(("extents below 2^31".into(), format!("an extent of {n}"))),
                    None => Ok(()),
                }
            }
            (ArgData::Scalar { elem: e, .. }, ParamKind::Scalar { elem }) if *e == elem => Ok(()),
            (ArgData::Packed(p), ParamKind::Packed { quant }) => {
                if quant.is_some_and(|q| q != p.quant) {
                    return wrong(format!("a packed matrix of `{}`", p.quant));
                }
                match [p.k, p.n].into_iter().find(|n| !(0..1 << 31).contains(n)) {
                    Some(n) => Err(("extents below 2^31".into(), format!("an extent of {n}"))),
                    None => Ok(()),
                }
            }
            (ArgData::View(v), _) => wrong(format!("a tensor of `{}` of rank {}", v.elem, v.rank)),
            (ArgData::Scalar { elem, .. }, _) => wrong(format!("a scalar of `{elem}`")),
            (ArgData::Packed(p), _) => wrong(format!("a packed matrix of `{}`", p.quant)),
        }
    }
}
