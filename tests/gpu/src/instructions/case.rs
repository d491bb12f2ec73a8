//! A case, and kernels for the usual ones.

use super::formats::Unit;
use crate::raw::{Arg, Job, Level};

/// How far the emulator may be from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Equal bits; a NaN for a NaN.
    Exact,
    /// So many units in the last place of the result.
    Ulp(u64),
    /// No bound but that NaNs and infinities are the same: the order and the precision of sums are the device's own.
    Order,
}

/// An instruction on a table of inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is part of: the file that its table is in.
    pub family: &'static str,
    /// The instruction, and on what.
    pub name: String,
    /// Devices that have it.
    pub level: Level,
    /// What the results are.
    pub unit: Unit,
    /// How near the emulator must be.
    pub tolerance: Tolerance,
    /// The launch.
    pub job: Job,
}

/// Threads of a block of [`map`].
const THREADS: usize = 128;

/// Bytes of a PTX width such as `b32`.
fn bytes(width: &str) -> usize {
    width[1..].parse::<usize>().map_or(4, |bits| bits / 8)
}

/// Registers hold 16 bits at least.
fn register(width: &str) -> &str {
    if width == "b8" { "b16" } else { width }
}

/// A kernel that maps columns of inputs (width and patterns: `%a`, `%b`, `%c`) to `%d` of width `out`, an element a
/// thread. Columns are repeated up to whole blocks, so warps are full. `%t`, `%r<9>`, `%h<8>`, `%x<9>`, `%p<4>` are free.
pub fn map(
    family: &'static str,
    name: &str,
    level: Level,
    body: &str,
    inputs: &[(&str, Vec<u64>)],
    out: &str,
    unit: Unit,
    tolerance: Tolerance,
) -> Case {
    let n = inputs.iter().map(|i| i.1.len()).max().unwrap_or(1).next_multiple_of(THREADS);
    let mut params = vec![".param .u64 out".to_string()];
    let mut text = String::from(
        ".reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %t, %r<9>; .reg .b64 %x<9>, %at<3>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %t, %r1, 128, %r2;\n",
    );
    let mut args = vec![Arg::Out(n * bytes(out))];
    for ((width, values), register_name) in inputs.iter().zip(["a", "b", "c"]) {
        params.push(format!(".param .u64 p{register_name}"));
        text += &format!(
            "  .reg .{} %{register_name}; ld.param.u64 %at0, [p{register_name}]; mul.wide.u32 %at1, %t, {};
  add.s64 %at2, %at0, %at1; ld.global.{width} %{register_name}, [%at2];\n",
            register(width),
            bytes(width)
        );
        let mut column = Vec::with_capacity(n * bytes(width));
        for value in values.iter().cycle().take(n) {
            column.extend_from_slice(&value.to_le_bytes()[..bytes(width)]);
        }
        args.push(Arg::In(column));
    }
    text += &format!(
        "  .reg .{} %d;
  {{ {body} }}
  ld.param.u64 %at0, [out]; mul.wide.u32 %at1, %t, {}; add.s64 %at2, %at0, %at1; st.global.{out} [%at2], %d;
  ret;",
        register(out),
        bytes(out)
    );
    let ptx = kernel(level, &params.join(", "), &text);
    let grid = [(n / THREADS) as u32, 1, 1];
    let job = Job { ptx, grid, block: [THREADS as u32, 1, 1], cluster: None, shared: 0, args };
    Case { family, name: name.into(), level, unit, tolerance, job }
}

/// A module with one kernel.
pub fn kernel(level: Level, params: &str, body: &str) -> String {
    format!("{}.visible .entry k({params}) {{\n  {body}\n}}\n", level.head())
}

/// A kernel of one block. `%t` is the thread, `%o` the address of the results, `%p0`.. those of `inputs`; results are
/// `out` bytes. Everything else is the body's.
pub fn block(
    family: &'static str,
    name: &str,
    level: Level,
    threads: u32,
    body: &str,
    inputs: Vec<Vec<u8>>,
    out: usize,
    unit: Unit,
) -> Case {
    let mut params = vec![".param .u64 out".to_string()];
    let mut text = format!(
        ".reg .b32 %t; .reg .b64 %o, %p<{}>; mov.u32 %t, %tid.x; ld.param.u64 %o, [out];\n",
        inputs.len().max(1)
    );
    let mut args = vec![Arg::Out(out)];
    for (i, bytes) in inputs.into_iter().enumerate() {
        params.push(format!(".param .u64 in{i}"));
        text += &format!("  ld.param.u64 %p{i}, [in{i}];\n");
        args.push(Arg::In(bytes));
    }
    text += &format!("  {body}\n  ret;");
    let ptx = kernel(level, &params.join(", "), &text);
    let job = Job { ptx, grid: [1; 3], block: [threads, 1, 1], cluster: None, shared: 0, args };
    Case { family, name: name.into(), level, unit, tolerance: Tolerance::Exact, job }
}

/// 32-bit words as bytes.
pub fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
