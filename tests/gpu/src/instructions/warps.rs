//! What the lanes of a warp do together: shuffles, votes, matches, reductions.

use super::{
    case::{Case, Tolerance::Exact, map},
    formats::Unit,
    samples::Random,
};
use crate::raw::Level::{self, *};

const FAMILY: &str = "warps";

/// `%a` is random, `%b` one of few values.
fn lanes(name: &str, level: Level, body: &str) -> Case {
    let mut random = Random(70);
    let a: Vec<u64> = (0..512).map(|i| random.bits() >> (32 + i % 32)).collect();
    let b: Vec<u64> = (0..512).map(|_| random.below(5)).collect();
    map(FAMILY, name, level, body, &[("b32", a), ("b32", b)], "b32", Unit::Bits(32), Exact)
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    let says = "@!%p1 xor.b32 %d, %d, 0x5a5a5a5a;";
    for (mode, b, c) in [
        ("bfly", "5", "31"),
        ("bfly", "%b", "31"),
        ("bfly", "16", "0x101f"),
        ("up", "3", "0"),
        ("up", "%b", "0x1000"),
        ("down", "4", "0x100f"),
        ("down", "%b", "31"),
        ("idx", "2", "0x1c1f"),
        ("idx", "%a", "31"),
        ("idx", "40", "31"),
    ] {
        let name = format!("shfl.sync.{mode}.b32 by {b}, {c}");
        out.push(lanes(&name, Sm80, &format!("shfl.sync.{mode}.b32 %d|%p1, %a, {b}, {c}, -1; {says}")));
    }
    let half = "mov.b32 %d, 0; and.b32 %r3, %t, 31; setp.lt.u32 %p1, %r3, 16; @!%p1 bra SKIP;
        shfl.sync.bfly.b32 %d, %a, 1, 31, 0xffff; activemask.b32 %r4; popc.b32 %r4, %r4; add.s32 %d, %d, %r4; SKIP:";
    out.push(lanes("shfl.sync.bfly.b32 of half a warp", Sm80, half));
    let test = "and.b32 %r3, %a, 1; setp.eq.u32 %p1, %r3, 1;";
    out.push(lanes("vote.sync.ballot.b32", Sm80, &format!("{test} vote.sync.ballot.b32 %d, %p1, -1;")));
    // Of three warps (or blocks) one says yes as a whole, one in part, one no.
    let some = |of: &str| {
        format!(
            "{of} rem.u32 %r3, %r3, 3; setp.eq.u32 %p2, %r3, 1; selp.u32 %r4, %b, 0, %p2; setp.eq.u32 %p2, %r3, 2;
    selp.u32 %r4, 10, %r4, %p2; setp.lt.u32 %p1, %r4, 2;"
        )
    };
    let (warp, of_block) = (some("shr.u32 %r3, %t, 5;"), some("mov.u32 %r3, %ctaid.x;"));
    for mode in ["all", "any", "uni"] {
        let body = format!("{warp} vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %d, 1, 0, %p2;");
        out.push(lanes(&format!("vote.sync.{mode}.pred"), Sm80, &body));
    }
    out.push(lanes("match.any.sync.b32", Sm80, "match.any.sync.b32 %d, %b, -1;"));
    out.push(lanes("match.any.sync.b64", Sm80, "mov.b64 %x1, {%b, %b}; match.any.sync.b64 %d, %x1, -1;"));
    let all = format!("{warp} match.all.sync.b32 %d|%p1, %r4, -1; @%p1 xor.b32 %d, %d, 77;");
    out.push(lanes("match.all.sync.b32", Sm80, &all));
    for (op, types) in [("add", &["u32", "s32"][..]), ("min", &["u32", "s32"]), ("max", &["u32", "s32"])] {
        for ty in types {
            out.push(lanes(&format!("redux.sync.{op}.{ty}"), Sm80, &format!("redux.sync.{op}.{ty} %d, %a, -1;")));
        }
    }
    for op in ["and", "or", "xor"] {
        out.push(lanes(
            &format!("redux.sync.{op}.b32"),
            Sm80,
            &format!("{} redux.sync.{op}.b32 %d, %r5, -1;", "or.b32 %r5, %a, 0xff0ff0;"),
        ));
    }
    let elect = "elect.sync %r3|%p1, -1; selp.u32 %d, 5, 0, %p1; add.s32 %d, %d, %r3;";
    out.push(lanes("elect.sync", Sm90, elect));
    for op in ["popc.u32", "and.pred", "or.pred"] {
        let give = if op == "popc.u32" {
            format!("bar.red.{op} %d, 0, %p1;")
        } else {
            format!("bar.red.{op} %p2, 0, %p1; selp.u32 %d, 1, 0, %p2;")
        };
        out.push(lanes(&format!("bar.red.{op}"), Sm80, &format!("{of_block} {give}")));
    }
    out
}
