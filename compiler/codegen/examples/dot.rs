//! Measures the CPU's matrix products on this machine: `cargo run -p tegula-codegen --example dot [NAME…]`.
//!
//! Each figure is the median of many short runs on one thread; fractions are of a loop of independent fma (or of a plain
//! read of memory) that is timed right before each run, so that they hold on a busy machine too. NAMEs choose among
//! `blocks`, `gemm`, `kernels` (the same as whole kernels of tile IR), `decode`, `prefill`.

#[allow(dead_code)]
#[path = "../tests/micro/harness.rs"]
mod harness;

use harness::{Function, Random, Scratch, TARGETS, compile, runs};
use tegula_codegen::{
    lower::cpu::{
        build::V,
        micro::{
            Code, Stride,
            dot::{Dot, DotOperands, Order},
            gemm::{Gemm, Kind, Operands, Stored},
            grouped::{Grouped, GroupedOperands},
        },
    },
    service,
};
use tegula_ir::{
    Attr, Attrs, Builder, Elem, Kernel, Key, Loc, PackedType, QTileType, Quant, Scalar, Type, Value, ViewFacts,
    ViewType, abi,
    layout::{Layout, panel},
    protocol::{Emit, Request, Response},
};

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|c| c == name);
    for target in TARGETS.into_iter().filter(|t| runs(t)) {
        let peak = Peak::new(target);
        println!("\n{target}: fma peak {:.0} GFLOP/s", median(20, || peak.flops()) * 1e-9);
        let integers_only = target.contains("vnni");
        if wanted("blocks") && !integers_only {
            blocks(target, &peak);
        }
        if wanted("gemm") && !integers_only {
            gemm(target, &peak);
        }
        if wanted("kernels") && !integers_only {
            kernels(target, &peak);
        }
        if wanted("decode") {
            decode(target);
        }
        if wanted("prefill") {
            prefill(target, &peak);
        }
    }
}

fn median(n: usize, mut f: impl FnMut() -> f64) -> f64 {
    let mut v: Vec<f64> = (0..n).map(|_| f()).collect();
    v.sort_by(f64::total_cmp);
    v[n / 2]
}

/// Seconds that `f` takes on this thread; while others have the core, the clock stands.
fn seconds(f: impl FnOnce()) -> f64 {
    let now = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a timespec; every Linux has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
        t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
    };
    let start = now();
    f();
    now() - start
}

/// A loop of independent fma in registers.
struct Peak(Function, f64);

impl Peak {
    fn new(target: &str) -> Peak {
        let turns = 20_000;
        let mut flops = 0.0;
        let f = compile(target, |c, p| {
            let (lanes, chains) = (c.isa.lanes(4), if c.isa.registers() == 32 { 24 } else { 12 });
            flops = (2 * lanes * chains * turns) as f64;
            let init: Vec<V> = (0..chains).map(|i| c.read(c.offset_c(p[0], 64 * i as i64), c.f32(), lanes)).collect();
            let (x, y) = (c.read(p[1], c.f32(), lanes), c.read(c.offset_c(p[1], 64), c.f32(), lanes));
            let out = c.for_(c.c64(0), c.c64(turns as i64), c.c64(1), &init, |_, v| {
                v.iter().map(|v| c.fma(*v, x, y)).collect()
            });
            out.iter().enumerate().for_each(|(i, v)| c.write(*v, c.offset_c(p[0], 64 * i as i64)));
        });
        Peak(f, flops)
    }
    fn flops(&self) -> f64 {
        let (acc, xy) = ([0.5f32; 24 * 16], [0.9f32; 32]);
        self.1 / seconds(|| unsafe { self.0.call(&[acc.as_ptr().cast(), xy.as_ptr().cast()]) })
    }
}

/// Register blocks on operands in the L1 cache.
fn blocks(target: &str, peak: &Peak) {
    let k = 256;
    for (kind, stored, name) in [
        (Kind::F32, Stored::Plain, "f32"),
        (Kind::F32, Stored::F16, "f32 · f16"),
        (Kind::F32, Stored::BF16, "f32 · bf16"),
        (Kind::F64, Stored::Plain, "f64"),
        (Kind::Pairs, Stored::Plain, "i8 (as i16)"),
    ] {
        for m in [1, 2, 4, if target.contains("v4") { 12 } else { 6 }] {
            let n = 128;
            let g = Gemm { kind, stored, m, n, k, padded: true };
            let f = compile(target, |c, p| {
                let line = 16 * g.stored_bytes() as i64;
                let at = Operands {
                    a: p[0],
                    a_row: Stride::Fixed((k as i64 + 16) * kind.bytes() as i64),
                    b: p[1],
                    b_panel: Stride::Fixed(line * k as i64 + 64),
                    b_row: Stride::Fixed(line),
                    c: p[2],
                    c_row: Stride::Fixed((n * kind.bytes()) as i64),
                    exists: None,
                };
                c.for_each(0, 20, 1, |_| g.emit(c, &at));
            });
            let mut memory = [m * (k + 16) * 8, 8 * (16 * k * 8 + 64), m * n * 8].map(Scratch::zeroed);
            let pointers: Vec<*const u8> = memory.iter_mut().map(Scratch::address).collect();
            let work = (20 * 2 * m * n * k * if kind == Kind::Pairs { 2 } else { 1 }) as f64;
            let fraction = median(41, || {
                let top = peak.flops();
                work / seconds(|| unsafe { f.call(&pointers) }) / top
            });
            println!("  block {name:11} {m:2} rows: {fraction:.3} of the f32 peak");
        }
    }
}

/// C = A·B, n × n × n, as the programs of a tiled kernel do it.
fn gemm(target: &str, peak: &Peak) {
    for n in [512usize, 1024] {
        for (bm, bn, bk) in [(128, 128, 256), (128, 256, 256), (256, 256, 256), (64, 512, 256)] {
            for packed in [false, true] {
                let dot = if packed {
                    Dot::packed((bm, bn, bk), Elem::F32, Quant::F32).unwrap()
                } else {
                    Dot { m: bm, n: bn, k: bk, a: Elem::F32, b: Elem::F32, order: Order::Rows }
                };
                let f = compile(target, |c, p| tiled(c, p, n, dot));
                let random = Random::new(5).floats(n * n);
                let mut memory =
                    [n * n * 4, n * n * 4, n * n * 4, bm * bn * 4 + dot.scratch_bytes()].map(Scratch::zeroed);
                let pointers: Vec<*const u8> = memory.iter_mut().map(Scratch::address).collect();
                for p in &pointers[..2] {
                    unsafe { std::ptr::copy_nonoverlapping(random.as_ptr(), *p as *mut f32, n * n) };
                }
                let (mut rates, mut best) = (vec![], 0f64);
                let fraction = median(31, || {
                    let top = peak.flops();
                    let rate = 2.0 * (n as f64).powi(3) / seconds(|| unsafe { f.call(&pointers) });
                    rates.push(rate);
                    best = best.max(rate);
                    rate / top
                });
                rates.sort_by(f64::total_cmp);
                println!(
                    "  gemm {n:4} tile {bm}x{bn}x{bk} {}: {:.0} GFLOP/s median, {:.0} best, {fraction:.3} of peak",
                    if packed { "packed  " } else { "unpacked" },
                    rates[15] * 1e-9,
                    best * 1e-9
                );
            }
        }
    }
}

/// All programs of the grid, accumulators in scratch memory.
fn tiled<'c>(c: &Code<'_, 'c>, p: &[V<'c>], n: usize, dot: Dot) {
    let (size, row) = (4i64, n as i64 * 4);
    let Dot { m: bm, n: bn, k: bk, .. } = dot;
    let acc_row = Stride::Fixed(bn as i64 * size);
    c.for_each(0, n as i64, bm as i64, |i| {
        c.for_each(0, n as i64, bn as i64, |j| {
            c.fill(p[3], 0, bm * bn * 4);
            c.for_each(0, n as i64, bk as i64, |k| {
                let (b, b_row) = match dot.order {
                    Order::Panels => {
                        let panel = c.offset(p[1], c.mul_c(j, row));
                        (c.step(panel, k, Stride::Fixed(64)), Stride::Fixed(16 * row))
                    }
                    _ => (c.step(c.step(p[1], k, Stride::Fixed(row)), j, Stride::Fixed(size)), Stride::Run(c.c64(row))),
                };
                let a = c.step(c.step(p[0], i, Stride::Fixed(row)), k, Stride::Fixed(size));
                let at = DotOperands {
                    a,
                    a_row: Stride::Run(c.c64(row)),
                    b,
                    b_row,
                    exists: None,
                    c: p[3],
                    c_row: acc_row,
                    scratch: c.offset_c(p[3], (bm * bn * 4) as i64),
                };
                dot.emit(c, &at);
            });
            c.for_each(0, bm as i64, 1, |r| {
                let to = c.step(c.step(p[2], c.add(i, r), Stride::Fixed(row)), j, Stride::Fixed(size));
                let from = c.step(p[3], r, acc_row);
                c.for_each(0, bn as i64, 16, |q| {
                    let q = c.mul_c(q, size);
                    c.write(c.read(c.offset(from, q), c.f32(), 16), c.offset(to, q));
                });
            });
        });
    });
}

/// A plain read of memory: what decoding is limited by.
struct Read(Function, Scratch);

impl Read {
    const BYTES: usize = 128 << 20;

    fn new(target: &str) -> Read {
        let f = compile(target, |c, p| {
            let (lanes, register) = (c.isa.lanes(4), c.isa.bits / 8);
            let init = vec![c.zeros(c.i32(), lanes); 4];
            let (end, step) = (c.c64(Self::BYTES as i64), c.c64(4 * register as i64));
            let sums = c.for_(c.c64(0), end, step, &init, |i, sums| {
                let from = c.offset(p[0], i);
                let load = |q: usize| c.read(c.offset_c(from, (q * register) as i64), c.i32(), lanes);
                sums.iter().enumerate().map(|(q, sum)| c.add(*sum, load(q))).collect()
            });
            sums.iter().enumerate().for_each(|(q, sum)| c.write(*sum, c.offset_c(p[1], 64 * q as i64)));
        });
        Read(f, Scratch::new(Self::BYTES))
    }
    /// Bytes a second.
    fn rate(&mut self) -> f64 {
        let mut out = Scratch::new(256);
        let pointers = [self.1.address(), out.address()];
        Self::BYTES as f64 / seconds(|| unsafe { self.0.call(&pointers) })
    }
}

/// C = A·B, n × n × n, by a kernel of tile IR; B is a view, or a packed f32 matrix.
fn kernels(target: &str, peak: &Peak) {
    for n in [512usize, 1024] {
        for (bm, bn, bk) in [(128, 128, 256), (128, 256, 256), (64, 512, 256)] {
            for packed in [false, true] {
                let request = Request {
                    kernel: matmul(bm, bn, bk, packed).text(),
                    target: format!("cpu:{target}"),
                    emit: Emit::Artifact,
                    checked: false,
                };
                let Response::Ok { bytes, meta } = service::answer(&request) else { panic!("the kernel has no code") };
                let dir = tempfile::tempdir().unwrap();
                let file = dir.path().join("k.so");
                std::fs::write(&file, bytes).unwrap();
                // SAFETY: the object was made above; its entry has this type.
                let library = unsafe { libloading::Library::new(&file) }.unwrap();
                let entry: libloading::Symbol<abi::EntryFn> = unsafe { library.get(abi::ENTRY.as_bytes()) }.unwrap();
                let random = Random::new(5).floats(n * n);
                let mut memory = [n * n * 4; 3].map(Scratch::zeroed);
                let at: Vec<u64> = memory.iter_mut().map(|m| m.address() as u64).collect();
                for &p in &at[..2] {
                    unsafe { std::ptr::copy_nonoverlapping(random.as_ptr(), p as *mut f32, n * n) };
                }
                let size = n as u64;
                let view = |p: u64| vec![p, size, size, size, 1];
                let b = if packed { vec![at[1], size, size] } else { view(at[1]) };
                let words = [view(at[0]), b, view(at[2])].concat();
                let mut scratch = Scratch::new(meta.scratch_bytes as usize);
                extern "C" fn report(_: *const abi::Ctx, _: u32, _: u64, _: i64) {}
                let grid = [n / bn, n / bm, 1].map(|g| g as i32);
                let ctx = abi::Ctx { grid, flags: 0, report, user: std::ptr::null_mut() };
                let programs = (n / bn * (n / bm)) as u64;
                let scratch = scratch.address().cast_mut();
                let (mut rates, mut best) = (vec![], 0f64);
                let fraction = median(31, || {
                    let top = peak.flops();
                    // SAFETY: arguments by the ABI, in memory that is alive.
                    let time = seconds(|| unsafe { entry(words.as_ptr(), &raw const ctx, 0, programs, scratch) });
                    let rate = 2.0 * (n as f64).powi(3) / time;
                    rates.push(rate);
                    best = best.max(rate);
                    rate / top
                });
                rates.sort_by(f64::total_cmp);
                println!(
                    "  kernel {n:4} tile {bm}x{bn}x{bk} {}: {:.0} GFLOP/s median, {:.0} best, {fraction:.3} of peak",
                    if packed { "packed  " } else { "unpacked" },
                    rates[15] * 1e-9,
                    best * 1e-9
                );
            }
        }
    }
}

/// The matmul kernel: programs of the grid's first axis walk N, of the second M.
fn matmul(bm: usize, bn: usize, bk: usize, packed: bool) -> Kernel {
    use tegula_ir::OpKind as K;
    let mut b = Builder::new("matmul");
    let facts = ViewFacts { unit: true, align16: true, small: true };
    let view = |mutable| Type::View(ViewType { elem: Elem::F32, rank: 2, mutable, facts });
    let x = b.param("a", view(false));
    let w = b.param(
        "b",
        if packed { Type::Packed(PackedType { quant: Quant::F32, layout: "panel16".into() }) } else { view(false) },
    );
    let y = b.param("c", view(true));
    let (i32, i64) = (Type::scalar(Elem::I32), Type::scalar(Elem::I64));
    let axis = |axis: i64| Attrs::new().with(Key::Axis, Attr::Int(axis));
    let number = |e: Elem, v: i64| Attrs::new().with(Key::Value, Attr::Scalar(Scalar::from_i64(e, v)));
    let op = |b: &mut Builder, kind, operands: &[Value], ty: &Type, attrs| {
        b.op1(kind, operands, ty.clone(), attrs, Loc::unknown())
    };
    let position = |b: &mut Builder, along: i64, extent: usize| {
        let p = op(b, K::ProgramId, &[], &i32, axis(along));
        let p = op(b, K::Cast, &[p], &i64, Attrs::new());
        let e = op(b, K::Const, &[], &i64, number(Elem::I64, extent as i64));
        op(b, K::Mul, &[p, e], &i64, Attrs::new())
    };
    let (n, m) = (position(&mut b, 0, bn), position(&mut b, 1, bm));
    let acc_type = Type::tile(Elem::F32, [bm, bn]);
    let zero = Attrs::new().with(Key::Value, Attr::Scalar(Scalar::from_f64(Elem::F32, 0.0)));
    let acc = op(&mut b, K::Const, &[], &acc_type, zero);
    let end = op(&mut b, K::Dim, &[x], &i32, axis(1));
    let lo = op(&mut b, K::Const, &[], &i32, number(Elem::I32, 0));
    let step = op(&mut b, K::Const, &[], &i32, number(Elem::I32, bk as i64));
    let args = b.open(&[i32.clone(), acc_type.clone()]);
    let k = op(&mut b, K::Cast, &[args[0]], &i64, Attrs::new());
    let tile = |r, c| Type::tile(Elem::F32, [r, c]);
    let left = op(&mut b, K::Load, &[x, m, k], &tile(bm, bk), Attrs::new());
    let right = if packed {
        let q = op(
            &mut b,
            K::PackedLoad,
            &[w, k, n],
            &Type::QTile(QTileType { quant: Quant::F32, k: bk, n: bn }),
            Attrs::new(),
        );
        op(&mut b, K::Dequant, &[q], &tile(bk, bn), Attrs::new())
    } else {
        op(&mut b, K::Load, &[w, k, n], &tile(bk, bn), Attrs::new())
    };
    let next = op(&mut b, K::Dot, &[left, right, args[1]], &acc_type, Attrs::new());
    let body = b.close(vec![next]);
    let out =
        b.op(K::For, &[lo, end, step, acc], std::slice::from_ref(&acc_type), Attrs::new(), vec![body], Loc::unknown())
            [0];
    b.op(K::Store, &[y, m, n, out], &[], Attrs::new(), vec![], Loc::unknown());
    b.finish()
}

/// One row times a matrix of K = 2048: bytes of weights a second, from the cache and from memory.
fn decode(target: &str) {
    let mut read = Read::new(target);
    let (k, tile) = (2048usize, 128usize);
    for quant in Quant::ALL.iter().copied() {
        let f = compile(target, |c, p| product(c, p, quant, (1, tile, k)));
        let mut run = |bytes_wanted: usize, runs: usize| {
            let one = Layout::Panel16.bytes(quant, k, tile).unwrap();
            let n = bytes_wanted.div_ceil(one) * tile;
            let bytes = Layout::Panel16.bytes(quant, k, n).unwrap();
            let mut weights = Scratch::zeroed(bytes);
            weights.fill_pattern();
            let mut memory = [k, k / 32 * 4, k / 32 * 4, 64 * 1024, n * 4].map(Scratch::zeroed);
            let mut pointers: Vec<*const u8> = memory.iter_mut().map(Scratch::address).collect();
            let count = [n];
            pointers.extend([weights.address(), count.as_ptr().cast()]);
            let mut fractions = vec![];
            let rate = median(runs, || {
                let top = read.rate();
                let repeat = (20_000_000 / bytes).clamp(1, 200);
                let time = seconds(|| (0..repeat).for_each(|_| unsafe { f.call(&pointers) }));
                let rate = (bytes * repeat) as f64 / time;
                fractions.push(rate / top);
                rate
            });
            fractions.sort_by(f64::total_cmp);
            (rate * 1e-9, fractions[runs / 2])
        };
        let (near, (far, fraction)) = (run(1, 5).0, run(128 << 20, 15));
        println!("  decode {quant:5} L2 {near:5.1} GB/s, memory {far:5.1} GB/s: {fraction:.2} of a plain read");
    }
}

/// Rows times all panels. Arguments: codes, scales, sums, scratch (f32 activations of a float product), y, weights, and the
/// number of columns.
fn product<'c>(c: &Code<'_, 'c>, p: &[V<'c>], quant: Quant, (m, tile, k): (usize, usize, usize)) {
    let columns = c.read(p[6], c.i64(), 0);
    let panel = panel::format(quant).panel_bytes(k).unwrap() as i64;
    let fixed = Stride::Fixed;
    c.for_(c.c64(0), columns, c.c64(tile as i64), &[], |j, _| {
        let weights = c.offset(p[5], c.mul_c(c.shru_c(j, 4), panel));
        let out = (c.step(p[4], j, fixed(4)), Stride::Run(c.mul_c(columns, 4)));
        if let Some(grouped) = Grouped::new((m, tile, k), quant) {
            let row = (k / 32 * 4) as i64;
            grouped.emit(
                c,
                &GroupedOperands {
                    codes: (p[0], fixed(k as i64)),
                    scales: (p[1], fixed(row)),
                    sums: (p[2], fixed(row)),
                    weights,
                    panel: fixed(panel),
                    exists: None,
                    c: out,
                    scratch: p[3],
                },
            );
        } else if let Some(dot) = Dot::packed((m, tile, k), Elem::F32, quant) {
            let at = DotOperands {
                a: p[3],
                a_row: fixed(k as i64 * 4 + 64),
                b: weights,
                b_row: fixed(panel),
                exists: None,
                c: out.0,
                c_row: out.1,
                scratch: p[3],
            };
            dot.emit(c, &at);
        }
        vec![]
    });
}

/// Many rows times a matrix in the L2 cache.
fn prefill(target: &str, peak: &Peak) {
    let (k, n, tile) = (576usize, 1536usize, 128usize);
    for m in [16, 64] {
        for quant in Quant::ALL.iter().copied() {
            let k = k.next_multiple_of(quant.block());
            let bytes = Layout::Panel16.bytes(quant, k, n).unwrap();
            let f = compile(target, |c, p| product(c, p, quant, (m, tile, k)));
            let mut weights = Scratch::zeroed(bytes);
            weights.fill_pattern();
            let mut memory = [m * k, m * k, m * k, 1024 * 1024, m * n * 4].map(Scratch::zeroed);
            let mut pointers: Vec<*const u8> = memory.iter_mut().map(Scratch::address).collect();
            let count = [n];
            pointers.extend([weights.address(), count.as_ptr().cast()]);
            let mut rates = vec![];
            let fraction = median(15, || {
                let top = peak.flops();
                let rate = (2 * m * n * k) as f64 / seconds(|| unsafe { f.call(&pointers) });
                rates.push(rate);
                rate / top
            });
            rates.sort_by(f64::total_cmp);
            println!("  prefill {m} rows {quant:5} {:6.0} GOP/s  {fraction:.2} of the fma peak", rates[7] * 1e-9);
        }
    }
}
