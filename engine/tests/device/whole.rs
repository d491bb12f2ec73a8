//! A whole engine on a model: its threads, its memory, its texts.

use tegula::Device;
use tegula_engine::engine::{Completion, Engine, EngineBuilder, KvMemory, Request};
use tegula_engine::grammar::Form;
use tegula_engine::model::Activations;
use tegula_engine::sampling::SamplingParams;

use super::{file, prompt};

fn build(configure: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Option<Result<Engine, String>> {
    let file = file()?;
    let builder = configure(Engine::builder("shortened").max_num_seqs(8).max_model_len(512));
    Some(builder.build(&file, &Device::cpu(), Activations::Q8).map_err(|error| error.to_string()))
}

/// Requests of all kinds, some of which begin alike.
fn requests() -> Vec<Request> {
    let system = prompt(130, 1);
    (0..14)
        .map(|i: usize| {
            let own = prompt(1 + 37 * i % 100, 2 + i as u64);
            let tokens = if i.is_multiple_of(2) { [&system[..], &own].concat() } else { own };
            let params = SamplingParams {
                n: if i % 5 == 1 { 3 } else { 1 },
                temperature: if i.is_multiple_of(5) { 0.0 } else { 0.9 },
                top_p: if i.is_multiple_of(3) { 0.8 } else { 1.0 },
                repetition_penalty: if i % 4 == 2 { 1.3 } else { 1.0 },
                seed: Some(i as u64),
                max_tokens: Some(6 + 3 * i),
                min_tokens: i % 4,
                logprobs: (i % 3 == 1).then_some(2),
                prompt_logprobs: (i % 6 == 3).then_some(1),
                stop: vec!["e".into(), "the ".into()],
                ..SamplingParams::default()
            };
            let form = (i % 7 == 4).then(|| Form::Regex("[a-z]{3,9}( [a-z]{3,9}){2}".into()));
            Request { form, priority: i as i32 % 3, ..Request::new(tokens, params) }
        })
        .collect()
}

/// What is compared: all but times, and how much was cached.
fn said(completion: &Completion) -> String {
    let answers = completion.answers.iter().map(|answer| {
        let end = answer.end.as_ref().unwrap();
        (&answer.text, &answer.tokens, &answer.logprobs, end.reason, &end.stop, &end.error)
    });
    format!("{:?} {:?}", completion.prompt_logprobs, answers.collect::<Vec<_>>())
}

/// All at once, in steps of a few tokens that are planned ahead, with hardly room for all; and one after the other, in
/// steps of as many tokens as there are, without a cache: the same, to the bit.
#[test]
fn answers_are_those_of_each_request_alone() {
    let crowded = |b: EngineBuilder| b.kv_memory(KvMemory::Tokens(64 * 12)).max_num_batched_tokens(48);
    let lonely = |b: EngineBuilder| b.kv_memory(KvMemory::Tokens(64 * 40)).overlap(false).prefix_cache(false);
    let (Some(crowded), Some(lonely)) = (build(crowded), build(lonely)) else { return };
    let (crowded, lonely) = (crowded.unwrap(), lonely.unwrap());
    let alone: Vec<String> =
        requests().into_iter().map(|request| said(&lonely.generate(request).unwrap().wait())).collect();
    let all: Vec<_> = requests().into_iter().map(|request| crowded.generate(request).unwrap()).collect();
    for (generation, alone) in all.into_iter().zip(&alone) {
        assert_eq!(&said(&generation.wait()), alone);
    }
    assert!(crowded.stats().scheduler.num_preemptions > 0, "{:?}", crowded.stats());
    assert!(crowded.stats().scheduler.prefix_cache.hits >= 128);
    assert_eq!((crowded.check_integrity(), lonely.check_integrity()), (Ok(()), Ok(())));
    assert!(alone.iter().any(|said| said.contains("Text(")), "some end by a text");
}

#[test]
fn memory_is_what_was_asked_for() {
    let Some(engine) = build(|b| b.kv_memory(KvMemory::Tokens(1000))) else { return };
    let engine = engine.unwrap();
    let memory = engine.memory();
    assert_eq!((memory.num_blocks, memory.kv_tokens()), (16, 1024));
    assert_eq!(memory.kv(), 16 * memory.block_bytes);
    assert!(memory.weights > 1 << 20 && memory.step > 1 << 10 && memory.free.is_some(), "{memory:?}");
    assert!(memory.to_string().contains("1,024 tokens in 16 blocks of 64 tokens\n"), "{memory}");
    assert!(memory.to_string().ends_with("sequences that fit at once: 2 of 512 tokens"), "{memory}");
    let bytes = 5 * memory.block_bytes + 1;
    assert_eq!(build(|b| b.kv_memory(KvMemory::Bytes(bytes))).unwrap().unwrap().memory().num_blocks, 5);
    // No more than all sequences can use: 8 of 512 tokens.
    assert_eq!(build(|b| b).unwrap().unwrap().memory().num_blocks, 64);
    let refused = |memory| build(|b| b.kv_memory(memory)).unwrap().unwrap_err();
    assert!(refused(KvMemory::Bytes(1000)).contains("one, of 64 tokens, takes"));
    assert!(refused(KvMemory::Tokens(1 << 40)).contains("left"));
    let long = build(|b| b.max_model_len(1 << 20)).unwrap().unwrap_err();
    assert!(long.starts_with("max_model_len is 1048576; the model was made for sequences of at most"), "{long}");
}
