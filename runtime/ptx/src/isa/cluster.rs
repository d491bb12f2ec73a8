//! The cluster's barrier. (Blocks' shared memory is reached through `mapa` and `.shared::cluster` addresses.)

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        warp::Wait,
    },
    mem::watch::{Order, Sync},
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("barrier.cluster.arrive", "release|relaxed aligned", Kind::Barrier, arrive),
    form("barrier.cluster.wait", "acquire aligned", Kind::Barrier, wait),
];

fn broken(message: String) -> Box<Fault> {
    Fault::new(FaultKind::Synchronisation, message)
}

struct Arrive {
    aligned: bool,
    releases: bool,
}
impl Op for Arrive {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        if self.aligned {
            cx.check_aligned(mask, "barrier.cluster.arrive")?;
        }
        if self.releases {
            let generation = cx.cluster.barrier.generation;
            cx.order(Order::Release(Sync::Cluster(generation)));
        }
        let (rank, warp) = (cx.rank, cx.warp.index);
        cx.cluster.barrier.arrive(rank, warp, mask).map_err(broken)?;
        cx.cluster.settle_barrier();
        Ok(Flow::Next)
    }
}

fn arrive(b: &mut Build<'_, '_>) -> Built {
    b.operands(0)?;
    b.op(Arrive { aligned: b.quals.has("aligned"), releases: !b.quals.has("relaxed") })
}

struct WaitFor {
    aligned: bool,
}
impl Op for WaitFor {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        if self.aligned {
            cx.check_aligned(mask, "barrier.cluster.wait")?;
        }
        cx.warp.take_woken();
        let (rank, warp) = (cx.rank, cx.warp.index);
        if cx.cluster.barrier.wait(rank, warp, mask).map_err(broken)? {
            // It is over: the generation that has completed last.
            let generation = cx.cluster.barrier.generation.wrapping_sub(1);
            cx.order(Order::Acquire(Sync::Cluster(generation)));
            return Ok(Flow::Next);
        }
        if mask != cx.warp.current.mask {
            cx.warp.split_off(mask);
        }
        cx.warp.current.wait = Some(Wait::Cluster(cx.cluster.barrier.generation));
        Ok(Flow::Blocked)
    }
}

fn wait(b: &mut Build<'_, '_>) -> Built {
    b.operands(0)?;
    b.op(WaitFor { aligned: b.quals.has("aligned") })
}
