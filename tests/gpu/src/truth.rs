//! Tables of what a real device gave: `truth/ARCH/FAMILY.bin`.
//!
//! A file is records one after the other, each of one case: magic, length and checksum of what follows, the name, a hash
//! of the kernel and its inputs (which tells a table of another kernel), the number of result bytes, and those: the first
//! bytes of all elements, then the second ones and so on, since these are alike, deflated. A record that was cut short ends
//! the file.

use crate::{
    instructions::Case,
    raw::{Arg, Job},
};
use std::{fs, io, io::Write, path::Path};

const MAGIC: [u8; 4] = *b"TRU1";

/// The results of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The case's name.
    pub name: String,
    /// [`identity`] of its launch.
    pub identity: u64,
    /// Its results.
    pub results: Vec<u8>,
}

/// FNV-1a: the same on every machine and of every version.
fn hash(bytes: impl IntoIterator<Item = u8>, start: u64) -> u64 {
    bytes.into_iter().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// What a table's results depend on: the kernel's text, its inputs and sizes.
pub fn identity(job: &Job) -> u64 {
    let mut h = hash(job.ptx.bytes(), START);
    h = hash(job.grid.iter().chain(&job.block).flat_map(|n| n.to_le_bytes()), h);
    for arg in &job.args {
        h = match arg {
            Arg::In(b) | Arg::InOut(b) => hash(b.iter().copied(), h),
            Arg::Out(n) => hash(n.to_le_bytes(), h),
            Arg::U64(n) => hash(n.to_le_bytes(), h),
            Arg::Map(m, of) => hash(format!("{m:?} {of}").bytes(), h),
        };
    }
    h
}

/// Bytes of an element apart: all first ones, then all second ones.
fn planes(bytes: &[u8], size: usize) -> Vec<u8> {
    (0..size).flat_map(|i| bytes.iter().skip(i).step_by(size).copied()).collect()
}

fn joined(planes: &[u8], size: usize) -> Vec<u8> {
    let n = planes.len() / size;
    (0..n).flat_map(|i| (0..size).map(move |b| (i, b))).map(|(i, b)| planes[b * n + i]).collect()
}

/// Appends a case's results to a file.
pub fn append(path: &Path, case: &Case, results: &[u8]) -> io::Result<()> {
    let size = case.unit.bits() as usize / 8;
    let packed = miniz_oxide::deflate::compress_to_vec(&planes(results, size), 9);
    let mut record = vec![];
    record.extend((case.name.len() as u32).to_le_bytes());
    record.extend(case.name.bytes());
    record.extend(identity(&case.job).to_le_bytes());
    record.extend((results.len() as u32).to_le_bytes());
    record.extend((size as u32).to_le_bytes());
    record.extend(packed);
    let mut file = fs::File::options().create(true).append(true).open(path)?;
    let mut all = MAGIC.to_vec();
    all.extend((record.len() as u32).to_le_bytes());
    all.extend(hash(record.iter().copied(), START).to_le_bytes());
    all.extend(record);
    file.write_all(&all)
}

/// The tables of a file, up to its end or to the first record that is damaged.
pub fn read(path: &Path) -> io::Result<Vec<Table>> {
    let bytes = fs::read(path)?;
    let mut rest = &bytes[..];
    let mut out = vec![];
    while let Some((table, after)) = record(rest) {
        out.push(table);
        rest = after;
    }
    Ok(out)
}

/// Takes so many bytes off the front.
fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8], n: usize) -> Option<u64> {
    Some(take(rest, n)?.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
}

fn record(mut rest: &[u8]) -> Option<(Table, &[u8])> {
    if take(&mut rest, 4)? != MAGIC {
        return None;
    }
    let length = number(&mut rest, 4)? as usize;
    let checksum = number(&mut rest, 8)?;
    let mut body = take(&mut rest, length)?;
    if hash(body.iter().copied(), START) != checksum {
        return None;
    }
    let n = number(&mut body, 4)? as usize;
    let name = String::from_utf8(take(&mut body, n)?.to_vec()).ok()?;
    let identity = number(&mut body, 8)?;
    let (bytes, size) = (number(&mut body, 4)? as usize, number(&mut body, 4)? as usize);
    let planes = miniz_oxide::inflate::decompress_to_vec_with_limit(body, bytes).ok()?;
    (planes.len() == bytes && size > 0).then(|| (Table { name, identity, results: joined(&planes, size) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        instructions::{Tolerance, case::map, formats::F32},
        raw::Level,
    };

    #[test]
    fn tables_read_back_and_damage_ends_the_file() {
        let path = std::env::temp_dir().join(format!("tegula-truth-{}.bin", std::process::id()));
        let _ = fs::remove_file(&path);
        let case =
            |name: &str| map("f", name, Level::Sm80, "", &[("b32", vec![1, 2, 3])], "b32", F32, Tolerance::Exact);
        let results: Vec<u8> = (0..512u32).flat_map(|i| (i * 77).to_le_bytes()).collect();
        append(&path, &case("one"), &results).unwrap();
        append(&path, &case("two"), &results[..128]).unwrap();
        let tables = read(&path).unwrap();
        assert_eq!(tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((&tables[0].results, &tables[1].results[..]), (&results, &results[..128]));
        assert_eq!(tables[0].identity, identity(&case("one").job));
        let mut bytes = fs::read(&path).unwrap();
        assert!(bytes.len() < results.len(), "it is compressed");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        fs::write(&path, &bytes[..last - 20]).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        fs::remove_file(&path).unwrap();
    }
}
