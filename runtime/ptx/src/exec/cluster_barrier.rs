//! The barrier of a cluster's threads: arrive, then wait.

/// Its state.
#[derive(Clone, Debug, Default)]
pub struct ClusterBarrier {
    /// How often it has completed.
    pub generation: u32,
    /// Lanes that have arrived in this generation, by block and warp.
    arrived: Vec<[u32; 32]>,
    /// Lanes that have arrived and not waited since.
    owing: Vec<[u32; 32]>,
}

impl ClusterBarrier {
    /// For `ranks` blocks.
    pub fn new(ranks: usize) -> ClusterBarrier {
        ClusterBarrier { generation: 0, arrived: vec![[0; 32]; ranks], owing: vec![[0; 32]; ranks] }
    }

    /// Adds its state to a hash.
    pub fn digest(&self, hash: &mut impl std::hash::Hasher) {
        hash.write_u32(self.generation);
        self.arrived.iter().chain(&self.owing).for_each(|lanes| super::endless::words(hash, lanes));
    }

    /// Lanes arrive.
    pub fn arrive(&mut self, rank: usize, warp: u32, mask: u32) -> Result<(), String> {
        let owing = &mut self.owing[rank][warp as usize];
        if *owing & mask != 0 {
            return Err("barrier.cluster.arrive a second time without a barrier.cluster.wait between".into());
        }
        *owing |= mask;
        self.arrived[rank][warp as usize] |= mask;
        Ok(())
    }

    /// Whether the wait of lanes that have arrived is over.
    pub fn wait(&mut self, rank: usize, warp: u32, mask: u32) -> Result<bool, String> {
        let owing = &mut self.owing[rank][warp as usize];
        if *owing & mask != mask {
            return Err("barrier.cluster.wait without a barrier.cluster.arrive before".into());
        }
        let over = self.arrived[rank][warp as usize] & mask == 0;
        if over {
            *owing &= !mask;
        }
        Ok(over)
    }

    /// Completes it when every thread that lives has arrived; `live` gives each block's lanes by warp.
    pub fn settle<'a>(&mut self, live: impl Iterator<Item = &'a [u32; 32]>) {
        let mut any = false;
        for (live, arrived) in live.zip(&self.arrived) {
            for (live, arrived) in live.iter().zip(arrived) {
                if live & !arrived != 0 {
                    return;
                }
                any |= *arrived != 0;
            }
        }
        if any {
            self.generation += 1;
            self.arrived.iter_mut().for_each(|a| *a = [0; 32]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_every_living_thread_of_every_block() {
        let mut live = [[0u32; 32]; 2];
        (live[0][0], live[0][1], live[1][0]) = (!0, 0xff, !0);
        let mut b = ClusterBarrier::new(2);
        b.arrive(0, 0, !0).unwrap();
        b.arrive(1, 0, !0).unwrap();
        b.settle(live.iter());
        assert_eq!((b.wait(0, 0, !0), b.generation), (Ok(false), 0));
        assert!(b.arrive(0, 0, 1).is_err() && b.wait(0, 1, 1).is_err());
        // The missing ones end: they are expected no more.
        live[0][1] = 0;
        b.settle(live.iter());
        assert_eq!((b.wait(0, 0, !0), b.wait(1, 0, !0), b.generation), (Ok(true), Ok(true), 1));
        b.settle(live.iter());
        assert_eq!(b.generation, 1);
    }
}
