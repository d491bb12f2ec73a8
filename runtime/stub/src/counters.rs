//! Numbers that a test can ask for, through the library's function `tegula_stub_counters`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many there are.
pub const COUNTERS: usize = 11;

/// What is counted, and at which place of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(usize)]
pub enum Counter {
    /// Launches so far.
    Launches,
    /// Copies so far, either way, and fills.
    Copies,
    /// Blocks of device memory there are now.
    Blocks,
    /// Their bytes.
    Bytes,
    /// Blocks of pinned memory there are now.
    Pinned,
    Streams,
    Events,
    Modules,
    Functions,
    Graphs,
    /// Contexts retained now.
    Contexts,
}

static VALUES: [AtomicU64; COUNTERS] = [const { AtomicU64::new(0) }; COUNTERS];

impl Counter {
    pub(crate) fn add(self, n: usize) {
        VALUES[self as usize].fetch_add(n as u64, Relaxed);
    }
    pub(crate) fn sub(self, n: usize) {
        VALUES[self as usize].fetch_sub(n as u64, Relaxed);
    }
}

/// Writes all numbers.
///
/// # Safety
/// `to` points to [`COUNTERS`] numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegula_stub_counters(to: *mut u64) {
    for (i, value) in VALUES.iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { to.add(i).write(value.load(Relaxed)) };
    }
}
