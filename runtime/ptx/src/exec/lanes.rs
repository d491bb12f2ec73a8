//! Lane-wise instructions: a plain function of one lane, applied to 32 of them.
//!
//! [`Map1`] to [`Map3`] and [`Compare`] are all that an arithmetic instruction needs; each is compiled once per
//! instruction set ([`Tier`]), the loop over the lanes becoming vector code. Tiers differ in speed only: a lane function
//! uses operations that round in one way (an explicit `mul_add` is the same fma everywhere), so bits are equal.

use super::{
    op::{Cx, Flow, Op, Outcome},
    regs::{Elem, Pred, PredIn, Regs, Slot},
};

/// The instruction set that the hot loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Whatever the target's baseline has.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL).
    Avx512,
}

impl Tier {
    /// The best this machine has.
    pub fn best() -> Tier {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 && avx512 {
                return Tier::Avx512;
            }
            if avx2 {
                return Tier::Avx2;
            }
        }
        Tier::Portable
    }
}

/// An instruction that only reads and writes registers and cannot fail.
///
/// `run` must be `#[inline(always)]`, so that each tier compiles it anew.
pub trait Kernel: Send + Sync + 'static {
    /// Executes for the lanes of `mask`.
    fn run(&self, regs: &mut Regs, mask: u32);
}

/// Makes an executable instruction of a kernel, in the code of `tier`.
pub fn lanes<K: Kernel>(tier: Tier, kernel: K) -> Box<dyn Op> {
    match tier {
        #[cfg(target_arch = "x86_64")]
        Tier::Avx512 => Box::new(Avx512(kernel)),
        #[cfg(target_arch = "x86_64")]
        Tier::Avx2 => Box::new(Avx2(kernel)),
        _ => Box::new(Portable(kernel)),
    }
}

struct Portable<K>(K);
impl<K: Kernel> Op for Portable<K> {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        self.0.run(&mut cx.warp.regs, mask);
        Ok(Flow::Next)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;

    pub struct Avx2<K>(pub K);
    impl<K: Kernel> Op for Avx2<K> {
        fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            fn go<K: Kernel>(kernel: &K, regs: &mut Regs, mask: u32) {
                kernel.run(regs, mask);
            }
            // SAFETY: this type is only made when `Tier::best` saw these features (every AVX2 machine has BMI).
            unsafe { go(&self.0, &mut cx.warp.regs, mask) };
            Ok(Flow::Next)
        }
    }

    pub struct Avx512<K>(pub K);
    impl<K: Kernel> Op for Avx512<K> {
        fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            fn go<K: Kernel>(kernel: &K, regs: &mut Regs, mask: u32) {
                kernel.run(regs, mask);
            }
            // SAFETY: this type is only made when `Tier::best` saw these features.
            unsafe { go(&self.0, &mut cx.warp.regs, mask) };
            Ok(Flow::Next)
        }
    }
}
#[cfg(target_arch = "x86_64")]
use x86::{Avx2, Avx512};

/// `d = f(a)`.
pub struct Map1<A, R, F> {
    /// Destination.
    pub d: Slot,
    /// Source.
    pub a: Slot,
    /// The function of one lane.
    pub f: F,
    /// Lane types.
    pub types: std::marker::PhantomData<fn(A) -> R>,
}

impl<A: Elem, R: Elem, F: Fn(A) -> R + Send + Sync + 'static> Kernel for Map1<A, R, F> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let a = regs.row::<A::Store>(self.a);
        let mut out = [R::Store::default(); 32];
        for i in 0..32 {
            out[i] = (self.f)(A::load(a[i])).store();
        }
        regs.put(self.d, mask, &out);
    }
}

/// `d = f(a, b)`.
pub struct Map2<A, B, R, F> {
    /// Destination.
    pub d: Slot,
    /// First source.
    pub a: Slot,
    /// Second source.
    pub b: Slot,
    /// The function of one lane.
    pub f: F,
    /// Lane types.
    pub types: std::marker::PhantomData<fn(A, B) -> R>,
}

impl<A: Elem, B: Elem, R: Elem, F: Fn(A, B) -> R + Send + Sync + 'static> Kernel for Map2<A, B, R, F> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (a, b) = (regs.row::<A::Store>(self.a), regs.row::<B::Store>(self.b));
        let mut out = [R::Store::default(); 32];
        for i in 0..32 {
            out[i] = (self.f)(A::load(a[i]), B::load(b[i])).store();
        }
        regs.put(self.d, mask, &out);
    }
}

/// `d = f(a, b, c)`.
pub struct Map3<A, B, C, R, F> {
    /// Destination.
    pub d: Slot,
    /// First source.
    pub a: Slot,
    /// Second source.
    pub b: Slot,
    /// Third source.
    pub c: Slot,
    /// The function of one lane.
    pub f: F,
    /// Lane types.
    pub types: std::marker::PhantomData<fn(A, B, C) -> R>,
}

impl<A: Elem, B: Elem, C: Elem, R: Elem, F: Fn(A, B, C) -> R + Send + Sync + 'static> Kernel for Map3<A, B, C, R, F> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let (a, b, c) = (regs.row::<A::Store>(self.a), regs.row::<B::Store>(self.b), regs.row::<C::Store>(self.c));
        let mut out = [R::Store::default(); 32];
        for i in 0..32 {
            out[i] = (self.f)(A::load(a[i]), B::load(b[i]), C::load(c[i])).store();
        }
        regs.put(self.d, mask, &out);
    }
}

/// How a comparison's result meets a further predicate (`setp.lt.and`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoolOp {
    /// `.and`
    And,
    /// `.or`
    Or,
    /// `.xor`
    Xor,
}

/// Bits of the lanes for which `f(a, b)` holds.
#[inline(always)]
pub fn compare_lanes<A: Elem>(a: &[A::Store; 32], b: &[A::Store; 32], f: &impl Fn(A, A) -> bool) -> u32 {
    // An or-reduction over lane bits: this form becomes vector compares.
    let mut bits = [0u32; 32];
    for i in 0..32 {
        bits[i] = if f(A::load(a[i]), A::load(b[i])) { 1 << i } else { 0 };
    }
    bits.iter().fold(0, |m, b| m | b)
}

/// `p = f(a, b) op c`, `q = !f(a, b) op c`.
pub struct Compare<A, F> {
    /// Destination.
    pub p: Pred,
    /// Second destination, of the negated comparison.
    pub q: Option<Pred>,
    /// First source.
    pub a: Slot,
    /// Second source.
    pub b: Slot,
    /// Combination with a predicate.
    pub with: Option<(BoolOp, PredIn)>,
    /// The comparison of one lane.
    pub f: F,
    /// Lane type.
    pub types: std::marker::PhantomData<fn(A)>,
}

impl<A: Elem, F: Fn(A, A) -> bool + Send + Sync + 'static> Kernel for Compare<A, F> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let hit = compare_lanes::<A>(regs.row(self.a), regs.row(self.b), &self.f);
        let (mut p, mut q) = (hit, !hit);
        if let Some((op, c)) = self.with {
            let c = regs.pred_in(c);
            let join = |x: u32| match op {
                BoolOp::And => x & c,
                BoolOp::Or => x | c,
                BoolOp::Xor => x ^ c,
            };
            (p, q) = (join(p), join(q));
        }
        regs.put_pred(self.p, mask, p);
        if let Some(d) = self.q {
            regs.put_pred(d, mask, q);
        }
    }
}
