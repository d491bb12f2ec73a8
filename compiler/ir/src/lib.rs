//! The tile IR: a small structured SSA between the language and the lowerings.
//!
//! A [`Kernel`] is a [`Region`] of [`Op`]s over typed [`Value`]s; `for`, `while` and `if` carry regions. The op table
//! ([`ops`]) says what each op is called, what it means and which type rule it obeys. Text
//! ([`print`](mod@print), [`parse`]) is exact both ways. The oracle ([`oracle`]) gives every op its meaning;
//! `passes` rewrite kernels without changing it.

pub mod abi;
pub mod attr;
pub mod builder;
pub mod elem;
pub mod facts;
pub mod gpu;
pub mod kernel;
pub mod layout;
pub mod linear;
pub mod loc;
pub mod ops;
pub mod oracle;
pub mod parse;
pub mod passes;
pub mod print;
pub mod protocol;
mod rules;
pub mod scalar;
#[cfg(feature = "testing")]
pub mod testing;
pub mod types;
pub mod verify;

pub use attr::{AtomicKind, Attr, Attrs, Key, MemOrder, Precision, ReduceKind};
pub use builder::Builder;
pub use elem::{Class, Elem, Quant};
pub use kernel::{Kernel, MOST_NESTED, Op, Region, Value};
pub use loc::Loc;
pub use ops::{Effect, Family, OpInfo, OpKind};
pub use scalar::Scalar;
pub use types::{PackedType, QTileType, TileType, Type, ViewFacts, ViewType};
pub use verify::VerifyError;
