//! Progress of work a user waits for, on standard error: a bar on a terminal; elsewhere one line where it begins. A
//! process whose standard error is a log has an event there instead ([`to_log`]).

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Whether standard error is a log. Of the process, as that is.
static LOG: AtomicBool = AtomicBool::new(false);

/// From now on this process's standard error is a log: work that begins is a `tracing` event, at level info, and there are
/// no bars.
pub fn to_log() {
    LOG.store(true, Ordering::Relaxed);
}

/// Whether this process's standard error is a log.
pub fn is_log() -> bool {
    LOG.load(Ordering::Relaxed)
}

/// A bar that counts up to `total` bytes.
pub fn bytes(total: u64, message: impl Into<String>) -> ProgressBar {
    bar(total, message.into(), "{msg} [{wide_bar}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}{left}")
}

/// A bar that counts up to `total` steps.
pub fn steps(total: u64, message: impl Into<String>) -> ProgressBar {
    bar(total, message.into(), "{msg} [{wide_bar}] {pos}/{len}{left}")
}

/// A sign of life for work of unknown length; only on a terminal.
pub fn spinner(message: impl Into<String>) -> ProgressBar {
    if is_log() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(message.into());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn bar(total: u64, message: String, template: &str) -> ProgressBar {
    if is_log() {
        tracing::info!(target: "tegula::progress", "{message}");
        return ProgressBar::hidden();
    }
    if !std::io::stderr().is_terminal() {
        eprintln!("{message}");
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total).with_message(message);
    // The templates are the two above; were one malformed, the default style would do.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ").with_key("left", left)),
        Err(_) => bar,
    }
}

/// The time left.
fn left(state: &ProgressState, to: &mut dyn fmt::Write) {
    // A bar that cannot be written is not drawn.
    let _ = to.write_str(&time_left(state.fraction(), state.eta()));
}

/// The same, once enough is done to tell: the first steps wait for kernels to be compiled.
fn time_left(done: f32, left: Duration) -> String {
    if done < 0.2 { String::new() } else { format!(" ({:#} left)", HumanDuration(left)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_not_guessed_from_the_first_steps() {
        assert_eq!(time_left(0.1, Duration::from_secs(180)), "");
        assert_eq!(time_left(0.5, Duration::from_secs(180)), " (3m left)");
    }
}
