//! A kernel with inputs and the outputs that every executor must give.

use crate::{
    Elem, Kernel, Quant, Scalar,
    layout::Layout,
    oracle::{self, Options, OracleArg, PackedArg, ViewArg},
};

/// A test: run `kernel` on `args`, then compare.
#[derive(Clone, Debug)]
pub struct Row {
    /// Short unique name, e.g. `C01`.
    pub id: &'static str,
    /// What is tested, in a few words.
    pub about: &'static str,
    /// The code.
    pub kernel: Kernel,
    /// Programs along each axis.
    pub grid: [u32; 3],
    /// Arguments in the order of the parameters.
    pub args: Vec<Arg>,
    /// Run in checked mode.
    pub checked: bool,
    /// What must come of it.
    pub want: Want,
}

/// How a run must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Every buffer with expected contents has them.
    Values,
    /// The run reports an error (checked mode, a device assert).
    Fault,
}

/// An argument with its memory.
#[derive(Clone, Debug)]
pub enum Arg {
    /// For a view.
    View(Buffer),
    /// For a scalar.
    Scalar(Scalar),
    /// For a packed matrix: its bytes, K and N.
    Packed(Vec<u8>, usize, usize, Quant, Layout),
}

/// Memory of a view, aligned to 64 bytes.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Element type.
    pub elem: Elem,
    /// Extents of the view.
    pub extents: Vec<i64>,
    /// Strides of the view, in elements.
    pub strides: Vec<i64>,
    /// Nothing was written yet; the bytes are poison.
    pub unwritten: bool,
    /// What the memory (not the view: in order of address) must hold afterwards.
    pub expected: Option<Expected>,
    memory: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Contents.
#[derive(Clone, Debug)]
pub enum Expected {
    /// These patterns; any NaN stands for any other, and +0 for −0.
    Exact(Vec<u64>),
    /// Within this bound, absolute or relative to the expected value, whichever is larger.
    Near(Vec<f64>, f64),
}

/// Patterns of these values, rounded to the type.
pub fn data(elem: Elem, values: &[f64]) -> Vec<u64> {
    values.iter().map(|&v| Scalar::from_f64(elem, v).bits).collect()
}
/// Patterns of these integers, wrapped to the type.
pub fn ints(elem: Elem, values: impl IntoIterator<Item = i64>) -> Vec<u64> {
    values.into_iter().map(|v| Scalar::from_i64(elem, v).bits).collect()
}
/// Equal patterns, or two NaNs, or two zeros.
pub fn same_value(elem: Elem, a: u64, b: u64) -> bool {
    let float = |bits| Scalar { elem, bits }.to_f64();
    a == b || (elem.is_float() && (float(a) == float(b) || (float(a).is_nan() && float(b).is_nan())))
}

impl Buffer {
    /// A contiguous array holding these patterns.
    pub fn new(elem: Elem, extents: &[i64], bits: &[u64]) -> Buffer {
        let len = bits.len() * elem.bytes();
        let mut strides = vec![1; extents.len()];
        for d in (1..extents.len()).rev() {
            strides[d - 1] = strides[d] * extents[d];
        }
        let memory = vec![Line([0xa5; 64]); len.div_ceil(64).max(1)];
        let mut b = Buffer { elem, extents: extents.to_vec(), strides, unwritten: false, expected: None, memory, len };
        for (to, &v) in b.bytes_mut().chunks_exact_mut(elem.bytes()).zip(bits) {
            to.copy_from_slice(&v.to_le_bytes()[..elem.bytes()]);
        }
        b
    }
    /// An array of poison with as many elements as the extents say.
    pub fn poisoned(elem: Elem, extents: &[i64]) -> Buffer {
        let n = extents.iter().product::<i64>() as usize;
        Buffer { unwritten: true, ..Buffer::new(elem, extents, &vec![0xa5a5_a5a5_a5a5_a5a5; n]) }
    }
    /// Other strides.
    pub fn strides(mut self, strides: &[i64]) -> Buffer {
        self.strides = strides.to_vec();
        self
    }
    /// The view is only the first part of the array along each axis.
    pub fn part(mut self, extents: &[i64]) -> Buffer {
        self.extents = extents.to_vec();
        self
    }
    /// What the memory must hold afterwards.
    pub fn expect(mut self, expected: Expected) -> Buffer {
        self.expected = Some(expected);
        self
    }
    /// The memory.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `memory` holds at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
    /// The memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.len) }
    }
    /// The elements in order of address. A `bool` is its byte.
    pub fn bits(&self) -> Vec<u64> {
        let pattern = |c: &[u8]| c.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        self.bytes().chunks_exact(self.elem.bytes()).map(pattern).collect()
    }
    /// The elements as numbers, in order of address.
    pub fn values(&self) -> Vec<f64> {
        self.bits().into_iter().map(|bits| Scalar { elem: self.elem, bits }.to_f64()).collect()
    }
    /// Whether the memory holds what is expected; if not, the first difference.
    pub fn check(&self) -> Result<(), String> {
        let found = self.bits();
        let value = |bits| Scalar { elem: self.elem, bits }.to_f64();
        let differ = |i: usize, want: String, rule: &str| {
            let bits = found[i];
            Err(format!("element {i} of {}: expected {want}{rule}, found {} (bits {bits:#x})", self.elem, value(bits)))
        };
        match &self.expected {
            None => {}
            Some(Expected::Exact(want)) => {
                if want.len() != found.len() {
                    return Err(format!("{} elements expected, found {}", want.len(), found.len()));
                }
                for (i, &w) in want.iter().enumerate() {
                    if !same_value(self.elem, w, found[i]) {
                        return differ(i, format!("{} (bits {w:#x})", value(w)), "");
                    }
                }
            }
            Some(Expected::Near(want, bound)) => {
                if want.len() != found.len() {
                    return Err(format!("{} elements expected, found {}", want.len(), found.len()));
                }
                for (i, &w) in want.iter().enumerate() {
                    // Written so that a NaN fails.
                    let near = (value(found[i]) - w).abs() <= bound * w.abs().max(1.0);
                    if !near {
                        return differ(i, w.to_string(), &format!(" within {bound}"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Row {
    /// A row in unchecked mode with one program and no arguments yet.
    pub fn new(id: &'static str, about: &'static str, kernel: Kernel) -> Row {
        Row { id, about, kernel, grid: [1; 3], args: vec![], checked: false, want: Want::Values }
    }
    /// Programs.
    pub fn grid(mut self, grid: [u32; 3]) -> Row {
        self.grid = grid;
        self
    }
    /// The next argument.
    pub fn arg(mut self, arg: Arg) -> Row {
        self.args.push(arg);
        self
    }
    /// The next argument: an input by its patterns.
    pub fn input(self, elem: Elem, extents: &[i64], bits: &[u64]) -> Row {
        self.arg(Arg::View(Buffer::new(elem, extents, bits)))
    }
    /// The next argument: an output, poisoned, that must hold these patterns afterwards.
    pub fn output(self, elem: Elem, extents: &[i64], bits: &[u64]) -> Row {
        self.arg(Arg::View(Buffer::poisoned(elem, extents).expect(Expected::Exact(bits.to_vec()))))
    }
    /// The next argument: an output, poisoned, that must be near these values afterwards.
    pub fn near(self, elem: Elem, extents: &[i64], values: &[f64], bound: f64) -> Row {
        self.arg(Arg::View(Buffer::poisoned(elem, extents).expect(Expected::Near(values.to_vec(), bound))))
    }
    /// The next argument: memory with contents before and after.
    pub fn inout(self, elem: Elem, extents: &[i64], before: &[u64], after: &[u64]) -> Row {
        self.arg(Arg::View(Buffer::new(elem, extents, before).expect(Expected::Exact(after.to_vec()))))
    }
    /// The next argument: a scalar.
    pub fn scalar(self, s: Scalar) -> Row {
        self.arg(Arg::Scalar(s))
    }
    /// Runs in checked mode and must report an error.
    pub fn faults(mut self) -> Row {
        self.checked = true;
        self.want = Want::Fault;
        self
    }
    /// Runs the row on an executor, which gets the kernel, arguments to run it on, the grid and whether to check. An error
    /// it gives is a fault that it reported.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn run(
        &self,
        executor: &mut dyn FnMut(&Kernel, &mut [Arg], [u32; 3], bool) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut args = self.args.clone();
        let name = |e: String| format!("{} ({}): {e}", self.id, self.about);
        match (executor(&self.kernel, &mut args, self.grid, self.checked), self.want) {
            (Ok(()), Want::Fault) => Err(name("an error was expected, and none reported".into())),
            (Err(e), Want::Values) => Err(name(e)),
            (Err(_), Want::Fault) => Ok(()),
            (Ok(()), Want::Values) => {
                for (param, arg) in self.kernel.params.iter().zip(&args) {
                    if let Arg::View(b) = arg {
                        b.check().map_err(|e| name(format!("`{param}`: {e}")))?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Runs a kernel on the oracle: an executor for [`Row::run`]. The sanitizer is on.
pub fn on_oracle(kernel: &Kernel, args: &mut [Arg], grid: [u32; 3], checked: bool) -> Result<(), String> {
    let options = Options { sanitize: true, checked, step_limit: Some(100_000_000), ..Options::default() };
    let mut args: Vec<OracleArg<'_>> = args.iter_mut().map(Arg::for_oracle).collect();
    oracle::run(kernel, &mut args, grid, &options).map(|_| ()).map_err(|e| e.to_string())
}

impl Arg {
    /// The argument as the oracle takes it.
    pub fn for_oracle(&mut self) -> OracleArg<'_> {
        match self {
            Arg::View(b) => {
                let (elem, extents, strides, unwritten) = (b.elem, b.extents.clone(), b.strides.clone(), b.unwritten);
                let v = ViewArg::write(b.bytes_mut(), elem, &extents).strides(&strides);
                OracleArg::View(if unwritten { v.unwritten() } else { v })
            }
            Arg::Scalar(s) => OracleArg::Scalar(*s),
            Arg::Packed(bytes, k, n, quant, layout) => {
                OracleArg::Packed(PackedArg { bytes, k: *k, n: *n, quant: *quant, layout: *layout })
            }
        }
    }
}
