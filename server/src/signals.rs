//! How a server ends.
//!
//! At the first SIGTERM or SIGINT it takes no new requests (they are told 503, so is who asks `/ready`), and those that it
//! has are answered, but for those whose bodies are still on their way. After the grace period, or at the second signal, what is left is cut off: each stream gets an error
//! event.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::state::App;

/// How long answers that were cut off have to say so.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The process's signals to end.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on they end the process only through [`stop`]. To be called in a runtime.
    ///
    /// # Errors
    /// If the system does not let them be handled.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal, and then until nothing is left to be answered. For [`crate::Server::run`].
pub async fn stop(app: App, mut signals: Signals, grace: Duration) {
    signals.next().await;
    let Ok(engine) = app.engine() else { return };
    // The engine cuts off what is left by itself too; whoever waits for it need not be here.
    drop(engine.drain(grace));
    let left = app.in_flight();
    left.end();
    tracing::info!("shutting down: {} requests are being answered", left.count());
    tokio::select! {
        () = left.none() => return,
        () = tokio::time::sleep(grace) => {}
        () = signals.next() => {}
    }
    tracing::warn!("shutting down: {} requests are cut off", left.count());
    engine.abort_all();
    tokio::select! {
        () = left.none() => {}
        () = tokio::time::sleep(LAST_WORDS) => {}
        () = signals.next() => {}
    }
}
