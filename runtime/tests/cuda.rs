//! Kernels and tensors on GPUs, of a driver that is none: a stub that runs PTX on the emulator, its streams real queues.
//! Each test runs in a process of its own, where the loader finds the stub.

#[path = "common/counters.rs"]
mod counters;
#[path = "common/kernels.rs"]
mod kernels;
#[path = "../../tests/src/skip.rs"]
mod skip;
#[path = "common/stub.rs"]
mod stub;

use kernels::*;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::{Arc, Mutex},
};
use tegula::{
    cache::DiskCache,
    compile,
    device::{CudaOptions, OracleOptions, Printer},
    launch::{Arg, ArgData},
    prelude::*,
};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends counts no more.
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Whether the compiler is there.
fn compiler() -> bool {
    compile::find::find().map_err(|e| skip::skip(&format!("kernels on the CUDA stub: {e}"))).is_ok()
}

fn gpu() -> Device {
    Device::cuda(0).unwrap()
}

#[test]
fn without_a_driver_the_error_says_where_it_comes_from() {
    if !stub::is_inside() {
        return stub::run_without_a_driver("without_a_driver_the_error_says_where_it_comes_from");
    }
    match tegula::device::cuda::Gpu::count() {
        Ok(_) => skip::skip("what a machine without NVIDIA's driver says: this one has it"),
        Err(_) => {
            for name in ["cuda:0", "cuda"] {
                let error = Device::named(name, Default::default()).unwrap_err().to_string();
                for part in ["cuda:0: no CUDA driver: libcuda.so.1 is not found", "LD_LIBRARY_PATH", "emulated:sm_90a"]
                {
                    assert!(error.contains(part), "{part}: {error}");
                }
            }
        }
    }
}

on_the_stub! {
    fn devices_that_are_not_there_are_errors(["TEGULA_STUB_DEVICES" = "2"]) {
        let error = |ordinal| Device::cuda(ordinal).unwrap_err().to_string();
        assert_eq!(error(5), "cuda:5: no device cuda:5: the driver shows 2 GPUs, cuda:0 to cuda:1");
        assert_eq!((gpu().name(), Device::cuda(1).unwrap().name()), ("cuda:0".into(), "cuda:1".into()));
        assert_eq!(gpu().compiles_for(), "sm_90a");
    }

    fn old_devices_are_errors(["TEGULA_STUB_ARCH" = "sm_75"]) {
        let error = Device::cuda(0).unwrap_err().to_string();
        assert!(error.contains("capability 7.5: kernels need 8.0") && error.contains("Tegula stub sm_75"), "{error}");
    }

    fn no_memory_is_an_error_that_says_how_much_there_is(["TEGULA_STUB_MB" = "64"]) {
        let gpu = gpu();
        let first = gpu.zeros::<u8>([48 << 20]).unwrap();
        let error = gpu.zeros::<u8>([32 << 20]).unwrap_err().to_string();
        assert!(error.contains("cuda:0: no memory for 33554432 bytes: of 64 MiB, 16 MiB are free"), "{error}");
        drop(first);
        // What is freed but not reached yet counts as free.
        assert_eq!(gpu.zeros::<u8>([48 << 20]).unwrap().to_vec(), vec![0; 48 << 20]);
    }

    fn tensors_on_a_gpu_are_read_and_written_by_the_host([] ["TEGULA_STUB_DELAY_US" = "300"]) {
        let gpu = gpu();
        let host = Rng(1).tensor(&[5, 7, 3], |r| r.bits() as i32);
        let mut t = host.to(&gpu).unwrap();
        assert_eq!((t.place().as_deref(), t.shape(), t.to_vec()), (Some("cuda:0"), &[5, 7, 3][..], host.to_vec()));
        assert!(std::ptr::eq(t.as_slice(), t.as_slice()), "one copy for both");
        let mut read = vec![0; 5 * 7 * 3];
        t.read_into(&mut read).unwrap();
        let before = ALLOCATIONS.get();
        t.read_into(&mut read).unwrap();
        assert_eq!((ALLOCATIONS.get() - before, &read[..]), (0, host.as_slice()));
        for axes in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let part = |t: &Tensor<i32>| t.slice(1, 2..6).unwrap().permute(&axes).unwrap().to_vec();
            assert_eq!(part(&t), part(&host), "{axes:?}");
        }
        assert_eq!(t.view().index(0, 3).unwrap().as_slice(), host.view().index(0, 3).unwrap().as_slice());
        // Writing a part leaves the others; slices are of the new contents.
        let mut expected = host.to_vec();
        let new: Vec<i32> = (0..5 * 7).map(|i| -i).collect();
        (0..5 * 7).for_each(|i| expected[3 * i + 1] = new[i]);
        t.view_mut().unwrap().index(2, 1).unwrap().copy_from_slice(&new).unwrap();
        assert_eq!(t.as_slice(), expected);
        t.write(host.as_slice()).unwrap();
        assert_eq!(t.as_slice(), host.as_slice());
        let error = t.as_mut_slice().unwrap_err().to_string();
        assert!(error.contains("in the memory of cuda:0 is no slice that can be written"), "{error}");
        assert_eq!(gpu.zeros::<f32>([0, 4]).unwrap().to_vec(), []);
        assert_eq!(gpu.zeros::<f64>([3]).unwrap().as_slice(), [0.0; 3]);
        // Small copies go round the staging memory, large ones past it.
        for n in [1, 100, 8191, 8192, 8193, 100_000] {
            for i in 0..40 {
                let values: Vec<u32> = (0..n).map(|j| j * 7 + i).collect();
                assert_eq!(gpu.tensor([n as usize], &values).unwrap().to_vec(), values);
            }
        }
    }

    fn packed_matrices_go_there_and_back([]) {
        use tegula::ir::{Quant, layout::Layout};
        let bytes: Vec<u8> = (0..64 / 32 * 34 * 5).map(|i| (i * 37 % 251) as u8).collect();
        let there = gpu().packed_from(&bytes, Quant::Q8_0, Layout::Gguf, 64, 5).unwrap();
        assert_eq!(there.as_bytes(), bytes);
        let here = PackedTensor::from_bytes(&bytes, Quant::Q8_0, Layout::Gguf, 64, 5).unwrap();
        assert_eq!(here.to(&gpu()).unwrap().bytes_view().to_vec(), bytes);
        assert!((0..5).all(|n| there.decode(33, n).to_bits() == here.decode(33, n).to_bits()));
        assert!(gpu().packed_from(&bytes[1..], Quant::Q8_0, Layout::Gguf, 64, 5).is_err());
    }

    fn kernels_are_right_on_both_architectures(
        ["TEGULA_STUB_ARCH" = "sm_80", "TEGULA_STUB" = "strict"] ["TEGULA_STUB_DELAY_US" = "100"]
    ) {
        if !compiler() {
            return;
        }
        let gpu = gpu();
        for n in [1, 31, 64, 65, 1000] {
            let mut rng = Rng(n as u64);
            let (a, b) = (rng.tensor(&[n], Rng::float), rng.tensor(&[n], Rng::float));
            let mut c = gpu.empty([n]).unwrap();
            add::launch(&a.to(&gpu).unwrap(), &b.to(&gpu).unwrap(), &mut c).dims(64).run(&gpu).unwrap();
            let want: Vec<f32> = a.as_slice().iter().zip(b.as_slice()).map(|(a, b)| a + b).collect();
            assert_eq!(c.as_slice(), want, "{n}");
            // The host's tensors are copied for the launch, and back.
            let mut d = Tensor::poisoned([n]).unwrap();
            add::launch(&a, &b, &mut d).dims(64).run(&gpu.stream()).unwrap();
            assert_eq!(d.as_slice(), want, "{n}");
        }
        for (m, n, k) in [(1, 1, 1), (19, 35, 21), (33, 32, 40)] {
            let mut rng = Rng(5);
            let (a, b) = (rng.tensor(&[m, k], Rng::float), rng.tensor(&[k, n], Rng::float));
            let mut c = gpu.empty([m, n]).unwrap();
            matmul::launch(&a.to(&gpu).unwrap(), &b, &mut c).dims(16, 32, 8).run(&gpu.stream()).unwrap();
            for i in 0..m * n {
                let (a, b) = (a.as_slice(), b.as_slice());
                let want = (0..k).fold(0.0f32, |acc, l| a[i / n * k + l].mul_add(b[l * n + i % n], acc));
                assert_eq!(c.as_slice()[i], want, "{i} of {m} × {n} × {k}");
            }
        }
        for (rows, n) in [(1, 1), (3, 100), (7, 128)] {
            let x = Rng(4).tensor(&[rows, n], |r| r.float() * 8.0);
            let mut y = gpu.empty([rows, n]).unwrap();
            softmax::launch(&x.to(&gpu).unwrap(), &mut y).dims(128).grid(rows).run(&gpu).unwrap();
            for (row, found) in x.as_slice().chunks(n).zip(y.as_slice().chunks(n)) {
                let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
                for (x, y) in row.iter().zip(found) {
                    let want = f64::from(*x).exp() / sum;
                    assert!((f64::from(*y) - want).abs() <= 4e-6 * want, "{y}, {want}");
                }
            }
        }
        let x = Rng(6).tensor(&[1003], |r| r.bits() as i32);
        let (mut counts, mut most) = ([0; 8], [i32::MIN; 8]);
        for v in x.as_slice() {
            let kind = (v & 7) as usize;
            (counts[kind], most[kind]) = (counts[kind] + 1, most[kind].max(*v));
        }
        let mut c = gpu.zeros::<i32>([8]).unwrap();
        let mut m = gpu.tensor([8], &[i32::MIN; 8]).unwrap();
        tally::launch(&x, &mut c, &mut m).dims(64).grid(16).run(&gpu).unwrap();
        assert_eq!((c.as_slice(), m.as_slice()), (&counts[..], &most[..]));
    }

    fn views_of_one_tensor_may_interleave([]) {
        if !compiler() {
            return;
        }
        let (gpu, x) = (gpu(), Rng(7).tensor(&[70], Rng::float));
        let start = Rng(8).tensor(&[70, 3], Rng::float);
        for on_gpu in [false, true] {
            let mut out = if on_gpu { start.to(&gpu).unwrap() } else { Tensor::from_slice([70, 3], start.as_slice()).unwrap() };
            add::launch(&x, &x, out.view_mut().unwrap().index(1, 1).unwrap()).dims(16).run(&gpu).unwrap();
            let (mut left, right) = out.view_mut().unwrap().split_at(1, 1).unwrap();
            let middle = right.as_view().index(1, 0).unwrap();
            add::launch(middle, &x, left.reborrow().index(1, 0).unwrap()).dims(16).run(&gpu).unwrap();
            for (i, found) in out.as_slice().iter().enumerate() {
                let x = x.as_slice()[i / 3];
                let want = [2.0 * x + x, 2.0 * x, start.as_slice()[i]][i % 3];
                assert_eq!(*found, want, "{on_gpu}: {i}");
            }
        }
    }

    fn failed_checks_name_line_and_program([]) {
        if !compiler() {
            return;
        }
        let (gpu, x) = (gpu(), Rng(10).tensor(&[64], Rng::float));
        let x_gpu = x.to(&gpu).unwrap();
        let mut y = gpu.empty::<f32>([64]).unwrap();
        scaled::launch(&x_gpu, 2.0, &mut y).dims(16).checked().run(&gpu).unwrap();
        assert_eq!(y.to_vec(), x.as_slice().iter().map(|v| v * 2.0).collect::<Vec<_>>());
        let error = scaled::launch(&x_gpu, 2.0, &mut y).dims(8).checked().run(&gpu).unwrap_err().to_string();
        for part in ["scaled`", "kernels.rs:", "at most five tiles", "program 5 [5, 0, 0]"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        reads_past::launch(&x_gpu, &mut y).dims(8).grid(16).run(&gpu).unwrap();
        assert_eq!(y.as_slice()[60..64], x.as_slice()[32..36]);
        let error = reads_past::launch(&x_gpu, &mut y).dims(8).grid(16).checked().run(&gpu).unwrap_err().to_string();
        for part in ["reads_past`", "kernels.rs:", "index 64 is out of range", "program 15 [15, 0, 0]"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    fn prints_come_out_as_on_the_oracle([]) {
        if !compiler() {
            return;
        }
        let x = Tensor::from_slice([2, 3], &[0.5f32, -1.0, 1e-9, f32::INFINITY, 3.0, 65536.0]).unwrap();
        let lines = Arc::new(Mutex::new(vec![]));
        let printer = || -> Option<Printer> {
            let heard = lines.clone();
            Some(Arc::new(move |l: &str| heard.lock().unwrap().push(l.to_string())))
        };
        let run = |device: Device| {
            let mut y = device.zeros([2]).unwrap();
            tells::launch(&x, &mut y).dims(3).grid([1, 2]).run(&device).unwrap();
            std::mem::take(&mut *lines.lock().unwrap())
        };
        let want = run(Device::oracle_with(OracleOptions { on_print: printer(), ..Default::default() }));
        assert_eq!(want.len(), 3);
        let gpu = Device::cuda_with(0, CudaOptions { on_print: printer(), ..CudaOptions::default() }).unwrap();
        assert_eq!(run(gpu), want);
    }

    fn a_kernels_fault_shows_where_it_is_waited_for([]) {
        if !compiler() {
            return;
        }
        let gpu = gpu();
        let x = Rng(11).tensor(&[40], Rng::float).to(&gpu).unwrap();
        let mut y = gpu.empty::<f32>([64]).unwrap();
        believes::launch(&x, &mut y).grid(2000).run(&gpu).unwrap();
        for error in [y.try_as_slice().unwrap_err().to_string(), gpu.synchronize().unwrap_err().to_string()] {
            for part in ["cuda:0: ", "CUDA_ERROR_ILLEGAL_ADDRESS, 700", "A kernel that was launched before", "`.checked()`"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        assert!(believes::launch(&x, &mut y).grid(2).run(&gpu).is_err(), "the device is lost");
        // What is launched next is not what has failed, whether it must still be loaded or not.
        for _ in 0..2 {
            let error = add::launch(&x, &x, &mut y).dims(64).run(&gpu).unwrap_err().to_string();
            assert!(error.contains("an earlier launch has failed, that of `cuda::kernels::believes`: cu"), "{error}");
            assert!(!error.contains("does not load"), "{error}");
        }
    }

    fn a_fault_names_the_kernels_since_the_last_wait([]) {
        if !compiler() {
            return;
        }
        let (gpu, x) = (gpu(), Rng(11).tensor(&[40], Rng::float));
        let (x, stream, other) = (x.to(&gpu).unwrap(), gpu.stream(), gpu.stream());
        let (mut y, mut z) = (gpu.empty::<f32>([64]).unwrap(), gpu.empty::<f32>([40]).unwrap());
        scaled::launch(&x, 2.0, &mut z).dims(8).run(&gpu).unwrap();
        gpu.synchronize().unwrap();
        add::launch(&x, &x, &mut z).dims(8).run(&other).unwrap();
        other.synchronize().unwrap();
        add::launch(&x, &x, &mut z).dims(16).run(&other).unwrap();
        believes::launch(&x, &mut y).grid(2000).run(&stream).unwrap();
        let error = stream.synchronize().unwrap_err().to_string();
        assert!(error.contains("an earlier launch has failed, one of the last: `cuda::kernels::believes`, `cuda::kernels::add`: cu"), "{error}");
    }

    fn work_on_one_tensor_is_ordered_whatever_its_streams(["TEGULA_STUB_DELAY_US" = "2000"]) {
        if !compiler() {
            return;
        }
        let gpu = gpu();
        let streams = [gpu.stream(), gpu.stream(), gpu.stream()];
        let n = 100;
        let one = gpu.tensor([n], &vec![1i32; n]).unwrap();
        let mut sum = [gpu.zeros::<i32>([n]).unwrap(), gpu.zeros::<i32>([n]).unwrap()];
        // Each step reads what another stream wrote, and writes what a third one read.
        for i in 0..30 {
            let [a, b] = &mut sum;
            let (from, to) = if i % 2 == 0 { (a, b) } else { (b, a) };
            add::launch(&*from, &one, to).dims(64).run(&streams[i % 3]).unwrap();
        }
        assert_eq!(sum[0].as_slice(), vec![30; n]);
        // The host's writes come after the kernels that read.
        let mut x = gpu.tensor([n], &vec![5i32; n]).unwrap();
        let mut out: Vec<_> = (0..3).map(|_| gpu.empty::<i32>([n]).unwrap()).collect();
        for (stream, out) in streams.iter().zip(&mut out) {
            add::launch(&x, &x, out).dims(64).run(stream).unwrap();
        }
        x.write(&vec![-1; n]).unwrap();
        assert!(out.iter().all(|o| o.to_vec() == vec![10; n]) && x.to_vec() == vec![-1; n]);
        // And so do those of another thread.
        std::thread::scope(|s| {
            for (stream, out) in streams.iter().zip(&mut out) {
                let x = &x;
                s.spawn(move || (0..10).for_each(|_| add::launch(x, x, &mut *out).dims(64).run(stream).unwrap()));
            }
        });
        assert!(out.iter().all(|o| o.to_vec() == vec![-2; n]));
    }

    fn memory_stays_until_the_work_that_uses_it_is_done(["TEGULA_STUB_DELAY_US" = "1000"]) {
        if !compiler() {
            return;
        }
        let n = 1000;
        let mut out = {
            let gpu = gpu();
            let (first, second) = (gpu.stream(), gpu.stream());
            let mut out = gpu.empty::<i32>([n]).unwrap();
            for round in 0..5 {
                let x = gpu.tensor([n], &vec![round; n]).unwrap();
                let mut y = gpu.empty::<i32>([n]).unwrap();
                add::launch(&x, &x, &mut y).dims(256).run(&first).unwrap();
                add::launch(&y, &x, &mut out).dims(256).run(&second).unwrap();
                // Dropped here, while nothing has run; freed memory is overwritten, and using it is a fault.
            }
            out
        };
        assert_eq!(out.to_vec(), vec![12; n]);
        out.write(&vec![0; n]).unwrap();
        drop(out);
        // Streams and memory go when their work is done.
        for _ in 0..100 {
            if counters::counters()[counters::BLOCKS..].iter().take(6).all(|n| *n == 0) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let left = counters::counters();
        assert!(left[counters::LAUNCHES] == 10, "{left:?}");
        assert_eq!(left[counters::BLOCKS..=counters::EVENTS], [0; 5], "{left:?}");
    }

    fn copies_of_any_length_go_through_the_staging_memory([] ["TEGULA_STUB_DELAY_US" = "10"]) {
        let gpu = gpu();
        // A run of one element each.
        let n = 100;
        let bytes: Vec<u8> = (0..n * n).map(|i| (i * 7 % 251) as u8).collect();
        let mut t = gpu.zeros::<u8>([n, n]).unwrap();
        t.view_mut().unwrap().transposed().copy_from_slice(&bytes).unwrap();
        assert!(t.transposed().to_vec() == bytes);
        let flags: Vec<bool> = bytes.iter().map(|b| b % 3 == 1).collect();
        let mut t = gpu.zeros::<bool>([n, n]).unwrap();
        t.view_mut().unwrap().transposed().copy_from_slice(&flags).unwrap();
        assert!(t.transposed().to_vec() == flags);
        // Runs of all lengths, with the staging memory's ends among them.
        let mut rng = Rng(12);
        let mut want = vec![0u8; 4 << 20];
        let mut t = gpu.zeros::<u8>([want.len()]).unwrap();
        let mut at = 0;
        while at < want.len() {
            let n = ([1, 63, 64, 65, 32 << 10][rng.bits() as usize % 5]).max(rng.bits() as usize % (16 << 10));
            let end = (at + n.max(1)).min(want.len());
            want[at..end].iter_mut().for_each(|b| *b = rng.bits() as u8);
            t.view_mut().unwrap().slice(0, at..end).unwrap().copy_from_slice(&want[at..end]).unwrap();
            at = end;
        }
        assert!(t.to_vec() == want);
    }

    fn failures_that_prints_displace_are_not_lost([]) {
        if !compiler() {
            return;
        }
        let quiet = || -> Option<Printer> { Some(Arc::new(|_: &str| {})) };
        let gpu = Device::cuda_with(0, CudaOptions { on_print: quiet(), ..CudaOptions::default() }).unwrap();
        let mut y = gpu.zeros::<i32>([2000]).unwrap();
        let error = prints_then_fails::launch(&mut y).dims(1024).grid(1500).checked().run(&gpu).unwrap_err().to_string();
        assert!(error.contains("more reports than are kept") || error.contains("only one program"), "{error}");
        prints_then_fails::launch(&mut y).dims(16).grid(1).checked().run(&gpu).unwrap();
    }

    fn who_hears_prints_may_launch_something([]) {
        if !compiler() {
            return;
        }
        let device: Arc<std::sync::OnceLock<Device>> = Arc::default();
        let (of, heard) = (device.clone(), Arc::new(Mutex::new(vec![])));
        let to = heard.clone();
        let on_print: Printer = Arc::new(move |_: &str| {
            let a = Tensor::from_slice([4], &[1i32; 4]).unwrap();
            let mut b = Tensor::<i32>::zeros([4]).unwrap();
            add::launch(&a, &a, &mut b).dims(4).checked().run(of.get().unwrap()).unwrap();
            to.lock().unwrap().push(b.to_vec());
        });
        let gpu = Device::cuda_with(0, CudaOptions { on_print: Some(on_print), ..CudaOptions::default() }).unwrap();
        device.set(gpu.clone()).unwrap();
        let mut y = gpu.zeros::<i32>([1]).unwrap();
        prints_then_fails::launch(&mut y).dims(16).grid(1).run(&gpu).unwrap();
        assert_eq!(*heard.lock().unwrap(), [vec![2; 4]]);
    }

    fn a_gpu_that_is_opened_twice_is_one([]) {
        if !compiler() {
            return;
        }
        let (first, second) = (gpu(), gpu());
        let x = first.tensor([4], &[1i32, 2, 3, 4]).unwrap();
        let mut y = second.zeros::<i32>([4]).unwrap();
        add::launch(&x, &x, &mut y).dims(4).run(&second.stream()).unwrap();
        let stream = first.stream();
        let graph = stream.capture::<Box<dyn std::error::Error>>(|s| Ok(add::launch(&x, &x, &mut y).dims(4).run(s)?));
        drop((first, stream));
        y.write(&[0; 4]).unwrap();
        graph.unwrap().launch(&second.stream()).unwrap();
        assert_eq!((y.to_vec(), counters::counters()[10]), (vec![2, 4, 6, 8], 1));
    }

    fn ptx_that_is_too_new_is_replaced_by_what_every_gpu_takes([]) {
        use tegula::bundle::{self, Builder, Bundle, Kind, MakeOptions};
        if !compiler() {
            return;
        }
        let run = |device: &Device, x: &Tensor<f32>, y: &mut Tensor<f32>| add::launch(x, x, y).dims(8).run(device);
        let (x, mut y) = (Tensor::from_slice([3], &[1.0, 2.0, 3.0]).unwrap(), Tensor::zeros([3]).unwrap());
        let kernel = add::launch(&x, &x, &mut y).dims(8).ir().unwrap();
        let made = bundle::make(&["sm_90a"], MakeOptions::default(), |d| {
            run(d, &x.to(d).unwrap(), &mut d.zeros([3]).unwrap())
        });
        let made = Bundle::from_bytes(made.unwrap().builder.bytes().unwrap().leak()).unwrap();
        let mut builder = Builder::new("a test");
        for (target, newer) in [("sm_90a", true), ("sm_80", false)] {
            let machine = bundle::Machine::Gpu {
                name: target.into(),
                target: target.into(),
                capability: if newer { (9, 0) } else { (8, 0) },
                cubins: false,
            };
            let key = made.items().next().unwrap().key;
            let found = made.find_key(key, &machine).unwrap().unwrap();
            assert_eq!((&*found.target, found.kind), (target, Kind::Ptx));
            let mut text = String::from_utf8(found.bytes).unwrap();
            if newer {
                let version = text.lines().find(|l| l.starts_with(".version")).unwrap().to_string();
                text = text.replacen(&version, ".version 9.9", 1);
            }
            builder.add(&kernel, false, target, Kind::Ptx, text.into_bytes(), found.meta).unwrap();
        }
        let shipped = Bundle::from_bytes(builder.bytes().unwrap().leak()).unwrap();
        let nowhere = compile::Program::at("/there/is/no/tegulac");
        let options =
            CudaOptions { bundle: shipped.into(), cache: DiskCache::none(), compiler: nowhere, ..CudaOptions::default() };
        run(&Device::cuda_with(0, options).unwrap(), &x, &mut y).unwrap();
        assert_eq!(y.as_slice(), [2.0, 4.0, 6.0]);
    }

    fn gpus_after_hopper_take_ptx_of_which_they_make_code(["TEGULA_STUB_ARCH" = "sm_120"]) {
        let Ok(path) = compile::find::find() else { return };
        let compiled = Arc::new(Mutex::new(0));
        let counter = compiled.clone();
        let on_progress: compile::OnProgress = Arc::new(move |p| {
            *counter.lock().unwrap() += matches!(p, compile::Progress::Finished { .. }) as usize;
        });
        let dir = tempfile::tempdir().unwrap();
        let (cache, compiler) = (DiskCache::at(dir.path(), 1 << 30), compile::Program::at(&path));
        let options = CudaOptions { cache, compiler, on_progress: Some(on_progress), ..CudaOptions::default() };
        let gpu = Device::cuda_with(0, options).unwrap();
        let mut y = gpu.zeros::<f32>([40]).unwrap();
        let x = Rng(13).tensor(&[40], Rng::float);
        add::launch(&x.to(&gpu).unwrap(), &x, &mut y).dims(64).run(&gpu).unwrap();
        assert_eq!((y.to_vec()[39], *compiled.lock().unwrap()), (2.0 * x.as_slice()[39], 1));
    }

    fn a_tensor_of_another_device_is_an_error(["TEGULA_STUB_DEVICES" = "2"]) {
        if !compiler() {
            return;
        }
        let (first, second) = (gpu(), Device::cuda(1).unwrap());
        let x = Rng(3).tensor(&[50], Rng::float);
        let run = |a: &Tensor<f32>, device: &Device, c: &mut Tensor<f32>| add::launch(a, a, c).dims(32).run(device);
        for gpu in [&first, &second] {
            let mut c = gpu.empty([50]).unwrap();
            run(&x.to(gpu).unwrap(), gpu, &mut c).unwrap();
            assert_eq!(c.as_slice()[49], 2.0 * x.as_slice()[49]);
        }
        let (there, mut c) = (x.to(&second).unwrap(), first.empty([50]).unwrap());
        let error = run(&there, &first, &mut c).unwrap_err().to_string();
        assert!(error.contains("add`: cuda:0: expected tensors of cuda:0") && error.contains("memory of cuda:1"), "{error}");
        let cpu = Device::cpu();
        let error = run(&there, &cpu, &mut Tensor::zeros([50]).unwrap()).unwrap_err().to_string();
        for part in ["argument `a`: expected a tensor in the host's memory, where cpu", "found one in the memory of cuda:1"] {
            assert!(error.contains(part), "{error}");
        }
        // As IR, too.
        let mut y = Tensor::<f32>::zeros([50]).unwrap();
        let kernel = add::launch(&x, &x, &mut y).dims(32).ir().unwrap();
        let args: [ArgData<'_>; 3] =
            [Arg::<View<f32, 1>>::arg(&x), Arg::<View<f32, 1>>::arg(&there), Arg::<ViewMut<f32, 1>>::arg(&mut y)];
        let error = Device::oracle().run(&kernel, &args, [2, 1, 1], false).unwrap_err().to_string();
        assert!(error.contains("argument `b`: expected a tensor in the host's memory, where oracle works"), "{error}");
    }

    fn events_tell_the_time_between_launches(["TEGULA_STUB_DELAY_US" = "5000"]) {
        let stream = gpu().stream();
        let (start, end) = (stream.event().unwrap(), stream.event().unwrap());
        let time = end.since(&start).unwrap();
        assert!(time.as_micros() >= 5000 && time.as_micros() < 500_000, "{time:?}");
        assert!(start.since(&start).unwrap().is_zero());
    }

    fn launches_allocate_nothing(["TEGULA_STUB" = "noop"]) {
        if !compiler() {
            return;
        }
        let gpu = gpu();
        let (x, mut y) = (gpu.zeros::<f32>([1000]).unwrap(), gpu.zeros::<f32>([1000]).unwrap());
        let stream = gpu.stream();
        let mut launch = || add::launch(&x, &x, &mut y).dims(64).run(&stream).unwrap();
        launch();
        let before = ALLOCATIONS.get();
        (0..1000).for_each(|_| launch());
        assert_eq!(ALLOCATIONS.get() - before, 0);
        // The counter counts.
        drop(std::hint::black_box(Box::new(1)));
        assert_eq!(ALLOCATIONS.get() - before, 1);
        assert_eq!(counters::counters()[counters::LAUNCHES], 1001);
    }

    fn kernels_compile_once_for_a_gpu([]) {
        let Ok(path) = compile::find::find() else { return };
        let dir = tempfile::tempdir().unwrap();
        let compiled = Arc::new(Mutex::new(0));
        let run = || {
            let counter = compiled.clone();
            let on_progress: compile::OnProgress = Arc::new(move |p| {
                *counter.lock().unwrap() += matches!(p, compile::Progress::Finished { .. }) as usize;
            });
            let cache = DiskCache::at(dir.path(), 1 << 30);
            let compiler = compile::Program::at(&path);
            let options = CudaOptions { cache, compiler, on_progress: Some(on_progress), ..CudaOptions::default() };
            let gpu = Device::cuda_with(0, options).unwrap();
            let x = gpu.tensor([3], &[1.0f32, 2.0, 3.0]).unwrap();
            let mut y = gpu.empty([3]).unwrap();
            add::launch(&x, &x, &mut y).dims(64).run(&gpu).unwrap();
            assert_eq!(y.as_slice(), [2.0, 4.0, 6.0]);
            *compiled.lock().unwrap()
        };
        let first = run();
        assert!(first >= 1);
        assert_eq!(run(), first);
    }
}
