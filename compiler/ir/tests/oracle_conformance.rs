//! The oracle gives what the conformance rows expect.

use tegula_ir::{
    Kernel,
    testing::{
        conformance::{ELSEWHERE, rows},
        on_oracle,
    },
};

#[test]
fn rows_hold() {
    let rows = rows();
    let failures: Vec<String> = rows.iter().filter_map(|r| r.run(&mut on_oracle).err()).collect();
    assert!(failures.is_empty(), "{} of {} rows fail:\n{}", failures.len(), rows.len(), failures.join("\n"));
}

/// The rows' kernels as text mean the same.
#[test]
fn rows_survive_printing() {
    for mut row in rows() {
        let text = row.kernel.text();
        row.kernel = Kernel::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", row.id));
        assert_eq!(row.kernel.text(), row.kernel.renumbered().text());
        row.run(&mut on_oracle).unwrap();
    }
}

/// Every case of the catalogue is a row or says where it is tested.
#[test]
fn the_catalogue_is_complete() {
    // Numbers that end in 0 or 5 are free.
    let mut known: Vec<String> = (1..95).filter(|n| n % 5 != 0).map(|n| format!("C{n:02}")).collect();
    let mut found: Vec<String> =
        rows().iter().map(|r| r.id.to_string()).chain(ELSEWHERE.iter().map(|e| e.0.to_string())).collect();
    found.sort();
    found.dedup();
    known.sort();
    assert_eq!(found, known);
}
