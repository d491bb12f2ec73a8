//! Progress bars for work a user waits for, on standard error; nothing is shown if that is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts up to `total` bytes.
pub fn bytes(total: u64, message: impl Into<String>) -> ProgressBar {
    bar(total, message, "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} ({eta})")
}

/// A bar that counts up to `total` steps.
pub fn steps(total: u64, message: impl Into<String>) -> ProgressBar {
    bar(total, message, "{msg} [{wide_bar}] {pos}/{len} ({eta})")
}

fn bar(total: u64, message: impl Into<String>, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(message.into());
    // The templates are the two above; were one malformed, the default style would do.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
