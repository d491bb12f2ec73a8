//! The cache on disk: sound entries come back, anything else is missing; several processes; no space; bounds.

#[path = "common/warnings.rs"]
mod warnings;

use proptest::prelude::*;
use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};
use tegula::cache::DiskCache;
use tegula_ir::{
    Loc,
    protocol::{Meta, Site, SiteKind},
};

const LIMIT: u64 = 1 << 30;

fn meta(i: u64) -> Meta {
    let site = Site { kind: SiteKind::Assert, message: format!("n = {i}"), loc: Loc::new("k.rs", i as u32 + 1, 3) };
    Meta {
        scratch_bytes: i * 64,
        sites: vec![site; i as usize % 3],
        shared_bytes: i * 16,
        warps: i as u32,
        ..Meta::default()
    }
}

fn artifact(i: u64) -> Vec<u8> {
    (0..1000 + 37 * i).map(|j| (i * 31 + j * j) as u8).collect()
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn entries_come_back_and_start_with_the_artifact() {
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(dir.path().join("made/when/needed"), LIMIT);
    assert_eq!(cache.load(5), None);
    for i in 0..5 {
        cache.store(i.into(), &artifact(i), &meta(i)).unwrap();
    }
    for i in 0..5 {
        let entry = cache.load(i.into()).unwrap();
        assert_eq!(entry.meta, meta(i));
        assert!(fs::read(entry.path).unwrap().starts_with(&artifact(i)));
    }
    // Replaced as a whole.
    cache.store(0, &artifact(9), &meta(9)).unwrap();
    assert_eq!(cache.load(0).unwrap().meta, meta(9));
    cache.set_note("compiler", "tegulac 1");
    assert_eq!(cache.note("compiler").as_deref(), Some("tegulac 1"));
    assert_eq!(cache.note("other"), None);
}

#[test]
fn an_entry_under_the_name_of_another_key_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(dir.path(), LIMIT);
    let (one, two) = (cache.store(1, &artifact(1), &meta(1)).unwrap(), cache.store(2, &artifact(2), &meta(2)).unwrap());
    fs::copy(&one.path, &two.path).unwrap();
    assert_eq!(cache.load(2), None, "it would be called with another kernel's arguments");
    assert_eq!(cache.load(1).unwrap().meta, meta(1));
    assert!(cache.store(2, &artifact(2), &meta(2)).is_some());
    assert_eq!(cache.load(2).unwrap().meta, meta(2));
}

#[test]
fn truncated_entries_are_missing_wherever_they_are_cut_and_can_be_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(dir.path(), LIMIT);
    let path = cache.store(1, &artifact(1), &meta(1)).unwrap().path;
    let whole = fs::read(&path).unwrap();
    for n in (0..whole.len()).filter(|n| n % 13 == 0 || whole.len() - n < 60) {
        fs::write(&path, &whole[..n]).unwrap();
        assert_eq!(cache.load(1), None, "cut to {n} of {}", whole.len());
        assert!(cache.store(1, &artifact(1), &meta(1)).is_some());
        assert_eq!(cache.load(1).unwrap().meta, meta(1));
    }
    fs::write(dir.path().join("x.note"), "short").unwrap();
    assert_eq!(cache.note("x"), None);
    fs::write(dir.path().join("x.note"), "not a checksum at all").unwrap();
    assert_eq!(cache.note("x"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn a_changed_byte_anywhere_makes_an_entry_missing(at in any::<proptest::sample::Index>(), flip in 1u8..) {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(dir.path(), LIMIT);
        let path = cache.store(1, &artifact(1), &meta(1)).unwrap().path;
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fs::write(&path, bytes).unwrap();
        prop_assert_eq!(cache.load(1), None);
    }
}

/// Runs the named test of this program again in another process, in another role.
fn again(test: &str, role: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("ROLE", role).env("CACHE_DIR", dir);
    command
}

#[test]
fn several_processes_write_and_read_at_once() {
    const TEST: &str = "several_processes_write_and_read_at_once";
    if let (Ok(role), Some(dir)) = (std::env::var("ROLE"), std::env::var_os("CACHE_DIR")) {
        let cache = DiskCache::at(dir, LIMIT);
        let first: u64 = role.parse().unwrap();
        for round in 0..150 {
            let i = (first + round) % 5;
            cache.store(i.into(), &artifact(i), &meta(i)).unwrap();
            for j in 0..5u64 {
                // Missing until someone has written it; never anything but itself.
                if let Some(entry) = cache.load(j.into()) {
                    assert_eq!(entry.meta, meta(j));
                    assert!(fs::read(entry.path).unwrap().starts_with(&artifact(j)));
                }
            }
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..4).map(|i| again(TEST, &i.to_string(), dir.path()).spawn().unwrap()).collect();
    for child in children {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success());
    }
    assert_eq!(files(dir.path()).len(), 5, "no leavings: {:?}", files(dir.path()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_without_space_keeps_nothing_and_fails_nothing() {
    const TEST: &str = "a_disk_without_space_keeps_nothing_and_fails_nothing";
    if let Some(dir) = std::env::var_os("CACHE_DIR") {
        // SAFETY: plain system calls. From here on this process cannot write files longer than 500 bytes: writes fail
        // half way, as on a full disk.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 500, rlim_max: 500 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        let cache = DiskCache::at(&dir, LIMIT);
        for i in 0..3 {
            assert_eq!(cache.store(i, &artifact(1), &meta(1)), None);
            assert_eq!(cache.load(i), None);
        }
        assert_eq!(files(Path::new(&dir)), Vec::<String>::new(), "nothing half written");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(again(TEST, "", dir.path()).status().unwrap().success());
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_cannot_be_written_keeps_nothing_and_fails_nothing() {
    // In /proc not even root can make files; one of these exists, one does not, one is no folder.
    for dir in ["/proc/self/task", "/proc/tegula", "/dev/null/tegula"] {
        let cache = DiskCache::at(dir, LIMIT);
        let warnings = warnings::during(|| {
            assert_eq!(cache.store(1, &artifact(1), &meta(1)), None);
            assert_eq!(cache.load(1), None);
            cache.set_note("n", "text");
            assert_eq!(cache.note("n"), None);
        });
        // Once, though two things could not be written.
        assert!(warnings.contains(&format!("the kernel cache {dir} cannot be written")), "{warnings}");
        assert_eq!(warnings.lines().count(), 1, "{warnings}");
    }
}

#[test]
fn a_read_only_folder_still_serves_what_it_has() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = DiskCache::at(dir.path(), LIMIT).store(1, &artifact(1), &meta(1)).unwrap().path;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let cache = DiskCache::at(dir.path(), LIMIT);
    assert_eq!(cache.load(1).unwrap().meta, meta(1));
    // Root may write anyway; then it is kept, and that is right too.
    let kept = cache.store(2, &artifact(2), &meta(2)).is_some();
    assert_eq!(cache.load(2).is_some(), kept);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_least_recently_used_entries_go_when_the_limit_is_passed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(dir.path(), 10_000);
    let age = |key: u128, seconds: u64| {
        let file = fs::File::options().append(true).open(dir.path().join(format!("{key:032x}.so"))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    for key in 0..9 {
        cache.store(key, &artifact(0), &meta(0)).unwrap();
        age(key, 1000 - 10 * key as u64);
    }
    // Somebody else's file in the folder, older and larger than any entry.
    let foreign = dir.path().join("thesis.tex");
    fs::write(&foreign, vec![0; 9_000]).unwrap();
    fs::File::options().append(true).open(&foreign).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let left = || (0..10u128).filter(|k| dir.path().join(format!("{k:032x}.so")).exists()).collect::<Vec<_>>();
    assert_eq!(left().len(), 9);
    // Using the oldest saves it.
    assert!(cache.load(0).is_some());
    cache.store(9, &artifact(0), &meta(0)).unwrap();
    // Ten entries of about 1040 bytes are more than 10,000: down to 7,500, the oldest first.
    assert_eq!(left(), [0, 4, 5, 6, 7, 8, 9]);
    let size: u64 = fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(size <= 7_500 + 9_000, "{size}");
    assert!(foreign.exists());
    // Even one that alone is too large is kept until the next.
    assert!(cache.store(11, &vec![1; 20_000], &meta(0)).is_some());
    assert!(cache.load(11).is_some());
}

#[test]
fn leavings_of_killed_writers_go_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    for (name, age) in [(".writing-old", 7200), (".writing-new", 10)] {
        fs::write(dir.path().join(name), "half").unwrap();
        let file = fs::File::options().append(true).open(dir.path().join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    DiskCache::at(dir.path(), LIMIT).store(1, &artifact(1), &meta(1)).unwrap();
    assert_eq!(files(dir.path()), [".writing-new".to_string(), format!("{:032x}.so", 1)]);
}
