//! Writing GGUF version 3 files: small, in memory, for tests and for tools that make models.

use super::types::GgmlType;
use super::value::ValueType;

const ALIGNMENT: usize = 32;

/// Collects metadata and tensors, then lays them out as a file.
///
/// It writes what it is told: a wrong combination (data of the wrong length, a name twice) is found by the reader,
/// which is what tests of the reader want.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    metadata: Vec<(String, Vec<u8>)>,
    tensors: Vec<Tensor>,
}

#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    ty: GgmlType,
    data: Vec<u8>,
}

impl Writer {
    /// A file with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata entry.
    pub fn meta(&mut self, key: &str, value: impl IntoValue) -> &mut Self {
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        self.metadata.push((key.to_owned(), bytes));
        self
    }

    /// Whether a metadata entry has been added.
    pub fn has(&self, key: &str) -> bool {
        self.metadata.iter().any(|(known, _)| known == key)
    }

    /// Adds a tensor: extents innermost first, data as it shall lie in the file.
    pub fn tensor(&mut self, name: &str, shape: &[u64], ty: GgmlType, data: Vec<u8>) -> &mut Self {
        self.tensors.push(Tensor { name: name.to_owned(), shape: shape.to_vec(), ty, data });
        self
    }

    /// The bytes of the file.
    pub fn finish(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key);
            out.extend(value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|extent| out.extend(extent.to_le_bytes()));
            out.extend(tensor.ty.id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (offset + tensor.data.len() as u64).next_multiple_of(ALIGNMENT as u64);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(&tensor.data);
        }
        out
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// What can be written as a metadata value.
pub trait IntoValue {
    /// The type the value has in the file.
    const TYPE: ValueType;

    /// Appends the value without its type.
    fn put(&self, out: &mut Vec<u8>);

    /// Appends the type and the value.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend((Self::TYPE as u32).to_le_bytes());
        self.put(out);
    }
}

macro_rules! numbers {
    ($($ty:ident $variant:ident,)*) => {$(
        impl IntoValue for $ty {
            const TYPE: ValueType = ValueType::$variant;
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}
numbers! { u8 U8, i8 I8, u16 U16, i16 I16, u32 U32, i32 I32, f32 F32, u64 U64, i64 I64, f64 F64, }

impl IntoValue for bool {
    const TYPE: ValueType = ValueType::Bool;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl IntoValue for &str {
    const TYPE: ValueType = ValueType::String;
    fn put(&self, out: &mut Vec<u8>) {
        put_string(out, self);
    }
}

impl<T: IntoValue> IntoValue for &[T] {
    const TYPE: ValueType = ValueType::Array;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend((T::TYPE as u32).to_le_bytes());
        out.extend((self.len() as u64).to_le_bytes());
        self.iter().for_each(|element| element.put(out));
    }
}
