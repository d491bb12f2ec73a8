//! Arithmetic that Rust does not have: small floats, directed rounding, approximations. Plain functions of numbers.

pub mod approx;
pub mod element;
pub mod round;
pub mod small;
