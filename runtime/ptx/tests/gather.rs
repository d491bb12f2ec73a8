//! Tensor copies of four rows: gather4 and scatter4, against plain loops.

mod common;
use common::{Random, entry};
use tegula_ptx::{
    Completion, Emulator, Grid, Module, Options, Param,
    tensor_map::{Element, Swizzle, TensorMap},
};

const COLUMNS: usize = 40;
const ROWS: usize = 11;

fn module() -> Module {
    let text = format!(
        ".version 8.6\n.target sm_100a\n.address_size 64\n{}",
        entry(
            "k",
            ".param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .u64 rows, .param .u64 out",
            ".shared .align 1024 .b8 tile[1024]; .shared .align 8 .b8 bar[8];
             .reg .b32 %t, %r<9>; .reg .b64 %x<9>; .reg .pred %p<4>; mov.u32 %t, %tid.x; setp.eq.u32 %p1, %t, 0;
             mov.u32 %r7, tile; mov.u32 %r8, bar; mov.u64 %x1, from; cvta.param.u64 %x1, %x1; mov.u64 %x2, to;
             cvta.param.u64 %x2, %x2; ld.param.u64 %x3, [rows]; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%x3];
             ld.global.b32 %r5, [%x3+16];
             @%p1 mbarrier.init.shared::cta.b64 [%r8], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
             @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 128;
             @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
               [%r7], [%x1, {%r5, %r1, %r2, %r3, %r4}], [%r8];
             W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0; @!%p2 bra W;
             shl.b32 %r6, %t, 2; add.u32 %r6, %r6, %r7; ld.shared.b32 %r6, [%r6]; ld.param.u64 %x4, [out];
             mul.wide.u32 %x5, %t, 4; add.s64 %x4, %x4, %x5; st.global.b32 [%x4], %r6;
             fence.proxy.async; bar.sync 0;
             @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group
               [%x2, {%r5, %r4, %r3, %r2, %r1}], [%r7];
             @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0; ret;",
        )
    );
    Module::parse(&text, "sm_100a").unwrap()
}

#[test]
fn four_rows_are_gathered_and_scattered() {
    let mut random = Random(53);
    let module = module();
    for completion in [Completion::Early, Completion::Late] {
        // Rows in any order, one twice, one outside; columns that leave the array.
        for (rows, column) in
            [([7i32, 2, 2, 10], 8i32), ([0, 11, -1, 5], 32), ([-3, 20, 4, 4], -4), ([12, 13, -1, 99], 0)]
        {
            let data: Vec<u16> = (0..ROWS * COLUMNS).map(|_| random.next() as u16 | 1).collect();
            let bytes = |v: &[u16]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
            let mut e = Emulator::new(Options { completion, ..Options::default() });
            let from = e.memory.alloc_with("from", &bytes(&data));
            let to = e.memory.alloc_with("to", &bytes(&vec![0; ROWS * COLUMNS]));
            let map = |address| {
                let map = TensorMap::new(
                    Element::U16,
                    address,
                    &[COLUMNS as u64, ROWS as u64],
                    &[2 * COLUMNS as u64],
                    &[16, 1],
                    Swizzle::None,
                );
                Param::Bytes(map.encode().unwrap().to_vec())
            };
            let words: Vec<u8> = rows.iter().chain([&column]).flat_map(|v| v.to_le_bytes()).collect();
            let list = e.memory.alloc_with("rows", &words);
            let out = e.memory.alloc("out", 128);
            let params = [map(from), map(to), Param::U64(list), Param::U64(out)];
            e.launch(&module, "k", Grid::new(1, 32), &params).unwrap_or_else(|f| panic!("{f}"));
            let read = |at, n: usize| -> Vec<u16> {
                let bytes = e.memory.read_vec(at, 2 * n).unwrap();
                bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect()
            };
            let at = |row: i32, x: i32| {
                let inside = (0..ROWS as i32).contains(&row) && (0..COLUMNS as i32).contains(&x);
                inside.then(|| (row as usize) * COLUMNS + x as usize)
            };
            let got = read(out, 64);
            let mut want_to = vec![0u16; ROWS * COLUMNS];
            for (i, row) in rows.iter().enumerate() {
                for c in 0..16 {
                    let want = at(*row, column + c).map_or(0, |p| data[p]);
                    assert_eq!(got[16 * i + c as usize], want, "{completion:?} row {row} column {c}");
                }
            }
            // The scatter's rows are the gather's from the last to the first.
            for (i, row) in rows.iter().rev().enumerate() {
                for c in 0..16 {
                    if let Some(p) = at(*row, column + c) {
                        want_to[p] = got[16 * i + c as usize];
                    }
                }
            }
            assert_eq!(read(to, ROWS * COLUMNS), want_to, "{completion:?} {rows:?}");
        }
    }
}
