//! What the oracle reports: unwritten reads, races, indices outside, divisions, asserts, endless loops. And that no
//! verified kernel makes it panic.

mod oracle_common;

use oracle_common::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tegula_ir::{
    AtomicKind, Attr, Attrs, Elem, Kernel, Key, MemOrder, OpKind, Quant, ReduceKind, Scalar, TileType, ViewFacts,
    layout::Layout,
    oracle::{self, Access, Fault, Options, OracleArg, OracleError, Order, Report, ViewArg},
    testing::{
        Arg, Buffer, K, data, ints,
        random::{Config, packed, program},
    },
};

fn run(kernel: &Kernel, args: &mut [Arg], grid: [u32; 3], options: &Options) -> Result<Report, OracleError> {
    let mut args: Vec<OracleArg<'_>> = args.iter_mut().map(Arg::for_oracle).collect();
    oracle::run(kernel, &mut args, grid, options)
}
fn sanitized() -> Options {
    Options { sanitize: true, ..Options::default() }
}
fn checked() -> Options {
    Options { checked: true, ..Options::default() }
}
fn i32s(n: i64) -> Arg {
    Arg::View(Buffer::new(Elem::I32, &[n], &ints(Elem::I32, 0..n)))
}
fn poison(n: i64) -> Arg {
    Arg::View(Buffer::poisoned(Elem::I32, &[n]))
}

/// This file's line `offset` lines below the call.
#[track_caller]
fn line(offset: u32) -> String {
    format!("{}:{}", file!(), std::panic::Location::caller().line() + offset)
}

#[test]
fn unwritten_reads_name_place_and_element() {
    let mut k = K::new("unwritten");
    let (x, y) = (k.view_mut("scratch", Elem::I32, 1), k.view_mut("y", Elem::I32, 1));
    let one = k.splat(Elem::I32, 1.0, &[3]);
    k.write(x, one);
    let at = line(1);
    let t = k.read(x, &[4]);
    k.write(y, t);
    let k = k.finish();
    let e = run(&k, &mut [poison(4), poison(4)], [1; 3], &sanitized()).unwrap_err();
    assert_eq!(e.fault, Fault::Unwritten("scratch".into()));
    assert_eq!(e.element, Some(vec![3]));
    assert!(e.to_string().starts_with(&at), "{e}");
    assert!(e.to_string().ends_with("`load` in kernel `unwritten`, program 0 [0, 0, 0], element [3]: `scratch` is read here, but nothing wrote it"), "{e}");
    // Memory that held something, a shorter view, and no sanitizer are all fine.
    run(&k, &mut [i32s(4), poison(4)], [1; 3], &sanitized()).unwrap();
    run(&k, &mut [poison(3), poison(4)], [1; 3], &sanitized()).unwrap();
    run(&k, &mut [poison(4), poison(4)], [1; 3], &Options::default()).unwrap();
}

#[test]
fn two_programs_that_write_one_element_race() {
    // Tiles of 4, programs 3 apart.
    let mut k = K::new("overlap");
    let y = k.view_mut("y", Elem::I32, 1);
    let (p, three, t) = (k.program_id(0), k.int(Elem::I32, 3), k.splat(Elem::I32, 1.0, &[4]));
    let at = k.mul(p, three);
    let at = k.cast(at, Elem::I64);
    k.store(y, &[at], t);
    let k = k.finish();
    let e = run(&k, &mut [poison(20)], [4, 1, 1], &sanitized()).unwrap_err();
    assert_eq!(e.fault, Fault::Race { name: "y".into(), access: Access::Write, earlier: Access::Write, other: 0 });
    assert_eq!((e.program.map(|p| p.id), e.element.clone()), (Some(1), Some(vec![3])));
    let e = run(&k, &mut [poison(20)], [4, 1, 1], &Options { order: Order::Descending, ..sanitized() }).unwrap_err();
    assert_eq!((e.program.map(|p| p.id), e.element.clone()), (Some(2), Some(vec![9])));
    run(&k, &mut [poison(20)], [1, 1, 1], &sanitized()).unwrap();
}

/// `y[0] += x[p]` by load and store, and by an atomic.
fn add_up(atomic: bool) -> Kernel {
    let mut k = K::new("add_up");
    let (x, y) = (k.view("x", Elem::I32, 1), k.view_mut("y", Elem::I32, 1));
    let p = k.program_id(0);
    let p = k.cast(p, Elem::I64);
    let v = k.load(x, &[p], &[1]);
    if atomic {
        let at = k.splat(Elem::I64, 0.0, &[1]);
        k.atomic(AtomicKind::Add, y, &[at], v, None);
    } else {
        let old = k.read(y, &[1]);
        let v = k.add(old, v);
        k.write(y, v);
    }
    k.finish()
}

#[test]
fn a_sum_without_atomics_races() {
    let e = run(&add_up(false), &mut [i32s(4), i32s(1)], [4, 1, 1], &sanitized()).unwrap_err();
    assert_eq!(e.fault, Fault::Race { name: "y".into(), access: Access::Read, earlier: Access::Write, other: 0 });
    let mut args = [i32s(4), i32s(1)];
    run(&add_up(true), &mut args, [4, 1, 1], &sanitized()).unwrap();
    let Arg::View(y) = &args[1] else { unreachable!() };
    assert_eq!(y.bits(), [6]);
}

#[test]
fn a_write_after_anothers_read_races() {
    let mut k = K::new("shift");
    let x = k.view_mut("x", Elem::I32, 1);
    let p = k.program_id(0);
    let p = k.cast(p, Elem::I64);
    let one = k.at(1);
    let next = k.add(p, one);
    let v = k.load(x, &[next], &[1]);
    k.store(x, &[p], v);
    let e = run(&k.finish(), &mut [i32s(5)], [4, 1, 1], &sanitized()).unwrap_err();
    assert_eq!(e.fault, Fault::Race { name: "x".into(), access: Access::Write, earlier: Access::Read, other: 0 });
    assert_eq!(e.element, Some(vec![1]));
}

/// Every program writes its part and counts itself; the last one adds the parts up.
fn last_adds_up(order: MemOrder) -> Kernel {
    let mut k = K::new("last_adds_up");
    let (parts, count, y) =
        (k.view_mut("parts", Elem::I32, 1), k.view_mut("count", Elem::I32, 1), k.view_mut("y", Elem::I32, 1));
    let p = k.program_id(0);
    let at = k.cast(p, Elem::I64);
    let t = k.reshape(p, &[1]);
    k.store(parts, &[at], t);
    let (zero, one) = (k.splat(Elem::I64, 0.0, &[1]), k.splat(Elem::I32, 1.0, &[1]));
    let old = k.atomic_ordered(AtomicKind::Add, order, count, &[zero], one, None);
    let old = k.reshape(old, &[]);
    let last = k.int(Elem::I32, 3);
    let c = k.ew(OpKind::Eq, &[old, last]);
    k.if_else(
        c,
        |k| {
            let t = k.read(parts, &[4]);
            let s = k.reduce(t, 0, ReduceKind::Sum);
            k.write(y, s);
            vec![]
        },
        |_| vec![],
    );
    k.finish()
}

#[test]
fn acquire_and_release_order_programs() {
    let args = || [poison(4), Arg::View(Buffer::new(Elem::I32, &[1], &[0])), poison(1)];
    for order in [Order::Ascending, Order::Shuffled(3)] {
        let mut a = args();
        run(&last_adds_up(MemOrder::AcqRel), &mut a, [4, 1, 1], &Options { order, ..sanitized() }).unwrap();
        let Arg::View(y) = &a[2] else { unreachable!() };
        assert_eq!(y.bits(), [6]);
    }
    for order in [MemOrder::Relaxed, MemOrder::Acquire, MemOrder::Release] {
        let e = run(&last_adds_up(order), &mut args(), [4, 1, 1], &sanitized()).unwrap_err();
        assert!(matches!(e.fault, Fault::Race { access: Access::Read, earlier: Access::Write, .. }), "{order:?}: {e}");
    }
}

/// A compare and swap publishes what came before it if it swaps, and only then.
#[test]
fn a_swap_that_fails_releases_nothing() {
    let text = |expected: i32| {
        format!(
            r#"kernel @k(%0 "x": view_mut<i32, 1>, %1 "flag": view_mut<i32, 1>, %2 "y": view_mut<i32, 1>) {{
  %3 = const {{value = 0: i64}} : tile<i64, 1>
  %4 = const {{value = {expected}: i32}} : tile<i32, 1>
  %5 = const {{value = 1: i32}} : tile<i32, 1>
  %6 = const {{value = 0: i64}} : i64
  %7 = program_id {{axis = 0}} : i32
  %8 = const {{value = 0: i32}} : i32
  %9 = eq %7, %8 : bool
  if %9 {{
    store %0, %6, %5
    %10 = atomic_cas %1, %3, %4, %5 {{order = release}} : tile<i32, 1>
    yield
  }} {{
    %11 = atomic_cas %1, %3, %5, %5 {{order = acquire}} : tile<i32, 1>
    %12 = load %0, %6 : tile<i32, 1>
    store %2, %6, %12
    yield
  }}
}}
"#
        )
    };
    let args = || [poison(1), Arg::View(Buffer::new(Elem::I32, &[1], &[0])), poison(1)];
    let swaps = Kernel::parse(&text(0)).unwrap();
    run(&swaps, &mut args(), [2, 1, 1], &sanitized()).unwrap();
    let fails = Kernel::parse(&text(7)).unwrap();
    let e = run(&fails, &mut args(), [2, 1, 1], &sanitized()).unwrap_err();
    assert!(matches!(e.fault, Fault::Race { access: Access::Read, earlier: Access::Write, .. }), "{e}");
}

#[test]
fn plain_and_atomic_access_race() {
    let mut k = K::new("mixed");
    let (x, y) = (k.view_mut("x", Elem::I32, 1), k.view_mut("y", Elem::I32, 1));
    let p = k.program_id(0);
    let zero = k.int(Elem::I32, 0);
    let c = k.ew(OpKind::Eq, &[p, zero]);
    k.if_else(
        c,
        |k| {
            let (at, v) = (k.splat(Elem::I64, 0.0, &[1]), k.splat(Elem::I32, 1.0, &[1]));
            k.atomic(AtomicKind::Add, x, &[at], v, None);
            vec![]
        },
        |k| {
            let t = k.read(x, &[1]);
            k.write(y, t);
            vec![]
        },
    );
    let k = k.finish();
    let e = run(&k, &mut [i32s(1), poison(1)], [2, 1, 1], &sanitized()).unwrap_err();
    assert!(
        e.to_string().ends_with("`x` is read here and was changed atomically by program 0: programs run in any order"),
        "{e}"
    );
    let e = run(&k, &mut [i32s(1), poison(1)], [2, 1, 1], &Options { order: Order::Descending, ..sanitized() })
        .unwrap_err();
    assert_eq!(e.fault, Fault::Race { name: "x".into(), access: Access::Atomic, earlier: Access::Read, other: 1 });
}

/// Two arguments over the same memory: the sanitizer goes by address.
#[test]
fn arguments_may_share_memory() {
    let mut k = K::new("shared");
    let (x, y) = (k.view("x", Elem::I32, 1), k.view_mut("y", Elem::I32, 1));
    let p = k.program_id(0);
    let p = k.cast(p, Elem::I64);
    let t = k.load(x, &[p], &[1]);
    let t = k.add(t, t);
    k.store(y, &[p], t);
    let k = k.finish();
    let mut memory: [i32; 4] = [5, 2, 3, 4];
    let (start, len) = (memory.as_mut_ptr().cast::<u8>(), 16);
    let go = |from: usize| {
        // SAFETY: `memory` outlives the run and nobody else touches it.
        let (x, y) = unsafe {
            (
                ViewArg::from_raw(start, len - 4 * from, Elem::I32, &[3]),
                ViewArg::from_raw(start.add(4 * from), len - 4 * from, Elem::I32, &[3]),
            )
        };
        oracle::run(&k, &mut [OracleArg::View(x), OracleArg::View(y)], [3, 1, 1], &sanitized())
    };
    go(0).unwrap();
    let e = go(1).unwrap_err();
    assert_eq!(e.fault, Fault::Race { name: "x".into(), access: Access::Read, earlier: Access::Write, other: 0 });
    assert_eq!(memory, [10, 20, 6, 4]); // doubled in place, then program 0 of the second run
}

#[test]
fn checked_mode_reports_indices() {
    let gather = |index: i64, mask: bool| {
        let mut k = K::new("checked");
        let (x, y) = (k.view("x", Elem::I32, 1), k.view_mut("y", Elem::I32, 1));
        let i = k.iota(Elem::I64, 4);
        let d = k.splat(Elem::I64, index as f64, &[4]);
        let i = k.add(i, d);
        let n = k.splat(Elem::I64, 6.0, &[4]);
        let m = mask.then(|| k.ew(OpKind::Lt, &[i, n]));
        let t = k.gather(x, &[i], m);
        k.write(y, t);
        k.finish()
    };
    let e = run(&gather(4, false), &mut [i32s(6), poison(4)], [1; 3], &checked()).unwrap_err();
    assert_eq!((&e.fault, &e.element), (&Fault::OutOfRange { name: "x".into(), extents: vec![6] }, &Some(vec![6])));
    assert!(e.to_string().ends_with("element [6]: index outside `x`, whose extents are [6]"), "{e}");
    assert_eq!(
        run(&gather(-1, false), &mut [i32s(6), poison(4)], [1; 3], &checked()).unwrap_err().element,
        Some(vec![-1])
    );
    run(&gather(4, true), &mut [i32s(6), poison(4)], [1; 3], &checked()).unwrap();
    run(&gather(2, false), &mut [i32s(6), poison(4)], [1; 3], &checked()).unwrap();
    run(&gather(4, false), &mut [i32s(6), poison(4)], [1; 3], &Options::default()).unwrap();

    // Scatter, atomic, compare and swap, take, a part of a view.
    let kernels: [fn(&mut K, tegula_ir::Value); 6] = [
        |k, x| {
            let (i, v) = (k.splat(Elem::I64, 9.0, &[2]), k.splat(Elem::I32, 9.0, &[2]));
            k.scatter(x, &[i], v, None);
        },
        |k, x| {
            let (i, v) = (k.splat(Elem::I64, 9.0, &[2]), k.splat(Elem::I32, 9.0, &[2]));
            k.atomic(AtomicKind::Xchg, x, &[i], v, None);
        },
        |k, x| {
            let (i, v) = (k.splat(Elem::I64, 9.0, &[2]), k.splat(Elem::I32, 9.0, &[2]));
            k.compare_and_swap(x, &[i], v, v, None);
        },
        |k, x| {
            let (t, i) = (k.read(x, &[4]), k.splat(Elem::I32, 4.0, &[1]));
            k.take(t, i, 0);
        },
        |k, x| {
            let (s, n, i) = (k.at(1), k.at(3), k.splat(Elem::I64, 3.0, &[1]));
            let part = k.narrow(x, 0, s, n);
            k.gather(part, &[i], None);
        },
        |k, x| {
            let t = k.read(x, &[4]);
            let zero = k.splat(Elem::I32, 0.0, &[4]);
            let t = k.ew(OpKind::Rem, &[t, zero]);
            k.write(x, t);
        },
    ];
    for (i, f) in kernels.into_iter().enumerate() {
        let mut k = K::new("checked");
        let x = k.view_mut("x", Elem::I32, 1);
        f(&mut k, x);
        let k = k.finish();
        let e = run(&k, &mut [i32s(6)], [1; 3], &checked()).unwrap_err();
        match i {
            5 => assert_eq!((&e.fault, e.op), (&Fault::DivisionByZero, "rem")),
            4 => assert!(e.to_string().contains("index outside `x, elements 1..4 along axis 0`"), "{e}"),
            _ => assert!(matches!(e.fault, Fault::OutOfRange { .. }), "{e}"),
        }
        run(&k, &mut [i32s(6)], [1; 3], &Options::default()).unwrap();
    }
}

#[test]
fn checked_mode_reports_divisions() {
    let mut k = K::new("divide");
    let (a, b) = (k.param("a", Elem::I8), k.param("b", Elem::I8));
    k.ew(OpKind::Div, &[a, b]);
    let k = k.finish();
    let of = |a, b| {
        run(&k, &mut [a, b].map(|v| Arg::Scalar(Scalar::from_i64(Elem::I8, v))), [1; 3], &checked())
            .map_err(|e| e.fault.clone())
    };
    assert_eq!(of(5, 0), Err(Fault::DivisionByZero));
    assert_eq!(of(-128, -1), Err(Fault::DivisionOverflow));
    assert!(of(-127, -1).is_ok() && of(0, 3).is_ok());
}

#[test]
fn asserts_and_assumptions_are_checked_always() {
    let mut k = K::new("asserts");
    let x = k.view("x", Elem::I32, 1);
    let (t, four) = (k.read(x, &[6]), k.splat(Elem::I32, 4.0, &[6]));
    let c = k.ew(OpKind::Lt, &[t, four]);
    let at = line(1);
    k.effect(OpKind::Assert, &[c], Attrs::new().with(Key::Message, Attr::Str("small enough".into())));
    let k = k.finish();
    let e = run(&k, &mut [i32s(6)], [1; 3], &Options::default()).unwrap_err();
    assert_eq!((e.fault.clone(), e.element.clone()), (Fault::Assert("small enough".into()), Some(vec![4])));
    assert!(e.to_string().starts_with(&at) && e.to_string().ends_with("assertion failed: small enough"), "{e}");
    run(&k, &mut [i32s(3)], [1; 3], &Options::default()).unwrap();

    let mut k = K::new("facts");
    let n = k.param("n", Elem::I32);
    let eight = k.with(OpKind::MultipleOf, &[n], TileType::new(Elem::I32, []), Attrs::new().with(Key::N, Attr::Int(8)));
    let zero = k.int(Elem::I32, 0);
    let c = k.ew(OpKind::Gt, &[eight, zero]);
    k.effect(OpKind::Assume, &[c], Attrs::new());
    let k = k.finish();
    let of = |n| {
        run(&k, &mut [Arg::Scalar(Scalar::from_i64(Elem::I32, n))], [1; 3], &Options::default())
            .map_err(|e| e.fault.to_string())
    };
    assert!(of(64).is_ok());
    assert_eq!(of(12).unwrap_err(), "12 is no multiple of 8");
    assert_eq!(of(-8).unwrap_err(), "an assumption does not hold");
}

#[test]
fn printing() {
    let mut k = K::new("prints");
    let x = k.view("x", Elem::F32, 2);
    let (p, t, b) = (k.program_id(0), k.read(x, &[2, 2]), k.constant(Scalar::bool(true), &[]));
    k.effect(OpKind::Print, &[p, t, b], Attrs::new().with(Key::Message, Attr::Str("values".into())));
    let b = Arg::View(Buffer::new(Elem::F32, &[2, 2], &data(Elem::F32, &[1.5, -0.25, f64::NAN, 1e10])));
    let report = run(&k.finish(), &mut [b], [2, 1, 1], &Options::default()).unwrap();
    let texts: Vec<&str> = report.printed.iter().map(|p| &p.text[..]).collect();
    assert_eq!(
        texts,
        ["values 0 [[1.5, -0.25], [NaN, 10000000000]] true", "values 1 [[1.5, -0.25], [NaN, 10000000000]] true"]
    );
    assert_eq!((report.programs, report.ops[&OpKind::Print]), (2, 2));
}

#[test]
fn endless_loops_and_bad_steps_end() {
    let mut k = K::new("endless");
    let yes = k.constant(Scalar::bool(true), &[]);
    k.while_loop(&[], |_, _| yes, |_, _| vec![]);
    let limited = Options { step_limit: Some(1000), ..Options::default() };
    let e = run(&k.finish(), &mut [], [1; 3], &limited).unwrap_err();
    assert_eq!(e.fault, Fault::StepLimit(1000));
    assert!(e.to_string().contains("oracle_faults.rs"), "{e}");

    let counted = |elem: Elem| {
        let mut k = K::new("counted");
        let (hi, step) = (k.param("hi", elem), k.param("step", elem));
        let lo = k.int(elem, 0);
        k.for_loop([lo, hi, step], &[], |_, _, _| vec![]);
        k.finish()
    };
    let of = |elem: Elem, hi: i64, step: i64| {
        run(&counted(elem), &mut [hi, step].map(|v| Arg::Scalar(Scalar::from_i64(elem, v))), [1; 3], &limited)
            .map_err(|e| e.fault.clone())
    };
    assert_eq!(of(Elem::I32, 5, 0), Err(Fault::BadStep(0)));
    assert_eq!(of(Elem::I32, 5, -1), Err(Fault::BadStep(-1)));
    assert!(of(Elem::I32, 0, 0).is_ok(), "a loop that does not run takes no step");
    assert_eq!(of(Elem::I64, i64::MAX, 1), Err(Fault::StepLimit(1000)));
    // 0, 100, 200 and the next would leave i8 or u8.
    assert!(of(Elem::U8, 255, 100).is_ok());
    assert!(of(Elem::I8, 127, 100).is_ok());
}

#[test]
fn launches_that_do_not_fit_are_errors() {
    let message =
        |kernel: &Kernel, args: &mut [Arg]| run(kernel, args, [1; 3], &Options::default()).unwrap_err().to_string();
    let facts = |unit, align16, small| {
        let mut k = K::new("facts");
        k.view_with("x", Elem::I32, 2, false, ViewFacts { unit, align16, small });
        k.finish()
    };
    let matrix = |strides: &[i64]| {
        Arg::View(Buffer::new(Elem::I32, &[8, 9], &ints(Elem::I32, 0..72)).part(&[2, 2]).strides(strides))
    };
    assert_eq!(
        message(&facts(true, false, false), &mut [matrix(&[9, 2])]),
        "kernel `facts`: argument `x`: the innermost stride must be 1, found strides [9, 2]"
    );
    assert_eq!(
        message(&facts(false, true, false), &mut [matrix(&[9, 1])]),
        "kernel `facts`: argument `x`: address and row strides must be divisible by 16 bytes, found strides [9, 1]"
    );
    run(&facts(true, true, true), &mut [matrix(&[8, 1])], [1; 3], &Options::default()).unwrap();
    assert_eq!(
        message(&facts(false, false, false), &mut []),
        "kernel `facts`: argument ``: the kernel has 1 parameters, found 0 arguments"
    );
    assert_eq!(
        message(&facts(false, false, false), &mut [matrix(&[-1, 1])]),
        "kernel `facts`: argument `x`: extents [2, 2] with strides [-1, 1] reach bytes -4..8 of 288"
    );

    let mut k = K::new("weights");
    let w = k.packed("w", Quant::Q8_0, Layout::Gguf);
    let (a, b) = (k.at(16), k.at(0));
    k.packed_load(w, [a, b], 32, 4);
    let k = k.finish();
    let arg = |n: usize, quant| Arg::Packed(packed(1, Quant::Q8_0, Layout::Gguf, 64, 4), 64, n, quant, Layout::Gguf);
    assert_eq!(
        message(&k, &mut [arg(5, Quant::Q8_0)]),
        "kernel `weights`: argument `w`: a 64 × 5 matrix takes 340 bytes, found 272"
    );
    assert_eq!(
        message(&k, &mut [arg(4, Quant::Q4_0)]),
        "kernel `weights`: argument `w`: expected `packed<q8_0, gguf>`, found `packed<q4_0, gguf>`"
    );
    assert!(
        message(&k, &mut [arg(4, Quant::Q8_0)]).ends_with("(16, 0) is no multiple of the rectangle's extents (32, 4)")
    );

    let order = Options { order: Order::Given(vec![0, 0]), ..Options::default() };
    assert_eq!(
        run(&facts(false, false, false), &mut [matrix(&[9, 1])], [2, 1, 1], &order).unwrap_err().to_string(),
        "kernel `facts`: the given order does not name each of 2 programs once"
    );

    // Sizes that no machine has are refused before anything is allocated.
    let huge = "kernel @huge() {\n %0 = const {value = 0: i32} : tile<i32, 4000000000, 4000000000, 4000000000>\n}";
    let e = oracle::run(&Kernel::parse(huge).unwrap(), &mut [], [1; 3], &Options::default()).unwrap_err();
    assert!(e.to_string().contains("4000000000"), "{e}");
    assert!(Kernel::parse(huge).unwrap().verify().is_err());
}

/// Kernels with a number, a name or an operand changed at random: whatever the verifier accepts runs without a panic.
#[test]
fn no_verified_kernel_panics() {
    let (mut verified, mut finished) = (0, 0);
    for seed in 0..1200 {
        let mut r = Random(seed);
        let p = program(seed, &Config { statements: 12, ..Config::default() });
        let text = p.row.kernel.text_without_locs();
        let mut words: Vec<String> = text.split_inclusive([' ', ',', '>', '\n', '}']).map(String::from).collect();
        for _ in 0..1 + r.below(2) {
            let digits: Vec<usize> = (0..words.len())
                .filter(|&i| words[i].chars().any(|c| c.is_ascii_digit()) && !words[i].contains("tile"))
                .collect();
            let i = digits[r.below(digits.len() as u64) as usize];
            let word = words[i].clone();
            let end = word.trim_end_matches([' ', ',', '>', '\n', '}', ':']);
            let number =
                ["0", "1", "2", "3", "5", "16", "31", "-1", "9223372036854775807", "-9223372036854775808", "300"]
                    [r.below(11) as usize];
            let new = if let Some(v) = end.strip_prefix('%') {
                format!("%{}", v.parse::<u64>().map_or(0, |v| v.saturating_sub(r.below(9))))
            } else {
                number.into()
            };
            words[i] = word.replacen(end, &new, 1);
        }
        let Ok(k) = Kernel::parse(&words.concat()) else { continue };
        let verify = catch_unwind(AssertUnwindSafe(|| k.verify().is_ok()))
            .unwrap_or_else(|_| panic!("seed {seed}: the verifier panics on\n{k}"));
        if !verify {
            continue;
        }
        verified += 1;
        for checked in [false, true] {
            let options = Options { step_limit: Some(20_000), sanitize: true, checked, ..Options::default() };
            let mut args = p.row.args.clone();
            let result = catch_unwind(AssertUnwindSafe(|| run(&k, &mut args, p.row.grid, &options).is_ok()));
            finished += result.unwrap_or_else(|_| panic!("seed {seed}: the oracle panics on\n{k}")) as usize;
        }
    }
    println!("{verified} changed kernels were valid, {finished} of {} runs found no fault", 2 * verified);
    assert!(verified > 100 && finished > 50, "{verified} changed kernels were valid, {finished} runs found no fault");
}
