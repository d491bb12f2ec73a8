//! Inputs: every pattern where a type is small, edges and a repeatable stream of random ones where it is not.

/// A repeatable stream of 64-bit numbers (SplitMix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next one.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 .. n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}

/// Every pattern of so many bits.
pub fn all(bits: u32) -> Vec<u64> {
    (0..1 << bits).collect()
}

/// f32 numbers about the points where narrower types round: every third sign, exponent and upper fraction, with telling
/// lower halves.
pub fn narrowing() -> Vec<u64> {
    let lows = [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff];
    (0..65536u64).step_by(3).flat_map(|high| lows.map(|low| high << 16 | low)).collect()
}

/// f32 numbers of every sign and exponent, `fractions` of each.
pub fn exponents(fractions: usize) -> Vec<u64> {
    let edges = [0, 1, 0x7f_ffff, 0x40_0000, 0x3f_ffff, 0x35_04f3, 0x2a_aaaa, 0x55_5555];
    let mut random = Random(1);
    let mut out = vec![];
    for top in 0..512u64 {
        for i in 0..fractions {
            let fraction = edges.get(i).copied().unwrap_or_else(|| random.bits() & 0x7f_ffff);
            out.push(top << 23 | fraction);
        }
    }
    out
}

/// f32 numbers between two bounds, at even steps, and their negatives.
pub fn between(low: f32, high: f32, n: usize) -> Vec<u64> {
    let at = |i: usize| low + (high - low) * (i as f32 / (n - 1) as f32);
    (0..n).flat_map(|i| [at(i), -at(i)]).map(|x| u64::from(x.to_bits())).collect()
}

/// Patterns of a float type that decide: zeros, subnormals, ends of ranges, infinities, NaNs with payloads.
fn float_edges(exponent: u32, fraction: u32) -> Vec<u64> {
    let (e, f) = (1u64 << exponent, 1u64 << fraction);
    let bias = e / 2 - 1;
    let magnitudes = [
        0,
        1,
        f / 2,
        f - 1,
        f,
        f + 1,
        (bias - 1) << fraction,
        (bias << fraction) - 1,
        bias << fraction,
        (bias << fraction) + 1,
        (bias << fraction) + f / 2,
        (bias + 1) << fraction,
        (bias + u64::from(fraction)) << fraction,
        (bias + u64::from(fraction) + 1) << fraction,
        ((e - 2) << fraction) + f - 1,
        (e - 2) << fraction,
        (e - 1) << fraction,
        ((e - 1) << fraction) + 1,
        ((e - 1) << fraction) + f / 2,
        ((e - 1) << fraction) + f - 1,
    ];
    let sign = 1 << (exponent + fraction);
    magnitudes.iter().flat_map(|m| [*m, *m | sign]).collect()
}

/// Columns of operands of a float type: every pair of edges in the first two, then numbers that meet within each other's
/// precision, then anything.
pub fn floats(exponent: u32, fraction: u32, columns: usize, random: usize, seed: u64) -> Vec<Vec<u64>> {
    let edges = float_edges(exponent, fraction);
    let n = edges.len();
    let width = 1 + exponent + fraction;
    let mask = if width == 64 { !0 } else { (1 << width) - 1 };
    let mut r = Random(seed);
    let mut out = vec![vec![]; columns];
    for i in 0..n * n {
        let row = [edges[i % n], edges[i / n], edges[(i * 7 + i / n) % n]];
        out.iter_mut().zip(row).for_each(|(c, v)| c.push(v));
    }
    let bias = (1u64 << exponent) / 2 - 1;
    for i in 0..random {
        let near = |r: &mut Random| {
            let e = bias - u64::from(fraction) / 2 + r.below(u64::from(fraction));
            r.below(2) << (exponent + fraction) | e << fraction | r.bits() & ((1 << fraction) - 1)
        };
        for column in &mut out {
            let v = if i % 4 == 3 { r.bits() & mask } else { near(&mut r) };
            column.push(v);
        }
    }
    out
}

/// Columns of integers of these widths: every pair of edges in the first two, and random ones of all sizes.
pub fn integers(bits: &[u32], random: usize, seed: u64) -> Vec<Vec<u64>> {
    let edges = |bits: u32| {
        let mask = if bits == 64 { !0 } else { (1u64 << bits) - 1 };
        let top = 1u64 << (bits - 1);
        let edges = [
            0,
            1,
            2,
            3,
            7,
            8,
            15,
            16,
            31,
            32,
            33,
            63,
            64,
            127,
            128,
            255,
            256,
            mask,
            mask - 1,
            top,
            top - 1,
            top + 1,
            0x1234_5678,
            0x8040_2010,
        ];
        edges.map(|e| e & mask)
    };
    let n = edges(32).len();
    let mut r = Random(seed);
    let column = |(at, bits): (usize, &u32)| {
        let edges = edges(*bits);
        let place = |i: usize| match at {
            0 => i % n,
            1 => i / n,
            _ => (i * 7 + i / n) % n,
        };
        let mask = if *bits == 64 { !0 } else { (1u64 << bits) - 1 };
        let mut out: Vec<u64> = (0..n * n).map(|i| edges[place(i)]).collect();
        out.extend((0..random).map(|i| (r.bits() >> (i as u32 % bits)) & mask));
        out
    };
    bits.iter().enumerate().map(column).collect()
}
