//! ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16-bit elements between shared memory and a warp's registers.
//!
//! Lane `8q + r` gives the address of row r of matrix q. In registers, lane `4r + c/2` holds elements c and c + 1 of row
//! r: read as bytes, a register's 32 lanes are the matrix in row order, so a row moves as 16 bytes.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        op::{Cx, Flow, Op, Outcome},
        regs::Slot,
    },
    mem::{
        Space,
        access::{Address, Located, Request, locate},
        watch::Touch,
    },
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("ldmatrix.sync", "aligned m8n8 x1|x2|x4 trans shared|shared::cta : b16", Kind::MatrixMove, load),
    form("stmatrix.sync", "aligned m8n8 x1|x2|x4 trans shared|shared::cta : b16", Kind::MatrixMove, store),
    form("movmatrix.sync", "aligned m8n8 trans : b16", Kind::MatrixMove, transposed),
];

/// A matrix in row order.
type Matrix = [[u16; 8]; 8];

fn transpose(m: &Matrix) -> Matrix {
    let mut t = [[0; 8]; 8];
    for r in 0..8 {
        for c in 0..8 {
            t[c][r] = m[r][c];
        }
    }
    t
}

/// A register's lanes as a matrix.
fn of_lanes(lanes: &[u32; 32]) -> Matrix {
    let mut m = [[0; 8]; 8];
    for lane in 0..32 {
        m[lane / 4][lane % 4 * 2] = lanes[lane] as u16;
        m[lane / 4][lane % 4 * 2 + 1] = (lanes[lane] >> 16) as u16;
    }
    m
}

/// A matrix as a register's lanes.
fn to_lanes(m: &Matrix) -> [u32; 32] {
    let mut lanes = [0; 32];
    for lane in 0..32 {
        let (low, high) = (m[lane / 4][lane % 4 * 2], m[lane / 4][lane % 4 * 2 + 1]);
        lanes[lane] = low as u32 | (high as u32) << 16;
    }
    lanes
}

struct Move {
    address: Address,
    registers: [Slot; 4],
    matrices: usize,
    transpose: bool,
}

impl Move {
    /// The matrices' rows in shared memory: one per address-giving lane.
    fn rows(&self, cx: &mut Cx<'_>, mask: u32, what: &str, touch: Touch) -> Result<Located, Box<crate::Fault>> {
        cx.check_aligned(mask, what)?;
        let lanes = if self.matrices == 4 { !0 } else { (1 << (8 * self.matrices)) - 1 };
        locate(cx, lanes, self.address, Request { space: Space::Shared, bytes: 16, align: 16, touch })
    }
}

struct Load(Move);
impl Op for Load {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let at = self.0.rows(cx, mask, "ldmatrix", Touch::Read)?;
        for (q, d) in self.0.registers[..self.0.matrices].iter().enumerate() {
            let mut rows = [[0u32; 4]; 8];
            for (r, row) in rows.iter_mut().enumerate() {
                // SAFETY: `locate` checked 16 bytes at every address-giving lane's pointer.
                *row = unsafe { at.ptr(8 * q + r).cast::<[u32; 4]>().read_unaligned() };
            }
            let mut lanes = [0; 32];
            lanes.iter_mut().zip(rows.as_flattened()).for_each(|(l, w)| *l = *w);
            if self.0.transpose {
                lanes = to_lanes(&transpose(&of_lanes(&lanes)));
            }
            cx.warp.regs.put(*d, mask, &lanes);
        }
        Ok(Flow::Next)
    }
}

struct Store(Move);
impl Op for Store {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let at = self.0.rows(cx, mask, "stmatrix", Touch::Write)?;
        for (q, s) in self.0.registers[..self.0.matrices].iter().enumerate() {
            let mut lanes = *cx.warp.regs.row::<u32>(*s);
            if self.0.transpose {
                lanes = to_lanes(&transpose(&of_lanes(&lanes)));
            }
            for r in 0..8 {
                let row = [lanes[4 * r], lanes[4 * r + 1], lanes[4 * r + 2], lanes[4 * r + 3]];
                // SAFETY: as in `Load`.
                unsafe { at.ptr(8 * q + r).cast::<[u32; 4]>().write_unaligned(row) };
            }
        }
        Ok(Flow::Next)
    }
}

struct Transpose {
    d: Slot,
    a: Slot,
}
impl Op for Transpose {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.check_aligned(mask, "movmatrix")?;
        let lanes = to_lanes(&transpose(&of_lanes(cx.warp.regs.row::<u32>(self.a))));
        cx.warp.regs.put(self.d, mask, &lanes);
        Ok(Flow::Next)
    }
}

/// Matrices that the instruction moves, and its form complete.
fn matrices(b: &Build<'_, '_>) -> Result<usize, crate::Error> {
    b.operands(2)?;
    if !b.quals.has("aligned") || !b.quals.has("m8n8") {
        return b.unsupported();
    }
    match b.quals.pick(&["x1", "x2", "x4"]) {
        Some("x1") => Ok(1),
        Some("x2") => Ok(2),
        Some(_) => Ok(4),
        None => b.error(format!("`{}` lacks .x1, .x2 or .x4", b.inst.name())),
    }
}

fn load(b: &mut Build<'_, '_>) -> Built {
    let (matrices, parts) = (matrices(b)?, b.parts(0)?);
    if parts.len() != matrices {
        return b.error(format!("`{}` fills {matrices} registers, found {}", b.inst.name(), parts.len()));
    }
    let (address, _) = b.address(1)?;
    let mut registers = [Slot(0); 4];
    for (slot, part) in registers.iter_mut().zip(parts) {
        *slot = b.dst_of(part, 32)?;
    }
    b.op(Load(Move { address, registers, matrices, transpose: b.quals.has("trans") }))
}

fn store(b: &mut Build<'_, '_>) -> Built {
    let (matrices, parts) = (matrices(b)?, b.parts(1)?);
    if parts.len() != matrices {
        return b.error(format!("`{}` stores {matrices} registers, found {}", b.inst.name(), parts.len()));
    }
    let (address, _) = b.address(0)?;
    let mut registers = [Slot(0); 4];
    for (slot, part) in registers.iter_mut().zip(parts) {
        *slot = b.src_of(part, 32)?;
    }
    b.op(Store(Move { address, registers, matrices, transpose: b.quals.has("trans") }))
}

fn transposed(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    if !b.quals.has("trans") {
        return b.unsupported();
    }
    let a = b.src::<u32>(1)?;
    let d = b.dst::<u32>(0)?;
    b.op(Transpose { d, a })
}
