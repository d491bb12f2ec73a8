//! The part about time: kernels at the sizes of models, what the machine can do at best, and what PyTorch and Triton take
//! for the same on the same machine.
//!
//! Each launch is timed on its own, between two events of the GPU, after a write of more than its L2 cache holds; the
//! median counts. On the emulator, which has no time, the host's is given, to see that all runs.

mod ceilings;
mod clock;
mod dense;
mod model;

pub use ceilings::Ceilings;

use crate::{
    child::{Done, Items},
    device::Chosen,
    options::Sizes,
    peers,
};
use clock::Clock;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tegula::prelude::*;
use tegula_kernels::registry;

/// A kernel to be timed.
pub struct Work {
    /// Its name and what it is on.
    pub name: &'static str,
    /// What the same is called in peers.py; empty if nobody else has it.
    pub peer: &'static str,
    /// Makes its tensors.
    pub make: fn(&Stream, Sizes) -> Result<Ready, Failure>,
}

/// A launch that can be repeated.
pub struct Ready {
    /// Its extents, for people.
    pub size: String,
    /// Bytes that must be read and written once.
    pub bytes: f64,
    /// Operations on numbers; 0 where they do not count.
    pub flops: f64,
    /// Tensor cores can do these operations.
    pub tensor: bool,
    /// Launches it.
    pub launch: Box<dyn FnMut(&Stream) -> Result<(), LaunchError>>,
}

/// Why something could not be timed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// All kernels.
pub fn works() -> impl Iterator<Item = &'static Work> {
    dense::WORKS.iter().chain(model::WORKS)
}

/// The tile sizes of a kernel of the library, for the stream's device.
pub fn tiles<const N: usize>(stream: &Stream, kernel: &str) -> Result<[usize; N], Failure> {
    let dims = registry::find(kernel)?.dims_on(&stream.device().compiles_for());
    Ok(dims.try_into().map_err(|_| format!("{kernel} has other dims"))?)
}

/// Repeatable numbers from −1 to 1, none of them 0.
pub fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i.wrapping_mul(40503) >> 4 & 0xfff) as f32 + 0.5) / 2048.0 - 1.0).collect()
}

/// The part's items.
pub struct Timings {
    device: Chosen,
    sizes: Sizes,
    stream: Stream,
    clock: Clock,
    ceilings: Option<Ceilings>,
}

impl Timings {
    /// On this device.
    pub fn new(device: Chosen, sizes: Sizes) -> Result<Timings, String> {
        let stream = device.device(false)?.stream();
        let clock = Clock::new(&stream, sizes).map_err(|e| e.to_string())?;
        Ok(Timings { device, sizes, stream, clock, ceilings: None })
    }

    /// What the device can do at best, measured once a process.
    fn ceilings(&mut self) -> Result<Ceilings, String> {
        if self.ceilings.is_none() {
            self.ceilings = Some(Ceilings::measure(self.device, self.sizes)?);
        }
        Ok(self.ceilings.unwrap_or_default())
    }

    fn time(&mut self, work: &Work, left: Duration) -> Result<Value, Failure> {
        let ceilings = self.ceilings()?;
        let mut ready = (work.make)(&self.stream, self.sizes)?;
        let begun = Instant::now();
        (ready.launch)(&self.stream)?;
        self.stream.synchronize()?;
        let first = begun.elapsed();
        // Three seconds at most, and half of what is left.
        let most = Duration::from_secs(3).min(left / 2);
        let times = self.clock.times(&self.stream, &mut ready.launch, most)?;
        let median = times[times.len() / 2];
        let flops_per_s = if ready.tensor { ceilings.tensor_flops_per_s } else { ceilings.flops_per_s };
        let floor = (ready.bytes / ceilings.bytes_per_s).max(ready.flops / flops_per_s);
        let us = |s: f64| (s * 1e9).round() / 1e3;
        let mut value = json!({
            "size": ready.size,
            "repeats": times.len(),
            "first_launch_ms": first.as_secs_f64() * 1e3,
            "median_us": us(median),
            "least_us": us(times[0]),
            "bytes": ready.bytes,
            "flops": ready.flops,
            "gb_per_s": ready.bytes / median / 1e9,
            "tflop_per_s": ready.flops / median / 1e12,
        });
        if self.device.is_cuda() {
            value["floor_us"] = json!(us(floor));
            value["share_of_floor"] = json!(floor / median);
        } else {
            value["note"] = json!("the host's time: the emulator has none");
        }
        if !work.peer.is_empty() {
            value["peer"] = json!(work.peer);
        }
        Ok(value)
    }
}

const CEILINGS: &str = "ceilings of the device";
/// The item that is others' and keeps its own time.
pub const PEERS: &str = "peers";

impl Items for Timings {
    fn names(&self) -> Vec<String> {
        let mut names = vec![CEILINGS.to_string()];
        names.extend(works().map(|w| w.name.to_string()));
        names.push(PEERS.into());
        names
    }

    fn run(&mut self, item: usize, left: Duration) -> Done {
        let cuda = self.device.is_cuda();
        let failed = |e: String| Done { result: json!({ "failed": e }), fatal: cuda };
        if item == 0 {
            return match self.ceilings() {
                Ok(c) => Done::plain(c.json()),
                Err(e) => failed(e),
            };
        }
        match works().nth(item - 1) {
            Some(work) => match self.time(work, left) {
                Ok(value) => Done::plain(value),
                Err(e) => failed(e.to_string()),
            },
            None => Done::plain(peers::run(self.device, self.sizes, left)),
        }
    }
}
