//! The IR of some kernels as text. `UPDATE_EXPECT=1` writes it anew; read what changed.
#![allow(clippy::assign_op_pattern)]
extern crate tegula_lang as tegula;
use expect_test::expect_file;
use tegula::prelude::*;

#[kernel]
fn control(a: Scalar<i32>, b: Scalar<i32>, out: ViewMut<i32, 1>) {
    let (mut x, mut n) = (a, scalar(0));
    while x < 20 && n < 7 {
        x += b;
        n += 1;
        if x % 2 == 0 {
            x = x / 2;
        } else if n > 3 {
            for i in 0..n {
                x -= i;
            }
        }
    }
    out.set(0, if x > n { x } else { n });
}

#[kernel]
fn row_softmax<T: Float, N: Dim>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let row = program_id(0);
    let t = x.load::<(One, N)>((row, 0)).cast::<f32>();
    let t = select(iota::<N>().expand::<0>() < x.dim::<1>(), t, f32::NEG_INFINITY);
    let e = (t - t.max::<1>()).exp();
    y.store((row, 0), (e / e.sum::<1>()).cast());
}

#[kernel]
fn matmul<T: Float, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let (pm, pn) = (program_id(0), program_id(1));
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in a.tiles_along::<1, BK>() {
        acc = dot(a.load::<(BM, BK)>((pm, k)), b.load::<(BK, BN)>((k, pn)), acc);
    }
    c.store((pm, pn), acc.cast());
}

#[kernel]
fn packed_matvec<BK: Dim, BN: Dim, G: Dim>(
    x: View<i8, 2>,
    sx: View<f32, 2>,
    sums: View<i32, 2>,
    w: Packed,
    y: ViewMut<f32, 2>,
) {
    let n = program_id(0);
    let mut acc = zeros::<f32, (One, BN)>();
    for k in w.tiles_along_k::<BK>() {
        acc = dot_grouped(
            x.load((0, k)),
            sx.load::<(One, G)>((0, k)),
            sums.load((0, k)),
            w.load::<(BK, BN)>((k, n)),
            acc,
        );
    }
    y.store((0, n), acc);
}

/// The kernel's text without locations, which every edit of this file moves. It parses back to the same text.
fn text(k: Result<tegula_ir::Kernel, LaunchError>) -> String {
    let k = k.unwrap_or_else(|e| panic!("{e}"));
    let text = k.to_string();
    assert_eq!(tegula_ir::Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}")).to_string(), text);
    let line = |l: &str| match (l.find(" @ \""), l.rfind('{')) {
        (Some(at), Some(open)) if open > at && l.ends_with('{') => format!("{} {{\n", &l[..at]),
        (Some(at), _) => format!("{}\n", &l[..at]),
        _ => format!("{l}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn kernels_build_this_ir() {
    expect_file!["golden/control.tile"].assert_eq(&text(control::ir().build()));
    expect_file!["golden/softmax.tile"].assert_eq(&text(row_softmax::ir::<bf16>().dims(128).build()));
    expect_file!["golden/matmul.tile"].assert_eq(&text(matmul::ir::<f32>().dims(64, 128, 32).build()));
    let packed =
        packed_matvec::ir().dims(256, 64, 8).packed(tegula_ir::Quant::Q4_K, tegula_ir::layout::Layout::Panel16).build();
    expect_file!["golden/packed_matvec.tile"].assert_eq(&text(packed));
}
