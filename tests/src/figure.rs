//! What tests and gates measure: a number, what it must be, and whether it is. `./x test --full` collects them.

use std::{fs::OpenOptions, io::Write};

use serde::{Deserialize, Serialize};

/// A measured number.
///
/// ```no_run
/// # let rms = 0.0132;
/// use tegula_tests::figure::Figure;
/// Figure::new("SmolLM2 135M: rms of the logits", rms, "").at_most(0.02).must_hold();
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured; no two figures share a name.
    pub name: String,
    /// The number; `None` if it could not be measured.
    pub value: Option<f64>,
    /// Of the number; empty for a ratio or a count.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// What it must be, `≤ 12 µs` for example; empty if it is only told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bound: String,
    /// Whether it is; `None` without a bound, or where it could not be measured.
    pub pass: Option<bool>,
}

impl Figure {
    /// A number that is only told, unless a bound follows.
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Figure {
        let value = value.is_finite().then_some(value);
        Figure { name: name.into(), value, unit: unit.to_owned(), bound: String::new(), pass: None }
    }

    /// One that cannot be measured on this machine.
    pub fn not_here(name: impl Into<String>, bound: String) -> Figure {
        Figure { name: name.into(), value: None, unit: String::new(), bound, pass: None }
    }

    /// It must be at least this. NaN fails.
    pub fn at_least(self, least: f64) -> Figure {
        let pass = self.value.is_some_and(|v| v >= least);
        Figure { bound: format!("≥ {least} {}", self.unit).trim_end().to_owned(), pass: Some(pass), ..self }
    }

    /// It must be at most this. NaN fails.
    pub fn at_most(self, most: f64) -> Figure {
        let pass = self.value.is_some_and(|v| v <= most);
        Figure { bound: format!("≤ {most} {}", self.unit).trim_end().to_owned(), pass: Some(pass), ..self }
    }

    /// Whether its bound holds; true without one.
    pub fn holds(&self) -> bool {
        self.pass != Some(false)
    }

    /// Records it, and then panics if its bound does not hold.
    #[track_caller]
    pub fn must_hold(&self) {
        self.record();
        assert!(self.holds(), "{self}");
    }

    /// Adds it, whether it holds or not, as a line of JSON to the file that `TEGULA_FIGURES` names, if it names one.
    pub fn record(&self) {
        let Some(path) = std::env::var_os("TEGULA_FIGURES") else { return };
        let file = OpenOptions::new().append(true).create(true).open(path);
        let line = serde_json::to_string(&self.rounded()).expect("a figure is plain data") + "\n";
        // One write, since tests run beside each other.
        file.and_then(|mut f| f.write_all(line.as_bytes())).expect("TEGULA_FIGURES can be written");
    }

    /// The number with its unit, to four significant digits.
    pub fn shown(&self) -> String {
        let Some(value) = self.value else { return "–".to_owned() };
        format!("{value:.*} {}", decimals(value), self.unit).trim_end().to_owned()
    }

    /// With no more digits than are shown.
    fn rounded(&self) -> Figure {
        let value = self.value.and_then(|v| format!("{v:.*}", decimals(v)).parse().ok());
        Figure { value, ..self.clone() }
    }

    /// `pass`, `FAIL`, `not here`, or nothing for a figure without a bound.
    pub fn verdict(&self) -> &'static str {
        match self.pass {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None if self.value.is_none() => "not here",
            None => "",
        }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} (bound {}) {}", self.name, self.shown(), self.bound, self.verdict())
    }
}

/// Digits after the point that make four significant ones, or all of a larger number's before it.
fn decimals(value: f64) -> usize {
    if value.fract() == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_themselves_and_not_beyond() {
        let f = |v| Figure::new("x", v, "µs");
        assert_eq!(f(0.85).at_least(0.85).pass, Some(true));
        assert_eq!(f(0.8499).at_least(0.85).pass, Some(false));
        assert_eq!(f(12.0).at_most(12.0).pass, Some(true));
        assert_eq!(f(12.001).at_most(12.0).verdict(), "FAIL");
        assert!(!f(f64::NAN).at_most(12.0).holds());
        assert!(!f(f64::NAN).at_least(0.0).holds());
        assert!(f(7.0).holds());
    }

    #[test]
    fn numbers_are_shown_to_four_digits() {
        let shown = |v| Figure::new("x", v, "GB/s").shown();
        assert_eq!(shown(0.929449), "0.9294 GB/s");
        assert_eq!(shown(-0.00123449), "-0.001234 GB/s");
        assert_eq!(shown(22.9554), "22.96 GB/s");
        assert_eq!(shown(1234.56), "1235 GB/s");
        assert_eq!(shown(543.0), "543 GB/s");
        assert_eq!(shown(f64::NAN), "–");
        assert_eq!(
            Figure::new("x", 0.929449, "").at_least(0.9294).rounded(),
            Figure::new("x", 0.9294, "").at_least(0.9294)
        );
    }

    #[test]
    fn json_keeps_everything() {
        for f in [Figure::new("a \"b\"", 1.5, "µs").at_most(1.0), Figure::not_here("b", "≥ 1".into())] {
            let text = serde_json::to_string(&f).unwrap();
            assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), f);
        }
    }
}
