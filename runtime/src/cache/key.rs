//! The keys of kernels and of artifacts.

use crate::compile::Identity;
use tegula_ir::{Kernel, OpKind, Region, protocol::Request};
use xxhash_rust::xxh3::Xxh3;

/// Key of a kernel: its text in canonical numbering and without locations, and whether checks are compiled in. Lines that
/// a kernel can report at run time are part of it (all lines of a checked one), those that it cannot are not: moving a
/// kernel in its file makes no other of it.
pub fn kernel_key(kernel: &Kernel, checked: bool) -> u128 {
    hash(|add| describe(kernel, checked, add))
}

/// Key of what `identity` makes of a kernel: the kernel's own as in [`kernel_key`], the target, and the compiler.
pub fn artifact_key(kernel: &Kernel, target: &str, checked: bool, identity: &Identity) -> u128 {
    hash(|add| {
        add(&identity.0);
        add(target);
        describe(kernel, checked, add);
    })
}

/// Key of what `made_by` answers to a request, lines of the source and all.
pub fn exact_key(request: &Request, made_by: &str) -> u128 {
    let Request { kernel, target, emit, checked } = request;
    hash(|add| [made_by, kernel, target, &format!("exact {emit:?} {checked}")].into_iter().for_each(add))
}

/// The hash of parts, which do not run into each other.
fn hash(parts: impl FnOnce(&mut dyn FnMut(&str))) -> u128 {
    let mut h = Xxh3::new();
    parts(&mut |part| {
        h.update(&(part.len() as u64).to_le_bytes());
        h.update(part.as_bytes());
    });
    h.digest128()
}

fn describe(kernel: &Kernel, checked: bool, add: &mut dyn FnMut(&str)) {
    let kernel = kernel.renumbered();
    if checked {
        add("checked");
        add(&kernel.text());
    } else {
        add("plain");
        add(&kernel.text_without_locs());
        reported(&kernel.body, add);
    }
}

/// The lines of ops that report in every launch.
fn reported(region: &Region, f: &mut dyn FnMut(&str)) {
    for op in &region.ops {
        if matches!(op.kind, OpKind::Print | OpKind::Assert) {
            f(&op.loc.to_string());
        }
        op.regions.iter().for_each(|r| reported(r, f));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(line: u32, constant: i32, print: bool) -> Kernel {
        let print = if print { format!("  print %1 {{message = \"x\"}} @ \"k.rs\":{line}:5\n") } else { String::new() };
        let text = format!(
            "kernel @k(%0 \"x\": view_mut<i32, 1>) {{\n  %1 = const {{value = {constant}: i32}} : i32 @ \"k.rs\":{line}:1\n{print}}}\n"
        );
        Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    #[test]
    fn the_key_depends_on_everything_that_makes_another_artifact_and_on_nothing_else() {
        let id = Identity("tegulac 1 abc".into());
        let key = |k: &Kernel| artifact_key(k, "cpu:x86-64-v3", false, &id);
        let base = key(&kernel(1, 7, false));
        for (a, b) in [(1, 99), (7, 7)] {
            assert_eq!(kernel_key(&kernel(a, 7, false), false), kernel_key(&kernel(b, 7, false), false));
        }
        assert_ne!(kernel_key(&kernel(1, 7, false), true), kernel_key(&kernel(99, 7, false), true));
        assert_ne!(kernel_key(&kernel(1, 7, true), false), kernel_key(&kernel(99, 7, true), false));
        assert_ne!(kernel_key(&kernel(1, 7, false), false), kernel_key(&kernel(1, 8, false), false));
        assert_eq!(base, key(&kernel(1, 7, false)));
        assert_eq!(base, key(&kernel(99, 7, false)), "lines do not count");
        let mut sparse = kernel(1, 7, false);
        sparse.value(tegula_ir::Type::scalar(tegula_ir::Elem::F32));
        assert_eq!(base, key(&sparse), "unused slots do not count");

        let mut keys = vec![
            base,
            key(&kernel(1, 8, false)),
            key(&kernel(1, 7, true)),
            key(&kernel(2, 7, true)),
            artifact_key(&kernel(1, 7, false), "cpu:x86-64-v4", false, &id),
            artifact_key(&kernel(1, 7, false), "cpu:x86-64-v3", true, &id),
            artifact_key(&kernel(2, 7, false), "cpu:x86-64-v3", true, &id),
            artifact_key(&kernel(1, 7, false), "cpu:x86-64-v3", false, &Identity("tegulac 1 abd".into())),
        ];
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 8);
    }
}
