//! Wrong kernels: rustc refuses each, at the user's own tokens, in words of the language. `TRYBUILD=overwrite` writes
//! the expected texts anew; read what changed.

#[test]
fn wrong_kernels_are_refused() {
    let t = trybuild::TestCases::new();
    t.compile_fail("tests/fail/*.rs");
    // The texts are compared when `t` goes.
    drop(t);
    check_texts();
}

/// Words of the implementation: an author has never heard of them.
const INTERNAL: &[&str] = &[
    "Carries<",
    "Gives<",
    "__if",
    "__for",
    "__while",
    "__a",
    "__b",
    "__v",
    "NEVER",
    "18446744073709551615",
    "Handle",
    "rt::",
    "required by a bound in `tegula::flow",
    "macro `kernel`",
];

/// Every error points at the kernel's own file first, and holds no internal word.
fn check_texts() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fail");
    let mut count = 0;
    let mut wrong = vec![];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path.with_extension("stderr")).unwrap_or_default();
        count += 1;
        let errors = text.split("\nerror").filter(|e| e.contains("-->"));
        let own = errors.clone().all(|e| {
            e.split("-->").nth(1).is_some_and(|at| at.trim_start().starts_with(&format!("tests/fail/{name}.rs:")))
        });
        if errors.count() == 0 || !own {
            wrong.push(format!("{name}: an error does not point at the kernel"));
        }
        wrong.extend(INTERNAL.iter().filter(|w| text.contains(**w)).map(|w| format!("{name}: `{w}`")));
    }
    assert!(count >= 40, "{count} wrong kernels");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
