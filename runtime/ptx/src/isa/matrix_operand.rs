//! wgmma's matrix descriptors: where the rows of A and the columns of B lie in shared memory.
//!
//! A descriptor holds, in units of 16 bytes, the start (bits 0-13), the leading dimension's byte offset L (16-29) and the
//! stride dimension's byte offset S (32-45); a base offset (49-51); the swizzle (62-63: none, 128, 64, 32 bytes). With
//! `span` the swizzle's bytes (16 for none), element (line, byte b along k) of a k-major operand lies at
//!
//! * `line mod 8 · span + line div 8 · S + b` (without swizzle: the second 16 bytes along k at `L`),
//!
//! and, of an operand that is major in lines (16-bit elements only), element (line, k) at
//!
//! * `line mod (span/2) · 2 + line div (span/2) · L + k mod 8 · span + k div 8 · S` (without swizzle S and L change places),
//!
//! from the start; then address bits 4-6 (4-5, 4) are XORed with bits 7-9 (7-8, 7), counted from the base offset.

use crate::{
    exec::{
        fault::{Fault, FaultKind},
        op::Cx,
    },
    mem::{
        access::{PENDING, WRITTEN},
        races::Access,
        watch::Touch,
    },
};

/// Bytes along k of one instruction's operands.
pub const TILE_K: usize = 32;

/// Which elements are neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// Those along k.
    K,
    /// Those of neighbouring rows of A or columns of B.
    Mn,
}

/// A matrix operand in shared memory.
pub struct Operand {
    /// Order.
    pub major: Major,
    /// Bytes of an element.
    pub size: usize,
    /// Rows of A, or columns of B.
    pub lines: usize,
}

/// A descriptor taken apart; offsets in bytes.
struct Descriptor {
    start: usize,
    leading: usize,
    stride: usize,
    base: usize,
    span: usize,
    /// Mask of the XORed bits.
    pieces: usize,
}

impl Descriptor {
    fn new(bits: u64) -> Descriptor {
        let field = |at: u32| ((bits >> at & 0x3fff) << 4) as usize;
        let (span, pieces) = match bits >> 62 {
            0 => (16, 0),
            1 => (128, 7),
            2 => (64, 3),
            _ => (32, 1),
        };
        Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base: (bits >> 49 & 7) as usize,
            span,
            pieces,
        }
    }

    fn swizzle(&self, address: usize) -> usize {
        address ^ ((address >> 7).wrapping_sub(self.base) & self.pieces) << 4
    }

    /// Address of 16 bytes along k of a line (`half` 0 or 1), k-major.
    fn along_k(&self, line: usize, half: usize) -> usize {
        let second = if self.span == 16 { self.leading } else { 16 };
        self.swizzle(self.start + line % 8 * self.span + line / 8 * self.stride + half * second)
    }

    /// Address of 16 bytes along lines (8 elements from a multiple of 8) of a k, line-major.
    fn along_lines(&self, line: usize, k: usize) -> usize {
        let (outer_line, outer_k) =
            if self.span == 16 { (self.stride, self.leading) } else { (self.leading, self.stride) };
        let per = self.span / 2;
        self.swizzle(self.start + line % per * 2 + line / per * outer_line + k % 8 * self.span + k / 8 * outer_k)
    }
}

/// Addresses of the 16-byte pieces of some lines: k-major two for each line; line-major, for each eight lines, one for
/// each k.
struct Pieces {
    /// As many as 256 lines have; the rest is zero.
    all: [u32; 512],
    count: usize,
    /// Pieces of a line, or of eight lines.
    per: usize,
    /// Lines that share them.
    lines: usize,
}

impl Pieces {
    fn at(&self) -> &[u32] {
        &self.all[..self.count]
    }

    /// The first line of a piece.
    fn line(&self, piece: usize) -> usize {
        piece / self.per * self.lines
    }
}

impl Operand {
    /// The pieces of lines `from..from + lines`.
    fn pieces(&self, bits: u64, from: usize, lines: usize) -> Pieces {
        let d = Descriptor::new(bits);
        let mut all = [0; 512];
        let (per, step) = match self.major {
            Major::K => (2, 1),
            Major::Mn => (TILE_K / self.size, 8),
        };
        for (i, at) in all.chunks_exact_mut(per).take(lines / step).enumerate() {
            for (part, at) in at.iter_mut().enumerate() {
                *at = match self.major {
                    Major::K => d.along_k(from + i, part),
                    Major::Mn => d.along_lines(from + 8 * i, part),
                } as u32;
            }
        }
        Pieces { all, count: lines / step * per, per, lines: step }
    }

    /// Checks at issue: bounds always; in strict mode that the bytes were written, are not pending, are published to the
    /// asynchronous proxy and race with nobody.
    pub fn check(&self, cx: &mut Cx<'_>, bits: u64, from: usize, lines: usize) -> Result<(), Box<Fault>> {
        let region = cx.cluster.ctas[cx.rank].shared.region();
        let (first, end) = (region.start as u32, region.end as u32);
        let pieces = self.pieces(bits, from, lines);
        let (low, high) = pieces.at().iter().fold((u32::MAX, 0), |(low, high), a| (low.min(*a), high.max(*a)));
        if low < first || high + 16 > end {
            let outside = |a: &u32| *a < first || *a + 16 > end;
            // One of the two ends is outside.
            let piece = pieces.at().iter().position(outside).unwrap_or(0);
            return Err(Fault::new(
                FaultKind::Bounds,
                format!(
                    "wgmma's descriptor {bits:#018x} reads line {} at shared address {:#x}, out of the block's \
                     {first:#x}..{end:#x}",
                    from + pieces.line(piece),
                    pieces.all[piece]
                ),
            ));
        }
        if !region.shadow.is_null() {
            let state = |address: u32| -> [u8; 16] {
                // SAFETY: the addresses were just checked; the shadow is as long as the region.
                unsafe { region.shadow.add((address - first) as usize).cast::<[u8; 16]>().read_unaligned() }
            };
            let good = u128::from_ne_bytes([WRITTEN; 16]);
            let wrong = pieces.at().iter().fold(0, |w, a| w | (u128::from_ne_bytes(state(*a)) ^ good));
            if wrong != 0 {
                let piece = pieces.at().iter().position(|a| state(*a) != [WRITTEN; 16]).unwrap_or(0);
                let (line, address) = (from + pieces.line(piece), pieces.all[piece]);
                let (kind, why) = if state(address).contains(&PENDING) {
                    (FaultKind::Asynchronous, "which an asynchronous copy writes that nothing has waited for")
                } else {
                    (FaultKind::Uninitialised, "which nothing wrote")
                };
                let message = format!("wgmma reads line {line} at shared address {address:#x}, {why}");
                return Err(Fault::new(kind, message));
            }
        }
        let (rank, warp) = (cx.rank, cx.warp.index);
        let line = cx.program.code[cx.warp.current.pc as usize].line;
        if let Some(races) = &mut cx.cluster.races {
            let touch = Touch::AsyncRead;
            let access = Access { touch, owner: rank, rank, warp, offset: 0, bytes: 16, line };
            races.read_pieces(&access, pieces.at())?;
        }
        Ok(())
    }

    /// Reads lines `from..from + out.len()`, which [`Operand::check`] has passed.
    pub fn fetch(&self, cx: &mut Cx<'_>, bits: u64, from: usize, out: &mut [[u8; TILE_K]]) -> Result<(), Box<Fault>> {
        let region = cx.cluster.ctas[cx.rank].shared.region();
        let pieces = self.pieces(bits, from, out.len());
        let read = |address: u32| -> [u8; 16] {
            // SAFETY: `check` has found the piece inside of the region, at issue with the same descriptor.
            unsafe { region.base.add(address as usize - region.start as usize).cast::<[u8; 16]>().read_unaligned() }
        };
        match self.major {
            Major::K => {
                for (line, at) in out.iter_mut().zip(pieces.at().chunks_exact(2)) {
                    line[..16].copy_from_slice(&read(at[0]));
                    line[16..].copy_from_slice(&read(at[1]));
                }
            }
            Major::Mn => {
                for (lines, at) in out.chunks_exact_mut(8).zip(pieces.at().chunks_exact(pieces.per)) {
                    for (k, at) in at.iter().enumerate() {
                        let piece = read(*at);
                        for (i, line) in lines.iter_mut().enumerate() {
                            line[2 * k..2 * k + 2].copy_from_slice(&piece[2 * i..2 * i + 2]);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
