//! The scheduler against a model whose answers are known without it.

mod cases;
mod device;
mod driver;
mod properties;
mod simulation;
