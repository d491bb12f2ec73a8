//! What the command's tests share with those that cross crates.

#[path = "../../../tests/src/model.rs"]
mod model;
#[path = "../../../tests/src/skip.rs"]
mod skip;

pub use model::model;
