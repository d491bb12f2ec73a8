//! CTA barriers, fences, the warp barrier.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        regs::{Pred, PredIn, Slot},
        warp::Wait,
    },
    mem::watch::{Order, Sync},
    text::ast::Operand,
    types::Ty,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("bar.sync", "", Kind::Barrier, |b| barrier(b, What::Sync, true)),
    form("bar.arrive", "", Kind::Barrier, |b| barrier(b, What::Arrive, true)),
    form("bar.red", "popc|and|or : u32 pred", Kind::Barrier, |b| barrier(b, What::Reduce, true)),
    form("bar.cta.sync", "", Kind::Barrier, |b| barrier(b, What::Sync, true)),
    form("bar.cta.arrive", "", Kind::Barrier, |b| barrier(b, What::Arrive, true)),
    form("bar.cta.red", "popc|and|or : u32 pred", Kind::Barrier, |b| barrier(b, What::Reduce, true)),
    form("barrier.sync", "aligned", Kind::Barrier, |b| barrier(b, What::Sync, b.quals.has("aligned"))),
    form("barrier.arrive", "aligned", Kind::Barrier, |b| barrier(b, What::Arrive, b.quals.has("aligned"))),
    form("barrier.red", "aligned popc|and|or : u32 pred", Kind::Barrier, |b| {
        barrier(b, What::Reduce, b.quals.has("aligned"))
    }),
    form("barrier.cta.sync", "aligned", Kind::Barrier, |b| barrier(b, What::Sync, b.quals.has("aligned"))),
    form("barrier.cta.arrive", "aligned", Kind::Barrier, |b| barrier(b, What::Arrive, b.quals.has("aligned"))),
    form("barrier.cta.red", "aligned popc|and|or : u32 pred", Kind::Barrier, |b| {
        barrier(b, What::Reduce, b.quals.has("aligned"))
    }),
    form("bar.warp.sync", "", Kind::Barrier, warp_sync),
    form("membar", "cta|gl|sys|gpu", Kind::Fence, fence),
    form(
        "fence",
        "sc|acq_rel|acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster cta|cluster|gpu|sys",
        Kind::Fence,
        fence,
    ),
];

/// What happens at the barrier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Sync,
    Arrive,
    Reduce,
}

/// Where bar.red's result goes.
#[derive(Clone, Copy)]
enum Result {
    None,
    Count(Slot),
    All(Option<Pred>),
    Any(Option<Pred>),
}

struct Barrier {
    id: Slot,
    threads: Option<Slot>,
    what: What,
    aligned: bool,
    vote: Option<PredIn>,
    result: Result,
}

impl Op for Barrier {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let first = mask.trailing_zeros() as usize & 31;
        let id: u32 = cx.warp.regs.lane(self.id, first);
        let id = match u8::try_from(id) {
            Ok(id) if id < 16 => id,
            _ => return Err(Fault::new(FaultKind::Operand, format!("barrier {id} does not exist: 0 to 15 do"))),
        };
        let rank = cx.rank as u8;
        if let Some(Wait::Barrier { generation, .. }) = cx.warp.take_woken() {
            cx.order(Order::Acquire(Sync::Barrier(rank, id, generation)));
            let (yes, all) = cx.cluster.ctas[cx.rank].barrier_votes(id);
            match self.result {
                Result::None => {}
                Result::Count(d) => cx.warp.regs.put(d, mask, &[yes; 32]),
                Result::All(p) => cx.put_pred(p, mask, if yes == all { !0 } else { 0 }),
                Result::Any(p) => cx.put_pred(p, mask, if yes > 0 { !0 } else { 0 }),
            }
            return Ok(Flow::Next);
        }
        if self.aligned {
            cx.check_aligned(mask, "the barrier")?;
        }
        let expected = self.threads.map(|t| cx.warp.regs.lane::<u32>(t, first));
        let votes = self.vote.map(|v| cx.warp.regs.pred_in(v));
        let warp = cx.warp.index;
        let generation = cx.cluster.ctas[cx.rank].barrier_generation(id);
        cx.order(Order::Release(Sync::Barrier(rank, id, generation)));
        let generation = cx.cluster.ctas[cx.rank].arrive(id, warp, mask, expected, votes)?;
        if self.what == What::Arrive {
            return Ok(Flow::Next);
        }
        if mask != cx.warp.current.mask {
            // Lanes that the guard keeps away go on: they are a group of their own.
            cx.warp.split_off(mask);
        }
        cx.warp.current.wait = Some(Wait::Barrier { id, generation });
        Ok(Flow::Blocked)
    }
}

fn barrier(b: &mut Build<'_, '_>, what: What, aligned: bool) -> Built {
    let reduces = what == What::Reduce;
    let n = b.inst.operands.len();
    let first = reduces as usize;
    let id = b.src::<u32>(first)?;
    let counted = n > first + 1 + reduces as usize;
    let threads = if counted { Some(b.src::<u32>(first + 1)?) } else { None };
    b.operands(first + 1 + counted as usize + reduces as usize)?;
    if what == What::Arrive && !counted {
        return b.error("`bar.arrive` needs the number of threads");
    }
    let (vote, result) = if reduces {
        let vote = Some(b.pred_in(n - 1)?);
        let d = b.operand(0)?;
        let result = match (b.quals.pick(&["popc", "and", "or"]), b.ty(0)?) {
            (Some("popc"), Ty::U32) => Result::Count(b.dst::<u32>(0)?),
            (Some("and"), Ty::Pred) => Result::All(b.pred_dst(d)?),
            (Some("or"), Ty::Pred) => Result::Any(b.pred_dst(d)?),
            _ => return b.unsupported(),
        };
        (vote, result)
    } else {
        (None, Result::None)
    };
    b.op(Barrier { id, threads, what, aligned, vote, result })
}

/// Waits for the lanes of a member mask. Shared with votes, shuffles and the like: true when `mask` holds all of them.
pub fn meet(cx: &mut Cx<'_>, mask: u32, members: u32) -> std::result::Result<bool, Box<Fault>> {
    let live = cx.warp.live();
    if members & mask != mask {
        let lane = (mask & !members).trailing_zeros() as usize;
        let message =
            format!("lane {lane} executes a .sync instruction whose member mask {members:#010x} leaves it out");
        return Err(Fault::new(FaultKind::Synchronisation, message).at_lane(lane));
    }
    if members & live & !mask == 0 {
        cx.warp.take_woken();
        return Ok(true);
    }
    if mask != cx.warp.current.mask {
        cx.warp.split_off(mask);
    }
    cx.warp.current.wait = Some(Wait::Members(members));
    Ok(false)
}

struct WarpSync(Slot);
impl Op for WarpSync {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let first = mask.trailing_zeros() as usize & 31;
        let members = cx.warp.regs.lane::<u32>(self.0, first);
        if !meet(cx, mask, members)? {
            return Ok(Flow::Blocked);
        }
        Ok(Flow::Next)
    }
}

fn warp_sync(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let members = b.src::<u32>(0)?;
    b.op(WarpSync(members))
}

/// Host threads see each other's global memory in order around it.
struct Fence;
impl Op for Fence {
    fn run(&self, _: &mut Cx<'_>, _: u32) -> Outcome {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Ok(Flow::Next)
    }
}

fn fence(b: &mut Build<'_, '_>) -> Built {
    if let Some(Operand::Name(name)) = b.inst.operands.first() {
        return b.error(format!("a fence takes no operand, found `{name}`"));
    }
    b.op(Fence)
}
