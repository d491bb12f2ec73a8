//! wgmma products under way: a warp's groups, and the registers that they hold.

use super::{
    async_copy::Completion,
    fault::{Fault, FaultKind},
    op::Cx,
    regs::Slot,
};
use std::{collections::HashMap, sync::Arc};

/// A product that can be computed.
pub trait Compute: Send + Sync {
    /// Reads shared memory and writes the accumulators.
    fn compute(&self, cx: &mut Cx<'_>, inputs: &Inputs) -> Result<(), Box<Fault>>;
}

/// What a product read when it was issued.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// A's registers, or its descriptor.
    pub a: Left,
    /// B's descriptor.
    pub b: u64,
    /// Whether the accumulators are added to.
    pub accumulate: bool,
}

/// The left operand.
#[derive(Clone, Debug)]
pub enum Left {
    /// Fragments.
    Registers(Box<[[u32; 32]; 4]>),
    /// A descriptor of shared memory.
    Descriptor(u64),
}

struct Product {
    compute: Arc<dyn Compute>,
    inputs: Inputs,
    /// Its PTX line.
    line: u32,
    results: Arc<[Slot]>,
    sources: Vec<Slot>,
    done: bool,
}

/// The products of one warp.
#[derive(Default)]
pub struct Products {
    open: Vec<Product>,
    groups: Vec<Vec<Product>>,
    /// Held registers: PTX line, whether results, and how many products hold them.
    held: HashMap<Slot, (u32, bool, u32)>,
    /// A register that wgmma holds somewhere in the kernel was written since the last wgmma.fence.
    unfenced: bool,
    fenced_once: bool,
}

impl Products {
    /// An ordinary instruction reads or writes a register that some wgmma may hold.
    pub fn touched(&mut self, slot: Slot, name: &str, writes: bool) -> Result<(), Box<Fault>> {
        if let Some((line, result, _)) = self.held.get(&slot)
            && (writes || *result)
        {
            let (what, why) = match (writes, result) {
                (true, true) => ("writes", "writes too"),
                (true, false) => ("writes", "may not have read yet"),
                _ => ("reads", "has not been waited for"),
            };
            return Err(Fault::new(
                FaultKind::Asynchronous,
                format!("{what} register {name}, which wgmma of PTX line {line} {why}: wgmma.wait_group comes first"),
            ));
        }
        self.unfenced |= writes;
        Ok(())
    }

    /// wgmma.fence.
    pub fn fence(&mut self) {
        (self.unfenced, self.fenced_once) = (false, true);
    }

    /// Whether registers need a wgmma.fence before a product may use them.
    pub fn needs_fence(&self) -> bool {
        self.unfenced || !self.fenced_once
    }

    fn hold(&mut self, product: &Product) {
        for (slots, result) in [(&product.results[..], true), (&product.sources[..], false)] {
            for slot in slots {
                let entry = self.held.entry(*slot).or_insert((product.line, result, 0));
                entry.2 += 1;
            }
        }
    }

    fn release(&mut self, product: &Product) {
        for slot in product.results.iter().chain(&product.sources) {
            if let Some(entry) = self.held.get_mut(slot) {
                entry.2 -= 1;
                if entry.2 == 0 {
                    self.held.remove(slot);
                }
            }
        }
    }

    /// wgmma.commit_group.
    pub fn commit(&mut self) {
        let group = std::mem::take(&mut self.open);
        self.groups.push(group);
    }
}

/// Issues a product of the context's warp.
pub fn issue(
    cx: &mut Cx<'_>,
    compute: Arc<dyn Compute>,
    inputs: Inputs,
    results: Arc<[Slot]>,
    sources: Vec<Slot>,
    line: u32,
) -> Result<(), Box<Fault>> {
    let early = cx.launch.completion() == Completion::Early;
    if early {
        compute.compute(cx, &inputs)?;
    }
    let product = Product { compute, inputs, line, results, sources, done: early };
    if cx.launch.options.strict.registers {
        cx.warp.products.hold(&product);
    }
    cx.warp.products.open.push(product);
    Ok(())
}

/// wgmma.wait_group: all groups but the latest `pending` are done.
pub fn wait(cx: &mut Cx<'_>, pending: usize) -> Result<(), Box<Fault>> {
    let due = cx.warp.products.groups.len().saturating_sub(pending);
    let groups: Vec<Vec<Product>> = cx.warp.products.groups.drain(..due).collect();
    for product in groups.iter().flatten() {
        if !product.done {
            product.compute.compute(cx, &product.inputs)?;
        }
        if cx.launch.options.strict.registers {
            cx.warp.products.release(product);
        }
    }
    Ok(())
}
