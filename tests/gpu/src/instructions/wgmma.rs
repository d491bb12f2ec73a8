//! `wgmma`: every type; the layouts that descriptors name, both orders of both operands; precision of sums.

use super::{
    case::{Case, Tolerance::Exact, kernel, words},
    formats::*,
    products::{Kind, Sum, fragment_a, operands},
    samples::Random,
};
use crate::raw::{Arg, Job, Level::Sm90a};

const FAMILY: &str = "wgmma";
/// Bytes of shared memory: A in the first third, B after it.
const ROOM: usize = 48 << 10;
const B_AT: usize = 16 << 10;

/// How a matrix lies in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Bytes among which pieces of 16 are exchanged: 16 (none), 32, 64, 128.
    span: usize,
    /// Neighbours in memory are of one k, not of one row of A or column of B.
    across: bool,
    leading: usize,
    stride: usize,
    start: usize,
}

impl Layout {
    /// A dense one of `lines` rows of A or columns of B, along k or across it.
    fn dense(span: usize, across: bool, start: usize, lines: usize) -> Layout {
        let (leading, stride) = match (across, span) {
            (false, 16) => (128, 256),
            (false, _) => (0, 8 * span),
            // Atoms of a span of lines by 8 k: along lines first, but without a swizzle along k first.
            (true, 16) => (8 * span * (2 * lines).div_ceil(span), 8 * span),
            (true, _) => (8 * span, 8 * span * (2 * lines).div_ceil(span)),
        };
        Layout { span, across, leading, stride, start }
    }

    /// Where byte 0 of element (line, k) lies.
    fn place(&self, line: usize, k: usize, size: usize) -> usize {
        let turn = |row: usize| match self.span {
            16 => 0,
            32 => row % 8 / 4,
            64 => row % 8 / 2,
            _ => row % 8,
        };
        if self.across {
            let per = self.span / size;
            let (far_line, far_k) =
                if self.span == 16 { (self.stride, self.leading) } else { (self.leading, self.stride) };
            let byte = line % per * size;
            let piece = (byte / 16) ^ turn(k);
            return self.start + line / per * far_line + k / 8 * far_k + k % 8 * self.span + piece * 16 + byte % 16;
        }
        let byte = k * size;
        if self.span == 16 {
            return self.start + line / 8 * self.stride + byte / 16 * self.leading + line % 8 * 16 + byte % 16;
        }
        self.start + line / 8 * self.stride + line % 8 * self.span + ((byte / 16) ^ turn(line)) * 16 + byte % 16
    }

    /// The descriptor, but for the address of shared memory.
    fn descriptor(&self) -> u64 {
        let mode = match self.span {
            16 => 0u64,
            128 => 1,
            64 => 2,
            _ => 3,
        };
        mode << 62 | (self.stride as u64 >> 4) << 32 | (self.leading as u64 >> 4) << 16 | self.start as u64 >> 4
    }
}

/// One product m64n`n`, A in shared memory if it has a layout there, else in registers.
fn product(ta: Operand, tb: Operand, sum: Sum, n: usize, a_at: Option<Layout>, b_at: Layout, kind: Kind) -> Case {
    let (bytes, k) = (ta.bytes, 32 / ta.bytes);
    let mut random = Random(200 + n as u64 + kind as u64 * 1000);
    let o = operands(kind, (ta, tb, sum), (64, n, k), kind as usize + 3, &mut random);
    let mut image = vec![0u8; ROOM];
    let mut put = |layout: &Layout, line: usize, x: usize, bits: u32| {
        let at = layout.place(line, x, bytes);
        image[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
    };
    for x in 0..k {
        if let Some(layout) = &a_at {
            (0..64).for_each(|line| put(layout, line, x, o.a[line * k + x]));
        }
        (0..n).for_each(|line| put(&b_at, line, x, o.b[x * n + line]));
    }
    let packed = sum == Sum::F16;
    let registers = if packed { n / 4 } else { n / 2 };
    // Register and thread to row and column.
    let c = |register: usize, thread: usize, half: usize| {
        let i = if packed { 2 * register + half } else { register };
        let row = 16 * (thread / 32) + thread % 32 / 4 + i % 4 / 2 * 8;
        o.c[row * n + i / 4 * 8 + thread % 4 * 2 + i % 2]
    };
    let start = (0..registers).flat_map(|r| (0..128).map(move |t| (r, t)));
    let start = start.map(|(r, t)| if packed { c(r, t, 0) | c(r, t, 1) << 16 } else { c(r, t, 0) });
    let fragments = (0..4).flat_map(|r| (0..128).map(move |t| (r, t)));
    let fragments = fragments.map(|(r, t)| fragment_a(&o.a, k, bytes, r, t % 32, 16 * (t / 32)));

    let list = |prefix: &str, n: usize| (0..n).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ");
    let mut tail = String::new();
    if sum != Sum::S32 {
        tail += ", 1, 1";
    }
    if bytes == 2 {
        a_at.iter().for_each(|l| tail += &format!(", {}", u8::from(l.across)));
        tail += &format!(", {}", u8::from(b_at.across));
    }
    let a_operand = if a_at.is_some() { "%da" } else { "{%a0, %a1, %a2, %a3}" };
    let mut body = format!(
        ".shared .align 1024 .b8 room[{ROOM}]; .reg .b32 %d<{registers}>, %a<4>, %r<9>, %t; .reg .b64 %x<9>, %da, %db;
  .reg .pred %p, %s; mov.u32 %t, %tid.x; ld.param.u64 %x0, [image];
  mul.lo.u32 %r0, %t, 16; mov.u32 %r1, room;
  COPY: cvt.u64.u32 %x1, %r0; add.s64 %x2, %x0, %x1; add.u32 %r2, %r1, %r0;
  ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%x2]; st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
  add.u32 %r0, %r0, 2048; setp.lt.u32 %p, %r0, {ROOM}; @%p bra COPY;
  fence.proxy.async; bar.sync 0; setp.eq.u32 %s, %r1, %r1;
  shr.u32 %r2, %r1, 4; cvt.u64.u32 %x1, %r2;
  ld.param.u64 %da, [da]; add.s64 %da, %da, %x1; ld.param.u64 %db, [db]; add.s64 %db, %db, %x1;
  mul.wide.u32 %x3, %t, 4; ld.param.u64 %x4, [start]; add.s64 %x4, %x4, %x3; ld.param.u64 %x5, [left];
  add.s64 %x5, %x5, %x3; ld.param.u64 %x6, [out]; add.s64 %x6, %x6, %x3;\n"
    );
    (0..4).for_each(|i| body += &format!("  ld.global.b32 %a{i}, [%x5+{}];\n", i * 512));
    (0..registers).for_each(|i| body += &format!("  ld.global.b32 %d{i}, [%x4+{}];\n", i * 512));
    let name = format!("wgmma.mma_async.sync.aligned.m64n{n}k{k}.{}.{}.{}", sum.name(), ta.name, tb.name);
    body += &format!(
        "  wgmma.fence.sync.aligned; {name} {{{}}}, {a_operand}, %db, %s{tail};
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n",
        list("d", registers)
    );
    (0..registers).for_each(|i| body += &format!("  st.global.b32 [%x6+{}], %d{i};\n", i * 512));
    let params = ["image", "left", "start", "out", "da", "db"].map(|p| format!(".param .u64 {p}")).join(", ");
    let args = vec![
        Arg::In(image.clone()),
        Arg::In(words(fragments)),
        Arg::In(words(start)),
        Arg::Out(registers * 512),
        Arg::U64(a_at.map_or(0, |l| l.descriptor())),
        Arg::U64(b_at.descriptor()),
    ];
    let ptx = kernel(Sm90a, &params, &(body + "  ret;"));
    let job = Job { ptx, grid: [1; 3], block: [128, 1, 1], cluster: None, shared: 0, args };
    let lies = |l: Layout| format!("{}{}", l.span, if l.across { " across" } else { "" });
    let a = a_at.map_or("registers".into(), lies);
    let name = format!("{name} A {a}, B {}, {}", lies(b_at), kind.name());
    let tolerance = if sum == Sum::S32 { Exact } else { kind.tolerance() };
    Case { family: FAMILY, name, level: Sm90a, unit: sum.unit(), tolerance, job }
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    let k_major = |span, start| Layout::dense(span, false, start, 0);
    for (a, b, sum) in [
        (A_BF16, A_BF16, Sum::F32),
        (A_F16, A_F16, Sum::F32),
        (A_F16, A_F16, Sum::F16),
        (A_TF32, A_TF32, Sum::F32),
        (A_S8, A_S8, Sum::S32),
        (A_U8, A_S8, Sum::S32),
        (A_E4M3, A_E4M3, Sum::F32),
        (A_E5M2, A_E4M3, Sum::F32),
        (A_E5M2, A_E5M2, Sum::F16),
    ] {
        for kind in Kind::ALL {
            if sum == Sum::S32 && !matches!(kind, Kind::Exact | Kind::Bits) {
                continue;
            }
            out.push(product(a, b, sum, 64, Some(k_major(128, 0)), k_major(128, B_AT), kind));
        }
        out.push(product(a, b, sum, 32, None, k_major(128, B_AT), Kind::Exact));
    }
    for n in [8, 24, 136, 256] {
        out.push(product(A_BF16, A_BF16, Sum::F32, n, Some(k_major(128, 0)), k_major(128, B_AT), Kind::Exact));
    }
    for a_span in [16, 32, 64, 128] {
        for b_span in [16, 32, 64, 128] {
            for (a_across, b_across) in [(false, false), (false, true), (true, false), (true, true)] {
                let a = Layout::dense(a_span, a_across, 0, 64);
                let b = Layout::dense(b_span, b_across, B_AT, 128);
                out.push(product(A_BF16, A_BF16, Sum::F32, 128, Some(a), b, Kind::Exact));
            }
        }
    }
    for span in [16, 32, 64] {
        out.push(product(A_S8, A_S8, Sum::S32, 64, Some(k_major(span, 0)), k_major(span, B_AT), Kind::Exact));
        out.push(product(A_TF32, A_TF32, Sum::F32, 64, Some(k_major(span, 0)), k_major(span, B_AT), Kind::Exact));
    }
    out
}
