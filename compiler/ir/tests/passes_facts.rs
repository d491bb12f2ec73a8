//! Facts hold. Every claim of the analysis about a random kernel is written into the kernel as an assertion, which the
//! oracle checks at every execution of the value; and what should be known of common kernels is known.

#[path = "passes/gen.rs"]
mod generate;

use generate::{execute, kernel};
use proptest::prelude::*;
use tegula_ir::facts::{Facts, Range};
use tegula_ir::*;

/// Writes the facts of a kernel into a copy of it. Counts what it wrote.
struct Claims<'k> {
    facts: Facts<'k>,
    kernel: Kernel,
    out: Vec<Op>,
    written: usize,
}

fn with_claims(k: &Kernel) -> (Kernel, usize) {
    let mut c = Claims { facts: Facts::of(k), kernel: k.clone(), out: vec![], written: 0 };
    let body = c.region(&k.body);
    c.kernel.body = body;
    (c.kernel, c.written)
}

impl Claims<'_> {
    fn op(&mut self, kind: OpKind, x: &[Value], ty: TileType, attrs: Attrs) -> Value {
        let v = self.kernel.value(ty.into());
        self.out.push(Op { kind, operands: x.to_vec(), results: vec![v], attrs, regions: vec![], loc: Loc::unknown() });
        v
    }
    fn tile(&self, v: Value) -> Option<TileType> {
        self.kernel.ty(v).as_tile().cloned()
    }
    fn constant(&mut self, e: Elem, v: i128, shape: &[usize]) -> Value {
        let attrs = Attrs::new().with(Key::Value, Attr::Scalar(Scalar::from_bits(e, v as u64)));
        self.op(OpKind::Const, &[], TileType::new(e, shape), attrs)
    }
    fn compare(&mut self, kind: OpKind, x: Value, y: Value) -> Value {
        let t = self.tile(x).unwrap().with_elem(Elem::Bool);
        self.op(kind, &[x, y], t, Attrs::new())
    }
    fn claim(&mut self, holds: Value, message: String) {
        self.written += 1;
        let attrs = Attrs::new().with(Key::Message, Attr::Str(message));
        self.out.push(Op {
            kind: OpKind::Assert,
            operands: vec![holds],
            results: vec![],
            attrs,
            regions: vec![],
            loc: Loc::unknown(),
        });
    }

    fn region(&mut self, r: &Region) -> Region {
        let outer = std::mem::take(&mut self.out);
        r.args.iter().for_each(|&v| self.value(v));
        for op in &r.ops {
            self.access(op);
            let mut copy = op.clone();
            copy.regions = if matches!(op.kind, OpKind::ReduceWith | OpKind::ScanWith) {
                op.regions.clone()
            } else {
                op.regions.iter().map(|r| self.region(r)).collect()
            };
            self.out.push(copy);
            op.results.iter().for_each(|&v| self.value(v));
        }
        let ops = std::mem::replace(&mut self.out, outer);
        Region { ops, ..r.clone() }
    }

    fn value(&mut self, v: Value) {
        let Some(t) = self.tile(v) else { return };
        // Steps of 0 hold for floats too, on their bits.
        let bits = match t.elem {
            Elem::F64 => Elem::U64,
            Elem::F32 => Elem::U32,
            Elem::F16 | Elem::BF16 => Elem::U16,
            e => e,
        };
        let x = if bits == t.elem { v } else { self.op(OpKind::Bitcast, &[v], t.with_elem(bits), Attrs::new()) };
        if let Some(r) = self.facts.range(v)
            && Some(r) != Range::full(t.elem)
        {
            let (lo, hi) = (self.constant(t.elem, r.lo, &t.shape), self.constant(t.elem, r.hi, &t.shape));
            let (above, below) = (self.compare(OpKind::Ge, x, lo), self.compare(OpKind::Le, x, hi));
            self.claim(above, format!("%{} is not below {}", v.0, r.lo));
            self.claim(below, format!("%{} is not above {}", v.0, r.hi));
        }
        if t.elem.is_int() {
            let d = self.facts.divisor(v);
            self.divides(x, d, format!("{d} divides %{}", v.0));
            let (first, last) = (self.facts.row_divisor(v), t.rank().wrapping_sub(1));
            if first != d && t.rank() > 0 {
                let starts = self.slice(x, last, 0, 1);
                self.divides(starts, first, format!("{first} divides the row starts of %{}", v.0));
            }
        }
        for axis in 0..t.rank() {
            let n = t.shape[axis];
            let Some(step) = self.facts.step(v, axis).filter(|_| n > 1) else { continue };
            let (from, to) = (self.slice(x, axis, 0, n - 1), self.slice(x, axis, 1, n - 1));
            let shape = self.tile(to).unwrap();
            let holds = if t.elem == Elem::Bool {
                assert_eq!(step.by, 0);
                self.compare(OpKind::Eq, from, to)
            } else {
                // The difference, its unknown upper bits shifted out.
                let by = self.constant(bits, step.by as i128, &shape.shape);
                let difference = self.op(OpKind::Sub, &[to, from], shape.clone(), Attrs::new());
                let rest = self.op(OpKind::Sub, &[difference, by], shape.clone(), Attrs::new());
                let amount = self.constant(bits, (bits.bits() - step.bits) as i128, &shape.shape);
                let rest = self.op(OpKind::Shl, &[rest, amount], shape.clone(), Attrs::new());
                let zero = self.constant(bits, 0, &shape.shape);
                self.compare(OpKind::Eq, rest, zero)
            };
            self.claim(holds, format!("%{} advances by {} mod 2^{} along axis {axis}", v.0, step.by, step.bits));
        }
        if let Some(s) = self.facts.constant(v).filter(|_| t.elem.is_float()) {
            let c = self.constant(bits, s.bits as i128, &t.shape);
            let holds = self.compare(OpKind::Eq, x, c);
            self.claim(holds, format!("%{} is {s}", v.0));
        }
    }

    fn slice(&mut self, v: Value, axis: usize, start: usize, size: usize) -> Value {
        let mut t = self.tile(v).unwrap();
        t.shape[axis] = size;
        let n = |v: usize| Attr::Int(v as i64);
        self.op(
            OpKind::Slice,
            &[v],
            t,
            Attrs::new().with(Key::Axis, n(axis)).with(Key::Start, n(start)).with(Key::Size, n(size)),
        )
    }

    fn divides(&mut self, v: Value, d: u64, message: String) {
        let t = self.tile(v).unwrap();
        let sign = 1u64 << (t.elem.bits() - 1);
        let zero = self.constant(t.elem, 0, &t.shape);
        let fits = if t.elem.is_signed() { d <= sign } else { d >> (t.elem.bits() - 1) <= 1 };
        let rest = match d {
            1 => return,
            0 => v,
            _ if !fits => v,
            _ => {
                let d = self.constant(t.elem, d as i128, &t.shape);
                self.op(OpKind::Rem, &[v, d], t, Attrs::new())
            }
        };
        let holds = self.compare(OpKind::Eq, rest, zero);
        self.claim(holds, message);
    }

    fn access(&mut self, op: &Op) {
        let Some(Type::View(view)) = op.operands.first().map(|&v| self.kernel.ty(v).clone()) else { return };
        let sizes = match op.kind {
            OpKind::Load => self.tile(op.result()).unwrap().shape,
            OpKind::Store => self.tile(*op.operands.last().unwrap()).unwrap().shape,
            _ => vec![1; view.rank],
        };
        for (axis, &size) in sizes.iter().enumerate() {
            if !self.facts.in_bounds_along(op, axis) {
                continue;
            }
            let position = op.operands[1 + axis];
            let t = self.tile(position).unwrap();
            let dim = self.op(
                OpKind::Dim,
                &op.operands[..1],
                TileType::new(Elem::I32, []),
                Attrs::new().with(Key::Axis, Attr::Int(axis as i64)),
            );
            let dim = self.op(OpKind::Cast, &[dim], TileType::new(Elem::I64, []), Attrs::new());
            let dim = self.op(OpKind::Broadcast, &[dim], t.clone(), Attrs::new());
            let zero = self.constant(Elem::I64, 0, &t.shape);
            let size = self.constant(Elem::I64, size as i128, &t.shape);
            let end = self.op(OpKind::Add, &[position, size], t, Attrs::new());
            let (above, below) = (self.compare(OpKind::Ge, position, zero), self.compare(OpKind::Le, end, dim));
            self.claim(above, format!("`{}` starts inside axis {axis}", op.kind.name()));
            self.claim(below, format!("`{}` ends inside axis {axis}", op.kind.name()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("RANDOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn facts_of_random_kernels_hold(seed: u64, optimised: bool) {
        let mut k = kernel(seed, 60);
        if optimised {
            passes::optimise(&mut k);
        }
        let (claims, written) = with_claims(&k);
        claims.verify().unwrap();
        prop_assert!(written > 0);
        if let Err(e) = execute(&claims, seed) {
            return Err(TestCaseError::fail(format!("seed {seed}: {e}\n{}", k.text_without_locs())));
        }
    }
}
