//! Launches allocate no memory, however they are shared. (The only test here: it counts what all threads allocate.)

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    io::Write,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};
use tegula::{
    cache::DiskCache,
    compile,
    device::CpuOptions,
    pool::{Pace, Pool, PoolOptions},
    prelude::*,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[kernel]
fn scale<N: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    let i = program_id(0);
    y.store((i,), x.load::<(N,)>((i,)) * 3.0);
}

/// How many allocations 1000 calls of `f` make: the fewest of three times, since the threads that look after the compiler
/// may allocate meanwhile. A call before may make what lasts.
fn later_allocations(mut f: impl FnMut()) -> usize {
    f();
    let mut count = || {
        let before = ALLOCATIONS.load(SeqCst);
        (0..1000).for_each(|_| f());
        ALLOCATIONS.load(SeqCst) - before
    };
    count().min(count()).min(count())
}

#[test]
fn launches_allocate_nothing() {
    for spin in [0, 4000] {
        let options = PoolOptions { threads: 3, spin, pin: false };
        let pool = Pool::new(&options).unwrap();
        let nothing = |r: std::ops::Range<u64>, _| assert!(!black_box(r).is_empty());
        let shared = || pool.run(64, 100, &nothing).unwrap();
        assert_eq!(later_allocations(shared), 0, "shared");
        let pace = Pace::default();
        let short = || pool.run_at(&pace, 64, 100, &nothing).unwrap();
        assert_eq!(later_allocations(short), 0, "too short to share");
    }
    // The counter counts.
    assert!(later_allocations(|| drop(black_box(Box::new(1u8)))) >= 1000);

    if let Err(e) = compile::find::find() {
        let why = format!("allocations of kernels on the CPU: {e}");
        eprintln!("skipped: {why}");
        if let Some(path) = std::env::var_os("TEGULA_SKIPS") {
            writeln!(std::fs::File::options().create(true).append(true).open(path).unwrap(), "{why}").unwrap();
        }
        return;
    }
    let pool = PoolOptions { threads: 2, ..PoolOptions::default() };
    let device = Device::cpu_with(CpuOptions { pool, cache: DiskCache::none(), ..CpuOptions::default() });
    for n in [64usize, 1 << 16] {
        let x = Tensor::<f32>::from_fn([n], |i| i[0] as f32).unwrap();
        let mut y = Tensor::<f32>::zeros([n]).unwrap();
        let launch = || scale::launch(&x, &mut y).dims(16).run(&device).unwrap();
        assert_eq!(later_allocations(launch), 0, "a typed launch over {n} elements");
        assert!(y.as_slice().iter().enumerate().all(|(i, v)| *v == i as f32 * 3.0));
    }
}
