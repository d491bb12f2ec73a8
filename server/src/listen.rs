//! The socket: connections accepted, bounded, watched, and in the end closed.
//!
//! A client that closes its connection while it waits for an answer is noticed at once (also one that only closes its
//! sending half, and whatever was sent behind the request, as long as the system has room for that): the request's handler
//! or the answer's body is dropped, and with it the generation. A client whose machine vanished is noticed when what it was
//! sent stays unacknowledged for [`ServerConfig::client_timeout`], one that stops reading when nothing more could be sent to
//! it for as long.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use crate::error::ApiError;
use crate::host;
use crate::impatient::Impatient;
use crate::state::{App, ServerConfig};
use crate::watched::watched;

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Connections beyond the most that are told so; more are closed without a word.
const SURPLUS: usize = 64;
/// Most header lines of a request.
const MAX_HEADERS: usize = 100;
/// Most bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// How long connections have, once all answers are out, to end by themselves.
const FAREWELL: Duration = Duration::from_secs(1);

/// A server whose socket is open: clients can connect, and are served once it runs.
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    app: App,
}

impl Server {
    /// Opens the socket. Port 0 is any that is free: see [`Server::addr`].
    ///
    /// # Errors
    /// If the address is none, is not this machine's, or is in use.
    pub fn bind(addr: impl ToSocketAddrs, config: ServerConfig) -> io::Result<Server> {
        let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address");
        for addr in addr.to_socket_addrs()? {
            match listen(addr) {
                Ok(listener) => {
                    let addr = listener.local_addr()?;
                    return Ok(Server { listener, addr, app: App::new(config) });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The state of its endpoints: [`App::serve_with`] gives it an engine.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Serves until `stop` is ready, for example [`crate::signals::stop`]. Then accepts nothing more, and waits for answers
    /// that are still going out, a second at most.
    ///
    /// # Errors
    /// If the socket cannot be watched.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let config = self.app.config().clone();
        let connections = Arc::new(Semaphore::new(config.max_connections));
        let surplus = Arc::new(Semaphore::new(SURPLUS));
        let mut router = crate::router(self.app.clone());
        if self.addr.ip().is_loopback() && config.api_keys.is_empty() {
            router = router.layer(from_fn_with_state(self.app, host::own));
        }
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let socket = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((socket, _)) => socket,
                    Err(error) => {
                        // Of one connection, or for want of file handles, which others will give back.
                        tracing::warn!("accepting a connection: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            // Without these options it is served all the same.
            let _ = prepare(&socket, &config);
            let socket = Arc::new(socket);
            let io = TokioIo::new(Impatient::new(socket.clone(), config.client_timeout));
            if let Ok(permit) = connections.clone().try_acquire_owned() {
                let service = TowerToHyperService::new(router.clone());
                let service = service_fn(move |request| watched(socket.clone(), service.call(request)));
                let connection = http(config.header_timeout).serve_connection(io, service);
                let connection = graceful.watch(connection);
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!("a connection ended: {error}");
                    }
                    drop(permit);
                });
            } else if let Ok(permit) = surplus.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    let service = service_fn(|request| too_many(request, config.max_connections));
                    let http = http(Duration::from_secs(1).min(config.header_timeout));
                    // Its errors are the client's affair.
                    let _ = http.serve_connection(io, service).await;
                    drop(permit);
                });
            }
        }
        drop(listener);
        let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
        Ok(())
    }

    /// Serves on a thread of its own, until what this returns is dropped.
    ///
    /// # Errors
    /// If there can be no thread, or the socket cannot be watched.
    pub fn start(self) -> io::Result<Running> {
        let (addr, app) = (self.addr, self.app.clone());
        let runtime = runtime()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("tegula-http".into()).spawn(move || {
            let served = runtime.block_on(self.run(async {
                let _ = stopped.await;
            }));
            if let Err(error) = served {
                tracing::error!("serving: {error}");
            }
            runtime.shutdown_timeout(FAREWELL);
        })?;
        Ok(Running { addr, app, stop: Some(stop), thread: Some(thread) })
    }
}

/// What [`Server::run`] runs on: few threads, since others compute.
///
/// # Errors
/// If there can be no threads.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("tegula-http").enable_all().build()
}

/// A server that runs; it ends when this is dropped.
pub struct Running {
    addr: SocketAddr,
    app: App,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The state of its endpoints.
    pub fn app(&self) -> &App {
        &self.app
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, it has ended too.
            let _ = thread.join();
        }
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // The port of a server that has just ended can be used again.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Events go out at once; a peer that is silent is asked whether it still lives.
fn prepare(socket: &TcpStream, config: &ServerConfig) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(config.client_timeout).with_interval(config.client_timeout / 4),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(config.client_timeout))?;
    Ok(())
}

fn http(header_timeout: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(header_timeout).max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD);
    http
}

/// What connections beyond the most are told.
async fn too_many(_: Request<Incoming>, most: usize) -> Result<Response<Body>, Infallible> {
    let message = format!("there are {most} connections, the most this server has: try again later");
    let mut response = ApiError::unavailable(message).into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}
