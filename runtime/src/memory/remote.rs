//! Memory that the host cannot reach by itself: a device's.

use super::Buffer;
use crate::{device::DeviceError, tensor::TensorError};
use std::{
    any::Any,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A block of a device's memory. Work on a device may be under way after the call that began it: these functions order
/// themselves after it.
pub trait DeviceMemory: Any + Send + Sync {
    /// Whose it is: `cuda:0`.
    fn place(&self) -> String;

    /// The first byte's address on the device; not 0.
    fn address(&self) -> u64;

    /// Length in bytes.
    fn bytes(&self) -> usize;

    /// A number that grows with each piece of work that writes it.
    fn version(&self) -> u64;

    /// Copies from byte `offset` on to the host, after all work that writes it.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies to byte `offset` on, after all work that uses it.
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError>;
}

/// A device's memory, with copies of it for host code that wants slices.
pub struct Remote {
    memory: Box<dyn DeviceMemory>,
    /// Its length, asked once: copies are as long as what is borrowed of them.
    bytes: usize,
    /// Copies by version, newest last. Older ones may still be borrowed.
    mirrors: Mutex<Vec<(u64, Buffer)>>,
    mirrored: AtomicBool,
}

/// Whether this process ever had memory of a device: until then nobody needs to ask where tensors are.
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether tensors may lie elsewhere than in the host's memory.
pub(crate) fn ever() -> bool {
    EVER.load(Relaxed)
}

impl Remote {
    pub(super) fn new(memory: Box<dyn DeviceMemory>) -> Remote {
        EVER.store(true, Relaxed);
        let bytes = memory.bytes();
        Remote { memory, bytes, mirrors: Mutex::default(), mirrored: AtomicBool::new(false) }
    }

    /// The memory itself.
    pub fn memory(&self) -> &dyn DeviceMemory {
        &*self.memory
    }

    /// Its length in bytes, as it was when the buffer was made.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory itself, if it is an `M`.
    pub fn downcast<M: DeviceMemory>(&self) -> Option<&M> {
        (&*self.memory as &dyn Any).downcast_ref()
    }

    /// The first byte of a copy of all of it as it is now. The copy lasts until [`Remote::forget_mirrors`], since it may be
    /// borrowed: without that, each piece of work that writes the memory leads to one more.
    pub(crate) fn mirror(&self) -> Result<*const u8, TensorError> {
        let mut mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked first: what is written meanwhile makes the copy old.
        let version = self.memory.version();
        if let Some((_, copy)) = mirrors.last().filter(|m| m.0 == version) {
            return Ok(copy.ptr());
        }
        let copy = Buffer::try_zeroed(self.bytes)?;
        // SAFETY: all of a buffer that nobody else has yet.
        self.memory.read(0, unsafe { std::slice::from_raw_parts_mut(copy.ptr(), copy.bytes()) })?;
        let start = copy.ptr();
        mirrors.push((version, copy));
        self.mirrored.store(true, Relaxed);
        Ok(start)
    }

    /// Frees the copies. The caller knows that nobody borrows them: the tensor is borrowed mutably.
    pub(crate) fn forget_mirrors(&self) {
        if self.mirrored.swap(false, Relaxed) {
            self.mirrors.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.memory.bytes(), self.memory.place())
    }
}
