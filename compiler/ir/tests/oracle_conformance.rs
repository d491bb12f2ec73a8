//! The oracle gives what the conformance rows expect.

use tegula_ir::{
    Kernel,
    testing::{conformance::rows, on_oracle},
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
