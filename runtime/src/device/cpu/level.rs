//! Which instructions kernels may use: the x86-64 microarchitecture levels, chosen at run time.

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// AVX2, FMA, F16C.
    V3,
    /// The same and AVX-VNNI.
    V3Vnni,
    /// AVX-512 F, BW, CD, DQ, VL.
    V4,
    /// The same and AVX-512 VNNI.
    V4Vnni,
}

impl Level {
    /// Every level, better ones later.
    pub const ALL: &'static [Level] = &[Level::V3, Level::V3Vnni, Level::V4, Level::V4Vnni];

    /// The name in targets and in `TEGULA_CPU`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::V3 => "x86-64-v3",
            Level::V3Vnni => "x86-64-v3+vnni",
            Level::V4 => "x86-64-v4",
            Level::V4Vnni => "x86-64-v4+vnni",
        }
    }

    /// The level of that name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.iter().copied().find(|l| l.name() == name)
    }

    /// Whether this processor (and the system, which must save the registers) has it.
    pub fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let v3 = has!("avx2")
                && has!("fma")
                && has!("f16c")
                && has!("bmi1")
                && has!("bmi2")
                && has!("lzcnt")
                && has!("movbe");
            let v4 =
                v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
            match self {
                Level::V3 => v3,
                Level::V3Vnni => v3 && has!("avxvnni"),
                Level::V4 => v4,
                Level::V4Vnni => v4 && has!("avx512vnni"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The level itself, if this processor has it.
    pub(super) fn checked(self) -> Result<Level, String> {
        if self.is_supported() {
            return Ok(self);
        }
        let best = Level::ALL.iter().rev().find(|l| l.is_supported()).map_or("none of them", |l| l.name());
        Err(format!(
            "this processor cannot run {} (of the levels that kernels are compiled for it has {best})",
            self.name()
        ))
    }

    /// What `TEGULA_CPU` names, or the best that this processor has; otherwise why there is none.
    pub fn choose() -> Result<Level, String> {
        match std::env::var("TEGULA_CPU").ok().filter(|v| !v.is_empty()) {
            Some(name) => Level::named(&name),
            None => Level::ALL.iter().rev().copied().find(|l| l.is_supported()).ok_or_else(|| {
                "kernels need an x86-64 processor with AVX2, FMA and F16C (x86-64-v3), and this one is none".into()
            }),
        }
    }

    fn named(name: &str) -> Result<Level, String> {
        let all: Vec<_> = Level::ALL.iter().map(|l| l.name()).collect();
        let unknown = || format!("TEGULA_CPU: expected one of {}, found `{name}`", all.join(", "));
        Level::from_name(name).ok_or_else(unknown)?.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_chosen_by_name_and_by_what_the_processor_has() {
        assert_eq!(
            Level::named("x86-64-v9").unwrap_err(),
            "TEGULA_CPU: expected one of x86-64-v3, x86-64-v3+vnni, x86-64-v4, x86-64-v4+vnni, found `x86-64-v9`"
        );
        for &level in Level::ALL {
            assert_eq!(Level::from_name(level.name()), Some(level));
            assert_eq!(Level::named(level.name()).is_ok(), level.is_supported());
            // A processor that has any level has the first.
            assert!(!level.is_supported() || Level::V3.is_supported());
        }
        if std::env::var_os("TEGULA_CPU").is_none() {
            assert_eq!(Level::choose().ok(), Level::ALL.iter().rev().copied().find(|l| l.is_supported()));
        }
    }
}
