//! A launch: clusters shared out over host threads, warps taking turns, faults completed with who and where.

use super::{
    async_copy::Completion,
    cluster_barrier::ClusterBarrier,
    cta::{Cluster, Cta},
    endless::Search,
    fault::{Fault, FaultKind},
    lanes::Tier,
    op::Cx,
    program::{Constant, Program, Special, ZERO},
    regs::{Regs, Row, Slot},
    warp::{self, Local, Stop, Warp},
};
use crate::{
    Options,
    counters::Counters,
    mem::{GLOBAL_BASE, RANK_SHIFT, SHARED_BASE, access::Region, global::Memory, races::Races, shared::Shared},
};
use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Instructions that a warp runs before the next one has its turn.
const TURN: u32 = 4096;
/// Rounds of turns after which a cluster that has not ended lets another one start: it may be spinning on what a later
/// one will do.
const ROUNDS: u32 = 256;
/// Clusters that one host thread keeps under way at most, as a device keeps only so many blocks resident.
const RESIDENT: usize = 64;

/// Everything about a launch that does not change while it runs.
pub struct Launch<'a> {
    /// Switches.
    pub options: &'a Options,
    /// Global memory.
    pub memory: &'a Memory,
    /// The code.
    pub program: &'a Program,
    /// Which hot loops to use.
    pub tier: Tier,
    /// `%nctaid`.
    pub grid: [u32; 3],
    /// `%ntid`.
    pub block: [u32; 3],
    /// Blocks of a cluster, 1 1 1 without clusters.
    pub cluster: [u32; 3],
    /// Whether the launch has clusters.
    pub explicit_cluster: bool,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: usize,
    /// The parameters, 16-byte aligned.
    pub params: &'a [u128],
    /// Addresses of the module's variables, by index.
    pub variables: &'a [u64],
    /// What the kernel prints.
    pub output: Mutex<String>,
}

impl Launch<'_> {
    /// The bytes of the kernel's parameters.
    #[inline]
    pub fn param_bytes(&self) -> &[u8] {
        let all = std::mem::size_of_val(self.params);
        // SAFETY: any initialised memory is bytes; the length is that of `params` at most.
        unsafe { std::slice::from_raw_parts(self.params.as_ptr().cast(), self.program.param_bytes.min(all)) }
    }

    /// The kernel's parameters as memory.
    #[inline]
    pub fn param_region(&self) -> Region {
        Region {
            base: self.params.as_ptr().cast_mut().cast(),
            shadow: std::ptr::null_mut(),
            start: 0,
            end: self.program.param_bytes as u64,
            lane_stride: 0,
            read_only: true,
        }
    }

    /// Where dynamic shared memory starts, in bytes from the start of shared memory.
    fn dynamic_start(&self) -> usize {
        self.program.static_shared.next_multiple_of(self.program.dynamic_align.max(16))
    }

    fn shared_bytes(&self) -> usize {
        if self.dynamic_shared == 0 { self.program.static_shared } else { self.dynamic_start() + self.dynamic_shared }
    }

    /// Runs every block and gives the sums.
    pub fn run(&self) -> Result<Counters, Box<Fault>> {
        let clusters: u64 = (0..3).map(|i| (self.grid[i] / self.cluster[i]) as u64).product();
        let threads = match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let threads = threads.min(clusters as usize).max(1);
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let results: Mutex<(Counters, Option<(u64, Box<Fault>)>)> = Mutex::default();
        let work = || {
            let mut counters = Counters::default();
            let fault = self.work(clusters, &next, &stop, &mut counters).err();
            if let Ok(mut results) = results.lock() {
                results.0.add(&counters);
                if let Some((cluster, fault)) = fault
                    && results.1.as_ref().is_none_or(|(c, _)| cluster < *c)
                {
                    results.1 = Some((cluster, fault));
                }
            }
        };
        if threads == 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(work);
                }
            });
        }
        match results.into_inner().unwrap_or_default() {
            (_, Some((_, fault))) => Err(fault),
            (counters, None) => Ok(counters),
        }
    }

    /// One host thread: takes clusters until none is left. A fault comes with its cluster's number.
    fn work(
        &self,
        clusters: u64,
        next: &AtomicU64,
        stop: &AtomicBool,
        counters: &mut Counters,
    ) -> Result<(), (u64, Box<Fault>)> {
        let mut under_way: VecDeque<(u64, Running)> = VecDeque::new();
        let template = self.template();
        let mut fresh = true;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if (fresh && under_way.len() < RESIDENT) || under_way.is_empty() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number < clusters {
                    under_way.push_front((number, Running::new(self, number, &template)));
                } else if under_way.is_empty() {
                    return Ok(());
                }
            }
            let Some((number, mut running)) = under_way.pop_front() else { continue };
            match running.run(self, counters) {
                Ok(true) => fresh = under_way.is_empty(),
                Ok(false) => {
                    under_way.push_back((number, running));
                    fresh = true;
                }
                Err(fault) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err((number, fault));
                }
            }
        }
    }

    /// The rows a warp starts with: registers zero, constants filled; the special registers come per warp.
    fn template(&self) -> Vec<Row> {
        let mut rows = vec![ZERO; self.program.rows as usize];
        for (slot, constant) in &self.program.constants {
            let value = match constant {
                Constant::Bits32(v) => *v as u128,
                Constant::Bits64(v) => *v as u128,
                Constant::Bits128(v) => *v,
                Constant::Variable { index, offset, .. } => {
                    self.variables.get(*index).map_or(0, |a| a.wrapping_add(*offset as u64)) as u128
                }
                Constant::Shared { offset, dynamic, .. } => {
                    let start = if *dynamic { self.dynamic_start() as u64 } else { 0 };
                    (SHARED_BASE + start).wrapping_add(*offset as u64) as u128
                }
                Constant::Special(_) => continue,
            };
            fill(&mut rows, *slot, constant.rows(), |_| value);
        }
        rows
    }
}

/// Writes a register of `rows` rows, lane by lane.
fn fill(all: &mut [Row], slot: Slot, rows: u32, value: impl Fn(usize) -> u128) {
    // A row pair holds 32 u64s, four rows 32 u128s: lane l of an n-row register is words l*n .. l*n+n.
    let n = rows as usize;
    for lane in 0..32 {
        let v = value(lane);
        for part in 0..n {
            let word = lane * n + part;
            all[slot.0 as usize + word / 32].0[word % 32] = (v >> (32 * part)) as u32;
        }
    }
}

/// `linear` as x, y, z in `extents`.
fn unflatten(linear: u64, extents: [u32; 3]) -> [u32; 3] {
    let (x, y) = (extents[0].max(1) as u64, extents[1].max(1) as u64);
    [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
}

/// A cluster under way.
struct Running {
    cluster: Cluster,
    /// Warps by block rank.
    warps: Vec<Vec<Warp>>,
    /// Warps not done.
    left: usize,
    executed: u64,
    search: Search,
}

impl Running {
    fn new(launch: &Launch<'_>, number: u64, template: &[Row]) -> Running {
        let per_axis = [0, 1, 2].map(|i| launch.grid[i] / launch.cluster[i]);
        let at = unflatten(number, per_axis);
        let ranks: u32 = launch.cluster.iter().product();
        let threads: u32 = launch.block.iter().product();
        let count = threads.div_ceil(32);
        let strict = &launch.options.strict;
        let (mut ctas, mut warps) = (Vec::new(), Vec::new());
        for rank in 0..ranks {
            let inner = unflatten(rank as u64, launch.cluster);
            let index = [0, 1, 2].map(|i| at[i] * launch.cluster[i] + inner[i]);
            let mut live = [0u32; 32];
            let mut mine = Vec::new();
            for w in 0..count {
                let lanes = (threads - w * 32).min(32);
                let mut rows = template.to_vec();
                specials(launch, &mut rows, index, rank, w);
                let local = Local::new(launch.program.local_bytes, strict.memory);
                let regs = Regs::new(&rows, launch.program.preds as usize);
                let tracked = if strict.registers { launch.program.tracked_registers } else { 0 };
                let warp = Warp::new(regs, w, lanes, local, tracked);
                live[w as usize] = warp.live();
                mine.push(warp);
            }
            ctas.push(Cta::new(index, Shared::new(launch.shared_bytes(), strict.memory), live));
            warps.push(mine);
        }
        let left = (ranks * count) as usize;
        let watched = strict.races && launch.shared_bytes() > 0;
        let races = watched.then(|| Box::new(Races::new(ranks as usize, count as usize, launch.shared_bytes())));
        Running {
            cluster: Cluster {
                ctas,
                races,
                barrier: ClusterBarrier::new(ranks as usize),
                transit: Default::default(),
                outside: false,
            },
            warps,
            left,
            executed: 0,
            search: Search::default(),
        }
    }

    /// Lets the warps take turns. True when all are done, false when others should have a go first.
    fn run(&mut self, launch: &Launch<'_>, counters: &mut Counters) -> Result<bool, Box<Fault>> {
        for _ in 0..ROUNDS {
            let mut progress = false;
            for rank in 0..self.warps.len() {
                for w in 0..self.warps[rank].len() {
                    let warp = &mut self.warps[rank][w];
                    if warp.live() == 0 {
                        continue;
                    }
                    let before = (warp.executed, warp.live());
                    let mut cx =
                        Cx { warp, cluster: &mut self.cluster, rank, launch, program: launch.program, counters };
                    let stop = match warp::run(&mut cx, TURN) {
                        Ok(stop) => stop,
                        Err(fault) => return Err(complete(launch, &self.cluster, rank, &self.warps[rank][w], fault)),
                    };
                    let warp = &mut self.warps[rank][w];
                    self.executed += warp.executed - before.0;
                    progress |= warp.executed != before.0 || warp.live() != before.1;
                    if stop == Stop::Done {
                        self.left -= 1;
                    }
                }
            }
            if self.left == 0 {
                return Ok(true);
            }
            if !progress {
                return Err(self.deadlock(launch));
            }
            if self.executed > launch.options.limit {
                let message =
                    format!("more than {} warp instructions in one cluster: an endless loop?", launch.options.limit);
                return Err(self.blame(launch, Fault::new(FaultKind::Limit, message)));
            }
        }
        if self.search.again(&mut self.cluster, &self.warps) {
            return Err(self.deadlock(launch));
        }
        Ok(false)
    }

    /// Pins a fault on the first warp that is not done.
    fn blame(&self, launch: &Launch<'_>, fault: Box<Fault>) -> Box<Fault> {
        for (rank, warps) in self.warps.iter().enumerate() {
            if let Some(warp) = warps.iter().find(|w| w.live() != 0) {
                return complete(launch, &self.cluster, rank, warp, fault);
            }
        }
        fault
    }

    fn deadlock(&self, launch: &Launch<'_>) -> Box<Fault> {
        let mut message = String::from("deadlock: nobody can go on");
        for (rank, warps) in self.warps.iter().enumerate() {
            let [x, y, z] = self.cluster.ctas[rank].index;
            for warp in warps {
                let line = |pc: u32| launch.program.code.get(pc as usize).map_or(0, |i| i.line);
                for group in warp.others.iter().chain([&warp.current]).filter(|g| g.mask != 0) {
                    let what = match (&group.wait, &warp.polled) {
                        (Some(wait), _) => {
                            format!("wait at PTX line {} for {}", line(group.pc), wait.describe(&self.cluster))
                        }
                        (None, Some((wait, pc))) => {
                            format!("poll for ever at PTX line {}: {}", line(*pc), wait.describe(&self.cluster))
                        }
                        (None, None) => format!("go round in circles for ever at PTX line {}", line(group.pc)),
                    };
                    message.push_str(&format!(
                        "\n  block ({x}, {y}, {z}) warp {} lanes {:#010x} {what}",
                        warp.index, group.mask
                    ));
                }
            }
        }
        self.blame(launch, Fault::new(FaultKind::Deadlock, message))
    }
}

/// Adds who and where to a fault.
fn complete(launch: &Launch<'_>, cluster: &Cluster, rank: usize, warp: &Warp, mut fault: Box<Fault>) -> Box<Fault> {
    let program = launch.program;
    fault.entry = program.entry.clone();
    fault.block = Some(cluster.ctas[rank].index);
    fault.warp = Some(warp.index);
    if let Some(lane) = fault.lane {
        fault.thread = Some(unflatten((warp.index * 32 + lane) as u64, launch.block));
    }
    let pc = warp.current.pc as usize;
    if let Some(inst) = program.code.get(pc) {
        fault.line = inst.line;
        fault.instruction = program.text.get(pc).cloned().unwrap_or_default();
        fault.source = inst.loc.map(|loc| {
            let file = program.files.get(&loc.file).map_or("?", String::as_str);
            format!("{file}:{}:{}", loc.line, loc.column)
        });
    }
    fault.output = launch.output.lock().map(|o| o.clone()).unwrap_or_default();
    fault
}

/// Fills the rows of special registers.
fn specials(launch: &Launch<'_>, rows: &mut [Row], index: [u32; 3], rank: u32, warp: u32) {
    let axis = |v: [u32; 3], i: u8| v[i as usize % 3];
    let ranks: u32 = launch.cluster.iter().product();
    for (slot, constant) in &launch.program.constants {
        let Constant::Special(special) = *constant else { continue };
        let value = |lane: usize| -> u128 {
            let lane = lane as u32;
            let thread = unflatten((warp * 32 + lane) as u64, launch.block);
            let v = match special {
                Special::Tid(i) => axis(thread, i),
                Special::Ntid(i) => axis(launch.block, i),
                Special::Ctaid(i) => axis(index, i),
                Special::Nctaid(i) => axis(launch.grid, i),
                Special::Clusterid(i) => axis(index, i) / axis(launch.cluster, i),
                Special::Nclusterid(i) => axis(launch.grid, i) / axis(launch.cluster, i),
                Special::ClusterCtaid(i) => axis(index, i) % axis(launch.cluster, i),
                Special::ClusterNctaid(i) => axis(launch.cluster, i),
                Special::ClusterCtarank => rank,
                Special::ClusterNctarank => ranks,
                Special::IsExplicitCluster => launch.explicit_cluster as u32,
                Special::Laneid => lane,
                Special::Warpid => warp,
                Special::Nwarpid => 32,
                // Blocks are dealt out over as many multiprocessors as an H100 has.
                Special::Smid => {
                    let [gx, gy, _] = launch.grid.map(|v| v as u64);
                    ((index[0] as u64 + gx * (index[1] as u64 + gy * index[2] as u64)) % 132) as u32
                }
                Special::Nsmid => 132,
                Special::Gridid => 1,
                Special::LanemaskEq => 1 << lane,
                Special::LanemaskLt => (1 << lane) - 1,
                Special::LanemaskLe => (2u32 << lane).wrapping_sub(1),
                Special::LanemaskGe => !((1 << lane) - 1),
                Special::LanemaskGt => !(2u32 << lane).wrapping_sub(1),
                Special::DynamicSmemSize => launch.dynamic_shared as u32,
                Special::TotalSmemSize | Special::AggrSmemSize => launch.shared_bytes() as u32,
            };
            v as u128
        };
        fill(rows, *slot, constant.rows(), value);
    }
}

/// Sizes that a launch must respect; [`crate::Emulator::launch`] calls it first.
pub fn check(launch: &Launch<'_>) -> Result<(), Box<Fault>> {
    let wrong = |message: String| {
        let mut fault = Fault::new(FaultKind::Launch, message);
        fault.entry = launch.program.entry.clone();
        Err(fault)
    };
    let show = |v: [u32; 3]| format!("{}x{}x{}", v[0], v[1], v[2]);
    let limits = &launch.program.limits;
    let volume = |v: [u32; 3]| v.iter().map(|x| *x as u64).product::<u64>();
    let threads = volume(launch.block);
    if threads == 0 || threads > 1024 {
        return wrong(format!("a block of {} has {threads} threads; 1 to 1024 are possible", show(launch.block)));
    }
    if volume(launch.grid) == 0 {
        return wrong(format!("a grid of {} has no blocks", show(launch.grid)));
    }
    if let Some(required) = limits.required_threads
        && required != launch.block
    {
        return wrong(format!("blocks of {}, but .reqntid demands {}", show(launch.block), show(required)));
    }
    if let Some(most) = limits.max_threads
        && threads > most as u64
    {
        return wrong(format!("blocks of {threads} threads, but .maxntid allows {most}"));
    }
    if volume(launch.cluster) == 0 || volume(launch.cluster) > 16 {
        return wrong(format!("a cluster of {}: 1 to 16 blocks are possible", show(launch.cluster)));
    }
    if let Some(required) = limits.required_cluster
        && required != launch.cluster
    {
        return wrong(format!(
            "clusters of {}, but .reqnctapercluster demands {}",
            show(launch.cluster),
            show(required)
        ));
    }
    if (0..3).any(|i| !launch.grid[i].is_multiple_of(launch.cluster[i])) {
        return wrong(format!(
            "a grid of {} is no multiple of the cluster {}",
            show(launch.grid),
            show(launch.cluster)
        ));
    }
    let (shared, most) = (launch.shared_bytes(), launch.options.max_shared);
    if shared > most {
        let excess = shared - most;
        return wrong(format!("{shared} bytes of shared memory are {excess} more than the {most} a block can have"));
    }
    debug_assert!(most < 1 << RANK_SHIFT && GLOBAL_BASE > 1 << 32);
    Ok(())
}

/// The completion mode, for instructions.
impl Launch<'_> {
    /// When asynchronous results arrive.
    pub fn completion(&self) -> Completion {
        self.options.completion
    }
}
