//! The IR itself: a kernel is a region of ops over values; control flow ops carry regions.

use crate::{attr::Attrs, loc::Loc, ops::OpKind, types::Type};

/// How deep regions may nest in a kernel's body: passes and lowerings walk them recursively.
pub const MOST_NESTED: usize = 256;

/// A value: an index into [`Kernel::types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Which.
    pub kind: OpKind,
    /// Operands.
    pub operands: Vec<Value>,
    /// Results.
    pub results: Vec<Value>,
    /// Build-time parameters.
    pub attrs: Attrs,
    /// Nested code (for: body; while: condition, body; if: then, else; reduce_with, scan_with: the combiner).
    pub regions: Vec<Region>,
    /// The user's line.
    pub loc: Loc,
}

/// A sequence of ops with arguments and the values that it hands out at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Arguments, bound by the op that owns the region.
    pub args: Vec<Value>,
    /// The ops in order.
    pub ops: Vec<Op>,
    /// What the region gives.
    pub yields: Vec<Value>,
}

/// A kernel. Its body's arguments are its parameters, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name: letters, digits, `_`, `:`, `.`.
    pub name: String,
    /// Names of the parameters, for messages.
    pub params: Vec<String>,
    /// Type of every value, by index.
    pub types: Vec<Type>,
    /// Build-time parameters of the whole: `warps` for GPUs.
    pub attrs: Attrs,
    /// The code.
    pub body: Region,
}

impl Kernel {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> Kernel {
        Kernel { name: name.into(), params: vec![], types: vec![], attrs: Attrs::new(), body: Region::default() }
    }
    /// A new value.
    pub fn value(&mut self, ty: Type) -> Value {
        self.types.push(ty);
        Value(self.types.len() as u32 - 1)
    }
    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        &self.types[v.0 as usize]
    }
    /// Adds a parameter.
    pub fn param(&mut self, name: impl Into<String>, ty: Type) -> Value {
        let v = self.value(ty);
        self.params.push(name.into());
        self.body.args.push(v);
        v
    }
    /// The same kernel with values numbered in order of definition and no unused slots: what the parser makes of the
    /// printed text, and what equality should compare.
    pub fn renumbered(&self) -> Kernel {
        let mut map = vec![None; self.types.len()];
        let mut types = vec![];
        let mut body = self.body.clone();
        renumber(&mut body, &mut |v| {
            *map[v.0 as usize].get_or_insert_with(|| {
                types.push(self.types[v.0 as usize].clone());
                Value(types.len() as u32 - 1)
            })
        });
        Kernel { name: self.name.clone(), params: self.params.clone(), types, attrs: self.attrs.clone(), body }
    }
}

fn renumber(r: &mut Region, f: &mut impl FnMut(Value) -> Value) {
    r.args.iter_mut().for_each(|v| *v = f(*v));
    for op in &mut r.ops {
        // Operands come from earlier definitions; results are numbered before the values inside the op's regions, as the
        // text shows them.
        op.operands.iter_mut().for_each(|v| *v = f(*v));
        op.results.iter_mut().for_each(|v| *v = f(*v));
        op.regions.iter_mut().for_each(|r| renumber(r, f));
    }
    r.yields.iter_mut().for_each(|v| *v = f(*v));
}

impl Region {
    /// Visits every op in this region and the regions inside, in order, outer before inner.
    pub fn walk<'a>(&'a self, f: &mut impl FnMut(&'a Op)) {
        for op in &self.ops {
            f(op);
            op.regions.iter().for_each(|r| r.walk(f));
        }
    }
    /// Replaces operands and yields by `f`, in this region and the regions inside.
    pub fn map_uses(&mut self, f: &mut impl FnMut(Value) -> Value) {
        for op in &mut self.ops {
            op.operands.iter_mut().for_each(|v| *v = f(*v));
            op.regions.iter_mut().for_each(|r| r.map_uses(f));
        }
        self.yields.iter_mut().for_each(|v| *v = f(*v));
    }
}

impl Op {
    /// The only result. Ops with one result by their type rule; anything else is a bug in the caller.
    pub fn result(&self) -> Value {
        self.results[0]
    }
}
