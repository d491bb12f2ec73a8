//! Products whose operands come to shared memory in chunks of K: bit for bit the chains of the definition, for operands
//! from memory and from registers, lengths that no chunk divides, and rectangles over the edge.

use crate::harness::{Rng, TARGETS, bits, kernel, run};
use half::f16;
use tegula_ir::{
    Elem,
    protocol::Meta,
    testing::{Arg, Buffer},
};

/// An M × K × N product of a tile at the start of `x` and one at the start of `y`, which have so many rows and columns.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// Rows of `y` and columns of `x` that there are.
    there: usize,
}

/// What is between memory and the product.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Nothing: loads of f32.
    Direct,
    /// f16, widened; the second operand has two axes more.
    Widened,
    /// Each operand is added to itself first, and so is in registers.
    Registers,
    /// The first operand only.
    Mixed,
}

impl Product {
    fn text(&self, way: Way) -> String {
        let Product { m, n, k, there } = self;
        let aligned = if there.is_multiple_of(8) { ", align16" } else { "" };
        let e = if matches!(way, Way::Widened) { "f16" } else { "f32" };
        let (rank, lead, ones) = if matches!(way, Way::Widened) { (4, "%3, %3, ", "1, 1, ") } else { (2, "", "") };
        let x = match way {
            Way::Direct => "".into(),
            Way::Widened => format!("%6 = cast %4 : tile<f32, {m}, {k}>"),
            Way::Registers | Way::Mixed => format!("%6 = add %4, %4 : tile<f32, {m}, {k}>"),
        };
        let y = match way {
            Way::Direct | Way::Mixed => "".into(),
            Way::Widened => format!("%7 = reshape %5 : tile<f16, {k}, {n}>\n%9 = cast %7 : tile<f32, {k}, {n}>"),
            Way::Registers => format!("%7 = add %5, %5 : tile<f32, {k}, {n}>"),
        };
        let (a, b) = match way {
            Way::Direct => ("%4", "%5"),
            Way::Widened => ("%6", "%9"),
            Way::Registers => ("%6", "%7"),
            Way::Mixed => ("%6", "%5"),
        };
        format!(
            r#"kernel @k(%0 "x": view<{e}, 2, unit{aligned}, small>, %1 "y": view<{e}, {rank}, unit>, %2 "z": view_mut<f32, 2, unit>) {{
  %3 = const {{value = 0: i64}} : i64
  %8 = const {{value = 0.0: f32}} : tile<f32, {m}, {n}>
  %4 = load %0, %3, %3 : tile<{e}, {m}, {k}>
  {x}
  %5 = load %1, {lead}%3, %3 : tile<{e}, {ones}{k}, {n}>
  {y}
  %10 = dot {a}, {b}, %8 : tile<f32, {m}, {n}>
  store %2, %3, %3, %10
}}
"#
        )
    }

    /// Runs it, compares every bit, and gives what the kernel needs.
    fn check(&self, way: Way, warps: usize, target: &str) -> Meta {
        let Product { m, n, k, there } = *self;
        let mut rng = Rng((m * 31 + n * 7 + k) as u64);
        let mut numbers = |count: usize| -> Vec<f16> {
            (0..count).map(|_| f16::from_f64((rng.unit() - 0.5) * 4f64.powi((rng.next() % 6) as i32 - 3))).collect()
        };
        let (x, y) = (numbers(m * there), numbers(there * n));
        let wide = matches!(way, Way::Widened);
        let e = if wide { Elem::F16 } else { Elem::F32 };
        let raw = |v: &[f16]| -> Vec<u64> {
            v.iter().map(|v| if wide { u64::from(v.to_bits()) } else { u64::from(v.to_f32().to_bits()) }).collect()
        };
        let (rows, inner, columns) = (m as i64, there as i64, n as i64);
        let extents = if wide { vec![1, 1, inner, columns] } else { vec![inner, columns] };
        let mut args = [
            Arg::View(Buffer::new(e, &[rows, inner], &raw(&x))),
            Arg::View(Buffer::new(e, &extents, &raw(&y))),
            Arg::View(Buffer::poisoned(Elem::F32, &[rows, columns])),
        ];
        let text = self.text(way);
        let (_, meta, _) = run(target, &kernel(&text, warps), &mut args, [1; 3], false)
            .unwrap_or_else(|e| panic!("{way:?} {m} × {k} × {n}: {}", e.chars().take(2000).collect::<String>()));
        let (f, g) = match way {
            Way::Direct | Way::Widened => (1.0, 1.0),
            Way::Registers => (2.0, 2.0),
            Way::Mixed => (2.0, 1.0),
        };
        let wanted: Vec<u64> = (0..m * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                let chain = (0..there.min(k)).fold(0f32, |acc, j| {
                    (f * x[row * there + j].to_f32()).mul_add(g * y[j * n + column].to_f32(), acc)
                });
                // Past the edge a product of zeros is added: it makes of −0 a 0.
                u64::from((if there < k { chain + 0.0 } else { chain }).to_bits())
            })
            .collect();
        assert_eq!(bits(&args[2]), wanted, "{way:?} {m} × {k} × {n} on {warps} warps of {target}");
        meta
    }
}

#[test]
fn chunks_change_no_bit() {
    let shapes = [(16, 32, 1024), (3, 64, 700), (33, 20, 515), (64, 64, 96), (1, 64, 2048), (80, 24, 288)];
    for (i, (m, n, k)) in shapes.into_iter().enumerate() {
        for (j, way) in [Way::Direct, Way::Widened, Way::Registers, Way::Mixed].into_iter().enumerate() {
            let (warps, target) = ([1, 2, 4, 8][(i + j) % 4], TARGETS[(i + j) % 2]);
            // Registers of a thread: what is not direct is held whole.
            let warps = if matches!(way, Way::Registers | Way::Mixed) { 8 } else { warps };
            Product { m, n, k, there: k }.check(way, warps, target);
        }
    }
}

#[test]
fn a_product_over_the_edge_of_k_adds_zeros() {
    for way in [Way::Direct, Way::Widened, Way::Mixed] {
        Product { m: 16, n: 16, k: 512, there: 301 }.check(way, 2, "sm_80");
    }
}

#[test]
fn shared_memory_is_bounded_and_direct_operands_take_no_registers() {
    let big = Product { m: 64, n: 64, k: 2048, there: 2048 };
    let meta = big.check(Way::Direct, 4, "sm_80");
    // The operands are a mebibyte.
    assert!(meta.shared_bytes <= (163 << 10) / 3, "{}", meta.shared_bytes);
    assert!(meta.remarks.is_empty(), "{:?}", meta.remarks);
}
