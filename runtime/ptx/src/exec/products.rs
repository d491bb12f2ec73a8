//! wgmma products under way: a warp's groups, and the registers that they hold.

use super::{
    async_copy::Completion,
    fault::{Fault, FaultKind},
    op::Cx,
    regs::Slot,
};
use std::sync::Arc;

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

/// Who holds a register.
#[derive(Clone, Copy, Default)]
struct Holders {
    /// How many products.
    count: u32,
    /// PTX line of the first.
    line: u32,
    /// Whether as a result.
    result: bool,
}

/// The products of one warp.
#[derive(Default)]
pub struct Products {
    open: Vec<Product>,
    groups: Vec<Vec<Product>>,
    /// Holders of each register, by its slot; as long as the highest that was ever held.
    held: Vec<Holders>,
    /// A register that wgmma holds somewhere in the kernel was written since the last wgmma.fence.
    unfenced: bool,
    fenced_once: bool,
}

impl Products {
    /// An ordinary instruction reads or writes a register that some wgmma may hold.
    pub fn touched(&mut self, slot: Slot, name: &str, writes: bool) -> Result<(), Box<Fault>> {
        if let Some(Holders { count: 1.., line, result }) = self.held.get(slot.0 as usize)
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
            let top = slots.iter().map(|s| s.0 as usize + 1).max().unwrap_or(0);
            if self.held.len() < top {
                self.held.resize(top, Holders::default());
            }
            for slot in slots {
                let holders = &mut self.held[slot.0 as usize];
                if holders.count == 0 {
                    (holders.line, holders.result) = (product.line, result);
                }
                holders.count += 1;
            }
        }
    }

    fn release(&mut self, product: &Product) {
        for slot in product.results.iter().chain(&product.sources) {
            self.held[slot.0 as usize].count -= 1;
        }
    }

    /// Products issued and groups committed that nothing has waited for.
    pub fn pending(&self) -> usize {
        self.open.len() + self.groups.len()
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
