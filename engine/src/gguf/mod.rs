//! GGUF, the file format of quantised models: reading, writing, and reference dequantisation.
//!
//! [`Gguf::open`] checks the whole front of the file (header, metadata, tensor table, where each tensor lies) before
//! anything is used, so a damaged file is one clear [`GgufError`] and never a crash later. Tensor data is read when it
//! is asked for.
//!
//! ```
//! use tegula_engine::gguf::{Gguf, GgmlType, Writer};
//!
//! let mut writer = Writer::new();
//! writer.meta("general.architecture", "llama").meta("llama.block_count", 2u32);
//! writer.tensor("output_norm.weight", &[2], GgmlType::F32, [1f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect());
//!
//! let file = Gguf::from_bytes("tiny.gguf", writer.finish())?;
//! assert_eq!(file.require::<usize>("llama.block_count")?, 2);
//! let norm = file.tensor("output_norm.weight", &[2])?;
//! assert_eq!(file.dequantize(norm)?, [1.0, 2.0]);
//! assert!(file.tensor("output_norm.weight", &[3]).is_err());
//! # Ok::<(), tegula_engine::gguf::GgufError>(())
//! ```

mod cursor;
pub mod dequant;
mod error;
mod parse;
mod types;
mod value;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

pub use error::{GgufError, Place, Problem};
pub use types::GgmlType;
pub use value::{Array, FromValue, Value, ValueType};
pub use write::Writer;

/// An opened GGUF file.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    bytes: Bytes,
    file_bytes: u64,
    version: u32,
    alignment: u64,
    metadata: Vec<(String, Value)>,
    tensors: Vec<TensorInfo>,
    key_index: HashMap<String, usize>,
    tensor_index: HashMap<String, usize>,
}

/// A tensor as the table describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// Its extents, innermost (contiguous) first, 1 to 4 of them, none zero.
    pub shape: Vec<u64>,
    /// How its elements are stored.
    pub ty: GgmlType,
    /// The product of the extents.
    pub elements: u64,
    range: Range<usize>,
}

impl TensorInfo {
    /// The bytes its data takes.
    pub fn bytes(&self) -> u64 {
        self.range.len() as u64
    }

    /// Where in the file its data lies.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// Where the content is.
#[derive(Debug)]
enum Bytes {
    /// The front in memory, tensors in the file.
    File { front: Vec<u8>, file: File },
    /// All in memory.
    Memory(Vec<u8>),
}

impl Bytes {
    /// At least everything before the tensors.
    fn front(&self) -> &[u8] {
        match self {
            Bytes::File { front, .. } => front,
            Bytes::Memory(all) => all,
        }
    }
}

impl Gguf {
    /// Opens and checks a file. Its front is read through a memory map: should another program cut the file short in
    /// those milliseconds, the process gets SIGBUS. Later that is an error of whatever reads a tensor.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, GgufError> {
        let path = path.as_ref().to_owned();
        let failed = |(place, problem)| GgufError { file: path.clone(), place, problem };
        let (file, map) = map(&path).map_err(|error| failed((Place::File, Problem::Io(error))))?;
        let front = parse::parse(&map).map_err(failed)?;
        let bytes = Bytes::File { front: map[..front.bytes].to_vec(), file };
        Ok(Gguf::new(path, front, bytes, map.len()))
    }

    /// Checks a file that is already in memory; `name` stands for it in errors.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        let path = name.into();
        match parse::parse(&bytes) {
            Ok(front) => {
                let file_bytes = bytes.len();
                Ok(Gguf::new(path, front, Bytes::Memory(bytes), file_bytes))
            }
            Err((place, problem)) => Err(GgufError { file: path, place, problem }),
        }
    }

    fn new(path: PathBuf, front: parse::Front, bytes: Bytes, file_bytes: usize) -> Gguf {
        Gguf {
            path,
            bytes,
            file_bytes: file_bytes as u64,
            version: front.version,
            alignment: front.alignment,
            key_index: parse::index(front.metadata.iter().map(|(key, _)| key.as_str())),
            tensor_index: parse::index(front.tensors.iter().map(|tensor| tensor.name.as_str())),
            metadata: front.metadata,
            tensors: front.tensors,
        }
    }

    /// The file, as it was named when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What every tensor's offset is a multiple of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The size of the whole file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// All metadata in file order.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// All tensors in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The metadata value of `key` as a `T`, `None` if the key is absent; an error if it has another type.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(&i) = self.key_index.get(key) else { return Ok(None) };
        let value = &self.metadata[i].1;
        match T::from_value(value, self.bytes.front()) {
            Some(v) => Ok(Some(v)),
            None => Err(self.key_error(key, Problem::KeyType { expected: T::EXPECTED, found: value.describe() })),
        }
    }

    /// The metadata value of `key` as a `T`; an error if it is absent or has another type.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.get(key)?.ok_or_else(|| self.key_error(key, Problem::MissingKey))
    }

    /// An error about one metadata key of this file.
    pub fn key_error(&self, key: &str, problem: Problem) -> GgufError {
        GgufError { file: self.path.clone(), place: Place::Key(key.to_owned()), problem }
    }

    /// An error about one tensor of this file.
    pub fn tensor_error(&self, name: &str, problem: Problem) -> GgufError {
        GgufError { file: self.path.clone(), place: Place::Tensor(name.to_owned()), problem }
    }

    /// The tensor with this name, if the file has it, whatever its shape and type.
    pub fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.tensor_index.get(name).map(|&i| &self.tensors[i])
    }

    /// The tensor a model needs: present, with this shape (innermost extent first) and a supported type.
    pub fn tensor(&self, name: &str, shape: &[u64]) -> Result<&TensorInfo, GgufError> {
        let info = self
            .find(name)
            .ok_or_else(|| self.tensor_error(name, Problem::MissingTensor { count: self.tensors.len() }))?;
        if info.shape != shape {
            let problem = Problem::Shape { expected: shape.to_vec(), found: info.shape.clone() };
            return Err(self.tensor_error(name, problem));
        }
        if !info.ty.is_supported() {
            return Err(self.tensor_error(name, Problem::Unsupported { ty: info.ty }));
        }
        Ok(info)
    }

    /// The bytes of one of this file's tensors, as they lie in the file.
    ///
    /// # Errors
    /// If the file cannot be read, or has been cut short since it was opened.
    ///
    /// # Panics
    /// If `tensor` comes from another, longer file in memory.
    pub fn data(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>, GgufError> {
        if let Bytes::Memory(all) = &self.bytes {
            return Ok(Cow::Borrowed(&all[tensor.range()]));
        }
        let mut data = vec![];
        self.append_data(tensor, &mut data)?;
        Ok(Cow::Owned(data))
    }

    /// As [`Gguf::data`], appended to `to`.
    pub fn append_data(&self, tensor: &TensorInfo, to: &mut Vec<u8>) -> Result<(), GgufError> {
        let (start, range) = (to.len(), tensor.range());
        match &self.bytes {
            Bytes::Memory(all) => to.extend_from_slice(&all[range]),
            Bytes::File { file, .. } => {
                to.try_reserve_exact(range.len())
                    .map_err(|_| self.tensor_error(&tensor.name, Problem::Io(io::ErrorKind::OutOfMemory.into())))?;
                to.resize(start + range.len(), 0);
                file.read_exact_at(&mut to[start..], range.start as u64).map_err(|error| {
                    let cut = error.kind() == io::ErrorKind::UnexpectedEof;
                    self.tensor_error(&tensor.name, if cut { Problem::Cut } else { Problem::Io(error) })
                })?;
            }
        }
        Ok(())
    }

    /// One of this file's tensors as f32, by the plain reference code of [`dequant`].
    pub fn dequantize(&self, tensor: &TensorInfo) -> Result<Vec<f32>, GgufError> {
        dequant::dequantize(tensor.ty, &self.data(tensor)?)
            .ok_or_else(|| self.tensor_error(&tensor.name, Problem::Unsupported { ty: tensor.ty }))
    }
}

/// Opens and maps a file.
fn map(path: &Path) -> io::Result<(File, Mmap)> {
    // Before it is opened: a pipe would wait for its writer.
    let meta = fs::metadata(path)?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::other("it is no ordinary file"));
    }
    let file = File::open(path)?;
    // SAFETY: the map is read-only and dropped before `Gguf::open` returns, which documents what must not happen until then.
    let map = unsafe { Mmap::map(&file)? };
    Ok((file, map))
}
