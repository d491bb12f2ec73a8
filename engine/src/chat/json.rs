//! The `tojson` filter as chat templates know it: Python's `json.dumps` with `ensure_ascii=False`, that is `", "` and
//! `": "` between items, keys in their order, nothing escaped for HTML.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// `value | tojson(indent=None, sort_keys=False)`; `ensure_ascii` is taken and has no effect unless true.
pub(super) fn tojson(value: Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent = match options.get::<Option<usize>>("indent")? {
        Some(indent) => Some(indent),
        None => indent,
    };
    let sort = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    options.assert_all_used()?;
    // Wide indents serve nobody and would make the output large.
    if indent.is_some_and(|indent| indent > 16) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: an indent of more than 16"));
    }
    let mut json = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))?;
    if sort {
        json.sort_all_objects();
    }
    let spaces = " ".repeat(indent.unwrap_or(0));
    let text = match indent {
        Some(_) => write(&json, PrettyFormatter::with_indent(spaces.as_bytes())),
        None => write(&json, Spaced(CompactFormatter)),
    };
    let text = text.map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))?;
    Ok(if ascii { escape_ascii(&text) } else { text })
}

fn write(json: &serde_json::Value, formatter: impl Formatter) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut out, formatter))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn escape_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

/// One line with a space after each comma and colon.
struct Spaced(CompactFormatter);

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
