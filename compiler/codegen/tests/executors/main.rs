//! Four executors, one meaning: oracle, CPU, emulated sm_80 and emulated sm_90a run the conformance rows and random programs;
//! and mistakes planted in the lowerings for CPUs and for GPUs show that this finds mistakes.

#[path = "../common/figure.rs"]
mod figure;

mod conformance;
mod cpu_mistakes;
mod emulated;
mod gpu_mistakes;
mod mlir;
mod native;
mod random;

use tegula_ir::{Kernel, protocol::SiteKind, testing::Arg};

/// What runs a kernel: an executor for [`tegula_ir::testing::Row::run`] with its name.
struct Executor {
    name: String,
    run: Box<dyn Fn(&Kernel, &mut [Arg], [u32; 3], bool) -> Result<(), String> + Sync>,
}

/// The oracle with its sanitizer, the CPU at each level that this machine has, and each emulated GPU, where asynchronous
/// results must not matter: each launch runs with early and with late completion.
fn executors() -> Vec<Executor> {
    let mut all = vec![Executor { name: "oracle".into(), run: Box::new(tegula_ir::testing::on_oracle) }];
    all.extend(native::targets().into_iter().map(|target| Executor {
        name: target.into(),
        run: Box::new(move |k, a, g, c| native::on_cpu(target, k, a, g, c)),
    }));
    all.extend(emulated::TARGETS.into_iter().map(|target| Executor {
        name: target.into(),
        run: Box::new(move |k, a, g, c| emulated::on_gpu(target, k, a, g, c)),
    }));
    all
}

/// The kernel's first complaint, if it made one: prints are none.
fn complaint(
    reports: impl IntoIterator<Item = (usize, u64)>,
    sites: &[tegula_ir::protocol::Site],
) -> Result<(), String> {
    let mut faults = reports.into_iter().filter(|r| !matches!(sites[r.0].kind, SiteKind::Print { .. }));
    faults.next().map_or(Ok(()), |(site, program)| Err(format!("{:?} in program {program}", sites[site])))
}

/// Calls `f` for each of these numbers, on as many threads as there are cores; gives the results in order.
fn parallel<T: Send>(numbers: std::ops::Range<u64>, f: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicU64::new(numbers.start);
    let work = || {
        let mine = std::iter::from_fn(|| {
            Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).filter(|i| numbers.contains(i))
        });
        mine.map(|i| (i, f(i))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut all: Vec<(u64, T)> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("no run panics")).collect()
    });
    all.sort_by_key(|r| r.0);
    all.into_iter().map(|r| r.1).collect()
}
