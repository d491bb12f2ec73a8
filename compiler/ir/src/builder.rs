//! Building a kernel op by op, with a stack of open regions.

use crate::{
    attr::Attrs,
    kernel::{Kernel, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
    types::Type,
};

/// A kernel under construction.
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    open: Vec<Region>,
    /// Depth in `open` at which each value was defined, and the number of that region.
    home: Vec<u32>,
    /// Numbers of the open regions, outermost first.
    ids: Vec<u32>,
    regions: u32,
}

impl Builder {
    /// Starts a kernel.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder { kernel: Kernel::new(name), open: vec![Region::default()], home: vec![], ids: vec![0], regions: 1 }
    }
    /// Adds a parameter. Only before regions are opened.
    pub fn param(&mut self, name: impl Into<String>, ty: Type) -> Value {
        let v = self.kernel.param(name, ty);
        self.home.push(0);
        v
    }
    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        self.kernel.ty(v)
    }
    /// A new value in the innermost open region: a result or a region argument.
    pub fn value(&mut self, ty: Type) -> Value {
        self.home.push(self.ids[self.ids.len() - 1]);
        self.kernel.value(ty)
    }
    /// Whether `v` may be used now: it was made in a region that is still open.
    pub fn is_visible(&self, v: Value) -> bool {
        self.home.get(v.0 as usize).is_some_and(|h| self.ids.contains(h))
    }
    /// Opens a region with arguments of these types.
    pub fn open(&mut self, args: &[Type]) -> Vec<Value> {
        self.open.push(Region::default());
        self.ids.push(self.regions);
        self.regions += 1;
        args.iter().map(|t| self.arg(t.clone())).collect()
    }
    /// Adds an argument to the innermost open region.
    pub fn arg(&mut self, ty: Type) -> Value {
        let v = self.value(ty);
        let last = self.open.len() - 1;
        self.open[last].args.push(v);
        v
    }
    /// Number of open regions, the kernel's body included.
    pub fn depth(&self) -> usize {
        self.open.len()
    }
    /// Closes the innermost region. Must match an `open`.
    pub fn close(&mut self, yields: Vec<Value>) -> Region {
        assert!(self.open.len() > 1, "close without open");
        self.ids.pop();
        let mut r = self.open.pop().unwrap_or_default();
        r.yields = yields;
        r
    }
    /// Adds an op with results of these types.
    pub fn op(
        &mut self,
        kind: OpKind,
        operands: &[Value],
        results: &[Type],
        attrs: Attrs,
        regions: Vec<Region>,
        loc: Loc,
    ) -> Vec<Value> {
        let results: Vec<Value> = results.iter().map(|t| self.value(t.clone())).collect();
        let last = self.open.len() - 1;
        self.open[last].ops.push(Op {
            kind,
            operands: operands.to_vec(),
            results: results.clone(),
            attrs,
            regions,
            loc,
        });
        results
    }
    /// Adds an op with one result and no regions.
    pub fn op1(&mut self, kind: OpKind, operands: &[Value], result: Type, attrs: Attrs, loc: Loc) -> Value {
        self.op(kind, operands, &[result], attrs, vec![], loc)[0]
    }
    /// Ends the kernel. Every opened region must be closed.
    pub fn finish(mut self) -> Kernel {
        assert!(self.open.len() == 1, "{} regions are still open", self.open.len() - 1);
        self.kernel.body.ops = self.open.pop().unwrap_or_default().ops;
        self.kernel
    }
}
