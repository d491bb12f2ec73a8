//! Moves, selections, address spaces, fresh special registers.

use super::bits::PredMove;
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
        names::{Changing, Meaning},
    },
    exec::{
        lanes::Kernel,
        op::{Cx, Flow, Op, Outcome},
        regs::{Elem, Pred, PredIn, Regs, Slot, Store},
    },
    mem::{Space, WINDOW_BITS},
    text::ast::Operand,
    types::Ty,
};
use std::marker::PhantomData;

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("mov", ": b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 pred", Kind::Move, mov),
    form("selp", ": b16 b32 b64 u16 u32 u64 s16 s32 s64 f16 bf16 f16x2 bf16x2 f32 f64", Kind::Move, selp),
    form("slct", "ftz : b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64", Kind::Move, slct),
    form(
        "cvta",
        "to shared|shared::cta|shared::cluster|global|local|const|param|param::entry : u32 u64",
        Kind::Move,
        cvta,
    ),
    form(
        "isspacep",
        "shared|shared::cta|shared::cluster|global|local|const|param|param::entry",
        Kind::Compare,
        isspacep,
    ),
    form("mapa", "shared::cluster : u32 u64", Kind::Move, mapa),
    form("getctarank", "shared::cluster : u32 u64", Kind::Move, getctarank),
];

fn mov(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    b.facts.copies = true;
    let ty = b.ty(0)?;
    if let Some(changing) = b.changing(1)? {
        let d = b.operand(0)?;
        let (d, dt) = b.any_dst(d, ty.bits())?;
        return b.op(ReadClock { d, wide: dt.bits() == 64, what: changing });
    }
    if ty == Ty::Pred {
        let d = b.operand(0)?;
        let d = b.pred_dst(d)?;
        let d = d.unwrap_or_else(|| b.scratch_pred());
        let a = b.pred_or_int(1)?;
        return b.kernel(PredMove { d, a });
    }
    match (b.operand(0)?, b.operand(1)?) {
        (Operand::Vector(parts), source) => unpack(b, parts, source, ty.bits()),
        (_, Operand::Vector(parts)) => pack(b, parts, ty.bits()),
        _ => match ty.bits() {
            16 => b.map1(|x: u16| x),
            32 => b.map1(|x: u32| x),
            64 => b.map1(|x: u64| x),
            _ => b.map1(|x: u128| x),
        },
    }
}

/// One wide register to several narrow ones.
struct Unpack {
    parts: Vec<Option<Slot>>,
    source: Slot,
    part_bits: u32,
    bits: u32,
}
impl Kernel for Unpack {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        for_lane_words(regs, self.source, self.bits, |regs, words| {
            for (i, part) in self.parts.iter().enumerate() {
                let Some(d) = part else { continue };
                let shift = i as u32 * self.part_bits;
                if self.part_bits == 64 {
                    let out: [u64; 32] = std::array::from_fn(|l| (words[l] >> shift) as u64);
                    regs.put(*d, mask, &out);
                } else {
                    let keep = if self.part_bits == 32 { !0 } else { (1u32 << self.part_bits) - 1 };
                    let out: [u32; 32] = std::array::from_fn(|l| (words[l] >> shift) as u32 & keep);
                    regs.put(*d, mask, &out);
                }
            }
        });
    }
}

/// All lanes of a register of `bits`, widened.
#[inline(always)]
fn for_lane_words(regs: &mut Regs, slot: Slot, bits: u32, f: impl FnOnce(&mut Regs, &[u128; 32])) {
    let words: [u128; 32] = match bits {
        128 => *regs.row::<u128>(slot),
        64 => regs.row::<u64>(slot).map(u128::from),
        _ => regs.row::<u32>(slot).map(u128::from),
    };
    f(regs, &words);
}

fn unpack(b: &mut Build<'_, '_>, parts: &[Operand], source: &Operand, bits: u32) -> Built {
    let part_bits = bits / (parts.len() as u32).max(1);
    if ![8, 16, 32, 64].contains(&part_bits) {
        return b.error(format!("{bits} bits do not part into {}", parts.len()));
    }
    let source = b.src_of(source, bits)?;
    let mut slots = Vec::new();
    for part in parts {
        slots.push(match part {
            Operand::Name(n) if n == "_" => None,
            part => Some(b.dst_of(part, part_bits)?),
        });
    }
    if bits == 64 && part_bits == 32 {
        return b.kernel(Split64 { low: slots[0], high: slots[1], source });
    }
    if bits == 32 && part_bits == 16 {
        return b.kernel(Split32 { low: slots[0], high: slots[1], source });
    }
    b.kernel(Unpack { parts: slots, source, part_bits, bits })
}

/// The frequent unpackings, without the detour over 128 bits.
struct Split64 {
    low: Option<Slot>,
    high: Option<Slot>,
    source: Slot,
}
impl Kernel for Split64 {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let words = *regs.row::<u64>(self.source);
        if let Some(d) = self.low {
            regs.put(d, mask, &words.map(|w| w as u32));
        }
        if let Some(d) = self.high {
            regs.put(d, mask, &words.map(|w| (w >> 32) as u32));
        }
    }
}
struct Split32 {
    low: Option<Slot>,
    high: Option<Slot>,
    source: Slot,
}
impl Kernel for Split32 {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let words = *regs.row::<u32>(self.source);
        if let Some(d) = self.low {
            regs.put(d, mask, &words.map(|w| w & 0xffff));
        }
        if let Some(d) = self.high {
            regs.put(d, mask, &words.map(|w| w >> 16));
        }
    }
}

/// Several narrow registers to a wide one.
struct Pack {
    d: Slot,
    parts: Vec<Slot>,
    part_bits: u32,
    bits: u32,
}
impl Kernel for Pack {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let mut words = [0u128; 32];
        for (i, part) in self.parts.iter().enumerate() {
            let shift = i as u32 * self.part_bits;
            if self.part_bits == 64 {
                let row = regs.row::<u64>(*part);
                (0..32).for_each(|l| words[l] |= (row[l] as u128) << shift);
            } else {
                let keep = if self.part_bits == 32 { !0 } else { (1u32 << self.part_bits) - 1 };
                let row = regs.row::<u32>(*part);
                (0..32).for_each(|l| words[l] |= ((row[l] & keep) as u128) << shift);
            }
        }
        match self.bits {
            128 => regs.put(self.d, mask, &words),
            64 => regs.put(self.d, mask, &words.map(|w| w as u64)),
            _ => regs.put(self.d, mask, &words.map(|w| w as u32)),
        }
    }
}

fn pack(b: &mut Build<'_, '_>, parts: &[Operand], bits: u32) -> Built {
    let part_bits = bits / (parts.len() as u32).max(1);
    if ![8, 16, 32, 64].contains(&part_bits) {
        return b.error(format!("{bits} bits are not made of {} parts", parts.len()));
    }
    let mut slots = Vec::new();
    for part in parts {
        slots.push(b.src_of(part, part_bits)?);
    }
    let d = b.operand(0)?;
    let d = b.dst_of(d, bits)?;
    if bits == 32 && part_bits == 16 {
        let (low, high) = (slots[0], slots[1]);
        let f = |low: u32, high: u32| high << 16 | low & 0xffff;
        let types = PhantomData::<fn(u32, u32) -> u32>;
        return b.kernel(crate::exec::lanes::Map2 { d, a: low, b: high, f, types });
    }
    if bits == 64 && part_bits == 32 {
        let (low, high) = (slots[0], slots[1]);
        let f = |low: u32, high: u32| (high as u64) << 32 | low as u64;
        let types = PhantomData::<fn(u32, u32) -> u64>;
        return b.kernel(crate::exec::lanes::Map2 { d, a: low, b: high, f, types });
    }
    b.kernel(Pack { d, parts: slots, part_bits, bits })
}

/// Reads a clock. Time is the number of instructions that the warp has executed.
struct ReadClock {
    d: Slot,
    wide: bool,
    what: Changing,
}
impl Op for ReadClock {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let now = cx.warp.executed + cx.counters.total();
        cx.cluster.outside = true;
        let value = match self.what {
            Changing::Clock | Changing::Clock64 | Changing::Globaltimer => now,
            Changing::GlobaltimerLo => now & 0xffff_ffff,
            Changing::ClockHi | Changing::GlobaltimerHi => now >> 32,
        };
        if self.wide {
            cx.warp.regs.put(self.d, mask, &[value; 32]);
        } else {
            cx.warp.regs.put(self.d, mask, &[value as u32; 32]);
        }
        Ok(Flow::Next)
    }
}

/// `d = p ? a : b`.
struct Select<T> {
    d: Slot,
    a: Slot,
    b: Slot,
    p: PredIn,
    types: PhantomData<fn(T)>,
}
impl<T: Store> Kernel for Select<T> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let p = regs.pred_in(self.p);
        let (a, b) = (regs.row::<T>(self.a), regs.row::<T>(self.b));
        let mut out = [T::default(); 32];
        for i in 0..32 {
            out[i] = if p & 1 << i != 0 { a[i] } else { b[i] };
        }
        regs.put(self.d, mask, &out);
    }
}

fn selp(b: &mut Build<'_, '_>) -> Built {
    fn make<T: Elem>(b: &mut Build<'_, '_>) -> Built {
        b.operands(4)?;
        b.facts.copies = true;
        let (x, y) = (b.src::<T>(1)?, b.src::<T>(2)?);
        let p = b.pred_or_int(3)?;
        let d = b.dst::<T>(0)?;
        b.kernel(Select::<T::Store> { d, a: x, b: y, p, types: PhantomData })
    }
    match b.ty(0)?.bits() {
        16 => make::<u16>(b),
        32 => make::<u32>(b),
        _ => make::<u64>(b),
    }
}

/// `d = c >= 0 ? a : b`.
fn slct(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?.bits(), b.ty(1)?) {
        (16, Ty::S32) => b.map3(|x: u16, y: u16, c: i32| if c >= 0 { x } else { y }),
        (32, Ty::S32) => b.map3(|x: u32, y: u32, c: i32| if c >= 0 { x } else { y }),
        (64, Ty::S32) => b.map3(|x: u64, y: u64, c: i32| if c >= 0 { x } else { y }),
        (16, Ty::F32) => b.map3(|x: u16, y: u16, c: f32| if c >= 0.0 { x } else { y }),
        (32, Ty::F32) => b.map3(|x: u32, y: u32, c: f32| if c >= 0.0 { x } else { y }),
        (64, Ty::F32) => b.map3(|x: u64, y: u64, c: f32| if c >= 0.0 { x } else { y }),
        _ => b.unsupported(),
    }
}

/// The space that a qualifier names.
pub fn space(b: &Build<'_, '_>) -> Option<Space> {
    let words = [
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Shared),
        ("global", Space::Global),
        ("local", Space::Local),
        ("const", Space::Const),
        ("param", Space::Param),
        ("param::entry", Space::Param),
        ("param::func", Space::Param),
    ];
    words.iter().find(|(w, _)| b.quals.has(w)).map(|(_, s)| *s)
}

/// To a generic address (adds the window) or from one (drops it).
fn cvta(b: &mut Build<'_, '_>) -> Built {
    let Some(space) = space(b) else { return b.error("`cvta` needs a state space") };
    let window = space.window().unwrap_or(0) << WINDOW_BITS;
    match (b.ty(0)?, window) {
        (_, 0) => b.map1(|x: u64| x),
        (Ty::U32, _) => b.error("32-bit generic addresses are not supported: use .u64"),
        (_, window) if b.quals.has("to") => b.map1(move |x: u64| if x == 0 { 0 } else { x.wrapping_sub(window) }),
        (_, window) => b.map1(move |x: u64| x | window),
    }
}

/// `p = a lies in the space`.
struct InSpace {
    p: Pred,
    a: Slot,
    window: u64,
}
impl Kernel for InSpace {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let a = regs.row::<u64>(self.a);
        let mut hit = 0;
        for i in 0..32 {
            let window = a[i] >> WINDOW_BITS;
            let same = if self.window == 0 { !(1..=3).contains(&window) } else { window == self.window };
            hit |= (same as u32) << i;
        }
        regs.put_pred(self.p, mask, hit);
    }
}

fn isspacep(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    let Some(space) = space(b) else { return b.error("`isspacep` needs a state space") };
    let p = b.operand(0)?;
    let p = b.pred_dst(p)?;
    let p = p.unwrap_or_else(|| b.scratch_pred());
    let a = b.src::<u64>(1)?;
    b.kernel(InSpace { p, a, window: space.window().unwrap_or(0) })
}

/// The address of the same variable in the block of a given rank.
fn mapa(b: &mut Build<'_, '_>) -> Built {
    use crate::mem::RANK_SHIFT;
    let inside = (1u64 << RANK_SHIFT) - 1;
    let shared = b.quals.has("shared::cluster");
    if b.ty(0)? == Ty::U32 {
        b.map2(move |a: u32, rank: u32| a & inside as u32 | (rank.wrapping_add(1)) << RANK_SHIFT)
    } else {
        let window = if shared { 0 } else { crate::mem::SHARED_WINDOW << WINDOW_BITS };
        b.map2(move |a: u64, rank: u32| window | a & inside | (rank as u64 + 1) << RANK_SHIFT)
    }
}

/// The rank of the block that a shared address lies in.
struct RankOf {
    d: Slot,
    a: Slot,
    wide: bool,
}
impl Op for RankOf {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let number = |a: u64| a >> crate::mem::RANK_SHIFT & 0xff;
        let rank = |a: u64| if number(a) == 0 { cx.rank as u32 } else { number(a) as u32 - 1 };
        let out: [u32; 32] = if self.wide {
            cx.warp.regs.row::<u64>(self.a).map(rank)
        } else {
            cx.warp.regs.row::<u32>(self.a).map(|a| rank(a as u64))
        };
        cx.warp.regs.put(self.d, mask, &out);
        Ok(Flow::Next)
    }
}

fn getctarank(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    let wide = b.ty(0)? == Ty::U64;
    let a = if wide { b.src::<u64>(1)? } else { b.src::<u32>(1)? };
    let d = b.dst::<u32>(0)?;
    b.op(RankOf { d, a, wide })
}

impl Build<'_, '_> {
    /// Operand `i` as a predicate source, which may be the constant 0 or 1.
    pub fn pred_or_int(&mut self, i: usize) -> Result<PredIn, crate::error::Error> {
        if let Operand::Int(v) = self.operand(i)? {
            // A predicate that nothing writes is false.
            let pred = self.scratch_pred();
            return Ok(PredIn { pred, negated: *v != 0 });
        }
        if let Operand::Name(name) = self.operand(i)?
            && !matches!(self.meaning(name)?, Meaning::Pred(_))
        {
            return self.error(format!("`{name}` is no predicate register"));
        }
        self.pred_in(i)
    }
}
