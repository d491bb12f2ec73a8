//! Too little room.

use tegula_engine::engine::{Request, Update};
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::FinishReason;

use super::support::{alone, assert_alone, exactly, model, prompt, request, start};

/// Blocks of 16, 7 of them, two prompts of 34 tokens with answers of 30: one loses its blocks, computes again, and says
/// what it would have said, each token once (row T30).
#[test]
fn a_preempted_answer_is_the_same() {
    for overlap in [false, true] {
        let engine = start(model(16, 7), |b| b.overlap(overlap));
        let all: Vec<_> = (0..2).map(|i| engine.generate(request(i, 34, 30)).unwrap()).collect();
        let mut preemptions = 0;
        for (i, generation) in all.into_iter().enumerate() {
            let completion = generation.wait();
            assert_alone(&completion, &prompt(i as u32, 34), &exactly(30), 1000);
            preemptions += completion.answers[0].end.as_ref().unwrap().num_preemptions;
        }
        assert!(preemptions > 0);
        assert_eq!(engine.stats().scheduler.num_preemptions, u64::from(preemptions));
        let line = format!("vllm:num_preemptions_total{{engine=\"0\",model_name=\"scripted\"}} {preemptions}\n");
        assert!(engine.metrics().text().contains(&line));
    }
}

/// Of a prompt in several chunks, computed twice since it lost its blocks, in one go before the first token (rows T25,
/// T26).
#[test]
fn log_probabilities_of_prompts_survive_chunks_and_preemption() {
    for overlap in [false, true] {
        let engine = start(model(4, 16), |b| b.max_num_seqs(3).max_num_batched_tokens(7).overlap(overlap));
        let params = SamplingParams { prompt_logprobs: Some(2), ..exactly(20) };
        let ask = |i: u32| engine.generate(Request::new(prompt(i % 2, 30), params.clone())).unwrap();
        let all: Vec<_> = (0..6).map(ask).collect();
        for (i, generation) in all.into_iter().enumerate() {
            let updates: Vec<Update> = generation.blocking().collect();
            assert!(matches!(updates[0], Update::Started { num_prompt_tokens: 30, num_cached_tokens: 0 }));
            let Update::PromptLogprobs(all) = &updates[1] else { panic!("{:?}", updates[1]) };
            let of: Vec<Option<u32>> = all.iter().map(|of| of.as_ref().map(|of| of.chosen.token)).collect();
            let mut tokens: Vec<Option<u32>> = prompt(i as u32 % 2, 30).into_iter().map(Some).collect();
            tokens[0] = None;
            assert_eq!(of, tokens);
            assert!(matches!(updates[2], Update::Token(_)));
            assert_eq!(updates.iter().filter(|u| matches!(u, Update::PromptLogprobs(_))).count(), 1);
        }
        assert!(engine.stats().scheduler.num_preemptions > 0);
    }
}

/// One request whose prompt and answer exceed all room: it ends when there is no more, and the queue goes on (row T31).
#[test]
fn an_answer_ends_with_the_room_there_is() {
    let engine = start(model(4, 5), |b| b);
    let room = 5 * 4 + 1;
    let params = SamplingParams { max_tokens: None, ..exactly(1) };
    let long = engine.generate(Request::new(prompt(1, 12), params.clone())).unwrap();
    let next = engine.generate(request(2, 12, 4)).unwrap();
    let completion = long.wait();
    assert_alone(&completion, &prompt(1, 12), &params, room - 12);
    let end = completion.answers[0].end.as_ref().unwrap();
    assert_eq!((end.reason, end.num_output_tokens), (FinishReason::Length, 9));
    assert_alone(&next.wait(), &prompt(2, 12), &exactly(4), 1000);
}

/// Better ones come first, and take the room of worse ones, who come back.
#[test]
fn priorities_count() {
    let engine = start(model(4, 24), |b| b.max_num_seqs(2));
    let ask = |i: u32, priority| engine.generate(Request { priority, ..request(i, 10, 40) }).unwrap();
    let all: Vec<_> = [(0, 5), (1, 5), (2, 5), (3, -1)].map(|(i, priority)| ask(i, priority)).into();
    let scheduled: Vec<_> = all
        .into_iter()
        .enumerate()
        .map(|(i, generation)| {
            let completion = generation.wait();
            assert_eq!(completion.answers[0].tokens, alone(&prompt(i as u32, 10), &exactly(40), 0, 1000).tokens);
            completion.answers[0].end.as_ref().unwrap().times.scheduled.unwrap()
        })
        .collect();
    assert!(scheduled[3] < scheduled[2], "the last to come, and the best");
}
