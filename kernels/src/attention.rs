//! Attention over the paged KV cache: ragged batch, causal, grouped queries.
//!
//! **Rule.** Each row keeps a state (m, l, O): running maximum, sum of exponentials, unnormalised output. Blocks are walked
//! from position 0 on; at every absolute multiple of the KV cut the partial state is closed and folded into the total, left
//! to right. A masked key changes nothing, bit for bit, so a row's result depends on its position alone: not on which rows
//! share its tile, on how the prompt was cut into chunks, or on what else is in the batch.

use tegula::prelude::*;

/// Softmax state of M rows: maximum (M, 1), sum (M, 1), unnormalised output (M, D).
#[derive(Clone, Copy, Carry)]
struct State<M: Dim, D: Dim> {
    m: Tile<f32, (M, One)>,
    l: Tile<f32, (M, One)>,
    o: Tile<f32, (M, D)>,
}

impl<M: Dim, D: Dim> State<M, D> {
    fn empty() -> Self {
        State { m: full(f32::NEG_INFINITY), l: zeros(), o: zeros() }
    }

    /// Takes in the scores of one block (−∞ where masked) and its values.
    #[func]
    fn block<B: Dim>(&mut self, s: Tile<f32, (M, B)>, v: Tile<f32, (B, D)>) {
        let m = self.m.maximum(s.max::<1>());
        // A row with nothing unmasked yet: any finite base makes every exponential 0.
        let base = select(m == f32::NEG_INFINITY, 0.0, m);
        let p = (s - base).exp();
        let keep = (self.m - base).exp();
        self.l = self.l * keep + p.sum::<1>();
        self.o = dot(p, v, self.o * keep);
        self.m = m;
    }

    /// Folds a later partial state into this one.
    #[func]
    fn fold(&mut self, part: State<M, D>) {
        let m = self.m.maximum(part.m);
        let base = select(m == f32::NEG_INFINITY, 0.0, m);
        let (a, b) = ((self.m - base).exp(), (part.m - base).exp());
        self.l = self.l * a + part.l * b;
        self.o = self.o * a + part.o * b;
        self.m = m;
    }
}

/// Parameters that fix the order of operations, hence the bits: one value per model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// Blocks between two folds.
    pub blocks_per_cut: usize,
}

/// `out` [tokens, kv_heads · group · d] from `q` of that shape.
///
/// `work` [items, 4]: (first token row, number of tokens ≤ BT, position of the first, row of `tables`); the tokens of an item are
/// consecutive positions of one sequence. `tables` [sequences, blocks]: block numbers. `k_cache` [blocks, kv_heads, d, B],
/// `v_cache` [blocks, kv_heads, B, d]; B is the block size, G the query heads per KV head. Grid: kv_heads, items.
#[kernel]
pub fn attention<BT: Dim, G: Dim, D: Dim, B: Dim>(
    q: View<f32, 2>,
    k_cache: View<f16, 4>,
    v_cache: View<f16, 4>,
    tables: View<i32, 2>,
    work: View<i32, 2>,
    out: ViewMut<f32, 2>,
    scale: Scalar<f32>,
    #[build] order: Order,
) {
    let (head, item) = (program_id(0), program_id(1));
    let (token, count, position, sequence) =
        (work.at((item, 0)), work.at((item, 1)), work.at((item, 2)), work.at((item, 3)));
    let q = q.narrow::<0>(token, count).load::<(BT, Prod<G, D>)>((0, head)).reshape::<(Prod<BT, G>, D)>() * scale;
    // Position of each row: the token's, the same for the whole group.
    let rows = (iota::<BT>() + position).reshape::<(BT, One)>().broadcast::<(BT, G)>().reshape::<(Prod<BT, G>, One)>();
    let blocks = (position + count - 1) / B::extent() as i32 + 1;

    let mut total = State::<Prod<BT, G>, D>::empty();
    for cut in 0..cdiv(blocks, order.blocks_per_cut) {
        let first = cut * order.blocks_per_cut;
        let mut part = State::<Prod<BT, G>, D>::empty();
        for block in range(first, min(first + order.blocks_per_cut, blocks)) {
            let page = tables.at((sequence, block));
            let k = k_cache.load::<(One, One, D, B)>((page, head, 0, 0)).reshape::<(D, B)>().cast::<f32>();
            // A block may hold anything past the last token: −∞ hides its scores, but 0 · NaN would be NaN.
            let values = v_cache.narrow::<2>(0, position + count - block * B::extent() as i32);
            let v = values.load::<(One, One, B, D)>((page, head, 0, 0)).reshape::<(B, D)>().cast::<f32>();
            let columns = (iota::<B>() + block * B::extent() as i32).reshape::<(One, B)>();
            let s = select(columns <= rows, dot(q, k, zeros()), f32::NEG_INFINITY);
            part.block(s, v);
        }
        total.fold(part);
    }
    let o = (total.o / total.l).reshape::<(BT, Prod<G, D>)>();
    out.narrow::<0>(token, count).store((0, head), o);
}
