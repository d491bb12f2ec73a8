//! The engine's loop without its threads: a scheduler and a model that runs its plans, up to `depth` of them planned ahead.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tegula_engine::engine::{DecoderModel, Heartbeat, SequenceSpec, Start, StepModel, Work};
use tegula_engine::grammar::Grammar;
use tegula_engine::kv::CacheKey;
use tegula_engine::sampling::{SamplingParams, TokenLogprobs};
use tegula_engine::schedule::{FinishReason, NewRequest, Scheduler, SchedulerConfig, SequenceId};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub prompt: Vec<u32>,
    pub params: SamplingParams,
    pub form: Option<Grammar>,
    /// Tokens of the model that end an answer.
    pub ends: Vec<u32>,
    /// Steps that were planned before it comes.
    pub after: usize,
}

impl Ask {
    pub fn new(prompt: &[u32], params: SamplingParams) -> Ask {
        Ask { prompt: prompt.to_vec(), params, form: None, ends: vec![2], after: 0 }
    }
}

/// What a sequence got.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Got {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<TokenLogprobs>,
    pub prompt_logprobs: BTreeMap<usize, TokenLogprobs>,
    pub fault: Option<String>,
    pub reason: Option<FinishReason>,
    pub num_cached_tokens: usize,
}

/// A scheduler on a model, with what it still has in its cache.
pub struct Served {
    pub scheduler: Scheduler,
    next: u64,
}

impl Served {
    pub fn new(config: SchedulerConfig) -> Served {
        Served { scheduler: Scheduler::new(config).unwrap(), next: 0 }
    }

    /// Runs these requests to their ends; the answers in order, the samples of each.
    pub fn run(&mut self, model: &mut DecoderModel, asks: &[Ask]) -> Vec<Vec<Got>> {
        let (scheduler, first) = (&mut self.scheduler, self.next);
        self.next += asks.len() as u64;
        let depth = scheduler.config().max_concurrent_batches;
        let mut specs: BTreeMap<SequenceId, Arc<SequenceSpec>> = BTreeMap::new();
        let mut got: BTreeMap<SequenceId, Got> = BTreeMap::new();
        let (mut queue, mut ends, mut planned) = (VecDeque::new(), vec![], 0);
        let mut waiting: BTreeSet<usize> = (0..asks.len()).collect();
        let beat = Heartbeat::new();
        loop {
            while queue.len() < depth {
                let come: Vec<usize> = waiting.iter().copied().filter(|&i| asks[i].after <= planned).collect();
                for i in come {
                    waiting.remove(&i);
                    add(scheduler, first + i as u64, &asks[i], &mut specs, &mut got);
                }
                planned += 1;
                let Some(plan) = scheduler.plan() else { break };
                ends.extend(&plan.preempted);
                let start = |id| Start { id, spec: specs[&id].clone(), answer: got[&id].tokens.clone() };
                let starts = plan.admitted.iter().map(|a| start(a.id)).collect();
                queue.push_back(Work { plan, starts, ends: std::mem::take(&mut ends) });
            }
            let Some(work) = queue.pop_front() else {
                if waiting.is_empty() {
                    break;
                }
                continue;
            };
            let result = model.run(&work, &beat).unwrap();
            for (id, position, value) in result.prompt_logprobs {
                if let Some(got) = got.get_mut(&id) {
                    let before = got.prompt_logprobs.insert(position, value.clone());
                    assert!(before.is_none_or(|before| before == value), "computed again, it is another");
                }
            }
            let mut tokens = vec![];
            let mut logprobs = BTreeMap::new();
            for ((_, row), sampled) in work.plan.sampling_rows().zip(result.rows) {
                tokens.push(sampled.token);
                if !scheduler.is_live(row) {
                    continue;
                }
                if let Some(fault) = sampled.fault {
                    got.get_mut(&row.id).unwrap().fault = Some(fault.to_string());
                    ends.extend(scheduler.finish(row.id, FinishReason::Error).map(|f| f.id));
                }
                logprobs.insert(row.id, sampled.logprobs);
            }
            let output = scheduler.complete(work.plan.step, &tokens).unwrap();
            for new in &output.tokens {
                let got = got.get_mut(&new.id).unwrap();
                assert_eq!(got.tokens.len(), new.index);
                got.tokens.push(new.token);
                got.logprobs.extend(logprobs.remove(&new.id).flatten());
            }
            for finished in &output.finished {
                ends.push(finished.id);
                let got = got.get_mut(&finished.id).unwrap();
                (got.reason, got.num_cached_tokens) = (Some(finished.reason), finished.num_cached_tokens);
            }
        }
        scheduler.check_integrity().unwrap();
        let mut all: Vec<Vec<Got>> = vec![vec![]; asks.len()];
        got.into_iter().for_each(|(id, got)| all[(id.request - first) as usize].push(got));
        all
    }
}

fn add(
    scheduler: &mut Scheduler,
    request: u64,
    ask: &Ask,
    specs: &mut BTreeMap<SequenceId, Arc<SequenceSpec>>,
    got: &mut BTreeMap<SequenceId, Got>,
) {
    let params = Arc::new(ask.params.clone());
    let ends = params.ending_tokens(ask.ends.iter().copied());
    let new = NewRequest {
        n: params.n,
        max_tokens: params.max_tokens,
        min_tokens: params.min_tokens,
        stop_token_ids: ends.clone(),
        skip_reading_prefix_cache: params.prompt_logprobs.is_some(),
        ..NewRequest::new(request, ask.prompt.clone(), CacheKey::model("this"))
    };
    for (id, draw) in new.sequences().zip(params.draws()) {
        let (prompt, ends, form) = (ask.prompt.clone().into(), ends.clone().into(), ask.form.clone());
        specs.insert(
            id,
            Arc::new(SequenceSpec { prompt, params: params.clone(), draw, ends, form: form.map(Arc::new) }),
        );
        got.insert(id, Got::default());
    }
    scheduler.add(new).unwrap();
}
