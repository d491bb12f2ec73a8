//! How many warps run a program when its author does not say.

use super::{Layouts, Pressure, assign, pressure::registers_on};
use crate::{kernel::Kernel, ops::OpKind, verify::VerifyError};

/// Most warps that are taken so that more threads work; more are for registers.
const BUSY: usize = 4;

/// Warps beyond which a thread may use fewer registers, so that nothing is gained.
const WIDEST: usize = 8;

/// The kernel with layouts, on as many warps as its largest tile keeps busy, a vector of memory or an output of a product
/// a thread; or on more, if its tiles do not fit in the registers of those.
pub(super) fn fitting(k: &Kernel) -> Result<Kernel, VerifyError> {
    let mut warps = (busy(k) / 32).clamp(1, BUSY).next_power_of_two();
    loop {
        let mut with = k.clone();
        with.set_warps(warps);
        assign(&mut with)?;
        let tiles = Pressure::of(&with, &Layouts::of(&with)?).registers;
        // A third for addresses, counters and what ops need for themselves.
        if tiles <= registers_on(warps) * 2 / 3 || warps >= WIDEST {
            return Ok(with);
        }
        warps *= 2;
    }
}

/// Threads that the widest op of a kernel can keep busy.
fn busy(k: &Kernel) -> usize {
    let mut most = 1;
    k.body.walk(&mut |op| {
        for t in op.results.iter().filter_map(|v| k.ty(*v).as_tile()) {
            most = most.max(match op.kind {
                OpKind::Dot | OpKind::DotGrouped => t.len(),
                _ => t.len() * t.elem.bytes() / 16,
            });
        }
    });
    most
}
