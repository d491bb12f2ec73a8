//! Operands that a product reads where they lie, a chunk of K at a time, and that are never in registers as a whole.

use crate::{
    Elem,
    kernel::{Kernel, Op, Region, Value},
    ops::OpKind,
    types::{TileType, Type},
};
use std::collections::HashMap;

/// The values that no op makes because the one product that uses them fetches their elements itself, each with its op:
/// a load of a view that the kernel only reads, or dequantised weights; then what changes neither elements nor their
/// order, and casts to f32 that are exact. All stand in the region of the product.
pub fn streams(k: &Kernel) -> HashMap<Value, &Op> {
    let mut uses = HashMap::new();
    count(&k.body, &mut uses);
    let mut found = HashMap::new();
    find(k, &k.body, &uses, &mut found);
    found
}

fn count(r: &Region, uses: &mut HashMap<Value, usize>) {
    for op in &r.ops {
        op.operands.iter().for_each(|v| *uses.entry(*v).or_default() += 1);
        op.regions.iter().for_each(|r| count(r, uses));
    }
    r.yields.iter().for_each(|v| *uses.entry(*v).or_default() += 1);
}

fn find<'k>(k: &'k Kernel, r: &'k Region, uses: &HashMap<Value, usize>, found: &mut HashMap<Value, &'k Op>) {
    let made: HashMap<Value, &Op> = r.ops.iter().flat_map(|op| op.results.iter().map(move |v| (*v, op))).collect();
    for op in &r.ops {
        op.regions.iter().for_each(|r| find(k, r, uses, found));
        let operands = match op.kind {
            OpKind::Dot => &op.operands[..2],
            OpKind::DotGrouped => &op.operands[..3],
            _ => continue,
        };
        for (i, v) in operands.iter().enumerate() {
            found.extend(chain(k, *v, i == 1, &made, uses).into_iter().flatten());
        }
    }
}

/// From a product's operand back to what reads memory. Weights are second operands: K is their first axis.
fn chain<'k>(
    k: &Kernel,
    operand: Value,
    second: bool,
    made: &HashMap<Value, &'k Op>,
    uses: &HashMap<Value, usize>,
) -> Option<Vec<(Value, &'k Op)>> {
    let tile = |v: Value| k.ty(v).as_tile();
    let shape = &tile(operand)?.shape;
    // The operand's axes after any number of axes of extent 1.
    let alike = |t: &TileType| t.shape.ends_with(shape) && t.len() == shape.iter().product::<usize>();
    let (mut v, mut all) = (operand, vec![]);
    loop {
        let op = *made.get(&v).filter(|_| uses.get(&v) == Some(&1))?;
        all.push((v, op));
        match op.kind {
            OpKind::Load => {
                let read_only = matches!(k.ty(op.operands[0]), Type::View(v) if !v.mutable);
                return (read_only && alike(tile(v)?)).then_some(all);
            }
            OpKind::Dequant => return second.then_some(all),
            OpKind::Reshape if alike(tile(op.operands[0])?) => {}
            OpKind::Cast if tile(v)?.elem == Elem::F32 && is_narrow(tile(op.operands[0])?.elem) => {}
            OpKind::ConvertLayout => {}
            _ => return None,
        }
        v = op.operands[0];
    }
}

/// A float of which f32 holds all values.
fn is_narrow(e: Elem) -> bool {
    e.is_float() && e.bits() < 32
}
