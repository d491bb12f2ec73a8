//! Type rules: what operands, results and attributes an op must have. Each row of the op table names one of these.
//! A rule's message says what was expected and what was found; the verifier adds the op and its line.

use crate::{
    attr::{AtomicKind, Attrs, Key, MemOrder, Precision, ReduceKind},
    elem::Elem,
    kernel::{Kernel, Op, Region, Value},
    types::{QTileType, TileType, Type, ViewFacts, ViewType},
};

/// A type rule.
pub type Check = fn(&Kernel, &Op) -> Result<(), String>;
type R<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($cond:expr, $($fmt:tt)*) => { if !$cond { return Err(format!($($fmt)*)); } };
}

// ---- reading an op ----

fn arity(op: &Op, operands: usize, results: usize) -> R {
    ensure!(op.operands.len() == operands, "takes {operands} operands, found {}", op.operands.len());
    outs(op, results)
}
fn outs(op: &Op, results: usize) -> R {
    ensure!(op.results.len() == results, "gives {results} results, found {}", op.results.len());
    Ok(())
}
fn tile_of(k: &Kernel, v: Value) -> R<&TileType> {
    k.ty(v).as_tile().ok_or_else(|| format!("expected a tile, found `{}`", k.ty(v)))
}
fn tile<'k>(k: &'k Kernel, op: &Op, i: usize) -> R<&'k TileType> {
    let v = *op.operands.get(i).ok_or_else(|| format!("operand {i} is missing"))?;
    tile_of(k, v).map_err(|e| format!("operand {i}: {e}"))
}
fn out<'k>(k: &'k Kernel, op: &Op, i: usize) -> R<&'k TileType> {
    let v = *op.results.get(i).ok_or_else(|| format!("result {i} is missing"))?;
    tile_of(k, v).map_err(|e| format!("result {i}: {e}"))
}
fn view<'k>(k: &'k Kernel, op: &Op) -> R<&'k ViewType> {
    let v = *op.operands.first().ok_or("the view operand is missing")?;
    k.ty(v).as_view().ok_or_else(|| format!("operand 0 must be a view, found `{}`", k.ty(v)))
}
fn qtile(k: &Kernel, v: Value) -> R<&QTileType> {
    match k.ty(v) {
        Type::QTile(q) => Ok(q),
        t => Err(format!("expected a quantised tile, found `{t}`")),
    }
}
fn same(a: &TileType, b: &TileType, what: &str) -> R {
    ensure!(a == b, "{what}: `{a}` and `{b}` differ");
    Ok(())
}
fn shapes(a: &TileType, b: &TileType, what: &str) -> R {
    ensure!(a.shape == b.shape, "{what}: shapes {:?} and {:?} differ", a.shape, b.shape);
    Ok(())
}
fn elem(t: &TileType, e: Elem, what: &str) -> R {
    ensure!(t.elem == e, "{what} must be `{e}`, found `{}`", t.elem);
    Ok(())
}
fn axis(op: &Op, rank: usize) -> R<usize> {
    let a = op.attrs.int(Key::Axis).ok_or("attribute `axis` is missing")?;
    ensure!((0..rank as i64).contains(&a), "axis {a} does not exist in rank {rank}");
    Ok(a as usize)
}
fn count(op: &Op, key: Key, least: i64) -> R<usize> {
    let n = op.attrs.int(key).ok_or_else(|| format!("attribute `{}` is missing", key.name()))?;
    ensure!(n >= least, "`{}` must be at least {least}, found {n}", key.name());
    Ok(n as usize)
}
fn kind<T>(attrs: &Attrs, key: Key, from: fn(&str) -> Option<T>) -> R<T> {
    attrs.sym(key).and_then(from).ok_or_else(|| format!("attribute `{}` is missing or has no such value", key.name()))
}
fn region(op: &Op, i: usize) -> R<&Region> {
    op.regions.get(i).ok_or_else(|| format!("region {i} is missing"))
}
fn types_match(k: &Kernel, a: &[Value], b: &[Value], what: &str) -> R {
    ensure!(a.len() == b.len(), "{what}: {} and {} values", a.len(), b.len());
    for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
        ensure!(k.ty(x) == k.ty(y), "{what} {i}: `{}` and `{}` differ", k.ty(x), k.ty(y));
    }
    Ok(())
}

// ---- values out of nothing ----

pub(crate) fn constant(k: &Kernel, op: &Op) -> R {
    arity(op, 0, 1)?;
    let v = op.attrs.scalar(Key::Value).ok_or("attribute `value` is missing")?;
    elem(out(k, op, 0)?, v.elem, "the result")
}
pub(crate) fn iota(k: &Kernel, op: &Op) -> R {
    arity(op, 0, 1)?;
    let t = out(k, op, 0)?;
    ensure!(t.rank() == 1 && t.elem.is_int(), "gives an integer tile of rank 1, found `{t}`");
    Ok(())
}
pub(crate) fn grid(k: &Kernel, op: &Op) -> R {
    arity(op, 0, 1)?;
    axis(op, 3)?;
    same(out(k, op, 0)?, &TileType::new(Elem::I32, []), "the result is a scalar i32")
}

// ---- shape ----

pub(crate) fn broadcast(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let (a, r) = (tile(k, op, 0)?, out(k, op, 0)?);
    elem(r, a.elem, "the result")?;
    let fits =
        a.shape.is_empty() || (a.rank() == r.rank() && a.shape.iter().zip(&r.shape).all(|(&x, &y)| x == y || x == 1));
    ensure!(fits, "shape {:?} does not broadcast to {:?}", a.shape, r.shape);
    Ok(())
}
pub(crate) fn reshape(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let (a, r) = (tile(k, op, 0)?, out(k, op, 0)?);
    elem(r, a.elem, "the result")?;
    ensure!(
        a.len() == r.len(),
        "shapes {:?} ({} elements) and {:?} ({} elements) differ in size",
        a.shape,
        a.len(),
        r.shape,
        r.len()
    );
    Ok(())
}
pub(crate) fn permute(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let (a, r) = (tile(k, op, 0)?, out(k, op, 0)?);
    let perm = op.attrs.ints(Key::Perm).ok_or("attribute `perm` is missing")?;
    let mut seen = vec![false; a.rank()];
    for &p in perm {
        ensure!(
            p >= 0 && (p as usize) < a.rank() && !std::mem::replace(&mut seen[p as usize], true),
            "{perm:?} is no permutation of {} axes",
            a.rank()
        );
    }
    ensure!(perm.len() == a.rank(), "{perm:?} is no permutation of {} axes", a.rank());
    let want: Vec<usize> = perm.iter().map(|&p| a.shape[p as usize]).collect();
    same(r, &TileType::new(a.elem, want), "the result")
}
pub(crate) fn slice(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let a = tile(k, op, 0)?;
    let (ax, start, size) = (axis(op, a.rank())?, count(op, Key::Start, 0)?, count(op, Key::Size, 1)?);
    ensure!(start + size <= a.shape[ax], "elements {start}..{} of an axis of extent {}", start + size, a.shape[ax]);
    let mut want = a.clone();
    want.shape[ax] = size;
    same(out(k, op, 0)?, &want, "the result")
}
pub(crate) fn cat(k: &Kernel, op: &Op) -> R {
    outs(op, 1)?;
    let first = tile(k, op, 0)?;
    let ax = axis(op, first.rank())?;
    let mut want = first.clone();
    want.shape[ax] = 0;
    for i in 0..op.operands.len() {
        let t = tile(k, op, i)?;
        let fits = t.elem == first.elem
            && t.rank() == first.rank()
            && (0..t.rank()).all(|d| d == ax || t.shape[d] == first.shape[d]);
        ensure!(fits, "operands `{first}` and `{t}` may differ along axis {ax} only");
        want.shape[ax] += t.shape[ax];
    }
    same(out(k, op, 0)?, &want, "the result")
}

pub(crate) fn convert_layout(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    same(tile(k, op, 0)?, out(k, op, 0)?, "operand and result")
}

// ---- elementwise ----

fn uniform(k: &Kernel, op: &Op, n: usize, ok: fn(Elem) -> bool, what: &str) -> R {
    arity(op, n, 1)?;
    let r = out(k, op, 0)?;
    ensure!(ok(r.elem), "works on {what}, found `{}`", r.elem);
    for i in 0..n {
        same(tile(k, op, i)?, r, &format!("operand {i} and the result"))?;
    }
    Ok(())
}
fn bits(e: Elem) -> bool {
    !e.is_float()
}
pub(crate) fn unary_num(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 1, Elem::is_num, "numbers")
}
pub(crate) fn unary_float(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 1, Elem::is_float, "floats")
}
pub(crate) fn unary_bits(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 1, bits, "integers and bool")
}
pub(crate) fn binary_num(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 2, Elem::is_num, "numbers")
}
pub(crate) fn binary_float(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 2, Elem::is_float, "floats")
}
pub(crate) fn binary_bits(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 2, bits, "integers and bool")
}
pub(crate) fn binary_int(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 2, Elem::is_int, "integers")
}
pub(crate) fn fma(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 3, Elem::is_float, "floats")
}
pub(crate) fn compare(k: &Kernel, op: &Op) -> R {
    arity(op, 2, 1)?;
    let (a, b) = (tile(k, op, 0)?, tile(k, op, 1)?);
    same(a, b, "the operands")?;
    same(out(k, op, 0)?, &a.with_elem(Elem::Bool), "the result")
}
pub(crate) fn select(k: &Kernel, op: &Op) -> R {
    arity(op, 3, 1)?;
    let r = out(k, op, 0)?;
    same(tile(k, op, 0)?, &r.with_elem(Elem::Bool), "the condition")?;
    same(tile(k, op, 1)?, r, "operand 1 and the result")?;
    same(tile(k, op, 2)?, r, "operand 2 and the result")
}
pub(crate) fn cast(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    shapes(tile(k, op, 0)?, out(k, op, 0)?, "operand and result")
}
pub(crate) fn bitcast(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let (a, r) = (tile(k, op, 0)?, out(k, op, 0)?);
    shapes(a, r, "operand and result")?;
    ensure!(a.elem.bits() == r.elem.bits(), "`{}` and `{}` differ in width", a.elem, r.elem);
    Ok(())
}

// ---- along an axis ----

pub(crate) fn reduce(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let (a, r) = (tile(k, op, 0)?, out(k, op, 0)?);
    let ax = axis(op, a.rank())?;
    let mut want = a.shape.clone();
    want[ax] = 1;
    ensure!(r.shape == want, "the result must have shape {want:?}, found {:?}", r.shape);
    let kind = kind(&op.attrs, Key::Kind, ReduceKind::from_name)?;
    reduce_elems(kind, a.elem, r.elem)
}
fn reduce_elems(kind: ReduceKind, a: Elem, r: Elem) -> R {
    use ReduceKind::*;
    let ok = match kind {
        Sum => {
            (a == Elem::Bool && r.is_int())
                || a == r
                || (a.is_float() == r.is_float() && r.bits() >= a.bits() && a.is_num() && r.is_num())
        }
        Prod => a.is_num() && (a == r || (a.is_float() == r.is_float() && r.bits() >= a.bits() && r.is_num())),
        Max | Min => a.is_num() && a == r,
        MaxNan | MinNan => a.is_float() && a == r,
        Argmax | Argmin => a.is_num() && r == Elem::I32,
        Any | All => a == Elem::Bool && a == r,
        Xor => !a.is_float() && a == r,
    };
    ensure!(ok, "`{}` of `{a}` cannot give `{r}`", kind.name());
    Ok(())
}
pub(crate) fn scan(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let (a, r) = (tile(k, op, 0)?, out(k, op, 0)?);
    axis(op, a.rank())?;
    shapes(a, r, "operand and result")?;
    let kind = kind(&op.attrs, Key::Kind, ReduceKind::from_name)?;
    ensure!(!matches!(kind, ReduceKind::Argmax | ReduceKind::Argmin), "there is no scan `{}`", kind.name());
    reduce_elems(kind, a.elem, r.elem)
}
/// `reduce_with` and `scan_with`: n tiles of one shape, a region from 2n scalars to n.
pub(crate) fn combine(k: &Kernel, op: &Op) -> R {
    let n = op.operands.len();
    ensure!(n > 0, "needs an operand");
    outs(op, n)?;
    let first = tile(k, op, 0)?;
    let ax = axis(op, first.rank())?;
    let reduces = op.kind == crate::ops::OpKind::ReduceWith;
    let mut want = first.shape.clone();
    if reduces {
        want[ax] = 1;
    }
    let body = region(op, 0)?;
    ensure!(body.args.len() == 2 * n && body.yields.len() == n, "the combiner takes {} scalars and gives {n}", 2 * n);
    for i in 0..n {
        let t = tile(k, op, i)?;
        shapes(t, first, "the operands")?;
        same(out(k, op, i)?, &TileType::new(t.elem, want.clone()), "the result")?;
        for v in [body.args[i], body.args[n + i], body.yields[i]] {
            ensure!(k.ty(v).is_scalar_of(t.elem), "the combiner works on scalars of `{}`, found `{}`", t.elem, k.ty(v));
        }
    }
    Ok(())
}
pub(crate) fn sort(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 1, Elem::is_num, "numbers")?;
    ensure!(out(k, op, 0)?.rank() > 0, "a scalar has no axis to sort");
    Ok(())
}
pub(crate) fn topk(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 2)?;
    let a = tile(k, op, 0)?;
    ensure!(a.rank() > 0 && a.elem.is_num(), "works on numbers along the last axis, found `{a}`");
    let n = count(op, Key::K, 1)?;
    let mut want = a.clone();
    let last = want.shape.len() - 1;
    ensure!(n <= want.shape[last], "the {n} largest of {}", want.shape[last]);
    want.shape[last] = n;
    same(out(k, op, 0)?, &want, "the values")?;
    same(out(k, op, 1)?, &want.with_elem(Elem::I32), "the indices")
}
pub(crate) fn histogram(k: &Kernel, op: &Op) -> R {
    let masked = op.attrs.has(Key::Masked);
    arity(op, 1 + masked as usize, 1)?;
    let a = tile(k, op, 0)?;
    ensure!(a.rank() == 1 && a.elem.is_int(), "counts integers of a tile of rank 1, found `{a}`");
    if masked {
        same(tile(k, op, 1)?, &a.with_elem(Elem::Bool), "the mask")?;
    }
    let bins = count(op, Key::Bins, 1)?;
    same(out(k, op, 0)?, &TileType::new(Elem::I32, [bins]), "the result")
}
pub(crate) fn take(k: &Kernel, op: &Op) -> R {
    arity(op, 2, 1)?;
    let (a, ix, r) = (tile(k, op, 0)?, tile(k, op, 1)?, out(k, op, 0)?);
    let ax = axis(op, a.rank())?;
    ensure!(ix.elem.is_int(), "indices are integers, found `{}`", ix.elem);
    ensure!(
        ix.rank() == a.rank() && (0..a.rank()).all(|d| d == ax || ix.shape[d] == a.shape[d]),
        "indices of shape {:?} for a tile of shape {:?}: only axis {ax} may differ",
        ix.shape,
        a.shape
    );
    same(r, &ix.with_elem(a.elem), "the result")
}

// ---- memory ----

pub(crate) fn dim(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let rank = match k.ty(op.operands[0]) {
        Type::View(v) => v.rank,
        Type::Packed(_) => 2,
        t => return Err(format!("operand 0 must be a view or a packed matrix, found `{t}`")),
    };
    axis(op, rank)?;
    same(out(k, op, 0)?, &TileType::new(Elem::I32, []), "the result is a scalar i32")
}
pub(crate) fn narrow(k: &Kernel, op: &Op) -> R {
    let v = *view(k, op)?;
    arity(op, 3, 1)?;
    let ax = axis(op, v.rank)?;
    for i in [1, 2] {
        same(tile(k, op, i)?, &TileType::new(Elem::I64, []), "start and length")?;
    }
    // A new start along the innermost axis may leave the 16-byte grid; along the others it moves by an aligned stride.
    let facts = ViewFacts { align16: v.facts.align16 && ax + 1 != v.rank, ..v.facts };
    let want = Type::View(ViewType { facts, ..v });
    ensure!(*k.ty(op.results[0]) == want, "the result must be `{want}`, found `{}`", k.ty(op.results[0]));
    Ok(())
}
fn position(k: &Kernel, op: &Op, rank: usize) -> R {
    for i in 1..=rank {
        same(tile(k, op, i)?, &TileType::new(Elem::I64, []), &format!("position {}", i - 1))?;
    }
    Ok(())
}
fn pad(op: &Op, e: Elem) -> R {
    if let Some(p) = op.attrs.scalar(Key::Pad) {
        ensure!(p.elem == e, "`pad` must be `{e}`, found `{}`", p.elem);
    }
    Ok(())
}
fn writable(v: &ViewType) -> R {
    ensure!(v.mutable, "the view is read-only: the parameter must be a `ViewMut`");
    Ok(())
}
pub(crate) fn load(k: &Kernel, op: &Op) -> R {
    let v = view(k, op)?;
    arity(op, 1 + v.rank, 1)?;
    position(k, op, v.rank)?;
    let r = out(k, op, 0)?;
    ensure!(r.rank() == v.rank && r.elem == v.elem, "gives a tile of `{}` of rank {}, found `{r}`", v.elem, v.rank);
    pad(op, v.elem)
}
pub(crate) fn store(k: &Kernel, op: &Op) -> R {
    let v = view(k, op)?;
    writable(v)?;
    arity(op, 2 + v.rank, 0)?;
    position(k, op, v.rank)?;
    let t = tile(k, op, 1 + v.rank)?;
    ensure!(t.rank() == v.rank && t.elem == v.elem, "stores a tile of `{}` of rank {}, found `{t}`", v.elem, v.rank);
    Ok(())
}
/// Index tiles at operands 1..=rank, a mask at the end if there is one; returns their shape.
fn indices<'k>(k: &'k Kernel, op: &Op, rank: usize, extra: usize) -> R<&'k [usize]> {
    let masked = op.attrs.has(Key::Masked);
    ensure!(
        op.operands.len() == 1 + rank + extra + masked as usize,
        "takes {} operands, found {}",
        1 + rank + extra + masked as usize,
        op.operands.len()
    );
    let first = tile(k, op, 1)?;
    for i in 1..=rank {
        same(tile(k, op, i)?, &TileType::new(Elem::I64, first.shape.clone()), &format!("index {}", i - 1))?;
    }
    if masked {
        same(tile(k, op, 1 + rank + extra)?, &first.with_elem(Elem::Bool), "the mask")?;
    }
    Ok(&first.shape)
}
pub(crate) fn gather(k: &Kernel, op: &Op) -> R {
    let v = view(k, op)?;
    outs(op, 1)?;
    let shape = indices(k, op, v.rank, 0)?;
    same(out(k, op, 0)?, &TileType::new(v.elem, shape), "the result")?;
    pad(op, v.elem)
}
pub(crate) fn scatter(k: &Kernel, op: &Op) -> R {
    let v = view(k, op)?;
    writable(v)?;
    outs(op, 0)?;
    let shape = indices(k, op, v.rank, 1)?;
    same(tile(k, op, 1 + v.rank)?, &TileType::new(v.elem, shape), "the values")
}
pub(crate) fn atomic(k: &Kernel, op: &Op) -> R {
    let v = view(k, op)?;
    writable(v)?;
    outs(op, 1)?;
    let shape = indices(k, op, v.rank, 1)?;
    same(tile(k, op, 1 + v.rank)?, &TileType::new(v.elem, shape), "the values")?;
    same(out(k, op, 0)?, &TileType::new(v.elem, shape), "the result")?;
    let kind = kind(&op.attrs, Key::Kind, AtomicKind::from_name)?;
    self::kind(&op.attrs, Key::Order, MemOrder::from_name)?;
    use AtomicKind::*;
    let ok = match kind {
        Add | Max | Min => v.elem.is_num() && v.elem.bits() >= 16,
        And | Or | Xor => v.elem.is_int(),
        Xchg => true,
    };
    ensure!(ok, "there is no `{}` on `{}`", kind.name(), v.elem);
    Ok(())
}
pub(crate) fn atomic_cas(k: &Kernel, op: &Op) -> R {
    let v = view(k, op)?;
    writable(v)?;
    outs(op, 1)?;
    let shape = indices(k, op, v.rank, 2)?;
    ensure!(v.elem.is_int(), "compares integers, found `{}`", v.elem);
    let want = TileType::new(v.elem, shape);
    same(tile(k, op, 1 + v.rank)?, &want, "the expected values")?;
    same(tile(k, op, 2 + v.rank)?, &want, "the new values")?;
    same(out(k, op, 0)?, &want, "the result")?;
    self::kind(&op.attrs, Key::Order, MemOrder::from_name).map(|_| ())
}

// ---- matrix products ----

pub(crate) fn dot(k: &Kernel, op: &Op) -> R {
    arity(op, 3, 1)?;
    let (a, b, c) = (tile(k, op, 0)?, tile(k, op, 1)?, tile(k, op, 2)?);
    ensure!(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, "works on tiles of rank 2, found `{a}`, `{b}`, `{c}`");
    ensure!(a.shape[1] == b.shape[0], "the contracted extents {} and {} differ", a.shape[1], b.shape[0]);
    ensure!(
        c.shape == [a.shape[0], b.shape[1]],
        "the accumulator must have shape {:?}, found {:?}",
        [a.shape[0], b.shape[1]],
        c.shape
    );
    ensure!(
        a.elem == b.elem || (a.elem.bits() == 8 && b.elem.bits() == 8 && a.elem.is_float() && b.elem.is_float()),
        "`{}` times `{}`",
        a.elem,
        b.elem
    );
    let acc = match a.elem {
        Elem::I8 | Elem::U8 => Elem::I32,
        e if e.is_float() => e.accumulator(),
        e => return Err(format!("there is no dot of `{e}`")),
    };
    elem(c, acc, "the accumulator")?;
    same(out(k, op, 0)?, c, "the result")?;
    if op.attrs.has(Key::Precision) {
        kind(&op.attrs, Key::Precision, Precision::from_name)?;
    }
    Ok(())
}
pub(crate) fn dot_grouped(k: &Kernel, op: &Op) -> R {
    arity(op, 5, 1)?;
    let (a, s, u, acc) = (tile(k, op, 0)?, tile(k, op, 1)?, tile(k, op, 2)?, tile(k, op, 4)?);
    let w = qtile(k, op.operands[3])?;
    ensure!(!w.quant.is_float(), "works on quantised formats, found `{}`: use `dot` with `dequant`", w.quant);
    ensure!(
        a.rank() == 2 && a.elem == Elem::I8 && a.shape[1] == w.k,
        "codes must be `i8` of shape (M, {}), found `{a}`",
        w.k
    );
    let m = a.shape[0];
    ensure!(
        w.k % w.quant.block() == 0,
        "k = {} is no multiple of the block of `{}` ({})",
        w.k,
        w.quant,
        w.quant.block()
    );
    same(s, &TileType::new(Elem::F32, [m, w.k / 32]), "the scales")?;
    same(u, &TileType::new(Elem::I32, [m, w.k / 32]), "the code sums")?;
    same(acc, &TileType::new(Elem::F32, [m, w.n]), "the accumulator")?;
    same(out(k, op, 0)?, acc, "the result")
}
fn packed_quant(k: &Kernel, op: &Op) -> R<crate::elem::Quant> {
    let v = *op.operands.first().ok_or("the packed operand is missing")?;
    match k.ty(v) {
        Type::Packed(p) => Ok(p.quant),
        t => Err(format!("operand 0 must be a packed matrix, found `{t}`")),
    }
}
pub(crate) fn packed_load(k: &Kernel, op: &Op) -> R {
    arity(op, 3, 1)?;
    let q = packed_quant(k, op)?;
    position(k, op, 2)?;
    let r = qtile(k, op.results[0])?;
    ensure!(r.quant == q, "gives a tile of `{q}`, found `{}`", r.quant);
    ensure!(r.k % q.block() == 0, "k = {} is no multiple of the block of `{q}` ({})", r.k, q.block());
    Ok(())
}
pub(crate) fn packed_gather(k: &Kernel, op: &Op) -> R {
    packed_quant(k, op)?;
    outs(op, 1)?;
    let shape = indices(k, op, 2, 0)?;
    same(out(k, op, 0)?, &TileType::new(Elem::F32, shape), "the result")
}
pub(crate) fn dequant(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 1)?;
    let q = qtile(k, op.operands[0])?;
    same(out(k, op, 0)?, &TileType::new(Elem::F32, [q.k, q.n]), "the result")
}

// ---- control flow ----

pub(crate) fn for_loop(k: &Kernel, op: &Op) -> R {
    ensure!(op.operands.len() >= 3, "takes lo, hi, step and the initial values");
    let lo = tile(k, op, 0)?;
    ensure!(lo.rank() == 0 && lo.elem.is_int(), "counts over a scalar integer, found `{lo}`");
    same(lo, tile(k, op, 1)?, "lo and hi")?;
    same(lo, tile(k, op, 2)?, "lo and step")?;
    let body = region(op, 0)?;
    ensure!(
        !body.args.is_empty() && k.ty(body.args[0]) == k.ty(op.operands[0]),
        "the body's first argument is the index"
    );
    carried(k, op, &op.operands[3..], &body.args[1..], body)
}
fn carried(k: &Kernel, op: &Op, inits: &[Value], args: &[Value], body: &Region) -> R {
    types_match(k, inits, args, "initial value and argument")?;
    types_match(k, args, &body.yields, "argument and yield")?;
    types_match(k, args, &op.results, "argument and result")
}
pub(crate) fn while_loop(k: &Kernel, op: &Op) -> R {
    let (cond, body) = (region(op, 0)?, region(op, 1)?);
    types_match(k, &op.operands, &cond.args, "initial value and argument of the condition")?;
    ensure!(
        cond.yields.len() == 1 && k.ty(cond.yields[0]).is_scalar_of(Elem::Bool),
        "the condition gives one scalar bool"
    );
    carried(k, op, &op.operands, &body.args, body)
}
pub(crate) fn if_else(k: &Kernel, op: &Op) -> R {
    ensure!(op.operands.len() == 1 && k.ty(op.operands[0]).is_scalar_of(Elem::Bool), "takes one scalar bool");
    for i in 0..2 {
        let r = region(op, i)?;
        ensure!(r.args.is_empty(), "the branches take no arguments");
        types_match(k, &r.yields, &op.results, "yield and result")?;
    }
    Ok(())
}

// ---- facts, checks, output ----

pub(crate) fn assume(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 0)?;
    ensure!(k.ty(op.operands[0]).is_scalar_of(Elem::Bool), "takes a scalar bool");
    Ok(())
}
pub(crate) fn multiple_of(k: &Kernel, op: &Op) -> R {
    uniform(k, op, 1, Elem::is_int, "integers")?;
    count(op, Key::N, 1).map(|_| ())
}
pub(crate) fn assert(k: &Kernel, op: &Op) -> R {
    arity(op, 1, 0)?;
    elem(tile(k, op, 0)?, Elem::Bool, "the condition")?;
    op.attrs.str(Key::Message).map(|_| ()).ok_or_else(|| "attribute `message` is missing".into())
}
pub(crate) fn print(k: &Kernel, op: &Op) -> R {
    outs(op, 0)?;
    for i in 0..op.operands.len() {
        tile(k, op, i)?;
    }
    op.attrs.str(Key::Message).map(|_| ()).ok_or_else(|| "attribute `message` is missing".into())
}
