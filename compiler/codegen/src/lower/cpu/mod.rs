//! Tile IR to MLIR for x86-64 CPUs.
//!
//! A tile is bigger than the register file. So it becomes loops *before* vector types appear:
//!
//! | file | what |
//! |---|---|
//! | [`plan`] | where each value lives: in SSA, in scratch memory, or nowhere until it is used |
//! | [`cx`] | the lowering's state: where each value is |
//! | `eval` | elements on demand |
//! | `nest`, `buffer` | loop nests; tiles in scratch memory |
//! | `at` | a place in a tile, with lanes |
//! | `elementwise`, `math` | arithmetic |
//! | `view`, `gather`, `stream` | memory: bounds, edges, indices, atomics, stores around the caches |
//! | `reduce`, `scan`, `sort`, `dot`, [`packed`] | ops along axes and products |
//! | `control`, `report` | loops and branches; assertions and prints |
//! | `arena` | scratch memory |
//! | [`micro`] | register-blocked products |
//!
//! What it shares with GPUs, the builder and how elements are held, is in [`lower`](super).
//!
//! The shared object has one function ([`tegula_ir::abi`]), a loop over the programs it is given. An op that stores,
//! reduces or keeps something becomes a loop nest over its tile, innermost a vector loop; what it needs is computed in
//! that nest, element by element, back to loads, buffers and constants. Where a nest touches views it is made twice, once
//! without bounds checks for tiles that lie inside.
//!
//! **Aliasing.** Different parameters name different memory, which the launch guarantees. Accesses through one parameter
//! keep their order.

mod arena;
mod at;
mod buffer;
mod control;
pub mod cx;
mod dot;
mod elementwise;
mod eval;
mod gather;
pub(crate) mod math;
pub mod micro;
mod nest;
pub mod packed;
pub mod plan;
pub(crate) mod reduce;
mod report;
mod scan;
mod sort;
mod stream;
mod view;

pub use super::build;
pub use super::param::{Error, Lowered};
use super::{convert, machine};
use crate::emit::CpuTarget;
use build::{Build, V};
use cx::{Cx, Home, PackedVal, ViewVal};
use plan::Mode;
use tegula_ir::{Kernel, Op, OpKind, Type, abi, protocol::Meta};

/// What the lowering needs to know of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// f32 lanes of a vector register: the width of loop nests.
    pub lanes: usize,
    /// AVX-512 masks, for elements of every width.
    pub avx512: bool,
    /// What the register-blocked products are made for.
    pub isa: micro::Isa,
}

impl Target {
    /// What `target` has.
    ///
    /// # Errors
    /// It is below x86-64-v3: kernels need AVX2, FMA and F16C.
    pub fn of(target: &CpuTarget) -> Result<Target, Error> {
        let Some(isa) = micro::Isa::of(target) else {
            let message =
                format!("CPU kernels need AVX2, FMA and F16C: a target of at least x86-64-v3, found `{target}`");
            return Err(Error { message, loc: None });
        };
        let avx512 = target.level() == "x86-64-v4";
        Ok(Target { lanes: if avx512 { 16 } else { 8 }, avx512, isa })
    }
    /// Whether masked loads and stores of elements of that many bytes are instructions.
    pub fn has_masked(self, bytes: usize) -> bool {
        self.avx512 || bytes >= 4
    }
}

/// Lowers a verified kernel. `checked` compiles in reports of assertions and of indices out of range.
///
/// # Errors
/// What this target cannot do, with the user's line.
pub fn lower<'c>(
    context: &'c melior::Context,
    kernel: &Kernel,
    target: &CpuTarget,
    checked: bool,
) -> Result<Lowered<'c>, Error> {
    let target = Target::of(target)?;
    let b = Build::new(context);
    let plan = plan::plan(kernel);
    let mut meta = Meta::default();
    let mut result = Ok(());
    let (ptr, i64) = (b.ptr(), b.i64());
    b.function(abi::ENTRY, &[ptr, ptr, i64, i64, ptr], &[], false, |args| {
        let mut cx = Cx::new(&b, kernel, &plan, target, checked, args[4], args[1]);
        result = entry(&mut cx, args);
        meta = Meta {
            scratch_bytes: cx.arena.size() as u64,
            sites: std::mem::take(&mut cx.sites),
            remarks: std::mem::take(&mut cx.remarks),
            ..Meta::default()
        };
        vec![]
    });
    result.map(|()| Lowered { module: b.finish(), meta, estimate: None })
}

/// The body of the entry function: reads the arguments, then runs the programs one by one.
fn entry<'c>(cx: &mut Cx<'_, 'c>, args: &[V<'c>]) -> Result<(), Error> {
    let b = cx.b;
    let mut word = 0;
    let mut next = || {
        let v = b.load(b.offset_c(args[0], word * 8), b.i64(), 0, 8);
        word += 1;
        v
    };
    for (v, name) in cx.k.body.args.iter().zip(&cx.k.params) {
        let home = match cx.k.ty(*v) {
            Type::View(t) => {
                let base = b.int_to_ptr(next());
                Home::View(ViewVal::parameter(b, (*v, name), t, base, &mut next))
            }
            Type::Packed(t) => {
                let base = b.int_to_ptr(next());
                Home::Packed(PackedVal::parameter(name, t, base, &mut next))
            }
            Type::Tile(t) if t.len() == 1 => Home::Scalar(scalar_argument(b, next(), t.elem)),
            t => return Err(Error::parameter(name, t)),
        };
        cx.set_home(*v, home);
    }
    for (axis, n) in cx.grid.iter_mut().enumerate() {
        *n = b.load(b.offset_c(args[1], (abi::Ctx::GRID + 4 * axis) as i64), b.i32(), 0, 4);
    }
    let mut result = Ok(());
    b.for_(args[2], args[3], b.c64(1), &[], |id, _| {
        let [g0, g1] = [0, 1].map(|axis| b.zext(cx.grid[axis], b.i64()));
        let rest = b.divu(id, g0);
        let position = [b.sub(id, b.mul(rest, g0)), b.remu(rest, g1), b.divu(rest, g1)];
        cx.program = id;
        cx.position = position.map(|p| b.trunci(p, b.i32()));
        result = cx.region(&cx.k.body, &[]).map(|_| ());
        vec![]
    });
    cx.fence_streams();
    result
}

fn scalar_argument<'c>(b: &Build<'c>, word: V<'c>, e: tegula_ir::Elem) -> V<'c> {
    let bits = b.trunci(word, b.int(e.bytes() as u32 * 8));
    machine::from_memory(b, b.bitcast(bits, machine::memory_type(b, e)), e)
}

impl<'a, 'c> Cx<'a, 'c> {
    /// One op: makes virtual what the plan says, gives everything else its code.
    pub fn op(&mut self, op: &'a Op) -> Result<(), Error> {
        use OpKind::*;
        let axis = || op.attrs.int(tegula_ir::Key::Axis).unwrap_or(0) as usize;
        match op.kind {
            ProgramId => self.set_home(op.results[0], Home::Scalar(self.position[axis()])),
            NumPrograms => self.set_home(op.results[0], Home::Scalar(self.grid[axis()])),
            Dim => {
                let x = self.b.trunci(self.view(op.operands[0]).extents[axis()], self.b.i32());
                self.set_home(op.results[0], Home::Scalar(x));
            }
            Narrow => self.narrow(op),
            PackedDim => self.packed_dim(op),
            PackedLoad => self.packed_load(op)?,
            Store => self.view_store(op)?,
            Scatter => self.scatter(op)?,
            Atomic | AtomicCas => self.atomic(op)?,
            Reduce => self.reduce(op)?,
            ReduceWith => self.reduce_with(op)?,
            Scan | ScanWith => self.scan(op)?,
            Sort | TopK => self.sort(op)?,
            Histogram => self.histogram(op)?,
            Take => self.take(op)?,
            Cat => self.cat(op)?,
            Dot => self.dot(op)?,
            DotGrouped => self.dot_grouped(op)?,
            Dequant if self.mode(op.results[0]) == Mode::Virtual => self.set_virtual(op),
            Dequant => self.dequant(op)?,
            PackedGather => {
                self.check_packed_gather(op)?;
                self.place_by_place(op)?;
            }
            For | While | If => self.control(op)?,
            Assume => {}
            Assert => self.assert(op)?,
            Print => self.print(op)?,
            _ => self.place_by_place(op)?,
        }
        Ok(())
    }

    /// An op whose elements can be computed one by one: by its mode.
    fn place_by_place(&mut self, op: &'a Op) -> Result<(), Error> {
        let v = op.results[0];
        match self.mode(v) {
            Mode::Virtual => self.set_virtual(op),
            Mode::Alias => {
                let Some(mut buf) = self.buf(op.operands[0]) else {
                    return self.error(op, "its operand is not in memory (a defect of the planner)");
                };
                buf.ty = self.tile(v).clone();
                self.set_home(v, Home::Buffer(buf));
            }
            Mode::Scalar => {
                self.set_virtual(op);
                let x = self.scalar(v);
                self.set_home(v, Home::Scalar(x));
            }
            _ => {
                self.set_virtual(op);
                let buf = self.result_buffer(v);
                self.fill(&buf, v)?;
                self.set_home(v, Home::Buffer(buf));
            }
        }
        Ok(())
    }

    /// `cat`: each operand into its part of the result.
    fn cat(&mut self, op: &'a Op) -> Result<(), Error> {
        let axis = reduce::axis_of(op);
        let buf = self.buffer(self.tile(op.results[0]));
        let mut start = 0;
        for v in &op.operands {
            let shape = self.tile(*v).shape.clone();
            self.nest(&shape, &[*v], None, &mut |cx, at| {
                let x = cx.eval(*v, at);
                let mut to = at.clone();
                to.coords[axis].plus += start;
                cx.write(&buf, &to, x);
                Ok(())
            })?;
            start += shape[axis] as i64;
        }
        self.finish_buffer(op.results[0], buf);
        Ok(())
    }
}
