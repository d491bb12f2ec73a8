//! Attention: near the float64 softmax, and the same bits however the tokens are cut and grouped.

use crate::support::*;
use half::f16;
use std::rc::Rc;
use tegula::prelude::*;
use tegula_kernels::attention::{Order, attention};

/// Heads and extents.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kv: usize,
    pub group: usize,
    pub d: usize,
    pub block: usize,
}

impl Shape {
    fn width(&self) -> usize {
        self.kv * self.group * self.d
    }
}

/// New tokens of a sequence after `cached` old ones.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    cached: usize,
    new: usize,
}

/// Sequences of one batch: their queries, and a cache whose blocks lie in no order. What no sequence holds is NaN.
pub struct Case {
    shape: Shape,
    sequences: Vec<Sequence>,
    q: Vec<f32>,
    tables: Vec<Vec<i32>>,
    k: Rc<Tensor<f16>>,
    v: Rc<Tensor<f16>>,
    blocks: usize,
}

const SCALE: f32 = 0.3;

impl Case {
    pub fn random(shape: Shape, sequences: &[Sequence], rng: &mut Rng) -> Case {
        let Shape { kv, d, block, .. } = shape;
        let counts: Vec<usize> = sequences.iter().map(|s| (s.cached + s.new).div_ceil(block)).collect();
        let blocks = counts.iter().sum::<usize>() + 2;
        let mut free = rng.shuffled(blocks);
        let tables: Vec<Vec<i32>> =
            counts.iter().map(|&n| (0..n).map(|_| free.pop().unwrap() as i32).collect()).collect();
        let (mut k, mut v) = (vec![f16::NAN; blocks * kv * d * block], vec![f16::NAN; blocks * kv * d * block]);
        for (s, table) in sequences.iter().zip(&tables) {
            for (t, h, i) in
                (0..s.cached + s.new).flat_map(|t| (0..kv).flat_map(move |h| (0..d).map(move |i| (t, h, i))))
            {
                let base = table[t / block] as usize * kv + h;
                k[(base * d + i) * block + t % block] = f16::from_f32(rng.float() * 2.0);
                v[(base * block + t % block) * d + i] = f16::from_f32(rng.float() * 5.0);
            }
        }
        let tokens: usize = sequences.iter().map(|s| s.new).sum();
        Case {
            shape,
            sequences: sequences.to_vec(),
            q: rng.floats(tokens * shape.width(), 2.0),
            tables,
            k: Rc::new(tensor([blocks, kv, d, block], &k)),
            v: Rc::new(tensor([blocks, kv, block, d], &v)),
            blocks,
        }
    }

    /// Softmax attention in float64, from the values that the cache holds.
    fn reference(&self) -> Vec<f64> {
        self.exact().0
    }

    /// The same; and what errors are relative to: for each output Σ p·|v|, the largest Σ|q·k| of a score and the number of
    /// scores.
    pub fn exact(&self) -> (Vec<f64>, Vec<f64>, Vec<f64>, Vec<usize>) {
        let Shape { kv, group, d, block } = self.shape;
        let (keys, values) = (self.k.as_slice(), self.v.as_slice());
        let (mut out, mut sizes, mut largest, mut lengths) = (vec![], vec![], vec![], vec![]);
        let mut row = 0;
        for (s, table) in self.sequences.iter().zip(&self.tables) {
            for position in s.cached..s.cached + s.new {
                for head in 0..kv * group {
                    let q = &self.q[row * self.shape.width() + head * d..][..d];
                    let base = |t: usize| table[t / block] as usize * kv + head / group;
                    let key = |t: usize, i: usize| keys[(base(t) * d + i) * block + t % block].to_f64();
                    let products = |t: usize| (0..d).map(move |i| f64::from(q[i]) * key(t, i) * f64::from(SCALE));
                    let scores: Vec<f64> = (0..=position).map(|t| products(t).sum()).collect();
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                    let sum: f64 = p.iter().sum();
                    let most = (0..=position).map(|t| products(t).map(f64::abs).sum()).fold(0.0, f64::max);
                    for i in 0..d {
                        let weighted = |t: usize| p[t] / sum * values[(base(t) * block + t % block) * d + i].to_f64();
                        out.push((0..=position).map(weighted).sum());
                        sizes.push((0..=position).map(|t| weighted(t).abs()).sum());
                        largest.push(most);
                        lengths.push(position + 1);
                    }
                }
                row += 1;
            }
        }
        (out, sizes, largest, lengths)
    }

    /// Runs the kernel, the new tokens cut into launches by `chunk` and into items by `bt`.
    pub fn run(&self, stream: &Stream, bt: usize, chunk: usize, blocks_per_cut: usize) -> Vec<f32> {
        let Shape { kv, group, d, block } = self.shape;
        let width = self.shape.width();
        let tokens = self.q.len() / width;
        let q = tensor([tokens, width], &self.q);
        let longest = self.tables.iter().map(Vec::len).max().unwrap();
        // Table entries past a sequence's blocks name a block that holds NaN.
        let rows =
            self.tables.iter().flat_map(|t| (0..longest).map(|i| t.get(i).copied().unwrap_or(self.blocks as i32 - 1)));
        let tables = tensor([self.tables.len(), longest], &rows.collect::<Vec<_>>());
        let mut out = poisoned::<f32, _>([tokens, width]);
        let mut launches: Vec<Vec<i32>> = vec![];
        let mut first = 0;
        for (sequence, s) in self.sequences.iter().enumerate() {
            let mut start = 0;
            while start < s.new {
                // An item does not go over the end of a chunk.
                let count = bt.min(chunk - start % chunk).min(s.new - start);
                let item = [first + start, count, s.cached + start, sequence].map(|x| x as i32);
                launches.resize(launches.len().max(start / chunk + 1), vec![]);
                launches[start / chunk].extend(item);
                start += count;
            }
            first += s.new;
        }
        for work in launches.iter().filter(|w| !w.is_empty()) {
            let items = work.len() / 4;
            attention::launch(&q, &*self.k, &*self.v, &tables, &tensor([items, 4], work), &mut out, SCALE)
                .dims(bt, group, d, block)
                .cfg(Order { blocks_per_cut })
                .grid([kv, items])
                .run(stream)
                .unwrap();
        }
        out.to_vec()
    }
}

pub const SEQUENCES: [Sequence; 5] = [
    Sequence { cached: 0, new: 17 },
    Sequence { cached: 37, new: 1 },
    Sequence { cached: 8, new: 7 },
    Sequence { cached: 0, new: 2 },
    Sequence { cached: 15, new: 3 },
];

#[test]
fn near_the_softmax_in_float64() {
    let mut rng = Rng(60);
    for (kv, group, d) in [(2, 1, 8), (1, 3, 64), (2, 4, 20)] {
        let case = Case::random(Shape { kv, group, d, block: 8 }, &SEQUENCES, &mut rng);
        let want = case.reference();
        for stream in devices() {
            for bt in [1, 8] {
                let got = case.run(stream, bt, usize::MAX, 2);
                // Scores reach about 4·d·SCALE, off by d roundings of that; the output is a mean of values below 5.
                let bound = 5.0 * (4.0 * f64::from(SCALE) * d as f64 * (d + 4) as f64 + 60.0) * U;
                close(&format!("{:?}, BT = {bt}, {}", case.shape, stream.device().name()), &got, &want, |_, _| bound);
            }
        }
    }
}

/// The rule that fixes the bits: they do not depend on rows per item, on how a prompt was cut, or on the batch.
#[test]
fn bits_do_not_depend_on_tiles_chunks_or_the_batch() {
    let mut rng = Rng(61);
    for group in [1, 3, 4] {
        let shape = Shape { kv: 2, group, d: 16, block: 8 };
        let case = Case::random(shape, &SEQUENCES, &mut rng);
        for stream in devices() {
            let want = case.run(stream, 1, usize::MAX, 2);
            assert!(want.iter().all(|x| x.is_finite()));
            for (bt, chunk) in [(16, usize::MAX), (4, usize::MAX), (16, 7), (1, 7), (16, 1), (4, 9)] {
                let got = case.run(stream, bt, chunk, 2);
                same_bits(
                    &format!("G = {group}, BT = {bt}, chunks of {chunk}, {}", stream.device().name()),
                    &got,
                    &want,
                );
            }
            // Each sequence alone.
            let mut first = 0;
            for (i, s) in case.sequences.iter().enumerate() {
                let rows = first * shape.width()..(first + s.new) * shape.width();
                let alone = Case {
                    sequences: vec![*s],
                    q: case.q[rows.clone()].to_vec(),
                    tables: vec![case.tables[i].clone()],
                    k: case.k.clone(),
                    v: case.v.clone(),
                    ..case
                };
                same_bits(&format!("sequence {i} alone"), &alone.run(stream, 16, usize::MAX, 2), &want[rows]);
                first += s.new;
            }
        }
    }
}

/// The cut is an order parameter: it changes bits, and stays near the softmax.
#[test]
fn every_cut_is_near_the_softmax() {
    let case = Case::random(Shape { kv: 1, group: 3, d: 32, block: 4 }, &SEQUENCES, &mut Rng(62));
    let want = case.reference();
    let mut bits = std::collections::HashSet::new();
    for cut in [1, 2, 3, 100] {
        let got = case.run(&CPU, 8, usize::MAX, cut);
        close(&format!("cut {cut}"), &got, &want, |_, _| 1e-4);
        bits.insert(got.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    }
    assert!(bits.len() > 1, "the cut changed nothing: is it used?");
}

/// Scores far from each other: the largest decides, nothing overflows.
#[test]
fn large_scores() {
    let mut case = Case::random(Shape { kv: 1, group: 1, d: 8, block: 8 }, &SEQUENCES[..3], &mut Rng(63));
    case.q.iter_mut().for_each(|q| *q *= 300.0);
    let want = case.reference();
    for stream in devices() {
        // Scores of 4000 are off by 4000 roundings' worth; weights by the exponential of that.
        close("large scores", &case.run(stream, 8, usize::MAX, 1), &want, |_, _| 5.0 * 0.01);
    }
}
