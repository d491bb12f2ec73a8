//! Every elementwise op on every element type it takes: wild values, exact where the language says so. One kernel an
//! element type holds all ops of a kind.

use crate::harness::*;
use tegula_ir::{Elem, OpKind};

/// `z_j = op_j(x…)` for ops that all take tiles of `from` and give tiles of the types named with them.
fn kernel(ops: &[(String, Elem)], from: &[Elem], n: usize) -> String {
    let mut params: Vec<String> =
        from.iter().enumerate().map(|(i, e)| format!("%{i} \"x{i}\": view<{e}, 1, unit>")).collect();
    for (j, (_, to)) in ops.iter().enumerate() {
        params.push(format!("%{} \"z{j}\": view_mut<{to}, 1, unit>", from.len() + j));
    }
    let zero = params.len();
    let mut text = format!("kernel @k({}) {{\n  %{zero} = const {{value = 0: i64}} : i64\n", params.join(", "));
    let mut args = vec![];
    for (i, e) in from.iter().enumerate() {
        text += &format!("  %{} = load %{i}, %{zero} : tile<{e}, {n}>\n", zero + 1 + i);
        args.push(format!("%{}", zero + 1 + i));
    }
    for (j, (op, to)) in ops.iter().enumerate() {
        let r = zero + 1 + from.len() + j;
        text += &format!("  %{r} = {op} {} : tile<{to}, {n}>\n", args.join(", "));
        text += &format!("  store %{}, %{zero}, %{r}\n", from.len() + j);
    }
    text + "}"
}

type Values = fn(&mut Rng, Elem) -> u64;

fn run(ops: &[(String, Elem)], from: &[Elem], near: Near, value: Values) {
    let mut rng = Rng(ops.len() as u64 * 77 + from[0] as u64 + 5);
    // Whole vectors and a single element that is left; and a tile that reaches beyond its view.
    let text = kernel(ops, from, 33);
    for len in [33, 30, 33, 33, 33, 33] {
        let mut args: Vec<Arg> = from
            .iter()
            .map(|e| Arg::view(*e, &[len], (0..len).map(|_| value(&mut rng, *e)).collect::<Vec<_>>()))
            .collect();
        args.extend(ops.iter().map(|(_, to)| Arg::random(*to, &[len], &mut rng)));
        check(&text, &args, [1, 1, 1], near);
    }
}

fn named(ops: &[OpKind], to: Elem) -> Vec<(String, Elem)> {
    ops.iter().map(|op| (op.name().to_string(), to)).collect()
}

#[test]
fn one_operand() {
    use OpKind::*;
    for &e in Elem::ALL {
        let ops: &[OpKind] = match e {
            e if e.is_float() => &[Neg, Abs, Sqrt, Floor, Ceil, Round],
            Elem::Bool => &[Not],
            _ => &[Neg, Abs, Not],
        };
        run(&named(ops, e), &[e], Near::Exact, Rng::wild);
    }
}

#[test]
fn two_operands() {
    use OpKind::*;
    for &e in Elem::ALL {
        let ops: &[OpKind] = match e {
            e if e.is_float() => &[Add, Sub, Mul, Div, Rem, Min, Max, MinNan, MaxNan],
            Elem::Bool => &[And, Or, Xor],
            _ => &[Add, Sub, Mul, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr, Umulhi],
        };
        let mut ops = named(ops, e);
        ops.extend(named(&[Eq, Ne, Lt, Le, Gt, Ge], Elem::Bool));
        run(&ops, &[e, e], Near::Exact, Rng::wild);
    }
}

#[test]
fn three_operands() {
    for &e in Elem::ALL {
        if e.is_float() {
            run(&named(&[OpKind::Fma], e), &[e; 3], Near::Exact, Rng::wild);
        }
        run(&named(&[OpKind::Select], e), &[Elem::Bool, e, e], Near::Exact, Rng::wild);
    }
}

#[test]
fn casts() {
    for &from in Elem::ALL {
        let ops: Vec<(String, Elem)> = Elem::ALL.iter().map(|to| ("cast".into(), *to)).collect();
        run(&ops, &[from], Near::Exact, Rng::wild);
    }
}

#[test]
fn bitcasts() {
    for &from in Elem::ALL {
        let same = Elem::ALL.iter().filter(|t| t.bits() == from.bits());
        run(&same.map(|to| ("bitcast".into(), *to)).collect::<Vec<_>>(), &[from], Near::Exact, Rng::bits);
    }
}

#[test]
fn functions() {
    use OpKind::*;
    let positive: Values = |r, e| r.bits(e) & !(1 << (e.bits() - 1));
    for (e, near) in [(Elem::F64, 1e-14), (Elem::F32, 4e-7), (Elem::F16, 1e-3), (Elem::BF16, 8e-3)] {
        let near = Near::Within(near);
        run(&named(&[Exp, Exp2, Sin, Cos, Tanh, Erf, Sigmoid], e), &[e], near, Rng::bits);
        run(&named(&[Log, Log2, Rsqrt], e), &[e], near, positive);
        run(&named(&[Pow], e), &[e, e], near, positive);
    }
}
