//! The rows of a plan as chunks of a batch, with the tokens that earlier steps sampled put in.

use std::collections::VecDeque;

use crate::Error;
use crate::model::Chunk;
use crate::schedule::{Input, StepPlan};

/// Steps whose tokens are kept: more than are ever in flight.
const KEPT: usize = 8;

/// Tokens that the last steps sampled.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<(u64, Vec<u32>)>);

impl Recent {
    /// Makes room for a step of so many rows. Until they are [set](Recent::set), and for ever if the step fails, its tokens
    /// are 0: whoever reads them then is nobody's any more.
    pub(super) fn begin(&mut self, step: u64, rows: usize) {
        self.0.push_front((step, vec![0; rows]));
        self.0.truncate(KEPT);
    }

    /// Says what this row of the step that began last sampled.
    pub(super) fn set(&mut self, row: usize, token: u32) {
        let tokens = self.0.front_mut().map(|(_, tokens)| tokens);
        if let Some(place) = tokens.and_then(|tokens| tokens.get_mut(row)) {
            *place = token;
        }
    }

    fn of<'a>(&'a self, input: &'a Input) -> Result<&'a [u32], Error> {
        let (step, row) = match input {
            Input::Tokens(tokens) => return Ok(tokens),
            Input::SampledBy { step, row } => (*step, *row),
        };
        let tokens = self.0.iter().find(|(of, _)| *of == step).map(|(_, tokens)| tokens);
        let token = tokens.and_then(|tokens| tokens.get(row));
        let unknown = || Error::Step(format!("it needs the token of row {row} of step {step}, which is not known"));
        token.map(std::slice::from_ref).ok_or_else(unknown)
    }
}

/// A chunk for each row of a plan.
///
/// # Errors
/// If a row's tokens are not known, or not as many as its slots.
pub(super) fn chunks<'a>(plan: &'a StepPlan, recent: &'a Recent) -> Result<Vec<Chunk<'a>>, Error> {
    plan.rows
        .iter()
        .map(|row| {
            let tokens = recent.of(&row.input)?;
            if tokens.len() != row.num_tokens() {
                let (id, found, slots) = (row.id, tokens.len(), row.num_tokens());
                return Err(Error::Step(format!("{id} has {found} tokens for {slots} slots")));
            }
            Ok(Chunk { tokens, position: row.start, blocks: &row.block_table })
        })
        .collect()
}
