//! A stream and a whole answer say the same, whatever is asked for; and both are what the tokens say.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tegula_engine::engine::{Scripted, SequenceSpec};

use super::super::answers::{COMPLETIONS, both, endpoint, with};
use super::super::server::Server;
use super::super::vocabulary::{CONTROL, ENDS, VOCAB, WORDS};
use super::list;

/// Text of one to four bytes a character, parts of such, words, calls, control tokens, and seldom an end: a function of the
/// answer so far and the seed.
fn babble(spec: &SequenceSpec, answer: &[u32]) -> u32 {
    const TEXT: &str =
        "aab bé日😀 stop<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"}é\"}}\n</tool_call> xyz";
    let mut hash = if spec.draw.temperature == 0.0 { 7 } else { spec.draw.seed ^ 0x5bd1_e995 };
    // What is said depends on where something of its own was said last, so that characters are often whole.
    let length = if hash.count_ones() % 2 == 0 { 9 } else { 120 };
    let begin = answer.len() / length * length;
    for &token in spec.prompt.iter().chain(&answer[..begin]) {
        hash = (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    let at = answer.len() - begin;
    if at == 0 {
        match hash >> 40 & 31 {
            0 => return ENDS[(hash >> 50) as usize % 3],
            n if n > 15 && length > 9 && begin > 0 => return ENDS[n as usize % 3],
            1..=4 => return 256 + (hash >> 50) as u32 % WORDS.len() as u32,
            5 => return 256 + WORDS.len() as u32 + (hash >> 50) as u32 % CONTROL.len() as u32,
            6 => return (hash >> 50) as u32 % 256,
            _ => {}
        }
    }
    let bytes = TEXT.as_bytes();
    u32::from(bytes[((hash >> 20) as usize % bytes.len() + at) % bytes.len()])
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Scripted::new(VOCAB, 16, 1024, 4096).says(babble)))
}

/// A field, or none.
fn field(name: &'static str, value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<(String, Value)>> {
    prop::option::weighted(0.3, value.prop_map(move |value| (name.to_owned(), value)))
}

fn flag(name: &'static str) -> impl Strategy<Value = Option<(String, Value)>> {
    field(name, any::<bool>().prop_map(Value::from))
}

/// Fields that both endpoints take.
fn common() -> impl Strategy<Value = Map<String, Value>> {
    let sampling = (
        field("seed", (0..9u64).prop_map(Value::from)),
        field("stop", prop::collection::vec("[ab é日😀st]{1,3}", 1..4).prop_map(|all| json!(all))),
        field("stop_token_ids", prop::collection::vec(0..VOCAB as u32, 1..6).prop_map(|all| json!(all))),
        field("min_tokens", (0..6u64).prop_map(Value::from)),
        field("logit_bias", Just(json!({ "97": -3, "98": 4.5 }))),
        field("bad_words", Just(json!(["xyz", "é"]))),
        field("repetition_penalty", Just(json!(1.3))),
        field("cache_salt", "[a-z]{1,3}".prop_map(Value::from)),
        field("priority", (-2..3i64).prop_map(Value::from)),
    );
    let shown = (
        flag("ignore_eos"),
        flag("include_stop_str_in_output"),
        flag("skip_special_tokens"),
        flag("return_tokens_as_token_ids"),
        field("prompt_logprobs", (0..3u64).prop_map(Value::from)),
        field("truncate_prompt_tokens", (1..30i64).prop_map(Value::from)),
        field("structured_outputs", Just(json!({ "regex": "[a-z é😀]{0,30}" }))),
    );
    (6u64..180, 1u64..4, any::<bool>(), sampling, shown).prop_map(|(max_tokens, n, greedy, a, b)| {
        let mut map = Map::new();
        map.insert("max_tokens".into(), max_tokens.into());
        map.insert("n".into(), if greedy { 1 } else { n }.into());
        map.insert("temperature".into(), if greedy { 0 } else { 1 }.into());
        map.insert("return_token_ids".into(), true.into());
        // Two requests without a seed are not the same.
        map.insert("seed".into(), 3.into());
        map.extend([a.0, a.1, a.2, a.3, a.4, a.5, a.6, a.7, a.8].into_iter().flatten());
        map.extend([b.0, b.1, b.2, b.3, b.4, b.5, b.6].into_iter().flatten());
        map
    })
}

fn completions() -> impl Strategy<Value = Value> {
    let text = "[a-cé日😀<> ]{1,24}";
    let tokens = prop::collection::vec(0..VOCAB as u32, 1..30);
    let prompt = prop_oneof![
        3 => text.prop_map(Value::from),
        1 => tokens.clone().prop_map(|tokens| json!(tokens)),
        1 => prop::collection::vec(text, 1..4).prop_map(|texts| json!(texts)),
        1 => prop::collection::vec(tokens, 1..3).prop_map(|lists| json!(lists)),
    ];
    let own = (flag("echo"), field("logprobs", (0..4u64).prop_map(Value::from)), flag("add_special_tokens"));
    (prompt, common(), own).prop_map(|(prompt, mut map, own)| {
        map.insert("prompt".into(), prompt);
        map.extend([own.0, own.1, own.2].into_iter().flatten());
        Value::Object(map)
    })
}

fn chats() -> impl Strategy<Value = Value> {
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let own = (
        prop::option::weighted(0.5, 0..4u64),
        field("tools", Just(json!([tool]))),
        flag("parallel_tool_calls"),
        flag("add_generation_prompt"),
    );
    ("[a-cé日😀<> ]{0,24}", common(), own).prop_map(|(content, mut map, (top, tools, parallel, generation))| {
        map.insert("messages".into(), json!([{ "role": "user", "content": content }]));
        if let Some(top) = top {
            map.extend([("logprobs".to_owned(), true.into()), ("top_logprobs".to_owned(), top.into())]);
        }
        map.extend([tools, parallel, generation].into_iter().flatten());
        Value::Object(map)
    })
}

/// The tokens of each choice, as a stream and as a whole answer tell them.
fn told(body: &Value) -> [Vec<Vec<u32>>; 2] {
    let client = &server().client;
    let mut streamed: Vec<Vec<u32>> = vec![];
    for event in client.stream(endpoint(body), body) {
        for choice in list(&event["choices"]) {
            let index = choice["index"].as_u64().expect("an index") as usize;
            streamed.resize(streamed.len().max(index + 1), vec![]);
            let tokens = list(&choice["token_ids"]);
            let says_who = choice["delta"]["role"].is_string();
            assert_eq!(tokens.len(), usize::from(!says_who), "a token an event: {event}");
            streamed[index].extend(tokens.iter().map(|id| id.as_u64().expect("a token") as u32));
        }
    }
    let answer = client.post(endpoint(body), body).ok();
    let whole = list(&answer["choices"]).iter().map(|choice| {
        serde_json::from_value(choice["token_ids"].clone()).unwrap_or_else(|error| panic!("{error} in {choice}"))
    });
    [streamed, whole.collect()]
}

fn laws(body: &Value) {
    let reply = both(&server().client, body);
    let [streamed, tokens] = told(body);
    assert_eq!(streamed, tokens);
    assert_eq!(reply.choices.len(), tokens.len());
    assert_eq!(reply.usage("completion_tokens"), tokens.iter().map(Vec::len).sum::<usize>() as u64);
    let most = body["max_tokens"].as_u64().expect("a number") as usize;
    let stops: Vec<&str> = body["stop"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (choice, tokens) in reply.choices.iter().zip(&tokens) {
        assert!(tokens.len() <= most);
        match choice.finish.as_str() {
            "length" => assert!(tokens.len() == most && choice.stop.is_null(), "{choice:?}"),
            "stop" => assert!(tokens.len() as u64 >= body["min_tokens"].as_u64().unwrap_or(0), "{choice:?}"),
            "tool_calls" => assert!(!choice.calls.is_empty()),
            other => panic!("{other}"),
        }
        let included = body["include_stop_str_in_output"] == true;
        let of_prompt = body["echo"] == true || body["min_tokens"].is_u64();
        if !included && !of_prompt && choice.calls.is_empty() {
            assert!(stops.iter().all(|stop| !choice.text.contains(stop)), "{stops:?} in {:?}", choice.text);
        }
        // Without ends, calls and controls the text is that of the bytes.
        let plain = tokens.iter().all(|&token| token < 256) && body["tools"].is_null() && body["echo"] != true;
        if choice.finish == "length" && plain && stops.is_empty() {
            let said: Vec<u8> = tokens.iter().map(|&token| token as u8).collect();
            assert_eq!(choice.text, String::from_utf8_lossy(&said));
        }
        let entries = match endpoint(body) {
            COMPLETIONS => &choice.logprobs["tokens"],
            _ => &choice.logprobs["content"],
        };
        match entries {
            Value::Null => assert!(body["logprobs"].is_null(), "{choice:?}"),
            entries if body["echo"] == true => assert!(list(entries).len() > tokens.len()),
            entries => assert_eq!(list(entries).len(), tokens.len(), "one for each token"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn completions_are_the_same_whole_and_streamed(body in completions()) {
        laws(&body);
    }

    #[test]
    fn chats_are_the_same_whole_and_streamed(body in chats()) {
        laws(&body);
    }

    /// Nothing that is asked of one changes what another gets.
    #[test]
    fn a_request_is_answered_beside_others_as_alone(bodies in prop::collection::vec(prop_oneof![completions(), chats()], 2..6)) {
        let server = server();
        let alone: Vec<Value> = bodies.iter().map(|body| server.client.post(endpoint(body), body).ok()).collect();
        let together: Vec<Value> = std::thread::scope(|scope| {
            let threads: Vec<_> = bodies.iter().map(|body| scope.spawn(|| server.client.post(endpoint(body), body).ok())).collect();
            threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
        });
        for (alone, together) in alone.iter().zip(&together) {
            let mut choices = [alone["choices"].clone(), together["choices"].clone()];
            choices.iter_mut().for_each(without_ids);
            prop_assert_eq!(&choices[0], &choices[1]);
        }
    }
}

/// Takes out the ids of calls, of which no two are the same.
fn without_ids(choices: &mut Value) {
    for choice in choices.as_array_mut().into_iter().flatten() {
        for call in choice["message"]["tool_calls"].as_array_mut().into_iter().flatten() {
            assert!(call["id"].is_string());
            call["id"] = Value::Null;
        }
    }
}

/// What the strategies make is not all short or all the same: a model that always ended at once would prove nothing.
#[test]
fn the_model_says_enough() {
    let body =
        json!({ "prompt": "abc", "n": 24, "temperature": 1, "seed": 5, "max_tokens": 60, "return_token_ids": true });
    let reply = both(&server().client, &body);
    assert!(
        reply.choices.iter().any(|choice| choice.finish == "stop")
            && reply.choices.iter().any(|c| c.finish == "length")
    );
    assert!(reply.choices.iter().any(|choice| choice.text.contains('😀')));
    assert!(reply.choices.iter().any(|choice| choice.text.contains('\u{fffd}')));
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let chat = with(
        body,
        json!({ "messages": [{ "role": "user", "content": "abc" }], "tools": [tool], "n": 64, "max_tokens": 200 }),
    );
    let reply = both(&server().client, &chat);
    let called = |finish: &str| reply.choices.iter().filter(|c| !c.calls.is_empty() && c.finish == finish).count();
    assert!(called("length") > 2 && called("tool_calls") > 2, "{reply:?}");
}
