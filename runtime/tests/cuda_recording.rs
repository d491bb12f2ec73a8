//! Recordings of launches, and what goes on beside them, on a driver that is a stub: see `cuda.rs`. Asking a stream that is
//! recorded spoils the recording there, as it does with NVIDIA's driver.

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
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};
use tegula::{DeviceError, compile, prelude::*};

/// Whether the compiler is there.
fn compiler() -> bool {
    compile::find::find().map_err(|e| skip::skip(&format!("recordings on the CUDA stub: {e}"))).is_ok()
}

fn gpu() -> Device {
    Device::cuda(0).unwrap()
}

on_the_stub! {
    fn tensors_may_be_dropped_and_used_while_a_stream_is_recorded(["TEGULA_STUB_DELAY_US" = "20000"]) {
        if !compiler() {
            return;
        }
        let gpu = gpu();
        let (stream, other) = (gpu.stream(), gpu.stream());
        let n = 1000;
        let one = gpu.tensor([n], &vec![1i32; n]).unwrap();
        let mut outs: Vec<_> = (0..4).map(|_| gpu.zeros::<i32>([n]).unwrap()).collect();
        let [a, b, c, d] = &mut outs[..] else { unreachable!() };
        let (dropped, mut written) = (gpu.tensor([n], &vec![5; n]).unwrap(), gpu.tensor([n], &vec![7; n]).unwrap());
        for _ in 0..5 {
            add::launch(&dropped, &one, &mut *a).dims(256).run(&stream).unwrap();
        }
        add::launch(&written, &one, &mut *b).dims(256).run(&stream).unwrap();
        let graph = stream.capture::<Box<dyn Error>>(|s| {
            // The stream works on all of these still.
            drop(dropped);
            written.write(&vec![20; n])?;
            assert_eq!(b.as_slice(), vec![8; n]);
            add::launch(&written, &*a, &mut *c).dims(256).run(&other)?;
            // A host's tensors on another stream, too.
            let mut host = Tensor::zeros([n])?;
            add::launch(&Tensor::from_slice([n], &vec![3; n])?, &*a, &mut host).dims(256).run(&other)?;
            assert_eq!(host.as_slice(), vec![9; n]);
            Ok(add::launch(&*c, &one, &mut *d).dims(256).run(s)?)
        });
        let graph = graph.unwrap();
        assert_eq!((a.to_vec(), c.to_vec(), d.to_vec()), (vec![6; n], vec![26; n], vec![0; n]));
        graph.launch(&stream).unwrap();
        assert_eq!(d.to_vec(), vec![27; n]);
        stream.synchronize().unwrap();
    }

    fn a_recording_is_its_threads_alone([] ["TEGULA_STUB_DELAY_US" = "50"]) {
        if !compiler() {
            return;
        }
        let (gpu, n) = (gpu(), 100);
        let stream = gpu.stream();
        let one = gpu.tensor([n], &vec![1i32; n]).unwrap();
        let two = gpu.tensor([n], &vec![2i32; n]).unwrap();
        let mut recorded = gpu.zeros::<i32>([n]).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // Another thread launches on the same stream, into tensors that it drops; launches for the host, copies and waits.
            let (stop, one, shared) = (&stop, &one, stream.clone());
            let device = &gpu;
            let other = scope.spawn(move || {
                let mut rounds = 0;
                while !stop.load(Relaxed) {
                    let mut out = device.empty::<i32>([n]).unwrap();
                    add::launch(one, one, &mut out).dims(64).run(&shared).unwrap();
                    if rounds % 3 == 0 {
                        assert_eq!(out.to_vec(), vec![2; n]);
                    }
                    if rounds % 5 == 0 {
                        let (host, mut sum) = (Tensor::from_slice([n], &vec![4; n]).unwrap(), Tensor::zeros([n]).unwrap());
                        add::launch(&host, one, &mut sum).dims(64).run(&shared).unwrap();
                        assert_eq!(sum.as_slice(), vec![5; n]);
                        shared.synchronize().unwrap();
                        shared.event().unwrap().synchronize().unwrap();
                    }
                    rounds += 1;
                }
                rounds
            });
            for i in 0..150 {
                let graph = stream.capture::<Box<dyn Error>>(|s| {
                    thread::yield_now();
                    add::launch(&two, one, &mut recorded).dims(64).run(s)?;
                    thread::sleep(Duration::from_micros(200 * (i % 3)));
                    Ok(())
                });
                let graph = graph.unwrap();
                graph.launch(&stream).unwrap();
                if i % 10 == 0 {
                    assert_eq!(recorded.to_vec(), vec![3; n]);
                    recorded.write(&vec![0; n]).unwrap();
                }
            }
            stop.store(true, Relaxed);
            assert!(other.join().unwrap() > 0);
        });
        stream.synchronize().unwrap();
    }

    fn a_panic_ends_a_recording([]) {
        if !compiler() {
            return;
        }
        let (gpu, n) = (gpu(), 100);
        let stream = gpu.stream();
        let one = gpu.tensor([n], &vec![1i32; n]).unwrap();
        let mut out = gpu.zeros::<i32>([n]).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _ = stream.capture::<DeviceError>(|s| {
                add::launch(&one, &one, &mut out).dims(64).run(s).unwrap();
                assert!(s.capture::<DeviceError>(|_| Ok(())).is_err() && s.synchronize().is_err());
                panic!("in a recording")
            });
        }));
        assert!(caught.is_err());
        assert_eq!(out.to_vec(), vec![0; n], "only recorded");
        add::launch(&one, &one, &mut out).dims(64).run(&stream).unwrap();
        assert_eq!(out.to_vec(), vec![2; n]);
        stream.synchronize().unwrap();
        let graph = stream.capture::<DeviceError>(|_| Ok(())).unwrap();
        graph.launch(&stream).unwrap();
        // What was recorded and given up holds nothing.
        let blocks = counters::counters()[counters::BLOCKS];
        drop(out);
        gpu.synchronize().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(counters::counters()[counters::BLOCKS], blocks - 1);
    }

    fn many_streams_read_one_tensor_while_one_of_them_is_recorded(["TEGULA_STUB_DELAY_US" = "100"]) {
        if !compiler() {
            return;
        }
        let (gpu, n) = (gpu(), 100);
        let one = gpu.tensor([n], &vec![1i32; n]).unwrap();
        let streams: Vec<_> = (0..12).map(|_| gpu.stream()).collect();
        let mut outs: Vec<_> = (0..12).map(|_| gpu.zeros::<i32>([n]).unwrap()).collect();
        let (first, rest) = outs.split_at_mut(1);
        add::launch(&one, &one, &mut first[0]).dims(64).run(&streams[0]).unwrap();
        let graph = streams[0].capture::<Box<dyn Error>>(|s| {
            for (stream, out) in streams[1..].iter().zip(&mut *rest) {
                add::launch(&one, &one, out).dims(64).run(stream)?;
            }
            Ok(add::launch(&one, &rest[0], &mut first[0]).dims(64).run(s)?)
        });
        graph.unwrap().launch(&streams[0]).unwrap();
        assert!(outs[1..].iter().all(|o| o.to_vec() == vec![2; n]) && outs[0].to_vec() == vec![3; n]);
    }

    fn what_a_graph_writes_is_read_as_a_whole(["TEGULA_STUB_DELAY_US" = "10"]) {
        if !compiler() {
            return;
        }
        let (gpu, n) = (gpu(), 20_000);
        let streams = [gpu.stream(), gpu.stream()];
        let values: Vec<_> = [3, 5].map(|v| gpu.tensor([n], &vec![v; n]).unwrap()).into();
        let zero = gpu.zeros::<i32>([n]).unwrap();
        let mut out = gpu.zeros::<i32>([n]).unwrap();
        let graphs: Vec<_> = (0..2)
            .map(|i| {
                let launch = add::launch(&values[i], &zero, &mut out).dims(256);
                streams[i].capture::<Box<dyn Error>>(|s| Ok(launch.run(s)?)).unwrap()
            })
            .collect();
        graphs[0].launch(&streams[0]).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0.. {
                    graphs[i % 2].launch(&streams[i % 2]).unwrap();
                    if stop.load(Relaxed) {
                        break;
                    }
                    thread::yield_now();
                }
            });
            let mut read = vec![0; n];
            let mut seen = [0, 0];
            for _ in 0..100 {
                out.read_into(&mut read).unwrap();
                let first = read[0];
                assert!((first == 3 || first == 5) && read.iter().all(|v| *v == first));
                seen[(first == 5) as usize] += 1;
            }
            stop.store(true, Relaxed);
            assert_eq!(seen[0] + seen[1], 100);
        });
        assert_eq!(out.read_into(&mut [0]).unwrap_err().to_string(), "expected 20000 elements for shape [20000], found 1");
    }

    fn graphs_do_what_their_launches_do(["TEGULA_STUB_DELAY_US" = "500"]) {
        if !compiler() {
            return;
        }
        let gpu = gpu();
        let (stream, other) = (gpu.stream(), gpu.stream());
        let n = 300;
        let start = Tensor::from_fn([n], |i| (i[0] as i32).wrapping_mul(0x5bd1_e995) ^ 0x2545).unwrap();
        let step = gpu.tensor([n], &(0..n as i32).collect::<Vec<_>>()).unwrap();
        let mut plain = (start.to(&gpu).unwrap(), gpu.empty::<i32>([n]).unwrap());
        let mut graphed = (start.to(&gpu).unwrap(), gpu.empty::<i32>([n]).unwrap());
        let steps = |(a, b): &mut (Tensor<i32>, Tensor<i32>), stream: &Stream| -> Result<(), Box<dyn Error>> {
            add::launch(&*a, &step, &mut *b).dims(128).run(stream)?;
            add::launch(&*b, &*b, &mut *a).dims(128).run(stream)?;
            Ok(())
        };
        let graph = stream.capture(|s| steps(&mut graphed, s)).unwrap();
        assert_eq!(graphed.0.to_vec(), start.to_vec(), "nothing ran");
        for i in 0..5 {
            graph.launch(if i % 2 == 0 { &stream } else { &other }).unwrap();
            steps(&mut plain, &stream).unwrap();
            assert_eq!(graphed.0.to_vec(), plain.0.to_vec(), "{i}");
        }
        // Its tensors stay as long as it does.
        drop(graphed);
        graph.launch(&other).unwrap();
        other.synchronize().unwrap();
        let host = Tensor::from_slice([n], &vec![0i32; n]).unwrap();
        let error = stream.capture::<Box<dyn Error>>(|s| {
            Ok(add::launch(&host, &host, &mut plain.0).dims(128).run(s)?)
        });
        let error = error.err().unwrap().to_string();
        assert!(error.contains("argument 0 does not lie in this GPU's memory, and the launch is recorded"), "{error}");
        // The stream goes on.
        steps(&mut plain, &stream).unwrap();
        stream.synchronize().unwrap();
        let error = Device::oracle().stream().capture(|_| Ok::<(), DeviceError>(())).err().unwrap().to_string();
        assert_eq!(error, "oracle records no graphs: only GPUs do");
    }
}
