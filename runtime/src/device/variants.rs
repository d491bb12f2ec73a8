//! A kernel that is compiled over and over for different arguments: usually a mistake, so it is said which differ.

use std::collections::{HashMap, HashSet};
use tegula_lang::launch::{KernelInfo, LaunchKey};

/// So many variants of a kernel are usual.
const USUAL: usize = 16;

/// The variants of every kernel.
#[derive(Default)]
pub(super) struct Variants {
    kernels: HashMap<&'static str, Vec<LaunchKey>>,
}

impl Variants {
    /// Counts one more. Gives a warning, once for each kernel, when there are more than usual.
    pub fn add(&mut self, kernel: &KernelInfo, key: &LaunchKey) -> Option<String> {
        let keys = self.kernels.entry(kernel.name).or_default();
        if keys.len() > USUAL {
            return None;
        }
        keys.push(*key);
        (keys.len() > USUAL).then(|| warning(kernel, keys))
    }
}

fn warning(kernel: &KernelInfo, keys: &[LaunchKey]) -> String {
    let mut causes = vec![(distinct(keys, |k| k.instance), "its generic arguments".to_string())];
    causes.push((distinct(keys, |k| k.options), format!("its options `{}`", kernel.options.unwrap_or_default())));
    causes.push((distinct(keys, |k| k.warps), "its number of warps".to_string()));
    for (i, dim) in kernel.dims.iter().enumerate() {
        causes.push((distinct(keys, |k| k.dims[i]), format!("dim `{dim}`")));
    }
    for (i, param) in kernel.params.iter().enumerate() {
        let what = "stride 1, 16-byte alignment, offsets below 2^31, or packed format";
        causes.push((distinct(keys, |k| k.facts[i]), format!("argument `{}` ({what})", param.name)));
    }
    causes.retain(|c| c.0 > 1);
    causes.sort_by_key(|c| std::cmp::Reverse(c.0));
    let causes: Vec<String> = causes.into_iter().map(|(n, what)| format!("{n} kinds of {what}")).collect();
    format!(
        "kernel `{}` is compiled for the {}th time in this process; what differs: {}",
        kernel.name,
        keys.len(),
        causes.join(", ")
    )
}

fn distinct<T: Eq + std::hash::Hash>(keys: &[LaunchKey], of: impl Fn(&LaunchKey) -> T) -> usize {
    keys.iter().map(of).collect::<HashSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::TypeId;
    use tegula_ir::Elem;
    use tegula_lang::launch::{MAX_DIMS, MAX_PARAMS, ParamInfo, ParamKind};

    static KERNEL: KernelInfo = KernelInfo {
        name: "k",
        params: &[
            ParamInfo { name: "x", kind: ParamKind::View { elem: Elem::F32, rank: 2, mutable: false } },
            ParamInfo { name: "y", kind: ParamKind::View { elem: Elem::F32, rank: 2, mutable: true } },
        ],
        dims: &["BM"],
        tags: &[],
        options: None,
    };

    #[test]
    fn the_seventeenth_variant_warns_once_and_names_what_differs() {
        let mut v = Variants::default();
        let base = LaunchKey {
            instance: TypeId::of::<u8>(),
            dims: [0; MAX_DIMS],
            options: 0,
            warps: 0,
            facts: [0; MAX_PARAMS],
        };
        let mut warnings = vec![];
        for i in 0..30u32 {
            let mut key = base;
            key.dims[0] = 1 + i / 8;
            key.facts[1] = (i % 8) as u8;
            warnings.extend(v.add(&KERNEL, &key).map(|w| (i, w)));
        }
        let [(16, warning)] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("kernel `k` is compiled for the 17th time"), "{warning}");
        assert!(warning.contains("what differs: 8 kinds of argument `y`"), "{warning}");
        assert!(warning.contains("3 kinds of dim `BM`") && !warning.contains("`x`"), "{warning}");
    }
}
