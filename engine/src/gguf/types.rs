//! The element types a GGUF tensor can have: number in the file, name, and how many bytes a block of how many elements
//! takes. One row per type.

use std::fmt;

/// A tensor's element type as GGUF numbers it.
///
/// Every type of the format is known by name and size, so that any file can be inspected; [`GgmlType::is_supported`]
/// tells those whose numbers this engine can compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types)]
pub enum GgmlType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
}

struct Row {
    ty: GgmlType,
    id: u32,
    name: &'static str,
    block_len: u64,
    block_bytes: u64,
    supported: bool,
}

const fn row(ty: GgmlType, id: u32, name: &'static str, block_len: u64, block_bytes: u64, supported: bool) -> Row {
    Row { ty, id, name, block_len, block_bytes, supported }
}

/// In the order of the enum, so that a type finds its row by position (a test checks it).
const TABLE: &[Row] = &[
    row(GgmlType::F32, 0, "F32", 1, 4, true),
    row(GgmlType::F16, 1, "F16", 1, 2, true),
    row(GgmlType::Q4_0, 2, "Q4_0", 32, 18, true),
    row(GgmlType::Q4_1, 3, "Q4_1", 32, 20, true),
    row(GgmlType::Q5_0, 6, "Q5_0", 32, 22, true),
    row(GgmlType::Q5_1, 7, "Q5_1", 32, 24, true),
    row(GgmlType::Q8_0, 8, "Q8_0", 32, 34, true),
    row(GgmlType::Q8_1, 9, "Q8_1", 32, 36, false),
    row(GgmlType::Q2_K, 10, "Q2_K", 256, 84, false),
    row(GgmlType::Q3_K, 11, "Q3_K", 256, 110, false),
    row(GgmlType::Q4_K, 12, "Q4_K", 256, 144, true),
    row(GgmlType::Q5_K, 13, "Q5_K", 256, 176, true),
    row(GgmlType::Q6_K, 14, "Q6_K", 256, 210, true),
    row(GgmlType::Q8_K, 15, "Q8_K", 256, 292, false),
    row(GgmlType::IQ2_XXS, 16, "IQ2_XXS", 256, 66, false),
    row(GgmlType::IQ2_XS, 17, "IQ2_XS", 256, 74, false),
    row(GgmlType::IQ3_XXS, 18, "IQ3_XXS", 256, 98, false),
    row(GgmlType::IQ1_S, 19, "IQ1_S", 256, 50, false),
    row(GgmlType::IQ4_NL, 20, "IQ4_NL", 32, 18, false),
    row(GgmlType::IQ3_S, 21, "IQ3_S", 256, 110, false),
    row(GgmlType::IQ2_S, 22, "IQ2_S", 256, 82, false),
    row(GgmlType::IQ4_XS, 23, "IQ4_XS", 256, 136, false),
    row(GgmlType::I8, 24, "I8", 1, 1, false),
    row(GgmlType::I16, 25, "I16", 1, 2, false),
    row(GgmlType::I32, 26, "I32", 1, 4, false),
    row(GgmlType::I64, 27, "I64", 1, 8, false),
    row(GgmlType::F64, 28, "F64", 1, 8, false),
    row(GgmlType::IQ1_M, 29, "IQ1_M", 256, 56, false),
    row(GgmlType::BF16, 30, "BF16", 1, 2, true),
    row(GgmlType::TQ1_0, 34, "TQ1_0", 256, 54, false),
    row(GgmlType::TQ2_0, 35, "TQ2_0", 256, 66, false),
    row(GgmlType::MXFP4, 39, "MXFP4", 32, 17, false),
    row(GgmlType::NVFP4, 40, "NVFP4", 64, 36, false),
    row(GgmlType::Q1_0, 41, "Q1_0", 128, 18, false),
];

impl GgmlType {
    /// The type with this number in a file.
    pub fn from_id(id: u32) -> Option<Self> {
        TABLE.iter().find(|row| row.id == id).map(|row| row.ty)
    }

    /// Every known type.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.ty)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its number in a file.
    pub fn id(self) -> u32 {
        self.row().id
    }

    /// Its name, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements per block; 1 for plain number types.
    pub fn block_len(self) -> u64 {
        self.row().block_len
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> u64 {
        self.row().block_bytes
    }

    /// Whether the engine can compute with this type.
    pub fn is_supported(self) -> bool {
        self.row().supported
    }

    /// Bytes that `elements` elements take; `None` if they do not fill whole blocks or the number overflows.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let row = self.row();
        if !elements.is_multiple_of(row.block_len) {
            return None;
        }
        (elements / row.block_len).checked_mul(row.block_bytes)
    }

    pub(crate) fn names() -> String {
        TABLE.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn supported_names() -> String {
        TABLE.iter().filter(|row| row.supported).map(|row| row.name).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_enum_and_numbers_are_unique() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.ty as usize, i, "{}", row.name);
            assert_eq!(format!("{:?}", row.ty), row.name);
            assert_eq!(GgmlType::from_id(row.id), Some(row.ty));
        }
    }

    #[test]
    fn bytes_counts_whole_blocks_only() {
        assert_eq!(GgmlType::Q4_1.bytes(576), Some(18 * 20));
        assert_eq!(GgmlType::Q4_K.bytes(576), None);
        assert_eq!(GgmlType::F64.bytes(u64::MAX), None);
    }
}
