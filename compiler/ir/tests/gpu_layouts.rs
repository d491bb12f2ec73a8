//! The assignment of layouts: it verifies, survives text, changes no meaning, and spares conversions.

use tegula_ir::{
    Kernel, Key, OpKind,
    gpu::{self, Layouts},
    passes,
    testing::{
        conformance, on_oracle,
        random::{Config, program},
    },
};

fn assigned(kernel: &Kernel, warps: usize) -> Kernel {
    let mut k = kernel.clone();
    passes::optimise(&mut k);
    k.set_warps(warps);
    gpu::assign(&mut k).unwrap_or_else(|e| panic!("{e}\n{k}"));
    k
}

fn of(text: &str) -> Kernel {
    let k = Kernel::parse(text).unwrap_or_else(|e| panic!("{e}"));
    k.verify().unwrap_or_else(|e| panic!("{e}"));
    assigned(&k, 4)
}

fn count(k: &Kernel, kind: OpKind) -> usize {
    let mut n = 0;
    k.body.walk(&mut |op| n += usize::from(op.kind == kind));
    n
}

#[test]
fn random_programs_keep_their_meaning_and_their_text() {
    for seed in 0..60 {
        let row = program(seed, &Config::default()).expect().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let mut k = assigned(&row.kernel, 1 << (seed % 4));
        let back = Kernel::parse(&k.text()).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{k}"));
        assert_eq!(back, k.renumbered(), "seed {seed}");
        Layouts::of(&back).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // The oracle knows no layouts; what moved must still be the same numbers.
        let same = tegula_ir::testing::Row { kernel: k.clone(), ..row };
        same.run(&mut |k, a, g, c| on_oracle(k, a, g, c)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // Assigning again forgets what was there.
        gpu::assign(&mut k).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    for row in conformance::rows() {
        let k = assigned(&row.kernel, 4);
        let same = tegula_ir::testing::Row { kernel: k, ..row };
        same.run(&mut |k, a, g, c| on_oracle(k, a, g, c)).unwrap_or_else(|e| panic!("{e}"));
    }
}

const SOFTMAX: &str = r#"kernel @softmax(%0 "x": view<f32, 2, unit, align16, small>, %1 "y": view_mut<f32, 2, unit, align16, small>) {
  %2 = program_id {axis = 0} : i32
  %3 = cast %2 : i64
  %4 = const {value = 0: i64} : i64
  %5 = load %0, %3, %4 : tile<f32, 1, 1024>
  %6 = reduce %5 {axis = 1, kind = max} : tile<f32, 1, 1>
  %7 = broadcast %6 : tile<f32, 1, 1024>
  %8 = sub %5, %7 : tile<f32, 1, 1024>
  %9 = exp %8 : tile<f32, 1, 1024>
  %10 = reduce %9 {axis = 1, kind = sum} : tile<f32, 1, 1>
  %11 = broadcast %10 : tile<f32, 1, 1024>
  %12 = div %9, %11 : tile<f32, 1, 1024>
  store %1, %3, %4, %12
}
"#;

#[test]
fn a_softmax_has_one_layout() {
    let k = of(SOFTMAX);
    assert_eq!(count(&k, OpKind::ConvertLayout), 0, "{k}");
    let text = k.text();
    assert!(
        text.contains(r#"load %0, %3, %4 {layouts = "r[1, 2, 512] l[4, 8, 16, 32, 64] w[128, 256]"} : tile"#),
        "{text}"
    );
    assert!(text.starts_with("kernel @softmax(") && text.contains("{warps = 4} {"), "{text}");
}

#[test]
fn sixteen_bytes_follow_the_facts_and_the_widest_element() {
    let copy = |elem: &str, facts: &str| {
        of(&format!(
            r#"kernel @copy(%0 "x": view<{elem}, 1{facts}>, %1 "y": view_mut<{elem}, 1{facts}>) {{
  %2 = const {{value = 0: i64}} : i64
  %3 = load %0, %2 : tile<{elem}, 8192>
  store %1, %2, %3
}}
"#
        ))
        .text()
    };
    assert!(copy("f32", ", unit, align16").contains("r[1, 2, "), "four f32");
    assert!(copy("bf16", ", unit, align16").contains("r[1, 2, 4, 1024"), "eight bf16");
    assert!(copy("u8", ", unit, align16").contains("r[1, 2, 4, 8, "), "sixteen bytes");
    assert!(copy("f32", ", unit").contains("r[128, "), "lone elements where nothing is known of the address");
    assert!(copy("f32", "").contains("r[128, "), "lone elements where strides are unknown");
}

#[test]
fn a_transpose_is_one_conversion() {
    let k = of(r#"kernel @t(%0 "x": view<f32, 2, unit, align16>, %1 "y": view_mut<f32, 2, unit, align16>) {
  %2 = const {value = 0: i64} : i64
  %3 = load %0, %2, %2 : tile<f32, 64, 32>
  %4 = permute %3 {perm = [1, 0]} : tile<f32, 32, 64>
  %5 = mul %4, %4 : tile<f32, 32, 64>
  store %1, %2, %2, %5
}
"#);
    assert_eq!(count(&k, OpKind::ConvertLayout), 1, "{k}");
}

#[test]
fn constants_are_made_where_they_are_wanted() {
    let k = of(r#"kernel @c(%0 "x": view<f32, 2, unit, align16>, %1 "y": view_mut<f32, 2, unit, align16>) {
  %2 = const {value = 0: i64} : i64
  %3 = const {value = 1.5: f32} : tile<f32, 64, 64>
  %4 = load %0, %2, %2 : tile<f32, 64, 64>
  %5 = add %4, %3 : tile<f32, 64, 64>
  %6 = permute %5 {perm = [1, 0]} : tile<f32, 64, 64>
  %7 = mul %6, %3 : tile<f32, 64, 64>
  %8 = dot %4, %5, %3 : tile<f32, 64, 64>
  store %1, %2, %2, %7
  store %1, %2, %2, %8
}
"#);
    assert_eq!((count(&k, OpKind::Const), count(&k, OpKind::ConvertLayout)), (4, 1), "{k}");
}

#[test]
fn faults_in_layouts_are_named() {
    let k = of(SOFTMAX);
    let fault = |from: &str, to: &str| {
        let text = k.text().replacen(from, to, 1);
        let k = Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        Layouts::of(&k).map(|_| ()).unwrap_err().to_string()
    };
    let moved = fault("r[1, 2, 512] l[4, 8, 16, 32, 64]", "r[1, 4, 512] l[2, 8, 16, 32, 64]");
    assert!(moved.contains("a conversion is missing"), "{moved}");
    let warps = fault("w[128, 256]", "w[128, 256, 0]");
    assert!(warps.contains("`load`") && warps.contains("a piece of 1024 elements on 4 warps"), "{warps}");
    let count = fault("{warps = 4}", "{warps = 3}");
    assert!(count.contains("a power of two of at most 32 is wanted"), "{count}");
    let mut bare = k.clone();
    bare.body.ops.iter_mut().for_each(|op| op.attrs.remove(Key::Layouts));
    assert!(Layouts::of(&bare).unwrap_err().to_string().contains("result 0 has none"));
    let nonsense = Kernel::parse(&k.text().replacen("l[4, 8, 16, 32, 64]", "l[4, 8]", 1)).unwrap_err().to_string();
    assert!(nonsense.contains("2 lane vectors"), "{nonsense}");
}
