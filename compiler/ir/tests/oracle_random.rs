//! Random programs: they run without a fault of the generator, print and parse exactly, do not depend on the order of
//! programs, keep their results under every pass, and cover the op table.

use tegula_ir::{
    Elem, Kernel,
    oracle::{self, Options, Order},
    passes,
    testing::{
        Arg, Row, on_oracle,
        random::{Config, Coverage, program},
    },
};

/// More with `RANDOM_CASES=…`.
fn seeds() -> std::ops::Range<u64> {
    let n = std::env::var("RANDOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    0..n
}

fn row(seed: u64) -> Row {
    let p = program(seed, &Config::default());
    let kernel = p.row.kernel.clone();
    p.expect().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{kernel}"))
}

#[test]
fn the_same_seed_gives_the_same_program() {
    for seed in 0..20 {
        let (a, b) = (program(seed, &Config::default()), program(seed, &Config::default()));
        assert_eq!(a.row.kernel, b.row.kernel);
        assert_eq!(format!("{:?}", a.row.args), format!("{:?}", b.row.args));
        assert_ne!(a.row.kernel, program(seed + 1, &Config::default()).row.kernel);
    }
}

#[test]
fn text_round_trip_is_exact() {
    for seed in seeds() {
        let k = program(seed, &Config::default()).row.kernel.renumbered();
        let text = k.text();
        let back = Kernel::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(back, k, "seed {seed}");
        assert_eq!(back.text(), text);
    }
}

#[test]
fn results_do_not_depend_on_the_order_of_programs() {
    for seed in seeds() {
        let row = row(seed);
        for order in [Order::Descending, Order::Shuffled(seed)] {
            let options = Options { order, sanitize: true, ..Options::default() };
            let mut on = |kernel: &Kernel, args: &mut [Arg], grid, _| {
                let mut args: Vec<_> = args.iter_mut().map(Arg::for_oracle).collect();
                oracle::run(kernel, &mut args, grid, &options).map(|_| ()).map_err(|e| e.to_string())
            };
            row.run(&mut on).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", row.kernel));
        }
    }
}

#[test]
fn passes_keep_every_bit() {
    for seed in seeds() {
        let before = row(seed);
        for pass in passes::PASSES {
            let mut after = before.clone();
            (pass.run)(&mut after.kernel);
            after.kernel.verify().unwrap_or_else(|e| panic!("seed {seed}, {}: {e}", pass.name));
            after
                .run(&mut on_oracle)
                .unwrap_or_else(|e| panic!("seed {seed}, {}: {e}\n{}\n{}", pass.name, before.kernel, after.kernel));
        }
        let mut after = before.clone();
        passes::optimise(&mut after.kernel);
        after.run(&mut on_oracle).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{}", before.kernel, after.kernel));
    }
}

#[test]
fn the_op_table_is_covered() {
    let mut coverage = Coverage::default();
    let (mut numbers, mut odd) = (0, 0);
    for seed in 0..400 {
        let row = row(seed);
        coverage.add(&row.kernel);
        for (arg, _) in row.args.iter().zip(0..) {
            if let Arg::View(b) = arg
                && b.elem.is_float()
                && let Some(tegula_ir::testing::Expected::Exact(bits)) = &b.expected
            {
                numbers += bits.len();
                odd +=
                    bits.iter().filter(|&&bits| !tegula_ir::Scalar { elem: b.elem, bits }.to_f64().is_finite()).count();
            }
        }
    }
    println!("{}", coverage.summary());
    // Printing is no result that executors compare.
    assert_eq!(coverage.missing(), ["print"]);
    let elems = |e: Elem| coverage.pairs.keys().filter(|p| p.1 == e).count();
    for &e in Elem::ALL {
        assert!(elems(e) >= 20, "{e} meets only {} ops", elems(e));
    }
    assert!(odd * 4 < numbers, "{odd} of {numbers} float results are infinite or NaN: the inputs are too wild");
    println!("{odd} of {numbers} float results are infinite or NaN");
}

/// A configuration keeps to what it allows.
#[test]
fn configurations_are_respected() {
    let config = Config {
        allow: |k| k != tegula_ir::OpKind::While && k != tegula_ir::OpKind::Mul,
        elems: |e| e.bits() != 8,
        ..Config::default()
    };
    for seed in 0..50 {
        program(seed, &config).row.kernel.body.walk(&mut |op| assert_ne!(op.kind, tegula_ir::OpKind::While));
    }
}

/// Programs can tell: a lowering that takes one op for another is caught by a few of them.
#[test]
fn a_wrong_op_is_noticed() {
    use tegula_ir::{OpKind, Region};
    /// Exchanges all uses, but for the first `keep`.
    fn exchange(r: &mut Region, from: OpKind, to: OpKind, keep: &mut usize) -> bool {
        let mut any = false;
        for op in &mut r.ops {
            if op.kind == from && *keep > 0 {
                *keep -= 1;
            } else if op.kind == from {
                op.kind = to;
                any = true;
            }
            op.regions.iter_mut().for_each(|r| any |= exchange(r, from, to, keep));
        }
        any
    }
    for (from, to) in
        [(OpKind::Add, OpKind::Sub), (OpKind::Lt, OpKind::Ge), (OpKind::Max, OpKind::Min), (OpKind::And, OpKind::Or)]
    {
        let (mut tried, mut noticed) = (0, 0);
        for seed in 0..200 {
            let mut row = row(seed);
            // The first two uses of `add` compute the program's number.
            if exchange(&mut row.kernel.body, from, to, &mut if from == OpKind::Add { 2 } else { 0 }) {
                tried += 1;
                noticed += row.run(&mut on_oracle).is_err() as usize;
            }
        }
        println!("{} for {}: noticed by {noticed} of {tried} programs", to.name(), from.name());
        assert!(noticed >= 8, "{} for {}: noticed by {noticed} of {tried} programs", to.name(), from.name());
    }
}
