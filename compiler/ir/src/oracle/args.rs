//! Arguments of a run, and whether they fit the kernel's parameters.

use super::error::Fault;
use crate::{
    elem::{Elem, Quant},
    kernel::Kernel,
    layout::Layout,
    scalar::Scalar,
    types::{Type, ViewType},
};
use std::marker::PhantomData;

/// A kernel argument.
#[derive(Debug)]
pub enum OracleArg<'a> {
    /// For a view parameter.
    View(ViewArg<'a>),
    /// For a scalar parameter.
    Scalar(Scalar),
    /// For a packed parameter.
    Packed(PackedArg<'a>),
}

/// A strided array over raw bytes. Arguments may share memory.
#[derive(Debug)]
pub struct ViewArg<'a> {
    pub(super) start: *mut u8,
    pub(super) len: usize,
    pub(super) writable: bool,
    pub(super) elem: Elem,
    pub(super) extents: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) unwritten: bool,
    lifetime: PhantomData<&'a mut [u8]>,
}

/// A packed matrix.
#[derive(Clone, Debug)]
pub struct PackedArg<'a> {
    /// Its bytes in `layout`.
    pub bytes: &'a [u8],
    /// Rows: the contracted axis.
    pub k: usize,
    /// Columns: the outputs.
    pub n: usize,
    /// What the blocks mean.
    pub quant: Quant,
    /// How they lie.
    pub layout: Layout,
}

impl<'a> ViewArg<'a> {
    /// A contiguous row-major array in bytes that the kernel only reads.
    pub fn read(bytes: &'a [u8], elem: Elem, extents: &[i64]) -> ViewArg<'a> {
        ViewArg { writable: false, ..ViewArg::over(bytes.as_ptr().cast_mut(), bytes.len(), elem, extents) }
    }
    /// A contiguous row-major array in bytes that the kernel may write.
    pub fn write(bytes: &'a mut [u8], elem: Elem, extents: &[i64]) -> ViewArg<'a> {
        ViewArg::over(bytes.as_mut_ptr(), bytes.len(), elem, extents)
    }
    /// A contiguous row-major array in raw memory.
    ///
    /// # Safety
    /// For as long as the argument is used, the `len` bytes from `start` must be valid for reads and, if the kernel's
    /// parameter is mutable, for writes; nobody else may write them meanwhile. Several arguments may overlap.
    pub unsafe fn from_raw(start: *mut u8, len: usize, elem: Elem, extents: &[i64]) -> ViewArg<'a> {
        ViewArg::over(start, len, elem, extents)
    }
    fn over(start: *mut u8, len: usize, elem: Elem, extents: &[i64]) -> ViewArg<'a> {
        let mut strides = vec![1i64; extents.len()];
        for d in (1..extents.len()).rev() {
            strides[d - 1] = strides[d].wrapping_mul(extents[d]);
        }
        ViewArg {
            start,
            len,
            writable: true,
            elem,
            extents: extents.to_vec(),
            strides,
            unwritten: false,
            lifetime: PhantomData,
        }
    }
    /// Other strides, in elements.
    pub fn strides(mut self, strides: &[i64]) -> ViewArg<'a> {
        self.strides = strides.to_vec();
        self
    }
    /// The memory holds nothing yet: with the sanitizer, reading an element before a program wrote it is an error.
    pub fn unwritten(mut self) -> ViewArg<'a> {
        self.unwritten = true;
        self
    }
}

/// What every argument must be; the first that is not is the error.
pub(super) fn check(kernel: &Kernel, args: &[OracleArg<'_>]) -> Result<(), Fault> {
    if args.len() != kernel.params.len() {
        let message = format!("the kernel has {} parameters, found {} arguments", kernel.params.len(), args.len());
        return Err(Fault::Argument { name: String::new(), message });
    }
    for ((name, &value), arg) in kernel.params.iter().zip(&kernel.body.args).zip(args) {
        fits(kernel.ty(value), arg).map_err(|message| Fault::Argument { name: name.clone(), message })?;
    }
    Ok(())
}

fn fits(ty: &Type, arg: &OracleArg<'_>) -> Result<(), String> {
    match (ty, arg) {
        (Type::View(t), OracleArg::View(v)) => view(t, v),
        (Type::Tile(t), OracleArg::Scalar(s)) if t.shape.is_empty() => {
            if t.elem == s.elem {
                Ok(())
            } else {
                Err(format!("expected a scalar of `{}`, found `{}`", t.elem, s.elem))
            }
        }
        (Type::Packed(t), OracleArg::Packed(p)) => {
            if t.quant != p.quant || t.layout != p.layout.name() {
                return Err(format!("expected `{ty}`, found `packed<{}, {}>`", p.quant, p.layout.name()));
            }
            match p.layout.bytes(p.quant, p.k, p.n) {
                Some(n) if n <= p.bytes.len() && p.k.max(p.n) <= i32::MAX as usize => Ok(()),
                Some(n) => Err(format!("a {} × {} matrix takes {n} bytes, found {}", p.k, p.n, p.bytes.len())),
                None => Err(format!("K = {} is no multiple of the block of `{}` ({})", p.k, p.quant, p.quant.block())),
            }
        }
        (Type::Tile(_) | Type::QTile(_), _) => Err(format!("expected an argument of type `{ty}`")),
        (Type::View(_), _) => Err(format!("expected a view, `{ty}`")),
        (Type::Packed(_), _) => Err(format!("expected a packed matrix, `{ty}`")),
    }
}

fn view(t: &ViewType, v: &ViewArg<'_>) -> Result<(), String> {
    if t.elem != v.elem {
        return Err(format!("expected elements of `{}`, found `{}`", t.elem, v.elem));
    }
    if t.rank != v.extents.len() || t.rank != v.strides.len() {
        return Err(format!("expected {} axes, found extents {:?} and strides {:?}", t.rank, v.extents, v.strides));
    }
    if t.mutable && !v.writable {
        return Err("the kernel writes it, and the memory is read-only".into());
    }
    if let Some(n) = v.extents.iter().find(|n| !(0..=i64::from(i32::MAX)).contains(*n)) {
        return Err(format!("an extent must lie between 0 and 2^31 - 1, found {n}"));
    }
    let bytes = v.elem.bytes() as i128;
    let reach = |sign: i128| -> i128 {
        let steps = v.extents.iter().zip(&v.strides).map(|(&n, &s)| (i128::from(n - 1) * i128::from(s) * sign).max(0));
        steps.sum::<i128>() * bytes
    };
    let empty = v.extents.contains(&0);
    if !empty && (reach(-1) > 0 || reach(1) + bytes > v.len as i128) {
        let (from, to) = (-reach(-1), reach(1) + bytes);
        return Err(format!(
            "extents {:?} with strides {:?} reach bytes {from}..{to} of {}",
            v.extents, v.strides, v.len
        ));
    }
    let inner = v.strides.last();
    if t.facts.unit && inner.is_some_and(|&s| s != 1) {
        return Err(format!("the innermost stride must be 1, found strides {:?}", v.strides));
    }
    let rows = &v.strides[..v.strides.len().saturating_sub(1)];
    if t.facts.align16
        && (!(v.start as usize).is_multiple_of(16) || rows.iter().any(|&s| i128::from(s) * bytes % 16 != 0))
    {
        return Err(format!("address and row strides must be divisible by 16 bytes, found strides {:?}", v.strides));
    }
    if t.facts.small && !empty && reach(1) >= 1 << 31 {
        return Err("byte offsets must lie below 2^31".into());
    }
    Ok(())
}
