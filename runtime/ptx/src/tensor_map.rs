//! Tensor maps: the 128-byte objects that tell a tensor copy how an array of up to five dimensions lies in memory.
//!
//! A device's own encoding is not public. This one holds the same facts, is made by [`TensorMap::encode`] under the rules
//! of the driver's `cuTensorMapEncodeTiled`, and is what the emulator's tensor copies read. Kernels take it as a
//! `.param .align 64 .b8 map[128]` (a [`crate::Param::Bytes`]) or find it in global memory.

use crate::types::Ty;

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    Bf16,
    /// f32 whose subnormals reductions flush.
    F32Ftz,
    /// f32, rounded to tf32 by loads.
    Tf32,
    /// Both.
    Tf32Ftz,
}

impl Element {
    /// All, by the driver's numbers (`CUtensorMapDataType`).
    pub const ALL: [Element; 13] = [
        Element::U8,
        Element::U16,
        Element::U32,
        Element::S32,
        Element::U64,
        Element::S64,
        Element::F16,
        Element::F32,
        Element::F64,
        Element::Bf16,
        Element::F32Ftz,
        Element::Tf32,
        Element::Tf32Ftz,
    ];

    /// Size.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::U64 | Element::S64 | Element::F64 => 8,
            _ => 4,
        }
    }

    fn float(self) -> bool {
        !matches!(self, Element::U8 | Element::U16 | Element::U32 | Element::S32 | Element::U64 | Element::S64)
    }

    /// The PTX type that a reduction works on.
    pub fn ty(self) -> Ty {
        match self {
            Element::U8 => Ty::U8,
            Element::U16 => Ty::U16,
            Element::U32 => Ty::U32,
            Element::S32 => Ty::S32,
            Element::U64 => Ty::U64,
            Element::S64 => Ty::S64,
            Element::F16 => Ty::F16,
            Element::F64 => Ty::F64,
            Element::Bf16 => Ty::Bf16,
            _ => Ty::F32,
        }
    }

    /// The NaN that fills what lies outside (all bits but the sign), zero for integers.
    fn nan(self) -> u64 {
        match self {
            Element::F16 | Element::Bf16 => 0x7fff,
            Element::F64 => 0x7fff_ffff_ffff_ffff,
            e if e.float() => 0x7fff_ffff,
            _ => 0,
        }
    }
}

/// How 16-byte pieces of a tile are exchanged in shared memory, so that columns do not meet in one bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// Not at all.
    None,
    /// Address bit 4 is XORed with bit 7.
    B32,
    /// Bits 4-5 with bits 7-8.
    B64,
    /// Bits 4-6 with bits 7-9.
    B128,
}

impl Swizzle {
    const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// Where the byte of a plain tile at shared address `address` lies.
    #[inline(always)]
    pub fn apply(self, address: u64) -> u64 {
        let pieces = match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 3,
            Swizzle::B128 => 7,
        };
        address ^ (address >> 7 & pieces) << 4
    }

    /// Bytes within which pieces are exchanged.
    pub fn span(self) -> usize {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }
}

/// What a load puts where the tile leaves the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zero.
    Zero,
    /// NaN.
    Nan,
}

/// The facts of a tensor map. Dimensions are listed from the innermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// What the array holds.
    pub element: Element,
    /// Device address of its first element: a multiple of 16.
    pub address: u64,
    /// Elements along each of 1 to 5 dimensions, 1 to 2^32.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next along dimensions 1 and up: multiples of 16 below 2^40. The innermost
    /// dimension is dense.
    pub strides: Vec<u64>,
    /// Elements of a tile along each dimension, 1 to 256; the innermost ones fill a multiple of 16 bytes.
    pub tile: Vec<u32>,
    /// Only every so many-th element of the tile is taken, 1 to 8.
    pub steps: Vec<u32>,
    /// Order in shared memory.
    pub swizzle: Swizzle,
    /// Values outside.
    pub fill: Fill,
}

/// Bytes of an encoded map.
pub const BYTES: usize = 128;
const MAGIC: u32 = u32::from_le_bytes(*b"TMAP");

/// A tensor map that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor map: {0}")]
pub struct MapError(pub String);

impl TensorMap {
    /// A dense map: steps 1, no fill but zero.
    pub fn new(
        element: Element,
        address: u64,
        extents: &[u64],
        strides: &[u64],
        tile: &[u32],
        swizzle: Swizzle,
    ) -> TensorMap {
        TensorMap {
            element,
            address,
            extents: extents.to_vec(),
            strides: strides.to_vec(),
            tile: tile.to_vec(),
            steps: vec![1; extents.len()],
            swizzle,
            fill: Fill::Zero,
        }
    }

    /// Elements of a tile in shared memory along dimension `d`.
    pub fn taken(&self, d: usize) -> usize {
        self.tile[d].div_ceil(self.steps[d]) as usize
    }

    /// Bytes of a tile in shared memory.
    pub fn tile_bytes(&self) -> usize {
        (0..self.tile.len()).map(|d| self.taken(d)).product::<usize>() * self.element.bytes()
    }

    fn check(&self) -> Result<(), MapError> {
        let wrong = |message: String| Err(MapError(message));
        let (rank, size) = (self.extents.len(), self.element.bytes());
        if !(1..=5).contains(&rank) {
            return wrong(format!("{rank} dimensions; 1 to 5 are possible"));
        }
        if self.strides.len() != rank - 1 || self.tile.len() != rank || self.steps.len() != rank {
            return wrong(format!(
                "{rank} extents want {} strides, {rank} tile extents and {rank} steps, found {}, {} and {}",
                rank - 1,
                self.strides.len(),
                self.tile.len(),
                self.steps.len()
            ));
        }
        if !self.address.is_multiple_of(16) {
            return wrong(format!("the address {:#x} is no multiple of 16", self.address));
        }
        for (d, n) in self.extents.iter().enumerate() {
            if !(1..=1 << 32).contains(n) {
                return wrong(format!("extent {d} is {n}; 1 to 2^32 are possible"));
            }
        }
        for (d, n) in self.strides.iter().enumerate() {
            if n % 16 != 0 || *n >= 1 << 40 {
                return wrong(format!("stride {} is {n} bytes; multiples of 16 below 2^40 are possible", d + 1));
            }
        }
        for (d, n) in self.tile.iter().enumerate() {
            if !(1..=256).contains(n) {
                return wrong(format!("tile extent {d} is {n}; 1 to 256 are possible"));
            }
        }
        for (d, n) in self.steps.iter().enumerate() {
            if !(1..=8).contains(n) {
                return wrong(format!("step {d} is {n}; 1 to 8 are possible"));
            }
        }
        let inner = self.tile[0] as usize * size;
        if !inner.is_multiple_of(16) {
            return wrong(format!("the tile's inner extent has {inner} bytes; a multiple of 16 is needed"));
        }
        if self.swizzle != Swizzle::None && inner > self.swizzle.span() {
            let span = self.swizzle.span();
            return wrong(format!(
                "the tile's inner extent has {inner} bytes; a swizzle of {span} bytes allows {span}"
            ));
        }
        if self.fill == Fill::Nan && !self.element.float() {
            return wrong(format!("{:?} has no NaN to fill with", self.element));
        }
        Ok(())
    }

    /// The 128 bytes that kernels take.
    pub fn encode(&self) -> Result<[u8; BYTES], MapError> {
        self.check()?;
        let mut out = Vec::with_capacity(BYTES);
        out.extend(MAGIC.to_le_bytes());
        let element = Element::ALL.iter().position(|e| *e == self.element).unwrap_or(0);
        out.extend([self.extents.len() as u8, element as u8, self.swizzle as u8, self.fill as u8]);
        out.extend(self.address.to_le_bytes());
        for d in 0..5 {
            out.extend(self.extents.get(d).map_or(0, |n| *n).to_le_bytes());
            out.extend(self.strides.get(d).map_or(0, |n| *n).to_le_bytes());
            out.extend((self.tile.get(d).map_or(0, |n| *n) as u16).to_le_bytes());
            out.push(self.steps.get(d).map_or(0, |n| *n) as u8);
        }
        let mut bytes = [0; BYTES];
        bytes[..out.len()].copy_from_slice(&out);
        Ok(bytes)
    }

    /// Reads what [`TensorMap::encode`] wrote.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<TensorMap, MapError> {
        let word = |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0u64, |v, b| v << 8 | *b as u64);
        let wrong = || MapError("these 128 bytes are no tensor map (one is made by TensorMap::encode)".into());
        if word(0, 4) as u32 != MAGIC {
            return Err(wrong());
        }
        let rank = bytes[4] as usize;
        let map = TensorMap {
            element: *Element::ALL.get(bytes[5] as usize).ok_or_else(wrong)?,
            address: word(8, 8),
            extents: (0..rank.min(5)).map(|d| word(16 + 19 * d, 8)).collect(),
            strides: (0..rank.clamp(1, 5) - 1).map(|d| word(24 + 19 * d, 8)).collect(),
            tile: (0..rank.min(5)).map(|d| word(32 + 19 * d, 2) as u32).collect(),
            steps: (0..rank.min(5)).map(|d| bytes[34 + 19 * d] as u32).collect(),
            swizzle: *Swizzle::ALL.get(bytes[6] as usize).ok_or_else(wrong)?,
            fill: if bytes[7] == 0 { Fill::Zero } else { Fill::Nan },
        };
        map.check()?;
        Ok(map)
    }

    /// Bits of an element outside of the array.
    pub fn outside(&self) -> u64 {
        match self.fill {
            Fill::Zero => 0,
            Fill::Nan => self.element.nan(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap::new(Element::Bf16, 4096, &[200, 70, 3], &[400, 28000], &[64, 32, 1], Swizzle::B128)
    }

    #[test]
    fn a_map_reads_back() {
        let mut m = map();
        m.fill = Fill::Nan;
        m.steps = vec![1, 2, 1];
        assert_eq!(TensorMap::decode(&m.encode().unwrap()).unwrap(), m);
        assert!(TensorMap::decode(&[7; BYTES]).unwrap_err().to_string().contains("no tensor map"));
    }

    #[test]
    fn every_rule_is_checked() {
        let says = |change: fn(&mut TensorMap), want: &str| {
            let mut m = map();
            change(&mut m);
            let said = m.encode().unwrap_err().to_string();
            assert!(said.contains(want), "{said}");
        };
        says(|m| m.address = 8, "multiple of 16");
        says(|m| m.strides[0] = 404, "stride 1 is 404");
        says(|m| m.extents[1] = 0, "extent 1 is 0");
        says(|m| m.tile[1] = 257, "tile extent 1 is 257");
        says(|m| m.tile[0] = 65, "multiple of 16");
        says(|m| m.tile[0] = 128, "swizzle of 128 bytes");
        says(|m| m.steps[0] = 9, "step 0 is 9");
        says(|m| m.extents.push(1), "want 3 strides");
        says(|m| (m.element, m.fill) = (Element::U16, Fill::Nan), "no NaN");
    }
}
