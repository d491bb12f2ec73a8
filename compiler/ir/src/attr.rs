//! Attributes: the build-time part of an op.

use crate::{linear::TileLayout, scalar::Scalar};
use std::fmt;

macro_rules! keys {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// The name of an attribute.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Key { $(#[doc = $doc] $variant,)* }
        impl Key {
            /// The name in text.
            pub const fn name(self) -> &'static str { match self { $(Key::$variant => $name,)* } }
            /// The key of that name.
            pub fn from_name(name: &str) -> Option<Key> { match name { $($name => Some(Key::$variant),)* _ => None } }
        }
    };
}

keys! {
    Axis "axis" "Axis of a tile, a view or the grid.";
    Bins "bins" "Number of histogram bins.";
    Descending "descending" "Sort from the largest.";
    Fast "fast" "Flag: an approximate form is allowed.";
    K "k" "How many of the largest (top-k).";
    Kind "kind" "Which reduction, scan or atomic: a `Sym`.";
    Layouts "layouts" "Where the results' elements are in a GPU program's registers: see [`crate::linear`].";
    Masked "masked" "Flag: the last operand is a mask.";
    Message "message" "Text of an assertion or a print.";
    N "n" "A divisor.";
    Order "order" "Memory order of an atomic: a `Sym`.";
    Pad "pad" "Value of lanes that lie outside the view (default 0).";
    Perm "perm" "Permutation: result axis i is operand axis `perm[i]`.";
    Precision "precision" "Precision of an f32 dot: `ieee`, `tf32`, `tf32x3`.";
    Reverse "reverse" "Flag: scan from the end.";
    Size "size" "Extent of a slice.";
    Start "start" "First index of a slice.";
    Value "value" "The constant.";
    Warps "warps" "Warps of a GPU program: of a kernel.";
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    /// Present or absent.
    Flag,
    /// A number.
    Int(i64),
    /// Several numbers.
    Ints(Vec<i64>),
    /// An element value.
    Scalar(Scalar),
    /// One of a fixed set of names.
    Sym(&'static str),
    /// Text.
    Str(String),
    /// A layout for each result of an op; `None` for what is no tile.
    Layouts(Vec<Option<TileLayout>>),
}

/// The attributes of an op, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attrs(Vec<(Key, Attr)>);

impl Attrs {
    /// No attributes.
    pub fn new() -> Attrs {
        Attrs::default()
    }
    /// Adds or replaces one.
    pub fn set(&mut self, key: Key, attr: Attr) {
        match self.0.binary_search_by_key(&key, |e| e.0) {
            Ok(i) => self.0[i].1 = attr,
            Err(i) => self.0.insert(i, (key, attr)),
        }
    }
    /// Adds or replaces one, for chains.
    pub fn with(mut self, key: Key, attr: Attr) -> Attrs {
        self.set(key, attr);
        self
    }
    /// The attribute under `key`.
    pub fn get(&self, key: Key) -> Option<&Attr> {
        self.0.iter().find(|e| e.0 == key).map(|e| &e.1)
    }
    /// Whether `key` is there.
    pub fn has(&self, key: Key) -> bool {
        self.get(key).is_some()
    }
    /// A number.
    pub fn int(&self, key: Key) -> Option<i64> {
        match self.get(key) {
            Some(Attr::Int(v)) => Some(*v),
            _ => None,
        }
    }
    /// Several numbers.
    pub fn ints(&self, key: Key) -> Option<&[i64]> {
        match self.get(key) {
            Some(Attr::Ints(v)) => Some(v),
            _ => None,
        }
    }
    /// An element value.
    pub fn scalar(&self, key: Key) -> Option<Scalar> {
        match self.get(key) {
            Some(Attr::Scalar(v)) => Some(*v),
            _ => None,
        }
    }
    /// Text.
    pub fn str(&self, key: Key) -> Option<&str> {
        match self.get(key) {
            Some(Attr::Str(s)) => Some(s),
            _ => None,
        }
    }
    /// Layouts.
    pub fn layouts(&self, key: Key) -> Option<&[Option<TileLayout>]> {
        match self.get(key) {
            Some(Attr::Layouts(v)) => Some(v),
            _ => None,
        }
    }
    /// Takes one away.
    pub fn remove(&mut self, key: Key) {
        self.0.retain(|e| e.0 != key);
    }
    /// A name.
    pub fn sym(&self, key: Key) -> Option<&'static str> {
        match self.get(key) {
            Some(Attr::Sym(s)) => Some(s),
            _ => None,
        }
    }
    /// All, in key order.
    pub fn iter(&self) -> impl Iterator<Item = &(Key, Attr)> {
        self.0.iter()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

macro_rules! syms {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[allow(missing_docs)]
            pub enum $name { $($variant,)* }
            impl $name {
                /// Every one.
                pub const ALL: &'static [$name] = &[$($name::$variant,)*];
                /// The name in text.
                pub const fn name(self) -> &'static str { match self { $($name::$variant => $text,)* } }
                /// The one of that name.
                pub fn from_name(name: &str) -> Option<Self> { match name { $($text => Some($name::$variant),)* _ => None } }
            }
            impl From<$name> for Attr { fn from(v: $name) -> Attr { Attr::Sym(v.name()) } }
        )*
        /// The static spelling of any symbol that text may contain.
        pub(crate) fn intern_sym(text: &str) -> Option<&'static str> {
            match text { $($($text)|* => [$($text),*].into_iter().find(|s| *s == text),)* _ => None }
        }
    };
}

syms! {
    /// How a reduction combines. `max`/`min` ignore NaN, `max_nan`/`min_nan` keep it; argmax/argmin take the lowest
    /// index among ties, skip NaN, and give 0 when all are NaN.
    ReduceKind { Sum "sum", Prod "prod", Max "max", Min "min", MaxNan "max_nan", MinNan "min_nan", Argmax "argmax", Argmin "argmin", Any "any", All "all", Xor "xor", }
    /// What an atomic does with the old value and the operand.
    AtomicKind { Add "atomic_add", Max "atomic_max", Min "atomic_min", And "atomic_and", Or "atomic_or", Xor "atomic_xor", Xchg "xchg", }
    /// Memory order of an atomic.
    MemOrder { Relaxed "relaxed", Acquire "acquire", Release "release", AcqRel "acq_rel", }
    /// How an f32 dot is computed.
    Precision { Ieee "ieee", Tf32 "tf32", Tf32x3 "tf32x3", }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Flag => Ok(()),
            Attr::Int(v) => write!(f, "{v}"),
            Attr::Ints(v) => write!(f, "{v:?}"),
            Attr::Scalar(s) => write!(f, "{s}: {}", s.elem),
            Attr::Sym(s) => f.write_str(s),
            Attr::Str(s) => write!(f, "{s:?}"),
            Attr::Layouts(all) => {
                let text: Vec<String> =
                    all.iter().map(|l| l.as_ref().map_or("-".into(), ToString::to_string)).collect();
                write!(f, "{:?}", text.join("; "))
            }
        }
    }
}
