//! Rows about parameters: bounds, seeds, biases.

use serde_json::{Value, json};

use super::answers::{CHAT, COMPLETIONS, ask, both, completion, message, with};
use super::server::{Server, scripted};
use super::vocabulary::{VOCAB, bytes};

fn ok() -> Server {
    Server::start(scripted().answers(&bytes("ok")))
}

/// An object of one field.
fn field(name: &str, value: &Value) -> Value {
    Value::Object([(name.to_owned(), value.clone())].into_iter().collect())
}

#[test]
pub fn t17_bounds_of_numbers() {
    let server = ok();
    let bounds = [
        ("top_p", vec![json!(1.0), json!(1), json!(0.001), Value::Null], vec![json!(0.0), json!(1.01), json!(-0.1)]),
        (
            "temperature",
            vec![json!(0), json!(2), json!(0.7), json!(100), Value::Null],
            vec![json!(-0.1), json!(1e39), json!(-1e300)],
        ),
        (
            "top_k",
            vec![json!(0), json!(-1), json!(1), json!(1_000_000), Value::Null],
            vec![json!(-2), json!(0.5), json!(1e12)],
        ),
        ("min_p", vec![json!(0), json!(1), json!(0.5), Value::Null], vec![json!(1.01), json!(-0.01)]),
        ("typical_p", vec![json!(1), json!(0.5)], vec![json!(0), json!(1.5)]),
        ("repetition_penalty", vec![json!(1), json!(0.5), json!(2), Value::Null], vec![json!(0), json!(-1)]),
        ("presence_penalty", vec![json!(-2), json!(2), json!(0.5), Value::Null], vec![json!(2.01), json!(-2.01)]),
        ("frequency_penalty", vec![json!(-2), json!(2), json!(0.5), Value::Null], vec![json!(2.01), json!(-2.01)]),
        ("n", vec![json!(1), json!(2), Value::Null], vec![json!(0), json!(-1), json!(1.5), json!(1_000_000)]),
        (
            "seed",
            vec![json!(0), json!(i64::MAX), json!(-1), json!(u64::MAX), Value::Null],
            vec![json!(1.5), json!(1e300)],
        ),
        ("min_tokens", vec![json!(0), json!(1), Value::Null], vec![json!(-1)]),
        ("priority", vec![json!(0), json!(-5), Value::Null], vec![json!(1.5), json!(1e12)]),
    ];
    let no_number = [json!("0.5"), json!(true), json!([]), json!({}), json!([0.5])];
    for (name, right, wrong) in bounds {
        for body in [completion("p", json!({ "temperature": 1 })), message("p", json!({ "temperature": 1 }))] {
            for value in &right {
                let reply = ask(&server.client, &with(body.clone(), field(name, value)));
                assert_eq!(reply.text(), "ok", "{name} {value}");
            }
            let path = super::answers::endpoint(&body);
            for value in wrong.iter().chain(&no_number) {
                let error = server.client.post(path, &with(body.clone(), field(name, value))).refuses(name);
                assert!(error.message.contains(name), "{name} {value}: {}", error.message);
            }
        }
    }
}

#[test]
pub fn t17_bounds_of_everything_else() {
    let server = ok();
    let wrong = [
        ("stop", vec![json!(""), json!(["a", ""]), json!(5), json!([5]), json!({})]),
        ("stop_token_ids", vec![json!(5), json!(["a"]), json!([-1]), json!([VOCAB]), json!([1.5])]),
        ("bad_words", vec![json!("a"), json!([""]), json!([5])]),
        ("allowed_token_ids", vec![json!([]), json!([VOCAB]), json!([-1]), json!("a")]),
        ("ignore_eos", vec![json!("true"), json!(1)]),
        ("skip_special_tokens", vec![json!("true"), json!(0)]),
        ("include_stop_str_in_output", vec![json!("x")]),
        ("cache_salt", vec![json!(5), json!("")]),
        ("model", vec![json!(5), json!([])]),
        ("prompt_logprobs", vec![json!(-1), json!(21), json!("x"), json!(true)]),
        ("truncate_prompt_tokens", vec![json!(0), json!(-2), json!("x")]),
    ];
    for (name, values) in wrong {
        for value in values {
            let error = server.client.post(COMPLETIONS, &completion("p", field(name, &value))).refuses(name);
            assert!(error.message.contains(name), "{name} {value}: {}", error.message);
        }
    }
    for value in [json!(-1), json!(21), json!("x"), json!(true), json!(1.5)] {
        server.client.post(COMPLETIONS, &completion("p", json!({ "logprobs": value }))).refuses("logprobs");
        server
            .client
            .post(CHAT, &message("p", json!({ "logprobs": true, "top_logprobs": value })))
            .refuses("top_logprobs");
    }
    server.client.post(CHAT, &message("p", json!({ "logprobs": 5 }))).refuses("logprobs");
    server.client.post(CHAT, &message("p", json!({ "top_logprobs": 5 }))).refuses("top_logprobs");
    server.client.post(COMPLETIONS, &completion("p", json!({ "n": 2 }))).refuses("n");
    assert_eq!(ask(&server.client, &completion("p", json!({}))).text(), "ok");
}

#[test]
pub fn t17_parameters_that_would_change_the_answer_are_not_dropped() {
    let server = ok();
    let refused =
        [("use_beam_search", json!(true)), ("best_of", json!(2)), ("suffix", json!("x")), ("length_penalty", json!(2))];
    for (name, value) in refused {
        server.client.post(COMPLETIONS, &completion("p", field(name, &value))).refuses(name);
    }
    // What changes nothing is served, and told if it is not known.
    for (name, value) in [
        ("use_beam_search", json!(false)),
        ("suffix", Value::Null),
        ("length_penalty", json!(1.0)),
        ("user", json!("me")),
    ] {
        assert_eq!(ask(&server.client, &completion("p", field(name, &value))).text(), "ok", "{name}");
    }
    let answer = server.client.post(COMPLETIONS, &completion("p", json!({ "temprature": 0.5, "zzz": [1] })));
    let told = answer.header("x-ignored-parameters").expect("unknown parameters are told").to_owned();
    assert_eq!(told.split(',').map(str::trim).collect::<Vec<_>>(), ["temprature", "zzz"]);
    assert!(server.client.post(COMPLETIONS, &completion("p", json!({}))).header("x-ignored-parameters").is_none());
}

#[test]
pub fn t20_several_answers_are_those_of_several_seeds() {
    let server = Server::start(scripted());
    let body = |more| completion("p", with(json!({ "temperature": 1, "max_tokens": 12 }), more));
    let three = both(&server.client, &body(json!({ "n": 3, "seed": 1 })));
    let texts: Vec<&str> = three.choices.iter().map(|c| c.text.as_str()).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2], "{texts:?}");
    for (sub_seed, text) in (1..).zip(&texts) {
        assert_eq!(ask(&server.client, &body(json!({ "seed": sub_seed }))).text(), *text, "seed {sub_seed}");
    }
    assert_eq!(three.usage("completion_tokens"), 36);
    assert_eq!(three.usage("prompt_tokens"), 1);
    // Of several prompts each has its own.
    let several = both(&server.client, &with(body(json!({ "n": 2, "seed": 1 })), json!({ "prompt": ["p", "q"] })));
    assert_eq!(several.choices.len(), 4);
    assert_eq!((several.choices[0].text.as_str(), several.choices[1].text.as_str()), (texts[0], texts[1]));
    let q = ask(&server.client, &with(body(json!({ "n": 2, "seed": 1 })), json!({ "prompt": "q" })));
    assert_eq!(several.choices[2..], q.choices[..]);
    // The last seed is followed by the first.
    let last = both(&server.client, &body(json!({ "n": 2, "seed": u64::MAX })));
    assert_eq!(last.choices[1].text, ask(&server.client, &body(json!({ "seed": 0 }))).text());
}

#[test]
pub fn t21_without_a_seed_nobody_can_tell() {
    let (one, other) = (Server::start(scripted()), Server::start(scripted()));
    let body = |more| completion("p", with(json!({ "temperature": 1, "max_tokens": 16 }), more));
    let unseeded =
        [ask(&one.client, &body(json!({}))), ask(&one.client, &body(json!({}))), ask(&other.client, &body(json!({})))];
    assert!(unseeded[0] != unseeded[1] && unseeded[0] != unseeded[2] && unseeded[1] != unseeded[2]);
    let zero = ask(&one.client, &body(json!({ "seed": 0 })));
    assert_eq!(ask(&other.client, &body(json!({ "seed": 0 }))).choices, zero.choices);
    assert!(unseeded.iter().all(|reply| reply.choices != zero.choices), "0 is a seed as any other");
    assert_ne!(ask(&one.client, &body(json!({ "seed": null }))).choices, zero.choices);
    assert_ne!(ask(&one.client, &body(json!({ "seed": -1 }))).choices, zero.choices);
    let chat = |server: &Server, seed: Value| {
        ask(&server.client, &message("p", json!({ "temperature": 1, "max_tokens": 16, "seed": seed })))
    };
    assert_eq!(chat(&one, json!(5)).choices, chat(&other, json!(5)).choices);
    assert_ne!(chat(&one, Value::Null).choices, chat(&one, Value::Null).choices);
}

#[test]
pub fn t23_biases_that_are_none() {
    let server = ok();
    let wrong = [
        json!({ "999999": 1 }),
        json!({ "-1": 1 }),
        json!({ "abc": 1 }),
        json!({ "": 1 }),
        json!({ "5": 1e30 }),
        json!({ "5": -101 }),
        json!({ "5": "1" }),
        json!({ "5": null }),
        json!({ "5": [] }),
        json!({ "5.0": 1 }),
        json!({ " 5": 1 }),
        json!({ "+5": 1 }),
        json!({ "99999999999999999999": 1 }),
        json!([]),
        json!("5"),
        json!(5),
    ];
    for bias in wrong {
        server.client.post(COMPLETIONS, &completion("p", json!({ "logit_bias": bias }))).refuses("logit_bias");
        server.client.post(CHAT, &message("p", json!({ "logit_bias": bias, "stream": true }))).refuses("logit_bias");
        assert_eq!(ask(&server.client, &completion("p", json!({}))).text(), "ok", "after {bias}");
    }
    for bias in [json!({}), json!({ "5": 100 }), json!({ "5": -100 }), json!({ "0": 0.5 }), Value::Null] {
        assert_eq!(ask(&server.client, &completion("p", json!({ "logit_bias": bias }))).text(), "ok");
    }
}

#[test]
pub fn t23_more_than_can_be_wanted() {
    let server = ok();
    let many_stops: Vec<String> = (0..100_000).map(|i| format!("{i}")).collect();
    server.client.post(COMPLETIONS, &completion("p", json!({ "stop": many_stops }))).refuses("stop");
    server.client.post(COMPLETIONS, &completion("p", json!({ "stop": "x".repeat(1 << 20) }))).refuses("stop");
    server.client.post(COMPLETIONS, &completion("p", json!({ "bad_words": many_stops }))).refuses("bad_words");
    server
        .client
        .post(COMPLETIONS, &completion("p", json!({ "stop_token_ids": vec![1; 100_000] })))
        .refuses("stop_token_ids");
    let prompts: Vec<&str> = vec!["p"; 100_000];
    server.client.post(COMPLETIONS, &completion(json!(prompts), json!({}))).error(400);
    assert_eq!(ask(&server.client, &completion("p", json!({}))).text(), "ok");
}

#[test]
pub fn t23_others_are_served_beside_what_is_refused() {
    let server = Server::start(scripted().step_time(std::time::Duration::from_micros(300)));
    let body = completion("p", json!({ "max_tokens": 60 }));
    let alone = ask(&server.client, &body);
    std::thread::scope(|scope| {
        let good: Vec<_> = (0..4).map(|_| scope.spawn(|| both(&server.client, &body))).collect();
        for _ in 0..20 {
            server
                .client
                .post(COMPLETIONS, &completion("p", json!({ "logit_bias": { "999999": 1 } })))
                .refuses("logit_bias");
        }
        for thread in good {
            assert_eq!(thread.join().expect("served").choices, alone.choices);
        }
    });
}

#[test]
pub fn t25_log_probabilities_of_a_prompt_twice() {
    let server = Server::start(scripted());
    let prompt = "a prompt of more than one block, so that there is something in the cache";
    let body = completion(prompt, json!({ "prompt_logprobs": 2, "max_tokens": 3 }));
    let answer = |body: &Value| server.client.post(super::answers::endpoint(body), body).ok();
    let first = answer(&body);
    let logprobs = first["choices"][0]["prompt_logprobs"].as_array().expect("one for each token of the prompt");
    assert_eq!(logprobs.len(), prompt.len());
    assert!(logprobs[0].is_null() && logprobs[1..].iter().all(Value::is_object));
    for (entry, byte) in logprobs[1..].iter().zip(prompt.bytes().skip(1)) {
        let own = &entry[byte.to_string()];
        assert!(own["logprob"].is_number() && own["decoded_token"] == char::from(byte).to_string(), "{entry}");
    }
    // The cache holds it by now; it is computed all the same.
    for _ in 0..2 {
        let again = answer(&body);
        assert_eq!(again["choices"], first["choices"]);
        assert_eq!(ask(&server.client, &body).cached(), 0);
    }
    let plain = completion(prompt, json!({ "max_tokens": 3 }));
    assert!(ask(&server.client, &plain).cached() > 0);
    assert_eq!(ask(&server.client, &plain).choices, ask(&server.client, &body).choices);
    // In chat too, where they belong to the whole answer.
    let chat = message(prompt, json!({ "prompt_logprobs": 0, "max_tokens": 2 }));
    let (once, twice) = (answer(&chat), answer(&chat));
    assert_eq!(
        once["prompt_logprobs"].as_array().map(Vec::len).map(|n| n as u64),
        once["usage"]["prompt_tokens"].as_u64()
    );
    assert!(once["prompt_logprobs"][0].is_null());
    assert_eq!(once["prompt_logprobs"], twice["prompt_logprobs"]);
}

#[test]
pub fn t25_log_probabilities_of_a_prompt_in_parts() {
    let whole = Server::start(scripted());
    let parts =
        Server::with(scripted(), false, super::vocabulary::CHATML, |e| e.max_num_seqs(4).max_num_batched_tokens(7));
    let body = completion("a prompt of more than seven tokens", json!({ "prompt_logprobs": 3, "max_tokens": 2 }));
    let answer = |server: &Server| server.client.post(COMPLETIONS, &body).ok()["choices"].clone();
    assert_eq!(answer(&parts), answer(&whole));
}
