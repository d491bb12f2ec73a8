//! What a run of `./x test --full` found: docs/status.json, and README.md's table, which is made from it.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The commit that was tested.
    pub commit: String,
    /// When, as 2026-01-31.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// What was run.
    pub steps: Vec<Step>,
    /// Checks that were not possible there, each with its reason.
    pub not_checked: Vec<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name for itself.
    pub cpu: String,
    /// Cores that the run had.
    pub cores: usize,
}

/// One step of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// How long it took.
    pub seconds: u64,
    /// Tests that passed, failed, and were left to another step.
    pub tests: [u64; 3],
}

impl Step {
    /// Reads `NAME ok|FAILED SECONDS PASSED FAILED SKIPPED`.
    ///
    /// # Errors
    /// Another form.
    pub fn parse(line: &str) -> Result<Step, String> {
        let wrong = || format!("no step: `{line}`");
        let [name, outcome, numbers @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let numbers: Vec<u64> = numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let [seconds, tests @ ..] = &numbers[..] else { return Err(wrong()) };
        let tests = tests.try_into().map_err(|_| wrong())?;
        Ok(Step { name: (*name).to_owned(), ok: *outcome == "ok", seconds: *seconds, tests })
    }
}

/// The last figure of each name, in the order of their first.
pub fn last_of_each(figures: Vec<Figure>) -> Vec<Figure> {
    let mut out: Vec<Figure> = vec![];
    for figure in figures {
        match out.iter_mut().find(|f| f.name == figure.name) {
            Some(before) => *before = figure,
            None => out.push(figure),
        }
    }
    out
}

impl Status {
    /// A figure that an earlier run had cannot go missing: what broke before it was measured has failed.
    pub fn miss_none_of(&mut self, earlier: &Status) {
        for figure in &earlier.figures {
            if self.figures.iter().all(|f| f.name != figure.name) {
                self.figures.push(Figure { value: None, pass: Some(false), ..figure.clone() });
            }
        }
    }

    /// The text and table for README.md.
    pub fn table(&self) -> String {
        let [passed, failed, _] = self.steps.iter().fold([0; 3], |sum, s| std::array::from_fn(|i| sum[i] + s.tests[i]));
        let broken: Vec<&str> = self.steps.iter().filter(|s| !s.ok).map(|s| s.name.as_str()).collect();
        let seconds: u64 = self.steps.iter().map(|s| s.seconds).sum();
        let steps = match broken.len() {
            0 => "every step succeeded".to_owned(),
            _ => format!("**failed: {}**", broken.join(", ")),
        };
        let mut text = format!(
            "`./x test --full` on {date} at commit {commit} ({cpu}, {cores} cores, {minutes} minutes): {steps}; {passed} \
             tests passed, {failed} failed, {skipped} checks were not possible there.\n\n\
             | measured | | bound | |\n|---|--:|---|---|\n",
            date = self.date,
            commit = self.commit.get(..10).unwrap_or(&self.commit),
            cpu = self.machine.cpu,
            cores = self.machine.cores,
            minutes = seconds.div_ceil(60),
            skipped = self.not_checked.len(),
        );
        for f in &self.figures {
            let verdict = if f.holds() { f.verdict() } else { "**fail**" };
            text += &format!("| {} | {} | {} | {verdict} |\n", f.name.replace('|', "\\|"), f.shown(), f.bound);
        }
        text
    }
}

const BEGIN: &str = "<!-- made from docs/status.json -->\n";
const END: &str = "<!-- end -->\n";

/// `readme` with `table` between its marks.
///
/// # Errors
/// It has no marks.
pub fn with_table(readme: &str, table: &str) -> Result<String, String> {
    let (before, rest) = readme.split_once(BEGIN).ok_or(format!("README.md has no line `{}`", BEGIN.trim_end()))?;
    let (_, after) = rest.split_once(END).ok_or(format!("README.md has no line `{}`", END.trim_end()))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            commit: "0123456789abcdef".into(),
            date: "2026-01-31".into(),
            machine: Machine { cpu: "A CPU".into(), cores: 2 },
            steps: vec![Step::parse("tests ok 60 10 0 3").unwrap(), Step::parse("full FAILED 61 5 1 0").unwrap()],
            not_checked: vec!["a model".into()],
            figures: vec![
                Figure::new("sum", 1.5, "µs").at_most(2.0),
                Figure::new("rate", 0.5, "").at_least(0.85),
                Figure::new("words", 12.0, "tokens/s"),
                Figure::not_here("peer", "≥ 0.9".into()),
            ],
        }
    }

    #[test]
    fn the_table_says_all() {
        let expected = "`./x test --full` on 2026-01-31 at commit 0123456789 (A CPU, 2 cores, 3 minutes): **failed: full**; 15 \
            tests passed, 1 failed, 1 checks were not possible there.\n\n\
            | measured | | bound | |\n|---|--:|---|---|\n\
            | sum | 1.500 µs | ≤ 2 µs | pass |\n\
            | rate | 0.5000 | ≥ 0.85 | **fail** |\n\
            | words | 12 tokens/s |  |  |\n\
            | peer | – | ≥ 0.9 | not here |\n";
        assert_eq!(status().table(), expected);
    }

    #[test]
    fn a_figure_that_is_gone_has_failed() {
        let (before, mut now) = (status(), status());
        now.figures.retain(|f| f.name == "words");
        now.miss_none_of(&before);
        let names: Vec<&str> = now.figures.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["words", "sum", "rate", "peer"]);
        assert!(now.figures[0].holds() && now.figures[1..].iter().all(|f| !f.holds() && f.value.is_none()));
    }

    #[test]
    fn of_two_figures_of_a_name_the_last_counts() {
        let of = |name: &str, v| Figure::new(name, v, "");
        assert_eq!(last_of_each(vec![of("a", 1.0), of("b", 2.0), of("a", 3.0)]), [of("a", 3.0), of("b", 2.0)]);
    }

    #[test]
    fn steps_are_read_and_nothing_else() {
        let step = Step { name: "docs".into(), ok: true, seconds: 4, tests: [0; 3] };
        assert_eq!(Step::parse("docs ok 4 0 0 0"), Ok(step));
        for wrong in ["", "docs", "docs ok", "docs ok x 0 0 0", "docs ok 4 0 0", "docs ok 4 0 0 0 0"] {
            assert!(Step::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_takes_the_place_of_another() {
        let readme = format!("# A\n{BEGIN}old\n{END}tail\n");
        let once = with_table(&readme, "new\n").unwrap();
        assert_eq!(once, format!("# A\n{BEGIN}new\n{END}tail\n"));
        assert_eq!(with_table(&once, "new\n").unwrap(), once);
        assert!(with_table("# A\n", "new\n").is_err());
        assert!(with_table(&format!("{BEGIN}x"), "new\n").is_err());
    }

    #[test]
    fn json_keeps_everything() {
        let text = serde_json::to_string_pretty(&status()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status());
    }
}
