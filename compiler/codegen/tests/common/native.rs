//! Runs what the compiler made for the host's processor.

use std::{ffi::c_void, sync::Mutex};
use tegula_ir::{
    abi::{Ctx, ENTRY, EntryFn, FLAG_CHECKED},
    protocol::Meta,
};

/// The instruction sets that this machine runs.
pub fn targets() -> Vec<&'static str> {
    let mut all = vec![];
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
        all.push("cpu:x86-64-v3");
    }
    if is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
    {
        all.push("cpu:x86-64-v4");
    }
    all
}

/// What a run reported: (site, program, value).
pub type Reports = Vec<(u32, u64, i64)>;

/// Loads a shared object and runs the whole grid.
pub fn call(code: &[u8], meta: &Meta, words: &[u64], grid: [i32; 3], checked: bool) -> Reports {
    call_first(grid.iter().map(|g| *g as u64).product(), code, meta, words, grid, checked)
}

/// Loads a shared object and runs the first programs of a grid.
pub fn call_first(programs: u64, code: &[u8], meta: &Meta, words: &[u64], grid: [i32; 3], checked: bool) -> Reports {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.so");
    std::fs::write(&file, code).unwrap();
    // SAFETY: the object was made just now and its entry has this type.
    let library = unsafe { libloading::Library::new(&file) }.unwrap();
    let entry: libloading::Symbol<EntryFn> = unsafe { library.get(ENTRY.as_bytes()) }.unwrap();
    let reports: Mutex<Reports> = Mutex::default();
    extern "C" fn report(ctx: *const Ctx, site: u32, program: u64, value: i64) {
        // SAFETY: `user` is the mutex below, alive during the call.
        let reports = unsafe { &*(*ctx).user.cast::<Mutex<Reports>>() };
        reports.lock().unwrap().push((site, program, value));
    }
    let user = (&raw const reports).cast_mut().cast::<c_void>();
    let ctx = Ctx { grid, flags: if checked { FLAG_CHECKED } else { 0 }, report, user };
    #[repr(align(64))]
    #[derive(Clone)]
    struct Line([u8; 64]);
    let mut scratch = vec![Line([0xcd; 64]); meta.scratch_bytes as usize / 64 + 2];
    // SAFETY: arguments by the ABI, scratch of the size asked for.
    unsafe { entry(words.as_ptr(), &ctx, 0, programs, scratch.as_mut_ptr().cast()) };
    let guard = &scratch[meta.scratch_bytes.div_ceil(64) as usize].0;
    assert!(guard.iter().all(|b| *b == 0xcd), "wrote past the scratch memory");
    reports.into_inner().unwrap()
}
