//! The state of a lowering: where each value is, and its elements on demand.

use super::{
    Error, Target,
    arena::Arena,
    at::{At, Coord, Key},
    build::{Build, Cmp, V},
    elementwise,
    machine::{self, memory_type},
    plan::{Mode, Plan, reshape_is_unit},
};
use std::collections::{HashMap, HashSet};
use tegula_ir::{
    Attr, Elem, Kernel, Op, OpKind, QTileType, TileType, Type, Value,
    protocol::{Site, SiteKind},
};

/// Greatest tile, in bytes, of which the next is asked for ahead: it must fit into the L2 cache with everything else.
const LOOK_AHEAD_LIMIT: usize = 128 << 10;

/// A tile in scratch memory: row-major, no gaps.
#[derive(Clone, Debug)]
pub struct Buf<'c> {
    pub ptr: V<'c>,
    pub ty: TileType,
    /// Its place in the arena, if it is this buffer's to give back.
    pub place: Option<usize>,
}

/// A view: addresses in memory.
#[derive(Clone, Debug)]
pub struct ViewVal<'c> {
    pub elem: Elem,
    pub base: V<'c>,
    /// i64, at least 0.
    pub extents: Vec<V<'c>>,
    /// i64, in elements. The innermost is the constant 1 where the launch guarantees it.
    pub strides: Vec<V<'c>>,
    pub unit: bool,
    /// Name of the parameter.
    pub name: String,
}

/// A packed matrix, or a rectangle of one.
#[derive(Clone, Debug)]
pub struct PackedVal<'c> {
    pub base: V<'c>,
    /// Extents of the matrix, i64.
    pub k: V<'c>,
    pub n: V<'c>,
    pub layout: String,
    pub quant: tegula_ir::Quant,
    pub name: String,
}

/// Where a value is.
#[derive(Clone, Debug)]
pub enum Home<'c> {
    /// One element in SSA.
    Scalar(V<'c>),
    /// Computed where it is used.
    Virtual,
    Buffer(Buf<'c>),
    View(ViewVal<'c>),
    Packed(PackedVal<'c>),
    /// A rectangle at (k, n), i64, of a packed matrix.
    QTile {
        packed: PackedVal<'c>,
        k: V<'c>,
        n: V<'c>,
        ty: QTileType,
    },
}

/// The state.
pub struct Cx<'a, 'c> {
    pub b: &'a Build<'c>,
    pub k: &'a Kernel,
    pub plan: &'a Plan,
    pub target: Target,
    pub checked: bool,
    pub sites: Vec<Site>,
    pub remarks: Vec<String>,
    pub arena: Arena,
    /// Scratch memory, context, linear program number and grid position: set by the entry.
    pub scratch: V<'c>,
    pub ctx: V<'c>,
    pub program: V<'c>,
    pub position: [V<'c>; 3],
    pub grid: [V<'c>; 3],
    homes: Vec<Option<Home<'c>>>,
    defs: Vec<Option<&'a Op>>,
    /// Level of the region that defines a value.
    avail: Vec<usize>,
    /// No memory read goes further out than this block.
    floor: usize,
    /// Loads (by result) and stores (by tile) that the code at hand need not check.
    inside: HashSet<Value>,
    /// Loads that a nest of the kernel's body has read already.
    read_before: HashSet<Value>,
    /// Distance in bytes from an access of the nest at hand to where the next program's may be: see [`Cx::look_ahead`].
    ahead: HashMap<Value, V<'c>>,
    /// Loops of the kernel around the op at hand.
    pub depth: usize,
    memo: Vec<(u32, HashMap<(Value, Key), V<'c>>)>,
    buffers: HashMap<usize, V<'c>>,
    /// Functions of libm that the module declares.
    declared: HashSet<&'static str>,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// The state at the start of the entry function. `scratch` and the rest are its arguments.
    pub fn new(
        b: &'a Build<'c>,
        k: &'a Kernel,
        plan: &'a Plan,
        target: Target,
        checked: bool,
        scratch: V<'c>,
        ctx: V<'c>,
    ) -> Self {
        let n = k.types.len();
        let zero = b.c64(0);
        Cx {
            b,
            k,
            plan,
            target,
            checked,
            sites: vec![],
            remarks: vec![],
            arena: Arena::default(),
            scratch,
            ctx,
            program: zero,
            position: [zero; 3],
            grid: [zero; 3],
            homes: vec![None; n],
            defs: vec![None; n],
            avail: vec![0; n],
            floor: 0,
            inside: HashSet::new(),
            read_before: HashSet::new(),
            ahead: HashMap::new(),
            depth: 0,
            memo: vec![],
            buffers: HashMap::new(),
            declared: HashSet::new(),
        }
    }

    // ---- values ----

    /// The tile type of a value that the verifier knows to be one.
    pub fn tile(&self, v: Value) -> &'a TileType {
        match self.k.ty(v) {
            Type::Tile(t) => t,
            t => unreachable!("a verified kernel has a tile here, not `{t}`"),
        }
    }
    /// Element type of a tile.
    pub fn elem(&self, v: Value) -> Elem {
        self.tile(v).elem
    }
    /// Where a value is.
    pub fn home(&self, v: Value) -> &Home<'c> {
        match &self.homes[v.0 as usize] {
            Some(h) => h,
            None => unreachable!("value %{} is used before it is lowered", v.0),
        }
    }
    /// Says where a value is.
    pub fn set_home(&mut self, v: Value, home: Home<'c>) {
        self.homes[v.0 as usize] = Some(home);
        self.avail[v.0 as usize] = self.b.top();
    }
    /// Makes a value virtual.
    pub fn set_virtual(&mut self, op: &'a Op) {
        self.defs[op.results[0].0 as usize] = Some(op);
        self.set_home(op.results[0], Home::Virtual);
    }
    /// The op that computes a virtual value.
    pub fn def(&self, v: Value) -> Option<&'a Op> {
        self.defs[v.0 as usize]
    }
    /// The SSA value of a tile of one element.
    pub fn scalar(&mut self, v: Value) -> V<'c> {
        match self.home(v) {
            Home::Scalar(x) => *x,
            _ => self.eval(v, &At::origin(self.tile(v).rank())),
        }
    }
    /// A view.
    pub fn view(&self, v: Value) -> ViewVal<'c> {
        match self.home(v) {
            Home::View(view) => view.clone(),
            _ => unreachable!("a verified kernel has a view here"),
        }
    }
    /// A site number for reports.
    pub fn site(&mut self, kind: SiteKind, message: impl Into<String>, op: &Op) -> i32 {
        self.sites.push(Site { kind, message: message.into(), loc: op.loc.clone() });
        self.sites.len() as i32 - 1
    }
    /// An error about an op.
    pub fn error<T>(&self, op: &Op, message: impl Into<String>) -> Result<T, Error> {
        Err(Error { message: format!("`{}`: {}", op.kind.name(), message.into()), loc: Some(op.loc.clone()) })
    }

    // ---- buffers ----

    /// A new buffer.
    pub fn buffer(&mut self, ty: &TileType) -> Buf<'c> {
        let place = self.arena.alloc(ty.len() * ty.elem.bytes());
        Buf { ptr: self.scratch_at(place), ty: ty.clone(), place: Some(place) }
    }
    /// Scratch memory at an offset.
    pub fn scratch_at(&mut self, offset: usize) -> V<'c> {
        let (b, scratch) = (self.b, self.scratch);
        *self.buffers.entry(offset).or_insert_with(|| b.at_level(0, || b.offset_c(scratch, offset as i64)))
    }
    /// Gives a buffer back.
    pub fn release(&mut self, buf: &Buf<'c>) {
        if let Some(place) = buf.place {
            self.arena.free(place);
        }
    }
    /// The buffer behind a value that is one.
    pub fn buf(&self, v: Value) -> Option<Buf<'c>> {
        match &self.homes[v.0 as usize] {
            Some(Home::Buffer(buf)) => Some(buf.clone()),
            _ => None,
        }
    }
    /// Computes a tile into a buffer of its shape.
    pub fn fill(&mut self, buf: &Buf<'c>, v: Value) -> Result<(), Error> {
        if let Some(from) = self.buf(v) {
            if from.ptr != buf.ptr {
                self.b.copy(buf.ptr, from.ptr, buf.ty.len() * buf.ty.elem.bytes());
            }
            return Ok(());
        }
        let shape = buf.ty.shape.clone();
        self.nest(&shape, &[v], None, &mut |cx, at| {
            let x = cx.eval(v, at);
            cx.write(buf, at, x);
            Ok(())
        })
    }
    /// A tile in memory: its buffer, or a new one that the caller releases.
    pub fn in_memory(&mut self, v: Value) -> Result<(Buf<'c>, bool), Error> {
        if let Some(buf) = self.buf(v) {
            return Ok((buf, false));
        }
        let buf = self.buffer(self.tile(v));
        self.fill(&buf, v)?;
        Ok((buf, true))
    }

    /// Address of an element of a buffer.
    pub fn address(&self, buf: &Buf<'c>, at: &At<'c>) -> V<'c> {
        let b = self.b;
        let (mut index, mut constant, mut stride) = (None, 0, 1i64);
        for (c, n) in at.coords.iter().zip(&buf.ty.shape).rev() {
            constant += c.plus * stride;
            if let Some((v, _)) = c.var {
                let term = b.mul_c(v, stride);
                index = Some(index.map_or(term, |i| b.add(i, term)));
            }
            stride *= *n as i64;
        }
        let elem = memory_type(b, buf.ty.elem);
        let base = index.map_or(buf.ptr, |i| b.gep(buf.ptr, elem, i));
        b.offset_c(base, constant * buf.ty.elem.bytes() as i64)
    }
    fn lane_stride(buf: &Buf<'c>, at: &At<'c>) -> usize {
        at.lane.map_or(1, |(axis, _)| buf.ty.shape[axis + 1..].iter().product())
    }
    /// Elements of a buffer.
    pub fn read(&self, buf: &Buf<'c>, at: &At<'c>) -> V<'c> {
        let (b, elem, p) = (self.b, buf.ty.elem, self.address(buf, at));
        let stride = Self::lane_stride(buf, at);
        if stride == 1 {
            return machine::load(b, p, elem, at.lanes());
        }
        let lanes: Vec<V> = (0..at.lanes())
            .map(|i| machine::load(b, b.offset_c(p, (i * stride * elem.bytes()) as i64), elem, 0))
            .collect();
        b.gather_lanes(&lanes)
    }
    /// Stores elements of a buffer.
    pub fn write(&self, buf: &Buf<'c>, at: &At<'c>, x: V<'c>) {
        let (b, elem, p) = (self.b, buf.ty.elem, self.address(buf, at));
        let stride = Self::lane_stride(buf, at);
        if stride == 1 {
            return machine::store(b, x, p, elem);
        }
        for i in 0..at.lanes() {
            machine::store(b, b.extract(x, i), b.offset_c(p, (i * stride * elem.bytes()) as i64), elem);
        }
    }

    // ---- elements on demand ----

    /// The elements of a tile at a place: a scalar or a vector, of the type that elements have in registers. Code goes to the outermost
    /// block where the place and the value are known, once for each place.
    pub fn eval(&mut self, v: Value, at: &At<'c>) -> V<'c> {
        let key = (v, at.key());
        let level = at.level().max(self.avail[v.0 as usize]).max(self.floor).min(self.b.here());
        if let Some(x) = self.recall(level, &key) {
            return x;
        }
        let b = self.b;
        let x = b.at_level(level, || self.compute(v, at));
        self.remember(level, key, x);
        x
    }

    fn recall(&mut self, level: usize, key: &(Value, Key)) -> Option<V<'c>> {
        // A value made further out serves as well.
        (0..=level.min(self.memo.len().saturating_sub(1)))
            .filter_map(|l| self.memo.get(l).filter(|m| l <= self.b.top() && m.0 == self.b.block_id(l)))
            .find_map(|m| m.1.get(key).copied())
    }
    fn remember(&mut self, level: usize, key: (Value, Key), x: V<'c>) {
        while self.memo.len() <= level {
            self.memo.push((0, HashMap::new()));
        }
        let id = self.b.block_id(level);
        if self.memo[level].0 != id {
            self.memo[level] = (id, HashMap::new());
        }
        self.memo[level].1.insert(key, x);
    }

    fn compute(&mut self, v: Value, at: &At<'c>) -> V<'c> {
        let b = self.b;
        match self.home(v).clone() {
            Home::Scalar(x) => return b.splat(x, at.lanes()),
            Home::Buffer(buf) => return self.read(&buf, at),
            Home::Virtual => {}
            _ => unreachable!("a verified kernel has a tile here"),
        }
        let Some(op) = self.def(v) else { unreachable!("a virtual value has its op") };
        match op.kind {
            OpKind::Load => self.view_load(op, at),
            OpKind::Gather => self.gather(op, at),
            OpKind::PackedGather => self.packed_gather(op, at),
            _ => self.pure(op, at),
        }
    }

    /// Elements of the only result of a pure op that works place by place.
    pub fn pure(&mut self, op: &'a Op, at: &At<'c>) -> V<'c> {
        let (b, ty) = (self.b, self.tile(op.results[0]));
        match op.kind {
            OpKind::Const => {
                let bits = op.attrs.scalar(tegula_ir::Key::Value).map_or(0, |s| s.bits);
                b.constant_bits(machine::carrier(b, ty.elem), bits, at.lanes())
            }
            OpKind::Iota => {
                let t = machine::carrier(b, ty.elem);
                let first = b.trunci(at.coords[0].value(b), t);
                match at.lane {
                    None => first,
                    Some((_, lanes)) => b.add(b.splat(first, lanes), b.iota(t, lanes)),
                }
            }
            OpKind::Broadcast | OpKind::Reshape | OpKind::Permute | OpKind::Slice => {
                let inner = self.source_place(op, at);
                let x = self.eval(op.operands[0], &inner);
                if inner.lane.is_none() { b.splat(x, at.lanes()) } else { x }
            }
            _ => {
                let args: Vec<V> = op.operands.iter().map(|v| self.eval(*v, at)).collect();
                let elems: Vec<Elem> = op.operands.iter().map(|v| self.elem(*v)).collect();
                elementwise::apply(self, op, &elems, ty.elem, &args)
            }
        }
    }

    /// Where a shape op takes the element at `at` from.
    fn source_place(&self, op: &Op, at: &At<'c>) -> At<'c> {
        let (from, to) = (self.tile(op.operands[0]), self.tile(op.results[0]));
        match op.kind {
            OpKind::Broadcast => {
                let mut inner = At {
                    coords: vec![],
                    lane: at.lane.filter(|(axis, _)| from.shape.get(*axis).is_some_and(|n| *n != 1)),
                };
                for (d, n) in from.shape.iter().enumerate() {
                    inner.coords.push(if *n == 1 { Coord::constant(0) } else { at.coords[d] });
                }
                inner
            }
            OpKind::Permute => {
                let perm = op.attrs.ints(tegula_ir::Key::Perm).unwrap_or_default();
                let mut inner = At::origin(perm.len());
                for (i, p) in perm.iter().enumerate() {
                    inner.coords[*p as usize] = at.coords[i];
                }
                inner.lane = at.lane.map(|(axis, n)| (perm[axis] as usize, n));
                inner
            }
            OpKind::Slice => {
                let axis = op.attrs.int(tegula_ir::Key::Axis).unwrap_or(0) as usize;
                let mut inner = at.clone();
                inner.coords[axis].plus += op.attrs.int(tegula_ir::Key::Start).unwrap_or(0);
                inner
            }
            _ => {
                debug_assert!(reshape_is_unit(self.k, op) || to.len() == 1);
                let mut inner = At::origin(from.rank());
                let axes = |t: &TileType| (0..t.rank()).filter(|d| t.shape[*d] != 1).collect::<Vec<_>>();
                for (f, t) in axes(from).into_iter().zip(axes(to)) {
                    inner.coords[f] = at.coords[t];
                    if let Some((axis, n)) = at.lane
                        && axis == t
                    {
                        inner.lane = Some((f, n));
                    }
                }
                inner
            }
        }
    }

    // ---- loop nests ----

    /// The axis that lanes run along in a nest over `shape`: the innermost that is longer than 1.
    pub fn lane_axis(shape: &[usize]) -> Option<usize> {
        shape.iter().rposition(|n| *n > 1)
    }

    /// Runs `f` at every place of `shape` in row-major order, `target.lanes` places at a time along the lane axis. `reads`
    /// are the tiles that `f` evaluates at its places, `store` a store op whose elements it stores: where all of the
    /// memory they touch lies inside its views, a version of the nest without checks runs.
    pub fn nest(
        &mut self,
        shape: &[usize],
        reads: &[Value],
        store: Option<&'a Op>,
        f: &mut dyn FnMut(&mut Self, &At<'c>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (shape, lane) = (shape.to_vec(), Self::lane_axis(shape));
        let lanes = self.lanes_for(reads);
        self.versioned(reads, store, &[], &mut |cx| {
            cx.loops(&shape, lane, lanes, &mut At::origin(shape.len()), 0, f)?;
            Ok(vec![])
        })?;
        Ok(())
    }

    /// Lanes of a nest that evaluates these tiles: as many as make a vector of the widest element there is below them, but
    /// not fewer than f32 would.
    fn lanes_for(&self, reads: &[Value]) -> usize {
        let widest = reads.iter().map(|v| self.widest(*v)).max().unwrap_or(4).clamp(1, 4);
        self.target.lanes * 4 / widest
    }
    /// Bytes of the widest element below a tile, through virtual values. Arithmetic on floats below f32 is done in f32.
    fn widest(&self, v: Value) -> usize {
        let of = |v: &Value| match self.k.ty(*v) {
            Type::Tile(t) if t.len() > 1 => t.elem.bytes(),
            _ => 0,
        };
        let below = self.virtual_below(v).into_iter().flat_map(|op| {
            let arithmetic = op.kind.is_elementwise() && self.elem(op.results[0]).is_float();
            let operands = op.operands.iter().filter(|_| op.kind != OpKind::Load).map(of);
            operands.chain([of(&op.results[0]), if arithmetic { 4 } else { 0 }]).collect::<Vec<_>>()
        });
        below.fold(self.tile(v).elem.bytes(), usize::max)
    }

    /// The loops of a nest from `axis` inwards.
    pub fn loops(
        &mut self,
        shape: &[usize],
        lane: Option<usize>,
        lanes: usize,
        at: &mut At<'c>,
        axis: usize,
        f: &mut dyn FnMut(&mut Self, &At<'c>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if axis == shape.len() {
            return f(self, at);
        }
        let n = shape[axis];
        if n == 1 || lane.is_none_or(|l| l != axis) {
            return self.counted(n, 1, |cx, c| {
                at.coords[axis] = c;
                cx.loops(shape, lane, lanes, at, axis + 1, f)
            });
        }
        let whole = n / lanes * lanes;
        at.lane = Some((axis, lanes));
        self.counted(whole, lanes, |cx, c| {
            at.coords[axis] = c;
            cx.loops(shape, lane, lanes, at, axis + 1, f)
        })?;
        if whole < n {
            at.lane = (n - whole > 1).then_some((axis, n - whole));
            at.coords[axis] = Coord::constant(whole as i64);
            self.loops(shape, lane, lanes, at, axis + 1, f)?;
        }
        at.lane = None;
        Ok(())
    }

    /// A loop over 0, step, 2·step, … below n; no loop for one turn.
    pub fn counted(
        &mut self,
        n: usize,
        step: usize,
        f: impl FnOnce(&mut Self, Coord<'c>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if n == 0 {
            return Ok(());
        }
        if n <= step {
            return f(self, Coord::constant(0));
        }
        let b = self.b;
        let mut result = Ok(());
        b.for_each(0, n as i64, step as i64, |i| result = f(self, Coord { var: Some((i, b.top())), plus: 0 }));
        result
    }

    /// Runs `f` in two versions, one for when everything that it touches in views lies inside them.
    pub fn versioned(
        &mut self,
        reads: &[Value],
        store: Option<&'a Op>,
        results: &[melior::ir::Type<'c>],
        f: &mut dyn FnMut(&mut Self) -> Result<Vec<V<'c>>, Error>,
    ) -> Result<Vec<V<'c>>, Error> {
        let mut fresh: Vec<&'a Op> = vec![];
        for op in reads.iter().flat_map(|v| self.virtual_below(*v)) {
            let known = self.inside.contains(&op.results[0]) || fresh.iter().any(|o| o.results == op.results);
            if op.kind == OpKind::Load && !known {
                fresh.push(op);
            }
        }
        if fresh.is_empty() && store.is_none() {
            return f(self);
        }
        let b = self.b;
        let mut condition = None;
        let all: Vec<&'a Op> = fresh.iter().copied().chain(store).collect();
        for op in &all {
            let c = self.is_inside(op);
            condition = Some(condition.map_or(c, |before| b.and(before, c)));
        }
        let Some(condition) = condition else { return f(self) };
        let keys: Vec<Value> = all.iter().map(|op| Self::access_key(op)).collect();
        let floor = self.floor;
        self.look_ahead(&all);
        let mut failed = None;
        // Both branches run the same code generator; the first error is kept.
        let cell = std::cell::RefCell::new((&mut *self, f, &mut failed));
        let branch = |fast: bool| {
            let mut guard = cell.borrow_mut();
            let (cx, f, failed) = &mut *guard;
            cx.floor = b.top();
            if fast {
                cx.inside.extend(&keys);
            }
            let r = f(cx);
            if fast {
                keys.iter().for_each(|k| {
                    cx.inside.remove(k);
                });
            }
            cx.floor = floor;
            r.unwrap_or_else(|e| {
                failed.get_or_insert(e);
                vec![]
            })
        };
        let values = b.if_(condition, results, || branch(true), || branch(false));
        self.ahead.clear();
        failed.map_or(Ok(values), Err)
    }

    /// Programs of a row kernel read a row, then compute on it from the caches: time in which memory could bring the next
    /// row. So a nest that reads a tile for the second time asks for the tile that follows along axis 0, and a nest that
    /// stores after such a one for the place of the next stores.
    fn look_ahead(&mut self, accesses: &[&'a Op]) {
        if self.depth > 0 {
            return;
        }
        let b = self.b;
        let again = |cx: &Self, op: &Op| cx.read_before.contains(&Self::access_key(op));
        for op in accesses {
            let tile = Self::access_key(op);
            let (view, ty) = (self.view(op.operands[0]), self.tile(tile));
            let reread = if op.kind == OpKind::Load { again(self, op) } else { !self.read_before.is_empty() };
            if !reread || ty.rank() < 2 || ty.len() * ty.elem.bytes() > LOOK_AHEAD_LIMIT {
                continue;
            }
            let rows = ty.shape[0] as i64;
            let position = self.scalar(op.operands[1]);
            let more = b.cmp(Cmp::Sle, b.add_c(position, 2 * rows), view.extents[0]);
            let distance = b.mul_c(view.strides[0], rows * ty.elem.bytes() as i64);
            self.ahead.insert(tile, b.select(more, distance, b.c64(0)));
        }
        let loads = accesses.iter().filter(|op| op.kind == OpKind::Load).map(|op| op.results[0]);
        self.read_before.extend(loads);
    }
    /// How far ahead of an access to ask for memory, in bytes.
    pub fn ahead(&self, op: &Op) -> Option<V<'c>> {
        self.ahead.get(&Self::access_key(op)).copied()
    }

    /// Runs `f` for code that may only run where it stands: no memory is read further out.
    pub fn from_here<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let floor = std::mem::replace(&mut self.floor, self.b.top());
        let r = f(self);
        self.floor = floor;
        r
    }

    /// What an access is known by in `inside`: a load's result, a store's tile.
    fn access_key(op: &Op) -> Value {
        if op.kind == OpKind::Load { op.results[0] } else { op.operands[op.operands.len() - 1] }
    }
    /// Whether an access need not be checked here.
    pub fn is_unchecked(&self, op: &Op) -> bool {
        self.inside.contains(&Self::access_key(op))
    }

    /// The virtual values below a tile, itself included, each once.
    fn virtual_below(&self, v: Value) -> Vec<&'a Op> {
        let (mut found, mut seen, mut open) = (vec![], HashSet::new(), vec![v]);
        while let Some(v) = open.pop() {
            if !seen.insert(v) || !matches!(self.homes[v.0 as usize], Some(Home::Virtual)) {
                continue;
            }
            if let Some(op) = self.def(v) {
                found.push(op);
                if op.kind != OpKind::Load {
                    open.extend(op.operands.iter().rev());
                }
            }
        }
        found
    }

    /// Declares a function of libm on f32 or f64 scalars, once.
    pub fn declare(&mut self, name: &'static str, ty: melior::ir::Type<'c>, args: usize) {
        if self.declared.insert(name) {
            self.b.declare(name, &vec![ty; args], &[ty]);
        }
    }

    /// Decides where the results of an op that makes buffers go, and whether that is an argument's storage.
    pub fn result_buffer(&mut self, v: Value) -> Buf<'c> {
        if let Some(mut buf) = self.plan.in_place(v).and_then(|arg| self.buf(arg)) {
            buf.place = None; // the loop's to give back
            return buf;
        }
        self.buffer(self.tile(v))
    }

    /// An attribute that is a scalar, as bits.
    pub fn pad_bits(op: &Op) -> u64 {
        match op.attrs.get(tegula_ir::Key::Pad) {
            Some(Attr::Scalar(s)) => s.bits,
            _ => 0,
        }
    }

    /// Where `v` is planned to be.
    pub fn mode(&self, v: Value) -> Mode {
        self.plan.mode(v)
    }
}
