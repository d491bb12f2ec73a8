//! The state of a lowering: the registers of each value.

pub use super::super::param::{PackedVal, ViewVal};
use super::{
    super::{
        build::{Build, V},
        machine::carrier,
    },
    Error,
    sync::Pending,
};
use crate::emit::GpuTarget;
use melior::ir::{Type as MlirType, attribute::FlatSymbolRefAttribute};
use std::collections::HashMap;
use tegula_ir::{
    Attr, Elem, Kernel, Key, Op, QTileType, TileType, Type, Value,
    facts::Facts,
    gpu::{Layouts, streams},
    linear::{Axes, Linear, Segment, TileLayout, pieces, tile::extents},
    protocol::{Site, SiteKind},
};

/// Name of the block's dynamic shared memory.
pub const SHARED: &str = "tegula_shared";

/// The registers of a tile: for each piece, by register number.
pub type Regs<'c> = Vec<Vec<V<'c>>>;

/// Where a value is.
#[derive(Clone, Debug)]
pub enum Home<'c> {
    Tile(Regs<'c>),
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

/// A piece of a tile and where it is.
#[derive(Clone, Debug)]
pub struct Piece {
    pub segments: Vec<Segment>,
    pub axes: Axes,
    pub layout: Linear,
}

impl Piece {
    /// Extents of the piece.
    pub fn extents(&self) -> Vec<usize> {
        extents(&self.segments)
    }
    /// Index in the tile of the piece's first element along an axis.
    pub fn start(&self, axis: usize) -> usize {
        self.segments[axis].start
    }
}

/// The pieces of a tile of that shape.
pub fn pieces_of(shape: &[usize], layout: &TileLayout) -> Vec<Piece> {
    let all = pieces(shape).into_iter().zip(&layout.0);
    all.map(|(segments, l)| Piece { axes: Axes::of(&extents(&segments)), segments, layout: l.clone() }).collect()
}

/// The state.
pub struct Cx<'a, 'c> {
    pub b: &'a Build<'c>,
    pub k: &'a Kernel,
    pub facts: Facts<'a>,
    pub layouts: Layouts,
    pub target: GpuTarget,
    pub checked: bool,
    pub sites: Vec<Site>,
    pub remarks: Vec<String>,
    /// An error of an op in a combiner.
    pub fault: Option<Error>,
    /// Whether the present op is in a combiner.
    pub in_combiner: bool,
    /// The thread's number in the block, i32.
    pub tid: V<'c>,
    /// Start of the block's shared memory.
    pub shared: V<'c>,
    /// The report buffer's address, a parameter.
    pub report_to: Option<V<'c>>,
    pub(super) pending: Pending<'c>,
    /// Most shared memory used at a time, in bytes.
    pub(super) shared_top: usize,
    /// The op that used most, for errors.
    pub(super) shared_by: Option<Op>,
    pub(super) by_thread: HashMap<Vec<u64>, V<'c>>,
    /// Values that the product that uses them fetches itself.
    pub(super) streams: HashMap<Value, &'a Op>,
    homes: Vec<Option<Home<'c>>>,
    used: std::collections::HashSet<Value>,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// The state at the start of the kernel.
    pub fn new(b: &'a Build<'c>, k: &'a Kernel, layouts: Layouts, target: GpuTarget, checked: bool) -> Self {
        let tid = b.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", &[], b.i32());
        let name = FlatSymbolRefAttribute::new(b.context, SHARED);
        let shared = b.op("llvm.mlir.addressof", &[], b.ptr_in(3), &[("global_name", name.into())]);
        Cx {
            b,
            k,
            facts: Facts::of(k),
            layouts,
            target,
            checked,
            sites: vec![],
            remarks: vec![],
            fault: None,
            in_combiner: false,
            tid,
            shared,
            report_to: None,
            pending: Pending::default(),
            shared_top: 0,
            shared_by: None,
            by_thread: HashMap::new(),
            streams: streams(k),
            homes: vec![None; k.types.len()],
            used: uses(&k.body),
        }
    }

    /// Threads of the block.
    pub fn threads(&self) -> usize {
        self.k.warps() * 32
    }
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
    /// Register type of a tile's elements.
    pub fn carrier(&self, v: Value) -> MlirType<'c> {
        carrier(self.b, self.elem(v))
    }
    /// Where a tile is.
    pub fn layout(&self, v: Value) -> TileLayout {
        match self.layouts.get(v) {
            Some(l) => l.clone(),
            None => TileLayout::everywhere(&self.tile(v).shape, self.k.warps().trailing_zeros()),
        }
    }
    /// The pieces of a tile.
    pub fn pieces(&self, v: Value) -> Vec<Piece> {
        pieces_of(&self.tile(v).shape, &self.layout(v))
    }
    /// Where a value is.
    pub fn home(&self, v: Value) -> &Home<'c> {
        match &self.homes[v.0 as usize] {
            Some(h) => h,
            None => unreachable!("value %{} is used before it is lowered", v.0),
        }
    }
    /// Where a value is, if it is lowered already.
    pub fn known(&self, v: Value) -> Option<&Home<'c>> {
        self.homes[v.0 as usize].as_ref()
    }
    /// Whether anything uses a value.
    pub fn is_used(&self, v: Value) -> bool {
        self.used.contains(&v)
    }
    /// Says where a value is.
    pub fn set_home(&mut self, v: Value, home: Home<'c>) {
        self.homes[v.0 as usize] = Some(home);
    }
    /// The registers of a tile.
    pub fn regs(&self, v: Value) -> Regs<'c> {
        match self.home(v) {
            Home::Tile(r) => r.clone(),
            _ => unreachable!("a verified kernel has a tile here"),
        }
    }
    /// Gives a tile its registers.
    pub fn set_regs(&mut self, v: Value, regs: Regs<'c>) -> Result<(), Error> {
        debug_assert!(
            regs.iter().zip(&self.layout(v).0).all(|(r, l)| r.len() == l.regs()),
            "%{} has the registers of its layout",
            v.0
        );
        self.set_home(v, Home::Tile(regs));
        Ok(())
    }
    /// The value of a tile of one element.
    pub fn scalar(&self, v: Value) -> V<'c> {
        match self.home(v) {
            Home::Tile(r) => r[0][0],
            _ => unreachable!("a verified kernel has a scalar here"),
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
    /// The pad value of a load, as bits.
    pub fn pad_bits(op: &Op) -> u64 {
        match op.attrs.get(Key::Pad) {
            Some(Attr::Scalar(s)) => s.bits,
            _ => 0,
        }
    }
    /// Whether the kernel fits the target.
    pub fn fits(&self) -> Result<(), Error> {
        let (used, most) = (self.shared_top, self.target.shared_bytes);
        if used <= most {
            return Ok(());
        }
        let message = format!(
            "`{}` needs {used} bytes of shared memory, {} more than the {most} that a program has on {}: smaller tiles fit",
            self.shared_by.as_ref().map_or("the kernel", |op| op.kind.name()),
            used - most,
            self.target
        );
        Err(Error { message, loc: self.shared_by.as_ref().map(|op| op.loc.clone()) })
    }
    /// Dynamic shared memory that the kernel needs, in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.shared_top.next_multiple_of(16)
    }
}

/// All values that something uses.
fn uses(r: &tegula_ir::Region) -> std::collections::HashSet<Value> {
    let mut all: std::collections::HashSet<Value> = r.yields.iter().copied().collect();
    r.walk(&mut |op| {
        all.extend(&op.operands);
        all.extend(op.regions.iter().flat_map(|r| &r.yields));
    });
    all
}
