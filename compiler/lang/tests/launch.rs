//! Launches: wrong ones are error values that name kernel, argument, expected and found; equal ones share a key.
extern crate tegula_lang as tegula;
mod support;
use std::cell::RefCell;
use support::*;
use tegula::launch::{ArgData, LaunchDesc, LaunchKey, PackedArg, ViewArg};
use tegula::prelude::*;
use tegula_ir::{Quant, layout::Layout};

#[kernel]
fn axpy<T: Float, BN: Dim>(a: Scalar<T>, x: View<T, 1>, y: ViewMut<T, 1>) {
    let i = program_id(0);
    y.store(i, x.load::<(BN,)>(i) * a + y.load::<(BN,)>((i,)));
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Options {
    twice: bool,
}
#[kernel]
fn scaled<BM: Dim, BN: Dim>(#[build] options: &Options, x: View<f32, 2>, y: ViewMut<f32, 2>) {
    let t = x.load::<(BM, BN)>((program_id(0), program_id(1)));
    y.store((program_id(0), program_id(1)), if options.twice { t * 2.0 } else { t });
}
#[kernel]
fn unpack(w: Packed<tegula::packed::formats::Q4_0>, y: ViewMut<f32, 2>) {
    y.store((0, 0), w.load::<(C<32>, C<8>)>((0, 0)).dequant());
}

/// Keeps keys and grids, runs nothing.
#[derive(Default)]
struct Keys(RefCell<Vec<(LaunchKey, [u32; 3])>>);
impl Executor for Keys {
    fn launch(&self, l: &LaunchDesc<'_>) -> Result<(), LaunchError> {
        self.0.borrow_mut().push((l.key, l.grid));
        Ok(())
    }
}
impl Keys {
    fn last(&self) -> (LaunchKey, [u32; 3]) {
        *self.0.borrow().last().unwrap()
    }
}

/// Raw arguments, to pass what no tensor would.
struct Raw<'a>(ArgData<'a>);
impl<'a, T: Elem, const R: usize> Arg<'a, View<T, R>> for Raw<'a> {
    fn arg(self) -> ArgData<'a> {
        self.0
    }
}
impl<'a, T: Elem, const R: usize> Arg<'a, ViewMut<T, R>> for Raw<'a> {
    fn arg(self) -> ArgData<'a> {
        self.0
    }
}
impl<'a, Q: Format> Arg<'a, Packed<Q>> for Raw<'a> {
    fn arg(self) -> ArgData<'a> {
        self.0
    }
}
fn view(ptr: usize, elem: tegula_ir::Elem, mutable: bool, extents: &[i64], strides: &[i64]) -> Raw<'static> {
    let (mut e, mut s) = ([1; 4], [1; 4]);
    e[..extents.len()].copy_from_slice(extents);
    s[..strides.len()].copy_from_slice(strides);
    let rank = extents.len() as u8;
    Raw(ArgData::View(ViewArg {
        ptr: ptr as *mut u8,
        elem,
        mutable,
        rank,
        extents: e,
        strides: s,
        owner: None,
        borrow: Default::default(),
    }))
}
const F32: tegula_ir::Elem = tegula_ir::Elem::F32;

#[track_caller]
fn refused(r: Result<(), LaunchError>, text: &str) {
    let e = r.unwrap_err();
    assert_eq!(e.to_string(), text);
    // What a `main` that returns it prints.
    assert_eq!(format!("{e:?}"), text);
}

#[test]
fn errors_name_kernel_argument_expected_found() {
    let keys = Keys::default();
    let x = Tensor::<f32>::new(&[8], |_| 1.0);
    let m = Tensor::<f32>::new(&[2, 4], |_| 1.0);
    let mut y = x.clone();
    refused(
        axpy::launch(1.0f32, &m, &mut y).dims(4).run(&keys),
        "kernel `launch::axpy`, argument `x`: expected a tensor of `f32` of rank 1, found a tensor of `f32` of rank 2",
    );
    refused(
        axpy::launch(1.0f32, &x, view(0, F32, false, &[8], &[1])).dims(4).run(&keys),
        "kernel `launch::axpy`, argument `y`: expected a writable tensor of `f32` of rank 1, found a tensor of `f32` of rank 1",
    );
    refused(
        axpy::launch::<f32>(1.0f32, view(0, tegula_ir::Elem::F16, false, &[8], &[1]), &mut y).dims(4).run(&keys),
        "kernel `launch::axpy`, argument `x`: expected a tensor of `f32` of rank 1, found a tensor of `f16` of rank 1",
    );
    refused(
        axpy::launch(1.0f32, view(0, F32, false, &[1 << 31], &[1]), &mut y).dims(4).run(&keys),
        "kernel `launch::axpy`, argument `x`: expected extents below 2^31, found an extent of 2147483648",
    );
    refused(axpy::launch(1.0f32, &x, &mut y).run(&keys), "kernel `launch::axpy`: give its dims with `.dims(BN)`");
    refused(
        axpy::launch(1.0f32, &x, &mut y).dims(0).run(&keys),
        "kernel `launch::axpy`, dim `BN`: expected 1 to 1073741824, found 0",
    );
    let mut out = m.clone();
    refused(
        scaled::launch(&m, &mut out).dims(2, 4).run(&keys),
        "kernel `launch::scaled`: give its build options `options` with `.cfg(..)`",
    );
    refused(
        unpack::launch(&PackedTensor { bytes: vec![0; 34 * 8], k: 32, n: 8, quant: Quant::Q8_0 }, &mut out)
            .grid(1)
            .run(&keys),
        "kernel `launch::unpack`, argument `w`: expected a packed matrix of `q4_0`, found a packed matrix of `q8_0`",
    );
    refused(
        unpack::launch(&PackedTensor { bytes: vec![0; 18 * 8], k: 32, n: 8, quant: Quant::Q4_0 }, &mut out).run(&keys),
        "kernel `launch::unpack`, grid: give it with `.grid(..)`: there are no dims, or no view that the kernel writes, to take it from",
    );
    refused(
        axpy::launch(1.0f32, &x, &mut y).dims(4).grid(1u32 << 31).run(&keys),
        "kernel `launch::axpy`, grid: at most 2147483647 programs run along an axis",
    );
    for (warps, n) in [(0, "0"), (3, "3"), (64, "64")] {
        refused(
            axpy::launch(1.0f32, &x, &mut y).dims(4).warps(warps).run(&keys),
            &format!("kernel `launch::axpy`, warps: expected a power of two up to 32, found {n}"),
        );
    }
    assert!(keys.0.borrow().is_empty());
}

#[test]
fn grids() {
    let keys = Keys::default();
    let x = Tensor::<f32>::new(&[10], |_| 1.0);
    let mut y = x.clone();
    axpy::launch(1.0f32, &x, &mut y).dims(4).run(&keys).unwrap();
    assert_eq!(keys.last().1, [3, 1, 1]);
    let m = Tensor::<f32>::new(&[5, 9], |_| 1.0);
    let mut out = m.clone();
    scaled::launch(&m, &mut out).dims(2, 4).cfg(Options { twice: true }).run(&keys).unwrap();
    assert_eq!(keys.last().1, [9, 1, 1]);
    scaled::launch(&m, &mut out).dims(2, 4).cfg(Options { twice: true }).grid([3, 3]).run(&Oracle::default()).unwrap();
    assert_eq!(out.data, [2.0; 45]);
    let (empty, mut none) = (Tensor::<f32>::new(&[0], |_| 1.0), Tensor::<f32>::new(&[0], |_| 1.0));
    let before = keys.0.borrow().len();
    axpy::launch(1.0f32, &empty, &mut none).dims(4).run(&keys).unwrap();
    assert_eq!(keys.0.borrow().len(), before, "nothing to run");
}

#[test]
fn keys_hold_exactly_what_a_launch_is_specialised_on() {
    let keys = Keys::default();
    let key = |x: Raw<'_>, y: Raw<'_>, dim: usize| {
        axpy::launch::<f32>(1.0f32, x, y).dims(dim).run(&keys).unwrap();
        keys.last().0
    };
    let x = |n: i64| view(4096, F32, false, &[n], &[1]);
    let y = |n: i64| view(8192, F32, true, &[n], &[1]);
    let base = key(x(8), y(8), 4);
    assert_eq!(base, key(x(80), y(12345), 4), "lengths do not count");
    assert_ne!(base, key(x(8), y(8), 8), "dims do");
    assert_ne!(base, key(view(4096, F32, false, &[8], &[2]), y(8), 4), "the innermost stride does");
    assert_ne!(base, key(view(4100, F32, false, &[8], &[1]), y(8), 4), "alignment does");
    assert_ne!(base, key(x(1 << 30), y(8), 4), "offsets beyond 2^31 bytes do");
    axpy::launch(1.0f64, &Tensor::<f64>::new(&[8], |_| 1.0), &mut Tensor::<f64>::new(&[8], |_| 1.0))
        .dims(4)
        .run(&keys)
        .unwrap();
    assert_ne!(base, keys.last().0, "element types do");
    let m = Tensor::<f32>::new(&[4, 8], |_| 1.0);
    let mut out = m.clone();
    let mut with = |twice| {
        scaled::launch(&m, &mut out).dims(2, 4).cfg(Options { twice }).run(&keys).unwrap();
        keys.last().0
    };
    assert_eq!(with(true), with(true));
    assert_ne!(with(true), with(false), "options do");
    let warps = |n| {
        axpy::launch::<f32>(1.0f32, x(8), y(8)).dims(4).warps(n).run(&keys).unwrap();
        keys.last().0
    };
    assert_eq!(warps(8), warps(8));
    assert!(warps(8) != warps(4) && warps(4) != base, "warps do");
    let packed = |quant, layout| {
        let w =
            PackedArg { ptr: std::ptr::null(), k: 32, n: 8, quant, layout, owner: None, borrow: Default::default() };
        let mut y = Tensor::<f32>::new(&[32, 8], |_| 0.0);
        #[kernel]
        fn any(w: Packed, y: ViewMut<f32, 2>) {
            y.store((0, 0), w.load::<(C<32>, C<8>)>((0, 0)).dequant());
        }
        any::launch(Raw(ArgData::Packed(w)), &mut y).grid(1).run(&keys).unwrap();
        keys.last().0
    };
    assert_ne!(packed(Quant::Q4_0, Layout::Gguf), packed(Quant::Q8_0, Layout::Gguf), "formats do");
    assert_ne!(packed(Quant::Q4_0, Layout::Gguf), packed(Quant::Q4_0, Layout::Panel16), "layouts do");
}

#[test]
fn warps_reach_the_ir() {
    let x = Tensor::<f32>::new(&[8], |_| 1.0);
    let mut y = x.clone();
    let text = axpy::launch(1.0f32, &x, &mut y).dims(4).warps(16).ir().unwrap().text();
    assert!(text.contains("{warps = 16}"), "{text}");
    let text = axpy::launch(1.0f32, &x, &mut y).dims(4).ir().unwrap().text();
    assert!(!text.contains("warps"), "{text}");
}

#[test]
fn facts_reach_the_ir() {
    let ir = axpy::launch::<f32>(1.0f32, view(4096, F32, false, &[8], &[2]), view(8196, F32, true, &[1 << 30], &[1]))
        .dims(4)
        .ir()
        .unwrap();
    let text = ir.to_string();
    assert!(text.contains("\"x\": view<f32, 1, align16, small>"), "{text}");
    assert!(text.contains("\"y\": view_mut<f32, 1, unit>"), "{text}");
}
