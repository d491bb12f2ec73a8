//! Clusters of blocks: each other's shared memory, their barrier, multicast, arrivals from afar.

mod common;
use common::{HEAD, Machine, kernel, machine, modes};
use tegula_ptx::{
    Completion, Fault, FaultKind, Grid, Options, Param,
    tensor_map::{Element, Swizzle, TensorMap},
};

const SYNC: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";

fn run(
    text: &str,
    blocks: u32,
    size: u32,
    params: impl Fn(&mut Machine) -> Vec<Param>,
) -> Vec<Result<Machine, Box<Fault>>> {
    [Completion::Early, Completion::Late]
        .map(|completion| {
            let mut m = machine(text, Options { completion, ..Options::default() });
            let params = params(&mut m);
            m.run("k", Grid::new(blocks, 64).cluster([size, 1, 1]), &params).map(|_| m)
        })
        .into()
}

/// Each thread writes block * 1000 + thread and reads that of the next block in its cluster.
fn neighbours(before: &str, after: &str) -> String {
    kernel(
        "k",
        ".param .u64 out",
        &format!(
            ".shared .align 16 .b8 mine[256]; .reg .b32 %r<20>; .reg .b64 %x<9>; .reg .pred %p<4>;
             mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 1000, %r0; mov.u32 %r3, mine;
             mad.lo.u32 %r4, %r0, 4, %r3; st.shared.u32 [%r4], %r2; {before}
             mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, %cluster_nctarank; add.u32 %r5, %r5, 1; rem.u32 %r5, %r5, %r6;
             mapa.shared::cluster.u32 %r7, %r4, %r5; ld.shared::cluster.u32 %r8, [%r7];
             ld.param.u64 %x1, [out]; mad.lo.u32 %r9, %r1, 64, %r0; mul.wide.u32 %x2, %r9, 4; add.s64 %x1, %x1, %x2;
             st.global.u32 [%x1], %r8; {after} ret;"
        ),
    )
}

fn out(m: &mut Machine) -> Vec<Param> {
    vec![Param::U64(m.room(6 * 256))]
}

#[test]
fn blocks_read_each_other() {
    for result in run(&neighbours(SYNC, SYNC), 6, 3, out) {
        let m = result.unwrap();
        // The only allocation.
        let address = tegula_ptx::mem::GLOBAL_BASE;
        let got = m.get::<u32>(address, 384);
        for block in 0..6u32 {
            let next = block / 3 * 3 + (block + 1) % 3;
            for t in 0..64 {
                assert_eq!(got[(block * 64 + t) as usize], next * 1000 + t);
            }
        }
    }
}

#[test]
fn planted_missing_cluster_barriers() {
    for result in run(&neighbours("bar.sync 0;", SYNC), 2, 2, out) {
        let fault = result.err().unwrap();
        assert_eq!(fault.kind, FaultKind::Synchronisation, "{fault}");
        let said = fault.to_string();
        assert!(said.contains("which may not have started: a barrier.cluster comes first"), "{said}");
        assert!(
            said.contains("kernel k") && said.contains("PTX line") && said.contains("ld.shared::cluster"),
            "{said}"
        );
    }
    // Without the last barrier a block may end while the other one still reads: block 1 waits a while before it does.
    let wait = format!(
        "{SYNC} setp.eq.u32 %p1, %r1, 0; @%p1 bra GO; mov.u32 %r10, 0;
        SPIN: add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 20000; @%p2 bra SPIN; GO:"
    );
    for result in run(&neighbours(&wait, ""), 2, 2, out) {
        let fault = result.err().unwrap();
        assert!(fault.message.contains("which has ended: a barrier.cluster before its end keeps it"), "{fault}");
    }
    // A thread that never arrives: a deadlock that names the barrier.
    let half = "setp.eq.u32 %p1, %r1, 0; @%p1 bra GO; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; GO:
        @!%p1 bra ON; bar.sync 1, 96; ON:";
    for result in run(&neighbours(half, ""), 2, 2, out) {
        let fault = result.err().unwrap();
        assert_eq!(fault.kind, FaultKind::Deadlock, "{fault}");
        assert!(fault.message.contains("for the cluster's barrier"), "{fault}");
    }
}

/// One block loads a tile for all; every block waits at its own barrier, then tells block 0 that it has read.
#[test]
fn multicast_and_arrivals_from_afar() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {{
         .shared .align 128 .b8 tile[512]; .shared .align 8 .b8 bars[16]; .reg .b32 %r<20>; .reg .b64 %x<9>; .reg .b16 %h;
         .reg .pred %p<6>; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; mov.u32 %r3, bars;
         setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
         @%p1 mbarrier.init.shared::cta.b64 [%r3+8], 256; @%p1 fence.mbarrier_init.release.cluster; {SYNC}
         @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;
         setp.eq.and.u32 %p2, %r1, 0, %p1; mov.b16 %h, 13; mov.u32 %r4, 2; mov.u32 %r5, 1; mov.b64 %x1, map;
         cvta.param.u64 %x1, %x1;
         barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
         @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster \
            [%r2], [%x1, {{%r4, %r5}}], [%r3], %h;
         setp.eq.and.u32 %p4, %r1, 1, %p1;
         @%p4 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r3], 512;
         W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra W;
         mov.u32 %r9, 7; setp.eq.u32 %p5, %r1, 1; mad.lo.u32 %r6, %r0, 8, %r2; @%p5 bra SKIP;
         ld.shared.v2.u32 {{%r7, %r8}}, [%r6]; mad.lo.u32 %r9, %r7, 5, %r8;
         SKIP: mov.u32 %r10, 0; add.u32 %r11, %r3, 8; mapa.shared::cluster.u32 %r12, %r11, %r10;
         mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
         setp.ne.u32 %p4, %r1, 0; @%p4 bra DONE;
         V: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r11], 0; @!%p3 bra V;
         DONE: ld.param.u64 %x2, [out]; mov.u32 %r13, %ctaid.x; mad.lo.u32 %r13, %r13, 64, %r0; mul.wide.u32 %x3, %r13, 4;
         add.s64 %x2, %x2, %x3; st.global.u32 [%x2], %r9; {SYNC} ret; }}"
    );
    // Blocks 0, 2 and 3 get the tile; block 1 completes its bytes by hand.
    let array: Vec<u32> = (0..20 * 24).map(|i| i * i).collect();
    for completion in [Completion::Early, Completion::Late] {
        let mut m = machine(&text, Options { completion, ..Options::default() });
        let (address, out) = (m.put(&array), m.room(4 * 256));
        let map = TensorMap::new(Element::U32, address, &[20, 20], &[96], &[16, 8], Swizzle::None);
        let params = [Param::Bytes(map.encode().unwrap().to_vec()), Param::U64(out)];
        m.run("k", Grid::new(4, 64).cluster([4, 1, 1]), &params).unwrap_or_else(|e| panic!("{completion:?}: {e}"));
        let got = m.get::<u32>(out, 256);
        let element = |i: usize| array[(1 + i / 16) * 24 + 2 + i % 16];
        for block in 0..4 {
            for t in 0..64 {
                let want = if block == 1 { 7 } else { element(2 * t).wrapping_mul(5).wrapping_add(element(2 * t + 1)) };
                assert_eq!(got[block * 64 + t], want, "{completion:?} block {block} thread {t}");
            }
        }
    }
}

#[test]
fn bytes_go_from_block_to_block() {
    let text = kernel(
        "k",
        ".param .u64 out",
        &format!(
            ".shared .align 128 .b8 a[256]; .shared .align 128 .b8 b[256]; .shared .align 8 .b8 bar[8]; .reg .b32 %r<20>;
             .reg .b64 %x<9>; .reg .pred %p<5>; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, a;
             mov.u32 %r3, b; mov.u32 %r4, bar; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;
             mad.lo.u32 %r5, %r1, 100, %r0; mad.lo.u32 %r6, %r0, 4, %r2; st.shared.u32 [%r6], %r5;
             fence.proxy.async; {SYNC}
             xor.b32 %r7, %r1, 1; mapa.shared::cluster.u32 %r8, %r3, %r7; mapa.shared::cluster.u32 %r9, %r4, %r7;
             @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256;
             @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8], [%r2], 256, [%r9];
             W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0; @!%p3 bra W;
             mad.lo.u32 %r10, %r0, 4, %r3; ld.shared.u32 %r11, [%r10]; ld.param.u64 %x1, [out];
             mad.lo.u32 %r12, %r1, 64, %r0; mul.wide.u32 %x2, %r12, 4; add.s64 %x1, %x1, %x2;
             st.global.u32 [%x1], %r11; {SYNC} griddepcontrol.launch_dependents; griddepcontrol.wait;
             setmaxnreg.inc.sync.aligned.u32 232; ret;"
        ),
    );
    for result in run(&text, 2, 2, |m| vec![Param::U64(m.room(512))]) {
        let m = result.unwrap();
        let want: Vec<u32> = (0..128).map(|i| (1 - i / 64) * 100 + i % 64).collect();
        assert_eq!(m.get::<u32>(tegula_ptx::mem::GLOBAL_BASE, 128), want);
    }
}

/// Values sent to the next block, of which a barrier there hears; sums made there.
#[test]
fn values_go_to_another_block_asynchronously() {
    let text = kernel(
        "k",
        ".param .u64 out",
        ".shared .align 16 .b8 inbox[512]; .shared .align 8 .b8 bar[8]; .shared .align 4 .b8 sum[4];
         .reg .b32 %t, %rank, %r<20>; .reg .b64 %x<6>; .reg .pred %p<3>; mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank;
         mov.u32 %r1, inbox; mov.u32 %r2, bar; mov.u32 %r3, sum; setp.eq.u32 %p1, %t, 0;
         @%p1 st.shared.u32 [%r3], 1000; @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
         @%p1 fence.mbarrier_init.release.cluster;
         @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 640;
         barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
         xor.b32 %r4, %rank, 1; mapa.shared::cluster.u32 %r5, %r1, %r4; mapa.shared::cluster.u32 %r6, %r2, %r4;
         mapa.shared::cluster.u32 %r7, %r3, %r4; mad.lo.u32 %r5, %t, 16, %r5;
         mad.lo.u32 %r8, %rank, 100, %t; add.u32 %r9, %r8, 1; add.u32 %r10, %r8, 2; add.u32 %r11, %r8, 3;
         st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5], {%r8, %r9, %r10, %r11}, [%r6];
         red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r7], %r8, [%r6];
         W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra W;
         mad.lo.u32 %r12, %t, 16, %r1; ld.shared.v4.b32 {%r13, %r14, %r15, %r16}, [%r12]; ld.shared.b32 %r17, [%r3];
         mad.lo.u32 %r13, %r13, 3, %r14; mad.lo.u32 %r13, %r13, 3, %r15; mad.lo.u32 %r13, %r13, 3, %r16;
         add.u32 %r13, %r13, %r17; ld.param.u64 %x1, [out]; mad.lo.u32 %r18, %rank, 32, %t; mul.wide.u32 %x2, %r18, 4;
         add.s64 %x1, %x1, %x2; st.global.b32 [%x1], %r13;
         barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;",
    );
    for options in modes() {
        let mut m = machine(&text, options);
        let out = m.room(256);
        m.run("k", Grid::new(2, 32).cluster([2, 1, 1]), &[Param::U64(out)]).unwrap_or_else(|e| panic!("{e}"));
        let want: Vec<u32> = (0..64)
            .map(|i| {
                let (from, t) = (1 - i / 32, i % 32);
                let v = |k: u32| from * 100 + t + k;
                let sum: u32 = (0..32).map(|t| from * 100 + t).sum();
                ((v(0) * 3 + v(1)) * 3 + v(2)) * 3 + v(3) + 1000 + sum
            })
            .collect();
        assert_eq!(m.get::<u32>(out, 64), want);
    }
}
