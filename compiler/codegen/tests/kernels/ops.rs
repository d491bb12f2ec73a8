//! Ops that are not elementwise, one small kernel each.

use crate::harness::*;
use tegula_ir::Elem;

/// `body` makes tiles `%r…` out of `%x…`, tiles of given types; each is loaded from and stored to a view of its own.
/// Tiles are written `type shape`, as `f32 3 5`.
fn tiles(inputs: &[&str], body: &str, outputs: &[&str]) -> (String, Vec<(Elem, Vec<i64>)>) {
    let parse = |t: &str| {
        let mut words = t.split(' ');
        let elem = Elem::from_name(words.next().unwrap()).unwrap();
        (elem, words.map(|w| w.parse().unwrap()).collect::<Vec<i64>>())
    };
    let types: Vec<_> = inputs.iter().chain(outputs).map(|t| parse(t)).collect();
    let tile = |(e, s): &(Elem, Vec<i64>)| {
        if s.is_empty() {
            e.to_string()
        } else {
            format!("tile<{e}, {}>", s.iter().map(i64::to_string).collect::<Vec<_>>().join(", "))
        }
    };
    let mut params = vec![];
    for (i, (e, s)) in types.iter().enumerate() {
        let view = if i < inputs.len() { "view" } else { "view_mut" };
        params.push(format!("%{i} \"p{i}\": {view}<{e}, {}, unit>", s.len()));
    }
    let mut text = format!("kernel @k({}) {{\n  %900 = const {{value = 0: i64}} : i64\n", params.join(", "));
    let at = |s: &[i64]| ", %900".repeat(s.len());
    for (i, t) in types[..inputs.len()].iter().enumerate() {
        text += &format!("  %{} = load %{i}{} : {}\n", 100 + i, at(&t.1), tile(t));
    }
    text += body;
    text += "\n";
    for (i, t) in types[inputs.len()..].iter().enumerate() {
        text += &format!("  store %{}{}, %{}\n", inputs.len() + i, at(&t.1), 200 + i);
    }
    (text + "}", types)
}

/// Inputs are %100, %101, …; outputs %200, %201, ….
fn run(inputs: &[&str], body: &str, outputs: &[&str], near: Near, value: fn(&mut Rng, Elem) -> u64) {
    let (text, types) = tiles(inputs, body, outputs);
    let mut rng = Rng(text.len() as u64 + 99);
    for cut in [0, 1, 0] {
        let mut args = vec![];
        for (e, s) in &types {
            // Some views end inside the tile.
            let mut s = s.clone();
            if let Some(n) = s.last_mut() {
                *n = (*n - cut).max(1);
            }
            let n: i64 = s.iter().product();
            args.push(Arg::view(*e, &s, (0..n).map(|_| value(&mut rng, *e)).collect::<Vec<_>>()));
        }
        check(&text, &args, [1, 1, 1], near);
    }
}

#[test]
fn shapes() {
    let bits = Rng::bits;
    run(&["i32 7 33"], "%200 = permute %100 {perm = [1, 0]} : tile<i32, 33, 7>", &["i32 33 7"], Near::Exact, bits);
    run(
        &["i16 2 3 17"],
        "%200 = permute %100 {perm = [2, 0, 1]} : tile<i16, 17, 2, 3>",
        &["i16 17 2 3"],
        Near::Exact,
        bits,
    );
    run(&["f32 6 20"], "%200 = reshape %100 : tile<f32, 8, 15>", &["f32 8 15"], Near::Exact, bits);
    run(
        &["f32 6 20"],
        "%150 = neg %100 : tile<f32, 6, 20>\n%200 = reshape %150 : tile<f32, 1, 6, 1, 20>",
        &["f32 1 6 1 20"],
        Near::Exact,
        bits,
    );
    run(
        &["f32 6 20"],
        "%150 = reshape %100 : tile<f32, 120>\n%200 = slice %150 {axis = 0, size = 50, start = 31} : tile<f32, 50>",
        &["f32 50"],
        Near::Exact,
        bits,
    );
    run(
        &["i8 5 40"],
        "%200 = slice %100 {axis = 1, size = 19, start = 3} : tile<i8, 5, 19>",
        &["i8 5 19"],
        Near::Exact,
        bits,
    );
    run(
        &["i8 5 9", "i8 5 40"],
        "%200 = cat %100, %101, %100 {axis = 1} : tile<i8, 5, 58>",
        &["i8 5 58"],
        Near::Exact,
        bits,
    );
    run(
        &["f64 3 1 5", "f64 2 1 5"],
        "%200 = cat %100, %101 {axis = 0} : tile<f64, 5, 1, 5>",
        &["f64 5 1 5"],
        Near::Exact,
        bits,
    );
    run(
        &["f32 1 33", "f32 5 1", "f32"],
        "%150 = broadcast %100 : tile<f32, 5, 33>\n%151 = broadcast %101 : tile<f32, 5, 33>\n%152 = broadcast %102 : tile<f32, 5, 33>\n%153 = add %150, %151 : tile<f32, 5, 33>\n%200 = mul %153, %152 : tile<f32, 5, 33>",
        &["f32 5 33"],
        Near::Exact,
        bits,
    );
    run(
        &["bool 3 18"],
        "%150 = iota : tile<i32, 18>\n%151 = reshape %150 : tile<i32, 1, 18>\n%152 = broadcast %151 : tile<i32, 3, 18>\n%153 = neg %152 : tile<i32, 3, 18>\n%200 = select %100, %152, %153 : tile<i32, 3, 18>",
        &["i32 3 18"],
        Near::Exact,
        bits,
    );
}

#[test]
fn reductions() {
    let kinds: [(&str, &[Elem]); 4] = [
        (
            "max min argmax argmin sum prod",
            &[Elem::F32, Elem::F16, Elem::I8, Elem::U32, Elem::I64, Elem::F64, Elem::BF16, Elem::U8],
        ),
        ("max_nan min_nan", &[Elem::F32, Elem::F64, Elem::F16]),
        ("xor", &[Elem::I16, Elem::Bool]),
        ("any all sum", &[Elem::Bool]),
    ];
    for (kinds, elems) in kinds {
        for &e in elems {
            // Along lanes, short and long; across them; all of a tile. Three of six for each type, in turn.
            let shapes = [("5 17", 1), ("70 20", 0), ("1 300", 1), ("17 5", 0), ("2 3 7", 1), ("33", 0)];
            for (shape, axis) in shapes.into_iter().skip(e as usize % 2 * 3).take(3).chain([("3 140", 1)]) {
                let mut out: Vec<String> = shape.split(' ').map(String::from).collect();
                out[axis] = "1".into();
                let mut body = String::new();
                let mut outputs = vec![];
                for (i, kind) in kinds.split(' ').enumerate() {
                    let to = match (kind, e) {
                        ("argmax" | "argmin", _) | ("sum", Elem::Bool) => Elem::I32,
                        _ => e,
                    };
                    outputs.push(format!("{to} {}", out.join(" ")));
                    body += &format!(
                        "%{} = reduce %100 {{axis = {axis}, kind = {kind}}} : tile<{to}, {}>\n",
                        200 + i,
                        out.join(", ")
                    );
                }
                let near = Near::Within(if e.bits() == 64 {
                    1e-12
                } else if e == Elem::F32 {
                    1e-5
                } else {
                    1e-2
                });
                let values = if kinds.contains("prod") { Rng::bits } else { Rng::wild };
                run(
                    &[&format!("{e} {shape}")],
                    &body,
                    &outputs.iter().map(String::as_str).collect::<Vec<_>>(),
                    near,
                    values,
                );
            }
        }
    }
    // Wider accumulators.
    run(
        &["i8 3 200"],
        "%200 = reduce %100 {axis = 1, kind = sum} : tile<i32, 3, 1>",
        &["i32 3 1"],
        Near::Exact,
        Rng::wild,
    );
    run(
        &["f16 3 200"],
        "%200 = reduce %100 {axis = 1, kind = sum} : tile<f32, 3, 1>",
        &["f32 3 1"],
        Near::Within(1e-5),
        Rng::bits,
    );
}

#[test]
fn reductions_by_combiner() {
    // Affine maps compose associatively, but do not commute.
    let affine = "{\n(%300: i32, %301: i32, %302: i32, %303: i32)\n%304 = mul %300, %302 : i32\n%305 = mul %301, %302 : i32\n%306 = add %305, %303 : i32\nyield %304, %306\n}";
    for (shape, out, axis) in [("5 17", "5, 1", 1), ("17 5", "1, 5", 0), ("1 40", "1, 1", 1)] {
        let tile = format!("i32 {shape}");
        let o = format!("i32 {}", out.replace(", ", " "));
        run(
            &[&tile, &tile],
            &format!(
                "%200, %201 = reduce_with %100, %101 {{axis = {axis}}} : tile<i32, {out}>, tile<i32, {out}> {affine}"
            ),
            &[&o, &o],
            Near::Exact,
            Rng::bits,
        );
        let full = shape.replace(' ', ", ");
        for reverse in ["", ", reverse"] {
            run(
                &[&tile, &tile],
                &format!(
                    "%200, %201 = scan_with %100, %101 {{axis = {axis}{reverse}}} : tile<i32, {full}>, tile<i32, {full}> {affine}"
                ),
                &[&tile, &tile],
                Near::Exact,
                Rng::bits,
            );
        }
    }
}

#[test]
fn scans() {
    for e in [Elem::I32, Elem::F32, Elem::I8, Elem::F64] {
        for (shape, axis) in [("5 17", 1), ("17 5", 0), ("3 2 19", 1), ("1 40", 1)] {
            let full = shape.replace(' ', ", ");
            let mut body = String::new();
            let mut n = 0;
            for kind in ["sum", "prod", "max", "min"] {
                for reverse in ["", ", reverse"] {
                    body += &format!(
                        "%{} = scan %100 {{axis = {axis}, kind = {kind}{reverse}}} : tile<{e}, {full}>\n",
                        200 + n
                    );
                    n += 1;
                }
            }
            let tile = format!("{e} {shape}");
            run(&[&tile], &body, &vec![tile.as_str(); n], Near::Within(1e-5), Rng::bits);
        }
    }
}

#[test]
fn sorting() {
    for e in [Elem::F32, Elem::I8, Elem::U32, Elem::F16, Elem::F64, Elem::I64] {
        for (rows, n, k) in [(3, 33, 5), (1, 1, 1), (2, 64, 64), (1, 100, 7)] {
            let body = format!(
                "%200 = sort %100 : tile<{e}, {rows}, {n}>\n%201 = sort %100 {{descending}} : tile<{e}, {rows}, {n}>\n\
                 %202, %203 = topk %100 {{k = {k}}} : tile<{e}, {rows}, {k}>, tile<i32, {rows}, {k}>"
            );
            let full = format!("{e} {rows} {n}");
            run(
                &[&full],
                &body,
                &[&full, &full, &format!("{e} {rows} {k}"), &format!("i32 {rows} {k}")],
                Near::Exact,
                Rng::wild,
            );
        }
    }
}

#[test]
fn within_a_tile() {
    let small = |r: &mut Rng, e: Elem| {
        if e.is_int() { (r.below(12) as i64 - 2) as u64 & (u64::MAX >> (64 - e.bits())) } else { r.bits(e) }
    };
    run(
        &["i32 100", "bool 100"],
        "%200 = histogram %100 {bins = 7} : tile<i32, 7>\n%201 = histogram %100, %101 {bins = 7, masked} : tile<i32, 7>",
        &["i32 7", "i32 7"],
        Near::Exact,
        small,
    );
    run(&["i8 50"], "%200 = histogram %100 {bins = 1} : tile<i32, 1>", &["i32 1"], Near::Exact, small);
    for e in [Elem::F32, Elem::I8, Elem::Bool, Elem::F16] {
        run(
            &[&format!("{e} 5 9"), "i32 5 20"],
            &format!("%200 = take %100, %101 {{axis = 1}} : tile<{e}, 5, 20>"),
            &[&format!("{e} 5 20")],
            Near::Exact,
            small,
        );
        run(
            &[&format!("{e} 9 5"), "u8 20 5"],
            &format!("%200 = take %100, %101 {{axis = 0}} : tile<{e}, 20, 5>"),
            &[&format!("{e} 20 5")],
            Near::Exact,
            small,
        );
    }
}

#[test]
fn products() {
    for (a, acc) in [
        ("f32", "f32"),
        ("f64", "f64"),
        ("f16", "f32"),
        ("bf16", "f32"),
        ("i8", "i32"),
        ("u8", "i32"),
        ("f8e4m3", "f32"),
    ] {
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 33, 20), (8, 48, 64)] {
            let near = if a == "f32" || acc == "i32" || a == "f64" { Near::Exact } else { Near::Within(1e-5) };
            let inputs =
                [format!("{a} {m} {k}"), format!("{a} {k} {n}"), format!("{acc} {m} {n}"), format!("{a} {n} {k}")];
            let out = format!("{acc} {m} {n}");
            let body = format!(
                "%200 = dot %100, %101, %102 : tile<{acc}, {m}, {n}>\n\
                 %150 = permute %103 {{perm = [1, 0]}} : tile<{a}, {k}, {n}>\n\
                 %151 = neg %102 : tile<{acc}, {m}, {n}>\n\
                 %201 = dot %100, %150, %151 : tile<{acc}, {m}, {n}>"
            );
            run(&inputs.each_ref().map(String::as_str), &body, &[&out, &out], near, Rng::bits);
        }
    }
}

#[test]
fn products_of_widened_tiles() {
    // Casts from f16 and reshapes that drop axes are read through, whatever else uses them; the cast is exact, so the
    // product is.
    for e in ["f16", "bf16"] {
        for (m, n, k) in [(1, 48, 64), (3, 20, 33), (12, 64, 16), (40, 33, 20)] {
            let inputs = [
                format!("f32 {m} {k}"),
                format!("{e} 1 {k} 1 {n}"),
                format!("{e} {m} {k}"),
                format!("{e} 1 1 {n} {k}"),
            ];
            let out = format!("f32 {m} {n}");
            let body = format!(
                "%150 = reshape %101 : tile<{e}, {k}, {n}>\n\
                 %151 = cast %150 : tile<f32, {k}, {n}>\n\
                 %152 = cast %102 : tile<f32, {m}, {k}>\n\
                 %153 = const {{value = 0.25: f32}} : tile<f32, {m}, {n}>\n\
                 %200 = dot %100, %151, %153 : tile<f32, {m}, {n}>\n\
                 %154 = reshape %103 : tile<{e}, {n}, {k}>\n\
                 %155 = permute %154 {{perm = [1, 0]}} : tile<{e}, {k}, {n}>\n\
                 %156 = cast %155 : tile<f32, {k}, {n}>\n\
                 %201 = dot %152, %156, %200 : tile<f32, {m}, {n}>\n\
                 %202 = add %151, %151 : tile<f32, {k}, {n}>"
            );
            run(
                &inputs.each_ref().map(String::as_str),
                &body,
                &[&out, &out, &format!("f32 {k} {n}")],
                Near::Exact,
                Rng::bits,
            );
        }
    }
}

/// A sum's order depends on its axis and extent only: a column of a wide tile is the same sum as a tile of one column.
#[test]
fn sums_do_not_depend_on_the_other_extents() {
    let sum = |columns: usize, axis: usize| -> Vec<u64> {
        let (shape, out) = if axis == 0 { ([100, columns], [1, columns]) } else { ([columns, 100], [columns, 1]) };
        let text = format!(
            "kernel @k(%0 \"x\": view<f32, 2, unit>, %1 \"y\": view_mut<f32, 2, unit>) {{
              %2 = const {{value = 0: i64}} : i64
              %3 = load %0, %2, %2 : tile<f32, {}, {}>
              %4 = reduce %3 {{axis = {axis}, kind = sum}} : tile<f32, {}, {}>
              store %1, %2, %2, %4
            }}",
            shape[0], shape[1], out[0], out[1]
        );
        let mut rng = Rng(31);
        let column: Vec<u64> = (0..100).map(|_| rng.bits(Elem::F32)).collect();
        let values = (0..shape[0] * shape[1]).map(|i| column[if axis == 0 { i / columns } else { i % 100 }]);
        let mut args = [
            Arg::view(Elem::F32, &shape.map(|n| n as i64), values.collect::<Vec<_>>()),
            Arg::view(Elem::F32, &out.map(|n| n as i64), vec![0; columns]),
        ];
        let Some(target) = targets().pop() else { return vec![] };
        native(&text, &mut args, [1, 1, 1], target, false);
        let mut sums = args[1].bits();
        sums.dedup();
        sums
    };
    for axis in [0, 1] {
        let one = sum(1, axis);
        for columns in [2, 16, 37] {
            assert_eq!(sum(columns, axis), one, "axis {axis}, {columns} columns");
        }
    }
}
