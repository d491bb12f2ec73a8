//! The table of gates.

/// A gate that was measured, or could not be.
pub struct Gate {
    /// What is measured.
    pub name: String,
    /// Ours, with its unit.
    pub ours: String,
    /// What it is held against, with its unit.
    pub beside: String,
    /// The figure that is judged, and the bound.
    pub figure: String,
    /// What it must be.
    pub bound: String,
    /// Whether it is; `None` when it could not be measured here.
    pub pass: Option<bool>,
}

impl Gate {
    /// A rate in `unit` must be at least `bound` of another; `ratio` is the median of the ratios of neighbouring runs.
    pub fn ratio(name: impl Into<String>, (ours, beside): (f64, f64), unit: &str, ratio: f64, bound: f64) -> Gate {
        Gate {
            name: name.into(),
            ours: format!("{ours:.1} {unit}"),
            beside: format!("{beside:.1} {unit}"),
            figure: format!("{ratio:.3}"),
            bound: format!("≥ {bound:.2}"),
            pass: Some(ratio >= bound),
        }
    }

    /// One that cannot be measured here.
    pub fn skipped(name: impl Into<String>, bound: f64) -> Gate {
        let dash = || "–".to_owned();
        Gate {
            name: name.into(),
            ours: dash(),
            beside: dash(),
            figure: dash(),
            bound: format!("≥ {bound:.2}"),
            pass: None,
        }
    }
}

/// Prints the table and the counts; whether nothing failed.
pub fn print(gates: &[Gate]) -> bool {
    let verdict = |g: &Gate| match g.pass {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "skipped",
    };
    let mut rows = vec![["gate", "ours", "beside it", "figure", "bound", ""].map(str::to_owned)];
    rows.extend(
        gates
            .iter()
            .map(|g| {
                [&g.name, &g.ours, &g.beside, &g.figure, &g.bound]
                    .map(String::clone)
                    .into_iter()
                    .chain([verdict(g).to_owned()])
            })
            .map(|cells| {
                let mut cells = cells;
                std::array::from_fn(|_| cells.next().unwrap_or_default())
            }),
    );
    let widths: [usize; 6] = std::array::from_fn(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0));
    for row in &rows {
        let [name, ours, beside, figure, bound, verdict] = row;
        println!(
            "{name:<0$}  {ours:>1$}  {beside:>2$}  {figure:>3$}  {bound:<4$}  {verdict}",
            widths[0], widths[1], widths[2], widths[3], widths[4]
        );
    }
    let count = |pass| gates.iter().filter(|g| g.pass == pass).count();
    println!("\n{} pass, {} fail, {} skipped", count(Some(true)), count(Some(false)), count(None));
    count(Some(false)) == 0
}
