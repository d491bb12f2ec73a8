//! Races on shared memory, and asynchronous reads of what no proxy fence has published.
//!
//! Each agent (a warp, or the asynchronous copies and products that a warp has issued) keeps a vector of times: how far
//! it knows each other agent's doings, through barriers, mbarriers and strong accesses. Every byte keeps who wrote it last
//! and when, and when each agent last read it. An access that meets a conflicting one which its agent does not know of is
//! a race, whether or not this run's order happened to be harmless. Threads of one warp are not told apart.
//!
//! A second vector says how far an agent knows that writes were followed by `fence.proxy.async`: bulk copies and wgmma
//! may only read bytes known in this way.

use super::watch::{Order, Sync, Touch};
use crate::exec::{
    fault::{Fault, FaultKind},
    in_flight::Key,
};
use std::collections::HashMap;

/// What an agent knows: for each agent the time up to which its doings are ordered before, and are fenced.
#[derive(Clone, Default)]
struct Known {
    seen: Vec<u32>,
    fenced: Vec<u32>,
}

impl Known {
    fn new(agents: usize) -> Known {
        Known { seen: vec![0; agents], fenced: vec![0; agents] }
    }

    fn join(&mut self, other: &Known) {
        for (a, b) in self.seen.iter_mut().zip(&other.seen).chain(self.fenced.iter_mut().zip(&other.fenced)) {
            *a = (*a).max(*b);
        }
    }
}

/// The history of one block's shared memory, byte by byte.
struct Bytes {
    written: Vec<u32>,
    /// Agent; [`UNFENCED`] is set for writes that asynchronous reads need a fence after.
    writer: Vec<u16>,
    /// PTX line of the write.
    line: Vec<u32>,
    /// The latest read by anyone.
    read: Vec<u32>,
    /// By agent, once it has read.
    reads: Vec<Vec<u32>>,
    pieces: Pieces,
}

const UNFENCED: u16 = 1 << 15;
/// The writer of a piece that several have written.
const MIXED: u16 = UNFENCED - 1;
/// Bytes of a piece.
const PIECE: usize = 16;

/// A summary of the history by pieces of 16 bytes, which is what matrix products read.
struct Pieces {
    /// Latest write to any of its bytes.
    written: Vec<u32>,
    /// As [`Bytes::writer`], of all its bytes; or [`MIXED`].
    writer: Vec<u16>,
    /// Latest read of the whole piece by [`Races::read_pieces`], and those by agent. [`Bytes`] knows nothing of them.
    read: Vec<u32>,
    reads: Vec<Vec<u32>>,
}

impl Pieces {
    fn new(bytes: usize, agents: usize) -> Pieces {
        let n = bytes.div_ceil(PIECE);
        Pieces { written: vec![0; n], writer: vec![0; n], read: vec![0; n], reads: vec![Vec::new(); agents] }
    }

    /// A write to a range of bytes. What one agent wrote in turn it also is known and fenced in turn, so its latest write
    /// stands for all.
    fn write(&mut self, range: std::ops::Range<usize>, now: u32, writer: u16) {
        for piece in range.start / PIECE..range.end.div_ceil(PIECE) {
            let whole = range.start <= piece * PIECE && (piece + 1) * PIECE <= range.end;
            if !whole && self.written[piece] != 0 && self.writer[piece] != writer {
                self.writer[piece] = MIXED;
            } else {
                self.writer[piece] = writer;
            }
            self.written[piece] = now;
        }
    }
}

/// The detector of a cluster.
pub struct Races {
    now: u32,
    warps: usize,
    agents: usize,
    known: Vec<Known>,
    /// Least entry of each agent's `seen` over the agents that have done anything.
    least: Vec<u32>,
    active: Vec<bool>,
    points: HashMap<Sync, Known>,
    blocks: Vec<Bytes>,
}

/// An access to a range of one block's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// What it does.
    pub touch: Touch,
    /// Rank of the block whose memory it is.
    pub owner: usize,
    /// Rank of the block that accesses.
    pub rank: usize,
    /// Warp in it.
    pub warp: u32,
    /// Offset from the start of shared memory.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
    /// PTX line.
    pub line: u32,
}

impl Races {
    /// For `ranks` blocks of `warps` warps with `bytes` of shared memory each.
    pub fn new(ranks: usize, warps: usize, bytes: usize) -> Races {
        let agents = 2 * ranks * warps;
        let blocks = (0..ranks)
            .map(|_| Bytes {
                written: vec![0; bytes],
                writer: vec![0; bytes],
                line: vec![0; bytes],
                read: vec![0; bytes],
                reads: vec![Vec::new(); agents],
                pieces: Pieces::new(bytes, agents),
            })
            .collect();
        Races {
            now: 1,
            warps,
            agents,
            known: vec![Known::new(agents); agents / 2],
            least: vec![0; agents / 2],
            active: vec![false; agents],
            points: HashMap::new(),
            blocks,
        }
    }

    /// The number of a warp; its asynchronous doings have the same in the upper half.
    fn warp(&self, rank: usize, warp: u32) -> usize {
        rank * self.warps + warp as usize
    }

    fn name(&self, agent: usize) -> String {
        let (warp, asynchronous) = (agent % (self.agents / 2), agent >= self.agents / 2);
        let (rank, warp) = (warp / self.warps, warp % self.warps);
        let block = if self.blocks.len() > 1 { format!(" of the cluster's block {rank}") } else { String::new() };
        if asynchronous {
            format!("an asynchronous operation of warp {warp}{block}")
        } else {
            format!("warp {warp}{block}")
        }
    }

    /// Something that orders a warp with others.
    pub fn ordered(&mut self, rank: usize, warp: u32, order: Order) {
        let me = self.warp(rank, warp);
        let agents = self.agents;
        match order {
            Order::Release(point) => {
                self.known[me].seen[me] = self.now;
                let known = self.known[me].clone();
                self.point(point).join(&known);
            }
            Order::Acquire(point) => {
                let Some(point) = self.points.get(&point) else { return };
                self.known[me].join(point);
            }
            Order::ProxyFence => {
                let known = &mut self.known[me];
                known.seen[me] = self.now;
                for (f, s) in known.fenced.iter_mut().zip(&known.seen) {
                    *f = (*f).max(*s);
                }
            }
            Order::Waited => self.known[me].seen[agents / 2 + me] = self.now,
            Order::Completes(key, phase) => {
                let now = self.now;
                self.point(Sync::Mbarrier(key, phase)).seen[agents / 2 + me] = now;
            }
        }
        self.now += 1;
        self.refresh(me);
    }

    /// What is known at a meeting. An mbarrier's phase starts with what the one before knew; of each place the last three
    /// meetings are kept, since nobody can wait for an older one.
    fn point(&mut self, point: Sync) -> &mut Known {
        if !self.points.contains_key(&point) {
            let before = point.before();
            let old = before.and_then(Sync::before).and_then(Sync::before);
            if let Some(old) = old {
                self.points.remove(&old);
            }
            let inherits = matches!(point, Sync::Mbarrier(..));
            let known = before.filter(|_| inherits).and_then(|b| self.points.get(&b)).cloned();
            self.points.insert(point, known.unwrap_or_else(|| Known::new(self.agents)));
        }
        // Inserted just now where it was missing.
        self.points.entry(point).or_default()
    }

    fn refresh(&mut self, me: usize) {
        let seen = self.known[me].seen.iter().zip(&self.active);
        let others = seen.enumerate().filter(|(a, (_, active))| *a != me && **active);
        self.least[me] = others.map(|(_, (s, _))| *s).min().unwrap_or(u32::MAX);
    }

    /// Notes an access, or says with what it races.
    pub fn touched(&mut self, a: &Access) -> Result<(), Box<Fault>> {
        let me = self.warp(a.rank, a.warp);
        let point = || Sync::Address(Key { rank: a.owner as u8, address: a.offset as u32 & !3 });
        match a.touch {
            Touch::Sync => return Ok(()),
            Touch::StrongRead => {
                self.ordered(a.rank, a.warp, Order::Acquire(point()));
                return Ok(());
            }
            Touch::StrongWrite => {
                self.ordered(a.rank, a.warp, Order::Release(point()));
                return Ok(());
            }
            Touch::Atomic => {
                self.ordered(a.rank, a.warp, Order::Acquire(point()));
                self.ordered(a.rank, a.warp, Order::Release(point()));
                return Ok(());
            }
            _ => {}
        }
        let asynchronous = matches!(a.touch, Touch::AsyncRead | Touch::AsyncWrite | Touch::CopyWrite);
        let agent = if asynchronous { self.agents / 2 + me } else { me };
        if !self.active[agent] {
            self.active[agent] = true;
            (0..self.known.len()).for_each(|w| self.refresh(w));
        }
        let range = a.offset..a.offset + a.bytes;
        let (least, now) = (self.least[me], self.now);
        let block = &self.blocks[a.owner];
        // Everybody's last access is known: nothing to look at. The usual case.
        let quiet = block.written[range.clone()].iter().all(|t| *t <= least);
        if !quiet {
            self.check_writer(a, me, agent)?;
        }
        if a.touch == Touch::AsyncRead {
            self.check_fence(a, me)?;
        }
        let block = &mut self.blocks[a.owner];
        if a.touch.writes() {
            if block.read[range.clone()].iter().any(|t| *t > least) {
                self.check_readers(a, me, agent)?;
            }
            let pieces = range.start / PIECE..range.end.div_ceil(PIECE);
            if self.blocks[a.owner].pieces.read[pieces].iter().any(|t| *t > least) {
                self.check_products(a, me, agent)?;
            }
            let block = &mut self.blocks[a.owner];
            block.written[range.clone()].fill(now);
            let fence = if a.touch == Touch::AsyncWrite { 0 } else { UNFENCED };
            block.writer[range.clone()].fill(agent as u16 | fence);
            block.pieces.write(range.clone(), now, agent as u16 | fence);
            block.line[range].fill(a.line);
        } else {
            block.read[range.clone()].fill(now);
            let reads = &mut block.reads[agent];
            if reads.is_empty() {
                *reads = vec![0; block.written.len()];
            }
            reads[range].fill(now);
        }
        Ok(())
    }

    /// A matrix product reads whole pieces of 16 bytes at shared `addresses`; `a` says who and where.
    pub fn read_pieces(&mut self, a: &Access, addresses: &[u32]) -> Result<(), Box<Fault>> {
        let me = self.warp(a.rank, a.warp);
        let agent = self.agents / 2 + me;
        if !self.active[agent] {
            self.active[agent] = true;
            (0..self.known.len()).for_each(|w| self.refresh(w));
        }
        let (now, known) = (self.now, &self.known[me]);
        let pieces = &self.blocks[a.owner].pieces;
        for address in addresses {
            let offset = *address as usize - super::SHARED_BASE as usize;
            let (writer, time) = (pieces.writer[offset / PIECE], pieces.written[offset / PIECE]);
            let other = (writer & !UNFENCED) as usize;
            let good = time == 0
                || writer & !UNFENCED != MIXED
                    && (other == me || other == agent || time <= known.seen[other])
                    && (writer & UNFENCED == 0 || time <= known.fenced[other]);
            if !good {
                let access = Access { offset, bytes: PIECE, ..*a };
                self.check_writer(&access, me, agent)?;
                self.check_fence(&access, me)?;
            }
        }
        let pieces = &mut self.blocks[a.owner].pieces;
        let reads = &mut pieces.reads[agent];
        if reads.is_empty() {
            *reads = vec![0; pieces.written.len()];
        }
        for address in addresses {
            let piece = (*address as usize - super::SHARED_BASE as usize) / PIECE;
            (pieces.read[piece], reads[piece]) = (now, now);
        }
        Ok(())
    }

    /// A write against matrix products' reads.
    fn check_products(&self, a: &Access, me: usize, agent: usize) -> Result<(), Box<Fault>> {
        let pieces = &self.blocks[a.owner].pieces;
        for (reader, reads) in pieces.reads.iter().enumerate().filter(|(_, r)| !r.is_empty()) {
            for piece in a.offset / PIECE..(a.offset + a.bytes).div_ceil(PIECE) {
                if reads[piece] != 0 && !self.knows(me, agent, reader, reads[piece]) {
                    let byte = a.offset.max(piece * PIECE);
                    return Err(self.race(a, byte, "overwrites", "read", reader, 0));
                }
            }
        }
        Ok(())
    }

    /// Whether warp `me`, acting as `agent`, knows what `other` did at `time`.
    fn knows(&self, me: usize, agent: usize, other: usize, time: u32) -> bool {
        // A warp's own doings are in order; its asynchronous ones are, too, among themselves and after its own.
        other == me || (other == agent && agent != me) || time <= self.known[me].seen[other]
    }

    fn check_writer(&self, a: &Access, me: usize, agent: usize) -> Result<(), Box<Fault>> {
        let block = &self.blocks[a.owner];
        for i in a.offset..a.offset + a.bytes {
            let (writer, time) = ((block.writer[i] & !UNFENCED) as usize, block.written[i]);
            if time != 0 && !self.knows(me, agent, writer, time) {
                let what = if a.touch.writes() { "overwrites" } else { "reads" };
                return Err(self.race(a, i, what, "wrote", writer, block.line[i]));
            }
        }
        Ok(())
    }

    fn check_readers(&self, a: &Access, me: usize, agent: usize) -> Result<(), Box<Fault>> {
        let block = &self.blocks[a.owner];
        for (reader, reads) in block.reads.iter().enumerate().filter(|(_, r)| !r.is_empty()) {
            for i in a.offset..a.offset + a.bytes {
                if reads[i] != 0 && !self.knows(me, agent, reader, reads[i]) {
                    return Err(self.race(a, i, "overwrites", "read", reader, 0));
                }
            }
        }
        Ok(())
    }

    fn check_fence(&self, a: &Access, me: usize) -> Result<(), Box<Fault>> {
        let block = &self.blocks[a.owner];
        for i in a.offset..a.offset + a.bytes {
            let writer = block.writer[i];
            let agent = (writer & !UNFENCED) as usize;
            if writer & UNFENCED != 0 && block.written[i] > self.known[me].fenced[agent] {
                return Err(Fault::new(
                    FaultKind::Asynchronous,
                    format!(
                        "an asynchronous operation reads shared address {:#x}, which {} wrote at PTX line {} with no \
                         fence.proxy.async since",
                        super::SHARED_BASE as usize + i,
                        self.name(agent),
                        block.line[i]
                    ),
                ));
            }
        }
        Ok(())
    }

    #[cold]
    fn race(&self, a: &Access, byte: usize, what: &str, did: &str, other: usize, line: u32) -> Box<Fault> {
        let place = if line > 0 { format!(" at PTX line {line}") } else { String::new() };
        Fault::new(
            FaultKind::Race,
            format!(
                "race: warp {} {what} shared address {:#x}, which {} {did}{place}, with nothing that orders the two",
                a.warp,
                super::SHARED_BASE as usize + byte,
                self.name(other)
            ),
        )
    }
}
