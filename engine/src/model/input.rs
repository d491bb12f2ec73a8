//! The inputs of products: who makes them, in which form, and the products themselves.

use super::{Config, weights::Projection};
use crate::Error;
use tegula::{Device, PackedTensor, Stream, Tensor, TensorViewMut};
use tegula_kernels::{
    activation::{swiglu, swiglu_quantise},
    linear::{Epilogue, Quantised, linear, linear_quantised},
    norm::{rms_norm, rms_norm_quantise},
    quantise::{Bits, quantise},
};

/// What activations are multiplied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Groups of 32 integers of 8 bits, or of 16 where a product needs them: fast.
    Q8,
    /// f32, with weights dequantised on the way: close to the exact model, slow.
    F32,
}

impl Activations {
    /// All of them, by their names in options.
    pub const NAMES: [(&str, Activations); 2] = [("q8", Activations::Q8), ("f32", Activations::F32)];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Activations::Q8 => "q8",
            Activations::F32 => "f32",
        }
    }
}

/// Columns of a product that one program computes.
const COLUMNS: usize = 64;
/// Longest stretch of K in one tile.
const LONGEST_K: usize = 4096;

/// The input of the next product, for up to so many rows: quantised or plain, as the activations and the weights ask
/// (float weights are multiplied in f32).
pub struct Input {
    activations: Activations,
    /// Up to two rows for a row, see [`Bits`]; scales and sums alike.
    codes: Tensor<i8>,
    scales: Tensor<f32>,
    sums: Tensor<i32>,
    plain: Tensor<f32>,
}

impl Input {
    /// Memory for `rows` rows of up to `width` elements.
    pub fn new(device: &Device, activations: Activations, rows: usize, width: usize) -> Result<Input, Error> {
        Ok(Input {
            activations,
            codes: device.zeros([2 * rows, width])?,
            scales: device.zeros([2 * rows, width / 32])?,
            sums: device.zeros([2 * rows, width / 32])?,
            plain: device.zeros([rows, width])?,
        })
    }

    /// Bytes of a row.
    pub fn row_bytes(width: usize) -> usize {
        2 * (width + 2 * 4 * (width / 32)) + 4 * width
    }

    /// The RMS norm of the first `rows` rows of `x`, as `next` needs it.
    pub fn norm(
        &mut self,
        x: &Tensor<f32>,
        weight: &Tensor<f32>,
        rows: usize,
        c: &Config,
        next: Forms,
        stream: &Stream,
    ) -> Result<(), Error> {
        if let Some(bits) = next.codes {
            rms_norm_quantise::launch(x, weight, &mut self.codes, &mut self.scales, &mut self.sums, c.norm_eps)
                .dims(c.hidden / 32)
                .cfg(bits)
                .grid(rows)
                .run(stream)?;
        }
        if next.plain {
            rms_norm::launch(x, weight, &mut self.plain, c.norm_eps).dims(c.hidden).grid(rows).run(stream)?;
        }
        Ok(())
    }

    /// What the products of a projection read.
    pub fn forms_of(&self, p: &Projection) -> Forms {
        let quantised = |w: &PackedTensor| quantised(self.activations, w);
        Forms {
            codes: p.parts.iter().any(|(w, _)| quantised(w)).then_some(p.bits),
            plain: p.parts.iter().any(|(w, _)| !quantised(w)),
        }
    }

    /// Where a kernel writes an input of `rows` rows, `k` wide; [`Input::written`] follows.
    pub fn write(&mut self, rows: usize, k: usize) -> Result<TensorViewMut<'_, f32>, Error> {
        Ok(self.plain.view_mut()?.slice(0, 0..rows)?.slice(1, 0..k)?)
    }

    /// Makes what was written through [`Input::write`] the input of the product that `next` describes.
    pub fn written(&mut self, rows: usize, k: usize, next: Forms, stream: &Stream) -> Result<(), Error> {
        if let Some(bits) = next.codes {
            let x = self.plain.slice(0, 0..rows)?.slice(1, 0..k)?;
            quantise::launch(x, &mut self.codes, &mut self.scales, &mut self.sums)
                .dims(k / 32)
                .cfg(bits)
                .grid(rows)
                .run(stream)?;
        }
        Ok(())
    }

    /// SwiGLU of the first `rows` rows of `x` (gate and up side by side, `n` each), as `next` needs it.
    pub fn swiglu(
        &mut self,
        x: &Tensor<f32>,
        rows: usize,
        n: usize,
        next: Forms,
        stream: &Stream,
    ) -> Result<(), Error> {
        if let Some(bits) = next.codes {
            swiglu_quantise::launch(x, &mut self.codes, &mut self.scales, &mut self.sums)
                .dims(n / 32)
                .cfg(bits)
                .grid(rows)
                .run(stream)?;
        }
        if next.plain {
            swiglu::launch(x, &mut self.plain).dims(n).grid(rows).run(stream)?;
        }
        Ok(())
    }

    /// `y` = the input times all of a projection's matrices, or that added to `y`.
    pub fn project(
        &self,
        p: &Projection,
        rows: usize,
        y: &mut TensorViewMut<'_, f32>,
        residual: bool,
        stream: &Stream,
    ) -> Result<(), Error> {
        for (w, column) in &p.parts {
            let columns = y.reborrow().slice(1, *column..*column + w.n())?;
            self.product(w, p.bits, rows, columns, Epilogue { residual }, stream)?;
        }
        Ok(())
    }

    /// `y` = the input times one matrix, or that added to `y`.
    fn product(
        &self,
        w: &PackedTensor,
        bits: Bits,
        rows: usize,
        y: TensorViewMut<'_, f32>,
        epilogue: Epilogue,
        stream: &Stream,
    ) -> Result<(), Error> {
        let y = y.slice(0, 0..rows)?;
        let k = w.k();
        let bk = tile_of_k(k, w.quant().block().max(32));
        let grid = |bm: usize| [w.n().div_ceil(COLUMNS), rows.div_ceil(bm)];
        if quantised(self.activations, w) {
            let bm = rows.next_power_of_two().min(64 / bits.rows());
            let code_rows = 0..rows * bits.rows();
            let codes = self.codes.slice(0, code_rows.clone())?.slice(1, 0..k)?;
            let scales = self.scales.slice(0, code_rows.clone())?.slice(1, 0..k / 32)?;
            let sums = self.sums.slice(0, code_rows)?.slice(1, 0..k / 32)?;
            linear_quantised::launch(codes, scales, sums, w, y)
                .dims(bm, COLUMNS, bk, bk / 32)
                .cfg(Quantised { bits, epilogue })
                .grid(grid(bm))
                .run(stream)?
        } else {
            let bm = rows.next_power_of_two().min(32);
            let x = self.plain.slice(0, 0..rows)?.slice(1, 0..k)?;
            linear::launch(x, w, y).dims(bm, COLUMNS, bk.min(256)).cfg(epilogue).grid(grid(bm)).run(stream)?
        }
        Ok(())
    }
}

/// The forms of an input that products with some weights read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// Codes, so fine.
    pub(super) codes: Option<Bits>,
    pub(super) plain: bool,
}

/// Whether the product with `w` takes codes.
fn quantised(activations: Activations, w: &PackedTensor) -> bool {
    activations == Activations::Q8 && !w.quant().is_float()
}

/// The longest tile of K: all of it, or its largest divisor of a length that fits, in whole blocks.
fn tile_of_k(k: usize, block: usize) -> usize {
    (1..=LONGEST_K / block).rev().map(|n| n * block).find(|bk| k.is_multiple_of(*bk)).unwrap_or(block)
}
