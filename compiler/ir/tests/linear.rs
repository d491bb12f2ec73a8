//! Linear layouts: the laws of the maps, and conversions simulated on register files.

use proptest::prelude::*;
use tegula_ir::linear::{
    Axes, LANE_BITS, Linear, Place, Plan, Swizzle, TileLayout,
    algebra::{Span, apply, intersection, inverse},
    blocked::{self, Blocking},
    pieces, segments,
    tile::extents,
};

/// A layout of 2^bits elements: a shuffled list of index bits and zeros as hardware bits, mixed by a few exclusive ors.
fn layout(bits: u32, warp_bits: usize, seed: u64, mix: usize) -> Linear {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    let threads = LANE_BITS + warp_bits;
    let regs = (bits as usize).saturating_sub(next(threads + 1));
    let mut vectors: Vec<u64> = (0..bits).map(|b| 1 << b).collect();
    vectors.resize((regs + threads).max(bits as usize), 0);
    for i in (1..vectors.len()).rev() {
        vectors.swap(i, next(i + 1));
    }
    for _ in 0..mix {
        let (i, j) = (next(vectors.len()), next(vectors.len()));
        // A vector that replicates stays one: mixing keeps the span.
        if i != j && vectors[i] != 0 {
            vectors[i] ^= vectors[j];
        }
    }
    let warp = vectors.split_off(vectors.len() - warp_bits);
    let lane = vectors.split_off(vectors.len() - LANE_BITS);
    vectors.retain(|v| *v != 0);
    Linear::new(bits, vectors, lane.try_into().unwrap(), warp).unwrap()
}

fn places(l: &Linear) -> impl Iterator<Item = Place> {
    let (regs, warps) = (l.regs(), 1 << l.warp().len());
    (0..warps).flat_map(move |warp| (0..32).flat_map(move |lane| (0..regs).map(move |reg| Place { reg, lane, warp })))
}

/// What `plan` leaves in each place of `to`, if every place of `from` holds the number of its element.
fn simulate(plan: &Plan, from: &Linear, to: &Linear) -> Vec<(Place, u64)> {
    let source = |p: Place| from.at(p);
    match plan {
        Plan::Registers(regs) => places(to).map(|p| (p, source(Place { reg: regs[p.reg], ..p }))).collect(),
        Plan::Shuffles(shuffles) => places(to)
            .map(|p| {
                let s = &shuffles[p.reg];
                let kept: Vec<usize> =
                    s.rounds.iter().filter(|(_, keep)| keep >> p.lane & 1 != 0).map(|r| r.0).collect();
                assert_eq!(kept.len(), 1, "one round serves a lane");
                (p, source(Place { reg: kept[0], lane: s.source[p.lane].into(), warp: p.warp }))
            })
            .collect(),
        Plan::Shared(swizzle) => {
            let mut memory = vec![u64::MAX; 1 << from.bits()];
            for warp in 0..1usize << from.warp().len() {
                for lane in 0..32 {
                    for access in swizzle.accesses(from, 0) {
                        let first = swizzle.address(from.at(Place { reg: access[0], lane, warp }));
                        assert_eq!(first % access.len() as u64, 0, "a vector is aligned");
                        for (i, reg) in access.iter().enumerate() {
                            let element = from.at(Place { reg: *reg, lane, warp });
                            let cell = &mut memory[first as usize + i];
                            assert!(*cell == u64::MAX || *cell == element, "two elements at one address");
                            *cell = element;
                        }
                    }
                }
            }
            let mut out = vec![];
            for warp in 0..1usize << to.warp().len() {
                for lane in 0..32 {
                    for access in swizzle.accesses(to, 1) {
                        let first = swizzle.address(to.at(Place { reg: access[0], lane, warp })) as usize;
                        assert_eq!(first % access.len(), 0, "a vector is aligned");
                        for (i, reg) in access.iter().enumerate() {
                            out.push((Place { reg: *reg, lane, warp }, memory[first + i]));
                        }
                    }
                }
            }
            out
        }
    }
}

/// Wavefronts of one instruction, counted bank by bank.
fn wavefronts(s: &Swizzle, l: &Linear, width: usize, bytes: usize, access: &[usize]) -> usize {
    let together = if width * bytes >= 16 {
        8
    } else if width * bytes >= 8 {
        16
    } else {
        32
    };
    (0..32 / together)
        .map(|group| {
            let mut banks = vec![std::collections::BTreeSet::new(); 32];
            for lane in group * together..(group + 1) * together {
                let first = s.address(l.at(Place { reg: access[0], lane, warp: 0 })) as usize * bytes;
                (first / 4..(first + width * bytes).div_ceil(4)).for_each(|word| {
                    banks[word % 32].insert(word);
                });
            }
            banks.iter().map(|b| b.len()).max().unwrap()
        })
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_inverse_undoes(columns in proptest::collection::vec(0u64..256, 8), v in 0u64..256) {
        match inverse(&columns) {
            Some(back) => {
                prop_assert_eq!(apply(&back, apply(&columns, v)), v);
                prop_assert_eq!(apply(&columns, apply(&back, v)), v);
            }
            None => prop_assert!(Span::of(columns).rank() < 8),
        }
    }

    #[test]
    fn an_intersection_is_inside_both_and_of_the_right_size(a in proptest::collection::vec(0u64..64, 0..5), b in proptest::collection::vec(0u64..64, 0..5)) {
        let (x, y) = (Span::of(a.iter().copied()), Span::of(b.iter().copied()));
        let both = intersection(&a, &b);
        prop_assert!(both.iter().all(|v| x.contains(*v) && y.contains(*v)));
        let sum = Span::of(a.iter().chain(&b).copied()).rank();
        prop_assert_eq!(Span::of(both).rank(), x.rank() + y.rank() - sum);
    }

    #[test]
    fn every_element_has_a_place_and_one_thread_that_stores_it(bits in 0u32..11, warps in 0usize..4, seed: u64, mix in 0usize..9) {
        let l = layout(bits, warps, seed, mix);
        for e in 0..1u64 << bits {
            prop_assert_eq!(l.at(l.place(e)), e);
        }
        let redundant = l.redundant_threads();
        let mut holders = vec![std::collections::BTreeSet::new(); 1 << bits];
        for p in places(&l) {
            let thread = p.warp << LANE_BITS | p.lane;
            if thread as u64 & redundant == 0 {
                holders[l.at(p) as usize].insert(thread);
            }
        }
        prop_assert!(holders.iter().all(|h| h.len() == 1));
    }

    #[test]
    fn images_move_elements_as_the_op_does(a in 0u32..4, b in 0u32..4, c in 0u32..4, seed: u64) {
        let shape = [1usize << a, 1 << b, 1 << c];
        let (axes, l) = (Axes::of(&shape), layout(a + b + c, 2, seed, 4));
        let perm = [2, 0, 1];
        let (t, to) = (l.permute(&shape, &perm), Axes::of(&[shape[2], shape[0], shape[1]]));
        let gone = [false, true, false];
        let (p, left) = (l.project(&shape, &gone), Axes::of(&[shape[0], 1, shape[2]]));
        for at in places(&l) {
            let e = l.at(at);
            for (i, d) in perm.iter().enumerate() {
                prop_assert_eq!(to.coordinate(i, t.at(at)), axes.coordinate(*d, e));
            }
        }
        // The projection renumbers registers: threads alone are compared.
        for thread in 0..128 {
            let at = Place { reg: 0, lane: thread % 32, warp: thread / 32 };
            for d in [0, 2] {
                prop_assert_eq!(left.coordinate(d, p.at(at)), axes.coordinate(d, l.at(at)));
            }
        }
        // A broadcast's source, expanded and projected again, is itself.
        let e = p.expand(&[shape[0], 1, shape[2]], &shape);
        prop_assert!(Linear::new(e.bits(), e.reg().to_vec(), *e.lane(), e.warp().to_vec()).is_ok());
        prop_assert_eq!(e.project(&shape, &gone).threads(), p.threads());
    }

    #[test]
    fn composing_images_is_associative(a in 0u32..4, b in 0u32..4, c in 0u32..3, seed: u64) {
        let shape = [1usize << a, 1 << b, 1 << c];
        let l = layout(a + b + c, 2, seed, 4);
        let once = l.permute(&shape, &[1, 2, 0]).permute(&[shape[1], shape[2], shape[0]], &[1, 2, 0]);
        prop_assert_eq!(&once, &l.permute(&shape, &[2, 0, 1]));
        prop_assert_eq!(once.permute(&[shape[2], shape[0], shape[1]], &[1, 2, 0]), l);
    }

    #[test]
    fn conversion_is_the_identity_on_data(bits in 0u32..11, warps in 0usize..3, a: u64, b: u64, mix in 0usize..6, wide in 0usize..4) {
        let (from, to) = (layout(bits, warps, a, mix), layout(bits, warps, b, mix));
        let plan = Plan::new(&from, &to, 1 << wide);
        for (p, e) in simulate(&plan, &from, &to) {
            prop_assert_eq!(e, to.at(p), "{} to {} by {:?}", from, to, plan);
        }
        prop_assert_eq!(simulate(&plan, &from, &to).len(), places(&to).count());
    }

    #[test]
    fn conflicts_are_counted_right(bits in 0u32..11, a: u64, b: u64, mix in 0usize..6, wide in 0usize..4) {
        let (from, to) = (layout(bits, 2, a, mix), layout(bits, 2, b, mix));
        let s = Swizzle::best(&from, &to, 1 << wide);
        for (side, l, width) in [(0, &from, s.write_vector()), (1, &to, s.read_vector())] {
            let counted = wavefronts(&s, l, width, 1 << wide, &s.accesses(l, side)[0]);
            prop_assert_eq!(s.wavefronts(l, side), counted);
        }
    }

    #[test]
    fn text_comes_back(bits in 0u32..11, warps in 0usize..4, seed: u64, mix in 0usize..6) {
        let l = TileLayout(vec![layout(bits, warps, seed, mix), layout(bits, warps, seed ^ 7, 0)]);
        prop_assert_eq!(l.to_string().parse::<TileLayout>().unwrap(), l);
    }

    #[test]
    fn segments_and_pieces_cover_without_overlap(shape in proptest::collection::vec(1usize..40, 0..4)) {
        let mut seen = std::collections::BTreeSet::new();
        for p in pieces(&shape) {
            prop_assert!(extents(&p).iter().all(|n| n.is_power_of_two()));
            let mut points = vec![vec![]];
            for s in &p {
                points = points.iter().flat_map(|q: &Vec<usize>| (s.start..s.start + s.len).map(move |i| [&q[..], &[i]].concat())).collect();
            }
            for q in points {
                prop_assert!(seen.insert(q));
            }
        }
        prop_assert_eq!(seen.len(), shape.iter().product::<usize>());
    }

    #[test]
    fn constructions_hold_every_element(m in 0u32..8, n in 0u32..8, contiguous in 0u32..5, warp_bits in 0u32..4, columns: bool, across: bool) {
        let shape = [1usize << m, 1 << n];
        let order = if columns { vec![0, 1] } else { vec![1, 0] };
        let l = Blocking { contiguous: 1 << contiguous, along: usize::from(across), order, warp_bits }.layout(&shape);
        let valid = |l: &Linear| Linear::new(m + n, l.reg().to_vec(), *l.lane(), l.warp().to_vec()) == Ok(l.clone());
        prop_assert!(valid(&l) && l.is_permutation());
        let p = blocked::product(shape[0], shape[1], warp_bits);
        prop_assert!(valid(&p) && p.is_permutation());
        // No thread idles while another holds two elements.
        let most = (m + n).saturating_sub(LANE_BITS as u32 + warp_bits);
        prop_assert_eq!(p.regs(), 1 << most);
    }
}

#[test]
fn coalesced_rows_are_sixteen_bytes_a_thread() {
    let l = Blocking::row_major(1, 4, 2).layout(&[1024]);
    assert_eq!(l.to_string(), "r[1, 2, 512] l[4, 8, 16, 32, 64] w[128, 256]");
    assert_eq!((l.contiguous(), l.regs()), (4, 8));
    assert_eq!(segments(192), [(0, 128), (128, 64)].map(|(start, len)| tegula_ir::linear::Segment { start, len }));
}

#[test]
fn plans_are_the_cheapest() {
    let rows = Blocking::row_major(2, 4, 2).layout(&[64, 64]);
    let same = Linear::new(12, rows.reg().iter().rev().copied().collect(), *rows.lane(), rows.warp().to_vec()).unwrap();
    assert!(matches!(Plan::new(&rows, &same, 4), Plan::Registers(_)));
    // A transpose of 4 × 4 within warps.
    let mut lane = *rows.lane();
    lane.swap(0, 4);
    let other = Linear::new(12, rows.reg().to_vec(), lane, rows.warp().to_vec()).unwrap();
    assert!(matches!(Plan::new(&rows, &other, 4), Plan::Shuffles(s) if s.iter().all(|s| s.rounds.len() == 1)));
    let columns = Blocking { order: vec![0, 1], along: 0, ..Blocking::row_major(2, 4, 2) }.layout(&[64, 64]);
    assert!(matches!(Plan::new(&rows, &columns, 4), Plan::Shared(_)));
}

/// A transpose through shared memory without a single conflict, in every element width, with wide accesses where both
/// sides allow them.
#[test]
fn swizzles_avoid_conflicts() {
    for bytes in [1, 2, 4, 8] {
        for (m, n) in [(64, 64), (128, 32), (32, 128), (128, 128)] {
            let wide = 16 / bytes;
            let rows = Blocking::row_major(2, wide, 2).layout(&[m, n]);
            let columns = Blocking { order: vec![0, 1], along: 0, ..Blocking::row_major(2, wide, 2) }.layout(&[m, n]);
            let s = Swizzle::best(&rows, &columns, bytes);
            let lowest = |l: &Linear, side: usize, v: usize| {
                // Bytes of all lanes over 128 bytes a wavefront, and at least one.
                let least = (32 * v * bytes).div_ceil(128).max(1);
                assert!(
                    s.wavefronts(l, side) <= 2 * least,
                    "{m}×{n}, {bytes} bytes: {} of {least}",
                    s.wavefronts(l, side)
                );
                s.wavefronts(l, side) == least
            };
            let (w, r) = (lowest(&rows, 0, s.write_vector()), lowest(&columns, 1, s.read_vector()));
            assert!(bytes < 4 || (w && r), "{m}×{n}, {bytes} bytes");
            // Never worse than without a swizzle.
            let plain = Swizzle::plain(rows.bits(), bytes);
            assert!(s.cost(&rows, 0) + s.cost(&columns, 1) < plain.cost(&rows, 0) + plain.cost(&columns, 1));
        }
    }
    // Both sides hold four neighbours: both access 16 bytes, without conflicts.
    let rows = Blocking::row_major(2, 4, 2).layout(&[64, 64]);
    let product = blocked::product(64, 64, 2);
    let s = Swizzle::best(&rows, &product, 4);
    assert_eq!((s.write_vector(), s.read_vector()), (4, 4));
    assert_eq!((s.wavefronts(&rows, 0), s.wavefronts(&product, 1)), (4, 4));
}
