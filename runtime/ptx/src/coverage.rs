//! The table of supported instruction forms, as text: what `tegula-ptx coverage` prints and the README holds.

use crate::{arch, isa};

/// A Markdown table, one row per form: instruction, qualifiers that may follow (alternatives with `|`), types, and from
/// which target and version on the whole instruction exists. Single qualifiers may be newer, see [`arch::TABLE`].
pub fn table() -> String {
    let mut rows: Vec<[String; 4]> = isa::forms()
        .map(|form| {
            let (quals, types) = match form.quals.strip_prefix(": ") {
                Some(types) => ("", types),
                None => form.quals.split_once(" : ").unwrap_or((form.quals, "")),
            };
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
            let from = match arch::whole(form.opcode) {
                Some(need) => format!("{}, {}.{}", need.target(), need.version / 10, need.version % 10),
                None => String::new(),
            };
            [form.opcode.to_string(), words(quals), words(types), from]
        })
        .collect();
    rows.sort();
    rows.dedup();
    let mut out = String::from("| instruction | qualifiers | types | from |\n|---|---|---|---|\n");
    for [opcode, quals, types, from] in rows {
        out.push_str(&format!("| `{opcode}` | {quals} | {types} | {from} |\n"));
    }
    out
}
