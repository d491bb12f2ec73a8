//! A client on a bare TCP socket. It shares no code with the server, sends what it is told byte for byte, and reads what
//! comes back as RFC 9112 has it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here takes; a server that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where to send requests.
#[derive(Clone, Debug)]
pub struct Client {
    pub addr: SocketAddr,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// OpenAI's error object.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub status: u16,
    pub message: String,
    pub kind: String,
    pub param: Option<String>,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Client {
        Client { addr, headers: vec![] }
    }

    /// With one more header in every request.
    pub fn with(&self, name: &str, value: &str) -> Client {
        let mut more = self.clone();
        more.headers.push((name.to_owned(), value.to_owned()));
        more
    }

    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.addr).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        socket.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
        socket.set_nodelay(true).expect("a socket can be told not to wait");
        socket
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, b"")
    }

    /// A GET whose answer must be JSON with status 200.
    pub fn get_json(&self, path: &str) -> Value {
        self.get(path).ok()
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, body.to_string().as_bytes())
    }

    /// The same; an error if there is no whole answer, or no connection.
    pub fn try_post(&self, path: &str, body: &Value) -> io::Result<Answer> {
        let body = body.to_string();
        let mut socket = TcpStream::connect(self.addr)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.addr,
            body.len()
        );
        socket.write_all(head.as_bytes())?;
        Response::try_new(socket)?.try_whole()
    }

    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        Response::new(self.request(method, path, body)).whole()
    }

    /// Sends these bytes as they are and reads one answer.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        self.try_raw(bytes).expect("the server answers")
    }

    /// The same; an error if the server closes the connection without an answer.
    pub fn try_raw(&self, bytes: &[u8]) -> io::Result<Answer> {
        let mut socket = self.connect();
        // A server may answer and close before it has read all.
        let _ = socket.write_all(bytes);
        Response::try_new(socket)?.try_whole()
    }

    /// Sends a request that is to be streamed, and reads as far as the end of the headers.
    pub fn stream(&self, path: &str, body: &Value) -> Events {
        let mut body = body.clone();
        body["stream"] = true.into();
        let socket = self.request("POST", path, body.to_string().as_bytes());
        let response = Response::new(socket);
        if response.status != 200 {
            panic!("a stream was asked for; the answer is {:?}", response.whole());
        }
        let kind = response.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("text/event-stream"), "a stream of events has type {kind:?}");
        Events { response, done: false }
    }

    /// Sends a request and leaves the answer unread.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let mut socket = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.addr);
        if !body.is_empty() || method == "POST" {
            head += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        socket.write_all(head.as_bytes()).expect("a request can be sent");
        // A server may refuse a body before it has read all of it.
        let _ = socket.write_all(body);
        socket
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a body in UTF-8")
    }

    pub fn json(&self) -> Value {
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/json"), "JSON has type {kind:?}: {}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in {}", self.text()))
    }

    /// The JSON of an answer that must be 200.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The error of an answer that must have this status: OpenAI's object, whole.
    #[track_caller]
    pub fn error(&self, status: u16) -> ApiError {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        let body = self.json();
        let error = ApiError::read(&body["error"]).unwrap_or_else(|| panic!("no error object: {body}"));
        assert!(error.status == status && error.kind.ends_with("Error"), "{body}");
        error
    }

    /// A 400 that names this parameter and says something of it.
    #[track_caller]
    pub fn refuses(&self, param: &str) -> ApiError {
        let error = self.error(400);
        assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
        error
    }
}

impl ApiError {
    /// Reads it; `None` if a field is missing or of a wrong type.
    pub fn read(error: &Value) -> Option<ApiError> {
        let param = match error.get("param")? {
            Value::Null => None,
            other => Some(other.as_str()?.to_owned()),
        };
        let message = error.get("message")?.as_str().filter(|m| !m.is_empty())?.to_owned();
        let status = error.get("code")?.as_u64()? as u16;
        Some(ApiError { status, message, kind: error.get("type")?.as_str()?.to_owned(), param })
    }
}

/// An answer whose body is not read yet.
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    length: Length,
}

enum Length {
    /// So many bytes are left.
    Known(usize),
    /// So many are left of this chunk.
    Chunked(usize),
    /// To the end of the connection.
    Open,
    /// All is read.
    Over,
}

impl Response {
    pub fn new(socket: TcpStream) -> Response {
        Response::try_new(socket).expect("the server answers with a status and headers")
    }

    pub fn try_new(socket: TcpStream) -> io::Result<Response> {
        Response::read(BufReader::new(socket))
    }

    /// The next answer on a connection that stays open.
    pub fn read(mut reader: BufReader<TcpStream>) -> io::Result<Response> {
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut next = || -> io::Result<String> {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.strip_suffix("\r\n").ok_or_else(|| bad(format!("a line without an end: {line:?}")))?;
            Ok(line.to_owned())
        };
        let first = next()?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| bad(format!("no status: {first:?}")))?;
        let mut headers = vec![];
        loop {
            let line = next()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(format!("no header: {line:?}")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let value = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let length = match (value("transfer-encoding"), value("content-length")) {
            (Some("chunked"), _) => Length::Chunked(0),
            (_, Some(n)) => Length::Known(n.parse().map_err(|_| bad(format!("a length of {n:?}")))?),
            _ if status == 204 || status == 304 => Length::Over,
            _ => Length::Open,
        };
        Ok(Response { status, headers, reader, length })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn whole(self) -> Answer {
        self.try_whole().expect("the body is complete")
    }

    pub fn try_whole(mut self) -> io::Result<Answer> {
        let mut body = vec![];
        self.read_to_end(&mut body)?;
        Ok(Answer { status: self.status, headers: self.headers, body })
    }

    /// The whole body, and the connection for what comes after it.
    pub fn keep(mut self) -> (Answer, BufReader<TcpStream>) {
        let mut body = vec![];
        self.read_to_end(&mut body).expect("the body is complete");
        (Answer { status: self.status, headers: self.headers, body }, self.reader)
    }

    /// The size of the next chunk.
    fn chunk(&mut self) -> io::Result<usize> {
        let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("no chunk: {line:?}"));
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let digits = line.strip_suffix("\r\n").ok_or_else(|| bad(&line))?;
        let size = usize::from_str_radix(digits.split(';').next().unwrap_or_default(), 16).map_err(|_| bad(&line))?;
        if size == 0 {
            let mut end = String::new();
            self.reader.read_line(&mut end)?;
            if end != "\r\n" {
                return Err(bad(&end));
            }
        }
        Ok(size)
    }
}

impl Read for Response {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if matches!(self.length, Length::Chunked(0)) {
            match self.chunk()? {
                0 => self.length = Length::Over,
                size => self.length = Length::Chunked(size),
            }
        }
        let left = match self.length {
            // A reader with nothing in hand would wait for more, even to read nothing.
            Length::Over | Length::Known(0) => return Ok(0),
            Length::Open => return self.reader.read(out),
            Length::Known(left) | Length::Chunked(left) => left.min(out.len()),
        };
        let read = self.reader.read(&mut out[..left])?;
        match &mut self.length {
            Length::Known(left) => {
                if read == 0 && *left > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= read;
            }
            Length::Chunked(left) => {
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= read;
                if *left == 0 {
                    let mut end = [0; 2];
                    self.reader.read_exact(&mut end)?;
                    if &end != b"\r\n" {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk without an end"));
                    }
                }
            }
            Length::Open | Length::Over => {}
        }
        Ok(read)
    }
}

/// A stream of events, read as they come. Dropping it closes the connection.
pub struct Events {
    response: Response,
    done: bool,
}

impl Events {
    /// The next event's data; `None` after `[DONE]`, behind which nothing may come.
    pub fn next_data(&mut self) -> Option<String> {
        let mut data: Option<String> = None;
        loop {
            let line = self.line();
            match (&line, &mut data) {
                (None, _) => {
                    assert!(self.done, "the stream ends without [DONE]");
                    return None;
                }
                (Some(line), Some(found)) if line.is_empty() => {
                    assert!(!self.done, "after [DONE] comes {found}");
                    if found == "[DONE]" {
                        self.done = true;
                        data = None;
                        continue;
                    }
                    return data;
                }
                (Some(line), _) if line.is_empty() || line.starts_with(':') => {}
                (Some(line), data) => {
                    let text = line.strip_prefix("data: ").unwrap_or_else(|| panic!("an event has a line {line:?}"));
                    assert!(data.is_none(), "an event has two lines of data");
                    *data = Some(text.to_owned());
                }
            }
        }
    }

    /// One line of the body without its end, which is LF.
    fn line(&mut self) -> Option<String> {
        let mut line = vec![];
        let mut byte = [0];
        loop {
            if self.response.read(&mut byte).expect("a stream is complete") == 0 {
                assert!(line.is_empty(), "the stream ends within a line");
                return None;
            }
            if byte[0] == b'\n' {
                return Some(String::from_utf8(line).expect("a stream in UTF-8"));
            }
            line.push(byte[0]);
        }
    }

    /// Closes the connection as a client that vanishes does.
    pub fn vanish(self) {
        let _ = self.response.reader.get_ref().shutdown(Shutdown::Both);
    }

    /// All that is left.
    pub fn rest(self) -> Vec<Value> {
        self.collect()
    }
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let data = self.next_data()?;
        Some(serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e} in {data}")))
    }
}
