//! Loads, stores, atomics, cp.async, warp instructions, printf, and the faults that strict mode finds.

mod common;
use common::*;
use tegula_ptx::{Completion, FaultKind, Grid, Options, Param};

/// Threads of one block write what `%d` becomes from `%tid.x` in `%t`.
fn per_thread(body: &str, threads: u32, options: Options) -> Vec<u32> {
    let text = format!(
        "{HEAD} .shared .align 16 .b8 buffer[4096]; {}",
        entry(
            "k",
            ".param .u64 out, .param .u64 data",
            &format!(
                ".reg .pred %p<6>; .reg .b16 %h<6>; .reg .b32 %t, %d, %r<20>; .reg .b64 %rd<12>; .reg .f32 %f<6>;
                 mov.u32 %t, %tid.x; mov.u32 %d, 0; ld.param.u64 %rd10, [data];
                 {body}
                 ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %t, 4; add.s64 %rd3, %rd1, %rd2;
                 st.global.u32 [%rd3], %d; ret;"
            )
        )
    );
    let mut m = machine(&text, options);
    let out = m.put(&vec![0u32; threads as usize]);
    let data = m.put(&(0..1024u32).map(|i| i.wrapping_mul(2654435761)).collect::<Vec<_>>());
    m.run("k", Grid::new(1, threads), &[Param::U64(out), Param::U64(data)]).unwrap_or_else(|e| panic!("{e}"));
    m.get(out, threads as usize)
}

/// The fault of such a body.
fn fault(body: &str, threads: u32) -> Box<tegula_ptx::Fault> {
    let text = format!(
        "{HEAD} .shared .align 16 .b8 buffer[4096]; {}",
        entry(
            "k",
            ".param .u64 data",
            &format!(
                ".reg .pred %p<6>; .reg .b32 %t, %d, %r<20>; .reg .b64 %rd<12>;
                 mov.u32 %t, %tid.x; ld.param.u64 %rd1, [data]; {body} ret;"
            )
        )
    );
    let mut m = machine(&text, Options { threads: 1, ..Options::default() });
    let data = m.room(4096);
    m.run("k", Grid::new(1, threads), &[Param::U64(data)]).unwrap_err()
}

fn data(i: u32) -> u32 {
    i.wrapping_mul(2654435761)
}

#[test]
fn every_width_and_vector_moves_the_right_bytes() {
    // Bytes 0..: little endian of data(i). Each lane loads at its own, shuffled place.
    let bytes: Vec<u8> = (0..1024u32).flat_map(|i| data(i).to_le_bytes()).collect();
    for options in modes() {
        for (ty, reg, size) in
            [("u8", "%h1", 1), ("s8", "%h1", 1), ("u16", "%h1", 2), ("u32", "%d", 4), ("s16", "%d", 2), ("s8", "%d", 1)]
        {
            let end = if reg == "%h1" { "cvt.u32.u16 %d, %h1;" } else { "" };
            let got = per_thread(
                &format!(
                    "mul.lo.u32 %r1, %t, 7; and.b32 %r1, %r1, 63; mul.wide.u32 %rd4, %r1, {size};
                     add.s64 %rd4, %rd4, %rd10; ld.global.{ty} {reg}, [%rd4+{}]; {end}",
                    size * 3
                ),
                50,
                options.clone(),
            );
            for (t, got) in got.into_iter().enumerate() {
                let at = (((t * 7) & 63) + 3) * size;
                let mut v = [0u8; 4];
                v[..size].copy_from_slice(&bytes[at..at + size]);
                let v = u32::from_le_bytes(v);
                let want = match (ty, reg) {
                    ("s8", "%h1") => v as u8 as i8 as i16 as u16 as u32,
                    ("s8", _) => v as u8 as i8 as u32,
                    ("s16", _) => v as u16 as i16 as u32,
                    _ => v,
                };
                assert_eq!(got, want, "{ty} into {reg}, thread {t}");
            }
        }
        // Vectors through shared memory, forwards and back: v4 of 32 bits, v2 of 64, v2 of 16.
        let got = per_thread(
            "mul.wide.u32 %rd4, %t, 16; add.s64 %rd4, %rd4, %rd10; mov.u32 %r9, buffer; mad.lo.u32 %r9, %t, 16, %r9;
             ld.global.L1::evict_last.v4.b32 {%r1, %r2, %r3, %r4}, [%rd4]; st.shared.v4.b32 [%r9], {%r4, %r3, %r2, %r1};
             ld.shared.v2.b64 {%rd5, %rd6}, [%r9]; mov.b64 {%r5, %r6}, %rd5; mov.b64 {%r7, %r8}, %rd6;
             ld.shared.v2.u16 {%h1, %h2}, [%r9+4]; mov.b32 %r10, {%h1, %h2};
             sub.s32 %r5, %r5, %r4; sub.s32 %r6, %r6, %r3; sub.s32 %r7, %r7, %r2; sub.s32 %r8, %r8, %r1; sub.s32 %r10, %r10, %r3;
             or.b32 %d, %r5, %r6; or.b32 %d, %d, %r7; or.b32 %d, %d, %r8; or.b32 %d, %d, %r10; add.s32 %d, %d, %r1;",
            64,
            options,
        );
        assert_eq!(got, (0..64).map(|t| data(4 * t)).collect::<Vec<_>>());
    }
}

#[test]
fn generic_addresses_reach_every_space() {
    for options in modes() {
        // Odd lanes read global memory, even lanes shared memory, by one instruction.
        let got = per_thread(
            "mov.u64 %rd4, buffer; cvta.shared.u64 %rd5, %rd4; mul.wide.u32 %rd6, %t, 4; add.s64 %rd5, %rd5, %rd6;
             add.s32 %r1, %t, 1000; st.u32 [%rd5], %r1; add.s64 %rd7, %rd10, %rd6;
             and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 1; selp.b64 %rd8, %rd7, %rd5, %p1;
             ld.u32 %d, [%rd8]; isspacep.shared %p2, %rd8; isspacep.global %p3, %rd8;
             @%p2 add.s32 %d, %d, 1; @%p3 add.s32 %d, %d, 2;",
            40,
            options,
        );
        for (t, v) in got.into_iter().enumerate() {
            let t = t as u32;
            assert_eq!(v, if t % 2 == 1 { data(t).wrapping_add(2) } else { t + 1001 });
        }
    }
}

#[test]
fn atomics_add_up_over_blocks_and_give_old_values() {
    let text = kernel(
        "k",
        ".param .u64 sums",
        ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p<3>;
         ld.param.u64 %rd1, [sums]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; add.s32 %r3, %r1, %r2;
         red.global.add.u32 [%rd1], %r3;
         atom.global.gpu.relaxed.max.s32 %r4, [%rd1+4], %r3;
         atom.global.inc.u32 %r5, [%rd1+8], 99;
         cvt.rn.f32.u32 %f1, %r1; red.global.add.f32 [%rd1+12], %f1;
         mov.b32 %r6, 0x3c003c00; red.global.add.noftz.f16x2 [%rd1+16], %r6;
         mov.b32 %r7, 0x3f803f80; red.global.add.noftz.v2.bf16x2 [%rd1+24], {%r7, %r7};
         SPIN: atom.global.acquire.gpu.cas.b32 %r8, [%rd1+32], 0, 1; setp.ne.u32 %p1, %r8, 0; @%p1 bra SPIN;
         ld.global.u32 %r8, [%rd1+36]; add.s32 %r8, %r8, 1; st.global.u32 [%rd1+36], %r8;
         membar.gl; atom.global.release.gpu.exch.b32 %r8, [%rd1+32], 0; ret;",
    );
    for options in modes() {
        let mut m = machine(&text, options);
        let sums = m.put(&[0u32; 10]);
        m.run("k", Grid::new(9, 50), &[Param::U64(sums)]).unwrap();
        let got: Vec<u32> = m.get(sums, 10);
        let total: u32 = (0..9).flat_map(|b| (0..50).map(move |t| b + t)).sum();
        assert_eq!(got[0], total);
        assert_eq!(got[1], 57);
        assert_eq!(got[2], 450 % 100);
        assert_eq!(f32::from_bits(got[3]), 9.0 * 1225.0);
        // 450 ones in f16 are exact; bf16 stops where one is half a unit: at 256.
        assert_eq!(got[4], 0x5f08_5f08);
        assert_eq!((got[6], got[7]), (0x4380_4380, 0x4380_4380));
        // The lock kept 450 increments apart.
        assert_eq!(got[9], 450);
    }
}

#[test]
fn shuffles_votes_matches_and_reductions() {
    let all = |f: &dyn Fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    let popc = |m: u32| m.count_ones();
    for options in modes() {
        let run = |body: &str| per_thread(body, 32, options.clone());
        // In two segments of 16 (mask 0x10 above the clamp's 5 bits).
        assert_eq!(run("shfl.sync.bfly.b32 %d, %t, 5, 31, -1;"), all(&|l| l ^ 5));
        assert_eq!(
            run("shfl.sync.up.b32 %d|%p1, %t, 3, 0, -1; @!%p1 add.s32 %d, %d, 100;"),
            all(&|l| if l < 3 { l + 100 } else { l - 3 })
        );
        assert_eq!(
            run("shfl.sync.down.b32 %d|%p1, %t, 4, 0x100f, -1; @%p1 add.s32 %d, %d, 100;"),
            all(&|l| if l % 16 < 12 { l + 104 } else { l })
        );
        assert_eq!(run("shfl.sync.idx.b32 %d, %t, 2, 0x1c1f, -1;"), all(&|l| (l & !3) + 2));
        assert_eq!(
            run("and.b32 %r1, %t, 5; setp.eq.u32 %p1, %r1, 4; vote.sync.ballot.b32 %d, %p1, -1;"),
            vec![0x5050_5050; 32]
        );
        assert_eq!(
            run("setp.lt.u32 %p1, %t, 40; vote.sync.all.pred %p2, %p1, -1; setp.eq.u32 %p3, %t, 9;
                 vote.sync.any.pred %p4, !%p3, -1; selp.u32 %d, 1, 0, %p2; @%p4 add.s32 %d, %d, 2;"),
            vec![3; 32]
        );
        assert_eq!(
            run("rem.u32 %r1, %t, 5; match.any.sync.b32 %d, %r1, -1; popc.b32 %d, %d;"),
            all(&|l| 6 + (l % 5 < 2) as u32)
        );
        assert_eq!(run("shr.u32 %r1, %t, 5; match.all.sync.b32 %d|%p1, %r1, -1; @%p1 add.s32 %d, %d, 1;"), vec![0; 32]);
        assert_eq!(run("redux.sync.add.s32 %d, %t, -1;"), vec![496; 32]);
        assert_eq!(run("sub.s32 %r1, 7, %t; redux.sync.min.s32 %d, %r1, -1; neg.s32 %d, %d;"), vec![24; 32]);
        assert_eq!(
            run("elect.sync %r1|%p1, -1; selp.u32 %d, 5, 0, %p1; add.s32 %d, %d, %r1;"),
            all(&|l| if l == 0 { 5 } else { 0 })
        );
        // Half a warp meets alone.
        assert_eq!(
            run(
                "setp.lt.u32 %p1, %t, 16; @!%p1 bra SKIP; shfl.sync.bfly.b32 %d, %t, 1, 31, 0xffff; activemask.b32 %r1;
                 popc.b32 %r1, %r1; add.s32 %d, %d, %r1; SKIP:"
            ),
            all(&|l| if l < 16 { (l ^ 1) + popc(0xffff) } else { 0 })
        );
        // Lanes that come to one shuffle by two ways wait for each other.
        assert_eq!(
            run("and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, %t; @%p1 bra MEET; add.s32 %r2, %t, 100;
                 MEET: shfl.sync.bfly.b32 %d, %r2, 1, 31, -1;"),
            all(&|l| if l % 2 == 0 { l + 101 } else { l - 1 })
        );
    }
}

#[test]
fn barriers_reduce_and_named_ones_hand_over() {
    for options in modes() {
        let got = per_thread(
            "setp.lt.u32 %p1, %t, 70; bar.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, %p1;
             selp.u32 %d, 1000, 2000, %p2; @%p3 add.s32 %d, %d, 500; add.s32 %d, %d, %r1;",
            96,
            options.clone(),
        );
        assert_eq!(got, vec![2570; 96]);
        // Warp 0 produces and only arrives; warp 1 waits for it at barrier 3.
        let got = per_thread(
            "mov.u32 %r1, buffer; and.b32 %r2, %t, 31; shl.b32 %r2, %r2, 2; add.s32 %r1, %r1, %r2;
             setp.ge.u32 %p1, %t, 32; @%p1 bra CONSUME;
             add.s32 %r3, %t, 77; st.shared.u32 [%r1], %r3; bar.arrive 3, 64; bra END;
             CONSUME: bar.sync 3, 64; ld.shared.u32 %d, [%r1]; END:",
            64,
            options,
        );
        assert_eq!(got[..32], [0; 32]);
        assert_eq!(got[32..], (0..32).map(|l| l + 77).collect::<Vec<_>>());
    }
}

#[test]
fn asynchronous_copies_fill_with_zeros_and_come_in_order() {
    for options in modes() {
        let got = per_thread(
            "mov.u32 %r1, buffer; mad.lo.u32 %r2, %t, 16, %r1; mul.wide.u32 %rd4, %t, 16; add.s64 %rd4, %rd4, %rd10;
             and.b32 %r3, %t, 3; shl.b32 %r3, %r3, 2;
             cp.async.cg.shared.global [%r2], [%rd4], 16; cp.async.commit_group;
             cp.async.ca.shared.global [%r2+2048], [%rd4], 16, %r3; cp.async.commit_group;
             cp.async.wait_group 1; ld.shared.u32 %d, [%r2+12];
             cp.async.wait_group 0; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2+2048];
             xor.b32 %d, %d, %r4; xor.b32 %d, %d, %r5; xor.b32 %d, %d, %r6; xor.b32 %d, %d, %r7;",
            64,
            options,
        );
        for (t, v) in got.into_iter().enumerate() {
            let t = t as u32;
            let want = (0..t % 4).fold(data(4 * t + 3), |x, i| x ^ data(4 * t + i));
            assert_eq!(v, want, "thread {t}");
        }
    }
}

#[test]
fn printf_formats_like_c() {
    let text = format!(
        "{HEAD}
         .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
         .global .align 1 .b8 fmt[40] = {{116, 37, 51, 100, 124, 37, 45, 52, 117, 124, 37, 46, 50, 102, 124, 37, 120, 124, 37, 108, 108, 100, 124, 37, 103, 10, 0}};
         {}",
        entry(
            "k",
            "",
            ".local .align 8 .b8 depot[48]; .reg .b32 %r<4>; .reg .b64 %rd<8>;
             mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; mov.u32 %r1, %tid.x; sub.s32 %r2, 0, %r1;
             st.local.u32 [%rd1], %r2; st.local.u32 [%rd1+4], %r1; mov.f64 %rd3, 0d3ff8000000000000; st.local.f64 [%rd1+8], %rd3;
             st.local.u32 [%rd1+16], 255; mov.u64 %rd4, -5; st.local.u64 [%rd1+24], %rd4; st.local.f64 [%rd1+32], 0d3f847ae147ae147b;
             mov.u64 %rd5, fmt; cvta.global.u64 %rd6, %rd5;
             { .param .b64 a; st.param.b64 [a], %rd6; .param .b64 b; st.param.b64 [b], %rd2; .param .b32 c;
               call.uni (c), vprintf, (a, b); ld.param.b32 %r3, [c]; } ret;"
        )
    );
    let mut m = machine(&text, modes()[0].clone());
    let report = m.run("k", Grid::new(1, 2), &[]).unwrap();
    assert_eq!(report.output, "t  0|0   |1.50|ff|-5|0.01\nt -1|1   |1.50|ff|-5|0.01\n");
}

#[test]
fn strict_mode_finds_what_is_wrong() {
    let cases: [(&str, FaultKind, &[&str]); 10] = [
        ("add.s64 %rd2, %rd1, 2; ld.global.u32 %d, [%rd2];", FaultKind::Alignment, &["no multiple of 4"]),
        (
            "st.global.u32 [%rd1], %t; ld.global.u32 %d, [%rd1+8];",
            FaultKind::Uninitialised,
            &["nothing wrote", "8 bytes inside"],
        ),
        ("mov.u32 %r1, buffer; ld.shared.u32 %d, [%r1];", FaultKind::Uninitialised, &["shared address 0x400"]),
        ("mov.u32 %r1, buffer; st.shared.u32 [%r1+4096], %t;", FaultKind::Bounds, &["shared memory ends at 0x1400"]),
        ("mov.u64 %rd2, 0; ld.global.u32 %d, [%rd2];", FaultKind::Bounds, &["null"]),
        (
            "setp.lt.u32 %p1, %t, 4; @%p1 mov.u32 %r2, 1; add.s32 %d, %r2, 1;",
            FaultKind::Uninitialised,
            &["register %r2", "lane 4"],
        ),
        ("setp.lt.u32 %p1, %t, 4; @%p1 bra A; bar.sync 0; A:", FaultKind::Synchronisation, &[".aligned", "0xfffffff0"]),
        ("trap;", FaultKind::Trap, &["trap"]),
        ("L: bra L;", FaultKind::Limit, &["endless loop"]),
        (
            "st.global.v4.u32 [%rd1], {%t, %t, %t, %t}; mov.u32 %r1, buffer; cp.async.cg.shared.global [%r1], [%rd1], 16; cp.async.commit_group; ld.shared.u32 %d, [%r1];",
            FaultKind::Asynchronous,
            &["nothing has waited for"],
        ),
    ];
    for (body, kind, parts) in cases {
        let fault = if kind == FaultKind::Limit { limited(body) } else { fault(body, 32) };
        assert_eq!(fault.kind, kind, "{body}: {fault}");
        for part in parts {
            assert!(fault.to_string().contains(part), "{part} in {fault}");
        }
    }
}

fn limited(body: &str) -> Box<tegula_ptx::Fault> {
    let mut m = machine(&kernel("k", "", body), Options { limit: 100_000, threads: 1, ..Options::default() });
    m.run("k", Grid::new(1, 32), &[]).unwrap_err()
}

/// Reading too early gives old bytes when copies arrive late, new ones when they arrive early.
#[test]
fn completion_decides_what_an_early_read_sees() {
    let body = "mov.u32 %r1, buffer; st.shared.u32 [%r1], 1; cp.async.ca.shared.global [%r1], [%rd10], 4; cp.async.commit_group;
                ld.shared.u32 %d, [%r1]; cp.async.wait_all; ld.shared.u32 %r2, [%r1]; add.s32 %d, %d, %r2;";
    for (completion, sum) in [(Completion::Early, 0u32), (Completion::Late, 1)] {
        assert_eq!(per_thread(body, 1, Options { completion, ..Options::fast() }), [sum]);
    }
}

#[test]
fn traffic_is_counted() {
    let text = kernel(
        "k",
        ".param .u64 data, .param .u32 stride",
        ".reg .b32 %r<6>; .reg .b64 %rd<4>; .shared .align 16 .b8 tile[8192];
         ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [stride]; mov.u32 %r2, %tid.x; mul.lo.u32 %r3, %r1, %r2;
         mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r4, [%rd3];
         mov.u32 %r5, tile; mad.lo.u32 %r5, %r3, 4, %r5; st.shared.u32 [%r5], %r4; ret;",
    );
    for (stride, sectors, wavefronts) in [(1, 4, 1), (2, 8, 2), (8, 32, 8), (32, 32, 32), (33, 32, 1), (0, 1, 1)] {
        let mut m = machine(&text, modes()[0].clone());
        let data = m.put(&vec![5u32; 2048]);
        let c = m.run("k", Grid::new(1, 32), &[Param::U64(data), Param::U32(stride)]).unwrap().counters;
        assert_eq!((c.global_requests, c.global_sectors), (1, sectors), "stride {stride}");
        assert_eq!((c.shared_requests, c.shared_wavefronts), (1, wavefronts), "stride {stride}");
    }
}
