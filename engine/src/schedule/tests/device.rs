//! A device and a model that take nothing on trust: every cell of the cache depends on all cells before it, as they are
//! found through the block table, and every token on all cells. A wrong table, a block shared that should not be, or one
//! overwritten too early changes what is generated.

use std::collections::HashMap;

use crate::kv::CacheKey;
use crate::schedule::{FinishReason, Input, NewRequest, SequenceId, StepPlan};

/// Tokens of the model.
pub const VOCAB: u64 = 97;

fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(29) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

/// Where a sequence's cells begin: what its keys and values depend on besides tokens.
fn seed(key: &CacheKey) -> u64 {
    serde_json::to_string(key).unwrap().bytes().fold(1, |a, byte| mix(a, byte.into()))
}

/// The token after these cells.
fn next_token(cells: impl Iterator<Item = u64>, sample: u32) -> u32 {
    let all = cells.fold(0, |sum: u64, cell| sum.wrapping_mul(3).wrapping_add(cell));
    (mix(all, sample.into()) % VOCAB) as u32
}

/// What a request alone, without blocks and steps, would be answered.
pub fn reference(request: &NewRequest, sample: u32, max_len: usize) -> (Vec<u32>, FinishReason) {
    let mut cell = seed(&request.key);
    let mut step = |token: u32| {
        cell = mix(cell, token.into());
        cell
    };
    let mut cells: Vec<u64> = request.prompt.iter().map(|&token| step(token)).collect();
    let mut answer = vec![];
    loop {
        let token = next_token(cells.iter().copied(), sample);
        answer.push(token);
        if answer.len() >= request.min_tokens && request.stop_token_ids.contains(&token) {
            return (answer, FinishReason::Stop);
        }
        if Some(answer.len()) == request.max_tokens || request.prompt.len() + answer.len() == max_len {
            return (answer, FinishReason::Length);
        }
        cells.push(step(token));
    }
}

/// A device that runs plans in order.
#[derive(Clone, Default)]
pub struct Device {
    cells: HashMap<u32, u64>,
    sampled: HashMap<(u64, usize), u32>,
    /// What each request's cells begin with.
    seeds: HashMap<u64, u64>,
    pub tokens_computed: u64,
}

impl Device {
    pub fn learn(&mut self, request: &NewRequest) {
        self.seeds.insert(request.request, seed(&request.key));
    }

    /// Runs every row, of sequences that have ended too, as a real device would. The tokens of the rows that sample.
    pub fn run(&mut self, plan: &StepPlan, block_size: usize) -> Vec<u32> {
        let mut tokens = vec![];
        for (index, row) in plan.rows.iter().enumerate() {
            let input = match &row.input {
                Input::Tokens(tokens) => tokens.clone(),
                Input::SampledBy { step, row } => vec![self.sampled[&(*step, *row)]],
            };
            assert_eq!(input.len(), row.num_tokens());
            self.tokens_computed += input.len() as u64;
            let slot = |position: usize| {
                row.block_table[position / block_size] * block_size as u32 + (position % block_size) as u32
            };
            for (i, token) in input.into_iter().enumerate() {
                let before = match row.start + i {
                    0 => self.seeds[&row.id.request],
                    position => self.cells.get(&slot(position - 1)).copied().unwrap_or(0),
                };
                self.cells.insert(row.slot_mapping[i], mix(before, token.into()));
            }
            if row.samples {
                let cells = (0..row.end()).map(|position| self.cells.get(&slot(position)).copied().unwrap_or(0));
                let SequenceId { sample, .. } = row.id;
                let token = next_token(cells, sample);
                self.sampled.insert((plan.step, index), token);
                tokens.push(token);
            }
        }
        self.sampled.retain(|&(step, _), _| step + 8 > plan.step);
        tokens
    }

    /// Does not run a plan: its tokens are unknown, its cells garbage.
    pub fn fail(&mut self, plan: &StepPlan) {
        for (index, row) in plan.rows.iter().enumerate() {
            self.cells.extend(row.slot_mapping.iter().map(|&slot| (slot, 0xbad)));
            self.sampled.insert((plan.step, index), 0);
        }
    }
}
