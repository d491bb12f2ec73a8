//! Plain aligned tables and readable numbers for terminal output.

use std::io::{self, Write};

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Writes rows with aligned columns, two spaces between, no spaces at line ends.
pub(super) fn write(out: &mut dyn Write, align: &[Align], rows: &[Vec<String>]) -> io::Result<()> {
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> =
        (0..align.len()).map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for ((text, width), align) in row.iter().zip(&widths).zip(align) {
            match align {
                Align::Left => line += &format!("{text:<width$}  "),
                Align::Right => line += &format!("{text:>width$}  "),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A number with a thin mark between thousands: `1,234,567`.
pub(super) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things: `1 token`, `2 tokens`.
pub(super) fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// Bytes in the unit that leaves a readable number: `98.4 MB` (units of 1000).
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Text in one line of at most `most` characters: control characters escaped, the rest cut.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let escaped: String = text.chars().take(most + 1).flat_map(escape).collect();
    if escaped.chars().count() <= most {
        return escaped;
    }
    escaped.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Text of any number of lines with its other control characters escaped: names of files can hold commands to a terminal.
pub(super) fn printable(text: &str) -> String {
    text.split('\n').map(|line| line.chars().flat_map(escape).collect()).collect::<Vec<String>>().join("\n")
}

fn escape(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows =
            [vec!["a".to_owned(), "10".to_owned()], vec!["bcé".to_owned(), "7".to_owned()], vec!["d".to_owned()]];
        let mut out = Vec::new();
        write(&mut out, &[Align::Left, Align::Right], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a    10\nbcé   7\nd\n");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(134_515_008), "134,515,008");
        assert_eq!((counted(0, "token"), counted(1, "token")), ("0 tokens".into(), "1 token".into()));
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(98_362_432), "98.4 MB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(1_117_320_768), "1.1 GB");
    }

    #[test]
    fn long_or_wild_text_stays_in_one_line() {
        assert_eq!(one_line("a\nb\u{1b}", 80), "a\\nb\\u{1b}");
        assert_eq!(one_line("äbcdef", 4), "äbc…");
        assert_eq!(one_line("abcd", 4), "abcd");
        assert_eq!(printable("a\nb\u{1b}[31mä\r\n"), "a\nb\\u{1b}[31mä\\r\n");
    }
}
