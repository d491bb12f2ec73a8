//! Bandwidth of memory-bound kernels on one thread, beside a plain copy of the same size:
//! `cargo run --release -p tegula-codegen --example memory [cpu:x86-64-v3 [ROWS]]`.

use std::{ffi::c_void, ptr, time::Instant};
use tegula_codegen::service::answer;
use tegula_ir::{
    abi::{Ctx, ENTRY, EntryFn},
    protocol::{Emit, Request, Response},
};

const ROW: usize = 4096;
const LEN: usize = 32 << 20; // f32 elements: 128 MB

fn softmax(body: &str) -> String {
    format!(
        "kernel @rows(%0 \"x\": view<f32, 2, unit>, %1 \"y\": view_mut<f32, 2, unit>) {{
          %2 = program_id {{axis = 0}} : i32
          %3 = cast %2 : i64
          %4 = const {{value = 0: i64}} : i64
          %5 = load %0, %3, %4 {{pad = bits(0xff800000): f32}} : tile<f32, 1, {ROW}>
          {body}
          store %1, %3, %4, %20
        }}"
    )
}

fn kernels() -> Vec<(&'static str, String)> {
    let n = ROW;
    vec![
        (
            "add",
            format!(
                "kernel @add(%0 \"x\": view<f32, 2, unit>, %1 \"y\": view_mut<f32, 2, unit>) {{
                  %2 = program_id {{axis = 0}} : i32
                  %3 = cast %2 : i64
                  %4 = const {{value = 0: i64}} : i64
                  %5 = load %0, %3, %4 : tile<f32, 1, {n}>
                  %6 = const {{value = 1.5: f32}} : tile<f32, 1, {n}>
                  %7 = add %5, %6 : tile<f32, 1, {n}>
                  store %1, %3, %4, %7
                }}"
            ),
        ),
        (
            "max",
            softmax(&format!(
                "%8 = reduce %5 {{axis = 1, kind = max}} : tile<f32, 1, 1>\n%20 = broadcast %8 : tile<f32, 1, {n}>"
            )),
        ),
        ("exp", softmax(&format!("%20 = exp %5 : tile<f32, 1, {n}>"))),
        ("div", softmax(&format!("%20 = div %5, %5 : tile<f32, 1, {n}>"))),
        (
            "softmax",
            softmax(&format!(
                "%8 = reduce %5 {{axis = 1, kind = max}} : tile<f32, 1, 1>
                 %9 = broadcast %8 : tile<f32, 1, {n}>
                 %10 = sub %5, %9 : tile<f32, 1, {n}>
                 %11 = exp %10 : tile<f32, 1, {n}>
                 %12 = reduce %11 {{axis = 1, kind = sum}} : tile<f32, 1, 1>
                 %13 = broadcast %12 : tile<f32, 1, {n}>
                 %20 = div %11, %13 : tile<f32, 1, {n}>"
            )),
        ),
        (
            "rmsnorm",
            softmax(&format!(
                "%8 = mul %5, %5 : tile<f32, 1, {n}>
                 %9 = reduce %8 {{axis = 1, kind = sum}} : tile<f32, 1, 1>
                 %10 = rsqrt %9 : tile<f32, 1, 1>
                 %11 = broadcast %10 : tile<f32, 1, {n}>
                 %20 = mul %5, %11 : tile<f32, 1, {n}>"
            )),
        ),
    ]
}

extern "C" fn report(_: *const Ctx, _: u32, _: u64, _: i64) {}

fn main() {
    let target = std::env::args().nth(1).unwrap_or_else(|| "cpu:x86-64-v3".into());
    let aligned = |v: &mut Vec<f32>| {
        let p = v.as_mut_ptr();
        p.wrapping_add(p.align_offset(64))
    };
    let (mut x, mut y) = (vec![0.5f32; LEN + 16], vec![0.25f32; LEN + 16]);
    let (px, py) = (aligned(&mut x), aligned(&mut y));
    let rows: usize = std::env::args().nth(2).and_then(|r| r.parse().ok()).unwrap_or(LEN / ROW);
    let gb = (2 * rows * ROW * 4) as f64 / 1e9;
    let mut loaded = vec![];
    for (name, text) in kernels() {
        let request = Request { kernel: text, target: target.clone(), emit: Emit::Artifact, checked: false };
        let start = Instant::now();
        let (bytes, meta) = match answer(&request) {
            Response::Ok { bytes, meta } => (bytes, meta),
            Response::Err { stage, message, .. } => panic!("{stage}: {message}"),
        };
        println!("{name}: compiled in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), bytes).expect("writing the kernel");
        // SAFETY: the object was made just now.
        let library = unsafe { libloading::Library::new(file.path()) }.expect("loading the kernel");
        loaded.push((name, library, vec![0u64; meta.scratch_bytes as usize / 8 + 16]));
    }
    let mut best = vec![f64::MAX; loaded.len() + 1];
    for _ in 0..if rows < 1000 { 200 } else { 7 } {
        let start = Instant::now();
        // SAFETY: both hold LEN elements.
        unsafe { ptr::copy_nonoverlapping(px, py, rows * ROW) };
        best[0] = best[0].min(start.elapsed().as_secs_f64());
        for (i, (_, library, scratch)) in loaded.iter_mut().enumerate() {
            // SAFETY: the entry has this type; arguments by the ABI.
            unsafe {
                let entry: libloading::Symbol<EntryFn> = library.get(ENTRY.as_bytes()).expect("the entry");
                let words = [
                    px as u64,
                    rows as u64,
                    ROW as u64,
                    ROW as u64,
                    1,
                    py as u64,
                    rows as u64,
                    ROW as u64,
                    ROW as u64,
                    1,
                ];
                let ctx = Ctx { grid: [rows as i32, 1, 1], flags: 0, report, user: ptr::null_mut::<c_void>() };
                let s = scratch.as_mut_ptr();
                let s = s.wrapping_add(s.align_offset(64));
                let start = Instant::now();
                entry(words.as_ptr(), &ctx, 0, rows as u64, s.cast());
                best[i + 1] = best[i + 1].min(start.elapsed().as_secs_f64());
            }
        }
    }
    println!("copy     {:6.1} GB/s", gb / best[0]);
    for (i, (name, ..)) in loaded.iter().enumerate() {
        println!("{name:8} {:6.1} GB/s, {:.2} of copy", gb / best[i + 1], best[0] / best[i + 1]);
    }
}
