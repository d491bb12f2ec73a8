//! Control flow: what `#[kernel]` and `#[func]` turn `for`, `while`, `if`, compares, `&&` and `||` into.
//!
//! A construct is run-time or build-time by the *type* of its bound or condition. The rewrite is the same for both, and
//! straight-line: the body stays where it is, once, so that borrows, moves and jumps of build-time code are plain Rust's.
//!
//! ```text
//! for k in RANGE { BODY }                         if COND { A } else { B }
//!
//! let mut f = RANGE.into_loop();                  let mut i = COND.begin();
//! x.enter(&mut f);                                x.enter(&mut i);
//! while let Some(k) = f.next() {                  let (mut a, mut b) = (None, None);
//!     BODY                                        if i.then() { let v = A; x.mid(&mut i); a = v.first(&mut i); }
//!     x.latch(&mut f);                            if i.otherwise() { let v = B; x.latch(&mut i); b = v.second(&mut i); }
//! }                                               i.done();
//! x.exit(&mut f);                                 x.exit(&mut i);
//!                                                 value(a, b, &mut i)
//!
//! while COND { BODY }                             break
//!
//! let mut w = new_while();                        i.jump(); f.jump(); break
//! x.enter(&mut w);
//! while w.again() {                               a < b      Less::compare(a, b)
//!     if !COND.test(&mut w) { break }             a && b     Logic::and(a, || b)
//!     x.turn(&mut w);                             2.0 * x    AfterLiteral::left_mul(x, 2.0)
//!     BODY
//!     x.latch(&mut w);
//! }
//! x.exit(&mut w);
//! ```
//!
//! `x` stands for every variable that the construct may change. At build time `enter`, `mid`, `turn`, `latch` and `exit`
//! do nothing. At run time the body runs once, between the opening and the closing of an IR region: `enter` puts the
//! region's argument into the variable, `latch` takes what the body made of it, `exit` puts in the result.
//!
//! All calls name the trait and its method, and the traits speak of what an author knows: rustc's messages show them.

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
