//! Running programs: regions, control flow, and from each op to its meaning.

use super::{
    Options, Order, Printed, Report,
    args::{self, OracleArg, PackedArg},
    axis, dot, elementwise,
    error::{ErrorDetails, Fault, OracleError, Program, Trap},
    memory::{Lanes, Memory, View},
    number,
    shadow::Shadow,
    shape,
    value::{Tile, Val},
};
use crate::{
    attr::{AtomicKind, Key, MemOrder, Precision, ReduceKind},
    elem::Elem,
    kernel::{Kernel, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
    types::{TileType, Type},
};
use std::rc::Rc;

/// Elements of the largest tile.
const LARGEST_TILE: usize = 1 << 24;
/// Bytes of memory that the sanitizer watches, and programs that are put in another order.
const LARGEST: usize = 1 << 28;

struct Machine<'k, 'a> {
    kernel: &'k Kernel,
    options: &'k Options,
    grid: [u32; 3],
    /// The kernel's parameters as values, and the matrices that packed ones name.
    params: Vec<Val>,
    packed: Vec<PackedArg<'a>>,
    memory: Memory,
    program: Program,
    /// The value of each IR value, once it is computed.
    env: Vec<Option<Val>>,
    steps: u64,
    counts: Vec<u64>,
    report: Report,
}

pub(super) fn run(
    kernel: &Kernel,
    args: &mut [OracleArg<'_>],
    grid: [u32; 3],
    options: &Options,
) -> Result<Report, OracleError> {
    let before = |fault| -> OracleError {
        ErrorDetails { kernel: kernel.name.clone(), program: None, op: "", loc: Loc::unknown(), element: None, fault }
            .into()
    };
    let mut m = start(kernel, args, grid, options).map_err(before)?;
    let count = grid
        .iter()
        .try_fold(1u64, |n, &g| n.checked_mul(g.into()))
        .ok_or_else(|| before(Fault::TooLarge(format!("grid {grid:?}"))))?;
    match programs(count, &options.order).map_err(before)? {
        None => (0..count).try_for_each(|id| m.program(id))?,
        Some(order) => order.into_iter().try_for_each(|id| m.program(id))?,
    }
    m.report.ops = OpKind::ALL.iter().map(|&k| (k, m.counts[k as usize])).filter(|e| e.1 > 0).collect();
    Ok(m.report)
}

/// The order of program numbers, if it is not simply ascending.
fn programs(count: u64, order: &Order) -> Result<Option<Vec<u64>>, Fault> {
    let list = || {
        if count < LARGEST as u64 {
            Ok((0..count).collect::<Vec<u64>>())
        } else {
            Err(Fault::TooLarge(format!("{count} programs in another order")))
        }
    };
    Ok(Some(match order {
        Order::Ascending => return Ok(None),
        Order::Descending => list()?.into_iter().rev().collect(),
        Order::Given(ids) => {
            let mut sorted = ids.clone();
            sorted.sort_unstable();
            if sorted != list()? {
                return Err(Fault::Invalid(format!("the given order does not name each of {count} programs once")));
            }
            ids.clone()
        }
        Order::Shuffled(seed) => {
            let (mut ids, mut state) = (list()?, *seed);
            for i in (1..ids.len()).rev() {
                ids.swap(i, (splitmix(&mut state) % (i as u64 + 1)) as usize);
            }
            ids
        }
    }))
}

/// The SplitMix64 generator.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn start<'k, 'a>(
    kernel: &'k Kernel,
    args: &[OracleArg<'a>],
    grid: [u32; 3],
    options: &'k Options,
) -> Result<Machine<'k, 'a>, Fault> {
    for ty in &kernel.types {
        let shape = match ty {
            Type::Tile(t) => &t.shape[..],
            Type::QTile(q) => &[q.k, q.n],
            _ => &[],
        };
        if shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).is_none_or(|n| n > LARGEST_TILE) {
            return Err(Fault::TooLarge(format!("a value of type `{ty}`")));
        }
    }
    kernel.verify().map_err(|e| Fault::Invalid(e.to_string()))?;
    args::check(kernel, args)?;
    let mut watched = vec![];
    let (mut params, mut packed) = (vec![], vec![]);
    for (arg, name) in args.iter().zip(&kernel.params) {
        params.push(match arg {
            OracleArg::View(v) => {
                watched.push((v.start as usize, v.len, v.unwritten));
                Val::View(Rc::new(View::new(name, v)))
            }
            OracleArg::Scalar(s) => tile(Tile::scalar(s.elem, s.bits)),
            OracleArg::Packed(p) => {
                packed.push(p.clone());
                Val::Packed(packed.len() - 1)
            }
        });
    }
    if options.sanitize
        && (watched.iter().map(|w| w.1).sum::<usize>() > LARGEST
            || grid.iter().map(|&g| g as u128).product::<u128>() >= 1 << 32)
    {
        return Err(Fault::TooLarge("memory or grid for the sanitizer".into()));
    }
    let memory = Memory { checked: options.checked, shadow: options.sanitize.then(|| Shadow::new(watched)) };
    let env = vec![None; kernel.types.len()];
    let (program, counts) = (Program { id: 0, at: [0; 3] }, vec![0; OpKind::ALL.len()]);
    Ok(Machine {
        kernel,
        options,
        grid,
        params,
        packed,
        memory,
        program,
        env,
        steps: 0,
        counts,
        report: Report::default(),
    })
}

impl<'k> Machine<'k, '_> {
    fn program(&mut self, id: u64) -> Result<(), OracleError> {
        let [g0, g1, _] = self.grid.map(u64::from);
        self.program = Program { id, at: [id % g0, id / g0 % g1, id / g0 / g1].map(|p| p as u32) };
        if let Some(s) = &mut self.memory.shadow {
            s.begin(id);
        }
        self.env.fill(None);
        self.region(&self.kernel.body, self.params.clone())?;
        self.report.programs += 1;
        Ok(())
    }

    /// Runs a region; gives what it yields.
    fn region(&mut self, r: &'k Region, args: Vec<Val>) -> Result<Vec<Val>, OracleError> {
        self.bind(&r.args, args);
        for op in &r.ops {
            self.op(op)?;
        }
        Ok(r.yields.iter().map(|&v| self.val(v)).collect())
    }

    fn bind(&mut self, names: &[Value], values: Vec<Val>) {
        for (&name, v) in names.iter().zip(values) {
            self.env[name.0 as usize] = Some(v);
        }
    }

    fn op(&mut self, op: &'k Op) -> Result<(), OracleError> {
        self.counts[op.kind as usize] += 1;
        let results = self.tick().and_then(|()| self.eval(op)).map_err(|stop| match stop {
            Stop::Inside(e) => e,
            Stop::Here(trap) => ErrorDetails {
                kernel: self.kernel.name.clone(),
                program: Some(self.program),
                op: op.kind.name(),
                loc: op.loc.clone(),
                element: trap.element,
                fault: trap.fault,
            }
            .into(),
        })?;
        self.bind(&op.results, results);
        Ok(())
    }

    /// Counts an op or an iteration.
    fn tick(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        match self.options.step_limit {
            Some(limit) if self.steps > limit => Err(Fault::StepLimit(limit).into()),
            _ => Ok(()),
        }
    }

    /// The results of an op. A new op must find its place here.
    fn eval(&mut self, op: &'k Op) -> Result<Vec<Val>, Stop> {
        use OpKind::*;
        let one = |t: Tile| Ok(vec![tile(t)]);
        let operands: Vec<Rc<Tile>> = op.operands.iter().filter_map(|&v| self.as_tile(v)).collect();
        let x: Vec<&Tile> = operands.iter().map(|t| &**t).collect();
        let result = op.results.first().and_then(|&v| self.kernel.ty(v).as_tile()).unwrap_or(&SCALAR);
        let axis = int(op, Key::Axis) as usize;
        match op.kind {
            Neg | Abs | Not | Exp | Exp2 | Log | Log2 | Sin | Cos | Tanh | Erf | Sqrt | Rsqrt | Sigmoid | Floor
            | Ceil | Round | Cast | Bitcast | Add | Sub | Mul | Div | Rem | Min | Max | MinNan | MaxNan | Pow | And
            | Or | Xor | Shl | Shr | Umulhi | Eq | Ne | Lt | Le | Gt | Ge | Select | Fma => {
                if self.options.checked {
                    elementwise::check_division(op.kind, &x)?;
                }
                one(elementwise::apply(op.kind, &x, result)?)
            }

            Const => one(Tile::splat(result, op.attrs.scalar(Key::Value).map_or(0, |s| s.bits))),
            Iota => one(Tile::new(result, (0..result.len()).map(|i| number::wrap(result.elem, i as i128)).collect())),
            ProgramId => one(Tile::scalar(Elem::I32, self.program.at[axis].into())),
            NumPrograms => one(Tile::scalar(Elem::I32, self.grid[axis].into())),

            Broadcast => one(shape::broadcast(x[0], result)),
            Reshape | ConvertLayout => one(Tile::new(result, x[0].bits.clone())),
            Permute => one(shape::permute(x[0], op.attrs.ints(Key::Perm).unwrap_or(&[]), result)),
            Slice => one(shape::slice(x[0], axis, int(op, Key::Start) as usize, result)),
            Cat => one(shape::cat(&x, axis, result)),

            Reduce => one(axis::reduce(x[0], axis, sym(op, Key::Kind, ReduceKind::from_name)?, result)?),
            Scan => one(axis::scan(
                x[0],
                axis,
                sym(op, Key::Kind, ReduceKind::from_name)?,
                op.attrs.has(Key::Reverse),
                result,
            )?),
            ReduceWith | ScanWith => self.combine(op, &x, axis),
            Sort => one(axis::sort(x[0], op.attrs.has(Key::Descending))),
            TopK => {
                let (values, indices) = axis::top_k(x[0], int(op, Key::K) as usize);
                Ok(vec![tile(values), tile(indices)])
            }
            Histogram => one(axis::histogram(x[0], x.get(1).copied(), result)),
            Take => one(axis::take(x[0], x[1], axis, self.options.checked)?),

            Load | Store | Gather | Scatter | Atomic | AtomicCas => self.view_op(op, &x, result),
            Dim | PackedDim => {
                let n = match &self.env[op.operands[0].0 as usize] {
                    Some(Val::View(v)) => v.extents[axis],
                    Some(Val::Packed(i)) => [self.packed[*i].k, self.packed[*i].n][axis] as i64,
                    _ => return Err(confused(op).into()),
                };
                // `args::check` refused extents beyond i32.
                one(Tile::scalar(Elem::I32, number::wrap(Elem::I32, n.into())))
            }
            Narrow => {
                Ok(vec![Val::View(Rc::new(self.view(op)?.narrow(axis, x[0].bits[0] as i64, x[1].bits[0] as i64)))])
            }

            Dot => {
                let precision = op.attrs.sym(Key::Precision).and_then(Precision::from_name).unwrap_or(Precision::Ieee);
                one(dot::dot(x[0], x[1], x[2], precision))
            }
            DotGrouped => one(dot::dot_grouped([x[0], x[1], x[2], x[3]], &self.rectangle(op.operands[3])?)),
            Dequant => one(dot::dequant(&self.rectangle(op.operands[0])?, result)),
            PackedLoad => {
                let (param, k0, n0) = (self.matrix(op)?, x[0].bits[0] as i64, x[1].bits[0] as i64);
                match self.kernel.ty(op.results[0]) {
                    Type::QTile(t) if k0 % t.k as i64 != 0 || n0 % t.n as i64 != 0 => Err(Fault::Misaligned(format!(
                        "({k0}, {n0}) is no multiple of the rectangle's extents ({}, {})",
                        t.k, t.n
                    ))
                    .into()),
                    _ => Ok(vec![Val::QTile { param, k0, n0 }]),
                }
            }
            PackedGather => one(dot::gather(
                &self.packed[self.matrix(op)?],
                x[0],
                x[1],
                x.get(2).copied(),
                self.options.checked,
                result,
            )?),

            For => self.for_loop(op),
            While => self.while_loop(op),
            If => Ok(self.region(&op.regions[if x[0].bits[0] != 0 { 0 } else { 1 }], vec![])?),

            Assume if x[0].bits[0] != 0 => Ok(vec![]),
            Assume => Err(Fault::Assume.into()),
            MultipleOf => {
                let n = int(op, Key::N);
                match (0..x[0].bits.len()).find(|&i| x[0].int(i) % i128::from(n) != 0) {
                    Some(i) => Err(Fault::NotMultiple { value: x[0].int(i), n }.at(x[0].index(i)).into()),
                    None => one(x[0].clone()),
                }
            }
            Assert => match x[0].bits.iter().position(|&b| b == 0) {
                Some(i) => Err(Fault::Assert(op.attrs.str(Key::Message).unwrap_or("").into()).at(x[0].index(i)).into()),
                None => Ok(vec![]),
            },
            Print => {
                let mut text = op.attrs.str(Key::Message).unwrap_or("").to_string();
                x.iter().for_each(|t| text.push_str(&format!(" {t}")));
                self.report.printed.push(Printed { program: self.program, loc: op.loc.clone(), text });
                Ok(vec![])
            }
        }
    }

    fn for_loop(&mut self, op: &'k Op) -> Result<Vec<Val>, Stop> {
        let range: Vec<Rc<Tile>> = op.operands[..3].iter().filter_map(|&v| self.as_tile(v)).collect();
        let (elem, hi, step) = (range[0].elem, range[1].int(0), range[2].int(0));
        let mut carried: Vec<Val> = op.operands[3..].iter().map(|&v| self.val(v)).collect();
        // In i128, so that a counter that would leave its type ends the loop.
        let mut i = range[0].int(0);
        while i < hi {
            if step <= 0 {
                return Err(Fault::BadStep(step).into());
            }
            self.tick()?;
            let mut args = vec![tile(Tile::scalar(elem, number::wrap(elem, i)))];
            args.append(&mut carried);
            carried = self.region(&op.regions[0], args)?;
            i += step;
        }
        Ok(carried)
    }

    fn while_loop(&mut self, op: &'k Op) -> Result<Vec<Val>, Stop> {
        let mut carried: Vec<Val> = op.operands.iter().map(|&v| self.val(v)).collect();
        loop {
            self.tick()?;
            let go = self.region(&op.regions[0], carried.clone())?;
            if !matches!(&go[0], Val::Tile(t) if t.bits[0] != 0) {
                return Ok(carried);
            }
            carried = self.region(&op.regions[1], carried)?;
        }
    }

    /// `reduce_with` and `scan_with`: a fold along the axis, left operand first.
    fn combine(&mut self, op: &'k Op, x: &[&Tile], axis: usize) -> Result<Vec<Val>, Stop> {
        let scan = op.kind == OpKind::ScanWith;
        let types = op.results.iter().filter_map(|&v| self.kernel.ty(v).as_tile());
        let mut results: Vec<Tile> = types.map(|t| Tile::splat(t, 0)).collect();
        for (line, lanes) in x[0].lines(axis, op.attrs.has(Key::Reverse)).enumerate() {
            let scalars = |lane: usize| x.iter().map(move |t| tile(Tile::scalar(t.elem, t.bits[lane])));
            let mut state: Vec<Val> = vec![];
            for (i, &lane) in lanes.iter().enumerate() {
                state = if i == 0 {
                    scalars(lane).collect()
                } else {
                    self.region(&op.regions[0], state.into_iter().chain(scalars(lane)).collect())?
                };
                if scan || i + 1 == lanes.len() {
                    for (r, s) in results.iter_mut().zip(&state) {
                        if let Val::Tile(s) = s {
                            r.bits[if scan { lane } else { line }] = s.bits[0];
                        }
                    }
                }
            }
        }
        Ok(results.into_iter().map(tile).collect())
    }

    /// Loads, stores, gathers, scatters and atomics. `x` holds the operands after the view.
    fn view_op(&mut self, op: &Op, x: &[&Tile], result: &TileType) -> Result<Vec<Val>, Stop> {
        let view = &*self.view(op)?;
        let (at, rest) = x.split_at(view.extents.len());
        let lanes = Lanes { indices: at, mask: if op.attrs.has(Key::Masked) { rest.last().copied() } else { None } };
        let position: Vec<i64> = at.iter().map(|t| t.bits[0] as i64).collect();
        let pad = op.attrs.scalar(Key::Pad).map_or(0, |s| s.bits);
        let order = op.attrs.sym(Key::Order).and_then(MemOrder::from_name).unwrap_or(MemOrder::Relaxed);
        let memory = &mut self.memory;
        let t = match op.kind {
            OpKind::Load => memory.load(view, &position, pad, result)?,
            OpKind::Gather => memory.gather(view, &lanes, pad, result)?,
            OpKind::Atomic => {
                memory.atomic(view, &lanes, sym(op, Key::Kind, AtomicKind::from_name)?, order, rest[0], result)?
            }
            OpKind::AtomicCas => memory.compare_and_swap(view, &lanes, order, rest[0], rest[1], result)?,
            OpKind::Store => return Ok(memory.store(view, &position, rest[0]).map(|()| vec![])?),
            _ => return Ok(memory.scatter(view, &lanes, rest[0]).map(|()| vec![])?),
        };
        Ok(vec![tile(t)])
    }

    // ---- values: the verifier refuses a use that no definition precedes ----

    fn val(&self, v: Value) -> Val {
        self.env[v.0 as usize].clone().expect("a verified kernel defines values before their use")
    }
    fn as_tile(&self, v: Value) -> Option<Rc<Tile>> {
        match &self.env[v.0 as usize] {
            Some(Val::Tile(t)) => Some(t.clone()),
            _ => None,
        }
    }
    /// Operand 0, a view.
    fn view(&self, op: &Op) -> Result<Rc<View>, Fault> {
        match &self.env[op.operands[0].0 as usize] {
            Some(Val::View(v)) => Ok(v.clone()),
            _ => Err(confused(op)),
        }
    }
    /// Operand 0, a packed matrix.
    fn matrix(&self, op: &Op) -> Result<usize, Fault> {
        match self.env[op.operands[0].0 as usize] {
            Some(Val::Packed(i)) => Ok(i),
            _ => Err(confused(op)),
        }
    }
    /// A quantised tile: which part of which matrix.
    fn rectangle(&self, v: Value) -> Result<dot::Rectangle<'_>, Fault> {
        if let (Val::QTile { param, k0, n0 }, Type::QTile(q)) = (self.val(v), self.kernel.ty(v)) {
            return Ok(dot::Rectangle { matrix: &self.packed[param], k0, n0, k: q.k, n: q.n });
        }
        Err(Fault::Invalid("expected a quantised tile".into()))
    }
}

static SCALAR: TileType = TileType { elem: Elem::Bool, shape: vec![] };

/// Why an op stopped.
enum Stop {
    /// A fault of the op itself.
    Here(Trap),
    /// A fault of an op in one of its regions, already named.
    Inside(OracleError),
}

impl From<Trap> for Stop {
    fn from(t: Trap) -> Stop {
        Stop::Here(t)
    }
}
impl From<Fault> for Stop {
    fn from(f: Fault) -> Stop {
        Stop::Here(f.into())
    }
}
impl From<OracleError> for Stop {
    fn from(e: OracleError) -> Stop {
        Stop::Inside(e)
    }
}

fn tile(t: Tile) -> Val {
    Val::Tile(Rc::new(t))
}
fn int(op: &Op, key: Key) -> i64 {
    op.attrs.int(key).unwrap_or(0)
}
/// The type rules make this impossible.
fn confused(op: &Op) -> Fault {
    Fault::Invalid(format!("the operands of `{}` do not fit", op.kind.name()))
}
fn sym<T>(op: &Op, key: Key, from: fn(&str) -> Option<T>) -> Result<T, Fault> {
    op.attrs.sym(key).and_then(from).ok_or_else(|| Fault::Invalid(format!("`{}` is missing", key.name())))
}
