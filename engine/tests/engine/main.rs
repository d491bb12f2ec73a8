//! The engine over a scripted model: what is promised of requests, whatever comes together. Every engine of these tests is
//! checked when it goes: nothing is left of what was asked of it, no block, no queue, no thread.

mod answers;
mod cancel;
mod drain;
mod ends;
mod faults;
mod health;
mod limits;
mod metrics;
mod preemption;
mod support;
