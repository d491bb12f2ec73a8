//! Integer arithmetic.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        lanes::Kernel,
        regs::{Elem, Regs, Slot},
    },
    types::Ty,
};
use std::marker::PhantomData;

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("add", "sat : u16 s16 u32 s32 u64 s64 u16x2 s16x2", Kind::Integer, add),
    form("sub", "sat : u16 s16 u32 s32 u64 s64 u16x2 s16x2", Kind::Integer, sub),
    form("add.cc", ": u32 s32 b32 u64 s64 b64", Kind::Integer, |b| carry(b, Carry::Add, false, true)),
    form("addc", "cc : u32 s32 b32 u64 s64 b64", Kind::Integer, |b| carry(b, Carry::Add, true, b.quals.has("cc"))),
    form("sub.cc", ": u32 s32 b32 u64 s64 b64", Kind::Integer, |b| carry(b, Carry::Sub, false, true)),
    form("subc", "cc : u32 s32 b32 u64 s64 b64", Kind::Integer, |b| carry(b, Carry::Sub, true, b.quals.has("cc"))),
    form("madc", "hi|lo cc : u32 s32 u64 s64", Kind::Integer, |b| mad_carry(b, true, b.quals.has("cc"))),
    form("mul", "hi|lo|wide : u16 s16 u32 s32 u64 s64", Kind::Integer, mul),
    form("mad", "hi|lo|wide sat|cc : u16 s16 u32 s32 u64 s64", Kind::Integer, mad),
    form("mul24", "hi|lo : u32 s32", Kind::Integer, mul24),
    form("mad24", "hi|lo sat : u32 s32", Kind::Integer, mad24),
    form("div", ": u16 s16 u32 s32 u64 s64", Kind::Integer, div),
    form("rem", ": u16 s16 u32 s32 u64 s64", Kind::Integer, rem),
    form("abs", ": s16 s32 s64", Kind::Integer, abs),
    form("neg", ": s16 s32 s64", Kind::Integer, neg),
    form("min", "relu : u16 s16 u32 s32 u64 s64 u16x2 s16x2", Kind::Integer, min),
    form("max", "relu : u16 s16 u32 s32 u64 s64 u16x2 s16x2", Kind::Integer, max),
    form("sad", ": u16 s16 u32 s32 u64 s64", Kind::Integer, sad),
    form("dp4a", ": u32 s32", Kind::Integer, dp4a),
    form("dp2a", "lo|hi : u32 s32", Kind::Integer, dp2a),
];

/// The same two-operand expression for every integer type listed.
macro_rules! int2 {
    ($b:expr, [$($ty:ident $t:ty),*], |$x:ident, $y:ident| $e:expr) => {
        match $b.ty(0)? {
            $(Ty::$ty => $b.map2(|$x: $t, $y: $t| -> $t { $e }),)*
            _ => $b.unsupported(),
        }
    };
}

/// The two 16-bit halves, one by one.
#[inline(always)]
fn halves<T: Elem<Store = u32>>(x: u32, y: u32, f: impl Fn(T, T) -> T) -> u32 {
    let low = f(T::load(x & 0xffff), T::load(y & 0xffff)).store();
    let high = f(T::load(x >> 16), T::load(y >> 16)).store();
    high << 16 | low & 0xffff
}

fn add(b: &mut Build<'_, '_>) -> Built {
    if b.quals.has("sat") {
        return int2!(b, [S32 i32], |x, y| x.saturating_add(y));
    }
    match b.ty(0)? {
        Ty::U16x2 | Ty::S16x2 => b.map2(|x: u32, y: u32| halves(x, y, u16::wrapping_add)),
        _ => int2!(b, [U16 u16, S16 u16, U32 u32, S32 u32, U64 u64, S64 u64], |x, y| x.wrapping_add(y)),
    }
}

fn sub(b: &mut Build<'_, '_>) -> Built {
    if b.quals.has("sat") {
        return int2!(b, [S32 i32], |x, y| x.saturating_sub(y));
    }
    match b.ty(0)? {
        Ty::U16x2 | Ty::S16x2 => b.map2(|x: u32, y: u32| halves(x, y, u16::wrapping_sub)),
        _ => int2!(b, [U16 u16, S16 u16, U32 u32, S32 u32, U64 u64, S64 u64], |x, y| x.wrapping_sub(y)),
    }
}

/// What a carry instruction does with its first two sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carry {
    Add,
    Sub,
}

/// `d = a ± b ± carry`, with the carry out kept per lane.
struct CarryOp<T> {
    d: Slot,
    a: Slot,
    b: Slot,
    what: Carry,
    uses: bool,
    sets: bool,
    types: PhantomData<fn(T)>,
}

impl<T: Elem<Store = T> + Into128> Kernel for CarryOp<T>
where
    T: crate::exec::regs::Store,
{
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (a, b, carry) = (*regs.row::<T>(self.a), *regs.row::<T>(self.b), regs.carry);
        let (mut out, mut next) = ([T::default(); 32], 0u32);
        for i in 0..32 {
            let c = if self.uses { (carry >> i & 1) as u128 } else { 0 };
            let (x, y) = (a[i].wide(), b[i].wide());
            let full = match self.what {
                Carry::Add => x + y + c,
                Carry::Sub => x.wrapping_sub(y).wrapping_sub(c),
            };
            out[i] = T::narrow(full);
            next |= ((full >> T::BITS & 1) as u32) << i;
        }
        regs.put(self.d, mask, &out);
        if self.sets {
            regs.carry = regs.carry & !mask | next & mask;
        }
    }
}

/// u32 and u64 seen as u128.
pub trait Into128 {
    /// Widens.
    fn wide(self) -> u128;
    /// Keeps the low bits.
    fn narrow(v: u128) -> Self;
}
impl Into128 for u32 {
    #[inline(always)]
    fn wide(self) -> u128 {
        self as u128
    }
    #[inline(always)]
    fn narrow(v: u128) -> u32 {
        v as u32
    }
}
impl Into128 for u64 {
    #[inline(always)]
    fn wide(self) -> u128 {
        self as u128
    }
    #[inline(always)]
    fn narrow(v: u128) -> u64 {
        v as u64
    }
}

fn carry(b: &mut Build<'_, '_>, what: Carry, uses: bool, sets: bool) -> Built {
    fn make<T>(b: &mut Build<'_, '_>, what: Carry, uses: bool, sets: bool) -> Built
    where
        T: Elem<Store = T> + Into128 + crate::exec::regs::Store,
    {
        b.operands(3)?;
        let (x, y) = (b.src::<T>(1)?, b.src::<T>(2)?);
        let d = b.dst::<T>(0)?;
        b.kernel(CarryOp::<T> { d, a: x, b: y, what, uses, sets, types: PhantomData })
    }
    match b.ty(0)?.bits() {
        32 => make::<u32>(b, what, uses, sets),
        _ => make::<u64>(b, what, uses, sets),
    }
}

/// `d = (a * b).lo|hi + c + carry`, with the carry out.
struct MadCarry<T> {
    d: Slot,
    a: Slot,
    b: Slot,
    c: Slot,
    high: bool,
    signed: bool,
    uses: bool,
    sets: bool,
    types: PhantomData<fn(T)>,
}

impl<T: Elem<Store = T> + Into128 + crate::exec::regs::Store> Kernel for MadCarry<T> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (a, b, c) = (*regs.row::<T>(self.a), *regs.row::<T>(self.b), *regs.row::<T>(self.c));
        let (mut out, mut next) = ([T::default(); 32], 0u32);
        let extend = |v: T| {
            let shift = 128 - T::BITS;
            if self.signed { ((v.wide() << shift) as i128 >> shift) as u128 } else { v.wide() }
        };
        for i in 0..32 {
            let product = extend(a[i]).wrapping_mul(extend(b[i]));
            let part = if self.high { product >> T::BITS } else { product };
            let carry = if self.uses { (regs.carry >> i & 1) as u128 } else { 0 };
            let full = T::narrow(part).wide() + c[i].wide() + carry;
            out[i] = T::narrow(full);
            next |= ((full >> T::BITS & 1) as u32) << i;
        }
        regs.put(self.d, mask, &out);
        if self.sets {
            regs.carry = regs.carry & !mask | next & mask;
        }
    }
}

fn mad_carry(b: &mut Build<'_, '_>, uses: bool, sets: bool) -> Built {
    fn make<T>(b: &mut Build<'_, '_>, uses: bool, sets: bool) -> Built
    where
        T: Elem<Store = T> + Into128 + crate::exec::regs::Store,
    {
        b.operands(4)?;
        let (x, y, z) = (b.src::<T>(1)?, b.src::<T>(2)?, b.src::<T>(3)?);
        let d = b.dst::<T>(0)?;
        let (high, signed) = (b.quals.has("hi"), b.ty(0)?.signed());
        b.kernel(MadCarry::<T> { d, a: x, b: y, c: z, high, signed, uses, sets, types: PhantomData })
    }
    match b.ty(0)?.bits() {
        32 => make::<u32>(b, uses, sets),
        _ => make::<u64>(b, uses, sets),
    }
}

fn mul(b: &mut Build<'_, '_>) -> Built {
    match b.quals.pick(&["lo", "hi", "wide"]) {
        Some("lo") => int2!(b, [U16 u16, S16 u16, U32 u32, S32 u32, U64 u64, S64 u64], |x, y| x.wrapping_mul(y)),
        Some("hi") => match b.ty(0)? {
            Ty::U16 => b.map2(|x: u16, y: u16| (x as u32 * y as u32 >> 16) as u16),
            Ty::S16 => b.map2(|x: i16, y: i16| (x as i32 * y as i32 >> 16) as i16),
            Ty::U32 => b.map2(|x: u32, y: u32| (x as u64 * y as u64 >> 32) as u32),
            Ty::S32 => b.map2(|x: i32, y: i32| (x as i64 * y as i64 >> 32) as i32),
            Ty::U64 => b.map2(|x: u64, y: u64| (x as u128 * y as u128 >> 64) as u64),
            Ty::S64 => b.map2(|x: i64, y: i64| (x as i128 * y as i128 >> 64) as i64),
            _ => b.unsupported(),
        },
        Some(_) => match b.ty(0)? {
            Ty::U16 => b.map2(|x: u16, y: u16| x as u32 * y as u32),
            Ty::S16 => b.map2(|x: i16, y: i16| x as i32 * y as i32),
            Ty::U32 => b.map2(|x: u32, y: u32| x as u64 * y as u64),
            Ty::S32 => b.map2(|x: i32, y: i32| x as i64 * y as i64),
            _ => b.unsupported(),
        },
        None => b.error("an integer `mul` needs .lo, .hi or .wide"),
    }
}

fn mad(b: &mut Build<'_, '_>) -> Built {
    if b.quals.has("cc") {
        return mad_carry(b, false, true);
    }
    if b.quals.has("sat") {
        return match (b.quals.has("hi"), b.ty(0)?) {
            (true, Ty::S32) => b.map3(|x: i32, y: i32, z: i32| ((x as i64 * y as i64 >> 32) as i32).saturating_add(z)),
            _ => b.unsupported(),
        };
    }
    match (b.quals.pick(&["lo", "hi", "wide"]), b.ty(0)?) {
        (Some("lo"), Ty::U16 | Ty::S16) => b.map3(|x: u16, y: u16, z: u16| x.wrapping_mul(y).wrapping_add(z)),
        (Some("lo"), Ty::U32 | Ty::S32) => b.map3(|x: u32, y: u32, z: u32| x.wrapping_mul(y).wrapping_add(z)),
        (Some("lo"), Ty::U64 | Ty::S64) => b.map3(|x: u64, y: u64, z: u64| x.wrapping_mul(y).wrapping_add(z)),
        (Some("hi"), Ty::U16) => b.map3(|x: u16, y: u16, z: u16| ((x as u32 * y as u32 >> 16) as u16).wrapping_add(z)),
        (Some("hi"), Ty::S16) => b.map3(|x: i16, y: i16, z: i16| ((x as i32 * y as i32 >> 16) as i16).wrapping_add(z)),
        (Some("hi"), Ty::U32) => b.map3(|x: u32, y: u32, z: u32| ((x as u64 * y as u64 >> 32) as u32).wrapping_add(z)),
        (Some("hi"), Ty::S32) => b.map3(|x: i32, y: i32, z: i32| ((x as i64 * y as i64 >> 32) as i32).wrapping_add(z)),
        (Some("hi"), Ty::U64) => {
            b.map3(|x: u64, y: u64, z: u64| ((x as u128 * y as u128 >> 64) as u64).wrapping_add(z))
        }
        (Some("hi"), Ty::S64) => {
            b.map3(|x: i64, y: i64, z: i64| ((x as i128 * y as i128 >> 64) as i64).wrapping_add(z))
        }
        (Some("wide"), Ty::U16) => b.map3(|x: u16, y: u16, z: u32| (x as u32 * y as u32).wrapping_add(z)),
        (Some("wide"), Ty::S16) => b.map3(|x: i16, y: i16, z: i32| (x as i32 * y as i32).wrapping_add(z)),
        (Some("wide"), Ty::U32) => b.map3(|x: u32, y: u32, z: u64| (x as u64 * y as u64).wrapping_add(z)),
        (Some("wide"), Ty::S32) => b.map3(|x: i32, y: i32, z: i64| (x as i64 * y as i64).wrapping_add(z)),
        (None, _) => b.error("an integer `mad` needs .lo, .hi or .wide"),
        _ => b.unsupported(),
    }
}

/// The product of the low 24 bits: its low 32 or, with `HI`, its bits 16 to 47.
#[inline(always)]
fn product24<const SIGNED: bool, const HI: bool>(x: u32, y: u32) -> u32 {
    let product = if SIGNED {
        (((x << 8) as i32 >> 8) as i64 * ((y << 8) as i32 >> 8) as i64) as u64
    } else {
        (x & 0xff_ffff) as u64 * (y & 0xff_ffff) as u64
    };
    if HI { (product >> 16) as u32 } else { product as u32 }
}

fn mul24(b: &mut Build<'_, '_>) -> Built {
    match (b.quals.has("hi"), b.ty(0)?) {
        (false, Ty::U32) => b.map2(product24::<false, false>),
        (false, _) => b.map2(product24::<true, false>),
        (true, Ty::U32) => b.map2(product24::<false, true>),
        (true, _) => b.map2(product24::<true, true>),
    }
}

fn mad24(b: &mut Build<'_, '_>) -> Built {
    match (b.quals.has("hi"), b.quals.has("sat"), b.ty(0)?) {
        (false, false, Ty::U32) => b.map3(|x: u32, y: u32, z: u32| product24::<false, false>(x, y).wrapping_add(z)),
        (false, false, _) => b.map3(|x: u32, y: u32, z: u32| product24::<true, false>(x, y).wrapping_add(z)),
        (true, false, Ty::U32) => b.map3(|x: u32, y: u32, z: u32| product24::<false, true>(x, y).wrapping_add(z)),
        (true, false, _) => b.map3(|x: u32, y: u32, z: u32| product24::<true, true>(x, y).wrapping_add(z)),
        (true, true, Ty::S32) => {
            b.map3(|x: u32, y: u32, z: i32| (product24::<true, true>(x, y) as i32).saturating_add(z))
        }
        _ => b.unsupported(),
    }
}

/// Division by zero gives all ones, as on NVIDIA's devices; PTX leaves it open.
fn div(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::U16 | Ty::U32 | Ty::U64 => {
            int2!(b, [U16 u16, U32 u32, U64 u64], |x, y| x.checked_div(y).unwrap_or(!0))
        }
        _ => int2!(b, [S16 i16, S32 i32, S64 i64], |x, y| if y == 0 { !0 } else { x.wrapping_div(y) }),
    }
}

/// The remainder by zero is the dividend; PTX leaves it open.
fn rem(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::U16 | Ty::U32 | Ty::U64 => int2!(b, [U16 u16, U32 u32, U64 u64], |x, y| x.checked_rem(y).unwrap_or(x)),
        _ => int2!(b, [S16 i16, S32 i32, S64 i64], |x, y| if y == 0 { x } else { x.wrapping_rem(y) }),
    }
}

fn abs(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::S16 => b.map1(|x: i16| x.wrapping_abs()),
        Ty::S32 => b.map1(|x: i32| x.wrapping_abs()),
        _ => b.map1(|x: i64| x.wrapping_abs()),
    }
}

fn neg(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::S16 => b.map1(|x: i16| x.wrapping_neg()),
        Ty::S32 => b.map1(|x: i32| x.wrapping_neg()),
        _ => b.map1(|x: i64| x.wrapping_neg()),
    }
}

fn min(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.quals.has("relu")) {
        (Ty::S32, true) => b.map2(|x: i32, y: i32| x.min(y).max(0)),
        (Ty::S16x2, true) => b.map2(|x: u32, y: u32| halves(x, y, |x: i16, y| x.min(y).max(0))),
        (_, true) => b.unsupported(),
        (Ty::U16x2, _) => b.map2(|x: u32, y: u32| halves(x, y, u16::min)),
        (Ty::S16x2, _) => b.map2(|x: u32, y: u32| halves(x, y, i16::min)),
        _ => int2!(b, [U16 u16, S16 i16, U32 u32, S32 i32, U64 u64, S64 i64], |x, y| x.min(y)),
    }
}

fn max(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.quals.has("relu")) {
        (Ty::S32, true) => b.map2(|x: i32, y: i32| x.max(y).max(0)),
        (Ty::S16x2, true) => b.map2(|x: u32, y: u32| halves(x, y, |x: i16, y| x.max(y).max(0))),
        (_, true) => b.unsupported(),
        (Ty::U16x2, _) => b.map2(|x: u32, y: u32| halves(x, y, u16::max)),
        (Ty::S16x2, _) => b.map2(|x: u32, y: u32| halves(x, y, i16::max)),
        _ => int2!(b, [U16 u16, S16 i16, U32 u32, S32 i32, U64 u64, S64 i64], |x, y| x.max(y)),
    }
}

fn sad(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::U16 => b.map3(|x: u16, y: u16, z: u16| x.abs_diff(y).wrapping_add(z)),
        Ty::S16 => b.map3(|x: i16, y: i16, z: u16| x.abs_diff(y).wrapping_add(z)),
        Ty::U32 => b.map3(|x: u32, y: u32, z: u32| x.abs_diff(y).wrapping_add(z)),
        Ty::S32 => b.map3(|x: i32, y: i32, z: u32| x.abs_diff(y).wrapping_add(z)),
        Ty::U64 => b.map3(|x: u64, y: u64, z: u64| x.abs_diff(y).wrapping_add(z)),
        _ => b.map3(|x: i64, y: i64, z: u64| x.abs_diff(y).wrapping_add(z)),
    }
}

/// Byte `i` of `x`, extended by its sign when `SIGNED`.
#[inline(always)]
fn byte<const SIGNED: bool>(x: u32, i: u32) -> u32 {
    let b = (x >> (8 * i)) as u8;
    if SIGNED { b as i8 as u32 } else { b as u32 }
}

#[inline(always)]
fn dot4<const A: bool, const B: bool>(x: u32, y: u32, z: u32) -> u32 {
    (0..4).fold(z, |sum, i| sum.wrapping_add(byte::<A>(x, i).wrapping_mul(byte::<B>(y, i))))
}

fn dp4a(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.ty(1)?) {
        (Ty::U32, Ty::U32) => b.map3(dot4::<false, false>),
        (Ty::U32, _) => b.map3(dot4::<false, true>),
        (_, Ty::U32) => b.map3(dot4::<true, false>),
        _ => b.map3(dot4::<true, true>),
    }
}

#[inline(always)]
fn dot2<const A: bool, const B: bool, const HI: bool>(x: u32, y: u32, z: u32) -> u32 {
    (0..2).fold(z, |sum, i| {
        let h = (x >> (16 * i)) as u16;
        let h = if A { h as i16 as u32 } else { h as u32 };
        sum.wrapping_add(h.wrapping_mul(byte::<B>(y, i + 2 * HI as u32)))
    })
}

fn dp2a(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.ty(1)?, b.quals.pick(&["lo", "hi"])) {
        (Ty::U32, Ty::U32, Some("lo")) => b.map3(dot2::<false, false, false>),
        (Ty::U32, Ty::U32, Some(_)) => b.map3(dot2::<false, false, true>),
        (Ty::U32, _, Some("lo")) => b.map3(dot2::<false, true, false>),
        (Ty::U32, _, Some(_)) => b.map3(dot2::<false, true, true>),
        (_, Ty::U32, Some("lo")) => b.map3(dot2::<true, false, false>),
        (_, Ty::U32, Some(_)) => b.map3(dot2::<true, false, true>),
        (_, _, Some("lo")) => b.map3(dot2::<true, true, false>),
        (_, _, Some(_)) => b.map3(dot2::<true, true, true>),
        _ => b.error("`dp2a` needs .lo or .hi"),
    }
}
