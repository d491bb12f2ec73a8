//! `mma.sync`: where elements lie, in what order and how precisely products are summed, what special values do.
//!
//! Each kind of operands is a case of 32 products. Exact ones (small integers) show the layout and must agree; the others
//! show a device's own order and precision, which PTX leaves open.

use super::{
    case::{
        Case,
        Tolerance::{self, *},
        kernel, words,
    },
    formats::*,
    samples::Random,
};
use crate::raw::{
    Arg, Job,
    Level::{self, *},
};

const FAMILY: &str = "products";
/// Products of a case, one a warp.
const TRIALS: usize = 32;

/// What operands are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Small integers: sums are exact in any order.
    Exact,
    /// Random numbers about 1.
    Plain,
    /// Two large products that cancel, at changing places of k, and small ones.
    Cancel,
    /// One product, and an accumulator at each distance of exponents from it.
    Distance,
    /// Operands and accumulators at the small end of their ranges.
    Small,
    /// Infinities, NaNs with payloads, negative zeros among ordinary numbers.
    Special,
    /// Any bits.
    Bits,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] =
        [Kind::Exact, Kind::Plain, Kind::Cancel, Kind::Distance, Kind::Small, Kind::Special, Kind::Bits];

    pub(super) fn tolerance(self) -> Tolerance {
        if self == Kind::Exact { Exact } else { Order }
    }

    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Operands of a product: `a[row][k]`, `b[k][column]`, `c[row][column]` as bit patterns.
pub(super) struct Operands {
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    pub c: Vec<u32>,
}

/// What `D` and `C` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    F32,
    F16,
    S32,
}

impl Sum {
    pub(super) fn name(self) -> &'static str {
        match self {
            Sum::F32 => "f32",
            Sum::F16 => "f16",
            Sum::S32 => "s32",
        }
    }
    pub(super) fn unit(self) -> Unit {
        match self {
            Sum::F32 => F32,
            Sum::F16 => F16,
            Sum::S32 => Unit::Bits(32),
        }
    }
    fn encode(self, x: f64) -> u32 {
        match self {
            Sum::F32 => (x as f32).to_bits(),
            Sum::F16 => u32::from(half::f16::from_f64(x).to_bits()),
            Sum::S32 => x as i32 as u32,
        }
    }
}

/// Operands of an `m` by `n` by `k` product for one trial.
pub(super) fn operands(
    kind: Kind,
    (ta, tb, sum): (Operand, Operand, Sum),
    (m, n, k): (usize, usize, usize),
    trial: usize,
    r: &mut Random,
) -> Operands {
    let integer = |r: &mut Random, most: i64| r.below(2 * most as u64 + 1) as i64 - most;
    let plain = |r: &mut Random| {
        let x = 0.5 + (r.bits() >> 40) as f64 / (1u64 << 24) as f64 * 1.5;
        if r.below(2) == 0 { x } else { -x }
    };
    let small = |t: Operand, r: &mut Random| {
        // From 2^-4 of the smallest normal number to 2^4 of it.
        let e = t.exponents().0 as f64 + integer(r, 4) as f64;
        plain(r) * e.exp2()
    };
    let special = |t: Operand, r: &mut Random| -> u32 {
        let top = 8 * t.bytes as u32 - 1;
        let picks: [u32; 4] = match t.name {
            "bf16" => [0x7f80, 0xff80, 0x7f81, 0xffc5],
            "f16" => [0x7c00, 0xfc00, 0x7c01, 0xfe05],
            "tf32" => [0x7f80_0000, 0xff80_0000, 0x7f80_2000, 0xffc0_4000],
            "e4m3" => [0x7f, 0xff, 0x7e, 0x80],
            _ => [0x7c, 0xfc, 0x7d, 0xff],
        };
        match r.below(24) {
            i @ 0..4 => picks[i as usize],
            4 => 1 << top,
            _ => t.encode(plain(r)),
        }
    };
    let any = |t: Operand, r: &mut Random| (r.bits() >> 32) as u32 >> (32 - 8 * t.bytes);
    let whole = ta.unit().is_none();
    let element = |t: Operand, r: &mut Random| -> u32 {
        match kind {
            _ if whole => match kind {
                Kind::Exact => t.encode(integer(r, 8).unsigned_abs() as f64),
                _ => any(t, r),
            },
            Kind::Exact => t.encode(integer(r, 4) as f64),
            Kind::Small => t.encode(small(t, r)),
            Kind::Special => special(t, r),
            Kind::Bits => any(t, r),
            _ => t.encode(plain(r)),
        }
    };
    let mut a: Vec<u32> = (0..m * k).map(|_| element(ta, r)).collect();
    let mut b: Vec<u32> = (0..k * n).map(|_| element(tb, r)).collect();
    let top = ta.exponents().1.min(tb.exponents().1).min(20) - 1;
    let mut c: Vec<u32> = (0..m * n)
        .map(|i| match (kind, sum) {
            (Kind::Exact, _) => sum.encode(integer(r, 100) as f64),
            (_, Sum::S32) if i % 3 == 0 => (i32::MAX as u32).wrapping_sub(r.below(1000) as u32),
            (_, Sum::S32) if i % 3 == 1 => (i32::MIN as u32).wrapping_add(r.below(1000) as u32),
            (Kind::Small, Sum::F32) => ((plain(r) * 2f64.powi(-126 - (i as i32 % 12))) as f32).to_bits(),
            (Kind::Bits, _) => (r.bits() >> 32) as u32 >> if sum == Sum::F16 { 16 } else { 0 },
            (Kind::Special, _) => {
                let f16 = sum == Sum::F16;
                match r.below(20) {
                    0 => {
                        if f16 {
                            0x7c00
                        } else {
                            0x7f80_0000
                        }
                    }
                    1 => {
                        if f16 {
                            0xfc00
                        } else {
                            0xff80_0000
                        }
                    }
                    2 => {
                        if f16 {
                            0x7d55
                        } else {
                            0x7f95_5555
                        }
                    }
                    3 => {
                        if f16 {
                            0x8000
                        } else {
                            0x8000_0000
                        }
                    }
                    _ => sum.encode(plain(r)),
                }
            }
            _ => sum.encode(plain(r)),
        })
        .collect();
    if !whole && kind == Kind::Cancel {
        // Row i: +2^e at one k, -2^e at another; B is 1 there.
        for row in 0..m {
            let (p, q) = ((row + trial) % k, (row * 3 + trial * 5 + 1 + trial / k) % k);
            if p == q {
                continue;
            }
            let large = f64::from(trial as i32 % (top + 1)).exp2();
            a[row * k + p] = ta.encode(large);
            a[row * k + q] = ta.encode(-large);
        }
        for column in 0..n {
            for x in 0..k {
                // Ones mostly, so that the large products cancel; smaller powers of two beside them.
                b[x * n + column] = tb.encode(1.0);
            }
        }
        c.iter_mut().enumerate().for_each(|(i, c)| *c = sum.encode(f64::from(-(i as i32) % 30).exp2()));
    }
    if !whole && kind == Kind::Distance {
        a.fill(ta.encode(0.0));
        b.fill(tb.encode(0.0));
        for row in 0..m {
            // 1.75 · 1.25: bits below the first.
            a[row * k + (row + trial) % k] = ta.encode(1.75);
        }
        for column in 0..n {
            for x in 0..k {
                b[x * n + column] = tb.encode(if (column + x) % 2 == 0 { 1.25 } else { -1.25 });
            }
        }
        for (i, c) in c.iter_mut().enumerate() {
            let distance = (i + trial * 7) as i32 % 62 - 31;
            let size =
                if sum == Sum::F16 { f64::from(distance.clamp(-14, 14)).exp2() } else { f64::from(distance).exp2() };
            *c = sum.encode(size * (1.0 + (trial as f64 + 1.0) / 64.0));
        }
    }
    Operands { a, b, c }
}

/// A fragment of A: element j of register i in lane (g, t) is A[g + 8 (i mod 2)][e t + j + 4 e (i div 2)].
pub(super) fn fragment_a(a: &[u32], k: usize, bytes: usize, register: usize, lane: usize, from: usize) -> u32 {
    let e = 4 / bytes;
    let (g, t) = (lane / 4, lane % 4);
    let row = from + g + 8 * (register % 2);
    (0..e).fold(0, |w, j| w | a[row * k + e * t + j + 4 * e * (register / 2)] << (8 * bytes * j))
}

/// One of B: element j of register i is B[e t + j + 4 e i][g].
fn fragment_b(b: &[u32], n: usize, bytes: usize, register: usize, lane: usize) -> u32 {
    let e = 4 / bytes;
    let (g, t) = (lane / 4, lane % 4);
    (0..e).fold(0, |w, j| w | b[(4 * e * register + e * t + j) * n + g] << (8 * bytes * j))
}

/// One of C: element i is C[g + 8 (i div 2)][2 t + i mod 2]; in f16 two share a register.
fn fragment_c(c: &[u32], sum: Sum, register: usize, lane: usize) -> u32 {
    let (g, t) = (lane / 4, lane % 4);
    let at = |i: usize| c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
    if sum == Sum::F16 { at(2 * register) | at(2 * register + 1) << 16 } else { at(register) }
}

fn list(prefix: &str, n: usize) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("%{prefix}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// 32 products m16n8k`k` of one kind.
fn mma(ta: Operand, tb: Operand, sum: Sum, k: usize, kind: Kind, satfinite: bool, level: Level) -> Case {
    let bytes = ta.bytes;
    let (na, nb, nc) = (16 * k * bytes / 128, 8 * k * bytes / 128, if sum == Sum::F16 { 2 } else { 4 });
    let mut random = Random(100 + k as u64 + kind as u64 * 1000);
    let (mut a, mut b, mut c) = (vec![], vec![], vec![]);
    for trial in 0..TRIALS {
        let o = operands(kind, (ta, tb, sum), (16, 8, k), trial, &mut random);
        a.extend((0..na).flat_map(|i| (0..32).map(move |l| (i, l))).map(|(i, l)| fragment_a(&o.a, k, bytes, i, l, 0)));
        b.extend((0..nb).flat_map(|i| (0..32).map(move |l| (i, l))).map(|(i, l)| fragment_b(&o.b, 8, bytes, i, l)));
        c.extend((0..nc).flat_map(|i| (0..32).map(move |l| (i, l))).map(|(i, l)| fragment_c(&o.c, sum, i, l)));
    }
    let saturate = if satfinite { ".satfinite" } else { "" };
    let d = sum.name();
    let instruction = format!("mma.sync.aligned.m16n8k{k}.row.col{saturate}.{d}.{}.{}.{d}", ta.name, tb.name);
    let mut body = format!(
        ".reg .b32 %a<{na}>, %b<{nb}>, %c<{nc}>, %w, %l, %r<4>; .reg .b64 %x<5>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; shr.u32 %w, %r2, 5; mad.lo.u32 %w, %r1, 4, %w; and.b32 %l, %r2, 31;\n"
    );
    for (p, n) in [("a", na), ("b", nb), ("c", nc), ("d", nc)] {
        body += &format!(
            "  ld.param.u64 %x1, [p{p}]; mad.lo.u32 %r3, %w, {}, %l; mul.wide.u32 %x2, %r3, 4; add.s64 %x3, %x1, %x2;\n",
            32 * n
        );
        if p == "d" {
            body += &format!("  {instruction} {c}, {}, {}, {c};\n", list("a", na), list("b", nb), c = list("c", nc));
        }
        for i in 0..n {
            body += &match p {
                "d" => format!("  st.global.b32 [%x3+{}], %c{i};\n", 128 * i),
                _ => format!("  ld.global.b32 %{p}{i}, [%x3+{}];\n", 128 * i),
            };
        }
    }
    let params = ["a", "b", "c", "d"].map(|p| format!(".param .u64 p{p}")).join(", ");
    let args = vec![Arg::In(words(a)), Arg::In(words(b)), Arg::In(words(c)), Arg::Out(TRIALS * nc * 128)];
    let ptx = kernel(level, &params, &(body + "  ret;"));
    let job = Job { ptx, grid: [TRIALS as u32 / 4, 1, 1], block: [128, 1, 1], cluster: None, shared: 0, args };
    // Integer products are exact whatever they are of.
    let tolerance = if sum == Sum::S32 { Exact } else { kind.tolerance() };
    let name = format!("{instruction} {}", kind.name());
    Case { family: FAMILY, name, level, unit: sum.unit(), tolerance, job }
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    let types: [(Operand, Operand, Sum, &[usize], Level); 10] = [
        (A_BF16, A_BF16, Sum::F32, &[8, 16], Sm80),
        (A_F16, A_F16, Sum::F32, &[8, 16], Sm80),
        (A_F16, A_F16, Sum::F16, &[8, 16], Sm80),
        (A_TF32, A_TF32, Sum::F32, &[4, 8], Sm80),
        (A_S8, A_S8, Sum::S32, &[16, 32], Sm80),
        (A_U8, A_S8, Sum::S32, &[16, 32], Sm80),
        (A_U8, A_U8, Sum::S32, &[32], Sm80),
        (A_E4M3, A_E4M3, Sum::F32, &[32], Sm89),
        (A_E5M2, A_E5M2, Sum::F32, &[32], Sm89),
        (A_E4M3, A_E5M2, Sum::F32, &[32], Sm89),
    ];
    for (a, b, sum, ks, level) in types {
        for &k in ks {
            for kind in Kind::ALL {
                if sum != Sum::S32 {
                    out.push(mma(a, b, sum, k, kind, false, level));
                } else if matches!(kind, Kind::Exact | Kind::Bits) {
                    out.push(mma(a, b, sum, k, kind, false, level));
                    out.push(mma(a, b, sum, k, kind, true, level));
                }
            }
        }
    }
    out
}
