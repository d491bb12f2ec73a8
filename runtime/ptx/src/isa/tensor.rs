//! mma.sync: products of small matrices whose parts lie in a warp's registers.
//!
//! Lane `4g + t` holds, in the j-th of the `e` elements of a 32-bit register,
//!
//! | fragment | row | column |
//! |---|---|---|
//! | A, register i | `g + 8 (i mod 2)` | `e t + j + 4 e (i div 2)` |
//! | B, register i | `e t + j + 4 e i` | `g` |
//! | C and D, element i | `g + 8 (i div 2)` | `2 t + i mod 2` |
//!
//! which is one rule for all types of 8 to 32 bits (and, with `e` = 1, for f64). How products are added says
//! [`crate::num::element`].

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        lanes::Kernel,
        op::{Cx, Op, Outcome},
        regs::{Regs, Slot},
    },
    num::{
        element::{Bf16, E4m3, E5m2, Element, F16, S8, Tf32, U8, Value},
        small::{f16_to_f32, f32_to_f16},
    },
    types::Ty,
};
use std::marker::PhantomData;

/// This family's rows.
pub const FORMS: &[Form] = &[form(
    "mma.sync",
    "aligned m8n8k4|m16n8k4|m16n8k8|m16n8k16|m16n8k32 row col satfinite \
     : f16 bf16 tf32 f32 f64 s8 u8 s32 e4m3 e5m2",
    Kind::Matrix,
    mma,
)];

/// An instruction that the whole warp executes, with the multiply-adds it counts.
struct Together {
    inner: Box<dyn Op>,
    flops: u64,
}
impl Op for Together {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        cx.check_aligned(mask, "mma.sync")?;
        cx.counters.tensor_flops += self.flops;
        self.inner.run(cx, mask)
    }
}

/// Accumulators in registers: 16 x 8 values as two halves of 8 rows.
pub(super) trait Accumulators: Send + Sync + 'static {
    type V: Value;
    /// Registers of 16 x 8 values.
    const REGISTERS: usize;
    /// Rows `8h..8h+8`.
    fn read(regs: &Regs, slots: &[Slot], h: usize) -> [[Self::V; 8]; 8];
    /// The same, back.
    fn write(regs: &mut Regs, slots: &[Slot], h: usize, mask: u32, c: &[[Self::V; 8]; 8]);
}

pub(super) struct InF32;
impl Accumulators for InF32 {
    type V = f32;
    const REGISTERS: usize = 4;
    #[inline(always)]
    fn read(regs: &Regs, slots: &[Slot], h: usize) -> [[f32; 8]; 8] {
        let (even, odd) = (regs.row::<u32>(slots[2 * h]), regs.row::<u32>(slots[2 * h + 1]));
        let mut c = [[0.0; 8]; 8];
        for lane in 0..32 {
            c[lane / 4][lane % 4 * 2] = f32::from_bits(even[lane]);
            c[lane / 4][lane % 4 * 2 + 1] = f32::from_bits(odd[lane]);
        }
        c
    }
    #[inline(always)]
    fn write(regs: &mut Regs, slots: &[Slot], h: usize, mask: u32, c: &[[f32; 8]; 8]) {
        for i in 0..2 {
            let mut row = [0; 32];
            for lane in 0..32 {
                row[lane] = c[lane / 4][lane % 4 * 2 + i].finish().to_bits();
            }
            regs.put(slots[2 * h + i], mask, &row);
        }
    }
}

pub(super) struct InF16;
impl Accumulators for InF16 {
    type V = f32;
    const REGISTERS: usize = 2;
    #[inline(always)]
    fn read(regs: &Regs, slots: &[Slot], h: usize) -> [[f32; 8]; 8] {
        let row = regs.row::<u32>(slots[h]);
        let mut c = [[0.0; 8]; 8];
        for lane in 0..32 {
            c[lane / 4][lane % 4 * 2] = f16_to_f32(row[lane] as u16);
            c[lane / 4][lane % 4 * 2 + 1] = f16_to_f32((row[lane] >> 16) as u16);
        }
        c
    }
    #[inline(always)]
    fn write(regs: &mut Regs, slots: &[Slot], h: usize, mask: u32, c: &[[f32; 8]; 8]) {
        let mut row = [0; 32];
        for lane in 0..32 {
            let (low, high) = (c[lane / 4][lane % 4 * 2], c[lane / 4][lane % 4 * 2 + 1]);
            row[lane] = f32_to_f16(low) as u32 | (f32_to_f16(high) as u32) << 16;
        }
        regs.put(slots[h], mask, &row);
    }
}

pub(super) struct InS32;
impl Accumulators for InS32 {
    type V = i32;
    const REGISTERS: usize = 4;
    #[inline(always)]
    fn read(regs: &Regs, slots: &[Slot], h: usize) -> [[i32; 8]; 8] {
        let (even, odd) = (regs.row::<u32>(slots[2 * h]), regs.row::<u32>(slots[2 * h + 1]));
        let mut c = [[0; 8]; 8];
        for lane in 0..32 {
            c[lane / 4][lane % 4 * 2] = even[lane] as i32;
            c[lane / 4][lane % 4 * 2 + 1] = odd[lane] as i32;
        }
        c
    }
    #[inline(always)]
    fn write(regs: &mut Regs, slots: &[Slot], h: usize, mask: u32, c: &[[i32; 8]; 8]) {
        for i in 0..2 {
            let mut row = [0; 32];
            for lane in 0..32 {
                row[lane] = c[lane / 4][lane % 4 * 2 + i] as u32;
            }
            regs.put(slots[2 * h + i], mask, &row);
        }
    }
}

/// `D = A·B + C` with A of 16 x K; `K` is `4 e` times the registers of B.
struct Product<A, B, C, const K: usize> {
    d: [Slot; 4],
    a: [Slot; 4],
    b: [Slot; 2],
    c: [Slot; 4],
    saturate: bool,
    types: PhantomData<fn(A, B, C)>,
}

impl<A, B, C, const K: usize> Kernel for Product<A, B, C, K>
where
    A: Element,
    B: Element<V = A::V>,
    C: Accumulators<V = A::V>,
    A::V: Saturate,
{
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let e = 4 / A::BYTES;
        let zero = A::V::default();
        let mut a = [[zero; K]; 16];
        for (i, slot) in self.a[..K / (2 * e)].iter().enumerate() {
            let row = regs.row::<u32>(*slot);
            let (r0, k0) = (8 * (i & 1), 4 * e * (i >> 1));
            for lane in 0..32 {
                for j in 0..e {
                    a[r0 + lane / 4][k0 + lane % 4 * e + j] = A::get(row[lane] >> (8 * A::BYTES * j));
                }
            }
        }
        let mut b = [[zero; 8]; K];
        for (i, slot) in self.b[..K / (4 * e)].iter().enumerate() {
            let row = regs.row::<u32>(*slot);
            for lane in 0..32 {
                for j in 0..e {
                    b[4 * e * i + lane % 4 * e + j][lane / 4] = B::get(row[lane] >> (8 * A::BYTES * j));
                }
            }
        }
        multiply::<C, K>(regs, mask, &a, &b, Some(&self.c), &self.d, self.saturate);
    }
}

/// `D = A·B + C`, C and D in registers; C is zero where there is none.
#[inline(always)]
pub(super) fn multiply<C: Accumulators, const K: usize>(
    regs: &mut Regs,
    mask: u32,
    a: &[[C::V; K]; 16],
    b: &[[C::V; 8]; K],
    c: Option<&[Slot]>,
    d: &[Slot],
    saturate: bool,
) where
    C::V: Saturate,
{
    let zero = [[C::V::default(); 8]; 8];
    for h in 0..2 {
        let start = c.map_or(zero, |c| C::read(regs, c, h));
        let mut sum = if saturate { zero } else { start };
        for k in 0..K {
            for r in 0..8 {
                for n in 0..8 {
                    sum[r][n] = C::V::madd(a[8 * h + r][k], b[k][n], sum[r][n]);
                }
            }
        }
        if saturate {
            for r in 0..8 {
                for n in 0..8 {
                    sum[r][n] = start[r][n].saturating(sum[r][n]);
                }
            }
        }
        C::write(regs, d, h, mask, &sum);
    }
}

/// Adds a whole dot product, clamped (`.satfinite`). At most 32 products of bytes fit an i32, so the sum is exact.
pub(super) trait Saturate: Value {
    fn saturating(self, sum: Self) -> Self;
}
impl Saturate for i32 {
    #[inline(always)]
    fn saturating(self, sum: i32) -> i32 {
        self.saturating_add(sum)
    }
}
impl Saturate for f32 {
    #[inline(always)]
    fn saturating(self, sum: f32) -> f32 {
        self + sum
    }
}

/// The same in f64: `M` is 8 or 16, registers are 64 bits and hold one element.
struct Doubles<const M: usize, const K: usize> {
    d: [Slot; 4],
    a: [Slot; 8],
    b: [Slot; 4],
    c: [Slot; 4],
}
impl<const M: usize, const K: usize> Kernel for Doubles<M, K> {
    #[inline(always)]
    fn run(&self, regs: &mut Regs, mask: u32) {
        let halves = M / 8;
        let (mut a, mut b) = ([[0f64; K]; M], [[0f64; 8]; K]);
        for i in 0..halves * K / 4 {
            let row = regs.row::<u64>(self.a[i]);
            for lane in 0..32 {
                a[lane / 4 + 8 * (i % halves)][lane % 4 + 4 * (i / halves)] = f64::from_bits(row[lane]);
            }
        }
        for i in 0..K / 4 {
            let row = regs.row::<u64>(self.b[i]);
            for lane in 0..32 {
                b[lane % 4 + 4 * i][lane / 4] = f64::from_bits(row[lane]);
            }
        }
        for i in 0..2 * halves {
            let c = regs.row::<u64>(self.c[i]);
            let mut d = [0u64; 32];
            for lane in 0..32 {
                let (r, n) = (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
                let sum = (0..K).fold(f64::from_bits(c[lane]), |sum, k| f64::madd(a[r][k], b[k][n], sum));
                d[lane] = sum.finish().to_bits();
            }
            regs.put(self.d[i], mask, &d);
        }
    }
}

/// The registers of operand `i`, which must be `n`, in the first places of an array.
fn sources<const N: usize>(b: &mut Build<'_, '_>, i: usize, n: usize, bits: u32) -> Result<[Slot; N], crate::Error> {
    let parts = b.parts(i)?;
    if parts.len() != n || n > N {
        return b.error(format!(
            "`{}`: operand {} must hold {n} registers, found {}",
            b.inst.name(),
            i + 1,
            parts.len()
        ));
    }
    let mut out = [Slot(0); N];
    for (slot, part) in out.iter_mut().zip(parts) {
        *slot = b.src_of(part, bits)?;
    }
    Ok(out)
}

fn destinations(b: &mut Build<'_, '_>, n: usize, bits: u32) -> Result<[Slot; 4], crate::Error> {
    let parts = b.parts(0)?;
    if parts.len() != n {
        return b.error(format!("`{}`: operand 1 must hold {n} registers, found {}", b.inst.name(), parts.len()));
    }
    let mut out = [Slot(0); 4];
    for (slot, part) in out.iter_mut().zip(parts) {
        *slot = b.dst_of(part, bits)?;
    }
    Ok(out)
}

fn product<A, B, C, const K: usize>(b: &mut Build<'_, '_>) -> Built
where
    A: Element,
    B: Element<V = A::V>,
    C: Accumulators<V = A::V>,
    A::V: Saturate,
{
    let e = 4 / A::BYTES;
    let a = sources(b, 1, K / (2 * e), 32)?;
    let second = sources(b, 2, K / (4 * e), 32)?;
    let c = sources(b, 3, C::REGISTERS, 32)?;
    let d = destinations(b, C::REGISTERS, 32)?;
    let saturate = b.quals.has("satfinite");
    let inner = b.kernel(Product::<A, B, C, K> { d, a, b: second, c, saturate, types: PhantomData })?;
    b.op(Together { inner, flops: 2 * 16 * 8 * K as u64 })
}

fn doubles<const M: usize, const K: usize>(b: &mut Build<'_, '_>) -> Built {
    let a = sources(b, 1, M / 8 * K / 4, 64)?;
    let second = sources(b, 2, K / 4, 64)?;
    let c = sources(b, 3, M / 4, 64)?;
    let d = destinations(b, M / 4, 64)?;
    let inner = b.kernel(Doubles::<M, K> { d, a, b: second, c })?;
    b.op(Together { inner, flops: (2 * M * 8 * K) as u64 })
}

fn mma(b: &mut Build<'_, '_>) -> Built {
    b.operands(4)?;
    if !b.quals.has("aligned") || !b.quals.has("row") || !b.quals.has("col") {
        return b.error("mma.sync needs .aligned, and .row.col operands");
    }
    let shape = b.quals.pick(&["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"]).unwrap_or("");
    let types = (b.ty(0)?, b.ty(1)?, b.ty(2)?, b.ty(3)?);
    if b.quals.has("satfinite") && types.0 != Ty::S32 {
        return b.error("mma.sync.satfinite is for integers only");
    }
    match (shape, types) {
        ("m16n8k8", (Ty::F32, Ty::Bf16, Ty::Bf16, Ty::F32)) => product::<Bf16, Bf16, InF32, 8>(b),
        ("m16n8k16", (Ty::F32, Ty::Bf16, Ty::Bf16, Ty::F32)) => product::<Bf16, Bf16, InF32, 16>(b),
        ("m16n8k8", (Ty::F32, Ty::F16, Ty::F16, Ty::F32)) => product::<F16, F16, InF32, 8>(b),
        ("m16n8k16", (Ty::F32, Ty::F16, Ty::F16, Ty::F32)) => product::<F16, F16, InF32, 16>(b),
        ("m16n8k8", (Ty::F16, Ty::F16, Ty::F16, Ty::F16)) => product::<F16, F16, InF16, 8>(b),
        ("m16n8k16", (Ty::F16, Ty::F16, Ty::F16, Ty::F16)) => product::<F16, F16, InF16, 16>(b),
        ("m16n8k4", (Ty::F32, Ty::Tf32, Ty::Tf32, Ty::F32)) => product::<Tf32, Tf32, InF32, 4>(b),
        ("m16n8k8", (Ty::F32, Ty::Tf32, Ty::Tf32, Ty::F32)) => product::<Tf32, Tf32, InF32, 8>(b),
        ("m16n8k16", (Ty::S32, x, y, Ty::S32)) => bytes::<16>(b, x, y),
        ("m16n8k32", (Ty::S32, x, y, Ty::S32)) => bytes::<32>(b, x, y),
        ("m16n8k16", (Ty::F32, x, y, Ty::F32)) => small_floats::<InF32, 16>(b, x, y),
        ("m16n8k32", (Ty::F32, x, y, Ty::F32)) => small_floats::<InF32, 32>(b, x, y),
        ("m16n8k16", (Ty::F16, x, y, Ty::F16)) => small_floats::<InF16, 16>(b, x, y),
        ("m16n8k32", (Ty::F16, x, y, Ty::F16)) => small_floats::<InF16, 32>(b, x, y),
        ("m8n8k4", (Ty::F64, Ty::F64, Ty::F64, Ty::F64)) => doubles::<8, 4>(b),
        ("m16n8k4", (Ty::F64, Ty::F64, Ty::F64, Ty::F64)) => doubles::<16, 4>(b),
        ("m16n8k8", (Ty::F64, Ty::F64, Ty::F64, Ty::F64)) => doubles::<16, 8>(b),
        ("m16n8k16", (Ty::F64, Ty::F64, Ty::F64, Ty::F64)) => doubles::<16, 16>(b),
        _ => b.unsupported(),
    }
}

fn bytes<const K: usize>(b: &mut Build<'_, '_>, x: Ty, y: Ty) -> Built {
    match (x, y) {
        (Ty::S8, Ty::S8) => product::<S8, S8, InS32, K>(b),
        (Ty::S8, Ty::U8) => product::<S8, U8, InS32, K>(b),
        (Ty::U8, Ty::S8) => product::<U8, S8, InS32, K>(b),
        (Ty::U8, Ty::U8) => product::<U8, U8, InS32, K>(b),
        _ => b.unsupported(),
    }
}

fn small_floats<C: Accumulators<V = f32>, const K: usize>(b: &mut Build<'_, '_>, x: Ty, y: Ty) -> Built {
    match (x, y) {
        (Ty::E4m3, Ty::E4m3) => product::<E4m3, E4m3, C, K>(b),
        (Ty::E4m3, Ty::E5m2) => product::<E4m3, E5m2, C, K>(b),
        (Ty::E5m2, Ty::E4m3) => product::<E5m2, E4m3, C, K>(b),
        (Ty::E5m2, Ty::E5m2) => product::<E5m2, E5m2, C, K>(b),
        _ => b.unsupported(),
    }
}
