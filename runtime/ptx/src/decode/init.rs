//! Two analyses over decoded code: which reads may meet a register that nothing wrote, and which registers can share
//! rows.
//!
//! PTX registers are virtual and many; a compiler's output has thousands. Giving those that are never alive at once the
//! same rows keeps a warp's registers in the nearest cache. Both analyses are the textbook dataflow over basic blocks.

use super::build::Facts;
use crate::exec::regs::Slot;
use std::collections::HashMap;

/// An instruction as the analyses see it.
pub struct Node<'f> {
    /// What it reads, writes and where it goes.
    pub facts: &'f Facts,
    /// A guarded write leaves some lanes as they were.
    pub guarded: bool,
}

/// Bit sets of registers, one word per 64.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(n: usize) -> Set {
        Set(vec![0; n.div_ceil(64)])
    }
    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }
    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
    fn remove(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }
    /// Or-assigns; true when something was new.
    fn join(&mut self, other: &Set) -> bool {
        let mut grew = false;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            grew |= *b & !*a != 0;
            *a |= b;
        }
        grew
    }
    fn each(&self, mut f: impl FnMut(usize)) {
        for (w, word) in self.0.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                f(w * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// Basic blocks of a range of code.
pub(super) struct Blocks {
    /// First instruction of each, and one past the last of all.
    pub starts: Vec<usize>,
    /// Where each may go.
    pub successors: Vec<Vec<usize>>,
}

/// The basic blocks of code whose functions start at `starts_at`.
pub(super) fn blocks(nodes: &[Node<'_>], starts_at: &[u32]) -> Blocks {
    let mut leader = vec![false; nodes.len() + 1];
    leader[0] = true;
    leader[nodes.len()] = true;
    for s in starts_at {
        leader[*s as usize] = true;
    }
    for (i, node) in nodes.iter().enumerate() {
        if !node.facts.targets.is_empty() || node.facts.ends {
            leader[i + 1] = true;
        }
        for t in &node.facts.targets {
            leader[(*t as usize).min(nodes.len())] = true;
        }
    }
    let starts: Vec<usize> = (0..=nodes.len()).filter(|i| leader[*i]).collect();
    let block_at: HashMap<usize, usize> = starts.iter().enumerate().map(|(b, s)| (*s, b)).collect();
    let count = starts.len() - 1;
    let successors = (0..count)
        .map(|b| {
            let last = &nodes[starts[b + 1] - 1];
            let mut next: Vec<usize> =
                last.facts.targets.iter().filter_map(|t| block_at.get(&(*t as usize))).copied().collect();
            if !last.facts.ends || last.guarded {
                next.push(b + 1);
            }
            next.retain(|b| *b < count);
            next
        })
        .collect();
    Blocks { starts, successors }
}

/// For each instruction the registers that it reads and that some path from a start leaves unwritten.
pub fn suspects(nodes: &[Node<'_>], starts: &[u32], registers: &HashMap<Slot, usize>) -> Vec<Vec<Slot>> {
    let n = registers.len();
    let mut out = vec![Vec::new(); nodes.len()];
    if nodes.is_empty() {
        return out;
    }
    let blocks = blocks(nodes, starts);
    let count = blocks.successors.len();
    // Registers that may be unwritten where a block starts.
    let mut at: Vec<Set> = vec![Set::new(n); count];
    let mut work: Vec<usize> = Vec::new();
    for b in 0..count {
        if blocks.starts[b] == 0 || starts.contains(&(blocks.starts[b] as u32)) {
            (0..n).for_each(|i| at[b].insert(i));
        }
        work.push(b);
    }
    let step = |set: &mut Set, node: &Node<'_>, unwritten_source: bool| {
        for w in &node.facts.writes {
            let Some(i) = registers.get(w) else { continue };
            if node.facts.copies && unwritten_source {
                set.insert(*i);
            } else if !node.guarded {
                set.remove(*i);
            }
        }
    };
    let unwritten =
        |set: &Set, node: &Node<'_>| node.facts.reads.iter().any(|r| registers.get(r).is_some_and(|i| set.has(*i)));
    while let Some(b) = work.pop() {
        let mut set = at[b].clone();
        for node in &nodes[blocks.starts[b]..blocks.starts[b + 1]] {
            let source = unwritten(&set, node);
            step(&mut set, node, source);
        }
        for s in &blocks.successors[b] {
            if at[*s].join(&set) {
                work.push(*s);
            }
        }
    }
    for b in 0..count {
        let mut set = at[b].clone();
        for i in blocks.starts[b]..blocks.starts[b + 1] {
            let node = &nodes[i];
            for r in &node.facts.reads {
                if registers.get(r).is_some_and(|k| set.has(*k)) && !out[i].contains(r) {
                    out[i].push(*r);
                }
            }
            let source = !out[i].is_empty();
            step(&mut set, node, source);
        }
    }
    out
}

/// Final slots: registers whose live ranges (in code order, loops included) do not meet share rows. Gives the map and
/// the rows in use. `rows` is the width of each register.
pub fn share(
    nodes: &[Node<'_>],
    starts: &[u32],
    registers: &HashMap<Slot, usize>,
    rows: &HashMap<Slot, u32>,
) -> (HashMap<Slot, Slot>, u32) {
    let n = registers.len();
    if nodes.is_empty() {
        return (HashMap::new(), 0);
    }
    let blocks = blocks(nodes, starts);
    let count = blocks.successors.len();
    let mut live_in: Vec<Set> = vec![Set::new(n); count];
    let mut predecessors = vec![Vec::new(); count];
    for (b, next) in blocks.successors.iter().enumerate() {
        next.iter().for_each(|s| predecessors[*s].push(b));
    }
    let live_out = |live_in: &[Set], b: usize| {
        let mut set = Set::new(n);
        for s in &blocks.successors[b] {
            set.join(&live_in[*s]);
        }
        set
    };
    let back = |set: &mut Set, node: &Node<'_>| {
        if !node.guarded {
            for w in &node.facts.writes {
                if let Some(i) = registers.get(w) {
                    set.remove(*i);
                }
            }
        }
        for r in &node.facts.reads {
            if let Some(i) = registers.get(r) {
                set.insert(*i);
            }
        }
    };
    let mut work: Vec<usize> = (0..count).collect();
    while let Some(b) = work.pop() {
        let mut set = live_out(&live_in, b);
        for node in nodes[blocks.starts[b]..blocks.starts[b + 1]].iter().rev() {
            back(&mut set, node);
        }
        if live_in[b].join(&set) {
            work.extend(&predecessors[b]);
        }
    }
    // One range in code order per register: everything between its first and last live place.
    let mut range = vec![(usize::MAX, 0usize); n];
    let mut touch = |i: usize, at: usize| {
        range[i].0 = range[i].0.min(at);
        range[i].1 = range[i].1.max(at);
    };
    for b in 0..count {
        let (first, end) = (blocks.starts[b], blocks.starts[b + 1]);
        live_in[b].each(|i| touch(i, first));
        live_out(&live_in, b).each(|i| touch(i, end - 1));
        for (at, node) in nodes.iter().enumerate().take(end).skip(first) {
            for r in node.facts.reads.iter().chain(&node.facts.writes) {
                if let Some(i) = registers.get(r) {
                    touch(*i, at);
                }
            }
        }
    }
    let mut order: Vec<(Slot, usize)> =
        registers.iter().map(|(s, i)| (*s, *i)).filter(|(_, i)| range[*i].0 != usize::MAX).collect();
    order.sort_by_key(|(slot, i)| (range[*i].0, *slot));
    let held: std::collections::HashSet<Slot> = nodes.iter().flat_map(|n| &n.facts.held).copied().collect();
    let (mut map, mut top) = (HashMap::new(), 0);
    // Rows in use until an instruction, and free ones, by width.
    let mut busy: Vec<(usize, u32, u32)> = Vec::new();
    let mut free: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut body = 0;
    for (slot, i) in order {
        // A function runs while its caller's registers are alive: bodies share nothing.
        let at = starts.iter().filter(|s| **s as usize <= range[i].0).count();
        if at != body {
            body = at;
            busy.clear();
            free.clear();
        }
        let width = rows.get(&slot).copied().unwrap_or(1);
        if held.contains(&slot) {
            map.insert(slot, Slot(top));
            top += width;
            continue;
        }
        busy.retain(|(until, start, width)| {
            let over = *until < range[i].0;
            if over {
                free.entry(*width).or_default().push(*start);
            }
            !over
        });
        let start = free.entry(width).or_default().pop().unwrap_or_else(|| {
            top += width;
            top - width
        });
        busy.push((range[i].1, start, width));
        map.insert(slot, Slot(start));
    }
    (map, top)
}
