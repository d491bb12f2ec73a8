//! Arguments in the host's memory: copied to the GPU for one launch, and back if they are written. Convenient, and slow:
//! tensors that several launches use belong on the GPU. Elements alone are read and written: what lies between those of a
//! strided view may be another thread's.

use super::super::{CudaError, Memory, Stream};
use crate::device::{
    emulated::memory::{each_run, span, view_runs},
    place,
};
use std::sync::Arc;
use tegula_lang::launch::ArgData;

/// The copies of a launch's arguments.
pub(super) struct HostArgs {
    args: Vec<Option<Copied>>,
}

/// One argument's bytes, from the first to the last that it reaches.
struct Copied {
    memory: Memory,
    /// Where they begin in `memory`: as far from an aligned address as on the host, which the kernel may rely on.
    skew: usize,
    /// The address of element (0, …, 0).
    address: u64,
    start: *mut u8,
    bytes: usize,
}

/// So far do alignments matter, in bytes.
const ALIGN: usize = 256;

impl HostArgs {
    /// Copies what lies on the host.
    ///
    /// # Safety
    /// Those arguments are valid.
    pub unsafe fn copy_in(stream: &Arc<Stream>, args: &[ArgData<'_>]) -> Result<HostArgs, CudaError> {
        let copy = |arg: &ArgData<'_>| -> Result<Option<Copied>, CudaError> {
            if place::buffer(arg).is_some_and(|b| b.remote().is_some()) {
                return Ok(None);
            }
            let (first, before, bytes) = match arg {
                ArgData::Scalar { .. } => return Ok(None),
                ArgData::View(v) => {
                    let (before, bytes) = span(v);
                    (v.ptr.wrapping_sub(before), before, bytes)
                }
                ArgData::Packed(p) => {
                    let bytes = p.layout.bytes(p.quant, p.k as usize, p.n as usize).unwrap_or(0);
                    (p.ptr.cast_mut(), 0, bytes)
                }
            };
            let mut elements = vec![0; bytes];
            let mut gather = |from: *mut u8, n: usize| {
                let at = from.addr() - first.addr();
                // SAFETY: a run of elements of a valid argument, inside its bytes.
                unsafe { std::ptr::copy_nonoverlapping(from, elements[at..at + n].as_mut_ptr(), n) };
            };
            match arg {
                ArgData::View(v) if bytes > 0 => view_runs(v, &mut gather),
                _ => gather(first, bytes),
            }
            let skew = first.addr() % ALIGN;
            let memory = Memory::new(stream, skew + bytes)?;
            if bytes > 0 {
                memory.write(stream, skew, &elements)?;
            }
            let address = memory.address() + (skew + before) as u64;
            Ok(Some(Copied { memory, skew, address, start: first, bytes }))
        };
        Ok(HostArgs { args: args.iter().map(copy).collect::<Result<_, _>>()? })
    }

    /// The address on the GPU of argument `i`, if it is the host's.
    pub fn address(&self, i: usize) -> Option<u64> {
        Some(self.args.get(i)?.as_ref()?.address)
    }

    /// Copies the elements of mutable views back, and nothing between them.
    ///
    /// # Safety
    /// They are valid, and the kernel is done.
    pub unsafe fn copy_out(&self, stream: &Stream, args: &[ArgData<'_>]) -> Result<(), CudaError> {
        for (arg, copied) in args.iter().zip(&self.args) {
            let Some(c) = copied.as_ref().filter(|c| c.bytes > 0) else { continue };
            if !matches!(arg, ArgData::View(v) if v.mutable) {
                continue;
            }
            let mut bytes = vec![0; c.bytes];
            c.memory.read(stream, c.skew, &mut bytes)?;
            each_run(arg, &mut |to, n| {
                let at = to.addr() - c.start.addr();
                // SAFETY: a run of elements of a valid mutable view.
                unsafe { std::ptr::copy_nonoverlapping(bytes[at..at + n].as_ptr(), to, n) };
            });
        }
        Ok(())
    }
}
