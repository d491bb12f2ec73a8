//! Layouts as text: `r[1, 2] l[4, 8, 16, 32, 64] w[128, 256]`, pieces of a tile separated by `|`.
//!
//! The number of flat index bits is the rank of the vectors, since every element is somewhere.

use super::{LANE_BITS, Linear, TileLayout, algebra::Span};
use std::fmt;

impl fmt::Display for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{:?} l{:?} w{:?}", self.reg, self.lane, self.warp)
    }
}

impl fmt::Display for TileLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, l) in self.0.iter().enumerate() {
            write!(f, "{}{l}", if i == 0 { "" } else { " | " })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Linear {
    type Err = String;
    fn from_str(text: &str) -> Result<Linear, String> {
        let mut rest = text.trim();
        let mut part = |name: char| -> Result<Vec<u64>, String> {
            let wrong = || format!("expected `{name}[…]` in the layout `{text}`");
            let (inside, after) =
                rest.strip_prefix(name).and_then(|r| r.strip_prefix('[')?.split_once(']')).ok_or_else(wrong)?;
            rest = after.trim_start();
            let numbers = inside.split(',').map(str::trim).filter(|n| !n.is_empty());
            numbers.map(|n| n.parse().map_err(|_| format!("`{n}` is no number in the layout `{text}`"))).collect()
        };
        let (reg, lane, warp) = (part('r')?, part('l')?, part('w')?);
        if !rest.is_empty() {
            return Err(format!("unexpected `{rest}` after the layout"));
        }
        let lane: [u64; LANE_BITS] =
            lane.try_into().map_err(|l: Vec<u64>| format!("{} lane vectors, a warp has {LANE_BITS}", l.len()))?;
        let rank = Span::of(reg.iter().chain(&lane).chain(&warp).copied()).rank();
        Linear::new(rank as u32, reg, lane, warp)
    }
}

impl std::str::FromStr for TileLayout {
    type Err = String;
    fn from_str(text: &str) -> Result<TileLayout, String> {
        text.split('|').map(str::parse).collect::<Result<_, _>>().map(TileLayout)
    }
}
