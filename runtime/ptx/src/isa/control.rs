//! Branches, the end of threads, traps.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
        names::Meaning,
    },
    exec::{
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        regs::Slot,
        warp::Wait,
    },
    text::ast::Operand,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("bra", "uni", Kind::Control, branch),
    form("brx.idx", "uni", Kind::Control, branch_indexed),
    form("ret", "uni", Kind::Control, |b| end(b, true)),
    form("exit", "", Kind::Control, |b| end(b, false)),
    form("trap", "", Kind::Control, |b| stop(b, "trap")),
    form("brkpt", "", Kind::Control, |b| stop(b, "brkpt: a breakpoint without a debugger")),
    form("nanosleep", ": u32", Kind::Control, sleep),
    form("pmevent", "mask", Kind::Control, nothing),
];

/// Jumps to a fixed place.
struct Branch(u32);
impl Op for Branch {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.warp.send(mask, self.0, None);
        Ok(Flow::Jumped)
    }
}

fn branch(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let Operand::Name(label) = b.operand(0)? else { return b.error("`bra` takes a label") };
    let target = b.label(label)?;
    b.facts.ends = true;
    b.op(Branch(target))
}

/// Jumps to one of a list of places.
struct BranchIndexed {
    index: Slot,
    targets: Vec<u32>,
}
impl Op for BranchIndexed {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let index = *cx.warp.regs.row::<u32>(self.index);
        let lanes = |want: u32| (0..32).fold(0, |m, l| m | ((index[l] == want) as u32) << l) & mask;
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let Some(target) = self.targets.get(index[lane] as usize) else {
                let message = format!("brx.idx with index {} into a list of {}", index[lane], self.targets.len());
                return Err(Fault::new(FaultKind::Operand, message).at_lane(lane));
            };
            let group = lanes(index[lane]);
            left &= !group;
            let pc = cx.warp.current.pc;
            cx.warp.send(group, *target, None);
            if left != 0 {
                // `send` moved the rest past this instruction; it has lanes that jump yet.
                cx.warp.current.pc = pc;
            }
        }
        Ok(Flow::Jumped)
    }
}

fn branch_indexed(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    let index = b.src::<u32>(0)?;
    let Operand::Name(list) = b.operand(1)? else { return b.error("`brx.idx` takes a .branchtargets label") };
    let Meaning::Targets(targets) = b.meaning(list)? else {
        return b.error(format!("`{list}` is no .branchtargets list"));
    };
    b.facts.targets.extend(&targets);
    b.facts.ends = true;
    b.op(BranchIndexed { index, targets })
}

/// Ends threads, or returns from a function when `returns` and there is somewhere to return to.
pub struct Exit {
    /// `ret` rather than `exit`.
    pub returns: bool,
}
impl Op for Exit {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        if self.returns && !cx.warp.current.stack.is_empty() {
            let mut stack = cx.warp.current.stack.clone();
            let back = stack.pop().unwrap_or(0);
            cx.warp.send_woken(mask, back, stack, Wait::Callee);
            return Ok(Flow::Jumped);
        }
        let completion = cx.launch.completion();
        cx.warp.copies.finish(mask, completion);
        cx.warp.bulk.finish(mask);
        cx.warp.exit(mask);
        let live = cx.warp.live();
        cx.cluster.ctas[cx.rank].exit(cx.warp.index, live);
        cx.cluster.settle_barrier();
        Ok(Flow::Jumped)
    }
}

fn end(b: &mut Build<'_, '_>, returns: bool) -> Built {
    b.operands(0)?;
    b.facts.ends = true;
    b.op(Exit { returns })
}

/// Ends the launch with a fault.
struct Trap(&'static str);
impl Op for Trap {
    fn run(&self, _: &mut Cx<'_>, mask: u32) -> Outcome {
        Err(Fault::new(FaultKind::Trap, self.0).at_lane(mask.trailing_zeros() as usize & 31))
    }
}

fn stop(b: &mut Build<'_, '_>, message: &'static str) -> Built {
    b.operands(0)?;
    b.op(Trap(message))
}

/// Gives the turn away.
struct Sleep;
impl Op for Sleep {
    fn run(&self, _: &mut Cx<'_>, _: u32) -> Outcome {
        Ok(Flow::Yield)
    }
}

fn sleep(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    b.src::<u32>(0)?;
    b.op(Sleep)
}

/// Has no effect on what a kernel computes.
pub struct Nothing;
impl Op for Nothing {
    fn run(&self, _: &mut Cx<'_>, _: u32) -> Outcome {
        Ok(Flow::Next)
    }
}

/// An instruction without effect here (events, prefetches).
pub fn nothing(b: &mut Build<'_, '_>) -> Built {
    b.op(Nothing)
}
