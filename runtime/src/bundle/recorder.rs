//! Which kernels a program needs: a device that notes them and computes nothing.

use super::{Machine, kernel_key};
use crate::device::{Device, DeviceError, Program, Target};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use tegula_ir::{Kernel, layout::Layout};
use tegula_lang::launch::ArgData;

/// Notes the kernels that are launched on its device, or loaded by it.
///
/// Kernels are specialised for their arguments (see the book on launches), so run whatever the program may run: each kernel
/// with each format, configuration and kind of tensor. How long an axis is makes no difference; whether strides and
/// offsets are multiples of 16 bytes does.
pub struct Recorder {
    machine: Machine,
    seen: Seen,
}

/// By key: kernels that differ in lines alone, which no report tells, are one.
type Seen = Arc<Mutex<BTreeMap<u128, Recorded>>>;

/// A kernel that is needed.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its IR.
    pub kernel: Kernel,
    /// Whether checks are compiled in.
    pub checked: bool,
}

impl Recorder {
    /// For a target: `cpu:x86-64-v3`, `sm_80`, `sm_90a`.
    ///
    /// # Errors
    /// That is no target.
    pub fn new(target: &str) -> Result<Recorder, DeviceError> {
        Ok(Recorder { machine: Machine::of_target(target).map_err(DeviceError::Unsupported)?, seen: Seen::default() })
    }

    /// A device like the target's that computes nothing: what kernels should have written stays zero.
    pub fn device(&self) -> Device {
        Device::new(Dry { machine: self.machine.clone(), seen: self.seen.clone() })
    }

    /// What was noted so far, sorted by key.
    pub fn kernels(&self) -> Vec<Recorded> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// The device's target.
struct Dry {
    machine: Machine,
    seen: Seen,
}

impl Target for Dry {
    fn name(&self) -> String {
        format!("recorder:{}", self.machine.target())
    }

    fn compiles_for(&self) -> String {
        self.machine.target()
    }

    fn layout(&self) -> Layout {
        self.machine.layout()
    }

    fn counts_variants(&self) -> bool {
        false
    }

    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Recorded { kernel: kernel.clone(), checked };
        let first = seen.entry(kernel_key(kernel, checked)).or_insert_with(new);
        // Which of two with other lines is kept must not depend on which came first.
        if kernel.text() < first.kernel.text() {
            *first = new();
        }
        Ok(Arc::new(Nothing))
    }
}

struct Nothing;

impl Program for Nothing {
    unsafe fn run(&self, _: &[ArgData<'_>], _: [u32; 3]) -> Result<(), DeviceError> {
        Ok(())
    }
}
