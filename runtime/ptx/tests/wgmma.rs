//! wgmma against plain loops: every type, swizzle and order in memory, with operands laid out by the ISA's pictures.

mod common;
use common::{HEAD, Random, kernel, machine, modes};
use tegula_ptx::{Completion, FaultKind, Grid, Options, Param};

/// A small float's value by its definition.
fn float(bits: u32, exponent: u32, fraction: u32) -> f32 {
    let bias = (1 << (exponent - 1)) - 1;
    let e = (bits >> fraction & ((1 << exponent) - 1)) as i32;
    let f = (bits & ((1 << fraction) - 1)) as f64 / f64::from(1u32 << fraction);
    let sign = if bits >> (exponent + fraction) & 1 == 1 { -1.0 } else { 1.0 };
    (sign * if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) }) as f32
}

fn value(ty: &str, bits: u32) -> f32 {
    match ty {
        "bf16" => float(bits, 8, 7),
        "f16" => float(bits, 5, 10),
        "tf32" => float(bits >> 13, 8, 10),
        "e4m3" => float(bits, 4, 3),
        "e5m2" => float(bits, 5, 2),
        "s8" => bits as u8 as i8 as f32,
        _ => bits as u8 as f32,
    }
}

fn size(ty: &str) -> usize {
    match ty {
        "bf16" | "f16" => 2,
        "tf32" => 4,
        _ => 1,
    }
}

fn random(ty: &str, random: &mut Random) -> u32 {
    loop {
        let bits = random.next() as u32 >> (32 - 8 * size(ty));
        let v = value(ty, bits);
        if !ty.contains(['b', 'f', 'e']) || v.is_finite() && v.abs() < 32.0 && (v.abs() > 0.02 || size(ty) == 1) {
            return bits;
        }
    }
}

/// Where a matrix lies: as a picture of 8-row (or 8-k) atoms, not as address bits.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// 16, 32, 64 or 128 bytes.
    span: usize,
    /// Lines, not k, are neighbours in memory.
    lines_first: bool,
    leading: usize,
    stride: usize,
    /// Bytes from the start of the buffer, a multiple of 128.
    start: usize,
    /// 16-byte pieces along k to skip in each row (k-major with room in the span).
    skip: usize,
}

impl Layout {
    fn pieces(&self, row: usize) -> usize {
        match self.span {
            16 => 0,
            32 => row % 8 / 4,
            64 => row % 8 / 2,
            _ => row % 8,
        }
    }

    /// Place of byte `b` of element (line, k).
    fn place(&self, line: usize, k: usize, size: usize) -> usize {
        if self.lines_first {
            // Atoms of `span` bytes of lines by 8 k.
            let per = self.span / size;
            let (outer_line, outer_k) =
                if self.span == 16 { (self.stride, self.leading) } else { (self.leading, self.stride) };
            let byte = line % per * size;
            let piece = (byte / 16) ^ self.pieces(k);
            return self.start + line / per * outer_line + k / 8 * outer_k + k % 8 * self.span + piece * 16 + byte % 16;
        }
        let byte = k * size;
        if self.span == 16 {
            return self.start + line / 8 * self.stride + byte / 16 * self.leading + line % 8 * 16 + byte % 16;
        }
        let piece = (byte / 16 + self.skip) ^ self.pieces(line);
        self.start + line / 8 * self.stride + line % 8 * self.span + piece * 16 + byte % 16
    }

    /// The descriptor, less the buffer's address.
    fn descriptor(&self) -> u64 {
        let mode = match self.span {
            16 => 0u64,
            128 => 1,
            64 => 2,
            _ => 3,
        };
        let base = if self.span == 128 { self.start as u64 >> 7 & 7 } else { 0 };
        mode << 62
            | base << 49
            | (self.stride as u64 >> 4) << 32
            | (self.leading as u64 >> 4) << 16
            | (self.start as u64 + 16 * self.skip as u64) >> 4
    }
}

struct Case {
    d: &'static str,
    a: &'static str,
    b: &'static str,
    n: usize,
    a_layout: Option<Layout>,
    b_layout: Layout,
    accumulate: bool,
    negate: (bool, bool),
    satfinite: bool,
}

const BUFFER: usize = 48 << 10;

fn check(case: &Case) {
    let Case { d, a, b, n, .. } = *case;
    let (bytes, k) = (size(a), 32 / size(a));
    let mut r = Random(n as u64 * 3 + k as u64);
    let left: Vec<u32> = (0..64 * k).map(|_| random(a, &mut r)).collect();
    let right: Vec<u32> = (0..n * k).map(|_| random(b, &mut r)).collect();
    let mut image: Vec<u8> = (0..BUFFER).map(|_| r.next() as u8 & 0x3f).collect();
    let mut put = |layout: &Layout, line: usize, x: usize, bits: u32| {
        let at = layout.place(line, x, bytes);
        image[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
    };
    for x in 0..k {
        if let Some(layout) = &case.a_layout {
            (0..64).for_each(|line| put(layout, line, x, left[line * k + x]));
        }
        (0..n).for_each(|line| put(&case.b_layout, line, x, right[line * k + x]));
    }
    let integer = d == "s32";
    let start: Vec<u32> = (0..64 * n)
        .map(|i| match d {
            "s32" if i % 3 == 0 => i32::MAX as u32 - r.next() as u32 % 5000,
            "s32" => r.next() as i16 as u32,
            "f16" => random("f16", &mut r),
            _ => ((r.next() as i16 as f32) / 300.0).to_bits(),
        })
        .collect();
    // Registers by (row, column): in f16 two columns share one.
    let packed = d == "f16";
    let registers = if packed { n / 4 } else { n / 2 };
    let place = |register: usize, thread: usize, half: usize| {
        let (warp, g, t) = (thread / 32, thread % 32 / 4, thread % 4);
        let element = if packed { 2 * register + half } else { register };
        (16 * warp + g + element % 4 / 2 * 8, element / 4 * 8 + 2 * t + element % 2)
    };
    let pack = |values: &[u32]| -> Vec<u32> {
        let one = |r: usize, th: usize, h: usize| {
            let (row, col) = place(r, th, h);
            values[row * n + col]
        };
        let word = |r: usize, th: usize| if packed { one(r, th, 0) | one(r, th, 1) << 16 } else { one(r, th, 0) };
        (0..registers).flat_map(|r| (0..128).map(move |th| word(r, th))).collect()
    };
    let list = |prefix: &str, n: usize| (0..n).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ");
    let sign = |negative: bool| if negative { -1 } else { 1 };
    let mut tail = String::new();
    if !integer {
        tail += &format!(", {}, {}", sign(case.negate.0), sign(case.negate.1));
    }
    if bytes == 2 {
        if let Some(l) = &case.a_layout {
            tail += &format!(", {}", l.lines_first as u8);
        }
        tail += &format!(", {}", case.b_layout.lines_first as u8);
    }
    let a_operand = if case.a_layout.is_some() { "%da" } else { "{%a0, %a1, %a2, %a3}" };
    let mut body = format!(
        ".shared .align 1024 .b8 buffer[{BUFFER}]; .reg .b32 %d<{registers}>, %a<4>, %r<9>, %t; .reg .b64 %x<9>, %da, %db;
         .reg .b128 %q; .reg .pred %p, %s; mov.u32 %t, %tid.x; ld.param.u64 %x0, [image];
         mul.lo.u32 %r0, %t, 16; mov.u32 %r1, buffer;
         COPY: cvt.u64.u32 %x1, %r0; add.s64 %x2, %x0, %x1; add.u32 %r2, %r1, %r0;
         ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%x2]; st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
         add.u32 %r0, %r0, 2048; setp.lt.u32 %p, %r0, {BUFFER}; @%p bra COPY;
         fence.proxy.async; bar.sync 0;
         shr.u32 %r2, %r1, 4; cvt.u64.u32 %x1, %r2;
         ld.param.u64 %da, [da]; add.s64 %da, %da, %x1; ld.param.u64 %db, [db]; add.s64 %db, %db, %x1;
         mul.wide.u32 %x3, %t, 4; ld.param.u64 %x4, [start]; add.s64 %x4, %x4, %x3; ld.param.u64 %x5, [left];
         add.s64 %x5, %x5, %x3; ld.param.u64 %x6, [out]; add.s64 %x6, %x6, %x3;
         ld.param.u32 %r3, [accumulate]; setp.ne.u32 %s, %r3, 0;\n"
    );
    for i in 0..4 {
        body += &format!("ld.global.b32 %a{i}, [%x5+{}];\n", i * 512);
    }
    for i in 0..registers {
        body += &format!("ld.global.b32 %d{i}, [%x4+{}];\n", i * 512);
    }
    body += &format!(
        "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}{} {{{}}}, {a_operand}, %db, %s{tail};
         wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n",
        if case.satfinite { ".satfinite" } else { "" },
        list("d", registers)
    );
    for i in 0..registers {
        body += &format!("st.global.b32 [%x6+{}], %d{i};\n", i * 512);
    }
    let params = ["image", "left", "start", "out", "da", "db"].map(|p| format!(".param .u64 {p}")).join(", ");
    let text = kernel("k", &format!("{params}, .param .u32 accumulate"), &(body + "ret;"));
    // A's fragments: element j of register i of lane (g, t) is A[g + 8 (i mod 2)][e t + j + 4 e (i div 2)].
    let e = 4 / bytes;
    let fragments: Vec<u32> = (0..4usize)
        .flat_map(|i| (0..128usize).map(move |th| (i, th)))
        .map(|(i, th)| {
            let row = 16 * (th / 32) + th % 32 / 4 + 8 * (i % 2);
            (0..e).fold(0, |w, j| w | left[row * k + e * (th % 4) + j + 4 * e * (i / 2)] << (8 * bytes * j))
        })
        .collect();
    let mut want = vec![0u32; 64 * n];
    for row in 0..64 {
        for col in 0..n {
            let first = start[row * n + col];
            let signs = (sign(case.negate.0) as f32, sign(case.negate.1) as f32);
            let products =
                (0..k).map(|x| (signs.0 * value(a, left[row * k + x]), signs.1 * value(b, right[col * k + x])));
            want[row * n + col] = if integer {
                let sum = products.map(|(x, y)| x as i64 * y as i64).sum::<i64>();
                let sum = sum + if case.accumulate { first as i32 as i64 } else { 0 };
                if case.satfinite { sum.clamp(i32::MIN as i64, i32::MAX as i64) as u32 } else { sum as u32 }
            } else {
                let first = if packed { float(first, 5, 10) } else { f32::from_bits(first) };
                let first = if case.accumulate { first } else { 0.0 };
                let sum = products.fold(first, |s, (x, y)| x.mul_add(y, s));
                if packed { nearest_f16(sum) } else { sum.to_bits() }
            };
        }
    }
    let want = pack(&want);
    for options in modes() {
        let mut m = machine(&text, options.clone());
        let (image, left, start) = (m.put(&image), m.put(&fragments), m.put(&pack(&start)));
        let out = m.room(registers * 512);
        let a_bits = case.a_layout.map_or(0, |l| l.descriptor());
        let addresses = [image, left, start, out, a_bits, case.b_layout.descriptor()].map(Param::U64);
        let params = [&addresses[..], &[Param::U32(case.accumulate as u32)]].concat();
        m.run("k", Grid::new(1, 128), &params).unwrap_or_else(|e| panic!("{d} {a} {b} {n}: {e}"));
        let got = m.get::<u32>(out, registers * 128);
        assert!(got == want, "{d} {a} {b} n {n} {:?} {:?} {options:?}", case.a_layout, case.b_layout);
    }
}

/// The nearest f16 of a number in its range, by bisection over the bits, which rise with the magnitude.
fn nearest_f16(x: f32) -> u32 {
    let (mut low, mut high) = (0u32, 0x7bff);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if float(middle, 5, 10) <= x.abs() { low = middle } else { high = middle }
    }
    let (below, above) = (x.abs() as f64 - float(low, 5, 10) as f64, float(high, 5, 10) as f64 - x.abs() as f64);
    let best = if below < above || (below == above && low & 1 == 0) { low } else { high };
    best | if x.is_sign_negative() { 0x8000 } else { 0 }
}

/// A k-major layout that is dense for its span.
fn k_major(span: usize, start: usize) -> Layout {
    match span {
        16 => Layout { span, lines_first: false, leading: 128, stride: 256, start, skip: 0 },
        _ => Layout { span, lines_first: false, leading: 0, stride: 8 * span, start, skip: 0 },
    }
}

/// A layout of 16-bit elements with neighbouring lines.
fn line_major(span: usize, start: usize, lines: usize) -> Layout {
    let atom = 8 * span;
    let atoms = (2 * lines).div_ceil(span);
    // Along k first for no swizzle, along lines first with one: any order is possible.
    let (near, far) = (atom, atom * atoms);
    match span {
        16 => Layout { span, lines_first: true, leading: far, stride: near, start, skip: 0 },
        _ => Layout { span, lines_first: true, leading: near, stride: far, start, skip: 0 },
    }
}

const PLAIN: Case = Case {
    d: "f32",
    a: "bf16",
    b: "bf16",
    n: 64,
    a_layout: None,
    b_layout: Layout { span: 16, lines_first: false, leading: 128, stride: 256, start: 0, skip: 0 },
    accumulate: true,
    negate: (false, false),
    satfinite: false,
};

#[test]
fn every_type() {
    let combinations = [
        ("f32", "bf16", "bf16"),
        ("f32", "f16", "f16"),
        ("f16", "f16", "f16"),
        ("f32", "tf32", "tf32"),
        ("s32", "s8", "s8"),
        ("s32", "u8", "s8"),
        ("s32", "s8", "u8"),
        ("s32", "u8", "u8"),
        ("f32", "e4m3", "e4m3"),
        ("f32", "e5m2", "e4m3"),
        ("f32", "e4m3", "e5m2"),
        ("f16", "e5m2", "e5m2"),
    ];
    for (d, a, b) in combinations {
        let (a_layout, b_layout) = (Some(k_major(128, 0)), k_major(128, 16 << 10));
        let base = Case { d, a, b, a_layout, b_layout, ..PLAIN };
        check(&base);
        check(&Case { a_layout: None, n: 96, accumulate: false, ..base });
        if d == "s32" {
            check(&Case { satfinite: true, ..base });
        } else {
            check(&Case { negate: (true, false), n: 8, ..base });
            check(&Case { negate: (true, true), a_layout: None, ..base });
        }
    }
}

#[test]
fn every_width() {
    for n in [8, 24, 72, 136, 256] {
        check(&Case { n, a_layout: Some(k_major(128, 0)), b_layout: k_major(128, 8 << 10), ..PLAIN });
    }
    for n in [8, 16, 24, 32, 48, 240] {
        let (a_layout, b_layout) = (Some(k_major(64, 0)), k_major(64, 8 << 10));
        check(&Case { d: "s32", a: "s8", b: "s8", n, a_layout, b_layout, ..PLAIN });
    }
}

#[test]
fn every_layout_and_order() {
    for a_span in [16, 32, 64, 128] {
        for b_span in [16, 32, 64, 128] {
            for (a_lines, b_lines) in [(false, false), (false, true), (true, false), (true, true)] {
                let layout = |lines_first: bool, span: usize, start: usize, lines: usize| {
                    if lines_first { line_major(span, start, lines) } else { k_major(span, start) }
                };
                let (n, b_start) = (136, 16 << 10);
                let a_layout = Some(layout(a_lines, a_span, 0, 64));
                let b_layout = layout(b_lines, b_span, b_start, n);
                check(&Case { n, a_layout, b_layout, ..PLAIN });
            }
        }
    }
}

#[test]
fn slices_along_k_and_unaligned_patterns() {
    for skip in [2, 4, 6] {
        let slice = |start| Layout { skip, ..k_major(128, start) };
        check(&Case { a_layout: Some(slice(0)), b_layout: slice(16 << 10), ..PLAIN });
    }
    // The pattern starts 3 and 5 rows after a multiple of 1024.
    check(&Case { a_layout: Some(k_major(128, 3 * 128)), b_layout: k_major(128, (16 << 10) + 5 * 128), ..PLAIN });
}

/// A kernel with operands of zeros, in which `between` stands after the product is issued and `before` before.
fn small(before: &str, between: &str) -> String {
    format!(
        "{HEAD}.file 1 \"kernel.rs\"\n.visible .entry product(.param .u64 out) {{
         .shared .align 1024 .b8 buffer[4096]; .reg .f32 %d<4>; .reg .b32 %r<9>; .reg .b64 %x<9>; .reg .pred %p;
         mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 32; mov.u32 %r2, buffer; add.u32 %r1, %r1, %r2; mov.u32 %r3, 0;
         st.shared.v4.b32 [%r1], {{%r3, %r3, %r3, %r3}}; st.shared.v4.b32 [%r1+16], {{%r3, %r3, %r3, %r3}};
         {before}
         shr.u32 %r4, %r2, 4; cvt.u64.u32 %x1, %r4; or.b64 %x1, %x1, 0x4000004000010000;
         mov.f32 %d0, 0f3F800000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;
         wgmma.fence.sync.aligned;
         wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, %x1, %x1, 1, 1, 1, 0, 0;
         wgmma.commit_group.sync.aligned;
         .loc 1 20 5
         {between}
         wgmma.wait_group.sync.aligned 0;
         ld.param.u64 %x2, [out]; mul.wide.u32 %x3, %r0, 4; add.s64 %x2, %x2, %x3; st.global.f32 [%x2], %d0;
         ret; }}"
    )
    .replace("buffer[4096]", "buffer[8192]")
}

fn fails(text: &str, kind: FaultKind, words: &[&str]) {
    for completion in [Completion::Early, Completion::Late] {
        let mut m = machine(text, Options { completion, ..Options::default() });
        let out = m.room(512);
        let fault = m.run("product", Grid::new(1, 128), &[Param::U64(out)]).unwrap_err();
        assert_eq!(fault.kind, kind, "{completion:?}: {fault}");
        for word in words.iter().chain(&["kernel product", "PTX line"]) {
            assert!(fault.to_string().contains(word), "{word} in {fault}");
        }
    }
}

const FENCED: &str =
    "mul.lo.u32 %r5, %r0, 32; add.u32 %r5, %r5, %r2; st.shared.v4.b32 [%r5+4096], {%r3, %r3, %r3, %r3};
    st.shared.v4.b32 [%r5+4112], {%r3, %r3, %r3, %r3}; fence.proxy.async; bar.sync 0;";

#[test]
fn a_correct_product_passes() {
    for completion in [Completion::Early, Completion::Late] {
        let mut m = machine(&small(FENCED, ""), Options { completion, ..Options::default() });
        let out = m.room(512);
        m.run("product", Grid::new(1, 128), &[Param::U64(out)]).unwrap();
        assert_eq!(m.get::<f32>(out, 128), [1.0; 128]);
    }
}

#[test]
fn planted_a_result_read_before_its_wait() {
    let text = small(FENCED, "add.f32 %d0, %d0, %d1;");
    fails(
        &text,
        FaultKind::Asynchronous,
        &["reads register %d0, which wgmma of PTX line", "wait_group", "kernel.rs:20:5"],
    );
}

#[test]
fn planted_a_missing_proxy_fence() {
    let text = small(&FENCED.replace("fence.proxy.async;", ""), "");
    fails(&text, FaultKind::Asynchronous, &["no fence.proxy.async since", "wrote at PTX line", "wgmma.mma_async"]);
}

/// Another warp writes four bytes of a piece whose other bytes are published.
#[test]
fn planted_part_of_a_piece_without_a_fence() {
    let more =
        "bar.sync 0; xor.b32 %r6, %r0, 32; mad.lo.u32 %r6, %r6, 32, %r2; st.shared.b32 [%r6+4], %r3; FENCE bar.sync 0;";
    let before = |fence| FENCED.replace("bar.sync 0;", &more.replace("FENCE", fence));
    fails(&small(&before(""), ""), FaultKind::Asynchronous, &["no fence.proxy.async since", "wgmma.mma_async"]);
    let mut m = machine(&small(&before("fence.proxy.async;"), ""), Options::default());
    let out = m.room(512);
    m.run("product", Grid::new(1, 128), &[Param::U64(out)]).unwrap_or_else(|e| panic!("{e}"));
}

/// Four bytes of an operand are overwritten while a product may read them.
#[test]
fn planted_part_of_a_piece_reused_before_the_wait() {
    let between = "bar.sync 0; st.shared.b32 [%r1+20], %r3;";
    fails(
        &small(FENCED, between),
        FaultKind::Race,
        &["overwrites shared address", "an asynchronous operation of warp"],
    );
}

#[test]
fn planted_a_missing_barrier() {
    let text = small(&FENCED.replace("bar.sync 0;", ""), "");
    let mut m = machine(&text, Options::default());
    let out = m.room(512);
    let fault = m.run("product", Grid::new(1, 128), &[Param::U64(out)]).unwrap_err();
    // Whoever comes first meets either a race or bytes that nobody has written yet.
    assert!(matches!(fault.kind, FaultKind::Race | FaultKind::Uninitialised), "{fault}");
}

#[test]
fn planted_a_missing_register_fence() {
    let text = small(FENCED, "").replace("wgmma.fence.sync.aligned;", "");
    fails(&text, FaultKind::Asynchronous, &["written since the last wgmma.fence"]);
}

#[test]
fn planted_memory_reused_before_the_wait() {
    // The operand is overwritten while the product may still read it: only late completion shows other numbers, and
    // the detector of races says so in both.
    let between = "mov.b32 %r6, 0x3f803f80; bar.sync 0; st.shared.v4.b32 [%r1], {%r6, %r6, %r6, %r6};";
    fails(
        &small(FENCED, between),
        FaultKind::Race,
        &["overwrites shared address", "an asynchronous operation of warp"],
    );
}

#[test]
fn a_descriptor_out_of_bounds_is_named() {
    let text = small(FENCED, "").replace("shr.u32 %r4, %r2, 4;", "add.u32 %r4, %r2, 8192; shr.u32 %r4, %r4, 4;");
    fails(&text, FaultKind::Bounds, &["wgmma's descriptor", "out of the block's 0x400..0x2400"]);
}
