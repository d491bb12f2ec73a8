//! wgmma: products of a warpgroup (four warps), B and maybe A in shared memory, asynchronous.
//!
//! Each warp computes its 16 rows of the 64: warp `w` of the group rows `16 w` to `16 w + 15`. The accumulators of columns
//! `8 j` to `8 j + 7` are those of mma.sync, in the j-th four (or, in f16, two) registers.
//!
//! With early completion a product is computed when issued, with late completion when `wgmma.wait_group` waits for its
//! group; then it reads what shared memory holds by that time. In strict mode its registers may not be touched in between,
//! and the shared memory that it reads must have been published by `fence.proxy.async`.

use super::{
    matrix_operand::{Major, Operand as InMemory, TILE_K},
    tensor::{Accumulators, InF16, InF32, InS32, Saturate, multiply},
};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        fault::{Fault, FaultKind},
        lanes::Tier,
        op::{Cx, Flow, Op, Outcome},
        products::{self, Compute, Inputs, Left},
        regs::{PredIn, Regs, Slot},
    },
    mem::watch::Order,
    num::element::{Bf16, E4m3, E5m2, Element, F16, S8, Tf32, U8, Value},
    text::ast::Operand,
    types::Ty,
};
use std::{marker::PhantomData, sync::Arc};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("wgmma.fence.sync", "aligned", Kind::Fence, |b| b.op(RegisterFence)),
    form("wgmma.commit_group.sync", "aligned", Kind::Matrix, |b| b.op(Commit)),
    form("wgmma.wait_group.sync", "aligned", Kind::Matrix, wait),
    form(
        "wgmma.mma_async.sync",
        "aligned m64n#k8|m64n#k16|m64n#k32 satfinite : f16 bf16 tf32 f32 s8 u8 s32 e4m3 e5m2",
        Kind::Matrix,
        product,
    ),
    form("setmaxnreg", "inc|dec sync aligned : u32", Kind::Move, registers),
];

/// Orders register accesses with the products that follow.
struct RegisterFence;
impl Op for RegisterFence {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.check_aligned(mask, "wgmma.fence")?;
        cx.warp.products.fence();
        Ok(Flow::Next)
    }
}

struct Commit;
impl Op for Commit {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.check_aligned(mask, "wgmma.commit_group")?;
        cx.warp.products.commit();
        Ok(Flow::Next)
    }
}

struct Wait(usize);
impl Op for Wait {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.check_aligned(mask, "wgmma.wait_group")?;
        products::wait(cx, self.0)?;
        cx.order(Order::Waited);
        Ok(Flow::Next)
    }
}

fn wait(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    match usize::try_from(b.int(0)?) {
        Ok(pending) => b.op(Wait(pending)),
        Err(_) => b.error("wgmma.wait_group takes a number of groups"),
    }
}

/// setmaxnreg: a warp's share of registers, of which there are always enough here.
fn registers(b: &mut Build<'_, '_>) -> Built {
    b.operands(1)?;
    let n = b.int(0)?;
    if !(24..=256).contains(&n) || n % 8 != 0 {
        return b.error(format!("setmaxnreg {n}: multiples of 8 from 24 to 256 are possible"));
    }
    struct Registers;
    impl Op for Registers {
        fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
            cx.check_aligned(mask, "setmaxnreg")?;
            Ok(Flow::Next)
        }
    }
    b.op(Registers)
}

/// Rows of A or columns of B as bytes along k.
type Lines = [[u8; TILE_K]];

/// The loop over columns, in the code of one instruction set.
trait Multiply: Send + Sync {
    fn run(&self, regs: &mut Regs, a: &[[u8; TILE_K]; 16], b: &Lines, accumulate: bool);
}

struct Loop<A, B, C, const K: usize> {
    d: Arc<[Slot]>,
    negate_a: bool,
    negate_b: bool,
    saturate: bool,
    types: PhantomData<fn(A, B, C)>,
}

/// An element of a line.
#[inline(always)]
fn element<E: Element>(line: &[u8; TILE_K], k: usize) -> E::V {
    let mut word = [0u8; 4];
    for i in 0..E::BYTES {
        word[i] = line[k * E::BYTES + i];
    }
    E::get(u32::from_le_bytes(word))
}

impl<A, B, C, const K: usize> Loop<A, B, C, K>
where
    A: Element,
    B: Element<V = A::V>,
    C: Accumulators<V = A::V>,
    A::V: Saturate,
{
    #[inline(always)]
    fn body(&self, regs: &mut Regs, a: &[[u8; TILE_K]; 16], b: &Lines, accumulate: bool) {
        let mut rows = [[A::V::default(); K]; 16];
        for r in 0..16 {
            for k in 0..K {
                let v = element::<A>(&a[r], k);
                rows[r][k] = if self.negate_a { v.negate() } else { v };
            }
        }
        for (j, columns) in b.chunks_exact(8).enumerate() {
            let mut tile = [[A::V::default(); 8]; K];
            for n in 0..8 {
                for k in 0..K {
                    let v = element::<B>(&columns[n], k);
                    tile[k][n] = if self.negate_b { v.negate() } else { v };
                }
            }
            let d = &self.d[j * C::REGISTERS..(j + 1) * C::REGISTERS];
            multiply::<C, K>(regs, !0, &rows, &tile, accumulate.then_some(d), d, self.saturate);
        }
    }
}

/// A loop compiled for a tier.
struct Tiered<L, const TIER: u8>(L);

macro_rules! tier {
    ($number:literal, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        impl<A, B, C, const K: usize> Multiply for Tiered<Loop<A, B, C, K>, $number>
        where
            A: Element,
            B: Element<V = A::V>,
            C: Accumulators<V = A::V>,
            A::V: Saturate,
        {
            fn run(&self, regs: &mut Regs, a: &[[u8; TILE_K]; 16], b: &Lines, accumulate: bool) {
                #[target_feature(enable = $features)]
                fn go<A, B, C, const K: usize>(
                    l: &Loop<A, B, C, K>,
                    regs: &mut Regs,
                    a: &[[u8; TILE_K]; 16],
                    b: &Lines,
                    accumulate: bool,
                ) where
                    A: Element,
                    B: Element<V = A::V>,
                    C: Accumulators<V = A::V>,
                    A::V: Saturate,
                {
                    l.body(regs, a, b, accumulate);
                }
                // SAFETY: this tier is only chosen where `Tier::best` saw its features.
                unsafe { go(&self.0, regs, a, b, accumulate) }
            }
        }
    };
}
tier!(1, "avx2,fma,bmi1,bmi2,lzcnt,popcnt");
tier!(2, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt");

impl<A, B, C, const K: usize> Multiply for Tiered<Loop<A, B, C, K>, 0>
where
    A: Element,
    B: Element<V = A::V>,
    C: Accumulators<V = A::V>,
    A::V: Saturate,
{
    fn run(&self, regs: &mut Regs, a: &[[u8; TILE_K]; 16], b: &Lines, accumulate: bool) {
        self.0.body(regs, a, b, accumulate);
    }
}

/// The instruction.
struct Product {
    core: Arc<Core>,
    a: LeftIn,
    b: Slot,
    scale_d: PredIn,
    results: Arc<[Slot]>,
    flops: u64,
    line: u32,
}

/// Where A is.
enum LeftIn {
    Registers([Slot; 4]),
    Descriptor(Slot),
}

/// What computes it, now or later.
struct Core {
    multiply: Box<dyn Multiply>,
    a: InMemory,
    b: InMemory,
}

impl Compute for Core {
    fn compute(&self, cx: &mut Cx<'_>, inputs: &Inputs) -> Result<(), Box<Fault>> {
        let mut a = [[0u8; TILE_K]; 16];
        match &inputs.a {
            Left::Descriptor(descriptor) => self.a.fetch(cx, *descriptor, warp_row(cx), &mut a)?,
            Left::Registers(fragments) => {
                for (i, register) in fragments.iter().enumerate() {
                    for (lane, word) in register.iter().enumerate() {
                        let (row, byte) = (lane / 4 + 8 * (i & 1), 16 * (i >> 1) + 4 * (lane % 4));
                        a[row][byte..byte + 4].copy_from_slice(&word.to_le_bytes());
                    }
                }
            }
        }
        let mut b = [[0u8; TILE_K]; 256];
        let b = &mut b[..self.b.lines];
        self.b.fetch(cx, inputs.b, 0, b)?;
        self.multiply.run(&mut cx.warp.regs, &a, b, inputs.accumulate);
        Ok(())
    }
}

/// First of the 16 rows that the context's warp computes.
fn warp_row(cx: &Cx<'_>) -> usize {
    16 * (cx.warp.index as usize % 4)
}

impl Op for Product {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.check_aligned(mask, "wgmma.mma_async")?;
        if cx.launch.options.strict.registers && cx.warp.products.needs_fence() {
            return Err(Fault::new(
                FaultKind::Asynchronous,
                "wgmma uses registers that were written since the last wgmma.fence (or there was none)",
            ));
        }
        cx.counters.tensor_flops += self.flops;
        let regs = &cx.warp.regs;
        let scale = regs.pred_in(self.scale_d);
        if scale & mask != 0 && scale & mask != mask {
            return Err(Fault::new(FaultKind::Synchronisation, "wgmma: scale-d differs between the lanes of the warp"));
        }
        let first = mask.trailing_zeros() as usize & 31;
        let (a, sources) = match &self.a {
            LeftIn::Registers(slots) => {
                let rows = slots.map(|s| *regs.row::<u32>(s));
                (Left::Registers(Box::new(rows)), slots.to_vec())
            }
            LeftIn::Descriptor(slot) => (Left::Descriptor(regs.lane::<u64>(*slot, first)), Vec::new()),
        };
        let inputs = Inputs { a, b: regs.lane::<u64>(self.b, first), accumulate: scale & mask != 0 };
        if let Left::Descriptor(descriptor) = &inputs.a {
            self.core.a.check(cx, *descriptor, warp_row(cx), 16)?;
        }
        self.core.b.check(cx, inputs.b, 0, self.core.b.lines)?;
        products::issue(cx, self.core.clone(), inputs, self.results.clone(), sources, self.line)?;
        Ok(Flow::Next)
    }
}

/// What the qualifiers and constants say.
struct Parts {
    n: usize,
    negate_a: bool,
    negate_b: bool,
    results: Arc<[Slot]>,
}

fn core<A, B, C, const K: usize>(b: &Build<'_, '_>, parts: &Parts, majors: (Major, Major)) -> Arc<Core>
where
    A: Element,
    B: Element<V = A::V>,
    C: Accumulators<V = A::V>,
    A::V: Saturate,
{
    let l = Loop::<A, B, C, K> {
        d: parts.results.clone(),
        negate_a: parts.negate_a,
        negate_b: parts.negate_b,
        saturate: b.quals.has("satfinite"),
        types: PhantomData,
    };
    let multiply: Box<dyn Multiply> = match b.tier {
        #[cfg(target_arch = "x86_64")]
        Tier::Avx512 => Box::new(Tiered::<_, 2>(l)),
        #[cfg(target_arch = "x86_64")]
        Tier::Avx2 => Box::new(Tiered::<_, 1>(l)),
        _ => Box::new(Tiered::<_, 0>(l)),
    };
    let operand = |major, lines| InMemory { major, size: A::BYTES, lines };
    Arc::new(Core { multiply, a: operand(majors.0, 64), b: operand(majors.1, parts.n) })
}

fn product(b: &mut Build<'_, '_>) -> Built {
    let name = b.inst.name();
    let shape = b.quals.starting("m64n").unwrap_or("").to_string();
    let numbers = shape.strip_prefix("m64n").and_then(|s| s.split_once('k'));
    let Some((n, k)) = numbers.and_then(|(n, k)| Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?))) else {
        return b.error(format!("`{name}` lacks a shape such as m64n128k16"));
    };
    let types = (b.ty(0)?, b.ty(1)?, b.ty(2)?);
    let integer = types.0 == Ty::S32;
    if n == 0 || n > 256 || n % 8 != 0 || (integer && n > 32 && n % 16 != 0) {
        return b.error(format!("`{name}`: no shape has n = {n}"));
    }
    if b.quals.has("satfinite") && !integer {
        return b.error("wgmma .satfinite is for integers only");
    }
    let size = types.1.bits() as usize / 8;
    if k * size != TILE_K {
        return b.error(format!("`{name}`: operands of {} want k = {}", types.1, TILE_K / size.max(1)));
    }
    let registers = n / 2 / if types.0 == Ty::F16 { 2 } else { 1 };
    let parts = b.parts(0)?;
    if parts.len() != registers {
        return b.error(format!("`{name}`: {registers} accumulator registers are wanted, found {}", parts.len()));
    }
    let mut results = Vec::new();
    for part in parts {
        results.push(b.held(part, true)?);
    }
    let in_registers = matches!(b.operand(1)?, Operand::Vector(_));
    let a = if in_registers {
        let parts = b.parts(1)?;
        if parts.len() != 4 {
            return b.error(format!("`{name}`: A takes 4 registers, found {}", parts.len()));
        }
        let mut slots = [Slot(0); 4];
        for (slot, part) in slots.iter_mut().zip(parts) {
            *slot = b.held(part, false)?;
        }
        LeftIn::Registers(slots)
    } else {
        LeftIn::Descriptor(b.src::<u64>(1)?)
    };
    let second = b.src::<u64>(2)?;
    let scale_d = b.pred_or_int(3)?;
    // Then, for floats, the signs of A and B; for 16 bits, too, which way they lie in memory.
    let transposable = size == 2;
    let majors = if transposable { 2 - in_registers as usize } else { 0 };
    b.operands(4 + if integer { 0 } else { 2 + majors })?;
    let sign = |i: usize| match b.int(i)? {
        1 => Ok(false),
        -1 => Ok(true),
        v => b.error(format!("`{name}`: a scale of {v}; 1 or -1 is possible")),
    };
    let (negate_a, negate_b) = if integer { (false, false) } else { (sign(4)?, sign(5)?) };
    let major = |i: usize| match b.int(i)? {
        0 => Ok(Major::K),
        1 => Ok(Major::Mn),
        v => b.error(format!("`{name}`: a transposition of {v}; 0 or 1 is possible")),
    };
    let majors = match (majors, in_registers) {
        (2, _) => (major(6)?, major(7)?),
        (1, _) => (Major::K, major(6)?),
        _ => (Major::K, Major::K),
    };
    let parts = Parts { n, negate_a, negate_b, results: results.into() };
    let core = match types {
        (Ty::F32, Ty::Bf16, Ty::Bf16) => core::<Bf16, Bf16, InF32, 16>(b, &parts, majors),
        (Ty::F32, Ty::F16, Ty::F16) => core::<F16, F16, InF32, 16>(b, &parts, majors),
        (Ty::F16, Ty::F16, Ty::F16) => core::<F16, F16, InF16, 16>(b, &parts, majors),
        (Ty::F32, Ty::Tf32, Ty::Tf32) => core::<Tf32, Tf32, InF32, 8>(b, &parts, majors),
        (Ty::S32, Ty::S8, Ty::S8) => core::<S8, S8, InS32, 32>(b, &parts, majors),
        (Ty::S32, Ty::S8, Ty::U8) => core::<S8, U8, InS32, 32>(b, &parts, majors),
        (Ty::S32, Ty::U8, Ty::S8) => core::<U8, S8, InS32, 32>(b, &parts, majors),
        (Ty::S32, Ty::U8, Ty::U8) => core::<U8, U8, InS32, 32>(b, &parts, majors),
        (Ty::F32, Ty::E4m3, Ty::E4m3) => core::<E4m3, E4m3, InF32, 32>(b, &parts, majors),
        (Ty::F32, Ty::E4m3, Ty::E5m2) => core::<E4m3, E5m2, InF32, 32>(b, &parts, majors),
        (Ty::F32, Ty::E5m2, Ty::E4m3) => core::<E5m2, E4m3, InF32, 32>(b, &parts, majors),
        (Ty::F32, Ty::E5m2, Ty::E5m2) => core::<E5m2, E5m2, InF32, 32>(b, &parts, majors),
        (Ty::F16, Ty::E4m3, Ty::E4m3) => core::<E4m3, E4m3, InF16, 32>(b, &parts, majors),
        (Ty::F16, Ty::E4m3, Ty::E5m2) => core::<E4m3, E5m2, InF16, 32>(b, &parts, majors),
        (Ty::F16, Ty::E5m2, Ty::E4m3) => core::<E5m2, E4m3, InF16, 32>(b, &parts, majors),
        (Ty::F16, Ty::E5m2, Ty::E5m2) => core::<E5m2, E5m2, InF16, 32>(b, &parts, majors),
        _ => return b.unsupported(),
    };
    let flops = 2 * 16 * (n * k) as u64;
    let line = b.inst.line;
    b.op(Product { core, a, b: second, scale_d, results: parts.results, flops, line })
}
