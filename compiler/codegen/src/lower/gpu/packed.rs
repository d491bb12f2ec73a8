//! Quantised weights: loads of rectangles, and their values. GPUs read the layout `gguf`: column n of the matrix is a row of
//! blocks along K.

use super::{
    super::{
        build::{Build, Cmp, V},
        convert::widen,
    },
    Error,
    cx::{Cx, Home, PackedVal, Piece, Regs},
};
use std::collections::BTreeMap;
use tegula_ir::{
    Elem, Key, Op, Quant, Type,
    layout::{GROUP, code_offset},
    protocol::SiteKind,
};

/// What a group of 32 codes is multiplied with.
pub struct Scales<'c> {
    /// f32, exact.
    pub scale: V<'c>,
    /// The minimum, f32, of formats that have one.
    pub min: Option<V<'c>>,
    /// Integer scales of the halves of 16, i32, of Q6_K.
    pub sub: Option<[V<'c>; 2]>,
}

impl<'c> Scales<'c> {
    /// The f32 scale of one half: the group's times its own, exactly, before it meets a code, so that zeros have the sign
    /// of the definition.
    fn of(&self, b: &Build<'c>, first: V<'c>) -> V<'c> {
        let Some([one, other]) = self.sub else { return self.scale };
        b.mulf(self.scale, b.sitofp(b.select(first, one, other), b.f32()))
    }
}

/// A group of a quantised matrix: the address of its block, and its number in it (i32).
#[derive(Clone, Copy)]
pub struct Group<'c> {
    block: V<'c>,
    j: V<'c>,
    quant: Quant,
}

impl<'c> Group<'c> {
    /// Group `index` (i64, counted along K) of column `n` (i64).
    pub fn of(b: &Build<'c>, m: &PackedVal<'c>, index: V<'c>, n: V<'c>) -> Group<'c> {
        let per_block = (m.quant.block() / GROUP) as i64;
        let blocks = b.divu(m.k, b.c64(m.quant.block() as i64));
        let at = b.add(b.mul(n, blocks), b.divu(index, b.c64(per_block)));
        let block = b.offset(m.base, b.mul_c(at, m.quant.block_bytes() as i64));
        Group { block, j: b.trunci(b.remu(index, b.c64(per_block)), b.i32()), quant: m.quant }
    }

    fn byte(&self, b: &Build<'c>, at: V<'c>) -> V<'c> {
        b.zext(b.load(b.offset(self.block, at), b.i8(), 0, 1), b.i32())
    }
    fn half(&self, b: &Build<'c>, at: i64) -> V<'c> {
        let raw = b.load(b.offset_c(self.block, at), b.i16(), 0, 2);
        widen(b, b.bitcast(raw, b.f16()), Elem::F16)
    }
    /// Four bytes; blocks are on even addresses.
    fn word(&self, b: &Build<'c>, at: V<'c>) -> V<'c> {
        let p = b.offset(self.block, at);
        let half = |i: i64| b.zext(b.load(b.offset_c(p, i), b.i16(), 0, 2), b.i32());
        b.or(half(0), b.shl_c(half(2), 16))
    }

    /// The scales of the group.
    pub fn scales(&self, b: &Build<'c>) -> Scales<'c> {
        let plain = |min: Option<V<'c>>| Scales { scale: self.half(b, 0), min, sub: None };
        match self.quant {
            Quant::Q4_1 | Quant::Q5_1 => plain(Some(self.half(b, 2))),
            Quant::Q4_K | Quant::Q5_K => {
                let (sub, sub_min) = self.six_bits(b);
                let float = |v: V<'c>| b.uitofp(v, b.f32());
                let min = b.negf(b.mulf(self.half(b, 2), float(sub_min)));
                Scales { scale: b.mulf(self.half(b, 0), float(sub)), min: Some(min), sub: None }
            }
            Quant::Q6_K => {
                let sub = [0, 1].map(|i| {
                    let raw = self.byte(b, b.add_c(b.shl_c(self.j, 1), 192 + i));
                    b.sext(b.trunci(raw, b.i8()), b.i32())
                });
                Scales { scale: self.half(b, 208), min: None, sub: Some(sub) }
            }
            _ => plain(None),
        }
    }

    /// Scale and minimum of a K-quant's group, of 6 bits each in 12 bytes from 4.
    fn six_bits(&self, b: &Build<'c>) -> (V<'c>, V<'c>) {
        let j = self.j;
        let first = b.cmp(Cmp::Ult, j, b.c32(4));
        // Bytes j and j + 4 serve all groups; j − 4 the later ones.
        let (p, q) = (self.byte(b, b.add_c(j, 4)), self.byte(b, b.add_c(j, 8)));
        let before = self.byte(b, b.add_c(b.select(first, j, b.add_c(j, -4)), 4));
        let upper = |v: V<'c>| b.shl_c(b.shru_c(v, 6), 4);
        let scale = b.select(first, b.and_c(p, 63), b.or(b.and_c(q, 15), upper(before)));
        let min = b.select(first, b.and_c(q, 63), b.or(b.shru_c(q, 4), upper(p)));
        (scale, min)
    }

    /// The codes as eight words of four signed bytes, k ascending.
    pub fn words(&self, b: &Build<'c>) -> [V<'c>; 8] {
        std::array::from_fn(|w| self.word_of_codes(b, b.c32(w as i32)))
    }

    /// Word `w` (i32) of them.
    fn word_of_codes(&self, b: &Build<'c>, w: V<'c>) -> V<'c> {
        self.signed(b, self.raw_word(b, w))
    }

    /// Bytes of unsigned codes to signed ones.
    fn signed(&self, b: &Build<'c>, w: V<'c>) -> V<'c> {
        let offset = i64::from(code_offset(self.quant));
        if offset == 0 {
            return w;
        }
        // No carry leaves a byte: (c + 128 − offset) with the top bit turned is c − offset.
        let every = (128 - offset) * 0x0101_0101;
        b.xor(b.add(w, b.c32(every as i32)), b.c32(0x8080_8080_u32 as i32))
    }

    /// Word `w` (i32) of 8 of the stored codes.
    fn raw_word(&self, b: &Build<'c>, w: V<'c>) -> V<'c> {
        let low = |v: V<'c>, shift: V<'c>, mask: u32| b.and(b.shru(v, shift), b.c32(mask as i32));
        let four = 0x0f0f_0f0f;
        let place = b.shl_c(w, 2);
        // Nibbles of 16 bytes: the first half of the codes low, the second high.
        let nibbles = |from: i64| {
            let upper = b.shl_c(b.shru_c(w, 2), 2);
            low(self.word(b, b.add_c(b.and_c(place, 12), from)), upper, four)
        };
        // Bits w·4 … of a word, one to a byte, as bit 4.
        let fifth = |from: i32| {
            let bits = low(self.word(b, b.c32(from)), place, 15);
            let spread = b.mul_c(bits, 0x0020_4081);
            b.shl_c(b.and(spread, b.c32(0x0101_0101)), 4)
        };
        match self.quant {
            Quant::Q4_0 => nibbles(2),
            Quant::Q4_1 => nibbles(4),
            Quant::Q5_0 => b.or(nibbles(6), fifth(2)),
            Quant::Q5_1 => b.or(nibbles(8), fifth(4)),
            Quant::Q8_0 => self.word(b, b.add_c(place, 2)),
            Quant::Q4_K | Quant::Q5_K => {
                let first = if self.quant == Quant::Q5_K { 48 } else { 16 };
                let pair = b.add(b.shl_c(b.shru_c(self.j, 1), 5), b.add_c(place, first));
                let codes = low(self.word(b, pair), b.shl_c(b.and_c(self.j, 1), 2), four);
                if self.quant == Quant::Q4_K {
                    return codes;
                }
                let fifths = low(self.word(b, b.add_c(place, 16)), self.j, 0x0101_0101);
                b.or(codes, b.shl_c(fifths, 4))
            }
            _ => {
                // Q6_K: half h of two, group g of four in it.
                let (h, g) = (b.shru_c(self.j, 2), b.and_c(self.j, 3));
                let at = b.add(b.shl_c(h, 6), b.add(b.shl_c(b.and_c(g, 1), 5), place));
                let nibbles = low(self.word(b, at), b.shl_c(b.shru_c(g, 1), 2), four);
                let high = self.word(b, b.add(b.shl_c(h, 5), b.add_c(place, 128)));
                let high = low(high, b.shl_c(g, 1), 0x0303_0303);
                b.or(nibbles, b.shl_c(high, 4))
            }
        }
    }

    /// Code `i` (i32, 0..32) as stored, i32.
    fn code(&self, b: &Build<'c>, i: V<'c>) -> V<'c> {
        let nibble = |from: i64| {
            let byte = self.byte(b, b.add_c(b.and_c(i, 15), from));
            b.and_c(b.shru(byte, b.shl_c(b.shru_c(i, 4), 2)), 15)
        };
        let fifth = |from: i64| {
            let byte = self.byte(b, b.add_c(b.shru_c(i, 3), from));
            b.shl_c(b.and_c(b.shru(byte, b.and_c(i, 7)), 1), 4)
        };
        match self.quant {
            Quant::Q4_0 => nibble(2),
            Quant::Q4_1 => nibble(4),
            Quant::Q5_0 => b.or(nibble(6), fifth(2)),
            Quant::Q5_1 => b.or(nibble(8), fifth(4)),
            Quant::Q8_0 => b.sext(b.trunci(self.byte(b, b.add_c(i, 2)), b.i8()), b.i32()),
            Quant::Q4_K | Quant::Q5_K => {
                let first = if self.quant == Quant::Q5_K { 48 } else { 16 };
                let place = b.add(b.shl_c(b.shru_c(self.j, 1), 5), b.add_c(i, first));
                let code = b.and_c(b.shru(self.byte(b, place), b.shl_c(b.and_c(self.j, 1), 2)), 15);
                if self.quant == Quant::Q4_K {
                    return code;
                }
                let bit = b.and_c(b.shru(self.byte(b, b.add_c(i, 16)), self.j), 1);
                b.or(code, b.shl_c(bit, 4))
            }
            _ => {
                let (h, g) = (b.shru_c(self.j, 2), b.and_c(self.j, 3));
                let place = b.add(b.shl_c(h, 6), b.add(b.shl_c(b.and_c(g, 1), 5), i));
                let low = b.and_c(b.shru(self.byte(b, place), b.shl_c(b.shru_c(g, 1), 2)), 15);
                let high = self.byte(b, b.add(b.shl_c(h, 5), b.add_c(i, 128)));
                b.or(low, b.shl_c(b.and_c(b.shru(high, b.shl_c(g, 1)), 3), 4))
            }
        }
    }

    /// The four elements of word `w` (i32) of the group, given its scales.
    fn values(&self, b: &Build<'c>, s: &Scales<'c>, w: V<'c>) -> [V<'c>; 4] {
        let word = self.word_of_codes(b, w);
        let scale = s.of(b, b.cmp(Cmp::Ult, w, b.c32(4)));
        std::array::from_fn(|i| {
            let top = b.shl_c(word, 24 - 8 * i as i64);
            let code = b.shrs(top, b.c32(24));
            // The product is exact: the only rounding is that of the sum.
            let product = b.mulf(scale, b.sitofp(code, b.f32()));
            s.min.map_or(product, |m| b.addf(product, m))
        })
    }

    /// Element `i` (i32) of the group as f32, rounded once.
    fn value(&self, b: &Build<'c>, i: V<'c>) -> V<'c> {
        let s = self.scales(b);
        let code = b.add_c(self.code(b, i), -i64::from(code_offset(self.quant)));
        // The product is exact: the only rounding is that of the sum.
        let product = b.mulf(s.of(b, b.cmp(Cmp::Ult, i, b.c32(16))), b.sitofp(code, b.f32()));
        s.min.map_or(product, |m| b.addf(product, m))
    }
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `packed_dim`.
    pub fn packed_dim(&mut self, op: &'a Op) -> Result<(), Error> {
        let m = self.packed(op)?;
        let x = if op.attrs.int(Key::Axis) == Some(0) { m.k } else { m.n };
        self.set_regs(op.results[0], vec![vec![self.b.trunci(x, self.b.i32())]])
    }

    /// A packed parameter in a layout that GPUs read.
    fn packed(&self, op: &Op) -> Result<PackedVal<'c>, Error> {
        match self.home(op.operands[0]) {
            Home::Packed(m) if m.layout == "gguf" => Ok(m.clone()),
            Home::Packed(m) => {
                self.error(op, format!("GPU kernels read packed weights in the layout `gguf`, found `{}`", m.layout))
            }
            _ => self.error(op, "the operand is no packed matrix"),
        }
    }

    /// `packed_load`: nothing is read yet.
    pub fn packed_load(&mut self, op: &'a Op) -> Result<(), Error> {
        let packed = self.packed(op)?;
        let (k, n) = (self.scalar(op.operands[1]), self.scalar(op.operands[2]));
        let Type::QTile(ty) = self.k.ty(op.results[0]) else { return self.error(op, "the result is no rectangle") };
        self.set_home(op.results[0], Home::QTile { packed, k, n, ty: ty.clone() });
        Ok(())
    }

    /// The value of element (k, n), i64, f32; 0 outside, where nothing is read.
    fn packed_value(&mut self, m: &PackedVal<'c>, k: V<'c>, n: V<'c>, also: Option<V<'c>>) -> V<'c> {
        let b = self.b;
        let mut ok = b.and(b.cmp(Cmp::Ult, k, m.k), b.cmp(Cmp::Ult, n, m.n));
        if let Some(also) = also {
            ok = b.and(ok, also);
        }
        let read = || {
            if !m.quant.is_float() {
                let group = Group::of(b, m, b.shru_c(k, 5), n);
                return vec![group.value(b, b.trunci(b.and_c(k, 31), b.i32()))];
            }
            let at = b.add(b.mul(n, m.k), k);
            let (e, ty) = match m.quant {
                Quant::F16 => (Elem::F16, b.f16()),
                Quant::BF16 => (Elem::BF16, b.i16()),
                _ => (Elem::F32, b.f32()),
            };
            vec![widen(b, b.load(b.gep(m.base, ty, at), ty, 0, e.bytes()), e)]
        };
        b.if_(ok, &[b.f32()], read, || vec![b.cf32(0.0, 0)])[0]
    }

    /// `dequant`.
    pub fn dequant(&mut self, op: &'a Op) -> Result<(), Error> {
        let Home::QTile { packed, k, n, .. } = self.home(op.operands[0]).clone() else {
            return self.error(op, "the operand is no rectangle of a packed matrix");
        };
        let v = op.results[0];
        let regs = self.dequantised(&packed, k, n, &self.pieces(v));
        self.set_regs(v, regs)
    }

    /// The values of pieces of the rectangle at (k, n), i64.
    pub fn dequantised(&mut self, packed: &PackedVal<'c>, k: V<'c>, n: V<'c>, pieces: &[Piece]) -> Regs<'c> {
        let b = self.b;
        let mut regs: Regs = vec![];
        for piece in pieces {
            let k_bit = |i: u32| piece.axes.place(0, 1 << i);
            let runs = !packed.quant.is_float() && piece.layout.reg().starts_with(&[k_bit(0), k_bit(1)]);
            if runs && piece.layout.is_permutation() {
                regs.push(self.by_groups(packed, k, n, piece));
                continue;
            }
            let mut own = vec![];
            for r in 0..piece.layout.regs() {
                let [dk, dn] = [0, 1].map(|d| b.zext(self.index(piece, d, r), b.i64()));
                own.push(self.packed_value(packed, b.add(k, dk), b.add(n, dn), None));
            }
            regs.push(own);
        }
        regs
    }

    /// The values of a piece of the rectangle at (k, n) of which a thread holds runs of four along K: scales once a group,
    /// four codes a word.
    fn by_groups(&mut self, m: &PackedVal<'c>, k: V<'c>, n: V<'c>, piece: &Piece) -> Vec<V<'c>> {
        let b = self.b;
        let mut out = vec![b.cf32(0.0, 0); piece.layout.regs()];
        // Registers by group and column: both follow from constants, since hardware bits are index bits here.
        let mut groups: BTreeMap<(i64, i64), Vec<usize>> = BTreeMap::new();
        for r in (0..out.len()).step_by(4) {
            let (rows, columns) = (self.coordinate(piece, 0, r).1, self.coordinate(piece, 1, r).1);
            groups.entry((rows / GROUP as i64, columns)).or_default().push(r);
        }
        for firsts in groups.into_values() {
            let at = |cx: &mut Self, d: usize| b.zext(cx.index(piece, d, firsts[0]), b.i64());
            let (row, column) = (b.add(k, at(self, 0)), b.add(n, at(self, 1)));
            let ok = b.and(b.cmp(Cmp::Ult, row, m.k), b.cmp(Cmp::Ult, column, m.n));
            let words: Vec<V> = firsts.iter().map(|r| b.and_c(b.shru_c(self.index(piece, 0, *r), 2), 7)).collect();
            let types = vec![b.f32(); 4 * firsts.len()];
            let values = b.if_(
                ok,
                &types,
                || {
                    let group = Group::of(b, m, b.shru_c(row, 5), column);
                    let scales = group.scales(b);
                    words.iter().flat_map(|w| group.values(b, &scales, *w)).collect()
                },
                || vec![b.cf32(0.0, 0); types.len()],
            );
            for (r, four) in firsts.iter().zip(values.chunks(4)) {
                out[*r..r + 4].copy_from_slice(four);
            }
        }
        out
    }

    /// `packed_gather`.
    pub fn packed_gather(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, m, v) = (self.b, self.packed(op)?, op.results[0]);
        let (k, n) = (self.regs(op.operands[1]), self.regs(op.operands[2]));
        let mask = op.attrs.has(Key::Masked).then(|| self.regs(op.operands[3]));
        let mut regs: Regs = vec![];
        for (p, piece) in self.pieces(v).iter().enumerate() {
            let owner = if self.checked { self.is_owner(&piece.layout) } else { None };
            let mut own = vec![];
            for r in 0..piece.layout.regs() {
                let also = mask.as_ref().map(|m| m[p][r]);
                if self.checked {
                    for (axis, (i, extent)) in [(k[p][r], m.k), (n[p][r], m.n)].into_iter().enumerate() {
                        let mut bad = b.not(b.cmp(Cmp::Ult, i, extent));
                        for also in also.into_iter().chain(owner) {
                            bad = b.and(bad, also);
                        }
                        let message = format!("index outside a packed matrix along axis {axis}");
                        self.report_if(op, SiteKind::Index, &message, bad, i);
                    }
                }
                own.push(self.packed_value(&m, k[p][r], n[p][r], also));
            }
            regs.push(own);
        }
        self.set_regs(v, regs)
    }
}
