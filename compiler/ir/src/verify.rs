//! The verifier: every value defined once and used where it is visible, every op by its type rule.

use crate::{
    kernel::{Kernel, MOST_NESTED, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
    types::Type,
};

/// Axes of a tile or view, at most: code for loads and stores has some for each.
const MOST_AXES: usize = 8;

/// Why a kernel is not well-formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{loc}: `{op}` in kernel `{kernel}`: {message}")]
pub struct VerifyError {
    /// Kernel.
    pub kernel: String,
    /// Name of the op.
    pub op: String,
    /// The user's line.
    pub loc: Loc,
    /// What is wrong.
    pub message: String,
}

impl Kernel {
    /// Checks the whole kernel; the first fault is the error.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let mut v = Verifier {
            kernel: self,
            visible: vec![false; self.types.len()],
            defined: vec![false; self.types.len()],
            depth: 0,
        };
        let top = |message: String| VerifyError {
            kernel: self.name.clone(),
            op: "kernel".into(),
            loc: Loc::unknown(),
            message,
        };
        if self.params.len() != self.body.args.len() {
            return Err(top(format!("{} parameter names for {} parameters", self.params.len(), self.body.args.len())));
        }
        if !self.body.yields.is_empty() {
            return Err(top("a kernel yields nothing".into()));
        }
        for (i, t) in self.types.iter().enumerate() {
            let (shape, rank) = match t {
                Type::Tile(t) => (&t.shape[..], t.rank()),
                Type::QTile(q) => (&[q.k, q.n][..], 2),
                Type::View(v) => (&[][..], v.rank),
                Type::Packed(_) => continue,
            };
            let wrong = if rank > MOST_AXES {
                "more than 8 axes"
            } else if shape.contains(&0) {
                "an empty shape"
            } else if shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).is_none_or(|n| n > i32::MAX as usize) {
                "more than 2^31 - 1 elements"
            } else {
                continue;
            };
            let mut at = None;
            self.body.walk(&mut |op| {
                let args = op.regions.iter().flat_map(|r| &r.args);
                if op.results.iter().chain(args).any(|v| v.0 as usize == i) {
                    at = Some((op.kind.name(), op.loc.clone()));
                }
            });
            let message = format!("value %{i} has {wrong}: `{t}`");
            return Err(match at {
                Some((op, loc)) => VerifyError { kernel: self.name.clone(), op: op.into(), loc, message },
                None => top(message),
            });
        }
        v.region(&self.body).map_err(|(op, message)| match op {
            Some((kind, loc)) => VerifyError { kernel: self.name.clone(), op: kind.name().into(), loc, message },
            None => top(message),
        })
    }
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    visible: Vec<bool>,
    defined: Vec<bool>,
    /// Regions around the op at hand.
    depth: usize,
}

type Fault = (Option<(OpKind, Loc)>, String);

impl Verifier<'_> {
    fn define(&mut self, v: Value) -> Result<(), String> {
        let i = v.0 as usize;
        if i >= self.defined.len() {
            return Err(format!("value %{i} has no type"));
        }
        if std::mem::replace(&mut self.defined[i], true) {
            return Err(format!("value %{i} is defined twice"));
        }
        self.visible[i] = true;
        Ok(())
    }

    fn use_of(&self, v: Value) -> Result<(), String> {
        match self.visible.get(v.0 as usize) {
            Some(true) => Ok(()),
            _ => Err(format!("value %{} is used where it is not visible", v.0)),
        }
    }

    fn region(&mut self, r: &Region) -> Result<(), Fault> {
        self.depth += 1;
        for &a in &r.args {
            self.define(a).map_err(|m| (None, m))?;
        }
        for op in &r.ops {
            self.op(op)?;
        }
        for &y in &r.yields {
            self.use_of(y).map_err(|m| (None, m))?;
        }
        self.depth -= 1;
        // What the region defined ends with it.
        for &v in r.args.iter().chain(r.ops.iter().flat_map(|op| &op.results)) {
            self.visible[v.0 as usize] = false;
        }
        Ok(())
    }

    fn op(&mut self, op: &Op) -> Result<(), Fault> {
        let fault = |m| (Some((op.kind, op.loc.clone())), m);
        for &v in &op.operands {
            self.use_of(v).map_err(fault)?;
        }
        let regions = match op.kind {
            OpKind::For | OpKind::ReduceWith | OpKind::ScanWith => 1,
            OpKind::While | OpKind::If => 2,
            _ => 0,
        };
        if op.regions.len() != regions {
            return Err(fault(format!("has {regions} regions, found {}", op.regions.len())));
        }
        if !op.regions.is_empty() && self.depth > MOST_NESTED {
            return Err(fault(format!("regions nest deeper than {MOST_NESTED}")));
        }
        for r in &op.regions {
            self.region(r).map_err(|(at, m)| (at.or_else(|| Some((op.kind, op.loc.clone()))), m))?;
            if matches!(op.kind, OpKind::ReduceWith | OpKind::ScanWith)
                && let Some(o) = r.ops.iter().find(|o| !in_combiners(o.kind))
            {
                let name = o.kind.info().name;
                return Err(fault(format!("a combiner holds constants and elementwise ops only, found `{name}`")));
            }
        }
        for &v in &op.results {
            self.define(v).map_err(fault)?;
        }
        (op.kind.info().check)(self.kernel, op).map_err(fault)
    }
}

/// Whether combiners of reductions and scans may hold such an op: it is computed by one thread from scalars.
fn in_combiners(kind: OpKind) -> bool {
    use OpKind::{Const, Dim, MultipleOf, NumPrograms, PackedDim, ProgramId};
    kind.is_elementwise() || matches!(kind, Const | Dim | MultipleOf | NumPrograms | PackedDim | ProgramId)
}
