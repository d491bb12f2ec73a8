//! Typed metadata values. Single values are read out when the file is opened; arrays (a vocabulary has hundreds of
//! thousands of entries) stay in the file and are decoded when asked for.

use std::fmt;
use std::ops::Range;

use super::cursor::Cursor;
use super::error::Problem;

/// The type of a metadata value, as GGUF numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    const ALL: [ValueType; 13] = {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64]
    };

    pub(super) fn from_id(id: u32) -> Result<Self, Problem> {
        Self::ALL.get(id as usize).copied().ok_or(Problem::ValueType { found: id })
    }

    /// The fewest bytes a value of this type takes in a file.
    pub(super) fn fewest_bytes(self) -> u64 {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | String => 8,
            Array => 12,
        }
    }

    /// Its name in messages and tables.
    pub fn name(self) -> &'static str {
        use ValueType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            String => "string",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }
}

/// An array that still lies in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of its elements, never [`ValueType::Array`].
    pub element: ValueType,
    /// How many elements it has.
    pub len: usize,
    /// Where in the file the elements lie, checked when the file was opened.
    pub(super) bytes: Range<usize>,
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// Reads one value of type `ty`; an array is walked (its strings checked) but not copied.
    pub(super) fn read(cursor: &mut Cursor<'_>, ty: ValueType) -> Result<Value, Problem> {
        if ty == ValueType::Array {
            return Ok(Value::Array(read_array(cursor)?));
        }
        Ok(match ty {
            ValueType::String => Value::String(cursor.string("its value")?.to_owned()),
            _ => {
                let bytes = cursor.take(ty.fewest_bytes())?;
                number(ty, bytes)?
            }
        })
    }

    /// The value's type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// What the value is, in words, for error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Array(a) => format!("an array of {} {} values", a.len, a.element.name()),
            Value::String(_) => "a string".to_owned(),
            other => format!("the {} {other}", other.value_type().name()),
        }
    }

    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }
}

/// Shows the bare value; an array as its length and element type.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::F32(v) => write!(f, "{v}"),
            Value::F64(v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::String(v) => f.write_str(v),
            Value::Array(a) => write!(f, "[{} × {}]", a.len, a.element.name()),
            integer => write!(f, "{}", integer.integer().unwrap_or_default()),
        }
    }
}

fn read_array(cursor: &mut Cursor<'_>) -> Result<Array, Problem> {
    let element = ValueType::from_id(cursor.u32()?)?;
    if element == ValueType::Array {
        return Err(Problem::NestedArray);
    }
    let count = cursor.u64()?;
    cursor.check_count("array elements", count, element.fewest_bytes())?;
    let start = cursor.position();
    match element {
        ValueType::String => {
            for _ in 0..count {
                cursor.string("a string of the array")?;
            }
        }
        ValueType::Bool => {
            for &byte in cursor.take(count)? {
                bool_of(byte)?;
            }
        }
        // check_count made sure that the product lies inside the file.
        _ => drop(cursor.take(count * element.fewest_bytes())?),
    }
    Ok(Array { element, len: count as usize, bytes: start..cursor.position() })
}

fn bool_of(byte: u8) -> Result<bool, Problem> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(Problem::Bool { found }),
    }
}

/// Decodes a number or bool from exactly as many bytes as its type takes.
fn number(ty: ValueType, bytes: &[u8]) -> Result<Value, Problem> {
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    Ok(match ty {
        ValueType::U8 => Value::U8(bits as u8),
        ValueType::I8 => Value::I8(bits as i8),
        ValueType::U16 => Value::U16(bits as u16),
        ValueType::I16 => Value::I16(bits as i16),
        ValueType::U32 => Value::U32(bits as u32),
        ValueType::I32 => Value::I32(bits as i32),
        ValueType::F32 => Value::F32(f32::from_bits(bits as u32)),
        ValueType::Bool => Value::Bool(bool_of(bits as u8)?),
        ValueType::U64 => Value::U64(bits),
        ValueType::I64 => Value::I64(bits as i64),
        ValueType::F64 => Value::F64(f64::from_bits(bits)),
        ValueType::String | ValueType::Array => return Err(Problem::ValueType { found: ty as u32 }),
    })
}

/// A Rust type that a metadata value can be read as.
///
/// Integers read from every integer type whose value fits, `f32` from both float types, vectors from arrays.
pub trait FromValue<'a>: Sized {
    /// What the value should have been, for the error message.
    const EXPECTED: &'static str;

    /// The value, or `None` if it has another type or does not fit. `file` is the whole file.
    fn from_value(value: &'a Value, file: &'a [u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($ty:ident $expected:literal,)*) => {$(
        impl<'a> FromValue<'a> for $ty {
            const EXPECTED: &'static str = $expected;
            fn from_value(value: &'a Value, _: &'a [u8]) -> Option<Self> {
                $ty::try_from(value.integer()?).ok()
            }
        }
        impl<'a> FromValue<'a> for Vec<$ty> {
            const EXPECTED: &'static str = concat!("an array, each element ", $expected);
            fn from_value(value: &'a Value, file: &'a [u8]) -> Option<Self> {
                elements(value, file, |v| $ty::try_from(v.integer()?).ok())
            }
        }
    )*};
}
integers! {
    u32 "an integer from 0 to 2^32 - 1",
    i32 "an integer of 32 bits",
    u64 "an integer of at least 0",
    i64 "an integer of 64 bits",
    usize "an integer of at least 0",
}

impl<'a> FromValue<'a> for f32 {
    const EXPECTED: &'static str = "a float";
    fn from_value(value: &'a Value, _: &'a [u8]) -> Option<Self> {
        match *value {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Vec<f32> {
    const EXPECTED: &'static str = "an array of floats";
    fn from_value(value: &'a Value, file: &'a [u8]) -> Option<Self> {
        elements(value, file, |v| f32::from_value(v, file))
    }
}

impl<'a> FromValue<'a> for bool {
    const EXPECTED: &'static str = "a bool";
    fn from_value(value: &'a Value, _: &'a [u8]) -> Option<Self> {
        if let Value::Bool(v) = *value { Some(v) } else { None }
    }
}

impl<'a> FromValue<'a> for Vec<bool> {
    const EXPECTED: &'static str = "an array of bools";
    fn from_value(value: &'a Value, file: &'a [u8]) -> Option<Self> {
        elements(value, file, |v| bool::from_value(v, file))
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";
    fn from_value(value: &'a Value, _: &'a [u8]) -> Option<Self> {
        if let Value::String(v) = value { Some(v) } else { None }
    }
}

impl<'a> FromValue<'a> for Vec<&'a str> {
    const EXPECTED: &'static str = "an array of strings";
    fn from_value(value: &'a Value, file: &'a [u8]) -> Option<Self> {
        let Value::Array(Array { element: ValueType::String, len, bytes }) = value else { return None };
        let mut cursor = Cursor::new(file.get(..bytes.end)?, bytes.start);
        (0..*len).map(|_| cursor.string("a string").ok()).collect()
    }
}

fn elements<T>(value: &Value, file: &[u8], convert: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    let Value::Array(array) = value else { return None };
    if array.element == ValueType::String {
        return None;
    }
    let size = array.element.fewest_bytes() as usize;
    file.get(array.bytes.clone())?
        .chunks_exact(size)
        .map(|bytes| number(array.element, bytes).ok().as_ref().and_then(&convert))
        .collect()
}
