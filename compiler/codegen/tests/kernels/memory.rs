//! Views: edges, strides, positions outside, narrow; gather, scatter, atomics; reads and writes of one view.

use crate::harness::*;
use tegula_ir::Elem;

const ELEMS: [Elem; 6] = [Elem::F32, Elem::I8, Elem::Bool, Elem::F16, Elem::I64, Elem::U16];

#[test]
fn tiles_over_edges() {
    // Programs walk from −2 tiles to beyond the end, so that tiles hang over every side or miss the view.
    for e in ELEMS {
        for facts in ["", ", unit"] {
            let pad = if e == Elem::Bool {
                "true"
            } else if e.is_float() {
                "-1.5"
            } else {
                "3"
            };
            let text = format!(
                "kernel @k(%0 \"x\": view<{e}, 2{facts}>, %1 \"y\": view_mut<{e}, 2{facts}>) {{
                  %2 = program_id {{axis = 0}} : i32
                  %3 = program_id {{axis = 1}} : i32
                  %4 = cast %2 : i64
                  %5 = cast %3 : i64
                  %6 = const {{value = 2: i64}} : i64
                  %7 = sub %4, %6 : i64
                  %8 = sub %5, %6 : i64
                  %9 = const {{value = 3: i64}} : i64
                  %10 = const {{value = 11: i64}} : i64
                  %11 = mul %7, %9 : i64
                  %12 = mul %8, %10 : i64
                  %13 = const {{value = 1: i64}} : i64
                  %14 = add %12, %13 : i64
                  %15 = load %0, %11, %14 {{pad = {pad}: {e}}} : tile<{e}, 3, 21>
                  store %1, %11, %12, %15
                }}"
            );
            let mut rng = Rng(3);
            let args = [Arg::random(e, &[8, 37], &mut rng), Arg::random(e, &[7, 40], &mut rng)];
            // Programs overlap in what they write: one at a time.
            check(&text, &args, [6, 7, 1], Near::Exact);
        }
    }
}

#[test]
fn strides() {
    let mut rng = Rng(4);
    for e in [Elem::F32, Elem::I8, Elem::F64] {
        let text = format!(
            "kernel @k(%0 \"x\": view<{e}, 2>, %1 \"y\": view_mut<{e}, 2>) {{
              %2 = const {{value = 0: i64}} : i64
              %3 = load %0, %2, %2 : tile<{e}, 5, 19>
              store %1, %2, %2, %3
            }}"
        );
        for (strides, offset) in [([40, 1], 0), ([1, 7], 3), ([2, 30], 7), ([0, 0], 5)] {
            let x = Arg::strided(e, &[4, 18], &strides, offset, 600, &mut rng);
            let y = Arg::strided(e, &[5, 17], &[60, 3], 2, 400, &mut rng);
            check(&text, &[x, y], [1, 1, 1], Near::Exact);
        }
    }
}

#[test]
fn narrowed_views() {
    let text = "kernel @k(%0 \"x\": view<i32, 2, unit>, %1 \"y\": view_mut<i32, 2, unit>, %2 \"start\": i64, %3 \"len\": i64) {
      %4 = narrow %0, %2, %3 {axis = 0} : view<i32, 2, unit>
      %5 = narrow %1, %2, %3 {axis = 1} : view_mut<i32, 2, unit>
      %6 = const {value = -1: i64} : i64
      %7 = load %4, %6, %6 {pad = -9: i32} : tile<i32, 6, 18>
      store %5, %6, %6, %7
      %8 = dim %4 {axis = 0} : i32
      %9 = dim %5 {axis = 1} : i32
      %10 = broadcast %8 : tile<i32, 1, 1>
      %11 = broadcast %9 : tile<i32, 1, 1>
      %12 = const {value = 0: i64} : i64
      %13 = const {value = 1: i64} : i64
      store %1, %12, %12, %10
      store %1, %12, %13, %11
    }";
    let mut rng = Rng(5);
    for (start, len) in [(0, 4), (3, 100), (-5, 3), (9, 2), (2, -1), (i64::MAX, i64::MAX), (i64::MIN, 1)] {
        let scalar = |v| Arg::Scalar(tegula_ir::Scalar::from_i64(Elem::I64, v));
        let args = [
            Arg::random(Elem::I32, &[7, 20], &mut rng),
            Arg::random(Elem::I32, &[5, 30], &mut rng),
            scalar(start),
            scalar(len),
        ];
        check(text, &args, [1, 1, 1], Near::Exact);
    }
}

#[test]
fn index_tiles() {
    let mut rng = Rng(6);
    for e in ELEMS {
        let text = format!(
            "kernel @k(%0 \"x\": view<{e}, 2>, %1 \"i\": view<i64, 1, unit>, %2 \"j\": view<i64, 1, unit>, %3 \"m\": view<bool, 1, unit>, %4 \"y\": view_mut<{e}, 1, unit>, %5 \"z\": view_mut<{e}, 1, unit>, %6 \"w\": view_mut<{e}, 2>) {{
              %7 = const {{value = 0: i64}} : i64
              %8 = load %1, %7 : tile<i64, 35>
              %9 = load %2, %7 : tile<i64, 35>
              %10 = load %3, %7 : tile<bool, 35>
              %11 = gather %0, %8, %9 : tile<{e}, 35>
              %12 = gather %0, %8, %9, %10 {{masked}} : tile<{e}, 35>
              store %4, %7, %11
              store %5, %7, %12
              scatter %6, %9, %8, %11, %10 {{masked}}
              scatter %6, %8, %9, %12
            }}"
        );
        let index = |rng: &mut Rng| {
            Arg::view(Elem::I64, &[35], (0..35).map(|_| (rng.below(9) as i64 - 2) as u64).collect::<Vec<_>>())
        };
        let args = [
            Arg::random(e, &[5, 6], &mut rng),
            index(&mut rng),
            index(&mut rng),
            Arg::random(Elem::Bool, &[35], &mut rng),
            Arg::random(e, &[35], &mut rng),
            Arg::random(e, &[33], &mut rng),
            Arg::random(e, &[6, 5], &mut rng),
        ];
        check(&text, &args, [1, 1, 1], Near::Exact);
    }
}

#[test]
fn atomics() {
    let mut rng = Rng(7);
    for e in [Elem::I32, Elem::U64, Elem::F32, Elem::F16, Elem::I16, Elem::F64, Elem::BF16] {
        let mut body = String::new();
        let kinds = if e.is_float() { "add max min xchg" } else { "add max min and or xor xchg" };
        for (n, kind) in kinds.split(' ').enumerate() {
            let kind = if kind == "xchg" { kind.to_string() } else { format!("atomic_{kind}") };
            let order = ["relaxed", "acquire", "release", "acq_rel"][n % 4];
            body += &format!(
                "%{} = atomic %0, %10, %11, %12 {{kind = {kind}, masked, order = {order}}} : tile<{e}, 9>\nstore %4, %{}, %{}\n",
                20 + n,
                40 + n,
                20 + n
            );
            body = format!("%{} = const {{value = {}: i64}} : i64\n{body}", 40 + n, 9 * n);
        }
        let text = format!(
            "kernel @k(%0 \"x\": view_mut<{e}, 1>, %1 \"i\": view<i64, 1, unit>, %2 \"v\": view<{e}, 1, unit>, %3 \"m\": view<bool, 1, unit>, %4 \"old\": view_mut<{e}, 1, unit>) {{
              %9 = const {{value = 0: i64}} : i64
              %10 = load %1, %9 : tile<i64, 9>
              %11 = load %2, %9 : tile<{e}, 9>
              %12 = load %3, %9 : tile<bool, 9>
              {body}
            }}"
        );
        // Whole numbers: exact in any order.
        let small = |rng: &mut Rng| tegula_ir::Scalar::from_i64(e, rng.below(20) as i64 - 10).bits;
        let args = [
            Arg::view(e, &[7], (0..7).map(|_| small(&mut rng)).collect::<Vec<_>>()),
            Arg::view(Elem::I64, &[9], [0, 3, 6, 7, 2, u64::MAX, 1, 5, 4]),
            Arg::view(e, &[9], (0..9).map(|_| small(&mut rng)).collect::<Vec<_>>()),
            Arg::random(Elem::Bool, &[9], &mut rng),
            Arg::random(e, &[63], &mut rng),
        ];
        check(&text, &args, [1, 1, 1], Near::Exact);
    }
    let text = "kernel @k(%0 \"x\": view_mut<i32, 1>, %1 \"old\": view_mut<i32, 1, unit>) {
      %2 = iota : tile<i64, 12>
      %3 = iota : tile<i32, 12>
      %4 = neg %3 : tile<i32, 12>
      %5 = atomic_cas %0, %2, %3, %4 {order = acq_rel} : tile<i32, 12>
      %6 = const {value = 0: i64} : i64
      store %1, %6, %5
    }";
    let args = [Arg::view(Elem::I32, &[10], [0, 1, 5, 3, 4, 2, 6, 7, 9, 8]), Arg::random(Elem::I32, &[12], &mut rng)];
    check(text, &args, [1, 1, 1], Near::Exact);
}

#[test]
fn one_view_read_and_written() {
    let mut rng = Rng(8);
    // In place; shifted by one either way; used again after it was overwritten; transposed onto itself.
    let texts = [
        "%9 = load %0, %1, %1 : tile<i32, 20, 20>\n%10 = neg %9 : tile<i32, 20, 20>\nstore %0, %1, %1, %10",
        "%9 = load %0, %1, %1 : tile<i32, 20, 20>\n%10 = neg %9 : tile<i32, 20, 20>\nstore %0, %1, %2, %10",
        "%9 = load %0, %1, %2 : tile<i32, 20, 20>\n%10 = neg %9 : tile<i32, 20, 20>\nstore %0, %2, %1, %10",
        "%9 = load %0, %1, %1 : tile<i32, 20, 20>\n%10 = neg %9 : tile<i32, 20, 20>\nstore %0, %1, %1, %10\n%11 = add %9, %10 : tile<i32, 20, 20>\nstore %0, %2, %2, %9\nstore %0, %2, %1, %11",
        "%9 = load %0, %1, %1 : tile<i32, 20, 20>\n%10 = permute %9 {perm = [1, 0]} : tile<i32, 20, 20>\nstore %0, %1, %1, %10",
        "%9 = load %0, %1, %1 : tile<i32, 20, 20>\n%10 = permute %9 {perm = [1, 0]} : tile<i32, 20, 20>\n%11 = add %9, %10 : tile<i32, 20, 20>\nstore %0, %1, %1, %11",
    ];
    for body in texts {
        let text = format!(
            "kernel @k(%0 \"x\": view_mut<i32, 2, unit>) {{\n%1 = const {{value = 0: i64}} : i64\n%2 = const {{value = 1: i64}} : i64\n{body}\n}}"
        );
        check(&text, &[Arg::random(Elem::I32, &[21, 21], &mut rng)], [1, 1, 1], Near::Exact);
    }
}
