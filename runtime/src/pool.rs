//! The thread pool under every CPU launch: a counter of unclaimed chunks that threads take from, the launching one too.
//!
//! Workers spin for a while after each launch, since the next one usually follows at once, then park on a futex. The
//! launcher waits only for chunks that somebody has claimed, never for a worker that is parked, preempted or late: if
//! nobody comes, it does everything itself. Chunks shrink towards the end, so that no thread waits long for the last.
//!
//! # Why the claim word is safe
//!
//! `claims` holds the launch's generation and the number of chunks not yet claimed. A thread reads it (Acquire), sees
//! that some are left, reads `job`, and takes one by compare-exchange.
//!
//! - The launcher writes `job`, then `claims` (Release): whoever sees the generation sees its job or a later one.
//! - A later job cannot be seen by a thread whose exchange succeeds: the next launch begins only after every chunk of this
//!   one was claimed and done, after which no exchange from this generation's words can succeed, and one from the next
//!   generation has another upper half. The number of chunks left lives in the same word for the same reason: a
//!   thread never judges an old counter by a new bound. (A thread would have to sleep between read and exchange for
//!   exactly 2^32 launches to be fooled.)
//! - `done` is raised (AcqRel) after a thread's last chunk and read (Acquire) by the launcher, so all that kernels wrote
//!   happens before the launch returns; the last access of a worker to the job is before that. A thread that has done
//!   chunks and not said so yet keeps the launcher waiting, so all its chunks are of one launch.
//! - Parking: a worker raises `parked`, then looks at `gate` again; the launcher changes `gate`, then looks at `parked`.
//!   Both SeqCst: one of them sees the other, so no worker sleeps through a launch (and if it did, the launch would
//!   only be slower).

use crate::memory::{Buffer, OutOfMemory};
use std::{
    any::Any,
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::null_mut,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    },
    thread::JoinHandle,
};

/// How a [`Pool`] is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Threads that work on a launch, the launching one included; at least 1.
    pub threads: usize,
    /// Rounds that a worker spins before it parks (some ten nanoseconds each).
    pub spin: u32,
    /// Bind worker `i` to the `i`-th CPU that this process may use. The launching thread is left alone.
    pub pin: bool,
}

impl Default for PoolOptions {
    /// All CPUs that this process may use, or as many as `TEGULA_THREADS` says.
    fn default() -> PoolOptions {
        let asked = std::env::var("TEGULA_THREADS").ok().and_then(|v| v.parse().ok()).filter(|n| *n > 0);
        let threads = asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        PoolOptions { threads, spin: 4000, pin: false }
    }
}

/// Why work was not, or not fully, done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Called from inside work of a pool.
    #[error("a launch from inside a launch's own work: the pool cannot be used from within itself")]
    Nested,
    /// No memory for the threads' scratch.
    #[error("scratch memory of the threads: {0}")]
    Memory(#[from] OutOfMemory),
    /// The work panicked; chunks not begun by then were skipped.
    #[error("panicked: {0}")]
    Panicked(String),
}

/// One value alone on its cache lines (two: the neighbour is often prefetched).
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// Generation << 32 | chunks not yet claimed.
    claims: Padded<AtomicU64>,
    /// Chunks done in this launch, by threads that find no more to take.
    done: Padded<AtomicU32>,
    /// Changes with every launch: what idle workers watch and park on.
    gate: Padded<AtomicU32>,
    /// Workers parked or about to.
    parked: Padded<AtomicU32>,
    job: AtomicPtr<Job<'static>>,
    quit: AtomicBool,
    spin: u32,
}

/// One launch. It lives on the launcher's stack until all chunks are done.
struct Job<'a> {
    work: &'a (dyn Fn(Range<u64>, *mut u8) + Sync),
    cut: Cut,
    /// Scratch memory of each thread.
    scratch: *const *mut u8,
    failed: AtomicBool,
    panic: Mutex<Option<String>>,
}

/// How a range is cut: `coarse` chunks over three quarters of it, then `fine` smaller ones.
#[derive(Clone, Copy)]
struct Cut {
    total: u64,
    coarse: u32,
    fine: u32,
}

impl Cut {
    fn new(total: u64, threads: usize) -> Cut {
        let threads = threads.min(1 << 20) as u32;
        match total {
            _ if threads == 1 => Cut { total, coarse: 0, fine: 1 },
            n if n <= 12 * threads as u64 => Cut { total, coarse: 0, fine: n as u32 },
            n => Cut { total, coarse: 4 * threads, fine: (8 * threads as u64).min(n - n / 4 * 3) as u32 },
        }
    }

    fn chunks(self) -> u32 {
        self.coarse + self.fine
    }

    fn range(self, i: u32) -> Range<u64> {
        let middle = if self.coarse == 0 { 0 } else { self.total / 4 * 3 };
        let (from, to, parts, i) = if i < self.coarse {
            (0, middle, self.coarse, i)
        } else {
            (middle, self.total, self.fine, i - self.coarse)
        };
        let (parts, i) = (parts as u64, i as u64);
        let at = |i: u64| from + (to - from) / parts * i + ((to - from) % parts).min(i);
        at(i)..at(i + 1)
    }
}

/// A pool of threads. One launch runs at a time; launches from several threads queue up.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a launch.
    launch: Mutex<Launcher>,
}

struct Launcher {
    generation: u32,
    scratch: Vec<Buffer>,
    pointers: Vec<*mut u8>,
}

// SAFETY: the pointers point into `scratch` beside them, which is plain memory.
unsafe impl Send for Launcher {}

thread_local! {
    /// Whether this thread is inside a launch.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// Starts the workers. Fewer than asked are no error: launches then use those there are.
    pub fn new(options: &PoolOptions) -> Pool {
        let shared = Arc::new(Shared {
            claims: Padded(AtomicU64::new(0)),
            done: Padded(AtomicU32::new(0)),
            gate: Padded(AtomicU32::new(0)),
            parked: Padded(AtomicU32::new(0)),
            job: AtomicPtr::new(null_mut()),
            quit: AtomicBool::new(false),
            spin: options.spin,
        });
        let mut workers = vec![];
        for index in 1..options.threads.max(1) {
            let (shared, pin) = (shared.clone(), options.pin);
            let thread = std::thread::Builder::new().name(format!("tegula-{index}"));
            match thread.spawn(move || {
                if pin {
                    pin_to(index);
                }
                INSIDE.set(true);
                shared.worker(index);
            }) {
                Ok(handle) => workers.push(handle),
                Err(e) => {
                    tracing::warn!("no more threads than {index} could be started: {e}");
                    break;
                }
            }
        }
        let launch = Launcher { generation: 0, scratch: vec![], pointers: vec![] };
        Pool { shared, workers, launch: Mutex::new(launch) }
    }

    /// Threads that work on a launch, the launching one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` on ranges that together cover `0..total`, each number once, from several threads at the same time,
    /// and returns when all is done. Each thread gives `work` the same scratch memory every time: `scratch` bytes,
    /// aligned to 64, contents undefined.
    pub fn run(
        &self,
        total: u64,
        scratch: usize,
        work: &(dyn Fn(Range<u64>, *mut u8) + Sync),
    ) -> Result<(), PoolError> {
        if INSIDE.get() {
            return Err(PoolError::Nested);
        }
        if total == 0 {
            return Ok(());
        }
        // A poisoned lock is none: a panic in `work` is caught below, and the state is valid at every point.
        let mut launcher = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        launcher.ensure_scratch(self.threads(), scratch)?;
        let cut = Cut::new(total, self.threads());
        let job = Job {
            work,
            cut,
            scratch: launcher.pointers.as_ptr(),
            failed: AtomicBool::new(false),
            panic: Mutex::new(None),
        };
        INSIDE.set(true);
        if cut.chunks() == 1 {
            job.run(0, 0);
        } else {
            launcher.generation = launcher.generation.wrapping_add(1);
            self.shared.launch(&job, launcher.generation);
        }
        INSIDE.set(false);
        match job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(message) => Err(PoolError::Panicked(message)),
            None => Ok(()),
        }
    }

    /// Parked workers (for tests and benchmarks).
    pub fn parked(&self) -> usize {
        self.shared.parked.0.load(SeqCst) as usize
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, SeqCst);
        self.shared.gate.0.fetch_add(1, SeqCst);
        atomic_wait::wake_all(&self.shared.gate.0);
        for worker in self.workers.drain(..) {
            // A worker ends by returning: panics in work are caught.
            let _ = worker.join();
        }
    }
}

impl Launcher {
    /// Gives each thread at least `bytes`.
    fn ensure_scratch(&mut self, threads: usize, bytes: usize) -> Result<(), OutOfMemory> {
        if self.pointers.len() == threads && self.scratch[0].bytes() >= bytes {
            return Ok(());
        }
        let size = bytes.max(4096).checked_next_multiple_of(4096).ok_or(OutOfMemory { bytes })?;
        self.scratch = (0..threads).map(|_| Buffer::try_zeroed(size)).collect::<Result<_, _>>()?;
        self.pointers = self.scratch.iter().map(|b| b.ptr()).collect();
        Ok(())
    }
}

impl Shared {
    fn launch(&self, job: &Job<'_>, generation: u32) {
        let chunks = job.cut.chunks();
        self.job.store(std::ptr::from_ref(job).cast_mut().cast(), Relaxed);
        self.done.0.store(0, Relaxed);
        self.claims.0.store((generation as u64) << 32 | chunks as u64, Release);
        self.gate.0.store(generation, SeqCst);
        match self.parked.0.load(SeqCst) {
            0 => {}
            // Waking costs microseconds: no more than can get a chunk.
            parked if parked > chunks - 1 => (1..chunks).for_each(|_| atomic_wait::wake_one(&self.gate.0)),
            _ => atomic_wait::wake_all(&self.gate.0),
        }
        self.take_chunks(0);
        let mut rounds = 0u32;
        while self.done.0.load(Acquire) < chunks {
            std::hint::spin_loop();
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1024) {
                // The thread that holds the last chunk may be waiting for this CPU.
                std::thread::yield_now();
            }
        }
    }

    /// Takes and does chunks until none is left, then says how many.
    fn take_chunks(&self, thread: usize) {
        let mut done = 0;
        loop {
            let seen = self.claims.0.load(Acquire);
            let left = seen as u32;
            if left == 0 {
                break;
            }
            let job = self.job.load(Relaxed);
            if self.claims.0.compare_exchange_weak(seen, seen - 1, AcqRel, Relaxed).is_err() {
                continue;
            }
            // SAFETY: a chunk of this launch is claimed and not done, so its launcher is still waiting and the job
            // lives; that `job` is the one of this launch is shown at the top of the file.
            let job = unsafe { &*job };
            job.run(job.cut.chunks() - left, thread);
            done += 1;
        }
        if done > 0 {
            self.done.0.fetch_add(done, AcqRel);
        }
    }

    fn worker(&self, index: usize) {
        let mut seen = 0;
        loop {
            let mut rounds = 0;
            loop {
                let now = self.gate.0.load(Acquire);
                if self.quit.load(Relaxed) {
                    return;
                }
                if now != seen {
                    seen = now;
                    break;
                }
                rounds += 1;
                if rounds < self.spin {
                    std::hint::spin_loop();
                } else {
                    self.parked.0.fetch_add(1, SeqCst);
                    // Returns at once if the gate has changed; may return for no reason.
                    atomic_wait::wait(&self.gate.0, seen);
                    self.parked.0.fetch_sub(1, SeqCst);
                    rounds = 0;
                }
            }
            self.take_chunks(index);
        }
    }
}

impl Job<'_> {
    fn run(&self, chunk: u32, thread: usize) {
        if self.failed.load(Relaxed) {
            return;
        }
        // SAFETY: one pointer for each thread of the pool, alive as long as the launch.
        let scratch = unsafe { *self.scratch.add(thread) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.work)(self.cut.range(chunk), scratch))) {
            self.failed.store(true, Relaxed);
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| message_of(&*panic));
        }
    }
}

/// The message of a panic.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// Binds this thread to the `index`-th CPU (modulo their number) that the process may use; nothing where that is not
/// possible.
fn pin_to(index: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: plain system calls on a local set of CPUs.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed) != 0 {
            return;
        }
        let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|i| libc::CPU_ISSET(*i, &allowed)).collect();
        if let Some(cpu) = cpus.get(index % cpus.len().max(1)) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(*cpu, &mut one);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = index;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_cover_the_range_in_order_and_shrink(total in prop_oneof![1u64..2000, 1..=u64::MAX >> 1], threads in 1usize..70) {
            let cut = Cut::new(total, threads);
            let mut next = 0;
            let mut longest = u64::MAX;
            for i in 0..cut.chunks() {
                let r = cut.range(i);
                prop_assert_eq!(r.start, next);
                prop_assert!(r.end > r.start);
                // Neighbours of one size class differ by at most one.
                prop_assert!(r.end - r.start <= longest.saturating_add(1));
                longest = longest.min(r.end - r.start);
                next = r.end;
            }
            prop_assert_eq!(next, total);
        }
    }
}
