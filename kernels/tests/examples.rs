//! The examples run and check themselves; the tutorial shows their code as it is.

macro_rules! examples { ($($name:ident $file:literal;)*) => {
    $(#[path = $file] mod $name;)*

    /// Names and sources, in the order of the tutorial.
    const SOURCES: &[(&str, &str)] = &[$((stringify!($name), include_str!($file))),*];

    mod run {
        $(#[test] fn $name() { super::$name::main().unwrap() })*
    }
} }
examples! {
    vector_add "../examples/vector_add.rs";
    softmax "../examples/softmax.rs";
    matmul "../examples/matmul.rs";
    layer_norm "../examples/layer_norm.rs";
    dropout "../examples/dropout.rs";
    flash_attention "../examples/flash_attention.rs";
    histogram "../examples/histogram.rs";
}

const TUTORIAL: &str = include_str!("../../docs/tutorial.md");

/// Code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    TUTORIAL.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn code_in_the_tutorial_is_that_of_the_examples() {
    let blocks = blocks("rust");
    assert!(blocks.len() >= SOURCES.len());
    for block in &blocks {
        assert!(
            SOURCES.iter().any(|(_, source)| source.contains(block)),
            "no example contains this block of docs/tutorial.md:\n{block}"
        );
    }
    // Every kernel is shown whole, in this order.
    let mut rest = &blocks[..];
    for (name, source) in SOURCES {
        let start = source.find("#[kernel]").unwrap();
        let kernel = &source[start..start + source[start..].find("\n}\n").unwrap() + 3];
        let at = rest.iter().position(|b| b.contains(kernel));
        let at =
            at.unwrap_or_else(|| panic!("the kernel of `{name}` is not in docs/tutorial.md, after those before it"));
        rest = &rest[at + 1..];
    }
}

#[test]
fn every_example_is_in_the_tutorial_and_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut listed: Vec<&str> = SOURCES.iter().map(|s| s.0).collect();
    listed.sort();
    assert_eq!(found, listed);
    for name in listed {
        assert!(TUTORIAL.contains(&format!("examples/{name}.rs")), "docs/tutorial.md does not link {name}");
    }
}

#[test]
fn examples_are_short() {
    for (name, source) in SOURCES {
        let lines = source.lines().count();
        assert!(lines <= 80, "{name} has {lines} lines");
    }
}
