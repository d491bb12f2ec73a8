//! Checks of arguments against the types in IR, for kernels that no launcher's types protect.

use super::DeviceError;
use tegula_ir::{Type, ViewFacts};
use tegula_lang::launch::ArgData;

/// That every argument fits its parameter, facts included; the first that does not is the error.
pub(super) fn check(kernel: &str, params: &[String], types: &[Type], args: &[ArgData<'_>]) -> Result<(), DeviceError> {
    let wrong = |argument: String, expected: String, found: String| {
        Err(DeviceError::Argument { kernel: kernel.into(), argument, expected, found })
    };
    if types.len() != args.len() {
        return wrong("all".into(), format!("{} arguments", types.len()), args.len().to_string());
    }
    for ((param, ty), arg) in params.iter().zip(types).zip(args) {
        if !fits(ty, &arg.ir_type()) {
            return wrong(param.clone(), format!("`{ty}`"), format!("`{}`", arg.ir_type()));
        }
        let extents: &[i64] = match arg {
            ArgData::View(v) => &v.extents[..v.rank as usize],
            ArgData::Packed(p) => &[p.k, p.n],
            ArgData::Scalar { .. } => &[],
        };
        if let Some(n) = extents.iter().find(|n| !(0..=i32::MAX as i64).contains(*n)) {
            return wrong(param.clone(), "extents from 0 to 2^31 - 1".into(), n.to_string());
        }
    }
    Ok(())
}

/// Whether a value of type `found` may be passed for `expected`: it may guarantee more, and be writable without need.
fn fits(expected: &Type, found: &Type) -> bool {
    match (expected, found) {
        (Type::View(e), Type::View(f)) => {
            let ViewFacts { unit, align16, small } = e.facts;
            e.elem == f.elem
                && e.rank == f.rank
                && f.mutable >= e.mutable
                && f.facts.unit >= unit
                && f.facts.align16 >= align16
                && f.facts.small >= small
        }
        (e, f) => e == f,
    }
}
