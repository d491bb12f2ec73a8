//! Devices and contexts.

use super::{CURRENT, STREAMS, current, functions};
use crate::{
    code::{Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, describe},
    config::config,
    counters::Counter,
    device::devices,
};
use std::ffi::{c_char, c_int, c_uint};

fn checked(device: c_int) -> Result<usize, Code> {
    usize::try_from(device).ok().filter(|d| *d < devices().len()).ok_or(INVALID_DEVICE)
}

functions! {
    fn cuInit(_flags: c_uint) {
        if devices().is_empty() { Err(NO_DEVICE) } else { Ok(()) }
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        version.write(13_000);
        Ok(())
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        count.write(devices().len() as c_int);
        Ok(())
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        device.write(checked(ordinal)? as c_int);
        Ok(())
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) {
        checked(device)?;
        let text = format!("Tegula stub {}", config().arch);
        let room = usize::try_from(len).map_err(|_| INVALID_VALUE)?.checked_sub(1).ok_or(INVALID_VALUE)?;
        let text = &text.as_bytes()[..text.len().min(room)];
        name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        name.add(text.len()).write(0);
        Ok(())
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        checked(device)?;
        let c = config();
        value.write(match attribute {
            // Threads of a block and of a warp; multiprocessors (an H100's).
            1 => 1024,
            10 => 32,
            16 => 132,
            75 => c.capability.0 as c_int,
            76 => c.capability.1 as c_int,
            97 => c.shared_bytes as c_int,
            // Memory is allocated in stream order.
            115 => 1,
            _ => return Err(INVALID_VALUE),
        });
        Ok(())
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        checked(device)?;
        bytes.write(config().memory_bytes);
        Ok(())
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        free.write(current()?.free_bytes());
        total.write(config().memory_bytes);
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) {
        context.write(checked(device)? + 1);
        Counter::Contexts.add(1);
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        checked(device)?;
        Counter::Contexts.sub(1);
        Ok(())
    }

    fn cuCtxSetCurrent(context: usize) {
        if context > devices().len() {
            return Err(INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    }

    fn cuCtxSynchronize() {
        let device = current()?;
        // A wait for all streams is one for those that are recorded, too.
        for stream in STREAMS.all().into_iter().filter(|s| s.device.ordinal == device.ordinal) {
            stream.live()?;
        }
        device.synchronize();
        current()?;
        Ok(())
    }

    fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) {
        pool.write(checked(device)? + 1);
        Ok(())
    }

    fn cuMemPoolSetAttribute(pool: usize, _attribute: c_uint, value: *const u64) {
        if pool == 0 || value.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    fn cuMemPoolGetAttribute(pool: usize, _attribute: c_uint, value: *mut u64) {
        // Reserved and used are the same: freed memory is given back at once.
        let device = pool.checked_sub(1).and_then(|d| devices().get(d)).ok_or(INVALID_VALUE)?;
        value.write((config().memory_bytes - device.free_bytes()) as u64);
        Ok(())
    }

    fn cuGetErrorName(error: Code, text: *mut *const c_char) {
        text.write(describe(error).ok_or(INVALID_VALUE)?.0.as_ptr());
        Ok(())
    }

    fn cuGetErrorString(error: Code, text: *mut *const c_char) {
        text.write(describe(error).ok_or(INVALID_VALUE)?.1.as_ptr());
        Ok(())
    }
}
