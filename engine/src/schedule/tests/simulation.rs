//! A long day: tens of thousands of steps of a busy server.

use super::driver::Driver;
use crate::kv::CacheKey;
use crate::schedule::{NewRequest, SchedulerConfig};

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn a_busy_server_runs_for_30_000_steps() {
    let mut dice = Dice(1);
    let config = SchedulerConfig {
        block_size: 8,
        max_num_seqs: 24,
        max_num_batched_tokens: 64,
        ..SchedulerConfig::new(100, 200)
    };
    let mut d = Driver::new(config);
    let (mut next, mut completed) = (0, 0);
    while d.steps < 30_000 {
        if d.scheduler().stats().num_waiting < 10 && dice.below(4) == 0 {
            let system = dice.below(4) as u32;
            let own = 1 + dice.below(60);
            let prompt: Vec<u32> =
                (0..32).map(|i| (i * 3 + system) % 97).chain((0..own).map(|_| dice.below(97) as u32)).collect();
            let request = NewRequest::new(next, prompt, CacheKey::model("m"));
            d.add(NewRequest {
                priority: dice.below(2) as i32,
                n: if dice.below(10) == 0 { 2 } else { 1 },
                max_tokens: Some(1 + dice.below(80) as usize),
                stop_token_ids: vec![0],
                ..request
            })
            .unwrap();
            next += 1;
        }
        if dice.below(50) == 0 {
            d.abort(dice.below(next.max(1)));
        }
        while d.plan() {}
        completed += u64::from(d.complete());
    }
    d.drain();
    d.assert_answers();
    let stats = d.scheduler().stats();
    assert!(completed >= 20_000 && next > 2_000, "{completed} steps, {next} requests");
    assert!(stats.num_preemptions > 100, "{stats:?}");
    assert!(stats.prefix_cache.hits * 4 > stats.prefix_cache.queries, "{stats:?}");
}
