//! Instruction tests as data: a few PTX instructions, inputs for each thread, and the bits that must come out.
//!
//! A [`Case`] makes a whole PTX module of itself, so that the same text runs on the emulator and on a GPU. [`all`] lists
//! the cases of every family; where exact results were computed apart from any emulator (with rationals, by
//! `tests/tables/make.py`) they are the case's [`Case::truth`]. What the emulator itself gives is [`Case::expected`].

mod list;

use crate::{Emulator, Error, Fault, Grid, Module, Options, Param, arch::Need};

pub use list::{all, approximations, arithmetic, conversions, f32_inputs};

/// Threads of a block.
pub const BLOCK: u32 = 128;

/// How results of two machines are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    /// Bit by bit.
    Bits,
    /// As f32, whose difference may be this share of the greater of 1 and the expected magnitude: approximations and sums
    /// whose rounding PTX leaves open.
    Near(f32),
}

/// Values of one operand or result, one per thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// `b8`, `b16`, `b32` or `b64`.
    pub ty: &'static str,
    /// Bit patterns.
    pub values: Vec<u64>,
}

impl Column {
    /// Bytes of one value.
    pub fn width(&self) -> usize {
        width(self.ty)
    }

    /// As they lie in memory.
    pub fn bytes(&self) -> Vec<u8> {
        let n = self.width();
        self.values.iter().flat_map(|v| v.to_le_bytes()[..n].to_vec()).collect()
    }

    /// From memory.
    pub fn of(ty: &'static str, bytes: &[u8]) -> Column {
        let value = |c: &[u8]| c.iter().rev().fold(0u64, |v, b| v << 8 | *b as u64);
        Column { ty, values: bytes.chunks_exact(width(ty)).map(value).collect() }
    }
}

fn width(ty: &str) -> usize {
    match ty {
        "b8" => 1,
        "b16" => 2,
        "b32" => 4,
        _ => 8,
    }
}

/// Names of a thread's inputs in a case's body.
pub const INPUTS: [&str; 12] = ["%a", "%b", "%c", "%x3", "%x4", "%x5", "%x6", "%x7", "%x8", "%x9", "%x10", "%x11"];
/// Names of its results.
pub const OUTPUTS: [&str; 8] = ["%d", "%d1", "%d2", "%d3", "%d4", "%d5", "%d6", "%d7"];

/// A test of an instruction.
#[derive(Clone, Debug)]
pub struct Case {
    /// The instruction, and what is special.
    pub name: String,
    /// Instructions from [`INPUTS`] to [`OUTPUTS`]; `%p0`..`%p3`, 16-bit `%t0`..`%t7`, 32-bit `%r6`..`%r9` and 64-bit
    /// `%rd4`..`%rd9` are free, `%r4` is the thread's number in its block, and `tile` is 1024 bytes of shared memory.
    pub body: String,
    /// Inputs: as many values as threads in every column.
    pub inputs: Vec<Column>,
    /// Types of the results.
    pub outputs: Vec<&'static str>,
    /// The least `.version` and `.target`.
    pub need: Need,
    /// How results compare.
    pub check: Check,
    /// Exact results of the first output, where they are known.
    pub truth: Option<Vec<u64>>,
}

impl Case {
    /// A case of one result, compared bit by bit, for sm_80.
    pub fn new(name: impl Into<String>, body: impl Into<String>, inputs: Vec<Column>, out: &'static str) -> Case {
        Case {
            name: name.into(),
            body: body.into(),
            inputs,
            outputs: vec![out],
            need: Need::new(80, 70),
            check: Check::Bits,
            truth: None,
        }
    }

    /// Threads, one per value.
    pub fn threads(&self) -> usize {
        self.inputs.iter().map(|c| c.values.len()).min().unwrap_or(0)
    }

    /// Blocks of [`BLOCK`] threads.
    pub fn blocks(&self) -> u32 {
        (self.threads() as u32).div_ceil(BLOCK)
    }

    /// The module for an architecture: its kernel `case` takes the number of threads (u32), then the addresses of the
    /// inputs, then those of the results.
    pub fn text(&self, target: &str) -> String {
        let reg = |ty: &str| if ty == "b8" { "b16".to_string() } else { ty.to_string() };
        let mut params = vec![".param .u32 n".to_string()];
        let mut text = String::new();
        for (column, name) in self.inputs.iter().zip(INPUTS) {
            let param = format!("p_{}", &name[1..]);
            params.push(format!(".param .u64 {param}"));
            text += &format!(
                "  .reg .{} {name}; ld.param.u64 %rd1, [{param}]; mul.wide.u32 %rd2, %r5, {};\n  \
                 add.s64 %rd3, %rd1, %rd2; ld.global.{} {name}, [%rd3];\n",
                reg(column.ty),
                column.width(),
                column.ty,
            );
        }
        for (ty, name) in self.outputs.iter().zip(OUTPUTS) {
            text += &format!("  .reg .{} {name};\n", reg(ty));
        }
        text += &format!("  {{ {} }}\n", self.body);
        for (ty, name) in self.outputs.iter().zip(OUTPUTS) {
            let param = format!("p_{}", &name[1..]);
            params.push(format!(".param .u64 {param}"));
            text += &format!(
                "  ld.param.u64 %rd1, [{param}]; mul.wide.u32 %rd2, %r5, {}; add.s64 %rd3, %rd1, %rd2;\n  \
                 st.global.{ty} [%rd3], {name};\n",
                width(ty),
            );
        }
        let (major, minor) = (self.need.version / 10, self.need.version % 10);
        format!(
            ".version {major}.{minor}\n.target {target}\n.address_size 64\n.shared .align 1024 .b8 tile[1024];\n\
             .visible .entry case({}) {{\n  \
             .reg .pred %p<4>, %z; .reg .b16 %t<8>; .reg .b32 %r<10>; .reg .b64 %rd<10>;\n  \
             ld.param.u32 %r1, [n]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n  \
             mad.lo.u32 %r5, %r2, %r3, %r4; setp.ge.u32 %z, %r5, %r1; @%z bra END;\n{text}END: ret;\n}}\n",
            params.join(", ")
        )
    }

    /// Runs it on the emulator: the results, by output.
    pub fn run(&self, options: Options) -> Result<Vec<Column>, CaseError> {
        let target = self.need.target();
        let module = Module::parse(&self.text(&target), &target)?;
        let mut emulator = Emulator::new(options);
        let mut args = vec![Param::U32(self.threads() as u32)];
        for column in &self.inputs {
            args.push(Param::U64(emulator.memory.alloc_with("input", &column.bytes())));
        }
        let mut places = Vec::new();
        for ty in &self.outputs {
            let bytes = self.threads() * width(ty);
            places.push((*ty, emulator.memory.alloc("results", bytes), bytes));
        }
        args.extend(places.iter().map(|p| Param::U64(p.1)));
        emulator.launch(&module, "case", Grid::new(self.blocks(), BLOCK), &args)?;
        let read = |(ty, at, bytes): (&'static str, u64, usize)| match emulator.memory.read_vec(at, bytes) {
            Ok(bytes) => Ok(Column::of(ty, &bytes)),
            Err(fault) => Err(CaseError::Memory(fault.to_string())),
        };
        places.into_iter().map(read).collect()
    }

    /// What the emulator gives, in strict mode.
    pub fn expected(&self) -> Result<Vec<Column>, CaseError> {
        self.run(Options::default())
    }

    /// Where results of a machine differ from what is expected: output, thread, found, expected; the first few, and how
    /// many there are.
    pub fn compare(&self, found: &[Column], expected: &[Column]) -> (Vec<(usize, usize, u64, u64)>, usize) {
        let (mut some, mut count) = (Vec::new(), 0);
        for (output, (found, expected)) in found.iter().zip(expected).enumerate() {
            for (thread, (f, e)) in found.values.iter().zip(&expected.values).enumerate() {
                if !self.same(*f, *e) {
                    count += 1;
                    if some.len() < 8 {
                        some.push((output, thread, *f, *e));
                    }
                }
            }
        }
        (some, count)
    }

    fn same(&self, found: u64, expected: u64) -> bool {
        let Check::Near(share) = self.check else { return found == expected };
        let (f, e) = (f32::from_bits(found as u32), f32::from_bits(expected as u32));
        found == expected || (f.is_nan() && e.is_nan()) || (f - e).abs() <= share * e.abs().max(1.0)
    }
}

/// Why a case could not run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CaseError {
    #[error(transparent)]
    Text(#[from] Error),
    #[error(transparent)]
    Run(#[from] Box<Fault>),
    #[error("{0}")]
    Memory(String),
}
