//! Counting sectors and bank conflicts.

use super::access::Located;
use crate::counters::Counters;

/// A global request: the 32-byte sectors that it touches.
pub fn global(counters: &mut Counters, mask: u32, at: &Located, bytes: usize) {
    counters.global_requests += 1;
    if bytes > 32 {
        // A bulk copy: whole sectors, one run a lane.
        let sectors = (0..32).filter(|l| mask >> l & 1 == 1).map(|l| {
            let first = at.addresses[l] >> 5;
            ((at.addresses[l] + bytes as u64 - 1) >> 5) - first + 1
        });
        let sectors: u64 = sectors.sum();
        counters.global_sectors += sectors;
        counters.global_sectors_ideal += sectors;
        return;
    }
    let total = mask.count_ones() as usize * bytes;
    counters.global_sectors_ideal += total.div_ceil(32) as u64;
    let sector = |lane: usize| at.addresses[lane] >> 5;
    let last = |lane: usize| (at.addresses[lane] + bytes as u64 - 1) >> 5;
    if at.contiguous {
        counters.global_sectors += last(31) - sector(0) + 1;
        return;
    }
    // Idle lanes repeat an executing one's address, so all 32 can be counted. Rising addresses, the usual case, need
    // no sorting.
    let mut sectors = [0u64; 64];
    let mut n = 0;
    let mut rising = true;
    for lane in 0..32 {
        for s in sector(lane)..=last(lane) {
            if n == 64 {
                break;
            }
            if n == 0 || sectors[n - 1] != s {
                rising &= n == 0 || sectors[n - 1] < s;
                sectors[n] = s;
                n += 1;
            }
        }
    }
    if !rising {
        sectors[..n].sort_unstable();
        let mut distinct = 0;
        for i in 0..n {
            if i == 0 || sectors[i] != sectors[i - 1] {
                distinct += 1;
            }
        }
        n = distinct;
    }
    counters.global_sectors += n as u64;
}

/// A shared request: passes over the banks. Accesses of 8 and 16 bytes are served in 2 and 4 parts of the warp.
pub fn shared(counters: &mut Counters, mask: u32, at: &Located, bytes: usize) {
    if bytes > 32 {
        // Bulk copies have no conflicts.
        return;
    }
    counters.shared_requests += 1;
    let parts = bytes.div_ceil(4).clamp(1, 4);
    if at.contiguous {
        counters.shared_wavefronts += parts as u64;
        counters.shared_wavefronts_ideal += parts as u64;
        return;
    }
    let lanes = 32 / parts;
    for part in 0..parts {
        let mut count = [0u8; 32];
        let mut words = [[0u32; 32]; 32];
        let mut most = 0;
        for lane in part * lanes..(part + 1) * lanes {
            if mask >> lane & 1 == 0 {
                continue;
            }
            let first = (at.addresses[lane] >> 2) as u32;
            for word in first..first + bytes.div_ceil(4) as u32 {
                let bank = word as usize % 32;
                let seen = count[bank] as usize;
                if !words[bank][..seen].contains(&word) && seen < 32 {
                    words[bank][seen] = word;
                    count[bank] += 1;
                    most = most.max(count[bank]);
                }
            }
        }
        if most > 0 {
            counters.shared_wavefronts += most as u64;
            counters.shared_wavefronts_ideal += 1;
        }
    }
}
