//! A decoder under the scheduler's plans, without the engine's threads: what a sequence gets is what it gets alone, whatever
//! else is in the batch, however it was cut, planned ahead, preempted, or found in the cache.

mod serve;
#[path = "../../../tests/src/shortened.rs"]
mod shortened;
#[path = "../../../tests/src/skip.rs"]
mod skip;
mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;

use tegula::Device;
use tegula_engine::engine::{DecoderModel, Heartbeat, StepFault, StepModel, Work};
use tegula_engine::gguf::Gguf;
use tegula_engine::grammar::{Form, Grammars};
use tegula_engine::model::Activations;
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::{FinishReason, Input, Scheduler, SchedulerConfig};
use tegula_engine::tokenizer::{Special, Tokenizer};

use serve::{Ask, Got, Served};

const LAYERS: u32 = 3;
/// Blocks of the model's cache, for 64 tokens each.
const BLOCKS: u32 = 64;
const CONTEXT: usize = 1024;

/// The first layers of the demo model, if its file is here.
fn file() -> Option<Gguf> {
    let path = tegula_engine::pull::cached("smollm2").expect("a model this test knows");
    if path.is_none() {
        skip::skip("model smollm2 is not here; `tegula pull smollm2` fetches it");
    }
    Some(Gguf::from_bytes("shortened.gguf", shortened::shortened(&Gguf::open(path?).unwrap(), LAYERS)).unwrap())
}

fn model_of(file: &Gguf) -> DecoderModel {
    model_on(file, &Device::cpu())
}

fn model_on(file: &Gguf, device: &Device) -> DecoderModel {
    let mut model = DecoderModel::load(file, device, Activations::Q8).unwrap();
    model.prepare(BLOCKS, 512, 16).unwrap();
    model
}

/// Tokens of the vocabulary, text-like or not: any will do, and no two prompts begin alike.
fn prompt(n: usize, seed: u64) -> Vec<u32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        20 + (x >> 40) as u32 % 49_000
    };
    (0..n).map(|_| next()).collect()
}

fn config() -> SchedulerConfig {
    SchedulerConfig { max_num_batched_tokens: 512, max_num_seqs: 16, ..SchedulerConfig::new(BLOCKS, CONTEXT) }
}

/// Every sampling parameter, each with an effect, and both kinds of log-probabilities.
fn all_parameters(seed: u64) -> SamplingParams {
    SamplingParams {
        n: 2,
        temperature: 0.9,
        top_k: 200,
        top_p: 0.95,
        min_p: 0.001,
        typical_p: 0.98,
        repetition_penalty: 1.2,
        presence_penalty: 0.3,
        frequency_penalty: 0.2,
        logit_bias: [(330, 3.0), (28, -2.0)].into(),
        bad_words: vec![vec![260], vec![330, 330]],
        min_tokens: 3,
        max_tokens: Some(12),
        stop_token_ids: vec![284],
        seed: Some(seed),
        logprobs: Some(4),
        prompt_logprobs: Some(2),
        ..Default::default()
    }
}

/// Sequences of all kinds, coming one after the other.
fn crowd(grammars: &Grammars) -> Vec<Ask> {
    let greedy = |max| SamplingParams { max_tokens: Some(max), logprobs: Some(3), ..SamplingParams::greedy() };
    let random = |seed| SamplingParams { max_tokens: Some(20), seed: Some(seed), ..Default::default() };
    let object = r#"\{"name": "[a-z]{1,8}", "n": [1-9][0-9]{0,2}\}"#;
    let form = grammars.compile(&Form::Regex(object.into())).unwrap();
    let digits = grammars.compile(&Form::Regex("[0-9]{3}(-[0-9]{2}){4}".into())).unwrap();
    let mut asks = vec![
        Ask::new(&prompt(130, 1), greedy(80)),
        Ask::new(&prompt(3, 2), random(5)),
        Ask::new(&prompt(60, 3), all_parameters(6)),
        Ask { form: Some(form), ..Ask::new(&prompt(40, 4), SamplingParams { max_tokens: Some(60), ..random(7) }) },
        Ask::new(&prompt(180, 5), SamplingParams { n: 3, ..random(8) }),
        Ask { form: Some(digits), ..Ask::new(&prompt(55, 6), greedy(40)) },
        Ask::new(&prompt(1, 7), SamplingParams { ignore_eos: true, ..greedy(25) }),
        Ask::new(&prompt(90, 8), SamplingParams { allowed_token_ids: Some((40..140).collect()), ..all_parameters(9) }),
    ];
    for (i, ask) in asks.iter_mut().enumerate() {
        ask.after = i * 2;
    }
    asks
}

fn tokenizer(file: &Gguf) -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_gguf(file).unwrap())
}

/// Each alone, one step after the other, on an empty cache.
fn alone(model: &mut DecoderModel, asks: &[Ask]) -> Vec<Vec<Got>> {
    let config = SchedulerConfig { max_concurrent_batches: 1, enable_prefix_caching: false, ..config() };
    asks.iter().flat_map(|ask| Served::new(config.clone()).run(model, std::slice::from_ref(ask))).collect()
}

/// That these are the same, but for what was found in the cache.
#[track_caller]
fn same(found: &[Vec<Got>], expected: &[Vec<Got>], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (sample, (found, expected)) in found.iter().zip(expected).enumerate() {
            let found = Got { num_cached_tokens: expected.num_cached_tokens, ..found.clone() };
            assert_eq!(&found, expected, "{what}: request {i}, sample {sample}");
        }
    }
}

#[test]
fn in_any_company_a_sequence_gets_what_it_gets_alone() {
    let Some(file) = file() else { return };
    let (mut model, tokenizer) = (model_of(&file), tokenizer(&file));
    let asks = crowd(&Grammars::new(tokenizer.clone()).unwrap());
    let expected = alone(&mut model, &asks);

    // What each asked for, it got.
    let text = |got: &Got| {
        let ends: Vec<u32> = tokenizer.ends().collect();
        let tokens: Vec<u32> = got.tokens.iter().copied().filter(|token| !ends.contains(token)).collect();
        tokenizer.decode(&tokens)
    };
    let object: serde_json::Value = serde_json::from_str(&text(&expected[3][0])).unwrap();
    assert!(object["name"].is_string() && object["n"].is_i64() && object.as_object().unwrap().len() == 2, "{object}");
    let digits = text(&expected[5][0]);
    assert!(digits.len() == 15 && digits.bytes().all(|b| b.is_ascii_digit() || b == b'-'), "{digits}");
    for got in &expected[2] {
        assert_eq!(
            (got.logprobs.len(), got.prompt_logprobs.len()),
            (got.tokens.len(), if got == &expected[2][0] { 59 } else { 0 })
        );
        assert!(got.tokens.len() >= 3 && !got.tokens.contains(&260));
    }
    assert!(expected[7].iter().flat_map(|got| &got.tokens).all(|token| (40..140).contains(token)));
    assert!(expected[4][0].tokens != expected[4][1].tokens && expected[4][1].tokens != expected[4][2].tokens);
    assert_eq!(expected[6][0].tokens.len(), 25);

    for (ahead, budget, caching, blocks) in [
        (1, 512, true, BLOCKS),
        (2, 512, true, BLOCKS),
        (2, 64, true, BLOCKS),
        (2, 16, false, BLOCKS),
        (2, 48, true, 6),
        (1, 80, false, 6),
    ] {
        let config = SchedulerConfig {
            max_concurrent_batches: ahead,
            max_num_batched_tokens: budget,
            enable_prefix_caching: caching,
            num_blocks: blocks,
            watermark_blocks: 0,
            ..config()
        };
        let mut served = Served::new(config);
        let what = format!("{ahead} steps at once, {budget} tokens a step, cache {caching}, {blocks} blocks");
        same(&served.run(&mut model, &asks), &expected, &what);
        let stats = served.scheduler.stats();
        assert_eq!(stats.num_preemptions > 0, blocks < BLOCKS, "{what}: {} preemptions", stats.num_preemptions);
        // And again, on what is now in the cache.
        let again = served.run(&mut model, &asks);
        same(&again, &expected, &format!("{what}, again"));
        if caching && blocks == BLOCKS {
            assert_eq!(again[0][0].num_cached_tokens, 128, "{what}");
        }
    }
}

/// Seed and filters have no part in the most likely token.
#[test]
fn greedy_takes_no_notice_of_filters_and_seed() {
    let Some(file) = file() else { return };
    let mut model = model_of(&file);
    let greedy = SamplingParams { max_tokens: Some(24), ..SamplingParams::greedy() };
    let other = SamplingParams { top_p: 0.1, top_k: 5, seed: Some(7), ..greedy.clone() };
    let asks = [Ask::new(&prompt(20, 1), greedy), Ask::new(&prompt(20, 1), other)];
    let got = Served::new(config()).run(&mut model, &asks);
    assert_eq!(got[0], got[1]);
    assert_eq!(got[0][0].tokens.len(), 24);
}

/// Log-probabilities of an answer are the model's own, whatever rules chose its tokens: those that the answer has as part of
/// a prompt. And a long prompt has the same ones however it is cut.
#[test]
fn logprobs_are_the_models_own_in_answers_and_prompts() {
    let Some(file) = file() else { return };
    let (mut model, tokenizer) = (model_of(&file), tokenizer(&file));
    let form = Grammars::new(tokenizer).unwrap().compile(&Form::Regex("[0-9]{60}".into())).unwrap();
    let asked = SamplingParams { n: 1, logprobs: Some(5), prompt_logprobs: None, ..all_parameters(3) };
    let top_1 = SamplingParams { top_k: 1, logprobs: Some(5), seed: Some(1), ..Default::default() };
    let asks = [
        Ask::new(&prompt(10, 1), asked),
        Ask { form: Some(form), ..Ask::new(&prompt(11, 2), SamplingParams { max_tokens: Some(9), ..top_1.clone() }) },
        Ask::new(&prompt(9, 3), top_1),
    ];
    let got = Served::new(config()).run(&mut model, &asks);
    // Rules did change what was said, and what is written in JSON is finite.
    assert!(got[1][0].logprobs.iter().any(|of| of.rank > 5), "the form ruled nothing out");
    assert!(got[0][0].logprobs.iter().any(|of| of.rank > 1));
    for (ask, got) in asks.iter().zip(&got) {
        let got = &got[0];
        assert_eq!((got.logprobs.len(), got.fault.as_deref()), (got.tokens.len(), None));
        let numbers = got.logprobs.iter().flat_map(|of| of.top.iter().chain([&of.chosen]));
        assert!(numbers.clone().all(|l| l.logprob.is_finite()) && numbers.count() == 6 * got.tokens.len());
        let again = SamplingParams { prompt_logprobs: Some(5), max_tokens: Some(1), ..SamplingParams::greedy() };
        let as_prompt = Ask::new(&[&ask.prompt[..], &got.tokens].concat(), again);
        let own = &Served::new(config()).run(&mut model, &[as_prompt])[0][0];
        for (i, found) in got.logprobs.iter().enumerate() {
            assert_eq!(found, &own.prompt_logprobs[&(ask.prompt.len() + i)], "token {i}");
        }
    }

    let params = SamplingParams { prompt_logprobs: Some(10), max_tokens: Some(1), ..SamplingParams::greedy() };
    let long = [Ask::new(&prompt(300, 5), params)];
    let whole = Served::new(config()).run(&mut model, &long);
    assert_eq!(whole[0][0].prompt_logprobs.keys().copied().collect::<Vec<_>>(), Vec::from_iter(1..300));
    for budget in [16, 64, 100] {
        let config = SchedulerConfig { max_num_batched_tokens: budget, ..config() };
        assert_eq!(Served::new(config).run(&mut model, &long), whole, "{budget} tokens a step");
    }
}

/// Whose row has no token ends, and nobody else.
#[test]
fn a_row_that_cannot_have_a_token_ends_alone() {
    let Some(file) = file() else { return };
    // A token whose embedding is no number: a row after it has no logits.
    const POISON: u32 = 77;
    let mut bytes = shortened::shortened(&file, LAYERS);
    let table = file.find("token_embd.weight").unwrap();
    let row = table.bytes() as usize / file.require::<Vec<&str>>("tokenizer.ggml.tokens").unwrap().len();
    let data = file.data(table).unwrap();
    let place = bytes.windows(4096).position(|window| window == &data[..4096]).expect("the table is in the file");
    bytes[place + POISON as usize * row..][..2].copy_from_slice(&[0, 0x7e]);
    let file = Gguf::from_bytes("poisoned.gguf", bytes).unwrap();

    let (mut model, tokenizer) = (model_of(&file), tokenizer(&file));
    let greedy = SamplingParams { max_tokens: Some(10), logprobs: Some(2), ..SamplingParams::greedy() };
    let good = Ask::new(&prompt(70, 1), greedy.clone());
    let expected = alone(&mut model, std::slice::from_ref(&good));
    let bad = Ask::new(&[&prompt(5, 2)[..], &[POISON]].concat(), greedy.clone());
    let letters = Grammars::new(tokenizer.clone()).unwrap().compile(&Form::Regex("[a-z]+".into())).unwrap();
    let digits = tokenizer.encode("0", Special::AsText);
    let params = SamplingParams { allowed_token_ids: Some(digits), ..greedy.clone() };
    let never = Ask { form: Some(letters), ..Ask::new(&prompt(6, 3), params) };
    // A complete answer ends although no token that ends it is allowed.
    let zero = Grammars::new(tokenizer.clone()).unwrap().compile(&Form::Regex("0".into())).unwrap();
    let once = Ask { form: Some(zero), ends: tokenizer.ends().collect(), ..never.clone() };
    let random = SamplingParams { temperature: 0.7, top_p: 0.9, typical_p: 0.9, ..greedy };
    let also_bad = Ask::new(&[&prompt(9, 4)[..], &[POISON]].concat(), random);
    let got = Served::new(config()).run(&mut model, &[bad, good, never, also_bad, once]);
    same(&got[1..2], &expected, "beside rows that end");
    assert_eq!(got[1][0].reason, Some(FinishReason::Length));
    for (i, says) in [
        (0, "no token can be chosen at position 6"),
        (2, "no token is both of the answer's form and"),
        (3, "at position 10"),
    ] {
        let got = &got[i][0];
        assert!(got.fault.as_ref().is_some_and(|why| why.contains(says)), "{got:?}");
        assert_eq!((got.tokens.len(), got.logprobs.len()), (0, 0));
    }
    assert_eq!((&got[4][0].fault, got[4][0].tokens.len()), (&None, 2), "{:?}", got[4][0]);
}

/// A step that cannot be is refused as a whole, and the next one runs.
#[test]
fn a_step_that_cannot_be_fails_alone() {
    let Some(file) = file() else { return };
    let mut model = model_of(&file);
    let ask = [Ask::new(&prompt(20, 1), SamplingParams { max_tokens: Some(5), ..SamplingParams::greedy() })];
    let expected = Served::new(config()).run(&mut model, &ask);

    let mut scheduler = Scheduler::new(config()).unwrap();
    let new = tegula_engine::schedule::NewRequest::new(9, prompt(20, 1), tegula_engine::kv::CacheKey::model("this"));
    scheduler.add(new).unwrap();
    let plan = scheduler.plan().unwrap();
    let beat = Heartbeat::new();
    let mut refused = |change: &dyn Fn(&mut Work), says: &str| {
        let mut work = Work { plan: plan.clone(), starts: vec![], ends: vec![] };
        change(&mut work);
        match model.run(&work, &beat) {
            Err(StepFault::Step(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{says}: {other:?}"),
        }
    };
    refused(&|_| (), "sequence 9.0 never started");
    refused(&|w| w.plan.rows[0].input = Input::Tokens(vec![1; 19]), "19 tokens for 20 slots");
    refused(&|w| w.plan.rows[0].input = Input::Tokens(vec![49_152; 20]), "token 49152; there are 49152");
    refused(&|w| w.plan.rows[0].block_table = vec![BLOCKS], "block 64; there are 64");
    refused(&|w| w.plan.rows[0].block_table = vec![], "0 blocks");
    refused(&|w| w.plan.rows[0].start = 8190, "blocks for all");
    let sampled_by = Input::SampledBy { step: 1 << 40, row: 0 };
    refused(&|w| w.plan.rows[0].input = sampled_by.clone(), "step 1099511627776, which is not known");

    assert_eq!(Served::new(config()).run(&mut model, &ask), expected);
}

/// Once it is warm, no request waits for a kernel to be compiled or loaded.
#[test]
fn a_warm_model_has_all_its_kernels() {
    let Some(file) = file() else { return };
    let (device, tokenizer) = (Device::cpu(), tokenizer(&file));
    let mut model = model_on(&file, &device);
    model.warm().unwrap();
    let ready = device.num_kernels();
    let asks = crowd(&Grammars::new(tokenizer).unwrap());
    for budget in [512, 37] {
        let config = SchedulerConfig { max_num_batched_tokens: budget, ..config() };
        Served::new(config).run(&mut model, &asks);
        assert_eq!(device.num_kernels(), ready, "{budget} tokens a step");
    }
}

#[test]
fn what_a_model_is() {
    let Some(file) = file() else { return };
    let mut model = model_of(&file);
    model.warm().unwrap();
    let info = model.info();
    assert_eq!((info.vocab_size, info.context, info.block_size, info.num_blocks), (49_152, 8192, 64, BLOCKS));
    // 3 layers, keys and values, 3 heads of 64, 64 tokens, 2 bytes.
    assert_eq!(info.block_bytes, 3 * 2 * 3 * 64 * 64 * 2);
    assert!(info.weight_bytes as f64 > 0.9 * file.tensors().iter().map(|t| t.bytes()).sum::<u64>() as f64);
    let known: BTreeMap<&str, ()> = tegula_kernels::registry::KERNELS.iter().map(|k| (k.name, ())).collect();
    assert!(info.kernels.len() > 10 && info.kernels.iter().all(|name| known.contains_key(name.as_str())));
    assert!(model.step_bytes(512, 16) > 512 * 4 * (576 * 4 + 1536 * 2));
}
