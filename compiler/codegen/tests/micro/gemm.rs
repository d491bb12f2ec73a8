//! `gemm`: every output is one fma chain in ascending k, for every extent, kind of element and place of the operands.

use crate::harness::{Function, Random, TARGETS, compile, runs};
use tegula_codegen::lower::cpu::micro::{
    Stride,
    gemm::{Gemm, Kind, Operands, PANEL, Stored},
};

/// How a test lays out B.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// Panels of 16, padded.
    Panels,
    /// Row-major.
    Rows,
}

/// f(a, b, c), A and C with rows of k + 3 and n + 5 elements.
fn function(target: &str, g: Gemm, layout: Layout) -> Function {
    compile(target, |c, p| {
        let (size, stored) = (g.kind.bytes() as i64, g.stored_bytes() as i64);
        let (b_panel, b_row) = match layout {
            Layout::Panels => (PANEL as i64 * g.k as i64 * stored, PANEL as i64 * stored),
            Layout::Rows => (PANEL as i64 * stored, g.n as i64 * stored),
        };
        let [b_panel, b_row] = [b_panel, b_row].map(Stride::Fixed);
        let (a_row, c_row) = (Stride::Fixed((g.k as i64 + 3) * size), Stride::Fixed((g.n as i64 + 5) * size));
        g.emit(c, &Operands { a: p[0], a_row, b: p[1], b_panel, b_row, c: p[2], c_row, exists: None });
    })
}

fn panels<T: Copy>(b: &[T], k: usize, n: usize, zero: T) -> Vec<T> {
    let mut out = vec![zero; n.div_ceil(PANEL) * PANEL * k];
    for row in 0..k {
        for col in 0..n {
            out[(col / PANEL * k + row) * PANEL + col % PANEL] = b[row * n + col];
        }
    }
    out
}

fn bytes<T: Copy>(x: &[T]) -> *const u8 {
    x.as_ptr().cast()
}

#[test]
fn f32_is_one_fma_chain() {
    let mut random = Random::new(1);
    for target in TARGETS.into_iter().filter(|t| !t.contains("vnni")) {
        for (m, n, k) in [
            (1, 16, 4),
            (1, 300, 7),
            (2, 40, 33),
            (3, 17, 1),
            (4, 64, 64),
            (5, 1, 9),
            (7, 31, 6),
            (13, 33, 12),
            (25, 80, 3),
            (30, 96, 40),
        ] {
            for layout in [Layout::Panels, Layout::Rows] {
                let g = Gemm { kind: Kind::F32, stored: Stored::Plain, m, n, k, padded: layout == Layout::Panels };
                let f = function(target, g, layout);
                if !runs(target) {
                    continue;
                }
                let (a, b, before) = (random.floats(m * (k + 3)), random.floats(k * n), random.floats(m * (n + 5)));
                let mut c = before.clone();
                let stored = if layout == Layout::Panels { panels(&b, k, n, 0.0) } else { b.clone() };
                unsafe { f.call(&[bytes(&a), bytes(&stored), c.as_mut_ptr().cast()]) };
                for i in 0..m {
                    for j in 0..n + 5 {
                        if i == m - 1 && j >= n {
                            continue;
                        }
                        let at = i * (n + 5) + j;
                        let mut want = before[at];
                        if j < n {
                            want = (0..k).fold(want, |s, q| a[i * (k + 3) + q].mul_add(b[q * n + j], s));
                        }
                        assert_eq!(c[at].to_bits(), want.to_bits(), "{target} {m}x{n}x{k} {layout:?} at ({i}, {j})");
                    }
                }
            }
        }
    }
}
