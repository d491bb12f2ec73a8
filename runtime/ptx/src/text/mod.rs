//! PTX as text: tokens, the syntax tree, the parser.

pub mod ast;
pub mod lexer;
pub mod parse;
