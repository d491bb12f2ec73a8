//! The thread that owns the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::{StepFault, StepModel, Work};
use crate::engine::command::Command;
use crate::engine::health::Heartbeat;

/// Runs steps until the engine thread is gone. A panic fails its step.
pub fn run(mut model: impl StepModel, work: Receiver<Work>, results: Sender<Command>, beat: Arc<Heartbeat>) {
    for work in work {
        beat.tick();
        let result = catch_unwind(AssertUnwindSafe(|| model.run(&work, &beat)))
            .unwrap_or_else(|panic| Err(StepFault::Step(format!("a panic: {}", message(&*panic)))));
        beat.tick();
        if results.send(Command::Done { step: work.plan.step, result }).is_err() {
            return;
        }
    }
}

/// What a panic said.
pub fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
