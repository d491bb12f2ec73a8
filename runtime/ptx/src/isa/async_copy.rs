//! cp.async: copies of 4, 8 or 16 bytes from global to shared memory, in groups.

use super::control::Nothing;
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        async_copy::Copy,
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        regs::{PredIn, Slot},
    },
    mem::{
        Space,
        access::{Address, Request, locate},
        watch::{Order, Touch},
    },
    text::ast::Operand,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("cp.async", "ca|cg shared|shared::cta global L2::cache_hint L2::64B|L2::128B|L2::256B", Kind::AsyncCopy, copy),
    form("cp.async.wait_group", "", Kind::AsyncCopy, wait),
    form("cp.async.wait_all", "", Kind::AsyncCopy, wait_all),
    form("griddepcontrol", "launch_dependents|wait", Kind::Fence, |b| b.op(Nothing)),
];

struct CopyOp {
    to: Address,
    from: Address,
    bytes: usize,
    /// Bytes to read; the rest is zero.
    source: Option<Slot>,
    /// Lanes that read nothing and write zeros.
    ignore: Option<PredIn>,
}

impl Op for CopyOp {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let ignore = self.ignore.map_or(0, |p| cx.warp.regs.pred_in(p));
        let mut sizes = [self.bytes; 32];
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            if let Some(slot) = self.source {
                let n = cx.warp.regs.lane::<u32>(slot, lane) as usize;
                if n > self.bytes {
                    let message = format!("cp.async of {} bytes with a source size of {n}", self.bytes);
                    return Err(Fault::new(FaultKind::Operand, message).at_lane(lane));
                }
                sizes[lane] = n;
            }
            if ignore >> lane & 1 == 1 {
                sizes[lane] = 0;
            }
        }
        let bytes = self.bytes;
        // Sources are read only as far as asked: lanes by their size, usually two classes, all or nothing.
        let mut from = [std::ptr::null::<u8>(); 32];
        let mut left = (0..32).fold(0u32, |m, l| m | ((sizes[l] > 0) as u32) << l) & mask;
        while left != 0 {
            let size = sizes[left.trailing_zeros() as usize & 31];
            let class = (0..32).fold(0u32, |m, l| m | ((sizes[l] == size) as u32) << l) & left;
            left &= !class;
            let request = Request { space: Space::Global, bytes: size, align: bytes, touch: Touch::Read };
            let at = locate(cx, class, self.from, request)?;
            (0..32).filter(|l| class >> l & 1 == 1).for_each(|l| from[l] = at.ptr(l));
        }
        let request = Request { space: Space::Shared, bytes, align: bytes, touch: Touch::CopyWrite };
        let at = locate(cx, mask, self.to, request)?;
        let completion = cx.launch.completion();
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let copy = Copy {
                lane: lane as u8,
                to: at.ptr(lane),
                shadow: at.shadow(lane),
                from: from[lane],
                bytes,
                source_bytes: sizes[lane],
            };
            cx.warp.copies.issue(copy, completion);
        }
        Ok(Flow::Next)
    }
}

fn copy(b: &mut Build<'_, '_>) -> Built {
    let bytes = b.int(2)? as usize;
    let allowed: &[usize] = if b.quals.has("cg") { &[16] } else { &[4, 8, 16] };
    if !allowed.contains(&bytes) {
        return b.error(format!("cp.async copies {allowed:?} bytes here, not {bytes}"));
    }
    let ((to, _), (from, _)) = (b.address(0)?, b.address(1)?);
    let hint = b.quals.has("L2::cache_hint") as usize;
    let (mut source, mut ignore) = (None, None);
    match b.inst.operands.len() - hint {
        3 => {}
        4 => match b.operand(3)? {
            Operand::Name(name) if matches!(b.meaning(name)?, crate::decode::names::Meaning::Pred(_)) => {
                ignore = Some(b.pred_in(3)?);
            }
            Operand::Not(_) => ignore = Some(b.pred_in(3)?),
            _ => source = Some(b.src::<u32>(3)?),
        },
        n => return b.error(format!("`cp.async` takes 3 or 4 operands, found {n}")),
    }
    b.op(CopyOp { to, from, bytes, source, ignore })
}

/// Waits until at most so many groups are under way; None for everything.
struct Wait(Option<u32>);
impl Op for Wait {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let completion = cx.launch.completion();
        match self.0 {
            Some(pending) => cx.warp.copies.wait(mask, pending, completion),
            None => cx.warp.copies.finish(mask, completion),
        }
        let (rank, warp) = (cx.rank as u8, cx.warp.index as u8);
        cx.cluster.transit.finish_copies(rank, warp, mask, &mut cx.cluster.ctas);
        cx.order(Order::Waited);
        Ok(Flow::Next)
    }
}

fn wait(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let pending = b.int(0)?;
    match u32::try_from(pending) {
        Ok(pending) => b.op(Wait(Some(pending))),
        Err(_) => b.error(format!("cp.async.wait_group {pending}: a number of groups is wanted")),
    }
}

fn wait_all(b: &mut Build<'_, '_>) -> Built {
    b.operands(0)?;
    b.op(Wait(None))
}
