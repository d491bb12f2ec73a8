//! Random kernels that run without a fault: every op that a pass treats in its own way, nested control flow with
//! carried values, reads and writes of one view, everything computed stored at the end.
#![allow(dead_code)]

use tegula_ir::OpKind::{self, *};
use tegula_ir::oracle::{Options, OracleArg, ViewArg, run};
use tegula_ir::*;

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    /// Patterns of an element type, the edges often.
    pub fn scalar(&mut self, e: Elem) -> Scalar {
        if e == Elem::Bool {
            return Scalar::bool(self.chance(50));
        }
        let sign = 1u64 << (e.bits() - 1);
        if self.chance(35) {
            return Scalar::from_bits(e, self.next());
        }
        if e.is_float() {
            let infinity = match e {
                Elem::F64 => 0x7ff0 << 48,
                Elem::F32 => 0x7f80_0000,
                Elem::F16 => 0x7c00,
                Elem::BF16 => 0x7f80,
                Elem::F8E4M3 => 0x7e,
                _ => 0x7c,
            };
            if self.chance(30) {
                let edges = [0, sign, infinity, sign | infinity, infinity - 1, infinity + 1, 1, sign | 1, sign - 1];
                return Scalar::from_bits(e, self.pick(&edges));
            }
            let simple = [0.5, 1.0, -1.0, 2.0, 3.0, -2.5, 0.1, 100.0, 0.125, 1e6, 300.5, -129.0, 2147483648.0];
            return Scalar::from_f64(e, self.pick(&simple));
        }
        if self.chance(50) {
            return Scalar::from_i64(e, self.below(20) as i64 - 5);
        }
        let edges = [0, 1, u64::MAX, sign, sign - 1, sign + 1, 1 << (e.bits() / 2), 64, 127, 128, 255, 1000, 2];
        Scalar::from_bits(e, self.pick(&edges))
    }
}

const ELEMS: &[Elem] = &[
    Elem::I32,
    Elem::I32,
    Elem::I64,
    Elem::F32,
    Elem::F32,
    Elem::Bool,
    Elem::U8,
    Elem::U32,
    Elem::I8,
    Elem::F16,
    Elem::U64,
    Elem::BF16,
];
const SHAPES: &[&[usize]] =
    &[&[], &[], &[4], &[1], &[1, 4], &[3, 1], &[3, 4], &[4, 3], &[2, 2, 3], &[1, 1], &[12], &[7]];
/// Elements of each of the memory views; they are smaller than what is accessed, so that edges are crossed.
const MEMORY: i64 = 10;
/// Columns of the output, a byte each; stores of more are dropped.
const OUTPUT: usize = 4096;

pub struct Gen {
    pub rng: Rng,
    b: Builder,
    /// Visible values.
    pool: Vec<Value>,
    memory: [Value; 2],
    line: u32,
    pub budget: usize,
}

/// A random kernel of about `budget` ops.
pub fn kernel(seed: u64, budget: usize) -> Kernel {
    let mut b = Builder::new("random");
    let view = |elem, rank| Type::View(ViewType { elem, rank, mutable: true, facts: ViewFacts::default() });
    let memory = [b.param("i", view(Elem::I32, 1)), b.param("f", view(Elem::F32, 2))];
    let out = b.param("out", view(Elem::U8, 2));
    let n = b.param("n", Type::scalar(Elem::I32));
    let x = b.param("x", Type::scalar(Elem::F32));
    let mut g = Gen { rng: Rng(seed), b, pool: vec![n, x], memory, line: 0, budget };
    let pid = g.op(ProgramId, &[], Type::scalar(Elem::I32), axis(0));
    g.pool.push(pid);
    while g.budget > 0 {
        g.step(0);
    }
    let row = g.cast(pid, Elem::I64);
    let mut at = 0;
    for v in g.pool.clone() {
        at = g.keep(v, out, row, at);
    }
    g.b.finish()
}

fn axis(a: usize) -> Attrs {
    Attrs::new().with(Key::Axis, Attr::Int(a as i64))
}

impl Gen {
    fn ty(&self, v: Value) -> TileType {
        self.b.ty(v).as_tile().expect("the pool holds tiles").clone()
    }
    fn op(&mut self, kind: OpKind, x: &[Value], ty: Type, attrs: Attrs) -> Value {
        self.line += 1;
        self.b.op1(kind, x, ty, attrs, Loc::new("gen.rs", self.line, 1))
    }
    fn effect(&mut self, kind: OpKind, x: &[Value], attrs: Attrs) {
        self.line += 1;
        self.b.op(kind, x, &[], attrs, vec![], Loc::new("gen.rs", self.line, 1));
    }
    fn constant(&mut self, s: Scalar, shape: &[usize]) -> Value {
        self.op(Const, &[], Type::tile(s.elem, shape), Attrs::new().with(Key::Value, Attr::Scalar(s)))
    }
    fn int(&mut self, e: Elem, v: i64) -> Value {
        self.constant(Scalar::from_i64(e, v), &[])
    }
    fn cast(&mut self, v: Value, e: Elem) -> Value {
        let t = self.ty(v).with_elem(e);
        self.op(Cast, &[v], t.into(), Attrs::new())
    }
    fn any(&mut self) -> Value {
        self.pool[self.rng.below(self.pool.len())]
    }
    /// A value of this type: one from the pool, or a constant.
    fn like(&mut self, t: &TileType) -> Value {
        let fitting: Vec<Value> = self.pool.iter().copied().filter(|&v| self.ty(v) == *t).collect();
        if !fitting.is_empty() && self.rng.chance(70) {
            return self.rng.pick(&fitting);
        }
        let s = self.rng.scalar(t.elem);
        self.constant(s, &t.shape)
    }
    fn scalar_of(&mut self, e: Elem) -> Value {
        self.like(&TileType::new(e, []))
    }
    /// A position or index near the edges of memory.
    fn near(&mut self, shape: &[usize]) -> Value {
        let mut v = self.like(&TileType::new(Elem::I32, shape));
        let c = self.constant(Scalar::from_i64(Elem::I32, 15), shape);
        v = self.op(And, &[v, c], Type::tile(Elem::I32, shape), Attrs::new());
        let low = self.constant(Scalar::from_i64(Elem::I32, -2), shape);
        v = self.op(Add, &[v, low], Type::tile(Elem::I32, shape), Attrs::new());
        self.cast(v, Elem::I64)
    }

    fn step(&mut self, depth: usize) {
        self.budget = self.budget.saturating_sub(1);
        let made = match self.rng.below(100) {
            0..8 => {
                let (e, shape) = (self.rng.pick(ELEMS), self.rng.pick(SHAPES));
                let s = self.rng.scalar(e);
                Some(self.constant(s, shape))
            }
            8..10 => {
                let e = self.rng.pick(&[Elem::I32, Elem::I64, Elem::U8]);
                let n = self.rng.pick(&[4, 12, 7, 1]);
                Some(self.op(Iota, &[], Type::tile(e, [n]), Attrs::new()))
            }
            10..14 => Some(self.launch()),
            14..45 => self.elementwise(),
            45..53 => {
                let (v, e) = (self.any(), self.rng.pick(ELEMS));
                Some(self.cast(v, e))
            }
            53..72 => self.shape(),
            72..78 => self.along(),
            78..88 => self.access(),
            88..90 => self.fact(),
            _ if depth < 3 => {
                self.control(depth);
                None
            }
            _ => None,
        };
        self.pool.extend(made);
    }

    fn launch(&mut self) -> Value {
        let v = self.rng.pick(&self.memory);
        match self.rng.below(3) {
            0 => self.op(NumPrograms, &[], Type::scalar(Elem::I32), axis(0)),
            1 => self.op(ProgramId, &[], Type::scalar(Elem::I32), axis(0)),
            _ => self.op(Dim, &[v], Type::scalar(Elem::I32), axis(0)),
        }
    }

    fn elementwise(&mut self) -> Option<Value> {
        let x = self.any();
        let t = self.ty(x);
        let ints: &[OpKind] = &[
            Neg, Abs, Not, Add, Sub, Mul, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr, Umulhi, Eq, Ne, Lt, Le, Gt, Ge,
            Select, Add, Sub, Mul,
        ];
        let floats: &[OpKind] = &[
            Neg, Abs, Exp, Sqrt, Floor, Ceil, Round, Add, Sub, Mul, Div, Rem, Min, Max, MinNan, MaxNan, Pow, Fma, Eq,
            Ne, Lt, Le, Gt, Ge, Select, Add, Mul, Div, Bitcast,
        ];
        let kind = match t.elem {
            Elem::Bool => self.rng.pick(&[Not, And, Or, Xor, Eq, Ne, Lt, Select, Not]),
            e if e.is_float() => self.rng.pick(floats),
            _ => self.rng.pick(ints),
        };
        let result = match kind {
            Eq | Ne | Lt | Le | Gt | Ge => t.with_elem(Elem::Bool),
            Bitcast => t.with_elem(match t.elem {
                Elem::F32 => Elem::U32,
                Elem::F64 => Elem::I64,
                _ => Elem::I16,
            }),
            _ => t.clone(),
        };
        let operands = match kind {
            Neg | Abs | Not | Exp | Sqrt | Floor | Ceil | Round => vec![x],
            Bitcast => {
                // The bits of a NaN are open.
                let ok = self.op(Eq, &[x, x], t.with_elem(Elem::Bool).into(), Attrs::new());
                let one = self.constant(Scalar::from_f64(t.elem, 1.0), &t.shape);
                vec![self.op(Select, &[ok, x, one], t.clone().into(), Attrs::new())]
            }
            Select => {
                let c = self.like(&t.with_elem(Elem::Bool));
                let y = self.like(&t);
                vec![c, x, y]
            }
            Fma => vec![x, self.like(&t), self.like(&t)],
            // Either way round.
            _ => {
                let y = self.like(&t);
                if self.rng.chance(50) { vec![x, y] } else { vec![y, x] }
            }
        };
        Some(self.op(kind, &operands, result.into(), Attrs::new()))
    }

    fn shape(&mut self) -> Option<Value> {
        let x = self.any();
        let t = self.ty(x);
        match self.rng.below(5) {
            0 => {
                let wider = |s: &&&[usize]| {
                    t.rank() == 0 || (s.len() == t.rank() && s.iter().zip(&t.shape).all(|(&n, &m)| m == n || m == 1))
                };
                let fitting: Vec<&[usize]> = SHAPES.iter().filter(wider).copied().collect();
                (!fitting.is_empty()).then(|| {
                    let s = self.rng.pick(&fitting);
                    self.op(Broadcast, &[x], Type::tile(t.elem, s), Attrs::new())
                })
            }
            1 => {
                let fitting: Vec<&[usize]> =
                    SHAPES.iter().filter(|s| s.iter().product::<usize>() == t.len()).copied().collect();
                (!fitting.is_empty()).then(|| {
                    let s = self.rng.pick(&fitting);
                    self.op(Reshape, &[x], Type::tile(t.elem, s), Attrs::new())
                })
            }
            2 => {
                let mut perm: Vec<i64> = (0..t.rank() as i64).collect();
                for i in (1..perm.len()).rev() {
                    perm.swap(i, self.rng.below(i + 1));
                }
                let shape: Vec<usize> = perm.iter().map(|&p| t.shape[p as usize]).collect();
                Some(self.op(Permute, &[x], Type::tile(t.elem, shape), Attrs::new().with(Key::Perm, Attr::Ints(perm))))
            }
            3 if t.rank() > 0 => {
                let a = self.rng.below(t.rank());
                let start = self.rng.below(t.shape[a]);
                let size = 1 + self.rng.below(t.shape[a] - start);
                let mut shape = t.shape.clone();
                shape[a] = size;
                let attrs = axis(a).with(Key::Start, Attr::Int(start as i64)).with(Key::Size, Attr::Int(size as i64));
                Some(self.op(Slice, &[x], Type::tile(t.elem, shape), attrs))
            }
            4 if t.rank() > 0 && t.len() < 40 => {
                let a = self.rng.below(t.rank());
                let y = self.like(&t);
                let mut shape = t.shape.clone();
                shape[a] *= 2;
                Some(self.op(Cat, &[x, y], Type::tile(t.elem, shape), axis(a)))
            }
            _ => None,
        }
    }

    fn along(&mut self) -> Option<Value> {
        let x = self.any();
        let t = self.ty(x);
        if t.rank() == 0 {
            return None;
        }
        let a = self.rng.below(t.rank());
        use ReduceKind::*;
        let kind = match t.elem {
            Elem::Bool => self.rng.pick(&[Any, All, Sum, Xor]),
            e if e.is_float() => self.rng.pick(&[Sum, Max, Min, MaxNan, Argmax]),
            _ => self.rng.pick(&[Sum, Sum, Prod, Max, Min, Argmin, Xor]),
        };
        let elem = match kind {
            Argmax | Argmin => Elem::I32,
            Sum if t.elem == Elem::Bool => Elem::I32,
            _ => t.elem,
        };
        let attrs = axis(a).with(Key::Kind, kind.into());
        if self.rng.chance(30) && !matches!(kind, Argmax | Argmin) {
            return Some(self.op(Scan, &[x], t.with_elem(elem).into(), attrs));
        }
        let mut shape = t.shape.clone();
        shape[a] = 1;
        Some(self.op(Reduce, &[x], Type::tile(elem, shape), attrs))
    }

    fn access(&mut self) -> Option<Value> {
        let second = self.rng.chance(50);
        let (view, e, rank) = if second { (self.memory[1], Elem::F32, 2) } else { (self.memory[0], Elem::I32, 1) };
        let mut x = vec![view];
        if self.rng.chance(50) {
            let shape: &[usize] =
                if second { self.rng.pick(&[&[1, 4], &[3, 4]]) } else { self.rng.pick(&[&[4], &[12]]) };
            for _ in 0..rank {
                x.push(self.near(&[]));
            }
            if self.rng.chance(55) {
                let s = self.rng.scalar(e);
                let attrs =
                    if self.rng.chance(50) { Attrs::new().with(Key::Pad, Attr::Scalar(s)) } else { Attrs::new() };
                return Some(self.op(Load, &x, Type::tile(e, shape), attrs));
            }
            x.push(self.like(&TileType::new(e, shape)));
            self.effect(Store, &x, Attrs::new());
            return None;
        }
        let shape = self.rng.pick(SHAPES);
        for _ in 0..rank {
            x.push(self.near(shape));
        }
        match self.rng.below(3) {
            0 => Some(self.op(Gather, &x, Type::tile(e, shape), Attrs::new())),
            1 => {
                x.push(self.like(&TileType::new(e, shape)));
                x.push(self.like(&TileType::new(Elem::Bool, shape)));
                self.effect(Scatter, &x, Attrs::new().with(Key::Masked, Attr::Flag));
                None
            }
            _ => {
                x.push(self.like(&TileType::new(e, shape)));
                let attrs =
                    Attrs::new().with(Key::Kind, AtomicKind::Max.into()).with(Key::Order, MemOrder::Relaxed.into());
                Some(self.op(Atomic, &x, Type::tile(e, shape), attrs))
            }
        }
    }

    /// A multiple of 8 that is said to be one.
    fn fact(&mut self) -> Option<Value> {
        let x = self.any();
        let t = self.ty(x);
        if !t.elem.is_int() {
            return None;
        }
        let eight = self.constant(Scalar::from_i64(t.elem, 8), &t.shape);
        let v = self.op(Mul, &[x, eight], t.clone().into(), Attrs::new());
        Some(self.op(MultipleOf, &[v], t.into(), Attrs::new().with(Key::N, Attr::Int(8))))
    }

    // ---- control flow ----

    /// Some values of the pool, as what a loop carries.
    fn some(&mut self) -> Vec<Value> {
        (0..self.rng.below(4)).map(|_| self.any()).collect()
    }

    /// Ops in a region that has been opened; the values that it gives have these types.
    fn region(&mut self, depth: usize, args: &[Value], gives: &[TileType]) -> Vec<Value> {
        let outer = self.pool.len();
        self.pool.extend(args);
        for _ in 0..2 + self.rng.below(5) {
            if self.budget > 0 {
                self.step(depth + 1);
            }
        }
        let given: Vec<Value> = gives
            .iter()
            .enumerate()
            .map(|(i, t)| match args.get(args.len().wrapping_sub(gives.len() - i)) {
                // Often the value as it came.
                Some(&arg) if self.rng.chance(25) && self.ty(arg) == *t => arg,
                _ => self.like(t),
            })
            .collect();
        self.pool.truncate(outer);
        given
    }

    fn control(&mut self, depth: usize) {
        match self.rng.below(3) {
            0 => self.branch(depth),
            1 => self.for_loop(depth),
            _ => self.while_loop(depth),
        }
    }

    fn push_op(&mut self, kind: OpKind, x: &[Value], results: &[TileType], regions: Vec<Region>) {
        self.line += 1;
        let types: Vec<Type> = results.iter().cloned().map(Type::Tile).collect();
        let made = self.b.op(kind, x, &types, Attrs::new(), regions, Loc::new("gen.rs", self.line, 1));
        self.pool.extend(made);
    }

    fn branch(&mut self, depth: usize) {
        let c = self.scalar_of(Elem::Bool);
        let results: Vec<TileType> = self.some().iter().map(|&v| self.ty(v)).collect();
        let mut regions = vec![];
        for i in 0..2 {
            self.b.open(&[]);
            if i == 0 && self.rng.chance(30) {
                self.effect(Assume, &[c], Attrs::new());
            }
            let gives = self.region(depth, &[], &results);
            regions.push(self.b.close(gives));
        }
        self.push_op(If, &[c], &results, regions);
    }

    fn for_loop(&mut self, depth: usize) {
        let e = self.rng.pick(&[Elem::I32, Elem::I64, Elem::I8]);
        let lo = self.rng.below(20) as i64 - 8;
        let (lo, hi) = if self.rng.chance(60) {
            let hi = lo + self.rng.below(9) as i64 - 2;
            (self.int(e, lo), self.int(e, hi))
        } else {
            // A bound known at run time only, at most 7 above.
            let (lo, seven) = (self.int(e, lo), self.int(e, 7));
            let v = self.scalar_of(e);
            let v = self.op(And, &[v, seven], Type::scalar(e), Attrs::new());
            let hi = self.op(Add, &[v, lo], Type::scalar(e), Attrs::new());
            (lo, hi)
        };
        let step = self.rng.pick(&[1, 1, 2, 3, 4]);
        let step = self.int(e, step);
        let inits = self.some();
        let types: Vec<TileType> = inits.iter().map(|&v| self.ty(v)).collect();
        let mut args = vec![Type::scalar(e)];
        args.extend(types.iter().cloned().map(Type::Tile));
        let args = self.b.open(&args);
        let gives = self.region(depth, &args, &types);
        let body = self.b.close(gives);
        let mut x = vec![lo, hi, step];
        x.extend(inits);
        self.push_op(For, &x, &types, vec![body]);
    }

    /// Counts down from a small number, and may end before on a condition of its own.
    fn while_loop(&mut self, depth: usize) {
        let count = self.rng.below(5) as i64;
        let count = self.int(Elem::I32, count);
        let mut inits = self.some();
        inits.push(count);
        let types: Vec<TileType> = inits.iter().map(|&v| self.ty(v)).collect();
        let args: Vec<Type> = types.iter().cloned().map(Type::Tile).collect();
        let asked = self.b.open(&args);
        let zero = self.int(Elem::I32, 0);
        let mut goes = self.op(Gt, &[asked[asked.len() - 1], zero], Type::scalar(Elem::Bool), Attrs::new());
        if self.rng.chance(40) {
            let other = self.scalar_of(Elem::Bool);
            goes = self.op(And, &[goes, other], Type::scalar(Elem::Bool), Attrs::new());
        }
        let condition = self.b.close(vec![goes]);
        let args = self.b.open(&args);
        let carried = types.len() - 1;
        let mut gives = self.region(depth, &args[..carried], &types[..carried]);
        let one = self.int(Elem::I32, 1);
        gives.push(self.op(Sub, &[args[carried], one], Type::scalar(Elem::I32), Attrs::new()));
        let body = self.b.close(gives);
        self.push_op(While, &inits, &types, vec![condition, body]);
    }

    /// Stores the bytes of a value at column `at` of this program's row.
    fn keep(&mut self, v: Value, out: Value, row: Value, at: usize) -> usize {
        let t = self.ty(v);
        let bits = match t.elem {
            Elem::F32 => Elem::U32,
            Elem::F64 => Elem::U64,
            Elem::F16 | Elem::BF16 => Elem::U16,
            e => e,
        };
        let mut v = if bits == t.elem {
            v
        } else {
            // A NaN's payload is open: all become one.
            let ok = self.op(Eq, &[v, v], t.with_elem(Elem::Bool).into(), Attrs::new());
            let pattern = self.op(Bitcast, &[v], t.with_elem(bits).into(), Attrs::new());
            let one = self.constant(Scalar::from_i64(bits, -1), &t.shape);
            self.op(Select, &[ok, pattern, one], t.with_elem(bits).into(), Attrs::new())
        };
        let mut at = at;
        let n = t.len();
        v = self.op(Reshape, &[v], Type::tile(bits, [1, n]), Attrs::new());
        for byte in 0..bits.bytes() as i64 {
            let mut b = v;
            if bits != Elem::Bool && byte > 0 {
                let shift = self.constant(Scalar::from_i64(bits, byte * 8), &[1, n]);
                b = self.op(Shr, &[v, shift], Type::tile(bits, [1, n]), Attrs::new());
            }
            let b = self.cast(b, Elem::U8);
            let position = self.int(Elem::I64, at as i64);
            self.effect(Store, &[out, row, position, b], Attrs::new());
            at += n;
        }
        at
    }
}

/// Runs a random kernel as two programs; gives all memory at the end.
pub fn execute(k: &Kernel, seed: u64) -> Result<Vec<u8>, String> {
    let mut rng = Rng(seed ^ 0x5eed);
    let mut ints: Vec<u8> = (0..MEMORY).flat_map(|_| (rng.scalar(Elem::I32).bits as u32).to_le_bytes()).collect();
    let mut floats: Vec<u8> =
        (0..4 * MEMORY).flat_map(|_| (rng.below(2000) as f32 * 0.37 - 300.0).to_le_bytes()).collect();
    let mut out = vec![0xaa; 2 * OUTPUT];
    let n = Scalar::from_i64(Elem::I32, rng.below(40) as i64 - 8);
    let x = rng.scalar(Elem::F32);
    let mut args = [
        OracleArg::View(ViewArg::write(&mut ints, Elem::I32, &[MEMORY])),
        OracleArg::View(ViewArg::write(&mut floats, Elem::F32, &[4, MEMORY])),
        OracleArg::View(ViewArg::write(&mut out, Elem::U8, &[2, OUTPUT as i64])),
        OracleArg::Scalar(n),
        OracleArg::Scalar(x),
    ];
    run(k, &mut args, [2, 1, 1], &Options { step_limit: Some(300_000), ..Options::default() })
        .map_err(|e| e.to_string())?;
    drop(args);
    // Floats in memory may be NaN: made equal here.
    for f in floats.chunks_exact_mut(4) {
        if f32::from_le_bytes([f[0], f[1], f[2], f[3]]).is_nan() {
            f.copy_from_slice(&[0xff; 4]);
        }
    }
    out.extend(ints);
    out.extend(floats);
    Ok(out)
}
