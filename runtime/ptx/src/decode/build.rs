//! What a form's builder works with: the instruction's operands as slots, with their types checked.

use super::{
    form::{Built, Quals},
    names::{CONSTANT_BASE, Changing, Meaning, Names},
};
use crate::{
    error::Error,
    exec::{
        lanes::{BoolOp, Compare, Kernel, Map1, Map2, Map3, Tier, lanes},
        op::Op,
        program::Constant,
        regs::{Elem, Pred, PredIn, Slot},
    },
    mem::access::Address,
    text::ast::{self, Operand},
    types::Ty,
};
use std::{collections::HashMap, marker::PhantomData};

/// Where slots finally lie; the first pass over a program has none and only gathers what is used.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Final slot by first-pass slot.
    pub registers: HashMap<Slot, Slot>,
    /// Where the constants start.
    pub constants: u32,
}

/// What the decoder learns about an instruction while it is built.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Registers read, by first-pass slot.
    pub reads: Vec<Slot>,
    /// Registers written.
    pub writes: Vec<Slot>,
    /// Code indices it may jump to.
    pub targets: Vec<u32>,
    /// Whether it never goes on to the next instruction.
    pub ends: bool,
    /// Whether it only copies values, initialised or not.
    pub copies: bool,
    /// Registers that it goes on reading or writing until a later instruction waits for it (wgmma). They share rows with
    /// no others, and strict mode watches over them.
    pub held: Vec<Slot>,
}

/// A device function as a call sees it.
#[derive(Clone, Debug)]
pub struct Callee {
    /// Index of its first instruction; None for one without a body.
    pub start: Option<u32>,
    /// One past its last instruction.
    pub end: u32,
    /// Local addresses and bytes of its parameters.
    pub params: Vec<(u64, usize)>,
    /// Of its return values.
    pub returns: Vec<(u64, usize)>,
    /// Its name.
    pub name: String,
}

/// The view of one instruction that its builder gets.
pub struct Build<'a, 'n> {
    /// As written.
    pub inst: &'a ast::Inst,
    /// Its qualifiers.
    pub quals: Quals,
    /// Instruction set of the hot loops.
    pub tier: Tier,
    /// Facts gathered so far.
    pub facts: Facts,
    pub(super) names: &'n mut Names,
    pub(super) scope: usize,
    pub(super) placement: Option<&'a Placement>,
    pub(super) callees: &'a HashMap<usize, Callee>,
}

impl<'a, 'n> Build<'a, 'n> {
    /// An error at this instruction.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(self.inst.line, message))
    }

    /// The qualifiers are known one by one but not together.
    pub fn unsupported<T>(&self) -> Result<T, Error> {
        self.error(format!("unknown form `{}`: no such combination of qualifiers and types", self.inst.name()))
    }

    /// The i-th type, which must be there.
    pub fn ty(&self, i: usize) -> Result<Ty, Error> {
        match self.quals.ty(i) {
            Some(ty) => Ok(ty),
            None => self.error(format!("`{}` lacks a type", self.inst.name())),
        }
    }

    /// Demands a number of operands.
    pub fn operands(&self, n: usize) -> Result<(), Error> {
        let found = self.inst.operands.len();
        if found == n {
            return Ok(());
        }
        self.error(format!("`{}` takes {n} operands, found {found}", self.inst.name()))
    }

    /// The i-th operand.
    pub fn operand(&self, i: usize) -> Result<&'a Operand, Error> {
        match self.inst.operands.get(i) {
            Some(operand) => Ok(operand),
            None => self.error(format!("`{}` lacks operand {}", self.inst.name(), i + 1)),
        }
    }

    /// What a name means here.
    pub fn meaning(&mut self, name: &str) -> Result<Meaning, Error> {
        match self.names.find(self.scope, name) {
            Some(meaning) => Ok(meaning),
            None => self.error(format!("`{name}` is not declared")),
        }
    }

    fn placed(&self, slot: Slot) -> Slot {
        match self.placement {
            None => slot,
            Some(p) if slot.0 >= CONSTANT_BASE => Slot(slot.0 - CONSTANT_BASE + p.constants),
            // Every slot of the second pass was seen in the first.
            Some(p) => p.registers.get(&slot).copied().unwrap_or(slot),
        }
    }

    // ---- sources ------------------------------------------------------------------------------------------------

    /// Operand `i` as a source of exactly `T`'s width.
    pub fn src<T: Elem>(&mut self, i: usize) -> Result<Slot, Error> {
        let operand = self.operand(i)?;
        self.src_of(operand, T::BITS)
    }

    /// An operand as a source register of `bits` (8 and 16 share a row with 32).
    pub fn src_of(&mut self, operand: &Operand, bits: u32) -> Result<Slot, Error> {
        let (slot, ty) = self.any_src(operand, bits)?;
        if let Some(ty) = ty
            && ty.bits() != bits
            && !(ty.bits() <= 16 && bits <= 16)
        {
            return self.error(format!(
                "`{}`: {} has {} bits where {bits} are wanted",
                self.inst.name(),
                show(operand),
                ty.bits()
            ));
        }
        Ok(slot)
    }

    /// An operand as a source of `bits` or, if a register, of its own width, which is given too. Constants take `bits`.
    pub fn any_src(&mut self, operand: &Operand, bits: u32) -> Result<(Slot, Option<Ty>), Error> {
        let constant = match operand {
            Operand::Name(name) => match self.meaning(name)? {
                Meaning::Reg(ty, slot) => {
                    self.facts.reads.push(slot);
                    return Ok((self.placed(slot), Some(ty)));
                }
                Meaning::Special(special) => {
                    let slot = self.names.constant(Constant::Special(special));
                    return Ok((self.placed(slot), Some(Ty::U32)));
                }
                meaning => match self.symbol(&meaning, 0, bits) {
                    Some(constant) => constant,
                    None => return self.error(format!("`{name}` is no value for `{}`", self.inst.name())),
                },
            },
            Operand::Offset(name, offset) => {
                let meaning = self.meaning(name)?;
                match self.symbol(&meaning, *offset, bits) {
                    Some(constant) => constant,
                    None => return self.error(format!("`{name}` is no variable to take the address of")),
                }
            }
            Operand::Int(v) => bits_constant(*v as u64 as u128, bits),
            Operand::F32(v) if bits == 64 => bits_constant((f32::from_bits(*v) as f64).to_bits() as u128, bits),
            Operand::F32(v) => bits_constant(*v as u128, bits),
            Operand::F64(v) if bits == 32 => bits_constant((f64::from_bits(*v) as f32).to_bits() as u128, bits),
            Operand::F64(v) => bits_constant(*v as u128, bits),
            other => return self.error(format!("`{}`: {} is no register or constant", self.inst.name(), show(other))),
        };
        let slot = self.names.constant(constant);
        Ok((self.placed(slot), None))
    }

    /// A variable's address as a constant of `bits`.
    fn symbol(&mut self, meaning: &Meaning, offset: i64, bits: u32) -> Option<Constant> {
        let wide = bits > 32;
        Some(match meaning {
            Meaning::Local(a) | Meaning::Param(a) => bits_constant(a.wrapping_add(offset as u64) as u128, bits),
            Meaning::Shared(start, dynamic) => {
                Constant::Shared { offset: start.wrapping_add(offset), dynamic: *dynamic, wide }
            }
            Meaning::Variable(index, _) => Constant::Variable { index: *index, offset, wide },
            // A function's "address" is its number, which an indirect call looks up.
            Meaning::Function(index) => bits_constant(*index as u128 + 1, bits),
            _ => return None,
        })
    }

    /// A source of `T`'s width that holds a number.
    pub fn constant<T: Elem>(&mut self, value: u64) -> Slot {
        let slot = self.names.constant(bits_constant(value as u128, T::BITS));
        self.placed(slot)
    }

    // ---- destinations -------------------------------------------------------------------------------------------

    /// Operand `i` as a destination of exactly `T`'s width.
    pub fn dst<T: Elem>(&mut self, i: usize) -> Result<Slot, Error> {
        let operand = self.operand(i)?;
        self.dst_of(operand, T::BITS)
    }

    /// An operand as a destination of `bits`.
    pub fn dst_of(&mut self, operand: &Operand, bits: u32) -> Result<Slot, Error> {
        let (slot, ty) = self.any_dst(operand, bits)?;
        if ty.bits() != bits && !(ty.bits() <= 16 && bits <= 16) {
            return self.error(format!(
                "`{}`: {} has {} bits where {bits} are wanted",
                self.inst.name(),
                show(operand),
                ty.bits()
            ));
        }
        Ok(slot)
    }

    /// An operand as a destination of its own width; `_` takes `bits`.
    pub fn any_dst(&mut self, operand: &Operand, bits: u32) -> Result<(Slot, Ty), Error> {
        match operand {
            Operand::Name(name) if name == "_" => {
                let ty = match bits {
                    128 => Ty::B128,
                    64 => Ty::B64,
                    _ => Ty::B32,
                };
                let name = format!("_{bits}");
                let slot = match self.names.find(0, &name) {
                    Some(Meaning::Reg(_, slot)) => slot,
                    _ => {
                        self.names.registers(0, ty, &name, None, self.inst.line)?;
                        match self.names.find(0, &name) {
                            Some(Meaning::Reg(_, slot)) => slot,
                            _ => return self.error("no sink register"),
                        }
                    }
                };
                self.facts.writes.push(slot);
                let exact = if bits <= 16 { Ty::B16 } else { ty };
                Ok((self.placed(slot), exact))
            }
            Operand::Name(name) => match self.meaning(name)? {
                Meaning::Reg(ty, slot) => {
                    self.facts.writes.push(slot);
                    Ok((self.placed(slot), ty))
                }
                _ => self.error(format!("`{name}` is no register to write to")),
            },
            other => self.error(format!("`{}`: {} is no register to write to", self.inst.name(), show(other))),
        }
    }

    /// A register operand that the instruction holds until it is waited for: its slot. `written` for a result, which is
    /// read only if an operand at run time says so.
    pub fn held(&mut self, operand: &Operand, written: bool) -> Result<Slot, Error> {
        let (reads, writes) = (self.facts.reads.len(), self.facts.writes.len());
        let slot = if written { self.dst_of(operand, 32)? } else { self.src_of(operand, 32)? };
        let new = if written { self.facts.writes.get(writes) } else { self.facts.reads.get(reads) };
        self.facts.held.extend(new.copied());
        Ok(slot)
    }

    // ---- predicates ---------------------------------------------------------------------------------------------

    /// An operand as a predicate source: `%p` or `!%p`.
    pub fn pred_of(&mut self, operand: &Operand) -> Result<PredIn, Error> {
        let (name, negated) = match operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            other => return self.error(format!("{} is no predicate", show(other))),
        };
        match self.meaning(name)? {
            Meaning::Pred(pred) => Ok(PredIn { pred, negated }),
            _ => self.error(format!("`{name}` is no predicate register")),
        }
    }

    /// Operand `i` as a predicate source.
    pub fn pred_in(&mut self, i: usize) -> Result<PredIn, Error> {
        let operand = self.operand(i)?;
        self.pred_of(operand)
    }

    /// An operand as a predicate destination; None for `_`.
    pub fn pred_dst(&mut self, operand: &Operand) -> Result<Option<Pred>, Error> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(None),
            Operand::Name(name) => match self.meaning(name)? {
                Meaning::Pred(p) => Ok(Some(p)),
                _ => self.error(format!("`{name}` is no predicate register")),
            },
            other => self.error(format!("{} is no predicate register", show(other))),
        }
    }

    /// Operand `i` as `p` or `p|q`.
    pub fn pred_pair(&mut self, i: usize) -> Result<(Option<Pred>, Option<Pred>), Error> {
        match self.operand(i)? {
            Operand::Pair(p, q) => Ok((self.pred_dst(p)?, self.pred_dst(q)?)),
            p => Ok((self.pred_dst(p)?, None)),
        }
    }

    /// Operand `i` as `d` or `d|p`: the register operand and the predicate.
    pub fn with_pred(&mut self, i: usize) -> Result<(&'a Operand, Option<Pred>), Error> {
        match self.operand(i)? {
            Operand::Pair(d, p) => Ok((d, self.pred_dst(p)?)),
            d => Ok((d, None)),
        }
    }

    /// A predicate nobody reads.
    pub fn scratch_pred(&mut self) -> Pred {
        self.names.preds += 1;
        Pred(self.names.preds - 1)
    }

    // ---- others -------------------------------------------------------------------------------------------------

    /// Operand `i` as an integer constant.
    pub fn int(&self, i: usize) -> Result<i64, Error> {
        match self.operand(i)? {
            Operand::Int(v) => Ok(*v),
            other => self.error(format!("`{}`: {} is no integer constant", self.inst.name(), show(other))),
        }
    }

    /// The parts of operand `i`, which is `{a, b}` or a single one.
    pub fn parts(&self, i: usize) -> Result<&'a [Operand], Error> {
        Ok(match self.operand(i)? {
            Operand::Vector(parts) => parts,
            single => std::slice::from_ref(single),
        })
    }

    /// Operand `i` as an address, and what its base names if that is a variable.
    pub fn address(&mut self, i: usize) -> Result<(Address, Option<Meaning>), Error> {
        match self.operand(i)? {
            Operand::Address { base: None, offset, .. } => {
                let slot = self.constant::<u64>(*offset as u64);
                Ok((Address { slot, wide: true, offset: 0 }, None))
            }
            Operand::Address { base: Some(base), offset, .. } => {
                let meaning = self.meaning(base)?;
                if let Meaning::Reg(ty, slot) = meaning {
                    self.facts.reads.push(slot);
                    let wide = match ty.bits() {
                        64 => true,
                        32 => false,
                        n => {
                            return self
                                .error(format!("address register `{base}` has {n} bits; 32 or 64 are possible"));
                        }
                    };
                    return Ok((Address { slot: self.placed(slot), wide, offset: *offset }, None));
                }
                match self.symbol(&meaning, *offset, 64) {
                    Some(constant) => {
                        let slot = self.names.constant(constant);
                        Ok((Address { slot: self.placed(slot), wide: true, offset: 0 }, Some(meaning)))
                    }
                    None => self.error(format!("`{base}` is no address")),
                }
            }
            other => self.error(format!("`{}`: {} is no address `[...]`", self.inst.name(), show(other))),
        }
    }

    /// A label's place; the instruction may go there.
    pub fn label(&mut self, name: &str) -> Result<u32, Error> {
        match self.meaning(name)? {
            Meaning::Label(pc) => {
                self.facts.targets.push(pc);
                Ok(pc)
            }
            _ => self.error(format!("`{name}` is no label")),
        }
    }

    /// A function as a call sees it.
    pub fn callee(&self, index: usize) -> Option<&'a Callee> {
        self.callees.get(&index)
    }

    /// All functions that the program holds, by index.
    pub fn callees(&self) -> &'a HashMap<usize, Callee> {
        self.callees
    }

    /// A special register that changes, if operand `i` is one.
    pub fn changing(&mut self, i: usize) -> Result<Option<Changing>, Error> {
        let Operand::Name(name) = self.operand(i)? else { return Ok(None) };
        Ok(match self.names.find(self.scope, name) {
            Some(Meaning::Changing(c)) => Some(c),
            _ => None,
        })
    }

    // ---- whole instructions -------------------------------------------------------------------------------------

    /// A kernel in this program's tier.
    pub fn kernel<K: Kernel>(&self, kernel: K) -> Built {
        Ok(lanes(self.tier, kernel))
    }

    /// `d = f(a)` of operands 0 and 1.
    pub fn map1<A: Elem, R: Elem>(&mut self, f: impl Fn(A) -> R + Send + Sync + 'static) -> Built {
        self.operands(2)?;
        let a = self.src::<A>(1)?;
        let d = self.dst::<R>(0)?;
        self.kernel(Map1 { d, a, f, types: PhantomData })
    }

    /// `d = f(a, b)` of operands 0 to 2.
    pub fn map2<A: Elem, B: Elem, R: Elem>(&mut self, f: impl Fn(A, B) -> R + Send + Sync + 'static) -> Built {
        self.operands(3)?;
        let (a, b) = (self.src::<A>(1)?, self.src::<B>(2)?);
        let d = self.dst::<R>(0)?;
        self.kernel(Map2 { d, a, b, f, types: PhantomData })
    }

    /// `d = f(a, b, c)` of operands 0 to 3.
    pub fn map3<A: Elem, B: Elem, C: Elem, R: Elem>(
        &mut self,
        f: impl Fn(A, B, C) -> R + Send + Sync + 'static,
    ) -> Built {
        self.operands(4)?;
        let (a, b, c) = (self.src::<A>(1)?, self.src::<B>(2)?, self.src::<C>(3)?);
        let d = self.dst::<R>(0)?;
        self.kernel(Map3 { d, a, b, c, f, types: PhantomData })
    }

    /// `p|q = f(a, b) [op c]` of operands 0 to 2 or 3.
    pub fn compare<A: Elem>(&mut self, f: impl Fn(A, A) -> bool + Send + Sync + 'static) -> Built {
        let join = match self.quals.pick(&["and", "or", "xor"]) {
            Some("and") => Some(BoolOp::And),
            Some("or") => Some(BoolOp::Or),
            Some(_) => Some(BoolOp::Xor),
            None => None,
        };
        self.operands(if join.is_some() { 4 } else { 3 })?;
        let (p, q) = self.pred_pair(0)?;
        let (a, b) = (self.src::<A>(1)?, self.src::<A>(2)?);
        let with = match join {
            Some(op) => Some((op, self.pred_in(3)?)),
            None => None,
        };
        let p = match p {
            Some(p) => p,
            None => self.scratch_pred(),
        };
        self.kernel(Compare { p, q, a, b, with, f, types: PhantomData })
    }

    /// An instruction that is no lane-wise kernel.
    pub fn op(&self, op: impl Op + 'static) -> Built {
        Ok(Box::new(op))
    }
}

/// A constant row of `bits`.
fn bits_constant(value: u128, bits: u32) -> Constant {
    match bits {
        128 => Constant::Bits128(value),
        64 => Constant::Bits64(value as u64),
        32 => Constant::Bits32(value as u32),
        16 => Constant::Bits32(value as u32 & 0xffff),
        _ => Constant::Bits32(value as u32 & 0xff),
    }
}

/// An operand as it reads in a message.
pub fn show(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => format!("`{name}`"),
        Operand::Int(v) => format!("`{v}`"),
        Operand::F32(_) | Operand::F64(_) => "a floating-point constant".into(),
        Operand::Not(name) => format!("`!{name}`"),
        Operand::Pair(..) => "a pair `a|b`".into(),
        Operand::Vector(parts) => format!("a vector of {}", parts.len()),
        Operand::Address { .. } => "an address `[...]`".into(),
        Operand::Offset(name, offset) => format!("`{name}+{offset}`"),
        Operand::List(_) => "a list `(...)`".into(),
    }
}
