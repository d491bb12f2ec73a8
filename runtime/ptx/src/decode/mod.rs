//! From the syntax tree to a flat program.
//!
//! A kernel is decoded with every function that it calls: scopes, labels and variables are resolved to slots, code
//! indices and addresses, and each instruction becomes an executable one through its [`form::Form`].

pub mod build;
pub mod form;
pub mod init;
pub mod names;
pub mod order;
pub mod program;

pub use program::{Decoded, decode, unknown};
