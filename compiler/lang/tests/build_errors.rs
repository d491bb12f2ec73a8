//! Mistakes that rustc cannot see: found when the kernel is built, at the user's line, in the user's words.
#![allow(clippy::assign_op_pattern)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;
use tegula_ir::{Kernel, Quant, layout::Layout};

/// Words of the implementation, which no message may hold.
const INTERNAL: &[&str] =
    &["rt::", "handle", "Handle", "region", "ChangesUnder", "Carries", "panicked", "operand 0", "yield"];

#[track_caller]
fn refused(built: Result<Kernel, LaunchError>, line: u32, wanted: &str) {
    let Err(LaunchError::Build(e)) = built else { panic!("expected a build error, found {built:?}") };
    let text = e.to_string();
    let fault =
        e.faults.iter().find(|f| f.message.contains(wanted)).unwrap_or_else(|| panic!("no `{wanted}` in {text}"));
    assert!(fault.loc.file.ends_with("build_errors.rs"), "{text}");
    assert_eq!(fault.loc.line, line, "{text}");
    for word in INTERNAL {
        assert!(!text.contains(word), "`{word}` in {text}");
    }
}

/// Declares a kernel whose mistake is on the line of `LINE`.
macro_rules! wrong { ($($test:ident $message:literal, $line:ident: ($($params:tt)*) $body:block)*) => {$(
    #[test]
    fn $test() {
        #[kernel]
        fn k($($params)*) $body
        refused(k::ir().build(), $line.get(), $message);
    }
)*} }

std::thread_local! { static AT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) } }
struct At;
impl At {
    fn get(&self) -> u32 {
        AT.get()
    }
}
#[allow(non_upper_case_globals)]
const at: At = At;
/// Notes the line on which it is called.
#[track_caller]
fn here<T>(v: T) -> T {
    AT.set(std::panic::Location::caller().line());
    v
}

wrong! {
    reshape_counts "`reshape` of shape [4, 8] (32 elements) to [3, 10] (30 elements)", at: (x: View<f32, 2>) {
        let _ = here(x.load::<(C<4>, C<8>)>((0, 0))).reshape::<(C<3>, C<10>)>();
    }
    half_of_odd "`Half` of the extent 7, which is odd", at: (x: View<f32, 1>) {
        let _ = here(x.load::<(C<7>,)>(0)).slice::<0, Half<C<7>>>(0);
    }
    same_differs "`same`: axis 0 has extent 8, which is not 4", at: (x: View<f32, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)).same::<0, C<4>>();
    }
    slice_outside "`slice` of 4 elements from 6 along axis 0, which has 8", at: (x: View<f32, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)).slice::<0, C<4>>(6);
    }
    topk_too_many "`topk`: the 9 largest of an axis of 8", at: (x: View<f32, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)).topk::<C<9>>();
    }
    bitcast_width "`bitcast` from `f32` (32 bits) to `i16` (16 bits): the widths differ", at: (x: View<f32, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)).bitcast::<i16>();
    }
    constant_range "the constant 300 does not fit `u8`, which holds 0 to 255", at: (x: View<u8, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)) + 300;
    }
    negative_unsigned "the constant -1 does not fit `u32`", at: (x: View<u32, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)) & -1;
    }
    sum_narrower "`sum_as` of `i32` cannot add up in `i16`", at: (x: View<i32, 1>) {
        let _ = here(x.load::<(C<8>,)>(0)).sum_as::<0, i16>();
    }
    permute_twice "`permute` by [0, 0, 1]: an order names every axis once", at: (x: View<f32, 3>) {
        let _ = here(x.load::<(C<2>, C<3>, C<4>)>((0, 0, 0))).permute::<Order3<0, 0, 1>>();
    }
    empty_extent "the extent `C<0>` is empty", at: (x: View<f32, 1>) {
        let _ = here(x).load::<(C<0>,)>(0);
    }
    huge_tile "has more than 2^30 elements", at: (x: View<f32, 2>) {
        let _ = here(x).load::<(C<65536>, C<65536>)>((0, 0));
    }
    grid_axis "grid axis 3: a grid has the axes 0, 1 and 2", at: () {
        let _ = program_id(here(3));
    }
    view_axis "axis 2 of a view of rank 2: its axes are 0 to 1", at: (x: View<f32, 2>) {
        let _ = here(x).dim::<2>();
    }
    multiple_of_zero "`multiple_of(0)`", at: (n: Scalar<i32>) {
        let _ = here(n).multiple_of(0);
    }
    grouped_by_zero "`grouped` by 0 rows", at: (c: ViewMut<f32, 2>) {
        let _ = grouped::<C<4>, C<4>>(program_id(0), here(&c), 0);
    }
    group_count "`dot_grouped` over 64 elements takes 2 scales and sums a row (one per 32), found 4", at: (x: View<i8, 2>, s: View<f32, 2>, u: View<i32, 2>, w: Packed) {
        let (x, s, u) = (x.load::<(C<4>, C<64>)>((0, 0)), s.load::<(C<4>, C<4>)>((0, 0)), u.load::<(C<4>, C<4>)>((0, 0)));
        let _ = dot_grouped(here(x), s, u, w.load::<(C<64>, C<8>)>((0, 0)), zeros());
    }
    packed_block "a rectangle of 48 rows of a packed `q8_0`: the rows must be a multiple of its block of 32", at: (w: Packed) {
        let _ = here(w).load::<(C<48>, C<8>)>((0, 0));
    }
    vec_grows "its 1 run-time values became 2", at: (n: Scalar<i32>) {
        let mut v = vec![n];
        if here(n) > 3 { v.push(n); }
    }
    vec_grows_in_loop "its 1 run-time values became 2", at: (n: Scalar<i32>) {
        let mut v = vec![n];
        for i in 0..here(n) { v.push(i); }
    }
    value_escapes "this value was made inside a run-time loop or branch and is used outside it", at: (n: Scalar<i32>) {
        let kept = std::cell::Cell::new(n);
        for i in 0..n { kept.set(i); }
        let _ = here(kept.get()) + 1;
    }
    while_condition_changes "the condition of a run-time `while` changes a variable", at: (n: Scalar<i32>) {
        let mut i = n;
        while { i = here(i) + 1; i < 5 } { i = i * 2; }
    }
    f64_in_f32 "`dot` of `f64` adds up in `f64`, found an accumulator of `f32`", at: (x: View<f64, 2>) {
        let _ = dot(here(x).load::<(C<4>, C<4>)>((0, 0)), x.load::<(C<4>, C<4>)>((0, 0)), zeros::<f32, (C<4>, C<4>)>());
    }
    control_flow_in_combiner "a combiner holds constants and elementwise ops only", at: (x: View<i32, 1>) {
        let t = x.load::<(C<8>,)>(0);
        let _ = here(t).reduce::<0>(|a, b| { let mut s = a; for i in 0..b { s += i; } s });
    }
}

#[test]
fn named_dims_are_named() {
    #[kernel]
    fn k<BM: Dim, BN: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
        let a = here(x.load::<(BM,)>(0)).same::<0, BN>();
        y.store(0, a + y.load::<(BN,)>(0));
    }
    k::ir().dims(8, 8).build().unwrap();
    refused(k::ir().dims(8, 4).build(), at.get(), "`same`: axis 0 has extent BM = 8, which is not BN = 4");
}

#[test]
fn a_quantised_product_of_floats_is_refused() {
    #[kernel]
    fn k(x: View<i8, 2>, w: Packed, y: ViewMut<f32, 2>) {
        let c = x.load::<(C<4>, C<32>)>((0, 0));
        let u = c.sum_as::<1, i32>().same::<1, C<1>>();
        let w = w.load::<(C<32>, C<8>)>((0, 0));
        y.store((0, 0), dot_grouped(here(c), u.cast(), u, w, zeros()));
    }
    k::ir().packed(Quant::Q4_K, Layout::Gguf).build().unwrap_err();
    k::ir().packed(Quant::Q4_0, Layout::Gguf).build().unwrap();
    let built = k::ir().packed(Quant::F16, Layout::Gguf).build();
    refused(built, at.get(), "`dot_grouped` of a packed `f16`, which has no codes");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    #[kernel]
    fn k(x: View<f32, 1>, y: ViewMut<f32, 1>) {
        let t = x.load::<(C<8>,)>(0);
        let a = t.reshape::<(C<4>,)>();
        for _ in 0..3 {
            y.store(0, a.same::<0, C<8>>() + t.slice::<0, C<8>>(1));
        }
    }
    let Err(LaunchError::Build(e)) = k::ir().build() else { panic!() };
    assert_eq!(e.faults.len(), 3, "{e}");
}

#[test]
fn a_loop_that_would_be_unrolled_without_end_is_one_mistake_with_the_way_out() {
    #[kernel]
    fn k(x: View<i32, 1>, y: ViewMut<i32, 1>) {
        let mut sum = scalar(0);
        for i in 0..2_000_000_000 {
            sum = sum + here(x.at(i));
        }
        y.set(0, sum);
    }
    let Err(LaunchError::Build(e)) = k::ir().build() else { panic!("it was built") };
    assert_eq!(e.faults.len(), 1, "{e}");
    assert!(e.faults[0].message.contains("more than 100000 operations"), "{e}");
    assert!(e.faults[0].message.contains("range(0, n)"), "{e}");
    assert_eq!(e.faults[0].loc.line, at.get(), "{e}");
    // The thread builds on.
    #[kernel]
    fn good(y: ViewMut<i32, 1>) {
        y.set(0, scalar(1));
    }
    good::ir().build().unwrap();
}
