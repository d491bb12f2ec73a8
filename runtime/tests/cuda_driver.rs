//! The CUDA driver's API as it is wrapped, against the stub: what it does, and how it says no.

#[path = "common/counters.rs"]
mod counters;
#[path = "common/stub.rs"]
mod stub;

use std::{ffi::c_void, ptr, sync::Arc, time::Duration};
use tegula::device::cuda::{Event, Function, Gpu, Image, Memory, Module, Pinned, Shape, Stream};

/// `data[i] += more` for one block.
const ADD: &str = "
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry add(.param .u64 data, .param .u32 more) {
        .reg .b32 %r<5>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [data];
        ld.param.u32 %r4, [more];
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd2, %r1, 4;
        add.s64 %rd3, %rd1, %rd2;
        ld.global.u32 %r2, [%rd3];
        add.u32 %r3, %r2, %r4;
        st.global.u32 [%rd3], %r3;
        ret;
    }";

fn open() -> (Arc<Gpu>, Arc<Stream>) {
    let gpu = Gpu::open(0).unwrap();
    let stream = Arc::new(Stream::new(&gpu).unwrap());
    (gpu, stream)
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn launch(add: &Function, stream: &Stream, data: &Memory, more: u32) -> Result<(), tegula::device::cuda::CudaError> {
    let shape = Shape { grid: [1; 3], block: [(data.bytes() / 4) as u32, 1, 1], cluster: None, shared_bytes: 0 };
    let (mut address, mut more) = (data.address(), more);
    let mut params: [*mut c_void; 2] = [ptr::from_mut(&mut address).cast(), ptr::from_mut(&mut more).cast()];
    // SAFETY: the kernel's two parameters, memory of as many words as threads.
    unsafe { add.launch(stream, &shape, &mut params) }
}

on_the_stub! {
    fn a_gpu_says_what_it_is(["TEGULA_STUB_ARCH" = "sm_80", "TEGULA_STUB_MB" = "100"]) {
        let (gpu, _) = open();
        assert_eq!((gpu.ordinal(), gpu.name(), gpu.capability()), (0, "Tegula stub sm_80", (8, 0)));
        assert_eq!((gpu.shared_bytes(), gpu.memory_bytes()), (163 << 10, 100 << 20));
        assert_eq!(gpu.free_bytes().unwrap(), 100 << 20);
        assert!(gpu.multiprocessors() > 0 && Gpu::driver_version().unwrap() >= 12_000);
    }

    fn memory_is_copied_filled_and_bounded([] ["TEGULA_STUB_DELAY_US" = "1000"]) {
        let (_gpu, stream) = open();
        let memory = Memory::new(&stream, 40).unwrap();
        let mut read = [0; 40];
        memory.write(&stream, 0, &bytes(&(1..=10).collect::<Vec<_>>())).unwrap();
        memory.fill(&stream, 4, 0xff, 4).unwrap();
        let other = Memory::new(&stream, 8).unwrap();
        other.copy_from(&stream, 0, &memory, 4, 8).unwrap();
        memory.copy_from(&stream, 32, &other, 4, 4).unwrap();
        memory.read(&stream, 0, &mut read).unwrap();
        assert_eq!(read[..], bytes(&[1, u32::MAX, 3, 4, 5, 6, 7, 8, 3, 10])[..]);
        for wrong in [
            memory.write(&stream, 37, &[0; 4]),
            memory.read(&stream, usize::MAX, &mut read[..2]),
            memory.fill(&stream, 0, 0, 41),
            other.copy_from(&stream, 4, &memory, 0, 5),
        ] {
            let error = wrong.unwrap_err().to_string();
            assert!(error.contains("are not in a block of") && error.contains("cuda:0"), "{error}");
        }
    }

    fn pinned_memory_is_copied_when_its_turn_comes(["TEGULA_STUB_DELAY_US" = "3000"]) {
        let (gpu, stream) = open();
        let memory = Memory::new(&stream, 4).unwrap();
        let mut pinned = Pinned::new(&gpu, 4).unwrap();
        assert_eq!(pinned[..], [0; 4]);
        pinned.copy_from_slice(&[1, 2, 3, 4]);
        let mut back = Pinned::new(&gpu, 4).unwrap();
        // SAFETY: nobody touches them before the wait.
        unsafe {
            memory.write_later(&stream, 0, &pinned).unwrap();
            memory.read_later(&stream, 0, &mut back).unwrap();
        }
        assert!(!stream.is_idle().unwrap());
        stream.synchronize().unwrap();
        assert!(stream.is_idle().unwrap() && back[..] == [1, 2, 3, 4]);
    }

    fn streams_run_beside_each_other_and_events_order_them(["TEGULA_STUB_DELAY_US" = "3000"]) {
        let (gpu, stream) = open();
        let other = Stream::new(&gpu).unwrap();
        let memory = Memory::new(&stream, 4).unwrap();
        let (start, end) = (Event::timed(&gpu).unwrap(), Event::timed(&gpu).unwrap());
        assert!(start.is_done().unwrap() && start.synchronize().is_ok(), "never recorded");
        start.record(&stream).unwrap();
        (0..5).for_each(|i| memory.fill(&stream, 0, i, 4).unwrap());
        end.record(&stream).unwrap();
        assert!(!end.is_done().unwrap() && end.since(&start).is_err());
        other.wait(&end).unwrap();
        let mut read = [9; 4];
        for wrong in [
            memory.read(&other, 0, &mut read),
            memory.write(&other, 0, &[1]),
            memory.fill(&other, 0, 0, 4),
            memory.copy_from(&other, 0, &memory, 2, 2),
        ] {
            let error = wrong.unwrap_err().to_string();
            assert!(error.contains("used in another stream than that in which it is allocated and freed"), "{error}");
        }
        // SAFETY: the other stream waits for the memory, which stays until the copy is done.
        unsafe { memory.read_later(&other, 0, &mut read).unwrap() };
        other.synchronize().unwrap();
        assert_eq!(read, [4; 4]);
        let time = end.since(&start).unwrap();
        assert!(time >= Duration::from_millis(15) && time < Duration::from_secs(5), "{time:?}");
        assert!(Event::new(&gpu).unwrap().since(&start).is_err(), "without a time");
    }

    fn kernels_run_and_repeat_as_graphs([] ["TEGULA_STUB_DELAY_US" = "500"]) {
        let (gpu, stream) = open();
        let memory = Memory::new(&stream, 4 * 7).unwrap();
        memory.write(&stream, 0, &bytes(&[1, 2, 3, 4, 5, 6, 7])).unwrap();
        let add = Module::load(&gpu, Image::Ptx(ADD)).unwrap().function("add").unwrap();
        assert_eq!(add.resources().unwrap().max_threads, 1024);
        launch(&add, &stream, &memory, 10).unwrap();
        stream.begin_capture().unwrap();
        launch(&add, &stream, &memory, 100).unwrap();
        launch(&add, &stream, &memory, 1000).unwrap();
        let graph = stream.end_capture().unwrap();
        // SAFETY: the memory is there, and used in this stream alone.
        (0..3).for_each(|_| unsafe { graph.launch(&stream).unwrap() });
        let mut read = [0; 28];
        memory.read(&stream, 0, &mut read).unwrap();
        assert_eq!(read[..], bytes(&(1..=7).map(|i| i + 10 + 3 * 1100).collect::<Vec<_>>())[..]);
    }

    fn asking_a_stream_that_is_recorded_spoils_the_recording([]) {
        let (gpu, stream) = open();
        let memory = Memory::new(&stream, 4).unwrap();
        let add = Module::load(&gpu, Image::Ptx(ADD)).unwrap().function("add").unwrap();
        let asked: [&dyn Fn() -> Option<u32>; 4] = [
            &|| stream.synchronize().err()?.code(),
            &|| stream.is_idle().err()?.code(),
            &|| gpu.synchronize().err()?.code(),
            &|| memory.write(&stream, 0, &[1]).err()?.code(),
        ];
        for ask in asked {
            stream.begin_capture().unwrap();
            assert_eq!(ask(), Some(900));
            assert_eq!(launch(&add, &stream, &memory, 1).unwrap_err().code(), Some(901));
            assert_eq!(stream.end_capture().err().unwrap().code(), Some(901));
            stream.synchronize().unwrap();
        }
    }

    fn code_that_does_not_load_comes_with_the_compilers_words(["TEGULA_STUB_ARCH" = "sm_80"]) {
        let (gpu, _) = open();
        let load = |ptx: &str| Module::load(&gpu, Image::Ptx(ptx)).err().unwrap().to_string();
        let error = load(&ADD.replace("add.u32", "frobnicate.u32"));
        for part in ["does not load the PTX: cuModuleLoadDataEx: ", "CUDA_ERROR_INVALID_PTX, 218", "frobnicate", "line 13"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = load(&ADD.replace("8.0", "9.9"));
        assert!(error.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION") && error.contains("update NVIDIA's driver"), "{error}");
        assert!(load(&ADD.replace("sm_80", "sm_90a")).contains("sm_90a"));
        let error = Module::load(&gpu, Image::Cubin(b"\x7fELF\x02\x01")).err().unwrap();
        assert_eq!(error.code(), Some(200));
        assert!(error.to_string().contains("does not load the cubin") && error.to_string().contains("no machine code"));
        let module = Module::load(&gpu, Image::Ptx(ADD)).unwrap();
        assert_eq!(module.function("sub").err().unwrap().code(), Some(500));
        assert!(module.function("a\0b").is_err());
    }

    fn launches_that_do_not_fit_are_errors_at_once(["TEGULA_STUB_ARCH" = "sm_80"]) {
        let (gpu, stream) = open();
        let add = Module::load(&gpu, Image::Ptx(ADD)).unwrap().function("add").unwrap();
        let memory = Memory::new(&stream, 4).unwrap();
        let with = |change: &dyn Fn(&mut Shape)| {
            let mut shape = Shape { grid: [1; 3], block: [1; 3], cluster: None, shared_bytes: 0 };
            change(&mut shape);
            let (mut address, mut more) = (memory.address(), 1u32);
            let mut params: [*mut c_void; 2] = [ptr::from_mut(&mut address).cast(), ptr::from_mut(&mut more).cast()];
            // SAFETY: as for `launch`; wrong shapes are refused.
            unsafe { add.launch(&stream, &shape, &mut params) }.map_err(|e| e.code())
        };
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|s| s.grid[1] = 0), Err(Some(1)));
        assert_eq!(with(&|s| s.block[0] = 1025), Err(Some(1)));
        assert_eq!(with(&|s| s.shared_bytes = (48 << 10) + 1), Err(Some(1)));
        assert_eq!(with(&|s| s.cluster = Some([1; 3])), Err(Some(912)), "no clusters before Hopper");
        add.allow_shared(163 << 10).unwrap();
        assert_eq!(with(&|s| s.shared_bytes = 163 << 10), Ok(()));
        assert!(add.allow_shared((163 << 10) + 1).is_err());
        stream.synchronize().unwrap();
    }

    fn use_after_free_is_a_fault_that_lasts([]) {
        let (gpu, stream) = open();
        let add = Module::load(&gpu, Image::Ptx(ADD)).unwrap().function("add").unwrap();
        let memory = Memory::new(&stream, 4).unwrap();
        let mut address = memory.address();
        drop(memory);
        let shape = Shape { grid: [1; 3], block: [1; 3], cluster: None, shared_bytes: 0 };
        let mut more = 1u32;
        let mut params: [*mut c_void; 2] = [ptr::from_mut(&mut address).cast(), ptr::from_mut(&mut more).cast()];
        // SAFETY: what it does is wrong, which the stub notices.
        unsafe { add.launch(&stream, &shape, &mut params) }.unwrap();
        assert_eq!(stream.synchronize().unwrap_err().code(), Some(700));
        assert_eq!(Memory::new(&stream, 4).err().unwrap().code(), Some(700));
    }

    fn nothing_leaks([]) {
        {
            let (gpu, stream) = open();
            let _pinned = Pinned::new(&gpu, 100).unwrap();
            let memory = Memory::new(&stream, 28).unwrap();
            memory.fill(&stream, 0, 0, 28).unwrap();
            let add = Module::load(&gpu, Image::Ptx(ADD)).unwrap().function("add").unwrap();
            launch(&add, &stream, &memory, 1).unwrap();
            stream.begin_capture().unwrap();
            let _graph = stream.end_capture().unwrap();
            let _event = Event::new(&gpu).unwrap();
            let counted = counters::counters();
            assert_eq!(counted[..2], [1, 1], "launches and copies");
            assert_eq!(counted[4..], [1, 1, 1, 1, 1, 1, 1], "{counted:?}");
            stream.synchronize().unwrap();
            assert_eq!(counters::counters()[counters::BLOCKS..4], [1, 28]);
        }
        for _ in 0..100 {
            if counters::counters()[2..] == [0; 9] {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}", counters::counters());
    }
}
