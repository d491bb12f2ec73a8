//! Small whole kernels: grids, loops, divergence, calls, barriers, local memory.

mod common;
use common::*;
use tegula_ptx::{FaultKind, Grid, Param};

/// Sum of two vectors with an odd length: the last block is partly masked.
#[test]
fn vector_add() {
    let text = kernel(
        "add",
        ".param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n",
        ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r5, [n];
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
         mad.lo.s32 %r4, %r1, %r2, %r3;
         setp.ge.s32 %p1, %r4, %r5;
         @%p1 bra DONE;
         mul.wide.s32 %rd4, %r4, 4;
         add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
         ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
         add.rn.f32 %f3, %f1, %f2;
         st.global.f32 [%rd7], %f3;
         DONE: ret;",
    );
    let n = 1000usize;
    let a: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
    let b: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).cos()).collect();
    for options in modes() {
        let mut m = machine(&text, options);
        let (pa, pb, pc) = (m.put(&a), m.put(&b), m.room(n * 4));
        let params = [Param::U64(pa), Param::U64(pb), Param::U64(pc), Param::U32(n as u32)];
        m.run("add", Grid::new(8, 128), &params).unwrap();
        let c: Vec<f32> = m.get(pc, n);
        for i in 0..n {
            assert_eq!(c[i], a[i] + b[i], "element {i}");
        }
    }
}

/// Each lane loops as often as its own number says, so the warp diverges and comes together again.
#[test]
fn a_loop_with_a_trip_count_per_lane() {
    let text = kernel(
        "trips",
        ".param .u64 out",
        ".reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<4>;
         ld.param.u64 %rd1, [out];
         mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0;
         LOOP: setp.ge.u32 %p1, %r2, %r1;
         @%p1 bra END;
         and.b32 %r4, %r2, 1; setp.eq.b32 %p2, %r4, 0;
         @%p2 bra EVEN;
         add.s32 %r3, %r3, 100; bra NEXT;
         EVEN: add.s32 %r3, %r3, 1;
         NEXT: add.s32 %r2, %r2, 1; bra LOOP;
         END: mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r3; ret;",
    );
    for options in modes() {
        let mut m = machine(&text, options);
        let out = m.room(48 * 4);
        let report = m.run("trips", Grid::new(1, 48), &[Param::U64(out)]).unwrap();
        for (i, v) in m.get::<u32>(out, 48).into_iter().enumerate() {
            assert_eq!(v as usize, i.div_ceil(2) + i / 2 * 100, "lane {i}");
        }
        // One store per warp: the lanes met again at END.
        assert_eq!(report.counters.of(tegula_ptx::Kind::StoreGlobal), 2);
    }
}

#[test]
fn a_block_reverses_through_shared_memory() {
    let text = format!(
        "{HEAD} .shared .align 4 .b8 buffer[1024]; {}",
        entry(
            "reverse",
            ".param .u64 data",
            ".reg .b32 %r<10>; .reg .b64 %rd<4>;
             ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x;
             mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r3, [%rd3];
             mov.u32 %r4, buffer; shl.b32 %r5, %r1, 2; add.s32 %r6, %r4, %r5; st.shared.u32 [%r6], %r3;
             bar.sync 0;
             sub.s32 %r7, %r2, %r1; shl.b32 %r8, %r7, 2; add.s32 %r9, %r4, %r8; ld.shared.u32 %r3, [%r9+-4];
             st.global.u32 [%rd3], %r3; ret;"
        )
    );
    for options in modes() {
        let mut m = machine(&text, options);
        let data = m.put(&(0..200u32).map(|i| i * i).collect::<Vec<_>>());
        m.run("reverse", Grid::new(1, 200), &[Param::U64(data)]).unwrap();
        for (i, v) in m.get::<u32>(data, 200).into_iter().enumerate() {
            assert_eq!(v as usize, (199 - i) * (199 - i));
        }
    }
}

#[test]
fn device_functions_with_parameters_results_and_local_memory() {
    let text = format!(
        "{HEAD}
         .func (.param .b32 result) twice_plus(.param .b32 x, .param .b64 where) {{
             .reg .b32 %r<4>; .reg .b64 %rd<2>;
             ld.param.u32 %r1, [x]; ld.param.u64 %rd1, [where];
             ld.u32 %r2, [%rd1];
             add.s32 %r3, %r1, %r1; add.s32 %r3, %r3, %r2;
             st.param.b32 [result], %r3; ret;
         }}
         {}",
        entry(
            "calls",
            ".param .u64 out",
            ".local .align 8 .b8 depot[16];
             .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<8>;
             mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1;
             ld.param.u64 %rd3, [out]; mov.u32 %r1, %tid.x;
             mad.lo.s32 %r2, %r1, 1000, 7; st.local.u32 [%rd1+4], %r2; add.s64 %rd4, %rd2, 4;
             setp.lt.u32 %p1, %r1, 5;
             mov.u32 %r3, 1;
             @%p1 bra SKIP;
             { .param .b32 a; st.param.b32 [a], %r1; .param .b64 b; st.param.b64 [b], %rd4; .param .b32 r;
               call.uni (r), twice_plus, (a, b);
               ld.param.b32 %r3, [r]; }
             SKIP: mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd3, %rd5; st.global.u32 [%rd6], %r3; ret;"
        )
    );
    for options in modes() {
        let mut m = machine(&text, options);
        let out = m.room(40 * 4);
        m.run("calls", Grid::new(1, 40), &[Param::U64(out)]).unwrap();
        for (i, v) in m.get::<u32>(out, 40).into_iter().enumerate() {
            let i = i as u32;
            assert_eq!(v, if i < 5 { 1 } else { 2 * i + i * 1000 + 7 }, "thread {i}");
        }
    }
}

#[test]
fn an_unknown_instruction_is_named_with_its_line() {
    let text = kernel("k", "", ".reg .b32 %r<3>;\nfrobnicate.u32 %r1, %r2; ret;");
    let error = machine_error(&text, "k");
    assert!(error.contains("unknown instruction `frobnicate.u32`") && error.contains("line 5"), "{error}");
    let text = kernel("k", "", ".reg .b32 %r<3>;\nadd.zz.u32 %r1, %r2, %r2; ret;");
    let error = machine_error(&text, "k");
    assert!(error.contains("`.zz`") && error.contains("add.zz.u32"), "{error}");
}

#[test]
fn a_fault_says_who_and_where() {
    let text = kernel(
        "k",
        ".param .u64 out",
        ".reg .b32 %r<3>; .reg .b64 %rd<4>; .loc 1 42 7\n
         ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
         st.global.u32 [%rd3], %r1; ret;",
    )
    .replace(".address_size 64", ".address_size 64\n.file 1 \"kernels/copy.rs\"");
    let mut m = machine(&text, modes()[0].clone());
    let out = m.room(35 * 4);
    let fault = m.run("k", Grid::new(1, 64), &[Param::U64(out)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Bounds);
    assert_eq!((fault.thread, fault.lane, fault.warp), (Some([35, 0, 0]), Some(3), Some(1)));
    let said = fault.to_string();
    for part in ["kernel k", "0 bytes past the end", "`room` of 140 bytes", "kernels/copy.rs:42:7", "st.global.u32"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn a_barrier_that_half_a_block_skips_is_a_deadlock_with_names() {
    let text = kernel(
        "k",
        "",
        ".reg .pred %p<2>; .reg .b32 %r<2>; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;
         @%p1 bra A;
         bar.sync 1, 64;
         A: bar.sync 0; ret;",
    );
    let mut m = machine(&text, modes()[0].clone());
    let fault = m.run("k", Grid::new(1, 64), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock);
    let said = fault.to_string();
    assert!(said.contains("warp 0") && said.contains("barrier 0") && said.contains("barrier 1"), "{said}");
}
