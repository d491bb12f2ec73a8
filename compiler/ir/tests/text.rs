//! Text round trip of a hand-built kernel that uses every kind of syntax.

use tegula_ir::*;

fn sample() -> Kernel {
    let mut b = Builder::new("demo::sum");
    let facts = ViewFacts { unit: true, align16: false, small: true };
    let x = b.param("x", Type::View(ViewType { elem: Elem::F32, rank: 2, mutable: false, facts }));
    let y = b.param(
        "a \"quoted\" name",
        Type::View(ViewType { elem: Elem::F32, rank: 2, mutable: true, facts: ViewFacts::default() }),
    );
    let n = b.param("n", Type::scalar(Elem::I32));
    let at = |line| Loc::new("src/k.rs", line, 5);
    let zero = b.op1(
        OpKind::Const,
        &[],
        Type::scalar(Elem::I32),
        Attrs::new().with(Key::Value, Attr::Scalar(Scalar::from_i64(Elem::I32, 0))),
        at(1),
    );
    let one = b.op1(
        OpKind::Const,
        &[],
        Type::scalar(Elem::I32),
        Attrs::new().with(Key::Value, Attr::Scalar(Scalar::from_i64(Elem::I32, 1))),
        at(1),
    );
    let tile = Type::tile(Elem::F32, [1, 48]);
    let nan = Scalar::from_bits(Elem::F32, 0x7fc00001);
    let init = b.op1(OpKind::Const, &[], tile.clone(), Attrs::new().with(Key::Value, Attr::Scalar(nan)), at(2));
    let args = b.open(&[Type::scalar(Elem::I32), tile.clone()]);
    let i = b.op1(OpKind::Cast, &[args[0]], Type::scalar(Elem::I64), Attrs::new(), at(3));
    let pad = Attrs::new().with(Key::Pad, Attr::Scalar(Scalar::from_f64(Elem::F32, -1.5e-7)));
    let v = b.op1(OpKind::Load, &[x, i, i], tile.clone(), pad, at(4));
    let s = b.op1(OpKind::Add, &[v, args[1]], tile.clone(), Attrs::new(), Loc::unknown());
    let body = b.close(vec![s]);
    let r = b.op(OpKind::For, &[zero, n, one, init], &[tile], Attrs::new(), vec![body], at(3))[0];
    let m = b.op1(
        OpKind::Reduce,
        &[r],
        Type::tile(Elem::F32, [1, 1]),
        Attrs::new().with(Key::Axis, Attr::Int(1)).with(Key::Kind, ReduceKind::MaxNan.into()),
        at(6),
    );
    let i0 = b.op1(OpKind::Cast, &[zero], Type::scalar(Elem::I64), Attrs::new(), at(7));
    b.op(OpKind::Store, &[y, i0, i0, m], &[], Attrs::new(), vec![], at(7));
    b.finish()
}

#[test]
fn round_trip_is_exact() {
    let k = sample();
    k.verify().unwrap();
    let back = Kernel::parse(&k.text()).unwrap();
    assert_eq!(back, k.renumbered(), "\n{}", k.text());
    assert_eq!(back.text(), k.renumbered().text());
}

#[test]
fn faults_name_their_line() {
    let text = sample().text().replace("max_nan", "largest");
    let e = Kernel::parse(&text).unwrap_err();
    assert_eq!(e.message, "there is no symbol `largest`");
    assert!(text.lines().nth(e.line - 1).unwrap().contains("largest"));
}

#[test]
fn verifier_names_op_and_line() {
    let text = sample().text().replace("reduce %9 {axis = 1", "reduce %9 {axis = 2");
    let text = if text == sample().text() { text.replace("{axis = 1", "{axis = 2") } else { text };
    let e = Kernel::parse(&text).unwrap().verify().unwrap_err();
    assert_eq!(e.to_string(), "src/k.rs:6:5: `reduce` in kernel `demo::sum`: axis 2 does not exist in rank 2");
}

#[test]
fn combiners_are_elementwise() {
    let verify = |op: &str| {
        let text = format!(
            "kernel @k() {{
  %0 = iota : tile<i32, 8>
  %1 = iota : tile<i32, 4>
  %2 = reduce_with %0 {{axis = 0}} : tile<i32, 1> {{
    (%3: i32, %4: i32)
    {op}
    %9 = add %3, %4 : i32
    yield %9
  }}
}}
"
        );
        Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).verify()
    };
    for other in
        ["%5 = sort %1 : tile<i32, 4>", "%5 = broadcast %3 : tile<i32, 4>", "%5 = reshape %1 : tile<i32, 2, 2>"]
    {
        let e = verify(other).unwrap_err();
        assert!(e.message.starts_with("a combiner holds constants and elementwise ops only, found `"), "{e}");
    }
    verify("%5 = program_id {axis = 0} : i32").unwrap();
}

/// `if` in `if`, so deep, each on a line of its own.
fn nested(depth: usize) -> String {
    let mut text = "kernel @k(%0 \"c\": bool) {\n".to_string();
    text += &"if %0 {\n".repeat(depth);
    text += &"yield } { yield }\n".repeat(depth);
    text + "}\n"
}

#[test]
fn regions_nest_to_a_limit_that_the_error_names_with_the_line() {
    Kernel::parse(&nested(MOST_NESTED)).unwrap().verify().unwrap();
    let e = Kernel::parse(&nested(20_000)).unwrap_err();
    assert_eq!(e.line, MOST_NESTED + 2, "{e}");
    assert_eq!(e.message, "regions nest deeper than 256");
}

#[test]
fn built_kernels_nest_to_the_same_limit() {
    let build = |depth: usize| {
        let mut b = Builder::new("deep");
        let c = b.param("c", Type::scalar(Elem::Bool));
        (0..depth).for_each(|_| drop(b.open(&[])));
        for i in 0..depth {
            let then = b.close(vec![]);
            b.op(OpKind::If, &[c], &[], Attrs::new(), vec![then, Region::default()], Loc::new("k.rs", i as u32 + 1, 1));
        }
        b.finish().verify()
    };
    build(MOST_NESTED).unwrap();
    let e = build(MOST_NESTED + 1).unwrap_err();
    assert!(e.message.contains("nest deeper than 256"), "{e}");
    assert_eq!((&*e.loc.file, e.loc.line), ("k.rs", 1), "the innermost");
}

#[test]
fn a_value_of_a_wrong_type_is_told_with_the_op_that_makes_it() {
    let text = "kernel @k() {\n%0 = const {value = 1: i32} : tile<i32, 4, 0> @ \"a.rs\":7:9\n}";
    let e = Kernel::parse(text).unwrap().verify().unwrap_err();
    assert_eq!(e.to_string(), "a.rs:7:9: `const` in kernel `k`: value %0 has an empty shape: `tile<i32, 4, 0>`");
    let e = Kernel::parse("kernel @k(%0 \"x\": view<f32, 4000000000>) {\n}").unwrap().verify().unwrap_err();
    assert!(e.message.contains("value %0 has more than 8 axes: `view<f32, 4000000000>`"), "{e}");
    let e = Kernel::parse("\u{feff}kernel @k() {\n}").unwrap_err();
    assert!(e.message.contains("\\u{feff}"), "{e}");
}
