//! The end of an engine that was asked to end well: what runs is finished, for a time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The wait for an engine's last request: see [`Engine::drain`](super::Engine::drain). To stop waiting does not stop the
/// draining.
#[derive(Debug)]
pub struct Drain(pub(super) oneshot::Receiver<usize>);

impl Drain {
    /// Waits, on a thread that may.
    pub fn blocking(self) -> usize {
        // An engine that is gone has nothing left to end.
        self.0.blocking_recv().unwrap_or(0)
    }
}

impl Future for Drain {
    /// Requests that the end of the grace ended.
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or(0))
    }
}

/// Those who wait.
#[derive(Debug, Default)]
pub struct Drains(Vec<(Option<Instant>, oneshot::Sender<usize>)>);

/// While somebody waits, whether all have ended is looked at so often: a caller may be about to submit, and be refused.
const LOOK: Duration = Duration::from_millis(20);

impl Drains {
    /// One more, who waits until then at the longest.
    pub fn add(&mut self, deadline: Option<Instant>, aborted: oneshot::Sender<usize>) {
        self.0.push((deadline, aborted));
    }

    /// How long the engine thread may wait for news; as long as it takes if nobody drains.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let deadlines = self.0.iter().filter_map(|(deadline, _)| *deadline);
        let first = deadlines.map(|deadline| deadline.saturating_duration_since(now)).min();
        (!self.0.is_empty()).then(|| first.unwrap_or(LOOK).min(LOOK))
    }

    /// Whether the time of one of them is over.
    pub fn is_due(&self, now: Instant) -> bool {
        self.0.iter().any(|(deadline, _)| deadline.is_some_and(|deadline| deadline <= now))
    }

    /// Tells all that nothing is left, and how many requests were ended for it.
    pub fn finish(&mut self, aborted: usize) {
        for (_, waiting) in self.0.drain(..) {
            // Who does not wait any more need not know.
            let _ = waiting.send(aborted);
        }
    }
}
