//! The state of a lowering: where each value is.

pub use super::super::param::{PackedVal, ViewVal};
use super::{
    Error, Target,
    arena::Arena,
    at::{At, Key},
    build::{Build, V},
    plan::{Mode, Plan},
};
use std::collections::{HashMap, HashSet};
use tegula_ir::{
    Attr, Elem, Kernel, Op, QTileType, TileType, Type, Value,
    protocol::{Site, SiteKind},
};

/// A tile in scratch memory: row-major, no gaps.
#[derive(Clone, Debug)]
pub struct Buf<'c> {
    pub ptr: V<'c>,
    pub ty: TileType,
    /// Its place in the arena, if it is this buffer's to give back.
    pub place: Option<usize>,
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
    pub(super) homes: Vec<Option<Home<'c>>>,
    pub(super) defs: Vec<Option<&'a Op>>,
    /// Level of the region that defines a value.
    pub(super) avail: Vec<usize>,
    /// No memory read goes further out than this block.
    pub(super) floor: usize,
    /// Loads (by result) and stores (by tile) that the code at hand need not check.
    pub(super) inside: HashSet<Value>,
    /// Loads that a nest of the kernel's body has read already.
    pub(super) read_before: HashSet<Value>,
    /// Distance in bytes from an access of the nest at hand to where the next program's may be: see [`Cx::look_ahead`].
    pub(super) ahead: HashMap<Value, V<'c>>,
    /// The nest at hand stores around the caches.
    pub(super) streaming: bool,
    /// Bytes of the largest tile that may be stored so.
    pub(super) streamed: i64,
    /// Loops of the kernel around the op at hand.
    pub depth: usize,
    pub(super) memo: Vec<(u32, HashMap<(Value, Key), V<'c>>)>,
    pub(super) buffers: HashMap<usize, V<'c>>,
    /// Functions of libm that the module declares.
    pub(super) declared: HashSet<&'static str>,
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
            streaming: false,
            streamed: 0,
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

    /// Declares a function of libm on f32 or f64 scalars, once.
    pub fn declare(&mut self, name: &'static str, ty: melior::ir::Type<'c>, args: usize) {
        if self.declared.insert(name) {
            self.b.declare(name, &vec![ty; args], &[ty]);
        }
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
