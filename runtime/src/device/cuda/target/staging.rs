//! Small copies to a GPU: through pinned memory, so that the host need not wait for them.

use super::super::{CudaError, Event, Memory, Pinned, Stream};

/// Bytes of each half of the pinned memory. While one is filled, copies from the other end.
const HALF: usize = 256 << 10;
/// Copies of more bytes are worth a wait.
const LARGEST: usize = 32 << 10;
/// Copies start at multiples of so many bytes.
const STEP: usize = 64;

/// Pinned memory, once something was copied.
#[derive(Default)]
pub(super) struct Staging {
    ring: Option<Ring>,
}

struct Ring {
    pinned: Pinned,
    /// Reached when what was copied out of a half has left it.
    left: [Event; 2],
    /// The half that is filled, and its bytes in use.
    half: usize,
    used: usize,
}

impl Staging {
    /// Whether it copies so few bytes.
    pub fn takes(&self, from: &[u8]) -> bool {
        from.len() <= LARGEST
    }

    /// Makes room for a copy of at most [`LARGEST`] bytes, which may have to wait for earlier ones. `stream` is always the
    /// same.
    pub fn make_room(&mut self, stream: &Stream, bytes: usize) -> Result<(), CudaError> {
        let ring = match &mut self.ring {
            Some(ring) => ring,
            none => none.insert(Ring::new(stream)?),
        };
        if ring.used + bytes > HALF {
            ring.left[ring.half].record(stream)?;
            ring.left[1 - ring.half].synchronize()?;
            (ring.half, ring.used) = (1 - ring.half, 0);
        }
        Ok(())
    }

    /// Writes bytes that there is room for, after what is in `stream`. `from` can be used again at once.
    pub fn write(&mut self, stream: &Stream, to: &Memory, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        let ring = self.ring.as_mut().filter(|r| r.used + from.len() <= HALF);
        let ring = ring.ok_or_else(|| CudaError::Usage("a copy without room for it".into()))?;
        let start = ring.half * HALF + ring.used;
        let part = start..start + from.len();
        ring.pinned[part.clone()].copy_from_slice(from);
        ring.used = (ring.used + from.len()).next_multiple_of(STEP);
        // SAFETY: these bytes are written again only after the event of their half.
        unsafe { to.write_later(stream, offset, &ring.pinned[part]) }
    }
}

impl Ring {
    fn new(stream: &Stream) -> Result<Ring, CudaError> {
        let gpu = stream.gpu();
        let left = [Event::new(gpu)?, Event::new(gpu)?];
        Ok(Ring { pinned: Pinned::new(gpu, 2 * HALF)?, left, half: 0, used: 0 })
    }
}
