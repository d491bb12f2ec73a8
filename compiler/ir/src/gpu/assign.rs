//! The assignment of layouts. Tiles that must be together form classes; a class takes the layout that its products or
//! its memory accesses want, or the image of a neighbour's along a shape op, or row-major blocks. Where that leaves a
//! shape op between two layouts that do not fit, a conversion goes in.

use super::{Layouts, classes::Classes, image, is_elementwise, preimage, remat, warps};
use crate::{
    attr::{Attr, Attrs, Key},
    facts::Facts,
    kernel::{Kernel, Op, Region, Value},
    linear::{TileLayout, blocked::Blocking},
    ops::OpKind,
    types::{TileType, Type},
    verify::VerifyError,
};
use std::collections::HashMap;

/// Assigns layouts to every tile of a verified kernel. Where its number of warps is not set, one is chosen that its tiles
/// keep busy and in whose registers they fit. Layouts there were are forgotten.
///
/// # Errors
/// The result does not verify: a defect.
pub fn assign(k: &mut Kernel) -> Result<(), VerifyError> {
    if !k.attrs.has(Key::Warps) {
        *k = warps::fitting(k)?;
        return Ok(());
    }
    remat::per_use(k);
    let mut chosen = Choice::of(k).made();
    let mut body = std::mem::take(&mut k.body);
    settle(k, &mut body, &mut chosen);
    k.body = body;
    k.verify()?;
    Layouts::of(k).map(|_| ())
}

/// What a class wants.
#[derive(Clone, Debug, Default)]
struct Wish {
    /// It holds the result of a product.
    product: bool,
    /// Neighbours along the last axis that the accesses allow in one instruction; the least of all.
    contiguous: Option<usize>,
    /// It is reduced or scanned along the last axis.
    reduced: bool,
    /// It holds the values of a rectangle of packed weights.
    dequantised: bool,
}

impl Wish {
    /// An access allows so many neighbours in one instruction.
    fn access(&mut self, neighbours: usize) {
        self.contiguous = Some(self.contiguous.map_or(neighbours, |n| n.min(neighbours)));
    }
}

struct Choice<'k> {
    k: &'k Kernel,
    classes: Classes,
    warp_bits: u32,
    wishes: HashMap<Value, Wish>,
    layouts: HashMap<Value, TileLayout>,
    /// Ops between classes, in order.
    links: Vec<&'k Op>,
}

impl<'k> Choice<'k> {
    fn of(k: &'k Kernel) -> Choice<'k> {
        let facts = Facts::of(k);
        let warp_bits = k.warps().trailing_zeros();
        let mut c = Choice {
            k,
            classes: Classes::of(k),
            warp_bits,
            wishes: HashMap::new(),
            layouts: HashMap::new(),
            links: vec![],
        };
        k.body.walk(&mut |op| c.look_at(op, &facts));
        c
    }

    fn tile(&self, v: Value) -> Option<&'k TileType> {
        self.k.ty(v).as_tile()
    }

    fn wish(&mut self, v: Value) -> &mut Wish {
        self.wishes.entry(self.classes.root(v)).or_default()
    }

    fn look_at(&mut self, op: &'k Op, facts: &Facts) {
        match op.kind {
            OpKind::Dot | OpKind::DotGrouped => self.wish(op.results[0]).product = true,
            OpKind::Dequant => self.wish(op.results[0]).dequantised = true,
            OpKind::Load | OpKind::Store | OpKind::Gather | OpKind::Scatter => {
                let v = op.results.first().copied().or(op.operands.get(self.value_operand(op)).copied());
                let unit = matches!(self.k.ty(op.operands[0]), Type::View(v) if v.facts.unit);
                if let Some((v, t)) = v.and_then(|v| Some((v, self.tile(v)?))) {
                    let bytes = t.elem.bytes();
                    let aligned = (facts.alignment(op) / bytes).max(1);
                    // Accesses of lone elements along a row still want the rows along lanes.
                    let neighbours = if unit { aligned.min(16 / bytes.min(16)) } else { 1 };
                    self.wish(v).access(neighbours);
                }
            }
            // Weights are read one by one: neighbours by lanes that are neighbours.
            OpKind::PackedGather => self.wish(op.results[0]).access(1),
            OpKind::Reduce | OpKind::ReduceWith | OpKind::Scan | OpKind::ScanWith => {
                let last = self.tile(op.operands[0]).map(|t| t.rank() as i64 - 1);
                if op.attrs.int(Key::Axis) == last {
                    self.wish(op.operands[0]).reduced = true;
                }
            }
            _ => {}
        }
        if matches!(
            op.kind,
            OpKind::Broadcast | OpKind::Reshape | OpKind::Permute | OpKind::Reduce | OpKind::ReduceWith
        ) {
            self.links.push(op);
        }
    }

    /// Which operand of a store or scatter is the tile stored.
    fn value_operand(&self, op: &Op) -> usize {
        match self.k.ty(op.operands[0]) {
            Type::View(v) => 1 + v.rank,
            _ => 0,
        }
    }

    /// A layout for every class.
    fn made(mut self) -> HashMap<Value, TileLayout> {
        let roots: Vec<(Value, &TileType)> = (0..self.k.types.len() as u32)
            .map(Value)
            .filter(|v| self.classes.root(*v) == *v)
            .filter_map(|v| Some((v, self.tile(v)?)))
            .collect();
        // What is small is everywhere; then what products and accesses want; then neighbours; then the rest, one by one.
        for (v, t) in &roots {
            let layout = if t.len() == 1 {
                Some(TileLayout::everywhere(&t.shape, self.warp_bits))
            } else {
                self.wishes.get(v).and_then(|w| self.anchored(t, w))
            };
            if let Some(l) = layout {
                self.layouts.insert(*v, l);
            }
        }
        self.spread();
        for (v, t) in &roots {
            if !self.layouts.contains_key(v) {
                let default = self.blocked(t, (16 / t.elem.bytes().min(16)).min(4));
                self.layouts.insert(*v, default);
                self.spread();
            }
        }
        let all = (0..self.k.types.len() as u32).map(Value);
        all.filter_map(|v| Some((v, self.layouts.get(&self.classes.root(v))?.clone()))).collect()
    }

    fn blocked(&self, t: &TileType, contiguous: usize) -> TileLayout {
        TileLayout::blocked(&t.shape, &Blocking::row_major(t.rank(), contiguous, self.warp_bits))
    }

    fn anchored(&self, t: &TileType, w: &Wish) -> Option<TileLayout> {
        if w.product {
            return Some(TileLayout::product(&t.shape, self.warp_bits));
        }
        if w.dequantised {
            return Some(TileLayout::blocked(&t.shape, &Blocking::runs_of_k(self.warp_bits)));
        }
        // Sums begin with groups of four neighbours, wherever those are (see the lowering of reductions): in one thread they
        // cost least.
        let contiguous = match (w.contiguous, w.reduced) {
            (Some(n), true) => n.min(4),
            (None, true) => 4,
            (Some(n), false) => n,
            (None, false) => return None,
        };
        Some(self.blocked(t, contiguous))
    }

    /// Hands layouts on along shape ops until nothing changes.
    fn spread(&mut self) {
        loop {
            let before = self.layouts.len();
            for op in self.links.clone() {
                let (from, to) = (op.operands[0], op.results[0]);
                let (Some(a), Some(b)) = (self.tile(from), self.tile(to)) else { continue };
                let (x, y) = (self.classes.root(from), self.classes.root(to));
                match (self.layouts.get(&x), self.layouts.get(&y)) {
                    (Some(l), None) => {
                        if let Some(l) = image(op, a, b, l) {
                            self.layouts.insert(y, l);
                        }
                    }
                    (None, Some(l)) => {
                        if let Some(l) = preimage(op, a, b, l) {
                            self.layouts.insert(x, l);
                        }
                    }
                    _ => {}
                }
            }
            if self.layouts.len() == before {
                return;
            }
        }
    }
}

/// Writes the choice into the ops and converts where a shape op's operand and result do not fit.
fn settle(k: &mut Kernel, r: &mut Region, at: &mut HashMap<Value, TileLayout>) {
    let mut out = vec![];
    for mut op in std::mem::take(&mut r.ops) {
        op.attrs.remove(Key::Layouts);
        for r in &mut op.regions {
            // Combiners work on scalars.
            if !matches!(op.kind, OpKind::ReduceWith | OpKind::ScanWith) {
                settle(k, r, at);
            }
        }
        let mut after = None;
        match op.kind {
            OpKind::Broadcast => {
                let target = at.get(&op.results[0]).cloned();
                let wanted =
                    target.and_then(|t| preimage(&op, &tile(k, op.operands[0])?, &tile(k, op.results[0])?, &t));
                if let Some(l) = wanted
                    && at.get(&op.operands[0]) != Some(&l)
                {
                    let source = op.operands[0];
                    op.operands[0] = convert(k, at, &mut out, source, l, &op);
                }
            }
            OpKind::Permute | OpKind::Reshape | OpKind::Reduce => {
                after = moved(k, at, &mut op);
            }
            OpKind::ReduceWith => {
                // All results are alike, so that one test does; each is converted on its own.
                let natural = at
                    .get(&op.operands[0])
                    .cloned()
                    .and_then(|s| image(&op, &tile(k, op.operands[0])?, &tile(k, op.results[0])?, &s));
                if let Some(l) = natural
                    && at.get(&op.results[0]) != Some(&l)
                {
                    let results = op.results.clone();
                    let mut conversions = vec![];
                    for (i, v) in results.into_iter().enumerate() {
                        let fresh = k.value(k.ty(v).clone());
                        at.insert(fresh, l.clone());
                        op.results[i] = fresh;
                        conversions.push(conversion(fresh, v, &op));
                    }
                    annotate(k, at, &mut op);
                    out.push(op);
                    for mut c in conversions {
                        annotate(k, at, &mut c);
                        out.push(c);
                    }
                    continue;
                }
            }
            _ => {}
        }
        annotate(k, at, &mut op);
        out.push(op);
        if let Some(mut c) = after {
            annotate(k, at, &mut c);
            out.push(c);
        }
    }
    r.ops = out;
}

fn tile(k: &Kernel, v: Value) -> Option<TileType> {
    k.ty(v).as_tile().cloned()
}

/// Lets the op make its result where nothing moves, and gives the conversion to where it is wanted, if that is elsewhere.
fn moved(k: &mut Kernel, at: &mut HashMap<Value, TileLayout>, op: &mut Op) -> Option<Op> {
    let (from, to) = (tile(k, op.operands[0])?, tile(k, op.results[0])?);
    let natural = image(op, &from, &to, at.get(&op.operands[0])?)?;
    if at.get(&op.results[0]) == Some(&natural) {
        return None;
    }
    let (wanted, fresh) = (op.results[0], k.value(to.into()));
    at.insert(fresh, natural);
    op.results[0] = fresh;
    Some(conversion(fresh, wanted, op))
}

fn conversion(from: Value, to: Value, near: &Op) -> Op {
    Op {
        kind: OpKind::ConvertLayout,
        operands: vec![from],
        results: vec![to],
        attrs: Attrs::new(),
        regions: vec![],
        loc: near.loc.clone(),
    }
}

/// A new value: `v` in another layout.
fn convert(
    k: &mut Kernel,
    at: &mut HashMap<Value, TileLayout>,
    out: &mut Vec<Op>,
    v: Value,
    layout: TileLayout,
    near: &Op,
) -> Value {
    let fresh = k.value(k.ty(v).clone());
    at.insert(fresh, layout);
    let mut op = conversion(v, fresh, near);
    annotate(k, at, &mut op);
    out.push(op);
    fresh
}

/// The attribute of an op: the layouts of its results that are tiles of more than one element.
fn annotate(k: &Kernel, at: &HashMap<Value, TileLayout>, op: &mut Op) {
    let many = |v: &Value| matches!(k.ty(*v), Type::Tile(t) if t.len() > 1);
    if op.results.iter().any(many) {
        let all = op.results.iter().map(|v| at.get(v).filter(|_| many(v)).cloned()).collect();
        op.attrs.set(Key::Layouts, Attr::Layouts(all));
    }
    debug_assert!(!is_elementwise(op.kind) || op.results.len() == 1);
}
