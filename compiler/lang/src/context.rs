//! The kernel being built on this thread.
//!
//! Operators, closures and plain helper functions cannot be handed a builder, so it is thread-local. Builds nest (a
//! kernel may be built while another is), and a panic leaves the outer build as it was. A mistake does not stop the
//! build: it is noted with the user's line, a constant stands in for the result, and [`build`] gives all mistakes.

use crate::error::{BuildError, Fault};
use std::{any::TypeId, cell::RefCell, panic::Location, sync::Arc};
use tegula_ir::{Attr, Attrs, Builder, Kernel, Key, Loc, OpKind, Region, Scalar, Type, Value};

/// A value and the build that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    value: Value,
    build: u32,
}

/// The extent of a named dim, given for this build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DimValue {
    pub tag: TypeId,
    pub name: &'static str,
    pub extent: usize,
}

pub(crate) struct Context {
    builder: Builder,
    build: u32,
    faults: Vec<Fault>,
    dims: Vec<DimValue>,
    files: Vec<(&'static str, Arc<str>)>,
    /// How many combiners (of reductions and scans) are being built, one in the other.
    combiners: usize,
    /// Ops so far.
    ops: usize,
}

/// Most operations that a kernel may have. No kernel written on purpose comes near; a loop over a host number that was
/// meant to run on the device does.
const MOST_OPS: usize = 100_000;

/// What ends a build at once: going on would only take time and memory. The mistake is noted before.
struct Abandoned;

thread_local! {
    static STACK: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
    static BUILDS: RefCell<u32> = const { RefCell::new(0) };
}

/// Builds a kernel: runs `body`, which uses the operations of this crate, and verifies what they made.
pub fn build(name: &str, body: impl FnOnce()) -> Result<Kernel, BuildError> {
    build_with(name, vec![], body)
}

pub(crate) fn build_with(name: &str, dims: Vec<DimValue>, body: impl FnOnce()) -> Result<Kernel, BuildError> {
    /// Drops what a panic in `body` left behind.
    struct Depth(usize);
    impl Drop for Depth {
        fn drop(&mut self) {
            STACK.with(|s| s.borrow_mut().truncate(self.0))
        }
    }
    let serial = BUILDS.with(|b| {
        let mut b = b.borrow_mut();
        *b = b.wrapping_add(1);
        *b
    });
    let depth = STACK.with(|s| {
        let mut s = s.borrow_mut();
        s.push(Context {
            builder: Builder::new(name),
            build: serial,
            faults: vec![],
            dims,
            files: vec![],
            combiners: 0,
            ops: 0,
        });
        Depth(s.len() - 1)
    });
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
        && !panic.is::<Abandoned>()
    {
        std::panic::resume_unwind(panic);
    }
    // What an abandoned build inside this one left.
    STACK.with(|s| s.borrow_mut().truncate(depth.0 + 1));
    let context = STACK.with(|s| s.borrow_mut().pop());
    drop(depth);
    let Some(mut context) = context else {
        return Err(BuildError {
            kernel: name.into(),
            faults: vec![Fault { loc: Loc::unknown(), message: "the build was ended inside it".into() }],
        });
    };
    while context.builder.depth() > 1 {
        context.builder.close(vec![]);
        if context.faults.is_empty() {
            context.faults.push(Fault {
                loc: Loc::unknown(),
                message: "a run-time loop or branch was left before its end".into(),
            });
        }
    }
    if !context.faults.is_empty() {
        return Err(BuildError { kernel: name.into(), faults: context.faults });
    }
    let kernel = context.builder.finish();
    match kernel.verify() {
        // Numbered by definition: equal kernels have equal texts.
        Ok(()) => Ok(kernel.renumbered()),
        Err(e) => Err(BuildError {
            kernel: name.into(),
            faults: vec![Fault { loc: e.loc, message: format!("`{}`: {}", e.op, e.message) }],
        }),
    }
}

/// Runs `f` on the kernel being built.
///
/// # Panics
/// Outside a build, where tile operations have no meaning.
#[track_caller]
pub(crate) fn with<R>(f: impl FnOnce(&mut Context) -> R) -> R {
    let at = Location::caller();
    STACK.with(|s| match s.borrow_mut().last_mut() {
        Some(c) => f(c),
        None => panic!(
            "{at}: a tile operation outside a kernel: it works only while a kernel is being built on this thread"
        ),
    })
}

/// Notes a mistake at the caller's line.
#[track_caller]
pub(crate) fn fault(message: impl Into<String>) {
    let at = Location::caller();
    with(|c| c.fault(at, message.into()));
}

impl Context {
    pub fn fault(&mut self, at: &'static Location<'static>, message: String) {
        let loc = self.loc(at);
        let fault = Fault { loc, message };
        // A mistake in an unrolled loop is one mistake.
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Notes a mistake and ends the build.
    fn abandon(&mut self, at: &'static Location<'static>, message: String) -> ! {
        // It alone: regions are left open, which is no mistake of the user's.
        self.fault(at, message);
        std::panic::resume_unwind(Box::new(Abandoned))
    }

    pub fn loc(&mut self, at: &'static Location<'static>) -> Loc {
        let file = match self.files.iter().find(|f| std::ptr::eq(f.0, at.file())) {
            Some(f) => f.1.clone(),
            None => {
                let arc: Arc<str> = at.file().into();
                self.files.push((at.file(), arc.clone()));
                arc
            }
        };
        Loc { file, line: at.line(), col: at.column() }
    }

    pub fn handle(&self, value: Value) -> Handle {
        Handle { value, build: self.build }
    }

    /// The type of a value of this build. A value of another build gets a stand-in type, and [`Context::check`] names
    /// the mistake.
    pub fn ty(&self, v: Handle) -> Type {
        if v.build == self.build { self.builder.ty(v.value).clone() } else { Type::scalar(tegula_ir::Elem::I32) }
    }

    /// Whether `v` may be used here; otherwise notes why not.
    pub fn check(&mut self, v: Handle, at: &'static Location<'static>) -> bool {
        let message = if v.build != self.build {
            "this value belongs to another kernel: it was kept from an earlier or an outer build"
        } else if !self.builder.is_visible(v.value) {
            "this value was made inside a run-time loop or branch and is used outside it: let a `mut` variable carry it out"
        } else {
            return true;
        };
        self.fault(at, message.into());
        false
    }

    #[track_caller]
    pub fn open(&mut self, args: &[Type]) -> Vec<Handle> {
        if self.builder.depth() > tegula_ir::MOST_NESTED {
            let message = format!("run-time loops and branches nest deeper than {}", tegula_ir::MOST_NESTED);
            self.abandon(Location::caller(), message);
        }
        let build = self.build;
        self.builder.open(args).into_iter().map(|value| Handle { value, build }).collect()
    }

    pub fn arg(&mut self, ty: Type) -> Handle {
        let v = self.builder.arg(ty);
        self.handle(v)
    }

    /// Closes the innermost region. Values that may not be handed out are replaced by constants, and noted.
    pub fn close(&mut self, yields: &[Handle], at: &'static Location<'static>) -> Region {
        let yields = yields.iter().map(|&v| self.operand(v, at)).collect();
        self.builder.close(yields)
    }

    /// Opens the region of a reduction or scan, which may hold no control flow of its own.
    pub fn open_combiner(&mut self, args: &[Type]) -> Vec<Handle> {
        self.combiners += 1;
        self.open(args)
    }

    pub fn close_combiner(&mut self, yields: &[Handle], at: &'static Location<'static>) -> Region {
        self.combiners -= 1;
        self.close(yields, at)
    }

    /// Whether a combiner is being built: branches become selections there.
    pub fn in_combiner(&self) -> bool {
        self.combiners > 0
    }

    fn operand(&mut self, v: Handle, at: &'static Location<'static>) -> Value {
        if self.check(v, at) {
            return v.value;
        }
        let ty = self.ty(v);
        self.stand_in(ty, at).value
    }

    /// A constant 0 of a tile type, in place of a value that a mistake made impossible.
    pub fn stand_in(&mut self, ty: Type, at: &'static Location<'static>) -> Handle {
        let elem = ty.as_tile().map_or(tegula_ir::Elem::I32, |t| t.elem);
        let loc = self.loc(at);
        let attrs = Attrs::new().with(Key::Value, Attr::Scalar(Scalar::zero(elem)));
        let v = self.builder.op1(OpKind::Const, &[], ty, attrs, loc);
        self.handle(v)
    }

    pub fn op(
        &mut self,
        kind: OpKind,
        operands: &[Handle],
        results: &[Type],
        attrs: Attrs,
        regions: Vec<Region>,
        at: &'static Location<'static>,
    ) -> Vec<Handle> {
        let operands: Vec<Value> = operands.iter().map(|&v| self.operand(v, at)).collect();
        let loc = self.loc(at);
        let build = self.build;
        self.ops += 1;
        if self.ops > MOST_OPS {
            self.abandon(
                at,
                format!(
                    "the kernel has more than {MOST_OPS} operations: `for i in 0..n` with a host number `n` is unrolled; \
                     `for i in range(0, n)` is a loop on the device"
                ),
            );
        }
        self.builder
            .op(kind, &operands, results, attrs, regions, loc)
            .into_iter()
            .map(|value| Handle { value, build })
            .collect()
    }

    pub fn param(&mut self, name: &str, ty: Type) -> Handle {
        let v = self.builder.param(name, ty);
        self.handle(v)
    }

    pub fn dim(&self, tag: TypeId) -> Option<DimValue> {
        self.dims.iter().copied().find(|d| d.tag == tag)
    }
}

/// The type of a value.
#[track_caller]
pub(crate) fn ty(v: Handle) -> Type {
    with(|c| c.ty(v))
}

/// The extents of a tile.
#[track_caller]
pub(crate) fn shape(v: Handle) -> Vec<usize> {
    ty(v).as_tile().map(|t| t.shape.clone()).unwrap_or_default()
}

/// Adds an op with one result.
#[track_caller]
pub(crate) fn emit(kind: OpKind, operands: &[Handle], result: Type, attrs: Attrs) -> Handle {
    let at = Location::caller();
    with(|c| c.op(kind, operands, &[result], attrs, vec![], at)[0])
}

/// Adds an op without results.
#[track_caller]
pub(crate) fn emit_effect(kind: OpKind, operands: &[Handle], attrs: Attrs) {
    let at = Location::caller();
    with(|c| c.op(kind, operands, &[], attrs, vec![], at));
}

/// Adds a constant, the same in every element.
#[track_caller]
pub(crate) fn constant(value: Scalar, shape: &[usize]) -> Handle {
    emit(OpKind::Const, &[], Type::tile(value.elem, shape), Attrs::new().with(Key::Value, Attr::Scalar(value)))
}

/// A stand-in for a value that a mistake made impossible.
#[track_caller]
pub(crate) fn stand_in(ty: Type) -> Handle {
    let at = Location::caller();
    with(|c| c.stand_in(ty, at))
}
