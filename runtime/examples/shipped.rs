//! A program that carries its kernels compiled: it needs no compiler and no cache where it runs.
//!
//! First the bundle is made, where there is a compiler; then the program is built around it:
//!
//! ```sh
//! cargo run -p tegula --example shipped -- make /tmp/shipped.bundle
//! SHIPPED_BUNDLE=/tmp/shipped.bundle cargo rustc -p tegula --example shipped -- --cfg shipped
//! env -i TEGULA_CACHE=off target/debug/examples/shipped
//! ```
//!
//! A crate of one's own has two programs instead, one that makes the bundle and one that includes it: `docs/embedding.md`.
#![allow(unexpected_cfgs, reason = "a flag of the command line above")]

use std::error::Error;
use tegula::{
    bundle::{self, Bundle, MakeOptions, Shipped},
    device::CpuOptions,
    prelude::*,
};

/// `z = x · y`, elementwise.
#[kernel]
fn multiply<BN: Dim>(x: View<f32, 1>, y: View<f32, 1>, z: ViewMut<f32, 1>) {
    let i = program_id(0);
    z.store((i,), x.load::<(BN,)>((i,)) * y.load::<(BN,)>((i,)));
}

/// What the program does, on any device.
fn squares(device: &Device, n: usize) -> Result<Vec<f32>, Box<dyn Error + Send + Sync>> {
    let numbers: Vec<f32> = (1..=n).map(|i| i as f32).collect();
    let (x, mut z) = (device.tensor([n], &numbers)?, device.zeros([n])?);
    multiply::launch(&x, &x, &mut z).dims(256).run(&device.stream())?;
    Ok(z.to_vec())
}

#[cfg(shipped)]
fn kernels() -> Result<Shipped, Box<dyn Error + Send + Sync>> {
    Ok(Bundle::from_bytes(include_bytes!(env!("SHIPPED_BUNDLE")))?.into())
}

/// Without a bundle inside, one beside the program is taken, or kernels are compiled.
#[cfg(not(shipped))]
fn kernels() -> Result<Shipped, Box<dyn Error + Send + Sync>> {
    Ok(Bundle::of_program()?.map_or(Shipped::None, Shipped::Bundle))
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, make, file] = &args[..]
        && make == "make"
    {
        // For each target the program runs on a device that notes its kernels and computes nothing.
        let targets = ["cpu:x86-64-v3", "cpu:x86-64-v4", "sm_80", "sm_90a"];
        let made = bundle::make(&targets, MakeOptions::default(), |device| squares(device, 10).map(drop))?;
        println!("{file}: {} bytes", made.builder.write(file)?);
        return Ok(());
    }
    let device = Device::cpu_with(CpuOptions { bundle: kernels()?, ..CpuOptions::default() });
    println!("{:?}", squares(&device, 10)?);
    Ok(())
}
