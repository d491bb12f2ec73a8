//! st.async and red.async: values on their way to another block's shared memory, of which an mbarrier there hears.

use super::{
    atomic::Fold,
    bulk::{issue, lane_address, range, split},
    mbarrier::lanes,
};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        op::{Cx, Flow, Op, Outcome},
        regs::Slot,
        tile::Job,
    },
    mem::{
        Space,
        access::{Address, Request},
        watch::Touch,
    },
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form(
        "st.async",
        "weak shared::cluster mbarrier::complete_tx::bytes v2|v4 : b32 b64 u32 u64 s32 s64 f32 f64",
        Kind::BulkCopy,
        |b| remote(b, false),
    ),
    form(
        "red.async",
        "relaxed cluster shared::cluster mbarrier::complete_tx::bytes inc|dec|min|max|add|and|or|xor \
         : u32 s32 u64 s64 b32 b64",
        Kind::BulkCopy,
        |b| remote(b, true),
    ),
];

struct Remote {
    to: Address,
    barrier: Address,
    values: Vec<Slot>,
    /// Bytes of a value.
    width: usize,
    fold: Option<Fold>,
}
impl Op for Remote {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let bytes = self.width * self.values.len();
        let touch = if self.fold.is_some() { Touch::Atomic } else { Touch::AsyncWrite };
        for lane in lanes(mask) {
            let mut value = [0u8; 16];
            for (slot, part) in self.values.iter().zip(value.chunks_exact_mut(self.width)) {
                match self.width {
                    8 => part.copy_from_slice(&cx.warp.regs.lane::<u64>(*slot, lane).to_le_bytes()),
                    _ => part.copy_from_slice(&cx.warp.regs.lane::<u32>(*slot, lane).to_le_bytes()),
                }
            }
            let address = lane_address(cx, self.to, lane);
            let at = range(cx, lane, address, Request { space: Space::Shared, bytes, align: bytes, touch })?;
            let barrier = split(cx, lane_address(cx, self.barrier, lane));
            let job = Job::Value { to: at.ptr(lane), value, bytes, fold: self.fold };
            issue(cx, lane, barrier, &at, job, bytes, bytes)?;
        }
        Ok(Flow::Next)
    }
}

fn remote(b: &mut Build<'_, '_>, reduces: bool) -> Built {
    b.operands(3)?;
    if !b.quals.has("mbarrier::complete_tx::bytes") || !b.quals.has("shared::cluster") {
        return b.error(format!("`{}` needs .shared::cluster.mbarrier::complete_tx::bytes", b.inst.name()));
    }
    let ty = b.ty(0)?;
    let count = match b.quals.pick(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    let parts = b.parts(1)?;
    if parts.len() != count || count * ty.bytes() > 16 {
        return b.error(format!("`{}` takes {count} values of at most 16 bytes, found {}", b.inst.name(), parts.len()));
    }
    let fold = match (reduces, b.quals.pick(&["inc", "dec", "min", "max", "add", "and", "or", "xor"])) {
        (false, _) => None,
        (true, Some(op)) => match Fold::of(op, ty) {
            Some(fold) => Some(fold),
            None => return b.unsupported(),
        },
        (true, None) => return b.error("red.async needs an operation such as .add"),
    };
    let ((to, _), (barrier, _)) = (b.address(0)?, b.address(2)?);
    let mut values = Vec::new();
    for part in parts {
        values.push(b.src_of(part, ty.bits())?);
    }
    b.op(Remote { to, barrier, values, width: ty.bytes(), fold })
}
