//! C += A·B, blocked for registers.
//!
//! ```text
//!            B: panels of 16 columns, rows of k                A   row-major, k contiguous
//!              p0      p1      p2                              B   panel p at b + p·b_panel, row k at + k·b_row
//!            ┌───────┬───────┬───────┐                         C   row-major, in memory; loaded, added to, stored
//!   A        │   →   │       │       │ k
//!  ┌─────┐   └───────┴───────┴───────┘      for each block of columns       (its B stays in the L1 cache)
//!  │  k→ │   ┌───────────────┐                for each block of rows        (A comes from L2)
//! h│     │   │ h × width     │                  for k                       2 loads, h broadcasts, 2h fma
//!  └─────┘   └───────────────┘
//! ```
//!
//! A block is h rows by two vectors: 6×16 with AVX2, 12×32 with AVX-512, which keeps every accumulator, the row of B and a
//! broadcast in registers. Rows are shared out evenly, so there are at most two heights. Few rows would leave too few
//! accumulators in flight to hide the latency of fma: then blocks are wider instead.

use super::{Code, Stride, integer::pairs_of_words};
use crate::lower::cpu::build::V;
use melior::ir::Type;

/// What is multiplied, and in what it is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// f32, by fma.
    F32,
    /// f64, by fma.
    F64,
    /// Pairs of i16 (a row of k is two of the matrix's), exactly, in i32.
    Pairs,
}

/// How elements of B lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As they are multiplied.
    Plain,
    /// f16, widened to f32 in the loop.
    F16,
    /// bf16, widened to f32 in the loop.
    BF16,
}

/// A product: everything known when the kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// What is multiplied.
    pub kind: Kind,
    /// How B is stored.
    pub stored: Stored,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B (of pairs: half the matrix's).
    pub k: usize,
    /// Whether B's last panel has 16 columns in memory even if n ends inside it.
    pub padded: bool,
}

/// Where the operands are.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'c> {
    /// First element of A.
    pub a: V<'c>,
    /// From a row of A to the next.
    pub a_row: Stride<'c>,
    /// First element of B.
    pub b: V<'c>,
    /// From a panel of 16 columns to the next.
    pub b_panel: Stride<'c>,
    /// From a row of a panel to the next.
    pub b_row: Stride<'c>,
    /// First element of C.
    pub c: V<'c>,
    /// From a row of C to the next.
    pub c_row: Stride<'c>,
    /// The part of B that exists, if that is known only when the kernel runs: rows, and panels. C is not touched for what is
    /// missing.
    pub exists: Option<(V<'c>, V<'c>)>,
}

/// Columns of a panel.
pub const PANEL: usize = 16;
/// Steps of k in the loop's body.
const UNROLL: usize = 4;

impl Kind {
    /// Bytes of an element of A, and of C.
    pub fn bytes(self) -> usize {
        if self == Kind::F64 { 8 } else { 4 }
    }
    /// The element type of C.
    pub fn accumulator<'c>(self, c: &Code<'_, 'c>) -> Type<'c> {
        match self {
            Kind::F32 => c.f32(),
            Kind::F64 => c.f64(),
            Kind::Pairs => c.i32(),
        }
    }
}

impl Gemm {
    /// Bytes of an element of B in memory.
    pub fn stored_bytes(&self) -> usize {
        if self.stored == Stored::Plain { self.kind.bytes() } else { 2 }
    }

    /// Greatest block height, and vectors across for a height.
    fn shape(&self, c: &Code<'_, '_>) -> (usize, impl Fn(usize) -> usize + use<>) {
        let wide = c.isa.registers() == 32;
        let width = move |height| match height {
            1 => 8,
            2 if wide => 8,
            2 | 3 => 4,
            4..=6 if wide => 4,
            _ => 2,
        };
        (if wide { 12 } else { 6 }, width)
    }

    /// Appends the product.
    pub fn emit<'c>(&self, c: &Code<'_, 'c>, at: &Operands<'c>) {
        if self.m == 0 || self.n == 0 || self.k == 0 {
            return;
        }
        let (most, width) = self.shape(c);
        // m rows in as few blocks as can be, of heights h and h - 1.
        let blocks = self.m.div_ceil(most);
        let height = self.m.div_ceil(blocks);
        let short = blocks * height - self.m;
        let rows = [(height, blocks - short, 0), (height - 1, short, (blocks - short) * height)];

        let lanes = c.isa.lanes(self.kind.bytes());
        let width = width(height);
        let column = |block: V<'c>, width: usize, vectors: usize, valid: usize| {
            let place = self.column(c, at, block, width, vectors, valid);
            for (height, count, first) in rows {
                if count > 0 && height > 0 {
                    c.times(count, 1, |i| {
                        let row = c.add_c(c.mul_c(i, height as i64), first as i64);
                        self.block(c, at, &place, row, height);
                    });
                }
            }
        };
        if let Some((_, panels)) = at.exists {
            // Blocks of existing panels, then the panels that are left over one by one.
            let per_panel = PANEL / lanes;
            let panels = c.mins(panels, c.c64((self.n / PANEL) as i64));
            let together = (width / per_panel).max(1);
            let loop_over = |lo, hi, vectors: usize| {
                c.for_(lo, hi, c.c64(1), &[], |block, _| {
                    column(block, vectors, vectors, vectors * lanes);
                    vec![]
                });
            };
            let blocks = c.shru_c(panels, together.trailing_zeros().into());
            loop_over(c.c64(0), blocks, together * per_panel);
            if together > 1 {
                loop_over(c.mul_c(blocks, together as i64), panels, per_panel);
            }
            return;
        }
        // Columns that make whole blocks, then one narrower block with the rest.
        let whole = self.n / (width * lanes);
        let rest = self.n - whole * width * lanes;
        c.times(whole, 1, |block| column(block, width, width, width * lanes));
        if rest > 0 {
            column(c.c64(whole as i64), width, rest.div_ceil(lanes), rest);
        }
    }

    /// Where the vectors of a block of columns are.
    fn column<'c>(
        &self,
        c: &Code<'_, 'c>,
        at: &Operands<'c>,
        block: V<'c>,
        width: usize,
        vectors: usize,
        valid: usize,
    ) -> Column<'c> {
        let lanes = c.isa.lanes(self.kind.bytes());
        let (per_panel, vector_bytes) = (PANEL / lanes, (lanes * self.stored_bytes()) as i64);
        let base = if width >= per_panel {
            c.step(at.b, c.mul_c(block, (width / per_panel) as i64), at.b_panel)
        } else {
            // Several blocks to a panel; both counts are powers of two.
            let blocks = per_panel / width;
            let panel = c.shru_c(block, blocks.trailing_zeros().into());
            let inside = c.and_c(block, blocks as i64 - 1);
            c.offset(c.step(at.b, panel, at.b_panel), c.mul_c(inside, width as i64 * vector_bytes))
        };
        let b = (0..vectors)
            .map(|v| {
                let panel = c.step_c(base, v / per_panel, at.b_panel);
                (panel, (v % per_panel) as i64 * vector_bytes)
            })
            .collect();
        let out = c.offset(at.c, c.mul_c(block, (width * lanes * self.kind.bytes()) as i64));
        Column { b, c: out, lanes, valid }
    }

    /// One block of `height` rows from `row`.
    fn block<'c>(&self, c: &Code<'_, 'c>, at: &Operands<'c>, col: &Column<'c>, row: V<'c>, height: usize) {
        let (vectors, lanes) = (col.b.len(), col.lanes);
        let element = self.kind.accumulator(c);
        let valid = |v: usize| (col.valid - v * lanes).min(lanes);
        let a = c.step(at.a, row, at.a_row);
        let a_rows: Vec<V<'c>> = (0..height).map(|r| c.step_c(a, r, at.a_row)).collect();
        let out = c.step(col.c, row, at.c_row);
        let place = |r: usize, v: usize| c.offset_c(c.step_c(out, r, at.c_row), (v * lanes * self.kind.bytes()) as i64);
        let init: Vec<V<'c>> = (0..height * vectors)
            .map(|i| c.read_first(place(i / vectors, i % vectors), element, lanes, valid(i % vectors)))
            .collect();

        // `count` steps of k from `k`.
        let steps = |k: V<'c>, count: usize, mut acc: Vec<V<'c>>| {
            let a_at = c.mul_c(k, self.kind.bytes() as i64);
            let a_k: Vec<V<'c>> = match at.a_row {
                Stride::Fixed(bytes) => {
                    let first = c.offset(a, a_at);
                    (0..height).map(|r| c.offset_c(first, r as i64 * bytes)).collect()
                }
                Stride::Run(_) => a_rows.iter().map(|a| c.offset(*a, a_at)).collect(),
            };
            let b_k: Vec<V<'c>> =
                col.b.iter().map(|(b, inside)| c.offset_c(c.step(*b, k, at.b_row), *inside)).collect();
            for q in 0..count {
                let b: Vec<V<'c>> = (0..vectors)
                    .map(|v| {
                        let valid = if self.padded { lanes } else { valid(v) };
                        self.load(c, c.step_c(b_k[v], q, at.b_row), lanes, valid)
                    })
                    .collect();
                for r in 0..height {
                    let x = self.broadcast(c, c.offset_c(a_k[r], (q * self.kind.bytes()) as i64), lanes);
                    for v in 0..vectors {
                        let acc = &mut acc[r * vectors + v];
                        *acc = self.multiply(c, x, b[v], *acc);
                    }
                }
            }
            acc
        };
        let (unroll, one) = (c.c64(UNROLL as i64), c.c64(1));
        let acc = if let Some((rows, _)) = at.exists {
            let k = c.mins(rows, c.c64(self.k as i64));
            let main = c.and_c(k, !(UNROLL as i64 - 1));
            let acc = c.for_(c.c64(0), main, unroll, &init, |k, acc| steps(k, UNROLL, acc.to_vec()));
            c.for_(main, k, one, &acc, |k, acc| steps(k, 1, acc.to_vec()))
        } else {
            let main = self.k / UNROLL * UNROLL;
            let acc = match main / UNROLL {
                0 => init,
                1 => steps(c.c64(0), UNROLL, init),
                _ => c.for_(c.c64(0), c.c64(main as i64), unroll, &init, |k, acc| steps(k, UNROLL, acc.to_vec())),
            };
            if main < self.k { steps(c.c64(main as i64), self.k - main, acc) } else { acc }
        };
        for (i, value) in acc.into_iter().enumerate() {
            c.write_first(value, place(i / vectors, i % vectors), valid(i % vectors));
        }
    }

    /// A vector of B as it is multiplied.
    fn load<'c>(&self, c: &Code<'_, 'c>, at: V<'c>, lanes: usize, valid: usize) -> V<'c> {
        match self.stored {
            Stored::Plain => c.read_first(at, self.kind.accumulator(c), lanes, valid),
            Stored::F16 => c.extf(c.read_first(at, c.f16(), lanes, valid), c.f32()),
            Stored::BF16 => {
                let wide = c.zext(c.read_first(at, c.i16(), lanes, valid), c.i32());
                c.bitcast(c.shl_c(wide, 16), c.f32())
            }
        }
    }

    fn broadcast<'c>(&self, c: &Code<'_, 'c>, at: V<'c>, lanes: usize) -> V<'c> {
        c.splat(c.read(at, self.kind.accumulator(c), 0), lanes)
    }

    fn multiply<'c>(&self, c: &Code<'_, 'c>, a: V<'c>, b: V<'c>, acc: V<'c>) -> V<'c> {
        if self.kind != Kind::Pairs {
            return c.fma(a, b, acc);
        }
        c.add(acc, pairs_of_words(c, c.recast(a, c.i16()), c.recast(b, c.i16())))
    }
}

/// A block of columns: addresses of its vectors in B (panel, and bytes inside a row) and of its first column in C.
struct Column<'c> {
    b: Vec<(V<'c>, i64)>,
    c: V<'c>,
    lanes: usize,
    valid: usize,
}
