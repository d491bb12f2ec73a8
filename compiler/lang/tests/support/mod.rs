//! Host tensors and an executor on the oracle, for the language's own tests.
#![allow(dead_code)]

use std::cell::RefCell;
use std::marker::PhantomData;
use tegula::prelude::*;
use tegula_ir::layout::Layout;
use tegula_ir::oracle::{self, OracleArg};
use tegula_ir::{Kernel, Quant};
use tegula_lang::launch::{ArgData, LaunchDesc, PackedArg, ViewArg};
extern crate tegula_lang as tegula;

/// A tensor in row-major order.
#[derive(Clone, Debug)]
pub struct Tensor<T> {
    pub data: Vec<T>,
    pub shape: Vec<usize>,
}

impl<T: Elem> Tensor<T> {
    pub fn new(shape: &[usize], f: impl FnMut(usize) -> T) -> Self {
        Tensor { data: (0..shape.iter().product()).map(f).collect(), shape: shape.to_vec() }
    }
    /// Every byte 0xA5: what is not written shows.
    pub fn poisoned(shape: &[usize]) -> Self {
        Tensor::new(shape, |_| T::from_bits(0xA5A5_A5A5_A5A5_A5A5))
    }

    fn view(&self, mutable: bool) -> ArgData<'_> {
        let rank = self.shape.len();
        let (mut extents, mut strides) = ([1; 4], [1; 4]);
        let mut stride = 1;
        for i in (0..rank).rev() {
            (extents[i], strides[i]) = (self.shape[i] as i64, stride);
            stride *= self.shape[i] as i64;
        }
        let ptr = self.data.as_ptr() as *mut u8;
        ArgData::View(ViewArg {
            ptr,
            elem: T::ELEM,
            mutable,
            rank: rank as u8,
            extents,
            strides,
            owner: None,
            borrow: PhantomData,
        })
    }
}

impl<'a, T: Elem, const R: usize> Arg<'a, View<T, R>> for &'a Tensor<T> {
    fn arg(self) -> ArgData<'a> {
        self.view(false)
    }
}
impl<'a, T: Elem, const R: usize> Arg<'a, ViewMut<T, R>> for &'a mut Tensor<T> {
    fn arg(self) -> ArgData<'a> {
        self.view(true)
    }
}

/// A packed matrix: GGUF bytes of K × N.
pub struct PackedTensor {
    pub bytes: Vec<u8>,
    pub k: usize,
    pub n: usize,
    pub quant: Quant,
}
impl<'a, Q: Format> Arg<'a, Packed<Q>> for &'a PackedTensor {
    fn arg(self) -> ArgData<'a> {
        let (k, n) = (self.k as i64, self.n as i64);
        ArgData::Packed(PackedArg {
            ptr: self.bytes.as_ptr(),
            k,
            n,
            quant: self.quant,
            layout: Layout::Gguf,
            owner: None,
            borrow: PhantomData,
        })
    }
}

/// Runs launches on the oracle, with the sanitizer's and all checks, and keeps the last kernel.
#[derive(Default)]
pub struct Oracle {
    pub last: RefCell<Option<Kernel>>,
    pub printed: RefCell<Vec<String>>,
}

impl Executor for Oracle {
    fn launch(&self, l: &LaunchDesc<'_>) -> Result<(), LaunchError> {
        let kernel = l.build()?;
        let mut args: Vec<OracleArg<'_>> = l
            .args
            .iter()
            .map(|a| match a {
                ArgData::View(v) => {
                    let rank = v.rank as usize;
                    let bytes = v.extents[..rank].iter().product::<i64>() as usize * v.elem.bytes();
                    // The tensors of these tests are dense and borrowed for the launch.
                    OracleArg::View(unsafe { oracle::ViewArg::from_raw(v.ptr, bytes, v.elem, &v.extents[..rank]) })
                }
                ArgData::Scalar { elem, bits } => OracleArg::Scalar(tegula_ir::Scalar::from_bits(*elem, *bits)),
                ArgData::Packed(p) => {
                    let len = p.layout.bytes(p.quant, p.k as usize, p.n as usize).unwrap();
                    let bytes = unsafe { std::slice::from_raw_parts(p.ptr, len) };
                    OracleArg::Packed(oracle::PackedArg {
                        bytes,
                        k: p.k as usize,
                        n: p.n as usize,
                        quant: p.quant,
                        layout: p.layout,
                    })
                }
            })
            .collect();
        let options = oracle::Options { checked: l.checked, sanitize: true, ..Default::default() };
        let report =
            oracle::run(&kernel, &mut args, l.grid, &options).map_err(|e| LaunchError::executor(l.kernel.name, e))?;
        self.printed.borrow_mut().extend(report.printed.iter().map(|p| p.text.clone()));
        *self.last.borrow_mut() = Some(kernel);
        Ok(())
    }
}

/// How many ops of a kind a kernel has.
pub fn count(k: &Kernel, kind: tegula_ir::OpKind) -> usize {
    let mut n = 0;
    k.body.walk(&mut |op| n += (op.kind == kind) as usize);
    n
}

/// Numbers in −1..1 that are never 0, the same for the same seed.
pub fn random(seed: u64) -> impl FnMut(usize) -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let v = ((state >> 33) as f64 / (1u64 << 30) as f64) - 1.0;
        if v == 0.0 { 0.5 } else { v }
    }
}
pub fn random_f32(seed: u64) -> impl FnMut(usize) -> f32 {
    let mut r = random(seed);
    move |i| r(i) as f32
}
pub fn random_bf16(seed: u64) -> impl FnMut(usize) -> bf16 {
    let mut r = random(seed);
    move |i| bf16::from_f64(r(i))
}

/// Within `tol` of the reference, relative to 1 + |reference|.
#[track_caller]
pub fn close(found: impl IntoIterator<Item = f64>, want: impl IntoIterator<Item = f64>, tol: f64) {
    let (found, want): (Vec<f64>, Vec<f64>) = (found.into_iter().collect(), want.into_iter().collect());
    assert_eq!(found.len(), want.len());
    for (i, (x, y)) in found.iter().zip(&want).enumerate() {
        assert!((x - y).abs() <= tol * (1.0 + y.abs()), "at {i}: {x} for {y}");
    }
}
