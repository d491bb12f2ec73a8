//! Which tokens the next step computes, for whom, and where their keys and values go: a state machine without device,
//! clock or threads.
//!
//! There is no prefill and no decode. A sequence has tokens, of which some are computed; every step hands out a budget of
//! tokens to sequences that have uncomputed ones, and a sequence whose last token is computed gets a next one sampled. A
//! new prompt, the next chunk of a long one, one more token of an answer, what follows a prefix that was found in the
//! cache, and the resumption of a preempted sequence are all the same subtraction, `num_tokens − num_computed_tokens`.
//!
//! [`Scheduler::plan`] makes a [`StepPlan`]: plain data. Whoever owns the device runs it and reports the sampled tokens to
//! [`Scheduler::complete`]. With [`SchedulerConfig::max_concurrent_batches`] above 1 the next step is planned before the
//! tokens of the present one are known.
//!
//! ```
//! use tegula_engine::kv::CacheKey;
//! use tegula_engine::schedule::{FinishReason, NewRequest, Scheduler, SchedulerConfig};
//!
//! let mut scheduler = Scheduler::new(SchedulerConfig::new(128, 2048))?;
//! let prompt = vec![5, 6, 7];
//! scheduler.add(NewRequest { max_tokens: Some(1), ..NewRequest::new(1, prompt, CacheKey::model("smollm2")) })?;
//!
//! let plan = scheduler.plan().expect("there is something to do");
//! assert_eq!((plan.rows[0].start, plan.rows[0].num_tokens(), plan.rows[0].samples), (0, 3, true));
//! let output = scheduler.complete(plan.step, &[42])?; // the device computed it and sampled 42
//! assert_eq!(output.tokens[0].token, 42);
//! assert_eq!(output.finished[0].reason, FinishReason::Length);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Laws
//!
//! - *Best first.* Sequences are ranked by (priority, arrival). Victims are worse than who is served for them, so the best
//!   sequence that runs always goes on: every step makes progress, and with finitely many better ones everybody finishes.
//! - *A sequence that runs is never shut out*: of a budget at least as large as the number of sequences, everyone gets a
//!   token in every step before anyone gets a longer chunk.
//! - *Whole prompts.* A sequence starts when there are blocks for all its tokens and the next, which it then holds; only
//!   growth beyond can lack a block.
//! - *Only full, computed blocks are shared*, those of finished steps, so nobody ever writes to a block that another
//!   reads: no copy-on-write. Samples of one request (`n`) share the prompt's full blocks and compute the rest, a part of
//!   one block, each for itself.
//! - *What was computed for nobody is dropped*: a step's row names its sequence's run by a number that is never used again.
//! - *The same events give the same plans* ([`Log::replay`]).

mod config;
mod integrity;
mod log;
mod output;
mod pending;
mod plan;
mod planner;
mod queue;
mod request;
mod scheduler;
mod sequence;
#[cfg(test)]
mod tests;

pub use config::{ConfigError, SchedulerConfig};
pub use log::{Divergence, Entry, Event, Log, Recorder};
pub use output::{FinishReason, Finished, NewToken, SchedulerStats, StepError, StepOutput};
pub use plan::{Admitted, Input, Row, StepPlan};
pub use request::{AdmissionError, NewRequest, SequenceId};
pub use scheduler::Scheduler;
