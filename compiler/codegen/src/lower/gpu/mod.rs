//! Tile IR with layouts to MLIR for NVIDIA GPUs.
//!
//! A program is a block of threads. A tile is in their registers, where its layout says ([`tegula_ir::linear`]): for each
//! of its pieces a value per register. Nothing is kept anywhere else; what has to move between threads goes by shuffles
//! or through shared memory.
//!
//! | file | what |
//! |---|---|
//! | [`cx`] | the lowering's state: the registers of each value |
//! | `thread` | numbers that depend on the thread: coordinates of its elements |
//! | `sync` | barriers, shared memory, which accesses must wait for which |
//! | `warp`, `asm` | shuffles; inline PTX |
//! | `source`, `elementwise`, `math`, `fmod` | values out of nothing; arithmetic |
//! | `shape`, `convert`, `stage` | moving elements: by registers, by a plan, row-major through shared memory |
//! | `view`, `indexed`, `atomic` | memory |
//! | `reduce`, `scan`, `sort`, `pick` | along an axis; by index within a tile |
//! | `feed`, `dot`, `packed`, `grouped` | operands of products by chunks; products and quantised weights |
//! | `control`, `report` | loops and branches; assertions and prints |
//!
//! **To add an op** write a method `fn NAME(&mut self, op: &'a Op) -> Result<(), Error>` of [`Cx`] in a file of its idea,
//! and name it in [`Cx::op`]. It reads operands with [`Cx::regs`] (a vector of registers per piece, in the order of
//! [`Cx::pieces`]), ends with [`Cx::set_regs`], and if it moves elements in a way no other op does, it calls
//! [`Cx::staged`], which puts a tile in shared memory row-major, and reads from there at will.
//!
//! **Aliasing.** Different parameters name different memory, which the launch guarantees. Accesses through one parameter
//! keep their order: a barrier goes between two that may meet in different threads (`sync`). LLVM is told (`noalias`) of
//! memory that nobody writes, and only of that: of what threads share it would believe that a barrier, or an atomic
//! elsewhere, leaves it as it was.

mod asm;
mod atomic;
mod control;
mod convert;
pub mod cx;
mod dot;
mod elementwise;
mod feed;
mod fmod;
mod grouped;
mod indexed;
mod math;
mod packed;
mod pick;
mod reduce;
mod report;
mod scan;
mod shape;
mod sort;
mod source;
mod stage;
mod sync;
mod thread;
mod view;
mod warp;

pub use super::param::{Error, Lowered};
use super::{
    build::{Build, V},
    machine,
};
use crate::emit::GpuTarget;
use cx::{Cx, Home, PackedVal, ViewVal};
use melior::ir::{
    Attribute, Type as MlirType,
    attribute::{ArrayAttribute, StringAttribute, TypeAttribute},
};
use tegula_ir::{
    Kernel, Op, OpKind, Type, abi,
    gpu::{Layouts, Pressure, pressure::registers_on},
    protocol::Meta,
};

/// Lowers a verified kernel with layouts. `checked` compiles in reports of assertions and of indices out of range.
///
/// # Errors
/// What this target cannot do, with the user's line; a resource that the kernel exceeds.
pub fn lower<'c>(
    context: &'c melior::Context,
    kernel: &Kernel,
    target: &GpuTarget,
    checked: bool,
) -> Result<Lowered<'c>, Error> {
    let layouts = Layouts::of(kernel).map_err(|e| Error { message: e.to_string(), loc: Some(e.loc) })?;
    let estimate = registers(kernel, &layouts)?;
    let b = Build::new(context);
    let mut meta = Meta::default();
    let mut result = Ok(());
    let (types, attributes) = parameters(&b, kernel);
    shared_memory(&b);
    let threads = kernel.warps() as i32 * 32;
    let kernel_attributes = [
        ("nvvm.kernel", Attribute::unit(context)),
        ("nvvm.reqntid", b.i32_array(&[threads, 1, 1])),
        // Without it ptxas spills to use few registers, though one program has all that its threads can use.
        ("nvvm.minctasm", b.int_attr(32, 1)),
        ("arg_attrs", attributes),
    ];
    b.kernel(abi::gpu::ENTRY, &types, &kernel_attributes, |args| {
        let mut cx = Cx::new(&b, kernel, layouts, *target, checked);
        cx.report_to = args.last().copied();
        result = entry(&mut cx, args).and_then(|()| cx.fits());
        meta = Meta {
            shared_bytes: cx.shared_bytes() as u64,
            warps: kernel.warps() as u32,
            sites: std::mem::take(&mut cx.sites),
            remarks: std::mem::take(&mut cx.remarks),
            ..Meta::default()
        };
    });
    result.map(|()| Lowered { module: b.finish(), meta, estimate })
}

/// How many times the registers that a thread has a kernel may need before it is refused: each value would be in memory
/// most of the time, and there would be hundreds of thousands of instructions.
const MOST_SPILT: usize = 8;

/// A remark if the tiles of a thread are more than its registers hold.
fn registers(kernel: &Kernel, layouts: &Layouts) -> Result<Option<String>, Error> {
    let (p, warps) = (Pressure::of(kernel, layouts), kernel.warps());
    let (has, most) = (registers_on(warps), MOST_SPILT * registers_on(warps));
    let what = format!("`{}` needs about {} registers a thread for tiles, {{}}", p.op, p.registers);
    // From eight warps on a thread of more warps has fewer registers: nothing is gained.
    let advice = if warps < 8 { format!("more warps than {warps} or smaller tiles") } else { "smaller tiles".into() };
    if p.registers > most {
        let excess = format!("{} more than the {most} that are put up with", p.registers - most);
        let message = format!("{}; a thread has {has}: {advice} fit", what.replace("{}", &excess));
        return Err(Error { message, loc: Some(p.loc) });
    }
    let excess = p.registers.saturating_sub(has);
    Ok((excess > 0).then(|| {
        let spill = format!("{excess} more than it has: values spill to memory; {advice} fit ({})", p.loc);
        what.replace("{}", &spill)
    }))
}

/// Types and attributes of the entry's parameters: see [`abi::gpu`].
fn parameters<'c>(b: &Build<'c>, kernel: &Kernel) -> (Vec<MlirType<'c>>, Attribute<'c>) {
    let (mut types, mut attributes) = (vec![], vec![]);
    let parse = |text: &str| Attribute::parse(b.context, text).unwrap_or_else(|| Attribute::unit(b.context));
    let pointer = |(written, aligned): (bool, bool)| {
        let read = (!written).then_some("llvm.noalias, llvm.readonly");
        let align = aligned.then_some("llvm.align = 16 : i64");
        parse(&format!("{{{}}}", read.into_iter().chain(align).collect::<Vec<_>>().join(", ")))
    };
    for v in &kernel.body.args {
        let words = abi::words(kernel.ty(*v));
        let memory = match kernel.ty(*v) {
            Type::View(v) => Some((v.mutable, v.facts.align16)),
            Type::Packed(_) => Some((false, false)),
            _ => None,
        };
        for i in 0..words {
            let base = memory.filter(|_| i == 0);
            types.push(if base.is_some() { b.ptr_in(1) } else { b.i64() });
            attributes.push(base.map_or_else(|| parse("{}"), pointer));
        }
    }
    types.push(b.ptr_in(1));
    attributes.push(parse("{}"));
    (types, ArrayAttribute::new(b.context, &attributes).into())
}

/// The block's dynamic shared memory.
fn shared_memory(b: &Build<'_>) {
    let ty = Attribute::parse(b.context, "!llvm.array<0 x i8>").unwrap_or_else(|| TypeAttribute::new(b.i8()).into());
    let linkage = Attribute::parse(b.context, "#llvm.linkage<external>").unwrap_or_else(|| Attribute::unit(b.context));
    b.global(
        "llvm.mlir.global",
        &[
            ("sym_name", StringAttribute::new(b.context, cx::SHARED).into()),
            ("global_type", ty),
            ("linkage", linkage),
            ("addr_space", b.int_attr(32, 3)),
            ("alignment", b.int_attr(64, 16)),
        ],
    );
}

/// The body of the kernel: reads the parameters, then runs the ops.
fn entry<'c>(cx: &mut Cx<'_, 'c>, args: &[V<'c>]) -> Result<(), Error> {
    let b = cx.b;
    let mut args = args.iter().copied();
    // `parameters` made as many as are taken here.
    let mut next = || args.next().unwrap_or_else(|| b.c64(0));
    let k = cx.k;
    for (v, name) in k.body.args.iter().zip(&k.params) {
        let home = match k.ty(*v) {
            Type::View(t) => {
                let base = next();
                Home::View(ViewVal::parameter(b, (*v, name), t, base, &mut next))
            }
            Type::Packed(t) => {
                let base = next();
                Home::Packed(PackedVal::parameter(name, t, base, &mut next))
            }
            Type::Tile(t) if t.len() == 1 => {
                let bits = b.trunci(next(), b.int(t.elem.bytes() as u32 * 8));
                let x = machine::from_memory(b, b.bitcast(bits, machine::memory_type(b, t.elem)), t.elem);
                Home::Tile(vec![vec![x]])
            }
            t => return Err(Error::parameter(name, t)),
        };
        cx.set_home(*v, home);
    }
    let body = &cx.k.body;
    cx.region(body)?;
    cx.fault.take().map_or(Ok(()), Err)
}

impl<'a, 'c> Cx<'a, 'c> {
    /// One op.
    pub fn op(&mut self, op: &'a Op) -> Result<(), Error> {
        use OpKind::*;
        if op.results.first().is_some_and(|v| self.streams.contains_key(v)) {
            return Ok(());
        }
        match op.kind {
            Const => self.constant(op),
            Iota => self.iota(op),
            ProgramId | NumPrograms => self.grid(op),
            Dim => self.dim(op),
            Narrow => self.narrow(op),
            Broadcast | Permute => self.shape(op),
            Reshape => self.reshape(op),
            Slice => self.slice(op),
            Cat => self.cat(op),
            ConvertLayout => self.convert_layout(op),
            Load => self.load(op),
            Store => self.store(op),
            Gather => self.gather(op),
            Scatter => self.scatter(op),
            Atomic | AtomicCas => self.atomic(op),
            Reduce => self.reduce(op),
            ReduceWith => self.reduce_with(op),
            Scan | ScanWith => self.scan(op),
            Sort | TopK => self.sort(op),
            Histogram => self.histogram(op),
            Take => self.take(op),
            Dot => self.dot(op),
            DotGrouped => self.dot_grouped(op),
            PackedDim => self.packed_dim(op),
            PackedLoad => self.packed_load(op),
            PackedGather => self.packed_gather(op),
            Dequant => self.dequant(op),
            For => self.for_loop(op),
            While => self.while_loop(op),
            If => self.if_else(op),
            Assume => Ok(()),
            Assert => self.assert(op),
            Print => self.print(op),
            _ => self.elementwise(op),
        }
    }
}
