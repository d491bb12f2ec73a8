//! What keeps this process from harming the machine that it runs on: a bound on its memory, and an end with the program
//! that it works for.

use std::{os::unix::process::parent_id, time::Duration};

/// Megabytes of address space that a compilation may take, when the environment says nothing.
const DEFAULT_MB: u64 = 8192;

/// Bounds the memory by `TEGULA_COMPILER_MB` megabytes (8192 by default; 0: no bound). LLVM ends the process when it gets
/// no more, which is an error value for the program that asked.
pub fn limit_memory() {
    let asked = std::env::var("TEGULA_COMPILER_MB").ok().map(|text| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("TEGULA_COMPILER_MB: expected a number of megabytes, found `{text}`; {DEFAULT_MB} is used");
            DEFAULT_MB
        })
    });
    let bytes = match asked.unwrap_or(DEFAULT_MB) {
        0 => return,
        mb => mb.saturating_mul(1 << 20),
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit; a failure leaves things as they were, which is safe.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0 {
            // A stricter one of the user's stays.
            limit.rlim_cur = bytes.min(limit.rlim_cur);
            libc::setrlimit(libc::RLIMIT_AS, &limit);
        }
    }
}

/// Ends this process soon after the one that started it, also in the midst of a compilation (when nothing reads the input
/// whose end would say so).
pub fn follow_parent() {
    let parent = parent_id();
    let watch = move || {
        while parent_id() == parent {
            std::thread::sleep(Duration::from_millis(300));
        }
        // SAFETY: ends the process without running destructors, which the thread that compiles may be using.
        unsafe { libc::_exit(1) }
    };
    // Without the thread it is as good as before.
    let _ = std::thread::Builder::new().name("parent".into()).stack_size(64 << 10).spawn(watch);
}
