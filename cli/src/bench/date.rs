//! The date in names of results: `20260131-235959`, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn now() -> String {
    // A clock before 1970 is set wrong, and no reason to fail.
    stamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// Of seconds since 1970.
fn stamp(seconds: u64) -> String {
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        month += 1;
        if day < length {
            break;
        }
        day -= length;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}{month:02}{:02}-{hour:02}{minute:02}{:02}", day + 1, second % 60)
}

#[cfg(test)]
mod tests {
    use super::stamp;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // date -u -d @SECONDS +%Y%m%d-%H%M%S
        let known = [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_868_799, "20000229-235959"),
            (951_868_800, "20000301-000000"),
            (1_735_689_599, "20241231-235959"),
            (4_107_542_400, "21000301-000000"),
        ];
        for (seconds, date) in known {
            assert_eq!(stamp(seconds), date, "{seconds}");
        }
    }
}
