//! The command with a bundle beside it, where there is nothing else: no LLVM, no compiler, no cache, no path; in a root
//! folder of its own that holds the C library and the model, where that may be made (it needs root).

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tegula::{bundle::Bundle, device::Level};
use tegula_tests::{figure::Figure, model, skip};

/// A program that cargo built beside this test, if it did.
fn program(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join(name);
    if !path.is_file() {
        skip(&format!("{name} is not built: {} is not there", path.display()));
        return None;
    }
    Some(path)
}

/// The shared libraries that a program loads, by their paths here.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let ldd = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8(ldd.stdout).unwrap();
    // "	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", "	/lib64/ld-linux-x86-64.so.2 (0x…)"
    let path = |line: &str| line.split_whitespace().find(|w| w.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}

/// A folder with the command, a bundle, a model, and the libraries that the command loads: nothing else.
struct Clean {
    folder: tempfile::TempDir,
    /// Whether the folder may be made the root of a process.
    root: bool,
}

impl Clean {
    fn new(tegula: &Path, bundle: &Path, model: &Path) -> Clean {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name.trim_start_matches('/'));
        fs::copy(tegula, at("tegula")).unwrap();
        fs::copy(bundle, at("tegula.bundle")).unwrap();
        fs::copy(model, at("model.gguf")).unwrap();
        for library in libraries(tegula) {
            let to = at(library.to_str().unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&library, to).unwrap();
        }
        // Where there is no /proc, a kernel is loaded through a file.
        fs::create_dir(at("tmp")).unwrap();
        let mut clean = Clean { folder, root: true };
        clean.root = clean.command(&["--version"]).output().is_ok_and(|o| o.status.success());
        if !clean.root {
            skip("the command in a root folder of its own: that takes root; it ran in an empty environment instead");
        }
        clean
    }

    /// The command, without any of this process's environment.
    fn command(&self, args: &[&str]) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new(if self.root { Path::new("/tegula").into() } else { folder.join("tegula") });
        command.args(args).env_clear().env("PATH", "").env("TEGULA_CACHE", "off");
        if self.root {
            let root = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
            // SAFETY: two system calls, which allocate nothing.
            unsafe {
                command.pre_exec(move || match libc::chroot(root.as_ptr()) {
                    0 if libc::chdir(c"/".as_ptr()) == 0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        } else {
            command.current_dir(folder);
        }
        command
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        let (mut found, mut folders) = (BTreeSet::new(), vec![self.folder.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for item in fs::read_dir(folder).unwrap().flatten() {
                found.insert(item.path());
                folders.extend(item.file_type().unwrap().is_dir().then(|| item.path()));
            }
        }
        found
    }
}

fn text(output: Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{what}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the demo model's bundle for some targets.
fn bundle(tegula: &Path, to: &Path, cache: Option<&Path>, targets: &[&str]) -> Vec<u8> {
    let mut command = Command::new(tegula);
    command.args(["bundle", "smollm2", "-o"]).arg(to).env("TEGULA_BUNDLE", "off");
    for target in targets {
        command.args(["--target", target]);
    }
    if let Some(cache) = cache {
        command.env("TEGULA_CACHE", cache);
    }
    text(command.output().unwrap(), "tegula bundle");
    fs::read(to).unwrap()
}

const PROMPT: [&str; 7] = ["--raw", "-p", "The capital of France is", "--temperature", "0", "-n", "12"];
/// With random choices among the tokens, which other parts of the sampling kernel make.
const RANDOM: [&str; 9] = ["--raw", "-p", "Once upon a time", "--temperature", "0.8", "--seed", "7", "-n", "12"];

#[test]
fn the_demo_model_runs_from_its_bundle_with_nothing_else_on_the_machine() {
    let (Some(tegula), Some(_), Some(path)) = (program("tegula"), program("tegulac"), model("smollm2")) else { return };
    let level = match Level::choose() {
        Ok(level) => level,
        Err(e) => return skip(&format!("kernels in a bundle: {e}")),
    };
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("tegula.bundle");
    bundle(&tegula, &file, None, &[&format!("cpu:{}", level.name()), "sm_80"]);

    let clean = Clean::new(&tegula, &file, &path);
    bundle(&tegula, &clean.folder.path().join("cpu.bundle"), None, &[&format!("cpu:{}", level.name())]);
    let before = clean.files();
    let usual = |args: &[&str]| {
        let mut command = Command::new(&tegula);
        command.arg("run").arg(&path).args(args).env("TEGULA_BUNDLE", "off");
        text(command.output().unwrap(), "tegula run, with the compiler")
    };
    let bundled = |args: &[&str]| {
        text(
            clean.command(&[&["run", "model.gguf"], args].concat()).output().unwrap(),
            "tegula run, with the bundle alone",
        )
    };
    for args in [&PROMPT[..], &RANDOM, &[&PROMPT[..], &["--activations", "f32"]].concat()] {
        let answer = bundled(args);
        assert!(answer.len() > 10, "{answer:?}");
        assert_eq!(answer, usual(args), "{args:?}");
    }
    let gpu =
        ["--device", "emulated:sm_80:fast", "--raw", "-p", "One", "--temperature", "0.8", "--seed", "3", "-n", "2"];
    assert_eq!(bundled(&gpu), usual(&gpu));

    // A target that a bundle does not have: an error that says what it has, and how to get the rest.
    let mut refused =
        clean.command(&["run", "model.gguf", "--device", "emulated:sm_80", "--raw", "-p", "x", "-n", "1"]);
    let refused = refused.env("TEGULA_BUNDLE", "cpu.bundle").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains(" for emulated:sm_80 (compute capability 8.0) is not in "),
        "{said}"
    );
    assert!(said.contains("the bundle cpu.bundle, which has ") && said.contains(level.name()), "{said}");
    assert!(said.contains("`tegula bundle MODEL --target sm_80 -o FILE`"), "{said}");

    assert_eq!(clean.files(), before, "the command left files behind");
}

#[test]
fn the_command_loads_no_llvm() {
    let Some(tegula) = program("tegula") else { return };
    let libraries = libraries(&tegula);
    assert!(libraries.iter().any(|l| l.to_string_lossy().contains("libc.so")), "{libraries:?}");
    let foreign = |l: &&PathBuf| {
        let name = l.to_string_lossy().to_lowercase();
        ["llvm", "mlir", "lld", "clang", "cuda", "stdc++"].iter().any(|word| name.contains(word))
    };
    assert_eq!(libraries.iter().find(foreign), None);
}

/// Sizes are those of the programs as they are shipped: built for release, without symbols.
#[test]
#[ignore = "compiles the demo model's kernels twice for six targets"]
fn a_bundle_for_all_targets_is_small_and_its_bytes_are_always_the_same() {
    let (Some(tegula), Some(_), Some(_)) = (program("tegula"), program("tegulac"), model("smollm2")) else { return };
    let work = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let cache = work.path().join(format!("{name}.cache"));
        bundle(&tegula, &work.path().join(name), Some(&cache), &[])
    };
    let (first, second) = (make("first"), make("second"));
    assert!(first == second, "two bundles, compiled apart, differ");
    let made = Bundle::open(work.path().join("first")).unwrap();
    assert_eq!(made.targets().len(), Level::ALL.len() + 2, "{:?}", made.targets());

    let stripped = work.path().join("tegula");
    fs::copy(&tegula, &stripped).unwrap();
    fs::set_permissions(&stripped, fs::Permissions::from_mode(0o755)).unwrap();
    match Command::new("strip").arg(&stripped).status() {
        Ok(status) if status.success() => {
            let all = fs::metadata(&stripped).unwrap().len() + first.len() as u64;
            Figure::new("the command without symbols, and SmolLM2's bundle", all as f64 / 1e6, "MB")
                .at_most(40.0)
                .must_hold();
        }
        _ => skip("the size of the command: there is no `strip`"),
    }
    Figure::new("SmolLM2's bundle for all targets", first.len() as f64 / 1e6, "MB").record();
}
