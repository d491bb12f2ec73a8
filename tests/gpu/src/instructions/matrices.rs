//! Matrices between registers and shared memory: which element lands in which lane.

use super::{
    case::{Case, block, words},
    formats::Unit,
    samples::Random,
};
use crate::raw::Level::*;

const FAMILY: &str = "matrices";

fn list(prefix: &str, n: usize) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("%{prefix}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    // 1 KiB of shared memory in which every 16-bit element is its own number.
    let fill =
        ".shared .align 128 .b8 tile[1024]; .reg .b32 %s<9>, %v<4>; .reg .b16 %h; .reg .b64 %x<3>; .reg .pred %q;
  mov.u32 %s0, tile; mov.u32 %s1, %t; mov.u32 %s2, 0;
  FILL: mad.lo.u32 %s3, %s2, 32, %s1; cvt.u16.u32 %h, %s3; mad.lo.u32 %s4, %s3, 2, %s0; st.shared.b16 [%s4], %h;
  add.u32 %s2, %s2, 1; setp.lt.u32 %q, %s2, 16; @%q bra FILL; bar.sync 0;
  mul.wide.u32 %x0, %t, 4; add.s64 %x1, %o, %x0; add.s64 %x2, %p0, %x0; ld.global.b32 %s5, [%x2];";
    // Rows in no order.
    let rows = || words((0..32u32).map(|lane| (lane * 5 + 3) % 64 * 16));
    for (n, count) in [(1, "x1"), (2, "x2"), (4, "x4")] {
        for trans in ["", ".trans"] {
            let name = format!("ldmatrix.sync.aligned.m8n8.{count}{trans}.shared.b16");
            let mut body = format!("{fill} add.u32 %s5, %s0, %s5; {name} {}, [%s5];", list("v", n));
            (0..n).for_each(|i| body += &format!(" st.global.b32 [%x1+{}], %v{i};", i * 128));
            out.push(block(FAMILY, &name, Sm80, 32, &body, vec![rows()], n * 128, Unit::Bits(16)));

            let name = format!("stmatrix.sync.aligned.m8n8.{count}{trans}.shared.b16");
            let mut body = format!("{fill} add.u32 %s5, %s0, %s5; mul.lo.u32 %s6, %t, 65538; add.u32 %s6, %s6, 65536;");
            (0..n).for_each(|i| body += &format!(" add.u32 %v{i}, %s6, {};", i * 0x0100_0100));
            body += &format!(" {name} [%s5], {}; bar.sync 0; mad.lo.u32 %s7, %t, 4, %s0;", list("v", n));
            (0..8).for_each(|i| {
                body += &format!(" ld.shared.b32 %s8, [%s7+{}]; st.global.b32 [%x1+{}], %s8;", i * 128, i * 128);
            });
            out.push(block(FAMILY, &name, Sm90, 32, &body, vec![rows()], 1024, Unit::Bits(16)));
        }
    }
    let mut random = Random(90);
    let name = "movmatrix.sync.aligned.m8n8.trans.b16";
    let body = format!(
        ".reg .b32 %a, %d; .reg .b64 %x<3>; mul.wide.u32 %x0, %t, 4; add.s64 %x1, %o, %x0; add.s64 %x2, %p0, %x0;
  ld.global.b32 %a, [%x2]; {name} %d, %a; st.global.b32 [%x1], %d;"
    );
    let input = words((0..32).map(|_| random.bits() as u32));
    out.push(block(FAMILY, name, Sm80, 32, &body, vec![input], 128, Unit::Bits(16)));
    out
}
