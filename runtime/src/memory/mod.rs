//! Memory for tensors: the host's, aligned to cache lines, large blocks on huge pages; a file mapped read-only; a device's.

mod remote;

pub(crate) use remote::ever as devices_have_memory;
pub use remote::{DeviceMemory, Remote};

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fs::File,
    io,
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Alignment of every buffer that is allocated here, in bytes.
pub const ALIGN: usize = 64;

/// Blocks of at least this size are mapped on their own and offered huge pages.
const HUGE: usize = 2 << 20;

/// A block of memory. Dropping it frees or unmaps it.
#[derive(Debug)]
pub struct Buffer {
    ptr: NonNull<u8>,
    bytes: usize,
    kind: Kind,
    /// See [`Buffer::written`].
    written: AtomicBool,
}

#[derive(Debug)]
enum Kind {
    /// No memory.
    Empty,
    /// From the allocator.
    Heap(Layout),
    /// An anonymous mapping; pages appear, zeroed, when they are touched.
    Anonymous(#[allow(dead_code, reason = "owns the mapping")] Anonymous),
    /// A file, read-only.
    File(#[allow(dead_code, reason = "owns the mapping")] memmap2::Mmap),
    /// On a device: the host must not follow the pointer.
    Remote(Remote),
}

// SAFETY: a buffer is plain memory that it owns; who may write is decided by the owner of the buffer.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// Memory that the system does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {bytes} bytes")]
pub struct OutOfMemory {
    /// What was asked for.
    pub bytes: usize,
}

impl Buffer {
    fn new(ptr: NonNull<u8>, bytes: usize, kind: Kind) -> Buffer {
        Buffer { ptr, bytes, kind, written: AtomicBool::new(true) }
    }

    /// `bytes` bytes of zeros.
    pub fn try_zeroed(bytes: usize) -> Result<Buffer, OutOfMemory> {
        let error = OutOfMemory { bytes };
        if bytes == 0 {
            return Ok(Buffer::new(NonNull::<Line>::dangling().cast(), bytes, Kind::Empty));
        }
        if bytes >= HUGE && cfg!(unix) {
            let map = Anonymous::new(bytes).ok_or(error)?;
            return Ok(Buffer::new(map.aligned, bytes, Kind::Anonymous(map)));
        }
        let layout = Layout::from_size_align(bytes, ALIGN).map_err(|_| error.clone())?;
        // SAFETY: the layout's size is not 0.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(error)?;
        Ok(Buffer::new(ptr, bytes, Kind::Heap(layout)))
    }

    /// `bytes` bytes of zeros; as with `Vec`, the process ends when there is no memory.
    pub fn zeroed(bytes: usize) -> Buffer {
        Buffer::try_zeroed(bytes).unwrap_or_else(|_| {
            handle_alloc_error(Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<u8>()))
        })
    }

    /// A block of a device's memory.
    pub fn on_device(memory: impl DeviceMemory) -> Buffer {
        let remote = Remote::new(Box::new(memory));
        let (memory, bytes) = (remote.memory(), remote.bytes());
        // An address of a device is not 0; it is never followed here.
        let address = std::ptr::without_provenance_mut(memory.address() as usize);
        let ptr = NonNull::new(address).unwrap_or(NonNull::dangling());
        Buffer::new(ptr, bytes, Kind::Remote(remote))
    }

    /// A whole file, mapped read-only: nothing is read before it is used, and the system may drop pages again. The file
    /// must not be changed meanwhile (written in place or cut): what is read then is unspecified, or the process gets
    /// SIGBUS.
    pub fn map_file(path: &Path) -> io::Result<Buffer> {
        // Before it is opened: a pipe would wait for its writer.
        let meta = std::fs::metadata(path)?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !meta.is_file() {
            return Err(io::Error::other("no ordinary file, and others cannot be mapped"));
        }
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Buffer::zeroed(0));
        }
        // SAFETY: read-only; the caller keeps the file unchanged, as documented.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        let ptr = NonNull::from(&map[0]);
        Ok(Buffer::new(ptr, map.len(), Kind::File(map)))
    }

    /// The first byte. Dangling (but aligned) when there is none; an address of the device's when it is [`Buffer::remote`].
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device's memory, if it is not the host's.
    pub fn remote(&self) -> Option<&Remote> {
        match &self.kind {
            Kind::Remote(remote) => Some(remote),
            _ => None,
        }
    }

    /// Whether it may be written: not so for a mapped file.
    pub fn writable(&self) -> bool {
        !matches!(self.kind, Kind::File(_))
    }

    /// Whether the contents mean something: false for outputs that nothing has been written to. The oracle's sanitizer
    /// asks this.
    pub fn written(&self) -> bool {
        self.written.load(Relaxed)
    }

    pub(crate) fn set_written(&self, written: bool) {
        self.written.store(written, Relaxed)
    }

    /// Tells the system that a range of a mapped file will not be used for a while: its pages may go, and are read from
    /// the file again if they are used. Does nothing for other memory.
    pub fn drop_pages(&self, from: usize, bytes: usize) {
        #[cfg(unix)]
        if let Kind::File(map) = &self.kind {
            let page = 4096;
            let (from, to) = (from.next_multiple_of(page), from.saturating_add(bytes).min(map.len()) / page * page);
            if from < to {
                // SAFETY: a private read-only mapping of a file: dropped pages come back with the same contents.
                let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from) };
            }
        }
        #[cfg(not(unix))]
        let _ = (from, bytes);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Kind::Heap(layout) = self.kind {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}

#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its alignment counts")] u8);

/// An anonymous mapping, with a start aligned to a huge page.
#[derive(Debug)]
struct Anonymous {
    base: *mut libc::c_void,
    len: usize,
    aligned: NonNull<u8>,
}

#[cfg(unix)]
impl Anonymous {
    fn new(bytes: usize) -> Option<Anonymous> {
        let len = bytes.checked_add(HUGE)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, of no file, where the system likes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let skip = base.addr().next_multiple_of(HUGE) - base.addr();
        // SAFETY: skip < HUGE, so this stays inside the mapping.
        let start = unsafe { base.cast::<u8>().add(skip) };
        #[cfg(target_os = "linux")]
        // SAFETY: inside the mapping. Only advice: a refusal changes nothing but speed.
        unsafe {
            libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        Some(Anonymous { base, len, aligned: NonNull::new(start)? })
    }
}

#[cfg(not(unix))]
impl Anonymous {
    fn new(_: usize) -> Option<Anonymous> {
        None
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: exactly what was mapped.
        unsafe {
            libc::munmap(self.base, self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn memory_is_aligned_and_zero_at_any_size() {
        for bytes in [0, 1, 63, 64, 4097, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 17] {
            let b = Buffer::try_zeroed(bytes).unwrap();
            assert_eq!(b.ptr().addr() % if bytes < HUGE { ALIGN } else { HUGE }, 0, "{bytes}");
            assert!(b.writable());
            // SAFETY: inside the buffer, which is this test's alone.
            let all = unsafe { std::slice::from_raw_parts_mut(b.ptr(), bytes) };
            assert!(all.iter().all(|x| *x == 0));
            all.fill(0xa5);
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert_eq!(Buffer::try_zeroed(usize::MAX).unwrap_err().bytes, usize::MAX);
        assert!(Buffer::try_zeroed(1 << 60).is_err());
    }

    #[test]
    fn a_mapped_file_reads_as_the_file_before_and_after_its_pages_are_dropped() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        file.write_all(&content).unwrap();
        let b = Buffer::map_file(file.path()).unwrap();
        assert!(!b.writable());
        // SAFETY: the mapping is as long as `b`.
        let view = unsafe { std::slice::from_raw_parts(b.ptr(), b.bytes()) };
        assert_eq!(view, content);
        b.drop_pages(100, 15_000);
        b.drop_pages(0, usize::MAX);
        assert_eq!(view, content);
        let error = |path: &str| Buffer::map_file(Path::new(path)).err().map(|e| e.to_string());
        assert!(error("/no/such/file").is_some());
        assert_eq!(error("/").as_deref(), Some("is a directory"));
        assert_eq!(error("/dev/null").as_deref(), Some("no ordinary file, and others cannot be mapped"));
        assert_eq!(Buffer::map_file(tempfile::NamedTempFile::new().unwrap().path()).unwrap().bytes(), 0);
    }
}
