//! Ops that only move elements: compositions become one op, what moves nothing goes, broadcasts come last.

use crate::{
    attr::{Attr, Attrs, Key},
    kernel::{Op, Value},
    ops::OpKind,
    passes::rewrite::Rewriter,
    types::TileType,
};

/// What is the same everywhere is moved by making it in the new shape.
fn uniform(cx: &mut Rewriter, op: &Op, ty: &TileType) -> Option<Value> {
    let x = op.operands[0];
    if let Some(s) = cx.as_const(x) {
        return Some(cx.constant(s, &ty.shape, &op.loc));
    }
    let x = cx.as_splat(x)?;
    Some(cx.plain(OpKind::Broadcast, &[x], ty.clone(), &op.loc))
}

/// The op's result type, if it is of this kind.
fn result(cx: &Rewriter, op: &Op, kind: OpKind) -> Option<TileType> {
    if op.kind == kind { cx.tile(op.result()).cloned() } else { None }
}

pub(super) fn broadcast(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let ty = result(cx, op, OpKind::Broadcast)?;
    let x = op.operands[0];
    if *cx.tile(x)? == ty {
        return Some(x);
    }
    if let Some(inner) = cx.def_of(x, OpKind::Broadcast) {
        return Some(cx.plain(OpKind::Broadcast, &[inner.operands[0]], ty, &op.loc));
    }
    uniform(cx, op, &ty)
}

pub(super) fn reshape(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let ty = result(cx, op, OpKind::Reshape)?;
    let x = op.operands[0];
    let from = cx.tile(x)?.clone();
    if from == ty {
        return Some(x);
    }
    if from.rank() == 0 {
        return Some(cx.plain(OpKind::Broadcast, &[x], ty, &op.loc));
    }
    if let Some(inner) = cx.def_of(x, OpKind::Reshape) {
        return Some(cx.plain(OpKind::Reshape, &[inner.operands[0]], ty, &op.loc));
    }
    uniform(cx, op, &ty)
}

pub(super) fn permute(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let ty = result(cx, op, OpKind::Permute)?;
    let x = op.operands[0];
    let perm = op.attrs.ints(Key::Perm)?;
    if perm.iter().enumerate().all(|(i, &p)| p == i as i64) {
        return Some(x);
    }
    if let Some(v) = uniform(cx, op, &ty) {
        return Some(v);
    }
    if let Some(inner) = cx.def_of(x, OpKind::Permute) {
        let first = inner.attrs.ints(Key::Perm)?;
        let both = perm.iter().map(|&p| first[p as usize]).collect();
        return Some(cx.emit(
            OpKind::Permute,
            &[inner.operands[0]],
            ty,
            Attrs::new().with(Key::Perm, Attr::Ints(both)),
            &op.loc,
        ));
    }
    // Axes of extent 1 move freely: if the others keep their order, no element moves.
    let from = cx.tile(x)?.clone();
    let moving: Vec<i64> = perm.iter().copied().filter(|&p| from.shape[p as usize] > 1).collect();
    if moving.is_sorted() {
        return Some(cx.plain(OpKind::Reshape, &[x], ty, &op.loc));
    }
    let inner = cx.def_of(x, OpKind::Broadcast)?;
    let source = cx.tile(inner.operands[0])?.clone();
    let small = TileType::new(ty.elem, perm.iter().map(|&p| source.shape[p as usize]).collect::<Vec<_>>());
    let v = cx.emit(OpKind::Permute, &[inner.operands[0]], small, op.attrs.clone(), &op.loc);
    Some(cx.plain(OpKind::Broadcast, &[v], ty, &op.loc))
}

/// Axis, first element and number of elements of a slice.
fn extent(attrs: &Attrs) -> Option<(usize, i64, i64)> {
    Some((attrs.int(Key::Axis)? as usize, attrs.int(Key::Start)?, attrs.int(Key::Size)?))
}
fn slice_attrs(axis: usize, start: i64, size: i64) -> Attrs {
    Attrs::new()
        .with(Key::Axis, Attr::Int(axis as i64))
        .with(Key::Start, Attr::Int(start))
        .with(Key::Size, Attr::Int(size))
}

pub(super) fn slice(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let ty = result(cx, op, OpKind::Slice)?;
    let x = op.operands[0];
    if *cx.tile(x)? == ty {
        return Some(x);
    }
    if let Some(v) = uniform(cx, op, &ty) {
        return Some(v);
    }
    let (axis, start, size) = extent(&op.attrs)?;
    let inner = cx.def(x)?;
    match inner.kind {
        OpKind::Slice => {
            let (inner_axis, inner_start, _) = extent(&inner.attrs)?;
            (axis == inner_axis).then(|| {
                cx.emit(OpKind::Slice, &[inner.operands[0]], ty, slice_attrs(axis, inner_start + start, size), &op.loc)
            })
        }
        OpKind::Cat if inner.attrs.int(Key::Axis)? == axis as i64 => {
            let mut from = 0;
            for &part in &inner.operands {
                let n = cx.tile(part)?.shape[axis] as i64;
                if from <= start && start + size <= from + n {
                    return Some(cx.emit(OpKind::Slice, &[part], ty, slice_attrs(axis, start - from, size), &op.loc));
                }
                from += n;
            }
            None
        }
        OpKind::Broadcast => {
            let mut source = cx.tile(inner.operands[0])?.clone();
            if source.shape[axis] == 1 {
                return Some(cx.plain(OpKind::Broadcast, &[inner.operands[0]], ty, &op.loc));
            }
            source.shape[axis] = size as usize;
            let v = cx.emit(OpKind::Slice, &[inner.operands[0]], source, op.attrs.clone(), &op.loc);
            Some(cx.plain(OpKind::Broadcast, &[v], ty, &op.loc))
        }
        _ => None,
    }
}

pub(super) fn cat(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let ty = result(cx, op, OpKind::Cat)?;
    let axis = op.attrs.int(Key::Axis)? as usize;
    if let &[x] = op.operands.as_slice() {
        return Some(x);
    }
    let first = cx.as_const(op.operands[0]);
    if first.is_some() && op.operands.iter().all(|&v| cx.as_const(v) == first) {
        return uniform(cx, op, &ty);
    }
    let first = cx.as_splat(op.operands[0]);
    if first.is_some() && op.operands.iter().all(|&v| cx.as_splat(v) == first) {
        return uniform(cx, op, &ty);
    }
    // Flatten along one axis, then join slices of one tile that continue each other.
    let mut parts: Vec<Value> = vec![];
    for &v in &op.operands {
        match cx.def_of(v, OpKind::Cat).filter(|d| d.attrs.int(Key::Axis) == Some(axis as i64)) {
            Some(d) => parts.extend(&d.operands),
            None => parts.push(v),
        }
    }
    let mut joined: Vec<Value> = vec![];
    for v in parts {
        match joined.last().and_then(|&last| adjoin(cx, last, v, axis, op)) {
            Some(both) => *joined.last_mut()? = both,
            None => joined.push(v),
        }
    }
    if joined == op.operands {
        return None;
    }
    if let &[x] = joined.as_slice() {
        return Some(x);
    }
    Some(cx.emit(OpKind::Cat, &joined, ty, op.attrs.clone(), &op.loc))
}

/// One slice for two of the same tile that follow each other.
fn adjoin(cx: &mut Rewriter, a: Value, b: Value, axis: usize, op: &Op) -> Option<Value> {
    let (x, y) = (cx.def_of(a, OpKind::Slice)?, cx.def_of(b, OpKind::Slice)?);
    let ((ax, a0, an), (bx, b0, bn)) = (extent(&x.attrs)?, extent(&y.attrs)?);
    if x.operands != y.operands || ax != axis || bx != axis || a0 + an != b0 {
        return None;
    }
    let mut ty = cx.tile(a)?.clone();
    ty.shape[axis] = (an + bn) as usize;
    Some(cx.emit(OpKind::Slice, &x.operands, ty, slice_attrs(axis, a0, an + bn), &op.loc))
}
