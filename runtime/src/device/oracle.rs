//! The oracle as a device: executes the IR by its definition, one program after the other. For tests, and to look into a
//! kernel that is wrong.

use super::{DeviceError, Printer, Program, Target, report};
use crate::memory::Buffer;
use std::sync::Arc;
use tegula_ir::{
    Kernel, Scalar,
    layout::Layout,
    oracle::{self, OracleArg, Order},
};
use tegula_lang::launch::ArgData;

/// What the oracle checks besides assertions.
#[derive(Clone, Default)]
pub struct OracleOptions {
    /// Report reads of memory that nothing has written (see [`crate::Tensor::empty`]) and races between programs.
    pub sanitize: bool,
    /// Check all launches, as `.checked()` does: indices out of range, divisions without a result.
    pub checked: bool,
    /// In which order the programs run.
    pub order: Order,
    /// Where prints go; standard output without.
    pub on_print: Option<Printer>,
}

/// The oracle.
pub struct Oracle {
    options: OracleOptions,
}

impl Oracle {
    /// An oracle.
    pub fn new(options: OracleOptions) -> Oracle {
        Oracle { options }
    }
}

impl Target for Oracle {
    fn name(&self) -> String {
        "oracle".into()
    }

    // It reads every layout. Weights are packed as for the CPU, so that the same tensors serve both.
    fn layout(&self) -> Layout {
        Layout::Panel16
    }

    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError> {
        let options = oracle::Options {
            sanitize: self.options.sanitize,
            checked: checked || self.options.checked,
            order: self.options.order.clone(),
            step_limit: None,
        };
        Ok(Arc::new(Interpreted { kernel: kernel.clone(), options, on_print: self.options.on_print.clone() }))
    }
}

struct Interpreted {
    kernel: Kernel,
    options: oracle::Options,
    on_print: Option<Printer>,
}

impl Program for Interpreted {
    unsafe fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        let mut words: Vec<OracleArg<'_>> = args.iter().map(argument).collect();
        for arg in args {
            if let ArgData::View(v) = arg
                && v.mutable
                && let Some(buffer) = v.owner.and_then(|o| o.downcast_ref::<Arc<Buffer>>())
            {
                buffer.set_written(true);
            }
        }
        let report = oracle::run(&self.kernel, &mut words, grid, &self.options).map_err(Box::new)?;
        for p in &report.printed {
            let line = format!("{}: program {} {:?}: {}", p.loc, p.program.id, p.program.at, p.text);
            report::say(self.on_print.as_ref(), &line);
        }
        Ok(())
    }
}

fn argument<'a>(arg: &ArgData<'a>) -> OracleArg<'a> {
    match arg {
        ArgData::Scalar { elem, bits } => OracleArg::Scalar(Scalar::from_bits(*elem, *bits)),
        ArgData::Packed(p) => {
            let (k, n) = (p.k as usize, p.n as usize);
            let len = p.layout.bytes(p.quant, k, n).unwrap_or(0);
            // SAFETY: the bytes that its layout asks for, which the argument borrows.
            let bytes = unsafe { std::slice::from_raw_parts(p.ptr, len) };
            OracleArg::Packed(oracle::PackedArg { bytes, k, n, quant: p.quant, layout: p.layout })
        }
        ArgData::View(v) => {
            let rank = v.rank as usize;
            let (extents, strides) = (&v.extents[..rank], &v.strides[..rank]);
            let last = extents.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum::<i64>();
            let elements = if extents.contains(&0) { 0 } else { last + 1 };
            // SAFETY: the view's elements, from its first to its last, which the argument borrows.
            let view = unsafe { oracle::ViewArg::from_raw(v.ptr, elements as usize * v.elem.bytes(), v.elem, extents) };
            let view = view.strides(strides);
            let buffer = v.owner.and_then(|o| o.downcast_ref::<Arc<Buffer>>());
            OracleArg::View(if buffer.is_some_and(|b| !b.written()) { view.unwritten() } else { view })
        }
    }
}
