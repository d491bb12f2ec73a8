//! The shapes of log-probabilities. The model's are −token/1000: of the token, and of those that follow it.

use serde_json::{Value, json};

use super::super::answers::{ask, both, completion, message, with};
use super::super::server::{Server, scripted};
use super::super::vocabulary::{BOS, CHATML, CONTROL, IM_END, bytes};
use super::{list, names, says};

#[test]
fn chats_have_them_as_openai_does() {
    let server = says("hé");
    let body = message("p", json!({ "logprobs": true, "top_logprobs": 2, "max_tokens": 3 }));
    let answer = server.client.post("/v1/chat/completions", &body).ok();
    let logprobs = &answer["choices"][0]["logprobs"];
    let token = |token: &str, id: u8| json!({ "token": token, "logprob": f64::from(id) / -1000.0, "bytes": [id] });
    let spot = |labels: [&str; 2], id: u8| {
        with(token(labels[0], id), json!({ "top_logprobs": [token(labels[0], id), token(labels[1], id + 1)] }))
    };
    let expected = json!({ "content": [
        spot(["h", "i"], b'h'),
        spot(["bytes:\\xc3", "bytes:\\xc4"], 0xc3),
        spot(["bytes:\\xa9", "bytes:\\xaa"], 0xa9),
    ] });
    assert_eq!(*logprobs, expected);
    // None of the most likely, and none at all.
    let none = both(&server.client, &message("p", json!({ "logprobs": true, "max_tokens": 1 })));
    assert_eq!(none.choices[0].logprobs["content"], json!([with(token("h", b'h'), json!({ "top_logprobs": [] }))]));
    for more in [json!({}), json!({ "logprobs": false }), json!({ "logprobs": false, "top_logprobs": 0 })] {
        let answer = server.client.post("/v1/chat/completions", &message("p", more)).ok();
        assert!(answer["choices"][0]["logprobs"].is_null() && names(&answer["choices"][0]).contains(&"logprobs"));
    }
}

#[test]
fn completions_have_them_as_openai_does() {
    let server = says("hé!");
    let reply = both(&server.client, &completion("p", json!({ "logprobs": 1, "max_tokens": 4 })));
    assert_eq!(
        reply.choices[0].logprobs,
        json!({
            "tokens": ["h", "bytes:\\xc3", "bytes:\\xa9", "!"],
            "token_logprobs": [-0.104, -0.195, -0.169, -0.033],
            "top_logprobs": [{ "h": -0.104 }, { "bytes:\\xc3": -0.195 }, { "bytes:\\xa9": -0.169 }, { "!": -0.033 }],
            // Both bytes of a character begin where it does.
            "text_offset": [0, 1, 1, 2],
        })
    );
    let more = ask(&server.client, &completion("p", json!({ "logprobs": 3, "max_tokens": 1 })));
    assert_eq!(more.choices[0].logprobs["top_logprobs"], json!([{ "h": -0.104, "i": -0.105, "j": -0.106 }]));
    // With none of the most likely there is still the one that was chosen.
    let none = ask(&server.client, &completion("p", json!({ "logprobs": 0, "max_tokens": 1 })));
    assert_eq!(none.choices[0].logprobs["top_logprobs"], json!([{ "h": -0.104 }]));
}

#[test]
fn tokens_without_text_have_no_characters() {
    let tokens = [u32::from(b'a'), IM_END - 1, u32::from(b'b')];
    let server = Server::start(scripted().answers(&tokens));
    let offsets = |more: Value| {
        let body = completion("p", with(json!({ "logprobs": 0, "max_tokens": 3 }), more));
        both(&server.client, &body).choices[0].logprobs["text_offset"].clone()
    };
    assert_eq!(offsets(json!({})), json!([0, 1, 1]));
    let name = CONTROL[1].chars().count();
    assert_eq!(offsets(json!({ "skip_special_tokens": false })), json!([0, 1, 1 + name]));
}

#[test]
fn an_echo_has_those_of_the_prompt_first() {
    let server = Server::with(scripted().answers(&bytes("!")), true, CHATML, |engine| engine);
    let body = completion("é<|im_end|>b", json!({ "echo": true, "logprobs": 1, "max_tokens": 1 }));
    let reply = both(&server.client, &body);
    assert_eq!(reply.text(), "é<|im_end|>b!");
    let logprobs = &reply.choices[0].logprobs;
    assert_eq!(logprobs["tokens"], json!(["<|bos|>", "bytes:\\xc3", "bytes:\\xa9", "<|im_end|>", "b", "!"]));
    // BOS was not in the text; the name of the other was.
    assert_eq!(logprobs["text_offset"], json!([0, 0, 0, 1, 11, 12]));
    let end = f64::from(IM_END) / -1000.0;
    assert_eq!(logprobs["token_logprobs"], json!([null, -0.195, -0.169, end, -0.098, -0.033]));
    assert!(logprobs["top_logprobs"][0].is_null());
    // Of tokens it has the text that answers have.
    let ids = json!([BOS, 97, IM_END, 98]);
    let hidden = both(&server.client, &completion(ids.clone(), json!({ "echo": true, "max_tokens": 1 })));
    assert_eq!(hidden.text(), "ab!");
    let named = completion(ids, json!({ "echo": true, "max_tokens": 1, "skip_special_tokens": false, "logprobs": 0 }));
    let named = both(&server.client, &named);
    assert_eq!(named.text(), "<|bos|>a<|im_end|>b!");
    assert_eq!(named.choices[0].logprobs["text_offset"], json!([0, 7, 8, 18, 19]));
}

#[test]
fn those_of_the_prompt_are_objects_by_token() {
    let server = says("!");
    let body = completion("ab", json!({ "prompt_logprobs": 2, "max_tokens": 1 }));
    let answer = server.client.post("/v1/completions", &body).ok();
    let of = |token: &str, id: u8, rank: u32| json!({ "logprob": f64::from(id) / -1000.0, "rank": rank, "decoded_token": token });
    assert_eq!(
        answer["choices"][0]["prompt_logprobs"],
        json!([null, { "98": of("b", b'b', 1), "99": of("c", b'c', 2) }])
    );
    // In a stream they come with the first chunk of each choice.
    let body = with(body, json!({ "n": 2, "temperature": 1 }));
    let events = server.client.stream("/v1/completions", &body).rest();
    let told: Vec<&Value> = events.iter().filter(|e| !e["choices"][0]["prompt_logprobs"].is_null()).collect();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|e| e["choices"][0]["prompt_logprobs"] == answer["choices"][0]["prompt_logprobs"]));
    // Its own bound, beside that of the echo.
    let both_kinds = json!({ "prompt_logprobs": 1, "logprobs": 3, "echo": true, "max_tokens": 1 });
    let choice = &server.client.post("/v1/completions", &completion("ab", both_kinds)).ok()["choices"][0];
    assert_eq!(names(&choice["prompt_logprobs"][1]), ["98"]);
    assert_eq!(names(&choice["logprobs"]["top_logprobs"][1]), ["b", "c", "d"]);
    let chat = server.client.post("/v1/chat/completions", &message("ab", json!({ "prompt_logprobs": 0 }))).ok();
    assert_eq!(list(&chat["prompt_logprobs"]).len() as u64, chat["usage"]["prompt_tokens"].as_u64().unwrap());
}

#[test]
fn tokens_by_their_numbers() {
    let server = says("hi");
    let more = json!({ "logprobs": 1, "return_tokens_as_token_ids": true, "return_token_ids": true, "max_tokens": 2 });
    let choice = &server.client.post("/v1/completions", &completion("p", more)).ok()["choices"][0];
    assert_eq!(choice["logprobs"]["tokens"], json!(["token_id:104", "token_id:105"]));
    assert_eq!((&choice["token_ids"], &choice["prompt_token_ids"]), (&json!([104, 105]), &json!([112])));
}
