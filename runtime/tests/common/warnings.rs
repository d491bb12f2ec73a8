//! What is warned of.

use std::{
    io,
    sync::{Arc, Mutex},
};

/// The warnings that are given meanwhile, one a line.
pub fn during(what: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let to = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(move || to.clone());
    tracing::subscriber::with_default(subscriber.finish(), what);
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}
