//! In which order diverged lanes run, so that they meet again.
//!
//! The lanes that are furthest behind run first. In straight code that is the lowest pc, but compilers place blocks as
//! they like, a loop's last block before its first for one. So blocks get ranks: topologically, each loop's blocks
//! together after the block that enters it. What a branch parted then meets where its arms join, and lanes that stay in a
//! loop catch up with those that left it.

use super::init::{Blocks, Node, blocks};

/// The order of a program's instructions.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Of each instruction: lower ones run first.
    pub rank: Vec<u32>,
    /// Where its basic block ends.
    pub block_end: Vec<u32>,
}

impl Order {
    /// Of code whose functions start at `starts`.
    pub fn of(nodes: &[Node<'_>], starts: &[u32]) -> Order {
        if nodes.is_empty() {
            return Order::default();
        }
        let blocks = blocks(nodes, starts);
        let all: Vec<usize> = (0..blocks.successors.len()).collect();
        let mut order = Order { rank: vec![0; nodes.len()], block_end: vec![0; nodes.len()] };
        let mut rank = 0;
        for b in arrange(&blocks, all) {
            let (first, end) = (blocks.starts[b], blocks.starts[b + 1]);
            for i in first..end {
                (order.rank[i], order.block_end[i]) = (rank, end as u32);
                rank += 1;
            }
        }
        order
    }
}

/// These blocks in order: components in topological order; of a component that is a loop first the block where it is
/// entered, then the rest likewise.
fn arrange(blocks: &Blocks, of: Vec<usize>) -> Vec<usize> {
    let mut out = Vec::with_capacity(of.len());
    for mut component in components(blocks, &of) {
        if component.len() == 1 {
            out.push(component[0]);
            continue;
        }
        component.sort_unstable();
        let inside = |b: &usize| component.binary_search(b).is_ok();
        let entered = |b: &usize| (0..blocks.successors.len()).any(|p| !inside(&p) && blocks.successors[p].contains(b));
        let header = component.iter().copied().find(entered).unwrap_or(component[0]);
        out.push(header);
        component.retain(|b| *b != header);
        out.extend(arrange(blocks, component));
    }
    out
}

/// The strongly connected components of a part of the graph, in topological order (Tarjan's algorithm without recursion).
fn components(blocks: &Blocks, of: &[usize]) -> Vec<Vec<usize>> {
    const NEW: u32 = u32::MAX;
    let n = blocks.successors.len();
    let mut inside = vec![false; n];
    of.iter().for_each(|b| inside[*b] = true);
    let (mut number, mut low, mut open) = (vec![NEW; n], vec![0; n], vec![false; n]);
    let (mut stack, mut out, mut count) = (vec![], vec![], 0);
    // From the last block on, so that unrelated blocks stay in the order of the code.
    for root in of.iter().rev().copied() {
        if number[root] != NEW {
            continue;
        }
        let mut work: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((b, next)) = work.last_mut() {
            let b = *b;
            if *next == 0 {
                (number[b], low[b], open[b]) = (count, count, true);
                stack.push(b);
                count += 1;
            }
            let successor = blocks.successors[b].get(*next).copied();
            *next += 1;
            match successor {
                Some(s) if !inside[s] => {}
                Some(s) if number[s] == NEW => work.push((s, 0)),
                Some(s) => {
                    if open[s] {
                        low[b] = low[b].min(number[s]);
                    }
                }
                None => {
                    work.pop();
                    if let Some((p, _)) = work.last() {
                        low[*p] = low[*p].min(low[b]);
                    }
                    if low[b] == number[b] {
                        let mut component = vec![];
                        while let Some(c) = stack.pop() {
                            open[c] = false;
                            component.push(c);
                            if c == b {
                                break;
                            }
                        }
                        out.push(component);
                    }
                }
            }
        }
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(successors: &[&[usize]]) -> Blocks {
        Blocks { starts: (0..=successors.len()).collect(), successors: successors.iter().map(|s| s.to_vec()).collect() }
    }
    fn order(successors: &[&[usize]]) -> Vec<usize> {
        arrange(&graph(successors), (0..successors.len()).collect())
    }

    #[test]
    fn the_arms_of_a_branch_come_before_where_they_join() {
        // 0 → 3 or 1; 1 → 2; the join 2 is placed before the arm 3.
        let o = order(&[&[3, 1], &[2], &[], &[2]]);
        let at = |b: usize| o.iter().position(|x| *x == b).unwrap();
        assert!(at(0) < at(1) && at(1) < at(2) && at(3) < at(2), "{o:?}");
    }

    #[test]
    fn a_rotated_loop_stays_together_and_before_its_exit() {
        // 0 enters at 2; 1 is the latch, placed first; 2 → 3 or 1; 3 → 1; 1 → 2 or 4.
        let o = order(&[&[2], &[2, 4], &[3, 1], &[1], &[]]);
        assert_eq!(o, [0, 2, 3, 1, 4]);
    }

    #[test]
    fn inner_loops_are_inside_outer_ones() {
        // 1 ⟶ 2 ⇄ 3, 2 → 4 → 1, 1 → 5.
        let o = order(&[&[1], &[2, 5], &[3, 4], &[2], &[1], &[]]);
        assert_eq!(o, [0, 1, 2, 3, 4, 5]);
    }
}
