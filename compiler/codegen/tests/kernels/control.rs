//! Loops and branches with carried scalars and tiles.

use crate::harness::*;
use tegula_ir::{Elem, Scalar};

fn run(body: &str, scalars: &[i32], shape: &[i64], near: Near) {
    // %0 input, %1 output, %2… scalars (i32); %90, %91 = 0, 1 (i64); %92, %93 = 0, 1 (i32); %95 the input tile.
    let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
    let tile = format!("tile<f32, {}>", dims.join(", "));
    let params: String = (0..scalars.len()).map(|i| format!(", %{} \"s{i}\": i32", i + 2)).collect();
    let zeros = ", %90".repeat(shape.len());
    let rank = shape.len();
    let text = format!(
        "kernel @k(%0 \"x\": view<f32, {rank}, unit>, %1 \"y\": view_mut<f32, {rank}, unit>{params}) {{
        %90 = const {{value = 0: i64}} : i64
        %91 = const {{value = 1: i64}} : i64
        %92 = const {{value = 0: i32}} : i32
        %93 = const {{value = 1: i32}} : i32
        %95 = load %0{zeros} : {tile}
        {}
        store %1{zeros}, %200
      }}",
        body.replace("TILE", &tile).replace("ZEROS", &zeros)
    );
    let mut rng = Rng(11);
    let mut args = vec![Arg::random(Elem::F32, shape, &mut rng), Arg::random(Elem::F32, shape, &mut rng)];
    args.extend(scalars.iter().map(|s| Arg::i32(*s)));
    check(&text, &args, [1, 1, 1], near);
}

#[test]
fn carried_tiles() {
    for n in [0, 1, 4] {
        // An accumulator, twice in one loop, and exchanged with each turn.
        run(
            "%200 = for %92, %2, %93, %95 : TILE {\n(%100: i32, %101: TILE)\n%102 = add %101, %95 : TILE\nyield %102\n}",
            &[n],
            &[3, 19],
            Near::Exact,
        );
        run(
            "%201, %202 = for %92, %2, %93, %95, %95 : TILE, TILE {\n(%100: i32, %101: TILE, %103: TILE)\n%102 = add %101, %103 : TILE\nyield %103, %102\n}\n%200 = sub %201, %202 : TILE",
            &[n],
            &[3, 19],
            Near::Exact,
        );
        run(
            "%96 = neg %95 : TILE\n%201, %202 = for %92, %2, %93, %95, %96 : TILE, TILE {\n(%100: i32, %101: TILE, %103: TILE)\nyield %103, %101\n}\n%203 = add %202, %202 : TILE\n%200 = add %203, %201 : TILE",
            &[n],
            &[40],
            Near::Exact,
        );
        // Transposed onto itself each turn; the old value is needed after the new one is made.
        run(
            "%200 = for %92, %2, %93, %95 : TILE {\n(%100: i32, %101: TILE)\n%102 = permute %101 {perm = [1, 0]} : TILE\n%103 = add %102, %95 : TILE\nyield %103\n}",
            &[n],
            &[17, 17],
            Near::Exact,
        );
        run(
            "%201, %200 = for %92, %2, %93, %95, %95 : TILE, TILE {\n(%100: i32, %101: TILE, %103: TILE)\n%102 = add %101, %95 : TILE\n%104 = sub %103, %101 : TILE\nyield %102, %104\n}",
            &[n],
            &[5, 9],
            Near::Exact,
        );
    }
}

#[test]
fn carried_scalars_and_nesting() {
    let body = "%201, %200 = for %92, %2, %93, %92, %95 : i32, TILE {
        (%100: i32, %101: i32, %102: TILE)
        %103 = add %101, %100 : i32
        %104 = cast %103 : f32
        %105 = broadcast %104 : TILE
        %106 = for %100, %2, %93, %102 : TILE {
          (%107: i32, %108: TILE)
          %109 = sub %105, %108 : TILE
          %110 = max %109, %95 : TILE
          yield %110
        }
        yield %103, %106
      }";
    run(body, &[5], &[2, 11], Near::Exact);
}

#[test]
fn whiles_and_ifs() {
    let body = "%201, %200 = while %2, %95 : i32, TILE {
        (%100: i32, %101: TILE)
        %102 = gt %100, %92 : bool
        yield %102
      } {
        (%103: i32, %104: TILE)
        %105 = const {value = 2: i32} : i32
        %106 = rem %103, %105 : i32
        %107 = eq %106, %92 : bool
        %108, %109 = if %107 : i32, TILE {
          %110 = div %103, %105 : i32
          %111 = neg %104 : TILE
          yield %110, %111
        } {
          %112 = sub %103, %93 : i32
          %113 = add %104, %95 : TILE
          yield %112, %113
        }
        yield %108, %109
      }";
    for n in [-1, 0, 1, 13, 100] {
        run(body, &[n], &[3, 7], Near::Exact);
    }
    // A branch that stores, a result that is the tile itself.
    let body = "%96 = gt %2, %92 : bool\n%97 = if %96 : TILE {\n%98 = add %95, %95 : TILE\nstore %1ZEROS, %98\n%99 = load %1ZEROS : TILE\nyield %99\n} {\nyield %95\n}\n%200 = sub %97, %95 : TILE";
    run(body, &[1], &[4, 18], Near::Exact);
    run(body, &[0], &[4, 18], Near::Exact);
}

#[test]
fn loop_bounds() {
    // Steps, empty ranges, unsigned counters, and ends near the type's.
    for (e, lo, hi, step) in [
        (Elem::I32, -5, 6, 3),
        (Elem::I32, 5, 5, 1),
        (Elem::I32, 6, 5, 1),
        (Elem::U32, 0xffff_fff0, 0xffff_ffff, 7),
        (Elem::I8, 100, 127, 20),
        (Elem::U8, 200, 255, 50),
        (Elem::I64, i64::MAX - 10, i64::MAX, 4),
        (Elem::U64, -20, -1, 6),
        (Elem::I64, i64::MIN, i64::MIN + 5, 2),
    ] {
        let text = format!(
            "kernel @k(%0 \"lo\": {e}, %1 \"hi\": {e}, %2 \"step\": {e}, %3 \"y\": view_mut<{e}, 1, unit>) {{
              %4 = const {{value = 0: i64}} : i64
              %5 = const {{value = 1: {e}}} : {e}
              %6 = const {{value = 0: {e}}} : {e}
              %7, %8 = for %0, %1, %2, %6, %6 : {e}, {e} {{
                (%9: {e}, %10: {e}, %11: {e})
                %12 = add %10, %5 : {e}
                %13 = xor %11, %9 : {e}
                yield %12, %13
              }}
              %14 = broadcast %7 : tile<{e}, 1>
              %15 = broadcast %8 : tile<{e}, 1>
              %16 = const {{value = 1: i64}} : i64
              store %3, %4, %14
              store %3, %16, %15
            }}"
        );
        let scalar = |v| Arg::Scalar(Scalar::from_i64(e, v));
        check(&text, &[scalar(lo), scalar(hi), scalar(step), Arg::view(e, &[2], [7, 7])], [1, 1, 1], Near::Exact);
    }
}

fn matmul(elem: &str, bm: usize, bn: usize, bk: usize) -> String {
    format!(
        "kernel @matmul(%0 \"a\": view<{elem}, 2, unit>, %1 \"b\": view<{elem}, 2, unit>, %2 \"c\": view_mut<{elem}, 2, unit>) {{
          %3 = program_id {{axis = 0}} : i32
          %4 = program_id {{axis = 1}} : i32
          %5 = cast %3 : i64
          %6 = cast %4 : i64
          %7 = const {{value = {bm}: i64}} : i64
          %8 = const {{value = {bn}: i64}} : i64
          %9 = mul %5, %7 : i64
          %10 = mul %6, %8 : i64
          %11 = dim %0 {{axis = 1}} : i32
          %12 = const {{value = 0: i32}} : i32
          %13 = const {{value = {bk}: i32}} : i32
          %14 = const {{value = 0.0: f32}} : tile<f32, {bm}, {bn}>
          %15 = for %12, %11, %13, %14 : tile<f32, {bm}, {bn}> {{
            (%16: i32, %17: tile<f32, {bm}, {bn}>)
            %18 = cast %16 : i64
            %19 = load %0, %9, %18 : tile<{elem}, {bm}, {bk}>
            %20 = load %1, %18, %10 : tile<{elem}, {bk}, {bn}>
            %21 = dot %19, %20, %17 : tile<f32, {bm}, {bn}>
            yield %21
          }}
          %22 = cast %15 : tile<{elem}, {bm}, {bn}>
          store %2, %9, %10, %22
        }}"
    )
}

#[test]
fn matrix_products() {
    let mut rng = Rng(12);
    for (e, near) in [(Elem::F32, Near::Exact), (Elem::F16, Near::Within(1e-3)), (Elem::BF16, Near::Within(8e-3))] {
        for (bm, bn, bk) in [(16, 32, 24), (5, 7, 9)] {
            let text = matmul(e.name(), bm, bn, bk);
            for (m, n, k) in [(16, 32, 48), (33, 40, 50), (1, 1, 1)] {
                let args = [
                    Arg::random(e, &[m, k], &mut rng),
                    Arg::random(e, &[k, n], &mut rng),
                    Arg::random(e, &[m, n], &mut rng),
                ];
                let grid = [(m as i32 + bm as i32 - 1) / bm as i32, (n as i32 + bn as i32 - 1) / bn as i32, 1];
                check(&text, &args, grid, near);
            }
        }
    }
}

#[test]
fn attention() {
    // Streaming softmax: m, l and the output are carried, rescaled and accumulated onto.
    let (t, d, bk) = (9, 20, 8);
    let text = format!(
        "kernel @attention(%0 \"q\": view<f32, 2, unit>, %1 \"k\": view<f32, 2, unit>, %2 \"v\": view<f32, 2, unit>, %3 \"o\": view_mut<f32, 2, unit>) {{
          %4 = const {{value = 0: i64}} : i64
          %5 = load %0, %4, %4 : tile<f32, {t}, {d}>
          %6 = const {{value = bits(0xff800000): f32}} : tile<f32, {t}, 1>
          %7 = const {{value = 0.0: f32}} : tile<f32, {t}, 1>
          %8 = const {{value = 0.0: f32}} : tile<f32, {t}, {d}>
          %9 = dim %1 {{axis = 0}} : i32
          %10 = const {{value = 0: i32}} : i32
          %11 = const {{value = {bk}: i32}} : i32
          %12, %13, %14 = for %10, %9, %11, %6, %7, %8 : tile<f32, {t}, 1>, tile<f32, {t}, 1>, tile<f32, {t}, {d}> {{
            (%15: i32, %16: tile<f32, {t}, 1>, %17: tile<f32, {t}, 1>, %18: tile<f32, {t}, {d}>)
            %19 = cast %15 : i64
            %20 = load %1, %19, %4 : tile<f32, {bk}, {d}>
            %21 = permute %20 {{perm = [1, 0]}} : tile<f32, {d}, {bk}>
            %22 = const {{value = 0.0: f32}} : tile<f32, {t}, {bk}>
            %23 = dot %5, %21, %22 : tile<f32, {t}, {bk}>
            %24 = iota : tile<i32, {bk}>
            %25 = broadcast %15 : tile<i32, {bk}>
            %26 = add %24, %25 : tile<i32, {bk}>
            %27 = broadcast %9 : tile<i32, {bk}>
            %28 = lt %26, %27 : tile<bool, {bk}>
            %29 = reshape %28 : tile<bool, 1, {bk}>
            %30 = broadcast %29 : tile<bool, {t}, {bk}>
            %31 = const {{value = bits(0xff800000): f32}} : tile<f32, {t}, {bk}>
            %32 = select %30, %23, %31 : tile<f32, {t}, {bk}>
            %33 = reduce %32 {{axis = 1, kind = max}} : tile<f32, {t}, 1>
            %34 = max %16, %33 : tile<f32, {t}, 1>
            %35 = sub %16, %34 : tile<f32, {t}, 1>
            %36 = exp %35 : tile<f32, {t}, 1>
            %37 = broadcast %34 : tile<f32, {t}, {bk}>
            %38 = sub %32, %37 : tile<f32, {t}, {bk}>
            %39 = exp %38 : tile<f32, {t}, {bk}>
            %40 = reduce %39 {{axis = 1, kind = sum}} : tile<f32, {t}, 1>
            %41 = mul %17, %36 : tile<f32, {t}, 1>
            %42 = add %41, %40 : tile<f32, {t}, 1>
            %43 = broadcast %36 : tile<f32, {t}, {d}>
            %44 = mul %18, %43 : tile<f32, {t}, {d}>
            %45 = load %2, %19, %4 : tile<f32, {bk}, {d}>
            %46 = dot %39, %45, %44 : tile<f32, {t}, {d}>
            yield %34, %42, %46
          }}
          %47 = broadcast %13 : tile<f32, {t}, {d}>
          %48 = div %14, %47 : tile<f32, {t}, {d}>
          store %3, %4, %4, %48
        }}"
    );
    let mut rng = Rng(13);
    for n in [5, 8, 29] {
        let args = [
            Arg::random(Elem::F32, &[t, d], &mut rng),
            Arg::random(Elem::F32, &[n, d], &mut rng),
            Arg::random(Elem::F32, &[n, d], &mut rng),
            Arg::random(Elem::F32, &[t, d], &mut rng),
        ];
        check(&text, &args, [1, 1, 1], Near::Within(2e-5));
    }
}
