//! The pool against a slow model of it; names that never meet.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

fn name(n: u32) -> BlockHash {
    CacheKey::model("m").root().chain(&[n])
}

#[test]
fn released_contents_are_found_until_their_room_is_needed() {
    let mut pool = BlockPool::new(3);
    let held = pool.allocate(3).unwrap();
    assert_eq!(pool.allocate(1), None);
    for (i, &block) in held.iter().enumerate() {
        assert_eq!(pool.commit(block, name(i as u32)), Commit::Indexed);
    }
    held.iter().rev().for_each(|&block| assert!(pool.release(block)));
    assert_eq!(pool.usage(), KvUsage { used: 0, cached: 3, unused: 0 });

    // The tail was released first, so it goes first; the use of another spares that one.
    assert!(pool.share(held[0]) && pool.release(held[0]));
    assert_eq!(pool.allocate(1).unwrap()[0].id, held[2].id);
    assert_eq!(pool.lookup(&name(2)), None);
    assert_eq!(pool.lookup(&name(1)), Some(held[1]));
    assert_eq!(pool.allocate(1).unwrap()[0].id, held[1].id);
    assert_eq!(pool.lookup(&name(0)), Some(held[0]));
}

#[test]
fn blocks_without_a_name_are_reused_before_cached_ones() {
    let mut pool = BlockPool::new(2);
    let held = pool.allocate(2).unwrap();
    pool.commit(held[0], name(0));
    held.iter().for_each(|&block| assert!(pool.release(block)));
    assert_eq!(pool.allocate(1).unwrap()[0].id, held[1].id);
    assert!(pool.lookup(&name(0)).is_some());
}

#[test]
fn what_is_stale_is_recognised_and_does_nothing() {
    let mut pool = BlockPool::new(1);
    let old = pool.allocate(1).unwrap()[0];
    assert!(pool.release(old));
    assert!(!pool.release(old), "released twice");
    assert_eq!(pool.commit(old, name(0)), Commit::Stale, "nobody holds it");

    let new = pool.allocate(1).unwrap()[0];
    assert_eq!(new.id, old.id);
    let before = pool.clone();
    assert!(!pool.is_current(old) && pool.is_current(new));
    assert!(!pool.share(old) && !pool.release(old));
    assert_eq!(pool.commit(old, name(0)), Commit::Stale);
    assert_eq!(pool.ref_count(old), 0);
    assert_eq!(pool, before);
    assert!(!pool.share(BlockRef { id: 9, generation: 0 }), "no such block");
}

#[test]
fn of_two_equal_contents_one_is_found() {
    let mut pool = BlockPool::new(2);
    let held = pool.allocate(2).unwrap();
    assert_eq!(pool.commit(held[0], name(7)), Commit::Indexed);
    assert_eq!(pool.commit(held[1], name(7)), Commit::Duplicate);
    assert_eq!(pool.lookup(&name(7)), Some(held[0]));
    pool.release(held[1]);
    assert_eq!(pool.usage(), KvUsage { used: 1, cached: 0, unused: 1 });
}

#[test]
fn integrity_names_what_is_wrong() {
    let mut pool = BlockPool::new(2);
    let held = pool.allocate(1).unwrap();
    pool.check_integrity([&held[..]]).unwrap();
    let leak = pool.check_integrity([]).unwrap_err().to_string();
    assert!(leak.contains("1 references and 0 holders"), "{leak}");
    pool.release(held[0]);
    let use_after_free = pool.check_integrity([&held[..]]).unwrap_err().to_string();
    assert!(use_after_free.contains("0 references and 1 holders"), "{use_after_free}");
    let stale = pool.allocate(1).map(|_| pool.check_integrity([&held[..]]).unwrap_err().to_string()).unwrap();
    assert!(stale.contains("handed out again"), "{stale}");

    let mut broken = BlockPool::new(2);
    broken.num_cached = 1;
    assert!(broken.check_integrity([]).unwrap_err().to_string().contains("0 free blocks are cached, counted were 1"));
    let mut broken = BlockPool::new(2);
    broken.free.remove(1);
    assert!(broken.check_integrity([]).unwrap_err().to_string().contains("block 1 has 0 references"));
    let mut broken = BlockPool::new(2);
    broken.index.insert(name(0), 1);
    assert!(broken.check_integrity([]).unwrap_err().to_string().contains("1 names are known"));
}

#[test]
fn hashes_survive_text_and_strange_text_is_refused() {
    let hash = name(3);
    assert_eq!(BlockHash::try_from(hash.to_string()), Ok(hash));
    assert_eq!(serde_json::from_str::<BlockHash>(&serde_json::to_string(&hash).unwrap()).unwrap(), hash);
    for text in ["", "00", &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
        assert_eq!(BlockHash::try_from(text.to_owned()), Err(NotAHash), "{text}");
    }
}

/// The bytes that a known root and block hash, written out by hand: the names must not change by accident.
#[test]
fn the_encoding_is_as_documented() {
    use sha2::{Digest, Sha256};
    let mut bytes = vec![0, 2, 1, 0, 0, 0, 0, 0, 0, 0, b'm']; // root; model, length, "m"
    bytes.extend([4, 1, 0, 0, 0, 0, 0, 0, 0, b'a', 5, 0, 0, 0, 0, 0, 0, 0]); // adapter, length, "a", generation
    bytes.extend([3, 2, 0, 0, 0, 0, 0, 0, 0, b's', b't']); // salt, length, "st"
    let root: [u8; 32] = Sha256::digest(&bytes).into();
    let mut block = vec![1];
    block.extend(root);
    block.extend([7, 0, 0, 0, 0, 1, 0, 0]);
    let hex: String = Sha256::digest(&block).iter().map(|b| format!("{b:02x}")).collect();

    let key = CacheKey {
        model: "m".into(),
        adapter: Some(Adapter { name: "a".into(), generation: 5 }),
        cache_salt: Some("st".into()),
    };
    assert_eq!(key.root().chain(&[7, 256]).to_string(), hex);
}

fn keys() -> impl Strategy<Value = CacheKey> {
    let text = || prop_oneof!["[ab]{0,3}", Just("s1".to_owned())];
    let adapter = (text(), 0..3u64).prop_map(|(name, generation)| Adapter { name, generation });
    (text(), proptest::option::of(adapter), proptest::option::of(text()))
        .prop_map(|(model, adapter, cache_salt)| CacheKey { model, adapter, cache_salt })
}

/// What may be done to a pool.
#[derive(Clone, Debug)]
enum Op {
    Allocate(usize),
    /// The n-th reference ever given out, valid or not.
    Commit(usize, u32),
    Release(usize),
    Share(u32),
    Reset,
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4usize).prop_map(Op::Allocate),
        4 => (0..64usize, 0..12u32).prop_map(|(i, n)| Op::Commit(i, n)),
        4 => (0..64usize).prop_map(Op::Release),
        3 => (0..12u32).prop_map(Op::Share),
        1 => Just(Op::Reset),
    ]
}

proptest! {
    /// Different keys, different names: no salt is ever taken for an adapter or a model.
    #[test]
    fn keys_never_meet(a in keys(), b in keys(), tokens in prop::collection::vec(0..5u32, 1..4)) {
        prop_assert_eq!(a == b, a.root() == b.root());
        prop_assert_eq!(a == b, a.root().chain(&tokens) == b.root().chain(&tokens));
    }

    /// Names depend on all tokens before, and on where blocks begin.
    #[test]
    fn chains_never_meet(a in prop::collection::vec(prop::collection::vec(0..3u32, 1..3), 0..4),
                         b in prop::collection::vec(prop::collection::vec(0..3u32, 1..3), 0..4)) {
        let root = CacheKey::model("m").root();
        let end = |blocks: &[Vec<u32>]| blocks.iter().fold(root, |hash, tokens| hash.chain(tokens));
        prop_assert_eq!(a == b, end(&a) == end(&b));
    }

    /// Whatever is done, in whatever order, with whatever references: the pool does what a slow list of facts says.
    #[test]
    fn pool_is_its_model(num_blocks in 1..9u32, ops in prop::collection::vec(ops(), 0..120)) {
        let mut pool = BlockPool::new(num_blocks);
        let mut given: Vec<BlockRef> = vec![];
        let mut held: Vec<BlockRef> = vec![]; // with repeats: one entry a holder
        let mut names: HashMap<u32, BlockRef> = HashMap::new(); // may be out of date: the room may have been reused
        for op in ops {
            let distinct = held.iter().map(|b| b.id).collect::<HashSet<_>>().len();
            match op {
                Op::Allocate(n) => {
                    let got = pool.allocate(n);
                    prop_assert_eq!(got.is_some(), n <= num_blocks as usize - distinct);
                    for block in got.into_iter().flatten() {
                        prop_assert!(held.iter().all(|b| b.id != block.id), "{:?} was held", block);
                        prop_assert!(!given.contains(&block), "{:?} was given before", block);
                        names.retain(|_, b| b.id != block.id);
                        given.push(block);
                        held.push(block);
                    }
                }
                Op::Commit(i, n) => if let Some(&block) = given.get(i) {
                    let want = if !held.contains(&block) {
                        Commit::Stale
                    } else if names.contains_key(&n) || names.values().any(|b| *b == block) {
                        Commit::Duplicate
                    } else {
                        names.insert(n, block);
                        Commit::Indexed
                    };
                    prop_assert_eq!(pool.commit(block, name(n)), want);
                },
                Op::Release(i) => if let Some(&block) = given.get(i) {
                    let at = held.iter().position(|b| *b == block);
                    prop_assert_eq!(pool.release(block), at.is_some());
                    at.map(|at| held.swap_remove(at));
                },
                Op::Share(n) => {
                    let found = pool.lookup(&name(n));
                    prop_assert_eq!(found, names.get(&n).copied());
                    if let Some(block) = found {
                        prop_assert!(pool.share(block));
                        held.push(block);
                    }
                }
                Op::Reset => {
                    pool.reset_prefix_cache();
                    names.clear();
                }
            }
            let tables: Vec<&[BlockRef]> = held.chunks(1).collect();
            prop_assert_eq!(pool.check_integrity(tables), Ok(()));
            let used = held.iter().map(|b| b.id).collect::<HashSet<_>>().len();
            prop_assert_eq!(pool.usage().used, used);
            let cached = names.values().filter(|b| !held.contains(b)).count();
            prop_assert_eq!(pool.usage().cached, cached);
        }
    }
}
