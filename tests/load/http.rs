//! A small client of HTTP/1.1 and of server-sent events, with nothing between a test and the socket: it can also stop in the
//! middle, reset the connection, or send what is no HTTP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use serde_json::Value;

/// A connection, and what came on it but was not yet taken.
pub struct Connection {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// The beginning of a response.
#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    headers: Vec<(String, String)>,
}

/// A response whose body was read.
#[derive(Clone, Debug)]
pub struct Response {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Head {
    /// A header's value; names are of small letters here.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn json(&self) -> io::Result<Value> {
        serde_json::from_slice(&self.body).map_err(|e| bad(format!("{e} in {:?}", self.text())))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

/// How a body ends.
enum Framing {
    /// After so many bytes.
    Length(usize),
    /// In pieces with their lengths.
    Chunked,
    /// With the connection.
    Close,
}

impl Connection {
    /// Connects; no read or write waits longer than `patience`.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![] })
    }

    /// Sends a request with a body of JSON, or with none.
    pub fn send(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> io::Result<()> {
        self.send_with(method, path, "content-type: application/json\r\n", body)
    }

    /// The same with other headers, each with its line end.
    pub fn send_with(&mut self, method: &str, path: &str, headers: &str, body: Option<&[u8]>) -> io::Result<()> {
        let length = body.map_or(String::new(), |body| format!("content-length: {}\r\n", body.len()));
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}{length}\r\n").into_bytes();
        bytes.extend(body.unwrap_or_default());
        self.stream.write_all(&bytes)
    }

    /// A request and its whole response.
    pub fn request(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> io::Result<Response> {
        self.send(method, path, body)?;
        self.response()
    }

    /// Reads a whole response.
    pub fn response(&mut self) -> io::Result<Response> {
        let head = self.head()?;
        let mut body = Body::of(self, &head)?;
        let mut bytes = vec![];
        while let Some(piece) = body.piece()? {
            bytes.extend(piece);
        }
        Ok(Response { head, body: bytes })
    }

    /// Reads the beginning of a response.
    pub fn head(&mut self) -> io::Result<Head> {
        let end = loop {
            match self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end,
                None if self.buffer.len() > 1 << 20 => return Err(bad("a response's headers do not end")),
                None => self.fill()?,
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let text = std::str::from_utf8(&head).map_err(|e| bad(e.to_string()))?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| bad(format!("no status line in {text:?}")))?;
        let header =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
        Ok(Head { status, headers: lines.filter_map(header).collect() })
    }

    /// Whether the other side closed the connection, or has sent what nobody asked for.
    pub fn is_over(&mut self) -> bool {
        let mut byte = [0];
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut byte));
        let blocking = self.stream.set_nonblocking(false);
        blocking.is_err() || !matches!(peeked, Err(e) if e.kind() == ErrorKind::WouldBlock)
    }

    /// Closes it with a reset: what the other side sends from now on meets nobody.
    pub fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        set_option(&self.stream, libc::SO_LINGER, &linger);
    }

    /// Has the kernel keep as little as it can of what comes.
    pub fn receive_little(&self) {
        set_option(&self.stream, libc::SO_RCVBUF, &1);
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 1 << 14];
        match self.stream.read(&mut piece)? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed")),
            n => {
                self.buffer.extend(&piece[..n]);
                Ok(())
            }
        }
    }
}

/// Sets an option of a socket.
fn set_option<T>(stream: &TcpStream, option: i32, value: &T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads `size` bytes of a value that lives.
    unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, std::ptr::from_ref(value).cast(), size) };
}

/// The body of a response, as it comes.
pub struct Body<'c> {
    connection: &'c mut Connection,
    framing: Framing,
    over: bool,
}

impl Body<'_> {
    pub fn of<'c>(connection: &'c mut Connection, head: &Head) -> io::Result<Body<'c>> {
        let framing = match (head.header("transfer-encoding"), head.header("content-length")) {
            (Some("chunked"), _) => Framing::Chunked,
            (Some(other), _) => return Err(bad(format!("transfer-encoding {other}"))),
            (None, Some(length)) => Framing::Length(length.parse().map_err(|_| bad("content-length is no number"))?),
            (None, None) if head.status == 204 => Framing::Length(0),
            (None, None) => Framing::Close,
        };
        Ok(Body { connection, framing, over: false })
    }

    /// The next piece, not empty; `None` after the last. A body that breaks off is an error.
    pub fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.over {
            return Ok(None);
        }
        match &mut self.framing {
            Framing::Length(0) => self.over = true,
            Framing::Length(left) => {
                if self.connection.buffer.is_empty() {
                    self.connection.fill()?;
                }
                let n = self.connection.buffer.len().min(*left);
                *left -= n;
                return Ok(Some(self.connection.buffer.drain(..n).collect()));
            }
            Framing::Chunked => {
                let line = self.line()?;
                let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
                let size =
                    size.ok().filter(|n| *n < 1 << 30).ok_or_else(|| bad(format!("a chunk of size {line:?}")))?;
                while self.connection.buffer.len() < size + 2 {
                    self.connection.fill()?;
                }
                let piece = self.connection.buffer.drain(..size).collect();
                if !self.line()?.is_empty() {
                    return Err(bad("a chunk is longer than it says"));
                }
                if size > 0 {
                    return Ok(Some(piece));
                }
                self.over = true;
            }
            Framing::Close => {
                if self.connection.buffer.is_empty() {
                    match self.connection.fill() {
                        Err(e) if e.kind() == ErrorKind::UnexpectedEof => self.over = true,
                        filled => filled?,
                    }
                }
                let piece = std::mem::take(&mut self.connection.buffer);
                return Ok((!self.over).then_some(piece));
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.connection.buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.connection.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.connection.fill()?;
        }
    }
}

/// Server-sent events of a body: the data of each.
pub struct Events<'c> {
    body: Body<'c>,
    /// Bytes of the event that is not complete.
    bytes: Vec<u8>,
}

impl<'c> Events<'c> {
    pub fn new(body: Body<'c>) -> Events<'c> {
        Events { body, bytes: vec![] }
    }

    /// The next event's data; `None` at the end of the body. Comments are passed over.
    pub fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            while let Some(end) = self.bytes.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.bytes.drain(..end + 2).collect();
                let event = std::str::from_utf8(&event).map_err(|_| bad("an event that is no UTF-8"))?;
                let data: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                if !data.is_empty() {
                    return Ok(Some(data.join("\n").trim_start().to_owned()));
                }
            }
            match self.body.piece()? {
                Some(piece) => self.bytes.extend(piece),
                None if self.bytes.is_empty() => return Ok(None),
                None => return Err(bad("the stream ends inside an event")),
            }
        }
    }
}
