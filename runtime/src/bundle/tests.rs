//! A bundle gives back what was put in, and nothing that is wrong with its bytes passes unnoticed.

use super::*;
use crate::device::Level;
use proptest::prelude::*;
use tegula_ir::{
    Loc,
    protocol::{Site, SiteKind},
};

fn kernel(name: &str, constant: u32) -> Kernel {
    let text = format!(
        "kernel @{name}(%0 \"x\": view_mut<i32, 1>) {{\n  %1 = const {{value = {constant}: i32}} : i32 @ \"k.rs\":1:1\n}}\n"
    );
    Kernel::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn meta(warps: u32) -> Meta {
    let site = Site { kind: SiteKind::Assert, message: "n > 0".into(), loc: Loc::new("k.rs", 3, 9) };
    Meta { warps, sites: vec![site], ..Meta::default() }
}

fn gpu(capability: (u32, u32), cubins: bool) -> Machine {
    Machine::Gpu { name: "gpu".into(), target: "sm_90a".into(), capability, cubins }
}

const PTX80: &[u8] = b".version 8.0\n.target sm_80\n";

/// Two kernels, several targets, equal artifacts among them.
fn builder() -> Builder {
    let mut b = Builder::new("tegulac 1 abc");
    let long: Vec<u8> = (0..20_000u32).map(|i| (i / 100) as u8).collect();
    let mut add = |k: &Kernel, checked, target: &str, kind, bytes: &[u8], warps| {
        b.add(k, checked, target, kind, bytes.to_vec(), meta(warps)).unwrap()
    };
    let (a, c) = (kernel("a", 7), kernel("c", 8));
    add(&a, false, "cpu:x86-64-v3", Kind::SharedObject, &long, 0);
    add(&c, false, "cpu:x86-64-v3", Kind::SharedObject, &long, 0);
    add(&a, true, "cpu:x86-64-v3", Kind::SharedObject, b"checked", 0);
    add(&a, false, "sm_80", Kind::Ptx, PTX80, 4);
    add(&a, false, "sm_90a", Kind::Ptx, b"ptx of 90a", 8);
    add(&a, false, "sm_90a", Kind::Cubin, b"", 8);
    b
}

fn opened(bytes: Vec<u8>) -> Result<Bundle, BundleError> {
    Bundle::new("a.bundle".into(), bytes.into())
}

#[test]
fn what_was_put_in_comes_out_for_whom_it_fits() {
    let bundle = opened(builder().bytes().unwrap()).unwrap();
    let find = |k: &Kernel, checked, machine: &Machine| bundle.find(k, checked, machine).unwrap();
    let (a, c) = (kernel("a", 7), kernel("c", 8));
    let found = find(&a, false, &Machine::Cpu(Level::V3)).unwrap();
    assert_eq!((found.bytes.len(), found.bytes[12_345], found.target.as_str()), (20_000, 123, "cpu:x86-64-v3"));
    assert_eq!(found.meta, meta(0));
    assert_eq!(find(&c, false, &Machine::Cpu(Level::V3)).unwrap().bytes, found.bytes);
    assert_eq!(find(&a, true, &Machine::Cpu(Level::V3)).unwrap().bytes, b"checked");

    let kind = |capability, cubins| find(&a, false, &gpu(capability, cubins)).map(|f| (f.target, f.kind, f.meta.warps));
    assert_eq!(kind((9, 0), true), Some(("sm_90a".into(), Kind::Cubin, 8)));
    assert_eq!(kind((9, 0), false), Some(("sm_90a".into(), Kind::Ptx, 8)));
    for newer in [(8, 0), (8, 9), (10, 0)] {
        assert_eq!(kind(newer, true), Some(("sm_80".into(), Kind::Ptx, 4)));
    }
    assert_eq!(kind((7, 5), true), None);
    assert_eq!(find(&c, false, &gpu((9, 0), true)), None);
    assert_eq!(find(&kernel("a", 9), false, &Machine::Cpu(Level::V3)), None);
    assert_eq!(find(&c, true, &Machine::Cpu(Level::V3)), None);
}

#[test]
fn a_higher_level_takes_a_lower_ones_code_where_the_processor_has_both() {
    let bundle = opened(builder().bytes().unwrap()).unwrap();
    for &level in Level::ALL.iter().filter(|l| l.is_supported()) {
        let found = bundle.find(&kernel("a", 7), false, &Machine::Cpu(level)).unwrap().unwrap();
        assert_eq!(found.target, "cpu:x86-64-v3");
    }
}

#[test]
fn equal_contents_are_equal_bytes_and_equal_artifacts_are_kept_once() {
    let bytes = builder().bytes().unwrap();
    let mut backwards = Builder::new("tegulac 1 abc");
    let bundle = opened(bytes.clone()).unwrap();
    assert_eq!(bundle.inner.index.blobs.len(), 5, "of six artifacts");
    for e in bundle.inner.index.entries.iter().rev() {
        let artifact = format::unpack(&bytes, &bundle.inner.index, e.blob).unwrap();
        let k = if e.kernel == "a" { kernel("a", 7) } else { kernel("c", 8) };
        backwards.add(&k, e.checked, &e.target, e.kind, artifact, e.meta.clone()).unwrap();
    }
    assert_eq!(backwards.bytes().unwrap(), bytes);
    assert!(bytes.len() < 1500, "20,000 bytes of little content take {}", bytes.len());
    assert_eq!(bundle.targets().into_iter().collect::<Vec<_>>(), ["cpu:x86-64-v3", "sm_80", "sm_90a"]);
    assert_eq!(bundle.items().filter(|i| i.kernel == "a").count(), 5);
    assert_eq!(bundle.compiler(), "tegulac 1 abc");
}

#[test]
fn ptx_that_older_drivers_cannot_translate_is_refused_for_sm_80() {
    let mut b = Builder::new("");
    let mut add = |target: &str, text: &str| b.add(&kernel("a", 1), false, target, Kind::Ptx, text.into(), meta(1));
    assert!(add("sm_80", "//\n.version 7.8\n").is_ok() && add("sm_90a", ".version 8.6").is_ok());
    let error = |e: Result<(), BuilderError>| e.unwrap_err().to_string();
    assert_eq!(
        error(add("sm_80", ".version 8.1\n")),
        "kernel `a` for sm_80: expected PTX of a version up to 8.0, found version 8.1"
    );
    assert!(error(add("sm_80", "")).ends_with("found version none"));
}

#[test]
fn a_file_is_written_whole_and_opened_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bundle");
    std::fs::write(&path, "something older").unwrap();
    let size = builder().write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), builder().bytes().unwrap());
    assert_eq!((std::fs::read_dir(folder.path()).unwrap().count(), size), (1, builder().bytes().unwrap().len()));
    assert_eq!(Bundle::open(&path).unwrap().items().count(), 6);
    let none = Bundle::open(folder.path().join("none.bundle")).unwrap_err().to_string();
    assert!(none.contains("none.bundle cannot be used: it cannot be read: "), "{none}");
    assert!(builder().write(folder.path().join("none/x.bundle")).unwrap_err().to_string().starts_with("cannot write"));
}

#[test]
fn faults_are_named_with_file_and_byte() {
    let whole = builder().bytes().unwrap();
    let error = |bytes: Vec<u8>| opened(bytes).unwrap_err().to_string();
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        error(bytes)
    };
    assert_eq!(
        error(vec![]),
        "the bundle of kernels a.bundle cannot be used: at byte 0: the file ends here; a bundle begins with a header of \
         48 bytes"
    );
    assert!(with(0, b'X').contains("at byte 0: expected \"TGLBUNDL\", found [58, 47,"), "{}", with(0, b'X'));
    assert!(with(8, 77).contains("at byte 8: format version 77, and this program knows 1"));
    assert!(with(12, 77).contains("at byte 12: protocol version 77, and this program knows "));
    assert!(error(whole[..whole.len() - 1].to_vec()).contains("at byte 16: expected a file of "));
    assert!(error([&whole[..], b"x"].concat()).contains("it was cut, or something was added"));
    assert!(with(60, 255).contains("at byte 48: the index's checksum is wrong"));
    let last = whole.len() - 1;
    assert!(with(last, whole[last] ^ 1).contains("the checksum of blob "), "{}", with(last, whole[last] ^ 1));
}

#[test]
fn what_is_missing_is_said_with_what_there_is() {
    let bundle = opened(builder().bytes().unwrap()).unwrap();
    let text = |k: &Kernel, checked, machine: &Machine| Missing::of(k, checked, machine, &bundle).to_string();
    let other = text(&kernel("a", 99), false, &gpu((9, 0), true));
    assert!(
        other.starts_with(
            "kernel `a` for gpu (compute capability 9.0) is not in the bundle a.bundle, which has 6 artifacts for \
             cpu:x86-64-v3, sm_80, sm_90a, of this kernel 1 other variant. There is no compiler"
        ),
        "{other}"
    );
    assert!(other.contains("`tegula bundle MODEL --target sm_90a -o FILE`"), "{other}");
    let none = text(&kernel("z", 1), true, &Machine::Cpu(Level::V3));
    assert!(none.starts_with("kernel `z` with checks for cpu:x86-64-v3 is not in the bundle a.bundle, "), "{none}");
    assert!(none.contains("none of a kernel of this name that runs here"), "{none}");
}

/// A bundle whose index is `index`, with right checksums.
fn forged(index: &Index, data: &[u8]) -> Vec<u8> {
    let whole = format::compose("", vec![], &[]).unwrap();
    let index = postcard::to_stdvec(index).unwrap();
    let sum = |bytes: &[u8]| xxhash_rust::xxh3::xxh3_64(bytes).to_le_bytes();
    let mut head = whole[..16].to_vec();
    head.extend(((48 + index.len() + data.len()) as u64).to_le_bytes());
    head.extend((index.len() as u64).to_le_bytes());
    head.extend(sum(&index));
    head.extend(sum(&head));
    [&head[..], &index, data].concat()
}

#[test]
fn an_index_that_makes_no_sense_is_refused_though_its_checksums_are_right() {
    let data = b"0123456789";
    let sum = xxhash_rust::xxh3::xxh3_64(data);
    let entry = |key, blob| format::Entry {
        key,
        kernel: "k".into(),
        checked: false,
        target: "sm_80".into(),
        kind: Kind::Ptx,
        meta: Meta::default(),
        blob,
    };
    let blob = |packed, bytes| format::Blob { packed, bytes, sum };
    let index = |entries, blobs| Index { compiler: String::new(), entries, blobs };
    let error = |index: &Index| opened(forged(index, data)).unwrap_err().what;
    assert!(opened(forged(&index(vec![entry(1, 0)], vec![blob(10, 10)]), data)).is_ok());
    assert!(error(&index(vec![entry(2, 0), entry(1, 0)], vec![blob(10, 10)])).contains("not sorted at kernel `k`"));
    assert!(error(&index(vec![entry(1, 0), entry(1, 0)], vec![blob(10, 10)])).contains("not sorted"));
    assert!(error(&index(vec![entry(1, 1)], vec![blob(10, 10)])).contains("names blob 1 of 1"));
    assert!(error(&index(vec![], vec![blob(11, 11)])).contains("blob 0 of 11 bytes ends after the file"));
    assert!(error(&index(vec![], vec![blob(10, 9)])).contains("cannot hold 9 bytes in 10"));
    assert!(error(&index(vec![], vec![])).contains("10 bytes follow the last blob"));
    // What does not unpack is noticed when it is wanted.
    let bundle = opened(forged(&index(vec![entry(1, 0)], vec![blob(10, 20)]), data)).unwrap();
    let error = bundle.find_key(1, &gpu((8, 0), false)).unwrap_err().to_string();
    assert!(error.contains("blob 0 does not unpack to 20 bytes"), "{error}");
}

proptest! {
    #[test]
    fn a_changed_byte_or_a_cut_is_always_noticed(at in any::<prop::sample::Index>(), flip in 1..=255u8, cut in any::<bool>()) {
        let mut bytes = builder().bytes().unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        prop_assert!(opened(bytes).is_err());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut index in prop::collection::vec(any::<u8>(), 0..300), data in prop::collection::vec(any::<u8>(), 0..50), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), real in any::<bool>()) {
        // Right checksums around an index of noise, or around a real one with some bytes changed.
        let whole = builder().bytes().unwrap();
        if real {
            let n = u64::from_le_bytes(whole[24..32].try_into().unwrap()) as usize;
            index = whole[48..48 + n].to_vec();
            for (at, byte) in &changes {
                let at = at.index(index.len());
                index[at] = *byte;
            }
        }
        let mut file = whole[..16].to_vec();
        let data = if real { &whole[48 + index.len()..] } else { &data };
        file.extend(((48 + index.len() + data.len()) as u64).to_le_bytes());
        file.extend((index.len() as u64).to_le_bytes());
        file.extend(xxhash_rust::xxh3::xxh3_64(&index).to_le_bytes());
        file.extend(xxhash_rust::xxh3::xxh3_64(&file).to_le_bytes());
        file.extend(&index);
        file.extend(data);
        if let Ok(bundle) = opened(file) {
            for (key, capability) in bundle.items().map(|i| i.key).zip([(8, 0), (9, 0)].into_iter().cycle()) {
                let _ = bundle.find_key(key, &gpu(capability, true));
                let _ = bundle.find_key(key, &Machine::Cpu(Level::V3));
            }
        }
    }
}
