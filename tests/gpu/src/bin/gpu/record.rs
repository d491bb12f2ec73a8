//! The bundle that goes along: every kernel that the parts launch.

use crate::{
    matrix,
    matrix::measure::Measure,
    options::Sizes,
    sample,
    support::{self, Rng},
    timings::works,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    path::Path,
};
use tegula::{
    Device,
    bundle::{self, MakeOptions},
};

/// What GPUs are asked for. PTX of sm_80 runs on every later one.
const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];

/// Compiles all kernels into a bundle.
pub fn bundle(out: &Path) -> Result<(), String> {
    // Nothing is computed while kernels are noted, which some cases take badly: they launch first, and look then.
    let usual = take_hook();
    set_hook(Box::new(|_| {}));
    let made = bundle::make(&TARGETS, MakeOptions::default(), |device: &Device| -> Result<(), String> {
        launches(device);
        Ok(())
    });
    set_hook(usual);
    let made = made.map_err(|e| e.to_string())?;
    if made.no_cubins {
        eprintln!("there is no ptxas: the bundle has PTX alone");
    }
    let bytes = made.builder.write(out).map_err(|e| e.to_string())?;
    eprintln!("{}: {} artifacts, {bytes} bytes", out.display(), made.builder.len());
    Ok(())
}

fn launches(device: &Device) {
    let stream = device.stream();
    support::place_on(device);
    let ignored = |f: &mut dyn FnMut()| drop(catch_unwind(AssertUnwindSafe(f)));
    for (name, case) in matrix::cases() {
        ignored(&mut || (case.run)(&stream, &mut Measure::new(&name)));
    }
    // Of the samples the case gets to the first only.
    let mut rng = Rng(1);
    for v in [1, 17, 32, 33, 97] {
        let logits = sample::spread(v, 0.1, &mut rng);
        let rows: Vec<_> = (0..12).map(|i| (&logits[..], sample::GREEDY, i, 1)).collect();
        ignored(&mut || drop(sample::draw(&stream, &rows, 32)));
    }
    for sizes in [Sizes::Real, Sizes::Small] {
        for work in works() {
            ignored(&mut || {
                if let Ok(mut ready) = (work.make)(&stream, sizes) {
                    drop((ready.launch)(&stream));
                }
            });
        }
    }
}
