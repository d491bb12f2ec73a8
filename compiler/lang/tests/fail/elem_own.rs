// The element types are the language's: no others can be added.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Answer {
    Yes,
    No,
}

impl tegula::elem::Elem for Answer {
    const ELEM: tegula_ir::Elem = tegula_ir::Elem::U8;
    fn bits(self) -> u64 {
        self as u64
    }
    fn from_bits(bits: u64) -> Self {
        if bits == 0 { Answer::Yes } else { Answer::No }
    }
}

fn main() {}
