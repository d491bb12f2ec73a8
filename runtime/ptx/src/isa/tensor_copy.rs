//! Tensor copies: tiles of arrays that a tensor map describes, between global and shared memory.

use super::{
    atomic::Fold,
    bulk::{in_block, issue, lane_address, range, split, targets},
    control::Nothing,
    mbarrier::lanes,
};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    error::Error,
    exec::{
        fault::{Fault, FaultKind},
        in_flight::Key,
        op::{Cx, Flow, Op, Outcome},
        regs::Slot,
        tile::{Job, Tile},
    },
    mem::{
        Space,
        access::{Address, Located, Request},
        watch::Touch,
    },
    tensor_map::{self, Swizzle, TensorMap},
    text::ast::Operand,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form(
        "cp.async.bulk.tensor",
        "1d|2d|3d|4d|5d global shared::cta|shared::cluster \
         tile|tile::gather4|tile::scatter4|im2col|im2col_no_offs|im2col::w|im2col::w::128 \
         mbarrier::complete_tx::bytes|bulk_group multicast::cluster L2::cache_hint cta_group::1|cta_group::2",
        Kind::BulkCopy,
        copy,
    ),
    form(
        "cp.reduce.async.bulk.tensor",
        "1d|2d|3d|4d|5d global shared::cta add|min|max|inc|dec|and|or|xor tile|im2col_no_offs bulk_group L2::cache_hint",
        Kind::BulkCopy,
        reduce,
    ),
    form(
        "cp.async.bulk.prefetch.tensor",
        "1d|2d|3d|4d|5d L2 global tile|tile::gather4|im2col|im2col::w|im2col::w::128 L2::cache_hint",
        Kind::BulkCopy,
        prefetch,
    ),
];

/// A tile by its map and coordinates, as operands.
struct TileIn {
    map: Address,
    /// Of a gather or scatter the column, then four rows.
    at: Vec<Slot>,
    four_rows: bool,
}

impl TileIn {
    /// Reads operand `i`, `[map, {x, y, ...}]`.
    fn build(b: &mut Build<'_, '_>, i: usize) -> Result<TileIn, Error> {
        if let Some(mode) = b.quals.pick(&["im2col", "im2col_no_offs", "im2col::w", "im2col::w::128"]) {
            return b.error(format!("`.{mode}` tensor copies are not supported: `.tile` ones are"));
        }
        let four_rows = b.quals.pick(&["tile::gather4", "tile::scatter4"]).is_some();
        let rank = match b.quals.pick(&["1d", "2d", "3d", "4d", "5d"]) {
            Some(d) => (d.as_bytes()[0] - b'0') as usize,
            None => return b.error("a tensor copy needs its dimensions: .1d to .5d"),
        };
        let (map, _) = b.address(i)?;
        let Operand::Address { rest, .. } = b.operand(i)? else { return b.unsupported() };
        let parts: &[Operand] = match rest.first() {
            Some(Operand::Vector(parts)) => parts,
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        if four_rows && rank != 2 {
            return b.error(format!("`{}`: four rows are of arrays of .2d", b.inst.name()));
        }
        let wanted = if four_rows { 5 } else { rank };
        if parts.len() != wanted {
            return b.error(format!("`{}` takes {wanted} coordinates, found {}", b.inst.name(), parts.len()));
        }
        let mut at = Vec::new();
        for part in parts {
            at.push(b.src_of(part, 32)?);
        }
        Ok(TileIn { map, at, four_rows })
    }

    /// The map and the tile's place. `writes` says which way it goes.
    fn find(&self, cx: &mut Cx<'_>, lane: usize, writes: bool) -> Result<Tile, Box<Fault>> {
        let request = Request { space: Space::Generic, bytes: tensor_map::BYTES, align: 64, touch: Touch::Read };
        let address = lane_address(cx, self.map, lane);
        let at = range(cx, lane, address, request)?;
        // SAFETY: `range` checked the bytes.
        let bytes = unsafe { at.ptr(lane).cast::<[u8; tensor_map::BYTES]>().read() };
        let wrong = |message: String| Fault::new(FaultKind::Operand, message).at_lane(lane);
        let mut map = TensorMap::decode(&bytes).map_err(|e| wrong(e.to_string()))?;
        let rank = if self.four_rows { 2 } else { self.at.len() };
        if map.extents.len() != rank {
            let message = format!("a copy of {rank} dimensions with a map of {}", map.extents.len());
            return Err(wrong(message));
        }
        let coordinates = std::array::from_fn(|d| match self.at.get(d) {
            Some(slot) => cx.warp.regs.lane::<i32>(*slot, lane) as i64,
            None => 0,
        });
        let mut rows = None;
        if self.four_rows {
            if map.tile[1] != 1 || map.steps[1] != 1 {
                let message =
                    format!("a copy of four rows with a map whose tiles have {} rows: 1 is needed", map.tile[1]);
                return Err(wrong(message));
            }
            map.tile[1] = 4;
            rows = Some([1, 2, 3, 4].map(|i| coordinates[i]));
        }
        let null = std::ptr::null_mut();
        let mut tile = Tile { map, at: coordinates, rows, global: null, global_shadow: null, shared: null, address: 0 };
        if let Some((low, high)) = tile.touched() {
            let start = tile.map.address;
            let end = start.saturating_add(high);
            let region = cx.launch.memory.region(start.saturating_add(low));
            let Some(region) = region.filter(|r| end <= r.end) else {
                let near = cx.launch.memory.describe(end - 1);
                let message = format!("the tile reaches bytes {low}..{high} from the map's {start:#x}: {near}");
                return Err(Fault::new(FaultKind::Bounds, message).at_lane(lane));
            };
            if writes && region.read_only {
                return Err(Fault::new(FaultKind::ReadOnly, "tensor copy to read-only memory").at_lane(lane));
            }
            let back = (start as isize).wrapping_sub(region.start as isize);
            tile.global = region.base.wrapping_offset(back);
            if !region.shadow.is_null() {
                tile.global_shadow = region.shadow.wrapping_offset(back);
            }
            cx.counters.global_sectors += (tile.map.tile_bytes() as u64).div_ceil(32);
            cx.counters.global_sectors_ideal += (tile.map.tile_bytes() as u64).div_ceil(32);
            cx.counters.global_requests += 1;
            // SAFETY: the region holds every element that the tile touches.
            if !writes && let Some(byte) = unsafe { tile.uninitialised() } {
                let near = cx.launch.memory.describe(start.wrapping_add(byte as u64));
                let message = format!("the tile reads byte {byte} from the map's start, which nothing wrote: {near}");
                return Err(Fault::new(FaultKind::Uninitialised, message).at_lane(lane));
            }
        }
        Ok(tile)
    }
}

/// Bytes of shared memory that a tile's pieces may lie in.
fn room(tile: &Tile) -> usize {
    let span = if tile.map.swizzle == Swizzle::None { 1 } else { tile.map.swizzle.span() };
    tile.map.tile_bytes().next_multiple_of(span)
}

/// Puts the tile's shared end at a located place.
fn place(tile: &mut Tile, at: &Located, lane: usize) {
    tile.address = at.addresses[lane];
    tile.shared = at.ptr(lane).wrapping_sub(tile.address as usize);
}

struct Load {
    to: Address,
    tile: TileIn,
    barrier: Address,
    multicast: Option<Slot>,
}
impl Op for Load {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        for lane in lanes(mask) {
            let tile = self.tile.find(cx, lane, false)?;
            let to = lane_address(cx, self.to, lane);
            let barrier = split(cx, lane_address(cx, self.barrier, lane));
            for target in targets(cx, lane, to, self.multicast)? {
                let mut tile = tile.clone();
                let (bytes, room) = (tile.map.tile_bytes(), room(&tile));
                let request = Request { space: Space::Shared, bytes: room, align: 128, touch: Touch::AsyncWrite };
                let at = range(cx, lane, in_block(target), request)?;
                place(&mut tile, &at, lane);
                let rank = if self.multicast.is_some() { target.rank } else { barrier.rank };
                issue(cx, lane, Key { rank, ..barrier }, &at, Job::Load(tile), bytes, room)?;
            }
        }
        Ok(Flow::Next)
    }
}

struct Store {
    tile: TileIn,
    from: Address,
    /// Operation of a reduction.
    op: Option<&'static str>,
}
impl Op for Store {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let completion = cx.launch.completion();
        for lane in lanes(mask) {
            let mut tile = self.tile.find(cx, lane, true)?;
            let request = Request { space: Space::Shared, bytes: room(&tile), align: 128, touch: Touch::AsyncRead };
            let address = lane_address(cx, self.from, lane);
            let at = range(cx, lane, address, request)?;
            place(&mut tile, &at, lane);
            let job = match self.op {
                None => Job::Store(tile),
                Some(op) => match Fold::of(op, tile.map.element.ty()) {
                    Some(fold) => Job::FoldTile(tile, fold),
                    None => {
                        let message = format!("a tensor map of {:?} has no reduction `.{op}`", tile.map.element);
                        return Err(Fault::new(FaultKind::Operand, message).at_lane(lane));
                    }
                },
            };
            cx.warp.bulk.issue(lane as u8, job, completion);
        }
        Ok(Flow::Next)
    }
}

/// Checks that memory spaces and completion stand in the order of a load or of a store.
fn direction(b: &Build<'_, '_>) -> Result<bool, Error> {
    let place = |words: &[&str]| b.inst.quals.iter().position(|q| words.contains(&q.as_str()));
    match (place(&["shared::cta", "shared::cluster"]), place(&["global"])) {
        (Some(to), Some(from)) if to < from && b.quals.has("mbarrier::complete_tx::bytes") => Ok(true),
        (Some(_), Some(_)) if b.quals.has("bulk_group") && !b.quals.has("shared::cluster") => Ok(false),
        _ => b.error(format!(
            "`{}`: either .shared.global with .mbarrier::complete_tx::bytes or .global.shared::cta with .bulk_group",
            b.inst.name()
        )),
    }
}

fn copy(b: &mut Build<'_, '_>) -> Built {
    if !direction(b)? {
        return store(b, None);
    }
    if b.quals.has("cta_group::2") {
        return b.error("`.cta_group::2` is not supported");
    }
    let (multicast, hint) = (b.quals.has("multicast::cluster"), b.quals.has("L2::cache_hint"));
    if b.quals.has("tile::scatter4") {
        return b.error("`.tile::scatter4` stores; loads take .tile::gather4");
    }
    let tile = TileIn::build(b, 1)?;
    b.operands(3 + multicast as usize + hint as usize)?;
    let ((to, _), (barrier, _)) = (b.address(0)?, b.address(2)?);
    let multicast = if multicast { Some(b.src::<u16>(3)?) } else { None };
    b.op(Load { to, tile, barrier, multicast })
}

fn store(b: &mut Build<'_, '_>, op: Option<&'static str>) -> Built {
    if b.quals.has("tile::gather4") {
        return b.error("`.tile::gather4` loads; stores take .tile::scatter4");
    }
    let tile = TileIn::build(b, 0)?;
    b.operands(2 + b.quals.has("L2::cache_hint") as usize)?;
    let (from, _) = b.address(1)?;
    b.op(Store { tile, from, op })
}

fn reduce(b: &mut Build<'_, '_>) -> Built {
    if direction(b)? {
        return b.unsupported();
    }
    match b.quals.pick(&["add", "min", "max", "inc", "dec", "and", "or", "xor"]) {
        Some(op) => store(b, Some(op)),
        None => b.error("a tensor reduction needs an operation such as .add"),
    }
}

fn prefetch(b: &mut Build<'_, '_>) -> Built {
    TileIn::build(b, 0)?;
    b.op(Nothing)
}
