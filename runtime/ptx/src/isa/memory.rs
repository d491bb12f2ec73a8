//! Loads, stores, prefetches.

use super::{control::Nothing, data::space};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
        names::Meaning,
    },
    exec::{
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        regs::{Regs, Slot, Store},
    },
    mem::{
        Space,
        access::{Address, Located, Request, locate},
        watch::Touch,
    },
    text::ast::Operand,
    types::Ty,
};

/// Qualifiers of loads and stores that change when something is cached, not what it is.
macro_rules! access {
    ($spaces:literal) => {
        concat!(
            $spaces,
            " weak|relaxed|acquire|release|volatile|mmio cta|cluster|gpu|sys ca|cg|cs|lv|lu|cv|wb|wt nc unified \
             L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate \
             L2::evict_normal|L2::evict_first|L2::evict_last L2::cache_hint L2::64B|L2::128B|L2::256B v2|v4|v8 \
             : b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 bf16 f16x2 bf16x2 f32 f64"
        )
    };
}

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("ld", access!("global|const"), Kind::LoadGlobal, load),
    form("ld", access!("shared|shared::cta|shared::cluster"), Kind::LoadShared, load),
    form("ld", access!("local|param|param::entry|param::func"), Kind::LoadOther, load),
    form("ldu", access!("global"), Kind::LoadGlobal, load),
    form("st", access!("global"), Kind::StoreGlobal, store),
    form("st", access!("shared|shared::cta|shared::cluster"), Kind::StoreShared, store),
    form("st", access!("local|param|param::func"), Kind::StoreOther, store),
    form("prefetch", "global|local|param|const L1|L2|L2::evict_last|L2::evict_normal tensormap", Kind::Move, prefetch),
    form("prefetchu", "L1", Kind::Move, prefetch),
    form("applypriority", "global L2::evict_normal", Kind::Move, prefetch),
    form("discard", "global L2", Kind::Move, prefetch),
    form(
        "createpolicy",
        "fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged : b64",
        Kind::Move,
        policy,
    ),
];

/// Vectors have up to 8 elements.
const MOST: usize = 8;

/// What moves between memory and registers.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes of an element in memory.
    width: usize,
    /// Elements.
    n: usize,
    /// Whether a narrow element is extended by its sign.
    signed: bool,
    /// Bits of the registers.
    register: u32,
}

struct Load {
    address: Address,
    request: Request,
    shape: Shape,
    d: [Slot; MOST],
}

/// Moves elements of type `M` into registers of storage `S`.
///
/// # Safety
/// Every lane of `mask` must have `n` readable elements at its pointer.
#[inline(always)]
unsafe fn read<M: Copy, S: Store>(regs: &mut Regs, at: &Located, mask: u32, d: &[Slot], convert: impl Fn(M) -> S) {
    if mask == !0 && at.each.is_none() {
        let base: [*mut u8; 32] = std::array::from_fn(|lane| at.ptr(lane));
        for (j, d) in d.iter().enumerate() {
            let row = regs.row_mut::<S>(*d);
            for lane in 0..32 {
                // SAFETY: the caller's promise.
                row[lane] = convert(unsafe { base[lane].cast::<M>().add(j).read_unaligned() });
            }
        }
        return;
    }
    for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
        let from = at.ptr(lane).cast::<M>();
        for (j, d) in d.iter().enumerate() {
            // SAFETY: the caller's promise.
            regs.row_mut::<S>(*d)[lane] = convert(unsafe { from.add(j).read_unaligned() });
        }
    }
}

impl Op for Load {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let at = locate(cx, mask, self.address, self.request)?;
        let (regs, d) = (&mut cx.warp.regs, &self.d[..self.shape.n]);
        if at.contiguous
            && self.shape.n == 1
            && self.shape.width == 4
            && self.shape.register == 32
            && at.region.lane_stride == 0
        {
            // SAFETY: `locate` checked 32 times 4 bytes from lane 0's pointer on.
            *regs.row_mut::<u32>(d[0]) = unsafe { at.ptr(0).cast::<[u32; 32]>().read_unaligned() };
            return Ok(Flow::Next);
        }
        // SAFETY: `locate` checked `request.bytes`, which is width times n, for every lane of the mask.
        unsafe {
            match (self.shape.width, self.shape.register, self.shape.signed) {
                (1, 64, true) => read(regs, &at, mask, d, |v: u8| v as i8 as u64),
                (1, 64, false) => read(regs, &at, mask, d, |v: u8| v as u64),
                (1, 32, true) => read(regs, &at, mask, d, |v: u8| v as i8 as u32),
                (1, 16, true) => read(regs, &at, mask, d, |v: u8| v as i8 as u16 as u32),
                (1, ..) => read(regs, &at, mask, d, |v: u8| v as u32),
                (2, 64, true) => read(regs, &at, mask, d, |v: u16| v as i16 as u64),
                (2, 64, false) => read(regs, &at, mask, d, |v: u16| v as u64),
                (2, 32, true) => read(regs, &at, mask, d, |v: u16| v as i16 as u32),
                (2, ..) => read(regs, &at, mask, d, |v: u16| v as u32),
                (4, 64, true) => read(regs, &at, mask, d, |v: u32| v as i32 as u64),
                (4, 64, false) => read(regs, &at, mask, d, |v: u32| v as u64),
                (4, ..) => read(regs, &at, mask, d, |v: u32| v),
                (8, ..) => read(regs, &at, mask, d, |v: u64| v),
                _ => read(regs, &at, mask, d, |v: u128| v),
            }
        }
        Ok(Flow::Next)
    }
}

/// A kernel parameter: the same for all lanes.
struct LoadParam {
    offset: usize,
    shape: Shape,
    d: [Slot; MOST],
}
impl Op for LoadParam {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let bytes = cx.launch.param_bytes();
        for (j, d) in self.d[..self.shape.n].iter().enumerate() {
            let from = self.offset + j * self.shape.width;
            let Some(found) = bytes.get(from..from + self.shape.width) else {
                let message = format!("parameter bytes {from}.. of {} do not exist", bytes.len());
                return Err(Fault::new(FaultKind::Bounds, message));
            };
            let mut v = [0u8; 16];
            v[..found.len()].copy_from_slice(found);
            let mut v = u128::from_le_bytes(v);
            if self.shape.signed {
                let spare = 128 - 8 * self.shape.width as u32;
                v = ((v << spare) as i128 >> spare) as u128;
            }
            let regs = &mut cx.warp.regs;
            match self.shape.register {
                128 => regs.put(*d, mask, &[v; 32]),
                64 => regs.put(*d, mask, &[v as u64; 32]),
                32 => regs.put(*d, mask, &[v as u32; 32]),
                _ => regs.put(*d, mask, &[v as u32 & 0xffff; 32]),
            }
        }
        Ok(Flow::Next)
    }
}

struct StoreOp {
    address: Address,
    request: Request,
    shape: Shape,
    s: [Slot; MOST],
}

/// Moves registers of storage `S` into elements of type `M`.
///
/// # Safety
/// Every lane of `mask` must have `n` writable elements at its pointer.
#[inline(always)]
unsafe fn write<M: Copy, S: Store>(regs: &Regs, at: &Located, mask: u32, s: &[Slot], convert: impl Fn(S) -> M) {
    for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
        let to = at.ptr(lane).cast::<M>();
        for (j, s) in s.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { to.add(j).write_unaligned(convert(regs.row::<S>(*s)[lane])) };
        }
    }
}

impl Op for StoreOp {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let at = locate(cx, mask, self.address, self.request)?;
        let (regs, s) = (&cx.warp.regs, &self.s[..self.shape.n]);
        if at.contiguous
            && self.shape.n == 1
            && self.shape.width == 4
            && self.shape.register == 32
            && at.region.lane_stride == 0
        {
            // SAFETY: `locate` checked 32 times 4 bytes from lane 0's pointer on.
            unsafe { at.ptr(0).cast::<[u32; 32]>().write_unaligned(*regs.row::<u32>(s[0])) };
            return Ok(Flow::Next);
        }
        // SAFETY: `locate` checked `request.bytes`, which is width times n, for every lane of the mask.
        unsafe {
            match (self.shape.width, self.shape.register) {
                (1, 64) => write(regs, &at, mask, s, |v: u64| v as u8),
                (1, _) => write(regs, &at, mask, s, |v: u32| v as u8),
                (2, 64) => write(regs, &at, mask, s, |v: u64| v as u16),
                (2, _) => write(regs, &at, mask, s, |v: u32| v as u16),
                (4, 64) => write(regs, &at, mask, s, |v: u64| v as u32),
                (4, _) => write(regs, &at, mask, s, |v: u32| v),
                (8, _) => write(regs, &at, mask, s, |v: u64| v),
                _ => write(regs, &at, mask, s, |v: u128| v),
            }
        }
        Ok(Flow::Next)
    }
}

/// Type, vector length and request of a load or store.
fn shape(b: &Build<'_, '_>, touch: Touch) -> Result<(Ty, Shape, Request), crate::error::Error> {
    let ty = b.ty(0)?;
    let n = match b.quals.pick(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let (width, bytes) = (ty.bytes(), ty.bytes() * n);
    if bytes > 32 {
        return b.error(format!("an access of {bytes} bytes a lane: 32 is the most"));
    }
    let strong = b.quals.pick(&["relaxed", "acquire", "release", "volatile", "mmio"]).is_some();
    let touch = match (touch, strong) {
        (Touch::Read, true) => Touch::StrongRead,
        (Touch::Write, true) => Touch::StrongWrite,
        _ => touch,
    };
    let space = space(b).unwrap_or(Space::Generic);
    let shape = Shape { width, n, signed: ty.signed(), register: ty.bits() };
    Ok((ty, shape, Request { space, bytes, align: bytes, touch }))
}

fn load(b: &mut Build<'_, '_>) -> Built {
    let (ty, mut shape, mut request) = shape(b, Touch::Read)?;
    b.operands(2 + b.quals.has("L2::cache_hint") as usize)?;
    let (address, meaning) = b.address(1)?;
    let parts = b.parts(0)?;
    if parts.len() != shape.n {
        return b.error(format!("`{}` loads {} values, found {} registers", b.inst.name(), shape.n, parts.len()));
    }
    let mut d = [Slot(0); MOST];
    for (i, part) in parts.iter().enumerate() {
        let (slot, found) = b.any_dst(part, ty.bits())?;
        if found.bits() < ty.bits() {
            return b.error(format!("a register of {} bits is too narrow for {ty}", found.bits()));
        }
        if i > 0 && found.bits() != shape.register {
            return b.error("the registers of a vector must have one width");
        }
        (d[i], shape.register) = (slot, found.bits());
    }
    match (request.space, meaning) {
        (Space::Param, Some(Meaning::Param(at))) => {
            let Operand::Address { offset, .. } = b.operand(1)? else { return b.unsupported() };
            let offset = at.wrapping_add(*offset as u64) as usize;
            return b.op(LoadParam { offset, shape, d });
        }
        (Space::Param, Some(Meaning::Local(_))) => request.space = Space::Local,
        _ => {}
    }
    if let (Some(mask), Touch::Read) = (b.inst.used_bytes, request.touch) {
        request.touch = Touch::ReadSome(mask);
    }
    b.op(Load { address, request, shape, d })
}

fn store(b: &mut Build<'_, '_>) -> Built {
    let (ty, mut shape, mut request) = shape(b, Touch::Write)?;
    b.operands(2 + b.quals.has("L2::cache_hint") as usize)?;
    let (address, meaning) = b.address(0)?;
    if let (Space::Param, Some(Meaning::Local(_))) = (request.space, meaning) {
        request.space = Space::Local;
    }
    let parts = b.parts(1)?;
    if parts.len() != shape.n {
        return b.error(format!("`{}` stores {} values, found {} registers", b.inst.name(), shape.n, parts.len()));
    }
    let mut s = [Slot(0); MOST];
    let mut widths = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let (slot, found) = b.any_src(part, ty.bits())?;
        let bits = found.map_or(ty.bits(), Ty::bits);
        if bits < ty.bits() {
            return b.error(format!("a register of {bits} bits is too narrow for {ty}"));
        }
        s[i] = slot;
        // A special register or constant of 32 bits may stand for a 16-bit value: rows are the same.
        widths.push(bits.max(32));
    }
    if widths.iter().any(|w| *w != widths[0]) {
        return b.error("the registers of a vector must have one width");
    }
    shape.register = widths[0];
    b.op(StoreOp { address, request, shape, s })
}

fn prefetch(b: &mut Build<'_, '_>) -> Built {
    b.address(0)?;
    b.op(Nothing)
}

/// Policies only steer caches: any value will do.
fn policy(b: &mut Build<'_, '_>) -> Built {
    let d = b.dst::<u64>(0)?;
    let zero = b.constant::<u64>(0);
    let types = std::marker::PhantomData::<fn(u64) -> u64>;
    b.kernel(crate::exec::lanes::Map1 { d, a: zero, f: |x: u64| x, types })
}
