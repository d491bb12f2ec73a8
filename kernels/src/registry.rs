//! The library's kernels by name, each with dims and settings that make a plausible instance of it for a target: what
//! `tegula compile` shows. Targets differ in how large a tile may be and in how weights lie; the source is the same.

use crate::{
    activation, attention, basic, embed,
    linear::{self, Epilogue, Quantised},
    logprobs, norm, pack,
    quantise::{self, Bits},
    rope::{self, Heads, Pairs},
    rules, sample,
};
use tegula::{
    LaunchError,
    ir::{Kernel, Quant, gpu::MAX_WARPS, layout::Layout},
    prelude::*,
};

/// A kernel known by name.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it computes, in a line.
    pub doc: &'static str,
    /// Its dims in order, with the values taken where none are given.
    pub dims: &'static [(&'static str, usize)],
    /// Other values for some targets.
    pub tiles: &'static [Tiles],
    /// Its settings.
    pub settings: &'static [Setting],
    build: fn(&Values) -> Result<Kernel, LaunchError>,
}

/// The values of dims, all of them in order, for targets whose name starts so.
#[derive(Debug)]
pub struct Tiles {
    /// `sm_` for all GPUs, `sm_90a` for one.
    pub target: &'static str,
    /// The values.
    pub dims: &'static [usize],
}

/// Something besides dims that decides what is built.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The value taken where none is given.
    pub default: &'static str,
    /// Other values for targets whose name starts so.
    pub on: &'static [(&'static str, &'static str)],
    /// The values it may have.
    pub choices: fn() -> Vec<&'static str>,
}

/// Why there is no such kernel.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Unknown name.
    #[error("there is no kernel `{name}`; known are: {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Wrong number of dims.
    #[error("kernel `{kernel}` takes {} {}, found {found} of them", expected.len(), list_dims(expected))]
    DimCount {
        /// The kernel.
        kernel: &'static str,
        /// Its dims.
        expected: &'static [(&'static str, usize)],
        /// How many were given.
        found: usize,
    },
    /// A dim or setting that the kernel does not have.
    #[error("kernel `{kernel}` has nothing called `{key}` to set; it has: {}", if known.is_empty() { "nothing".into() } else { known.join(", ") })]
    Key {
        /// The kernel.
        kernel: &'static str,
        /// What was to be set.
        key: String,
        /// What can be set.
        known: Vec<&'static str>,
    },
    /// A value that a dim or setting cannot have.
    #[error("`{key}` of kernel `{kernel}`: expected {expected}, found `{found}`")]
    Value {
        /// The kernel.
        kernel: &'static str,
        /// What was to be set.
        key: &'static str,
        /// What it may be.
        expected: String,
        /// What it was to be.
        found: String,
    },
    /// The kernel cannot be built so.
    #[error(transparent)]
    Build(#[from] LaunchError),
}

/// What every kernel has to set besides its own dims and settings.
const WARPS: &str = "warps";

fn names() -> Vec<&'static str> {
    KERNELS.iter().map(|k| k.name).collect()
}

fn list_dims(dims: &[(&str, usize)]) -> String {
    let names: Vec<&str> = dims.iter().map(|d| d.0).collect();
    format!("dims ({})", names.join(", "))
}

/// The kernel of that name.
pub fn find(name: &str) -> Result<&'static Entry, RegistryError> {
    KERNELS.iter().find(|k| k.name == name).ok_or_else(|| RegistryError::Unknown { name: name.into() })
}

impl Entry {
    /// The values of its dims for a target (`cpu:x86-64-v3`, `sm_80`), where none are given.
    pub fn dims_on(&self, target: &str) -> Vec<usize> {
        let tiles = self.tiles.iter().find(|t| target.starts_with(t.target));
        tiles.map_or_else(|| self.dims.iter().map(|d| d.1).collect(), |t| t.dims.to_vec())
    }

    /// Its IR for a target. `dims`: one value for each, or none at all. `set`: dims and settings by name, and `warps`, those
    /// of a GPU's program; later ones win.
    ///
    /// # Errors
    /// Unknown names, values out of range, and what the kernel itself refuses.
    pub fn ir(&self, target: &str, dims: &[usize], set: &[(String, String)]) -> Result<Kernel, RegistryError> {
        let mut values = Values {
            dims: self.dims_on(target),
            settings: self.settings.iter().map(|s| (s.name, s.default_on(target))).collect(),
        };
        if !dims.is_empty() && dims.len() != self.dims.len() {
            return Err(RegistryError::DimCount { kernel: self.name, expected: self.dims, found: dims.len() });
        }
        for (i, n) in dims.iter().enumerate() {
            values.dims[i] = self.dim(i, &n.to_string())?;
        }
        let mut warps = None;
        for (key, value) in set {
            if key == WARPS {
                let fits = value.trim().parse::<usize>().ok().filter(|n| n.is_power_of_two() && *n <= MAX_WARPS);
                warps =
                    Some(fits.ok_or_else(|| self.wrong(WARPS, format!("a power of two up to {MAX_WARPS}"), value))?);
            } else if let Some(i) = self.dims.iter().position(|d| d.0 == key) {
                values.dims[i] = self.dim(i, value)?;
            } else if let Some(i) = self.settings.iter().position(|s| s.name == key) {
                values.settings[i].1 = self.setting(i, value)?;
            } else {
                let known = self.dims.iter().map(|d| d.0).chain(self.settings.iter().map(|s| s.name));
                let known = known.chain([WARPS]).collect();
                return Err(RegistryError::Key { kernel: self.name, key: key.clone(), known });
            }
        }
        let mut kernel = (self.build)(&values)?;
        if let Some(warps) = warps {
            kernel.set_warps(warps);
        }
        Ok(kernel)
    }

    fn wrong(&self, key: &'static str, expected: String, found: &str) -> RegistryError {
        RegistryError::Value { kernel: self.name, key, expected, found: found.into() }
    }

    fn dim(&self, i: usize, text: &str) -> Result<usize, RegistryError> {
        let most = 1 << 30; // elements of the largest tile
        let fits = text.trim().parse().ok().filter(|n| (1..=most).contains(n));
        fits.ok_or_else(|| self.wrong(self.dims[i].0, format!("a whole number from 1 to {most}"), text))
    }

    fn setting(&self, i: usize, text: &str) -> Result<&'static str, RegistryError> {
        let setting = &self.settings[i];
        let choices = (setting.choices)();
        let found = choices.iter().copied().find(|c| c.eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| self.wrong(setting.name, format!("one of {}", choices.join(", ")), text))
    }
}

impl Setting {
    /// The value taken for a target where none is given.
    pub fn default_on(&self, target: &str) -> &'static str {
        self.on.iter().find(|o| target.starts_with(o.0)).map_or(self.default, |o| o.1)
    }
}

/// What was chosen for an entry: a value for each of its dims and settings.
struct Values {
    dims: Vec<usize>,
    settings: Vec<(&'static str, &'static str)>,
}

impl Values {
    fn get(&self, name: &str) -> &'static str {
        self.settings.iter().find(|s| s.0 == name).map_or("", |s| s.1)
    }
    /// The choices are the formats' names, so there always is one.
    fn quant(&self) -> Quant {
        Quant::from_name(self.get("quant")).unwrap_or(Quant::Q8_0)
    }
    fn layout(&self) -> Layout {
        Layout::from_name(self.get("layout")).unwrap_or(Layout::Panel16)
    }
    fn epilogue(&self) -> Epilogue {
        Epilogue { residual: self.get("residual") == "true" }
    }
    fn bits(&self) -> Bits {
        if self.get("bits") == "16" { Bits::Sixteen } else { Bits::Eight }
    }
    fn number(&self, name: &str) -> usize {
        self.get(name).parse().unwrap_or(1)
    }
}

const QUANT: Setting =
    Setting { name: "quant", default: "Q8_0", on: &[], choices: || Quant::ALL.iter().map(|q| q.name()).collect() };
const LAYOUT: Setting = Setting {
    name: "layout",
    default: "panel16",
    on: &[("sm_", "gguf")],
    choices: || Layout::ALL.iter().map(|l| l.name()).collect(),
};
const RESIDUAL: Setting = Setting { name: "residual", default: "false", on: &[], choices: || vec!["false", "true"] };
const BITS: Setting = Setting { name: "bits", default: "8", on: &[], choices: || vec!["8", "16"] };
const ELEM: Setting = Setting { name: "elem", default: "f32", on: &[], choices: || vec!["f32", "f16", "bf16"] };
const PAIRS: Setting = Setting { name: "pairs", default: "adjacent", on: &[], choices: || vec!["adjacent", "halves"] };
const CUT: Setting =
    Setting { name: "blocks_per_cut", default: "16", on: &[], choices: || vec!["1", "2", "4", "8", "16", "32", "64"] };

/// A float kernel for the element type that the settings name.
macro_rules! for_elem {
    ($v:ident, $($kernel:ident)::+, $($dim:literal)+) => {
        match $v.get("elem") {
            "f16" => $($kernel)::+::ir::<f16>().dims($($v.dims[$dim]),+).build(),
            "bf16" => $($kernel)::+::ir::<bf16>().dims($($v.dims[$dim]),+).build(),
            _ => $($kernel)::+::ir::<f32>().dims($($v.dims[$dim]),+).build(),
        }
    };
}

/// Every kernel of the library.
pub const KERNELS: &[Entry] = &[
    Entry {
        name: "vector_add",
        doc: "z = x + y, elementwise",
        dims: &[("BN", 1024)],
        tiles: &[],
        settings: &[ELEM],
        build: |v| for_elem!(v, basic::vector_add, 0),
    },
    Entry {
        name: "softmax",
        doc: "softmax of each row",
        dims: &[("N", 1024)],
        tiles: &[],
        settings: &[ELEM],
        build: |v| for_elem!(v, basic::softmax, 0),
    },
    Entry {
        name: "matmul",
        doc: "matrix product",
        dims: &[("BM", 128), ("BN", 256), ("BK", 256)],
        tiles: &[Tiles { target: "sm_", dims: &[64, 64, 32] }],
        settings: &[ELEM],
        build: |v| for_elem!(v, basic::matmul, 0 1 2),
    },
    Entry {
        name: "rms_norm",
        doc: "RMS norm of each row",
        dims: &[("N", 576)],
        tiles: &[],
        settings: &[],
        build: |v| norm::rms_norm::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "rms_norm_rows",
        doc: "RMS norm of chosen rows",
        dims: &[("N", 576)],
        tiles: &[],
        settings: &[],
        build: |v| norm::rms_norm_rows::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "rms_norm_quantise",
        doc: "RMS norm of each row, to groups of 8 or 16 bits",
        dims: &[("G", 18)],
        tiles: &[],
        settings: &[BITS],
        build: |v| norm::rms_norm_quantise::ir().dims(v.dims[0]).cfg(v.bits()).build(),
    },
    Entry {
        name: "quantise",
        doc: "rows to groups of 8 or 16 bits",
        dims: &[("G", 18)],
        tiles: &[],
        settings: &[BITS],
        build: |v| quantise::quantise::ir().dims(v.dims[0]).cfg(v.bits()).build(),
    },
    Entry {
        name: "linear",
        doc: "f32 activations times packed weights",
        dims: &[("BM", 64), ("BN", 128), ("BK", 256)],
        tiles: &[Tiles { target: "sm_", dims: &[16, 32, 256] }],
        settings: &[QUANT, LAYOUT, RESIDUAL],
        build: |v| {
            let ir = linear::linear::ir().dims(v.dims[0], v.dims[1], v.dims[2]);
            ir.packed(v.quant(), v.layout()).cfg(v.epilogue()).build()
        },
    },
    Entry {
        name: "linear_quantised",
        doc: "quantised activations times packed weights",
        dims: &[("BM", 64), ("BN", 128), ("BK", 256), ("GK", 8)],
        tiles: &[Tiles { target: "sm_", dims: &[16, 32, 256, 8] }],
        settings: &[QUANT, LAYOUT, RESIDUAL, BITS],
        build: |v| {
            let ir = linear::linear_quantised::ir().dims(v.dims[0], v.dims[1], v.dims[2], v.dims[3]);
            let of = Quantised { bits: v.bits(), epilogue: v.epilogue() };
            ir.packed(v.quant(), v.layout()).cfg(of).build()
        },
    },
    Entry {
        name: "embed",
        doc: "rows of an embedding table",
        dims: &[("H", 576)],
        tiles: &[],
        settings: &[QUANT, LAYOUT],
        build: |v| embed::embed::ir().dims(v.dims[0]).packed(v.quant(), v.layout()).build(),
    },
    Entry {
        name: "rope_and_cache",
        doc: "rotary embedding, keys and values into the cache (9 query heads, 3 of keys)",
        dims: &[("HD", 32)],
        tiles: &[],
        settings: &[PAIRS],
        build: |v| {
            let pairs = if v.get("pairs") == "halves" { Pairs::Halves } else { Pairs::Adjacent };
            rope::rope_and_cache::ir().dims(v.dims[0]).cfg(Heads { q: 9, kv: 3, pairs }).build()
        },
    },
    Entry {
        name: "attention",
        doc: "attention over the paged KV cache",
        dims: &[("BT", 16), ("G", 3), ("D", 64), ("B", 32)],
        tiles: &[Tiles { target: "sm_", dims: &[4, 3, 64, 32] }],
        settings: &[CUT],
        build: |v| {
            let order = attention::Order { blocks_per_cut: v.number("blocks_per_cut") };
            attention::attention::ir().dims(v.dims[0], v.dims[1], v.dims[2], v.dims[3]).cfg(order).build()
        },
    },
    Entry {
        name: "swiglu",
        doc: "silu(gate) · up",
        dims: &[("N", 1536)],
        tiles: &[],
        settings: &[],
        build: |v| activation::swiglu::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "swiglu_quantise",
        doc: "silu(gate) · up, to groups of 8 or 16 bits",
        dims: &[("G", 48)],
        tiles: &[],
        settings: &[BITS],
        build: |v| activation::swiglu_quantise::ir().dims(v.dims[0]).cfg(v.bits()).build(),
    },
    Entry {
        name: "edit_logits",
        doc: "bias, penalties and bans on single logits",
        dims: &[("BE", 128)],
        tiles: &[],
        settings: &[],
        build: |v| rules::edit_logits::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "mask_logits",
        doc: "rows of logits without the tokens that are not allowed",
        dims: &[("BW", 64)],
        tiles: &[Tiles { target: "sm_", dims: &[32] }],
        settings: &[],
        build: |v| rules::mask_logits::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "copy_rows",
        doc: "rows of logits as they are before rules",
        dims: &[("BV", 2048)],
        tiles: &[Tiles { target: "sm_", dims: &[1024] }],
        settings: &[],
        build: |v| rules::copy_rows::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "sample",
        doc: "a token for each row of logits",
        dims: &[("BV", 2048)],
        tiles: &[Tiles { target: "sm_", dims: &[1024] }],
        settings: &[],
        build: |v| sample::sample::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "logprobs",
        doc: "log-probabilities of a chosen token and of the most likely ones",
        dims: &[("BV", 2048)],
        tiles: &[Tiles { target: "sm_", dims: &[1024] }],
        settings: &[],
        build: |v| logprobs::logprobs::ir().dims(v.dims[0]).build(),
    },
    Entry {
        name: "pack_blocks",
        doc: "GGUF's quantised weights into panels",
        dims: &[],
        tiles: &[],
        settings: &[QUANT],
        build: |v| pack::pack_blocks::ir().dims(v.quant().block_bytes()).cfg(v.quant()).build(),
    },
    Entry {
        name: "pack_floats",
        doc: "GGUF's float weights into panels",
        dims: &[("BK", 64), ("SIZE", 4)],
        tiles: &[],
        settings: &[],
        build: |v| pack::pack_floats::ir().dims(v.dims[0], v.dims[1]).build(),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str = "cpu:x86-64-v3";

    #[test]
    fn tiles_and_settings_are_those_of_the_target() {
        let text = |name: &str, target: &str| find(name).unwrap().ir(target, &[], &[]).unwrap().text();
        assert!(text("sample", CPU).contains("tile<f32, 1, 2048>"));
        assert!(text("sample", "sm_90a").contains("tile<f32, 1, 1024>"));
        assert!(text("linear", CPU).contains("packed<q8_0, panel16>"));
        assert!(text("linear", "sm_80").contains("packed<q8_0, gguf>"));
        assert_eq!(text("softmax", CPU), text("softmax", "sm_80"));
        for entry in KERNELS {
            assert!(entry.tiles.iter().all(|t| t.dims.len() == entry.dims.len()), "{}", entry.name);
        }
    }

    #[test]
    fn every_kernel_builds_as_it_is_and_with_each_setting() {
        for entry in KERNELS {
            entry.ir(CPU, &[], &[]).unwrap_or_else(|e| panic!("{}: {e}", entry.name));
            for setting in entry.settings {
                for choice in (setting.choices)() {
                    // Float weights have no blocks of codes, and GGUF's rows are no panels.
                    let float = Quant::from_name(choice).is_some_and(|q| q.is_float());
                    let set = [(setting.name.to_owned(), choice.to_owned())];
                    match entry.ir(CPU, &[], &set) {
                        Ok(kernel) => assert_eq!(kernel.params.len(), entry.ir(CPU, &[], &[]).unwrap().params.len()),
                        Err(e) => assert!(float && entry.name != "linear", "{} {set:?}: {e}", entry.name),
                    }
                }
            }
        }
    }

    #[test]
    fn dims_and_settings_reach_the_kernel() {
        let text = |dims: &[usize], set: &[(&str, &str)]| {
            let set: Vec<_> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            find("softmax").unwrap().ir(CPU, dims, &set).unwrap().text()
        };
        assert!(text(&[], &[]).contains("tile<f32, 1, 1024>"));
        assert!(text(&[96], &[]).contains("tile<f32, 1, 96>"));
        assert!(text(&[96], &[("N", "48"), ("elem", "BF16")]).contains("tile<bf16, 1, 48>"));
        assert!(text(&[], &[("warps", "8")]).contains("{warps = 8}") && !text(&[], &[]).contains("warps"));
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        let error = |name: &str, dims: &[usize], set: &[(&str, &str)]| {
            let set: Vec<_> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            find(name).and_then(|e| e.ir(CPU, dims, &set)).unwrap_err().to_string()
        };
        assert!(error("sofmax", &[], &[]).starts_with("there is no kernel `sofmax`; known are: vector_add, softmax,"));
        assert_eq!(error("matmul", &[1, 2], &[]), "kernel `matmul` takes 3 dims (BM, BN, BK), found 2 of them");
        assert_eq!(
            error("softmax", &[0], &[]),
            "`N` of kernel `softmax`: expected a whole number from 1 to 1073741824, found `0`"
        );
        assert_eq!(
            error("softmax", &[], &[("elem", "i8")]),
            "`elem` of kernel `softmax`: expected one of f32, f16, bf16, found `i8`"
        );
        assert_eq!(
            error("softmax", &[], &[("warps", "6")]),
            "`warps` of kernel `softmax`: expected a power of two up to 32, found `6`"
        );
        assert_eq!(
            error("softmax", &[], &[("M", "8")]),
            "kernel `softmax` has nothing called `M` to set; it has: N, elem, warps"
        );
    }
}
