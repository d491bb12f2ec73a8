//! `tegula compile`: what becomes of a kernel, from tile IR to assembly.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::time::Duration;

use super::table::{self, Align};
use super::{kernel_stats, kernel_text};
use clap::ValueEnum;
use tegula::compile::{Compiler, Program};
use tegula::device::Level;
use tegula::ir::{
    Kernel,
    protocol::{Emit, Request},
};
use tegula_engine::Error;
use tegula_kernels::registry::{self, KERNELS};

/// Longest time that a kernel may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Show what a kernel is compiled to: tile IR, MLIR, LLVM IR, assembly, what it needs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula compile softmax --emit asm\n  \
                        tegula compile matmul --emit mlir --dims 64,128,256 --target cpu:x86-64-v3\n  \
                        tegula compile softmax --emit layouts --target sm_90a\n  \
                        tegula compile attention --emit stats --target sm_90a\n  \
                        tegula compile linear --emit llvm --set quant=Q4_0 --set BM=1\n  \
                        tegula compile ./kernel.tile --emit asm")]
pub(super) struct Args {
    /// A kernel of the library by name, or a file of tile IR (a path with a `/` or a `.`; `-` reads standard input)
    #[arg(value_name = "KERNEL|FILE", required_unless_present = "list")]
    kernel: Option<OsString>,
    /// The form to print
    #[arg(long, value_enum, default_value_t = Form::Tile)]
    emit: Form,
    /// What to compile for, such as cpu:x86-64-v3 [default: the best that this machine has]
    #[arg(long)]
    target: Option<String>,
    /// The kernel's dims, all of them, in its order
    #[arg(long, value_name = "N,M,…", value_delimiter = ',')]
    dims: Vec<usize>,
    /// One dim or setting by its name; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    set: Vec<(String, String)>,
    /// Compile in the checks of indices and assertions
    #[arg(long)]
    checked: bool,
    /// List the kernels known by name, with their dims and settings
    #[arg(long)]
    list: bool,
}

/// The forms of a kernel, in the order in which it passes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Tile IR as the kernel's function builds it
    Built,
    /// Tile IR after all passes
    Tile,
    /// The same with layouts: in which registers of which threads each tile is (GPUs)
    Layouts,
    /// MLIR
    Mlir,
    /// LLVM IR, optimised
    Llvm,
    /// Assembly: for GPUs PTX
    Asm,
    /// The same, for GPUs
    Ptx,
    /// GPU machine code as text, with lines of the source (needs NVIDIA's tools: ./x setup --nvidia)
    Sass,
    /// GPU machine code as a file that the driver loads (needs them too)
    Cubin,
    /// What the compiled kernel needs: warps, memory, remarks; with NVIDIA's tools also registers and occupancy
    Stats,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, as in BM=64")?;
    Ok((name.trim().into(), value.trim().into()))
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let Some(kernel) = args.kernel.as_deref().filter(|_| !args.list) else { return list(out) };
    let kernel = find(kernel, &args)?;
    let emit = match args.emit {
        Form::Built => return write!(out, "{}", kernel.renumbered().text()).map_err(Error::output),
        Form::Tile => Emit::Tile,
        Form::Layouts => Emit::Layouts,
        Form::Mlir => Emit::Mlir,
        Form::Llvm => Emit::Llvm,
        Form::Asm | Form::Ptx => Emit::Asm,
        Form::Sass => Emit::Sass,
        Form::Cubin => Emit::Cubin,
        Form::Stats => Emit::Artifact,
    };
    let target = match args.target {
        Some(target) => target,
        None => format!("cpu:{}", Level::choose().map_err(Error::Usage)?.name()),
    };
    let gpu = target.starts_with("sm_");
    let name = args.emit.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
    if matches!(args.emit, Form::Ptx | Form::Sass | Form::Cubin) && !gpu {
        return Err(Error::Usage(format!("--emit {name} is for GPUs, as in --target sm_90a; found `{target}`")));
    }
    let compiler = Compiler::new(Program::new(), 1, TIMEOUT);
    let compile = |emit| {
        compiler.compile(
            &kernel.name,
            &Request { kernel: kernel.text(), target: target.clone(), emit, checked: args.checked },
        )
    };
    if args.emit == Form::Stats && gpu {
        let (output, unassembled) = match compile(Emit::Cubin) {
            Ok(output) => (output, None),
            Err(e) => match kernel_stats::missing_tool(&e) {
                Some(why) => (compile(Emit::Artifact)?, Some(why.to_owned())),
                None => return Err(e.into()),
            },
        };
        return kernel_stats::gpu(&target, &output, unassembled.as_deref(), out).map_err(Error::output);
    }
    let output = compile(emit).map_err(|e| match kernel_stats::missing_tool(&e) {
        Some(why) => Error::Usage(format!("--emit {name}: {why}")),
        None => e.into(),
    })?;
    if args.emit == Form::Stats {
        return kernel_stats::cpu(&target, &output, out).map_err(Error::output);
    }
    for remark in &output.meta.remarks {
        // Beside the output, not in it.
        let _ = writeln!(std::io::stderr(), "remark: {remark}");
    }
    out.write_all(&output.bytes).map_err(Error::output)
}

/// The kernel of that name, or in that file.
fn find(name: &OsStr, args: &Args) -> Result<Kernel, Error> {
    let known = name.to_str().filter(|name| *name != "-" && !name.contains(['/', '.']));
    if let Some(known) = known {
        let twice = |(i, (name, _)): (usize, &(String, String))| args.set[..i].iter().any(|(other, _)| other == name);
        if let Some(i) = args.set.iter().enumerate().position(twice) {
            return Err(Error::Usage(format!("--set {}=… is given twice", args.set[i].0)));
        }
        let target = args.target.as_deref().unwrap_or("cpu");
        return Ok(registry::find(known)?.ir(target, &args.dims, &args.set)?);
    }
    if !args.dims.is_empty() || !args.set.is_empty() {
        let why = "--dims and --set are for kernels of the library; tile IR in a file has its dims already";
        return Err(Error::Usage(why.into()));
    }
    kernel_text::read(name)
}

fn list(out: &mut dyn Write) -> Result<(), Error> {
    let mut rows = vec![["kernel", "what", "dims", "settings"].map(str::to_owned).into()];
    for entry in KERNELS {
        let dims: Vec<String> = entry.dims.iter().map(|(name, n)| format!("{name}={n}")).collect();
        let settings: Vec<String> = entry.settings.iter().map(|s| format!("{}={}", s.name, s.default)).collect();
        rows.push(vec![entry.name.to_owned(), entry.doc.to_owned(), dims.join(" "), settings.join(" ")]);
    }
    table::write(out, &[Align::Left; 4], &rows).map_err(Error::output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn output(line: &str) -> Result<String, Error> {
        let mut out = vec![];
        run(Command::parse_from(["compile"].into_iter().chain(line.split_whitespace())).args, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_kernel_is_built_with_the_dims_and_settings_asked_for() {
        let text = output("softmax --emit built --dims 96 --set elem=f16").unwrap();
        assert!(text.starts_with("kernel @") && text.contains("tile<f16, 1, 96>"), "{text}");
    }

    #[test]
    fn every_kernel_is_listed() {
        let text = output("--list").unwrap();
        assert!(KERNELS.iter().all(|k| text.contains(k.name) && text.contains(k.doc)), "{text}");
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        let error = |line: &str| output(line).unwrap_err().to_string();
        assert!(error("sofmax").contains("there is no kernel `sofmax`; known are: vector_add, softmax"));
        assert!(error("./none.tile").starts_with("cannot read the kernel ./none.tile: "));
        assert!(error("./none.tile --dims 4").contains("--dims and --set"));
        assert_eq!(error("softmax --set N=4 --set elem=f16 --set N=8"), "--set N=… is given twice");
        assert!(Command::try_parse_from(["compile", "softmax", "--set", "N"]).is_err());
        assert_eq!(
            error("softmax --emit sass --target cpu:x86-64-v3"),
            "--emit sass is for GPUs, as in --target sm_90a; found `cpu:x86-64-v3`"
        );
    }
}
