//! Where each value is, checked.

use super::{image, is_elementwise, preimage};
use crate::{
    attr::Key,
    kernel::{Kernel, Op, Region, Value},
    linear::{TileLayout, pieces, tile::extents},
    ops::OpKind,
    types::Type,
    verify::VerifyError,
};
use std::collections::HashMap;

/// The layouts of a kernel's tiles.
#[derive(Clone, Debug)]
pub struct Layouts {
    at: HashMap<Value, TileLayout>,
}

impl Layouts {
    /// Reads and checks the attributes that [`super::assign`] writes, or somebody in text.
    ///
    /// # Errors
    /// The first op whose layouts break the rule of the [module](super).
    pub fn of(k: &Kernel) -> Result<Layouts, VerifyError> {
        let fault = |op: &str, loc, message| VerifyError { kernel: k.name.clone(), op: op.into(), loc, message };
        let warps = k.warps();
        if !warps.is_power_of_two() || warps > super::MAX_WARPS {
            let message = format!("{warps} warps: a power of two of at most {} is wanted", super::MAX_WARPS);
            return Err(fault("kernel", crate::Loc::unknown(), message));
        }
        let mut reader = Reader { k, warp_bits: warps.trailing_zeros(), at: HashMap::new() };
        reader.singles();
        reader
            .region(&k.body)
            .map_err(|(op, message)| fault(op.kind.name(), op.loc.clone(), format!("layouts: {message}")))?;
        Ok(Layouts { at: reader.at })
    }

    /// Where a tile is. Every tile of a kernel has a layout.
    pub fn get(&self, v: Value) -> Option<&TileLayout> {
        self.at.get(&v)
    }
}

struct Reader<'k> {
    k: &'k Kernel,
    warp_bits: u32,
    at: HashMap<Value, TileLayout>,
}

type Fault<'k> = (&'k Op, String);

impl<'k> Reader<'k> {
    /// Single elements are everywhere.
    fn singles(&mut self) {
        for (i, t) in self.k.types.iter().enumerate() {
            if let Type::Tile(t) = t
                && t.len() == 1
            {
                self.at.insert(Value(i as u32), TileLayout::everywhere(&t.shape, self.warp_bits));
            }
        }
    }

    fn region(&mut self, r: &'k Region) -> Result<(), Fault<'k>> {
        r.ops.iter().try_for_each(|op| {
            self.results(op).map_err(|m| (op, m))?;
            match op.kind {
                OpKind::ReduceWith | OpKind::ScanWith => {}
                OpKind::For => self.copy(&op.results, &op.regions[0].args[1..]),
                OpKind::While => op.regions.iter().for_each(|r| self.copy(&op.results, &r.args)),
                _ => {}
            }
            if !matches!(op.kind, OpKind::ReduceWith | OpKind::ScanWith) {
                op.regions.iter().try_for_each(|r| self.region(r))?;
            }
            self.rule(op).map_err(|m| (op, m))
        })
    }

    fn copy(&mut self, from: &[Value], to: &[Value]) {
        for (a, b) in from.iter().zip(to) {
            if let Some(l) = self.at.get(a).cloned() {
                self.at.insert(*b, l);
            }
        }
    }

    /// Takes the attribute in.
    fn results(&mut self, op: &Op) -> Result<(), String> {
        let given = op.attrs.layouts(Key::Layouts).unwrap_or(&[]);
        for (i, v) in op.results.iter().enumerate() {
            let Type::Tile(t) = self.k.ty(*v) else { continue };
            if t.len() == 1 {
                continue;
            }
            let Some(Some(l)) = given.get(i) else { return Err(format!("result {i} has none")) };
            let pieces = pieces(&t.shape);
            if l.0.len() != pieces.len() {
                return Err(format!("result {i}, `{t}`, has {} pieces, found {} layouts", pieces.len(), l.0.len()));
            }
            for (p, l) in pieces.iter().zip(&l.0) {
                let n: usize = extents(p).iter().product();
                if 1 << l.bits() != n || l.warp().len() != self.warp_bits as usize {
                    return Err(format!(
                        "a piece of {n} elements on {} warps has the layout `{l}`",
                        1 << self.warp_bits
                    ));
                }
            }
            self.at.insert(*v, l.clone());
        }
        Ok(())
    }

    /// The layout of a value of more than one element.
    fn many(&self, v: Value) -> Option<&TileLayout> {
        self.k.ty(v).as_tile().filter(|t| t.len() > 1).and(self.at.get(&v))
    }

    fn same<'v>(&self, values: impl IntoIterator<Item = &'v Value>) -> Result<(), String> {
        let mut first: Option<(&Value, &TileLayout)> = None;
        for v in values {
            let Some(l) = self.many(*v) else { continue };
            match first {
                Some((w, m)) if m != l => {
                    return Err(format!("%{} is at `{m}` and %{} at `{l}`: a conversion is missing", w.0, v.0));
                }
                _ => first = Some((v, l)),
            }
        }
        Ok(())
    }

    fn pairs(&self, a: &[Value], b: &[Value]) -> Result<(), String> {
        a.iter().zip(b).try_for_each(|(a, b)| self.same([a, b]))
    }

    fn rule(&self, op: &Op) -> Result<(), String> {
        match op.kind {
            OpKind::For => {
                self.pairs(&op.results, &op.operands[3..])?;
                self.pairs(&op.results, &op.regions[0].yields)
            }
            OpKind::While => {
                self.pairs(&op.results, &op.operands)?;
                self.pairs(&op.results, &op.regions[1].yields)
            }
            OpKind::If => op.regions.iter().try_for_each(|r| self.pairs(&op.results, &r.yields)),
            OpKind::Gather
            | OpKind::Scatter
            | OpKind::Atomic
            | OpKind::AtomicCas
            | OpKind::PackedGather
            | OpKind::Scan
            | OpKind::ScanWith => self.same(op.operands.iter().chain(&op.results)),
            OpKind::Broadcast | OpKind::Permute | OpKind::Reshape | OpKind::Reduce | OpKind::ReduceWith => {
                self.stays(op)
            }
            kind if is_elementwise(kind) => self.same(op.operands.iter().chain(&op.results)),
            _ => Ok(()),
        }
    }

    /// A shape op or a reduction moves nothing.
    fn stays(&self, op: &Op) -> Result<(), String> {
        if op.kind == OpKind::ReduceWith {
            self.same(&op.operands)?;
        }
        if matches!(op.kind, OpKind::Reduce | OpKind::ReduceWith)
            && self.many(op.operands[0]).is_some_and(|l| !l.0.iter().all(crate::linear::Linear::is_permutation))
        {
            return Err("a reduction wants hardware bits that are index bits".into());
        }
        for r in &op.results {
            let (Some(from), Some(to)) = (self.k.ty(op.operands[0]).as_tile(), self.k.ty(*r).as_tile()) else {
                continue;
            };
            let (Some(a), Some(b)) = (self.at.get(&op.operands[0]), self.at.get(r)) else { continue };
            if from.len() == 1 || to.len() == 1 {
                continue;
            }
            let fits = match op.kind {
                OpKind::Broadcast => preimage(op, from, to, b).is_none_or(|l| l == *a),
                _ => image(op, from, to, a).is_none_or(|l| l == *b),
            };
            if !fits {
                return Err(format!("%{} at `{a}` and %{} at `{b}` do not fit", op.operands[0].0, r.0));
            }
        }
        Ok(())
    }
}
