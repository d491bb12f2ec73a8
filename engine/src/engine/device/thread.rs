//! The thread that owns the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};

use super::{StepFault, StepModel, Work};
use crate::engine::command::Command;
use crate::engine::shared::Shared;

/// Runs steps until the engine thread is gone, or nobody wants them. A panic fails its step.
pub fn run(mut model: impl StepModel, work: Receiver<Work>, results: Sender<Command>, shared: &Arc<Shared>) {
    // However this ends, the engine thread hears of it.
    let results = Results(results);
    let beat = &shared.beat;
    for work in work {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        beat.tick();
        let result = catch_unwind(AssertUnwindSafe(|| model.run(&work, beat)))
            .unwrap_or_else(|panic| Err(StepFault::Step(format!("a panic: {}", message(&*panic)))));
        beat.tick();
        if results.0.send(Command::Done { step: work.plan.step, result }).is_err() {
            break;
        }
    }
}

struct Results(Sender<Command>);

impl Drop for Results {
    fn drop(&mut self) {
        // An engine thread that is gone need not hear of it.
        let _ = self.0.send(Command::DeviceGone);
    }
}

/// What a panic said.
pub fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
