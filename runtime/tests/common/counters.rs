//! What the stub counted.

#![allow(dead_code)]

/// The stub's numbers, in the order of `tegula_stub::Counter`.
pub fn counters() -> [u64; 11] {
    // SAFETY: the library is loaded already; the function writes so many numbers.
    unsafe {
        let stub = libloading::Library::new("libcuda.so.1").expect("the stub");
        let get = stub.get::<unsafe extern "C" fn(*mut u64)>(b"tegula_stub_counters").expect("it is the stub");
        let mut all = [0; 11];
        get(all.as_mut_ptr());
        all
    }
}

/// Places in [`counters`].
pub const LAUNCHES: usize = 0;
pub const COPIES: usize = 1;
pub const BLOCKS: usize = 2;
pub const PINNED: usize = 4;
pub const STREAMS: usize = 5;
pub const EVENTS: usize = 6;
