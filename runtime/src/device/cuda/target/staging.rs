//! Small copies to a GPU: through pinned memory, so that the host need not wait for them.

use super::super::{CudaError, Event, Memory, Pinned, Stream};

/// Bytes of each half of the pinned memory. While one is filled, copies from the other end.
const HALF: usize = 256 << 10;
/// Copies of more bytes are worth a wait.
const LARGEST: usize = 32 << 10;

/// Pinned memory, once something was copied.
#[derive(Default)]
pub(super) struct Staging {
    ring: Option<Ring>,
}

struct Ring {
    pinned: Pinned,
    /// Reached when what was copied out of a half has left it.
    left: [Event; 2],
    /// The next byte to use.
    at: usize,
}

impl Staging {
    /// Whether it copies so few bytes.
    pub fn takes(&self, from: &[u8]) -> bool {
        from.len() <= LARGEST
    }

    /// Writes at most [`LARGEST`] bytes, after what is in `stream`, which is always the same. `from` can be used again at
    /// once.
    pub fn write(&mut self, stream: &Stream, to: &Memory, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        let ring = match &mut self.ring {
            Some(ring) => ring,
            none => none.insert(Ring::new(stream)?),
        };
        let half = ring.at / HALF;
        if ring.at + from.len() > (half + 1) * HALF {
            ring.left[half].record(stream)?;
            let next = 1 - half;
            ring.left[next].synchronize()?;
            ring.at = next * HALF;
        }
        let part = ring.at..ring.at + from.len();
        ring.pinned[part.clone()].copy_from_slice(from);
        // A half is never passed by more than its end.
        ring.at = part.end.next_multiple_of(64).min((ring.at / HALF + 1) * HALF - 1);
        // SAFETY: these bytes are written again only after the event of their half.
        unsafe { to.write_later(stream, offset, &ring.pinned[part]) }
    }
}

impl Ring {
    fn new(stream: &Stream) -> Result<Ring, CudaError> {
        let gpu = stream.gpu();
        let left = [Event::new(gpu)?, Event::new(gpu)?];
        Ok(Ring { pinned: Pinned::new(gpu, 2 * HALF)?, left, at: 0 })
    }
}
