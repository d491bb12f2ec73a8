//! What kernels report while they run: failed checks, and prints.

use super::{DeviceError, Failure};
use std::{
    ffi::c_void,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};
use tegula_ir::{
    Elem,
    abi::Ctx,
    oracle::element,
    protocol::{Site, SiteKind},
};

/// Called with each line that kernels print. Without one, lines go to standard output.
pub type Printer = Arc<dyn Fn(&str) + Send + Sync>;

/// At most so many printed elements are kept for a launch.
pub(super) const MOST_PRINTED: usize = 1 << 20;

/// Collects the reports of one launch.
pub(super) struct Reports<'s> {
    sites: &'s [Site],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: u64,
    /// The failure of the lowest program: site, program, value.
    first: Option<(u32, u64, i64)>,
    printed: Vec<(u32, u64, i64)>,
    /// Reports that were made but not kept.
    lost: u64,
}

/// Where a program is in the grid.
pub(super) fn place(program: u64, grid: [u32; 3]) -> [u32; 3] {
    let [g0, g1, _] = grid.map(u64::from);
    [program % g0, program / g0 % g1, program / g0 / g1].map(|n| n as u32)
}

/// Prints a line.
pub(super) fn say(printer: Option<&Printer>, line: &str) {
    match printer {
        Some(f) => f(line),
        None => println!("{line}"),
    }
}

impl<'s> Reports<'s> {
    pub fn new(sites: &'s [Site]) -> Reports<'s> {
        Reports { sites, state: Mutex::default() }
    }

    /// What kernels call. `ctx.user` is the [`Reports`] of the launch.
    pub unsafe extern "C" fn receive(ctx: *const Ctx, site: u32, program: u64, value: i64) {
        // SAFETY: the kernel hands on the context that it was given, whose `user` outlives the launch.
        let this = unsafe { &*(*ctx).user.cast_const().cast::<Reports<'_>>() };
        this.add(site, program, value);
    }

    /// A report.
    pub fn add(&self, site: u32, program: u64, value: i64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(SiteKind::Print { .. }) = self.sites.get(site as usize).map(|s| &s.kind) {
            if state.printed.len() < MOST_PRINTED {
                state.printed.push((site, program, value));
            }
            return;
        }
        state.count += 1;
        if state.first.is_none_or(|f| program < f.1) {
            state.first = Some((site, program, value));
        }
    }

    /// So many reports were made that nobody could keep.
    pub fn lose(&self, count: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lost += count;
    }

    /// For [`Ctx::user`].
    pub fn as_user(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Prints what was printed, and gives the failure, if there was one.
    pub fn finish(self, grid: [u32; 3], printer: Option<&Printer>) -> Result<(), DeviceError> {
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !state.printed.is_empty() {
            print(self.sites, &mut state.printed, grid, printer);
        }
        if state.lost > 0 {
            let n = state.lost;
            say(printer, &format!("… ({n} more reports, of prints or of failures, than are kept)"));
        }
        let prints = self.sites.iter().any(|s| matches!(s.kind, SiteKind::Print { .. }));
        let checks = self.sites.iter().any(|s| !matches!(s.kind, SiteKind::Print { .. }));
        let Some((site, program, value)) = state.first else {
            // Failures may be among what is lost.
            return if state.lost > 0 && checks { Err(DeviceError::Unreported { lost: state.lost }) } else { Ok(()) };
        };
        if !prints {
            state.count += state.lost;
        }
        let (what, loc) = match self.sites.get(site as usize) {
            Some(Site { kind: SiteKind::Index, message, loc }) => {
                (format!("index {value} is out of range: {message}"), loc.clone())
            }
            Some(Site { kind: SiteKind::Division, message, loc }) => (message.clone(), loc.clone()),
            Some(Site { message, loc, .. }) => (format!("assertion failed: {message}"), loc.clone()),
            None => {
                (format!("a report from site {site}, which is not in the artifact's table"), tegula_ir::Loc::unknown())
            }
        };
        let first = Failure { what, loc, program, at: place(program, grid) };
        Err(DeviceError::Failed { first, count: state.count })
    }
}

/// Prints tiles by ascending program number, those of one program in the order in which it printed them.
fn print(sites: &[Site], printed: &mut [(u32, u64, i64)], grid: [u32; 3], printer: Option<&Printer>) {
    // Stable, and a program runs on one thread: its reports stay in order.
    printed.sort_by_key(|p| p.1);
    let cut = printed.len() == MOST_PRINTED;
    let mut rest = &printed[..];
    let mut line = String::new();
    while let [(site, program, _), ..] = *rest {
        let Some(Site { kind: SiteKind::Print { elem, shape }, message, loc }) = sites.get(site as usize) else {
            return;
        };
        let same = rest.iter().take_while(|p| (p.0, p.1) == (site, program)).count();
        let (tile, after) = rest.split_at(same.min(shape.iter().product::<usize>().max(1)));
        rest = after;
        if line.is_empty() {
            let _ = write!(line, "{loc}: program {program} {:?}: {message}", place(program, grid));
        }
        if let Some(elem) = Elem::from_name(elem) {
            line.push(' ');
            write_tile(&mut line, elem, shape, &mut tile.iter().map(|p| p.2 as u64));
        }
        // The tiles of a print's other operands follow, at the next sites, on the same line.
        let goes_on = rest.first().is_some_and(|next| {
            next.1 == program
                && next.0 == site + 1
                && sites.get(next.0 as usize).is_some_and(|s| s.loc == *loc && s.message.is_empty())
        });
        if !goes_on {
            say(printer, &line);
            line.clear();
        }
    }
    if cut {
        say(printer, "… (more was printed than is kept)");
    }
}

/// A tile as the oracle prints it: `[[1, 2], [3, 4]]`, a scalar without brackets.
fn write_tile(line: &mut String, elem: Elem, shape: &[usize], values: &mut impl Iterator<Item = u64>) {
    let Some((n, inner)) = shape.split_first() else {
        // Fewer reports than elements: more was printed than is kept.
        line.push_str(&values.next().map_or("…".into(), |bits| element(elem, bits)));
        return;
    };
    line.push('[');
    for i in 0..*n {
        if i > 0 {
            line.push_str(", ");
        }
        write_tile(line, elem, inner, values);
    }
    line.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegula_ir::Loc;

    fn site(kind: SiteKind, message: &str, line: u32) -> Site {
        Site { kind, message: message.into(), loc: Loc::new("k.rs", line, 5) }
    }

    fn run(sites: &[Site], grid: [u32; 3], reports: &[(u32, u64, i64)]) -> (Vec<String>, Result<(), DeviceError>) {
        let collected = Reports::new(sites);
        let ctx = Ctx { grid: grid.map(|n| n as i32), flags: 0, report: Reports::receive, user: collected.as_user() };
        for &(site, program, value) in reports {
            // SAFETY: a context as in a launch.
            unsafe { (ctx.report)(&ctx, site, program, value) };
        }
        let lines = Arc::new(Mutex::new(vec![]));
        let heard = lines.clone();
        let printer: Printer = Arc::new(move |line| heard.lock().unwrap().push(line.to_string()));
        let result = collected.finish(grid, Some(&printer));
        (lines.lock().unwrap().clone(), result)
    }

    #[test]
    fn the_failure_of_the_lowest_program_is_the_error() {
        let sites = [site(SiteKind::Assert, "n > 0", 3), site(SiteKind::Index, "axis 1 of `x`", 4)];
        let (_, result) = run(&sites, [3, 4, 2], &[(0, 20, 0), (1, 7, -2), (0, 9, 0)]);
        assert_eq!(
            result.unwrap_err().to_string(),
            "k.rs:4:5: index -2 is out of range: axis 1 of `x` in program 7 [1, 2, 0] (the first of 3 failures)"
        );
        let (_, result) = run(&sites, [3, 4, 2], &[(0, 23, 0)]);
        assert_eq!(result.unwrap_err().to_string(), "k.rs:3:5: assertion failed: n > 0 in program 23 [2, 3, 1]");
        assert!(run(&sites, [3, 4, 2], &[]).1.is_ok());
    }

    #[test]
    fn lost_reports_of_a_kernel_with_checks_are_an_error() {
        let print = site(SiteKind::Print { elem: "i32".into(), shape: vec![] }, "x", 2);
        let lose = |sites: &[Site], first: bool| {
            let reports = Reports::new(sites);
            if first {
                reports.add(0, 4, 0);
            }
            reports.lose(7);
            let printer: Printer = Arc::new(|_| {});
            reports.finish([9, 1, 1], Some(&printer)).map_err(|e| e.to_string())
        };
        let check = site(SiteKind::Assert, "n > 0", 3);
        assert_eq!(lose(std::slice::from_ref(&print), false), Ok(()));
        let error = lose(&[check.clone(), print.clone()], false).unwrap_err();
        assert!(error.contains("made 7 more reports than are kept") && error.contains("failed checks"), "{error}");
        assert!(lose(&[check.clone(), print], true).unwrap_err().ends_with("in program 4 [4, 0, 0]"));
        assert!(lose(&[check], true).unwrap_err().contains("(the first of 8 failures)"));
    }

    #[test]
    fn prints_come_out_by_program_each_tile_of_its_own() {
        let kind = |elem: &str, shape: &[usize]| SiteKind::Print { elem: elem.into(), shape: shape.into() };
        let sites =
            [site(kind("i32", &[1, 2]), "x =", 8), site(kind("f32", &[]), "", 8), site(kind("", &[]), "here", 9)];
        let f = |v: f32| v.to_bits() as i64;
        let reports = [
            (0, 1, 5),
            (0, 0, 1),
            (0, 1, 6),
            (1, 1, f(0.5)),
            (0, 0, 0xffff_ffff),
            (1, 0, f(2.0)),
            (2, 0, 0),
            (2, 0, 0),
            (0, 0, 3),
            (0, 0, 4),
        ];
        let (lines, result) = run(&sites, [2, 1, 1], &reports);
        assert!(result.is_ok());
        assert_eq!(
            lines,
            [
                "k.rs:8:5: program 0 [0, 0, 0]: x = [[1, -1]] 2",
                "k.rs:9:5: program 0 [0, 0, 0]: here",
                "k.rs:9:5: program 0 [0, 0, 0]: here",
                "k.rs:8:5: program 0 [0, 0, 0]: x = [[3, 4]]",
                "k.rs:8:5: program 1 [1, 0, 0]: x = [[5, 6]] 0.5",
            ]
        );
    }
}
