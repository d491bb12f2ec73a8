//! What a launch on a GPU costs the host: typed launches of kernels that are loaded, against a driver whose launches do
//! nothing. It is the stub's library, which cargo builds beside this program; a process of its own loads it.

use std::{
    env,
    hint::black_box,
    process::{Command, ExitCode},
    time::Instant,
};

use tegula::prelude::*;

use crate::Outcome;
use crate::clock::median;
use crate::report::Gate;

/// The gate's name.
pub const GATE: &str = "typed launch on the stub driver";
/// Most microseconds.
const MOST: f64 = 1.5;
/// Set in the process that the stub serves.
const CHILD: &str = "TEGULA_GATE_CUDA";

#[kernel]
fn two<N: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    y.store((program_id(0),), x.load::<(N,)>((program_id(0),)));
}

/// As many arguments as attention has.
#[kernel]
fn seven<N: Dim>(
    a: View<f32, 2>,
    b: View<f32, 2>,
    c: View<f32, 2>,
    d: View<i32, 2>,
    e: View<i32, 2>,
    y: ViewMut<f32, 2>,
    s: Scalar<f32>,
) {
    let at = (program_id(0), 0);
    let ints = (d.load::<(One, N)>(at) + e.load::<(One, N)>(at)).cast::<f32>();
    let sum = a.load::<(One, N)>(at) + b.load::<(One, N)>(at) + c.load::<(One, N)>(at) + ints;
    y.store(at, sum * s);
}

/// Measures in a process of its own.
pub fn gate() -> Outcome<Gate> {
    let exe = env::current_exe()?;
    let beside = exe.ancestors().skip(1).take(1).flat_map(|d| [d.join("deps"), d.to_path_buf()]);
    let library = beside.map(|d| d.join("libtegula_stub.so")).find(|f| f.exists());
    let library = library.ok_or("the stub's library is not beside this program: cargo build -p tegula-stub")?;
    let folder = env::temp_dir().join(format!("tegula-gates-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::os::unix::fs::symlink(&library, folder.join(name))?;
    }
    let output = Command::new(exe).env(CHILD, "1").env("TEGULA_STUB", "noop").env("LD_LIBRARY_PATH", &folder).output();
    std::fs::remove_dir_all(&folder)?;
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [two, seven] = numbers[..] else {
        return Err(format!("{}{text}", String::from_utf8_lossy(&output.stderr)).into());
    };
    let gate = Gate::at_most(format!("{GATE}, 2 arguments"), two, "µs", MOST);
    Ok(Gate { beside: format!("{seven:.2} µs with 7"), ..gate })
}

/// Whether this is that process.
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Prints the microseconds of launches with two and with seven arguments.
pub fn child() -> ExitCode {
    match measure() {
        Ok((two, seven)) => {
            println!("{two} {seven}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Outcome<(f64, f64)> {
    let gpu = Device::cuda(0)?;
    let stream = gpu.stream();
    let floats = || gpu.zeros::<f32>([16, 64]);
    let (a, b, c, mut y) = (floats()?, floats()?, floats()?, floats()?);
    let (d, e) = (gpu.zeros::<i32>([16, 64])?, gpu.zeros::<i32>([16, 64])?);
    let (x, mut z) = (gpu.zeros::<f32>([1024])?, gpu.zeros::<f32>([1024])?);
    let short = time(|| two::launch(&x, black_box(&mut z)).dims(64).run(&stream))?;
    let long = time(|| seven::launch(&a, &b, &c, &d, &e, black_box(&mut y), 2.0).dims(64).grid(16).run(&stream))?;
    Ok((short, long))
}

/// Microseconds of one of many launches in a row.
fn time(mut launch: impl FnMut() -> Result<(), LaunchError>) -> Outcome<f64> {
    // Several a sample, since reading the clock costs as much as one.
    const EACH: u32 = 100;
    (0..1000).try_for_each(|_| launch())?;
    let mut times = vec![];
    for _ in 0..2000 {
        let start = Instant::now();
        (0..EACH).try_for_each(|_| launch())?;
        times.push(start.elapsed().as_secs_f64() / f64::from(EACH));
    }
    Ok(median(times) * 1e6)
}
