//! What a device's memory is used for, and how many sequences that is enough for.

use std::fmt;
use std::str::FromStr;

use super::device::ModelInfo;

/// How much memory keys and values may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvMemory {
    /// Half of what the device has left once the weights are there: at most 4 GiB of a host's memory, which others need too,
    /// and no more than all sequences can use. Of a device that cannot tell, 1 GiB.
    #[default]
    Auto,
    /// At most so many bytes.
    Bytes(u64),
    /// As much as so many tokens need.
    Tokens(usize),
}

/// A text that says no [`KvMemory`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no size; one is written as in `2GiB`, `512MiB`, `1.5GB`, `65536 tokens` or `auto`")]
pub struct KvMemoryError(String);

impl FromStr for KvMemory {
    type Err = KvMemoryError;

    fn from_str(text: &str) -> Result<KvMemory, KvMemoryError> {
        let wrong = || KvMemoryError(text.to_owned());
        if text.eq_ignore_ascii_case("auto") {
            return Ok(KvMemory::Auto);
        }
        let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = (&text[..unit], text[unit..].trim().to_ascii_lowercase());
        if unit == "tokens" || unit == "token" {
            return number.parse().ok().filter(|n| *n > 0).map(KvMemory::Tokens).ok_or_else(wrong);
        }
        let (letter, binary) = (unit.chars().next().ok_or_else(wrong)?, unit.len() != 2);
        let power = "kmgt".find(letter).ok_or_else(wrong)? as i32 + 1;
        if !matches!(&unit[1..], "" | "b" | "ib") {
            return Err(wrong());
        }
        let base: f64 = if binary { 1024.0 } else { 1000.0 };
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * base.powi(power);
        // Up to 2^53 every number of bytes is exact.
        if (1.0..9e15).contains(&bytes) { Ok(KvMemory::Bytes(bytes as u64)) } else { Err(wrong()) }
    }
}

impl KvMemory {
    /// Blocks of a cache that has `free` bytes left, of `block_bytes` for `block_size` tokens each, and that can use `most`
    /// blocks.
    pub(super) fn blocks(
        self,
        free: Option<u64>,
        block_bytes: u64,
        block_size: usize,
        most: u64,
    ) -> Result<u32, String> {
        let of_bytes = |bytes: u64| bytes / block_bytes.max(1);
        let blocks = match self {
            KvMemory::Tokens(tokens) => tokens.div_ceil(block_size.max(1)) as u64,
            KvMemory::Bytes(bytes) => of_bytes(bytes),
            KvMemory::Auto => of_bytes((free.unwrap_or(DEFAULT) / 2).min(MOST)).min(most),
        };
        let bytes = blocks.saturating_mul(block_bytes);
        if blocks == 0 {
            return Err(format!(
                "the KV cache would have no block: one, of {block_size} tokens, takes {}; {}",
                Bytes(block_bytes),
                match self {
                    KvMemory::Auto => format!("there are {} left", Bytes(free.unwrap_or(DEFAULT))),
                    _ => "ask for more".to_owned(),
                }
            ));
        }
        if let Some(free) = free.filter(|free| bytes > *free) {
            return Err(format!("the KV cache would take {}; there are {} left", Bytes(bytes), Bytes(free)));
        }
        u32::try_from(blocks).map_err(|_| format!("the KV cache would have {blocks} blocks; {} is the most", u32::MAX))
    }
}

/// Of a host's memory, unless more is asked for.
const MOST: u64 = 4 << 30;
/// Where nobody can tell what is left: enough for a model that is being tried.
const DEFAULT: u64 = 2 << 30;

/// What memory is used for. As text, a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Where.
    pub device: String,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of what a step computes with.
    pub step: u64,
    /// Bytes of a block of the KV cache.
    pub block_bytes: u64,
    /// Tokens of one.
    pub block_size: usize,
    /// Blocks.
    pub num_blocks: u32,
    /// Bytes that were left when the weights were there, if the device can tell.
    pub free: Option<u64>,
    /// Most tokens of a sequence.
    pub max_model_len: usize,
}

impl MemoryPlan {
    /// Of a model that has its cache.
    pub(super) fn of(info: &ModelInfo, max_model_len: usize) -> MemoryPlan {
        MemoryPlan {
            device: info.device.clone(),
            weights: info.weight_bytes,
            step: 0,
            block_bytes: info.block_bytes,
            block_size: info.block_size,
            num_blocks: info.num_blocks,
            free: None,
            max_model_len,
        }
    }

    /// Bytes of the KV cache.
    pub fn kv(&self) -> u64 {
        u64::from(self.num_blocks) * self.block_bytes
    }

    /// Tokens that the KV cache has room for.
    pub fn kv_tokens(&self) -> usize {
        self.num_blocks as usize * self.block_size
    }

    /// Sequences of so many tokens that it has room for.
    pub fn sequences_of(&self, tokens: usize) -> usize {
        self.num_blocks as usize / tokens.div_ceil(self.block_size.max(1)).max(1)
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |what: &str, bytes: u64, note: String| {
            let line = format!("  {what:<10}{:>12}  {note}", Bytes(bytes).to_string());
            writeln!(f, "{}", line.trim_end())
        };
        let all = self.weights + self.step + self.kv();
        let left = match self.free {
            Some(free) => format!("{} were free beside the weights", Bytes(free)),
            None => String::new(),
        };
        row("weights", self.weights, String::new())?;
        if self.step > 0 {
            row("a step", self.step, String::new())?;
        }
        let blocks = format!("{} blocks of {} tokens", thousands(self.num_blocks as usize), self.block_size);
        row("KV cache", self.kv(), format!("{} tokens in {blocks}", thousands(self.kv_tokens())))?;
        row("together", all, format!("on {}{}{left}", self.device, if left.is_empty() { "" } else { ", where " }))?;
        let mut lengths: Vec<usize> = [512, 2048, self.max_model_len].into();
        lengths.retain(|tokens| *tokens <= self.max_model_len);
        lengths.dedup();
        let fits = |tokens: &usize| match self.sequences_of(*tokens) {
            0 => format!("none of {} tokens", thousands(*tokens)),
            n => format!("{} of {} tokens", thousands(n), thousands(*tokens)),
        };
        write!(f, "  sequences that fit at once: {}", lengths.iter().map(fits).collect::<Vec<_>>().join(", or "))
    }
}

/// Bytes, as people read them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut size, mut unit) = (self.0 as f64, "bytes");
        for larger in ["KiB", "MiB", "GiB", "TiB"] {
            if size < 1024.0 {
                break;
            }
            (size, unit) = (size / 1024.0, larger);
        }
        if unit == "bytes" { write!(f, "{} bytes", self.0) } else { write!(f, "{size:.1} {unit}") }
    }
}

fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|&digit| digit as char));
    }
    text
}

/// Bytes of the host's memory that could be had now, as far as the system and the limits of this process's group tell.
pub(super) fn free_host_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    Some(available.min(group_memory().unwrap_or(u64::MAX)))
}

/// Bytes that the control group, version 2, of this process leaves it.
fn group_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = std::path::Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // A group without a limit says `max`, which is no number.
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let parse = |text: &str| text.parse::<KvMemory>();
        assert_eq!(parse("auto"), Ok(KvMemory::Auto));
        for (text, bytes) in [
            ("2GiB", 2 << 30),
            ("2 gib", 2 << 30),
            ("2G", 2 << 30),
            ("512MiB", 512 << 20),
            ("1.5GB", 1_500_000_000),
            ("64k", 64 << 10),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(KvMemory::Bytes(bytes)), "{text}");
        }
        assert_eq!(parse("65536 tokens"), Ok(KvMemory::Tokens(65536)));
        for bad in
            ["", "2", "GiB", "-1GiB", "2 Gibs", "0GiB", "1.5 tokens", "0 tokens", "1..5GB", "9999999TiB", "2Gä", "é"]
        {
            assert!(parse(bad).unwrap_err().to_string().contains("`2GiB`"), "{bad}");
        }
    }

    #[test]
    fn blocks_follow_from_what_is_asked_for_and_left() {
        let (block, size) = (1000, 16);
        let blocks = |memory: KvMemory, free, most| memory.blocks(free, block, size, most);
        assert_eq!(blocks(KvMemory::Bytes(10_999), Some(100_000), 1), Ok(10));
        assert_eq!(blocks(KvMemory::Tokens(33), Some(100_000), 1), Ok(3));
        assert_eq!(blocks(KvMemory::Auto, Some(100_000), 1_000), Ok(50));
        assert_eq!(blocks(KvMemory::Auto, Some(100_000), 7), Ok(7));
        assert_eq!(blocks(KvMemory::Auto, None, u64::MAX), Ok((DEFAULT / 2 / block) as u32));
        assert!(blocks(KvMemory::Bytes(999), None, 1).unwrap_err().contains("one, of 16 tokens, takes 1000 bytes"));
        assert!(blocks(KvMemory::Auto, Some(1999), 5).unwrap_err().contains("there are 2.0 KiB left"));
        let error = blocks(KvMemory::Tokens(1600), Some(99_999), 1).unwrap_err();
        assert_eq!(error, "the KV cache would take 97.7 KiB; there are 97.7 KiB left");
        assert!(blocks(KvMemory::Tokens(usize::MAX), None, 1).unwrap_err().contains("is the most"));
    }

    #[test]
    fn what_fits_is_a_table() {
        let plan = MemoryPlan {
            device: "cpu:x86-64-v4".into(),
            weights: 98 << 20,
            step: 1536 << 10,
            block_bytes: 1 << 20,
            block_size: 64,
            num_blocks: 1000,
            free: Some(4 << 30),
            max_model_len: 8192,
        };
        let table = "  weights       98.0 MiB\n  a step         1.5 MiB\n  KV cache    1000.0 MiB  64,000 tokens in 1,000 blocks \
                     of 64 tokens\n  together       1.1 GiB  on cpu:x86-64-v4, where 4.0 GiB were free beside the \
                     weights\n  sequences that fit at once: 125 of 512 tokens, or 31 of 2,048 tokens, or 7 of 8,192 tokens";
        assert_eq!(plan.to_string(), table);
        let small = MemoryPlan { num_blocks: 3, max_model_len: 256, free: None, step: 0, ..plan };
        assert!(small.to_string().ends_with("on cpu:x86-64-v4\n  sequences that fit at once: none of 256 tokens"));
        assert_eq!(
            (thousands(0), thousands(999), thousands(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
    }

    #[test]
    fn this_machine_has_memory() {
        if cfg!(target_os = "linux") {
            assert!(free_host_memory().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
