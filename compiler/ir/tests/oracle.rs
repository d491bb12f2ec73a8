//! The oracle on small kernels with hand-computed results.

use tegula_ir::oracle::{Options, OracleArg, Order, ViewArg, run};
use tegula_ir::{Elem, Kernel, Scalar};

fn f32s(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}
fn to_f32s(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// Row sums through a loop over tiles, with a ragged edge: sum over the columns in steps of 4.
const ROW_SUMS: &str = r#"
kernel @row_sums(%0 "x": view<f32, 2>, %1 "y": view_mut<f32, 1>) {
  %2 = program_id {axis = 0} : i32
  %3 = cast %2 : i64
  %4 = const {value = 0: i64} : i64
  %5 = const {value = 4: i64} : i64
  %6 = dim %0 {axis = 1} : i32
  %7 = cast %6 : i64
  %8 = const {value = 0.0: f32} : tile<f32, 1, 1>
  %9 = for %4, %7, %5, %8 : tile<f32, 1, 1> {
    (%10: i64, %11: tile<f32, 1, 1>)
    %12 = load %0, %3, %10 : tile<f32, 1, 4>
    %13 = reduce %12 {axis = 1, kind = sum} : tile<f32, 1, 1>
    %14 = add %11, %13 : tile<f32, 1, 1>
    yield %14
  }
  %15 = reshape %9 : tile<f32, 1>
  store %1, %3, %15
}
"#;

#[test]
fn loop_load_reduce_store() {
    let k = Kernel::parse(ROW_SUMS).unwrap();
    let x: Vec<f32> = (0..21).map(|i| (i as f32 - 7.5) * 0.25).collect();
    for order in [Order::Ascending, Order::Descending, Order::Shuffled(7), Order::Given(vec![1, 2, 0])] {
        let (xb, mut yb) = (f32s(&x), f32s(&[f32::NAN; 3]));
        let mut args = [
            OracleArg::View(ViewArg::read(&xb, Elem::F32, &[3, 7])),
            OracleArg::View(ViewArg::write(&mut yb, Elem::F32, &[3]).unwritten()),
        ];
        let report = run(&k, &mut args, [3, 1, 1], &Options { order, ..Options::strict() }).unwrap();
        assert_eq!(report.programs, 3);
        assert_eq!(to_f32s(&yb), x.chunks(7).map(|r| r.iter().sum::<f32>()).collect::<Vec<_>>());
    }
}

#[test]
fn arguments_that_do_not_fit() {
    let k = Kernel::parse(ROW_SUMS).unwrap();
    let xb = f32s(&[1.0; 21]);
    let mut yb = f32s(&[0.0; 3]);
    let fails = |x: ViewArg<'_>, y: OracleArg<'_>| {
        run(&k, &mut [OracleArg::View(x), y], [3, 1, 1], &Options::default()).unwrap_err().to_string()
    };
    let scalar = || OracleArg::Scalar(Scalar::from_i64(Elem::I32, 3));
    assert_eq!(
        fails(ViewArg::read(&xb, Elem::F32, &[3, 7]), scalar()),
        "kernel `row_sums`: argument `y`: expected a view, `view_mut<f32, 1>`"
    );
    assert_eq!(
        fails(ViewArg::read(&xb, Elem::F32, &[3, 8]), scalar()),
        "kernel `row_sums`: argument `x`: extents [3, 8] with strides [8, 1] reach bytes 0..96 of 84"
    );
    assert_eq!(
        fails(ViewArg::read(&xb, Elem::I32, &[3, 7]), scalar()),
        "kernel `row_sums`: argument `x`: expected elements of `f32`, found `i32`"
    );
    assert_eq!(
        fails(ViewArg::read(&xb, Elem::F32, &[21]), scalar()),
        "kernel `row_sums`: argument `x`: expected 2 axes, found extents [21] and strides [1]"
    );
    let read_only = OracleArg::View(ViewArg::read(&xb, Elem::F32, &[3]));
    assert_eq!(
        fails(ViewArg::read(&xb, Elem::F32, &[3, 7]), read_only),
        "kernel `row_sums`: argument `y`: the kernel writes it, and the memory is read-only"
    );
    let y = OracleArg::View(ViewArg::write(&mut yb, Elem::F32, &[3]).strides(&[2]));
    assert_eq!(
        fails(ViewArg::read(&xb, Elem::F32, &[3, 7]), y),
        "kernel `row_sums`: argument `y`: extents [3] with strides [2] reach bytes 0..20 of 12"
    );
}
