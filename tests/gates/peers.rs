//! Plain code that kernels are held against: the processor's fma, and loops that only move data.

use std::arch::x86_64::*;
use std::hint::black_box;

use crate::clock::thread_seconds;

/// Multiplications and additions a second of a loop of independent fma in registers, of the widest kind there is.
pub fn fma_peak() -> f64 {
    const TURNS: usize = 40_000;
    let wide = is_x86_feature_detected!("avx512f");
    let flops = TURNS as f64 * 2.0 * if wide { 24.0 * 16.0 } else { 12.0 * 8.0 };
    let time = thread_seconds(|| {
        // SAFETY: the processor has the instructions: AVX2 and FMA are what kernels need at least.
        if wide {
            unsafe { fma_512(TURNS) }
        } else {
            unsafe { fma_256(TURNS) }
        }
        Ok::<_, ()>(())
    });
    flops / time.unwrap_or(f64::NAN)
}

#[target_feature(enable = "avx512f")]
fn fma_512(turns: usize) {
    let (x, y) = (black_box(_mm512_set1_ps(0.9)), black_box(_mm512_set1_ps(0.1)));
    let mut sums = [black_box(_mm512_set1_ps(0.5)); 24];
    for _ in 0..turns {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, x, y);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx2,fma")]
fn fma_256(turns: usize) {
    let (x, y) = (black_box(_mm256_set1_ps(0.9)), black_box(_mm256_set1_ps(0.1)));
    let mut sums = [black_box(_mm256_set1_ps(0.5)); 12];
    for _ in 0..turns {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, x, y);
        }
    }
    black_box(sums);
}

/// `z = x + y`: two reads, one write.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub unsafe fn add(x: &[f32], y: &[f32], z: &mut [f32]) {
    for ((z, x), y) in z.iter_mut().zip(x).zip(y) {
        *z = x + y;
    }
}

/// `y = a · x`: one read, one write.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub unsafe fn scale(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = a * x;
    }
}
