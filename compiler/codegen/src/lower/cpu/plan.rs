//! Where each value lives: decided for the whole kernel before any code is made.
//!
//! - A tile of one element is a [`Mode::Scalar`]: an SSA value, computed where it stands.
//! - A *virtual* tile has no storage: its elements are computed where a loop nest uses them. Elementwise ops, shape ops,
//!   constants and loads are virtual unless something below forbids it.
//! - A *buffer* is a tile in scratch memory, row-major. Results of reductions, products, scans, sorts and of control flow
//!   are buffers, and so are would-be virtual tiles that
//!   - are used inside a loop that they are defined outside of (unless they cost nothing),
//!   - are used by several loop nests and cost more than re-reading a buffer,
//!   - read memory that is written before their last use,
//!   - are operands of ops that need their elements in memory.
//! - An *alias* is a buffer under another shape (`reshape`).
//!
//! One backward pass over each region decides, users first: a virtual user hands its own users on.

use std::collections::{BTreeSet, HashMap};
use tegula_ir::{Elem, Kernel, Op, OpKind, Region, Type, Value, layout};

/// Where a tile lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One element, in SSA.
    Scalar,
    /// Computed at its uses.
    Virtual,
    /// In scratch memory.
    Buffer,
    /// The buffer of the op's operand.
    Alias,
    /// No tile: a view, a packed matrix, a quantised tile.
    Handle,
}

/// The decisions. Indexed by value.
#[derive(Debug)]
pub struct Plan {
    modes: Vec<Mode>,
    last: Vec<usize>,
    /// Values yielded by a loop's body that may be computed in the storage of the carried argument.
    in_place: HashMap<Value, Value>,
}

impl Plan {
    /// Where `v` lives.
    pub fn mode(&self, v: Value) -> Mode {
        self.modes[v.0 as usize]
    }
    /// Index, in the region that defines `v`, of the last op that needs it; the number of ops if the region yields it.
    /// Uses through virtual values count.
    pub fn last(&self, v: Value) -> usize {
        self.last[v.0 as usize]
    }
    /// The loop's carried argument in whose storage `v` may be made, because nothing reads the argument after.
    pub fn in_place(&self, v: Value) -> Option<Value> {
        self.in_place.get(&v).copied()
    }
}

/// Cost in cheap operations from which a value that several nests use is stored.
const WORTH_STORING: u32 = 8;

/// Plans a verified kernel.
pub fn plan(kernel: &Kernel) -> Plan {
    let n = kernel.types.len();
    let mut p = Planner {
        k: kernel,
        plan: Plan { modes: vec![Mode::Buffer; n], last: vec![0; n], in_place: HashMap::new() },
        cost: vec![0; n],
        deep: vec![false; n],
        roots: HashMap::new(),
        owner: HashMap::new(),
    };
    for (i, ty) in kernel.types.iter().enumerate() {
        p.plan.modes[i] = match ty {
            Type::Tile(t) if t.len() == 1 => Mode::Scalar,
            Type::Tile(_) => Mode::Buffer,
            _ => Mode::Handle,
        };
    }
    p.costs(&kernel.body);
    p.region(&kernel.body);
    p.plan
}

struct Planner<'k> {
    k: &'k Kernel,
    plan: Plan,
    /// Cost of one element, if everything that can be is virtual.
    cost: Vec<u32>,
    /// Used in a loop that does not contain the definition.
    deep: Vec<bool>,
    /// For each value of the region at hand: the ops (or the end) whose loop nests need it.
    roots: HashMap<Value, BTreeSet<usize>>,
    /// View parameter behind a view.
    owner: HashMap<Value, Value>,
}

/// A use of a value by an op of the region at hand or inside it.
struct Use {
    index: usize,
    operand: Option<usize>,
    deep: bool,
    /// It needs the value in memory.
    memory: bool,
}

impl<'k> Planner<'k> {
    fn len(&self, v: Value) -> usize {
        self.k.ty(v).as_tile().map_or(0, |t| t.len())
    }

    /// Forward: what an element costs.
    fn costs(&mut self, r: &'k Region) {
        for op in &r.ops {
            if op.kind == OpKind::Narrow {
                let owner = self.owner_of(op.operands[0]);
                self.owner.insert(op.results[0], owner);
            }
            let below = |p: &Self| {
                op.operands.iter().map(|v| if p.len(*v) == 1 { 0 } else { p.cost[v.0 as usize] }).sum::<u32>()
            };
            let cost = match op.kind {
                OpKind::Const | OpKind::Iota => 0,
                k if k.info().family == tegula_ir::Family::Shape => below(self),
                k if k.is_elementwise() => below(self).saturating_add(own_cost(self.k, op)),
                OpKind::Load => 1,
                OpKind::Gather | OpKind::Take | OpKind::PackedGather => below(self).saturating_add(6),
                _ => 1,
            };
            for v in &op.results {
                self.cost[v.0 as usize] = if self.len(*v) == 1 { 0 } else { cost.min(1 << 20) };
            }
            for inner in &op.regions {
                for v in &inner.args {
                    self.cost[v.0 as usize] = 1;
                }
                self.costs(inner);
            }
        }
    }

    fn owner_of(&self, view: Value) -> Value {
        self.owner.get(&view).copied().unwrap_or(view)
    }

    fn region(&mut self, r: &'k Region) {
        let mut uses: HashMap<Value, Vec<Use>> = HashMap::new();
        for (index, op) in r.ops.iter().enumerate() {
            for (i, v) in op.operands.iter().enumerate() {
                let memory = needs_memory(self.k, op, i);
                uses.entry(*v).or_default().push(Use { index, operand: Some(i), deep: false, memory });
            }
            let in_loop = matches!(op.kind, OpKind::For | OpKind::While);
            for inner in &op.regions {
                nested_uses(self.k, inner, in_loop, &mut |v, deep, memory| {
                    uses.entry(v).or_default().push(Use { index, operand: None, deep, memory });
                });
            }
        }
        for v in &r.yields {
            uses.entry(*v).or_default().push(Use { index: r.ops.len(), operand: None, deep: false, memory: false });
        }
        let writes: Vec<BTreeSet<Value>> = r.ops.iter().map(|op| self.writes(op)).collect();

        for index in (0..r.ops.len()).rev() {
            let op = &r.ops[index];
            for v in &op.results {
                let (roots, deep, needs_memory) = self.consumers(r, uses.get(v).map_or(&[][..], |u| u), *v);
                self.plan.last[v.0 as usize] = roots.last().copied().unwrap_or(index);
                self.deep[v.0 as usize] = deep;
                if self.plan.mode(*v) == Mode::Buffer {
                    self.plan.modes[v.0 as usize] = self.decide(r, &writes, index, *v, &roots, deep, needs_memory);
                }
                self.roots.insert(*v, roots);
            }
        }
        for v in &r.args {
            let (roots, ..) = self.consumers(r, uses.get(v).map_or(&[][..], |u| u), *v);
            self.plan.last[v.0 as usize] = roots.last().copied().unwrap_or(0);
        }
        for op in &r.ops {
            op.regions.iter().for_each(|inner| self.region(inner));
            if op.kind == OpKind::For {
                self.accumulators(&op.regions[0], 1);
            } else if op.kind == OpKind::While {
                self.accumulators(&op.regions[1], 0);
            }
        }
    }

    /// Which nests need the value, whether one is in a deeper loop, and whether one needs it in memory.
    fn consumers(&self, r: &'k Region, uses: &[Use], v: Value) -> (BTreeSet<usize>, bool, bool) {
        let (mut roots, mut deep, mut memory) = (BTreeSet::new(), false, false);
        for u in uses {
            deep |= u.deep;
            memory |= u.memory;
            match (u.operand, r.ops.get(u.index)) {
                (Some(_), Some(user)) => {
                    let result = user.results.first().copied();
                    match result.filter(|x| *x != v && matches!(self.plan.mode(*x), Mode::Virtual | Mode::Alias)) {
                        Some(x) => {
                            roots.extend(self.roots.get(&x).into_iter().flatten());
                            deep |= self.deep[x.0 as usize];
                        }
                        None => {
                            roots.insert(u.index);
                        }
                    }
                }
                _ => {
                    roots.insert(u.index);
                }
            }
        }
        (roots, deep, memory)
    }

    fn decide(
        &self,
        r: &'k Region,
        writes: &[BTreeSet<Value>],
        index: usize,
        v: Value,
        roots: &BTreeSet<usize>,
        deep: bool,
        needs_memory: bool,
    ) -> Mode {
        let op = &r.ops[index];
        let cost = self.cost[v.0 as usize];
        if op.kind == OpKind::Reshape && !reshape_is_unit(self.k, op) {
            // Of something in memory: a scalar cannot be, its reshape would be a scalar.
            return Mode::Alias;
        }
        if op.kind == OpKind::Dequant {
            return if self.multiplied_packed(r, op, roots) { Mode::Virtual } else { Mode::Buffer };
        }
        let can =
            matches!(op.kind, OpKind::Const | OpKind::Iota | OpKind::Load | OpKind::Gather | OpKind::PackedGather)
                || op.kind.is_elementwise()
                || matches!(op.kind, OpKind::Broadcast | OpKind::Permute | OpKind::Slice | OpKind::Reshape);
        if !can || needs_memory || (deep && cost > 0) || (roots.len() > 1 && cost >= WORTH_STORING) {
            return Mode::Buffer;
        }
        if matches!(op.kind, OpKind::Load | OpKind::Gather) {
            let owner = self.owner_of(op.operands[0]);
            let last = roots.last().copied().unwrap_or(index);
            let clash = (index + 1..=last.min(r.ops.len().saturating_sub(1)))
                .filter(|j| writes[*j].contains(&owner))
                .any(|j| j != last || !self.same_place(r, &r.ops[j], op));
            if clash {
                return Mode::Buffer;
            }
        }
        Mode::Virtual
    }

    /// Whether a `dequant` of packed floats is only multiplied by in this region: products read panels as they lie.
    fn multiplied_packed(&self, r: &'k Region, op: &Op, roots: &BTreeSet<usize>) -> bool {
        let Type::QTile(ty) = self.k.ty(op.operands[0]) else { return false };
        let v = op.results[0];
        let reads = |user: &Op| {
            user.kind == OpKind::Dot && user.operands[1] == v && user.operands[0] != v && user.operands[2] != v
        };
        let f32_rows = |user: &Op| self.k.ty(user.operands[0]).as_tile().is_some_and(|t| t.elem == Elem::F32);
        ty.quant.is_float()
            && ty.n.is_multiple_of(layout::panel::COLUMNS)
            && self.packed_as_panels(op.operands[0])
            && roots.iter().all(|i| r.ops.get(*i).is_some_and(|user| reads(user) && f32_rows(user)))
    }

    /// Whether a quantised tile is of a matrix in the layout that products read.
    fn packed_as_panels(&self, qtile: Value) -> bool {
        let mut found = false;
        self.k.body.walk(&mut |op| {
            if op.results.first() == Some(&qtile)
                && let Some(Type::Packed(p)) = op.operands.first().map(|v| self.k.ty(*v))
            {
                found = p.layout == layout::Layout::Panel16.name();
            }
        });
        found
    }

    /// Whether `store` writes exactly the elements that `load` read, each from the same one: then element by element is as
    /// good as all at once.
    fn same_place(&self, r: &'k Region, store: &Op, load: &Op) -> bool {
        if store.kind != OpKind::Store || load.kind != OpKind::Load {
            return false;
        }
        let tile = store.operands[store.operands.len() - 1];
        store.operands[..store.operands.len() - 1] == load.operands[..]
            && self.k.ty(tile) == self.k.ty(load.results[0])
            && self.lane_by_lane(r, tile, load.results[0])
    }

    /// Whether `tile`, as computed, needs of `source` only the element at the same index: every path down to it through
    /// virtual values is elementwise.
    fn lane_by_lane(&self, r: &'k Region, tile: Value, source: Value) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![tile]);
        while let Some(v) = open.pop() {
            if v == source || !seen.insert(v) || self.plan.mode(v) != Mode::Virtual {
                // What is stored is complete before.
                continue;
            }
            let Some(op) = r.ops.iter().find(|op| op.results.contains(&v)) else { continue };
            if op.kind.is_elementwise() {
                open.extend(&op.operands);
            } else if self.reaches(r, v, source) {
                return false;
            }
        }
        true
    }

    /// Whether `source` is below `tile` through virtual values.
    fn reaches(&self, r: &'k Region, tile: Value, source: Value) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![tile]);
        while let Some(v) = open.pop() {
            if v == source {
                return true;
            }
            if !seen.insert(v) || !matches!(self.plan.mode(v), Mode::Virtual | Mode::Alias) {
                continue;
            }
            if let Some(op) = r.ops.iter().find(|op| op.results.contains(&v)) {
                open.extend(&op.operands);
            }
        }
        false
    }

    /// Parameters that an op writes, itself or inside.
    fn writes(&self, op: &Op) -> BTreeSet<Value> {
        let mut set = BTreeSet::new();
        let mut visit = |op: &Op| {
            if matches!(op.kind, OpKind::Store | OpKind::Scatter | OpKind::Atomic | OpKind::AtomicCas) {
                set.insert(self.owner_of(op.operands[0]));
            }
        };
        visit(op);
        op.regions.iter().for_each(|r| r.walk(&mut visit));
        set
    }

    /// Finds yields of a loop's body that may be made in the carried argument's storage: products that accumulate onto it,
    /// and tiles computed from it lane by lane.
    fn accumulators(&mut self, body: &'k Region, skip: usize) {
        for (i, &y) in body.yields.iter().enumerate() {
            let arg = body.args[skip + i];
            if self.plan.mode(y) == Mode::Scalar || body.yields.iter().filter(|v| **v == y).count() > 1 {
                continue;
            }
            let others = |p: &Self| body.yields.iter().enumerate().all(|(j, v)| j == i || !p.reaches(body, *v, arg));
            let Some(at) = body.ops.iter().position(|op| op.results.contains(&y)) else { continue };
            let op = &body.ops[at];
            let ok = match (self.plan.mode(y), op.kind) {
                (Mode::Buffer, OpKind::Dot | OpKind::DotGrouped) => {
                    let acc = op.operands[op.operands.len() - 1];
                    let rest = &op.operands[..op.operands.len() - 1];
                    self.plan.last(arg) == at
                        && self.lane_by_lane(body, acc, arg)
                        && rest.iter().all(|v| !self.reaches(body, *v, arg))
                }
                (Mode::Virtual, _) => {
                    self.plan.last(y) == body.ops.len()
                        && self.roots.get(&y).is_some_and(|r| r.len() == 1)
                        && self.lane_by_lane(body, y, arg)
                        && others(self)
                        && body.args[skip..].iter().all(|a| *a == arg || !self.reaches(body, y, *a))
                }
                _ => false,
            };
            if ok {
                self.plan.in_place.insert(y, arg);
            }
        }
    }
}

/// Calls `f` with each value that a region uses and does not define, whether a loop lies between, and whether the use
/// needs it in memory.
fn nested_uses(k: &Kernel, r: &Region, deep: bool, f: &mut impl FnMut(Value, bool, bool)) {
    for op in &r.ops {
        op.operands.iter().enumerate().for_each(|(i, v)| f(*v, deep, needs_memory(k, op, i)));
        let deeper = deep || matches!(op.kind, OpKind::For | OpKind::While);
        op.regions.iter().for_each(|inner| nested_uses(k, inner, deeper, f));
    }
    r.yields.iter().for_each(|v| f(*v, deep, false));
}

/// Whether `user` reads operand `i` in an order that only memory serves.
fn needs_memory(k: &Kernel, user: &Op, i: usize) -> bool {
    match user.kind {
        OpKind::Take => i == 0,
        OpKind::Reshape => !reshape_is_unit(k, user),
        _ => false,
    }
}

/// Whether a reshape only adds and drops axes of extent 1.
pub fn reshape_is_unit(k: &Kernel, op: &Op) -> bool {
    let long = |v: Value| k.ty(v).as_tile().map(|t| t.shape.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>());
    long(op.operands[0]) == long(op.results[0])
}

fn own_cost(k: &Kernel, op: &Op) -> u32 {
    use OpKind::*;
    match op.kind {
        Exp | Exp2 | Log | Log2 | Sin | Cos | Tanh | Erf | Sigmoid | Pow => 12,
        Sqrt | Rsqrt => 6,
        Div | Rem if k.ty(op.results[0]).as_tile().is_some_and(|t| t.elem.is_int()) => 12,
        Div | Rem => 4,
        _ => 1,
    }
}
