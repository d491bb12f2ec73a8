//! Ends of groups of asynchronous copies: `cp.async.commit_group` and `cp.async.bulk.commit_group`.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        op::{Cx, Flow, Op, Outcome},
        warp::Warp,
    },
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("cp.async.commit_group", "", Kind::AsyncCopy, |b| commit(b, |warp, mask| warp.copies.commit(mask))),
    form("cp.async.bulk.commit_group", "", Kind::BulkCopy, |b| commit(b, |warp, mask| warp.bulk.commit(mask))),
];

/// Makes a group of what the lanes issued since their last.
struct Commit(fn(&mut Warp, u32));
impl Op for Commit {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        (self.0)(cx.warp, mask);
        Ok(Flow::Next)
    }
}

fn commit(b: &mut Build<'_, '_>, of: fn(&mut Warp, u32)) -> Built {
    b.operands(0)?;
    b.op(Commit(of))
}
