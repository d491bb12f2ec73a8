//! How a request is taken: checked and prepared on its caller's thread, so that the engine's own has nothing to refuse.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc::unbounded_channel;

use super::command::{Command, Submission};
use super::device::SequenceSpec;
use super::request::{Request, SubmitError};
use super::shared::Place;
use super::{Engine, Generation};
use crate::grammar::{Form, Grammar, GrammarError, Grammars};
use crate::kv::CacheKey;
use crate::metrics::Asked;
use crate::sampling::{ParamError, allows};
use crate::schedule::NewRequest;

impl Engine {
    /// Takes a request. Checks its parameters and compiles its form, which may take milliseconds: not for a thread that
    /// must not wait.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tegula_engine::engine::{Engine, Request, Scripted, SubmitError};
    /// # use tegula_engine::tokenizer::small::small;
    /// use tegula_engine::sampling::SamplingParams;
    /// # let model = Scripted::new(257, 16, 64, 512);
    /// # let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None)?;
    /// let hot = SamplingParams { temperature: -1.0, ..SamplingParams::default() };
    /// let error = engine.generate(Request::new(vec![1, 2, 3], hot)).unwrap_err();
    /// assert_eq!(error.to_string(), "temperature is -1; it must be 0 or more");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it cannot be served; nothing was changed.
    pub fn generate(&self, request: Request) -> Result<Generation, SubmitError> {
        self.submit(request, &mut None)
    }

    /// Takes several requests, or none of them: as [`Engine::generate`] does, but a form that one has in common with the
    /// one before is compiled once.
    ///
    /// # Errors
    /// For the first that cannot be served; those before it are cancelled.
    pub fn generate_all(&self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Generation>, SubmitError> {
        let mut last = None;
        requests.into_iter().map(|request| self.submit(request, &mut last)).collect()
    }

    /// Takes a request. `last` is the form that was compiled last.
    fn submit(&self, request: Request, last: &mut Option<(Form, Arc<Grammar>)>) -> Result<Generation, SubmitError> {
        let inner = &*self.0;
        request.params.check(&inner.limits)?;
        let vocab_size = inner.limits.vocab_size;
        if let Some(place) = request.prompt.iter().position(|token| *token as usize >= vocab_size) {
            return Err(SubmitError::Token { token: request.prompt[place], place, last: vocab_size - 1 });
        }
        let number = inner.next_request.fetch_add(1, Ordering::Relaxed);
        let ends = request.params.ending_tokens(inner.tokenizer.ends());
        let key = CacheKey { cache_salt: request.cache_salt, ..CacheKey::model(&inner.info.identity) };
        let new = NewRequest {
            n: request.params.n,
            priority: request.priority,
            max_tokens: request.params.max_tokens,
            min_tokens: request.params.min_tokens,
            stop_token_ids: ends.clone(),
            // Each of the prompt's tokens has to be computed for its log-probability.
            skip_reading_prefix_cache: request.params.prompt_logprobs.is_some(),
            ..NewRequest::new(number, request.prompt, key)
        };
        new.admissible(&inner.config)?;
        // Before the form is compiled: an engine with enough to do has no time for more.
        let place = Place::take(&inner.shared, new.n as usize, inner.max_waiting)?;
        let form = match (request.form, &*last) {
            (None, _) => None,
            (Some(form), Some((same, grammar))) if form == *same => Some(grammar.clone()),
            (Some(form), _) => {
                let grammar = Arc::new(self.compile(&form)?);
                *last = Some((form, grammar.clone()));
                Some(grammar)
            }
        };
        if let (Some(form), Some(allowed)) = (&form, &request.params.allowed_token_ids) {
            can_begin((**form).clone(), allowed)?;
        }

        let id = request.id.unwrap_or_else(|| format!("req-{number}"));
        let asked = Asked::new(&id, new.prompt.len(), &request.params, request.traceparent.as_deref());
        let (params, ends) = (Arc::new(request.params), Arc::<[u32]>::from(ends));
        let spec = |draw| {
            let (prompt, params, ends, form) = (new.prompt.clone(), params.clone(), ends.clone(), form.clone());
            Arc::new(SequenceSpec { prompt, params, draw, ends, form })
        };
        let specs = params.draws().into_iter().map(spec).collect();
        let (updates, receiver) = unbounded_channel();
        let (arrival, queued) = (request.arrival, Instant::now());
        let submission = Submission { new, specs, asked, visible: request.visible, place, updates, arrival, queued };
        let commands = inner.commands.clone();
        let gone = |_| SubmitError::Failed("its thread has ended".into());
        commands.send(Command::Submit(Box::new(submission))).map_err(gone)?;
        Ok(Generation { request: number, id, updates: receiver, commands, left: params.n })
    }

    fn compile(&self, form: &Form) -> Result<Grammar, GrammarError> {
        let grammars = self.0.grammars.get_or_init(|| Grammars::new(self.0.tokenizer.clone()));
        grammars.as_ref().map_err(Clone::clone)?.compile(form)
    }
}

/// Of an answer's form and the tokens that are allowed: both must let it begin.
fn can_begin(mut form: Grammar, allowed: &[u32]) -> Result<(), SubmitError> {
    let mask = form.mask()?;
    if form.is_complete() || allowed.iter().any(|token| allows(&mask, *token)) {
        return Ok(());
    }
    let found = format!("{} tokens", allowed.len());
    let expected = "of tokens with one that the answer's form can begin with".into();
    Err(ParamError { field: "allowed_token_ids", value: found, expected }.into())
}
