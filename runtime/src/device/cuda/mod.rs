//! NVIDIA GPUs, through the CUDA driver's own library, which is loaded when the first GPU is opened: a program that uses
//! this runs on machines without one. The only place that names cudarc.
//!
//! What the driver offers, with owners and errors but without policy (kernels and tensors on it are in `target`):
//!
//! - `driver`: finding the library; [`CudaError`];
//! - `gpu`: [`Gpu`], an opened device;
//! - `stream`: [`Stream`] and [`Event`];
//! - `memory`: [`Memory`] of the device, [`Pinned`] memory of the host;
//! - `module`: [`Module`] of PTX or of machine code, [`Function`], its launches;
//! - `graph`: [`Graph`], recorded launches;
//! - `tensor_map`: [`EncodedMap`], arrays as tensor copies know them.

mod driver;
mod error;
mod gpu;
mod graph;
mod memory;
mod module;
mod stream;
mod target;
mod tensor_map;

pub use error::CudaError;
pub use gpu::Gpu;
pub use graph::Graph;
pub use memory::{Memory, Pinned};
pub use module::{Function, Image, Module, Resources, Shape};
pub use stream::{Event, Stream};
pub(super) use target::Recording;
pub use target::{Cuda, CudaOptions, Queue};
pub use tensor_map::EncodedMap;
