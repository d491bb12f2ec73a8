//! Devices: the CPU with a stand-in compiler (see `common`), and the oracle.

mod common;

use common::{fake, starts};
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tegula::{
    Device, DeviceError, Tensor, View, ViewMut,
    cache::DiskCache,
    compile::{Program, Progress},
    device::{CpuOptions, Level, OracleOptions},
    ir::{Elem, Kernel, Quant, layout::Layout},
    launch::{Arg, ArgData},
    pool::PoolOptions,
};

#[test]
fn fake_compiler() {
    common::serve();
}

fn options(dir: &Path, threads: usize) -> CpuOptions {
    CpuOptions {
        pool: PoolOptions { threads, spin: 100, pin: false },
        level: Some(Level::V3),
        cache: DiskCache::at(dir.join("cache"), 1 << 30),
        compiler: Program::at(dir.join("tegulac")),
        compile_timeout: Duration::from_secs(60),
        ..CpuOptions::default()
    }
}

fn cpu(dir: &Path, threads: usize) -> Device {
    if !dir.join("tegulac").exists() {
        fake(dir, "tegulac fake 1");
    }
    Device::cpu_with(options(dir, threads))
}

fn kernel(name: &str, params: &str) -> Kernel {
    Kernel::parse(&format!("kernel @{name}({params}) {{\n}}\n")).unwrap()
}

const OUT: &str = "%0 \"out\": view_mut<i64, 1, unit>";

fn out(t: &mut Tensor<i64>) -> ArgData<'_> {
    Arg::<ViewMut<i64, 1>>::arg(t)
}

#[test]
fn a_compiled_kernel_runs_every_program_once() {
    let dir = tempfile::tempdir().unwrap();
    for threads in [1, 2, 5] {
        let device = cpu(dir.path(), threads);
        let loaded = device.load(&kernel("counts", OUT), false).unwrap();
        for grid in [[1, 1, 1], [7, 1, 1], [1, 3, 5], [10, 10, 10], [0, 4, 4], [70_000, 1, 1]] {
            let total = grid.iter().product::<u32>() as usize;
            let mut counts = Tensor::zeros([total.max(1)]).unwrap();
            loaded.run(&[out(&mut counts)], grid).unwrap();
            assert!(counts.as_slice().iter().all(|n| *n == (total > 0) as i64), "{threads} threads, {grid:?}");
        }
    }
}

#[test]
fn arguments_arrive_as_the_words_of_the_abi() {
    let dir = tempfile::tempdir().unwrap();
    let device = cpu(dir.path(), 1);
    let params = format!(
        "{OUT}, %1 \"x\": view<f32, 3>, %2 \"s\": f32, %3 \"b\": i8, %4 \"w\": packed<q8_0, panel16>, %5 \"y\": view<i64, 0>"
    );
    let kernel = kernel("words", &params);
    let mut words = Tensor::<i64>::zeros([32]).unwrap();
    let x = Tensor::<f32>::zeros([4, 5, 6]).unwrap();
    let view = x.slice(1, 2..4).unwrap().transposed();
    let w = device.packed(Quant::Q8_0, 64, 3).unwrap();
    let y = Tensor::<i64>::zeros([]).unwrap();
    let address = words.as_slice().as_ptr() as i64;
    let args = [
        out(&mut words),
        Arg::<View<f32, 3>>::arg(view),
        ArgData::Scalar { elem: Elem::F32, bits: 2.5f32.to_bits().into() },
        ArgData::Scalar { elem: Elem::I8, bits: (-3i8 as u8).into() },
        Arg::<tegula::Packed<AnyFormat>>::arg(&w),
        Arg::<View<i64, 0>>::arg(&y),
    ];
    device.run(&kernel, &args, [2, 1, 1], true).unwrap();
    let base = x.as_slice().as_ptr() as i64 + 2 * 6 * 4;
    let expected = [address, 32, 1, base, 6, 2, 4, 1, 6, 30, 2.5f32.to_bits().into(), 253];
    assert_eq!(words.as_slice()[..12], expected);
    assert_eq!(words.as_slice()[12..16], [w.as_bytes().as_ptr() as i64, 64, 3, y.as_slice().as_ptr() as i64]);
    assert_eq!(words.as_slice()[24..29], [2, 1, 1, 1, 0], "grid, checked, scratch aligned");
}

#[derive(Clone, Copy)]
struct AnyFormat;
impl tegula::packed::Format for AnyFormat {
    const QUANT: Option<Quant> = None;
}

#[test]
fn threads_do_not_share_scratch() {
    let dir = tempfile::tempdir().unwrap();
    let device = cpu(dir.path(), 4);
    let mut sums = Tensor::poisoned([5000]).unwrap();
    device.run(&kernel("scratch", OUT), &[out(&mut sums)], [5000, 1, 1], false).unwrap();
    for (i, s) in sums.as_slice().iter().enumerate() {
        assert_eq!(*s, 1000 * (i as i64 % 100), "program {i}");
    }
}

#[test]
fn reports_become_errors_and_prints_become_lines() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), "tegulac fake 1");
    let lines = Arc::new(Mutex::new(vec![]));
    let heard = lines.clone();
    let on_print = Some(Arc::new(move |line: &str| heard.lock().unwrap().push(line.to_string())) as _);
    let device = Device::cpu_with(CpuOptions { on_print, ..options(dir.path(), 3) });
    let asserts = kernel("asserts", "");
    let error = |checked| device.run(&asserts, &[], [5, 4, 1], checked).unwrap_err().to_string();
    assert_eq!(
        error(false),
        "k.rs:10:9: assertion failed: program is no multiple of 7 in program 7 [2, 1, 0] (the first of 2 failures)"
    );
    assert!(error(true).ends_with("(the first of 3 failures)"));
    device.run(&asserts, &[], [7, 1, 1], true).unwrap();
    device.run(&kernel("prints", ""), &[], [2, 1, 1], false).unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(
        *lines,
        ["k.rs:12:9: program 0 [0, 0, 0]: pair [0, -1]", "k.rs:12:9: program 1 [1, 0, 0]: pair [1, -1]"]
    );
}

#[test]
fn wrong_arguments_of_kernels_given_as_ir_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    for device in [cpu(dir.path(), 1), Device::oracle()] {
        let k = kernel("counts", "%0 \"out\": view_mut<i64, 1, unit, align16>");
        let mut t = Tensor::<i64>::zeros([10]).unwrap();
        let error = |args: &[ArgData<'_>]| match device.run(&k, args, [1, 1, 1], false) {
            Err(e @ DeviceError::Argument { .. }) => e.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(error(&[]), "kernel `counts`, argument `all`: expected 1 arguments, found 0");
        let expected = "kernel `counts`, argument `out`: expected `view_mut<i64, 1, unit, align16>`, found";
        assert_eq!(error(&[ArgData::Scalar { elem: Elem::I64, bits: 0 }]), format!("{expected} `i64`"));
        let read = Arg::<View<i64, 1>>::arg(&t);
        assert_eq!(error(&[read]), format!("{expected} `view<i64, 1, unit, align16, small>`"));
        let odd = t.view_mut().unwrap().slice(0, 1..5).unwrap();
        assert_eq!(error(&[Arg::<ViewMut<i64, 1>>::arg(odd)]), format!("{expected} `view_mut<i64, 1, unit, small>`"));
        let grid = device.run(&k, &[out(&mut t)], [1 << 31, 1, 1], false).unwrap_err().to_string();
        assert!(grid.contains("at most 2147483647 programs"), "{grid}");
    }
    let k = kernel("counts", OUT);
    let huge = cpu(dir.path(), 1).run(&k, &[out(&mut Tensor::zeros([1]).unwrap())], [i32::MAX as u32; 3], false);
    assert!(huge.unwrap_err().to_string().contains("more than 2^63 programs"));
}

#[test]
fn a_warm_cache_starts_no_process_and_an_edited_compiler_misses() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let mut counts = Tensor::zeros([10]).unwrap();
        cpu(dir.path(), 1).run(&kernel("counts", OUT), &[out(&mut counts)], [10, 1, 1], false).unwrap();
        assert_eq!(counts.to_vec(), [1; 10]);
    };
    run();
    assert_eq!(starts(dir.path()), (1, 1));
    run();
    run();
    assert_eq!(starts(dir.path()), (1, 1), "found on disk");
    std::thread::sleep(Duration::from_millis(20));
    fake(dir.path(), "tegulac fake 2");
    run();
    assert_eq!(starts(dir.path()), (2, 2), "compiled anew");
    run();
    // Without any compiler the artifacts still run.
    std::fs::remove_file(dir.path().join("tegulac")).unwrap();
    let mut counts = Tensor::zeros([10]).unwrap();
    let device = Device::cpu_with(options(dir.path(), 1));
    device.run(&kernel("counts", OUT), &[out(&mut counts)], [10, 1, 1], false).unwrap();
    let error = device.run(&kernel("empty", ""), &[], [1, 1, 1], false).unwrap_err().to_string();
    assert!(error.contains("`tegulac` was not found"), "{error}");
}

#[test]
fn damaged_entries_and_entries_that_do_not_load_are_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let k = kernel("empty", "");
    let entry = || {
        let files = std::fs::read_dir(dir.path().join("cache")).unwrap().map(|f| f.unwrap().path());
        files.filter(|p| p.extension().is_some_and(|e| e == "so")).collect::<Vec<_>>()
    };
    cpu(dir.path(), 1).load(&k, false).unwrap();
    let [path] = &entry()[..] else { panic!("one entry") };
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    cpu(dir.path(), 1).load(&k, false).unwrap();
    assert_eq!(starts(dir.path()).0, 2);
    // Sound as an entry, but no shared object.
    let key = u128::from_str_radix(path.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    DiskCache::at(dir.path().join("cache"), 1 << 30).store(key, b"rubbish", &Default::default()).unwrap();
    cpu(dir.path(), 1).run(&k, &[], [3, 1, 1], false).unwrap();
    assert_eq!(starts(dir.path()).0, 3);
    // And if that is what the compiler makes, it is an error.
    let error = cpu(dir.path(), 1).load(&kernel("nothing", ""), false).map(drop).unwrap_err();
    assert!(matches!(error, DeviceError::Load { .. }), "{error}");
}

#[test]
fn without_a_folder_kernels_are_kept_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), "tegulac fake 1");
    for cache in [DiskCache::none(), DiskCache::at("/proc/self/task", 1 << 30)] {
        let before = starts(dir.path()).0;
        let device = Device::cpu_with(CpuOptions { cache, ..options(dir.path(), 2) });
        for _ in 0..3 {
            // Two modules at a time from memory must not be taken for each other.
            device.run(&kernel("empty", ""), &[], [3, 1, 1], false).unwrap();
            let mut counts = Tensor::zeros([10]).unwrap();
            device.run(&kernel("counts", OUT), &[out(&mut counts)], [10, 1, 1], false).unwrap();
            assert_eq!(counts.to_vec(), [1; 10]);
        }
        assert_eq!(starts(dir.path()).0 - before, 1, "one process compiled both, once");
    }
}

#[test]
fn a_compiler_that_fails_costs_an_error_and_the_next_kernel_runs() {
    let dir = tempfile::tempdir().unwrap();
    let device = cpu(dir.path(), 1);
    for name in ["aborts", "exits", "babbles", "wrong"] {
        let error = device.run(&kernel(name, ""), &[], [1, 1, 1], false).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("cpu:x86-64-v3"), "{error}");
        device.run(&kernel("empty", ""), &[], [1, 1, 1], false).unwrap();
    }
}

#[test]
fn many_kernels_are_prepared_at_once_and_each_is_compiled_once() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), "tegulac fake 1");
    let finished = Arc::new(Mutex::new(vec![]));
    let heard = finished.clone();
    let on_progress = Some(Arc::new(move |p: &Progress| {
        if let Progress::Finished { kernel, ok: true, .. } = p {
            heard.lock().unwrap().push(kernel.clone());
        }
    }) as _);
    let device = Device::cpu_with(CpuOptions { on_progress, compilers: Some(3), ..options(dir.path(), 1) });
    let kernels: Vec<_> = ["counts", "empty", "scratch", "counts", "words", "empty"].map(|n| kernel(n, OUT)).into();
    device.prepare(&kernels).unwrap();
    device.prepare(&kernels).unwrap();
    let mut names = finished.lock().unwrap().clone();
    names.sort();
    assert_eq!(names, ["counts", "empty", "scratch", "words"]);
    let bad = [kernel("exits", ""), kernel("spins", "%0 \"n\": i64")];
    assert!(matches!(device.prepare(&bad), Err(DeviceError::Compile(_))));
    assert!(finished.lock().unwrap().contains(&"spins".to_string()), "the others are prepared all the same");
    device.prepare(&[]).unwrap();
}

#[test]
fn two_processes_at_once_share_a_cache() {
    const TEST: &str = "two_processes_at_once_share_a_cache";
    let names = ["counts", "empty", "scratch", "words"];
    if let Some(dir) = std::env::var_os("SHARED_DIR") {
        for _ in 0..10 {
            let device = Device::cpu_with(options(Path::new(&dir), 2));
            names.iter().for_each(|n| drop(device.load(&kernel(n, OUT), false).unwrap()));
            let mut counts = Tensor::zeros([100]).unwrap();
            device.run(&kernel("counts", OUT), &[out(&mut counts)], [100, 1, 1], false).unwrap();
            assert_eq!(counts.to_vec(), [1; 100]);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), "tegulac fake 1");
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", TEST, "--nocapture"]).env("SHARED_DIR", dir.path());
    let children: Vec<_> = (0..3).map(|_| again.spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

const ADD: &str = r#"kernel @add(%0 "a": view<f32, 1>, %1 "b": view<f32, 1>, %2 "c": view_mut<f32, 1>) {
  %3 = program_id {axis = 0} : i32
  %4 = cast %3 : i64
  %5 = const {value = 8: i64} : i64
  %6 = mul %4, %5 : i64
  %7 = load %0, %6 : tile<f32, 8>
  %8 = load %1, %6 : tile<f32, 8>
  %9 = add %7, %8 : tile<f32, 8>
  store %2, %6, %9 @ "add.rs":7:3
}
"#;

#[test]
fn the_oracle_runs_ir_on_tensors_and_views() {
    let kernel = Kernel::parse(ADD).unwrap();
    let device = Device::oracle_with(OracleOptions { sanitize: true, ..OracleOptions::default() });
    assert_eq!((device.name().as_str(), device.layout()), ("oracle", Layout::Panel16));
    let a = Tensor::from_fn([29], |i| i[0] as f32 * 1.25 - 3.0).unwrap();
    let b = Tensor::from_fn([29, 2], |i| 100.0 - (i[0] * 3 + i[1]) as f32).unwrap();
    let column = b.view().index(1, 1).unwrap();
    let mut c = Tensor::<f32>::poisoned([29]).unwrap();
    let arg = Arg::<View<f32, 1>>::arg;
    device
        .run(
            &kernel,
            &[Arg::<View<f32, 1>>::arg(&a), arg(column), Arg::<ViewMut<f32, 1>>::arg(&mut c)],
            [4, 1, 1],
            false,
        )
        .unwrap();
    for i in 0..29 {
        assert_eq!(c.as_slice()[i], a.as_slice()[i] + b.as_slice()[2 * i + 1], "element {i}");
    }
    // The sanitizer knows which tensors were never written, and which were by a launch.
    let read = |x: &Tensor<f32>| {
        let mut y = Tensor::<f32>::empty([29]).unwrap();
        let args = [Arg::<View<f32, 1>>::arg(&a), Arg::<View<f32, 1>>::arg(x), Arg::<ViewMut<f32, 1>>::arg(&mut y)];
        device.run(&kernel, &args, [4, 1, 1], false)
    };
    read(&c).unwrap();
    let error = read(&Tensor::empty([29]).unwrap()).unwrap_err().to_string();
    assert!(error.contains("`b` is read here, but nothing wrote it") && error.contains("program 0"), "{error}");
    // Two programs that write one element.
    let twice = device.run(
        &Kernel::parse(&ADD.replace("mul %4, %5", "add %5, %5")).unwrap(),
        &[Arg::<View<f32, 1>>::arg(&a), Arg::<View<f32, 1>>::arg(&a), Arg::<ViewMut<f32, 1>>::arg(&mut c)],
        [2, 1, 1],
        false,
    );
    let error = twice.unwrap_err().to_string();
    assert!(error.contains("add.rs:7:3") && error.contains("program 1"), "{error}");
}

/// A target whose memory does not do.
struct Stingy;

impl tegula::device::Target for Stingy {
    fn name(&self) -> String {
        "stingy".into()
    }
    fn layout(&self) -> tegula::ir::layout::Layout {
        tegula::ir::layout::Layout::Gguf
    }
    fn load(
        &self,
        _: &tegula::ir::Kernel,
        _: bool,
    ) -> Result<std::sync::Arc<dyn tegula::device::Program>, tegula::DeviceError> {
        Err(tegula::DeviceError::Unsupported("no kernels".into()))
    }
    fn allocate(&self, bytes: usize, _: bool) -> Result<tegula::memory::Buffer, tegula::TensorError> {
        Ok(tegula::memory::Buffer::try_zeroed(bytes - 1)?)
    }
}

#[test]
fn memory_that_is_too_short_is_no_tensor() {
    let device = Device::new(Stingy);
    let error = device.zeros::<f32>([10]).unwrap_err().to_string();
    assert_eq!(error, "expected memory of 40 bytes that can be written, found 39 bytes");
    let quant = tegula::ir::Quant::Q8_0;
    assert!(device.packed(quant, 32, 1).unwrap_err().to_string().contains("expected memory of 34 bytes"));
}
