//! What the environment says.

use std::{sync::OnceLock, time::Duration};

/// How launches run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Fast,
    Strict,
    Noop,
}

/// The stub's settings.
pub struct Config {
    pub mode: Mode,
    /// `sm_90a`.
    pub arch: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Shared memory that a block may have, in bytes.
    pub shared_bytes: usize,
    pub devices: usize,
    pub memory_bytes: usize,
    pub delay: Duration,
}

/// The settings. What makes no sense counts as not set, and is told.
pub fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let mode = match std::env::var("TEGULA_STUB").as_deref() {
            Ok("noop") => Mode::Noop,
            Ok("strict") => Mode::Strict,
            Ok("fast" | "") | Err(_) => Mode::Fast,
            Ok(other) => {
                eprintln!("tegula-stub: TEGULA_STUB: expected fast, strict or noop, found `{other}`");
                Mode::Fast
            }
        };
        let arch = std::env::var("TEGULA_STUB_ARCH").ok().filter(|a| !a.is_empty()).unwrap_or_else(|| "sm_90a".into());
        let capability = capability(&arch).unwrap_or_else(|| {
            eprintln!("tegula-stub: TEGULA_STUB_ARCH: expected an architecture such as sm_80, found `{arch}`");
            (9, 0)
        });
        let shared_bytes = match capability {
            (8, 0 | 7) => 163 << 10,
            (9 | 10, _) => 227 << 10,
            (7, _) => 64 << 10,
            _ => 99 << 10,
        };
        let delay = Duration::from_micros(number("TEGULA_STUB_DELAY_US", 0) as u64);
        let (devices, memory_bytes) = (number("TEGULA_STUB_DEVICES", 1), number("TEGULA_STUB_MB", 16 << 10) << 20);
        Config { mode, arch, capability, shared_bytes, devices, memory_bytes, delay }
    })
}

fn number(name: &str, without: usize) -> usize {
    let Ok(text) = std::env::var(name) else { return without };
    text.parse().unwrap_or_else(|_| {
        eprintln!("tegula-stub: {name}: expected a number, found `{text}`");
        without
    })
}

/// `sm_90a` is (9, 0), `sm_120` is (12, 0).
fn capability(arch: &str) -> Option<(u32, u32)> {
    let digits = arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']);
    let number: u32 = digits.parse().ok()?;
    (number >= 10).then_some((number / 10, number % 10))
}

#[cfg(test)]
mod tests {
    #[test]
    fn architectures_have_capabilities() {
        let of = super::capability;
        assert_eq!([of("sm_80"), of("sm_90a"), of("sm_120f")], [Some((8, 0)), Some((9, 0)), Some((12, 0))]);
        assert_eq!([of("sm_"), of("90"), of("sm_9"), of("sm_x0")], [None; 4]);
    }
}
