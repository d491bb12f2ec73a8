//! Ops that only move elements.

use super::value::Tile;
use crate::types::TileType;

/// Calls `f(lane, index)` for every lane of a shape in row-major order.
pub(super) fn for_each_index<E>(shape: &[usize], mut f: impl FnMut(usize, &[usize]) -> Result<(), E>) -> Result<(), E> {
    let mut index = vec![0; shape.len()];
    for lane in 0..shape.iter().product() {
        f(lane, &index)?;
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            if index[d] < shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok(())
}

/// How many lanes apart neighbours along each axis are, in row-major order.
fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|d| shape[d + 1..].iter().product()).collect()
}

/// The result whose lane at `index` is the operand's lane Σ index·stride.
fn pick(x: &Tile, result: &TileType, start: usize, stride: &[usize]) -> Tile {
    let mut bits = Vec::with_capacity(result.len());
    let _ = for_each_index::<()>(&result.shape, |_, index| {
        bits.push(x.bits[start + index.iter().zip(stride).map(|(i, s)| i * s).sum::<usize>()]);
        Ok(())
    });
    Tile::new(result, bits)
}

pub(super) fn broadcast(x: &Tile, result: &TileType) -> Tile {
    if x.shape.is_empty() {
        return Tile::splat(result, x.bits[0]);
    }
    let mut stride = strides(&x.shape);
    for (s, &n) in stride.iter_mut().zip(&x.shape) {
        if n == 1 {
            *s = 0;
        }
    }
    pick(x, result, 0, &stride)
}

pub(super) fn permute(x: &Tile, perm: &[i64], result: &TileType) -> Tile {
    let from = strides(&x.shape);
    let stride: Vec<usize> = perm.iter().map(|&p| from[p as usize]).collect();
    pick(x, result, 0, &stride)
}

pub(super) fn slice(x: &Tile, axis: usize, start: usize, result: &TileType) -> Tile {
    let stride = strides(&x.shape);
    pick(x, result, start * stride[axis], &stride)
}

pub(super) fn cat(x: &[&Tile], axis: usize, result: &TileType) -> Tile {
    let mut bits = Vec::with_capacity(result.len());
    let outer: usize = result.shape[..axis].iter().product();
    for o in 0..outer {
        for t in x {
            let run = t.bits.len() / outer;
            bits.extend_from_slice(&t.bits[o * run..(o + 1) * run]);
        }
    }
    Tile::new(result, bits)
}
