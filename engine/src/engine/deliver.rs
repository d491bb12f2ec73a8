//! What is to be told, kept until the next step is planned: the device must not wait while readers are woken.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::device::thread::message;
use super::update::Update;
use crate::metrics::{Asked, Ended, Metrics, Observer};

/// Updates on their way, in order.
#[derive(Debug, Default)]
pub struct Outbox(VecDeque<Post>);

#[derive(Debug)]
struct Post {
    to: UnboundedSender<Update>,
    update: Update,
    end: Option<End>,
}

/// What is told of a sample's end besides the update itself.
#[derive(Debug)]
pub struct End {
    pub asked: Arc<Asked>,
    pub num_cached_tokens: usize,
    /// With a request's last sample: the most tokens that any of them has.
    pub longest: Option<usize>,
}

impl Outbox {
    /// An update that is no end.
    pub fn post(&mut self, to: &UnboundedSender<Update>, update: Update) {
        self.0.push_back(Post { to: to.clone(), update, end: None });
    }

    /// A sample's end.
    pub fn end(&mut self, to: &UnboundedSender<Update>, update: Update, end: End) {
        self.0.push_back(Post { to: to.clone(), update, end: Some(end) });
    }

    /// Tells everybody. Ends are counted and logged before their readers know: who then reads the metrics finds them.
    /// An observer that panics is nobody else's misfortune.
    pub fn deliver(&mut self, metrics: &Metrics, observers: &[Arc<dyn Observer>]) {
        while let Some(Post { to, update, end }) = self.0.pop_front() {
            if let (Some(end), Update::Finished(sample)) = (&end, &update) {
                let (num_cached_tokens, longest) = (end.num_cached_tokens, end.longest);
                let ended = Ended { asked: &end.asked, end: sample, num_cached_tokens, longest };
                metrics.ended(&ended);
                ended.log();
                for observer in observers {
                    let told = catch_unwind(AssertUnwindSafe(|| observer.ended(&ended)));
                    if let Err(panic) = told {
                        tracing::error!("an observer of ends panicked: {}", message(&*panic));
                    }
                }
            }
            // A reader that has gone away has cancelled its request.
            let _ = to.send(update);
        }
    }
}
