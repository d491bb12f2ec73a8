//! The part about instructions: each case on the device and on the emulator.

use crate::{
    child::{Done, Items},
    device::{self, Chosen},
};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tegula::device::cuda::Gpu;
use tegula_gpu::{
    instructions::{Case, cases, compare::compare},
    raw::{EmulatedRaw, Raw},
    truth,
};
use tegula_ptx::Options;

/// The cases and what they run on.
pub struct Instructions {
    cases: Vec<Case>,
    device: Box<dyn Raw>,
    emulator: EmulatedRaw,
    /// Where tables go; none are kept of the emulator.
    tables: Option<PathBuf>,
}

impl Instructions {
    /// On this device; tables go to a folder in `truth`.
    pub fn new(chosen: Chosen, truth: &Path) -> Result<Instructions, String> {
        let mut tables = None;
        if let Chosen::Cuda(n) = chosen {
            let gpu = Gpu::open(n).map_err(|e| e.to_string())?;
            let folder = truth.join(device::arch(&gpu));
            fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            tables = Some(folder);
        }
        // Beside the emulator itself: another of its loops, all checks.
        let options = Options { portable: !chosen.is_cuda(), ..Options::default() };
        let (device, emulator) = (chosen.raw()?, EmulatedRaw::new("sm_90a", options));
        Ok(Instructions { cases: cases(), device, emulator, tables })
    }
}

impl Items for Instructions {
    fn names(&self) -> Vec<String> {
        self.cases.iter().map(|c| c.name.clone()).collect()
    }

    fn run(&mut self, item: usize, _left: Duration) -> Done {
        let case = &self.cases[item];
        if !self.device.supports(case.level) {
            let why = format!("needs {}", case.level.target());
            return Done::plain(json!({ "family": case.family, "skipped": why }));
        }
        let results = match self.device.run(&case.job) {
            Ok(results) => results,
            Err(e) => return Done { result: json!({ "family": case.family, "failed": e.message }), fatal: e.fatal },
        };
        if let Some(folder) = &self.tables
            && let Err(e) = truth::append(&folder.join(format!("{}.bin", case.family)), case, &results)
        {
            return Done::plain(json!({ "family": case.family, "failed": format!("{}: {e}", folder.display()) }));
        }
        let mut result = match self.emulator.run(&case.job) {
            Ok(emulated) => compare(case, &results, &emulated).json(case),
            Err(e) => json!({ "failed": format!("on the emulator: {}", e.message) }),
        };
        result["family"] = json!(case.family);
        Done::plain(result)
    }
}
