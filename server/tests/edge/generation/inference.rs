//! Tokens in, tokens out.

use serde_json::{Value, json};

use super::super::answers::{COMPLETIONS, completion};
use super::super::server::{Server, scripted};
use super::super::vocabulary::{ENDS, VOCAB, bytes};
use super::{list, says};

const GENERATE: &str = "/inference/v1/generate";

#[test]
fn tokens_go_on_as_the_text_would() {
    let server = Server::start(scripted());
    let sampling = json!({ "max_tokens": 9, "temperature": 1, "seed": 4, "n": 2, "logprobs": 1, "prompt_logprobs": 0 });
    let body = json!({ "token_ids": bytes("abc"), "sampling_params": sampling, "request_id": "mine" });
    let answer = server.client.post(GENERATE, &body).ok();
    assert_eq!(answer["request_id"], "mine");
    assert_eq!(list(&answer["prompt_logprobs"]).len(), 3);
    let more = json!({ "max_tokens": 9, "temperature": 1, "seed": 4, "n": 2, "return_token_ids": true });
    let same = server.client.post(COMPLETIONS, &completion("abc", more)).ok();
    for (own, other) in list(&answer["choices"]).iter().zip(list(&same["choices"])) {
        assert_eq!(own["token_ids"], other["token_ids"]);
        assert_eq!((&own["finish_reason"], list(&own["token_ids"]).len()), (&json!("length"), 9));
        assert_eq!(list(&own["logprobs"]["content"]).len(), 9);
        assert_eq!(list(&own["logprobs"]["content"][0]["top_logprobs"]).len(), 1);
    }
    assert_eq!(answer["usage"], same["usage"]);
    // As a stream.
    let options = json!({ "stream_options": { "include_usage": true } });
    let events = server.client.stream(GENERATE, &super::super::answers::with(body, options)).rest();
    let mut streamed = [vec![], vec![]];
    for choice in events.iter().flat_map(|event| list(&event["choices"])) {
        streamed[choice["index"].as_u64().expect("an index") as usize]
            .extend(list(&choice["token_ids"]).iter().cloned());
    }
    for (tokens, choice) in streamed.into_iter().zip(list(&answer["choices"])) {
        assert_eq!(Value::Array(tokens), choice["token_ids"]);
    }
    assert_eq!(events.last().expect("events")["usage"]["completion_tokens"], 18);
}

#[test]
fn stops_are_found_and_ends_are_told() {
    let server = says("one, two");
    let ask = |params: Value| {
        server.client.post(GENERATE, &json!({ "token_ids": [5], "sampling_params": params })).ok()["choices"][0].clone()
    };
    let choice = ask(json!({ "stop": [", t"], "max_tokens": 90 }));
    assert_eq!(
        (&choice["token_ids"], &choice["finish_reason"], &choice["stop_reason"]),
        (&json!(bytes("one, t")), &json!("stop"), &json!(", t"))
    );
    let ended = ask(json!({ "max_tokens": 90 }));
    assert_eq!(list(&ended["token_ids"]).last(), Some(&json!(ENDS[0])));
    assert_eq!(list(&ask(json!({ "ignore_eos": true }))["token_ids"]).len(), 16);
    let unset = server.client.post(GENERATE, &json!({ "token_ids": [5] })).ok();
    assert_eq!(list(&unset["choices"][0]["token_ids"]).len(), 9);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let server = says("ok");
    for (body, param) in [
        (json!({}), "token_ids"),
        (json!({ "token_ids": "text" }), "token_ids"),
        (json!({ "token_ids": [] }), "token_ids"),
        (json!({ "token_ids": [VOCAB] }), "token_ids"),
        (json!({ "token_ids": [-1] }), "token_ids"),
        (json!({ "token_ids": vec![1; 600] }), "token_ids"),
        (json!({ "token_ids": [1], "sampling_params": 5 }), "sampling_params"),
        (json!({ "token_ids": [1], "sampling_params": { "top_p": 0 } }), "sampling_params.top_p"),
        (json!({ "token_ids": [1], "sampling_params": { "top_p": "x" } }), "sampling_params.top_p"),
        (json!({ "token_ids": [1], "sampling_params": { "max_tokens": 0 } }), "sampling_params.max_tokens"),
        (json!({ "token_ids": [1], "sampling_params": { "max_tokens": 600 } }), "sampling_params.max_tokens"),
        (json!({ "token_ids": [1], "sampling_params": { "seed": 0.5 } }), "sampling_params.seed"),
        (
            json!({ "token_ids": [1], "sampling_params": { "use_beam_search": true } }),
            "sampling_params.use_beam_search",
        ),
        (
            json!({ "token_ids": [1], "sampling_params": { "structured_outputs": { "regex": "(" } } }),
            "sampling_params.structured_outputs",
        ),
        (json!({ "token_ids": [1], "kv_transfer_params": { "do_remote_decode": true } }), "kv_transfer_params"),
    ] {
        server.client.post(GENERATE, &body).refuses(param);
    }
    let answer = server
        .client
        .post(GENERATE, &json!({ "token_ids": [1], "sampling_params": { "colour": 1, "detokenize": false } }));
    assert_eq!((answer.status, answer.header("x-ignored-parameters")), (200, Some("sampling_params.colour")));
}
