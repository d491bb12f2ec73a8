//! The cases, by family.

use super::{Case, Check, Column};
use crate::arch::Need;
use std::collections::BTreeMap;

/// Every case.
pub fn all() -> Vec<Case> {
    [conversions(), arithmetic(), approximations(), packed(), integers(), warps(), products()].concat()
}

/// A repeatable stream of 64-bit numbers (SplitMix64).
struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn column(&mut self, ty: &'static str, n: usize) -> Column {
        let bits = 8 * super::width(ty) as u32;
        Column { ty, values: (0..n).map(|_| self.next() >> (64 - bits)).collect() }
    }

    /// Small floats of a type, packed as a register holds them.
    fn floats(&mut self, ty: &str, n: usize) -> Column {
        let small = |r: u64, exponent: u32, fraction: u32| -> u64 {
            // Magnitudes from 1/4 to 4, both signs.
            let bias = (1u64 << (exponent - 1)) - 1;
            let e = bias - 2 + (r >> 40) % 4;
            (r >> 50 & 1) << (exponent + fraction) | e << fraction | (r & ((1 << fraction) - 1))
        };
        let mut word = || match ty {
            "f16" => small(self.next(), 5, 10) << 16 | small(self.next(), 5, 10),
            "bf16" => small(self.next(), 8, 7) << 16 | small(self.next(), 8, 7),
            "e4m3" => (0..4).fold(0, |w, _| w << 8 | small(self.next(), 4, 3)),
            "e5m2" => (0..4).fold(0, |w, _| w << 8 | small(self.next(), 5, 2)),
            "tf32" => small(self.next(), 8, 10) << 13,
            "f32" => small(self.next(), 8, 23),
            _ => self.next() >> 32,
        };
        Column { ty: "b32", values: (0..n).map(|_| word()).collect() }
    }
}

/// A third of all high halves of f32 beside the low halves that decide roundings.
pub fn f32_inputs() -> Vec<u64> {
    let lows = [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff];
    (0..65536u64).step_by(3).flat_map(|high| lows.map(|low| high << 16 | low)).collect()
}

/// Conversions over all (or, of f32, all kinds of) inputs. Their names are those of `tests/tables/conversions.tsv`, which
/// holds checksums of the exact results.
pub fn conversions() -> Vec<Case> {
    let all16 = Column { ty: "b16", values: (0..65536).collect() };
    let all8 = Column { ty: "b16", values: (0..256).collect() };
    let f32s = Column { ty: "b32", values: f32_inputs() };
    let case = |name: &str, body: &str, input: &Column, out| Case::new(name, body, vec![input.clone()], out);
    let fp8 = Need::new(89, 81);
    let mut out = vec![
        case("f16_to_f32", "cvt.f32.f16 %d, %a;", &all16, "b32"),
        case("bf16_to_f32", "cvt.f32.bf16 %d, %a;", &all16, "b32").need(Need::new(90, 78)),
        case("e4m3_to_f16", "cvt.rn.f16x2.e4m3x2 %r6, %a; mov.b32 {%d, %t1}, %r6;", &all8, "b16").need(fp8),
        case("e5m2_to_f16", "cvt.rn.f16x2.e5m2x2 %r6, %a; mov.b32 {%d, %t1}, %r6;", &all8, "b16").need(fp8),
        case("f16_to_bf16", "cvt.rn.bf16.f16 %d, %a;", &all16, "b16").need(Need::new(90, 78)),
        case("bf16_to_f16", "cvt.rn.f16.bf16 %d, %a;", &all16, "b16").need(Need::new(90, 78)),
        case("f32_to_tf32_rna", "cvt.rna.tf32.f32 %d, %a;", &f32s, "b32"),
    ];
    for t in ["e4m3", "e5m2"] {
        let low8 = "cvt.u16.u8 %d, %t1;";
        let body = format!("mov.b32 %r6, {{%a, %a}}; cvt.rn.satfinite.{t}x2.f16x2 %t1, %r6; {low8}");
        out.push(case(&format!("f16_to_{t}"), &body, &all16, "b8").need(fp8));
        // The low half comes from the second source; the first must not leak into it.
        let body = format!("cvt.rn.satfinite.{t}x2.f32 %t1, 0f42280000, %a; {low8}");
        out.push(case(&format!("f32_to_{t}"), &body, &f32s, "b8").need(fp8));
    }
    for m in ["rn", "rz", "rm", "rp"] {
        for t in ["f16", "bf16"] {
            // rm and rp narrow through f64, which holds every f32.
            let (body, need) = match (m, t) {
                ("rn" | "rz", "f16") => (format!("cvt.{m}.f16.f32 %d, %a;"), Need::new(80, 70)),
                ("rn" | "rz", _) => (format!("cvt.{m}.bf16.f32 %d, %a;"), Need::new(80, 70)),
                _ => {
                    let need = if t == "f16" { Need::new(80, 70) } else { Need::new(90, 78) };
                    (format!("cvt.f64.f32 %rd4, %a; cvt.{m}.{t}.f64 %d, %rd4;"), need)
                }
            };
            out.push(case(&format!("f32_to_{t}_{m}"), &body, &f32s, "b16").need(need));
        }
    }
    out
}

/// Sums, products and fused ones in every rounding, with exact results.
pub fn arithmetic() -> Vec<Case> {
    type Rows = Vec<(Vec<u64>, u64)>;
    let mut groups: BTreeMap<(&str, &str, &str), Rows> = BTreeMap::new();
    let hex = |x: &str| u64::from_str_radix(x, 16).unwrap_or(0);
    for line in include_str!("../../tests/tables/arithmetic.tsv").lines() {
        let f: Vec<&str> = line.split('\t').collect();
        let [op, mode, ty, operands, result] = f[..] else { continue };
        groups.entry((op, mode, ty)).or_default().push((operands.split(',').map(hex).collect(), hex(result)));
    }
    let case = |((op, mode, ty), rows): ((&str, &str, &str), Rows)| {
        let width = match ty {
            "f64" => "b64",
            "f32" => "b32",
            _ => "b16",
        };
        let arity = rows.first().map_or(0, |r| r.0.len());
        let column = |i: usize| Column { ty: width, values: rows.iter().map(|r| r.0[i]).collect() };
        let name = format!("{op}.{mode}.{ty}");
        let body = format!("{name} %d, {};", super::INPUTS[..arity].join(", "));
        let need = if ty == "bf16" && op != "fma" { Need::new(90, 78) } else { Need::new(80, 70) };
        let truth = Some(rows.iter().map(|r| r.1).collect());
        Case { truth, ..Case::new(name, body, (0..arity).map(column).collect(), width).need(need) }
    };
    groups.into_iter().map(case).collect()
}

/// Functions that PTX approximates: results of a device differ in the last places.
pub fn approximations() -> Vec<Case> {
    let mut random = Random(3);
    let mut x: Vec<u64> = (0..20000)
        .map(|_| ((random.next() as f64 / u64::MAX as f64 * 260.0 - 130.0) as f32).to_bits() as u64)
        .collect();
    x.extend((0..20000).map(|_| random.next() & 0xffff_ffff));
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 0.5, 2.0, 3.0];
    x.extend(special.map(|v: f32| v.to_bits() as u64));
    let x = Column { ty: "b32", values: x };
    ["ex2.approx", "lg2.approx", "sin.approx", "cos.approx", "tanh.approx", "rsqrt.approx", "sqrt.approx", "rcp.approx"]
        .into_iter()
        .map(|op| {
            let name = format!("{op}.f32");
            let body = format!("{name} %d, %a;");
            Case { check: Check::Near(4e-6), ..Case::new(name, body, vec![x.clone()], "b32") }
        })
        .collect()
}

/// Two halves in a register.
fn packed() -> Vec<Case> {
    let mut random = Random(11);
    let mut out = Vec::new();
    for op in ["add.rn", "sub.rn", "mul.rn", "fma.rn", "fma.rn.relu", "min", "max.NaN", "min.xorsign.abs", "neg", "abs"]
    {
        for ty in ["f16x2", "bf16x2"] {
            let arity = match op {
                "neg" | "abs" => 1,
                _ if op.starts_with("fma") => 3,
                _ => 2,
            };
            let inputs = (0..arity).map(|_| random.column("b32", 3072)).collect();
            let name = format!("{op}.{ty}");
            let body = format!("{name} %d, {};", super::INPUTS[..arity].join(", "));
            let newer = ty == "bf16x2" && ["add.rn", "sub.rn", "mul.rn"].contains(&op);
            let need = match op {
                _ if newer => Need::new(90, 78),
                "min.xorsign.abs" => Need::new(86, 72),
                _ => Need::new(80, 70),
            };
            out.push(Case::new(name, body, inputs, "b32").need(need));
        }
    }
    out
}

/// Edge values and random ones.
fn edges(random: &mut Random, ty: &'static str, order: usize) -> Column {
    let bits = 8 * super::width(ty) as u32;
    let mask = if bits == 64 { !0 } else { (1u64 << bits) - 1 };
    let top = 1u64 << (bits - 1);
    let edges = [0, 1, 2, 3, 8, 15, 16, 31, 32, 33, 63, 64, 255, 256, mask, mask - 1, top, top - 1, top + 1];
    let n = edges.len();
    let mut values: Vec<u64> = (0..n * n).map(|i| edges[[i % n, i / n, (i * 7 + i / n) % n][order % 3]]).collect();
    values.extend((0..663).map(|i| random.next() >> (i % bits as u64)));
    Column { ty, values: values.into_iter().map(|v| v & mask).collect() }
}

/// Integers and bits.
fn integers() -> Vec<Case> {
    let mut random = Random(17);
    let mut out = Vec::new();
    let mut push = |op: &str, result: &'static str, inputs: &[&'static str]| {
        let columns = inputs.iter().enumerate().map(|(i, ty)| edges(&mut random, ty, i)).collect();
        let body = match op.contains('$') {
            true => op.replace('$', &super::INPUTS[..inputs.len()].join(", ")),
            false => format!("{op} %d, {};", super::INPUTS[..inputs.len()].join(", ")),
        };
        out.push(Case::new(op, body, columns, result));
    };
    for (b, n) in [("b16", 16), ("b32", 32), ("b64", 64)] {
        for op in ["add.u", "sub.s", "mul.lo.u", "mul.hi.u", "mul.hi.s", "min.s", "max.u"] {
            push(&format!("{op}{n}"), b, &[b, b]);
        }
        // What a division by zero gives is the machine's own affair.
        for op in ["div.u", "rem.u", "div.s", "rem.s"] {
            push(&format!("or.b{n} %b, %b, 1; {op}{n} %d, $;"), b, &[b, b]);
        }
        for op in ["mad.lo.s", "mad.hi.s", "sad.s", "sad.u"] {
            push(&format!("{op}{n}"), b, &[b, b, b]);
        }
        for op in ["and", "or", "xor"] {
            push(&format!("{op}.b{n}"), b, &[b, b]);
        }
        for op in ["shl.b", "shr.u", "shr.s"] {
            push(&format!("{op}{n}"), b, &[b, "b32"]);
        }
        push(&format!("not.b{n}"), b, &[b]);
        push(&format!("abs.s{n}"), b, &[b]);
        push(&format!("cnot.b{n}"), b, &[b]);
    }
    for (b, n) in [("b32", 32), ("b64", 64)] {
        for op in ["popc.b", "clz.b", "bfind.u", "bfind.s", "bfind.shiftamt.u"] {
            push(&format!("{op}{n}"), "b32", &[b]);
        }
        push(&format!("brev.b{n}"), b, &[b]);
        for op in ["bfe.u", "bfe.s"] {
            push(&format!("{op}{n}"), b, &[b, "b32", "b32"]);
        }
        push(&format!("bfi.b{n} %d, $, 9;"), b, &[b, b, "b32"]);
        push(&format!("cvt.rn.f32.s{n}"), "b32", &[b]);
        push(&format!("cvt.rz.f32.u{n}"), "b32", &[b]);
    }
    for op in ["shf.l.wrap.b32", "shf.r.clamp.b32", "prmt.b32", "prmt.b32.f4e", "prmt.b32.ecl"] {
        push(op, "b32", &["b32", "b32", "b32"]);
    }
    for op in ["dp4a.s32.s32", "dp4a.u32.s32", "dp2a.lo.s32.s32", "dp2a.hi.u32.u32", "mad.hi.sat.s32"] {
        push(op, "b32", &["b32", "b32", "b32"]);
    }
    for op in ["add.sat.s32", "sub.sat.s32", "mul24.lo.s32", "mul24.hi.u32"] {
        push(op, "b32", &["b32", "b32"]);
    }
    push("lop3.b32 %d, $, 0xca;", "b32", &["b32", "b32", "b32"]);
    push("mul.wide.s32", "b64", &["b32", "b32"]);
    push("{ .reg .b64 %lo; add.cc.u64 %lo, %a, %b; addc.u64 %d, %c, %a; } // $\n", "b64", &["b64", "b64", "b64"]);
    for mode in ["rni", "rzi", "rmi", "rpi"] {
        for ty in ["s32", "u32", "s8", "u16"] {
            let out_ty = if ty.ends_with("32") { "b32" } else { "b16" };
            push(&format!("cvt.{mode}.{ty}.f32"), out_ty, &["b32"]);
        }
        push(&format!("cvt.{mode}.s64.f64"), "b64", &["b64"]);
    }
    out
}

/// Exchanges inside of a warp.
fn warps() -> Vec<Case> {
    let mut random = Random(23);
    let few = |random: &mut Random| {
        let mut column = random.column("b32", 256);
        // Several lanes hold the same, and warps differ.
        column.values.iter_mut().enumerate().for_each(|(i, v)| *v = (*v & 7) + i as u64 / 64);
        column
    };
    let bodies = [
        ("shfl.sync.bfly", "shfl.sync.bfly.b32 %d|%p1, %a, 5, 31, -1; @!%p1 add.s32 %d, %d, 1;"),
        ("shfl.sync.up", "shfl.sync.up.b32 %d|%p1, %a, 3, 0, -1; @!%p1 add.s32 %d, %d, 1;"),
        ("shfl.sync.down", "shfl.sync.down.b32 %d|%p1, %a, 4, 0x100f, -1; @!%p1 add.s32 %d, %d, 1;"),
        ("shfl.sync.idx", "shfl.sync.idx.b32 %d, %a, %b, 0x1c1f, -1;"),
        ("vote.sync.ballot", "setp.gt.u32 %p1, %a, 3; vote.sync.ballot.b32 %d, %p1, -1;"),
        ("vote.sync.any", "setp.gt.u32 %p1, %a, 9; vote.sync.any.pred %p2, %p1, -1; selp.b32 %d, 1, 0, %p2;"),
        ("match.any.sync", "match.any.sync.b32 %d, %a, -1;"),
        (
            "match.all.sync",
            "and.b32 %r6, %r4, 32; mul.lo.u32 %r6, %r6, %a; match.all.sync.b32 %d|%p1, %r6, -1; @%p1 add.s32 %d, %d, 2;",
        ),
        ("redux.sync.add.s32", "redux.sync.add.s32 %d, %a, -1;"),
        ("redux.sync.min.u32", "redux.sync.min.u32 %d, %a, -1;"),
        ("redux.sync.max.s32", "sub.s32 %r6, 3, %a; redux.sync.max.s32 %d, %r6, -1;"),
        ("redux.sync.xor.b32", "redux.sync.xor.b32 %d, %a, -1;"),
    ];
    let mut out: Vec<Case> =
        bodies.map(|(n, body)| Case::new(n, body, vec![few(&mut random), few(&mut random)], "b32")).into();
    // One warp at a time uses the tile: blocks of 128 threads have four.
    let put = "mov.u32 %r6, tile; and.b32 %r7, %r4, 96; shl.b32 %r7, %r7, 2; add.s32 %r6, %r6, %r7;
               and.b32 %r8, %r4, 31; shl.b32 %r8, %r8, 2; add.s32 %r9, %r6, %r8; st.shared.b32 [%r9], %a;
               bar.warp.sync -1; and.b32 %r8, %r4, 7; shl.b32 %r8, %r8, 4; add.s32 %r9, %r6, %r8;";
    for trans in ["", ".trans"] {
        let body = format!("{put} ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%d}}, [%r9];");
        out.push(Case::new(format!("ldmatrix.x1{trans}"), body, vec![random.column("b32", 256)], "b32"));
    }
    out
}

/// Matrix products: sums whose order and rounding PTX leaves open, exact for integers.
fn products() -> Vec<Case> {
    let mut random = Random(29);
    let mut out = Vec::new();
    let mma = [
        ("m16n8k16", "f32", "bf16", 4, 2, Need::new(80, 70)),
        ("m16n8k16", "f32", "f16", 4, 2, Need::new(80, 70)),
        ("m16n8k8", "f32", "tf32", 4, 2, Need::new(80, 70)),
        ("m16n8k8", "f32", "bf16", 2, 1, Need::new(80, 70)),
        ("m16n8k32", "s32", "s8", 4, 2, Need::new(80, 70)),
        ("m16n8k32", "s32", "u8", 4, 2, Need::new(80, 70)),
        ("m16n8k32", "f32", "e4m3", 4, 2, Need::new(89, 84)),
        ("m16n8k32", "f32", "e5m2", 4, 2, Need::new(89, 84)),
    ];
    for (shape, acc, ty, a, b, need) in mma {
        let n = 512;
        let mut inputs: Vec<Column> = (0..a + b).map(|_| random.floats(ty, n)).collect();
        inputs.extend((0..4).map(|_| random.floats(acc, n)));
        let names = |from: usize, n: usize| super::INPUTS[from..from + n].join(", ");
        let name = format!("mma.sync.aligned.{shape}.row.col.{acc}.{ty}.{ty}.{acc}");
        let body =
            format!("{name} {{%d, %d1, %d2, %d3}}, {{{}}}, {{{}}}, {{{}}};", names(0, a), names(a, b), names(a + b, 4));
        out.push(Case {
            outputs: vec!["b32"; 4],
            check: if acc == "s32" { Check::Bits } else { Check::Near(2e-4) },
            ..Case::new(name, body, inputs, "b32").need(need)
        });
    }
    // A in registers; B, eight columns of 32 bytes, as two rows of cores of 8 columns by 16 bytes.
    for (k, acc, ty) in [("k16", "f32", "bf16"), ("k16", "f32", "f16"), ("k32", "s32", "s8"), ("k32", "f32", "e4m3")] {
        let mut inputs: Vec<Column> = (0..5).map(|_| random.floats(ty, 128)).collect();
        inputs.extend((0..4).map(|_| random.floats(acc, 128)));
        let name = format!("wgmma.mma_async.sync.aligned.m64n8{k}.{acc}.{ty}.{ty}");
        let tail = match (acc, ty) {
            ("s32", _) => "",
            (_, "e4m3") => ", 1, 1",
            _ => ", 1, 1, 0",
        };
        let body = format!(
            "mov.u32 %r6, tile; shl.b32 %r7, %r4, 2; add.s32 %r7, %r6, %r7; setp.lt.u32 %p1, %r4, 64;
             @%p1 st.shared.b32 [%r7], %x4; fence.proxy.async; bar.sync 0;
             mov.b32 %d, %x5; mov.b32 %d1, %x6; mov.b32 %d2, %x7; mov.b32 %d3, %x8;
             shr.u32 %r8, %r6, 4; cvt.u64.u32 %rd4, %r8; or.b64 %rd4, %rd4, 0x0000001000080000;
             wgmma.fence.sync.aligned; setp.eq.u32 %p2, %r6, %r6; {name} {{%d, %d1, %d2, %d3}}, {{%a, %b, %c, %x3}}, %rd4, %p2{tail};
             wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        );
        out.push(Case {
            outputs: vec!["b32"; 4],
            check: if acc == "s32" { Check::Bits } else { Check::Near(2e-3) },
            ..Case::new(name, body, inputs, "b32").need(Need::only("sm_90a", 80))
        });
    }
    out
}

impl Case {
    fn need(self, need: Need) -> Case {
        Case { need, ..self }
    }
}
