//! A damaged GGUF file must not make the reader allocate more than the file's size justifies. One test per process,
//! because it counts every allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tegula_engine::gguf::{GgmlType, Gguf, Writer};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: forwards to the system allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Overwrites every 8 bytes of the file in turn by huge numbers and watches the peak.
#[test]
fn absurd_counts_do_not_allocate() {
    let mut writer = Writer::new();
    writer.meta("a", "text").meta("names", ["x", "yz"].as_slice()).meta("scores", [1f32; 9].as_slice()).tensor(
        "w",
        &[64, 3],
        GgmlType::Q4_1,
        vec![1; 120],
    );
    let good = writer.finish();
    let mut opened = 0;
    for at in 0..good.len() - 8 {
        for value in [u64::MAX, u64::MAX >> 1, 1 << 40, 1 << 30, 1 << 24] {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let before = LIVE.load(Relaxed);
            PEAK.store(before, Relaxed);
            opened += usize::from(Gguf::from_bytes("damaged", bytes).is_ok());
            let used = PEAK.load(Relaxed) - before;
            assert!(used < 16 * good.len(), "{value:#x} at byte {at}: {used} bytes for a file of {}", good.len());
        }
    }
    assert!(opened > 0, "damage in tensor data is not noticed by opening");
}
