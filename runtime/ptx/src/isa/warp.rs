//! Instructions across the lanes of a warp: shuffles, votes, matches, reductions, elections.

use super::barrier::meet;
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        regs::{Pred, PredIn, Slot},
    },
    num::small::NAN32,
    text::ast::Operand,
    types::Ty,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("shfl.sync", "up|down|bfly|idx : b32", Kind::Shuffle, shuffle),
    form("vote.sync", "all|any|uni|ballot : pred b32", Kind::Shuffle, vote),
    form("match.any.sync", ": b32 b64", Kind::Shuffle, |b| matching(b, false)),
    form("match.all.sync", ": b32 b64", Kind::Shuffle, |b| matching(b, true)),
    form("redux.sync", "add|min|max|and|or|xor abs NaN : u32 s32 b32 f32", Kind::Shuffle, reduce),
    form("elect.sync", "", Kind::Shuffle, elect),
    form("activemask", ": b32", Kind::Move, active),
];

/// The member mask, which all executing lanes must give alike.
fn members(cx: &Cx<'_>, mask: u32, slot: Slot) -> Result<u32, Box<Fault>> {
    let row = cx.warp.regs.row::<u32>(slot);
    let first = row[mask.trailing_zeros() as usize & 31];
    if let Some(lane) = (0..32).find(|l| mask >> l & 1 == 1 && row[*l] != first) {
        let message = format!("lanes give different member masks: {first:#010x} and {:#010x}", row[lane]);
        return Err(Fault::new(FaultKind::Synchronisation, message).at_lane(lane));
    }
    Ok(first)
}

/// How a shuffle finds its source.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
    Bfly,
    Idx,
}

struct Shuffle {
    d: Slot,
    p: Option<Pred>,
    a: Slot,
    b: Slot,
    c: Slot,
    members: Slot,
    way: Way,
}
impl Op for Shuffle {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let members = members(cx, mask, self.members)?;
        if !meet(cx, mask, members)? {
            return Ok(Flow::Blocked);
        }
        let regs = &cx.warp.regs;
        let (a, b, c) = (*regs.row::<u32>(self.a), *regs.row::<u32>(self.b), *regs.row::<u32>(self.c));
        let (mut out, mut hit) = ([0u32; 32], 0u32);
        for lane in 0..32usize {
            let (bval, cval, segment) = (b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31);
            let l = lane as u32;
            let max = l & segment | cval & !segment;
            let min = l & segment;
            let (from, inside) = match self.way {
                Way::Up => (l.wrapping_sub(bval), l as i32 - bval as i32 >= max as i32),
                Way::Down => (l + bval, l + bval <= max),
                Way::Bfly => (l ^ bval, (l ^ bval) <= max),
                Way::Idx => (min | bval & !segment, (min | bval & !segment) <= max),
            };
            let from = if inside { from & 31 } else { l };
            out[lane] = a[from as usize];
            hit |= (inside as u32) << lane;
        }
        cx.warp.regs.put(self.d, mask, &out);
        cx.put_pred(self.p, mask, hit);
        Ok(Flow::Next)
    }
}

fn shuffle(b: &mut Build<'_, '_>) -> Built {
    b.operands(5)?;
    let way = match b.quals.pick(&["up", "down", "bfly", "idx"]) {
        Some("up") => Way::Up,
        Some("down") => Way::Down,
        Some("bfly") => Way::Bfly,
        Some(_) => Way::Idx,
        None => return b.error("`shfl.sync` needs .up, .down, .bfly or .idx"),
    };
    let (d, p) = b.with_pred(0)?;
    let (a, x, c, members) = (b.src::<u32>(1)?, b.src::<u32>(2)?, b.src::<u32>(3)?, b.src::<u32>(4)?);
    let d = b.dst_of(d, 32)?;
    b.op(Shuffle { d, p, a, b: x, c, members, way })
}

/// What a vote asks.
#[derive(Clone, Copy)]
enum Ask {
    All(Option<Pred>),
    Any(Option<Pred>),
    Uni(Option<Pred>),
    Ballot(Slot),
}

struct Vote {
    ask: Ask,
    a: PredIn,
    members: Slot,
}
impl Op for Vote {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let members = members(cx, mask, self.members)?;
        if !meet(cx, mask, members)? {
            return Ok(Flow::Blocked);
        }
        let yes = cx.warp.regs.pred_in(self.a) & mask;
        let spread = |b: bool| if b { !0 } else { 0 };
        match self.ask {
            Ask::All(p) => cx.put_pred(p, mask, spread(yes == mask)),
            Ask::Any(p) => cx.put_pred(p, mask, spread(yes != 0)),
            Ask::Uni(p) => cx.put_pred(p, mask, spread(yes == mask || yes == 0)),
            Ask::Ballot(d) => cx.warp.regs.put(d, mask, &[yes; 32]),
        }
        Ok(Flow::Next)
    }
}

fn vote(b: &mut Build<'_, '_>) -> Built {
    b.operands(3)?;
    let a = b.pred_or_int(1)?;
    let members = b.src::<u32>(2)?;
    let d = b.operand(0)?;
    let ask = match (b.quals.pick(&["all", "any", "uni", "ballot"]), b.ty(0)?) {
        (Some("all"), Ty::Pred) => Ask::All(b.pred_dst(d)?),
        (Some("any"), Ty::Pred) => Ask::Any(b.pred_dst(d)?),
        (Some("uni"), Ty::Pred) => Ask::Uni(b.pred_dst(d)?),
        (Some("ballot"), Ty::B32) => Ask::Ballot(b.dst::<u32>(0)?),
        _ => return b.unsupported(),
    };
    b.op(Vote { ask, a, members })
}

struct Match {
    d: Slot,
    p: Option<Pred>,
    a: Slot,
    wide: bool,
    all: bool,
    members: Slot,
}
impl Op for Match {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let members = members(cx, mask, self.members)?;
        if !meet(cx, mask, members)? {
            return Ok(Flow::Blocked);
        }
        let regs = &cx.warp.regs;
        let a: [u64; 32] = if self.wide {
            *regs.row::<u64>(self.a)
        } else {
            std::array::from_fn(|l| regs.row::<u32>(self.a)[l] as u64)
        };
        let same = |lane: usize| (0..32).fold(0u32, |m, l| m | ((a[l] == a[lane]) as u32) << l) & mask;
        let out: [u32; 32] = std::array::from_fn(|lane| match (self.all, same(lane)) {
            (true, m) if m != mask => 0,
            (_, m) => m,
        });
        let first = mask.trailing_zeros() as usize & 31;
        let agreed = out[first] == mask;
        cx.warp.regs.put(self.d, mask, &out);
        cx.put_pred(self.p, mask, if agreed { !0 } else { 0 });
        Ok(Flow::Next)
    }
}

fn matching(b: &mut Build<'_, '_>, all: bool) -> Built {
    b.operands(3)?;
    let (d, p) = b.with_pred(0)?;
    if p.is_some() && !all {
        return b.unsupported();
    }
    let wide = b.ty(0)? == Ty::B64;
    let a = if wide { b.src::<u64>(1)? } else { b.src::<u32>(1)? };
    let members = b.src::<u32>(2)?;
    let d = b.dst_of(d, 32)?;
    b.op(Match { d, p, a, wide, all, members })
}

struct Reduce {
    d: Slot,
    a: Slot,
    members: Slot,
    join: fn(u32, u32) -> u32,
    /// Applied to each lane first (`.abs`).
    each: fn(u32) -> u32,
}
impl Op for Reduce {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let members = members(cx, mask, self.members)?;
        if !meet(cx, mask, members)? {
            return Ok(Flow::Blocked);
        }
        let a = cx.warp.regs.row::<u32>(self.a);
        let lanes = (0..32).filter(|l| mask >> l & 1 == 1).map(|l| (self.each)(a[l]));
        let value = lanes.reduce(self.join).unwrap_or(0);
        cx.warp.regs.put(self.d, mask, &[value; 32]);
        Ok(Flow::Next)
    }
}

/// The smaller or larger f32 by bits, for redux.
fn float<const MAX: bool, const NAN: bool>(x: u32, y: u32) -> u32 {
    super::float::extremum32::<MAX>(f32::from_bits(x), f32::from_bits(y), NAN).to_bits()
}

fn reduce(b: &mut Build<'_, '_>) -> Built {
    b.operands(3)?;
    let word = b.quals.pick(&["add", "min", "max", "and", "or", "xor"]);
    let (abs, nan) = (b.quals.has("abs"), b.quals.has("NaN"));
    let ty = b.ty(0)?;
    if (abs || nan) && ty != Ty::F32 {
        return b.unsupported();
    }
    let join: fn(u32, u32) -> u32 = match (word, ty) {
        (Some("add"), Ty::U32 | Ty::S32) => u32::wrapping_add,
        (Some("min"), Ty::U32) => std::cmp::min,
        (Some("max"), Ty::U32) => std::cmp::max,
        (Some("min"), Ty::S32) => |x, y| (x as i32).min(y as i32) as u32,
        (Some("max"), Ty::S32) => |x, y| (x as i32).max(y as i32) as u32,
        (Some("and"), Ty::B32) => |x, y| x & y,
        (Some("or"), Ty::B32) => |x, y| x | y,
        (Some("xor"), Ty::B32) => |x, y| x ^ y,
        (Some("min"), Ty::F32) if nan => float::<false, true>,
        (Some("min"), Ty::F32) => float::<false, false>,
        (Some("max"), Ty::F32) if nan => float::<true, true>,
        (Some("max"), Ty::F32) => float::<true, false>,
        _ => return b.unsupported(),
    };
    let each: fn(u32) -> u32 = match (ty, abs) {
        (Ty::F32, true) => |x| if f32::from_bits(x).is_nan() { NAN32.to_bits() } else { x & 0x7fff_ffff },
        (Ty::F32, false) => |x| if f32::from_bits(x).is_nan() { NAN32.to_bits() } else { x },
        _ => |x| x,
    };
    let (a, members) = (b.src::<u32>(1)?, b.src::<u32>(2)?);
    let d = b.dst::<u32>(0)?;
    b.op(Reduce { d, a, members, join, each })
}

/// The lowest member is elected.
struct Elect {
    d: Option<Slot>,
    p: Option<Pred>,
    members: Slot,
}
impl Op for Elect {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let members = members(cx, mask, self.members)?;
        if !meet(cx, mask, members)? {
            return Ok(Flow::Blocked);
        }
        let leader = mask.trailing_zeros();
        if let Some(d) = self.d {
            cx.warp.regs.put(d, mask, &[leader; 32]);
        }
        cx.put_pred(self.p, mask, 1 << (leader & 31));
        Ok(Flow::Next)
    }
}

fn elect(b: &mut Build<'_, '_>) -> Built {
    b.operands(2)?;
    let (d, p) = b.with_pred(0)?;
    let members = b.src::<u32>(1)?;
    let d = match d {
        Operand::Name(n) if n == "_" => None,
        d => Some(b.dst_of(d, 32)?),
    };
    b.op(Elect { d, p, members })
}

struct Active(Slot);
impl Op for Active {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.warp.regs.put(self.0, mask, &[mask; 32]);
        Ok(Flow::Next)
    }
}

fn active(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let d = b.dst::<u32>(0)?;
    b.op(Active(d))
}
