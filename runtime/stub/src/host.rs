//! Pinned memory of the host.

use crate::{
    code::{Code, INVALID_VALUE, OUT_OF_MEMORY},
    counters::Counter,
    table::lock,
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::BTreeMap,
    sync::Mutex,
};

/// Lengths by address.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn layout(bytes: usize) -> Result<Layout, Code> {
    Layout::from_size_align(bytes, 4096).map_err(|_| OUT_OF_MEMORY)
}

pub fn allocate(bytes: usize) -> Result<*mut u8, Code> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the size is not 0.
    let ptr = unsafe { alloc_zeroed(layout(bytes)?) };
    if ptr.is_null() {
        return Err(OUT_OF_MEMORY);
    }
    lock(&PINNED).insert(ptr.addr(), bytes);
    Counter::Pinned.add(1);
    Ok(ptr)
}

pub fn free(ptr: *mut u8) -> Result<(), Code> {
    let bytes = lock(&PINNED).remove(&ptr.addr()).ok_or(INVALID_VALUE)?;
    // SAFETY: allocated with this layout.
    unsafe { dealloc(ptr, layout(bytes)?) };
    Counter::Pinned.sub(1);
    Ok(())
}

/// Whether all of it is pinned.
pub fn is_pinned(ptr: *const u8, bytes: usize) -> bool {
    let pinned = lock(&PINNED);
    pinned.range(..=ptr.addr()).next_back().is_some_and(|(start, len)| ptr.addr() + bytes <= start + len)
}
