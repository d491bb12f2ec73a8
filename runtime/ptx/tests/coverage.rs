//! The README's table of instructions is the one that the emulator has.

#[test]
fn the_readme_lists_what_is_supported() {
    let readme = include_str!("../README.md");
    let (_, listed) = readme.split_once("<!-- made by `tegula-ptx coverage` -->\n").expect("the README has the table");
    let table = tegula_ptx::coverage::table();
    for (listed, row) in listed.trim().lines().zip(table.trim().lines()) {
        assert_eq!(listed, row, "put the output of `tegula-ptx coverage` into README.md");
    }
    assert_eq!(listed.trim(), table.trim());
    assert!(table.lines().count() > 100);
}
