//! Keeps docs/status.json and README.md's table, for `./x test --full` (scripts/test).

use std::{env, fs, process::ExitCode};

use tegula_tests::{
    figure::Figure,
    status::{Machine, Status, Step, last_of_each, with_table},
};

const HELP: &str = "\
status write FIGURES STEPS SKIPS COMMIT DATE   makes docs/status.json of what a run left in these files, and README.md's table
status table                                   makes README.md's table of docs/status.json
status speed THREADS                           turns what `tegula bench --json` prints into figures";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["write", figures, steps, skips, commit, date] => write(figures, steps, skips, commit, date),
        ["table"] => table(),
        ["speed", threads] => speed(threads),
        _ => Err(HELP.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn write(figures: &str, steps: &str, skips: &str, commit: &str, date: &str) -> Outcome<()> {
    let figures: Vec<Figure> = lines(figures)?.iter().map(|l| serde_json::from_str(l)).collect::<Result<_, _>>()?;
    let mut status = Status {
        commit: commit.to_owned(),
        date: date.to_owned(),
        machine: machine()?,
        steps: lines(steps)?.iter().map(|l| Step::parse(l)).collect::<Result<_, _>>()?,
        not_checked: lines(skips)?,
        figures: last_of_each(figures),
    };
    if let Ok(before) = fs::read_to_string(STATUS) {
        status.miss_none_of(&serde_json::from_str(&before)?);
    }
    fs::write(STATUS, serde_json::to_string_pretty(&status)? + "\n")?;
    table()
}

const STATUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/status.json");
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");

fn table() -> Outcome<()> {
    let status: Status = serde_json::from_str(&fs::read_to_string(STATUS)?)?;
    let readme = fs::read_to_string(README)?;
    fs::write(README, with_table(&readme, &status.table())?)?;
    Ok(())
}

fn lines(file: &str) -> Outcome<Vec<String>> {
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn machine() -> Outcome<Machine> {
    let info = fs::read_to_string("/proc/cpuinfo")?;
    let field = |name: &str| Some(info.lines().find(|l| l.starts_with(name))?.split_once(": ")?.1.trim());
    let cpu = field("model name").ok_or("/proc/cpuinfo names no CPU")?;
    // Names of virtual machines' CPUs say little.
    let family = field("cpu family").zip(field("model\t")).map(|(f, m)| format!(", family {f} model {m}"));
    let cores = std::thread::available_parallelism()?.get();
    Ok(Machine { cpu: format!("{cpu}{}", family.unwrap_or_default()), cores })
}

/// One figure for each of the measurements, `{"pp512": {"median": …}, …}`.
fn speed(threads: &str) -> Outcome<()> {
    let json: serde_json::Value = serde_json::from_reader(std::io::stdin())?;
    for (test, spread) in json.as_object().ok_or("`tegula bench --json` gave no object")? {
        let median = spread["median"].as_f64().ok_or_else(|| format!("{test} has no median"))?;
        let name = format!("SmolLM2 135M, {test}, threads: {threads}");
        let figure = Figure::new(name, median, "tokens/s");
        figure.record();
        println!("{}: {}", figure.name, figure.shown());
    }
    Ok(())
}
