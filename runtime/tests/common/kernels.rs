//! Kernels that the tests of several devices run, and numbers for them.

#![allow(dead_code)]

use tegula::prelude::*;

/// A generator of numbers.
pub struct Rng(pub u64);

impl Rng {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 24
    }
    /// −1 to 1, never 0.
    pub fn float(&mut self) -> f32 {
        (self.bits() as u32 >> 8) as f32 / (1u32 << 23) as f32 - 1.0 + 1e-3
    }
    pub fn tensor<T: Elem>(&mut self, shape: &[usize], of: impl Fn(&mut Rng) -> T) -> Tensor<T> {
        Tensor::from_fn(shape, |_| of(self)).unwrap()
    }
}

#[kernel]
pub fn add<T: Num, N: Dim>(a: View<T, 1>, b: View<T, 1>, c: ViewMut<T, 1>) {
    let i = program_id(0);
    c.store((i,), a.load::<(N,)>((i,)) + b.load::<(N,)>((i,)));
}

#[kernel]
pub fn softmax<T: Float, N: Dim>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let row = program_id(0);
    let t = x.load::<(One, N)>((row, 0)).cast::<f32>();
    let t = select(iota::<N>().expand::<0>() < x.dim::<1>(), t, f32::NEG_INFINITY);
    let e = (t - t.max::<1>()).exp();
    y.store((row, 0), (e / e.sum::<1>()).cast());
}

#[kernel]
pub fn matmul<T: Float + DotInto<f32>, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let (pm, pn) = grouped::<BM, BN>(program_id(0), &c, 8);
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in a.tiles_along::<1, BK>() {
        acc = dot(a.load::<(BM, BK)>((pm, k)), b.load::<(BK, BN)>((k, pn)), acc);
    }
    c.store((pm, pn), acc.cast());
}

/// Counts and extremes of values, by atomics of all programs.
#[kernel]
pub fn tally<N: Dim>(x: View<i32, 1>, counts: ViewMut<i32, 1>, most: ViewMut<i32, 1>) {
    let i = program_id(0);
    let t = x.load::<(N,)>((i,));
    let inside = iota::<N>() + i * N::extent() < x.dim::<0>();
    counts.atomic_add_masked(t & 7, 1, inside, MemOrder::Relaxed);
    most.atomic_max_masked(t & 7, t, inside, MemOrder::Relaxed);
}

#[kernel]
pub fn scaled<N: Dim>(x: View<f32, 1>, s: Scalar<f32>, y: ViewMut<f32, 1>) {
    let i = program_id(0);
    device_assert(i < 5, "at most five tiles");
    y.store((i,), x.load::<(N,)>((i,)) * s);
}

#[kernel]
pub fn reads_past<N: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    let i = program_id(0);
    y.store((i,), x.gather((iota::<N>() + i * 4,)));
}

#[kernel]
pub fn tells<N: Dim>(x: View<f32, 2>, y: ViewMut<i32, 1>) {
    let i = program_id(1);
    print("row", (i, x.load::<(One, N)>((i, 0))));
    if i > 0 {
        print("not the first", ());
    }
    y.store((i,), zeros::<i32, (One,)>());
}

/// Assumes what is wrong when there are more programs than elements: the compiler leaves the masks out.
#[kernel]
pub fn believes(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    let i = program_id(0);
    assume(i < x.dim::<0>());
    y.store((i,), x.load::<(One,)>((i,)));
}

/// Prints a tile in each program, and fails in all but the first.
#[kernel]
pub fn prints_then_fails<N: Dim>(y: ViewMut<i32, 1>) {
    let i = program_id(0);
    print("x", (iota::<N>(),));
    device_assert(i < 1, "only one program");
    y.store((i,), zeros::<i32, (One,)>());
}
