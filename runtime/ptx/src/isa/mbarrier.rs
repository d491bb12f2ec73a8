//! mbarriers: their life, arrivals, bytes, waits; the fences that belong to them.

use super::{
    control::{Nothing, nothing},
    data::space,
};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        async_copy::Completion,
        fault::{Fault, FaultKind},
        in_flight::{Effect, Key},
        mbarrier::Mbarrier,
        op::{Cx, Flow, Op, Outcome},
        regs::{Pred, Slot},
        warp::Wait,
    },
    mem::{
        Space,
        access::{Address, Located, Request, locate},
        watch::{Order, Sync, Touch},
    },
    text::ast::Operand,
};

macro_rules! quals {
    ($extra:literal) => {
        concat!($extra, " relaxed|release|acquire cta|cluster shared|shared::cta|shared::cluster : b64")
    };
}

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("mbarrier.init", "shared|shared::cta : b64", Kind::Barrier, init),
    form("mbarrier.inval", "shared|shared::cta : b64", Kind::Barrier, invalidate),
    form("mbarrier.expect_tx", quals!(""), Kind::Barrier, |b| bytes(b, true)),
    form("mbarrier.complete_tx", quals!(""), Kind::Barrier, |b| bytes(b, false)),
    form("mbarrier.arrive", quals!("expect_tx noComplete"), Kind::Barrier, |b| arrive(b, false)),
    form("mbarrier.arrive_drop", quals!("expect_tx noComplete"), Kind::Barrier, |b| arrive(b, true)),
    form("mbarrier.test_wait", quals!("parity"), Kind::Barrier, |b| wait(b, false)),
    form("mbarrier.try_wait", quals!("parity"), Kind::Barrier, |b| wait(b, true)),
    form("mbarrier.pending_count", ": b64", Kind::Barrier, pending_count),
    form("cp.async.mbarrier.arrive", "noinc shared|shared::cta : b64", Kind::AsyncCopy, tie_copies),
    form("fence.mbarrier_init", "release cluster", Kind::Fence, nothing),
    form(
        "fence.proxy",
        "alias|async|async::generic acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster \
         global|shared::cta|shared::cluster cluster",
        Kind::Fence,
        proxy_fence,
    ),
    form("fence.proxy.tensormap::generic", "acquire|release cta|cluster|gpu|sys", Kind::Fence, |b| b.op(Nothing)),
];

/// Where the lanes' addresses lead in shared memory.
pub struct Places {
    /// The bytes.
    pub at: Located,
    /// Block and address of each lane; idle lanes repeat an executing one's.
    pub keys: [Key; 32],
}

impl Places {
    /// Locates shared bytes; a generic address outside of shared memory is a fault.
    pub fn find(cx: &mut Cx<'_>, mask: u32, address: Address, request: Request) -> Result<Places, Box<Fault>> {
        let at = locate(cx, mask, address, request)?;
        let mut keys = [Key { rank: cx.rank as u8, address: 0 }; 32];
        for lane in 0..32 {
            let base = at.each.as_ref().map_or(at.region, |e| e[lane]).base;
            let owner = match cx.cluster.ctas[cx.rank].shared.region().base == base {
                true => Some(cx.rank),
                false => cx.cluster.ctas.iter_mut().position(|c| c.shared.region().base == base),
            };
            match owner {
                Some(rank) => keys[lane] = Key { rank: rank as u8, address: at.addresses[lane] as u32 },
                None => {
                    let message = format!("address {:#x} does not lie in shared memory", at.addresses[lane]);
                    return Err(Fault::new(FaultKind::Bounds, message).at_lane(lane));
                }
            }
        }
        Ok(Places { at, keys })
    }
}

/// The barrier at a place, which must exist.
pub fn barrier<'c>(cx: &'c mut Cx<'_>, key: Key, lane: usize) -> Result<&'c mut Mbarrier, Box<Fault>> {
    match cx.cluster.ctas.get_mut(key.rank as usize).and_then(|c| c.mbarriers.get(key.address)) {
        Some(barrier) => Ok(barrier),
        None => {
            let message = format!(
                "there is no mbarrier at shared address {:#x}: mbarrier.init makes one, mbarrier.inval ends it",
                key.address
            );
            Err(Fault::new(FaultKind::Synchronisation, message).at_lane(lane))
        }
    }
}

/// A rule of a barrier that a lane broke.
pub fn broken(message: String, key: Key, lane: usize) -> Box<Fault> {
    let message = format!("mbarrier at shared address {:#x}: {message}", key.address);
    Fault::new(FaultKind::Synchronisation, message).at_lane(lane)
}

fn request(space: Space, touch: Touch) -> Request {
    Request { space, bytes: 8, align: 8, touch }
}

/// Lanes of a mask.
pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |l| mask >> l & 1 == 1)
}

struct Init {
    address: Address,
    space: Space,
    count: Slot,
}
impl Op for Init {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let places = Places::find(cx, mask, self.address, request(self.space, Touch::StrongWrite))?;
        for lane in lanes(mask) {
            let key = places.keys[lane];
            let new = Mbarrier::new(cx.warp.regs.lane(self.count, lane)).map_err(|m| broken(m, key, lane))?;
            let barriers = &mut cx.cluster.ctas[key.rank as usize].mbarriers;
            if barriers.get(key.address).is_some() {
                return Err(broken("mbarrier.init where one exists; mbarrier.inval ends it".into(), key, lane));
            }
            barriers.insert(key.address, new);
        }
        Ok(Flow::Next)
    }
}

fn init(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    let space = space(b).unwrap_or(Space::Generic);
    let (address, _) = b.address(0)?;
    let count = b.src::<u32>(1)?;
    b.op(Init { address, space, count })
}

struct Invalidate(Address, Space);
impl Op for Invalidate {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let places = Places::find(cx, mask, self.0, request(self.1, Touch::StrongWrite))?;
        for lane in lanes(mask) {
            let key = places.keys[lane];
            barrier(cx, key, lane)?;
            cx.cluster.ctas[key.rank as usize].mbarriers.remove(key.address);
        }
        Ok(Flow::Next)
    }
}

fn invalidate(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let space = space(b).unwrap_or(Space::Generic);
    let (address, _) = b.address(0)?;
    b.op(Invalidate(address, space))
}

/// expect_tx and complete_tx alone.
struct Bytes {
    address: Address,
    space: Space,
    bytes: Slot,
    expect: bool,
}
impl Op for Bytes {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let places = Places::find(cx, mask, self.address, request(self.space, Touch::Sync))?;
        for lane in lanes(mask) {
            let (key, n) = (places.keys[lane], cx.warp.regs.lane::<u32>(self.bytes, lane));
            let barrier = barrier(cx, key, lane)?;
            let done = if self.expect { barrier.expect_bytes(n) } else { barrier.complete_bytes(n) };
            done.map_err(|m| broken(m, key, lane))?;
        }
        Ok(Flow::Next)
    }
}

fn bytes(b: &mut Build<'_, '_>, expect: bool) -> Built {
    b.operands(2)?;
    let space = space(b).unwrap_or(Space::Generic);
    let (address, _) = b.address(0)?;
    let bytes = b.src::<u32>(1)?;
    b.op(Bytes { address, space, bytes, expect })
}

struct Arrive {
    address: Address,
    space: Space,
    /// Where the token goes.
    token: Option<Slot>,
    count: Option<Slot>,
    /// Bytes to expect first.
    bytes: Option<Slot>,
    drop: bool,
    may_complete: bool,
}
impl Op for Arrive {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let places = Places::find(cx, mask, self.address, request(self.space, Touch::Sync))?;
        for lane in lanes(mask) {
            let key = places.keys[lane];
            let count = self.count.map_or(1, |c| cx.warp.regs.lane::<u32>(c, lane));
            let bytes = self.bytes.map(|b| cx.warp.regs.lane::<u32>(b, lane));
            let barrier = barrier(cx, key, lane)?;
            let before = barrier.phase;
            if let Some(bytes) = bytes {
                barrier.expect_bytes(bytes).map_err(|m| broken(m, key, lane))?;
            }
            let token = barrier.arrive(count, self.drop).map_err(|m| broken(m, key, lane))?;
            if !self.may_complete && barrier.phase != before {
                return Err(broken("an arrival with .noComplete completes the phase".into(), key, lane));
            }
            if let Some(d) = self.token {
                cx.warp.regs.set_lane(d, lane, token);
            }
            cx.order(Order::Release(Sync::Mbarrier(key, before)));
        }
        Ok(Flow::Next)
    }
}

fn arrive(b: &mut Build<'_, '_>, drop: bool) -> Built {
    let expect = b.quals.has("expect_tx");
    let n = b.inst.operands.len();
    if !(2..=3).contains(&n) && n != 1 {
        return b.error(format!("`{}` takes 2 or 3 operands, found {n}", b.inst.name()));
    }
    // Without a destination (remote arrivals) the address comes first.
    let first = !matches!(b.operand(0)?, Operand::Address { .. }) as usize;
    let space = space(b).unwrap_or(Space::Generic);
    let (address, _) = b.address(first)?;
    let extra = if n > first + 1 { Some(b.src::<u32>(first + 1)?) } else { None };
    if expect && extra.is_none() {
        return b.error("`.expect_tx` needs the number of bytes");
    }
    let sink = matches!(b.operand(0)?, Operand::Name(n) if n == "_");
    let token = if first == 1 && !sink { Some(b.dst::<u64>(0)?) } else { None };
    if token.is_some() && b.quals.has("shared::cluster") {
        return b.error("an arrival at another block's mbarrier gives no state: use `_`");
    }
    let (count, bytes) = if expect { (None, extra) } else { (extra, None) };
    b.op(Arrive { address, space, token, count, bytes, drop, may_complete: !b.quals.has("noComplete") })
}

/// How a wait names its phase.
#[derive(Clone, Copy)]
enum Phase {
    Parity(Slot),
    Token(Slot),
}

struct WaitFor {
    p: Option<Pred>,
    address: Address,
    space: Space,
    phase: Phase,
    blocks: bool,
    /// Whether later accesses come after what the phase waited for.
    acquires: bool,
}
impl Op for WaitFor {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let places = Places::find(cx, mask, self.address, request(self.space, Touch::Sync))?;
        // Another wait of this kind may have been the one that is over; a phase that is over stays over for its waiters,
        // even if the barrier has gone on since.
        let woken = match cx.warp.take_woken() {
            Some(Wait::Mbarrier { key, phase }) => Some((key, phase)),
            _ => None,
        };
        let mut over = 0u32;
        let mut pending = None;
        let mut same = true;
        for lane in lanes(mask) {
            let key = places.keys[lane];
            let phase_now = barrier(cx, key, lane)?.phase;
            let phase = match self.phase {
                Phase::Parity(p) => {
                    let parity = cx.warp.regs.lane::<u32>(p, lane);
                    if parity > 1 {
                        return Err(broken(format!("a wait for parity {parity}; 0 or 1 is possible"), key, lane));
                    }
                    // The phase of that parity that is running, or the last one.
                    if phase_now & 1 == parity as u64 { Some(phase_now) } else { phase_now.checked_sub(1) }
                }
                Phase::Token(t) => Some(cx.warp.regs.lane::<u64>(t, lane) >> 20),
            };
            // Before the first phase everything of parity 1 is over.
            let Some(phase) = phase else {
                over |= 1 << lane;
                continue;
            };
            if woken.is_some_and(|(k, _)| k == key) || cx.cluster.phase_over(key, phase) == Some(true) {
                over |= 1 << lane;
            } else {
                same &= pending.is_none_or(|p| p == (key, phase));
                pending = Some((key, phase));
            }
        }
        if self.acquires {
            let mut last = None;
            for lane in lanes(over) {
                let key = places.keys[lane];
                // The phases that have completed by now.
                if let Some(phase) = barrier(cx, key, lane)?.phase.checked_sub(1)
                    && last.replace((key, phase)) != Some((key, phase))
                {
                    cx.order(Order::Acquire(Sync::Mbarrier(key, phase)));
                }
            }
        }
        match pending {
            Some((key, phase)) if self.blocks && over == 0 && same => {
                if mask != cx.warp.current.mask {
                    cx.warp.split_off(mask);
                }
                cx.warp.current.wait = Some(Wait::Mbarrier { key, phase });
                Ok(Flow::Blocked)
            }
            pending => {
                cx.put_pred(self.p, mask, over);
                cx.warp.polled = pending.map(|(key, phase)| (Wait::Mbarrier { key, phase }, cx.warp.current.pc));
                Ok(if pending.is_some() { Flow::Yield } else { Flow::Next })
            }
        }
    }
}

fn wait(b: &mut Build<'_, '_>, blocks: bool) -> Built {
    let n = b.inst.operands.len();
    if n != 3 && !(n == 4 && blocks) {
        return b.error(format!(
            "`{}` takes 3 operands{}, found {n}",
            b.inst.name(),
            if blocks { " or 4" } else { "" }
        ));
    }
    let space = space(b).unwrap_or(Space::Generic);
    let (address, _) = b.address(1)?;
    let phase = if b.quals.has("parity") { Phase::Parity(b.src::<u32>(2)?) } else { Phase::Token(b.src::<u64>(2)?) };
    if n == 4 {
        // A time limit; waits have none here.
        b.src::<u32>(3)?;
    }
    let d = b.operand(0)?;
    let p = b.pred_dst(d)?;
    b.op(WaitFor { p, address, space, phase, blocks, acquires: !b.quals.has("relaxed") })
}

fn pending_count(b: &mut Build<'_, '_>) -> Built {
    b.map1(|token: u64| token as u32 & crate::exec::mbarrier::MOST)
}

/// Ties a thread's cp.async copies so far to a barrier: when they are done, the thread arrives.
struct Tie {
    address: Address,
    space: Space,
    increments: bool,
}
impl Op for Tie {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let places = Places::find(cx, mask, self.address, request(self.space, Touch::Sync))?;
        let completion: Completion = cx.launch.completion();
        for lane in lanes(mask) {
            let key = places.keys[lane];
            let phase = barrier(cx, key, lane)?.phase;
            cx.order(Order::Completes(key, phase));
            let from = (cx.rank as u8, cx.warp.index as u8, lane as u8);
            let effect = Effect::Copies(cx.warp.copies.take(lane as u8));
            let cluster = &mut *cx.cluster;
            let Some(barrier) = cluster.ctas[key.rank as usize].mbarriers.get(key.address) else { continue };
            if self.increments {
                barrier.expect_arrivals(1).map_err(|m| broken(m, key, lane))?;
            }
            cluster.transit.issue(key, from, effect, barrier, completion).map_err(|m| broken(m, key, lane))?;
            cx.order(Order::Release(Sync::Mbarrier(key, phase)));
        }
        Ok(Flow::Next)
    }
}

fn tie_copies(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let space = space(b).unwrap_or(Space::Generic);
    let (address, _) = b.address(0)?;
    b.op(Tie { address, space, increments: !b.quals.has("noinc") })
}

/// fence.proxy.async: what ordinary stores wrote before may be read by asynchronous copies and wgmma after.
struct ProxyFence;
impl Op for ProxyFence {
    fn run(&self, cx: &mut Cx<'_>, _: u32) -> Outcome {
        cx.order(Order::ProxyFence);
        Ok(Flow::Next)
    }
}

fn proxy_fence(b: &mut Build<'_, '_>) -> Built {
    b.operands(0)?;
    if b.quals.has("alias") { b.op(Nothing) } else { b.op(ProxyFence) }
}
