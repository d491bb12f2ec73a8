//! mma.sync and the matrix moves, against loops over the fragment tables of the PTX ISA.

// The tables of fragments are formulas of indices.
#![allow(clippy::needless_range_loop)]

mod common;
use common::{HEAD, Random, machine, modes};
use tegula_ptx::{FaultKind, Grid, Options, Param};

/// Runs `text` in one warp: `ins` are its 32-bit registers `%i0..`, lane by lane, `%o0..` its `n` results.
fn run(text: &str, ins: &[[u32; 32]], n: usize, options: Options) -> Vec<[u32; 32]> {
    let mut body = format!(
        "{HEAD}.visible .entry k(.param .u64 src, .param .u64 dst) {{
         .reg .b32 %i<{}>, %o<{}>, %l; .reg .b64 %a<4>; mov.u32 %l, %laneid; mul.wide.u32 %a0, %l, 4;
         ld.param.u64 %a1, [src]; ld.param.u64 %a2, [dst]; add.s64 %a1, %a1, %a0; add.s64 %a2, %a2, %a0;\n",
        ins.len().max(1),
        n.max(1)
    );
    for i in 0..ins.len() {
        body += &format!("ld.global.b32 %i{i}, [%a1+{}];\n", i * 128);
    }
    body += text;
    for i in 0..n {
        body += &format!("st.global.b32 [%a2+{}], %o{i};\n", i * 128);
    }
    body += "ret; }";
    let mut m = machine(&body, options);
    let words: Vec<u32> = ins.iter().flatten().copied().collect();
    let (src, dst) = (m.put(&words), m.room(n * 128));
    m.run("k", Grid::new(1, 32), &[Param::U64(src), Param::U64(dst)]).unwrap_or_else(|e| panic!("{text}: {e}"));
    m.get::<u32>(dst, n * 32).chunks_exact(32).map(|c| c.try_into().unwrap()).collect()
}

fn list(prefix: &str, from: usize, n: usize) -> String {
    let names: Vec<String> = (from..from + n).map(|i| format!("%{prefix}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// A small float's value by its definition.
fn float(bits: u32, exponent: u32, fraction: u32) -> f64 {
    let bias = (1 << (exponent - 1)) - 1;
    let e = (bits >> fraction & ((1 << exponent) - 1)) as i32;
    let f = (bits & ((1 << fraction) - 1)) as f64 / f64::from(1u32 << fraction);
    let sign = if bits >> (exponent + fraction) & 1 == 1 { -1.0 } else { 1.0 };
    sign * if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) }
}

/// An operand type: PTX name, bits, and its value by definition.
struct Format {
    name: &'static str,
    bits: u32,
    value: fn(u32) -> f64,
}
const BF16: Format = Format { name: "bf16", bits: 16, value: |b| float(b, 8, 7) };
const F16: Format = Format { name: "f16", bits: 16, value: |b| float(b, 5, 10) };
const TF32: Format = Format { name: "tf32", bits: 32, value: |b| float(b >> 13, 8, 10) };
const E4M3: Format = Format { name: "e4m3", bits: 8, value: |b| float(b, 4, 3) };
const E5M2: Format = Format { name: "e5m2", bits: 8, value: |b| float(b, 5, 2) };
const S8: Format = Format { name: "s8", bits: 8, value: |b| b as u8 as i8 as f64 };
const U8: Format = Format { name: "u8", bits: 8, value: |b| b as f64 };

impl Format {
    /// A random element of modest size, subnormals of the small formats included.
    fn random(&self, random: &mut Random) -> u32 {
        loop {
            let bits = random.next() as u32 >> (32 - self.bits);
            let v = (self.value)(bits).abs();
            if self.name.ends_with('8') || (v < 64.0 && v > 0.01) || v == 0.0 || (self.bits == 8 && v < 64.0) {
                return bits;
            }
        }
    }
}

/// Row and column of A's element i in a lane (`g` its group, `t` its place in it), as the ISA's tables say.
fn a_place(bits: u32, k: usize, i: usize, g: usize, t: usize) -> (usize, usize) {
    let low = |low: bool| if low { g } else { g + 8 };
    match (bits, k) {
        (32, 4) => (low(i == 0), t),
        (32, 8) => (low(i == 0 || i == 2), t + if i < 2 { 0 } else { 4 }),
        (16, 8) => (low(i < 2), 2 * t + (i & 1)),
        (16, 16) => (low(i < 2 || (4..6).contains(&i)), 2 * t + (i & 1) + if i < 4 { 0 } else { 8 }),
        (8, 16) => (low(i < 4), 4 * t + (i & 3)),
        _ => (low(i < 4 || (8..12).contains(&i)), 4 * t + (i & 3) + if i < 8 { 0 } else { 16 }),
    }
}

fn b_place(bits: u32, i: usize, g: usize, t: usize) -> (usize, usize) {
    match bits {
        32 => (if i == 0 { t } else { t + 4 }, g),
        16 => (2 * t + (i & 1) + if i < 2 { 0 } else { 8 }, g),
        _ => (4 * t + (i & 3) + if i < 4 { 0 } else { 16 }, g),
    }
}

/// Fragment registers of a matrix of bit patterns.
fn pack(bits: u32, registers: usize, at: impl Fn(usize, usize, usize) -> u32) -> Vec<[u32; 32]> {
    let e = (32 / bits) as usize;
    (0..registers)
        .map(|r| {
            std::array::from_fn(|lane| {
                (0..e).fold(0u32, |w, j| w | (at(r * e + j, lane / 4, lane % 4)) << (bits as usize * j) as u32)
            })
        })
        .collect()
}

/// One shape, types and accumulator, in all modes, bit for bit.
fn check(a_type: &Format, b_type: &Format, k: usize, accumulator: &str, satfinite: bool) {
    let mut random = Random(k as u64 + a_type.bits as u64);
    let bits = a_type.bits;
    let a: Vec<u32> = (0..16 * k).map(|_| a_type.random(&mut random)).collect();
    let b: Vec<u32> = (0..8 * k).map(|_| b_type.random(&mut random)).collect();
    // Accumulators: f32 bits, f16 bits or integers, some near the ends.
    let c: Vec<u32> = (0..128)
        .map(|i| match accumulator {
            "f16" => F16.random(&mut random),
            "s32" if i % 5 == 0 => i32::MAX as u32 - (random.next() % 1000) as u32,
            "s32" if i % 5 == 1 => i32::MIN as u32 + (random.next() % 1000) as u32,
            "s32" => random.next() as i16 as u32,
            _ => ((random.next() as i16 as f32) / 777.0).to_bits(),
        })
        .collect();
    let (na, nb) = (16 * k * bits as usize / 1024, 8 * k * bits as usize / 1024);
    let mut ins = pack(bits, na, |i, g, t| {
        let (r, col) = a_place(bits, k, i, g, t);
        a[r * k + col]
    });
    ins.extend(pack(bits, nb, |i, g, t| {
        let (r, col) = b_place(bits, i, g, t);
        b[r * 8 + col]
    }));
    let wide = if accumulator == "f16" { 16 } else { 32 };
    let nc = 4 * wide as usize / 32;
    let c_place = |i: usize, g: usize, t: usize| (if i < 2 { g } else { g + 8 }) * 8 + 2 * t + (i & 1);
    ins.extend(pack(wide, nc, |i, g, t| c[c_place(i, g, t)]));
    let text = format!(
        "mma.sync.aligned.m16n8k{k}.row.col{}.{accumulator}.{}.{}.{accumulator} {}, {}, {}, {};\n",
        if satfinite { ".satfinite" } else { "" },
        a_type.name,
        b_type.name,
        list("o", 0, nc),
        list("i", 0, na),
        list("i", na, nb),
        list("i", na + nb, nc)
    );
    let mut want = vec![0u32; 128];
    for r in 0..16 {
        for n in 0..8 {
            let products = (0..k).map(|x| ((a_type.value)(a[r * k + x]), (b_type.value)(b[x * 8 + n])));
            let start = c[r * 8 + n];
            want[r * 8 + n] = match accumulator {
                "s32" => {
                    let exact = start as i32 as i64 + products.map(|(x, y)| x as i64 * y as i64).sum::<i64>();
                    if satfinite { exact.clamp(i32::MIN as i64, i32::MAX as i64) as u32 } else { exact as u32 }
                }
                "f16" => {
                    let start = float(start, 5, 10) as f32;
                    let sum = products.fold(start, |s, (x, y)| (x as f32).mul_add(y as f32, s)) as f64;
                    // The nearest f16, by search: its bits rise with its magnitude.
                    let best = (0..0x7c00u32).min_by_key(|b| {
                        let distance = (float(*b, 5, 10) - sum.abs()).abs();
                        (distance.to_bits(), b & 1)
                    });
                    best.unwrap() | if sum < 0.0 { 0x8000 } else { 0 }
                }
                _ => {
                    let start = f32::from_bits(start);
                    products.fold(start, |s, (x, y)| (x as f32).mul_add(y as f32, s)).to_bits()
                }
            };
        }
    }
    let want = pack(wide, nc, |i, g, t| want[c_place(i, g, t)]);
    for options in modes() {
        assert_eq!(run(&text, &ins, nc, options.clone()), want, "{text} {options:?}");
    }
}

#[test]
fn products_of_every_type_and_shape() {
    for k in [8, 16] {
        check(&BF16, &BF16, k, "f32", false);
        check(&F16, &F16, k, "f32", false);
        check(&F16, &F16, k, "f16", false);
    }
    for k in [4, 8] {
        check(&TF32, &TF32, k, "f32", false);
    }
    for k in [16, 32] {
        for (a, b) in [(&S8, &S8), (&S8, &U8), (&U8, &S8), (&U8, &U8)] {
            check(a, b, k, "s32", false);
            check(a, b, k, "s32", true);
        }
    }
    for (a, b) in [(&E4M3, &E4M3), (&E4M3, &E5M2), (&E5M2, &E4M3), (&E5M2, &E5M2)] {
        for k in [16, 32] {
            check(a, b, k, "f32", false);
            check(a, b, k, "f16", false);
        }
    }
}

#[test]
fn doubles() {
    let mut random = Random(9);
    let mut number = || (random.next() as i32 as f64) / 65537.0;
    for (m, k) in [(8usize, 4usize), (16, 4), (16, 8), (16, 16)] {
        let a: Vec<f64> = (0..m * k).map(|_| number()).collect();
        let b: Vec<f64> = (0..8 * k).map(|_| number()).collect();
        let c: Vec<f64> = (0..m * 8).map(|_| number()).collect();
        let mut ins: Vec<[u32; 32]> = Vec::new();
        let mut text = String::from(".reg .b64 %d<40>;\n");
        let mut put = |values: [f64; 32], name: usize| {
            let at = ins.len();
            ins.push(values.map(|v| v.to_bits() as u32));
            ins.push(values.map(|v| (v.to_bits() >> 32) as u32));
            text += &format!("mov.b64 %d{name}, {{%i{at}, %i{}}};\n", at + 1);
        };
        let (halves, na) = (m / 8, m * k / 32);
        for i in 0..na {
            let place = |l: usize| (l / 4 + if i % halves == 1 { 8 } else { 0 }, l % 4 + 4 * (i / halves));
            put(std::array::from_fn(|l| a[place(l).0 * k + place(l).1]), i);
        }
        for i in 0..k / 4 {
            put(std::array::from_fn(|l| b[(l % 4 + 4 * i) * 8 + l / 4]), na + i);
        }
        let nb = k / 4;
        let c_place = |i: usize, l: usize| (l / 4 + if i < 2 { 0 } else { 8 }) * 8 + l % 4 * 2 + (i & 1);
        for i in 0..m / 4 {
            put(std::array::from_fn(|l| c[c_place(i, l)]), na + nb + i);
        }
        text += &format!(
            "mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64 {}, {}, {}, {};\n",
            list("d", 32, m / 4),
            list("d", 0, na),
            list("d", na, nb),
            list("d", na + nb, m / 4)
        );
        for i in 0..m / 4 {
            text += &format!("mov.b64 {{%o{}, %o{}}}, %d{};\n", 2 * i, 2 * i + 1, 32 + i);
        }
        let out = run(&text, &ins, m / 2, Options::default());
        for i in 0..m / 4 {
            for l in 0..32 {
                let at = c_place(i, l);
                let (r, n) = (at / 8, at % 8);
                let want = (0..k).fold(c[at], |s, x| a[r * k + x].mul_add(b[x * 8 + n], s));
                let got = f64::from_bits(out[2 * i][l] as u64 | (out[2 * i + 1][l] as u64) << 32);
                assert_eq!(got.to_bits(), want.to_bits(), "m{m} k{k} ({r}, {n})");
            }
        }
    }
}

/// A kernel that fills 1 KiB of shared memory with element number = index, with rows of matrix q scattered.
const FILL: &str = ".shared .align 128 .b8 tile[1024]; .reg .b32 %s<9>; .reg .b16 %h; mov.u32 %s0, tile;
    mov.u32 %s1, %l; mov.u32 %s2, 0;
    FILL: mad.lo.u32 %s3, %s2, 32, %s1; cvt.u16.u32 %h, %s3; mad.lo.u32 %s4, %s3, 2, %s0; st.shared.b16 [%s4], %h;
    add.u32 %s2, %s2, 1; setp.lt.u32 %q, %s2, 16; @%q bra FILL; bar.sync 0;\n";

/// Row of 8 elements that lane `8q + r` names: a permutation, so that rows are not in order.
fn row_of(lane: usize) -> usize {
    (lane * 5 + 3) % 64
}

#[test]
fn matrices_from_shared_memory() {
    for (n, suffix) in [(1usize, "x1"), (2, "x2"), (4, "x4")] {
        for trans in [false, true] {
            let rows: [u32; 32] = std::array::from_fn(|l| row_of(l) as u32 * 16);
            let text = format!(
                ".reg .pred %q; {FILL} add.u32 %s5, %s0, %i0;
                 ldmatrix.sync.aligned.m8n8.{suffix}{}.shared.b16 {}, [%s5];\n",
                if trans { ".trans" } else { "" },
                list("o", 0, n)
            );
            let element = |q: usize, r: usize, c: usize| {
                let (r, c) = if trans { (c, r) } else { (r, c) };
                (row_of(8 * q + r) * 8 + c) as u32
            };
            for options in modes() {
                let out = run(&text, &[rows], n, options);
                for (q, register) in out.iter().enumerate() {
                    for lane in 0..32 {
                        let (r, c) = (lane / 4, lane % 4 * 2);
                        let want = element(q, r, c) | element(q, r, c + 1) << 16;
                        assert_eq!(register[lane], want, "{suffix} trans {trans} matrix {q} lane {lane}");
                    }
                }
            }
        }
    }
}

#[test]
fn matrices_to_shared_memory_and_back() {
    let mut random = Random(4);
    let mut ins: Vec<[u32; 32]> = (0..4).map(|_| std::array::from_fn(|_| random.next() as u32)).collect();
    ins.push(std::array::from_fn(|l| l as u32 * 16));
    for trans in [false, true] {
        // Stored by stmatrix, read back as plain words: lane l reads word l of each matrix.
        let text = format!(
            ".shared .align 128 .b8 tile[512]; .reg .b32 %s<4>; mov.u32 %s0, tile; add.u32 %s1, %s0, %i4;
             stmatrix.sync.aligned.m8n8.x4{}.shared.b16 [%s1], {{%i0, %i1, %i2, %i3}}; bar.sync 0;
             mad.lo.u32 %s2, %l, 4, %s0;
             ld.shared.b32 %o0, [%s2]; ld.shared.b32 %o1, [%s2+128]; ld.shared.b32 %o2, [%s2+256];
             ld.shared.b32 %o3, [%s2+384];\n",
            if trans { ".trans" } else { "" }
        );
        let out = run(&text, &ins, 4, Options::default());
        let half = |q: usize, r: usize, c: usize| ins[q][4 * r + c / 2] >> (16 * (c % 2)) & 0xffff;
        for q in 0..4 {
            for l in 0..32 {
                let (r, c) = (l / 4, l % 4 * 2);
                let want = if trans {
                    half(q, c, r) | half(q, c + 1, r) << 16
                } else {
                    half(q, r, c) | half(q, r, c + 1) << 16
                };
                assert_eq!(out[q][l], want, "trans {trans} matrix {q} lane {l}");
            }
        }
    }
    let out = run("movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;\n", &ins[..1], 1, Options::default());
    let half = |r: usize, c: usize| ins[0][4 * r + c / 2] >> (16 * (c % 2)) & 0xffff;
    for l in 0..32 {
        let (r, c) = (l / 4, l % 4 * 2);
        assert_eq!(out[0][l], half(c, r) | half(c + 1, r) << 16);
    }
}

#[test]
fn a_misaligned_matrix_row_is_named() {
    let text = format!(
        "{HEAD}.file 1 \"kernel.rs\"\n.visible .entry rows() {{
         .shared .align 128 .b8 tile[1024]; .reg .b32 %r<8>; .reg .b32 %l; mov.u32 %l, %laneid;
         mad.lo.u32 %r1, %l, 24, 0; mov.u32 %r2, tile; add.u32 %r1, %r1, %r2;
         .loc 1 12 9
         ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r1];
         ret; }}"
    );
    let fault = machine(&text, Options::default()).run("rows", Grid::new(1, 32), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Alignment, "{fault}");
    let said = fault.to_string();
    assert!(said.contains("no multiple of 16"), "{said}");
    assert!(said.contains("kernel rows") && said.contains("lane 1") && said.contains("kernel.rs:12:9"), "{said}");
    assert!(said.contains("PTX line 9: ldmatrix.sync"), "{said}");
}

#[test]
fn matrix_instructions_want_whole_warps() {
    let text = format!(
        "{HEAD}.visible .entry k() {{ .reg .b32 %r<9>; .reg .pred %p; .reg .b32 %l; mov.u32 %l, %laneid;
         mov.b32 %r1, 0; setp.lt.u32 %p, %l, 9;
         @%p movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;
         ret; }}"
    );
    let fault = machine(&text, Options::default()).run("k", Grid::new(1, 32), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Synchronisation, "{fault}");
    assert!(fault.message.contains("all threads of the warp"), "{fault}");
}
