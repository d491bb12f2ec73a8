//! Every elementwise op on every element type it takes: wild values, exact where the language says so.

use crate::harness::*;
use tegula_ir::{Elem, OpKind};

/// `z = op(x…)` over one tile of n elements, from views of given element types.
fn kernel(op: &str, from: &[Elem], to: Elem, n: usize) -> String {
    let params: Vec<String> =
        from.iter().enumerate().map(|(i, e)| format!("%{i} \"x{i}\": view<{e}, 1, unit>")).collect();
    let out = from.len();
    let mut text = format!("kernel @k({}, %{out} \"z\": view_mut<{to}, 1, unit>) {{\n", params.join(", "));
    let zero = out + 1;
    text += &format!("  %{zero} = const {{value = 0: i64}} : i64\n");
    let mut args = vec![];
    for (i, e) in from.iter().enumerate() {
        let v = zero + 1 + i;
        text += &format!("  %{v} = load %{i}, %{zero} : tile<{e}, {n}>\n");
        args.push(format!("%{v}"));
    }
    let r = zero + 1 + from.len();
    text += &format!("  %{r} = {op} {} : tile<{to}, {n}>\n  store %{out}, %{zero}, %{r}\n}}", args.join(", "));
    text
}

fn run(op: &str, from: &[Elem], to: Elem, near: Near, value: &mut dyn FnMut(&mut Rng, Elem) -> u64) {
    let mut rng = Rng(op.len() as u64 * 77 + from[0] as u64 + 5);
    for (n, len) in [(1, 1), (37, 37), (64, 50)] {
        let text = kernel(op, from, to, n);
        for _ in 0..3 {
            let mut args: Vec<Arg> = from
                .iter()
                .map(|e| Arg::view(*e, &[len], (0..len).map(|_| value(&mut rng, *e)).collect::<Vec<_>>()))
                .collect();
            args.push(Arg::random(to, &[len], &mut rng));
            check(&text, &args, [1, 1, 1], near);
        }
    }
}

fn all(op: OpKind, arity: usize, ok: fn(Elem) -> bool) {
    for &e in Elem::ALL.iter().filter(|e| ok(**e)) {
        run(op.name(), &vec![e; arity], e, Near::Exact, &mut |r, e| r.wild(e));
    }
}

#[test]
fn one_operand() {
    use OpKind::*;
    for op in [Neg, Abs] {
        all(op, 1, Elem::is_num);
    }
    all(Not, 1, |e| !e.is_float());
    for op in [Sqrt, Floor, Ceil, Round] {
        all(op, 1, Elem::is_float);
    }
}

#[test]
fn two_operands() {
    use OpKind::*;
    for op in [Add, Sub, Mul, Div, Rem, Min, Max] {
        all(op, 2, Elem::is_num);
    }
    for op in [MinNan, MaxNan] {
        all(op, 2, Elem::is_float);
    }
    for op in [And, Or, Xor] {
        all(op, 2, |e| !e.is_float());
    }
    for op in [Shl, Shr, Umulhi] {
        all(op, 2, Elem::is_int);
    }
}

#[test]
fn comparisons() {
    use OpKind::*;
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        for &e in Elem::ALL {
            run(op.name(), &[e, e], Elem::Bool, Near::Exact, &mut |r, e| r.wild(e));
        }
    }
}

#[test]
fn three_operands() {
    all(OpKind::Fma, 3, Elem::is_float);
    for &e in Elem::ALL {
        run("select", &[Elem::Bool, e, e], e, Near::Exact, &mut |r, e| r.wild(e));
    }
}

#[test]
fn casts() {
    for &from in Elem::ALL {
        for &to in Elem::ALL {
            run("cast", &[from], to, Near::Exact, &mut |r, e| r.wild(e));
        }
    }
}

#[test]
fn bitcasts() {
    for &from in Elem::ALL {
        for &to in Elem::ALL.iter().filter(|t| t.bits() == from.bits()) {
            run("bitcast", &[from], to, Near::Exact, &mut |r, e| r.bits(e));
        }
    }
}

#[test]
fn functions() {
    use OpKind::*;
    let floats = [Elem::F64, Elem::F32, Elem::F16, Elem::BF16];
    for e in floats {
        let near = Near::Within(match e {
            Elem::F64 => 1e-14,
            Elem::F32 => 4e-7,
            Elem::F16 => 1e-3,
            _ => 8e-3,
        });
        for op in [Exp, Exp2, Sin, Cos, Tanh, Erf, Sigmoid] {
            run(op.name(), &[e], e, near, &mut |r, e| r.bits(e));
        }
        for op in [Log, Log2, Rsqrt] {
            run(op.name(), &[e], e, near, &mut |r, e| r.bits(e) & !(1 << (e.bits() - 1)));
        }
        run("pow", &[e, e], e, near, &mut |r, e| r.bits(e) & !(1 << (e.bits() - 1)));
    }
}
