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
        SHARED_BASE,
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

impl Operand {
    /// Calls `f` with the address of every 16-byte piece of lines `from..from + lines`, and where it goes: (line, half)
    /// or, line-major, (first line, k).
    fn pieces(&self, bits: u64, from: usize, lines: usize, mut f: impl FnMut(usize, usize, usize)) {
        let d = Descriptor::new(bits);
        match self.major {
            Major::K => {
                for line in from..from + lines {
                    f(d.along_k(line, 0), line - from, 0);
                    f(d.along_k(line, 1), line - from, 1);
                }
            }
            Major::Mn => {
                for line in (from..from + lines).step_by(8) {
                    for k in 0..TILE_K / self.size {
                        f(d.along_lines(line, k), line - from, k);
                    }
                }
            }
        }
    }

    /// Checks at issue: bounds always; in strict mode that the bytes were written, are not pending, are published to the
    /// asynchronous proxy and race with nobody.
    pub fn check(&self, cx: &mut Cx<'_>, bits: u64, from: usize, lines: usize) -> Result<(), Box<Fault>> {
        let region = cx.cluster.ctas[cx.rank].shared.region();
        let (first, end) = (region.start as usize, region.end as usize);
        let mut wrong = None;
        self.pieces(bits, from, lines, |address, line, _| {
            if wrong.is_none() && (address < first || address + 16 > end) {
                wrong = Some(Fault::new(
                    FaultKind::Bounds,
                    format!(
                        "wgmma's descriptor {bits:#018x} reads line {} at shared address {address:#x}, out of the \
                         block's {first:#x}..{end:#x}",
                        from + line
                    ),
                ));
            }
        });
        if let Some(fault) = wrong {
            return Err(fault);
        }
        if !region.shadow.is_null() {
            self.pieces(bits, from, lines, |address, line, _| {
                // SAFETY: the address was just checked; the shadow is as long as the region.
                let state = unsafe { region.shadow.add(address - first).cast::<[u8; 16]>().read_unaligned() };
                if wrong.is_none() && state != [WRITTEN; 16] {
                    let (kind, why) = if state.contains(&PENDING) {
                        (FaultKind::Asynchronous, "which an asynchronous copy writes that nothing has waited for")
                    } else {
                        (FaultKind::Uninitialised, "which nothing wrote")
                    };
                    let line = from + line;
                    let message = format!("wgmma reads line {line} at shared address {address:#x}, {why}");
                    wrong = Some(Fault::new(kind, message));
                }
            });
        }
        if let Some(fault) = wrong {
            return Err(fault);
        }
        let (rank, warp) = (cx.rank, cx.warp.index);
        let line = cx.program.code[cx.warp.current.pc as usize].line;
        if let Some(races) = &mut cx.cluster.races {
            let touch = Touch::AsyncRead;
            let mut run: Option<(usize, usize)> = None;
            let mut result = Ok(());
            let mut flush = |run: (usize, usize)| {
                let offset = run.0 - SHARED_BASE as usize;
                let access = Access { touch, owner: rank, rank, warp, offset, bytes: run.1, line };
                if result.is_ok() {
                    result = races.touched(&access);
                }
            };
            // Neighbouring pieces are looked at together.
            self.pieces(bits, from, lines, |address, _, _| {
                run = match run.take() {
                    Some((start, bytes)) if address == start + bytes => Some((start, bytes + 16)),
                    Some((start, bytes)) if address + 16 == start => Some((address, bytes + 16)),
                    before => {
                        before.map(&mut flush);
                        Some((address, 16))
                    }
                };
            });
            run.map(&mut flush);
            result?;
        }
        Ok(())
    }

    /// Reads lines `from..from + out.len()`, which [`Operand::check`] has passed.
    pub fn fetch(&self, cx: &mut Cx<'_>, bits: u64, from: usize, out: &mut [[u8; TILE_K]]) -> Result<(), Box<Fault>> {
        let region = cx.cluster.ctas[cx.rank].shared.region();
        self.pieces(bits, from, out.len(), |address, line, part| {
            // SAFETY: `check` has found the piece inside of the region, at issue with the same descriptor.
            let piece = unsafe { region.base.add(address - region.start as usize).cast::<[u8; 16]>().read_unaligned() };
            match self.major {
                Major::K => out[line][16 * part..16 * part + 16].copy_from_slice(&piece),
                Major::Mn => {
                    for i in 0..8 {
                        out[line + i][2 * part..2 * part + 2].copy_from_slice(&piece[2 * i..2 * i + 2]);
                    }
                }
            }
        });
        Ok(())
    }
}
