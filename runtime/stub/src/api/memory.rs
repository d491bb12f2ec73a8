//! Memory: allocation in stream order, copies, pinned memory.

use super::{STREAMS, current, functions};
use crate::{
    counters::Counter,
    device::{Device, Failure, devices},
    host,
    stream::Work,
};
use std::{
    ffi::{c_uchar, c_uint, c_void},
    ptr,
    sync::Arc,
};

/// Copies to a device: `read` fills the destination.
fn write(device: &Device, to: u64, bytes: usize, read: impl FnOnce(*mut u8)) -> Result<(), Failure> {
    // The block is held until the copy is done.
    let (_block, at) = device.reach(to, bytes)?;
    read(at);
    Ok(())
}

functions! {
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.live()?;
        stream.device.check()?;
        let block = stream.device.allocate(bytes)?;
        address.write(block.address);
        let device = stream.device.clone();
        stream.put(Work::always(move || device.appear(&block)));
        Ok(())
    }

    fn cuMemFreeAsync(address: u64, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.live()?;
        stream.device.begin_free(address)?;
        let device = stream.device.clone();
        stream.put(Work::always(move || {
            if let Err(failure) = device.disappear(address) {
                device.fail(failure);
            }
        }));
        Ok(())
    }

    fn cuMemHostAlloc(pointer: *mut *mut u8, bytes: usize, _flags: c_uint) {
        current()?;
        pointer.write(host::allocate(bytes)?);
        Ok(())
    }

    fn cuMemFreeHost(pointer: *mut u8) {
        // Copies under way may still use it.
        devices().iter().for_each(|d| d.synchronize());
        host::free(pointer)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.device.check()?;
        Counter::Copies.add(1);
        let device = stream.device.clone();
        let from = from.cast::<u8>();
        // Ordinary memory is read at once, pinned memory when its turn comes.
        if host::is_pinned(from, bytes) {
            let from = from.expose_provenance();
            stream.put(Work::new(move || {
                write(&device, to, bytes, |at| ptr::copy(ptr::with_exposed_provenance(from), at, bytes))
            }));
        } else {
            stream.live()?;
            let from: Arc<[u8]> = std::slice::from_raw_parts(from, bytes).into();
            stream.put(Work::new(move || write(&device, to, bytes, |at| ptr::copy(from.as_ptr(), at, bytes))));
        }
        Ok(())
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.device.check()?;
        Counter::Copies.add(1);
        let (device, to) = (stream.device.clone(), to.cast::<u8>());
        let pinned = host::is_pinned(to, bytes);
        if !pinned {
            stream.live()?;
        }
        let to = to.expose_provenance();
        stream.put(Work::new(move || {
            let (_block, at) = device.reach(from, bytes)?;
            ptr::copy(at, ptr::with_exposed_provenance_mut(to), bytes);
            Ok(())
        }));
        // Ordinary memory is written before this returns.
        if pinned { Ok(()) } else { stream.synchronize() }
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.device.check()?;
        Counter::Copies.add(1);
        let device = stream.device.clone();
        stream.put(Work::new(move || {
            let (_block, source) = device.reach(from, bytes)?;
            write(&device, to, bytes, |at| ptr::copy(source, at, bytes))
        }));
        Ok(())
    }

    fn cuMemsetD8Async(to: u64, value: c_uchar, bytes: usize, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.device.check()?;
        Counter::Copies.add(1);
        let device = stream.device.clone();
        stream.put(Work::new(move || write(&device, to, bytes, |at| at.write_bytes(value, bytes))));
        Ok(())
    }
}
