//! Every kernel that is known by name compiles for every GPU as it is, and with each setting.

use crate::support::*;
use tegula::{device::Arch, ir::Quant};
use tegula_kernels::registry::{KERNELS, find};

#[test]
fn every_kernel_of_the_registry_compiles_for_gpus() {
    for arch in Arch::ALL {
        let (mut kernels, mut skipped) = (vec![], 0);
        for entry in KERNELS {
            kernels.push(entry.ir(arch.name(), &[], &[]).unwrap());
            for setting in entry.settings {
                let others = (setting.choices)().into_iter().filter(|c| *c != setting.default_on(arch.name()));
                for choice in others {
                    let set = [(setting.name.to_owned(), choice.to_owned())];
                    match entry.ir(arch.name(), &[], &set) {
                        // Panels are for CPUs.
                        Ok(_) if choice == "panel16" => skipped += 1,
                        Ok(kernel) => kernels.push(kernel),
                        // Float weights have no blocks of codes.
                        Err(e) => {
                            assert!(
                                Quant::from_name(choice).is_some_and(|q| q.is_float()),
                                "{} {set:?}: {e}",
                                entry.name
                            );
                            skipped += 1;
                        }
                    }
                }
            }
        }
        let stream = if *arch == Arch::Sm80 { &SM80 } else { &SM90A };
        stream.device().prepare(&kernels).unwrap();
        println!("{}: {} kernels compile, {skipped} are not for it", arch.name(), kernels.len());
        assert!(kernels.len() > 40 && skipped < 12, "{} kernels, {skipped} skipped", kernels.len());
    }
}

/// Tiles of a CPU's size do not fit, and the error says what is too much.
#[test]
fn a_configuration_that_cannot_fit_names_what_it_exceeds() {
    let large = find("matmul").unwrap().ir("sm_80", &[512, 512, 256], &[]).unwrap();
    let error = SM80.device().prepare(&[large]).unwrap_err().to_string();
    for part in ["matmul", "sm_80", "registers a thread", "more than the", "smaller tiles fit"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
