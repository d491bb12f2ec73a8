//! The analysis: one walk in order of execution, loops to a fixpoint.

use super::{
    Access, Fact, Facts, Range,
    below::{self, Extent},
    divisor, transfer,
};
use crate::{
    attr::Key,
    kernel::{Kernel, Op, Region, Value},
    ops::OpKind::{self, *},
    types::{TileType, Type},
};
use std::collections::HashMap;

/// Rounds of a loop after which what still changes is given up.
const PATIENCE: usize = 3;

pub(super) fn analyse(kernel: &Kernel) -> Facts<'_> {
    let mut defs = HashMap::new();
    kernel.body.walk(&mut |op| defs.extend(op.results.iter().map(|&v| (v, op))));
    let n = kernel.types.len();
    let mut walk = Walk {
        kernel,
        defs,
        now: vec![None; n],
        at_def: vec![None; n],
        dims: HashMap::new(),
        undo: vec![],
        accesses: HashMap::new(),
    };
    kernel.body.args.iter().for_each(|&v| walk.define(v, None));
    walk.region(&kernel.body);
    Facts { kernel, values: walk.at_def, accesses: walk.accesses }
}

struct Walk<'k> {
    kernel: &'k Kernel,
    defs: HashMap<Value, &'k Op>,
    /// What is known at this point of the walk, and what was known at the definition: that holds at every use.
    now: Vec<Option<Fact>>,
    at_def: Vec<Option<Fact>>,
    /// Known divisors of extents, at this point.
    dims: HashMap<Extent, u64>,
    /// What to restore where a region ends: an assumption counts as far as it dominates.
    undo: Vec<Undo>,
    accesses: HashMap<*const Op, Access>,
}

enum Undo {
    Fact(Value, Option<Fact>),
    Dim(Extent, Option<u64>),
}

impl<'k> Walk<'k> {
    fn tile(&self, v: Value) -> Option<&'k TileType> {
        self.kernel.ty(v).as_tile()
    }
    fn fact(&self, v: Value) -> Fact {
        let unknown =
            || self.tile(v).map_or_else(|| Fact::unknown(&TileType::new(crate::elem::Elem::F32, [])), Fact::unknown);
        self.now[v.0 as usize].clone().unwrap_or_else(unknown)
    }
    fn facts(&self, values: &[Value]) -> Vec<Fact> {
        values.iter().map(|&v| self.fact(v)).collect()
    }

    /// Notes what is known of a new value; `None`: its type.
    fn define(&mut self, v: Value, fact: Option<Fact>) {
        let Some(t) = self.tile(v) else { return };
        let mut fact = fact.unwrap_or_else(|| Fact::unknown(t));
        transfer::settle(&mut fact, t);
        self.now[v.0 as usize] = Some(fact.clone());
        self.at_def[v.0 as usize] = Some(fact);
    }

    fn region(&mut self, r: &'k Region) -> Vec<Fact> {
        let start = self.undo.len();
        r.ops.iter().for_each(|op| self.op(op));
        let yields = self.facts(&r.yields);
        self.restore(start);
        yields
    }
    fn restore(&mut self, start: usize) {
        while self.undo.len() > start {
            match self.undo.pop() {
                Some(Undo::Fact(v, f)) => self.now[v.0 as usize] = f,
                Some(Undo::Dim(e, Some(d))) => drop(self.dims.insert(e, d)),
                Some(Undo::Dim(e, None)) => drop(self.dims.remove(&e)),
                None => {}
            }
        }
    }

    fn op(&mut self, op: &'k Op) {
        match op.kind {
            For => self.for_loop(op),
            While => self.while_loop(op),
            If => self.branch(op),
            ReduceWith | ScanWith => {
                op.regions[0].args.iter().for_each(|&v| self.define(v, None));
                self.region(&op.regions[0]);
                op.results.iter().for_each(|&v| self.define(v, None));
            }
            Assume => self.suppose(op.operands[0], true),
            _ => {
                let x = self.facts(&op.operands);
                for &v in &op.results {
                    let mut fact = transfer::result(self.kernel, op, v, &x, &self.dims);
                    if let (Dim | PackedDim, Some(f)) = (op.kind, &mut fact)
                        && let Some(extent) = self.extent(op)
                    {
                        f.below = vec![below::Below { extent, mul: 1, add: 0 }];
                        f.divisor = self.dims.get(&extent).copied().unwrap_or(1);
                    }
                    self.define(v, fact);
                }
                if op.kind == MultipleOf {
                    let n = self.fact(op.result()).divisor;
                    self.learn_divisor(op.operands[0], n);
                }
                self.access(op, &x);
            }
        }
    }

    /// The axis that a `dim` op asks about.
    fn extent(&self, op: &Op) -> Option<Extent> {
        Some(self.axis_of(op.operands[0], op.attrs.int(Key::Axis)? as usize))
    }
    /// A narrowed view has the other axes of the view that it is a part of.
    fn axis_of(&self, view: Value, axis: usize) -> Extent {
        match self.defs.get(&view) {
            Some(op) if op.kind == Narrow && op.attrs.int(Key::Axis) != Some(axis as i64) => {
                self.axis_of(op.operands[0], axis)
            }
            _ => (view, axis),
        }
    }

    fn for_loop(&mut self, op: &'k Op) {
        let [lo, hi, step] = [0, 1, 2].map(|i| self.fact(op.operands[i]));
        let body = &op.regions[0];
        let mut index = self.tile(op.operands[0]).map(Fact::unknown);
        if let (Some(i), Some(l), Some(h)) = (&mut index, lo.range, hi.range) {
            // The body runs only with lo ≤ index < hi; the loop ends before the index would wrap.
            if l.lo < h.hi {
                i.range = Some(Range::new(l.lo, h.hi - 1));
            }
            i.divisor = divisor::gcd(lo.divisor, step.divisor);
            i.first = i.divisor;
            i.below = hi.below.iter().filter_map(|b| b.lowered(1)).collect();
        }
        self.define(body.args[0], index);
        let start = self.facts(&op.operands[3..]);
        let carried = self.fixpoint(&op.results, start, |walk, carried| {
            body.args[1..].iter().zip(carried).for_each(|(&v, f)| walk.define(v, Some(f.clone())));
            walk.region(body)
        });
        op.results.iter().zip(carried).for_each(|(&v, f)| self.define(v, Some(f)));
    }

    fn while_loop(&mut self, op: &'k Op) {
        let (condition, body) = (&op.regions[0], &op.regions[1]);
        let start = self.facts(&op.operands);
        let carried = self.fixpoint(&op.results, start, |walk, carried| {
            condition.args.iter().zip(carried).for_each(|(&v, f)| walk.define(v, Some(f.clone())));
            let start = walk.undo.len();
            condition.ops.iter().for_each(|op| walk.op(op));
            walk.suppose(condition.yields[0], true);
            let inside = walk.facts(&condition.args);
            body.args.iter().zip(inside).for_each(|(&v, f)| walk.define(v, Some(f)));
            let next = walk.region(body);
            walk.restore(start);
            next
        });
        op.results.iter().zip(carried).for_each(|(&v, f)| self.define(v, Some(f)));
    }

    /// What holds of carried values in every round, the first included.
    fn fixpoint(
        &mut self,
        results: &[Value],
        start: Vec<Fact>,
        mut round: impl FnMut(&mut Self, &[Fact]) -> Vec<Fact>,
    ) -> Vec<Fact> {
        let mut carried = start;
        for n in 0.. {
            let next: Vec<Fact> = round(self, &carried).iter().zip(&carried).map(|(y, c)| c.join(y)).collect();
            if next == carried {
                break;
            }
            carried = if n < PATIENCE {
                next
            } else {
                let full = results.iter().map(|&v| self.tile(v).and_then(|t| Range::full(t.elem)));
                carried.iter().zip(&next).zip(full).map(|((c, n), full)| widen(c, n, full)).collect()
            };
        }
        carried
    }

    fn branch(&mut self, op: &'k Op) {
        let given: Vec<Vec<Fact>> = [true, false]
            .into_iter()
            .zip(&op.regions)
            .map(|(truth, r)| {
                let start = self.undo.len();
                self.suppose(op.operands[0], truth);
                let yields = self.region(r);
                self.restore(start);
                yields
            })
            .collect();
        let known = self.fact(op.operands[0]).range.and_then(Range::single);
        for (i, &v) in op.results.iter().enumerate() {
            let fact = match known {
                Some(1) => given[0][i].clone(),
                Some(_) => given[1][i].clone(),
                None => given[0][i].join(&given[1][i]),
            };
            self.define(v, Some(fact));
        }
    }

    // ---- what a condition tells ----

    /// From here to the end of the region, a bool is true or false.
    fn suppose(&mut self, condition: Value, truth: bool) {
        let mut bool_fact = self.fact(condition);
        bool_fact.range = Some(Range::point(truth as i128));
        self.learn(condition, bool_fact);
        let Some(&op) = self.defs.get(&condition) else { return };
        match (op.kind, truth) {
            (Not, _) => self.suppose(op.operands[0], !truth),
            (And, true) | (Or, false) => op.operands.iter().for_each(|&v| self.suppose(v, truth)),
            (Eq, true) | (Ne, false) => {
                self.equal(op.operands[0], op.operands[1]);
                self.equal(op.operands[1], op.operands[0]);
            }
            (Eq, false) | (Ne, true) => {
                self.differ(op.operands[0], op.operands[1]);
                self.differ(op.operands[1], op.operands[0]);
            }
            (Lt, true) | (Ge, false) => self.less(op.operands[0], op.operands[1], 1),
            (Gt, true) | (Le, false) => self.less(op.operands[1], op.operands[0], 1),
            (Le, true) | (Gt, false) => self.less(op.operands[0], op.operands[1], 0),
            (Ge, true) | (Lt, false) => self.less(op.operands[1], op.operands[0], 0),
            _ => {}
        }
    }

    fn learn(&mut self, v: Value, fact: Fact) {
        // An empty range: the code is not reached, and anything may be left as it was.
        if fact.range.is_none_or(|r| r.lo > r.hi) || self.now[v.0 as usize].as_ref() == Some(&fact) {
            return;
        }
        let old = self.now[v.0 as usize].replace(fact.clone());
        self.undo.push(Undo::Fact(v, old));
        let Some(&op) = self.defs.get(&v) else { return };
        if matches!(op.kind, Dim | PackedDim)
            && let Some(extent) = self.extent(op)
        {
            let old = self.dims.insert(extent, fact.divisor);
            self.undo.push(Undo::Dim(extent, old));
        }
        self.learn_source(op, &fact);
    }

    /// What is learned of a value holds of what it was cast from, and, shifted, of what a constant was added to.
    fn learn_source(&mut self, op: &'k Op, fact: &Fact) {
        let (Cast | Add, Some(&from)) = (op.kind, op.operands.first()) else { return };
        let (Some(t), Some(source)) = (self.tile(op.result()), self.tile(from)) else { return };
        let mut known = self.fact(from);
        let added = if op.kind == Add { self.fact(op.operands[1]).range.and_then(Range::single) } else { Some(0) };
        let (Some(r), Some(learned), Some(c)) = (known.range, fact.range, added) else { return };
        if !source.elem.is_int() || !t.elem.is_int() || !super::fits(Range::new(r.lo + c, r.hi + c), t) {
            return;
        }
        known.range = Some(Range::new(r.lo.max(learned.lo - c), r.hi.min(learned.hi - c)));
        fact.below.iter().filter_map(|b| b.lowered(c)).for_each(|b| below::insert(&mut known.below, b));
        if c == 0 {
            known.divisor = divisor::lcm(known.divisor, fact.divisor);
            known.first = divisor::lcm(known.first, fact.first);
        }
        self.learn(from, known);
    }

    /// a + by ≤ b.
    fn less(&mut self, a: Value, b: Value, by: i128) {
        let (mut x, mut y) = (self.fact(a), self.fact(b));
        let (Some(r), Some(s)) = (x.range, y.range) else { return };
        x.range = Some(Range::new(r.lo, r.hi.min(s.hi - by)));
        y.range = Some(Range::new(s.lo.max(r.lo + by), s.hi));
        y.below.iter().filter_map(|b| b.lowered(by)).for_each(|b| below::insert(&mut x.below, b));
        self.learn(a, x);
        self.learn(b, y);
    }

    fn equal(&mut self, a: Value, b: Value) {
        let (mut x, y) = (self.fact(a), self.fact(b));
        let (Some(r), Some(s)) = (x.range, y.range) else { return };
        x.range = Some(Range::new(r.lo.max(s.lo), r.hi.min(s.hi)));
        y.below.iter().for_each(|&b| below::insert(&mut x.below, b));
        self.learn(a, x);
        self.learn_divisor(a, y.divisor);
        // a % c = 0 says what divides a.
        if let (Some(0), Some(op)) = (s.single(), self.defs.get(&a))
            && op.kind == Rem
            && let (n, Some(c)) = (op.operands[0], self.fact(op.operands[1]).range.and_then(Range::single))
            && c != 0
        {
            self.learn_divisor(n, divisor::of(c));
        }
    }

    fn differ(&mut self, a: Value, b: Value) {
        let (mut x, y) = (self.fact(a), self.fact(b));
        if let (Some(r), Some(v)) = (x.range, y.range.and_then(Range::single)) {
            x.range = Some(Range::new(r.lo + (r.lo == v) as i128, r.hi - (r.hi == v) as i128));
            self.learn(a, x);
        }
    }

    fn learn_divisor(&mut self, v: Value, d: u64) {
        let mut fact = self.fact(v);
        fact.divisor = divisor::lcm(fact.divisor, d);
        fact.first = divisor::lcm(fact.first, d);
        self.learn(v, fact);
    }

    // ---- memory ----

    fn access(&mut self, op: &'k Op, x: &[Fact]) {
        // The size of the rectangle at the position; `None`: index tiles name single elements.
        let shape: Option<Vec<usize>> = match op.kind {
            Load => self.tile(op.result()).map(|t| t.shape.clone()),
            Store => op.operands.last().and_then(|&v| self.tile(v)).map(|t| t.shape.clone()),
            PackedLoad => match self.kernel.ty(op.result()) {
                Type::QTile(q) => Some(vec![q.k, q.n]),
                _ => return,
            },
            Gather | Scatter | Atomic | AtomicCas | PackedGather => None,
            _ => return,
        };
        let view = op.operands[0];
        let rank = match self.kernel.ty(view) {
            Type::View(v) => v.rank,
            _ => 2,
        };
        let size = |axis: usize| shape.as_ref().map_or(1, |s| s[axis] as i128);
        let inside = (0..rank)
            .map(|axis| below::inside(&x[1 + axis], size(axis), self.axis_of(view, axis), &self.dims))
            .collect();
        self.accesses.insert(std::ptr::from_ref(op), Access { inside, alignment: self.alignment(op.kind, view, x) });
    }

    fn alignment(&self, kind: OpKind, view: Value, x: &[Fact]) -> usize {
        let Type::View(v) = self.kernel.ty(view) else { return 1 };
        let bytes = v.elem.bytes();
        if !v.facts.align16 {
            return bytes;
        }
        // Base and outer strides lie on the grid of 16 bytes; along the innermost axis the position says the rest.
        let last = match (v.rank, kind) {
            (0, _) => 0,
            _ if !v.facts.unit => return bytes,
            (rank, Load | Store) => x[rank].divisor,
            (rank, _) => x[rank].first,
        };
        if last == 0 { 16 } else { (bytes << last.trailing_zeros().min(4)).min(16) }
    }
}

/// Gives up what changes from round to round.
fn widen(old: &Fact, new: &Fact, full: Option<Range>) -> Fact {
    let mut f = new.clone();
    if let (Some(a), Some(b), Some(full)) = (old.range, new.range, full) {
        let lo = if b.lo < a.lo { full.lo } else { b.lo };
        let hi = if b.hi > a.hi { full.hi } else { b.hi };
        f.range = Some(Range::new(lo, hi));
    }
    if old.divisor != new.divisor || old.first != new.first {
        (f.divisor, f.first) = (1, 1);
    }
    if old.below != new.below {
        f.below.clear();
    }
    f
}
