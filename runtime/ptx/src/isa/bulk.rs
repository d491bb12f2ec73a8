//! Bulk copies of plain bytes, their groups, and what tensor copies share with them.

use super::{
    atomic::Fold,
    control::nothing,
    mbarrier::{broken, lanes},
};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        fault::{Fault, FaultKind},
        in_flight::{Effect, Key},
        op::{Cx, Flow, Op, Outcome},
        regs::Slot,
        tile::Job,
    },
    mem::{
        RANK_SHIFT, Space,
        access::{Address, Located, Request, locate_at},
        watch::{Order, Touch},
    },
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form(
        "cp.async.bulk.shared::cluster.global",
        "mbarrier::complete_tx::bytes multicast::cluster L2::cache_hint",
        Kind::BulkCopy,
        |b| arriving(b, Space::Global),
    ),
    form("cp.async.bulk.shared::cta.global", "mbarrier::complete_tx::bytes L2::cache_hint", Kind::BulkCopy, |b| {
        arriving(b, Space::Global)
    }),
    form("cp.async.bulk.shared::cluster.shared::cta", "mbarrier::complete_tx::bytes", Kind::BulkCopy, |b| {
        arriving(b, Space::Shared)
    }),
    form("cp.async.bulk.global.shared::cta", "bulk_group L2::cache_hint", Kind::BulkCopy, leaving),
    form(
        "cp.reduce.async.bulk.shared::cluster.shared::cta",
        "mbarrier::complete_tx::bytes add|min|max|inc|dec|and|or|xor : u32 s32 u64 s64 b32 b64",
        Kind::BulkCopy,
        |b| arriving(b, Space::Shared),
    ),
    form(
        "cp.reduce.async.bulk.global.shared::cta",
        "bulk_group L2::cache_hint add|min|max|inc|dec|and|or|xor noftz \
         : f16 bf16 b32 u32 s32 b64 u64 s64 f32 f64",
        Kind::BulkCopy,
        leaving,
    ),
    form("cp.async.bulk.prefetch.L2.global", "L2::cache_hint", Kind::BulkCopy, nothing),
    form("cp.async.bulk.wait_group", "read", Kind::BulkCopy, wait),
];

/// The address that a lane's operand holds.
pub fn lane_address(cx: &Cx<'_>, address: Address, lane: usize) -> u64 {
    if address.wide {
        cx.warp.regs.lane::<u64>(address.slot, lane).wrapping_add(address.offset as u64)
    } else {
        cx.warp.regs.lane::<u32>(address.slot, lane).wrapping_add(address.offset as u32) as u64
    }
}

/// Locates one lane's bytes at an address of a space.
pub fn range(cx: &mut Cx<'_>, lane: usize, address: u64, request: Request) -> Result<Located, Box<Fault>> {
    locate_at(cx, 1 << lane, [address; 32], request)
}

/// A shared address taken apart: the block that it names and the address inside.
pub fn split(cx: &Cx<'_>, address: u64) -> Key {
    let number = (address >> RANK_SHIFT & 0xff) as usize;
    let rank = if number == 0 { cx.rank } else { number - 1 };
    Key { rank: rank as u8, address: (address & ((1 << RANK_SHIFT) - 1)) as u32 }
}

/// The same address in the block of a rank.
pub fn in_block(key: Key) -> u64 {
    key.address as u64 | (key.rank as u64 + 1) << RANK_SHIFT
}

/// Blocks that a copy into shared memory goes to: the one that the address names, or those of a mask.
pub fn targets(cx: &Cx<'_>, lane: usize, address: u64, multicast: Option<Slot>) -> Result<Vec<Key>, Box<Fault>> {
    let named = split(cx, address);
    let Some(slot) = multicast else { return Ok(vec![named]) };
    let (mask, ranks) = (cx.warp.regs.lane::<u16>(slot, lane), cx.cluster.ctas.len());
    if mask == 0 || (mask as u32) >> ranks != 0 {
        let message = format!("multicast to the blocks of mask {mask:#06x} of a cluster of {ranks}");
        return Err(Fault::new(FaultKind::Operand, message).at_lane(lane));
    }
    Ok((0..ranks).filter(|r| mask >> r & 1 == 1).map(|r| Key { rank: r as u8, address: named.address }).collect())
}

/// Issues a copy whose `bytes` arrive at shared memory `at` and are told to the mbarrier at `barrier`.
pub fn issue(
    cx: &mut Cx<'_>,
    lane: usize,
    barrier: Key,
    at: &Located,
    job: Job,
    bytes: usize,
    marked: usize,
) -> Result<(), Box<Fault>> {
    let phase = super::mbarrier::barrier(cx, barrier, lane)?.phase;
    cx.order(Order::Completes(barrier, phase));
    let from = (cx.rank as u8, cx.warp.index as u8, lane as u8);
    let effect = Effect::Bytes { job: Box::new(job), bytes: bytes as u32, shadow: (at.shadow(lane), marked) };
    let completion = cx.launch.completion();
    let cluster = &mut *cx.cluster;
    let Some(state) = cluster.ctas[barrier.rank as usize].mbarriers.get(barrier.address) else { return Ok(()) };
    cluster.transit.issue(barrier, from, effect, state, completion).map_err(|m| broken(m, barrier, lane))
}

/// Bytes of a bulk copy, which come in sixteens.
fn size(cx: &Cx<'_>, slot: Slot, lane: usize) -> Result<usize, Box<Fault>> {
    let bytes = cx.warp.regs.lane::<u32>(slot, lane);
    if !bytes.is_multiple_of(16) {
        let message = format!("a bulk copy of {bytes} bytes; multiples of 16 are possible");
        return Err(Fault::new(FaultKind::Operand, message).at_lane(lane));
    }
    Ok(bytes as usize)
}

/// Into shared memory, completing on an mbarrier.
struct Arriving {
    to: Address,
    from: Address,
    bytes: Slot,
    barrier: Address,
    source: Space,
    multicast: Option<Slot>,
    fold: Option<Fold>,
}
impl Op for Arriving {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        for lane in lanes(mask) {
            let bytes = size(cx, self.bytes, lane)?;
            let touch = if self.source == Space::Global { Touch::Read } else { Touch::AsyncRead };
            let request = Request { space: self.source, bytes: bytes.max(1), align: 16, touch };
            let address = lane_address(cx, self.from, lane);
            let from = range(cx, lane, address, request)?.ptr(lane).cast_const();
            let to = lane_address(cx, self.to, lane);
            let barrier = split(cx, lane_address(cx, self.barrier, lane));
            for target in targets(cx, lane, to, self.multicast)? {
                let request =
                    Request { space: Space::Shared, bytes: bytes.max(1), align: 16, touch: Touch::AsyncWrite };
                let at = range(cx, lane, in_block(target), request)?;
                let to = at.ptr(lane);
                let job = match self.fold {
                    None => Job::Copy { from, to, bytes },
                    Some(fold) => Job::Fold { from, to, bytes, fold },
                };
                // With multicast each block's own barrier, at the same place, hears of its copy.
                let rank = if self.multicast.is_some() { target.rank } else { barrier.rank };
                issue(cx, lane, Key { rank, ..barrier }, &at, job, bytes, bytes)?;
            }
        }
        Ok(Flow::Next)
    }
}

/// The reduction that an instruction's qualifiers name; None for a copy.
fn reduction(b: &Build<'_, '_>) -> Result<Option<Fold>, crate::Error> {
    if b.inst.opcode != "cp" || b.inst.quals.first().is_none_or(|q| q != "reduce") {
        return Ok(None);
    }
    let op = b.quals.pick(&["add", "min", "max", "inc", "dec", "and", "or", "xor"]).unwrap_or("");
    match Fold::of(op, b.ty(0)?) {
        Some(fold) => Ok(Some(fold)),
        None => b.unsupported(),
    }
}

fn arriving(b: &mut Build<'_, '_>, source: Space) -> Built {
    if !b.quals.has("mbarrier::complete_tx::bytes") {
        return b.error("a bulk copy into shared memory needs .mbarrier::complete_tx::bytes");
    }
    let (multicast, hint) = (b.quals.has("multicast::cluster"), b.quals.has("L2::cache_hint"));
    b.operands(4 + multicast as usize + hint as usize)?;
    let ((to, _), (from, _), (barrier, _)) = (b.address(0)?, b.address(1)?, b.address(3)?);
    let bytes = b.src::<u32>(2)?;
    let multicast = if multicast { Some(b.src::<u16>(4)?) } else { None };
    let fold = reduction(b)?;
    b.op(Arriving { to, from, bytes, barrier, source, multicast, fold })
}

/// Out of shared memory, in a bulk group.
struct Leaving {
    to: Address,
    from: Address,
    bytes: Slot,
    fold: Option<Fold>,
}
impl Op for Leaving {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let completion = cx.launch.completion();
        for lane in lanes(mask) {
            let bytes = size(cx, self.bytes, lane)?;
            let request = Request { space: Space::Shared, bytes: bytes.max(1), align: 16, touch: Touch::AsyncRead };
            let address = lane_address(cx, self.from, lane);
            let from = range(cx, lane, address, request)?.ptr(lane).cast_const();
            let request = Request { space: Space::Global, bytes: bytes.max(1), align: 16, touch: Touch::Write };
            let address = lane_address(cx, self.to, lane);
            let to = range(cx, lane, address, request)?.ptr(lane);
            let job = match self.fold {
                None => Job::Copy { from, to, bytes },
                Some(fold) => Job::Fold { from, to, bytes, fold },
            };
            cx.warp.bulk.issue(lane as u8, job, completion);
        }
        Ok(Flow::Next)
    }
}

fn leaving(b: &mut Build<'_, '_>) -> Built {
    if !b.quals.has("bulk_group") {
        return b.error("a bulk copy to global memory needs .bulk_group");
    }
    b.operands(3 + b.quals.has("L2::cache_hint") as usize)?;
    let ((to, _), (from, _)) = (b.address(0)?, b.address(1)?);
    let bytes = b.src::<u32>(2)?;
    let fold = reduction(b)?;
    b.op(Leaving { to, from, bytes, fold })
}

struct Wait {
    pending: u32,
    read: bool,
}
impl Op for Wait {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.warp.bulk.wait(mask, self.pending, self.read);
        cx.order(Order::Waited);
        Ok(Flow::Next)
    }
}

fn wait(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let pending = b.int(0)?;
    match u32::try_from(pending) {
        Ok(pending) => b.op(Wait { pending, read: b.quals.has("read") }),
        Err(_) => b.error(format!("cp.async.bulk.wait_group {pending}: a number of groups is wanted")),
    }
}
