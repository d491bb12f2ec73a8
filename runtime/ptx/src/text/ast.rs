//! The syntax tree of a PTX module. It keeps names as written; [`crate::decode`] gives them meaning.

use crate::types::Ty;
use std::collections::HashMap;

/// A whole module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// `.version`: major and minor.
    pub version: (u32, u32),
    /// `.target`, in order: the architecture first.
    pub target: Vec<String>,
    /// `.address_size`: 32 or 64.
    pub address_size: u32,
    /// Variables at module scope.
    pub variables: Vec<Variable>,
    /// Kernels and device functions, declarations too.
    pub functions: Vec<Function>,
    /// `.file`: number to path.
    pub files: HashMap<u32, String>,
}

/// A state space in which a variable can live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// One element of an initialiser.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// An integer or bit pattern; stored in the variable's element type.
    Int(i64),
    /// A float given as f32 bits.
    F32(u32),
    /// A float given as f64 bits.
    F64(u64),
    /// The address of a variable or function plus an offset; `generic(...)` gives the generic address.
    Address {
        /// Whose address.
        symbol: String,
        /// Bytes to add.
        offset: i64,
        /// Whether as a generic address.
        generic: bool,
    },
}

/// A variable or a parameter.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Element type.
    pub ty: Ty,
    /// Elements of a vector type (`.v2`, `.v4`), else 1.
    pub vector: usize,
    /// `.align` in bytes, or the element's size.
    pub align: usize,
    /// Array extents multiplied; `None` for `[]` (dynamic shared memory).
    pub count: Option<usize>,
    /// Initialiser, flattened.
    pub init: Vec<Init>,
    /// `.extern`.
    pub external: bool,
    /// Line of the declaration.
    pub line: u32,
}

impl Variable {
    /// Size in bytes; 0 for an unsized array.
    pub fn bytes(&self) -> usize {
        self.ty.bytes().saturating_mul(self.vector).saturating_mul(self.count.unwrap_or(0))
    }
}

/// A kernel (`.entry`) or device function (`.func`).
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// `.entry`?
    pub entry: bool,
    /// Return parameters of a `.func`.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// Directives after the header: name and values (`.maxntid 256, 1, 1`).
    pub directives: Vec<(String, Vec<u64>)>,
    /// The body, absent in a declaration.
    pub body: Option<Vec<Stmt>>,
    /// Line of the header.
    pub line: u32,
}

/// A place in the source that the PTX was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loc {
    /// A key of [`Module::files`].
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// A statement in a body.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// `name:`
    Label(String, u32),
    /// `.reg .b32 %r<10>;` or `.reg .b32 a, b;`: names with a count where one is given.
    Regs {
        /// Type of all of them.
        ty: Ty,
        /// `.v2`/`.v4`, else 1.
        vector: usize,
        /// Names; `Some(n)` for the family name0..name(n-1).
        names: Vec<(String, Option<u32>)>,
        /// Line.
        line: u32,
    },
    /// A variable of this scope.
    Variable(Variable),
    /// `{ ... }`
    Scope(Vec<Stmt>),
    /// `name: .branchtargets a, b;`
    Targets {
        /// The list's label.
        name: String,
        /// Labels in order.
        labels: Vec<String>,
    },
    /// `name: .callprototype (returns) _ (params);`
    Prototype {
        /// Its label.
        name: String,
        /// Return parameters.
        returns: Vec<Variable>,
        /// Parameters.
        params: Vec<Variable>,
    },
    /// `name: .calltargets f, g;`
    Callees {
        /// Its label.
        name: String,
        /// Functions that a call may reach.
        functions: Vec<String>,
    },
    /// An instruction.
    Inst(Inst),
}

/// An instruction as written.
#[derive(Clone, Debug)]
pub struct Inst {
    /// Guard predicate and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// The part before the first dot.
    pub opcode: String,
    /// What follows, without dots.
    pub quals: Vec<String>,
    /// Operands in order.
    pub operands: Vec<Operand>,
    /// PTX line.
    pub line: u32,
    /// Source place from `.loc`.
    pub loc: Option<Loc>,
    /// Of a load the bytes whose values matter, from the pragma `used_bytes_mask` before it.
    pub used_bytes: Option<u32>,
}

impl Inst {
    /// The instruction's full name, `ld.global.b32`.
    pub fn name(&self) -> String {
        let mut name = self.opcode.clone();
        for q in &self.quals {
            name.push('.');
            name.push_str(q);
        }
        name
    }
}

/// An operand as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, special register (`%tid.x`), label or symbol.
    Name(String),
    /// An integer (two's complement).
    Int(i64),
    /// f32 bits.
    F32(u32),
    /// f64 bits.
    F64(u64),
    /// `!p`
    Not(String),
    /// `a|b`
    Pair(Box<Operand>, Box<Operand>),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `[base+offset]`; a bare integer address has no base.
    Address {
        /// Register or symbol.
        base: Option<String>,
        /// Bytes.
        offset: i64,
        /// `{x, y}` of a tensor copy, and anything else listed after a comma.
        rest: Vec<Operand>,
    },
    /// `symbol+4`
    Offset(String, i64),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
}
