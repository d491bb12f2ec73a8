//! Requests that are being answered, so that a server that is told to end knows when the last answer has gone out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;

use crate::state::App;

/// How many there are, and whether the server is told to end.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    count: Arc<watch::Sender<usize>>,
    ending: Arc<watch::Sender<bool>>,
}

impl InFlight {
    /// As of now.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until there is none.
    pub async fn none(&self) {
        // `self` keeps the sender.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// From now on requests whose bodies have not arrived are refused: nobody knows how long they would take.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Waits until [`InFlight::end`] is told.
    pub async fn ending(&self) {
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    fn enter(&self) -> Guard {
        self.count.send_modify(|count| *count += 1);
        Guard(self.clone())
    }
}

/// One of them.
struct Guard(InFlight);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

/// The layer that counts, for [`axum::middleware::from_fn_with_state`]. A request counts until the last byte of its answer
/// has been taken or its client has left. What only asks (GET) does not: it takes no time, and machines ask all the time.
pub async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let guard = app.in_flight().enter();
    next.run(request).await.map(|body| Body::new(Guarded { body, _guard: guard }))
}

struct Guarded {
    body: Body,
    _guard: Guard,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
