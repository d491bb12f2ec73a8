//! A step, as plain data: all that a device must know to run it.

use serde::{Deserialize, Serialize};

use super::request::SequenceId;
use crate::kv::BlockRef;

/// What one step computes.
///
/// Steps run in the order of their numbers, each seeing what those before wrote; blocks change hands under that
/// assumption alone. A step may still run rows whose sequence has ended meanwhile: they write only to blocks that no
/// earlier or equal step reads for anyone else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Counts up from 0.
    pub step: u64,
    /// A ragged batch: one row a sequence, each of one token or more.
    pub rows: Vec<Row>,
    /// Sequences that start or resume with this step.
    pub admitted: Vec<Admitted>,
    /// Sequences that lost their blocks to better ones and wait again. Not those of a call that gave no plan: what is known
    /// of them is outdated when they resume, which is told.
    pub preempted: Vec<SequenceId>,
}

impl StepPlan {
    /// Tokens of all rows.
    pub fn num_scheduled_tokens(&self) -> usize {
        self.rows.iter().map(Row::num_tokens).sum()
    }

    /// Rows for which a token is to be sampled, in order: [`super::Scheduler::complete`] takes one token for each.
    pub fn sampling_rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        self.rows.iter().enumerate().filter(|(_, row)| row.samples)
    }
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub id: SequenceId,
    /// Which run of the sequence: every start and resumption has a number of its own.
    pub generation: u64,
    /// Position of the first token: so many are computed by earlier steps.
    pub start: usize,
    pub input: Input,
    /// Blocks of the sequence up to the last token of the row, in order.
    pub block_table: Vec<u32>,
    /// Where each token's keys and values go: block · block size + offset.
    pub slot_mapping: Vec<u32>,
    /// The blocks that those slots are in.
    pub writes: Vec<BlockRef>,
    /// Whether a token is sampled from the row's last logits.
    pub samples: bool,
}

impl Row {
    /// Tokens of the row.
    pub fn num_tokens(&self) -> usize {
        self.slot_mapping.len()
    }

    /// Position after the last token: that of the sampled one.
    pub fn end(&self) -> usize {
        self.start + self.num_tokens()
    }
}

/// The tokens of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// These.
    Tokens(Vec<u32>),
    /// One, that an earlier step samples for its row of this index.
    SampledBy { step: u64, row: usize },
}

/// A sequence that starts or resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    pub id: SequenceId,
    /// Tokens whose keys and values were found in the cache.
    pub num_cached_tokens: usize,
    /// Whether it had run before and been preempted.
    pub resumed: bool,
}
