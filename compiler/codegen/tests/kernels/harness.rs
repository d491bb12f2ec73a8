//! Compiles kernels given as text, runs them and the oracle on the same arguments, and compares all memory.

#[path = "../common/native.rs"]
mod native;

pub use native::{Reports, call, call_first, targets};
use std::{collections::BTreeMap, sync::Mutex};
use tegula_codegen::service;
use tegula_ir::{
    Elem, Kernel, Quant, Scalar,
    layout::Layout,
    oracle::{self, OracleArg, PackedArg, ViewArg},
    protocol::{Emit, Meta, Request, Response},
};

/// An argument, owned.
#[derive(Clone, Debug)]
pub enum Arg {
    View { bytes: Vec<u8>, elem: Elem, extents: Vec<i64>, strides: Vec<i64>, offset: usize },
    Scalar(Scalar),
    Packed { bytes: Vec<u8>, k: usize, n: usize, quant: Quant, layout: Layout },
}

impl Arg {
    /// A contiguous view of given elements.
    pub fn view(elem: Elem, extents: &[i64], values: impl IntoIterator<Item = u64>) -> Arg {
        let bytes: Vec<u8> = values.into_iter().flat_map(|v| v.to_le_bytes()[..elem.bytes()].to_vec()).collect();
        assert_eq!(bytes.len(), elem.bytes() * extents.iter().product::<i64>() as usize);
        let mut strides = vec![1; extents.len()];
        for d in (1..extents.len()).rev() {
            strides[d - 1] = strides[d] * extents[d];
        }
        Arg::View { bytes, elem, extents: extents.to_vec(), strides, offset: 0 }
    }
    /// A contiguous view of random elements.
    pub fn random(elem: Elem, extents: &[i64], rng: &mut Rng) -> Arg {
        let n = extents.iter().product::<i64>();
        Arg::view(elem, extents, (0..n).map(|_| rng.bits(elem)))
    }
    /// A view with other strides over random memory of `len` elements, from element `offset`.
    pub fn strided(elem: Elem, extents: &[i64], strides: &[i64], offset: usize, len: usize, rng: &mut Rng) -> Arg {
        let Arg::View { bytes, .. } = Arg::random(elem, &[len as i64], rng) else { unreachable!() };
        Arg::View { bytes, elem, extents: extents.to_vec(), strides: strides.to_vec(), offset }
    }
    pub fn i32(v: i32) -> Arg {
        Arg::Scalar(Scalar::from_i64(Elem::I32, v.into()))
    }
    /// The bit patterns of a view's memory.
    pub fn bits(&self) -> Vec<u64> {
        let Arg::View { bytes, elem, .. } = self else { return vec![] };
        bytes.chunks(elem.bytes()).map(|c| c.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect()
    }
}

/// A small generator of numbers (xorshift*).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// An element: floats mostly in −4..4, integers of all sizes; never zero where it can be avoided.
    pub fn bits(&mut self, e: Elem) -> u64 {
        match e {
            Elem::Bool => self.below(2),
            e if e.is_float() => Scalar::from_f64(e, self.unit() * 8.0 - 4.0).bits,
            e => {
                let small = self.below(2) == 0;
                let v = if small { self.below(41) as i64 - 20 } else { self.next() as i64 };
                Scalar::from_i64(e, if v == 0 { 7 } else { v }).bits
            }
        }
    }
    /// Any pattern, special values often.
    pub fn wild(&mut self, e: Elem) -> u64 {
        if self.below(3) > 0 || e == Elem::Bool {
            return self.bits(e);
        }
        if self.below(2) == 0 {
            return Scalar::from_bits(e, self.next()).bits;
        }
        let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, 3e9, -3e9, 1e300];
        let ints = [0, 1, -1, i64::MIN, i64::MAX, i64::from(i32::MIN), 127, -128, 255, 31, 32, 33];
        if e.is_float() {
            Scalar::from_f64(e, special[self.below(11) as usize]).bits
        } else {
            Scalar::from_i64(e, ints[self.below(12) as usize]).bits
        }
    }
}

pub fn request(text: &str, target: &str, emit: Emit, checked: bool) -> (Vec<u8>, Meta) {
    let request = Request { kernel: text.into(), target: target.into(), emit, checked };
    match service::answer(&request) {
        Response::Ok { bytes, meta } => (bytes, meta),
        Response::Err { stage, message, loc } => panic!("{target}: {stage} failed: {message} at {loc:?}\n{text}"),
    }
}

/// The shared object, compiled once.
fn artifact(text: &str, target: &str, checked: bool) -> (Vec<u8>, Meta) {
    static DONE: Mutex<BTreeMap<(String, String, bool), (Vec<u8>, Meta)>> = Mutex::new(BTreeMap::new());
    let key = (text.to_string(), target.to_string(), checked);
    let found = DONE.lock().unwrap().get(&key).cloned();
    found.unwrap_or_else(|| {
        let made = request(text, target, Emit::Artifact, checked);
        DONE.lock().unwrap().insert(key, made.clone());
        made
    })
}

/// Compiles for `target` and runs the whole grid over `args`.
pub fn native(text: &str, args: &mut [Arg], grid: [i32; 3], target: &str, checked: bool) -> Reports {
    let mut words: Vec<u64> = vec![];
    for arg in args.iter_mut() {
        match arg {
            Arg::View { bytes, elem, extents, strides, offset } => {
                words.push(bytes.as_mut_ptr() as u64 + (*offset * elem.bytes()) as u64);
                words.extend(extents.iter().chain(strides.iter()).map(|v| *v as u64));
            }
            Arg::Scalar(s) => words.push(s.bits),
            Arg::Packed { bytes, k, n, .. } => words.extend([bytes.as_ptr() as u64, *k as u64, *n as u64]),
        }
    }
    let (code, meta) = artifact(text, target, checked);
    call(&code, &meta, &words, grid, checked)
}

/// Runs the oracle.
pub fn reference(text: &str, args: &mut [Arg], grid: [i32; 3]) -> Result<oracle::Report, oracle::OracleError> {
    let kernel = Kernel::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    kernel.verify().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut views: Vec<OracleArg> = args
        .iter_mut()
        .map(|arg| match arg {
            Arg::View { bytes, elem, extents, strides, offset } => {
                let skip = *offset * elem.bytes();
                // SAFETY: as above; one run at a time.
                let view =
                    unsafe { ViewArg::from_raw(bytes.as_mut_ptr().add(skip), bytes.len() - skip, *elem, extents) };
                OracleArg::View(view.strides(strides))
            }
            Arg::Scalar(s) => OracleArg::Scalar(*s),
            Arg::Packed { bytes, k, n, quant, layout } => {
                OracleArg::Packed(PackedArg { bytes, k: *k, n: *n, quant: *quant, layout: *layout })
            }
        })
        .collect();
    oracle::run(&kernel, &mut views, grid.map(|g| g as u32), &oracle::Options::default())
}

/// How far results may be from the oracle's.
#[derive(Clone, Copy, Debug)]
pub enum Near {
    /// The same bits; any NaN for a NaN, either zero for a zero.
    Exact,
    /// A relative or absolute difference.
    Within(f64),
}

fn close(e: Elem, got: u64, want: u64, near: Near) -> bool {
    if got == want {
        return true;
    }
    if !e.is_float() {
        return false;
    }
    let (g, w) = (Scalar::from_bits(e, got).to_f64(), Scalar::from_bits(e, want).to_f64());
    (g.is_nan() && w.is_nan()) || g == w || matches!(near, Near::Within(t) if (g - w).abs() <= t * (1.0 + w.abs()) )
}

/// Runs a kernel on every target and compares all views with the oracle's.
pub fn check(text: &str, args: &[Arg], grid: [i32; 3], near: Near) {
    let mut expected = args.to_vec();
    if let Err(e) = reference(text, &mut expected, grid) {
        panic!("the oracle refuses: {e}\n{text}");
    }
    let mut first: Option<Vec<Arg>> = None;
    for target in targets() {
        let mut got = args.to_vec();
        native(text, &mut got, grid, target, false);
        for (i, (g, w)) in got.iter().zip(&expected).enumerate() {
            let Arg::View { elem, .. } = g else { continue };
            for (j, (a, b)) in g.bits().into_iter().zip(w.bits()).enumerate() {
                assert!(
                    close(*elem, a, b, near),
                    "{target}: argument {i}, element {j}: {} instead of {} ({near:?})\n{text}",
                    Scalar::from_bits(*elem, a),
                    Scalar::from_bits(*elem, b)
                );
            }
        }
        // Bits may not depend on the instruction set, but for which NaN and which zero it is.
        if let Some(first) = &first {
            for (i, (x, y)) in first.iter().zip(&got).enumerate() {
                let Arg::View { elem, .. } = x else { continue };
                let same = x.bits().into_iter().zip(y.bits()).all(|(a, b)| close(*elem, a, b, Near::Exact));
                assert!(same, "argument {i} differs between targets\n{text}");
            }
        }
        first.get_or_insert(got);
    }
}
