//! A warp: registers, local memory, and its lanes' places in the code.
//!
//! Lanes that are at the same instruction with the same call stack form a [`Group`]. One group runs at a time: the one
//! deepest in calls, then the one furthest behind in [`Order`], until it jumps, leaves its
//! block or reaches another group's pc, where the two merge. LLVM's structured code keeps groups few, and a loop's late
//! lanes catch up before the early ones leave.

use super::{
    async_copy::AsyncCopies,
    bulk_groups::BulkGroups,
    cta::Cluster,
    endless,
    in_flight::Key,
    op::{Cx, Flow},
    products::Products,
    program::{Inst, Program},
    regs::Regs,
};
use crate::{
    decode::order::Order,
    exec::fault::{Fault, FaultKind},
    mem::{LOCAL_BASE, access::Region},
};
use std::hash::{Hash, Hasher};

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// CTA barrier `id` to complete its `generation`.
    Barrier {
        /// 0 to 15.
        id: u8,
        /// Completions seen when the wait began.
        generation: u32,
    },
    /// A phase of an mbarrier to be over.
    Mbarrier {
        /// Which barrier.
        key: Key,
        /// Its phase when the wait began.
        phase: u64,
    },
    /// The cluster's barrier to complete its generation.
    Cluster(u32),
    /// The lanes of a member mask to arrive at the same instruction.
    Members(u32),
    /// A called function, from which the lanes have just returned. Never waited for: only given as woken.
    Callee,
}

impl Wait {
    /// Whether the wait is over. `mask` are the group's lanes, `live` the warp's.
    fn over(&self, cluster: &mut Cluster, rank: usize, mask: u32, live: u32) -> bool {
        match *self {
            Wait::Barrier { id, generation } => cluster.ctas[rank].barrier_generation(id) != generation,
            Wait::Mbarrier { key, phase } => cluster.phase_over(key, phase) != Some(false),
            Wait::Cluster(generation) => cluster.barrier.generation != generation,
            Wait::Members(members) => members & live & !mask == 0,
            Wait::Callee => true,
        }
    }

    /// For the deadlock report.
    pub fn describe(&self, cluster: &Cluster) -> String {
        match self {
            Wait::Mbarrier { key, phase } => {
                let barrier = cluster.ctas.get(key.rank as usize).and_then(|c| c.mbarriers.peek(key.address));
                let block = if key.rank == 0 { String::new() } else { format!(" of the cluster's block {}", key.rank) };
                let state =
                    barrier.map_or(format!("phase {phase}; there is no such barrier any more"), |b| b.describe());
                format!("the mbarrier at shared address {:#x}{block}: {state}", key.address)
            }
            Wait::Barrier { id, .. } => format!("barrier {id}"),
            Wait::Cluster(_) => "the cluster's barrier".into(),
            Wait::Callee => "a function".into(),
            Wait::Members(members) => format!("the other lanes of member mask {members:#010x}"),
        }
    }
}

/// Lanes that are at the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group {
    /// Next instruction.
    pub pc: u32,
    /// Its lanes; a group without lanes has ended.
    pub mask: u32,
    /// Return addresses.
    pub stack: Vec<u32>,
    /// Set by an instruction that returns [`Flow::Blocked`].
    pub wait: Option<Wait>,
    /// The wait that is over, for the instruction that runs again.
    pub woken: Option<Wait>,
}

impl Group {
    /// Runs before groups with a greater key.
    fn key(&self, order: &Order) -> (std::cmp::Reverse<usize>, u32) {
        let rank = order.rank.get(self.pc as usize).copied().unwrap_or(u32::MAX);
        (std::cmp::Reverse(self.stack.len()), rank)
    }
}

/// Local memory of 32 threads.
#[derive(Debug, Default)]
pub struct Local {
    data: Vec<u128>,
    shadow: Vec<u128>,
    bytes: usize,
}

impl Local {
    /// `bytes` for each thread.
    pub fn new(bytes: usize, tracked: bool) -> Local {
        let stride = bytes.next_multiple_of(16);
        let words = stride / 16 * 32;
        Local { data: vec![0; words], shadow: if tracked { vec![0; words] } else { Vec::new() }, bytes: stride }
    }

    /// Copies a thread's bytes from one local address to another; both must lie inside.
    pub fn copy(&mut self, lane: usize, from: u64, to: u64, bytes: usize) {
        let stride = self.bytes;
        let at = |address: u64| lane * stride + (address - LOCAL_BASE) as usize;
        let (from, to) = (at(from), at(to));
        for store in [&mut self.data, &mut self.shadow] {
            if from.max(to) + bytes <= store.len() * 16 {
                // SAFETY: both ranges were just checked; `copy` allows them to overlap.
                unsafe {
                    let base: *mut u8 = store.as_mut_ptr().cast();
                    std::ptr::copy(base.add(from), base.add(to), bytes);
                }
            }
        }
    }

    /// Reads a thread's bytes at a local address; what does not exist reads as zero.
    pub fn read(&self, lane: usize, address: u64, bytes: &mut [u8]) {
        let at = lane * self.bytes + (address - LOCAL_BASE) as usize;
        if at + bytes.len() <= self.data.len() * 16 {
            // SAFETY: the range was just checked.
            unsafe {
                let from = self.data.as_ptr().cast::<u8>().add(at);
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
            }
        }
    }

    /// Writes a thread's bytes at a local address.
    pub fn write(&mut self, lane: usize, address: u64, bytes: &[u8]) {
        let at = lane * self.bytes + (address - LOCAL_BASE) as usize;
        for (store, shadow) in [(&mut self.data, false), (&mut self.shadow, true)] {
            if at + bytes.len() <= store.len() * 16 {
                // SAFETY: the range was just checked.
                unsafe {
                    let to = store.as_mut_ptr().cast::<u8>().add(at);
                    if shadow {
                        std::ptr::write_bytes(to, 1, bytes.len());
                    } else {
                        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    }
                }
            }
        }
    }

    /// As the access path sees it.
    pub fn region(&mut self) -> Region {
        Region {
            base: self.data.as_mut_ptr().cast(),
            shadow: if self.shadow.is_empty() { std::ptr::null_mut() } else { self.shadow.as_mut_ptr().cast() },
            start: LOCAL_BASE,
            end: LOCAL_BASE + self.bytes as u64,
            lane_stride: self.bytes,
            read_only: false,
        }
    }
}

/// One warp.
pub struct Warp {
    /// Its registers.
    pub regs: Regs,
    /// Its number in the block.
    pub index: u32,
    /// The group that runs.
    pub current: Group,
    /// The groups that do not.
    pub others: Vec<Group>,
    /// Its threads' local memory.
    pub local: Local,
    /// The global allocation touched last.
    pub cached: Region,
    /// Lanes of tracked registers that were written (strict mode).
    pub written: Vec<u32>,
    /// cp.async copies under way.
    pub copies: AsyncCopies,
    /// Bulk copies out of shared memory under way.
    pub bulk: BulkGroups,
    /// wgmma products under way.
    pub products: Products,
    /// The wait that a poll was last in vain for, and where: index of the instruction.
    pub polled: Option<(Wait, u32)>,
    /// Turns in a row that ended with other groups waiting for theirs.
    starved: u32,
    /// Instructions executed, for %clock and the limit.
    pub executed: u64,
    live: u32,
}

/// Turns that lanes may take in a row while others of their warp wait. Code that merely diverges for long must not be
/// mistaken for lanes that spin: those ahead of it would come to a barrier alone.
const PATIENCE: u32 = 64;

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Every lane has exited.
    Done,
    /// Every group waits.
    Blocked,
    /// It used up its turn or gave it away.
    Turn,
}

impl Warp {
    /// A warp of `lanes` threads at the program's start.
    pub fn new(regs: Regs, index: u32, lanes: u32, local: Local, tracked_registers: u32) -> Warp {
        let live = if lanes >= 32 { !0 } else { (1 << lanes) - 1 };
        Warp {
            regs,
            index,
            current: Group { mask: live, ..Group::default() },
            others: Vec::new(),
            local,
            cached: Region::EMPTY,
            written: vec![0; tracked_registers as usize],
            copies: AsyncCopies::default(),
            bulk: BulkGroups::default(),
            products: Products::default(),
            polled: None,
            starved: 0,
            executed: 0,
            live,
        }
    }

    /// Adds everything that decides what the warp will do to a hash, but for the time.
    pub fn digest(&self, hash: &mut impl Hasher) {
        self.regs.digest(hash);
        for group in self.others.iter().chain([&self.current]) {
            group.hash(hash);
        }
        // Which of several groups has its turn next.
        let runnable = 1 + self.others.iter().filter(|g| g.wait.is_none()).count() as u32;
        if runnable > 1 {
            endless::words(hash, &[self.starved.min(PATIENCE + 1), self.starved % runnable]);
        }
        self.local.data.iter().for_each(|v| hash.write_u128(*v));
        hash.write_u32(self.live);
        hash.write_usize(self.copies.pending() + self.bulk.pending() + self.products.pending());
    }

    /// Lanes that have not exited.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Ends lanes of the current group; the rest goes on behind the instruction.
    pub fn exit(&mut self, mask: u32) {
        self.live &= !mask;
        self.current.mask &= !mask;
        self.current.pc += 1;
    }

    /// Sends the lanes of `mask` to `pc` with `stack`; the rest of the group goes on behind the instruction.
    pub fn send(&mut self, mask: u32, pc: u32, stack: Option<Vec<u32>>) {
        if mask == self.current.mask {
            self.current.pc = pc;
            if let Some(stack) = stack {
                self.current.stack = stack;
            }
            return;
        }
        let stack = stack.unwrap_or_else(|| self.current.stack.clone());
        self.others.push(Group { pc, mask, stack, wait: None, woken: None });
        self.current.mask &= !mask;
        self.current.pc += 1;
    }

    /// As [`Warp::send`], to an instruction that runs again because `woken` is over.
    pub fn send_woken(&mut self, mask: u32, pc: u32, stack: Vec<u32>, woken: Wait) {
        if mask == self.current.mask {
            (self.current.pc, self.current.stack, self.current.woken) = (pc, stack, Some(woken));
            return;
        }
        self.others.push(Group { pc, mask, stack, wait: None, woken: Some(woken) });
        self.current.mask &= !mask;
        self.current.pc += 1;
    }

    /// Makes the lanes of `mask` the current group; the others of the group go on behind the instruction.
    pub fn split_off(&mut self, mask: u32) {
        let rest = self.current.mask & !mask;
        if rest != 0 {
            let (pc, stack) = (self.current.pc + 1, self.current.stack.clone());
            self.others.push(Group { pc, mask: rest, stack, wait: None, woken: None });
            self.current.mask = mask;
        }
    }

    /// Takes the wait that woke the current group, if the instruction runs for the second time.
    pub fn take_woken(&mut self) -> Option<Wait> {
        self.current.woken.take()
    }

    /// Merges groups that met and makes the next one current. False when none can run.
    fn select(&mut self, cluster: &mut Cluster, rank: usize, order: &Order) -> bool {
        let live = self.live;
        if self.others.is_empty() {
            self.starved = 0;
            return wake(&mut self.current, cluster, rank, live) && self.current.mask != 0;
        }
        let current = std::mem::take(&mut self.current);
        self.others.push(current);
        self.others.retain(|g| g.mask != 0);
        self.merge();
        for group in &mut self.others {
            wake(group, cluster, rank, live);
        }
        let mut runnable: Vec<usize> = (0..self.others.len()).filter(|i| self.others[*i].wait.is_none()).collect();
        let key = |i: &usize| self.others[*i].key(order);
        let next = match runnable.len() {
            0 | 1 => runnable.first().copied(),
            n if self.starved > PATIENCE => {
                runnable.sort_by_key(key);
                Some(runnable[self.starved as usize % n])
            }
            _ => runnable.iter().copied().min_by_key(key),
        };
        match next {
            Some(i) => {
                self.current = self.others.swap_remove(i);
                true
            }
            None => {
                // Keep one as current, so that a blocked warp looks the same with one group or many.
                self.current = self.others.pop().unwrap_or_default();
                false
            }
        }
    }

    fn merge(&mut self) {
        let mut i = 0;
        while i < self.others.len() {
            let mut j = i + 1;
            while j < self.others.len() {
                let (a, b) = (&self.others[i], &self.others[j]);
                let mergeable = |g: &Group| g.woken.is_none() && matches!(g.wait, None | Some(Wait::Members(_)));
                if a.pc == b.pc && a.wait == b.wait && mergeable(a) && mergeable(b) && a.stack == b.stack {
                    let mask = self.others.swap_remove(j).mask;
                    self.others[i].mask |= mask;
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// The pc at which the current group must let others look: theirs, and the end of its block.
    fn limit(&self, order: &Order) -> u32 {
        if self.others.is_empty() {
            return u32::MAX;
        }
        let end = order.block_end.get(self.current.pc as usize).copied().unwrap_or(u32::MAX);
        let same_depth = |g: &&Group| g.stack.len() == self.current.stack.len();
        self.others
            .iter()
            .filter(same_depth)
            .filter(|g| g.pc > self.current.pc)
            .map(|g| g.pc)
            .min()
            .unwrap_or(u32::MAX)
            .min(end)
    }
}

/// Ends a group's wait if it is over. True when the group does not wait.
fn wake(group: &mut Group, cluster: &mut Cluster, rank: usize, live: u32) -> bool {
    match group.wait {
        None => true,
        Some(wait) if wait.over(cluster, rank, group.mask, live) => {
            group.wait = None;
            group.woken = Some(wait);
            true
        }
        Some(_) => false,
    }
}

/// Runs the context's warp until it waits, ends, or has executed `fuel` instructions.
pub fn run(cx: &mut Cx<'_>, fuel: u32) -> Result<Stop, Box<Fault>> {
    let mut left = fuel;
    let program: &Program = cx.program;
    let stop = 'select: loop {
        if !cx.warp.select(cx.cluster, cx.rank, &program.order) {
            break if cx.warp.live == 0 { Stop::Done } else { Stop::Blocked };
        }
        let limit = cx.warp.limit(&program.order);
        loop {
            let pc = cx.warp.current.pc;
            if pc >= limit {
                continue 'select;
            }
            if left == 0 {
                // Lanes that spin may wait for others of their own warp: those go first in the next turn.
                cx.warp.starved = if cx.warp.others.is_empty() { 0 } else { cx.warp.starved.wrapping_add(1) };
                break 'select Stop::Turn;
            }
            left -= 1;
            let Some(inst) = program.code.get(pc as usize) else {
                return Err(Fault::new(FaultKind::Trap, "the code ends without `ret` or `exit`"));
            };
            let mut mask = cx.warp.current.mask;
            if let Some(guard) = inst.guard {
                mask &= cx.warp.regs.pred_in(guard);
                if mask == 0 {
                    cx.warp.current.pc += 1;
                    continue;
                }
            }
            cx.counters.instructions[inst.kind as usize] += 1;
            if inst.track && cx.launch.options.strict.registers {
                track(cx, inst, mask)?;
            }
            match inst.op.run(cx, mask)? {
                Flow::Next => cx.warp.current.pc += 1,
                Flow::Jumped => continue 'select,
                Flow::Yield => {
                    cx.warp.current.pc += 1;
                    cx.warp.starved = if cx.warp.others.is_empty() { 0 } else { cx.warp.starved.wrapping_add(1) };
                    break 'select Stop::Turn;
                }
                Flow::Blocked => {
                    cx.counters.instructions[inst.kind as usize] -= 1;
                    continue 'select;
                }
            }
        }
    };
    cx.warp.executed += (fuel - left) as u64;
    Ok(stop)
}

/// Strict mode's account of registers that nothing wrote. Only instructions for which the decoder could not prove that
/// every path writes first come here.
#[cold]
fn track(cx: &mut Cx<'_>, inst: &Inst, mask: u32) -> Result<(), Box<Fault>> {
    for (slot, name, writes) in &inst.held {
        cx.warp.products.touched(*slot, name, *writes)?;
    }
    let written = &mut cx.warp.written;
    let mut known = !0;
    for (slot, name) in &inst.suspect {
        known &= written[*slot as usize];
        if !inst.copies && mask & !written[*slot as usize] != 0 {
            let lane = (mask & !written[*slot as usize]).trailing_zeros();
            let message = format!("reads register {name}, which nothing wrote");
            return Err(Fault::new(FaultKind::Uninitialised, message).at_lane(lane as usize));
        }
    }
    for slot in &inst.tracked {
        let row = &mut written[*slot as usize];
        *row = *row & !mask | known & mask;
    }
    Ok(())
}
