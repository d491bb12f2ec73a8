//! A stand-in for the CUDA driver's library, for tests on machines without a GPU: the functions that the runtime calls,
//! over the host's memory and the PTX emulator.
//!
//! Put it where a program finds it as the driver: link `libtegula_stub.so` as `libcuda.so` and `libcuda.so.1` in a folder
//! of their own, and start the program with that folder in `LD_LIBRARY_PATH`.
//!
//! What it is strict about, because a GPU is: streams are queues, each run by a thread of its own, so what nobody waits
//! for has not happened; memory is there from the point of its stream where it is allocated to the point where it is
//! freed, holds garbage at first, and its address is never used again; copies from pinned memory read it when their turn
//! comes; an error of a kernel makes all further calls fail. Faults of kernels are told on standard error.
//!
//! What it is not: it runs no machine code (a cubin is refused, as by a driver that is too old for it), measures no time
//! but the host's, and records graphs of one stream without events. A module's variables start anew with each launch.
//!
//! Environment, read when the library is loaded:
//!
//! | variable | meaning |
//! |---|---|
//! | `TEGULA_STUB` | `fast` (default): runs kernels and checks bounds; `strict`: checks all that the emulator can; `noop`: launches do nothing, to measure the host |
//! | `TEGULA_STUB_ARCH` | `sm_90a` (default), `sm_80`, … |
//! | `TEGULA_STUB_DEVICES` | how many GPUs there are: 1 |
//! | `TEGULA_STUB_MB` | memory of each: 16384 |
//! | `TEGULA_STUB_DELAY_US` | every piece of work takes so long at least: 0 |
//!
//! - `config`: the environment; `code`: numbers of errors;
//! - `device`: devices and their memory; `host`: pinned memory;
//! - `stream`: queues; `event`: points in them; `graph`: recordings;
//! - `module`: code and launches;
//! - `counters`: what a test can ask for;
//! - `api`: the C functions, thin.

mod api;
mod code;
mod config;
mod counters;
mod device;
mod event;
mod graph;
mod host;
mod module;
mod stream;
mod table;

pub use counters::{COUNTERS, Counter};
