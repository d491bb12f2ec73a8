//! An engine's two threads, and their end.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::shared::Shared;
use crate::Error;

/// How often a device thread that is to end is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The threads of an engine.
pub struct Threads {
    engine: JoinHandle<()>,
    device: JoinHandle<()>,
    /// Both hold the other end until they end.
    running: Receiver<Infallible>,
}

impl Threads {
    /// Starts both.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn start(
        engine: impl FnOnce() + Send + 'static,
        device: impl FnOnce() + Send + 'static,
    ) -> Result<Threads, Error> {
        let (here, running) = channel();
        let device = spawn("tegula-device", here.clone(), device)?;
        let engine = spawn("tegula-engine", here, engine)?;
        Ok(Threads { engine, device, running })
    }

    /// Waits until both have ended, as they have been told to. A device that shows no sign of life for as long as a
    /// heartbeat is left to itself, with its memory: there is no way to end it.
    pub fn join(self, shared: &Shared) {
        let here = std::thread::current().id();
        if [&self.engine, &self.device].iter().any(|thread| thread.thread().id() == here) {
            // The last handle was dropped by an observer: a thread cannot wait for itself.
            return;
        }
        if shared.stats().scheduler.num_in_flight == 0 {
            // Nothing was awaited so far.
            shared.beat.tick();
        }
        loop {
            match self.running.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            if shared.beat.age() > shared.heartbeat && self.engine.is_finished() {
                tracing::warn!("the device has not answered for {:?}; its thread is left behind", shared.beat.age());
                return;
            }
        }
        for thread in [self.engine, self.device] {
            // A panic was told to whoever waited.
            let _ = thread.join();
        }
    }
}

fn spawn(
    name: &str,
    running: Sender<Infallible>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        run();
        drop(running);
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|source| Error::Io { doing: "starting a thread", source })
}
