//! One running `tegulac`.
//!
//! A thread of its own speaks with each process, so that a request can be given up: when time is over the process is
//! killed, which ends the thread's reading or writing.

use super::CompileError;
use std::{
    io::{self, BufReader, Read},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tegula_ir::protocol::{ProtocolError, Request, Response, read_frame, write_frame};

/// How much of the end of standard error is kept.
const TAIL: usize = 4000;

/// A compiler process. Dropping it kills the process.
pub struct Worker {
    child: Child,
    requests: Option<SyncSender<Request>>,
    answers: Receiver<Result<Response, ProtocolError>>,
    said: Arc<Mutex<Vec<u8>>>,
    listener: Option<JoinHandle<()>>,
}

/// What happened to a worker that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In words.
    pub what: String,
    /// The end of its standard error.
    pub said: String,
}

impl Worker {
    /// Starts the program.
    pub fn start(program: &Path) -> Result<Worker, CompileError> {
        let unusable = |e: io::Error| CompileError::Unusable { program: program.into(), why: e.to_string() };
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A time-out here is this process's business; an interrupt at the terminal is not the compiler's.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = spawn(&mut command).map_err(unusable)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(mut stderr)) = pipes else {
            return Err(unusable(io::Error::other("it has no pipes")));
        };
        let (requests, incoming) = sync_channel(1);
        let (outgoing, answers) = sync_channel(1);
        let said = Arc::new(Mutex::new(vec![]));
        let heard = said.clone();
        // Whole before the threads are: without them it is dropped, which kills the process.
        let mut worker = Worker { child, requests: Some(requests), answers, said, listener: None };
        std::thread::Builder::new()
            .name("tegulac".into())
            .spawn(move || converse(stdin, stdout, incoming, outgoing))
            .map_err(unusable)?;
        let listener = std::thread::Builder::new()
            .name("tegulac-stderr".into())
            .spawn(move || listen(&mut stderr, &heard))
            .map_err(unusable)?;
        worker.listener = Some(listener);
        Ok(worker)
    }

    /// Whether the process still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a request and waits for the answer. After a failure the worker is good for nothing.
    pub fn request(&mut self, request: &Request, timeout: Duration) -> Result<Response, Failure> {
        let sent = self.requests.as_ref().is_some_and(|to| to.send(request.clone()).is_ok());
        let answer = if sent { self.answers.recv_timeout(timeout) } else { Err(RecvTimeoutError::Disconnected) };
        let what = match answer {
            Ok(Ok(response)) => return Ok(response),
            Err(RecvTimeoutError::Timeout) => format!("it gave no answer within {timeout:?} and was stopped"),
            Ok(Err(ProtocolError::Io(_))) | Err(RecvTimeoutError::Disconnected) => match self.end() {
                Some(status) => describe(status),
                None => "it closed its output without an answer and was stopped".into(),
            },
            Ok(Err(e)) => format!("its answer makes no sense: {e}"),
        };
        self.kill();
        Err(Failure { what, said: self.last_words() })
    }

    /// How the process ended, if it does so shortly.
    fn end(&mut self) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begun.elapsed() < Duration::from_secs(2) => std::thread::sleep(Duration::from_millis(2)),
                _ => return None,
            }
        }
    }

    fn kill(&mut self) {
        self.requests = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The end of what the process, now dead, wrote to standard error.
    fn last_words(&mut self) -> String {
        // A child of the child may hold the pipe open: do not wait for its end for long.
        let begun = Instant::now();
        while self.listener.as_ref().is_some_and(|l| !l.is_finished()) && begun.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).trim().to_string()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a program, also one that somebody is just writing.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 0..20 {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::sleep(Duration::from_millis(25)),
            started => return started,
        }
    }
    command.spawn()
}

fn converse(
    mut stdin: ChildStdin,
    stdout: ChildStdout,
    requests: Receiver<Request>,
    answers: SyncSender<Result<Response, ProtocolError>>,
) {
    let mut stdout = BufReader::new(stdout);
    for request in requests {
        let answer = write_frame(&mut stdin, &request).and_then(|()| {
            let eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
            read_frame::<Response>(&mut stdout)?.ok_or_else(|| eof().into())
        });
        let last = answer.is_err();
        if answers.send(answer).is_err() || last {
            return;
        }
    }
}

fn listen(stderr: &mut impl Read, said: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1024];
    while let Ok(n @ 1..) = stderr.read(&mut chunk) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&chunk[..n]);
        let excess = said.len().saturating_sub(TAIL);
        said.drain(..excess);
    }
}

fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            libc::SIGABRT => " (abort)",
            libc::SIGSEGV => " (segmentation fault)",
            libc::SIGBUS => " (bus error)",
            libc::SIGILL => " (illegal instruction)",
            libc::SIGKILL => " (kill; out of memory?)",
            libc::SIGTERM => " (terminate)",
            _ => "",
        };
        return format!("it was ended by signal {signal}{name}");
    }
    format!("it ended without an answer ({status})")
}

/// What `program --version` prints.
pub(super) fn version(program: &Path, timeout: Duration) -> Result<String, CompileError> {
    let unusable = |why: String| CompileError::Unusable { program: program.into(), why };
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = spawn(&mut command).map_err(|e| unusable(e.to_string()))?;
    let Some(stdout) = child.stdout.take() else { return Err(unusable("it has no output".into())) };
    let (to, answer) = sync_channel(1);
    std::thread::spawn(move || {
        let mut text = vec![];
        let read = stdout.take(10_000).read_to_end(&mut text);
        let _ = to.send(read.map(|_| text));
    });
    let text = answer.recv_timeout(timeout);
    // One that has closed its output is about to end; any other is stopped.
    let begun = Instant::now();
    while text.is_ok() && matches!(child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    let status = child.wait().map_err(|e| unusable(e.to_string()))?;
    match text {
        Ok(Ok(text)) if status.success() && text.starts_with(b"tegulac ") => {
            Ok(String::from_utf8_lossy(text.trim_ascii()).into_owned())
        }
        Ok(_) if status.success() => Err(unusable("it is no `tegulac`: its `--version` names another program".into())),
        Ok(_) => Err(unusable(format!("`--version` gives no version ({status})"))),
        Err(_) => Err(unusable(format!("`--version` gave no answer within {timeout:?}"))),
    }
}
