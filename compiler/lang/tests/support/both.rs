//! The same text as plain Rust over `i32` and as run-time code over `Scalar<i32>` on the oracle.
#![allow(dead_code)]

use crate::support::*;
use tegula::prelude::*;

/// Runs a run-time function of two numbers.
pub fn run(f: fn(Scalar<i32>, Scalar<i32>) -> Scalar<i32>, a: i32, b: i32) -> i32 {
    #[kernel]
    fn call(a: Scalar<i32>, b: Scalar<i32>, out: ViewMut<i32, 1>, #[build] cfg: Wrap) {
        out.set(0, (cfg.0)(a, b));
    }
    #[derive(Clone, Debug)]
    struct Wrap(fn(Scalar<i32>, Scalar<i32>) -> Scalar<i32>);
    impl PartialEq for Wrap {
        fn eq(&self, other: &Wrap) -> bool {
            self.0 as usize == other.0 as usize
        }
    }
    impl Eq for Wrap {}
    impl std::hash::Hash for Wrap {
        fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
            (self.0 as usize).hash(h)
        }
    }
    let mut out = Tensor::<i32>::poisoned(&[1]);
    call::launch(a, b, &mut out).cfg(Wrap(f)).grid(1).run(&Oracle::default()).unwrap();
    out.data[0]
}

macro_rules! both { ($($name:ident |$a:ident, $b:ident| $body:block)*) => {$(
    mod $name {
        #[allow(unused_imports)]
        use crate::both::*;
        #[allow(unused_imports)]
        use tegula::prelude::*;
        #[func]
        #[allow(unused)]
        fn rt($a: Scalar<i32>, $b: Scalar<i32>) -> Scalar<i32> $body
        mod host {
            #[allow(unused_imports)]
            use crate::both::host::*;
            #[allow(unused)]
            pub fn plain($a: i32, $b: i32) -> i32 $body
        }
        #[test]
        fn agrees() {
            for a in -3..7 {
                for b in 0..6 {
                    assert_eq!(run(rt, a, b), host::plain(a, b), "a = {a}, b = {b}");
                }
            }
        }
    }
)*} }

/// Stand-ins for the language's functions in plain Rust.
pub mod host {
    pub use super::{St, bump};
    pub fn scalar<T>(x: T) -> T {
        x
    }
    pub fn range(a: i32, b: i32) -> std::ops::Range<i32> {
        a..b
    }
}

#[derive(Clone, Copy, Carry)]
pub struct St<T> {
    pub m: T,
    pub l: T,
}
impl<T: Copy + std::ops::Add<Output = T>> St<T> {
    pub fn step(&mut self, x: T) {
        self.m = self.m + x;
        self.l = self.l + self.m;
    }
}
pub fn bump<T: Copy + std::ops::Add<Output = T>>(x: &mut T, y: T) {
    *x = *x + y
}
