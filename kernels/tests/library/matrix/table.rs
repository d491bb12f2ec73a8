//! The table, for reading and for docs/kernels.md.

use super::{Case, measure::Measure};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kernels.md");
const BEGIN: &str = "<!-- made by kernels/tests/library/matrix -->\n";
const END: &str = "<!-- end -->\n";

/// The smallest of 1, 2, 5, 10, 20, … and 0.5, 0.2, … that is no less.
fn round_up(x: f64) -> f64 {
    let magnitude = 10f64.powf(x.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * magnitude).find(|r| x <= *r).unwrap_or(x)
}

/// With errors rounded up to 1, 2, 5, 10, …: what changes with every other order of additions is not in it.
pub fn rounded(names: &[&str], cases: &[&Case], columns: &[Vec<Measure>]) -> String {
    made(names, cases, columns, |m| match m.worst {
        0.0 => "0".to_owned(),
        worst => format!("≤ {}", round_up(worst)),
    })
}

/// With errors as they are, the part of the bound that they are, and how many values were compared.
pub fn exact(names: &[&str], cases: &[&Case], columns: &[Vec<Measure>]) -> String {
    made(names, cases, columns, |m| format!("{:.3} ({:.0} %, {})", m.worst, 100.0 * m.share, m.values))
}

fn made(names: &[&str], cases: &[&Case], columns: &[Vec<Measure>], cell: impl Fn(&Measure) -> String) -> String {
    let mut text = format!("| kernel | | errors in | bound | {} |\n", names.join(" | "));
    text += &format!("|---|---|---|---|{}\n", "--:|".repeat(names.len()));
    for (i, case) in cases.iter().enumerate() {
        let cells = columns.iter().map(|c| if case.unit.is_empty() { "equal".to_owned() } else { cell(&c[i]) });
        let cells: Vec<String> = cells.collect();
        let Case { kernel, of, unit, bound, .. } = **case;
        let (unit, bound) = if unit.is_empty() { ("", "equal bits") } else { (unit, bound) };
        text += &format!("| `{kernel}` | {of} | {unit} | {bound} | {} |\n", cells.join(" | "));
    }
    text
}

/// That the table in docs/kernels.md is this one; or makes it so, if `UPDATE_EXPECT` is set.
pub fn same_in_the_docs(table: &str) {
    let text = std::fs::read_to_string(FILE).unwrap_or_else(|e| panic!("{FILE}: {e}"));
    let parts = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = parts.unwrap_or_else(|| panic!("docs/kernels.md has no table between its marks"));
    let made = format!("{head}{BEGIN}{table}{END}{tail}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(FILE, &made).unwrap_or_else(|e| panic!("{FILE}: {e}"));
    }
    assert!(
        std::fs::read_to_string(FILE).is_ok_and(|now| now == made),
        "docs/kernels.md does not have this table; UPDATE_EXPECT=1 writes it:\n{table}"
    );
}

#[test]
fn errors_are_rounded_up_to_few_numbers() {
    for (x, up) in [(0.3, 0.5), (0.5, 0.5), (1.0, 1.0), (1.01, 2.0), (5.1, 10.0), (99.0, 100.0), (123.0, 200.0)] {
        assert_eq!(round_up(x), up, "{x}");
    }
}
