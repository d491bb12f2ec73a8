//! The table of gates.

use tegula_tests::figure::Figure;

/// A gate that was measured, or could not be.
pub struct Gate {
    /// What is judged, with its bound.
    pub figure: Figure,
    /// Ours, with its unit.
    pub ours: String,
    /// What it is held against, with its unit.
    pub beside: String,
}

impl Gate {
    /// A rate in `unit` must be at least `bound` of another; `ratio` is the median of the ratios of neighbouring runs.
    pub fn ratio(name: impl Into<String>, (ours, beside): (f64, f64), unit: &str, ratio: f64, bound: f64) -> Gate {
        Gate {
            figure: Figure::new(name, ratio, "").at_least(bound),
            ours: format!("{ours:.1} {unit}"),
            beside: format!("{beside:.1} {unit}"),
        }
    }

    /// A number in `unit` must be at most `bound`; nothing is beside it.
    pub fn at_most(name: impl Into<String>, value: f64, unit: &str, bound: f64) -> Gate {
        let figure = Figure::new(name, value, unit).at_most(bound);
        Gate { ours: figure.shown(), beside: String::new(), figure }
    }

    /// One that cannot be measured here.
    pub fn skipped(name: impl Into<String>, bound: f64) -> Gate {
        let dash = || "–".to_owned();
        Gate { figure: Figure::not_here(name, format!("≥ {bound}")), ours: dash(), beside: dash() }
    }

    /// One whose runs others disturbed too often: it has failed.
    pub fn too_noisy(self) -> Gate {
        let figure = Figure { value: None, pass: Some(false), ..self.figure };
        Gate { figure, ours: "too noisy".to_owned(), ..self }
    }
}

/// Prints the table and the counts, and records the figures; whether nothing failed.
pub fn print(gates: &[Gate]) -> bool {
    let mut rows = vec![["gate", "ours", "beside it", "figure", "bound", ""].map(str::to_owned)];
    rows.extend(gates.iter().map(|g| {
        let f = &g.figure;
        [f.name.clone(), g.ours.clone(), g.beside.clone(), f.shown(), f.bound.clone(), f.verdict().to_owned()]
    }));
    let widths: [usize; 6] = std::array::from_fn(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0));
    for row in &rows {
        let [name, ours, beside, figure, bound, verdict] = row;
        println!(
            "{name:<0$}  {ours:>1$}  {beside:>2$}  {figure:>3$}  {bound:<4$}  {verdict}",
            widths[0], widths[1], widths[2], widths[3], widths[4]
        );
    }
    gates.iter().for_each(|g| g.figure.record());
    let count = |pass| gates.iter().filter(|g| g.figure.pass == pass).count();
    let not_here = gates.iter().filter(|g| g.figure.pass.is_none() && g.figure.value.is_none()).count();
    println!("\n{} pass, {} fail, {not_here} not possible here", count(Some(true)), count(Some(false)));
    count(Some(false)) == 0
}
