//! What names mean: registers, variables, labels, special registers, through nested scopes.

use crate::{
    error::Error,
    exec::{
        program::{Constant, Special},
        regs::{Pred, Slot},
    },
    mem::LOCAL_BASE,
    text::ast::{self, Space},
    types::Ty,
};
use std::collections::HashMap;

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// A register.
    Reg(Ty, Slot),
    /// A predicate register.
    Pred(Pred),
    /// A variable in local memory (also a `.param` variable of a body, or a parameter of a device function): address.
    Local(u64),
    /// A shared variable: offset, and whether from the dynamic part.
    Shared(i64, bool),
    /// A kernel parameter: offset.
    Param(u64),
    /// A module variable: index, and whether it is constant.
    Variable(usize, bool),
    /// A place in the code.
    Label(u32),
    /// A list of places.
    Targets(Vec<u32>),
    /// A function of the module.
    Function(usize),
    /// What a call through a register passes: bytes of each result and each parameter.
    Prototype(Vec<usize>, Vec<usize>),
    /// Functions that a call through a register may reach.
    Callees(Vec<String>),
    /// A special register that stays the same.
    Special(Special),
    /// A special register that changes: `%clock`, `%globaltimer`.
    Changing(Changing),
}

/// Special registers that change while a warp runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Changing {
    Clock,
    ClockHi,
    Clock64,
    Globaltimer,
    GlobaltimerLo,
    GlobaltimerHi,
}

/// One `{ }`.
#[derive(Debug, Default)]
struct Scope {
    parent: Option<usize>,
    names: HashMap<String, Meaning>,
    /// `%r<10>`: prefix, type, count.
    families: Vec<(String, Ty, u32)>,
}

/// All names of a kernel and its functions, and the slots given out.
#[derive(Default)]
pub struct Names {
    scopes: Vec<Scope>,
    /// Rows given out to registers.
    pub rows: u32,
    /// Predicates given out.
    pub preds: u32,
    /// Bytes of local memory of a thread.
    pub local: usize,
    /// Bytes of static shared memory.
    pub shared: usize,
    /// Alignment of dynamic shared memory.
    pub dynamic_align: usize,
    /// Name, width in rows of each register, by slot.
    pub registers: Vec<(Slot, u32, String)>,
    constants: Vec<(Slot, Constant)>,
    interned: HashMap<Constant, Slot>,
}

/// Constant slots are given out from here and moved behind the registers at the end.
pub const CONSTANT_BASE: u32 = 1 << 24;

impl Names {
    /// Opens a scope inside of `parent`.
    pub fn open(&mut self, parent: Option<usize>) -> usize {
        self.scopes.push(Scope { parent, ..Scope::default() });
        self.scopes.len() - 1
    }

    /// Gives a name its meaning in a scope.
    pub fn define(&mut self, scope: usize, name: &str, meaning: Meaning, line: u32) -> Result<(), Error> {
        if self.scopes[scope].names.insert(name.to_string(), meaning).is_some() {
            return Err(Error::new(line, format!("`{name}` is defined twice in one scope")));
        }
        Ok(())
    }

    /// Declares registers.
    pub fn registers(&mut self, scope: usize, ty: Ty, name: &str, count: Option<u32>, line: u32) -> Result<(), Error> {
        match count {
            Some(n) => self.scopes[scope].families.push((name.to_string(), ty, n)),
            None => {
                let meaning = self.new_register(ty, name);
                self.define(scope, name, meaning, line)?;
            }
        }
        Ok(())
    }

    fn new_register(&mut self, ty: Ty, name: &str) -> Meaning {
        if ty == Ty::Pred {
            self.preds += 1;
            return Meaning::Pred(Pred(self.preds - 1));
        }
        let rows = ty.bits().div_ceil(32).max(1);
        let slot = self.scratch(rows);
        self.registers.push((slot, rows, name.to_string()));
        Meaning::Reg(ty, slot)
    }

    /// Rows without a name.
    pub fn scratch(&mut self, rows: u32) -> Slot {
        let slot = Slot(self.rows);
        self.rows += rows;
        slot
    }

    /// Declares a variable in a scope.
    pub fn variable(&mut self, scope: usize, v: &ast::Variable) -> Result<(), Error> {
        let meaning = match v.space {
            Space::Shared => self.shared_variable(v),
            Space::Local | Space::Param => {
                self.local = self.local.next_multiple_of(v.align);
                let address = LOCAL_BASE + self.local as u64;
                self.local = self.local.saturating_add(v.bytes());
                if self.local > 16 << 20 {
                    return Err(Error::new(v.line, format!("`{}` makes local memory exceed 16 MiB", v.name)));
                }
                Meaning::Local(address)
            }
            Space::Global | Space::Const => {
                return Err(Error::new(
                    v.line,
                    format!("`{}`: global and constant variables stand outside of functions", v.name),
                ));
            }
        };
        self.define(scope, &v.name, meaning, v.line)
    }

    /// Lays out a shared variable.
    pub fn shared_variable(&mut self, v: &ast::Variable) -> Meaning {
        if v.count.is_none() || v.external {
            self.dynamic_align = self.dynamic_align.max(v.align);
            return Meaning::Shared(0, true);
        }
        self.shared = self.shared.next_multiple_of(v.align);
        let offset = self.shared as i64;
        self.shared = self.shared.saturating_add(v.bytes());
        Meaning::Shared(offset, false)
    }

    /// What `name` means from inside `scope`; None when nothing.
    pub fn find(&mut self, scope: usize, name: &str) -> Option<Meaning> {
        let mut at = Some(scope);
        while let Some(s) = at {
            if let Some(meaning) = self.scopes[s].names.get(name) {
                return Some(meaning.clone());
            }
            if let Some(ty) = family(&self.scopes[s].families, name) {
                let meaning = self.new_register(ty, name);
                self.scopes[s].names.insert(name.to_string(), meaning.clone());
                return Some(meaning);
            }
            at = self.scopes[s].parent;
        }
        special(name)
    }

    /// A row that holds a constant when a warp starts.
    pub fn constant(&mut self, constant: Constant) -> Slot {
        if let Some(slot) = self.interned.get(&constant) {
            return *slot;
        }
        let end = self.constants.last().map_or(0, |(s, c)| s.0 - CONSTANT_BASE + c.rows());
        let slot = Slot(CONSTANT_BASE + end);
        self.constants.push((slot, constant.clone()));
        self.interned.insert(constant, slot);
        slot
    }

    /// All constants, with slots from [`CONSTANT_BASE`] up.
    pub fn constants(&self) -> &[(Slot, Constant)] {
        &self.constants
    }
}

/// `%r12` of the family `%r<20>`.
fn family(families: &[(String, Ty, u32)], name: &str) -> Option<Ty> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    // `%rd1` is of family `%rd`; `%f1_2`-like names of odd families are found by trying every split.
    (1..=digits).find_map(|n| {
        let (prefix, number) = name.split_at(name.len() - n);
        let number: u32 = number.parse().ok()?;
        if n > 1 && name.as_bytes()[name.len() - n] == b'0' {
            return None;
        }
        families.iter().find(|(p, _, count)| p == prefix && number < *count).map(|(_, ty, _)| *ty)
    })
}

/// Special registers.
fn special(name: &str) -> Option<Meaning> {
    let axis = |s: &str| match s {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let name = name.strip_prefix('%')?;
    if let Some((base, part)) = name.split_once('.') {
        let i = axis(part)?;
        return Some(Meaning::Special(match base {
            "tid" => Special::Tid(i),
            "ntid" => Special::Ntid(i),
            "ctaid" => Special::Ctaid(i),
            "nctaid" => Special::Nctaid(i),
            "clusterid" => Special::Clusterid(i),
            "nclusterid" => Special::Nclusterid(i),
            "cluster_ctaid" => Special::ClusterCtaid(i),
            "cluster_nctaid" => Special::ClusterNctaid(i),
            _ => return None,
        }));
    }
    let changing = match name {
        "clock" => Some(Changing::Clock),
        "clock_hi" => Some(Changing::ClockHi),
        "clock64" => Some(Changing::Clock64),
        "globaltimer" => Some(Changing::Globaltimer),
        "globaltimer_lo" => Some(Changing::GlobaltimerLo),
        "globaltimer_hi" => Some(Changing::GlobaltimerHi),
        _ => None,
    };
    if let Some(changing) = changing {
        return Some(Meaning::Changing(changing));
    }
    Some(Meaning::Special(match name {
        "laneid" => Special::Laneid,
        "warpid" => Special::Warpid,
        "nwarpid" => Special::Nwarpid,
        "smid" => Special::Smid,
        "nsmid" => Special::Nsmid,
        "gridid" => Special::Gridid,
        "lanemask_eq" => Special::LanemaskEq,
        "lanemask_le" => Special::LanemaskLe,
        "lanemask_lt" => Special::LanemaskLt,
        "lanemask_ge" => Special::LanemaskGe,
        "lanemask_gt" => Special::LanemaskGt,
        "cluster_ctarank" => Special::ClusterCtarank,
        "cluster_nctarank" => Special::ClusterNctarank,
        "is_explicit_cluster" => Special::IsExplicitCluster,
        "dynamic_smem_size" => Special::DynamicSmemSize,
        "total_smem_size" => Special::TotalSmemSize,
        "aggr_smem_size" => Special::AggrSmemSize,
        _ => return None,
    }))
}
