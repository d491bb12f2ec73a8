//! Weights from GGUF's bytes into the layout that the target's products read (`panel16` of `tegula::ir::layout`).
//!
//! GGUF keeps each output's weights together; a panel keeps 16 outputs side by side, four consecutive k of one output in
//! a 32-bit lane. Packing moves codes and scales and computes nothing, so the values stay what they were. Byte offsets of
//! GGUF blocks: ggml's `ggml-common.h`; those of panels: `tegula::ir::layout::panel`.

use tegula::{
    DeviceError, PackedTensor, Stream, TensorError, TensorView,
    ir::{
        Quant,
        layout::{Layout, panel},
    },
    prelude::*,
};

/// Columns of a panel.
type Columns = C<16>;
/// Bytes of 16 columns, N a column: as GGUF has them.
type Bytes<const N: usize> = Tile<u8, (Columns, C<N>)>;

/// A block of a panel being written: `base` is its first byte.
#[derive(Clone, Copy)]
struct Block {
    out: ViewMut<u8, 2>,
    panel: Scalar<i32>,
    base: Scalar<i32>,
    format: panel::Format,
}

impl Block {
    /// Stores bytes in row-major order at a byte offset of group `group` (or of the block, with group 0).
    fn put<A: Dim, B: Dim>(&self, group: usize, at: usize, tile: Tile<u8, (A, B)>) {
        let offset = self.base + (group * self.format.group_bytes + at);
        self.out.store_at((self.panel, offset), tile.reshape::<(One, Prod<A, B>)>());
    }

    /// The codes of a group as bytes, k ascending: Q8_0.
    fn put_bytes(&self, group: usize, codes: Bytes<32>) {
        let words = codes.reshape::<(Columns, C<8>, C<4>)>().permute::<Order3<1, 0, 2>>();
        self.put(group, 0, words.reshape::<(C<8>, C<64>)>());
    }

    /// The codes of a group as nibbles: a byte holds k in its low and k + 16 in its high half.
    fn put_nibbles(&self, group: usize, codes: Bytes<16>) {
        let words = codes.reshape::<(Columns, C<4>, C<4>)>().permute::<Order3<1, 0, 2>>();
        self.put(group, 0, words.reshape::<(C<4>, C<64>)>());
    }

    /// Bit 4 of the codes of a group, one code a byte (0 or 1), k ascending.
    fn put_high1(&self, group: usize, bits: Bytes<32>) {
        let Some(high) = self.format.high else { return };
        let shift = iota_of::<u8, C<8>>().reshape::<(One, C<8>, One)>();
        let planes = bits.reshape::<(Columns, C<8>, C<4>)>() << shift;
        self.put(group, high.at, planes.xor::<1>().reshape::<(Columns, C<4>)>());
    }

    /// Bits 4 and 5 of the codes of a group, one code a byte (0 to 3), k ascending.
    fn put_high2(&self, group: usize, bits: Bytes<32>) {
        let Some(high) = self.format.high else { return };
        let shift = (iota_of::<u8, C<4>>() * 2).reshape::<(One, C<4>, One)>();
        for half in 0..2 {
            let planes = bits.slice::<1, C<16>>(16 * half).reshape::<(Columns, C<4>, C<4>)>() << shift;
            self.put(group, high.at + 64 * half, planes.xor::<1>().reshape::<(Columns, C<4>)>());
        }
    }

    /// A row of 16 f16, or of 16 bytes, if the format has it.
    fn put_row<N: Dim>(&self, group: usize, at: Option<usize>, row: Tile<u8, (Columns, N)>) {
        if let Some(at) = at {
            self.put(group, at, row);
        }
    }
}

/// The bits of 4 bytes, one a byte, lowest first.
fn bits_of(bytes: Bytes<4>) -> Bytes<32> {
    let shift = iota_of::<u8, C<8>>().reshape::<(One, One, C<8>)>();
    ((bytes.reshape::<(Columns, C<4>, One)>() >> shift) & 1).reshape::<(Columns, C<32>)>()
}

/// Two nibbles a byte: `low` of 16 codes, `high` of the 16 that follow.
fn nibbles(codes: Bytes<32>) -> Bytes<16> {
    (codes.slice::<1, C<16>>(0) & 15) | (codes.slice::<1, C<16>>(16) << 4)
}

/// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: a block is a group of 32.
fn small<BB: Dim>(raw: Tile<u8, (Columns, BB)>, to: &Block, quant: Quant) {
    to.put_row(0, to.format.scale, raw.slice::<1, C<2>>(0));
    let mut at = 2;
    if quant.has_min() {
        to.put_row(0, to.format.min, raw.slice::<1, C<2>>(at));
        at += 2;
    }
    if to.format.high.is_some() {
        to.put_high1(0, bits_of(raw.slice::<1, C<4>>(at)));
        at += 4;
    }
    match quant {
        Quant::Q8_0 => to.put_bytes(0, raw.slice::<1, C<32>>(at)),
        _ => to.put_nibbles(0, raw.slice::<1, C<16>>(at)),
    }
}

/// Q4_K, Q5_K: d, dmin, 12 bytes of 6-bit scales and minima, (32 bytes of high bits,) 128 of nibbles.
fn k_scaled<BB: Dim>(raw: Tile<u8, (Columns, BB)>, to: &Block, quant: Quant) {
    to.put_row(0, to.format.block_scale, raw.slice::<1, C<2>>(0));
    to.put_row(0, to.format.block_min, raw.slice::<1, C<2>>(2));
    let scales = |i: usize| raw.slice::<1, One>(4 + i);
    let codes_at = if quant == Quant::Q5_K { 48 } else { 16 };
    for group in 0..8 {
        let (scale, min) = if group < 4 {
            (scales(group) & 63, scales(group + 4) & 63)
        } else {
            let low = scales(group + 4);
            ((low & 15) | (scales(group - 4) >> 6 << 4), (low >> 4) | (scales(group) >> 6 << 4))
        };
        to.put_row(group, to.format.sub, scale);
        to.put_row(group, to.format.sub_min, min);
        let bytes = raw.slice::<1, C<32>>(codes_at + group / 2 * 32);
        to.put_nibbles(group, nibbles(if group % 2 == 0 { bytes } else { bytes >> 4 }));
        if quant == Quant::Q5_K {
            to.put_high1(group, (raw.slice::<1, C<32>>(16) >> group) & 1);
        }
    }
}

/// Q6_K: 128 bytes of low nibbles, 64 of high bits, 16 scales, d.
fn k6<BB: Dim>(raw: Tile<u8, (Columns, BB)>, to: &Block) {
    to.put_row(0, to.format.block_scale, raw.slice::<1, C<2>>(208));
    for group in 0..8 {
        let (half, quarter) = (group / 4, group % 4);
        let low = raw.slice::<1, C<32>>(64 * half + 32 * (quarter % 2));
        to.put_nibbles(group, nibbles(if quarter < 2 { low } else { low >> 4 }));
        to.put_high2(group, (raw.slice::<1, C<32>>(128 + 32 * half) >> (2 * quarter)) & 3);
        if let Some(sub) = to.format.sub {
            to.put(group, sub, raw.slice::<1, One>(192 + 2 * group));
            to.put(group, sub + 16, raw.slice::<1, One>(193 + 2 * group));
        }
    }
}

/// Quantised weights: `w` [N, bytes of a row] becomes `out` [panels, bytes of a panel]. BB: bytes of a GGUF block. Rows past N
/// read as 0, which is weight 0 in every format. Grid: panels, blocks of a row.
#[kernel]
pub fn pack_blocks<BB: Dim>(w: View<u8, 2>, out: ViewMut<u8, 2>, #[build] quant: Quant) {
    let (panel, block) = (program_id(0), program_id(1));
    let format = panel::format(quant);
    let raw = w.load::<(Columns, BB)>((panel, block));
    let to = Block { out, panel, base: block * format.block_bytes, format };
    match quant {
        Quant::Q4_K | Quant::Q5_K => k_scaled(raw, &to, quant),
        Quant::Q6_K => k6(raw, &to),
        _ => small(raw, &to, quant),
    }
}

/// Float weights of SIZE bytes: `w` [N, SIZE · K] becomes `out` [panels, 16 · SIZE · K]. Grid: panels, tiles of BK elements.
#[kernel]
pub fn pack_floats<BK: Dim, SIZE: Dim>(w: View<u8, 2>, out: ViewMut<u8, 2>) {
    let (panel, k) = (program_id(0), program_id(1));
    let tile = w.load::<(Columns, Prod<BK, SIZE>)>((panel, k)).reshape::<(Columns, BK, SIZE)>();
    let rows = tile.permute::<Order3<1, 0, 2>>();
    out.store((panel, k), rows.reshape::<(One, Prod<Prod<BK, Columns>, SIZE>)>());
}

/// Why weights could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// Wrong size.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The launch was refused or failed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Packs a GGUF tensor of `n` rows of `k` weights for the stream's device.
pub fn pack(stream: &Stream, quant: Quant, gguf: &[u8], k: usize, n: usize) -> Result<PackedTensor, PackError> {
    pack_as(stream.device().layout(), stream, quant, gguf, k, n)
}

/// Packs a GGUF tensor of `n` rows of `k` weights into a layout, on the stream's device.
pub fn pack_as(
    layout: Layout,
    stream: &Stream,
    quant: Quant,
    gguf: &[u8],
    k: usize,
    n: usize,
) -> Result<PackedTensor, PackError> {
    if layout == Layout::Gguf {
        return Ok(stream.device().packed_from(gguf, quant, layout, k, n)?);
    }
    let mut packed = stream.device().packed_as(layout, quant, k, n)?;
    let row = k / quant.block() * quant.block_bytes();
    if n.checked_mul(row) != Some(gguf.len()) {
        let problem = format!("expected {n} rows of {row} bytes, found {} bytes", gguf.len());
        return Err(TensorError::Packed { quant, layout: Layout::Gguf.name(), k, n, problem }.into());
    }
    let raw = TensorView::of([n, row], gguf)?;
    // A tensor made here has one owner and is writable.
    let Some(mut out) = packed.bytes_view_mut() else { return Ok(packed) };
    let panels = n.div_ceil(panel::COLUMNS);
    if quant.is_float() {
        const BK: usize = 64;
        pack_floats::launch(raw, &mut out).dims(BK, quant.block_bytes()).grid([panels, k.div_ceil(BK)]).run(stream)?;
    } else {
        pack_blocks::launch(raw, &mut out)
            .dims(quant.block_bytes())
            .cfg(quant)
            .grid([panels, k / quant.block()])
            .run(stream)?;
    }
    Ok(packed)
}
