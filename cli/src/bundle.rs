//! `tegula bundle`: kernels compiled ahead, in a file with which programs need no compiler.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::model::compile_progress;
use super::note;
use super::table::{self, Align};
use tegula::Device;
use tegula::bundle::{self, Bundle, Item, MakeOptions};
use tegula::device::Level;
use tegula_engine::Error;
use tegula_engine::gguf::Gguf;
use tegula_engine::pull::Source;
use tegula_engine::rehearse;
use tegula_kernels::registry::{Entry, KERNELS, RegistryError};

/// Compile a model's kernels ahead, into one file: where it is, no compiler is needed
#[derive(Debug, clap::Args)]
#[command(after_help = "A program looks for a bundle where TEGULA_BUNDLE says, else beside itself: `tegula` finds \
                        `tegula.bundle`.\n\nExamples:\n  tegula bundle smollm2 -o tegula.bundle\n  \
                        tegula bundle smollm2 --target cpu:x86-64-v3 --target sm_90a -o tegula.bundle\n  \
                        tegula bundle --kernels --target sm_80 -o kernels.bundle\n  tegula bundle --list tegula.bundle")]
pub(super) struct Args {
    /// The model: what `tegula run`, `eval` and `bench` launch on it goes into the bundle
    #[arg(value_name = "MODEL", required_unless_present_any = ["kernels", "list"])]
    model: Option<OsString>,
    /// Put in the library's kernels, with each value of each of their settings
    #[arg(long)]
    kernels: bool,
    /// What to compile for, such as cpu:x86-64-v3 or sm_90a; may be repeated [default: all CPUs, sm_80, sm_90a]. With a GPU
    /// among them, PTX of sm_80 is always put in, which every later GPU can run
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// Show what is in a bundle
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "kernels", "target", "output"])]
    list: Option<PathBuf>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let Some(path) = args.output else {
        // The arguments ask for one of both.
        return args.list.map_or(Ok(()), |file| list(&file, out));
    };
    let targets = if args.target.is_empty() { all_targets() } else { args.target };
    let file = args.model.map(|model| Gguf::open(Source::parse(&model)?.fetch()?).map_err(Error::from)).transpose()?;
    let options = MakeOptions { on_progress: Some(compile_progress()), ..MakeOptions::default() };
    let made = bundle::make(&targets, options, |device: &Device| {
        if args.kernels {
            library(device)?;
        }
        file.as_ref().map_or(Ok(()), |file| rehearse(file, device))
    })?;
    if made.no_cubins {
        note("there is no ptxas: the bundle has PTX for GPUs and no machine code (`./x setup --nvidia` gets it)");
    }
    let bytes = made.builder.write(&path)?;
    let (n, size) = (table::counted(made.builder.len(), "artifact"), table::bytes(bytes as u64));
    writeln!(out, "{}: {n}, {size}", path.display()).map_err(Error::output)
}

fn all_targets() -> Vec<String> {
    let cpus = Level::ALL.iter().map(|level| format!("cpu:{}", level.name()));
    cpus.chain(["sm_80", "sm_90a"].map(str::to_owned)).collect()
}

/// Loads the library's kernels: as they are for the device's target, and with each value of each setting that makes one.
fn library(device: &Device) -> Result<(), Error> {
    let target = device.compiles_for();
    let load = |entry: &Entry, set: &[(String, String)]| -> Result<(), Error> {
        match entry.ir(&target, &[], set) {
            Ok(kernel) => device.load(&kernel, false).map(drop).map_err(Error::from),
            // Not every value fits the others: float weights have no blocks of codes.
            Err(RegistryError::Build(_)) if !set.is_empty() => Ok(()),
            Err(e) => Err(e.into()),
        }
    };
    for entry in KERNELS {
        load(entry, &[])?;
        for setting in entry.settings {
            for choice in (setting.choices)() {
                load(entry, &[(setting.name.into(), choice.into())])?;
            }
        }
    }
    Ok(())
}

fn list(file: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let bundle = Bundle::open(file)?;
    let mut items: Vec<Item<'_>> = bundle.items().collect();
    items.sort_by_key(|i| (i.kernel, i.target, i.kind, i.key, i.checked));
    let mut rows = vec![["kernel", "target", "kind", "bytes", "packed", "key"].map(str::to_owned).to_vec()];
    for i in &items {
        let name = if i.checked { format!("{} (checked)", i.kernel) } else { i.kernel.to_owned() };
        let sizes = [i.bytes, i.packed].map(|n| table::thousands(n as u64));
        let [bytes, packed] = sizes;
        rows.push(vec![name, i.target.into(), i.kind.name().into(), bytes, packed, format!("{:032x}", i.key)]);
    }
    let (l, r) = (Align::Left, Align::Right);
    let write = |out: &mut dyn Write| {
        table::write(out, &[l, l, l, r, r, l], &rows)?;
        let kernels: std::collections::BTreeSet<_> = items.iter().map(|i| i.key).collect();
        writeln!(
            out,
            "{}, {}, made by {}",
            table::counted(items.len(), "artifact"),
            table::counted(kernels.len(), "kernel"),
            bundle.compiler()
        )
    };
    write(out).map_err(Error::output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use tegula::bundle::Recorder;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn arguments_ask_for_a_model_or_kernels_and_a_file_or_for_a_list() {
        let parse = |line: &str| Command::try_parse_from(["bundle"].into_iter().chain(line.split_whitespace()));
        for right in ["m -o f", "--kernels -o f", "m --kernels --target sm_80 --target sm_90a -o f", "--list f"] {
            assert!(parse(right).is_ok(), "{right}");
        }
        for wrong in ["", "m", "--kernels", "-o f", "--list f -o g", "m --list f"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_librarys_kernels_are_all_there() {
        for target in ["cpu:x86-64-v3", "sm_90a"] {
            let recorder = Recorder::new(target).unwrap();
            library(&recorder.device()).unwrap();
            let kernels = recorder.kernels();
            let named = |name: &str| kernels.iter().filter(|k| k.kernel.name.ends_with(&format!("::{name}"))).count();
            for entry in KERNELS {
                assert!(named(entry.name) > 0, "{}", entry.name);
            }
            assert!(named("softmax") == 3 && named("linear_quantised") >= 10, "{}", named("linear_quantised"));
        }
    }

    #[test]
    fn a_bundle_is_listed_and_what_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none.bundle");
        let run = |path: &Path| {
            let mut out = vec![];
            list(path, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        std::fs::write(&path, "TGLBUNDL and more").unwrap();
        assert!(run(&path).unwrap_err().to_string().contains("none.bundle cannot be used: at byte 17: "));
        let mut builder = bundle::Builder::new("tegulac 1 abc");
        let kernel = KERNELS[0].ir("sm_90a", &[], &[]).unwrap();
        builder.add(&kernel, true, "sm_90a", bundle::Kind::Ptx, vec![7; 4321], Default::default()).unwrap();
        builder.write(&path).unwrap();
        let text = run(&path).unwrap();
        let row = text.lines().nth(1).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(row.contains("vector_add (checked)") && words.contains(&"ptx") && words.contains(&"4,321"), "{text}");
        assert!(text.ends_with("1 artifact, 1 kernel, made by tegulac 1 abc\n"), "{text}");
    }
}
