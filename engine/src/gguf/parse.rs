//! Reading and checking the front of a GGUF file: header, metadata, tensor table, and where each tensor's data lies.
//!
//! Layout: `"GGUF"`, version u32, tensor count u64, metadata count u64; then the metadata entries (name, value type,
//! value); then the tensor table (name, dimension count u32, extents u64 innermost first, type u32, offset u64); then,
//! from the next multiple of `general.alignment` (default 32), the tensors' data.

use std::collections::{HashMap, HashSet};

use super::TensorInfo;
use super::cursor::Cursor;
use super::error::{Place, Problem};
use super::types::GgmlType;
use super::value::{Value, ValueType};

const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;
/// An entry with an empty name and a one-byte value.
const FEWEST_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// A row with an empty name and one dimension.
const FEWEST_ROW_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// The parsed front of a file.
#[derive(Debug)]
pub(super) struct Front {
    pub version: u32,
    pub alignment: u64,
    /// Bytes that it takes.
    pub bytes: usize,
    pub metadata: Vec<(String, Value)>,
    /// In file order; the ranges are inside the file.
    pub tensors: Vec<TensorInfo>,
}

pub(super) type Failure = (Place, Problem);

/// Puts the place on a problem.
trait At<T> {
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, Problem> {
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, Failure> {
        self.map_err(|problem| (place(), problem))
    }
}

pub(super) fn parse(file: &[u8]) -> Result<Front, Failure> {
    let mut cursor = Cursor::new(file, 0);
    let header = read_header(&mut cursor).at(|| Place::File)?;
    let metadata = read_metadata(&mut cursor, header.entries)?;
    let alignment = alignment(&metadata).at(|| Place::Key(ALIGNMENT_KEY.to_owned()))?;
    let rows = read_rows(&mut cursor, header.tensors)?;

    let end = cursor.position() as u64;
    // A file without tensors may end right after its metadata.
    let start = if rows.is_empty() { end } else { end.next_multiple_of(alignment) };
    let section = (file.len() as u64).saturating_sub(start);
    let tensors = rows
        .into_iter()
        .map(|row| row.place(start, section, alignment).map_err(|(name, problem)| (Place::Tensor(name), problem)))
        .collect::<Result<Vec<_>, _>>()?;
    check_overlap(&tensors)?;
    Ok(Front { version: header.version, alignment, bytes: cursor.position(), metadata, tensors })
}

struct Header {
    version: u32,
    tensors: u64,
    entries: u64,
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Header, Problem> {
    let magic = cursor.magic()?;
    if &magic != b"GGUF" {
        return Err(Problem::Magic { found: magic });
    }
    let version = cursor.u32()?;
    match version {
        2 | 3 => {}
        v if matches!(v.swap_bytes(), 1..=0xffff) => return Err(Problem::BigEndian),
        found => return Err(Problem::Version { found }),
    }
    let tensors = cursor.u64()?;
    let entries = cursor.u64()?;
    cursor.check_count("metadata entries", entries, FEWEST_ENTRY_BYTES)?;
    cursor.check_count("tensors", tensors, FEWEST_ROW_BYTES)?;
    Ok(Header { version, tensors, entries })
}

fn read_metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<(String, Value)>, Failure> {
    let mut seen = HashSet::new();
    let mut metadata = Vec::new();
    for n in 0..count {
        let key = cursor.string("its name").at(|| Place::Entry(n))?;
        let value = cursor
            .u32()
            .and_then(ValueType::from_id)
            .and_then(|ty| Value::read(cursor, ty))
            .at(|| Place::Key(key.to_owned()))?;
        if !seen.insert(key) {
            return Err((Place::Key(key.to_owned()), Problem::Duplicate));
        }
        metadata.push((key.to_owned(), value));
    }
    Ok(metadata)
}

fn alignment(metadata: &[(String, Value)]) -> Result<u64, Problem> {
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let Value::U32(found) = *value else {
        return Err(Problem::KeyType { expected: "a u32", found: value.describe() });
    };
    let found = u64::from(found);
    if found.is_power_of_two() && found >= 8 { Ok(found) } else { Err(Problem::Alignment { found }) }
}

/// A row of the tensor table, before its offset is checked.
struct Row {
    name: String,
    shape: Vec<u64>,
    ty: GgmlType,
    elements: u64,
    bytes: u64,
    offset: u64,
}

fn read_rows(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Row>, Failure> {
    cursor.check_count("tensors", count, FEWEST_ROW_BYTES).at(|| Place::File)?;
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for n in 0..count {
        let name = cursor.string("its name").at(|| Place::Row(n))?;
        let row = read_row(cursor, name).at(|| Place::Tensor(name.to_owned()))?;
        if !seen.insert(name) {
            return Err((Place::Tensor(name.to_owned()), Problem::Duplicate));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn read_row(cursor: &mut Cursor<'_>, name: &str) -> Result<Row, Problem> {
    let dims = cursor.u32()?;
    if !(1..=4).contains(&dims) {
        return Err(Problem::Dimensions { found: dims });
    }
    let shape = (0..dims).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
    let id = cursor.u32()?;
    let offset = cursor.u64()?;

    let elements = shape
        .iter()
        .try_fold(1u64, |product, &extent| product.checked_mul(extent))
        .filter(|&product| product > 0 && i64::try_from(product).is_ok())
        .ok_or_else(|| Problem::Extents { shape: shape.clone() })?;
    let ty = GgmlType::from_id(id).ok_or(Problem::TensorType { found: id })?;
    if !shape[0].is_multiple_of(ty.block_len()) {
        return Err(Problem::Row { ty, extent: shape[0] });
    }
    let bytes = ty.bytes(elements).ok_or_else(|| Problem::Extents { shape: shape.clone() })?;
    Ok(Row { name: name.to_owned(), shape, ty, elements, bytes, offset })
}

impl Row {
    /// Checks the offset, which counts from `start`, the first byte of the data section of `section` bytes.
    fn place(self, start: u64, section: u64, alignment: u64) -> Result<TensorInfo, (String, Problem)> {
        let Row { name, shape, ty, elements, bytes, offset } = self;
        if !offset.is_multiple_of(alignment) {
            return Err((name, Problem::Misaligned { offset, alignment }));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > section) {
            return Err((name, Problem::Outside { offset, bytes, section }));
        }
        // Inside the file, whose length fits in usize.
        let first = (start + offset) as usize;
        Ok(TensorInfo { name, shape, ty, elements, range: first..first + bytes as usize })
    }
}

fn check_overlap(tensors: &[TensorInfo]) -> Result<(), Failure> {
    let mut by_start: Vec<&TensorInfo> = tensors.iter().collect();
    by_start.sort_by_key(|tensor| tensor.range.start);
    for pair in by_start.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            let problem = Problem::Overlap { other: pair[0].name.clone() };
            return Err((Place::Tensor(pair[1].name.clone()), problem));
        }
    }
    Ok(())
}

/// Where each name is in a list.
pub(super) fn index<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<String, usize> {
    names.enumerate().map(|(i, name)| (name.to_owned(), i)).collect()
}
