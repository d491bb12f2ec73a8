//! From a warp's addresses to host bytes, with every check on the way.
//!
//! Checks are made on the least and greatest address of the executing lanes, so a legal access costs one pass over the
//! lanes; only a suspicious one is looked at lane by lane, to name the culprit or to serve lanes in different
//! allocations.

use super::{
    GLOBAL_BASE, LOCAL_BASE, RANK_SHIFT, SHARED_BASE, Space, WINDOW_BITS, races::Access, space_of, traffic,
    watch::Touch,
};
use crate::exec::{
    fault::{Fault, FaultKind},
    lanes::Tier,
    op::Cx,
    regs::{Regs, Slot},
};

/// Shadow state of a byte that was written. 0 is one that nothing wrote.
pub const WRITTEN: u8 = 1;
/// Shadow state of a byte that an asynchronous copy will write, not yet waited for.
pub const PENDING: u8 = 2;

/// A run of addresses backed by host bytes.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Host address of `start`.
    pub base: *mut u8,
    /// One byte per byte, 1 where written; null when all is initialised or nobody asks.
    pub shadow: *mut u8,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Host bytes between the lanes' own copies (local memory).
    pub lane_stride: usize,
    /// Stores are errors.
    pub read_only: bool,
}

impl Region {
    /// Nothing.
    pub const EMPTY: Region = Region {
        base: std::ptr::null_mut(),
        shadow: std::ptr::null_mut(),
        start: 0,
        end: 0,
        lane_stride: 0,
        read_only: false,
    };

    #[inline(always)]
    fn holds(&self, low: u64, high: u64, bytes: u64) -> bool {
        low >= self.start && high <= self.end && self.end - high >= bytes
    }
}

// SAFETY: a region is a pair of numbers; whoever dereferences it states why that is right.
unsafe impl Send for Region {}

/// An address operand: a register (32 or 64 bits) plus an offset.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The base register.
    pub slot: Slot,
    /// Whether it has 64 bits.
    pub wide: bool,
    /// Bytes to add.
    pub offset: i64,
}

/// What a warp wants of memory.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Space that the instruction names.
    pub space: Space,
    /// Bytes of each lane, 1 to 32 (or more for matrix rows).
    pub bytes: usize,
    /// Alignment that each lane's address must have.
    pub align: usize,
    /// What is done.
    pub touch: Touch,
}

/// Where the executing lanes' bytes lie.
pub struct Located {
    /// Address of every lane, inside its window; idle lanes repeat the first executing one's.
    pub addresses: [u64; 32],
    /// The region of all lanes, or of the first when `each` is there.
    pub region: Region,
    /// The regions of the lanes when they differ.
    pub each: Option<Box<[Region; 32]>>,
    /// The space they lie in (of the first lane, when mixed).
    pub space: Space,
    /// Whether lane i's address is lane 0's plus i times the bytes, all lanes executing.
    pub contiguous: bool,
}

impl Located {
    /// Host address of a lane's bytes.
    #[inline(always)]
    pub fn ptr(&self, lane: usize) -> *mut u8 {
        let region = match &self.each {
            None => &self.region,
            Some(each) => &each[lane],
        };
        region.base.wrapping_add((self.addresses[lane] - region.start) as usize + lane * region.lane_stride)
    }

    /// Host address of a lane's shadow bytes, null when untracked.
    #[inline(always)]
    pub fn shadow(&self, lane: usize) -> *mut u8 {
        let region = match &self.each {
            None => &self.region,
            Some(each) => &each[lane],
        };
        if region.shadow.is_null() {
            return region.shadow;
        }
        region.shadow.wrapping_add((self.addresses[lane] - region.start) as usize + lane * region.lane_stride)
    }
}

/// What one pass over the addresses tells.
struct Summary {
    addresses: [u64; 32],
    low: u64,
    high: u64,
    /// Or of all addresses.
    bits: u64,
    contiguous: bool,
}

#[inline(always)]
fn summarise_body(regs: &Regs, address: Address, mask: u32, bytes: u64) -> Summary {
    let mut a = [0u64; 32];
    if address.wide {
        let row = regs.row::<u64>(address.slot);
        for i in 0..32 {
            a[i] = row[i].wrapping_add(address.offset as u64);
        }
    } else {
        let row = regs.row::<u32>(address.slot);
        for i in 0..32 {
            a[i] = row[i].wrapping_add(address.offset as u32) as u64;
        }
    }
    if mask != !0 {
        let first = a[mask.trailing_zeros() as usize & 31];
        for i in 0..32 {
            a[i] = if mask >> i & 1 == 1 { a[i] } else { first };
        }
    }
    let (mut low, mut high, mut bits) = (a[0], a[0], a[0]);
    // Or-reductions and minima become vector code; a chain of && does not.
    let mut apart = 0;
    for i in 0..32 {
        low = low.min(a[i]);
        high = high.max(a[i]);
        bits |= a[i];
        apart |= a[i] ^ a[0].wrapping_add(i as u64 * bytes);
    }
    Summary { addresses: a, low, high, bits, contiguous: apart == 0 && mask == !0 }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
fn summarise_avx512(regs: &Regs, address: Address, mask: u32, bytes: u64) -> Summary {
    summarise_body(regs, address, mask, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn summarise_avx2(regs: &Regs, address: Address, mask: u32, bytes: u64) -> Summary {
    summarise_body(regs, address, mask, bytes)
}

#[inline(always)]
fn summarise(tier: Tier, regs: &Regs, address: Address, mask: u32, bytes: u64) -> Summary {
    match tier {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only chosen where the features were detected.
        Tier::Avx512 => unsafe { summarise_avx512(regs, address, mask, bytes) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Tier::Avx2 => unsafe { summarise_avx2(regs, address, mask, bytes) },
        _ => summarise_body(regs, address, mask, bytes),
    }
}

/// Finds and checks the bytes that the lanes of `mask` (not empty) name. Reads of uninitialised bytes, misaligned and
/// out-of-bounds addresses are faults; written bytes become initialised.
#[inline]
pub fn locate(cx: &mut Cx<'_>, mask: u32, address: Address, request: Request) -> Result<Located, Box<Fault>> {
    let s = summarise(cx.launch.tier, &cx.warp.regs, address, mask, request.bytes as u64);
    locate_summary(cx, mask, s, request)
}

/// As [`locate`], for addresses computed by the instruction itself (matrix rows). Idle lanes' addresses are ignored.
pub fn locate_at(
    cx: &mut Cx<'_>,
    mask: u32,
    mut addresses: [u64; 32],
    request: Request,
) -> Result<Located, Box<Fault>> {
    let first = addresses[mask.trailing_zeros() as usize & 31];
    for (i, a) in addresses.iter_mut().enumerate() {
        if mask >> i & 1 == 0 {
            *a = first;
        }
    }
    let (mut low, mut high, mut bits) = (first, first, first);
    for a in addresses {
        low = low.min(a);
        high = high.max(a);
        bits |= a;
    }
    locate_summary(cx, mask, Summary { addresses, low, high, bits, contiguous: false }, request)
}

fn locate_summary(cx: &mut Cx<'_>, mask: u32, s: Summary, request: Request) -> Result<Located, Box<Fault>> {
    let Summary { mut addresses, mut low, mut high, bits, contiguous } = s;
    // Host atomics need alignment too, strict or not.
    let must = cx.launch.options.strict.alignment || request.touch == Touch::Atomic;
    if bits & (request.align as u64 - 1) != 0 && must {
        return Err(misaligned(mask, &addresses, request));
    }
    let mut space = request.space;
    if space == Space::Generic {
        if low >> WINDOW_BITS != high >> WINDOW_BITS {
            return locate_each(cx, mask, &addresses, request);
        }
        space = space_of(low);
        if space != Space::Global {
            let inside = (1 << WINDOW_BITS) - 1;
            addresses.iter_mut().for_each(|a| *a &= inside);
            (low, high) = (low & inside, high & inside);
        }
    }
    let found = match space {
        Space::Shared => shared_region(cx, low, high, &mut addresses),
        Space::Local => Some((cx.warp.local.region(), low, high)),
        Space::Param => Some((cx.launch.param_region(), low, high)),
        _ => {
            if !cx.warp.cached.holds(low, high, request.bytes as u64)
                && let Some(region) = cx.launch.memory.region(low)
            {
                cx.warp.cached = region;
            }
            Some((cx.warp.cached, low, high))
        }
    };
    let region = match found {
        Some((region, low, high)) if region.holds(low, high, request.bytes as u64) => region,
        // The addresses may lie in several allocations or blocks: lane by lane, from the window addresses.
        _ => {
            let window = space.window().map_or(0, |w| w << WINDOW_BITS);
            let generic = s.addresses.map(|a| if request.space == Space::Generic { a } else { a | window });
            return locate_each(cx, mask, &generic, request);
        }
    };
    let located = Located { addresses, region, each: None, space, contiguous };
    finish(cx, mask, &located, request)?;
    Ok(located)
}

/// The shared region of the block that all addresses name, which are stripped of the block's number.
fn shared_region(cx: &mut Cx<'_>, low: u64, high: u64, addresses: &mut [u64; 32]) -> Option<(Region, u64, u64)> {
    let number = low >> RANK_SHIFT;
    if number != high >> RANK_SHIFT {
        return None;
    }
    let owner = if number == 0 { cx.rank } else { number as usize - 1 };
    if number != 0 {
        let inside = (1 << RANK_SHIFT) - 1;
        addresses.iter_mut().for_each(|a| *a &= inside);
    }
    let inside = (1 << RANK_SHIFT) - 1;
    let region = cx.cluster.ctas.get_mut(owner)?.shared.region();
    Some((region, low & inside, high & inside))
}

/// The slow path: lanes in different regions, or an error to be pinned on a lane. Addresses are generic.
#[cold]
fn locate_each(cx: &mut Cx<'_>, mask: u32, generic: &[u64; 32], request: Request) -> Result<Located, Box<Fault>> {
    let mut each = Box::new([Region::EMPTY; 32]);
    let mut addresses = [0u64; 32];
    for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
        let a = generic[lane];
        let space = space_of(a);
        let mut offset = if space == Space::Global { a } else { a & ((1 << WINDOW_BITS) - 1) };
        let region = match space {
            Space::Shared => {
                let number = offset >> RANK_SHIFT;
                offset &= (1 << RANK_SHIFT) - 1;
                let owner = if number == 0 { cx.rank } else { number as usize - 1 };
                cx.cluster.ctas.get_mut(owner).map(|cta| cta.shared.region())
            }
            Space::Local => Some(cx.warp.local.region()),
            Space::Param => Some(cx.launch.param_region()),
            _ => cx.launch.memory.region(offset),
        };
        match region {
            Some(region) if region.holds(offset, offset, request.bytes as u64) => {
                (each[lane], addresses[lane]) = (region, offset);
            }
            _ => return Err(out_of_bounds(cx, lane, space, offset, request)),
        }
    }
    let first = mask.trailing_zeros() as usize & 31;
    for lane in (0..32).filter(|l| mask >> l & 1 == 0) {
        (each[lane], addresses[lane]) = (each[first], addresses[first]);
    }
    let space = space_of(generic[first]);
    let located = Located { addresses, region: each[first], each: Some(each), space, contiguous: false };
    finish(cx, mask, &located, request)?;
    Ok(located)
}

/// Checks that need the bytes' place: read-only memory, initialisation, the race watch; and counts the traffic.
#[inline]
fn finish(cx: &mut Cx<'_>, mask: u32, at: &Located, request: Request) -> Result<(), Box<Fault>> {
    cx.cluster.outside |= at.space == Space::Global || at.each.is_some();
    if at.space == Space::Shared && cx.cluster.ctas.len() > 1 && cx.launch.options.strict.races {
        check_remote(cx, mask, at)?;
    }
    let (reads, writes) = (request.touch.reads(), request.touch.writes());
    if writes && (at.region.read_only || at.each.as_ref().is_some_and(|e| e.iter().any(|r| r.read_only))) {
        let lane = mask.trailing_zeros() as usize & 31;
        let what = cx.launch.memory.describe(at.addresses[lane]);
        return Err(Fault::new(FaultKind::ReadOnly, format!("store to read-only memory: {what}")).at_lane(lane));
    }
    if !at.region.shadow.is_null() || at.each.is_some() {
        if reads {
            check_initialised(cx, mask, at, request)?;
        }
        if writes {
            mark(
                mask,
                at,
                request.bytes,
                if matches!(request.touch, Touch::AsyncWrite | Touch::CopyWrite) { PENDING } else { WRITTEN },
            );
        }
    }
    if at.space == Space::Shared {
        if cx.cluster.races.is_some() {
            watch(cx, mask, at, request)?;
        }
        if cx.launch.options.count_traffic {
            traffic::shared(cx.counters, mask, at, request.bytes);
        }
    } else if at.space == Space::Global && cx.launch.options.count_traffic {
        traffic::global(cx.counters, mask, at, request.bytes);
    }
    Ok(())
}

/// Another block's shared memory exists from the first cluster barrier until that block ends.
fn check_remote(cx: &mut Cx<'_>, mask: u32, at: &Located) -> Result<(), Box<Fault>> {
    let own = cx.cluster.ctas[cx.rank].shared.region().base;
    if at.each.is_none() && at.region.base == own {
        return Ok(());
    }
    for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
        let base = at.each.as_ref().map_or(&at.region, |e| &e[lane]).base;
        let owner = cx.cluster.ctas.iter_mut().position(|c| c.shared.region().base == base);
        let Some(owner) = owner.filter(|o| *o != cx.rank) else { continue };
        let why = if cx.cluster.barrier.generation == 0 {
            "may not have started: a barrier.cluster comes first"
        } else if cx.cluster.ctas[owner].live.iter().all(|l| *l == 0) {
            "has ended: a barrier.cluster before its end keeps it"
        } else {
            continue;
        };
        let message = format!("access to the shared memory of the cluster's block {owner}, which {why}");
        return Err(Fault::new(FaultKind::Synchronisation, message).at_lane(lane));
    }
    Ok(())
}

fn check_initialised(cx: &Cx<'_>, mask: u32, at: &Located, request: Request) -> Result<(), Box<Fault>> {
    if at.contiguous && at.region.lane_stride == 0 && !at.region.shadow.is_null() {
        // SAFETY: `locate` checked that 32 * bytes from lane 0's address lie in the region; the shadow is as long.
        let shadow = unsafe { std::slice::from_raw_parts(at.shadow(0), request.bytes * 32) };
        if shadow.iter().fold(1, |all, b| all & b) == 1 {
            return Ok(());
        }
    }
    for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
        let shadow = at.shadow(lane);
        if shadow.is_null() {
            continue;
        }
        let used = if let Touch::ReadSome(mask) = request.touch { mask } else { !0 };
        for byte in (0..request.bytes).filter(|b| *b >= 32 || used >> b & 1 == 1) {
            // SAFETY: the lane's bytes lie in its region; the shadow is as long.
            match unsafe { *shadow.add(byte) } {
                WRITTEN => {}
                PENDING => return Err(too_early(lane, at, request, byte)),
                _ => return Err(uninitialised(cx, lane, at, request, byte)),
            }
        }
    }
    Ok(())
}

/// Sets the shadow of the lanes' bytes to [`WRITTEN`] or [`PENDING`].
#[inline]
pub fn mark(mask: u32, at: &Located, bytes: usize, state: u8) {
    if at.contiguous && at.region.lane_stride == 0 && !at.region.shadow.is_null() {
        // SAFETY: as in `check_initialised`.
        unsafe { std::ptr::write_bytes(at.shadow(0), state, bytes * 32) };
        return;
    }
    for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
        let shadow = at.shadow(lane);
        if !shadow.is_null() {
            // SAFETY: as in `check_initialised`.
            unsafe { std::ptr::write_bytes(shadow, state, bytes) };
        }
    }
}

#[cold]
fn watch(cx: &mut Cx<'_>, mask: u32, at: &Located, request: Request) -> Result<(), Box<Fault>> {
    let line = cx.program.code[cx.warp.current.pc as usize].line;
    let (rank, warp, touch) = (cx.rank, cx.warp.index, request.touch);
    // Whose memory: found again from the region, since lanes may name several blocks.
    for owner in 0..cx.cluster.ctas.len() {
        let base = cx.cluster.ctas[owner].shared.region().base;
        let mine = (0..32).fold(0u32, |m, lane| {
            let region = at.each.as_ref().map_or(&at.region, |e| &e[lane]);
            m | ((region.base == base) as u32) << lane
        }) & mask;
        let Some(races) = &mut cx.cluster.races else { return Ok(()) };
        if at.contiguous && mine == !0 {
            let offset = (at.addresses[0] - SHARED_BASE) as usize;
            return races.touched(&Access { touch, owner, rank, warp, offset, bytes: request.bytes * 32, line });
        }
        for lane in (0..32).filter(|l| mine >> l & 1 == 1) {
            let offset = (at.addresses[lane] - SHARED_BASE) as usize;
            races
                .touched(&Access { touch, owner, rank, warp, offset, bytes: request.bytes, line })
                .map_err(|fault| fault.at_lane(lane))?;
        }
    }
    Ok(())
}

fn misaligned(mask: u32, addresses: &[u64; 32], request: Request) -> Box<Fault> {
    let bad = |l: &usize| mask >> l & 1 == 1 && addresses[*l] & (request.align as u64 - 1) != 0;
    let lane = (0..32).find(bad).unwrap_or(0);
    Fault::new(
        FaultKind::Alignment,
        format!(
            "{} address {:#x} is no multiple of {}, which an access of {} bytes needs",
            request.space.name(),
            addresses[lane],
            request.align,
            request.bytes
        ),
    )
    .at_lane(lane)
}

fn out_of_bounds(cx: &mut Cx<'_>, lane: usize, space: Space, offset: u64, request: Request) -> Box<Fault> {
    let what = match request.touch {
        Touch::Atomic => "atomic",
        touch if touch.writes() => "store",
        _ => "load",
    };
    let near = match space {
        Space::Shared => {
            let len = cx.cluster.ctas[cx.rank].shared.len() as u64;
            let end = SHARED_BASE + len;
            if offset < SHARED_BASE {
                format!("shared memory starts at {SHARED_BASE:#x}")
            } else {
                format!("shared memory ends at {end:#x} ({len} bytes)")
            }
        }
        Space::Local => format!("a thread's local memory lies at {LOCAL_BASE:#x}..{:#x}", cx.warp.local.region().end),
        Space::Param => format!("parameters end at {:#x}", cx.launch.param_region().end),
        _ if offset < GLOBAL_BASE => "it is no global address (null?)".to_string(),
        _ => cx.launch.memory.describe(offset),
    };
    Fault::new(
        FaultKind::Bounds,
        format!("{what} of {} bytes at {} address {offset:#x} is out of bounds: {near}", request.bytes, space.name()),
    )
    .at_lane(lane)
}

fn uninitialised(cx: &Cx<'_>, lane: usize, at: &Located, request: Request, byte: usize) -> Box<Fault> {
    let address = at.addresses[lane];
    let near = match at.space {
        Space::Global => format!(": {}", cx.launch.memory.describe(address)),
        _ => String::new(),
    };
    Fault::new(
        FaultKind::Uninitialised,
        format!(
            "load of {} bytes at {} address {address:#x} reads byte {byte}, which nothing wrote{near}",
            request.bytes,
            at.space.name()
        ),
    )
    .at_lane(lane)
}

fn too_early(lane: usize, at: &Located, request: Request, byte: usize) -> Box<Fault> {
    Fault::new(
        FaultKind::Asynchronous,
        format!(
            "load of {} bytes at {} address {:#x} reads byte {byte}, which an asynchronous copy writes that nothing \
             has waited for",
            request.bytes,
            at.space.name(),
            at.addresses[lane]
        ),
    )
    .at_lane(lane)
}
