//! Many clients at once, each asking one thing after the other, as a stream or not, and often leaving in the middle. What
//! they are told must be what one client alone is told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;
use crate::cases::{Answer, Case, Reading};
use crate::http::Connection;
use crate::random::Random;
use crate::server::Server;

/// A case with its right answer.
pub struct Known {
    pub case: Case,
    pub answer: Answer,
}

/// Asks each alone.
pub fn alone(server: &Server, cases: Vec<Case>) -> Outcome<Vec<Known>> {
    let mut known = vec![];
    for case in cases {
        let answer = case.ask(&mut server.connect()?, &[])?;
        let answer = answer.map_err(|refused| format!("{}: {} {}", case.name, refused.status(), refused.text()))?;
        server.idle(Duration::from_secs(10))?;
        known.push(Known { case, answer });
    }
    Ok(known)
}

/// What became of the requests.
#[derive(Debug, Default)]
pub struct Tally {
    pub answered: AtomicU64,
    pub cancelled: AtomicU64,
    pub differing: AtomicU64,
    pub errors: AtomicU64,
    pub output_tokens: AtomicU64,
    /// The first that went wrong.
    pub details: Mutex<Vec<String>>,
}

impl Tally {
    fn note(&self, count: &AtomicU64, detail: String) {
        count.fetch_add(1, Relaxed);
        let mut details = self.details.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if details.len() < 10 {
            details.push(detail);
        }
    }
}

/// Lets `clients` ask for so long. At the end half of them leave and the others wait for their answers.
pub fn run(server: &Server, known: &[Known], clients: usize, time: Duration, seed: u64) -> Tally {
    let tally = Tally::default();
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (tally, random) = (&tally, Random(seed ^ (client as u64) << 32));
            scope.spawn(move || {
                let mut client = Client { server, known, tally, random, until, connection: None };
                while Instant::now() < until {
                    client.ask();
                }
            });
        }
    });
    tally
}

struct Client<'a> {
    server: &'a Server,
    known: &'a [Known],
    tally: &'a Tally,
    random: Random,
    until: Instant,
    /// Kept from one request to the next, sometimes.
    connection: Option<Connection>,
}

impl Client<'_> {
    fn ask(&mut self) {
        let Known { case, answer: right } = self.random.choose(self.known);
        let (outcome, how) = self.try_ask(case);
        let Tally { answered, cancelled, differing, errors, output_tokens, .. } = self.tally;
        match outcome {
            Ok(Reading::Whole(answer)) => {
                output_tokens.fetch_add(answer.tokens.1, Relaxed);
                if answer == *right {
                    answered.fetch_add(1, Relaxed);
                } else {
                    self.tally.note(differing, format!("{} ({how}): {answer:?} instead of {right:?}", case.name));
                }
            }
            Ok(Reading::Part(answer)) => {
                if answer.begins(right) {
                    cancelled.fetch_add(1, Relaxed);
                } else {
                    let detail = format!("{} ({how}), in part: {answer:?} instead of {right:?}", case.name);
                    self.tally.note(differing, detail);
                }
            }
            Ok(Reading::Refused(refused)) => {
                self.tally.note(errors, format!("{} ({how}): {} {}", case.name, refused.status(), refused.text()));
            }
            Err(error) => self.tally.note(errors, format!("{} ({how}): {error}", case.name)),
        }
    }

    fn try_ask(&mut self, case: &Case) -> (std::io::Result<Reading>, String) {
        // None of these changes the answer.
        let mut more: Vec<(&str, Value)> = vec![];
        let salted = self.random.once_in(2);
        if salted {
            more.push(("cache_salt", json!(format!("{:x}", self.random.next()))));
        }
        if self.random.once_in(4) {
            more.push(("priority", json!(self.random.below(3))));
        }
        let streams = !self.random.once_in(3);
        // After so many events; at 0, right after the request.
        let leaves = self.random.once_in(4).then(|| self.random.below(20));
        let stays = self.random.once_in(2);
        let how = format!("stream {streams}, salt {salted}, leaves {leaves:?}");
        let connection = self.connection.take().filter(|_| self.random.once_in(2)).map(Ok);
        let mut connection = match connection.unwrap_or_else(|| self.server.connect()) {
            Ok(connection) => connection,
            Err(error) => return (Err(error), how),
        };
        let until = self.until;
        let read = if streams {
            let enough = |events| leaves == Some(events) || !stays && Instant::now() > until;
            case.stream(&mut connection, &more, enough)
        } else if leaves == Some(0) {
            let sent = connection.send("POST", case.path, Some(&case.bytes(&more)));
            sent.map(|()| Reading::Part(Answer::default()))
        } else {
            case.ask(&mut connection, &more).map(|answer| answer.map_or_else(Reading::Refused, Reading::Whole))
        };
        match &read {
            Ok(Reading::Whole(_)) => self.connection = Some(connection),
            // Some leave rudely.
            Ok(Reading::Part(_)) if self.random.once_in(2) => connection.reset(),
            _ => {}
        }
        (read, how)
    }
}
