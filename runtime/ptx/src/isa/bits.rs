//! Logic, shifts, bit fields, byte permutation.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        lanes::{Kernel, Map3},
        regs::{Pred, PredIn, Regs, Slot},
    },
    types::Ty,
};
use std::marker::PhantomData;

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("and", ": b16 b32 b64 pred", Kind::Integer, |b| logic(b, Logic::And)),
    form("or", ": b16 b32 b64 pred", Kind::Integer, |b| logic(b, Logic::Or)),
    form("xor", ": b16 b32 b64 pred", Kind::Integer, |b| logic(b, Logic::Xor)),
    form("not", ": b16 b32 b64 pred", Kind::Integer, not),
    form("cnot", ": b16 b32 b64", Kind::Integer, cnot),
    form("lop3", ": b32", Kind::Integer, lop3),
    form("shl", ": b16 b32 b64", Kind::Integer, shl),
    form("shr", ": b16 b32 b64 u16 u32 u64 s16 s32 s64", Kind::Integer, shr),
    form("shf", "l|r clamp|wrap : b32", Kind::Integer, shf),
    form("bfe", ": u32 s32 u64 s64", Kind::Integer, bfe),
    form("bfi", ": b32 b64", Kind::Integer, bfi),
    form("bfind", "shiftamt : u32 s32 u64 s64", Kind::Integer, bfind),
    form("bmsk", "clamp|wrap : b32", Kind::Integer, bmsk),
    form("szext", "clamp|wrap : u32 s32", Kind::Integer, szext),
    form("fns", ": b32", Kind::Integer, fns),
    form("brev", ": b32 b64", Kind::Integer, brev),
    form("clz", ": b32 b64", Kind::Integer, clz),
    form("popc", ": b32 b64", Kind::Integer, popc),
    form("prmt", "f4e|b4e|rc8|ecl|ecr|rc16 : b32", Kind::Integer, prmt),
];

/// A bitwise operation of two sources.
#[derive(Clone, Copy)]
enum Logic {
    And,
    Or,
    Xor,
}

/// The same on predicates: whole lane masks at once.
struct PredLogic {
    d: Pred,
    a: PredIn,
    b: PredIn,
    what: Logic,
}
impl Kernel for PredLogic {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (a, b) = (regs.pred_in(self.a), regs.pred_in(self.b));
        let value = match self.what {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
        };
        regs.put_pred(self.d, mask, value);
    }
}

fn logic(b: &mut Build<'_, '_>, what: Logic) -> Built {
    match (b.ty(0)?, what) {
        (Ty::B64, Logic::And) => b.map2(|x: u64, y: u64| x & y),
        (Ty::B64, Logic::Or) => b.map2(|x: u64, y: u64| x | y),
        (Ty::B64, Logic::Xor) => b.map2(|x: u64, y: u64| x ^ y),
        (Ty::B16, Logic::And) => b.map2(|x: u16, y: u16| x & y),
        (Ty::B16, Logic::Or) => b.map2(|x: u16, y: u16| x | y),
        (Ty::B16, Logic::Xor) => b.map2(|x: u16, y: u16| x ^ y),
        (Ty::Pred, _) => {
            b.operands(3)?;
            let d = b.operand(0)?;
            let d = b.pred_dst(d)?;
            let d = d.unwrap_or_else(|| b.scratch_pred());
            let (x, y) = (b.pred_or_int(1)?, b.pred_or_int(2)?);
            b.kernel(PredLogic { d, a: x, b: y, what })
        }
        (_, Logic::And) => b.map2(|x: u32, y: u32| x & y),
        (_, Logic::Or) => b.map2(|x: u32, y: u32| x | y),
        (_, Logic::Xor) => b.map2(|x: u32, y: u32| x ^ y),
    }
}

/// `d = a`, perhaps negated.
pub struct PredMove {
    /// Destination.
    pub d: Pred,
    /// Source.
    pub a: PredIn,
}
impl Kernel for PredMove {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let value = regs.pred_in(self.a);
        regs.put_pred(self.d, mask, value);
    }
}

fn not(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::B16 => b.map1(|x: u16| !x),
        Ty::B32 => b.map1(|x: u32| !x),
        Ty::B64 => b.map1(|x: u64| !x),
        _ => {
            b.operands(2)?;
            let d = b.operand(0)?;
            let d = b.pred_dst(d)?;
            let d = d.unwrap_or_else(|| b.scratch_pred());
            let mut a = b.pred_in(1)?;
            a.negated = !a.negated;
            b.kernel(PredMove { d, a })
        }
    }
}

fn cnot(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::B16 => b.map1(|x: u16| (x == 0) as u16),
        Ty::B32 => b.map1(|x: u32| (x == 0) as u32),
        _ => b.map1(|x: u64| (x == 0) as u64),
    }
}

/// The truth table of `lop3`: bit (4a + 2b + c) of it is the result.
#[inline(always)]
fn table3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let term = |bit: u32, x: u32, y: u32, z: u32| if table >> bit & 1 == 1 { x & y & z } else { 0 };
    term(0, !a, !b, !c)
        | term(1, !a, !b, c)
        | term(2, !a, b, !c)
        | term(3, !a, b, c)
        | term(4, a, !b, !c)
        | term(5, a, !b, c)
        | term(6, a, b, !c)
        | term(7, a, b, c)
}

fn lop3(b: &mut Build<'_, '_>) -> Built {
    b.operands(5)?;
    let table = b.int(4)? as u32;
    let (x, y, z) = (b.src::<u32>(1)?, b.src::<u32>(2)?, b.src::<u32>(3)?);
    let d = b.dst::<u32>(0)?;
    let f = move |x: u32, y: u32, z: u32| table3(x, y, z, table);
    b.kernel(Map3 { d, a: x, b: y, c: z, f, types: PhantomData::<fn(u32, u32, u32) -> u32> })
}

/// Shift amounts are u32 and clamp at the width.
fn shl(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::B16 => b.map2(|x: u16, n: u32| if n > 15 { 0 } else { x << n }),
        Ty::B32 => b.map2(|x: u32, n: u32| if n > 31 { 0 } else { x << n }),
        _ => b.map2(|x: u64, n: u32| if n > 63 { 0 } else { x << n }),
    }
}

fn shr(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::S16 => b.map2(|x: i16, n: u32| x >> n.min(15)),
        Ty::S32 => b.map2(|x: i32, n: u32| x >> n.min(31)),
        Ty::S64 => b.map2(|x: i64, n: u32| x >> n.min(63)),
        Ty::B16 | Ty::U16 => b.map2(|x: u16, n: u32| if n > 15 { 0 } else { x >> n }),
        Ty::B32 | Ty::U32 => b.map2(|x: u32, n: u32| if n > 31 { 0 } else { x >> n }),
        _ => b.map2(|x: u64, n: u32| if n > 63 { 0 } else { x >> n }),
    }
}

/// Funnel shift of the 64 bits b:a.
fn shf(b: &mut Build<'_, '_>) -> Built {
    let join = |low: u32, high: u32| (high as u64) << 32 | low as u64;
    match (b.quals.pick(&["l", "r"]), b.quals.pick(&["clamp", "wrap"])) {
        (Some("l"), Some("wrap")) => b.map3(move |x, y, n: u32| (join(x, y) << (n & 31) >> 32) as u32),
        (Some("l"), Some(_)) => b.map3(move |x, y, n: u32| (join(x, y) << n.min(32) >> 32) as u32),
        (Some(_), Some("wrap")) => b.map3(move |x, y, n: u32| (join(x, y) >> (n & 31)) as u32),
        (Some(_), Some(_)) => b.map3(move |x, y, n: u32| (join(x, y) >> n.min(32)) as u32),
        _ => b.error("`shf` needs .l or .r, and .clamp or .wrap"),
    }
}

/// `len` bits of `x` from `pos`; what lies beyond the top is 0, or the sign when `signed`. Both numbers count modulo 256.
#[inline(always)]
fn extract(x: u64, pos: u32, len: u32, width: u32, signed: bool) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    if len == 0 {
        return 0;
    }
    let top = (pos + len - 1).min(width - 1);
    let sign = signed && x >> top & 1 == 1;
    let body = if pos >= width { 0 } else { x >> pos };
    let kept = if pos >= width { 0 } else { (width - pos).min(len) };
    let mask = if kept >= 64 { !0 } else { (1u64 << kept) - 1 };
    body & mask | if sign { !mask } else { 0 }
}

fn bfe(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::U32 => b.map3(|x: u32, pos: u32, len: u32| extract(x as u64, pos, len, 32, false) as u32),
        Ty::S32 => b.map3(|x: u32, pos: u32, len: u32| extract(x as u64, pos, len, 32, true) as u32),
        Ty::U64 => b.map3(|x: u64, pos: u32, len: u32| extract(x, pos, len, 64, false)),
        _ => b.map3(|x: u64, pos: u32, len: u32| extract(x, pos, len, 64, true)),
    }
}

/// `into` with `len` of its bits from `pos` replaced by the low ones of `x`.
#[inline(always)]
fn insert(x: u64, into: u64, pos: u32, len: u32, width: u32) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    if pos >= width || len == 0 {
        return into;
    }
    let len = len.min(width - pos);
    let mask = (if len >= 64 { !0 } else { (1u64 << len) - 1 }) << pos;
    into & !mask | x << pos & mask
}

/// Four sources: the generic maps stop at three.
struct Insert<const WIDE: bool> {
    d: Slot,
    x: Slot,
    into: Slot,
    pos: Slot,
    len: Slot,
}
impl<const WIDE: bool> Kernel for Insert<WIDE> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (pos, len) = (regs.row::<u32>(self.pos), regs.row::<u32>(self.len));
        if WIDE {
            let (x, into) = (regs.row::<u64>(self.x), regs.row::<u64>(self.into));
            let out: [u64; 32] = std::array::from_fn(|i| insert(x[i], into[i], pos[i], len[i], 64));
            regs.put(self.d, mask, &out);
        } else {
            let (x, into) = (regs.row::<u32>(self.x), regs.row::<u32>(self.into));
            let out: [u32; 32] =
                std::array::from_fn(|i| insert(x[i] as u64, into[i] as u64, pos[i], len[i], 32) as u32);
            regs.put(self.d, mask, &out);
        }
    }
}

fn bfi(b: &mut Build<'_, '_>) -> Built {
    b.operands(5)?;
    let (pos, len) = (b.src::<u32>(3)?, b.src::<u32>(4)?);
    if b.ty(0)? == Ty::B64 {
        let (x, into) = (b.src::<u64>(1)?, b.src::<u64>(2)?);
        let d = b.dst::<u64>(0)?;
        b.kernel(Insert::<true> { d, x, into, pos, len })
    } else {
        let (x, into) = (b.src::<u32>(1)?, b.src::<u32>(2)?);
        let d = b.dst::<u32>(0)?;
        b.kernel(Insert::<false> { d, x, into, pos, len })
    }
}

/// Position of the highest bit that differs from the sign, all ones when there is none.
#[inline(always)]
fn find(x: u64, width: u32, shift: bool) -> u32 {
    if x == 0 {
        return !0;
    }
    let position = 63 - x.leading_zeros();
    if shift { width - 1 - position } else { position }
}

fn bfind(b: &mut Build<'_, '_>) -> Built {
    let flip = |x: i64| if x < 0 { !x as u64 } else { x as u64 };
    match (b.ty(0)?, b.quals.has("shiftamt")) {
        (Ty::U32, shift) => b.map1(move |x: u32| find(x as u64, 32, shift)),
        (Ty::S32, shift) => b.map1(move |x: i32| find(flip(x as i64), 32, shift)),
        (Ty::U64, shift) => b.map1(move |x: u64| find(x, 64, shift)),
        (_, shift) => b.map1(move |x: i64| find(flip(x), 64, shift)),
    }
}

/// A mask of `len` bits from `pos`.
fn bmsk(b: &mut Build<'_, '_>) -> Built {
    let ones = |pos: u32, len: u32| {
        let mask = if len > 31 { !0u32 } else { (1 << len) - 1 };
        if pos > 31 { 0 } else { mask << pos }
    };
    if b.quals.has("wrap") { b.map2(move |pos: u32, len: u32| ones(pos & 31, len & 31)) } else { b.map2(ones) }
}

/// Extends the low `n` bits.
fn szext(b: &mut Build<'_, '_>) -> Built {
    let (signed, wrap) = (b.ty(0)? == Ty::S32, b.quals.has("wrap"));
    b.map2(move |x: u32, n: u32| {
        let n = if wrap { n & 31 } else { n.min(32) };
        match (n, signed) {
            (0, _) => 0,
            (32, _) => x,
            (n, true) => ((x << (32 - n)) as i32 >> (32 - n)) as u32,
            (n, false) => x << (32 - n) >> (32 - n),
        }
    })
}

/// The position of the n-th set bit from `base`, upwards for n > 0, downwards for n < 0; all ones when there is none.
fn fns(b: &mut Build<'_, '_>) -> Built {
    b.map3(|mask: u32, base: u32, n: i32| {
        if n == 0 {
            return if base < 32 && mask >> base & 1 == 1 { base } else { !0 };
        }
        let (mut left, mut at) = (n.unsigned_abs(), base as i64);
        while (0..32).contains(&at) {
            if mask >> at & 1 == 1 {
                left -= 1;
                if left == 0 {
                    return at as u32;
                }
            }
            at += n.signum() as i64;
        }
        !0
    })
}

fn brev(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::B32 => b.map1(|x: u32| x.reverse_bits()),
        _ => b.map1(|x: u64| x.reverse_bits()),
    }
}

fn clz(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::B32 => b.map1(|x: u32| x.leading_zeros()),
        _ => b.map1(|x: u64| x.leading_zeros()),
    }
}

fn popc(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::B32 => b.map1(|x: u32| x.count_ones()),
        _ => b.map1(|x: u64| x.count_ones()),
    }
}

/// Byte `n & 7` of b:a, or its sign in every bit when `n & 8`.
#[inline(always)]
fn pick_byte(bytes: u64, n: u32) -> u32 {
    let byte = (bytes >> (8 * (n & 7))) as u8;
    if n & 8 == 0 { byte as u32 } else { ((byte as i8) >> 7) as u8 as u32 }
}

#[inline(always)]
fn permute(x: u32, y: u32, select: [u32; 4]) -> u32 {
    let bytes = (y as u64) << 32 | x as u64;
    (0..4).fold(0, |out, i| out | pick_byte(bytes, select[i]) << (8 * i))
}

fn prmt(b: &mut Build<'_, '_>) -> Built {
    match b.quals.pick(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
        None => b.map3(|x: u32, y: u32, s: u32| permute(x, y, [s & 15, s >> 4 & 15, s >> 8 & 15, s >> 12 & 15])),
        Some("f4e") => b.map3(|x: u32, y: u32, s: u32| {
            let s = s & 3;
            permute(x, y, [s, s + 1, s + 2, s + 3])
        }),
        Some("b4e") => b.map3(|x: u32, y: u32, s: u32| {
            let s = s & 3;
            permute(x, y, [s, (s + 7) & 7, (s + 6) & 7, (s + 5) & 7])
        }),
        Some("rc8") => b.map3(|x: u32, y: u32, s: u32| permute(x, y, [s & 3; 4])),
        Some("ecl") => b.map3(|x: u32, y: u32, s: u32| {
            let s = s & 3;
            permute(x, y, [s, s.max(1), s.max(2), 3])
        }),
        Some("ecr") => b.map3(|x: u32, y: u32, s: u32| {
            let s = s & 3;
            permute(x, y, [0, s.min(1), s.min(2), s])
        }),
        Some(_) => b.map3(|x: u32, y: u32, s: u32| {
            let s = s & 1;
            permute(x, y, [2 * s, 2 * s + 1, 2 * s, 2 * s + 1])
        }),
    }
}
