//! Control flow whose course is known: branches taken or not, loops that run never or once, values that a loop carries
//! without changing them.

use crate::{
    elem::Elem,
    kernel::{Op, Region, Value},
    ops::{Effect, OpKind},
    passes::{fold::value, rewrite::Rewriter},
    scalar::Scalar,
    types::Type,
};
use std::mem;

/// Before the regions of `op` are visited. `None`: the op is gone, what stands for it is emitted.
pub(in crate::passes) fn enter(cx: &mut Rewriter, mut op: Op) -> Option<Op> {
    match op.kind {
        OpKind::If => enter_if(cx, op),
        OpKind::For => {
            drop_unchanged(cx, &mut op, 3, 1);
            enter_for(cx, op)
        }
        OpKind::While => {
            drop_unchanged(cx, &mut op, 0, 0);
            Some(op)
        }
        _ => Some(op),
    }
}

/// After the regions of `op` were visited.
pub(in crate::passes) fn leave(cx: &mut Rewriter, op: Op) -> Option<Op> {
    match op.kind {
        OpKind::If => leave_if(cx, op),
        OpKind::While => leave_while(cx, op),
        _ => Some(op),
    }
}

/// Puts a region in place of its op: its arguments are `args`, what it yields stands for `results`.
fn inline(cx: &mut Rewriter, region: Region, args: &[Value], results: &[Value]) {
    for (&a, &v) in region.args.iter().zip(args) {
        cx.replace(a, v);
    }
    for op in region.ops {
        cx.op(op);
    }
    stand_for(cx, &region.yields, results);
}

fn stand_for(cx: &mut Rewriter, values: &[Value], results: &[Value]) {
    cx.touch();
    for (&v, &r) in values.iter().zip(results) {
        let v = cx.now(v);
        cx.replace(r, v);
    }
}

fn enter_if(cx: &mut Rewriter, mut op: Op) -> Option<Op> {
    let c = op.operands[0];
    if let Some(known) = cx.as_const(c) {
        let taken = op.regions.swap_remove(!known.is_true() as usize);
        inline(cx, taken, &[], &op.results);
        return None;
    }
    if let Some(not) = cx.def_of(c, OpKind::Not) {
        op.operands[0] = not.operands[0];
        op.regions.swap(0, 1);
        cx.touch();
    }
    Some(op)
}

/// Branches that hold no op only choose.
fn leave_if(cx: &mut Rewriter, op: Op) -> Option<Op> {
    let tiles = op.results.iter().all(|&r| matches!(cx.ty(r), Type::Tile(_)));
    if !tiles || op.regions.iter().any(|r| !r.ops.is_empty()) {
        return Some(op);
    }
    cx.touch();
    for (i, &r) in op.results.iter().enumerate() {
        let (y, z) = (op.regions[0].yields[i], op.regions[1].yields[i]);
        let Some(ty) = cx.tile(r).cloned() else { continue };
        let c = if ty.rank() == 0 {
            op.operands[0]
        } else {
            cx.plain(OpKind::Broadcast, &op.operands, ty.with_elem(Elem::Bool), &op.loc)
        };
        let v = cx.plain(OpKind::Select, &[c, y, z], ty, &op.loc);
        cx.replace(r, v);
    }
    None
}

fn enter_for(cx: &mut Rewriter, mut op: Op) -> Option<Op> {
    let bound = |i: usize| cx.as_const(op.operands[i]).map(value);
    if let (Some(lo), Some(hi)) = (bound(0), bound(1)) {
        if lo >= hi {
            stand_for(cx, &op.operands[3..], &op.results);
            return None;
        }
        if bound(2).is_some_and(|step| step > 0 && lo + step >= hi) {
            let body = op.regions.swap_remove(0);
            let args: Vec<Value> =
                op.operands.iter().copied().enumerate().filter(|(i, _)| !matches!(i, 1 | 2)).map(|e| e.1).collect();
            inline(cx, body, &args, &op.results);
            return None;
        }
    }
    Some(op)
}

/// A condition that is false at once, and costs nothing to ask.
fn leave_while(cx: &mut Rewriter, op: Op) -> Option<Op> {
    let condition = &op.regions[0];
    let never = cx.as_const(condition.yields[0]) == Some(Scalar::bool(false));
    if !never || condition.ops.iter().any(|o| o.kind.info().effect != Effect::Pure) {
        return Some(op);
    }
    stand_for(cx, &op.operands, &op.results);
    None
}

/// Takes out of a loop what every round hands on as it came. The initial values start at operand `inits`, the carried
/// arguments of the last region at argument `args`.
fn drop_unchanged(cx: &mut Rewriter, op: &mut Op, inits: usize, args: usize) {
    let mut kept = vec![];
    for i in 0..op.results.len() {
        let init = op.operands[inits + i];
        let (Some(&arg), Some(&yielded)) =
            (op.regions.last().and_then(|r| r.args.get(args + i)), op.regions.last().and_then(|r| r.yields.get(i)))
        else {
            return;
        };
        if yielded == arg || cx.now(yielded) == init {
            cx.replace(arg, init);
            cx.replace(op.results[i], init);
            if op.kind == OpKind::While {
                cx.replace(op.regions[0].args[i], init);
            }
        } else {
            kept.push(i);
        }
    }
    if kept.len() < op.results.len() {
        keep_carried(op, &kept);
    }
}

/// Keeps only these of the values that a loop carries or a branch gives.
pub(in crate::passes) fn keep_carried(op: &mut Op, kept: &[usize]) {
    let pick = |values: &mut Vec<Value>, from: usize| {
        let rest: Vec<Value> = kept.iter().map(|&i| values[from + i]).collect();
        values.truncate(from);
        values.extend(rest);
    };
    pick(&mut op.results, 0);
    match op.kind {
        OpKind::For => {
            pick(&mut op.operands, 3);
            pick(&mut op.regions[0].args, 1);
            pick(&mut op.regions[0].yields, 0);
        }
        OpKind::While => {
            pick(&mut op.operands, 0);
            pick(&mut op.regions[0].args, 0);
            pick(&mut op.regions[1].args, 0);
            pick(&mut op.regions[1].yields, 0);
        }
        _ => {
            for r in &mut op.regions {
                let yields = mem::take(&mut r.yields);
                r.yields = kept.iter().map(|&i| yields[i]).collect();
            }
        }
    }
}
