//! Requests that end when their client has gone.
//!
//! While a request is answered the HTTP machinery looks at the connection only if it has read nothing behind the request;
//! a line end there, or a next request, would hide that the client has left. So the socket is asked as well.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use http_body::{Frame, SizeHint};
use tokio::net::TcpStream;

/// The answer, unless the client leaves before; its body then ends when the client does.
///
/// # Errors
/// If the client has left.
pub async fn watched(
    socket: Arc<TcpStream>,
    answer: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> io::Result<Response<Body>> {
    let mut gone = Box::pin(gone(socket));
    tokio::select! {
        // What is answered at once is, also to who closes behind his request.
        biased;
        Ok(answer) = answer => Ok(answer.map(|body| Body::new(Watched { body, gone }))),
        () = &mut gone => Err(left()),
    }
}

fn left() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the client has left")
}

/// Waits until a client sends no more.
async fn gone(socket: Arc<TcpStream>) {
    // This interest is met by the end of what is received, not by bytes that wait; the socket is registered for no urgent
    // ones.
    #[cfg(target_os = "linux")]
    let _ = socket.ready(tokio::io::Interest::PRIORITY).await;
    // Elsewhere the HTTP machinery alone must notice.
    #[cfg(not(target_os = "linux"))]
    std::future::pending::<()>().await;
    drop(socket);
}

struct Watched<F> {
    body: Body,
    gone: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> HttpBody for Watched<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() && self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(left()))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
