//! What the typed side of a launch costs: checks, facts, grid and key, before an executor does anything.
extern crate tegula_lang as tegula;
use std::hint::black_box;
use std::time::Instant;
use tegula::launch::{ArgData, LaunchDesc, ViewArg};
use tegula::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Options {
    causal: bool,
}

#[kernel]
fn plain<BM: Dim, BN: Dim>(a: View<f32, 2>, b: View<f32, 2>, c: ViewMut<f32, 2>, n: Scalar<i32>) {
    let _ = (a, b, c, n, BM::extent(), BN::extent());
}
#[kernel]
fn with_options<BM: Dim, BN: Dim>(a: View<f32, 2>, b: View<f32, 2>, c: ViewMut<f32, 2>, #[build] cfg: Options) {
    let _ = (a, b, c, cfg, BM::extent(), BN::extent());
}

struct Nothing;
impl Executor for Nothing {
    fn launch(&self, l: &LaunchDesc<'_>) -> Result<(), LaunchError> {
        black_box((&l.key, l.grid, l.args));
        Ok(())
    }
}
#[derive(Clone, Copy)]
struct Raw(usize, bool);
impl<'a> Arg<'a, View<f32, 2>> for Raw {
    fn arg(self) -> ArgData<'a> {
        let (extents, strides) = ([1000, 512, 1, 1], [512, 1, 1, 1]);
        let elem = tegula_ir::Elem::F32;
        let ptr = self.0 as *mut u8;
        ArgData::View(ViewArg {
            ptr,
            elem,
            mutable: self.1,
            rank: 2,
            extents,
            strides,
            owner: None,
            borrow: Default::default(),
        })
    }
}
impl<'a> Arg<'a, ViewMut<f32, 2>> for Raw {
    fn arg(self) -> ArgData<'a> {
        Arg::<View<f32, 2>>::arg(self)
    }
}

fn time(name: &str, mut f: impl FnMut()) {
    let best = (0..20)
        .map(|_| {
            let t = Instant::now();
            (0..10_000).for_each(|_| f());
            t.elapsed().as_nanos() as f64 / 10_000.0
        })
        .fold(f64::MAX, f64::min);
    println!("{name}: {best:.0} ns");
}

fn main() {
    let (a, b, c) = (Raw(4096, false), Raw(8192, false), Raw(12288, true));
    time("3 views, 1 scalar", || plain::launch(black_box(a), b, c, 7).dims(64, 64).run(&Nothing).unwrap());
    time("3 views, options", || {
        with_options::launch(black_box(a), b, c).dims(64, 64).cfg(Options { causal: true }).run(&Nothing).unwrap()
    });
}
