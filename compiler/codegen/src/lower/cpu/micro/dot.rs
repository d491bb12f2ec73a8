//! The tile-level `dot`: C += A·B for tiles in memory, by [`gemm`](super::gemm) on staged operands.
//!
//! Staging pays when what it copies is used often: A if there are enough rows that their addresses would not fit into
//! registers, B if it meets several blocks of rows. K is cut into pieces whose block of B fits into the L1 cache; the fma
//! chains go through memory between pieces, unbroken.

use super::{
    Code, Stride,
    gemm::{Gemm, Kind, Operands, PANEL, Stored},
    stage,
};
use crate::lower::cpu::build::V;
use tegula_ir::{Elem, Quant};

/// Greatest piece of K, in elements.
const PIECE: usize = 256;
/// Rows of A that are read in place although their distance is only known at run time.
const FEW_ROWS: usize = 4;

/// Rows up to which B is met by so few blocks of rows that copying it would not pay.
const ONCE: usize = 12;

/// How B lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// K rows, their columns contiguous.
    Rows,
    /// N rows of K contiguous elements: the transpose.
    Columns,
    /// Panels of a packed float matrix (layout `panel16`): `b` is the tile's first row in its first panel.
    Panels,
}

/// A product of tiles: everything known when the kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Element type of A: f64, f32, f16, bf16, i8 or u8. (fp8 must be cast to f32 first.)
    pub a: Elem,
    /// Element type of B: that of A; f32, f16 and bf16 may meet each other.
    pub b: Elem,
    /// How B lies.
    pub order: Order,
}

/// Where a product's operands are.
#[derive(Clone, Copy, Debug)]
pub struct DotOperands<'c> {
    /// First element of A, whose rows are contiguous.
    pub a: V<'c>,
    /// From a row of A to the next, in bytes.
    pub a_row: Stride<'c>,
    /// First element of B.
    pub b: V<'c>,
    /// From a row of B (as it lies) to the next; from a panel to the next.
    pub b_row: Stride<'c>,
    /// Of a packed B: the rows and the panels from the tile's first on that exist.
    pub exists: Option<(V<'c>, V<'c>)>,
    /// First element of C: [`Dot::accumulator`], rows contiguous. Loaded, added to, stored.
    pub c: V<'c>,
    /// From a row of C to the next, in bytes.
    pub c_row: Stride<'c>,
    /// [`Dot::scratch_bytes`] of scratch memory, 64-byte aligned; not read if that is 0.
    pub scratch: V<'c>,
}

impl Dot {
    /// Element type of C.
    pub fn accumulator(&self) -> Elem {
        match self.kind() {
            Kind::F64 => Elem::F64,
            Kind::F32 => Elem::F32,
            Kind::Pairs => Elem::I32,
        }
    }

    /// The product of A with a tile of a packed float matrix.
    pub fn packed((m, n, k): (usize, usize, usize), a: Elem, quant: Quant) -> Option<Dot> {
        let b = match quant {
            Quant::F32 => Elem::F32,
            Quant::F16 => Elem::F16,
            Quant::BF16 => Elem::BF16,
            _ => return None,
        };
        n.is_multiple_of(PANEL).then_some(Dot { m, n, k, a, b, order: Order::Panels })
    }

    fn kind(&self) -> Kind {
        match self.a {
            Elem::F64 => Kind::F64,
            Elem::I8 | Elem::U8 => Kind::Pairs,
            _ => Kind::F32,
        }
    }

    /// Elements of K in one piece; the last may have fewer.
    fn piece(&self) -> usize {
        let pieces = self.k.div_ceil(PIECE).max(1);
        self.k.div_ceil(pieces).next_multiple_of(PANEL)
    }

    /// Whether A may be read where it is, given its row stride.
    fn a_in_place(&self, row: Option<Stride>) -> bool {
        let plain = matches!(self.a, Elem::F32 | Elem::F64);
        // Rows whose distance is a multiple of 4096 bytes fall into one set of the L1 cache.
        let good = matches!(row, Some(Stride::Fixed(bytes)) if bytes % 4096 != 0);
        plain && (self.m <= FEW_ROWS || good)
    }

    fn b_in_place(&self) -> bool {
        match self.order {
            Order::Panels => true,
            Order::Rows => self.kind() != Kind::Pairs && self.m <= ONCE,
            Order::Columns => false,
        }
    }

    /// Bytes of scratch memory that [`Dot::emit`] wants.
    pub fn scratch_bytes(&self) -> usize {
        let (kind, piece) = (self.kind(), self.piece());
        let a = if self.a_in_place(None) { 0 } else { self.m * stage::a_row(kind, piece) };
        let b = if self.b_in_place() { 0 } else { self.n.div_ceil(PANEL) * stage::b_panel(kind, piece) };
        a.next_multiple_of(64) + b
    }

    /// Appends the product.
    pub fn emit<'c>(&self, c: &Code<'_, 'c>, at: &DotOperands<'c>) {
        let piece = self.piece();
        let whole = self.k / piece;
        c.times(whole, 1, |i| self.piece_at(c, at, c.mul_c(i, piece as i64), piece));
        if whole * piece < self.k {
            self.piece_at(c, at, c.c64((whole * piece) as i64), self.k - whole * piece);
        }
    }

    /// The rows `k0 .. k0 + k` of the contraction.
    fn piece_at<'c>(&self, c: &Code<'_, 'c>, at: &DotOperands<'c>, k0: V<'c>, k: usize) {
        let kind = self.kind();
        let bytes = |e: Elem| Stride::Fixed(e.bytes() as i64);
        let mut stored = Stored::Plain;

        let a = c.step(at.a, k0, bytes(self.a));
        let (a, a_row) = if self.a_in_place(Some(at.a_row)) {
            (a, at.a_row)
        } else {
            stage::a(c, kind, self.a, (self.m, k), a, at.a_row, at.scratch);
            (at.scratch, Stride::Fixed(stage::a_row(kind, k) as i64))
        };

        let staged_a = if self.a_in_place(None) { 0 } else { self.m * stage::a_row(kind, self.piece()) };
        let to = c.offset_c(at.scratch, staged_a.next_multiple_of(64) as i64);
        let line = |size: usize| Stride::Fixed((PANEL * size) as i64);
        let staged = (to, Stride::Fixed(stage::b_panel(kind, k) as i64), line(kind.bytes()));
        let in_place = match self.b {
            Elem::F16 => Stored::F16,
            Elem::BF16 => Stored::BF16,
            _ => Stored::Plain,
        };
        let (b, b_panel, b_row) = match self.order {
            Order::Panels => {
                let row = line(self.b.bytes());
                stored = in_place;
                (c.step(at.b, k0, row), at.b_row, row)
            }
            Order::Rows if self.b_in_place() => {
                stored = in_place;
                (c.step(at.b, k0, at.b_row), line(self.b.bytes()), at.b_row)
            }
            Order::Rows => {
                stage::b(c, kind, self.b, (k, self.n), c.step(at.b, k0, at.b_row), at.b_row, to);
                staged
            }
            Order::Columns => {
                stage::b_transposed(c, kind, self.b, (k, self.n), c.step(at.b, k0, bytes(self.b)), at.b_row, to);
                staged
            }
        };
        let padded = !(self.order == Order::Rows && self.b_in_place());
        let exists = at.exists.map(|(rows, panels)| (c.maxs(c.sub(rows, k0), c.c64(0)), panels));
        let gemm = Gemm { kind, stored, m: self.m, n: self.n, k: stage::b_rows(kind, k), padded };
        gemm.emit(c, &Operands { a, a_row, b, b_panel, b_row, c: at.c, c_row: at.c_row, exists });
    }
}
