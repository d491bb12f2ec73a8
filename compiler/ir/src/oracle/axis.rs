//! Ops along an axis: reductions, scans, sorting, counting, selecting.

use super::{
    elementwise,
    error::{Fault, Trap},
    number,
    value::Tile,
};
use crate::{attr::ReduceKind, elem::Elem, ops::OpKind, types::TileType};
use std::cmp::Ordering;

type Combine = Box<dyn Fn(u64, u64) -> u64>;

/// How a line of elements is folded, element by element.
enum Fold {
    /// Float sum or product: in f64 whatever the type, rounded when it is read.
    Real(fn(f64, f64) -> f64),
    /// On patterns of the result's type.
    Pattern(Combine),
    /// The index of the first element that is `better` than all others, NaNs aside.
    Best(Combine),
}

/// The state of a fold.
#[derive(Clone, Copy)]
enum State {
    Real(f64),
    Pattern(u64),
    Best(Option<(usize, u64)>),
}

impl Fold {
    fn new(kind: ReduceKind, from: Elem, to: Elem) -> Result<Fold, Fault> {
        let op = match kind {
            ReduceKind::Sum if from.is_float() => return Ok(Fold::Real(|a, b| a + b)),
            ReduceKind::Prod if from.is_float() => return Ok(Fold::Real(|a, b| a * b)),
            ReduceKind::Argmax => return Ok(Fold::Best(elementwise::binary(OpKind::Gt, from)?)),
            ReduceKind::Argmin => return Ok(Fold::Best(elementwise::binary(OpKind::Lt, from)?)),
            ReduceKind::Sum => OpKind::Add,
            ReduceKind::Prod => OpKind::Mul,
            ReduceKind::Max => OpKind::Max,
            ReduceKind::Min => OpKind::Min,
            ReduceKind::MaxNan => OpKind::MaxNan,
            ReduceKind::MinNan => OpKind::MinNan,
            ReduceKind::Any => OpKind::Or,
            ReduceKind::All => OpKind::And,
            ReduceKind::Xor => OpKind::Xor,
        };
        Ok(Fold::Pattern(elementwise::binary(op, to)?))
    }

    /// The state after element `i`, whose pattern is `x`; before the first there is none.
    fn step(&self, from: Elem, to: Elem, state: Option<State>, i: usize, x: u64) -> State {
        match (self, state) {
            (Fold::Real(f), Some(State::Real(s))) => State::Real(f(s, number::widen(from, x))),
            (Fold::Real(_), _) => State::Real(number::widen(from, x)),
            (Fold::Pattern(f), Some(State::Pattern(s))) => State::Pattern(f(s, number::cast(from, to, x))),
            (Fold::Pattern(_), _) => State::Pattern(number::cast(from, to, x)),
            (Fold::Best(better), Some(State::Best(Some(b)))) => {
                State::Best(Some(if better(x, b.1) != 0 { (i, x) } else { b }))
            }
            (Fold::Best(_), _) => State::Best((!is_nan(from, x)).then_some((i, x))),
        }
    }
}

impl State {
    fn pattern(self, to: Elem) -> u64 {
        match self {
            State::Real(v) => number::round(to, if v.is_nan() { f64::NAN } else { v }),
            State::Pattern(p) => p,
            State::Best(b) => b.map_or(0, |b| b.0 as u64),
        }
    }
}

fn is_nan(elem: Elem, bits: u64) -> bool {
    elem.is_float() && number::widen(elem, bits).is_nan()
}

pub(super) fn reduce(x: &Tile, axis: usize, kind: ReduceKind, result: &TileType) -> Result<Tile, Fault> {
    let fold = Fold::new(kind, x.elem, result.elem)?;
    let line = |lanes: Vec<usize>| {
        let fold_one =
            |state, (i, &lane): (usize, &usize)| Some(fold.step(x.elem, result.elem, state, i, x.bits[lane]));
        lanes.iter().enumerate().fold(None, fold_one).map_or(0, |s| s.pattern(result.elem))
    };
    Ok(Tile::new(result, x.lines(axis, false).map(line).collect()))
}

pub(super) fn scan(x: &Tile, axis: usize, kind: ReduceKind, reverse: bool, result: &TileType) -> Result<Tile, Fault> {
    let fold = Fold::new(kind, x.elem, result.elem)?;
    let mut t = Tile::splat(result, 0);
    for lanes in x.lines(axis, reverse) {
        let mut state = None;
        for (i, lane) in lanes.into_iter().enumerate() {
            let next = fold.step(x.elem, result.elem, state, i, x.bits[lane]);
            t.bits[lane] = next.pattern(result.elem);
            state = Some(next);
        }
    }
    Ok(t)
}

/// Ascending by value. NaNs are equal to each other and come after everything, in both directions.
fn by_value(elem: Elem, descending: bool, a: u64, b: u64) -> Ordering {
    let order = if elem.is_float() {
        let (a, b) = (number::widen(elem, a), number::widen(elem, b));
        match a.partial_cmp(&b) {
            Some(order) => order,
            None => return a.is_nan().cmp(&b.is_nan()),
        }
    } else {
        number::int(elem, a).cmp(&number::int(elem, b))
    };
    if descending { order.reverse() } else { order }
}

pub(super) fn sort(x: &Tile, descending: bool) -> Tile {
    let mut t = x.clone();
    // Rust's sort is stable.
    t.bits
        .chunks_mut(x.shape[x.shape.len() - 1])
        .for_each(|row| row.sort_by(|&a, &b| by_value(x.elem, descending, a, b)));
    t
}

pub(super) fn top_k(x: &Tile, k: usize) -> (Tile, Tile) {
    let last = x.shape.len() - 1;
    let mut shape = x.shape.clone();
    shape[last] = k;
    let (mut values, mut indices) = (vec![], vec![]);
    for row in x.bits.chunks(x.shape[last]) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| by_value(x.elem, true, row[a], row[b]));
        for &i in &order[..k] {
            values.push(row[i]);
            indices.push(i as u64);
        }
    }
    (Tile { elem: x.elem, shape: shape.clone(), bits: values }, Tile { elem: Elem::I32, shape, bits: indices })
}

pub(super) fn histogram(x: &Tile, mask: Option<&Tile>, result: &TileType) -> Tile {
    let mut t = Tile::splat(result, 0);
    for i in 0..x.bits.len() {
        let v = x.int(i);
        if mask.is_none_or(|m| m.bits[i] != 0) && (0..t.bits.len() as i128).contains(&v) {
            t.bits[v as usize] += 1;
        }
    }
    t
}

pub(super) fn take(x: &Tile, index: &Tile, axis: usize, checked: bool) -> Result<Tile, Trap> {
    let mut t = index.map(x.elem, |_| 0);
    // Both have the same lines, of different lengths.
    for (from, to) in x.lines(axis, false).zip(index.lines(axis, false)) {
        for lane in to {
            let i = index.int(lane);
            if (0..from.len() as i128).contains(&i) {
                t.bits[lane] = x.bits[from[i as usize]];
            } else if checked {
                let extents = x.shape.iter().map(|&n| n as i64).collect();
                return Err(Fault::OutOfRange { name: "the tile".into(), extents }.at(index.index(lane)));
            }
        }
    }
    Ok(t)
}
