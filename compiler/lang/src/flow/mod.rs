//! Control flow: what `#[kernel]` and `#[func]` turn `for`, `while`, `if`, compares, `&&` and `||` into.
//!
//! A construct is run-time or build-time by the *type* of its bound or condition. The rewrite is the same for both, and
//! straight-line: the body stays where it is, once, so that borrows, moves and jumps of build-time code are plain Rust's.
//!
//! ```text
//! for k in RANGE { BODY }                         if COND { A } else { B }
//!
//! let mut f = into_loop(RANGE);                   let mut i = begin(COND);
//! enter(&mut x, &mut f);                          enter(&mut x, &mut i);
//! while let Some(k) = next(&mut f) {              let (mut a, mut b) = (None, None);
//!     BODY                                        if then(&mut i) { let v = A; mid(&mut x, &mut i); a = first(&mut i, v); }
//!     latch(&mut x, &mut f);                      if otherwise(&mut i) { let v = B; latch(&mut x, &mut i); b = second(&mut i, v); }
//! }                                               done(&mut i);
//! exit(&mut x, &mut f);                           exit(&mut x, &mut i);
//!                                                 value(&mut i, a, b)
//!
//! while COND { BODY }
//!
//! let mut w = new_while();                        // its type follows from COND
//! enter(&mut x, &mut w);
//! while again(&mut w) {
//!     if !test(&mut w, COND) { break }
//!     turn(&mut x, &mut w);
//!     BODY
//!     latch(&mut x, &mut w);
//! }
//! exit(&mut x, &mut w);
//! ```
//!
//! `x` stands for every variable that the construct may change. At build time `enter`, `mid`, `turn`, `latch` and `exit`
//! do nothing. At run time the body runs once, between the opening and the closing of an IR region: `enter` puts the
//! region's argument into the variable, `latch` takes what the body made of it, `exit` puts in the result.

mod branch;
mod carry;
mod compare;
mod for_loop;
mod left;
mod while_loop;

pub use branch::*;
pub use carry::*;
pub use compare::*;
pub use for_loop::*;
pub use left::*;
pub use while_loop::*;
