//! Endless loops: proven ones are reported as deadlocks with what is missing; loops that may yet end are not.

mod common;
use common::{kernel, machine};
use tegula_ptx::{Completion, FaultKind, Grid, Options, Param};

/// A kernel whose thread 0 has made an mbarrier for `count` arrivals.
fn with_barrier(count: u32, body: &str) -> String {
    kernel(
        "k",
        ".param .u64 out",
        &format!(
            ".shared .align 8 .b8 bar[8]; .shared .align 8 .b8 flag[8]; .reg .b32 %t, %bar, %flag, %r<9>; .reg .pred %p<9>;
             .reg .b64 %x<4>; mov.u32 %t, %tid.x; mov.u32 %bar, bar; mov.u32 %flag, flag; setp.eq.u32 %p0, %t, 0;
             @%p0 mbarrier.init.shared::cta.b64 [%bar], {count}; @%p0 st.shared.u32 [%flag], 0; bar.sync 0;
             mov.u32 %r1, 0; {body} ld.param.u64 %x1, [out]; mul.wide.u32 %x2, %t, 4; add.s64 %x1, %x1, %x2;
             st.global.u32 [%x1], %r1; ret;"
        ),
    )
}

fn modes() -> Vec<Options> {
    let options = |completion, fast| Options {
        completion,
        limit: 300_000_000,
        threads: 1,
        ..if fast { Options::fast() } else { Options::default() }
    };
    vec![options(Completion::Early, false), options(Completion::Late, false), options(Completion::Early, true)]
}

fn fault(text: &str, threads: u32, options: Options) -> Box<tegula_ptx::Fault> {
    let mut m = machine(text, options);
    let out = m.room(4096);
    m.run("k", Grid::new(1, threads), &[Param::U64(out)]).unwrap_err()
}

#[test]
fn a_lost_arrival_that_is_polled_is_a_deadlock() {
    let poll = "P: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra P;";
    // 64 threads poll; only 63 arrive.
    let all = format!("setp.ne.u32 %p2, %t, 5; @%p2 mbarrier.arrive.shared::cta.b64 _, [%bar]; {poll}");
    // One warp polls, the others wait at a barrier for it; a sleep and a bounded count are part of the loop.
    let one = "setp.ge.u32 %p2, %t, 32; @%p2 bra MEET;
         P: nanosleep.u32 20; add.u32 %r1, %r1, 1; and.b32 %r1, %r1, 1023;
         mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra P; MEET: bar.sync 0;";
    for options in modes() {
        let completion = options.completion;
        let f = fault(&with_barrier(64, &all), 64, options.clone());
        assert_eq!(f.kind, FaultKind::Deadlock, "{completion:?}: {f}");
        let text = f.to_string();
        for word in ["nobody can go on", "warp 0", "warp 1", "poll for ever at PTX line", "lacks 1 of 64 arrivals"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let f = fault(&with_barrier(1, one), 96, options);
        assert_eq!(f.kind, FaultKind::Deadlock, "{completion:?}: {f}");
        let text = f.to_string();
        for word in ["lacks 1 of 1 arrivals", "for barrier 0", "poll for ever"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
}

#[test]
fn flags_in_shared_memory_and_empty_loops_are_seen_through() {
    for options in modes() {
        let flag = "W: ld.relaxed.cta.shared.u32 %r1, [%flag]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;";
        let f = fault(&with_barrier(1, flag), 32, options.clone());
        assert_eq!(f.kind, FaultKind::Deadlock, "{f}");
        assert!(f.to_string().contains("go round in circles for ever at PTX line"), "{f}");
        // A loop of seven instructions, a number that no turn is a multiple of.
        let f = fault(
            &with_barrier(
                1,
                "L: xor.b32 %r1, %r1, 3; xor.b32 %r1, %r1, 5; xor.b32 %r1, %r1, 9; xor.b32 %r1, %r1, 3; xor.b32 %r1, %r1, 5; xor.b32 %r1, %r1, 9; bra L;",
            ),
            32,
            options,
        );
        assert_eq!(f.kind, FaultKind::Deadlock, "{f}");
    }
}

#[test]
fn loops_that_may_end_are_let_alone() {
    for options in modes() {
        // Warp 1 works long before it arrives, while warp 0 polls.
        let late = "setp.ge.u32 %p2, %t, 32; @%p2 bra WORK;
             P: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra P; bra DONE;
             WORK: mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 3000000; @%p3 bra L;
             mbarrier.arrive.shared::cta.b64 _, [%bar]; DONE: mov.u32 %r1, 7;";
        let mut m = machine(&with_barrier(32, late), options.clone());
        let out = m.room(256);
        m.run("k", Grid::new(1, 64), &[Param::U64(out)]).unwrap();
        assert_eq!(m.get::<u32>(out, 64), [7; 64]);
        // The clock ends a loop whose registers are the same in every round.
        let clock = "mov.u64 %x1, %clock64; add.s64 %x1, %x1, 9000000; L: mov.u64 %x2, %clock64;
             setp.lt.u64 %p1, %x2, %x1; mov.u64 %x2, 0; @%p1 bra L; mov.u32 %r1, 9;";
        let mut m = machine(&with_barrier(1, clock), options);
        let out = m.room(256);
        m.run("k", Grid::new(1, 32), &[Param::U64(out)]).unwrap();
        assert_eq!(m.get::<u32>(out, 32), [9; 32]);
    }
}

/// A block that waits for what a later block writes to global memory goes on.
#[test]
fn waiting_for_another_block_is_no_deadlock() {
    let text = kernel(
        "k",
        ".param .u64 flag",
        ".reg .b32 %r<5>; .reg .b64 %x<3>; .reg .pred %p<3>; ld.param.u64 %x1, [flag]; mov.u32 %r1, %ctaid.x;
         setp.eq.u32 %p1, %r1, 3; @%p1 bra SET;
         W: ld.acquire.gpu.global.u32 %r2, [%x1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra W; ret;
         SET: st.release.gpu.global.u32 [%x1], 1; ret;",
    );
    for options in modes() {
        let mut m = machine(&text, options);
        let flag = m.put(&[0u32]);
        m.run("k", Grid::new(4, 32), &[Param::U64(flag)]).unwrap();
    }
}
