//! Comparisons to predicates (`setp`) and to registers (`set`).

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        lanes::{BoolOp, Kernel, compare_lanes},
        regs::{Elem, PredIn, Regs, Slot},
    },
    num::small::{bf16_to_f32, f16_to_f32},
    types::Ty,
};
use std::marker::PhantomData;

const COMPARISONS: &str = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan and|or|xor ftz : \
                           b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 f16 bf16 f16x2 bf16x2";

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("setp", COMPARISONS, Kind::Compare, |b| comparison::<true>(b, 0)),
    form("set", COMPARISONS, Kind::Compare, |b| comparison::<false>(b, 1)),
];

/// Ends a comparison: to predicates or, for `set`, to a register.
fn finish<const P: bool, A: Elem>(b: &mut Build<'_, '_>, f: impl Fn(A, A) -> bool + Send + Sync + 'static) -> Built {
    if P { b.compare(f) } else { set(b, f) }
}

const WORDS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

macro_rules! ordered {
    ($b:expr, $P:ident, $word:expr, $t:ty) => {
        match $word {
            "eq" => finish::<$P, $t>($b, |x, y| x == y),
            "ne" => finish::<$P, $t>($b, |x, y| x != y),
            "lt" | "lo" => finish::<$P, $t>($b, |x, y| x < y),
            "le" | "ls" => finish::<$P, $t>($b, |x, y| x <= y),
            "gt" | "hi" => finish::<$P, $t>($b, |x, y| x > y),
            "ge" | "hs" => finish::<$P, $t>($b, |x, y| x >= y),
            _ => $b.unsupported(),
        }
    };
}

/// Float comparisons; `$f` brings a lane to a float. The `u` ones also hold when an operand is NaN.
macro_rules! unordered {
    ($b:expr, $P:ident, $word:expr, $t:ty, $f:expr) => {{
        let f = $f;
        match $word {
            "eq" => finish::<$P, $t>($b, move |x, y| f(x) == f(y)),
            "ne" => finish::<$P, $t>($b, move |x, y| f(x) < f(y) || f(x) > f(y)),
            "lt" => finish::<$P, $t>($b, move |x, y| f(x) < f(y)),
            "le" => finish::<$P, $t>($b, move |x, y| f(x) <= f(y)),
            "gt" => finish::<$P, $t>($b, move |x, y| f(x) > f(y)),
            "ge" => finish::<$P, $t>($b, move |x, y| f(x) >= f(y)),
            "equ" => finish::<$P, $t>($b, move |x, y| !(f(x) < f(y) || f(x) > f(y))),
            "neu" => finish::<$P, $t>($b, move |x, y| f(x) != f(y)),
            "ltu" => finish::<$P, $t>($b, move |x, y| !(f(x) >= f(y))),
            "leu" => finish::<$P, $t>($b, move |x, y| !(f(x) > f(y))),
            "gtu" => finish::<$P, $t>($b, move |x, y| !(f(x) <= f(y))),
            "geu" => finish::<$P, $t>($b, move |x, y| !(f(x) < f(y))),
            "num" => finish::<$P, $t>($b, move |x, y| !f(x).is_nan() && !f(y).is_nan()),
            "nan" => finish::<$P, $t>($b, move |x, y| f(x).is_nan() || f(y).is_nan()),
            _ => $b.unsupported(),
        }
    }};
}

/// `at` is the index of the type compared.
fn comparison<const P: bool>(b: &mut Build<'_, '_>, at: usize) -> Built {
    let Some(word) = b.quals.pick(&WORDS) else { return b.error("a comparison needs .eq, .lt or another relation") };
    let unsigned_only = ["lo", "ls", "hi", "hs"].contains(&word);
    let ty = b.ty(at)?;
    if unsigned_only && !matches!(ty, Ty::U16 | Ty::U32 | Ty::U64 | Ty::B16 | Ty::B32 | Ty::B64) {
        return b.unsupported();
    }
    let flush = |x: f32| if x.is_subnormal() { 0.0 } else { x };
    match ty {
        Ty::B16 | Ty::B32 | Ty::B64 if !["eq", "ne"].contains(&word) && !unsigned_only => b.unsupported(),
        Ty::B16 | Ty::U16 => ordered!(b, P, word, u16),
        Ty::B32 | Ty::U32 => ordered!(b, P, word, u32),
        Ty::B64 | Ty::U64 => ordered!(b, P, word, u64),
        Ty::S16 => ordered!(b, P, word, i16),
        Ty::S32 => ordered!(b, P, word, i32),
        Ty::S64 => ordered!(b, P, word, i64),
        Ty::F32 if b.quals.has("ftz") => unordered!(b, P, word, f32, flush),
        Ty::F32 => unordered!(b, P, word, f32, |x: f32| x),
        Ty::F64 => unordered!(b, P, word, f64, |x: f64| x),
        Ty::F16 => unordered!(b, P, word, u16, f16_to_f32),
        Ty::Bf16 => unordered!(b, P, word, u16, bf16_to_f32),
        Ty::F16x2 | Ty::Bf16x2 if P => packed(b, word, ty),
        _ => b.unsupported(),
    }
}

/// A relation of two floats.
fn relation(word: &str) -> fn(f32, f32) -> bool {
    match word {
        "eq" => |x, y| x == y,
        "ne" => |x, y| x != y && !x.is_nan() && !y.is_nan(),
        "lt" => |x, y| x < y,
        "le" => |x, y| x <= y,
        "gt" => |x, y| x > y,
        "ge" => |x, y| x >= y,
        "equ" => |x, y| x == y || x.is_nan() || y.is_nan(),
        "neu" => |x, y| x != y,
        "ltu" => |x, y| !(x >= y),
        "leu" => |x, y| !(x > y),
        "gtu" => |x, y| !(x <= y),
        "geu" => |x, y| !(x < y),
        "num" => |x, y| !x.is_nan() && !y.is_nan(),
        _ => |x, y| x.is_nan() || y.is_nan(),
    }
}

/// `p|q = low halves, high halves`.
struct PackedCompare {
    p: crate::exec::regs::Pred,
    q: Option<crate::exec::regs::Pred>,
    a: Slot,
    b: Slot,
    with: Option<(BoolOp, PredIn)>,
    widen: fn(u16) -> f32,
    relation: fn(f32, f32) -> bool,
}
impl Kernel for PackedCompare {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (a, b) = (regs.row::<u32>(self.a), regs.row::<u32>(self.b));
        let (mut low, mut high) = (0u32, 0u32);
        for i in 0..32 {
            let f = |shift: u32| {
                (self.relation)((self.widen)((a[i] >> shift) as u16), (self.widen)((b[i] >> shift) as u16))
            };
            low |= (f(0) as u32) << i;
            high |= (f(16) as u32) << i;
        }
        if let Some((op, c)) = self.with {
            let c = regs.pred_in(c);
            for x in [&mut low, &mut high] {
                match op {
                    BoolOp::And => *x &= c,
                    BoolOp::Or => *x |= c,
                    BoolOp::Xor => *x ^= c,
                }
            }
        }
        regs.put_pred(self.p, mask, low);
        if let Some(q) = self.q {
            regs.put_pred(q, mask, high);
        }
    }
}

fn join(b: &Build<'_, '_>) -> Option<BoolOp> {
    match b.quals.pick(&["and", "or", "xor"]) {
        Some("and") => Some(BoolOp::And),
        Some("or") => Some(BoolOp::Or),
        Some(_) => Some(BoolOp::Xor),
        None => None,
    }
}

fn packed(b: &mut Build<'_, '_>, word: &'static str, ty: Ty) -> Built {
    let join = join(b);
    b.operands(if join.is_some() { 4 } else { 3 })?;
    let (p, q) = b.pred_pair(0)?;
    let (x, y) = (b.src::<u32>(1)?, b.src::<u32>(2)?);
    let with = match join {
        Some(op) => Some((op, b.pred_in(3)?)),
        None => None,
    };
    let p = p.unwrap_or_else(|| b.scratch_pred());
    let widen = if ty == Ty::F16x2 { f16_to_f32 } else { bf16_to_f32 };
    b.kernel(PackedCompare { p, q, a: x, b: y, with, widen, relation: relation(word) })
}

/// `d = f(a, b) [op c] ? yes : 0`.
struct Set<A, F> {
    d: Slot,
    a: Slot,
    b: Slot,
    with: Option<(BoolOp, PredIn)>,
    yes: u32,
    f: F,
    types: PhantomData<fn(A)>,
}
impl<A: Elem, F: Fn(A, A) -> bool + Send + Sync + 'static> Kernel for Set<A, F> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let mut hit = compare_lanes::<A>(regs.row(self.a), regs.row(self.b), &self.f);
        if let Some((op, c)) = self.with {
            let c = regs.pred_in(c);
            hit = match op {
                BoolOp::And => hit & c,
                BoolOp::Or => hit | c,
                BoolOp::Xor => hit ^ c,
            };
        }
        let mut out = [0u32; 32];
        for i in 0..32 {
            out[i] = if hit >> i & 1 == 1 { self.yes } else { 0 };
        }
        regs.put(self.d, mask, &out);
    }
}

fn set<A: Elem>(b: &mut Build<'_, '_>, f: impl Fn(A, A) -> bool + Send + Sync + 'static) -> Built {
    let join = join(b);
    b.operands(if join.is_some() { 4 } else { 3 })?;
    let (x, y) = (b.src::<A>(1)?, b.src::<A>(2)?);
    let with = match join {
        Some(op) => Some((op, b.pred_in(3)?)),
        None => None,
    };
    let ty = b.ty(0)?;
    let yes = match ty {
        Ty::U32 | Ty::S32 => !0,
        Ty::F32 => 1f32.to_bits(),
        Ty::U16 | Ty::S16 => 0xffff,
        Ty::F16 => 0x3c00,
        Ty::Bf16 => 0x3f80,
        _ => return b.unsupported(),
    };
    let d = b.operand(0)?;
    let d = b.dst_of(d, ty.bits())?;
    b.kernel(Set { d, a: x, b: y, with, yes, f, types: PhantomData })
}
