//! From a cubin to text, by nvdisasm.

use super::{Error, tool};

/// Machine code as text: the kernel's instructions, after each change of the user's line a comment that names it.
///
/// # Errors
/// nvdisasm is missing, or refuses the cubin.
pub fn disassemble(cubin: &[u8]) -> Result<String, Error> {
    // Code only, with lines; of branches their targets, and no control-flow analysis, which may fail.
    let output = tool::run("nvdisasm", &["-c", "-g", "/dev/stdin"], cubin)?;
    if !output.ok {
        return Err(Error { tool: "nvdisasm", message: output.said.trim().into(), loc: None });
    }
    Ok(readable(&String::from_utf8_lossy(&output.bytes)))
}

/// Without what the assembler's directives say and addresses' padding: labels, instructions, lines.
fn readable(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('.') && !line.starts_with(".L") || line.starts_with("//---") {
            continue;
        }
        if let Some(place) = line.strip_prefix("//## File ") {
            out += &format!("// {}\n", place.replace("\", line ", ":").trim_start_matches('"'));
        } else if let Some((address, code)) = line.strip_prefix("/*").and_then(|l| l.split_once("*/")) {
            out += &format!("  {address}  {}\n", code.trim().trim_end_matches(';').trim_end());
        } else {
            out += &format!("{line}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_labels_and_instructions_remain() {
        let text = "\t.target\tsm_90a\n\n//--------------------- .text.k --------\n        .global         k\nk:\n.text.k:\n\
            \t//## File \"src/a.rs\", line 18\n        /*0010*/              @!P0 BRA `(.L_x_0) ;\n.L_x_0:\n";
        assert_eq!(readable(text), "k:\n// src/a.rs:18\n  0010  @!P0 BRA `(.L_x_0)\n.L_x_0:\n");
    }
}
