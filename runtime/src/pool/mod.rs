//! The thread pool under every CPU launch: a counter of unclaimed chunks that threads take from, the launching one too.
//!
//! Workers spin for a while after each launch, since the next one usually follows at once, then park on a futex. The
//! launcher waits only for chunks that somebody has claimed, never for a worker that is parked, preempted or late: if
//! nobody comes, it does everything itself. Chunks shrink towards the end, so that no thread waits long for the last.
//!
//! Sharing has its price: each value that goes from core to core costs some fifty nanoseconds, and a launch may be
//! shorter than that. So a kernel's [`Pace`] is learnt: launches that are too short to share stay with the launcher, and
//! of those that are not, chunks are as many as their price allows (`cut.rs`). The first chunk is the launcher's in any
//! case; it is what the pace is learnt from.
//!
//! # Why the claim word is safe
//!
//! `claims` holds the launch's generation and the number of chunks not yet claimed. A thread reads it (Acquire), sees
//! that some are left, reads `job`, and takes one by compare-exchange.
//!
//! - The launcher writes `job`, then `claims`: whoever sees the generation sees its job or a later one.
//! - A later job cannot be seen by a thread whose exchange succeeds: the next launch begins only after every chunk of this
//!   one was claimed and done, after which no exchange from this generation's words can succeed, and one from the next
//!   generation has another upper half. The number of chunks left lives in the same word for the same reason: a
//!   thread never judges an old counter by a new bound. (A thread would have to sleep between read and exchange for
//!   exactly 2^32 launches to be fooled.)
//! - `done` is raised (AcqRel) after a worker's last chunk and read (Acquire) by the launcher, so all that kernels wrote
//!   happens before the launch returns; the last access of a worker to the job is before that. A worker that has done
//!   chunks and not said so yet keeps the launcher waiting, so all its chunks are of one launch. `done` is never set
//!   back: the launcher knows which chunks it did not do itself, and so what `done` will be when the others are done.
//! - Parking: a worker reads `gate`, raises `parked`, then looks at `claims` again, and sleeps unless `gate` has changed;
//!   the launcher writes `claims`, then looks at `parked`, and changes `gate` if it must wake somebody. All SeqCst: the
//!   launcher sees the worker or the worker sees the claims, so no worker sleeps through a launch (and if it did, the
//!   launch would only be slower).

mod cut;

pub use cut::Pace;

use crate::memory::{Buffer, OutOfMemory};
use cut::Cut;
use std::{
    any::Any,
    cell::Cell,
    ffi::OsStr,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::null_mut,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    },
    thread::JoinHandle,
    time::Instant,
};

/// Most threads of a pool.
pub const MOST_THREADS: usize = 1024;

/// How a [`Pool`] is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Threads that work on a launch, the launching one included: 1 to [`MOST_THREADS`].
    pub threads: usize,
    /// Rounds that a worker spins before it parks (some ten nanoseconds each).
    pub spin: u32,
    /// Bind worker `i` to the `i`-th CPU that this process may use. The launching thread is left alone.
    pub pin: bool,
}

impl Default for PoolOptions {
    /// As [`PoolOptions::from_env`]; if `TEGULA_THREADS` is wrong, as without it, after a warning.
    fn default() -> PoolOptions {
        PoolOptions::from_env().unwrap_or_else(|e| {
            tracing::warn!("{e}; using one thread for each CPU");
            PoolOptions::all_cpus()
        })
    }
}

impl PoolOptions {
    /// All CPUs that this process may use, or as many threads as `TEGULA_THREADS` says.
    ///
    /// # Errors
    /// If `TEGULA_THREADS` is no number from 1 to [`MOST_THREADS`].
    pub fn from_env() -> Result<PoolOptions, PoolError> {
        match std::env::var_os("TEGULA_THREADS").filter(|v| !v.is_empty()) {
            Some(asked) => Ok(PoolOptions { threads: threads_of(&asked)?, ..PoolOptions::all_cpus() }),
            None => Ok(PoolOptions::all_cpus()),
        }
    }

    fn all_cpus() -> PoolOptions {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
        PoolOptions { threads, spin: 4000, pin: false }
    }
}

/// What the value of `TEGULA_THREADS` says.
fn threads_of(asked: &OsStr) -> Result<usize, PoolError> {
    let number = asked.to_str().and_then(|v| v.parse().ok()).filter(|n| (1..=MOST_THREADS).contains(n));
    number.ok_or_else(|| PoolError::Variable(asked.display().to_string()))
}

/// Why work was not, or not fully, done.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Called from inside work of a pool.
    #[error("a launch from inside a launch's own work: the pool cannot be used from within itself")]
    Nested,
    /// A number of threads that no pool has.
    #[error("a pool of {0} threads; expected 1 to {MOST_THREADS}")]
    Threads(usize),
    /// A value of `TEGULA_THREADS` that is no number of threads.
    #[error("TEGULA_THREADS: expected a number from 1 to {MOST_THREADS}, found `{0}`")]
    Variable(String),
    /// No memory for the threads' scratch.
    #[error("scratch memory of the threads: {0}")]
    Memory(#[from] OutOfMemory),
    /// The work panicked; chunks not begun by then were skipped.
    #[error("panicked: {0}")]
    Panicked(String),
}

crate::readable_debug!(PoolError);

/// One value alone on its cache lines (two: the neighbour is often prefetched).
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// What idle workers watch.
    post: Padded<Post>,
    /// Chunks that workers have done since the pool was made, modulo 2^32; told by each when it finds no more to take.
    done: Padded<AtomicU32>,
    rest: Padded<Rest>,
    spin: u32,
}

/// The launch to work on. One cache line, so that a worker has all of it at once.
struct Post {
    /// Generation << 32 | chunks not yet claimed.
    claims: AtomicU64,
    job: AtomicPtr<Job<'static>>,
}

/// How workers go to sleep and to an end; written rarely.
struct Rest {
    /// Workers parked or about to.
    parked: AtomicU32,
    /// What they park on; changes when they are to wake.
    gate: AtomicU32,
    quit: AtomicBool,
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

/// A pool of threads. One launch runs at a time; launches from several threads queue up.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a launch.
    launch: Mutex<Launcher>,
}

struct Launcher {
    generation: u32,
    /// What [`Shared::done`] is when no worker has a chunk in hand.
    done: u32,
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
    /// Starts the workers. Fewer than asked are no error if the system has no more: launches then use those there are.
    ///
    /// # Errors
    /// If `threads` is not from 1 to [`MOST_THREADS`].
    pub fn new(options: &PoolOptions) -> Result<Pool, PoolError> {
        if !(1..=MOST_THREADS).contains(&options.threads) {
            return Err(PoolError::Threads(options.threads));
        }
        let shared = Arc::new(Shared {
            post: Padded(Post { claims: AtomicU64::new(0), job: AtomicPtr::new(null_mut()) }),
            done: Padded(AtomicU32::new(0)),
            rest: Padded(Rest { parked: AtomicU32::new(0), gate: AtomicU32::new(0), quit: AtomicBool::new(false) }),
            spin: options.spin,
        });
        let mut workers = vec![];
        for index in 1..options.threads {
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
        let launch = Launcher { generation: 0, done: 0, scratch: vec![], pointers: vec![] };
        Ok(Pool { shared, workers, launch: Mutex::new(launch) })
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
        self.run_at(&Pace::default(), total, scratch, work)
    }

    /// The same for work that is done over and over, with `pace` to remember how long it takes: work that is too short
    /// is not shared, and in that case may be done by the calling thread alone.
    pub fn run_at(
        &self,
        pace: &Pace,
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
        let alone = Cut::alone(total, pace);
        let job = Job {
            work,
            cut: alone.unwrap_or_else(|| Cut::shared(total, self.threads(), pace)),
            scratch: launcher.pointers.as_ptr(),
            failed: AtomicBool::new(false),
            panic: Mutex::new(None),
        };
        INSIDE.set(true);
        self.shared.launch(&job, pace, alone.is_some(), &mut launcher);
        INSIDE.set(false);
        match job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(message) => Err(PoolError::Panicked(message)),
            None => Ok(()),
        }
    }

    /// Parked workers (for tests and benchmarks).
    pub fn parked(&self) -> usize {
        self.shared.rest.0.parked.load(SeqCst) as usize
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let rest = &self.shared.rest.0;
        rest.quit.store(true, SeqCst);
        rest.gate.fetch_add(1, SeqCst);
        atomic_wait::wake_all(&rest.gate);
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
    /// Does a job, sharing it if that is worth it.
    fn launch(&self, job: &Job<'_>, pace: &Pace, alone: bool, launcher: &mut Launcher) {
        let chunks = job.cut.chunks();
        if chunks == 1 {
            return job.run(job.cut.range(0), 0);
        }
        if !alone {
            self.publish(job, chunks - 1, launcher);
        }
        let first = job.cut.range(0);
        let (begun, programs) = (Instant::now(), first.end - first.start);
        job.run(first.clone(), 0);
        let took = begun.elapsed();
        pace.learn(programs, took);
        if alone {
            // All chunks are alike here.
            if cut::too_short_to_share(took * (chunks - 1)) {
                let all = job.cut.range(chunks - 1).end;
                job.run(first.end..all, 0);
                // The first programs may have had less to do than the others.
                return pace.learn(all, begun.elapsed());
            }
            self.publish(job, chunks - 1, launcher);
        }
        launcher.done = launcher.done.wrapping_add(chunks - 1 - self.take_chunks(0));
        let mut rounds = 0u32;
        while self.done.0.load(Acquire) != launcher.done {
            std::hint::spin_loop();
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1024) {
                // The thread that holds the last chunk may be waiting for this CPU.
                std::thread::yield_now();
            }
        }
        // The first programs may have had less to do than the others.
        pace.learn_at_least(job.cut.range(chunks - 1).end, begun.elapsed());
    }

    /// Offers the last `left` chunks to everybody.
    fn publish(&self, job: &Job<'_>, left: u32, launcher: &mut Launcher) {
        launcher.generation = launcher.generation.wrapping_add(1);
        let (post, rest) = (&self.post.0, &self.rest.0);
        post.job.store(std::ptr::from_ref(job).cast_mut().cast(), Relaxed);
        post.claims.store((launcher.generation as u64) << 32 | left as u64, SeqCst);
        match rest.parked.load(SeqCst) {
            0 => {}
            parked => {
                rest.gate.fetch_add(1, SeqCst);
                // Waking costs microseconds: no more than can get a chunk.
                if parked > left {
                    (0..left).for_each(|_| atomic_wait::wake_one(&rest.gate));
                } else {
                    atomic_wait::wake_all(&rest.gate);
                }
            }
        }
    }

    /// Takes and does chunks until none is left; returns how many.
    fn take_chunks(&self, thread: usize) -> u32 {
        let post = &self.post.0;
        let mut done = 0;
        loop {
            let seen = post.claims.load(Acquire);
            let left = seen as u32;
            if left == 0 {
                return done;
            }
            let job = post.job.load(Relaxed);
            if post.claims.compare_exchange_weak(seen, seen - 1, AcqRel, Relaxed).is_err() {
                continue;
            }
            // SAFETY: a chunk of this launch is claimed and not done, so its launcher is still waiting and the job
            // lives; that `job` is the one of this launch is shown at the top of the file.
            let job = unsafe { &*job };
            job.run(job.cut.range(job.cut.chunks() - left), thread);
            done += 1;
        }
    }

    fn worker(&self, index: usize) {
        let rest = &self.rest.0;
        let mut rounds = 0;
        loop {
            match self.take_chunks(index) {
                0 => rounds += 1,
                done => {
                    self.done.0.fetch_add(done, AcqRel);
                    rounds = 0;
                }
            }
            if rest.quit.load(Relaxed) {
                return;
            }
            if rounds < self.spin {
                std::hint::spin_loop();
                continue;
            }
            rounds = 0;
            let gate = rest.gate.load(SeqCst);
            rest.parked.fetch_add(1, SeqCst);
            if self.post.0.claims.load(SeqCst) as u32 == 0 && !rest.quit.load(SeqCst) {
                // Returns at once if the gate has changed; may return for no reason.
                atomic_wait::wait(&rest.gate, gate);
            }
            rest.parked.fetch_sub(1, SeqCst);
        }
    }
}

impl Job<'_> {
    /// Does some of the programs.
    fn run(&self, programs: Range<u64>, thread: usize) {
        if self.failed.load(Relaxed) {
            return;
        }
        // SAFETY: one pointer for each thread of the pool, alive as long as the launch.
        let scratch = unsafe { *self.scratch.add(thread) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.work)(programs, scratch))) {
            self.failed.store(true, Relaxed);
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| message_of(&*panic));
            // Not dropped: what a user's payload does then may be to panic again, and this chunk would never be done.
            std::mem::forget(panic);
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

    #[test]
    fn what_a_launch_alone_took_is_learnt_as_a_whole() {
        let pool = Pool::new(&PoolOptions { threads: 2, spin: 100, pin: false }).unwrap();
        let pace = Pace::default();
        // Programs that do nothing: until it is known that the launch is short.
        while Cut::alone(64, &pace).is_none() {
            pool.run_at(&pace, 64, 0, &|_, _| {}).unwrap();
        }
        // The first chunk still does nothing; the last program takes long.
        let late = |r: Range<u64>, _| {
            let end = Instant::now() + std::time::Duration::from_micros(if r.end == 64 { 500 } else { 0 });
            while Instant::now() < end {}
        };
        pool.run_at(&pace, 64, 0, &late).unwrap();
        assert!(Cut::alone(64, &pace).is_none(), "the next launch is shared");
    }

    #[test]
    fn what_a_shared_launch_took_is_learnt_too() {
        let pool = Pool::new(&PoolOptions { threads: 2, spin: 100, pin: false }).unwrap();
        let pace = Pace::default();
        // Nothing is known yet, so it is shared. The first programs do nothing, the others take long.
        let late = |r: Range<u64>, _| {
            let end = Instant::now() + std::time::Duration::from_micros(if r.start == 0 { 0 } else { 100 });
            while Instant::now() < end {}
        };
        pool.run_at(&pace, 64, 0, &late).unwrap();
        assert!(Cut::alone(64, &pace).is_none(), "the next launch is shared");
    }

    #[test]
    fn the_variable_holds_a_number_of_threads_or_is_named() {
        assert_eq!((threads_of("1".as_ref()), threads_of("1024".as_ref())), (Ok(1), Ok(1024)));
        for wrong in ["0", "1025", "3000000", "-1", "junk", "2 ", "99999999999999999999999"] {
            let error = threads_of(wrong.as_ref()).unwrap_err().to_string();
            assert_eq!(error, format!("TEGULA_THREADS: expected a number from 1 to 1024, found `{wrong}`"));
        }
    }
}
