//! Kernels on emulated GPUs, beside plain Rust: both architectures, asynchronous results early and late.

#[path = "common/kernels.rs"]
mod kernels;
#[path = "../../tests/src/skip.rs"]
mod skip;

use kernels::*;
use std::sync::{Arc, Mutex};
use tegula::{
    cache::DiskCache,
    compile,
    device::{Completion, EmulatedOptions, OnLaunch, Printer},
    launch::{Arg, ArgData},
    prelude::*,
    ptx::{FaultKind, counters::Kind},
};

const ARCHS: [&str; 2] = ["sm_80", "sm_90a"];

/// Whether the compiler is there.
fn compiler() -> bool {
    compile::find::find().map_err(|e| skip::skip(&format!("kernels on emulated GPUs: {e}"))).is_ok()
}

fn options(completion: Completion) -> EmulatedOptions {
    EmulatedOptions { completion, threads: 2, ..EmulatedOptions::default() }
}

/// Both architectures, each early, late, and both ways compared.
fn devices() -> Vec<Device> {
    if !compiler() {
        return vec![];
    }
    let each = |arch| {
        [Completion::Early, Completion::Late, Completion::Both]
            .map(|completion| Device::emulated_with(arch, options(completion)).unwrap())
    };
    ARCHS.into_iter().flat_map(each).collect()
}

#[test]
fn other_architectures_are_errors_that_list_those_there_are() {
    for wrong in ["sm_70", "sm80", "", "SM_80"] {
        let error = Device::emulated(wrong).unwrap_err().to_string();
        assert_eq!(error, format!("no GPU `{wrong}` is emulated: expected one of sm_80, sm_90a"));
    }
    for arch in ARCHS {
        assert_eq!(Device::emulated(arch).unwrap().name(), format!("emulated:{arch}"));
    }
}

#[test]
fn sums_of_ragged_vectors_in_several_types() {
    for device in devices() {
        for n in [1, 31, 64, 65, 1000] {
            let mut rng = Rng(n as u64);
            let (a, b) = (rng.tensor(&[n], Rng::float), rng.tensor(&[n], Rng::float));
            let mut c = Tensor::poisoned([n]).unwrap();
            add::launch(&a, &b, &mut c).dims(64).run(&device).unwrap();
            let (x, y) = (rng.tensor(&[n], |r| r.bits() as i8), rng.tensor(&[n], |r| r.bits() as i8));
            let mut z = Tensor::poisoned([n]).unwrap();
            add::launch(&x, &y, &mut z).dims(64).run(&device).unwrap();
            let half = |r: &mut Rng| bf16::from_f32(r.float());
            let (p, q) = (rng.tensor(&[n], half), rng.tensor(&[n], half));
            let mut r = Tensor::poisoned([n]).unwrap();
            add::launch(&p, &q, &mut r).dims(64).run(&device).unwrap();
            for i in 0..n {
                let what = format!("{device:?}: element {i} of {n}");
                assert_eq!(c.as_slice()[i], a.as_slice()[i] + b.as_slice()[i], "{what}");
                assert_eq!(z.as_slice()[i], x.as_slice()[i].wrapping_add(y.as_slice()[i]), "{what}");
                // A sum of two bf16 of about one size is exact in f64.
                let exact = p.as_slice()[i].to_f64() + q.as_slice()[i].to_f64();
                assert_eq!(r.as_slice()[i], bf16::from_f64(exact), "{what}");
            }
        }
    }
}

#[test]
fn softmax_of_rows_that_do_not_fill_their_tile() {
    for device in devices() {
        for (rows, n) in [(1, 1), (3, 100), (7, 128)] {
            let x = Rng(4).tensor(&[rows, n], |r| r.float() * 8.0);
            let mut y = Tensor::poisoned([rows, n]).unwrap();
            softmax::launch(&x, &mut y).dims(128).grid(rows).run(&device).unwrap();
            for r in 0..rows {
                let row: Vec<f64> = x.as_slice()[r * n..][..n].iter().map(|v| f64::from(*v).exp()).collect();
                let sum: f64 = row.iter().sum();
                for (i, e) in row.iter().enumerate() {
                    let (found, want) = (f64::from(y.as_slice()[r * n + i]), e / sum);
                    assert!((found - want).abs() <= 4e-6 * want, "{device:?}: ({r}, {i}): {found}, {want}");
                }
            }
        }
    }
}

#[test]
fn products_are_one_fma_chain_for_each_output() {
    for device in devices() {
        for (m, n, k) in [(1, 1, 1), (19, 35, 21), (33, 32, 40)] {
            let mut rng = Rng(5);
            let (a, b) = (rng.tensor(&[m, k], Rng::float), rng.tensor(&[k, n], Rng::float));
            let mut c = Tensor::poisoned([m, n]).unwrap();
            matmul::launch(&a, &b, &mut c).dims(16, 32, 8).run(&device).unwrap();
            for i in 0..m * n {
                let (a, b) = (a.as_slice(), b.as_slice());
                let want = (0..k).fold(0.0f32, |acc, l| a[i / n * k + l].mul_add(b[l * n + i % n], acc));
                assert_eq!(c.as_slice()[i], want, "{device:?}: {i} of {m} × {n} × {k}");
            }
        }
    }
}

#[test]
fn atomics_of_all_programs_meet() {
    let x = Rng(6).tensor(&[1003], |r| r.bits() as i32);
    let (mut counts, mut most) = ([0; 8], [i32::MIN; 8]);
    for v in x.as_slice() {
        let kind = (v & 7) as usize;
        (counts[kind], most[kind]) = (counts[kind] + 1, most[kind].max(*v));
    }
    for device in devices() {
        let mut c = Tensor::<i32>::zeros([8]).unwrap();
        let mut m = Tensor::from_slice([8], &[i32::MIN; 8]).unwrap();
        tally::launch(&x, &mut c, &mut m).dims(64).grid(16).run(&device).unwrap();
        assert_eq!((c.as_slice(), m.as_slice()), (&counts[..], &most[..]), "{device:?}");
    }
}

#[test]
fn views_of_one_tensor_may_interleave() {
    let x = Rng(7).tensor(&[70], Rng::float);
    for device in devices() {
        let mut out = Rng(8).tensor(&[70, 3], Rng::float);
        let before = out.to_vec();
        let view = out.view_mut().unwrap().index(1, 1).unwrap();
        add::launch(&x, &x, view).dims(16).run(&device).unwrap();
        for (i, found) in out.as_slice().iter().enumerate() {
            let want = if i % 3 == 1 { 2.0 * x.as_slice()[i / 3] } else { before[i] };
            assert_eq!(*found, want, "{device:?}: {i}");
        }
        let (mut left, right) = out.view_mut().unwrap().split_at(1, 1).unwrap();
        add::launch(right.as_view().index(1, 0).unwrap(), &x, left.reborrow().index(1, 0).unwrap())
            .dims(16)
            .run(&device)
            .unwrap();
        for (i, found) in out.as_slice().iter().enumerate().step_by(3) {
            assert_eq!(*found, 2.0 * x.as_slice()[i / 3] + x.as_slice()[i / 3], "{device:?}: {i}");
        }
    }
}

#[test]
fn failed_asserts_and_indices_out_of_range_name_line_and_program() {
    let x = Rng(10).tensor(&[64], Rng::float);
    for device in devices() {
        let mut y = Tensor::<f32>::poisoned([64]).unwrap();
        scaled::launch(&x, 2.0, &mut y).dims(16).checked().run(&device).unwrap();
        let expected: Vec<f32> = x.as_slice().iter().map(|v| v * 2.0).collect();
        assert_eq!(y.to_vec(), expected, "{device:?}");
        let error = scaled::launch(&x, 2.0, &mut y).dims(8).checked().run(&device).unwrap_err().to_string();
        for part in ["scaled`", "kernels.rs:", "at most five tiles", "program 5 [5, 0, 0]"] {
            assert!(error.contains(part), "{device:?}: {part}: {error}");
        }
        // Without checks indices out of range read as 0; with them they are errors.
        reads_past::launch(&x, &mut y).dims(8).grid(16).run(&device).unwrap();
        assert_eq!(y.as_slice()[60..64], x.as_slice()[32..36]);
        let error = reads_past::launch(&x, &mut y).dims(8).grid(16).checked().run(&device).unwrap_err().to_string();
        for part in ["reads_past`", "kernels.rs:", "index 64 is out of range", "program 15 [15, 0, 0]"] {
            assert!(error.contains(part), "{device:?}: {part}: {error}");
        }
    }
}

#[test]
fn prints_come_out_as_on_the_oracle() {
    if !compiler() {
        return;
    }
    let x = Tensor::from_slice([2, 3], &[0.5f32, -1.0, 1e-9, f32::INFINITY, 3.0, 65536.0]).unwrap();
    let lines = Arc::new(Mutex::new(vec![]));
    let printer = || -> Option<Printer> {
        let heard = lines.clone();
        Some(Arc::new(move |l: &str| heard.lock().unwrap().push(l.to_string())))
    };
    let run = |device: Device| {
        tells::launch(&x, &mut Tensor::zeros([2]).unwrap()).dims(3).grid([1, 2]).run(&device).unwrap();
        std::mem::take(&mut *lines.lock().unwrap())
    };
    let oracle = tegula::device::OracleOptions { on_print: printer(), ..Default::default() };
    let want = run(Device::oracle_with(oracle));
    assert!(want.len() == 3 && want[1].contains("row 1 [[") && want[1].ends_with(", 3, 65536]]"), "{want:?}");
    for arch in ARCHS {
        let options = EmulatedOptions { on_print: printer(), ..options(Completion::Both) };
        assert_eq!(run(Device::emulated_with(arch, options).unwrap()), want, "{arch}");
    }
}

#[test]
fn accesses_out_of_bounds_are_faults_that_name_kernel_ptx_and_line() {
    let x = Rng(11).tensor(&[40], Rng::float);
    for device in devices() {
        let mut y = Tensor::<f32>::poisoned([64]).unwrap();
        let kernel = believes::launch(&x, &mut y).ir().unwrap();
        let args: [ArgData<'_>; 2] = [Arg::<View<f32, 1>>::arg(&x), Arg::<ViewMut<f32, 1>>::arg(&mut y)];
        let fault = match device.run(&kernel, &args, [64, 1, 1], false) {
            Err(tegula::DeviceError::Fault(fault)) => fault,
            other => panic!("{device:?}: {other:?}"),
        };
        assert_eq!(
            (fault.kind, fault.entry.as_str()),
            (FaultKind::Bounds, "emulated::kernels::believes"),
            "{device:?}: {fault}"
        );
        assert!(fault.line > 0 && fault.instruction.starts_with("ld.global"), "{device:?}: {fault}");
        assert!(fault.source.as_ref().is_some_and(|s| s.contains("kernels.rs")), "{device:?}: {fault}");
        assert!(fault.block.is_some_and(|b| b[0] >= 40), "{device:?}: {fault}");
        let text = fault.to_string();
        for part in ["`x` of 160 bytes", "kernel emulated::kernels::believes", "PTX line", "kernels.rs:", "block ("] {
            assert!(text.contains(part), "{device:?}: {part}: {text}");
        }
        // A launch of the language says the same.
        let error = believes::launch(&x, &mut y).grid(64).run(&device).unwrap_err().to_string();
        assert!(error.contains("`x` of 160 bytes"), "{error}");
        // And it is right where the assumption is.
        let x = Rng(12).tensor(&[64], Rng::float);
        believes::launch(&x, &mut y).grid(64).run(&device).unwrap();
        assert_eq!(x.to_vec(), y.to_vec());
    }
}

#[test]
fn strict_devices_report_reads_of_what_nothing_wrote() {
    if !compiler() {
        return;
    }
    let x = Rng(13).tensor(&[50], Rng::float);
    for arch in ARCHS {
        for strict in [true, false] {
            let device = Device::emulated_with(arch, EmulatedOptions { strict, ..options(Completion::Both) }).unwrap();
            let empty = Tensor::<f32>::empty([50]).unwrap();
            let mut y = Tensor::<f32>::empty([50]).unwrap();
            let result = add::launch(&x, &empty, &mut y).dims(32).run(&device);
            if strict {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("kernel emulated::kernels::add") && error.contains("kernels.rs:"), "{error}");
            } else {
                result.unwrap();
            }
            // A launch wrote y: it may be read.
            let mut z = Tensor::<f32>::empty([50]).unwrap();
            add::launch(&x, &x, &mut y).dims(32).run(&device).unwrap();
            add::launch(&y, &x, &mut z).dims(32).run(&device).unwrap();
            assert_eq!(z.as_slice()[49], 3.0 * x.as_slice()[49]);
        }
    }
}

#[test]
fn each_launch_tells_what_it_did() {
    if !compiler() {
        return;
    }
    for arch in ARCHS {
        let seen = Arc::new(Mutex::new(vec![]));
        let to = seen.clone();
        let on_launch: OnLaunch = Arc::new(move |l| {
            to.lock().unwrap().push((l.kernel.to_string(), l.grid, l.threads, l.counters.clone()));
        });
        let options = EmulatedOptions { on_launch: Some(on_launch), ..options(Completion::Early) };
        let device = Device::emulated_with(arch, options).unwrap();
        let n = 4096;
        let x = Rng(14).tensor(&[n], Rng::float);
        add::launch(&x, &x, &mut Tensor::<f32>::poisoned([n]).unwrap()).dims(1024).run(&device).unwrap();
        let seen = seen.lock().unwrap();
        let [(name, grid, threads, counters)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((name.as_str(), *grid, threads % 32), ("emulated::kernels::add", [4, 1, 1], 0));
        assert!(counters.of(Kind::LoadGlobal) > 0 && counters.of(Kind::StoreGlobal) > 0, "{counters:?}");
        // Two vectors read, one written, nothing twice and nothing else.
        assert_eq!(counters.global_sectors, 3 * 4 * n as u64 / 32, "{arch}");
        assert_eq!(counters.global_sectors, counters.global_sectors_ideal, "{arch}");
    }
}

#[test]
fn artifacts_are_kept_for_each_architecture_and_found_again() {
    let Ok(path) = compile::find::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let compiled = Arc::new(Mutex::new(0));
    let run = |arch: &str| {
        let counter = compiled.clone();
        let on_progress: compile::OnProgress = Arc::new(move |p| {
            *counter.lock().unwrap() += matches!(p, compile::Progress::Finished { .. }) as usize;
        });
        let cache = DiskCache::at(dir.path(), 1 << 30);
        let options = EmulatedOptions {
            cache,
            compiler: compile::Program::at(&path),
            on_progress: Some(on_progress),
            ..options(Completion::Early)
        };
        let device = Device::emulated_with(arch, options).unwrap();
        let x = Rng(15).tensor(&[100], Rng::float);
        for _ in 0..2 {
            let mut y = Tensor::<f32>::poisoned([100]).unwrap();
            add::launch(&x, &x, &mut y).dims(64).run(&device).unwrap();
            assert_eq!(y.as_slice()[99], 2.0 * x.as_slice()[99]);
        }
        *compiled.lock().unwrap()
    };
    assert_eq!((run("sm_80"), run("sm_80")), (1, 1));
    assert_eq!((run("sm_90a"), run("sm_90a"), run("sm_80")), (2, 2, 2));
}

#[test]
fn a_tile_that_does_not_fit_is_an_error_that_names_the_resource() {
    if !compiler() {
        return;
    }
    let (a, b) = (Rng(16).tensor(&[8, 8], Rng::float), Rng(17).tensor(&[8, 8], Rng::float));
    for arch in ARCHS {
        let device = Device::emulated_with(arch, options(Completion::Early)).unwrap();
        let mut c = Tensor::<f32>::poisoned([8, 8]).unwrap();
        let error = matmul::launch(&a, &b, &mut c).dims(512, 512, 512).run(&device).unwrap_err().to_string();
        assert!(error.contains(arch) && (error.contains("shared memory") || error.contains("registers")), "{error}");
    }
}
