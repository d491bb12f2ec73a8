//! Memory traffic of kernels that walk contiguous memory, counted by the emulator in sectors of 32 bytes: exactly as many as
//! the bytes fill, in each direction; where a warp's bytes begin in the middle of a sector, its neighbour reads that too.

use crate::support::*;
use std::sync::{Arc, Mutex};
use tegula::{
    device::{Arch, EmulatedOptions},
    ir::Quant,
    prelude::*,
    ptx::Counters,
};
use tegula_kernels::{
    activation::{swiglu, swiglu_quantise},
    basic::{softmax, vector_add},
    embed::embed,
    norm::{rms_norm, rms_norm_quantise, rms_norm_rows},
    quantise::{Bits, quantise},
    rope::{Heads, Pairs, rope_and_cache},
};

/// `y = x`.
#[kernel]
fn copy<T: Num, N: Dim>(x: View<T, 1>, y: ViewMut<T, 1>) {
    let i = program_id(0);
    y.store(i, x.load::<(N,)>(i));
}

const SECTOR: usize = 32;
const LANES: usize = 32;
/// Of a program, unless it says otherwise.
const WARPS: usize = 4;

/// Counters of what `launch` launches.
fn counted(arch: Arch, launch: impl FnOnce(&Stream)) -> Counters {
    let seen = Arc::new(Mutex::new(Counters::default()));
    let sum = seen.clone();
    let options = EmulatedOptions {
        on_launch: Some(Arc::new(move |l| sum.lock().unwrap().add(&l.counters))),
        ..EmulatedOptions::default()
    };
    launch(&Device::emulated_with(arch.name(), options).unwrap().stream());
    seen.lock().unwrap().clone()
}

/// Sectors of so many bytes, from a multiple of 32 on.
fn sectors(bytes: usize) -> usize {
    bytes.div_ceil(SECTOR)
}

/// Sectors of `n` elements of `size` bytes from a byte on. A warp takes 32 of them at a time: where its bytes begin in the
/// middle of a sector, its neighbour reads that too.
fn sectors_from(start: usize, n: usize, size: usize) -> usize {
    let of_request = |first: usize| {
        let (from, to) = (start + first * size, start + n.min(first + LANES) * size);
        to.div_ceil(SECTOR) - from / SECTOR
    };
    (0..n).step_by(LANES).map(of_request).sum()
}

#[track_caller]
fn exactly(what: &str, arch: Arch, want: usize, launch: impl FnOnce(&Stream)) {
    let c = counted(arch, launch);
    println!("{what} on {}: {} sectors, want {want}; {} requests", arch.name(), c.global_sectors, c.global_requests);
    assert_eq!(c.global_sectors, want as u64, "{what} on {}", arch.name());
}

fn copies<T: Elem + Num>(arch: Arch, value: fn(usize) -> T) {
    let (n, size) = (8192, size_of::<T>());
    let x: Vec<T> = (0..n + 1).map(value).collect();
    let whole = tensor([n + 1], &x);
    // From the first element on, aligned, and from the second.
    for from in [0, 1] {
        let mut y = poisoned::<T, _>([n + 1]);
        let want = if from == 0 { 2 * sectors(n * size) } else { 2 * sectors_from(size, n, size) };
        exactly(&format!("copy of elements of {size} bytes from {from}"), arch, want, |stream| {
            let from_view = whole.view().slice(0, from..from + n).unwrap();
            let to_view = y.view_mut().unwrap().slice(0, from..from + n).unwrap();
            copy::launch(from_view, to_view).dims(2048).run(stream).unwrap();
        });
    }
}

#[test]
fn copies_and_sums() {
    for &arch in Arch::ALL {
        copies::<u8>(arch, |i| i as u8);
        copies::<i16>(arch, |i| i as i16);
        copies::<f32>(arch, |i| i as f32);
        copies::<f64>(arch, |i| i as f64);
        let n = 4096;
        let (a, b) = (tensor([n], &Rng(1).floats(n, 1.0)), tensor([n], &Rng(2).floats(n, 1.0)));
        let mut c = poisoned::<f32, _>([n]);
        exactly("vector_add", arch, 3 * sectors(4 * n), |stream| {
            vector_add::launch(&a, &b, &mut c).dims(1024).run(stream).unwrap();
        });
    }
}

const ROWS: usize = 3;
const N: usize = 1024;

/// Rows of N elements that begin `from` elements after a multiple of 16 bytes.
fn rows(from: usize) -> (Tensor<f32>, usize) {
    let width = N + 4;
    (tensor([ROWS, width], &Rng(3).floats(ROWS * width, 2.0)), from)
}

#[test]
fn softmaxes_and_norms() {
    for &arch in Arch::ALL {
        for from in [0, 1, 3] {
            let (x, from) = rows(from);
            let part = || x.view().slice(1, from..from + N).unwrap();
            let mut y = poisoned::<f32, _>([ROWS, N + 4]);
            // Rows are 4112 bytes apart: every other one begins in the middle of a sector, and a warp's 512 bytes too.
            // Where nothing is aligned, these are single accesses.
            let of_row = |r: usize| {
                let start = 4 * (r * (N + 4) + from);
                if from == 0 { sectors_from(start, N / 4, 16) } else { sectors_from(start, N, 4) }
            };
            let each: usize = (0..ROWS).map(of_row).sum();
            exactly(&format!("softmax from {from}"), arch, 2 * each, |stream| {
                let y = y.view_mut().unwrap().slice(1, from..from + N).unwrap();
                softmax::launch(part(), y).dims(N).grid(ROWS).run(stream).unwrap();
            });
        }
        let x = tensor([ROWS, N], &Rng(4).floats(ROWS * N, 2.0));
        let weight = tensor([1, N], &Rng(5).floats(N, 2.0));
        let mut y = poisoned::<f32, _>([ROWS, N]);
        exactly("rms_norm", arch, 3 * ROWS * sectors(4 * N), |stream| {
            rms_norm::launch(&x, &weight, &mut y, 1e-5).dims(N).grid(ROWS).run(stream).unwrap();
        });
        let chosen = tensor([2], &[2, 0]);
        let mut y = poisoned::<f32, _>([2, N]);
        // Each warp reads which row it is.
        exactly("rms_norm_rows", arch, 2 * (3 * sectors(4 * N) + WARPS), |stream| {
            rms_norm_rows::launch(&x, &weight, &chosen, &mut y, 1e-5).dims(N).grid(2).run(stream).unwrap();
        });
    }
}

/// Lanes take neighbours in other ways where a row is not aligned: sums keep their order.
#[test]
fn sums_do_not_tell_where_rows_begin() {
    // One whole and one cut into segments.
    for (arch, n) in Arch::ALL.iter().flat_map(|a| [(a, N), (a, 300)]) {
        let stream = Device::emulated(arch.name()).unwrap().stream();
        let values = Rng(13).floats(ROWS * n, 2.0);
        let from = |from: usize| {
            let mut padded = vec![0.0; ROWS * (n + 4)];
            padded.chunks_mut(n + 4).zip(values.chunks(n)).for_each(|(p, v)| p[from..from + n].copy_from_slice(v));
            let (x, mut y) = (tensor([ROWS, n + 4], &padded), poisoned::<f32, _>([ROWS, n]));
            softmax::launch(x.view().slice(1, from..from + n).unwrap(), &mut y)
                .dims(n)
                .grid(ROWS)
                .run(&stream)
                .unwrap();
            y.as_slice().to_vec()
        };
        let aligned = from(0);
        assert!(aligned.iter().all(|y| *y > 0.0 && *y < 1.0), "{}", arch.name());
        for first in 1..4 {
            same_bits(&format!("{} from {first}", arch.name()), &from(first), &aligned);
        }
    }
}

#[test]
fn activations() {
    for &arch in Arch::ALL {
        let x = tensor([ROWS, 2 * N], &Rng(6).floats(ROWS * 2 * N, 2.0));
        let mut y = poisoned::<f32, _>([ROWS, N]);
        exactly("swiglu", arch, 3 * ROWS * sectors(4 * N), |stream| {
            swiglu::launch(&x, &mut y).dims(N).grid(ROWS).run(stream).unwrap();
        });
        let groups = N / 32;
        for bits in [Bits::Eight, Bits::Sixteen] {
            let r = ROWS * bits.rows();
            let mut codes = poisoned::<i8, _>([r, N]);
            let (mut scales, mut sums) = (poisoned::<f32, _>([r, groups]), poisoned::<i32, _>([r, groups]));
            let written = r * (sectors(N) + 2 * sectors(4 * groups));
            let row = tensor([ROWS, N], &Rng(7).floats(ROWS * N, 2.0));
            let weight = tensor([1, N], &Rng(8).floats(N, 2.0));
            exactly(&format!("quantise, {bits:?}"), arch, ROWS * sectors(4 * N) + written, |stream| {
                let launch = quantise::launch(&row, &mut codes, &mut scales, &mut sums);
                launch.dims(groups).cfg(bits).grid(ROWS).run(stream).unwrap();
            });
            exactly(&format!("rms_norm_quantise, {bits:?}"), arch, 2 * ROWS * sectors(4 * N) + written, |stream| {
                let launch = rms_norm_quantise::launch(&row, &weight, &mut codes, &mut scales, &mut sums, 1e-5);
                launch.dims(groups).cfg(bits).grid(ROWS).run(stream).unwrap();
            });
            exactly(&format!("swiglu_quantise, {bits:?}"), arch, 2 * ROWS * sectors(4 * N) + written, |stream| {
                let launch = swiglu_quantise::launch(&x, &mut codes, &mut scales, &mut sums);
                launch.dims(groups).cfg(bits).grid(ROWS).run(stream).unwrap();
            });
        }
    }
}

#[test]
fn embeddings_and_turns() {
    for &arch in Arch::ALL {
        for (quant, size) in [(Quant::F32, 4), (Quant::F16, 2)] {
            let table =
                Weights::random(quant, N, 5, &mut Rng(9)).packed(if arch == Arch::Sm80 { &SM80 } else { &SM90A });
            let tokens = tensor([ROWS], &[4, 0, 2]);
            let mut y = poisoned::<f32, _>([ROWS, N]);
            // Each warp reads which token it is.
            let want = ROWS * (sectors(size * N) + sectors(4 * N) + WARPS);
            exactly(&format!("embed, {quant}"), arch, want, |stream| {
                embed::launch(&table, &tokens, &mut y).dims(N).grid(ROWS).run(stream).unwrap();
            });
        }
        // Queries alone: heads of 512, so that each thread has a pair of its own.
        let (tokens, hd) = (2, 256);
        for pairs in [Pairs::Adjacent, Pairs::Halves] {
            let heads = Heads { q: 3, kv: 0, pairs };
            let width = 3 * 2 * hd;
            let qkv = tensor([tokens, width], &Rng(10).floats(tokens * width, 2.0));
            let (cos, sin) =
                (tensor([8, hd], &Rng(11).floats(8 * hd, 1.0)), tensor([8, hd], &Rng(12).floats(8 * hd, 1.0)));
            let (positions, slots) = (tensor([tokens], &[3, 7]), tensor([tokens], &[0, 1]));
            let mut q = poisoned::<f32, _>([tokens, width]);
            let (mut k, mut v) = (poisoned([1, 1, 2 * hd, 4]), poisoned([1, 1, 4, 2 * hd]));
            let programs = tokens * heads.q;
            // A head in and out, half as much of each table, two numbers a warp.
            let want = programs * (2 * sectors(8 * hd) + 2 * sectors(4 * hd) + 2 * WARPS);
            exactly(&format!("rope, {pairs:?}"), arch, want, |stream| {
                let launch = rope_and_cache::launch(&qkv, &cos, &sin, &positions, &slots, &mut q, &mut k, &mut v);
                launch.dims(hd).cfg(heads).grid([tokens, heads.q]).run(stream).unwrap();
            });
        }
    }
}
