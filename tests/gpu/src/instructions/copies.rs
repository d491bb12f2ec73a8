//! Asynchronous copies: what lands where in shared memory. A tile of numbered elements goes through `cp.async`, bulk and
//! tensor copies with every swizzle, and shared memory is read back byte for byte.

use super::{
    case::{Case, Tolerance::Exact, block, kernel, words},
    formats::Unit,
};
use crate::raw::{
    Arg, Job,
    Level::{self, *},
};
use tegula_ptx::tensor_map::{Element, Fill, Swizzle, TensorMap};

const FAMILY: &str = "copies";

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    plain(&mut out);
    bulk(&mut out);
    tensors(&mut out);
    out
}

/// `cp.async` of each size, whole and cut short (the rest is zeros).
fn plain(out: &mut Vec<Case>) {
    for (cache, bytes) in [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)] {
        for short in [false, true] {
            let size = if short { ", %r4" } else { "" };
            let body = format!(
                ".shared .align 128 .b8 room[2048]; .reg .b32 %r<9>; .reg .b64 %x<4>;
  mov.u32 %r1, room; mad.lo.u32 %r2, %t, {bytes}, %r1; and.b32 %r3, %t, 3; mul.lo.u32 %r4, %r3, {};
  mul.wide.u32 %x1, %t, {bytes}; add.s64 %x2, %p0, %x1;
  cp.async.{cache}.shared.global [%r2], [%x2], {bytes}{size};
  cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; mad.lo.u32 %r5, %t, 4, %r1; add.s64 %x3, %o, 0;
  mul.wide.u32 %x1, %t, 4; add.s64 %x3, %o, %x1;{}",
                bytes / 4,
                (0..bytes / 4).fold(String::new(), |s, i| s + &format!(
                    " ld.shared.b32 %r6, [%r5+{0}]; st.global.b32 [%x3+{0}], %r6;",
                    i * 512
                ))
            );
            let input = words((0..512u32).map(|i| i.wrapping_mul(2_654_435_761)));
            let name = format!("cp.async.{cache}.shared.global {bytes}{}", if short { ", cut short" } else { "" });
            out.push(block(FAMILY, &name, Sm80, 128, &body, vec![input], bytes * 128, Unit::Bits(32)));
        }
    }
}

/// Shared memory for a tile, an mbarrier and its wait.
const ROOM: &str = ".shared .align 1024 .b8 room[8192]; .shared .align 8 .b8 bar[8]; .reg .b32 %r<9>, %bar, %c<5>;
  .reg .b64 %x<6>; .reg .pred %p, %q; mov.u32 %bar, bar; mov.u32 %r1, room; setp.eq.u32 %q, %t, 0;
  @%q mbarrier.init.shared::cta.b64 [%bar], 1; @%q fence.mbarrier_init.release.cluster;
  mov.u32 %r2, 0; mad.lo.u32 %r3, %t, 4, %r1; mov.u32 %r5, 0xeeeeeeee;
  CLEAR: st.shared.b32 [%r3], %r5; add.u32 %r3, %r3, 512; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 16; @%p bra CLEAR;
  fence.proxy.async; bar.sync 0;";
const WAIT: &str = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra WAIT;";
/// All of the room becomes the result.
const DUMP: &str = "mul.wide.u32 %x1, %t, 4; add.s64 %x2, %o, %x1; mov.u32 %r2, 0; mad.lo.u32 %r3, %t, 4, %r1;
  DUMP: ld.shared.b32 %r4, [%r3]; st.global.b32 [%x2], %r4; add.u32 %r3, %r3, 512; add.s64 %x2, %x2, 512;
  add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 16; @%p bra DUMP;";

fn bulk(out: &mut Vec<Case>) {
    let input = || words((0..2048u32).map(|i| i.wrapping_mul(2_654_435_761)));
    let name = "cp.async.bulk.shared::cluster.global";
    let body = format!(
        "{ROOM} @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1040; add.u32 %r6, %r1, 48; add.s64 %x3, %p0, 16;
  @%q {name}.mbarrier::complete_tx::bytes [%r6], [%x3], 1040, [%bar]; {WAIT} {DUMP}"
    );
    out.push(block(FAMILY, name, Sm90, 128, &body, vec![input()], 8192, Unit::Bits(32)));
    let name = "cp.async.bulk.global.shared::cta";
    let store = |op: &str| {
        format!(
            "{ROOM} mad.lo.u32 %r3, %t, 4, %r1; mul.lo.u32 %r4, %t, 40503; add.u32 %r4, %r4, 7; st.shared.b32 [%r3], %r4;
  fence.proxy.async; bar.sync 0; add.s64 %x3, %o, 32;
  @%q {op} [%x3], [%r1], 496; @%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;"
        )
    };
    let body = store("cp.async.bulk.global.shared::cta.bulk_group");
    out.push(block(FAMILY, name, Sm90, 128, &body, vec![], 1024, Unit::Bits(32)));
    for (op, ty) in [("add", "u32"), ("max", "s32"), ("xor", "b32")] {
        let name = format!("cp.reduce.async.bulk.global.shared::cta.{op}.{ty}");
        let body = store(&format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{ty}"));
        out.push(block(FAMILY, &name, Sm90, 128, &body, vec![], 1024, Unit::Bits(32)));
    }
}

/// A case with a map, `map`, of numbered elements; results are all of shared memory, or the array after a store.
fn mapped(name: &str, level: Level, map: TensorMap, array: Vec<u8>, body: &str, store: bool) -> Case {
    let text = format!(
        ".reg .b32 %t; .reg .b64 %o, %m; mov.u32 %t, %tid.x; ld.param.u64 %o, [out]; mov.b64 %m, map; cvta.param.u64 %m, %m;
  {ROOM} {body} ret;"
    );
    let params = ".param .u64 out, .param .u64 array, .param .align 64 .b8 map[128]";
    let ptx = kernel(level, params, &text);
    let array = if store { Arg::InOut(array) } else { Arg::In(array) };
    let args = vec![Arg::Out(8192), array, Arg::Map(Box::new(map), 1)];
    let job = Job { ptx, grid: [1; 3], block: [128, 1, 1], cluster: None, shared: 0, args };
    Case { family: FAMILY, name: name.into(), level, unit: Unit::Bits(8), tolerance: Exact, job }
}

/// Bytes whose place can be told from two neighbours.
fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i / 2 * 40503) >> (8 * (i % 2))) as u8).collect()
}

fn tensors(out: &mut Vec<Case>) {
    let swizzles = [(Swizzle::None, 64), (Swizzle::B32, 32), (Swizzle::B64, 64), (Swizzle::B128, 128)]
        .map(|(s, span)| (s, span as u32));
    for (element, label, fill) in
        [(Element::Bf16, "bf16", Fill::Zero), (Element::U8, "u8", Fill::Zero), (Element::F32, "f32", Fill::Nan)]
    {
        for (swizzle, span) in swizzles {
            let size = element.bytes() as u32;
            let inner = span / size;
            // Rows of a little more than two tiles; 40 of them; tiles of 24 rows.
            let extents = [u64::from(2 * inner + inner / 2), 40];
            let stride = (extents[0] * u64::from(size)).next_multiple_of(16) + 16;
            let mut map = TensorMap::new(element, 0, &extents, &[stride], &[inner, 24], swizzle);
            map.fill = fill;
            let array = numbered((stride * 40) as usize);
            // Inside; over the left and upper edge; over the right and lower edge.
            for (place, x, y) in
                [("inside", inner as i32 / 2, 3), ("before", -(inner as i32 / 2), -5), ("past", 2 * inner as i32, 30)]
            {
                let name = format!("cp.async.bulk.tensor.2d load of {label}, {swizzle:?}, {place}");
                let body = format!(
                    "mov.u32 %c0, {x}; mov.u32 %c1, {y};
  @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {};
  @%q cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%m, {{%c0, %c1}}], [%bar];
  {WAIT} {DUMP}",
                    map.tile_bytes()
                );
                out.push(mapped(&name, Sm90, map.clone(), array.clone(), &body, false));
            }
            // The room is filled with numbered words and stored; what is outside of the array is dropped.
            let fill = "mov.u32 %r2, 0; mad.lo.u32 %r3, %t, 4, %r1; mul.lo.u32 %r4, %t, 40503;
  FILL: st.shared.b32 [%r3], %r4; add.u32 %r3, %r3, 512; add.u32 %r4, %r4, 9941; add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, 16; @%p bra FILL; fence.proxy.async; bar.sync 0;";
            let body = format!(
                "{fill} mov.u32 %c0, {}; mov.u32 %c1, 25;
  @%q cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {{%c0, %c1}}], [%r1];
  @%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;",
                2 * inner
            );
            let name = format!("cp.async.bulk.tensor.2d store of {label}, {swizzle:?}");
            out.push(mapped(&name, Sm90, map, array, &body, true));
        }
    }
    for rank in [1, 3, 4, 5] {
        let extents: Vec<u64> = [24, 5, 4, 3, 2][..rank].to_vec();
        let tile: Vec<u32> = [16, 3, 3, 2, 2][..rank].to_vec();
        let mut strides = vec![];
        for d in 1..rank {
            strides.push(if d == 1 { 112 } else { strides[d - 2] * extents[d - 1] + 32 });
        }
        let bytes = if rank == 1 { 96 } else { strides[rank - 2] * extents[rank - 1] } as usize;
        let map = TensorMap::new(Element::S32, 0, &extents, &strides, &tile, Swizzle::None);
        let coordinates: Vec<String> = (0..rank).map(|d| format!("%c{d}")).collect();
        let set: String = (0..rank).map(|d| format!("mov.u32 %c{d}, {}; ", [4, 1, -1, 1, 0][d])).collect();
        let body = format!(
            "{set} @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {};
  @%q cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%m, {{{}}}], [%bar];
  {WAIT} {DUMP}",
            map.tile_bytes(),
            coordinates.join(", ")
        );
        out.push(mapped(
            &format!("cp.async.bulk.tensor.{rank}d load of s32"),
            Sm90,
            map,
            numbered(bytes),
            &body,
            false,
        ));
    }
}
