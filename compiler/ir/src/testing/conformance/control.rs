//! Loops, branches, assumptions.

use super::super::{K, Row, data, ints};
use crate::{AtomicKind, Attrs, Elem::*, OpKind::*, ReduceKind, Scalar};

pub(super) fn rows() -> Vec<Row> {
    vec![
        empty_inner(),
        assume_where_it_dominates(),
        inner_sum_and_empty_while(),
        dead_assume(),
        not_taken(),
        value_of_if(),
        mutated_condition(),
        loop_step(),
    ]
}

fn empty_inner() -> Row {
    let mut k = K::new("empty_inner");
    let (ub, y) = (k.param("ub", I32), k.view_mut("y", I32, 1));
    let (zero, one, four, five) = (k.int(I32, 0), k.int(I32, 1), k.int(I32, 4), k.int(I32, 5));
    let r = k.for_loop([zero, four, one], &[zero], |k, _, n| {
        k.for_loop([five, ub, one], n, |k, _, n| vec![k.add(n[0], one)])
    });
    let t = k.reshape(r[0], &[1]);
    k.write(y, t);
    Row::new("C56", "an inner loop that never runs", k.finish()).scalar(Scalar::from_i64(I32, 3)).output(
        I32,
        &[1],
        &ints(I32, [0]),
    )
}

/// `if m == 0 { assume(n > 0); side = 1 } else { for i in 0..n { for j in 0..m { out += 1 } } }` with m = 4, n = 0.
fn assume_where_it_dominates() -> Row {
    let mut k = K::new("assume_where_it_dominates");
    let (m, n, out, side) =
        (k.param("m", I32), k.param("n", I32), k.view_mut("out", I32, 1), k.view_mut("side", I32, 1));
    let (zero, one) = (k.int(I32, 0), k.int(I32, 1));
    let c = k.ew(Eq, &[m, zero]);
    let r = k.if_else(
        c,
        |k| {
            let positive = k.ew(Gt, &[n, zero]);
            k.effect(Assume, &[positive], Attrs::new());
            let t = k.splat(I32, 1.0, &[1]);
            k.write(side, t);
            vec![zero]
        },
        |k| {
            k.for_loop([zero, n, one], &[zero], |k, _, c| {
                k.for_loop([zero, m, one], c, |k, _, c| vec![k.add(c[0], one)])
            })
        },
    );
    let t = k.reshape(r[0], &[1]);
    k.write(out, t);
    Row::new("C57", "an assumption holds only where it dominates", k.finish())
        .scalar(Scalar::from_i64(I32, 4))
        .scalar(Scalar::from_i64(I32, 0))
        .output(I32, &[1], &ints(I32, [0]))
        .inout(I32, &[1], &ints(I32, [7]), &ints(I32, [7]))
}

fn inner_sum_and_empty_while() -> Row {
    let mut k = K::new("inner_sum_and_empty_while");
    let y = k.view_mut("y", I32, 1);
    let (zero, one, three, four) = (k.int(I32, 0), k.int(I32, 1), k.int(I32, 3), k.int(I32, 4));
    k.for_loop([zero, three, one], &[], |k, i, _| {
        let sum = k.for_loop([zero, four, one], &[zero], |k, j, s| vec![k.add(s[0], j)]);
        k.while_loop(&[], |k, _| k.ew(Lt, &[one, zero]), |_, _| vec![]);
        let (at, t) = (k.cast(i, I64), k.reshape(sum[0], &[1]));
        k.store(y, &[at], t);
        vec![]
    });
    Row::new("C58", "an inner sum beside an empty while", k.finish()).output(I32, &[3], &ints(I32, [6; 3]))
}

fn dead_assume() -> Row {
    let mut k = K::new("dead_assume");
    let (flag, x, y) = (k.param("flag", I32), k.view("x", I32, 1), k.view_mut("y", I32, 1));
    let zero = k.int(I32, 0);
    let t = k.read(x, &[32]);
    let s = k.reduce(t, 0, ReduceKind::Sum);
    let c = k.ew(Ne, &[flag, zero]);
    k.if_else(
        c,
        |k| {
            let never = k.ew(Eq, &[flag, zero]);
            k.effect(Assume, &[never], Attrs::new());
            vec![]
        },
        |_| vec![],
    );
    let at = k.splat(I64, 0.0, &[1]);
    k.atomic(AtomicKind::Add, y, &[at], s, None);
    Row::new("C61", "an assumption in a dead branch changes nothing", k.finish())
        .scalar(Scalar::from_i64(I32, 0))
        .input(I32, &[32], &ints(I32, [96; 32]))
        .inout(I32, &[1], &ints(I32, [0]), &ints(I32, [3072]))
}

fn not_taken() -> Row {
    let mut k = K::new("not_taken");
    let (x, y) = (k.view_mut("x", I32, 1), k.view_mut("y", Bool, 1));
    let no = k.constant(Scalar::bool(false), &[]);
    let yes = k.constant(Scalar::bool(true), &[]);
    // false && f(&mut x)
    let and = k.if_else(
        no,
        |k| {
            let t = k.splat(I32, 1.0, &[2]);
            k.write(x, t);
            vec![yes]
        },
        |_| vec![no],
    );
    // true || f(&mut x)
    let or = k.if_else(
        yes,
        |_| vec![yes],
        |k| {
            let t = k.splat(I32, 2.0, &[2]);
            k.write(x, t);
            vec![no]
        },
    );
    let parts = [and[0], or[0]].map(|v| k.reshape(v, &[1]));
    let t = k.cat(&parts, 0);
    k.write(y, t);
    let five = ints(I32, [5; 2]);
    Row::new("C71", "the side that is not taken has no effect", k.finish()).inout(I32, &[2], &five, &five).output(
        Bool,
        &[2],
        &[0, 1],
    )
}

fn value_of_if() -> Row {
    let mut k = K::new("value_of_if");
    let (x, y) = (k.view("x", Bool, 1), k.view_mut("y", I32, 1));
    let p = k.program_id(0);
    let at = k.cast(p, I64);
    let c = k.load(x, &[at], &[1]);
    let c = k.reshape(c, &[]);
    let v = k.if_else(c, |k| vec![k.splat(I32, 1.0, &[1])], |k| vec![k.splat(I32, 2.0, &[1])]);
    k.store(y, &[at], v[0]);
    Row::new("C72", "the value of an if follows its condition", k.finish())
        .input(Bool, &[5], &[1, 0, 0, 1, 255])
        .output(I32, &[5], &ints(I32, [1, 2, 2, 1, 1]))
        .grid([5, 1, 1])
}

/// `if x > 0 { x = -x }` then again: the second sees the new x.
fn mutated_condition() -> Row {
    let mut k = K::new("mutated_condition");
    let (x, y) = (k.view("x", F32, 1), k.view_mut("y", F32, 1));
    let p = k.program_id(0);
    let at = k.cast(p, I64);
    let t = k.load(x, &[at], &[1]);
    let mut v = k.reshape(t, &[]);
    for step in [1.0, 10.0] {
        let zero = k.splat(F32, 0.0, &[]);
        let c = k.ew(Gt, &[v, zero]);
        v = k.if_else(
            c,
            |k| vec![k.ew(Neg, &[v])],
            |k| {
                let s = k.splat(F32, step, &[]);
                vec![k.add(v, s)]
            },
        )[0];
    }
    let t = k.reshape(v, &[1]);
    k.store(y, &[at], t);
    // 3 → −3 → 7; −2 → −1 → 9; −0.5 → 0.5 → −0.5.
    Row::new("C88", "a condition is evaluated before the change", k.finish())
        .input(F32, &[3], &data(F32, &[3.0, -2.0, -0.5]))
        .output(F32, &[3], &data(F32, &[7.0, 9.0, -0.5]))
        .grid([3, 1, 1])
}

fn loop_step() -> Row {
    let mut k = K::new("loop_step");
    let (hi, y) = (k.param("hi", I32), k.view_mut("y", I32, 1));
    let (zero, three, start) = (k.int(I32, 0), k.int(I32, 3), k.at(0));
    k.for_loop([zero, hi, three], &[start], |k, i, at| {
        let one = k.at(1);
        let t = k.reshape(i, &[1]);
        k.store(y, at, t);
        vec![k.add(at[0], one)]
    });
    Row::new("C89", "0, 3, 6, 9", k.finish()).scalar(Scalar::from_i64(I32, 10)).inout(
        I32,
        &[6],
        &ints(I32, [-1; 6]),
        &ints(I32, [0, 3, 6, 9, -1, -1]),
    )
}
