//! The part about kernels: each beside its reference in float64, at awkward sizes.

use crate::{
    child::{Done, Items, said},
    device::Chosen,
    matrix::{Case, cases, measure::Measure},
    support,
};
use serde_json::json;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};
use tegula::prelude::*;

/// The cases and what they run on.
pub struct Kernels {
    cases: Vec<(String, &'static Case)>,
    stream: Stream,
    cuda: bool,
}

impl Kernels {
    /// On this device; the emulator checks all that it can.
    pub fn new(chosen: Chosen) -> Result<Kernels, String> {
        let stream = chosen.device(true)?.stream();
        support::place_on(stream.device());
        Ok(Kernels { cases: cases(), stream, cuda: chosen.is_cuda() })
    }
}

impl Items for Kernels {
    fn names(&self) -> Vec<String> {
        self.cases.iter().map(|c| c.0.clone()).collect()
    }

    fn run(&mut self, item: usize, _left: Duration) -> Done {
        let (name, case) = &self.cases[item];
        let mut m = Measure::new(name);
        // Launches that fail are panics in tests, and here failures of the item.
        if let Err(e) = catch_unwind(AssertUnwindSafe(|| (case.run)(&self.stream, &mut m))) {
            return Done { result: json!({ "right": false, "failed": said(&*e) }), fatal: self.cuda };
        }
        let failures: Vec<&str> = m.failures().collect();
        let right = failures.is_empty() && m.values > 0;
        let mut result = json!({ "right": right, "values": m.values });
        if case.unit.is_empty() {
            result["bound"] = json!("equal bits");
        } else {
            result["largest_error"] = json!(m.worst);
            result["errors_in"] = json!(case.unit.replace('\\', ""));
            result["bound"] = json!(case.bound);
            result["share_of_bound"] = json!(m.share);
        }
        if !failures.is_empty() {
            result["failures"] = json!(failures);
        }
        Done::plain(result)
    }
}
