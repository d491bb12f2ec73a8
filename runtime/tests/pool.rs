//! The thread pool under stress: every program exactly once, errors that come back, nothing that hangs.

use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*},
    time::{Duration, Instant},
};
use tegula::pool::{MOST_THREADS, Pace, Pool, PoolError, PoolOptions};

fn pool(threads: usize, spin: u32) -> Pool {
    Pool::new(&PoolOptions { threads, spin, pin: false }).unwrap()
}

fn exactly_once(pool: &Pool, total: usize) {
    let counts: Vec<AtomicU8> = (0..total).map(|_| AtomicU8::new(0)).collect();
    pool.run(total as u64, 0, &|r, _| {
        for i in r {
            counts[i as usize].fetch_add(1, Relaxed);
        }
    })
    .unwrap();
    let wrong: Vec<_> = counts.iter().enumerate().filter(|(_, c)| c.load(Relaxed) != 1).map(|(i, _)| i).collect();
    assert!(wrong.is_empty(), "of {total} on {} threads not run exactly once: {wrong:?}", pool.threads());
}

#[test]
fn every_program_runs_exactly_once() {
    for threads in [1, 2, 3, 7] {
        for spin in [0, 50, 4000] {
            let pool = pool(threads, spin);
            for total in (0..100).chain([101, 255, 256, 1000, 4099]) {
                exactly_once(&pool, total);
            }
        }
    }
}

#[test]
fn many_short_launches_of_changing_size_lose_and_repeat_nothing() {
    // A stale worker meets the next launch's counters here, if it ever does.
    let pool = pool(4, 30);
    let sum = AtomicU64::new(0);
    let mut expected = 0u64;
    for round in 0..60_000u64 {
        let total = 1 + round * 7919 % 61;
        pool.run(total, 0, &|r, _| {
            for i in r {
                sum.fetch_add(i + round, Relaxed);
            }
        })
        .unwrap();
        expected += total * (total - 1) / 2 + total * round;
        assert_eq!(sum.load(Relaxed), expected, "round {round}");
    }
}

#[test]
fn launches_from_several_threads_queue_up() {
    let pool = pool(2, 100);
    let inside: Vec<_> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|s| {
        for launcher in 0..4 {
            let (pool, inside) = (&pool, &inside);
            s.spawn(move || {
                for _ in 0..200 {
                    exactly_once(pool, 57);
                    let alone = |_, _| {
                        inside[launcher].fetch_add(1, SeqCst);
                        let others = (0..4).filter(|i| *i != launcher).any(|i| inside[i].load(SeqCst) > 0);
                        assert!(!others, "two launches at a time");
                        inside[launcher].fetch_sub(1, SeqCst);
                    };
                    pool.run(2, 0, &alone).unwrap();
                }
            });
        }
    });
}

/// Plain memory for one launch, which its programs write without any synchronisation.
struct Plain(Vec<UnsafeCell<u64>>);
// SAFETY: a program writes only its own element, and nobody reads before the launch has returned.
unsafe impl Sync for Plain {}

impl Plain {
    fn add(&self, i: u64, n: u64) {
        // SAFETY: as above.
        unsafe { *self.0[i as usize].get() += n }
    }
}

#[test]
fn launches_that_are_short_now_and_then_long_lose_and_repeat_nothing() {
    // The pace is wrong all the time: launches are left to one thread, shared late, shared at once and in few chunks or in
    // many, while another thread launches too, and workers are awake, about to sleep, or asleep.
    let rounds = 6000;
    for (threads, spin) in [(2, 4000), (2, 20), (3, 0), (3, 200), (5, 50)] {
        let pool = pool(threads, spin);
        std::thread::scope(|s| {
            for client in 0..2u64 {
                let pool = &pool;
                s.spawn(move || {
                    let pace = Pace::default();
                    let mut memory = Plain((0..200).map(|_| UnsafeCell::new(0)).collect());
                    let mut state = 0x9e37_79b9_7f4a_7c15 + client;
                    for round in 0..rounds {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let (total, long) = (1 + (state >> 33) % 200, (state >> 60) == 0);
                        let write = |programs: std::ops::Range<u64>, _| {
                            for i in programs {
                                memory.add(i, 1 + i * round);
                                (0..if long { 100 } else { 0 }).for_each(|_| std::hint::spin_loop());
                            }
                        };
                        pool.run_at(&pace, total, 0, &write).unwrap();
                        for (i, cell) in memory.0.iter_mut().enumerate() {
                            let i = i as u64;
                            let expected = if i < total { 1 + i * round } else { 0 };
                            let found = std::mem::take(cell.get_mut());
                            assert_eq!(found, expected, "program {i} of {total}, round {round}, {threads} threads");
                        }
                    }
                });
            }
        });
    }
}

/// A pace that was learnt from programs that do nothing.
fn short_pace(pool: &Pool) -> Pace {
    let pace = Pace::default();
    for _ in 0..300 {
        pool.run_at(&pace, 64, 0, &|r, _| assert!(!std::hint::black_box(r).is_empty())).unwrap();
    }
    pace
}

#[test]
fn short_launches_stay_with_the_thread_that_launches() {
    let pool = pool(3, 100_000);
    let pace = short_pace(&pool);
    let (me, mut alone) = (std::thread::current().id(), 0);
    for _ in 0..400 {
        let others = AtomicUsize::new(0);
        let count = |_, _| {
            others.fetch_add(usize::from(std::thread::current().id() != me), Relaxed);
        };
        pool.run_at(&pace, 64, 0, &count).unwrap();
        alone += usize::from(others.into_inner() == 0);
    }
    // Not all: the thread may have to give way to others while it looks at the clock.
    assert!(alone > 300, "{alone} of 400");
}

#[test]
fn a_launch_that_was_thought_short_is_shared_after_all() {
    for spin in [0, 4000] {
        let pool = pool(2, spin);
        let pace = short_pace(&pool);
        // The launcher begins with one of these eight programs alone; of the other seven, two wait for each other.
        let arrived = AtomicUsize::new(0);
        let end = Instant::now() + Duration::from_secs(20);
        let work = |programs: std::ops::Range<u64>, _| {
            for i in programs {
                match i {
                    0 => std::thread::sleep(Duration::from_millis(2)),
                    1 | 2 => {
                        arrived.fetch_add(1, SeqCst);
                        while arrived.load(SeqCst) < 2 {
                            assert!(Instant::now() < end, "nobody was called");
                            std::thread::yield_now();
                        }
                    }
                    _ => {}
                }
            }
        };
        pool.run_at(&pace, 8, 0, &work).unwrap();
    }
}

#[test]
fn a_panic_in_a_launch_that_is_thought_short_comes_back() {
    let pool = pool(2, 100);
    for bad in [0u64, 5, 63] {
        let pace = short_pace(&pool);
        let fall = |r: std::ops::Range<u64>, _| assert!(!r.contains(&bad), "program {bad} fell");
        assert_eq!(pool.run_at(&pace, 64, 0, &fall), Err(PoolError::Panicked(format!("program {bad} fell"))));
        exactly_once(&pool, 64);
    }
}

#[test]
fn scratch_is_aligned_large_enough_and_of_one_thread() {
    let pool = pool(3, 100);
    for bytes in [1usize, 100, 70_000, 3 << 20, 64] {
        pool.run(300, bytes, &|r, scratch| {
            assert_eq!(scratch.addr() % 64, 0);
            // SAFETY: this thread's own, of `bytes` bytes.
            let scratch = unsafe { std::slice::from_raw_parts_mut(scratch, bytes) };
            scratch.fill(r.start as u8);
            std::hint::black_box(&mut *scratch);
            assert!(scratch.iter().all(|x| *x == r.start as u8));
        })
        .unwrap();
    }
}

#[test]
fn scratch_that_does_not_exist_is_an_error() {
    let pool = pool(2, 100);
    for bytes in [1 << 60, usize::MAX] {
        let error = pool.run(10, bytes, &|_, _| unreachable!()).unwrap_err();
        assert_eq!(error.to_string().split(" for").next(), Some("scratch memory of the threads: no memory"));
        exactly_once(&pool, 10);
    }
}

#[test]
fn nested_use_is_an_error_and_harms_nothing() {
    let (outer, other) = (pool(2, 100), pool(2, 100));
    let errors = AtomicUsize::new(0);
    outer
        .run(10, 0, &|r, _| {
            for _ in r {
                let inner = if errors.load(Relaxed).is_multiple_of(2) { &outer } else { &other };
                assert_eq!(inner.run(5, 0, &|_, _| unreachable!()), Err(PoolError::Nested));
                errors.fetch_add(1, Relaxed);
            }
        })
        .unwrap();
    assert_eq!(errors.load(Relaxed), 10);
    exactly_once(&outer, 100);
}

#[test]
fn a_panic_comes_back_as_an_error_and_the_pool_goes_on() {
    for threads in [1, 2, 4] {
        let pool = pool(threads, 100);
        for bad in [0u64, 7, 499] {
            let error = pool
                .run(500, 0, &|r, _| {
                    if r.contains(&bad) {
                        panic!("program {bad} fell")
                    }
                })
                .unwrap_err();
            assert_eq!(error, PoolError::Panicked(format!("program {bad} fell")));
            exactly_once(&pool, 500);
        }
    }
}

#[test]
fn a_payload_that_panics_when_it_is_dropped_harms_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let pool = pool(2, 100);
    for bad in [0u64, 7, 499] {
        let fall = |r: std::ops::Range<u64>, _| {
            if r.contains(&bad) {
                std::panic::panic_any(Bomb)
            }
        };
        assert!(matches!(pool.run(500, 0, &fall), Err(PoolError::Panicked(_))));
        exactly_once(&pool, 500);
    }
}

#[test]
fn parked_workers_wake_and_idle_workers_park() {
    let pool = pool(3, 10);
    for _ in 0..20 {
        let end = Instant::now() + Duration::from_secs(20);
        while pool.parked() < 2 {
            assert!(Instant::now() < end, "workers do not park");
            std::thread::sleep(Duration::from_micros(200));
        }
        // Three programs that wait for each other need three threads.
        let arrived = AtomicUsize::new(0);
        pool.run(3, 0, &|r, _| {
            for _ in r {
                arrived.fetch_add(1, SeqCst);
                while arrived.load(SeqCst) < 3 {
                    assert!(Instant::now() < end, "a parked worker did not come");
                    std::thread::yield_now();
                }
            }
        })
        .unwrap();
    }
}

#[test]
fn the_launcher_does_not_wait_for_workers_that_have_no_work() {
    // 63 workers on few CPUs: most come late or never. Launches go on regardless.
    let pool = pool(64, 0);
    for _ in 0..300 {
        exactly_once(&pool, 64);
    }
}

#[test]
fn a_number_of_threads_that_no_pool_has_is_refused() {
    for threads in [0, MOST_THREADS + 1, 3_000_000, usize::MAX] {
        let options = PoolOptions { threads, spin: 100, pin: false };
        let error = Pool::new(&options).err().unwrap();
        assert_eq!(error, PoolError::Threads(threads));
        assert_eq!(error.to_string(), format!("a pool of {threads} threads; expected 1 to 1024"));
    }
    assert_eq!(pool(1, 100).threads(), 1);
}

#[test]
fn pools_can_be_made_and_dropped_at_once() {
    for i in 0..100 {
        let pool = Pool::new(&PoolOptions { threads: 3, spin: i % 3 * 200, pin: true }).unwrap();
        if i % 2 == 0 {
            exactly_once(&pool, 10);
        }
    }
}
