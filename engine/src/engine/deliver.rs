//! What is to be told, kept until the next step is planned: the device must not wait while readers are woken.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::update::Update;
use crate::metrics::{Asked, Ended, Metrics, Observer};

/// Updates on their way, in order.
#[derive(Debug, Default)]
pub struct Outbox(Vec<Post>);

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
        self.0.push(Post { to: to.clone(), update, end: None });
    }

    /// A sample's end.
    pub fn end(&mut self, to: &UnboundedSender<Update>, update: Update, end: End) {
        self.0.push(Post { to: to.clone(), update, end: Some(end) });
    }

    /// Tells everybody. Ends are counted and logged before their readers know: who then reads the metrics finds them.
    pub fn deliver(&mut self, metrics: &Metrics, observers: &[Arc<dyn Observer>]) {
        for Post { to, update, end } in self.0.drain(..) {
            if let (Some(end), Update::Finished(sample)) = (&end, &update) {
                let (num_cached_tokens, longest) = (end.num_cached_tokens, end.longest);
                let ended = Ended { asked: &end.asked, end: sample, num_cached_tokens, longest };
                metrics.ended(&ended);
                ended.log();
                observers.iter().for_each(|observer| observer.ended(&ended));
            }
            // A reader that has gone away has cancelled its request.
            let _ = to.send(update);
        }
    }
}
