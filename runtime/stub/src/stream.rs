//! Streams: queues of work, each with a thread that does it.

use crate::{
    code::{CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, Code, ILLEGAL_STATE},
    config::config,
    device::{Device, Failure},
    table::lock,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

/// A piece of work, which a graph may repeat.
#[derive(Clone)]
pub struct Work {
    run: Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>,
    /// Done even after a kernel failed: what others wait for.
    always: bool,
}

impl Work {
    pub fn new(run: impl Fn() -> Result<(), Failure> + Send + Sync + 'static) -> Work {
        Work { run: Arc::new(run), always: false }
    }

    pub fn always(run: impl Fn() + Send + Sync + 'static) -> Work {
        let run = move || {
            run();
            Ok(())
        };
        Work { run: Arc::new(run), always: true }
    }
}

/// A stream.
pub struct Stream {
    pub device: Arc<Device>,
    queue: Arc<Queue>,
    /// What was recorded so far, while it is recorded; an error once the recording was spoilt.
    recording: Mutex<Option<Result<Vec<Work>, Code>>>,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    /// Whether a piece is being worked on.
    busy: bool,
    closed: bool,
}

impl Stream {
    pub fn new(device: Arc<Device>) -> Stream {
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new() });
        let (worker, of) = (queue.clone(), device.clone());
        std::thread::spawn(move || worker.work(&of));
        Stream { device, queue, recording: Mutex::default() }
    }

    pub fn put(&self, work: Work) {
        if let Some(recorded) = &mut *lock(&self.recording) {
            recorded.iter_mut().for_each(|r| r.push(work.clone()));
            return;
        }
        self.device.begin();
        lock(&self.queue.state).waiting.push_back(work);
        self.queue.changed.notify_all();
    }

    /// An error while it is recorded, since nothing would happen; the recording is spoilt, as the driver has it.
    pub fn live(&self) -> Result<(), Code> {
        match &mut *lock(&self.recording) {
            Some(recorded) => {
                *recorded = Err(CAPTURE_INVALIDATED);
                Err(CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// An error once a recording was spoilt, until it ends.
    pub fn intact(&self) -> Result<(), Code> {
        match &*lock(&self.recording) {
            Some(Err(code)) => Err(*code),
            _ => Ok(()),
        }
    }

    pub fn begin_recording(&self) -> Result<(), Code> {
        let mut recording = lock(&self.recording);
        if recording.is_some() {
            return Err(ILLEGAL_STATE);
        }
        *recording = Some(Ok(vec![]));
        Ok(())
    }

    pub fn end_recording(&self) -> Result<Vec<Work>, Code> {
        lock(&self.recording).take().ok_or(ILLEGAL_STATE)?
    }

    pub fn is_idle(&self) -> bool {
        let state = lock(&self.queue.state);
        state.waiting.is_empty() && !state.busy
    }

    /// Waits until all is done, or gives a kernel's error.
    pub fn synchronize(&self) -> Result<(), Code> {
        self.live()?;
        let mut state = lock(&self.queue.state);
        while state.busy || !state.waiting.is_empty() {
            state = self.queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.device.check()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.queue.state).closed = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// The thread of a stream: works until the stream is destroyed and all is done.
    fn work(&self, device: &Device) {
        loop {
            let work = {
                let mut state = lock(&self.state);
                loop {
                    if let Some(work) = state.waiting.pop_front() {
                        state.busy = true;
                        break work;
                    }
                    if state.closed {
                        return;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            if !config().delay.is_zero() {
                std::thread::sleep(config().delay);
            }
            if (work.always || device.check().is_ok())
                && let Err(failure) = (work.run)()
            {
                device.fail(failure);
            }
            // What it holds goes first: a wait for the queue is one for that, too.
            drop(work);
            lock(&self.state).busy = false;
            self.changed.notify_all();
            device.end();
        }
    }
}
