//! The intervals of a request, as vLLM defines them.

use std::time::{Duration, Instant};

use crate::engine::Times;

impl Times {
    /// From the queue into the first step; of one that was in none, until it ended.
    pub fn queue(&self) -> Duration {
        self.scheduled.unwrap_or(self.finished).saturating_duration_since(self.queued)
    }

    /// From the first step to the first token.
    pub fn prefill(&self) -> Option<Duration> {
        between(self.scheduled, self.first_token)
    }

    /// From the first token to the last.
    pub fn decode(&self) -> Option<Duration> {
        between(self.first_token, self.last_token)
    }

    /// From the first step to the last token: prefill and decode.
    pub fn inference(&self) -> Option<Duration> {
        between(self.scheduled, self.last_token)
    }

    /// The mean from one token to the next, of so many; none if they are fewer than two.
    pub fn time_per_output_token(&self, num_output_tokens: usize) -> Option<Duration> {
        let intervals = u32::try_from(num_output_tokens.checked_sub(1)?).ok()?;
        self.decode()?.checked_div(intervals)
    }
}

fn between(from: Option<Instant>, to: Option<Instant>) -> Option<Duration> {
    Some(to?.saturating_duration_since(from?))
}
