//! Arguments in the emulated device's memory. A view's bytes, from its first to its last element, are lent to the device
//! where they are: views of one tensor may interleave, which copies could not. What lies beyond is out of bounds.

use crate::memory::Buffer;
use std::sync::Arc;
use tegula_lang::launch::{ArgData, ViewArg};
use tegula_ptx::{Memory, Param};

/// The buffer of a view of a tensor.
pub(super) fn buffer<'a>(view: &ViewArg<'a>) -> Option<&'a Arc<Buffer>> {
    view.owner.and_then(|o| o.downcast_ref::<Arc<Buffer>>())
}

/// Lends the arguments to the device and gives the kernel's parameters; `fresh` says of each argument whether nothing was
/// ever written to it. See [`tegula_ir::abi`].
///
/// # Safety
/// As for [`Memory::map`], for the memory of all arguments.
pub(super) unsafe fn lend(memory: &mut Memory, args: &[ArgData<'_>], names: &[String], fresh: &[bool]) -> Vec<Param> {
    let mut params = vec![];
    for (i, arg) in args.iter().enumerate() {
        let name = names.get(i).map_or("?", String::as_str);
        match arg {
            ArgData::Scalar { bits, .. } => params.push(Param::U64(*bits)),
            ArgData::View(v) => {
                let (before, bytes) = span(v);
                // SAFETY: a view's elements are inside its memory, hence all between them; the rest is the caller's.
                let first = unsafe { memory.map(name, v.ptr.sub(before), bytes, !v.mutable, !fresh[i]) };
                params.push(Param::U64(first + before as u64));
                let rank = v.rank as usize;
                params.extend(v.extents[..rank].iter().chain(&v.strides[..rank]).map(|n| Param::I64(*n)));
            }
            ArgData::Packed(p) => {
                let bytes = p.layout.bytes(p.quant, p.k as usize, p.n as usize).unwrap_or(0);
                // SAFETY: the bytes that its layout asks for; they are not written.
                let first = unsafe { memory.map(name, p.ptr.cast_mut(), bytes, true, true) };
                params.extend([Param::U64(first), Param::I64(p.k), Param::I64(p.n)]);
            }
        }
    }
    params
}

/// Bytes of a view before its element (0, …, 0), where strides are negative, and from its first to its last.
pub(in crate::device) fn span(v: &ViewArg<'_>) -> (usize, usize) {
    let rank = v.rank as usize;
    if v.extents[..rank].contains(&0) {
        return (0, 0);
    }
    let (mut low, mut high) = (0, 0);
    for (n, s) in v.extents[..rank].iter().zip(&v.strides[..rank]) {
        let reach = (n - 1) * s;
        if reach < 0 { low -= reach } else { high += reach }
    }
    let size = v.elem.bytes();
    (low as usize * size, (low + high + 1) as usize * size)
}

/// Bytes of all elements of the mutable views, argument after argument in row-major order: those of others between them
/// are not touched.
///
/// # Safety
/// The views are valid, and nobody writes them meanwhile.
pub(super) unsafe fn save(args: &[ArgData<'_>]) -> Vec<Vec<u8>> {
    let saved = args.iter().map(|arg| {
        let mut bytes = vec![];
        // SAFETY: runs of elements of a valid view.
        each_run(arg, &mut |ptr, n| bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(ptr, n) }));
        bytes
    });
    saved.collect()
}

/// Puts back what [`save`] gave.
///
/// # Safety
/// As for [`save`], and nobody reads them either.
pub(super) unsafe fn restore(args: &[ArgData<'_>], saved: &[Vec<u8>]) {
    for (arg, bytes) in args.iter().zip(saved) {
        let mut rest = &bytes[..];
        each_run(arg, &mut |ptr, n| {
            let (run, after) = rest.split_at(n.min(rest.len()));
            // SAFETY: a run of elements of a valid mutable view, of n bytes or more.
            unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), ptr, run.len()) };
            rest = after;
        });
    }
}

/// Calls `f` with the runs of contiguous bytes of a mutable view, in row-major order.
pub(in crate::device) fn each_run(arg: &ArgData<'_>, f: &mut impl FnMut(*mut u8, usize)) {
    if let ArgData::View(v) = arg
        && v.mutable
    {
        view_runs(v, f);
    }
}

/// Calls `f` with the runs of contiguous bytes of a view, in row-major order.
pub(in crate::device) fn view_runs(v: &ViewArg<'_>, f: &mut impl FnMut(*mut u8, usize)) {
    let rank = v.rank as usize;
    runs(v.ptr, &v.extents[..rank], &v.strides[..rank], v.elem.bytes(), f);
}

fn runs(ptr: *mut u8, extents: &[i64], strides: &[i64], size: usize, f: &mut impl FnMut(*mut u8, usize)) {
    match (extents, strides) {
        ([n], [1]) => f(ptr, *n as usize * size),
        ([n, inner @ ..], [s, steps @ ..]) => {
            for i in 0..*n {
                runs(ptr.wrapping_offset((i * s) as isize * size as isize), inner, steps, size, f);
            }
        }
        _ => f(ptr, size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::marker::PhantomData;
    use tegula_ir::Elem;

    fn view(ptr: *mut u8, extents: &[i64], strides: &[i64]) -> ViewArg<'static> {
        let mut v = ViewArg {
            ptr,
            elem: Elem::I16,
            mutable: true,
            rank: extents.len() as u8,
            extents: Default::default(),
            strides: Default::default(),
            owner: None,
            borrow: PhantomData,
        };
        v.extents[..extents.len()].copy_from_slice(extents);
        v.strides[..strides.len()].copy_from_slice(strides);
        v
    }

    #[test]
    fn spans_reach_from_the_first_to_the_last_element() {
        let none = std::ptr::null_mut();
        assert_eq!(span(&view(none, &[], &[])), (0, 2));
        assert_eq!(span(&view(none, &[5], &[1])), (0, 10));
        assert_eq!(span(&view(none, &[5, 3], &[7, 2])), (0, 2 * (28 + 4 + 1)));
        assert_eq!(span(&view(none, &[5, 3], &[-7, 2])), (56, 2 * (28 + 4 + 1)));
        assert_eq!(span(&view(none, &[5, 0], &[7, 1])), (0, 0));
        assert_eq!(span(&view(none, &[4], &[0])), (0, 2));
    }

    #[test]
    fn saving_and_restoring_touch_the_elements_alone() {
        let mut data: Vec<i16> = (0..40).collect();
        let ptr = data.as_mut_ptr().cast::<u8>();
        // Rows 0..3 of a [5, 8] array, every second column from 1; and its last row, backwards.
        let args = [
            ArgData::View(view(ptr.wrapping_add(2), &[3, 3], &[8, 2])),
            ArgData::View(view(ptr.wrapping_add(78), &[8], &[-1])),
        ];
        let of = |bytes: &[u8]| bytes.chunks(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect::<Vec<_>>();
        // SAFETY: both views are inside the vector, which nobody else uses.
        let saved = unsafe { save(&args) };
        assert_eq!(of(&saved[0]), [1, 3, 5, 9, 11, 13, 17, 19, 21]);
        assert_eq!(of(&saved[1]), [39, 38, 37, 36, 35, 34, 33, 32]);
        for i in 0..40 {
            // SAFETY: inside the vector.
            unsafe { ptr.cast::<i16>().add(i).write(-1) };
        }
        // SAFETY: as above.
        unsafe { restore(&args, &saved) };
        let expected = |i: usize| {
            let kept = i >= 32 || (i / 8 < 3 && i % 2 == 1 && i % 8 < 6);
            if kept { i as i16 } else { -1 }
        };
        assert_eq!(data, (0..40).map(expected).collect::<Vec<_>>());
    }
}
