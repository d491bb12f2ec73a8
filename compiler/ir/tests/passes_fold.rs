//! Constant folding against the oracle: every elementwise op, every element type, edge cases and random patterns, bit
//! for bit.

#[path = "passes/gen.rs"]
mod generate;

use generate::Rng;
use tegula_ir::oracle::{Options, OracleArg, ViewArg, run};
use tegula_ir::*;

const LANES: usize = 600;

/// A kernel that applies one op to lanes of memory, if the op takes these types.
fn lanes(kind: OpKind, operands: &[Elem], result: Elem) -> Option<Kernel> {
    let mut b = Builder::new("lanes");
    let view = |elem, mutable| Type::View(ViewType { elem, rank: 1, mutable, facts: ViewFacts::default() });
    let params: Vec<Value> = operands.iter().map(|&e| b.param("x", view(e, false))).collect();
    let out = b.param("out", view(result, true));
    let at = |b: &mut Builder| {
        b.op1(
            OpKind::Const,
            &[],
            Type::scalar(Elem::I64),
            Attrs::new().with(Key::Value, Attr::Scalar(Scalar::zero(Elem::I64))),
            Loc::unknown(),
        )
    };
    let zero = at(&mut b);
    let tiles: Vec<Value> = params
        .iter()
        .zip(operands)
        .map(|(&p, &e)| b.op1(OpKind::Load, &[p, zero], Type::tile(e, [LANES]), Attrs::new(), Loc::unknown()))
        .collect();
    let r = b.op1(kind, &tiles, Type::tile(result, [LANES]), Attrs::new(), Loc::unknown());
    b.op(OpKind::Store, &[out, zero, r], &[], Attrs::new(), vec![], Loc::unknown());
    let k = b.finish();
    k.verify().is_ok().then_some(k)
}

fn bytes(v: &[Scalar]) -> Vec<u8> {
    v.iter().flat_map(|s| s.bits.to_le_bytes()[..s.elem.bytes()].to_vec()).collect()
}

/// How many lanes were folded, of how many.
fn check(kind: OpKind, operands: &[Elem], result: Elem, rng: &mut Rng) -> Option<(usize, usize)> {
    let k = lanes(kind, operands, result)?;
    let values: Vec<Vec<Scalar>> = operands.iter().map(|&e| (0..LANES).map(|_| rng.scalar(e)).collect()).collect();
    let inputs: Vec<Vec<u8>> = values.iter().map(|v| bytes(v)).collect();
    let mut out = vec![0u8; LANES * result.bytes()];
    let mut args: Vec<OracleArg> =
        inputs.iter().zip(operands).map(|(b, &e)| OracleArg::View(ViewArg::read(b, e, &[LANES as i64]))).collect();
    args.push(OracleArg::View(ViewArg::write(&mut out, result, &[LANES as i64])));
    run(&k, &mut args, [1, 1, 1], &Options::default()).unwrap();
    drop(args);
    let mut folded = 0;
    for lane in 0..LANES {
        let x: Vec<Scalar> = values.iter().map(|v| v[lane]).collect();
        let Some(found) = passes::fold(kind, &x, result) else { continue };
        let mut pattern = [0; 8];
        let n = result.bytes();
        pattern[..n].copy_from_slice(&out[lane * n..(lane + 1) * n]);
        let expected = Scalar::from_bits(result, u64::from_le_bytes(pattern));
        assert_eq!(found, expected, "{} of {x:?}: folded to {found}, the oracle says {expected}", kind.name());
        folded += 1;
    }
    Some((folded, LANES))
}

/// Ops whose results are not exact, or not fixed: they are never folded.
const LEFT: &[OpKind] = {
    use OpKind::*;
    &[Exp, Exp2, Log, Log2, Sin, Cos, Tanh, Erf, Rsqrt, Sigmoid, Pow]
};

#[test]
fn every_elementwise_op_agrees_with_the_oracle() {
    let mut rng = Rng(20);
    for &kind in OpKind::ALL.iter().filter(|k| k.is_elementwise()) {
        let mut types = 0;
        for &e in Elem::ALL {
            let tried: Vec<(Vec<Elem>, Elem)> = match kind {
                OpKind::Cast | OpKind::Bitcast => Elem::ALL.iter().map(|&to| (vec![e], to)).collect(),
                OpKind::Select => vec![(vec![Elem::Bool, e, e], e)],
                OpKind::Fma => vec![(vec![e; 3], e)],
                OpKind::Eq | OpKind::Ne | OpKind::Lt | OpKind::Le | OpKind::Gt | OpKind::Ge => {
                    vec![(vec![e; 2], Elem::Bool)]
                }
                _ => vec![(vec![e], e), (vec![e; 2], e)],
            };
            for (operands, result) in tried {
                let Some((folded, of)) = check(kind, &operands, result, &mut rng) else { continue };
                types += 1;
                if LEFT.contains(&kind) {
                    assert_eq!(folded, 0, "{} is the target's", kind.name());
                } else {
                    // NaN results and reported divisions are a minority.
                    assert!(folded * 2 > of, "{} of {operands:?} to {result}: {folded} of {of} folded", kind.name());
                }
            }
        }
        assert!(types > 0, "`{}` was never tried", kind.name());
    }
}

/// Integer division is Rust's, shifts wrap their amounts, and what a checked launch reports is not folded.
#[test]
fn integer_edges() {
    let i = |v| Scalar::from_i64(Elem::I32, v);
    let of = |kind, x, y| passes::fold(kind, &[x, y], Elem::I32);
    for (x, y, quotient, rest) in [(-7, 2, -3, -1), (7, -2, -3, 1), (-1, 2, 0, -1)] {
        assert_eq!(of(OpKind::Div, i(x), i(y)), Some(i(quotient)));
        assert_eq!(of(OpKind::Rem, i(x), i(y)), Some(i(rest)));
    }
    for (x, y) in [(5, 0), (i64::from(i32::MIN), -1)] {
        assert_eq!(of(OpKind::Div, i(x), i(y)), None);
        assert_eq!(of(OpKind::Rem, i(x), i(y)), None);
    }
    assert_eq!(of(OpKind::Shr, i(-8), i(1)), Some(i(-4)));
    assert_eq!(of(OpKind::Shl, i(3), i(33)), Some(i(6)));
    assert_eq!(of(OpKind::Shl, i(3), i(-1)), Some(i(i64::from(i32::MIN))));
    let u = |e, v: u64| Scalar::from_bits(e, v);
    for (e, x, y) in [(Elem::U16, 0xdead, 0x0dea), (Elem::U32, 0xdead_beef, 0x0dea_dbee), (Elem::U8, 0xf0, 0x0f)] {
        assert_eq!(passes::fold(OpKind::Shr, &[u(e, x), u(e, 4)], e), Some(u(e, y)));
    }
}

/// One rounding, where two would differ: 2^24 + 1 + 2^-30 lies just above a tie of f32, and f64 rounds it to the tie
/// when it is built from a product and a sum.
#[test]
fn fma_rounds_once() {
    let f = |v: f64| Scalar::from_f64(Elem::F32, v);
    let (x, y) = (f(1.0 + 2f64.powi(-12)), f(1.0 - 2f64.powi(-12)));
    // x·y = 1 − 2^-24, exactly between two floats when added to 1.
    let sum = passes::fold(OpKind::Fma, &[x, y, f(2f64.powi(-70))], Elem::F32);
    assert_eq!(sum, Some(f(1.0 - 2f64.powi(-24))));
    let tie = passes::fold(
        OpKind::Fma,
        &[f(2f64.powi(12)), f(2f64.powi(12) + 2f64.powi(-11)), f(-2f64.powi(-40))],
        Elem::F32,
    );
    // 2^24 + 2 − tiny would be 2^24 + 2; the product alone is 2^24 + 2.
    assert_eq!(
        tie,
        Some(Scalar::from_f64(Elem::F32, f32::mul_add(4096.0, 4096.0 + 0.00048828125, -(2f32.powi(-40))) as f64))
    );
}
