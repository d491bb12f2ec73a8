//! Tensors and views against plain index arithmetic.

use half::{bf16, f16};
use proptest::prelude::*;
use std::io::Write;
use tegula::{
    MappedFile, PackedTensor, Tensor, TensorError, TensorView, TensorViewMut, View,
    ir::{Quant, layout::Layout},
    launch::{Arg, ArgData},
};

/// A tensor of which each element tells its index.
fn numbered(shape: &[usize]) -> Tensor<i64> {
    Tensor::from_fn(shape, |i| i.iter().fold(0, |n, x| n * 100 + *x as i64)).unwrap()
}

#[test]
fn elements_are_in_row_major_order() {
    let t = numbered(&[2, 3, 4]);
    assert_eq!(t.shape(), [2, 3, 4]);
    assert_eq!(t.as_slice()[..5], [0, 1, 2, 3, 100]);
    assert_eq!(t.as_slice()[23], 10203);
    let t = t.reshape([4, 6]).unwrap();
    assert_eq!(t.view().index(0, 1).unwrap().to_vec(), [102, 103, 200, 201, 202, 203]);
    assert_eq!(Tensor::<f32>::zeros([]).unwrap().len(), 1, "no axis: one element");
    assert_eq!(Tensor::<f32>::zeros([3, 0, 2]).unwrap().to_vec(), []);
    let values = [f16::from_f32(0.5), f16::NEG_INFINITY];
    assert_eq!(Tensor::from_slice([2], &values).unwrap().to_vec(), values);
}

proptest! {
    #[test]
    fn views_of_views_reach_the_elements_that_their_indices_say(
        shape in proptest::collection::vec(1usize..6, 3),
        cut in 0usize..3,
        range in any::<(usize, usize)>(),
        order in Just(vec![0usize, 1, 2]).prop_shuffle(),
        at in any::<usize>(),
    ) {
        let t = numbered(&shape);
        let n = shape[cut];
        let (from, to) = (range.0 % (n + 1), range.1 % (n + 1));
        let (from, to) = (from.min(to), from.max(to));
        let view = t.slice(cut, from..to).unwrap().permute(&order).unwrap();
        let mut expected = vec![];
        let extent = |axis: usize| if axis == cut { to - from } else { shape[axis] };
        for i in 0..extent(order[0]) {
            for j in 0..extent(order[1]) {
                for k in 0..extent(order[2]) {
                    let mut index = [0; 3];
                    (index[order[0]], index[order[1]], index[order[2]]) = (i, j, k);
                    index[cut] += from;
                    expected.push((index[0] * 10_000 + index[1] * 100 + index[2]) as i64);
                }
            }
        }
        prop_assert_eq!(view.to_vec(), &expected[..]);
        if let Some(slice) = view.as_slice() {
            prop_assert_eq!(slice, &expected[..]);
        }
        let rows = extent(order[0]);
        let inner = extent(order[1]) * extent(order[2]);
        if rows > 0 {
            let at = at % rows;
            prop_assert_eq!(view.index(0, at).unwrap().to_vec(), &expected[at * inner..(at + 1) * inner]);
        }
        let again: Vec<usize> = view.transposed().shape().iter().rev().copied().collect();
        prop_assert_eq!(again, view.shape());
    }
}

#[test]
fn split_views_write_their_own_elements() {
    let mut t = Tensor::<i32>::zeros([3, 4]).unwrap();
    {
        let (mut left, mut right) = t.view_mut().unwrap().split_at(1, 1).unwrap();
        left.copy_from_slice(&[1, 2, 3]).unwrap();
        right.reborrow().slice(0, 1..2).unwrap().copy_from_slice(&[7, 8, 9]).unwrap();
        assert_eq!(right.as_view().to_vec(), [0, 0, 0, 7, 8, 9, 0, 0, 0]);
        assert!(right.copy_from_slice(&[1]).is_err());
    }
    assert_eq!(t.to_vec(), [1, 0, 0, 0, 2, 7, 8, 9, 3, 0, 0, 0]);
}

#[test]
fn values_of_the_host_are_viewed_without_a_copy() {
    let mut values = [1i16, 2, 3, 4, 5, 6];
    let view = TensorView::of([2, 3], &values).unwrap();
    assert_eq!(view.transposed().to_vec(), [1, 4, 2, 5, 3, 6]);
    assert_eq!(view.as_slice().unwrap().as_ptr(), values.as_ptr());
    TensorViewMut::of([3, 2], &mut values).unwrap().index(1, 0).unwrap().copy_from_slice(&[7, 8, 9]).unwrap();
    assert_eq!(values, [7, 2, 8, 4, 9, 6]);
    let error = TensorView::of([4], &values).unwrap_err().to_string();
    assert_eq!(error, "expected 4 elements for shape [4], found 6");
}

#[test]
fn what_cannot_be_is_an_error_that_says_why() {
    let e = |r: Result<Tensor<f32>, TensorError>| r.unwrap_err().to_string();
    assert_eq!(e(Tensor::zeros([1; 5])), "expected at most 4 axes, found 5");
    assert_eq!(e(Tensor::from_slice([2, 3], &[1.0])), "expected 6 elements for shape [2, 3], found 1");
    assert_eq!(e(Tensor::zeros([2, 3]).unwrap().reshape([5])), "expected 5 elements for shape [5], found 6");
    assert!(matches!(Tensor::<f32>::zeros([usize::MAX, 2]), Err(TensorError::TooLarge(_))));
    assert!(matches!(Tensor::<f32>::zeros([usize::MAX, 0, usize::MAX]), Err(TensorError::TooLarge(_))));
    assert!(matches!(Tensor::<f32>::zeros([isize::MAX as usize / 2]), Err(TensorError::TooLarge(_))));
    assert!(matches!(Tensor::<u8>::zeros([1 << 60]), Err(TensorError::Memory(_))));
    let t = numbered(&[2, 3]);
    let e = |r: Result<_, TensorError>| r.map(|v: tegula::TensorView<'_, i64>| v.to_vec()).unwrap_err().to_string();
    assert_eq!(e(t.slice(1, 2..4)), "axis 1 of shape [2, 3] has no part 2..4");
    assert_eq!(e(t.slice(2, 0..1)), "axis 2 of shape [2, 3] has no part 0..1");
    assert_eq!(e(t.view().index(0, 2)), "axis 0 of shape [2, 3] has no part 2..3");
    assert_eq!(e(t.view().index(0, usize::MAX)).split(" has").next(), Some("axis 0 of shape [2, 3]"));
    assert_eq!(e(t.view().permute(&[1, 1])), "expected each axis of shape [2, 3] once, found [1, 1]");
    assert!(t.view().permute(&[0]).is_err());
}

#[test]
fn poisoned_elements_are_seen_and_outputs_know_that_nothing_was_written() {
    assert!(Tensor::<f32>::poisoned([5]).unwrap().as_slice().iter().all(|x| x.is_nan()));
    assert!(Tensor::<bf16>::poisoned([5]).unwrap().as_slice().iter().all(|x| x.is_nan()));
    assert_eq!(Tensor::<i16>::poisoned([2]).unwrap().to_vec(), [-1, -1]);
    assert_eq!(Tensor::<bool>::poisoned([2]).unwrap().to_vec(), [true, true]);
}

#[test]
fn arguments_say_what_a_view_guarantees() {
    fn arg<'a, P>(t: impl Arg<'a, P>) -> (Vec<i64>, Vec<i64>, [bool; 3]) {
        let ArgData::View(v) = t.arg() else { panic!("a view") };
        let (r, f) = (v.rank as usize, v.view_facts());
        (v.extents[..r].to_vec(), v.strides[..r].to_vec(), [f.unit, f.align16, f.small])
    }
    let t = numbered(&[4, 6]);
    assert_eq!(arg::<View<i64, 2>>(&t), (vec![4, 6], vec![6, 1], [true; 3]));
    assert_eq!(arg::<View<i64, 2>>(t.transposed()), (vec![6, 4], vec![1, 6], [false, false, true]));
    assert_eq!(arg::<View<i64, 2>>(t.slice(1, 1..3).unwrap()).2, [true, false, true], "8 bytes off");
    assert_eq!(arg::<View<i64, 2>>(t.slice(1, 2..4).unwrap()).2, [true; 3], "16 bytes off");
    // Strides of axes with one element say nothing: they never cost a specialisation.
    assert_eq!(
        arg::<View<i64, 2>>(t.transposed().slice(1, 0..1).unwrap()),
        (vec![6, 1], vec![1, 1], [true, false, true])
    );
    assert_eq!(arg::<View<i64, 2>>(numbered(&[1, 3]).slice(0, 0..1).unwrap()), (vec![1, 3], vec![0, 1], [true; 3]));
    assert_eq!(arg::<View<i64, 2>>(numbered(&[3, 5]).view()).2, [true, false, true], "rows of 40 bytes");
}

#[test]
fn tensors_in_mapped_files_are_read_in_place_and_not_written() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let values: Vec<f32> = (0..1000).map(|i| i as f32 * 0.37 - 3.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    file.write_all(&[7; 8]).unwrap();
    file.write_all(&bytes).unwrap();
    let map = MappedFile::open(file.path()).unwrap();
    assert_eq!(map.bytes()[8..], bytes);
    let mut t = map.tensor::<f32>(8, [10, 100]).unwrap();
    assert_eq!(t.as_slice(), values);
    assert_eq!(t.slice(0, 3..4).unwrap().as_slice().unwrap(), &values[300..400]);
    assert!(t.is_read_only());
    assert_eq!(t.as_mut_slice().unwrap_err().to_string(), "a tensor in a mapped file cannot be written");
    assert!(t.view_mut().is_err());
    let data: ArgData<'_> = Arg::<tegula::ViewMut<f32, 2>>::arg(&mut t);
    assert!(matches!(data, ArgData::View(v) if !v.mutable), "a launch will refuse it");
    // The tensor keeps the mapping.
    drop(map.clone());
    map.drop_pages(0..4008);
    drop(map);
    assert_eq!(t.to_vec(), values);

    let map = MappedFile::open(file.path()).unwrap();
    for (offset, shape) in
        [(9, vec![1]), (8, vec![1001]), (4012, vec![1]), (usize::MAX - 3, vec![1]), (8, vec![1 << 62])]
    {
        assert!(map.tensor::<f32>(offset, &shape).is_err(), "{offset} {shape:?}");
    }
    assert!(map.tensor::<bool>(0, [1]).is_err());
    assert_eq!(map.tensor::<u8>(4007, [1]).unwrap().to_vec(), [bytes[3999]]);
}

#[test]
fn packed_tensors_take_exactly_the_bytes_of_their_format_and_layout() {
    let (quant, k, n) = (Quant::Q8_0, 64, 3);
    let bytes: Vec<u8> = (0..2 * 34 * 3).map(|i| (i * 11 % 120) as u8).collect();
    let t = PackedTensor::from_bytes(&bytes, quant, Layout::Gguf, k, n).unwrap();
    assert_eq!((t.quant(), t.layout(), t.k(), t.n()), (quant, Layout::Gguf, k, n));
    assert_eq!(t.as_bytes(), bytes);
    assert_eq!(t.bytes_view().as_slice().unwrap(), bytes);
    assert_eq!(t.bytes_view().shape(), [3, 68], "a row for each column of the matrix");
    // Element (k, n): block k / 32 of row n: an f16 scale, then codes.
    for (k, n) in [(0, 0), (31, 0), (32, 1), (63, 2)] {
        let block = &bytes[(n * 2 + k / 32) * 34..];
        let scale = f16::from_bits(u16::from_le_bytes([block[0], block[1]])).to_f32();
        assert_eq!(t.decode(k, n), scale * f32::from(block[2 + k % 32] as i8), "({k}, {n})");
    }
    assert_eq!(t.decode(64, 0), 0.0);
    let error = PackedTensor::from_bytes(&bytes[1..], quant, Layout::Gguf, k, n).unwrap_err().to_string();
    assert_eq!(error, "packed `q8_0` matrix of K = 64, N = 3 in layout `gguf`: expected 204 bytes, found 203");
    let error = PackedTensor::zeros(quant, Layout::Gguf, 40, 1).unwrap_err().to_string();
    assert!(error.contains("expected K to be a multiple of 32"), "{error}");
    assert!(PackedTensor::zeros(quant, Layout::Panel16, 1 << 62, 1 << 40).is_err());
    let mut p = PackedTensor::zeros(Quant::Q4_K, Layout::Panel16, 256, 17).unwrap();
    assert_eq!(Some(p.as_bytes().len()), Layout::Panel16.bytes(Quant::Q4_K, 256, 17));
    let bytes = p.bytes_view_mut().unwrap();
    assert_eq!(bytes.shape()[0], 2, "a row for each panel of 16 columns");
    bytes.index(0, 0).unwrap().slice(0, 0..4).unwrap().copy_from_slice(&[1, 2, 3, 4]).unwrap();
    assert_eq!(p.as_bytes()[..5], [1, 2, 3, 4, 0]);
    let shared = p.clone();
    assert!(p.as_mut_bytes().is_none(), "shared");
    drop(shared);
    assert!(p.as_mut_bytes().is_some());
}

#[test]
fn what_a_main_prints_of_an_error_is_what_it_says() {
    let e = Tensor::<f32>::from_slice([2, 3], &[0.0; 5]).unwrap_err();
    assert_eq!(format!("{e:?}"), e.to_string());
    let e = tegula::DeviceError::from(tegula::compile::CompileError::NotFound { looked: vec!["/nowhere".into()] });
    assert!(format!("{e:?}").contains("Build it with `cargo build -p tegula-codegen`"), "{e:?}");
    let e = tegula::launch::LaunchError::executor("k", e);
    assert!(format!("{e:?}").starts_with("kernel `k`: the kernel compiler `tegulac` was not found"), "{e:?}");
    let crashed = tegula::compile::CompileError::Crashed {
        kernel: "k".into(),
        target: "cpu:x86-64-v3".into(),
        what: "it is dead".into(),
        said: String::new(),
        saved: None,
    };
    let e = tegula::launch::LaunchError::executor("k", crashed);
    assert_eq!(e.to_string(), "the compiler failed on kernel `k` for cpu:x86-64-v3: it is dead", "the name once");
}
