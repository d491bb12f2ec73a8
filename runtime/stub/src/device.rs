//! Devices and their memory.

use crate::{
    code::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY},
    config::config,
    counters::Counter,
    table::lock,
};
use std::{
    cell::UnsafeCell,
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

/// Work that failed: the driver's number, and what happened.
pub struct Failure(pub Code, pub String);

/// A device.
pub struct Device {
    pub ordinal: usize,
    /// By address, rising. Those whose allocation was reached, and whose end was not.
    memory: Mutex<BTreeMap<u64, Arc<Block>>>,
    used: AtomicUsize,
    /// The error that all calls give once a kernel failed, or 0.
    error: AtomicU32,
    /// Pieces of work in all streams, those that were destroyed with work left included.
    pending: Mutex<usize>,
    idle: Condvar,
}

/// All devices.
pub fn devices() -> &'static [Arc<Device>] {
    static DEVICES: OnceLock<Vec<Arc<Device>>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let new = |ordinal| Device {
            ordinal,
            memory: Mutex::default(),
            used: AtomicUsize::new(0),
            error: AtomicU32::new(0),
            pending: Mutex::default(),
            idle: Condvar::new(),
        };
        (0..config().devices).map(|i| Arc::new(new(i))).collect()
    })
}

/// A block of a device's memory: bytes that kernels and copies may touch at once, as on a device.
pub struct Block {
    pub address: u64,
    pub bytes: usize,
    data: Box<[UnsafeCell<u128>]>,
    /// Whether somebody asked to free it.
    freed: AtomicBool,
}

// SAFETY: bytes are reached by raw pointers alone; who touches which when is the program's business, as on a device.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub fn ptr(&self) -> *mut u8 {
        self.data.as_ptr().cast_mut().cast()
    }

    fn fill(&self, value: u8) {
        // SAFETY: inside the block.
        unsafe { self.ptr().write_bytes(value, self.bytes) };
    }
}

/// What new memory is full of, and what freed memory is.
const GARBAGE: u8 = 0xcd;
const POISON: u8 = 0xdb;
/// Addresses of devices: no address of the host's, and none twice.
static NEXT: AtomicU64 = AtomicU64::new(0xd_0000_0000_0000);

impl Device {
    /// The error of an earlier kernel, if there was one.
    pub fn check(&self) -> Result<(), Code> {
        match self.error.load(SeqCst) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Every call from now on fails.
    pub fn fail(&self, Failure(code, what): Failure) {
        if self.error.compare_exchange(0, code, SeqCst, SeqCst).is_ok() {
            eprintln!("tegula-stub: cuda:{}: {what}", self.ordinal);
        }
    }

    /// A piece of work was put into a stream.
    pub fn begin(&self) {
        *lock(&self.pending) += 1;
    }

    /// A piece of work is done.
    pub fn end(&self) {
        *lock(&self.pending) -= 1;
        self.idle.notify_all();
    }

    /// Waits until all streams are done.
    pub fn synchronize(&self) {
        let mut pending = lock(&self.pending);
        while *pending > 0 {
            pending = self.idle.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn free_bytes(&self) -> usize {
        config().memory_bytes.saturating_sub(self.used.load(SeqCst))
    }

    /// A block, which is there once [`Device::appear`] is reached.
    pub fn allocate(&self, bytes: usize) -> Result<Arc<Block>, Code> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let used = self.used.fetch_add(bytes, SeqCst);
        if used.checked_add(bytes).is_none_or(|n| n > config().memory_bytes) {
            self.used.fetch_sub(bytes, SeqCst);
            return Err(OUT_OF_MEMORY);
        }
        let address = NEXT.fetch_add((bytes as u64).next_multiple_of(512) + 4096, SeqCst).next_multiple_of(512);
        let data = (0..bytes.div_ceil(16)).map(|_| UnsafeCell::new(0)).collect();
        let block = Block { address, bytes, data, freed: AtomicBool::new(false) };
        block.fill(GARBAGE);
        Counter::Blocks.add(1);
        Counter::Bytes.add(bytes);
        Ok(Arc::new(block))
    }

    pub fn appear(&self, block: &Arc<Block>) {
        lock(&self.memory).insert(block.address, block.clone());
    }

    /// Marks the block at an address as one that will be freed.
    pub fn begin_free(&self, address: u64) -> Result<(), Code> {
        let memory = lock(&self.memory);
        // Allocations that no stream has reached yet are unknown here; the stream finds out.
        match memory.get(&address) {
            Some(block) if block.freed.swap(true, SeqCst) => Err(INVALID_VALUE),
            _ => Ok(()),
        }
    }

    /// The block at that address is no more.
    pub fn disappear(&self, address: u64) -> Result<(), Failure> {
        let Some(block) = lock(&self.memory).remove(&address) else {
            return Err(Failure(INVALID_VALUE, format!("free of {address:#x}, where no memory starts")));
        };
        block.fill(POISON);
        self.used.fetch_sub(block.bytes, SeqCst);
        Counter::Blocks.sub(1);
        Counter::Bytes.sub(block.bytes);
        Ok(())
    }

    /// All blocks, by rising address.
    pub fn blocks(&self) -> Vec<Arc<Block>> {
        lock(&self.memory).values().cloned().collect()
    }

    /// The block that holds `bytes` bytes from `address` on, and the first of them.
    pub fn reach(&self, address: u64, bytes: usize) -> Result<(Arc<Block>, *mut u8), Failure> {
        let memory = lock(&self.memory);
        let block = memory.range(..=address).next_back().map(|b| b.1);
        match block.filter(|b| (address - b.address).checked_add(bytes as u64).is_some_and(|e| e <= b.bytes as u64)) {
            // SAFETY: inside the block.
            Some(block) => Ok((block.clone(), unsafe { block.ptr().add((address - block.address) as usize) })),
            None => Err(Failure(
                ILLEGAL_ADDRESS,
                format!(
                    "{bytes} bytes at {address:#x}: no memory is there now (it may have been freed, or is still to come)"
                ),
            )),
        }
    }
}
