//! An engine that is checked when it goes, and answers as they must be, worked out by themselves.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tegula_engine::engine::{
    Completion, Engine, EngineBuilder, Heartbeat, ModelInfo, Request, Scripted, SequenceSpec, StepFault, StepModel,
    StepResult, Work,
};
use tegula_engine::metrics::{Ended, Observer};
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::FinishReason;
use tegula_engine::text::StopReason;
use tegula_engine::tokenizer::{Tokenizer, small::small};

/// Tokens: the bytes, and one that ends an answer.
pub const END: u32 = 256;
const VOCAB: usize = 257;

pub fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(small(&[], &["<end>"]))
}

/// A model that says [`next`] after everything.
pub fn model(block_size: usize, num_blocks: u32) -> Scripted {
    Scripted::new(VOCAB, block_size, num_blocks, 4096).says(|spec: &SequenceSpec, answer| {
        next(&spec.prompt, answer, if spec.draw.temperature == 0.0 { 0 } else { spec.draw.seed + 1 })
    })
}

/// The token after others: a lower-case letter, or, one time in forty, the end.
pub fn next(prompt: &[u32], answer: &[u32], seed: u64) -> u32 {
    let mut hash = seed;
    for &token in prompt.iter().chain(answer) {
        hash = (hash.rotate_left(11) ^ u64::from(token)).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    match (hash >> 40) % 40 {
        0 => END,
        n => u32::from(b'a') + n as u32 % 26,
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    pub tokens: Vec<u32>,
    pub text: String,
    pub reason: FinishReason,
    pub stop: Option<StopReason>,
}

/// What a request is answered when nothing is between it and the model, at most `room` tokens long.
pub fn alone(prompt: &[u32], params: &SamplingParams, sample: u32, room: usize) -> Expected {
    let seed = if params.temperature == 0.0 { 0 } else { params.seed.unwrap() + u64::from(sample) + 1 };
    let most = params.max_tokens.unwrap_or(usize::MAX).min(room);
    let mut of = Expected { tokens: vec![], text: String::new(), reason: FinishReason::Length, stop: None };
    while of.tokens.len() < most {
        let token = next(prompt, &of.tokens, seed);
        of.tokens.push(token);
        let counts = of.tokens.len() >= params.min_tokens;
        let ends = match token {
            _ if params.stop_token_ids.contains(&token) => Some(StopReason::Token(token)),
            END if !params.ignore_eos => Some(StopReason::EndOfText),
            _ => None,
        };
        // A token that ends an answer has no text in it.
        if token != END && !(counts && ends.is_some()) {
            of.text.push(char::from_u32(token).unwrap());
        }
        let found = params.stop.iter().filter(|stop| of.text.ends_with(*stop)).max_by_key(|stop| stop.len());
        // A text that ends before this token was found with the last.
        let fresh = token != END && !(counts && ends.is_some());
        if let Some(stop) = found.filter(|_| counts && fresh) {
            of.text.truncate(of.text.len() - stop.len());
            return Expected { reason: FinishReason::Stop, stop: Some(StopReason::Text(stop.clone())), ..of };
        }
        if counts && ends.is_some() {
            return Expected { reason: FinishReason::Stop, stop: ends, ..of };
        }
    }
    of
}

/// That a completion of a request is what it must be.
#[track_caller]
pub fn assert_alone(completion: &Completion, prompt: &[u32], params: &SamplingParams, room: usize) {
    assert_eq!(completion.answers.len(), params.n as usize);
    assert_eq!(completion.num_prompt_tokens, prompt.len());
    for (sample, answer) in completion.answers.iter().enumerate() {
        let end = answer.end.as_ref().unwrap();
        let found = Expected {
            tokens: answer.tokens.clone(),
            text: answer.text.clone(),
            reason: end.reason,
            stop: end.stop.clone(),
        };
        assert_eq!(found, alone(prompt, params, sample as u32, room), "sample {sample}: {end:?}");
        assert_eq!(end.num_output_tokens, answer.tokens.len());
        assert_eq!(end.error, None);
        let times = end.times;
        let order = [Some(times.arrival), Some(times.queued), times.scheduled, times.first_token, times.last_token];
        assert!(order.iter().all(Option::is_some) && order.is_sorted() && times.last_token <= Some(times.finished));
    }
}

/// An engine. When it is dropped everything that was asked of it has to have ended, and nothing to be left.
pub struct Checked {
    engine: Option<Engine>,
    model: Arc<()>,
    ended: Arc<Log>,
    pub failed: bool,
}

/// Ends, as an observer hears of them.
#[derive(Default)]
pub struct Log(pub Mutex<Vec<(String, u32, FinishReason)>>);

impl Observer for Log {
    fn ended(&self, ended: &Ended<'_>) {
        self.0.lock().unwrap().push((ended.asked.id.clone(), ended.end.sample, ended.end.reason));
    }
}

/// A model that is seen to go.
struct Held<M>(M, #[expect(dead_code)] Arc<()>);

impl<M: StepModel> StepModel for Held<M> {
    fn info(&self) -> ModelInfo {
        self.0.info()
    }
    fn run(&mut self, work: &Work, beat: &Heartbeat) -> Result<StepResult, StepFault> {
        self.0.run(work, beat)
    }
}

pub fn start(model: impl StepModel, configure: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Checked {
    let (held, ended) = (Arc::new(()), Arc::new(Log::default()));
    let builder = configure(Engine::builder("scripted")).observer(ended.clone());
    let engine = builder.build_on(Held(model, held.clone()), tokenizer(), None).unwrap();
    Checked { engine: Some(engine), model: held, ended, failed: false }
}

impl Deref for Checked {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }
}

impl Checked {
    pub fn ended(&self) -> Vec<(String, u32, FinishReason)> {
        self.ended.0.lock().unwrap().clone()
    }

    /// Waits until nothing is left to do.
    #[track_caller]
    pub fn until_idle(&self) {
        until("the engine is idle", || self.is_idle() && self.stats().scheduler.num_in_flight == 0);
    }

    /// An engine that cannot go on still owes its books to nobody.
    pub fn expect_failed(&mut self) {
        self.failed = true;
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        if std::thread::panicking() {
            return;
        }
        if !self.failed {
            until("all has ended", || engine.is_idle() && engine.stats().scheduler.num_in_flight == 0);
            let stats = engine.stats();
            let s = stats.scheduler;
            assert_eq!((s.num_running, s.num_waiting, s.kv.used), (0, 0, 0), "{s:?}");
            assert_eq!(s.kv.total(), engine.info().num_blocks as usize);
            assert_eq!((engine.check_integrity(), stats.integrity), (Ok(()), None));
            assert_eq!(engine.num_waiting(), 0);
        }
        drop(engine);
        assert_eq!(Arc::strong_count(&self.model), 1, "the device thread is still there");
        assert_eq!(Arc::strong_count(&self.ended), 1, "the engine thread is still there");
    }
}

/// Waits for something that must come.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A prompt of so many tokens that begins differently for each `first`.
pub fn prompt(first: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (first * 31 + i * 7) % 251).collect()
}

/// Greedy, of so many tokens, whatever they are.
pub fn exactly(tokens: usize) -> SamplingParams {
    SamplingParams { max_tokens: Some(tokens), ignore_eos: true, ..SamplingParams::greedy() }
}

pub fn request(first: u32, len: usize, tokens: usize) -> Request {
    Request::new(prompt(first, len), exactly(tokens))
}
