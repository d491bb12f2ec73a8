//! Atomic read-modify-writes: `atom` (gives the old value) and `red` (does not).
//!
//! Lanes act one after the other, from lane 0 up. Between host threads each lane's update is one compare-and-swap, so
//! blocks running at once are atomic towards each other; order and scope are at least as strong as asked.

use super::{data::space, half};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        op::{Cx, Flow, Op, Outcome},
        regs::{Regs, Slot},
    },
    mem::{
        Space,
        access::{Address, Request, locate},
        watch::Touch,
    },
    types::Ty,
};
use std::sync::{
    Mutex,
    atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst},
};

const QUALS: &str = "relaxed|acquire|release|acq_rel|volatile cta|cluster|gpu|sys global|shared|shared::cta|shared::cluster \
                     add|inc|dec|min|max|and|or|xor|exch|cas noftz L2::cache_hint v2|v4|v8 \
                     : b16 b32 b64 b128 u32 u64 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64";

/// This family's rows.
pub const FORMS: &[Form] =
    &[form("atom", QUALS, Kind::Atomic, |b| atomic(b, true)), form("red", QUALS, Kind::Atomic, |b| atomic(b, false))];

/// New value from old, operand and (for cas) second operand, as bits.
type Update = fn(u128, u128, u128) -> u128;

/// An update by an operand of a known width, for bulk reductions.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    update: Update,
    /// Bytes of an element: 2, 4 or 8.
    pub width: usize,
}

impl Fold {
    /// Operation `op` on elements of type `ty`. Bit operations take any integer type.
    pub fn of(op: &str, ty: Ty) -> Option<Fold> {
        let ty = match (op, ty.bytes(), ty.integer()) {
            ("and" | "or" | "xor", 4, true) => Ty::B32,
            ("and" | "or" | "xor", 8, true) => Ty::B64,
            _ => ty,
        };
        let update = update(op, ty, false).filter(|_| op != "exch" && op != "cas")?;
        Some(Fold { update, width: ty.bytes() })
    }

    /// Combines an operand into memory, atomically towards other host threads.
    ///
    /// # Safety
    /// `to` must be valid and aligned for the width.
    pub unsafe fn apply(self, to: *mut u8, operand: u64) {
        let f = |old: u128| (self.update)(old, operand as u128, 0);
        // SAFETY: the caller's promise.
        unsafe {
            match self.width {
                2 => swap16(to, f),
                4 => swap32(to, f),
                _ => swap64(to, f),
            };
        }
    }
}

/// 128-bit atomics have no host instruction that can be relied upon.
static WIDE: Mutex<()> = Mutex::new(());

struct Atomic {
    address: Address,
    request: Request,
    /// Bytes of an element.
    width: usize,
    d: Option<Vec<Slot>>,
    a: Vec<Slot>,
    c: Option<Slot>,
    update: Update,
}

/// A lane of a register of `width` bytes.
fn get(regs: &Regs, slot: Slot, lane: usize, width: usize) -> u128 {
    match width {
        16 => regs.row::<u128>(slot)[lane],
        8 => regs.row::<u64>(slot)[lane] as u128,
        _ => regs.row::<u32>(slot)[lane] as u128,
    }
}

impl Op for Atomic {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let at = locate(cx, mask, self.address, self.request)?;
        // A compare-and-swap in vain is mostly a lock that is taken: let its holder go on.
        let mut in_vain = self.c.is_some();
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let regs = &cx.warp.regs;
            let second = self.c.map_or(0, |c| get(regs, c, lane, self.width));
            for (j, a) in self.a.iter().enumerate() {
                let operand = get(&cx.warp.regs, *a, lane, self.width);
                let to = at.ptr(lane).wrapping_add(j * self.width);
                let f = |old: u128| (self.update)(old, operand, second);
                // SAFETY: `locate` checked the bytes and, always for atomics, their alignment; regions are 16-byte
                // aligned on the host.
                let old = unsafe {
                    match self.width {
                        2 => swap16(to, f),
                        4 => swap32(to, f),
                        8 => swap64(to, f),
                        _ => swap128(to, f),
                    }
                };
                in_vain &= old != operand;
                let Some(d) = self.d.as_ref().map(|d| d[j]) else { continue };
                match self.width {
                    16 => cx.warp.regs.set_lane(d, lane, old),
                    8 => cx.warp.regs.set_lane(d, lane, old as u64),
                    _ => cx.warp.regs.set_lane(d, lane, old as u32),
                }
            }
        }
        Ok(if in_vain { Flow::Yield } else { Flow::Next })
    }
}

macro_rules! swap {
    ($name:ident, $atomic:ty, $int:ty) => {
        /// # Safety
        /// `to` must be valid and aligned.
        unsafe fn $name(to: *mut u8, f: impl Fn(u128) -> u128) -> u128 {
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(to.cast()) };
            let mut old = cell.load(SeqCst);
            loop {
                match cell.compare_exchange_weak(old, f(old as u128) as $int, SeqCst, SeqCst) {
                    Ok(_) => return old as u128,
                    Err(now) => old = now,
                }
            }
        }
    };
}
swap!(swap16, AtomicU16, u16);
swap!(swap32, AtomicU32, u32);
swap!(swap64, AtomicU64, u64);

/// # Safety
/// `to` must be valid.
unsafe fn swap128(to: *mut u8, f: impl Fn(u128) -> u128) -> u128 {
    let _guard = WIDE.lock();
    // SAFETY: the caller's promise.
    unsafe {
        let old = to.cast::<u128>().read_unaligned();
        to.cast::<u128>().write_unaligned(f(old));
        old
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// The update of an operation on a type.
fn update(op: &str, ty: Ty, shared: bool) -> Option<Update> {
    use Ty::*;
    Some(match (op, ty) {
        ("exch", B32 | B64 | B128) => |_, b, _| b,
        ("cas", B16 | B32 | B64 | B128) => |old, b, c| if old == b { c } else { old },
        ("and", B32 | B64) => |old, b, _| old & b,
        ("or", B32 | B64) => |old, b, _| old | b,
        ("xor", B32 | B64) => |old, b, _| old ^ b,
        ("add", U32 | S32 | U64 | S64) => |old, b, _| old.wrapping_add(b),
        ("inc", U32) => |old, b, _| if old >= b { 0 } else { old + 1 },
        ("dec", U32) => |old, b, _| if old == 0 || old > b { b } else { old - 1 },
        ("min", U32 | U64) => |old, b, _| old.min(b),
        ("max", U32 | U64) => |old, b, _| old.max(b),
        ("min", S32) => |old, b, _| (old as i32).min(b as i32) as u32 as u128,
        ("max", S32) => |old, b, _| (old as i32).max(b as i32) as u32 as u128,
        ("min", S64) => |old, b, _| (old as i64).min(b as i64) as u64 as u128,
        ("max", S64) => |old, b, _| (old as i64).max(b as i64) as u64 as u128,
        // Global atomic addition of f32 flushes subnormals, shared addition does not.
        ("add", F32) if shared => |old, b, _| (f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits() as u128,
        ("add", F32) => {
            |old, b, _| flush(flush(f32::from_bits(old as u32)) + flush(f32::from_bits(b as u32))).to_bits() as u128
        }
        ("add", F64) => |old, b, _| (f64::from_bits(old as u64) + f64::from_bits(b as u64)).to_bits() as u128,
        ("add", F16) => |old, b, _| half::f16::add(old as u16, b as u16) as u128,
        ("min", F16) => |old, b, _| half::f16::min(old as u16, b as u16) as u128,
        ("max", F16) => |old, b, _| half::f16::max(old as u16, b as u16) as u128,
        ("add", Bf16) => |old, b, _| half::bf16::add(old as u16, b as u16) as u128,
        ("min", Bf16) => |old, b, _| half::bf16::min(old as u16, b as u16) as u128,
        ("max", Bf16) => |old, b, _| half::bf16::max(old as u16, b as u16) as u128,
        ("add", F16x2) => |old, b, _| half::pair(old as u32, b as u32, half::f16::add) as u128,
        ("min", F16x2) => |old, b, _| half::pair(old as u32, b as u32, half::f16::min) as u128,
        ("max", F16x2) => |old, b, _| half::pair(old as u32, b as u32, half::f16::max) as u128,
        ("add", Bf16x2) => |old, b, _| half::pair(old as u32, b as u32, half::bf16::add) as u128,
        ("min", Bf16x2) => |old, b, _| half::pair(old as u32, b as u32, half::bf16::min) as u128,
        ("max", Bf16x2) => |old, b, _| half::pair(old as u32, b as u32, half::bf16::max) as u128,
        _ => return None,
    })
}

fn atomic(b: &mut Build<'_, '_>, gives: bool) -> Built {
    let ty = b.ty(0)?;
    let Some(op) = b.quals.pick(&["add", "inc", "dec", "min", "max", "and", "or", "xor", "exch", "cas"]) else {
        return b.error("an atomic needs an operation such as .add");
    };
    let space = space(b).unwrap_or(Space::Generic);
    let Some(update) = update(op, ty, space == Space::Shared) else { return b.unsupported() };
    if !gives && (op == "cas" || op == "exch") {
        return b.unsupported();
    }
    let n = match b.quals.pick(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let vector_type = matches!(ty, Ty::F32 | Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2);
    let bytes = ty.bytes() * n;
    if n > 1 && (!vector_type || bytes > 16 || space != Space::Global) {
        return b.unsupported();
    }
    let first = gives as usize;
    let wanted = first + 2 + (op == "cas") as usize;
    let found = b.inst.operands.len();
    b.operands(wanted + (b.quals.has("L2::cache_hint") && found > wanted) as usize)?;
    let (address, _) = b.address(first)?;
    let mut a = Vec::new();
    for part in b.parts(first + 1)? {
        a.push(b.src_of(part, ty.bits())?);
    }
    let c = match op {
        "cas" => {
            let c = b.operand(first + 2)?;
            Some(b.src_of(c, ty.bits())?)
        }
        _ => None,
    };
    let d = if gives {
        let mut d = Vec::new();
        for part in b.parts(0)? {
            d.push(b.dst_of(part, ty.bits())?);
        }
        Some(d)
    } else {
        None
    };
    if a.len() != n || d.as_ref().is_some_and(|d| d.len() != n) {
        return b.error(format!("`{}` takes vectors of {n}", b.inst.name()));
    }
    let request = Request { space, bytes, align: bytes, touch: Touch::Atomic };
    b.op(Atomic { address, request, width: ty.bytes(), d, a, c, update })
}
