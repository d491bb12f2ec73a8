//! The conformance rows on every executor.

use crate::{
    emulated::{TARGETS, compile},
    executors,
    figure::figure,
    parallel,
};
use std::collections::BTreeMap;
use tegula_ir::{
    protocol::Emit,
    testing::conformance::{ELSEWHERE, rows},
};

/// `TEGULA_ROWS=C0` runs those whose names begin so.
#[test]
fn rows_hold_on_every_executor() {
    let only = std::env::var("TEGULA_ROWS").unwrap_or_default();
    let (mut rows, executors) = (rows(), executors());
    rows.retain(|r| r.id.starts_with(&only));
    // For each row what each executor found wrong.
    let found: Vec<Vec<Option<String>>> = parallel(0..rows.len() as u64, |i| {
        executors.iter().map(|e| rows[i as usize].run(&mut |k, a, g, c| (e.run)(k, a, g, c)).err()).collect()
    });
    let names: Vec<&str> = executors.iter().map(|e| e.name.as_str()).collect();
    println!("case rows {}", names.join(" "));
    let mut cases: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        cases.entry(row.id).or_default().push(i);
    }
    for (id, rows) in &cases {
        let held = |e: usize| rows.iter().filter(|&&i| found[i][e].is_none()).count();
        let held: Vec<String> = (0..executors.len()).map(|e| format!("{}/{}", held(e), rows.len())).collect();
        println!("{id} {} {}", rows.len(), held.join(" "));
    }
    for (id, place) in ELSEWHERE {
        println!("{id} elsewhere: {place}");
    }
    let mut failures = vec![];
    for (e, executor) in executors.iter().enumerate() {
        let wrong: Vec<String> =
            found.iter().filter_map(|f| f[e].as_ref()).map(|f| format!("{}: {f}", executor.name)).collect();
        println!(
            "{}: {} of {} rows of {} cases hold",
            executor.name,
            rows.len() - wrong.len(),
            rows.len(),
            cases.len()
        );
        figure(&format!("conformance rows that hold, {}", executor.name), rows.len() - wrong.len(), rows.len());
        failures.extend(wrong);
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// C41's result could be right by chance: its code has no product of less precision either.
#[test]
fn a_product_in_f32_takes_no_tf32() {
    for row in rows().iter().filter(|r| r.id == "C41") {
        for target in TARGETS {
            let (ptx, _) = compile(&row.kernel.text(), target, Emit::Artifact, false).unwrap_or_else(|e| panic!("{e}"));
            assert!(ptx.contains("fma.rn.f32") && !ptx.contains("tf32"), "{target}:\n{ptx}");
        }
    }
}
