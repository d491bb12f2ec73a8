//! Goldens: every `passes/*.ir` says in its first line what is done with it, `// opt: PIPELINE` or `// facts`; the
//! result must equal the file of the same name with the ending `.out`. `UPDATE_EXPECT=1` writes them.

use std::{fs, path::Path};
use tegula_ir::{Kernel, OpKind, facts, passes};

#[test]
fn goldens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
    let mut inputs: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ir"))
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "found {inputs:?}");
    let mut wrong = vec![];
    for input in inputs {
        let text = fs::read_to_string(&input).unwrap();
        let first = text.lines().next().unwrap();
        let found = if first == "// facts" {
            let k = Kernel::parse(&text).unwrap().renumbered();
            k.verify().unwrap();
            format!("{}\n{}", k.text(), facts::show(&k))
        } else {
            let pipeline = first.strip_prefix("// opt: ").unwrap_or_else(|| panic!("{}: {first}", input.display()));
            passes::opt_text(&text, pipeline).unwrap_or_else(|e| panic!("{}: {e}", input.display()))
        };
        let output = input.with_extension("out");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&output, &found).unwrap();
        } else if fs::read_to_string(&output).unwrap_or_default() != found {
            wrong.push(format!("{}:\n{found}", input.display()));
        }
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 rewrites what differs:\n{}", wrong.join("\n"));
}

#[test]
fn errors_name_the_line_of_the_text() {
    let text = "kernel @k(%0 \"n\": i32) {\n  %1 = neg %0 : i32\n  %2 = add %0,\n    %1 : i64\n}\n";
    let e = passes::opt_text(text, "dce").unwrap_err().to_string();
    assert_eq!(e, "<text>:3:3: `add` in kernel `k`: operand 0 and the result: `i32` and `i64` differ");
    let e = passes::opt_text("kernel @k() {\n  %1 = nge %0 : i32\n}\n", "dce").unwrap_err().to_string();
    assert_eq!(e, "line 2: there is no op `nge`");
    for (pipeline, missing) in [("", ""), ("cse,,dce", ""), ("dce,cce", "cce")] {
        let e = passes::opt_text("kernel @k() {\n}\n", pipeline).unwrap_err().to_string();
        assert!(e.starts_with(&format!("there is no pass `{missing}`; passes: canonicalise, ")), "{e}");
    }
    let e = passes::opt_text("kernel @k() {\n}\n", "dce,cce").unwrap_err().to_string();
    assert_eq!(
        e,
        "there is no pass `cce`; passes: canonicalise, cse, licm, dce, or `optimise` for all of them until nothing changes"
    );
}

/// Optimised code keeps the user's lines.
#[test]
fn locations_stay() {
    let text = "kernel @k(%0 \"n\": i32) {\n  %1 = const {value = 1: i32} : i32 @ \"k.rs\":1:1\n  %2 = mul %0, %1 : i32 @ \"k.rs\":2:1\n  %3 = sub %2, %0 : i32 @ \"k.rs\":3:1\n  print %3 {message = \"m\"} @ \"k.rs\":4:1\n}\n";
    let mut k = Kernel::parse(text).unwrap();
    passes::optimise(&mut k);
    let lines: Vec<(OpKind, u32)> = k.body.ops.iter().map(|op| (op.kind, op.loc.line)).collect();
    assert_eq!(lines, [(OpKind::Const, 3), (OpKind::Print, 4)]);
}
