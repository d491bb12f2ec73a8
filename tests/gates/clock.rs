//! Time on a machine that others use too.

use std::time::Instant;

/// Asks for the scheduler's favour; without the right to have it, measurements take longer.
pub fn ask_for_priority() {
    // SAFETY: a plain system call on this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
}

fn seconds_of(clock: libc::clockid_t) -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a timespec; every Linux has these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Seconds that this thread computes in `f`: while others have its core, the clock stands.
pub fn thread_seconds<E>(f: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = seconds_of(libc::CLOCK_THREAD_CPUTIME_ID);
    f()?;
    Ok(seconds_of(libc::CLOCK_THREAD_CPUTIME_ID) - start)
}

/// Seconds of wall time of `f`, and whether any of this process's threads had to give way to others meanwhile: a switch
/// that no thread asked for, or `threads` threads that got less than 95 % of their time.
pub fn wall_seconds<E>(threads: usize, f: impl FnOnce() -> Result<(), E>) -> Result<(f64, bool), E> {
    let (switches, busy, start) = (involuntary_switches(), busy_seconds(), Instant::now());
    f()?;
    let wall = start.elapsed().as_secs_f64();
    let busy = busy_seconds() - busy;
    Ok((wall, involuntary_switches() != switches || busy < 0.95 * threads as f64 * wall))
}

/// Seconds that all threads have computed, each asked by its own clock: the process's clock knows of threads on other CPUs
/// only what the last timer tick knew, milliseconds ago.
fn busy_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<libc::clockid_t>().ok());
    // A thread's clock, as the kernel numbers them (pthread_getcpuclockid gives the same).
    ids.map(|id| seconds_of((!id << 3) | 6)).sum()
}

fn involuntary_switches() -> i64 {
    // SAFETY: an all-zero rusage is one; the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nivcsw
    }
}

/// The middle one (of an even number the upper middle one); NaN of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
