//! How packed weight matrices lie in memory, and what their bits mean. The one description that the oracle, the lowerings
//! and the packing kernels share.
//!
//! A packed matrix has K rows (the contracted axis) and N columns (the outputs). Formats ([`Quant`]) say what a block of
//! bits *means*; layouts say where the bits lie:
//!
//! - [`Layout::Gguf`]: the bytes of a GGUF tensor, unchanged. Column n of the matrix is row n of the tensor; blocks run
//!   along K.
//! - [`Layout::Panel16`]: what the CPU's kernels read. Panels of 16 columns, each panel all of K in order; N is padded
//!   with zero weights to a multiple of 16. See [`panel`].
//!
//! **Meaning.** Every quantised format cuts K into groups of 32. A group of one column has signed integer codes, a scale
//! and perhaps a minimum ([`Group`]); an element is `scale · sub · code + min`, where `sub` is 1 but for Q6_K, whose
//! halves of 16 have an integer scale each. All products are exact in f32, so the sum rounds once. The integer
//! part of a group in `dot_grouped` is `Σ sub · code · x`.

mod gguf;
pub mod panel;

use crate::elem::Quant;
use half::{bf16, f16};

/// Consecutive k that share a scale.
pub const GROUP: usize = 32;

/// Where the bits of a packed matrix lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// A GGUF tensor's bytes, row n being column n of the matrix.
    Gguf,
    /// Panels of 16 columns: see [`panel`].
    Panel16,
}

/// What a group of 32 consecutive k of one column means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Signed codes, k ascending.
    pub codes: [i32; GROUP],
    /// Integer scales of the two halves of 16; 1 but for Q6_K.
    pub sub: [i32; 2],
    /// The weights' scale `sw`.
    pub scale: f32,
    /// The minimum, of formats that have one ([`Quant::has_min`]).
    pub min: Option<f32>,
}

impl Group {
    /// The integer part of the group's product with the activation codes `x`: exact.
    pub fn dot(&self, x: &[i8; GROUP]) -> i32 {
        (0..GROUP).map(|i| self.sub[i / 16] * self.codes[i] * i32::from(x[i])).sum()
    }
    /// Element `i` of the group as f32, rounded once.
    pub fn value(&self, i: usize) -> f32 {
        let product = self.scale * self.sub[i / 16] as f32 * self.codes[i] as f32; // exact
        self.min.map_or(product, |m| product + m)
    }
}

/// A group as its bits are stored, in either layout: what packing moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Raw {
    /// Codes as stored: unsigned, but Q8_0's bytes are two's complement.
    codes: [u8; GROUP],
    /// Bits of the f16 scale: the group's, or the block's of 256.
    scale: u16,
    /// Bits of the f16 minimum, likewise.
    min: u16,
    /// Integer scales: K-quants' of the group (both alike), Q6_K's of its halves (two's complement).
    sub: [u8; 2],
    /// Integer scale of the minimum (Q4_K, Q5_K).
    sub_min: u8,
}

impl Raw {
    fn meaning(&self, quant: Quant) -> Group {
        let float = |bits| f16::from_bits(bits).to_f32();
        let (d, m) = (float(self.scale), float(self.min));
        let offset = code_offset(quant);
        let codes = self.codes.map(|c| if quant == Quant::Q8_0 { i32::from(c as i8) } else { i32::from(c) - offset });
        let (sub, scale, min) = match quant {
            Quant::Q4_K | Quant::Q5_K => ([1; 2], d * f32::from(self.sub[0]), Some(-(m * f32::from(self.sub_min)))),
            Quant::Q6_K => (self.sub.map(|s| i32::from(s as i8)), d, None),
            _ => ([1; 2], d, quant.has_min().then_some(m)),
        };
        Group { codes, sub, scale, min }
    }
}

/// What is subtracted from a stored unsigned code to give the signed one (Q8_0's are stored signed: 0).
pub const fn code_offset(quant: Quant) -> i32 {
    match quant {
        Quant::Q4_0 => 8,
        Quant::Q5_0 => 16,
        Quant::Q6_K => 32,
        _ => 0,
    }
}

impl Layout {
    /// Every layout.
    pub const ALL: &'static [Layout] = &[Layout::Gguf, Layout::Panel16];
    /// The name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Gguf => "gguf",
            Layout::Panel16 => "panel16",
        }
    }
    /// The layout of that name.
    pub fn from_name(name: &str) -> Option<Layout> {
        Layout::ALL.iter().copied().find(|l| l.name() == name)
    }

    /// Bytes of a K × N matrix. `None` if K is no multiple of the format's block, or the size overflows.
    pub fn bytes(self, quant: Quant, k: usize, n: usize) -> Option<usize> {
        if !k.is_multiple_of(quant.block()) {
            return None;
        }
        match self {
            Layout::Gguf => (k / quant.block()).checked_mul(quant.block_bytes())?.checked_mul(n),
            Layout::Panel16 => panel::format(quant).panel_bytes(k)?.checked_mul(n.div_ceil(panel::COLUMNS)),
        }
    }

    /// Element (k, n) of the `extents` = (K, N) matrix in `bytes`, as f32; 0 outside the matrix. This defines `dequant` and
    /// `packed_gather`.
    ///
    /// # Panics
    /// `bytes` is shorter than [`Layout::bytes`] says.
    pub fn decode(self, quant: Quant, bytes: &[u8], extents: (usize, usize), k: usize, n: usize) -> f32 {
        if k >= extents.0 || n >= extents.1 {
            return 0.0;
        }
        if !quant.is_float() {
            return self.group(quant, bytes, extents.0, k / GROUP, n).value(k % GROUP);
        }
        let at = self.float_at(quant, extents.0, k, n);
        let b = &bytes[at..at + quant.block_bytes()];
        match quant {
            Quant::F16 => f16::from_le_bytes([b[0], b[1]]).to_f32(),
            Quant::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            _ => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        }
    }

    /// Group `group` (elements `32·group ..`) of column `n` of a quantised matrix of `k` rows. This defines `dot_grouped`.
    ///
    /// # Panics
    /// The format is a float one, or the group lies outside `bytes`.
    pub fn group(self, quant: Quant, bytes: &[u8], k: usize, group: usize, n: usize) -> Group {
        assert!(!quant.is_float(), "`{quant}` has no groups");
        self.raw(quant, bytes, k, group, n).meaning(quant)
    }

    fn raw(self, quant: Quant, bytes: &[u8], k: usize, group: usize, n: usize) -> Raw {
        match self {
            Layout::Gguf => {
                let per_block = quant.block() / GROUP;
                let block = n * (k / quant.block()) + group / per_block;
                gguf::read(quant, &bytes[block * quant.block_bytes()..][..quant.block_bytes()], group % per_block)
            }
            Layout::Panel16 => panel::format(quant).read(bytes, k, group, n),
        }
    }

    /// Byte offset of element (k, n) of a float format.
    fn float_at(self, quant: Quant, k_extent: usize, k: usize, n: usize) -> usize {
        let index = match self {
            Layout::Gguf => n * k_extent + k,
            Layout::Panel16 => (n / panel::COLUMNS * k_extent + k) * panel::COLUMNS + n % panel::COLUMNS,
        };
        index * quant.block_bytes()
    }
}

/// Packs a GGUF tensor of `n` rows of `k` elements into [`Layout::Panel16`], element by element: what a packing kernel is
/// tested against. `None` if `k` is no multiple of the block or `gguf` has the wrong length.
pub fn pack_reference(quant: Quant, gguf: &[u8], k: usize, n: usize) -> Option<Vec<u8>> {
    if gguf.len() != Layout::Gguf.bytes(quant, k, n)? {
        return None;
    }
    let mut out = vec![0; Layout::Panel16.bytes(quant, k, n)?];
    let format = panel::format(quant);
    for column in 0..n {
        if quant.is_float() {
            let size = quant.block_bytes();
            for row in 0..k {
                let [from, to] = [Layout::Gguf, Layout::Panel16].map(|l| l.float_at(quant, k, row, column));
                out[to..to + size].copy_from_slice(&gguf[from..from + size]);
            }
        } else {
            for group in 0..k / GROUP {
                format.write(&mut out, k, group, column, &Layout::Gguf.raw(quant, gguf, k, group, column));
            }
        }
    }
    Some(out)
}
