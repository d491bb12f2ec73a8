//! Numbers on the command line: whatever is not one in the range is answered by the range.

use std::ops::RangeInclusive;

/// Most tokens that any option takes: as long as the longest context that a model file can state.
pub(super) const MOST_TOKENS: u64 = 1 << 24;

/// Reads a whole number in `range`.
pub(super) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|n| range.contains(n)).and_then(|n| T::try_from(n).ok());
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_the_range_are_taken() {
        let small = whole::<usize>(1..=1024);
        assert_eq!((small("1"), small("1024")), (Ok(1), Ok(1024)));
        for wrong in ["0", "1025", "-1", "", "x", "1.5", "99999999999999999999999"] {
            assert_eq!(small(wrong).unwrap_err(), "expected a whole number from 1 to 1024", "{wrong}");
        }
        assert!(whole::<u8>(0..=1000)("300").is_err());
    }
}
