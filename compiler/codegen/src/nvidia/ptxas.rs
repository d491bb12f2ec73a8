//! From PTX to a cubin, by ptxas, and what it says of the kernel: registers, spills, faults.

use super::{Error, tool};
use tegula_ir::Loc;

/// An assembled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// An ELF file that the driver loads.
    pub cubin: Vec<u8>,
    /// What a thread needs.
    pub usage: Usage,
    /// Warnings and advice of ptxas', with the user's line where it gave one.
    pub advice: Vec<String>,
}

/// What a thread needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers of 32 bits.
    pub registers: u32,
    /// Bytes of registers that are stored to local memory, because there are not enough.
    pub spill_bytes: u32,
    /// Bytes of local memory.
    pub stack_bytes: u32,
}

/// Assembles PTX for an architecture. Machine code knows the user's lines. Equal PTX gives equal bytes.
///
/// # Errors
/// ptxas is missing, or refuses the PTX: with the PTX's line and, where a `.loc` before it tells, the user's.
pub fn assemble(ptx: &str, arch: &str) -> Result<Assembled, Error> {
    let arch = format!("-arch={arch}");
    let output = tool::run("ptxas", &[&arch, "-v", "-lineinfo", "-o", "/dev/stdout", "/dev/stdin"], ptx.as_bytes())?;
    if !output.ok {
        let (message, loc) = refusal(&output.said, ptx);
        return Err(Error { tool: "ptxas", message, loc });
    }
    Ok(Assembled { cubin: output.bytes, usage: usage(&output.said), advice: advice(&output.said, ptx) })
}

/// The first line of `ptxas --version` that has a number: part of the keys under which cubins are kept.
///
/// # Errors
/// ptxas is missing, or does not run.
pub fn version() -> Result<String, Error> {
    let output = tool::run("ptxas", &["--version"], &[])?;
    let text = String::from_utf8_lossy(&output.bytes).into_owned();
    // "Cuda compilation tools, release 13.5, V13.5.37"
    let number = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('V').filter(|v| v.starts_with(|c: char| c.is_ascii_digit())));
    let unknown =
        || Error { tool: "ptxas", message: format!("ptxas names no version: {text}{}", output.said), loc: None };
    number.map(|n| format!("ptxas {n}")).ok_or_else(unknown)
}

/// Reads the lines of `-v`. A module has one entry; should ptxas keep functions of it apart, theirs count too.
fn usage(said: &str) -> Usage {
    let mut usage = Usage::default();
    for line in said.lines() {
        let before = |what: &str| -> Option<u32> {
            line.split(',').find_map(|part| {
                part.trim().trim_start_matches("ptxas info").strip_suffix(what)?.split_whitespace().last()?.parse().ok()
            })
        };
        usage.registers = usage.registers.max(before(" registers").unwrap_or(0));
        usage.spill_bytes += before(" bytes spill stores").unwrap_or(0);
        usage.stack_bytes += before(" bytes stack frame").unwrap_or(0);
    }
    usage
}

/// Warnings, and what is numbered, as in `ptxas info    : (C7508) …`: ptxas says so where it changed the code.
fn advice(said: &str, ptx: &str) -> Vec<String> {
    let told = |line: &&str| line.contains("warning :") || line.contains(": (C");
    let mut all: Vec<String> = said.lines().filter(told).map(|line| plain(line, ptx)).collect();
    all.dedup();
    all
}

/// One line of ptxas', without its name for the file, with the user's line.
fn plain(line: &str, ptx: &str) -> String {
    let text = line.trim().trim_start_matches("ptxas").trim_start().trim_start_matches("/dev/stdin, ");
    let loc = number_after(line, "line ").and_then(|n| user_line(ptx, n));
    format!("ptxas: {}{}", spaces_once(text), loc.map(|l| format!(" ({l})")).unwrap_or_default())
}

/// What ptxas refused: its errors, the PTX's line that the first is about, and the user's.
fn refusal(said: &str, ptx: &str) -> (String, Option<Loc>) {
    let errors: Vec<&str> = said.lines().filter(|l| l.contains("error   :") || l.contains("fatal   :")).collect();
    let Some(first) = errors.first() else { return (format!("ptxas failed: {}", said.trim()), None) };
    let number = number_after(first, "line ");
    let reason = |line: &str| spaces_once(line.split_once(" : ").map_or(line, |(_, reason)| reason));
    let mut message = reason(first);
    if let Some(text) = number.and_then(|n| ptx.lines().nth(n.checked_sub(1)?)) {
        message += &format!("; line {} of the PTX is `{}`", number.unwrap_or(0), spaces_once(text));
    }
    let more = errors.iter().filter(|l| l.contains("error   :")).count().saturating_sub(1);
    if more > 0 {
        message += &format!(" (and {more} more)");
    }
    (message, number.and_then(|n| user_line(ptx, n)))
}

fn number_after(line: &str, what: &str) -> Option<usize> {
    let rest = &line[line.find(what)? + what.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

fn spaces_once(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The user's line that the PTX's line `number` (from 1) came from: the last `.loc FILE LINE COLUMN` before it, with the
/// name that `.file` gives the file.
pub fn user_line(ptx: &str, number: usize) -> Option<Loc> {
    let directive = |line: &str, name| {
        let rest = line.trim_start().strip_prefix(name)?;
        Some(rest.split([' ', '\t', ',']).filter(|w| !w.is_empty()).map(str::to_string).collect::<Vec<_>>())
    };
    let before: Vec<&str> = ptx.lines().take(number).collect();
    let loc = before.iter().rev().find_map(|line| directive(line, ".loc"))?;
    let [file, line, column] = loc.first_chunk::<3>()?;
    let name = ptx.lines().find_map(|l| directive(l, ".file").filter(|words| words.first() == Some(file)))?;
    let loc = Loc::new(name.get(1..)?.join(" ").trim_matches('"'), line.parse().ok()?, column.parse().ok()?);
    (!loc.is_unknown()).then_some(loc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_read() {
        let said = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
            ptxas info    : Function properties for k\n    96 bytes stack frame, 92 bytes spill stores, 100 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size\n\
            ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored in function 'k'\n\
            ptxas info    : Compile time = 17.207 ms\n";
        assert_eq!(usage(said), Usage { registers: 255, spill_bytes: 92, stack_bytes: 96 });
        assert_eq!(
            advice(said, ""),
            ["ptxas: info : (C7508) Potential Performance Loss: 'setmaxnreg' ignored in function 'k'"]
        );
    }

    const PTX: &str = "\t.loc\t1 7 9\n\tmov.u32 %r1, 0;\n\t.loc\t2 8 3 // b.rs:8:3\n\tmov.u33   %r1, 0;\n\t.file\t1 \"a.rs\"\n\t.file\t2 \"my kernels/b.rs\"\n";

    #[test]
    fn lines_of_the_ptx_are_the_users() {
        assert_eq!(user_line(PTX, 2), Some(Loc::new("a.rs", 7, 9)));
        assert_eq!(user_line(PTX, 4), Some(Loc::new("my kernels/b.rs", 8, 3)));
        assert_eq!(user_line("ret;", 1), None);
    }

    #[test]
    fn a_refusal_names_both_lines() {
        let said = "ptxas /dev/stdin, line 4; error   : Unknown modifier '.u33'\n\
            ptxas /dev/stdin, line 4; error   : Unexpected instruction types specified for 'mov'\n\
            ptxas fatal   : Ptx assembly aborted due to errors\n";
        let (message, loc) = refusal(said, PTX);
        assert_eq!(message, "Unknown modifier '.u33'; line 4 of the PTX is `mov.u33 %r1, 0;` (and 1 more)");
        assert_eq!(loc, Some(Loc::new("my kernels/b.rs", 8, 3)));
        assert_eq!(refusal("it ended with signal 9", PTX).0, "ptxas failed: it ended with signal 9");
        let (message, _) = refusal("ptxas fatal   : Value 'sm_70' is not defined for option 'gpu-name'\n", PTX);
        assert_eq!(message, "Value 'sm_70' is not defined for option 'gpu-name'");
    }
}
