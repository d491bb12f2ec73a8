//! `tegula inspect`: what is inside a GGUF file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};

use super::table::{self, Align, thousands};
use tegula_engine::Error;
use tegula_engine::gguf::{Gguf, TensorInfo, Value, ValueType};
use tegula_engine::pull;

/// Show what is inside a model file: metadata, tensors by type, parameters, bytes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula inspect smollm2\n  tegula inspect model.gguf --tensors\n  \
                        tegula inspect smollm2 --key tokenizer.chat_template")]
pub(super) struct Args {
    /// A GGUF file or a model name (downloaded if it is not here)
    #[arg(value_name = "FILE|MODEL")]
    model: OsString,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print one metadata value in full, arrays one element per line
    #[arg(long, value_name = "KEY", conflicts_with = "tensors")]
    key: Option<String>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let file = Gguf::open(pull::fetch(&args.model)?)?;
    if let Some(key) = &args.key {
        return print_key(&file, key, out);
    }
    overview(&file, args.tensors, out).map_err(Error::output)
}

fn overview(file: &Gguf, all_tensors: bool, out: &mut dyn Write) -> io::Result<()> {
    let parameters: u64 = file.tensors().iter().map(|tensor| tensor.elements).sum();
    let data: u64 = file.tensors().iter().map(TensorInfo::bytes).sum();
    writeln!(out, "{}", table::printable(&file.path().display().to_string()))?;
    writeln!(
        out,
        "GGUF version {}, {} ({} bytes), {} tensors, {} parameters, {:.2} bits each\n",
        file.version(),
        table::bytes(file.file_bytes()),
        thousands(file.file_bytes()),
        thousands(file.tensors().len() as u64),
        thousands(parameters),
        if parameters > 0 { data as f64 * 8.0 / parameters as f64 } else { 0.0 },
    )?;

    let rows: Vec<Vec<String>> =
        file.metadata().iter().map(|(key, value)| vec![table::one_line(key, 60), describe(file, key, value)]).collect();
    table::write(out, &[Align::Left, Align::Left], &rows)?;
    writeln!(out)?;

    let align = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Left];
    table::write(out, &align, &by_type(file))?;
    if all_tensors {
        writeln!(out)?;
        let align = [Align::Left, Align::Left, Align::Right, Align::Right];
        table::write(out, &align, &tensor_rows(file))?;
    }
    Ok(())
}

/// A value in one line; of an array its length and first elements.
fn describe(file: &Gguf, key: &str, value: &Value) -> String {
    const MOST: usize = 60;
    let Value::Array(array) = value else { return table::one_line(&value.to_string(), MOST) };
    let first: Vec<String> = elements(file, key, array.element).into_iter().take(6).collect();
    let more = if array.len > first.len() { ", …" } else { "" };
    table::one_line(&format!("{} × {}: {}{more}", array.len, array.element.name(), first.join(", ")), MOST)
}

/// The elements of an array as text.
fn elements(file: &Gguf, key: &str, element: ValueType) -> Vec<String> {
    fn texts<T: ToString>(values: Result<Option<Vec<T>>, tegula_engine::gguf::GgufError>) -> Vec<String> {
        values.ok().flatten().unwrap_or_default().iter().map(T::to_string).collect()
    }
    match element {
        ValueType::String => texts(file.get::<Vec<&str>>(key)),
        ValueType::F32 | ValueType::F64 => texts(file.get::<Vec<f32>>(key)),
        ValueType::Bool => texts(file.get::<Vec<bool>>(key)),
        ValueType::U64 => texts(file.get::<Vec<u64>>(key)),
        _ => texts(file.get::<Vec<i64>>(key)),
    }
}

fn by_type(file: &Gguf) -> Vec<Vec<String>> {
    let mut types = BTreeMap::new();
    for tensor in file.tensors() {
        let (count, elements, bytes) = types.entry(tensor.ty).or_insert((0u64, 0u64, 0u64));
        (*count, *elements, *bytes) = (*count + 1, *elements + tensor.elements, *bytes + tensor.bytes());
    }
    let mut rows = vec![["type", "tensors", "parameters", "bytes", ""].map(str::to_owned).into()];
    for (ty, (count, elements, bytes)) in types {
        let note = if ty.is_supported() { "" } else { "not supported" };
        rows.push(vec![ty.to_string(), thousands(count), thousands(elements), thousands(bytes), note.to_owned()]);
    }
    rows
}

fn tensor_rows(file: &Gguf) -> Vec<Vec<String>> {
    let mut rows = vec![["tensor", "type", "shape (innermost first)", "bytes"].map(str::to_owned).into()];
    for tensor in file.tensors() {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        rows.push(vec![
            table::one_line(&tensor.name, 60),
            tensor.ty.to_string(),
            shape.join(" × "),
            thousands(tensor.bytes()),
        ]);
    }
    rows
}

fn print_key(file: &Gguf, key: &str, out: &mut dyn Write) -> Result<(), Error> {
    let entry = file.metadata().iter().find(|(known, _)| known == key);
    let Some((_, value)) = entry else {
        return Err(file.key_error(key, tegula_engine::gguf::Problem::MissingKey).into());
    };
    match value {
        Value::Array(array) => {
            elements(file, key, array.element).iter().try_for_each(|element| writeln!(out, "{element}"))
        }
        value => writeln!(out, "{value}"),
    }
    .map_err(Error::output)
}
