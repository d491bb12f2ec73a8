//! Stores around the caches: they store what others store, and are there only where they may be.

use crate::harness::{Rng, call_first, request, targets};
use tegula_ir::{
    Elem,
    protocol::{Emit, Meta},
};

/// Copies tiles of `rows` × `n` of x to y, one a program.
fn copy(elem: Elem, rows: usize, n: usize) -> String {
    let name = elem.name();
    format!(
        "kernel @copy(%0 \"x\": view<{name}, 2, unit>, %1 \"y\": view_mut<{name}, 2, unit>) {{
          %2 = program_id {{axis = 0}} : i32
          %3 = cast %2 : i64
          %4 = const {{value = {rows}: i64}} : i64
          %5 = mul %3, %4 : i64
          %6 = const {{value = 0: i64}} : i64
          %7 = load %0, %5, %6 : tile<{name}, {rows}, {n}>
          store %1, %5, %6, %7
        }}"
    )
}

/// Memory from a multiple of `align` bytes on, with `len` bytes from there.
fn aligned(memory: &mut Vec<u8>, align: usize, len: usize) -> &mut [u8] {
    memory.resize(len + align, 0);
    let skip = memory.as_ptr().align_offset(align);
    &mut memory[skip..][..len]
}

/// The programs that lie inside the views, of a launch of no more and as part of one of very many: these stream if the
/// addresses allow it.
#[test]
fn a_launch_that_writes_much_stores_what_a_small_one_does() {
    const PROGRAMS: usize = 1 << 18;
    let mut rng = Rng(11);
    let line_of = |elem: Elem| 64 / elem.bytes();
    for (elem, tile_rows, n) in
        [(Elem::F32, 1, 256), (Elem::F64, 4, 48), (Elem::I8, 2, 512), (Elem::F16, 8, 96), (Elem::I32, 3, 176)]
    {
        let text = copy(elem, tile_rows, n);
        assert!(PROGRAMS * tile_rows * n * elem.bytes() >= 128 << 20, "too few bytes to stream");
        // Rows as wide as the tile, wider by a line, wider by an element, one element short.
        let widths = [(n, n), (n, n + line_of(elem)), (n, n + 1), (n - 1, n)];
        for target in targets() {
            let kernel = request(&text, target, Emit::Artifact, false);
            for (columns, stride) in widths {
                for offset in [0, 1, line_of(elem) / 2] {
                    for programs in [8, PROGRAMS] {
                        let rows = 7 * tile_rows + tile_rows / 2;
                        let size = Size { elem, rows, columns, stride, offset };
                        let wrong = first_wrong_byte(&kernel, size, programs as i32, &mut rng);
                        assert_eq!(wrong, None, "{target}, {programs} programs, tiles of {tile_rows}×{n}: {size:?}");
                    }
                }
            }
        }
    }
}

/// A matrix in memory: strides and offset in elements.
#[derive(Clone, Copy, Debug)]
struct Size {
    elem: Elem,
    rows: usize,
    columns: usize,
    stride: usize,
    offset: usize,
}

/// Runs the first 8 programs of the copy on random bytes; the first byte of y that is not x's inside the matrix or has changed outside.
fn first_wrong_byte(kernel: &(Vec<u8>, Meta), size: Size, programs: i32, rng: &mut Rng) -> Option<usize> {
    let Size { elem, rows, columns, stride, offset } = size;
    let len = (rows * stride + offset) * elem.bytes() + 64;
    let (mut from, mut to) = (vec![], vec![]);
    let (x, y) = (aligned(&mut from, 64, len), aligned(&mut to, 64, len));
    x.iter_mut().for_each(|b| *b = (rng.next() >> 40) as u8);
    y.fill(0xa5);
    let view = |p: u64| [p + (offset * elem.bytes()) as u64, rows as u64, columns as u64, stride as u64, 1];
    let words = [view(x.as_ptr() as u64), view(y.as_mut_ptr() as u64)].concat();
    call_first(8, &kernel.0, &kernel.1, &words, [programs, 1, 1], false);
    (0..len).find(|&i| {
        let at = (i / elem.bytes()).checked_sub(offset);
        let inside = at.is_some_and(|at| at < rows * stride && at % stride < columns);
        y[i] != if inside { x[i] } else { 0xa5 }
    })
}

fn streams(text: &str) -> bool {
    let found: Vec<bool> = targets()
        .iter()
        .map(|target| {
            let asm = String::from_utf8(request(text, target, Emit::Asm, false).0).unwrap();
            assert_eq!(asm.contains("movnt"), asm.contains("sfence"), "{target}: a fence goes with them\n{asm}");
            asm.contains("movnt")
        })
        .collect();
    assert!(found.windows(2).all(|w| w[0] == w[1]), "all targets alike\n{text}");
    found.first().copied().unwrap_or(true)
}

#[test]
fn only_stores_that_nobody_reads_in_the_kernel_stream() {
    let row = |before: &str, value: &str, store: &str| {
        format!(
            "kernel @rows(%0 \"x\": view<f32, 2, unit>, %1 \"y\": view_mut<f32, 2, unit>, %2 \"n\": view_mut<i32, 1>) {{
              %3 = program_id {{axis = 0}} : i32
              %4 = cast %3 : i64
              %5 = const {{value = 0: i64}} : i64
              %6 = const {{value = 1: i64}} : i64
              %7 = load %0, %4, %5 : tile<f32, 1, 256>
              {before}
              %20 = {value} : tile<f32, 1, 256>
              {store}
            }}"
        )
    };
    let (plain, store) = ("mul %7, %7", "store %1, %4, %5, %20");
    assert!(streams(&row("", plain, store)));
    // The parameter is read: the lines are wanted in the cache, or are there.
    assert!(!streams(&row("%8 = load %1, %4, %5 : tile<f32, 1, 256>", "add %7, %8", store)));
    // Whoever sees the count may read the row.
    let atomic = format!(
        "{store}\n%9 = iota : tile<i64, 8>\n%10 = iota : tile<i32, 8>\n%11 = atomic %2, %9, %10 {{kind = atomic_add, order = release}} : tile<i32, 8>"
    );
    assert!(!streams(&row("", plain, &atomic)));
    // Each program writes several times, perhaps to the same place.
    let looped = format!("%31 = const {{value = 3: i64}} : i64\nfor %5, %31, %6 {{\n(%30: i64)\n{store}\nyield\n}}");
    assert!(!streams(&row("", plain, &looped)));
    // Half a line a row.
    let narrow = "%21 = slice %20 {axis = 1, size = 24, start = 0} : tile<f32, 1, 24>\nstore %1, %4, %5, %21";
    assert!(!streams(&row("", plain, narrow)));
}
