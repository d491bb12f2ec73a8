//! Loops in assembly.

/// Innermost loops: the instructions from a label to the first jump back to it, with no other label between.
pub fn inner_loops(asm: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = asm.lines().map(str::trim).collect();
    let mut loops = vec![];
    for (start, line) in lines.iter().enumerate() {
        let Some((label, _)) = line.split_once(':').filter(|(label, _)| label.starts_with(".LBB")) else { continue };
        let mut body = vec![];
        for line in &lines[start + 1..] {
            if line.starts_with(".LBB") {
                break;
            }
            if line.starts_with(['.', '#']) || line.is_empty() {
                continue;
            }
            body.push(*line);
            if line.starts_with('j') && line.split_whitespace().nth(1) == Some(label) {
                loops.push(body);
                break;
            }
        }
    }
    loops
}
