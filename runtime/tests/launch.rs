//! Kernels of the language, launched on the oracle and, where the compiler is, on the CPU.

#[path = "common/kernels.rs"]
mod kernels;
#[path = "../../tests/src/skip.rs"]
mod skip;
#[path = "common/warnings.rs"]
mod warnings;

use kernels::*;
use std::{
    io::Write,
    sync::{Arc, Mutex},
};
use tegula::{
    cache::DiskCache,
    compile,
    device::{CpuOptions, OracleOptions},
    pool::PoolOptions,
    prelude::*,
};

/// The oracle with all checks, and the CPU with one and with three threads.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::oracle_with(OracleOptions { sanitize: true, ..OracleOptions::default() })];
    if let Err(e) = compile::find::find() {
        skip::skip(&format!("kernels on the CPU: {e}"));
        return devices;
    }
    for threads in [1, 3] {
        let pool = PoolOptions { threads, ..PoolOptions::default() };
        devices.push(Device::cpu_with(CpuOptions { pool, cache: DiskCache::none(), ..CpuOptions::default() }));
    }
    devices
}

fn noise(shape: &[usize], seed: u64) -> Tensor<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Tensor::from_fn(shape, |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0 + 1e-3
    })
    .unwrap()
}

#[test]
fn vector_add() {
    for device in devices() {
        for n in [1, 63, 64, 65, 1000] {
            let (a, b) = (noise(&[n], 1), noise(&[n], 2));
            let mut c = Tensor::poisoned([n]).unwrap();
            add::launch(&a, &b, &mut c).dims(64).run(&device.stream()).unwrap();
            for i in 0..n {
                assert_eq!(c.as_slice()[i], a.as_slice()[i] + b.as_slice()[i], "{device:?}: element {i} of {n}");
            }
        }
    }
}

#[test]
fn views_without_a_copy() {
    let t = noise(&[5, 70, 3], 3);
    for device in devices() {
        let mut out = Tensor::<f32>::poisoned([70, 2]).unwrap();
        let (left, right) = (t.view().index(0, 1).unwrap(), t.view().index(0, 3).unwrap());
        let (mut c0, c1) = out.view_mut().unwrap().split_at(1, 1).unwrap();
        let column = |v: TensorView<'_, f32>, i| v.index(1, i).unwrap().to_vec();
        add::launch(left.index(1, 2).unwrap(), right.index(1, 0).unwrap(), c1.index(1, 0).unwrap())
            .dims(16)
            .run(&device)
            .unwrap();
        add::launch(left.index(1, 0).unwrap(), left.index(1, 1).unwrap(), c0.reborrow().index(1, 0).unwrap())
            .dims(16)
            .run(&device)
            .unwrap();
        let sum = |x: Vec<f32>, y: Vec<f32>| x.iter().zip(&y).map(|(x, y)| x + y).collect::<Vec<_>>();
        assert_eq!(column(out.view(), 0), sum(column(left, 0), column(left, 1)), "{device:?}");
        assert_eq!(column(out.view(), 1), sum(column(left, 2), column(right, 0)), "{device:?}");
    }
}

#[test]
fn softmax_of_rows_that_do_not_fill_their_tile() {
    for device in devices() {
        for (rows, n) in [(1, 1), (3, 100), (7, 128)] {
            let x = noise(&[rows, n], 4);
            let mut y = Tensor::poisoned([rows, n]).unwrap();
            softmax::launch(&x, &mut y).dims(128).grid(rows).run(&device).unwrap();
            for r in 0..rows {
                let row: Vec<f64> = x.as_slice()[r * n..][..n].iter().map(|v| f64::from(*v).exp()).collect();
                let sum: f64 = row.iter().sum();
                for (i, e) in row.iter().enumerate() {
                    let found = f64::from(y.as_slice()[r * n + i]);
                    assert!(
                        (found - e / sum).abs() <= 1e-6 * (e / sum),
                        "{device:?}: ({r}, {i}): {found}, {}",
                        e / sum
                    );
                }
            }
        }
    }
}

#[test]
fn matmul_equals_one_fma_chain_for_each_output() {
    for device in devices() {
        for (m, n, k) in [(1, 1, 1), (19, 35, 21), (64, 48, 40)] {
            let (a, b) = (noise(&[m, k], 5), noise(&[k, n], 6));
            let mut c = Tensor::poisoned([m, n]).unwrap();
            matmul::launch(&a, &b, &mut c).dims(16, 32, 8).run(&device).unwrap();
            for i in 0..m {
                for j in 0..n {
                    let (a, b) = (a.as_slice(), b.as_slice());
                    let expected = (0..k).fold(0.0f32, |acc, l| a[i * k + l].mul_add(b[l * n + j], acc));
                    assert_eq!(c.as_slice()[i * n + j], expected, "{device:?}: ({i}, {j})");
                }
            }
        }
    }
}

#[test]
fn launches_that_are_wrong_are_errors_that_say_what_is_right() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[0; 64]).unwrap();
    let mut mapped = MappedFile::open(file.path()).unwrap().tensor::<f32>(0, [16]).unwrap();
    let (x, x2) = (noise(&[16], 7), noise(&[4, 4], 8));
    let mut y = Tensor::<f32>::zeros([16]).unwrap();
    for device in devices() {
        let check = |r: Result<(), LaunchError>, parts: &[&str]| {
            let e = r.unwrap_err().to_string();
            assert!(parts.iter().all(|p| e.contains(p)), "{e}");
        };
        check(
            add::launch(&x2, &x, &mut y).dims(8).run(&device),
            &["add`", "`a`", "a tensor of `f32` of rank 1", "of rank 2"],
        );
        check(
            add::launch(&x, &x, &mut mapped).dims(8).run(&device),
            &["`c`", "expected a writable tensor", "found a tensor"],
        );
        check(add::launch(&x, &x, &mut y).run(&device), &["dims(N)"]);
        check(add::launch(&x, &x, &mut y).dims(0).run(&device), &["dim `N`", "found 0"]);
        check(
            softmax::launch(&x2, &mut Tensor::<f32>::zeros([4, 4]).unwrap()).dims(8).run(&device),
            &["softmax`", ".grid("],
        );
    }
}

#[test]
fn a_grid_without_programs_runs_nothing() {
    for device in devices() {
        let (x, mut y) = (noise(&[0], 9), Tensor::<f32>::poisoned([0]).unwrap());
        add::launch(&x, &x, &mut y).dims(8).run(&device).unwrap();
        let (x, mut y) = (noise(&[8], 9), Tensor::<f32>::poisoned([8]).unwrap());
        add::launch(&x, &x, &mut y).dims(8).grid([3, 0]).run(&device).unwrap();
        assert!(y.as_slice().iter().all(|v| v.is_nan()));
    }
}

#[test]
fn failed_asserts_and_indices_out_of_range_name_line_and_program() {
    let x = noise(&[64], 10);
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
        for part in ["reads_past`", "kernels.rs:", "program 15 [15, 0, 0]"] {
            assert!(error.contains(part), "{device:?}: {part}: {error}");
        }
    }
}

#[test]
fn all_devices_print_the_same_lines() {
    let x = Tensor::from_slice([2, 3], &[0.5f32, -1.0, 1e-9, f32::INFINITY, 3.0, 65536.0]).unwrap();
    let mut seen = vec![];
    let lines = Arc::new(Mutex::new(vec![]));
    for cpu in [false, true] {
        let heard = lines.clone();
        let on_print: Option<tegula::device::Printer> =
            Some(Arc::new(move |l: &str| heard.lock().unwrap().push(l.to_string())));
        let device = match cpu {
            false => Device::oracle_with(OracleOptions { on_print, ..OracleOptions::default() }),
            true if compile::find::find().is_err() => return,
            true => Device::cpu_with(CpuOptions { on_print, cache: DiskCache::none(), ..CpuOptions::default() }),
        };
        tells::launch(&x, &mut Tensor::zeros([2]).unwrap()).dims(3).grid([1, 2]).run(&device).unwrap();
        seen.push(std::mem::take(&mut *lines.lock().unwrap()));
    }
    assert_eq!(seen[0], seen[1]);
    let [first, second, third] = &seen[0][..] else { panic!("{seen:?}") };
    assert!(first.ends_with(": program 0 [0, 0, 0]: row 0 [[0.5, -1, 0.000000001]]"), "{first}");
    assert!(second.contains(": program 1 [0, 1, 0]: row 1 [[") && second.ends_with(", 3, 65536]]"), "{second}");
    assert!(third.ends_with(": program 1 [0, 1, 0]: not the first"), "{third}");
}

#[test]
fn a_kernel_is_built_and_compiled_once_for_each_kind_of_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let Ok(path) = compile::find::find() else { return };
    let compiled = Arc::new(Mutex::new(0));
    let counter = compiled.clone();
    let on_progress: compile::OnProgress = Arc::new(move |p| {
        *counter.lock().unwrap() += matches!(p, compile::Progress::Finished { .. }) as usize;
    });
    let device = Device::cpu_with(CpuOptions {
        cache: DiskCache::at(dir.path(), 1 << 30),
        compiler: compile::Program::at(path),
        on_progress: Some(on_progress),
        ..CpuOptions::default()
    });
    let run = |n: usize, dims: usize| {
        let x = noise(&[n], 11);
        let mut y = Tensor::poisoned([n]).unwrap();
        add::launch(&x, &x, &mut y).dims(dims).run(&device).unwrap();
        assert_eq!(y.as_slice()[n - 1], 2.0 * x.as_slice()[n - 1]);
        *compiled.lock().unwrap()
    };
    assert_eq!((run(64, 16), run(1000, 16), run(3, 16)), (1, 1, 1), "lengths are not specialised on");
    assert_eq!((run(64, 32), run(64, 16)), (2, 2));
    let t = noise(&[65], 12);
    let mut y = Tensor::poisoned([64]).unwrap();
    add::launch(t.slice(0, 1..65).unwrap(), t.slice(0, 0..64).unwrap(), &mut y).dims(16).run(&device).unwrap();
    assert_eq!(*compiled.lock().unwrap(), 3, "another alignment");
    // Prepared kernels are found by their text.
    let other = add::launch(&t, &t, &mut y).dims(8).ir().unwrap();
    device.prepare(std::slice::from_ref(&other)).unwrap();
    add::launch(&noise(&[64], 13), &noise(&[64], 14), &mut y).dims(8).run(&device).unwrap();
    assert_eq!(*compiled.lock().unwrap(), 4);
}

/// Many variants of a kernel are warned of, unless they are there to have it ready.
#[test]
fn many_variants_are_warned_of_unless_they_are_meant() {
    let launches = |device: &Device, dims: std::ops::Range<usize>| {
        let (a, mut c) = (noise(&[9], 1), Tensor::poisoned([9]).unwrap());
        for n in dims {
            add::launch(&a, &a, &mut c).dims(n).grid(9usize.div_ceil(n)).run(device).unwrap();
        }
    };
    let device = Device::oracle();
    let said = warnings::during(|| device.preparing(|| launches(&device, 1..25)));
    assert_eq!((said.as_str(), device.num_kernels()), ("", 24));
    // Those are ready now, and others count.
    let said = warnings::during(|| launches(&device, 1..41));
    assert_eq!(said, "", "sixteen of them were not ready");
    let said = warnings::during(|| launches(&device, 41..60));
    assert!(said.contains("add` is compiled for the 17th time") && said.lines().count() == 1, "{said}");
}
