//! A device's results beside the emulator's.

use super::{Case, Tolerance};
use serde_json::{Value, json};

/// What differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differences {
    /// Results.
    pub cases: usize,
    /// Results whose bits differ.
    pub different: usize,
    /// Of those, NaNs on both sides, with other payloads or signs.
    pub nan_bits: usize,
    /// Of those, a NaN or an infinity on one side alone, or infinities of other signs.
    pub kinds: usize,
    /// The most units in the last place between two numbers.
    pub max_ulp: u64,
    /// The first that differ but for NaNs' bits: index, device's bits, emulator's bits.
    pub first: Vec<(usize, u64, u64)>,
}

/// Bytes as numbers of so many bits.
fn elements(bytes: &[u8], bits: u32) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(bits as usize / 8).map(|c| c.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
}

/// Compares the results of a case.
pub fn compare(case: &Case, device: &[u8], emulated: &[u8]) -> Differences {
    let unit = case.unit;
    let mut out = Differences::default();
    for (i, (d, e)) in elements(device, unit.bits()).zip(elements(emulated, unit.bits())).enumerate() {
        out.cases += 1;
        if d == e {
            continue;
        }
        out.different += 1;
        match (unit.is_nan(d), unit.is_nan(e)) {
            (true, true) => {
                out.nan_bits += 1;
                continue;
            }
            (true, _) | (_, true) => out.kinds += 1,
            _ if unit.is_finite(d) != unit.is_finite(e) || !unit.is_finite(d) => out.kinds += 1,
            _ => out.max_ulp = out.max_ulp.max(unit.distance(d, e)),
        }
        if out.first.len() < 5 {
            out.first.push((i, d, e));
        }
    }
    out
}

impl Differences {
    /// Whether the emulator is as near as the case asks. An overflow within the tolerance is one unit from the largest
    /// number, so kinds count only where bits are to be equal.
    pub fn within(&self, tolerance: Tolerance) -> bool {
        match tolerance {
            Tolerance::Exact => self.different == self.nan_bits,
            Tolerance::Ulp(n) => self.kinds == 0 && self.max_ulp <= n,
            Tolerance::Order => true,
        }
    }

    /// For the report.
    pub fn json(&self, case: &Case) -> Value {
        let digits = case.unit.bits() as usize / 4;
        let first = self.first.iter().map(
            |(i, d, e)| json!({ "index": i, "device": format!("{d:0digits$x}"), "emulator": format!("{e:0digits$x}") }),
        );
        json!({
            "cases": self.cases,
            "differences": self.different,
            "differences_in_nan_bits_only": self.nan_bits,
            "nan_or_infinity_on_one_side": self.kinds,
            "max_ulp": self.max_ulp,
            "tolerance": match case.tolerance {
                Tolerance::Exact => "exact".into(),
                Tolerance::Ulp(n) => format!("{n} ulp"),
                Tolerance::Order => "the device's own".into(),
            },
            "within": self.within(case.tolerance),
            "first": first.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        instructions::{case::map, formats::F32},
        raw::Level,
    };

    fn case(tolerance: Tolerance) -> Case {
        map("f", "n", Level::Sm80, "", &[("b32", vec![0; 4])], "b32", F32, tolerance)
    }

    fn bytes(v: &[u32]) -> Vec<u8> {
        v.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn differences_are_told_apart() {
        // Equal; NaNs of other payloads; two units over zero; an infinity on one side.
        let device = bytes(&[1.5f32.to_bits(), 0x7fff_ffff, 1, 0x7f80_0000]);
        let emulated = bytes(&[1.5f32.to_bits(), 0x7fc0_0000, 0x8000_0001, 0x7f7f_ffff]);
        let d = compare(&case(Tolerance::Exact), &device, &emulated);
        assert_eq!((d.cases, d.different, d.nan_bits, d.kinds, d.max_ulp), (4, 3, 1, 1, 2));
        assert_eq!(d.first, [(2, 1, 0x8000_0001), (3, 0x7f80_0000, 0x7f7f_ffff)]);
        assert!(!d.within(Tolerance::Exact) && !d.within(Tolerance::Ulp(2)) && d.within(Tolerance::Order));
        let near = compare(&case(Tolerance::Exact), &device[..12], &emulated[..12]);
        assert!(near.within(Tolerance::Ulp(2)) && !near.within(Tolerance::Ulp(1)) && !near.within(Tolerance::Exact));
        let nan = compare(&case(Tolerance::Exact), &device[..8], &emulated[..8]);
        assert!(nan.within(Tolerance::Exact));
    }
}
