//! Modules, functions, launches, tensor maps.

use super::{FUNCTIONS, MODULES, STREAMS, current, functions};
use crate::{
    code::{Code, INVALID_VALUE},
    config::{Mode, config},
    counters::Counter,
    module::{Module, Sizes},
    table::lock,
};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::Arc,
};
use tegula_ptx::tensor_map::{Element, Fill, Swizzle, TensorMap};

/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG: c_uint = 5;
const LOG_BYTES: c_uint = 6;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER: c_uint = 4;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_SHARED: c_uint = 8;

/// `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: usize,
    attributes: *const Attribute,
    attribute_count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct Attribute {
    id: c_uint,
    pad: [u8; 4],
    value: [c_uint; 16],
}

/// Where the caller wants messages, among the options: a buffer and its length.
unsafe fn log_buffer(count: c_uint, options: *const c_uint, values: *const *mut c_void) -> Option<(*mut u8, usize)> {
    let find = |wanted| {
        // SAFETY: as many options as said.
        (0..count as usize).find_map(|i| unsafe { (*options.add(i) == wanted).then(|| *values.add(i)) })
    };
    Some((find(LOG)?.cast(), find(LOG_BYTES)?.addr()))
}

/// The bytes of an image: a text up to its 0, or what is said to be machine code by its first bytes.
unsafe fn image<'a>(start: *const u8) -> &'a [u8] {
    // SAFETY: both have 4 bytes or end earlier, with a 0.
    unsafe {
        let elf = b"\x7fELF";
        if (0..4).all(|i| *start.add(i) == elf[i]) {
            return elf;
        }
        CStr::from_ptr(start.cast()).to_bytes()
    }
}

/// The numbers of an array of the caller's.
unsafe fn numbers<'a, T>(start: *const T, n: usize) -> &'a [T] {
    // SAFETY: as the caller promises. With no number the pointer may be null.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, n) } }
}

const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

functions! {
    fn cuModuleLoadDataEx(
        module: *mut usize,
        start: *const u8,
        count: c_uint,
        options: *const c_uint,
        values: *const *mut c_void,
    ) {
        current()?;
        match Module::load(image(start)) {
            Ok(loaded) => module.write(MODULES.add(Arc::new(loaded))),
            Err((code, message)) => {
                if let Some((log, len)) = log_buffer(count, options, values).filter(|l| l.1 > 0) {
                    let message = &message.as_bytes()[..message.len().min(len - 1)];
                    log.copy_from_nonoverlapping(message.as_ptr(), message.len());
                    log.add(message.len()).write(0);
                }
                return Err(code);
            }
        }
        Ok(())
    }

    fn cuModuleUnload(module: usize) {
        for function in lock(&MODULES.remove(module)?.functions).values() {
            FUNCTIONS.remove(*function)?;
        }
        Ok(())
    }

    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        let module = MODULES.get(module)?;
        let name = CStr::from_ptr(name).to_str().map_err(|_| INVALID_VALUE)?;
        let mut known = lock(&module.functions);
        let handle = match known.get(name) {
            Some(handle) => *handle,
            None => FUNCTIONS.add(Arc::new(module.function(name)?)),
        };
        known.insert(name.into(), handle);
        function.write(handle);
        Ok(())
    }

    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: usize) {
        value.write(FUNCTIONS.get(function)?.attribute(attribute)?);
        Ok(())
    }

    fn cuFuncSetAttribute(function: usize, attribute: c_uint, value: c_int) {
        let bytes = usize::try_from(value).map_err(|_| INVALID_VALUE)?;
        let function = FUNCTIONS.get(function)?;
        if attribute == MAX_SHARED { function.allow_shared(bytes) } else { Err(INVALID_VALUE) }
    }

    fn cuLaunchKernelEx(
        launch: *const LaunchConfig,
        function: usize,
        params: *const *const c_void,
        extra: *const *const c_void,
    ) {
        Counter::Launches.add(1);
        if config().mode == Mode::Noop {
            return Ok(());
        }
        let launch = &*launch;
        let (stream, function) = (STREAMS.get(launch.stream)?, FUNCTIONS.get(function)?);
        stream.device.check()?;
        stream.intact()?;
        if !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        let attributes = numbers(launch.attributes, launch.attribute_count as usize);
        let cluster = attributes.iter().find(|a| a.id == CLUSTER).map(|a| [a.value[0], a.value[1], a.value[2]]);
        let shared_bytes = launch.shared_bytes as usize;
        let sizes = Sizes { grid: launch.grid, block: launch.block, cluster, shared_bytes };
        stream.put(function.launch(&stream.device, sizes, params)?);
        Ok(())
    }

    fn cuTensorMapEncodeTiled(
        map: *mut [u8; 128],
        element: c_uint,
        rank: u32,
        address: u64,
        extents: *const u64,
        strides: *const u64,
        tile: *const u32,
        steps: *const u32,
        interleave: c_uint,
        swizzle: c_uint,
        _promotion: c_uint,
        fill: c_uint,
    ) {
        let rank = rank as usize;
        if !(1..=5).contains(&rank) || interleave != 0 {
            return Err(INVALID_VALUE);
        }
        let made = TensorMap {
            element: *Element::ALL.get(element as usize).ok_or(INVALID_VALUE)?,
            address,
            extents: numbers(extents, rank).to_vec(),
            strides: numbers(strides, rank - 1).to_vec(),
            tile: numbers(tile, rank).to_vec(),
            steps: numbers(steps, rank).to_vec(),
            swizzle: *SWIZZLES.get(swizzle as usize).ok_or(INVALID_VALUE)?,
            fill: if fill == 0 { Fill::Zero } else { Fill::Nan },
        };
        map.write(made.encode().map_err(|e| refuse(&e.to_string()))?);
        Ok(())
    }
}

/// Says why a map is refused, which the driver does not.
fn refuse(why: &str) -> Code {
    eprintln!("tegula-stub: {why}");
    INVALID_VALUE
}
