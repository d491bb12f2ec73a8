//! One forward sweep over a kernel that rebuilds it op by op: what canonicalisation is made of.
//!
//! A rule looks at an op (its operands are final already) and may name a value that equals the op's result, after
//! emitting the ops that it needs; the op then goes. Values that a definition uses are visible wherever the definition
//! is, since regions nest, so a rule may reach through definitions.

use crate::{
    attr::{Attr, Attrs, Key},
    kernel::{Kernel, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
    scalar::Scalar,
    types::{TileType, Type},
};
use std::{collections::HashMap, mem, rc::Rc};

/// What defines a value.
#[derive(Debug)]
pub(super) struct Def {
    pub kind: OpKind,
    pub operands: Vec<Value>,
    pub attrs: Attrs,
}

/// A rule: a value equal to the op's only result, or `None`.
pub(super) type Rule = fn(&mut Rewriter<'_>, &Op) -> Option<Value>;

/// The state of a sweep.
pub(super) struct Rewriter<'k> {
    kernel: &'k mut Kernel,
    rules: &'k [Rule],
    defs: Vec<Option<Rc<Def>>>,
    replaced: HashMap<Value, Value>,
    out: Vec<Op>,
    changed: bool,
}

impl<'k> Rewriter<'k> {
    /// Applies `rules` to every op once; tells whether anything changed.
    pub fn sweep(kernel: &'k mut Kernel, rules: &'k [Rule]) -> bool {
        let mut body = mem::take(&mut kernel.body);
        let mut cx = Rewriter { kernel, rules, defs: vec![], replaced: HashMap::new(), out: vec![], changed: false };
        cx.region(&mut body);
        cx.kernel.body = body;
        cx.changed
    }

    fn region(&mut self, r: &mut Region) {
        let outer = mem::take(&mut self.out);
        for op in mem::take(&mut r.ops) {
            self.op(op);
        }
        r.yields.iter_mut().for_each(|v| *v = self.now(*v));
        r.ops = mem::replace(&mut self.out, outer);
    }

    /// Takes an op into the region under construction, or what stands for it.
    pub fn op(&mut self, mut op: Op) {
        op.operands.iter_mut().for_each(|v| *v = self.now(*v));
        if !op.regions.is_empty() {
            let Some(rest) = super::canonicalise::control::enter(self, op) else { return };
            op = rest;
            for mut r in mem::take(&mut op.regions) {
                self.region(&mut r);
                op.regions.push(r);
            }
            let Some(rest) = super::canonicalise::control::leave(self, op) else { return };
            return self.push(rest);
        }
        if op.results.len() == 1 {
            for rule in self.rules {
                if let Some(v) = rule(self, &op) {
                    return self.replace(op.result(), v);
                }
            }
        }
        self.push(op);
    }

    fn push(&mut self, op: Op) {
        if op.regions.is_empty() && op.results.len() == 1 {
            let at = op.result().0 as usize;
            self.defs.resize(self.defs.len().max(at + 1), None);
            self.defs[at] =
                Some(Rc::new(Def { kind: op.kind, operands: op.operands.clone(), attrs: op.attrs.clone() }));
        }
        self.out.push(op);
    }

    /// The value that stands for `v` now.
    pub fn now(&self, v: Value) -> Value {
        self.replaced.get(&v).copied().unwrap_or(v)
    }

    /// From here on `by` (a final value) stands for `v`.
    pub fn replace(&mut self, v: Value, by: Value) {
        debug_assert_eq!(self.kernel.ty(v), self.kernel.ty(by));
        self.changed = true;
        self.replaced.insert(v, by);
    }

    /// Notes a change that no replacement shows.
    pub fn touch(&mut self) {
        self.changed = true;
    }

    /// Emits an op with one result. It is not simplified before the next sweep.
    pub fn emit(&mut self, kind: OpKind, operands: &[Value], ty: TileType, attrs: Attrs, loc: &Loc) -> Value {
        let v = self.kernel.value(ty.into());
        self.push(Op { kind, operands: operands.to_vec(), results: vec![v], attrs, regions: vec![], loc: loc.clone() });
        v
    }
    /// Emits an op without attributes.
    pub fn plain(&mut self, kind: OpKind, operands: &[Value], ty: TileType, loc: &Loc) -> Value {
        self.emit(kind, operands, ty, Attrs::new(), loc)
    }
    /// Emits a constant.
    pub fn constant(&mut self, s: Scalar, shape: &[usize], loc: &Loc) -> Value {
        self.emit(OpKind::Const, &[], TileType::new(s.elem, shape), Attrs::new().with(Key::Value, Attr::Scalar(s)), loc)
    }

    /// The definition of `v`, if an op without regions that has one result made it.
    pub fn def(&self, v: Value) -> Option<Rc<Def>> {
        self.defs.get(v.0 as usize)?.clone()
    }
    /// The definition of `v`, if it is an op of this kind.
    pub fn def_of(&self, v: Value, kind: OpKind) -> Option<Rc<Def>> {
        self.def(v).filter(|d| d.kind == kind)
    }
    /// The element value of a constant.
    pub fn as_const(&self, v: Value) -> Option<Scalar> {
        self.def_of(v, OpKind::Const)?.attrs.scalar(Key::Value)
    }
    /// The scalar that `v` repeats everywhere.
    pub fn as_splat(&self, v: Value) -> Option<Value> {
        let x = self.def_of(v, OpKind::Broadcast)?.operands[0];
        self.tile(x).filter(|t| t.rank() == 0).map(|_| x)
    }
    /// The type of a tile.
    pub fn tile(&self, v: Value) -> Option<&TileType> {
        self.kernel.ty(v).as_tile()
    }
    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        self.kernel.ty(v)
    }
}
