//! Global memory: allocations at made-up device addresses, never host pointers, so that runs are repeatable.

use super::{GLOBAL_BASE, Space, access::Region};
use std::cell::UnsafeCell;

/// Bytes between allocations, so that running off one's end does not reach the next.
const GAP: u64 = 4096;
/// Alignment of every allocation, as on the device.
const ALIGN: u64 = 512;

/// Bytes that emulated threads on several host threads may touch at once. Only raw pointers go into it while a launch
/// runs; a race there is the kernel's own.
struct Bytes(Box<[UnsafeCell<u128>]>);

// SAFETY: access goes through raw pointers; which bytes two kernels' threads may touch at once is the kernel's business,
// as on a device. The host API takes `&mut Memory`, so nothing of the host races with a launch.
unsafe impl Sync for Bytes {}
// SAFETY: plain bytes.
unsafe impl Send for Bytes {}

impl Bytes {
    fn new(len: usize) -> Bytes {
        let words = len.div_ceil(16) + 1;
        // Large zeroed vectors come from fresh pages.
        let zeroed: Vec<u128> = vec![0; words];
        // SAFETY: UnsafeCell<u128> has the layout of u128.
        let cells = unsafe { Box::from_raw(Box::into_raw(zeroed.into_boxed_slice()) as *mut [UnsafeCell<u128>]) };
        Bytes(cells)
    }

    fn ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// Where an allocation's bytes are.
enum Data {
    Own(Bytes),
    /// The host's, lent to the device: see [`Memory::map`].
    Lent(*mut u8),
}

// SAFETY: as for `Bytes`; lent memory is reachable for as long as the memory uses it, by the contract of `map`.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    fn ptr(&self) -> *mut u8 {
        match self {
            Data::Own(bytes) => bytes.ptr(),
            Data::Lent(ptr) => *ptr,
        }
    }
}

struct Allocation {
    address: u64,
    len: u64,
    data: Data,
    /// One byte per byte: 1 where something was written. None when all of it is initialised.
    shadow: Option<Bytes>,
    name: String,
    read_only: bool,
    freed: bool,
}

impl Allocation {
    fn region(&self) -> Region {
        Region {
            base: self.data.ptr(),
            shadow: self.shadow.as_ref().map_or(std::ptr::null_mut(), Bytes::ptr),
            start: self.address,
            end: self.address + self.len,
            lane_stride: 0,
            read_only: self.read_only,
        }
    }
}

/// A device address could not be used by the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

/// All global memory of an emulated device.
#[derive(Default)]
pub struct Memory {
    /// By rising address; freed ones stay for messages, without data.
    allocations: Vec<Allocation>,
}

impl Memory {
    /// Empty memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates `bytes`, uninitialised (they read as zero, and strict mode says so), and gives the address. `name` is
    /// for messages.
    pub fn alloc(&mut self, name: &str, bytes: usize) -> u64 {
        self.place(name, bytes, 0, Data::Own(Bytes::new(bytes)), Some(Bytes::new(bytes)), false)
    }

    /// Lends `bytes` bytes of the host to the device, without a copy, and gives their address, which is aligned as `ptr` is,
    /// up to 64 bytes. `initialised`: whether they mean something; otherwise strict mode reports reads before writes.
    /// Several allocations may share host bytes.
    ///
    /// # Safety
    /// As long as this memory lives, or until the allocation is freed: `ptr` is valid for reads of `bytes` bytes, and for
    /// writes unless `read_only`; while a launch runs, nobody else touches what its kernel touches.
    pub unsafe fn map(&mut self, name: &str, ptr: *mut u8, bytes: usize, read_only: bool, initialised: bool) -> u64 {
        let shadow = (!initialised).then(|| Bytes::new(bytes));
        self.place(name, bytes, ptr.addr() as u64 % 64, Data::Lent(ptr), shadow, read_only)
    }

    /// As [`Memory::map`], at an address of the caller's, which lies above all that is there. Initialised.
    ///
    /// # Errors
    /// The address does not.
    ///
    /// # Safety
    /// As for [`Memory::map`].
    pub unsafe fn map_at(&mut self, address: u64, name: &str, ptr: *mut u8, bytes: usize) -> Result<(), MemoryError> {
        let free = self.allocations.last().map_or(GLOBAL_BASE, |a| a.address + a.len);
        let (len, name, data) = (bytes as u64, name.to_string(), Data::Lent(ptr));
        if address < free || address.checked_add(len).is_none() {
            return Err(MemoryError(format!("`{name}` at {address:#x}: expected an address from {free:#x} on")));
        }
        self.allocations.push(Allocation { address, len, data, shadow: None, name, read_only: false, freed: false });
        Ok(())
    }

    /// Adds an allocation `skew` bytes past an aligned address.
    fn place(
        &mut self,
        name: &str,
        bytes: usize,
        skew: u64,
        data: Data,
        shadow: Option<Bytes>,
        read_only: bool,
    ) -> u64 {
        let free = self.allocations.last().map_or(GLOBAL_BASE, |a| a.address + a.len + GAP);
        let address = free.next_multiple_of(ALIGN) + skew;
        let (len, name) = (bytes as u64, name.to_string());
        self.allocations.push(Allocation { address, len, data, shadow, name, read_only, freed: false });
        address
    }

    /// Allocates and writes `bytes`.
    pub fn alloc_with(&mut self, name: &str, bytes: &[u8]) -> u64 {
        let address = self.alloc(name, bytes.len());
        if let Some(a) = self.allocations.last_mut() {
            a.shadow = None;
            // SAFETY: the allocation has bytes.len() bytes; nothing else uses it, we hold &mut.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), a.data.ptr(), bytes.len()) };
        }
        address
    }

    /// Makes the allocation at `address` read-only for kernels.
    pub fn protect(&mut self, address: u64) {
        if let Some(i) = self.position(address) {
            self.allocations[i].read_only = true;
        }
    }

    /// Frees the allocation that starts at `address`.
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        match self.position(address) {
            Some(i) if self.allocations[i].address == address && !self.allocations[i].freed => {
                let a = &mut self.allocations[i];
                a.freed = true;
                a.data = Data::Own(Bytes::new(0));
                a.shadow = None;
                Ok(())
            }
            _ => Err(MemoryError(format!("free of {address:#x}: {}", self.describe(address)))),
        }
    }

    /// Copies host bytes to the device.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let i = self.range(address, bytes.len(), "write")?;
        let a = &mut self.allocations[i];
        if a.read_only {
            return Err(MemoryError(format!("write at {address:#x}: `{}` is read-only", a.name)));
        }
        let at = (address - a.address) as usize;
        if let Some(shadow) = &a.shadow {
            if bytes.len() as u64 == a.len {
                a.shadow = None;
            } else {
                // SAFETY: `range` checked the extent; the shadow has as many bytes.
                unsafe { std::ptr::write_bytes(shadow.ptr().add(at), 1, bytes.len()) };
            }
        }
        // SAFETY: `range` checked the extent; we hold &mut.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), a.data.ptr().add(at), bytes.len()) };
        Ok(())
    }

    /// Copies device bytes to the host, initialised or not.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let i = self.range(address, bytes.len(), "read")?;
        let a = &self.allocations[i];
        // SAFETY: `range` checked the extent; no launch runs, since launches borrow the memory's owner mutably.
        unsafe {
            let from = a.data.ptr().add((address - a.address) as usize);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    /// `len` bytes from `address`.
    pub fn read_vec(&self, address: u64, len: usize) -> Result<Vec<u8>, MemoryError> {
        let mut out = vec![0; len];
        self.read(address, &mut out)?;
        Ok(out)
    }

    /// Where the allocation that holds `address` lies; what an access path caches.
    pub fn region(&self, address: u64) -> Option<Region> {
        let a = &self.allocations[self.position(address)?];
        (!a.freed && address < a.address + a.len).then(|| a.region())
    }

    /// What lies at or near `address`, for messages.
    pub fn describe(&self, address: u64) -> String {
        let Some(i) = self.position(address) else {
            return match self.allocations.first() {
                None => "no memory is allocated".into(),
                Some(a) => format!("it lies {} bytes before the first allocation, `{}`", a.address - address, a.name),
            };
        };
        let a = &self.allocations[i];
        let (end, state) = (a.address + a.len, if a.freed { "freed allocation" } else { "allocation" });
        if address < end {
            format!("it lies {} bytes inside of {state} `{}` of {} bytes", address - a.address, a.name, a.len)
        } else {
            format!("it lies {} bytes past the end of {state} `{}` of {} bytes", address - end, a.name, a.len)
        }
    }

    /// The last allocation that starts at or before `address`.
    fn position(&self, address: u64) -> Option<usize> {
        self.allocations.partition_point(|a| a.address <= address).checked_sub(1)
    }

    fn range(&self, address: u64, len: usize, what: &str) -> Result<usize, MemoryError> {
        let fits =
            |a: &Allocation| !a.freed && address - a.address <= a.len && len as u64 <= a.len - (address - a.address);
        match self.position(address) {
            Some(i) if fits(&self.allocations[i]) => Ok(i),
            _ => Err(MemoryError(format!(
                "{what} of {len} bytes at {:#x} in {} memory: {}",
                address,
                Space::Global.name(),
                self.describe(address)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut memory = Memory::new();
        let a = memory.alloc("a", 100);
        let b = memory.alloc_with("b", &[7; 33]);
        assert!(b >= a + 100 + GAP && b.is_multiple_of(ALIGN));
        memory.write(a + 3, &[1, 2, 3]).unwrap();
        assert_eq!(memory.read_vec(a + 2, 5).unwrap(), [0, 1, 2, 3, 0]);
        assert_eq!(memory.read_vec(b, 33).unwrap(), [7; 33]);
    }

    #[test]
    fn lent_memory_is_the_hosts_own_and_as_aligned() {
        let mut memory = Memory::new();
        let mut words = [5u64; 40];
        let ptr = words.as_mut_ptr().cast::<u8>();
        // SAFETY: the words outlive the memory, which alone uses them meanwhile.
        let (a, b) = unsafe { (memory.map("a", ptr.add(8), 64, false, true), memory.map("b", ptr, 320, true, true)) };
        assert_eq!((a % 64, b % 64), ((ptr.addr() as u64 + 8) % 64, ptr.addr() as u64 % 64));
        memory.write(a + 8, &7u64.to_le_bytes()).unwrap();
        assert_eq!(memory.read_vec(b + 16, 8).unwrap(), 7u64.to_le_bytes());
        assert!(memory.write(b, &[0; 8]).unwrap_err().to_string().contains("`b` is read-only"));
        memory.free(a).unwrap();
        assert!(memory.read_vec(a, 1).is_err());
        assert_eq!(words[2], 7);
    }

    #[test]
    fn memory_is_mapped_where_the_caller_wants_it_in_rising_order() {
        let mut memory = Memory::new();
        let mut bytes = [1u8, 2, 3, 4];
        let ptr = bytes.as_mut_ptr();
        // SAFETY: the bytes outlive the memory, which alone uses them meanwhile.
        let mut map = |address| unsafe { memory.map_at(address, "m", ptr, 4).map_err(|e| e.to_string()) };
        assert_eq!(map(GLOBAL_BASE + 12), Ok(()));
        let wrong = map(GLOBAL_BASE + 15).unwrap_err();
        assert!(wrong.contains(&format!("expected an address from {:#x} on", GLOBAL_BASE + 16)), "{wrong}");
        assert!(map(GLOBAL_BASE - 8).is_err() && map(u64::MAX - 2).is_err());
        assert_eq!(map(GLOBAL_BASE + 16), Ok(()));
        assert_eq!(memory.read_vec(GLOBAL_BASE + 13, 2).unwrap(), [2, 3]);
        assert!(memory.alloc("after", 8) >= GLOBAL_BASE + 20 + GAP);
    }

    #[test]
    fn the_host_is_checked_too() {
        let mut memory = Memory::new();
        let a = memory.alloc("weights", 8);
        let error = memory.write(a + 4, &[0; 8]).unwrap_err().to_string();
        assert!(error.contains("`weights` of 8 bytes"), "{error}");
        memory.free(a).unwrap();
        let error = memory.read_vec(a, 1).unwrap_err().to_string();
        assert!(error.contains("freed allocation `weights`"), "{error}");
        assert!(memory.free(a).is_err());
    }
}
