//! What the libraries have to say (`tracing` events), on standard error: warnings, or what `TEGULA_LOG` or else
//! `RUST_LOG` asks for.
//!
//! A server says more: also remarks, such as one line for each request, with the time, as text or as JSON. Its threads
//! must not wait for whoever reads standard error, so a thread of its own writes the lines; if that cannot follow, lines
//! are lost.

use std::env;
use std::io;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry,
};

/// The variables that say what is shown; the first that is set counts.
const VARIABLES: [&str; 2] = ["TEGULA_LOG", "RUST_LOG"];

/// Lines that may wait to be written.
const WAITING: usize = 8192;

/// How a server writes its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people: the time, the level, what happened, `name=value`.
    Text,
    /// For machines: an object a line.
    Json,
}

/// While it lives, lines are written; when it is dropped, those that wait are.
#[must_use]
pub(super) struct Writing {
    _worker: Option<WorkerGuard>,
}

/// From here on events of this process are lines on standard error: those of a server if a format is given.
pub(super) fn start(server: Option<Format>) -> Writing {
    let usual = if server.is_some() { LevelFilter::INFO } else { LevelFilter::WARN };
    let (targets, complaint) = targets(usual, VARIABLES.map(|name| (name, env::var(name).unwrap_or_default())));
    // An error below means that there is a subscriber already: then that one is told.
    let worker = match server {
        None => {
            let _ = tracing::subscriber::set_global_default(plain(targets, io::stderr));
            None
        }
        Some(format) => {
            tegula_engine::progress::to_log();
            let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING).thread_name("log");
            let (writer, worker) = builder.finish(io::stderr());
            let _ = match format {
                Format::Text => tracing::subscriber::set_global_default(timed(targets, writer)),
                Format::Json => tracing::subscriber::set_global_default(json(targets, writer)),
            };
            Some(worker)
        }
    };
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
    Writing { _worker: worker }
}

/// What is shown, and what is wrong with the variable that should say so.
fn targets(usual: LevelFilter, variables: [(&str, String); 2]) -> (Targets, Option<String>) {
    // The exporter of spans remarks upon itself.
    let others = usual.min(LevelFilter::WARN);
    let usual = Targets::new().with_default(usual).with_targets(
        ["opentelemetry", "opentelemetry_sdk", "opentelemetry-otlp", "opentelemetry_otlp"].map(|name| (name, others)),
    );
    let Some((name, value)) = variables.into_iter().find(|(_, value)| !value.is_empty()) else {
        return (usual, None);
    };
    match value.parse() {
        Ok(targets) => (targets, None),
        Err(e) => {
            let right = "expected a level (off, error, warn, info, debug, trace) or TARGET=LEVEL, separated by commas";
            (usual, Some(format!("{name}: {right}, found `{value}` ({e}); showing what is usual")))
        }
    }
}

trait Writer: for<'a> MakeWriter<'a> + Send + Sync + 'static {}
impl<W: for<'a> MakeWriter<'a> + Send + Sync + 'static> Writer for W {}

/// Lines of a command: the level and what happened.
fn plain(targets: Targets, to: impl Writer) -> impl Subscriber + Send + Sync {
    let lines = fmt::layer().with_writer(to).without_time().with_target(false).with_ansi(false);
    registry().with(targets).with(lines)
}

/// The same with the time.
fn timed(targets: Targets, to: impl Writer) -> impl Subscriber + Send + Sync {
    registry().with(targets).with(fmt::layer().with_writer(to).with_target(false).with_ansi(false))
}

/// Lines of JSON: `timestamp`, `level`, `target`, `message`, and what belongs to it.
fn json(targets: Targets, to: impl Writer) -> impl Subscriber + Send + Sync {
    let lines = fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
    registry().with(targets).with(lines.with_writer(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// A writer whose text can be read afterwards.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// What is shown of a few events, with these values of the variables.
    fn shown(usual: LevelFilter, tegula_log: &str, rust_log: &str) -> (String, Option<String>) {
        let variables = [("TEGULA_LOG", tegula_log.into()), ("RUST_LOG", rust_log.into())];
        let (targets, complaint) = targets(usual, variables);
        let lines = Lines::default();
        let to = lines.clone();
        tracing::subscriber::with_default(plain(targets, move || to.clone()), || {
            tracing::error!(target: "tegula::cache", "broken");
            tracing::warn!(target: "tegula::cache", "the cache is full of {}", "sand");
            tracing::info!(target: "tegula::cache", "a remark");
            tracing::info!(target: "opentelemetry_sdk", "a remark upon itself");
            tracing::debug!(target: "other", "a detail");
        });
        (lines.text(), complaint)
    }

    #[test]
    fn warnings_are_shown_unless_a_variable_asks_for_more_or_less() {
        let warnings = "ERROR broken\n WARN the cache is full of sand\n";
        let shown = |tegula_log, rust_log| shown(LevelFilter::WARN, tegula_log, rust_log);
        assert_eq!(shown("", ""), (warnings.into(), None));
        assert_eq!(shown("off", "trace"), (String::new(), None));
        assert_eq!(shown("error", ""), ("ERROR broken\n".into(), None));
        assert_eq!(shown("", "info").0, format!("{warnings} INFO a remark\n INFO a remark upon itself\n"));
        assert_eq!(shown("warn,other=debug", "").0, format!("{warnings}DEBUG a detail\n"));
    }

    #[test]
    fn a_server_shows_remarks_too() {
        let remarks = "ERROR broken\n WARN the cache is full of sand\n INFO a remark\n";
        assert_eq!(shown(LevelFilter::INFO, "", ""), (remarks.into(), None));
        assert_eq!(shown(LevelFilter::INFO, "error", "").0, "ERROR broken\n");
    }

    #[test]
    fn a_wrong_variable_is_told_and_warnings_are_shown() {
        let (text, complaint) = shown(LevelFilter::WARN, "tegula=loud", "");
        assert!(text.contains("WARN the cache") && !text.contains("remark"), "{text}");
        let complaint = complaint.unwrap();
        for part in ["TEGULA_LOG: expected a level (off, error, warn", "found `tegula=loud`"] {
            assert!(complaint.contains(part), "{complaint}");
        }
    }

    /// An event of the kind that requests make, as a server's lines.
    fn request(format: Format) -> String {
        let lines = Lines::default();
        let to = lines.clone();
        let writer = move || to.clone();
        let targets = Targets::new().with_default(LevelFilter::INFO);
        let event = || {
            let (ttft, error) = (Some(0.25), None::<&str>);
            tracing::info!(target: "tegula::request", id = "a \"b\"\n", tokens = 7, ttft_s = ttft, error, "request ended");
        };
        match format {
            Format::Text => tracing::subscriber::with_default(timed(targets, writer), event),
            Format::Json => tracing::subscriber::with_default(json(targets, writer), event),
        }
        lines.text()
    }

    #[test]
    fn lines_of_json_are_objects_with_what_belongs_to_the_event() {
        let line = request(Format::Json);
        assert_eq!(line.lines().count(), 1, "{line}");
        let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
        let time = object.remove("timestamp").unwrap();
        assert!(time.as_str().is_some_and(|time| time.len() >= 20 && time.ends_with('Z')), "{time}");
        let expected = serde_json::json!({
            "level": "INFO", "target": "tegula::request", "message": "request ended",
            "id": "a \"b\"\n", "tokens": 7, "ttft_s": 0.25,
        });
        assert_eq!(serde_json::Value::from(object), expected);
    }

    #[test]
    fn lines_of_text_have_the_time_and_no_line_breaks_of_others() {
        let line = request(Format::Text);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains("Z  INFO request ended id=\"a \\\"b\\\"\\n\" tokens=7 ttft_s=0.25"), "{line}");
    }
}
