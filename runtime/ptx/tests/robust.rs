//! Whatever the text, parsing and decoding end with a module or an error.

mod common;
use common::*;
use proptest::prelude::*;
use tegula_ptx::{Module, exec::lanes::Tier};

const SAMPLE: &str = "
.version 8.0
.target sm_90a
.address_size 64
.file 1 \"a.rs\"
.global .align 4 .b8 text[4] = {1, 2, 3, 4};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) f(.param .b32 x) { .reg .b32 %r<2>; ld.param.b32 %r1, [x]; st.param.b32 [r], %r1; ret; }
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24]) .maxntid 128, 1, 1 .minnctapersm 2
{
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .f32 %f<5>;
  .loc 1 3 5
  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;
  setp.lt.s32 %p1|%p2, %r1, -5;
  @!%p1 bra $L1;
  { .reg .b32 t; add.s32 t, %r1, 0x10; mov.b32 %r2, t; }
  ts: .branchtargets $L1, $L2;
  brx.idx %r1, ts;
$L1: fma.rn.f32 %f1, %f2, 0f3F800000, 0d4000000000000000;
  ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%rd1+-16];
  shfl.sync.bfly.b32 %r7|%p2, %r3, 1, 31, -1;
$L2: { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; call.uni (b), f, (a); ld.param.b32 %r8, [b]; }
  ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r3, %r4}, [%r1+16];
  mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, {%f1, %f2, %f3, %f4};
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64; mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, %p1, 1, -1, 0, 1;
  cp.async.bulk.wait_group.read 1; barrier.cluster.arrive.aligned; fence.proxy.async.shared::cta;
  ret;
}
";

fn try_all(text: &str) {
    if let Ok(module) = Module::parse(text, "sm_90a") {
        module.unknown();
        for entry in module.entries().map(str::to_string).collect::<Vec<_>>() {
            let _ = module.program(&entry, Tier::best());
        }
    }
}

#[test]
fn the_sample_itself_decodes() {
    let module = Module::parse(SAMPLE, "sm_90a").unwrap();
    module.program("k", Tier::best()).unwrap_or_else(|e| panic!("{e}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(text in "\\PC{0,300}") {
        try_all(&text);
        try_all(&format!("{HEAD}{text}"));
        try_all(&format!("{HEAD}.visible .entry k() {{ {text} }}"));
    }

    #[test]
    fn pieces_of_ptx_in_any_order(pieces in proptest::collection::vec(proptest::sample::select(
        vec!["{", "}", "(", ")", "[", "]", ",", ";", ":", "@", "!", "%p1", "%r1", "add", ".u32", ".s64", ".f32", "mov", "bra", "L", ".reg",
             ".b32", "<", ">", "5", "-", "0f3F800000", "0d3FF0000000000000", "|", "+", ".global", ".align", "ld", "st", ".v4", "call", "=",
             "cvt", ".rn", ".loc", ".param", "setp", ".lt", "bar.sync", "%tid.x", ".entry", ".func"]), 0..60)) {
        let text = pieces.join(" ");
        try_all(&format!("{HEAD}{text}"));
        try_all(&format!("{HEAD}.visible .entry k() {{ .reg .pred %p<4>; .reg .b32 %r<4>; {text} }}"));
    }

    #[test]
    fn mutated_modules(cuts in proptest::collection::vec((0usize..3000, 0usize..4, any::<u8>()), 1..6)) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (at, what, byte) in cuts {
            let at = at % bytes.len();
            match what {
                0 => { bytes.remove(at); }
                1 => bytes[at] = byte % 95 + 32,
                2 => bytes.insert(at, byte % 95 + 32),
                _ => { let end = (at + byte as usize % 40).min(bytes.len()); bytes.drain(at..end); if bytes.is_empty() { bytes.push(b' '); } }
            }
        }
        try_all(&String::from_utf8_lossy(&bytes));
    }
}
