//! What the libraries have to say (`tracing` events), on standard error: warnings, or what `TEGULA_LOG` or else
//! `RUST_LOG` asks for.

use std::env;
use std::io;

use tracing::Subscriber;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry,
};

/// The variables that say what is shown; the first that is set counts.
const VARIABLES: [&str; 2] = ["TEGULA_LOG", "RUST_LOG"];

/// From here on events of this process are lines on standard error.
pub(super) fn start() {
    let (targets, complaint) = targets(VARIABLES.map(|name| (name, env::var(name).unwrap_or_default())));
    // An error means that there is a subscriber already: then that one is told.
    let _ = tracing::subscriber::set_global_default(subscriber(targets, io::stderr));
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
}

/// What is shown, and what is wrong with the variable that should say so.
fn targets(variables: [(&str, String); 2]) -> (Targets, Option<String>) {
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let Some((name, value)) = variables.into_iter().find(|(_, value)| !value.is_empty()) else {
        return (warnings, None);
    };
    match value.parse() {
        Ok(targets) => (targets, None),
        Err(e) => {
            let right = "expected a level (off, error, warn, info, debug, trace) or TARGET=LEVEL, separated by commas";
            (warnings, Some(format!("{name}: {right}, found `{value}` ({e}); showing warnings")))
        }
    }
}

fn subscriber(targets: Targets, to: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) -> impl Subscriber {
    let lines = fmt::layer().with_writer(to).without_time().with_target(false).with_ansi(false);
    registry().with(targets).with(lines)
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

    /// What is shown of a few events, with these values of the variables.
    fn shown(tegula_log: &str, rust_log: &str) -> (String, Option<String>) {
        let (targets, complaint) = targets([("TEGULA_LOG", tegula_log.into()), ("RUST_LOG", rust_log.into())]);
        let lines = Lines::default();
        let to = lines.clone();
        tracing::subscriber::with_default(subscriber(targets, move || to.clone()), || {
            tracing::error!(target: "tegula::cache", "broken");
            tracing::warn!(target: "tegula::cache", "the cache is full of {}", "sand");
            tracing::info!(target: "tegula::cache", "a remark");
            tracing::debug!(target: "other", "a detail");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (text, complaint)
    }

    #[test]
    fn warnings_are_shown_unless_a_variable_asks_for_more_or_less() {
        let warnings = "ERROR broken\n WARN the cache is full of sand\n";
        assert_eq!(shown("", ""), (warnings.into(), None));
        assert_eq!(shown("off", "trace"), (String::new(), None));
        assert_eq!(shown("error", ""), ("ERROR broken\n".into(), None));
        assert_eq!(shown("", "info").0, format!("{warnings} INFO a remark\n"));
        assert_eq!(shown("warn,other=debug", "").0, format!("{warnings}DEBUG a detail\n"));
    }

    #[test]
    fn a_wrong_variable_is_told_and_warnings_are_shown() {
        let (text, complaint) = shown("tegula=loud", "");
        assert!(text.contains("WARN the cache") && !text.contains("remark"), "{text}");
        let complaint = complaint.unwrap();
        for part in ["TEGULA_LOG: expected a level (off, error, warn", "found `tegula=loud`"] {
            assert!(complaint.contains(part), "{complaint}");
        }
    }
}
