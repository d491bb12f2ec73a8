//! README.md's table is that of docs/status.json.

use std::{fs, path::Path};

use tegula_tests::status::{Status, with_table};

#[test]
fn readme_shows_what_status_json_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let status: Status = serde_json::from_str(&read("docs/status.json")).unwrap();
    let readme = read("README.md");
    assert!(
        with_table(&readme, &status.table()).unwrap() == readme,
        "README.md's table is not that of docs/status.json: `cargo run -p tegula-tests --bin status table` makes it so"
    );
}
