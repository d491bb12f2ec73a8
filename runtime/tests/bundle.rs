//! Kernels from a bundle, where there is no compiler and no cache.

#[path = "../../tests/src/skip.rs"]
mod skip;

use tegula::{
    bundle::{self, Bundle, Kind, MakeError, MakeOptions},
    cache::DiskCache,
    compile::{self, Program},
    device::{CpuOptions, EmulatedOptions, Level},
    prelude::*,
};

#[kernel]
fn axpy<N: Dim>(x: View<f32, 1>, a: Scalar<f32>, y: ViewMut<f32, 1>) {
    let i = program_id(0);
    y.store((i,), x.load::<(N,)>((i,)) * a + y.load::<(N,)>((i,)));
}

#[kernel]
fn running_sum<N: Dim>(x: View<i32, 2>, y: ViewMut<i32, 2>) {
    let row = program_id(0);
    y.store((row, 0), x.load::<(One, N)>((row, 0)).cumsum::<1>());
}

#[kernel]
fn guarded<N: Dim>(x: View<i32, 1>, y: ViewMut<i32, 1>) {
    let i = program_id(0);
    device_assert(i < 2, "two tiles at most");
    y.store((i,), x.load::<(N,)>((i,)) - 1);
}

/// Whether the compiler is there.
fn compiler() -> bool {
    compile::find::find().map_err(|e| skip::skip(&format!("bundles of kernels: {e}"))).is_ok()
}

/// What a program does, on any device.
fn program(device: &Device) -> Result<(Vec<f32>, Vec<i32>, Vec<i32>), LaunchError> {
    let stream = device.stream();
    let tensor = |values: &[f32]| device.tensor([values.len()], values).unwrap();
    let x: Vec<f32> = (0..100).map(|i| 0.37 * i as f32 - 11.0).collect();
    let mut y = tensor(&x.iter().map(|v| v * 0.3 + 1.0).collect::<Vec<_>>());
    axpy::launch(&tensor(&x), 1.7, &mut y).dims(32).run(&stream)?;
    let counts: Vec<i32> = (0..3 * 50).map(|i| (i * 7919) % 101 - 50).collect();
    let mut sums = device.zeros([3, 50]).unwrap();
    running_sum::launch(&device.tensor([3, 50], &counts).unwrap(), &mut sums).dims(64).grid(3).run(&stream)?;
    let mut less = device.zeros([50]).unwrap();
    guarded::launch(&device.tensor([50], &counts[..50]).unwrap(), &mut less).dims(32).checked().run(&stream)?;
    Ok((y.to_vec(), sums.to_vec(), less.to_vec()))
}

fn expected() -> (Vec<f32>, Vec<i32>, Vec<i32>) {
    let y = (0..100).map(|i| 0.37 * i as f32 - 11.0).map(|v| v * 1.7 + (v * 0.3 + 1.0));
    let counts: Vec<i32> = (0..3 * 50).map(|i| (i * 7919) % 101 - 50).collect();
    let running = |row: &[i32]| {
        row.iter()
            .scan(0, |s, v| {
                *s += v;
                Some(*s)
            })
            .collect::<Vec<_>>()
    };
    let sums = counts.chunks(50).flat_map(running).collect();
    (y.collect(), sums, counts[..50].iter().map(|v| v - 1).collect())
}

fn make(targets: &[&str], cache: DiskCache) -> bundle::Made {
    let options = MakeOptions { cache, ..MakeOptions::default() };
    bundle::make(targets, options, |device| program(device).map(drop)).unwrap()
}

fn opened(made: &bundle::Made) -> Bundle {
    Bundle::from_bytes(made.builder.bytes().unwrap().leak()).unwrap()
}

/// Devices that have nothing but the bundle.
fn without_compiler(bundle: &Bundle) -> [Device; 3] {
    let nowhere = || Program::at("/there/is/no/tegulac");
    let cpu = CpuOptions {
        bundle: bundle.clone().into(),
        cache: DiskCache::none(),
        compiler: nowhere(),
        ..CpuOptions::default()
    };
    let gpu = |arch| {
        let options = EmulatedOptions {
            bundle: bundle.clone().into(),
            cache: DiskCache::none(),
            compiler: nowhere(),
            ..EmulatedOptions::default()
        };
        Device::emulated_with(arch, options).unwrap()
    };
    [Device::cpu_with(cpu), gpu("sm_80"), gpu("sm_90a")]
}

#[test]
fn a_program_runs_from_its_bundle_alone() {
    if !compiler() {
        return;
    }
    let made = make(&["cpu:x86-64-v3", "sm_90a"], DiskCache::of_user());
    let bundle = opened(&made);
    for device in without_compiler(&bundle) {
        assert_eq!(program(&device).unwrap(), expected(), "{}", device.name());
    }
    // Three kernels for the processor, for Hopper, and PTX that every GPU can run; machine code where there is ptxas.
    let of = |target: &str, kind| bundle.items().filter(|i| (i.target, i.kind) == (target, kind)).count();
    assert_eq!((of("cpu:x86-64-v3", Kind::SharedObject), of("sm_90a", Kind::Ptx), of("sm_80", Kind::Ptx)), (3, 3, 3));
    assert_eq!(of("sm_90a", Kind::Cubin), if made.no_cubins { 0 } else { 3 });
    assert_eq!(of("sm_80", Kind::Cubin), 0);
    assert_eq!(bundle.items().filter(|i| i.checked).map(|i| i.kernel).next(), Some("bundle::guarded"));
    if made.no_cubins {
        skip::skip("cubins in bundles: there is no ptxas");
    }
}

#[test]
fn what_a_bundle_lacks_is_an_error_that_says_what_it_has() {
    if !compiler() {
        return;
    }
    let bundle = opened(&make(&["cpu:x86-64-v3"], DiskCache::of_user()));
    let [cpu, sm80, _] = without_compiler(&bundle);
    let (x, mut y) = (cpu.zeros([64]).unwrap(), cpu.zeros([64]).unwrap());
    let error = axpy::launch(&x, 1.0, &mut y).dims(16).run(&cpu.stream()).unwrap_err().to_string();
    assert!(error.contains("kernel `bundle::axpy` for cpu:x86-64-v"), "{error}");
    assert!(error.contains("3 artifacts for cpu:x86-64-v3, of this kernel 1 other variant."), "{error}");
    let error = program(&sm80).unwrap_err().to_string();
    assert!(error.contains("kernel `bundle::axpy` for emulated:sm_80 (compute capability 8.0) is not in"), "{error}");
    assert!(error.contains("none of a kernel of this name that runs here"), "{error}");
    assert!(error.contains("--target sm_80 "), "{error}");
    // With a compiler the rest is compiled.
    let device = Device::cpu_with(CpuOptions { bundle: bundle.into(), ..CpuOptions::default() });
    axpy::launch(&x, 1.0, &mut y).dims(16).run(&device.stream()).unwrap();
}

#[test]
fn the_bytes_depend_on_kernels_targets_and_compiler_alone() {
    if !compiler() {
        return;
    }
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let made = folders.each_ref().map(|f| make(&["cpu:x86-64-v3", "sm_80"], DiskCache::at(f.path(), 1 << 30)));
    let bytes = made.each_ref().map(|m| m.builder.bytes().unwrap());
    assert!(bytes[0] == bytes[1], "two bundles, compiled apart, differ");
    assert!(
        bytes[0]
            == make(&["sm_80", "cpu:x86-64-v3"], DiskCache::at(folders[0].path(), 1 << 30)).builder.bytes().unwrap()
    );

    // Nothing of this machine is in it.
    let bundle = opened(&made[0]);
    let home = std::env::var("HOME").unwrap_or_default();
    let here = std::env::current_dir().unwrap().display().to_string();
    let temporary = std::env::temp_dir().display().to_string();
    let words = [here, home, format!("{temporary}/")].map(|w| w.into_bytes());
    assert!(bundle.items().count() >= 6);
    for item in bundle.items() {
        let machine = bundle::Machine::of_target(item.target).unwrap();
        let found = bundle.find_key(item.key, &machine).unwrap().unwrap();
        for word in words.iter().filter(|w| w.len() > 2) {
            let at = found.bytes.windows(word.len()).position(|w| w == word);
            assert_eq!(at, None, "{} in `{}` for {}", String::from_utf8_lossy(word), item.kernel, item.target);
        }
    }
}

#[test]
fn what_cannot_be_made_is_said() {
    let make =
        |targets: &[&str]| bundle::make(targets, MakeOptions::default(), |_| Err("no time".to_string())).unwrap_err();
    assert!(make(&["cpu:none"]).to_string().starts_with("target: expected one of cpu:x86-64-v3, "));
    assert_eq!(make(&["sm_80"]).to_string(), "while noting the kernels for sm_80: no time");
    if !compiler() {
        return;
    }
    let error = bundle::make(&["sm_75"], MakeOptions::default(), |d| program(d).map(drop)).unwrap_err();
    assert!(matches!(error, MakeError::Device(_)) && error.to_string().contains("sm_75"), "{error}");
    assert!(Level::V3.is_supported());
}
