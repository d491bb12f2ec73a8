//! mbarriers, bulk and tensor copies, against plain loops, with early and late completion; and bugs planted in them.

mod common;
use common::{HEAD, Machine, Random, kernel, machine};
use proptest::prelude::*;
use tegula_ptx::{
    Completion, Fault, FaultKind, Grid, Options, Param,
    tensor_map::{Element, Fill, Swizzle, TensorMap},
};

fn both() -> [Options; 2] {
    [Completion::Early, Completion::Late].map(|completion| Options { completion, ..Options::default() })
}

/// Runs a kernel that must fail, in both modes, with `words` in the message.
fn fails(text: &str, threads: u32, params: impl Fn(&mut Machine) -> Vec<Param>, kind: FaultKind, words: &[&str]) {
    for options in both() {
        let completion = options.completion;
        let mut m = machine(text, options);
        let params = params(&mut m);
        let fault: Box<Fault> = m.run("k", Grid::new(1, threads), &params).unwrap_err();
        assert_eq!(fault.kind, kind, "{completion:?}: {fault}");
        for word in words.iter().chain(&["kernel k", "PTX line"]) {
            assert!(fault.to_string().contains(word), "{completion:?}: {word} in {fault}");
        }
    }
}

/// A kernel whose thread 0 has made an mbarrier for `count` arrivals at `[%bar]` and fenced it; 1 KiB at `[%buf]`.
fn with_barrier(count: u32, params: &str, body: &str) -> String {
    kernel(
        "k",
        params,
        &format!(
            ".shared .align 1024 .b8 buffer[4096]; .shared .align 8 .b8 barrier[16];
             .reg .b32 %t, %buf, %bar, %r<20>; .reg .b64 %x<20>, %s; .reg .pred %p<9>, %first; mov.u32 %t, %tid.x;
             mov.u32 %buf, buffer; mov.u32 %bar, barrier; setp.eq.u32 %first, %t, 0;
             @%first mbarrier.init.shared::cta.b64 [%bar], {count};
             @%first fence.mbarrier_init.release.cluster;
             bar.sync 0;
             {body} ret;"
        ),
    )
}

const WAIT: &str = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra WAIT;";

#[test]
fn a_bulk_copy_comes_and_goes() {
    let body = format!(
        "ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to];
         @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;
         @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%buf], [%x0], 512, [%bar];
         {WAIT}
         mul.lo.u32 %r1, %t, 4; add.u32 %r1, %r1, %buf; ld.shared.u32 %r2, [%r1]; mul.lo.u32 %r2, %r2, 3;
         st.shared.u32 [%r1+1024], %r2; fence.proxy.async; bar.sync 0; add.u32 %r3, %buf, 1024;
         @%first cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r3], 512;
         @%first cp.async.bulk.commit_group;
         @%first cp.async.bulk.wait_group 0;"
    );
    let text = with_barrier(1, ".param .u64 from, .param .u64 to", &body);
    for options in both() {
        let mut m = machine(&text, options);
        let values: Vec<u32> = (0..128).map(|i| i * i + 7).collect();
        let (from, to) = (m.put(&values), m.room(512));
        m.run("k", Grid::new(1, 128), &[Param::U64(from), Param::U64(to)]).unwrap();
        assert_eq!(m.get::<u32>(to, 128), values.iter().map(|v| v * 3).collect::<Vec<_>>());
    }
}

#[test]
fn phases_alternate_between_a_producer_and_consumers() {
    // A ring of two buffers of 128 words: warp 0 copies in, warps 1 and 2 sum up; "full" and "empty" barriers hand over.
    let text = kernel(
        "k",
        ".param .u64 from, .param .u64 to",
        ".shared .align 128 .b8 ring[1024]; .shared .align 8 .b8 bars[32]; .reg .b32 %t, %w, %r<20>; .reg .b64 %x<9>;
         .reg .pred %p<9>; mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; mov.u32 %r1, bars; setp.ne.u32 %p1, %t, 0; @%p1 bra MADE;
         mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+8], 1;
         mbarrier.init.shared::cta.b64 [%r1+16], 64; mbarrier.init.shared::cta.b64 [%r1+24], 64;
         fence.mbarrier_init.release.cluster;
         MADE: bar.sync 0; mov.u32 %r2, 0; mov.u32 %r10, 0; setp.ne.u32 %p2, %w, 0; @%p2 bra CONSUME;
         @%p1 bra DONE; ld.param.u64 %x1, [from];
         PRODUCE: and.b32 %r3, %r2, 1; shr.u32 %r4, %r2, 1; and.b32 %r4, %r4, 1; xor.b32 %r5, %r4, 1;
         mad.lo.u32 %r6, %r3, 8, %r1; mov.u32 %r7, ring; mad.lo.u32 %r7, %r3, 512, %r7;
         E: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6+16], %r5; @!%p3 bra E;
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 512;
         cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r7], [%x1], 512, [%r6];
         add.s64 %x1, %x1, 512; add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 9; @%p4 bra PRODUCE; bra DONE;
         CONSUME: and.b32 %r3, %r2, 1; shr.u32 %r4, %r2, 1; and.b32 %r4, %r4, 1;
         mad.lo.u32 %r6, %r3, 8, %r1; mov.u32 %r7, ring; mad.lo.u32 %r7, %r3, 512, %r7; sub.u32 %r8, %t, 32;
         mad.lo.u32 %r7, %r8, 8, %r7;
         F: mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r6], %r4; @!%p3 bra F;
         ld.shared.v2.u32 {%r11, %r12}, [%r7]; mad.lo.u32 %r10, %r10, 3, %r11; mad.lo.u32 %r10, %r10, 3, %r12;
         mbarrier.arrive.shared::cta.b64 _, [%r6+16];
         add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 9; @%p4 bra CONSUME;
         ld.param.u64 %x2, [to]; mul.wide.u32 %x3, %r8, 4; add.s64 %x2, %x2, %x3; st.global.u32 [%x2], %r10;
         DONE: ret;",
    );
    for options in both() {
        let mut m = machine(&text, options);
        let mut random = Random(1);
        let values: Vec<u32> = (0..9 * 128).map(|_| random.next() as u32).collect();
        let (from, to) = (m.put(&values), m.room(256));
        m.run("k", Grid::new(1, 96), &[Param::U64(from), Param::U64(to)]).unwrap();
        let sum = |i: usize| {
            (0..9).fold(0u32, |s, r| {
                let [a, b] = [values[r * 128 + 2 * i], values[r * 128 + 2 * i + 1]];
                (s.wrapping_mul(3).wrapping_add(a)).wrapping_mul(3).wrapping_add(b)
            })
        };
        assert_eq!(m.get::<u32>(to, 64), (0..64).map(sum).collect::<Vec<_>>());
    }
}

#[test]
fn tokens_counts_and_dropping() {
    // 32 arrivals by tokens; then half of the threads leave for good, and 16 complete the next phase.
    let body = "mbarrier.arrive.shared::cta.b64 %s, [%bar];
        W: mbarrier.test_wait.shared::cta.b64 %p1, [%bar], %s; @!%p1 bra W;
        mbarrier.pending_count.b64 %r1, %s; setp.lt.u32 %p2, %t, 16;
        @%p2 mbarrier.arrive_drop.shared::cta.b64 _, [%bar]; @!%p2 mbarrier.arrive.shared::cta.b64 _, [%bar];
        V: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 1; @!%p1 bra V;
        @!%p2 mbarrier.arrive.shared::cta.b64 _, [%bar], 1;
        U: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0, 1000; @!%p1 bra U;
        @%first mbarrier.inval.shared::cta.b64 [%bar];
        ld.param.u64 %x1, [out]; mul.wide.u32 %x2, %t, 4; add.s64 %x1, %x1, %x2; st.global.u32 [%x1], %r1;";
    for options in both() {
        let mut m = machine(&with_barrier(32, ".param .u64 out", body), options);
        let out = m.room(128);
        m.run("k", Grid::new(1, 32), &[Param::U64(out)]).unwrap();
        // The token holds what was missing before each arrival.
        assert_eq!(m.get::<u32>(out, 32), (0..32).map(|i| 32 - i).collect::<Vec<u32>>());
    }
}

#[test]
fn cp_async_arrives_at_a_barrier() {
    for noinc in [".noinc", ""] {
        // With .noinc each of 64 copies is one of the expected arrivals; without, one plain arrival each is.
        let plain = if noinc.is_empty() { "mbarrier.arrive.shared::cta.b64 _, [%bar];" } else { "" };
        let body = format!(
            "ld.param.u64 %x1, [from]; ld.param.u64 %x3, [to]; mul.wide.u32 %x2, %t, 16; add.s64 %x1, %x1, %x2;
             add.s64 %x3, %x3, %x2;
             mul.lo.u32 %r1, %t, 16; add.u32 %r1, %r1, %buf; cp.async.cg.shared.global [%r1], [%x1], 16;
             cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%bar]; {plain}
             {WAIT}
             xor.b32 %r2, %t, 63; mul.lo.u32 %r2, %r2, 16; add.u32 %r2, %r2, %buf;
             ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2]; st.global.v4.u32 [%x3], {{%r4, %r5, %r6, %r7}};"
        );
        let text = with_barrier(64, ".param .u64 from, .param .u64 to", &body);
        for options in both() {
            let mut m = machine(&text, options);
            let values: Vec<u128> = (0..64).map(|i| i << 77 | i).collect();
            let (from, to) = (m.put(&values), m.room(1024));
            m.run("k", Grid::new(1, 64), &[Param::U64(from), Param::U64(to)]).unwrap();
            let reversed: Vec<u128> = values.iter().rev().copied().collect();
            assert_eq!(m.get::<u128>(to, 64), reversed);
        }
    }
}

#[test]
fn bulk_reductions() {
    let cases: [(&str, fn(u32, u32) -> u32); 5] = [
        ("add.u32", |a, b| a.wrapping_add(b)),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.u32", |a, b| a.max(b)),
        ("xor.b32", |a, b| a ^ b),
        ("inc.u32", |a, b| if a >= b { 0 } else { a + 1 }),
    ];
    for (op, f) in cases {
        let body = format!(
            "ld.param.u64 %x0, [from]; ld.param.u64 %x1, [to]; mul.wide.u32 %x2, %t, 4; add.s64 %x2, %x2, %x0;
             ld.global.u32 %r1, [%x2]; mad.lo.u32 %r2, %t, 4, %buf; st.shared.u32 [%r2], %r1;
             fence.proxy.async.shared::cta; bar.sync 0;
             @%first cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%x1], [%buf], 128;
             @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group.read 0;"
        );
        let text = with_barrier(1, ".param .u64 from, .param .u64 to", &body);
        for options in both() {
            let mut m = machine(&text, options);
            let mut random = Random(5);
            let a: Vec<u32> = (0..32).map(|_| random.next() as u32).collect();
            let b: Vec<u32> = (0..32).map(|_| random.next() as u32).collect();
            let (from, to) = (m.put(&b), m.put(&a));
            m.run("k", Grid::new(1, 32), &[Param::U64(from), Param::U64(to)]).unwrap();
            let want: Vec<u32> = a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect();
            assert_eq!(m.get::<u32>(to, 32), want, "{op}");
        }
    }
}

// ---- tensor copies ------------------------------------------------------------------------------------------------------

/// A kernel that loads one tile and gives shared memory as it is, 4 KiB from `buffer`.
fn load_tile(rank: usize) -> String {
    let coordinates: Vec<String> = (0..rank).map(|d| format!("%r{}", 4 + d)).collect();
    let reads: String = (0..rank).map(|d| format!("ld.param.u32 %r{}, [c{d}];", 4 + d)).collect();
    let names: Vec<String> = (0..rank).map(|d| format!(".param .u32 c{d}")).collect();
    let body = format!(
        "{reads} ld.param.u32 %r1, [bytes]; mov.b64 %x1, map; cvta.param.u64 %x1, %x1; mov.u32 %r2, 0;
         mad.lo.u32 %r3, %t, 128, %buf;
         FILL: add.u32 %r10, %r3, %r2; st.shared.u32 [%r10], -1; add.u32 %r2, %r2, 4; setp.lt.u32 %p2, %r2, 128;
         @%p2 bra FILL; fence.proxy.async; bar.sync 0;
         @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %r1;
         @%first cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes \
             [%buf], [%x1, {{{}}}], [%bar];
         {WAIT}
         ld.param.u64 %x2, [out]; mul.wide.u32 %x3, %t, 128; add.s64 %x2, %x2, %x3; mov.u32 %r2, 0;
         OUT: add.u32 %r10, %r3, %r2; ld.shared.u32 %r11, [%r10]; cvt.u64.u32 %x4, %r2; add.s64 %x5, %x2, %x4;
         st.global.u32 [%x5], %r11; add.u32 %r2, %r2, 4; setp.lt.u32 %p2, %r2, 128; @%p2 bra OUT;",
        coordinates.join(", ")
    );
    let params = format!(".param .align 64 .b8 map[128], .param .u64 out, .param .u32 bytes, {}", names.join(", "));
    with_barrier(1, &params, &body)
}

/// One load against a loop over the tile's elements.
fn check_load(map: &TensorMap, at: &[i32], array: &[u8]) {
    let rank = map.extents.len();
    let size = map.element.bytes();
    let taken: Vec<usize> = (0..rank).map(|d| map.tile[d].div_ceil(map.steps[d]) as usize).collect();
    let mut want = vec![0xffu8; 4096];
    for i in 0..taken.iter().product::<usize>() {
        // Element i of the tile in row order, and its place in the array.
        let (mut left, mut from, mut inside) = (i, 0i64, true);
        for d in 0..rank {
            let x = at[d] as i64 + (left % taken[d]) as i64 * map.steps[d] as i64;
            left /= taken[d];
            inside &= x >= 0 && x < map.extents[d] as i64;
            from += x * if d == 0 { size as i64 } else { map.strides[d - 1] as i64 };
        }
        // Pieces of 16 bytes change places within their row of the span, by the row's number (the buffer is aligned).
        let byte = i * size;
        let (row, piece) = (byte / 128, byte / 16 % 8);
        let piece = match map.swizzle {
            Swizzle::None => piece,
            Swizzle::B32 => piece ^ row & 1,
            Swizzle::B64 => piece ^ row & 3,
            Swizzle::B128 => piece ^ row & 7,
        };
        let to = row * 128 + piece * 16 + byte % 16;
        for b in 0..size {
            let outside = if map.fill == Fill::Nan { [0xff, 0x7f][(b == size - 1) as usize] } else { 0 };
            want[to + b] = if inside { array[from as usize + b] } else { outside };
        }
    }
    let text = load_tile(rank);
    for options in both() {
        let mut m = machine(&text, options);
        let (address, out) = (m.put(array), m.room(4096));
        let map = TensorMap { address, ..map.clone() };
        let mut params = vec![Param::Bytes(map.encode().unwrap().to_vec()), Param::U64(out)];
        params.push(Param::U32((taken.iter().product::<usize>() * size) as u32));
        params.extend(at.iter().map(|c| Param::I32(*c)));
        m.run("k", Grid::new(1, 32), &params).unwrap_or_else(|e| panic!("{map:?} at {at:?}: {e}"));
        assert!(m.get::<u8>(out, 4096) == want, "{map:?} at {at:?}");
    }
}

/// Maps of every rank with tiles of at most 4 KiB, and coordinates around the array's edges.
fn maps() -> impl Strategy<Value = (TensorMap, Vec<i32>)> {
    let elements = prop_oneof![
        Just(Element::U8),
        Just(Element::Bf16),
        Just(Element::F16),
        Just(Element::F32),
        Just(Element::S32),
        Just(Element::F64)
    ];
    let swizzles = prop_oneof![Just(Swizzle::None), Just(Swizzle::B32), Just(Swizzle::B64), Just(Swizzle::B128)];
    (elements, swizzles, 1usize..=5, any::<u64>()).prop_map(|(element, swizzle, rank, seed)| {
        let mut random = Random(seed);
        let mut pick = |low: u64, high: u64| low + random.next() % (high - low + 1);
        let size = element.bytes() as u64;
        // With a swizzle the inner extent fills the span, as hardware's layouts assume.
        let inner = if swizzle == Swizzle::None { 16 * pick(1, 6) } else { swizzle.span() as u64 } / size;
        let mut tile = vec![inner as u32];
        let mut bytes = inner * size;
        for _ in 1..rank {
            let n = pick(1, 6).min(4096 / bytes).max(1);
            tile.push(n as u32);
            bytes *= n;
        }
        let mut extents: Vec<u64> = tile.iter().map(|t| pick(1, 2 * *t as u64)).collect();
        extents[0] = pick(1, 3 * inner);
        let mut strides: Vec<u64> = Vec::new();
        for d in 1..rank {
            let before = if d == 1 { extents[0] * size } else { strides[d - 2] * extents[d - 1] };
            strides.push(before.next_multiple_of(16) + 16 * pick(0, 2));
        }
        let at = (0..rank).map(|d| pick(0, extents[d] + 2 * tile[d] as u64) as i32 - tile[d] as i32).collect();
        let mut map = TensorMap::new(element, 0, &extents, &strides, &tile, swizzle);
        if swizzle == Swizzle::None {
            map.steps = (0..rank).map(|_| [1, 1, 2, 3][pick(0, 3) as usize]).collect();
        }
        if matches!(element, Element::Bf16 | Element::F16 | Element::F32 | Element::F64) && pick(0, 1) == 1 {
            map.fill = Fill::Nan;
        }
        (map, at)
    })
}

fn array_bytes(map: &TensorMap) -> usize {
    let last = map.extents.len() - 1;
    let bytes =
        if last == 0 { map.extents[0] * map.element.bytes() as u64 } else { map.extents[last] * map.strides[last - 1] };
    bytes as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn tiles_are_loaded((map, at) in maps()) {
        let mut random = Random(11);
        let array: Vec<u8> = (0..array_bytes(&map)).map(|_| random.next() as u8).collect();
        // Bit patterns move as they are, but NaN of the fill: bf16 and f16 have 0x7fff, wider ones all ones but the sign.
        check_load(&map, &at, &array);
    }
}

#[test]
fn tiles_are_stored_and_reduced() {
    for reduce in [false, true] {
        let op = if reduce {
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile"
        } else {
            "cp.async.bulk.tensor.2d.global.shared::cta"
        };
        let body = format!(
            "mov.b64 %x1, map; mov.u32 %r2, 0; mov.u32 %r4, -3; mov.u32 %r5, 5;
             FILL: mad.lo.u32 %r6, %r2, 32, %t; mad.lo.u32 %r7, %r6, 4, %buf; add.u32 %r6, %r6, 1000;
             st.shared.u32 [%r7], %r6; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 6; @%p2 bra FILL;
             fence.proxy.async; bar.sync 0;
             @%first {op}.bulk_group [%x1, {{%r4, %r5}}], [%buf];
             @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group.read 0; bar.sync 0;
             st.shared.u32 [%buf], 0;"
        )
        .replace("mov.b64 %x1, map;", "mov.b64 %x1, map; cvta.param.u64 %x1, %x1;");
        let text = with_barrier(1, ".param .align 64 .b8 map[128]", &body);
        // An array of 9 x 20 words with rows of 24; a tile of 6 x 32 that sticks out left, right and below.
        let array: Vec<u32> = (0..9 * 24).map(|i| i * 7).collect();
        let mut want = array.clone();
        for r in 0..6usize {
            for c in 0..32usize {
                let (row, col) = (r + 5, c as i64 - 3);
                if row < 9 && (0..20).contains(&col) {
                    let at = row * 24 + col as usize;
                    want[at] = 1000 + (r * 32 + c) as u32 + if reduce { array[at] } else { 0 };
                }
            }
        }
        for options in both() {
            let mut m = machine(&text, options);
            let address = m.put(&array);
            let mut map = TensorMap::new(Element::U32, address, &[20, 9], &[96], &[32, 6], Swizzle::B128);
            map.swizzle = Swizzle::None;
            m.run("k", Grid::new(1, 32), &[Param::Bytes(map.encode().unwrap().to_vec())]).unwrap();
            assert_eq!(m.get::<u32>(address, 9 * 24), want, "reduce {reduce}");
        }
    }
}

#[test]
fn modes_that_are_not_there_say_so() {
    let body = ".reg .b32 %z; mov.b64 %x1, map; mov.u32 %z, 0;
        cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%buf], [%x1, {%z, %z, %z}], [%bar];";
    let text = with_barrier(1, ".param .align 64 .b8 map[128]", body);
    let said = common::machine_error(&text, "k");
    assert!(said.contains("`.im2col` tensor copies are not supported"), "{said}");
}

#[test]
fn a_wrong_map_or_tile_is_named() {
    let text = load_tile(1);
    let params = |bytes: Vec<u8>| {
        move |m: &mut Machine| {
            let out = m.room(4096);
            vec![Param::Bytes(bytes.clone()), Param::U64(out), Param::U32(64), Param::U32(0)]
        }
    };
    fails(&text, 32, params(vec![3; 128]), FaultKind::Operand, &["these 128 bytes are no tensor map"]);
    let beyond = |m: &mut Machine| {
        let address = m.put(&[1u32; 20]);
        let map = TensorMap::new(Element::U32, address, &[24], &[], &[24], Swizzle::None);
        let out = m.room(4096);
        vec![Param::Bytes(map.encode().unwrap().to_vec()), Param::U64(out), Param::U32(96), Param::U32(0)]
    };
    fails(&text, 32, beyond, FaultKind::Bounds, &["the tile reaches bytes 0..96", "past the end of allocation `data`"]);
}

// ---- planted bugs --------------------------------------------------------------------------------------------------------

/// A kernel around one bulk copy of 512 bytes into the buffer; the pieces may be left out or changed.
fn copy_in(expect: &str, wait: &str, after: &str) -> String {
    let body = format!(
        "ld.param.u64 %x0, [from]; mad.lo.u32 %r1, %t, 4, %buf; {expect}
         @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%buf], [%x0], 512, [%bar];
         {wait} ld.shared.u32 %r2, [%r1]; {after}"
    );
    with_barrier(1, ".param .u64 from", &body)
}

const EXPECT: &str = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;";

fn source(m: &mut Machine) -> Vec<Param> {
    vec![Param::U64(m.put(&[5u32; 128]))]
}

#[test]
fn planted_bugs_in_copies_are_found() {
    // The untouched one is right.
    for options in both() {
        let mut m = machine(&copy_in(EXPECT, WAIT, ""), options);
        let params = source(&mut m);
        m.run("k", Grid::new(1, 128), &params).unwrap();
    }
    // An early read.
    fails(
        &copy_in(EXPECT, "bar.sync 0;", ""),
        128,
        source,
        FaultKind::Asynchronous,
        &["which an asynchronous copy writes that nothing has waited for", "ld.shared.u32"],
    );
    // A lost arrival: nobody tells the barrier how much to expect.
    let lost = "@%first mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 512;";
    fails(
        &copy_in(lost, WAIT, ""),
        128,
        source,
        FaultKind::Deadlock,
        &[
            "wait at PTX line",
            "the mbarrier at shared address 0x",
            "phase 0 (parity 0), which lacks 1 of 1 arrivals and 0 bytes",
        ],
    );
    // Too many bytes expected.
    fails(
        &copy_in(&EXPECT.replace("512", "528"), WAIT, ""),
        128,
        source,
        FaultKind::Deadlock,
        &["which lacks 0 of 1 arrivals and 16 bytes"],
    );
    // Two arrivals where one is expected.
    fails(
        &copy_in(&EXPECT.repeat(2), WAIT, ""),
        128,
        source,
        FaultKind::Synchronisation,
        &["1 arrivals at an mbarrier where 0 of 1 are missing in phase 0"],
    );
    // The buffer is filled anew while other warps may still read.
    let again = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%buf], [%x0], 512, [%bar];";
    for options in both() {
        let mut m = machine(&copy_in(EXPECT, WAIT, &format!("{again} ld.shared.u32 %r3, [%r1];")), options);
        let params = source(&mut m);
        let fault = m.run("k", Grid::new(1, 128), &params).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Race | FaultKind::Asynchronous), "{fault}");
    }
    // A misplaced destination.
    fails(
        &copy_in(EXPECT, WAIT, "").replace("bytes [%buf]", "bytes [%buf+8]"),
        128,
        source,
        FaultKind::Alignment,
        &["no multiple of 16"],
    );
}

#[test]
fn planted_store_without_a_proxy_fence() {
    let body = |fence: &str, barrier: &str| {
        format!(
            "ld.param.u64 %x1, [to]; mad.lo.u32 %r1, %t, 4, %buf; st.shared.u32 [%r1], %t; {fence} {barrier}
             @%first cp.async.bulk.global.shared::cta.bulk_group [%x1], [%buf], 256;
             @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;"
        )
    };
    let room = |m: &mut Machine| vec![Param::U64(m.room(256))];
    let text = |fence: &str, barrier: &str| with_barrier(1, ".param .u64 to", &body(fence, barrier));
    for (fence, barrier) in [("fence.proxy.async;", "bar.sync 0;"), ("bar.sync 0;", "fence.proxy.async;")] {
        for options in both() {
            let mut m = machine(&text(fence, barrier), options);
            let params = room(&mut m);
            m.run("k", Grid::new(1, 64), &params).unwrap();
            let Param::U64(to) = params[0] else { unreachable!() };
            assert_eq!(m.get::<u32>(to, 64), (0..64).collect::<Vec<u32>>());
        }
    }
    let words = ["no fence.proxy.async since", "cp.async.bulk.global"];
    fails(&text("", "bar.sync 0;"), 64, room, FaultKind::Asynchronous, &words);
}

#[test]
fn planted_races_between_warps() {
    // Warp 1 reads what warp 0 wrote; the barrier between is missing, or there.
    let body = |sync: &str| {
        format!(
            "ld.param.u64 %x1, [out]; mad.lo.u32 %r1, %t, 4, %buf; st.shared.u32 [%r1], %t; {sync}
             xor.b32 %r2, %t, 32; mad.lo.u32 %r2, %r2, 4, %buf; .loc 1 9 3
             ld.shared.u32 %r3, [%r2];"
        )
    };
    let text = |sync: &str| {
        with_barrier(1, ".param .u64 out", &body(sync)).replace(HEAD, &format!("{HEAD}.file 1 \"kernel.rs\"\n"))
    };
    let room = |m: &mut Machine| vec![Param::U64(m.room(256))];
    let mut m = machine(&text("bar.sync 0;"), Options::default());
    let params = room(&mut m);
    m.run("k", Grid::new(1, 64), &params).unwrap();
    // Reads and writes of the same bytes between two barriers are a race, whichever comes first in this run.
    let swap = "bar.sync 0; xor.b32 %r5, %t, 32; mad.lo.u32 %r5, %r5, 4, %buf; ld.shared.u32 %r6, [%r5];
        st.shared.u32 [%r1], 0; bar.sync 0;";
    fails(
        &text(swap),
        64,
        room,
        FaultKind::Race,
        &["race: warp 1 reads shared address", "which warp 0 wrote at PTX line"],
    );
    // Warp 0 reads everything, then warp 1 overwrites its part.
    let overwrite = "bar.sync 0; ld.shared.u32 %r5, [%buf+128]; setp.lt.u32 %p3, %t, 32; @!%p3 st.shared.u32 [%r1], 0;
        bar.sync 0;";
    fails(&text(overwrite), 64, room, FaultKind::Race, &["race: warp 1 overwrites", "which warp 0 read"]);
    let late = "setp.lt.u32 %p3, %t, 32; @%p3 bra SKIP; nanosleep.u32 1; SKIP:";
    let fault = {
        let mut m = machine(&text(late), Options::default());
        let params = room(&mut m);
        m.run("k", Grid::new(1, 64), &params).unwrap_err()
    };
    assert!(matches!(fault.kind, FaultKind::Race | FaultKind::Uninitialised), "{fault}");
    assert!(fault.to_string().contains("kernel.rs:9:3"), "{fault}");
}

#[test]
fn planted_barrier_mistakes() {
    let none = |_: &mut Machine| Vec::new();
    let arrive = "mbarrier.arrive.shared::cta.b64 _, [%bar+8];";
    fails(
        &with_barrier(1, "", arrive),
        32,
        none,
        FaultKind::Synchronisation,
        &["there is no mbarrier at shared address"],
    );
    let twice = "@%first mbarrier.init.shared::cta.b64 [%bar], 2;";
    fails(&with_barrier(1, "", twice), 32, none, FaultKind::Synchronisation, &["mbarrier.init where one exists"]);
    let zero = "@%first mbarrier.init.shared::cta.b64 [%bar+8], 0;";
    fails(&with_barrier(1, "", zero), 32, none, FaultKind::Synchronisation, &["with a count of 0"]);
    // One of two arrivals is lost.
    let lost = format!("@%first mbarrier.arrive.shared::cta.b64 _, [%bar]; {WAIT}");
    let words = ["lacks 1 of 2 arrivals and 0 bytes", "lanes 0xffffffff", "phase 0"];
    fails(&with_barrier(2, "", &lost), 32, none, FaultKind::Deadlock, &words);
}
