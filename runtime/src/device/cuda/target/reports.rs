//! What kernels report: prints and failed checks. They write records into memory of the GPU, which is read after the
//! launch.
//!
//! Prints and failed checks share the records, first come, first kept: a failure may be lost to prints, and then the error
//! says that this is not known, or names a failure that is not the lowest program's. The count has 32 bits: a launch that
//! makes more than 2^32 reports is told wrong numbers.

use super::super::{CudaError, Memory, Stream};
use crate::device::report::{MOST_PRINTED, Reports};
use std::sync::Arc;
use tegula_ir::{abi::gpu, protocol::Site};

/// The memory for reports of one launch at a time, once a kernel needed it.
#[derive(Default)]
pub(super) struct Buffer {
    memory: Option<Memory>,
}

impl Buffer {
    /// An empty buffer, after what is in `stream`, which is always the same: its address.
    pub fn prepare(&mut self, stream: &Arc<Stream>) -> Result<u64, CudaError> {
        let memory = match &mut self.memory {
            Some(memory) => memory,
            none => none.insert(Memory::new(stream, gpu::RECORDS + MOST_PRINTED * gpu::RECORD)?),
        };
        let mut head = [0; gpu::RECORDS];
        head[gpu::CAPACITY..][..4].copy_from_slice(&(MOST_PRINTED as u32).to_le_bytes());
        memory.write(stream, 0, &head)?;
        Ok(memory.address())
    }

    /// What was reported; the launch is done.
    pub fn collect<'s>(&self, stream: &Stream, sites: &'s [Site]) -> Result<Reports<'s>, CudaError> {
        let reports = Reports::new(sites);
        let Some(memory) = &self.memory else { return Ok(reports) };
        let mut count = [0; 4];
        memory.read(stream, 0, &mut count)?;
        let count = u32::from_le_bytes(count) as usize;
        let kept = count.min(MOST_PRINTED);
        let mut records = vec![0; kept * gpu::RECORD];
        if kept > 0 {
            memory.read(stream, gpu::RECORDS, &mut records)?;
        }
        for record in records.chunks_exact(gpu::RECORD) {
            let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| record[8 * i + b]));
            reports.add(word(0) as u32, word(1), word(2) as i64);
        }
        reports.lose((count - kept) as u64);
        Ok(reports)
    }
}
