//! Copying operands to scratch memory, where the register blocks read them best: A row by row, B in panels of 16 columns,
//! both in the type that is multiplied. Rows and panels get 64 bytes more than they need: at a power-of-two distance they
//! would fall into the same few sets of the L1 cache.

use super::{
    Code, Stride,
    gemm::{Kind, PANEL},
};
use crate::lower::cpu::build::V;
use melior::ir::Type;
use tegula_ir::Elem;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The element type of a staged operand, and how it comes from `elem`.
fn widen<'c>(c: &Code<'_, 'c>, v: V<'c>, elem: Elem) -> V<'c> {
    match elem {
        Elem::F16 => c.extf(v, c.f32()),
        Elem::BF16 => c.bitcast(c.shl_c(c.zext(v, c.i32()), 16), c.f32()),
        Elem::I8 => c.sext(v, c.i16()),
        Elem::U8 => c.zext(v, c.i16()),
        _ => v,
    }
}

/// `elem` as it is loaded.
fn loaded<'c>(c: &Code<'_, 'c>, elem: Elem) -> Type<'c> {
    match elem {
        Elem::F64 => c.f64(),
        Elem::F32 => c.f32(),
        Elem::F16 => c.f16(),
        other => c.int(other.bits()),
    }
}

/// Bytes of one staged element: i16 for the 8-bit integers.
fn staged_bytes(kind: Kind) -> usize {
    if kind == Kind::Pairs { 2 } else { kind.bytes() }
}

/// Distance of staged rows of A of `k` elements.
pub fn a_row(kind: Kind, k: usize) -> usize {
    k.next_multiple_of(PANEL) * staged_bytes(kind) + LINE
}

/// Distance of staged panels of B of `k` rows (elements, not pairs).
pub fn b_panel(kind: Kind, k: usize) -> usize {
    b_rows(kind, k) * PANEL * kind.bytes() + LINE
}

/// Rows of a staged panel: pairs are one.
pub fn b_rows(kind: Kind, k: usize) -> usize {
    if kind == Kind::Pairs { k.div_ceil(2) } else { k }
}

/// Copies m rows of k elements to `to`, rows [`a_row`] apart; what fills the last vector of a row is 0.
pub fn a<'c>(
    c: &Code<'_, 'c>,
    kind: Kind,
    elem: Elem,
    (m, k): (usize, usize),
    from: V<'c>,
    row: Stride<'c>,
    to: V<'c>,
) {
    let (size, staged) = (elem.bytes() as i64, staged_bytes(kind) as i64);
    c.times(m, 1, |i| {
        let (from, to) = (c.step(from, i, row), c.step(to, i, Stride::Fixed(a_row(kind, k) as i64)));
        let copy = |k: V<'c>, valid| {
            let v = c.read_first(c.step(from, k, Stride::Fixed(size)), loaded(c, elem), PANEL, valid);
            c.write(widen(c, v, elem), c.step(to, k, Stride::Fixed(staged)));
        };
        let whole = k / PANEL * PANEL;
        c.times(whole, PANEL, |k| copy(k, PANEL));
        if whole < k {
            copy(c.c64(whole as i64), k - whole);
        }
    });
}

/// Copies k rows of n elements, n contiguous, to panels at `to`, [`b_panel`] apart; columns that fill the last panel are 0.
pub fn b<'c>(
    c: &Code<'_, 'c>,
    kind: Kind,
    elem: Elem,
    (k, n): (usize, usize),
    from: V<'c>,
    row: Stride<'c>,
    to: V<'c>,
) {
    let (line, panel) = (Stride::Fixed((PANEL * kind.bytes()) as i64), Stride::Fixed(b_panel(kind, k) as i64));
    // Row `i` of a panel: a row of B, or two that become one of pairs (an odd last one is paired with zeros).
    let rows = |i: V<'c>, first: V<'c>, second: Option<V<'c>>| {
        // The row after next but some: by the time it is copied, it is there.
        let ahead = c.step_c(first, 8, row);
        let to = c.step(to, i, line);
        let copy = |j: V<'c>, valid: usize| {
            let at = c.mul_c(j, (PANEL * elem.bytes()) as i64);
            c.prefetch(c.offset(ahead, at), 3);
            let load = |row| widen(c, c.read_first(c.offset(row, at), loaded(c, elem), PANEL, valid), elem);
            let v = match second {
                _ if kind != Kind::Pairs => load(first),
                Some(second) => interleave(c, load(first), load(second)),
                None => interleave(c, load(first), c.zeros(c.i16(), PANEL)),
            };
            c.write(v, c.step(to, j, panel));
        };
        c.times(n / PANEL, 1, |j| copy(j, PANEL));
        if n % PANEL > 0 {
            copy(c.c64((n / PANEL) as i64), n % PANEL);
        }
    };
    if kind != Kind::Pairs {
        return c.times(k, 1, |i| rows(i, c.step(from, i, row), None));
    }
    c.times(k / 2, 1, |i| {
        let first = c.step(from, c.mul_c(i, 2), row);
        rows(i, first, Some(c.step_c(first, 1, row)));
    });
    if k % 2 == 1 {
        rows(c.c64((k / 2) as i64), c.step_c(from, k - 1, row), None);
    }
}

/// As [`b`] for a matrix that lies transposed: n rows of k elements, k contiguous.
pub fn b_transposed<'c>(
    c: &Code<'_, 'c>,
    kind: Kind,
    elem: Elem,
    (k, n): (usize, usize),
    from: V<'c>,
    row: Stride<'c>,
    to: V<'c>,
) {
    // Squares of one vector's lanes; a lane is one element of a panel's row (of pairs: two of k, which stay together).
    let lanes = c.isa.lanes(kind.bytes());
    let per_lane = if kind == Kind::Pairs { 2 } else { 1 };
    let across = lanes * per_lane;
    let square = |k0: V<'c>, k_valid: usize, n0: V<'c>, n_valid: usize| {
        let from = c.step(c.step(from, n0, row), k0, Stride::Fixed(elem.bytes() as i64));
        let mut v: Vec<V<'c>> = (0..lanes)
            .map(|i| {
                if i >= n_valid {
                    return c.zeros(kind.accumulator(c), lanes);
                }
                let x = widen(c, c.read_first(c.step_c(from, i, row), loaded(c, elem), across, k_valid), elem);
                if kind == Kind::Pairs { c.recast(x, c.i32()) } else { x }
            })
            .collect();
        // Interleaving rows i and i + lanes/2, as often as lanes has bits, transposes.
        for _ in 0..lanes.trailing_zeros() {
            let half = lanes / 2;
            let from = |high: usize| (0..lanes).map(|i| high * half + i / 2 + i % 2 * lanes).collect::<Vec<_>>();
            v = (0..lanes).map(|i| c.shuffle(v[i / 2], v[i / 2 + half], &from(i % 2))).collect();
        }
        let panel = c.step(to, c.shru_c(n0, PANEL.trailing_zeros().into()), Stride::Fixed(b_panel(kind, k) as i64));
        let column = c.mul_c(c.and_c(n0, PANEL as i64 - 1), kind.bytes() as i64);
        let first = c.shru_c(k0, per_lane.trailing_zeros().into());
        let at = c.step(c.offset(panel, column), first, Stride::Fixed((PANEL * kind.bytes()) as i64));
        for (i, v) in v.into_iter().take(k_valid.div_ceil(per_lane)).enumerate() {
            c.write(v, c.offset_c(at, (i * PANEL * kind.bytes()) as i64));
        }
    };
    let line = |n0: V<'c>, n_valid: usize| {
        let whole = k / across * across;
        c.times(whole, across, |k0| square(k0, across, n0, n_valid));
        if whole < k {
            square(c.c64(whole as i64), k - whole, n0, n_valid);
        }
    };
    let whole = n / lanes * lanes;
    c.times(whole, lanes, |n0| line(n0, lanes));
    // The rest of the last panel, zeros included.
    for n0 in (whole..n.next_multiple_of(PANEL)).step_by(lanes) {
        line(c.c64(n0 as i64), n.saturating_sub(n0));
    }
}

/// Elements of x and y in turn.
fn interleave<'c>(c: &Code<'_, 'c>, x: V<'c>, y: V<'c>) -> V<'c> {
    c.shuffle(x, y, &(0..2 * PANEL).map(|i| i / 2 + i % 2 * PANEL).collect::<Vec<_>>())
}
