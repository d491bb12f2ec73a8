//! A model's first layers as a model of its own: the same kernels, less to compute. The engine's tests include this file by
//! its path.

use tegula_engine::gguf::{Gguf, Value, ValueType, Writer};

/// The bytes of a file with the first `layers` layers of `file`, and all else that it has.
pub fn shortened(file: &Gguf, layers: u32) -> Vec<u8> {
    shortened_with(file, layers, |_, _| {})
}

/// The same, where each tensor's bytes, given with its name, may be changed.
pub fn shortened_with(file: &Gguf, layers: u32, change: impl Fn(&str, &mut Vec<u8>)) -> Vec<u8> {
    let mut w = Writer::new();
    for (key, value) in file.metadata() {
        if key.ends_with(".block_count") {
            w.meta(key, layers);
            continue;
        }
        match value {
            Value::U32(n) => w.meta(key, *n),
            Value::F32(x) => w.meta(key, *x),
            Value::Bool(b) => w.meta(key, *b),
            Value::String(s) => w.meta(key, s.as_str()),
            Value::Array(a) if a.element == ValueType::String => {
                w.meta(key, &file.require::<Vec<&str>>(key).unwrap()[..])
            }
            Value::Array(a) if a.element == ValueType::I32 => w.meta(key, &file.require::<Vec<i32>>(key).unwrap()[..]),
            other => panic!("{key} is {other:?}"),
        };
    }
    let kept = |name: &str| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        layer.is_none_or(|layer| layer < layers)
    };
    for t in file.tensors().iter().filter(|t| kept(&t.name)) {
        let mut data = file.data(t).unwrap().into_owned();
        change(&t.name, &mut data);
        w.tensor(&t.name, &t.shape, t.ty, data);
    }
    w.finish()
}
