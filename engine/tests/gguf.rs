//! GGUF reading: against a file by the reference writer, and against damaged files of every kind.

use proptest::prelude::*;
use tegula_engine::gguf::{Array, GgmlType, Gguf, GgufError, Place, Problem, Value, ValueType, Writer, dequant};

fn fixture() -> Gguf {
    Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/dequant.gguf")).unwrap()
}

/// A small valid file with every kind of thing in it.
fn small() -> Writer {
    let mut writer = Writer::new();
    writer
        .meta("general.architecture", "llama")
        .meta("n", 7u32)
        .meta("flag", true)
        .meta("names", ["a", "bc", ""].as_slice())
        .meta("scores", [1.5f32, -2.0].as_slice())
        .meta("flags", [true, false].as_slice())
        .tensor("a", &[32, 2], GgmlType::Q8_0, vec![3; 68])
        .tensor("b", &[5], GgmlType::F32, vec![0; 20])
        .tensor("c", &[2, 3, 1, 2], GgmlType::F16, vec![9; 24]);
    writer
}

fn open(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
    Gguf::from_bytes("small.gguf", bytes)
}

/// The error of a file that must not open; its text must name the file.
fn problem(bytes: Vec<u8>) -> (Place, Problem) {
    let error = open(bytes).expect_err("a damaged file was accepted");
    assert!(error.to_string().starts_with("small.gguf: "), "{error}");
    (error.place, error.problem)
}

/// Replaces the first occurrence of `from`.
fn replace(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|w| w == from).expect("pattern not in file");
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn reads_every_value_type_of_the_reference_writer() {
    let file = fixture();
    assert_eq!(file.version(), 3);
    assert_eq!(file.require::<&str>("general.architecture").unwrap(), "test");
    assert_eq!(file.require::<u32>("v.u8").unwrap(), 200);
    assert_eq!(file.require::<i32>("v.i8").unwrap(), -100);
    assert_eq!(file.require::<u64>("v.u16").unwrap(), 60000);
    assert_eq!(file.require::<i32>("v.i16").unwrap(), -30000);
    assert_eq!(file.require::<u32>("v.u32").unwrap(), 4_000_000_000);
    assert_eq!(file.require::<i32>("v.i32").unwrap(), -2_000_000_000);
    assert_eq!(file.require::<f32>("v.f32").unwrap(), 0.1);
    assert!(file.require::<bool>("v.bool").unwrap());
    assert_eq!(file.require::<&str>("v.string").unwrap(), "grüß dich, 世界");
    assert_eq!(file.require::<u64>("v.u64").unwrap(), (1 << 63) + 1);
    assert_eq!(file.require::<f32>("v.f64").unwrap(), 0.1);
    assert_eq!(file.require::<Vec<&str>>("v.strings").unwrap(), ["a", "", "ß", "long enough to matter"]);
    assert_eq!(file.require::<Vec<i32>>("v.i32s").unwrap(), [1, -2, 3]);
    assert_eq!(file.require::<Vec<f32>>("v.f32s").unwrap(), [0.5, -1.5]);
    let i64_entry = file.metadata().iter().find(|(key, _)| key == "v.i64").unwrap();
    assert_eq!(i64_entry.1, Value::I64(-(1 << 62)));
}

#[test]
fn wrong_value_types_and_missing_keys_are_errors() {
    let file = fixture();
    let text = |error: GgufError| error.to_string();
    assert!(
        text(file.require::<u32>("v.i8").unwrap_err()).contains("key `v.i8`: holds the i8 -100; expected an integer")
    );
    assert!(text(file.require::<u32>("v.u64").unwrap_err()).contains("from 0 to 2^32 - 1"));
    assert!(text(file.require::<&str>("v.u8").unwrap_err()).contains("expected a string"));
    assert!(text(file.require::<Vec<u32>>("v.i32s").unwrap_err()).contains("an array of 3 i32 values"));
    assert!(text(file.require::<Vec<&str>>("v.i32s").unwrap_err()).contains("an array of strings"));
    assert!(text(file.require::<bool>("absent").unwrap_err()).contains("key `absent`: missing"));
    assert_eq!(file.get::<bool>("absent").unwrap(), None);
}

/// The reference's numbers must be met exactly: both sides compute in f32 and round once per operation.
#[test]
fn dequantisation_equals_the_reference() {
    let file = fixture();
    let mut types = 0;
    for ty in GgmlType::all().filter(|ty| ty.is_supported()) {
        let name = ty.name().to_lowercase();
        let blocks = file.find(&name).unwrap_or_else(|| panic!("{name} is not in the fixture"));
        assert_eq!(blocks.ty, ty);
        let found = file.dequantize(blocks).unwrap();
        let expected = file.dequantize(file.tensor(&format!("{name}.f32"), &blocks.shape).unwrap()).unwrap();
        assert_eq!(found.len() as u64, blocks.elements);
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(f.to_bits(), e.to_bits(), "{ty} element {i}: {f} instead of {e}");
        }
        assert!(expected.iter().any(|v| *v < 0.0) && expected.iter().any(|v| *v > 0.0));
        types += 1;
    }
    assert_eq!(types, 11);
    assert_eq!(dequant::dequantize(GgmlType::Q2_K, &[0; 84]), None);
    assert_eq!(dequant::dequantize(GgmlType::Q4_0, &[0; 17]), None);
}

#[test]
fn what_is_written_reads_back() {
    let file = open(small().finish()).unwrap();
    assert_eq!(file.tensors().len(), 3);
    assert_eq!(file.alignment(), 32);
    assert_eq!(file.require::<Vec<&str>>("names").unwrap(), ["a", "bc", ""]);
    let Value::Array(Array { element, len, .. }) = &file.metadata()[5].1 else { panic!() };
    assert_eq!((*element, *len), (ValueType::Bool, 2));
    let a = file.tensor("a", &[32, 2]).unwrap();
    assert_eq!(*file.data(a).unwrap(), [3; 68]);
    assert_eq!(a.range().start % 32, 0);
    let c = file.find("c").unwrap();
    assert_eq!((c.elements, c.bytes(), c.ty), (12, 24, GgmlType::F16));
}

#[test]
fn a_file_reads_as_its_content_in_memory_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/dequant.gguf");
    let (file, memory) = (fixture(), Gguf::from_bytes(path, std::fs::read(path).unwrap()).unwrap());
    assert_eq!(file.metadata(), memory.metadata());
    assert_eq!(file.file_bytes(), memory.file_bytes());
    let mut all = vec![];
    for (tensor, same) in file.tensors().iter().zip(memory.tensors()) {
        assert_eq!(tensor, same);
        assert_eq!(file.data(tensor).unwrap(), memory.data(same).unwrap());
        file.append_data(tensor, &mut all).unwrap();
    }
    let total: u64 = file.tensors().iter().map(|t| t.bytes()).sum();
    assert!(all.len() as u64 == total && all.ends_with(&memory.data(memory.tensors().last().unwrap()).unwrap()));
}

#[test]
fn a_file_cut_short_after_it_was_opened_is_an_error() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::write(&path, small().finish()).unwrap();
    let file = Gguf::open(&path).unwrap();
    let (a, c) = (file.find("a").unwrap(), file.find("c").unwrap());
    let cut = std::fs::File::options().write(true).open(&path).unwrap();
    cut.set_len(c.range().end as u64 - 1).unwrap();
    assert_eq!(file.dequantize(a).unwrap().len(), 64);
    let error = file.dequantize(c).unwrap_err();
    assert!(matches!((&error.place, &error.problem), (Place::Tensor(name), Problem::Cut) if name == "c"), "{error}");
    assert!(error.to_string().starts_with(&format!("{}: tensor `c`: the file has been cut", path.display())));
    // Metadata stays, arrays too.
    cut.set_len(0).unwrap();
    assert_eq!(file.require::<Vec<&str>>("names").unwrap(), ["a", "bc", ""]);
    assert!(file.data(a).is_err());
}

#[test]
fn what_is_no_ordinary_file_is_refused() {
    let error = |path: &str| Gguf::open(path).unwrap_err().to_string();
    assert!(error("/dev/null").ends_with("cannot be read: it is no ordinary file"), "{}", error("/dev/null"));
    assert!(error("/").contains("directory"), "{}", error("/"));
}

#[test]
fn a_model_asks_for_tensors_by_name_and_shape() {
    let mut writer = small();
    writer.tensor("iq", &[256], GgmlType::Q2_K, vec![0; 84]);
    let file = open(writer.finish()).unwrap();
    let text = |name: &str, shape: &[u64]| file.tensor(name, shape).unwrap_err().to_string();
    assert_eq!(text("x", &[1]), "small.gguf: tensor `x`: missing from the file, which has 4 tensors");
    assert!(text("a", &[2, 32]).contains("has shape [32, 2]; expected [2, 32]"));
    assert!(text("iq", &[256]).contains("Q2_K, which is known but not supported; supported are F32, F16, Q4_0"));
}

#[test]
fn every_cut_is_an_error() {
    let reference = std::fs::read(fixture().path()).unwrap();
    // The reference writer pads the file after the last tensor.
    let end = fixture().tensors().iter().map(|tensor| tensor.range().end).max().unwrap();
    every_cut(&small().finish());
    every_cut(&reference[..end]);
}

fn every_cut(bytes: &[u8]) {
    for len in 0..bytes.len() {
        let (_, problem) = problem(bytes[..len].to_vec());
        assert!(
            matches!(problem, Problem::Truncated { .. } | Problem::Count { .. } | Problem::Outside { .. }),
            "cut at {len}: {problem}"
        );
    }
}

#[test]
fn a_directory_and_an_empty_or_absent_file_are_errors() {
    let text = |path: &str| Gguf::open(path).unwrap_err().to_string();
    assert!(text(env!("CARGO_MANIFEST_DIR")).contains("directory"));
    let empty = tempfile::NamedTempFile::new().unwrap();
    let text_of_empty = text(empty.path().to_str().unwrap());
    assert!(text_of_empty.contains("the file ends too early: 4 bytes are needed at byte 0"));
    assert!(text("/nowhere/model.gguf").contains("/nowhere/model.gguf: cannot be read: No such file"));
}

#[test]
fn damaged_headers() {
    let good = small().finish();
    let with = |at: usize, bytes: &[u8]| {
        let mut copy = good.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        problem(copy)
    };
    assert!(matches!(with(0, b"GGML").1, Problem::Magic { found } if &found == b"GGML"));
    assert!(matches!(with(4, &1u32.to_le_bytes()).1, Problem::Version { found: 1 }));
    assert!(matches!(with(4, &4u32.to_le_bytes()).1, Problem::Version { found: 4 }));
    assert!(matches!(with(4, &3u32.to_be_bytes()).1, Problem::BigEndian));
    for count in [u64::MAX, 1 << 32, 1 << 62, good.len() as u64] {
        assert!(matches!(with(8, &count.to_le_bytes()).1, Problem::Count { what: "tensors", .. }), "{count}");
        assert!(matches!(with(16, &count.to_le_bytes()).1, Problem::Count { what: "metadata entries", .. }), "{count}");
    }
}

#[test]
fn damaged_metadata() {
    let good = small().finish();
    let key = |key: &str| Place::Key(key.to_owned());

    // The value type of `n`, then of the elements of `scores`.
    let bad = replace(good.clone(), b"n\x04\0\0\0\x07", b"n\x0d\0\0\0\x07");
    assert!(matches!(problem(bad), (place, Problem::ValueType { found: 13 }) if place == key("n")));
    let bad = replace(good.clone(), b"scores\x09\0\0\0\x06", b"scores\x09\0\0\0\x09");
    assert!(matches!(problem(bad), (place, Problem::NestedArray) if place == key("scores")));

    let bad = replace(good.clone(), b"flag\x07\0\0\0\x01", b"flag\x07\0\0\0\x02");
    assert!(matches!(problem(bad), (place, Problem::Bool { found: 2 }) if place == key("flag")));
    let bad =
        replace(good.clone(), b"names\x09\0\0\0\x08\0\0\0\x03\0\0\0\0\0", b"names\x09\0\0\0\x08\0\0\0\x03\0\0\0\0\x80");
    assert!(matches!(problem(bad), (place, Problem::Count { what: "array elements", .. }) if place == key("names")));
    let bad = replace(good.clone(), b"bc", b"b\xff");
    assert!(matches!(problem(bad), (place, Problem::NotUtf8 { .. }) if place == key("names")));

    let mut twice = small();
    twice.meta("n", 8u32);
    assert!(matches!(problem(twice.finish()), (place, Problem::Duplicate) if place == key("n")));
    for alignment in [0u32, 1, 4, 24, u32::MAX] {
        let mut writer = small();
        writer.meta("general.alignment", alignment);
        assert!(matches!(problem(writer.finish()).1, Problem::Alignment { .. }), "{alignment}");
    }
    let mut writer = small();
    writer.meta("general.alignment", "32");
    assert!(matches!(problem(writer.finish()).1, Problem::KeyType { .. }));
}

/// The tensor table row of a file with one tensor, so that fields can be overwritten by offset from the row's end.
fn one_tensor(shape: &[u64], ty: GgmlType, data: usize, at_from_end: usize, field: &[u8]) -> (Place, Problem) {
    let mut writer = Writer::new();
    writer.tensor("t", shape, ty, vec![0; data]);
    let mut bytes = writer.finish();
    let row_end = 24 + 8 + 1 + 4 + shape.len() * 8 + 4 + 8;
    let at = row_end - at_from_end;
    bytes[at..at + field.len()].copy_from_slice(field);
    problem(bytes)
}

#[test]
fn damaged_tensor_tables() {
    let t = Place::Tensor("t".to_owned());
    let offset = |o: u64| one_tensor(&[32], GgmlType::F32, 128, 8, &o.to_le_bytes());
    assert!(matches!(offset(31), (place, Problem::Misaligned { offset: 31, alignment: 32 }) if place == t));
    assert!(matches!(offset(32), (place, Problem::Outside { .. }) if place == t));
    assert!(matches!(offset(u64::MAX - 31).1, Problem::Outside { .. }));
    let ty = |id: u32| one_tensor(&[32], GgmlType::F32, 128, 12, &id.to_le_bytes());
    assert!(matches!(ty(4).1, Problem::TensorType { found: 4 }));
    assert!(matches!(ty(u32::MAX).1, Problem::TensorType { .. }));
    let extent = |e: u64| one_tensor(&[32, 2], GgmlType::Q4_0, 36, 28, &e.to_le_bytes()).1;
    assert!(matches!(extent(0), Problem::Extents { .. }));
    assert!(matches!(extent(1 << 63), Problem::Extents { .. }));
    assert!(matches!(extent(1 << 62), Problem::Extents { .. }));
    assert!(matches!(extent(48), Problem::Row { ty: GgmlType::Q4_0, extent: 48 }));
    assert!(matches!(extent(64), Problem::Outside { .. }));
    let dims = |n: u32| one_tensor(&[32], GgmlType::F32, 128, 24, &n.to_le_bytes()).1;
    assert!(matches!(dims(0), Problem::Dimensions { found: 0 }));
    assert!(matches!(dims(5), Problem::Dimensions { found: 5 }));

    let mut writer = small();
    writer.tensor("a", &[1], GgmlType::F32, vec![0; 4]);
    assert!(matches!(problem(writer.finish()), (Place::Tensor(name), Problem::Duplicate) if name == "a"));
    // Two tensors in one place: the second offset, 32, becomes 0.
    let mut writer = Writer::new();
    writer.tensor("p", &[8], GgmlType::F32, vec![0; 32]).tensor("q", &[8], GgmlType::F32, vec![0; 32]);
    let bytes = replace(writer.finish(), &[0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0], &[0; 12]);
    assert!(matches!(problem(bytes), (Place::Tensor(name), Problem::Overlap { other }) if name == "q" && other == "p"));
}

#[test]
fn names_from_damaged_files_are_shown_in_one_short_line() {
    let mut writer = Writer::new();
    let name = format!("evil\n\u{1b}[31m{}", "x".repeat(5000));
    writer.tensor(&name, &[8], GgmlType::F32, vec![0; 4]);
    let text = open(writer.finish()).unwrap_err().to_string();
    assert!(!text.contains('\n') && !text.contains('\u{1b}') && text.len() < 400, "{text}");
}

proptest! {
    /// Whatever bytes are flipped, the file opens or is refused; if it opens, every tensor and key can be read.
    #[test]
    fn random_damage_never_panics(flips in prop::collection::vec((0usize..700, any::<u8>()), 1..12)) {
        let mut bytes = small().finish();
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(file) = open(bytes) {
            for tensor in file.tensors() {
                prop_assert_eq!(file.data(tensor).unwrap().len() as u64, tensor.bytes());
                if tensor.ty.is_supported() {
                    prop_assert_eq!(file.dequantize(tensor).unwrap().len() as u64, tensor.elements);
                }
            }
            for (key, _) in file.metadata() {
                let _ = (file.get::<u64>(key), file.get::<Vec<&str>>(key), file.get::<Vec<f32>>(key));
            }
        }
    }

    #[test]
    fn random_bytes_after_a_good_header_never_panic(body in prop::collection::vec(any::<u8>(), 0..400), tensors in 0u64..4, entries in 0u64..4) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(entries.to_le_bytes());
        bytes.extend(body);
        let _ = open(bytes);
    }

    #[test]
    fn metadata_round_trips(
        ints in prop::collection::vec(any::<i32>(), 0..20),
        strings in prop::collection::vec(".{0,8}", 0..20),
        x in any::<f32>(),
        n in any::<u64>(),
    ) {
        let texts: Vec<&str> = strings.iter().map(String::as_str).collect();
        let mut writer = Writer::new();
        writer.meta("ints", ints.as_slice()).meta("texts", texts.as_slice()).meta("x", x).meta("n", n);
        let file = open(writer.finish()).unwrap();
        prop_assert_eq!(file.require::<Vec<i32>>("ints").unwrap(), ints);
        prop_assert_eq!(file.require::<Vec<&str>>("texts").unwrap(), texts);
        prop_assert_eq!(file.require::<f32>("x").unwrap().to_bits(), x.to_bits());
        prop_assert_eq!(file.require::<u64>("n").unwrap(), n);
    }
}
