//! What instructions do, as bit patterns: a device beside the emulator.
//!
//! A [`Case`] is a kernel that executes one instruction on a table of inputs. Inputs come from generators that never
//! change by themselves, so a table of outputs ([`crate::truth`]) says all.

pub mod case;
pub mod compare;
pub mod formats;
pub mod samples;

mod approximations;
mod atomics;
mod conversions;
mod copies;
mod floats;
mod integers;
mod matrices;
mod products;
mod warps;
mod wgmma;

pub use case::{Case, Tolerance};

/// All cases, family by family. Names are unique.
pub fn cases() -> Vec<Case> {
    let families = [
        conversions::cases,
        approximations::cases,
        floats::cases,
        integers::cases,
        warps::cases,
        atomics::cases,
        matrices::cases,
        products::cases,
        copies::cases,
        wgmma::cases,
    ];
    families.iter().flat_map(|family| family()).collect()
}

/// Instructions and types that the emulator does not have, and so no case has either.
pub const NOT_COVERED: &[&str] = &[
    "video instructions (vadd, vset, vmad, ...)",
    "surfaces and textures",
    "wmma (the older form of mma)",
    "sparse mma and wgmma",
    "sub-byte mma (s4, u4, b1)",
];
