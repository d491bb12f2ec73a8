//! Rows about text: characters over several tokens, stop strings, end tokens.

use serde_json::{Value, json};

use super::answers::{COMPLETIONS, ask, both, completion, message, put_together, streamed, with};
use super::server::{Server, scripted};
use super::vocabulary::{CONTROL, ENDS, IM_END, WORDS, bytes};

/// A server whose model says this, then ends.
fn says(text: impl AsRef<[u8]>) -> Server {
    Server::start(scripted().answers(&bytes(text)))
}

/// A server whose model says any bytes at all.
fn says_noise() -> Server {
    Server::start(scripted().says(|spec, answer| noise(spec.draw.seed, answer.len())))
}

fn noise(seed: u64, at: usize) -> u32 {
    let mut x = (seed ^ at as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) % 256) as u32
}

#[test]
pub fn t01_a_character_over_several_tokens() {
    for text in ["a😀b", "😀", "日本語 é ß", "👩‍👩‍👧‍👦 family", "\u{1f3f4}\u{e0067}\u{e0062}", "x\u{301}"]
    {
        let server = says(text);
        for body in [completion("p", json!({ "max_tokens": 80 })), message("p", json!({ "max_tokens": 80 }))] {
            let reply = both(&server.client, &body);
            assert_eq!((reply.text(), reply.finish()), (text, "stop"));
            for event in server.client.stream(super::answers::endpoint(&body), &body) {
                assert!(!event.to_string().contains('\u{fffd}'), "{event}");
            }
        }
    }
}

#[test]
pub fn t01_a_character_cut_off_by_the_last_token() {
    let server = says("a😀b");
    for most in 1..=6 {
        let reply = both(&server.client, &completion("p", json!({ "max_tokens": most })));
        let expected = String::from_utf8_lossy(&"a😀b".as_bytes()[..most]).into_owned();
        assert_eq!((reply.text(), reply.finish()), (&expected[..], "length"), "max_tokens {most}");
        assert_eq!(reply.usage("completion_tokens"), most as u64);
    }
}

#[test]
pub fn t01_several_answers_beside_each_other_do_not_mix_their_bytes() {
    let text = "日😀語";
    let server = says(text);
    let reply = both(&server.client, &completion("p", json!({ "n": 5, "temperature": 1, "max_tokens": 40 })));
    assert!(reply.choices.iter().all(|c| c.text == text), "{reply:?}");
}

#[test]
pub fn t03_bytes_that_are_no_text() {
    let server = says_noise();
    for seed in 0..12 {
        let sampling = json!({ "temperature": 100, "seed": seed, "max_tokens": 90 });
        let said: Vec<u8> = (0..90).map(|at| noise(seed, at) as u8).collect();
        let expected = String::from_utf8_lossy(&said).into_owned();
        for body in [completion("p", sampling.clone()), message("p", sampling.clone())] {
            assert_eq!(both(&server.client, &body).text(), expected, "seed {seed}");
        }
    }
}

#[test]
pub fn t03_what_json_and_events_write_in_special_ways() {
    let text = "a\0\u{1}\u{8}\t\n\r\r\n\n\ndata: x\n\n: y\u{1b}\"\\/\u{7f}\u{85}\u{2028}\u{2029}\u{feff}</script>";
    let server = says(text);
    for body in [completion("p", json!({ "max_tokens": 99 })), message("p", json!({ "max_tokens": 99 }))] {
        assert_eq!(both(&server.client, &body).text(), text);
    }
}

#[test]
pub fn t04_log_probabilities_of_bytes() {
    let said = [0xf0, 0x9f, 0x98, 0x80, 0xc3, 0xa9, 0xff, 0x41];
    let server = says(said);
    let body = message("p", json!({ "max_tokens": 8, "logprobs": true, "top_logprobs": 4 }));
    let reply = both(&server.client, &body);
    let content = reply.choices[0].logprobs["content"].as_array().expect("one for each token");
    assert_eq!(content.len(), said.len());
    for (entry, byte) in content.iter().zip(said) {
        assert_eq!(entry["bytes"], json!([byte]));
        let top = entry["top_logprobs"].as_array().expect("the most likely");
        let labels: std::collections::BTreeSet<String> = top.iter().map(|t| t["token"].to_string()).collect();
        assert_eq!(labels.len(), 4, "tokens that can be told apart: {entry}");
        assert_eq!(top[0]["token"], entry["token"]);
        for (t, next) in top.iter().zip(u64::from(byte)..) {
            let expected = if next < 256 { vec![next as u8] } else { WORDS[next as usize - 256].into() };
            assert_eq!(t["bytes"], json!(expected), "{t}");
        }
    }
    let names: Vec<&str> = content.iter().map(|entry| entry["token"].as_str().expect("a text")).collect();
    assert_eq!(names[7], "A");
    assert_eq!(names[6], "bytes:\\xff");
}

#[test]
pub fn t04_log_probabilities_of_bytes_in_completions() {
    let said = [0xf0, 0x9f, 0x98, 0x80, 0x42];
    let server = says(said);
    let reply = both(&server.client, &completion("p", json!({ "max_tokens": 5, "logprobs": 3 })));
    let logprobs = &reply.choices[0].logprobs;
    assert_eq!(logprobs["tokens"], json!(["bytes:\\xf0", "bytes:\\x9f", "bytes:\\x98", "bytes:\\x80", "B"]));
    for (i, top) in logprobs["top_logprobs"].as_array().expect("one for each token").iter().enumerate() {
        let top = top.as_object().expect("tokens and numbers");
        assert!(top.len() >= 3 && top.contains_key(logprobs["tokens"][i].as_str().unwrap()), "{top:?}");
        assert_eq!(top[logprobs["tokens"][i].as_str().unwrap()], logprobs["token_logprobs"][i]);
    }
    let offsets = logprobs["text_offset"].as_array().expect("one for each token");
    assert!(offsets.len() == 5 && offsets.windows(2).all(|w| w[0].as_u64() <= w[1].as_u64()), "{logprobs}");
    let by_number = completion("p", json!({ "max_tokens": 2, "logprobs": 1, "return_tokens_as_token_ids": true }));
    let tokens = &both(&server.client, &by_number).choices[0].logprobs["tokens"];
    assert_eq!(*tokens, json!(["token_id:240", "token_id:159"]));
}

#[test]
pub fn t05_a_stop_string_is_never_seen() {
    let server = says("ABCDEFGHIJ");
    let body = completion("p", json!({ "stop": "DEFGHIJ", "max_tokens": 50 }));
    let mut seen = String::new();
    for event in server.client.stream(COMPLETIONS, &body) {
        seen += event["choices"][0]["text"].as_str().unwrap_or_default();
        assert!("ABC".starts_with(&seen), "{seen}");
    }
    assert_eq!(seen, "ABC");
    let reply = both(&server.client, &body);
    assert_eq!((reply.text(), reply.finish(), &reply.choices[0].stop), ("ABC", "stop", &json!("DEFGHIJ")));
    assert_eq!(reply.usage("completion_tokens"), 10);
}

#[test]
pub fn t05_stop_strings_of_every_kind() {
    let check = |said: &str, stop: Value, more: Value, text: &str, reason: Value| {
        let server = says(said);
        let fields = with(json!({ "stop": stop, "max_tokens": 60 }), more);
        for body in [completion("p", fields.clone()), message("p", fields.clone())] {
            let reply = both(&server.client, &body);
            assert_eq!((reply.text(), &reply.choices[0].stop), (text, &reason), "{said:?} with {body}");
            assert_eq!(reply.finish(), "stop");
        }
    };
    let plain = || json!({});
    // At once; in the middle; the first to be complete, and of those the one that begins first; never.
    check("ABC", json!("A"), plain(), "", json!("A"));
    check("ABCABD", json!("ABD"), plain(), "ABC", json!("ABD"));
    check("ABCDE", json!(["DE", "BC", "D"]), plain(), "A", json!("BC"));
    check("ABABAC", json!(["ABAC"]), plain(), "AB", json!("ABAC"));
    check("ABCDEFGHX", json!("DEFGHIJ"), plain(), "ABCDEFGHX", Value::Null);
    check("ABCDEFGHI", json!("DEFGHIJ"), plain(), "ABCDEFGHI", Value::Null);
    // Of more bytes than characters.
    check("x日😀語y", json!("😀"), plain(), "x日", json!("😀"));
    check("xé", json!("é"), plain(), "x", json!("é"));
    // With it.
    check("ABCDEF", json!("CD"), json!({ "include_stop_str_in_output": true }), "ABCD", json!("CD"));
    // Not before there are enough tokens.
    check("ABABAB", json!("B"), json!({ "min_tokens": 4 }), "ABA", json!("B"));
}

#[test]
pub fn t05_a_stop_string_inside_a_token_of_several_characters() {
    // " the" then "DEF": the stop string begins in one and ends in the other.
    let server = Server::start(scripted().answers(&[256, 257, 65]));
    let reply = both(&server.client, &completion("p", json!({ "stop": ["eDE"], "max_tokens": 9 })));
    assert_eq!((reply.text(), reply.usage("completion_tokens")), (" th", 2));
    let with_it = json!({ "stop": ["eDE"], "max_tokens": 9, "include_stop_str_in_output": true });
    assert_eq!(both(&server.client, &completion("p", with_it)).text(), " theDE");
}

#[test]
pub fn t05_stop_strings_in_a_stream_of_several_answers() {
    let server = says("one, two, three");
    let body = completion("p", json!({ "stop": [", t"], "n": 3, "temperature": 1, "max_tokens": 40 }));
    let reply = both(&server.client, &body);
    assert!(reply.choices.iter().all(|c| c.text == "one" && c.finish == "stop"), "{reply:?}");
    assert_eq!(reply.usage("completion_tokens"), 3 * 6);
}

#[test]
pub fn t07_stop_strings_are_found_in_the_text_that_is_seen() {
    // A tag of reasoning is text as any other: a stop string may begin in it, and what is before stays whole.
    let said = "<think>ab</think>cd";
    for (stop, text) in
        [("k>c", "<think>ab</thin"), ("</think>", "<think>ab"), ("b</", "<think>a"), ("cd", "<think>ab</think>")]
    {
        let server = says(said);
        let reply = both(&server.client, &message("p", json!({ "stop": stop, "max_tokens": 60 })));
        assert_eq!((reply.text(), &reply.choices[0].stop), (text, &json!(stop)));
    }
    // The tag as one token.
    let mut tokens = bytes("ab");
    tokens.extend([259, u32::from(b'c')]);
    let server = Server::start(scripted().answers(&tokens));
    let reply = both(&server.client, &message("p", json!({ "stop": "k>c", "max_tokens": 60 })));
    assert_eq!(reply.text(), "ab</thin");
}

#[test]
pub fn t07_tokens_of_control_are_not_seen_and_stop_strings_do_not_see_them() {
    let mut tokens = bytes("AB");
    tokens.extend([IM_END - 1, u32::from(b'C'), u32::from(b'D')]);
    let server = Server::start(scripted().answers(&tokens));
    let ask_for = |more| both(&server.client, &completion("p", with(json!({ "max_tokens": 20 }), more)));
    assert_eq!(ask_for(json!({ "stop": "im_start" })).text(), "ABCD");
    assert_eq!(ask_for(json!({ "stop": "BC" })).text(), "A");
    let seen = ask_for(json!({ "skip_special_tokens": false }));
    assert_eq!(seen.text(), format!("AB{}CD", CONTROL[1]));
    let stopped = ask_for(json!({ "skip_special_tokens": false, "stop": "im_start" }));
    assert_eq!(stopped.text(), "AB<|");
}

#[test]
pub fn t09_every_end_token_ends() {
    for end in ENDS {
        let mut tokens = bytes("hi");
        tokens.push(end);
        tokens.extend(bytes(" and more"));
        let server = Server::start(scripted().answers(&tokens));
        for body in [completion("p", json!({ "max_tokens": 30 })), message("p", json!({ "max_tokens": 30 }))] {
            let reply = both(&server.client, &body);
            assert_eq!((reply.text(), reply.finish(), &reply.choices[0].stop), ("hi", "stop", &Value::Null));
            assert_eq!(reply.usage("completion_tokens"), 3);
        }
        // The model goes on where they are to be ignored.
        let ignored = both(&server.client, &completion("p", json!({ "max_tokens": 7, "ignore_eos": true })));
        assert_eq!((ignored.text(), ignored.finish()), ("hi and", "length"));
    }
}

#[test]
pub fn t09_tokens_that_were_asked_to_end() {
    let server = says("abcdef");
    let c = u32::from(b'c');
    let reply = both(&server.client, &completion("p", json!({ "max_tokens": 30, "stop_token_ids": [c, 1] })));
    assert_eq!((reply.text(), reply.finish(), &reply.choices[0].stop), ("ab", "stop", &json!(c)));
    let with_it = json!({ "max_tokens": 30, "stop_token_ids": [c], "include_stop_str_in_output": true });
    assert_eq!(both(&server.client, &completion("p", with_it)).text(), "abc");
    // They end it also where the model's own do not.
    let only = json!({ "max_tokens": 30, "stop_token_ids": [c], "ignore_eos": true });
    assert_eq!(both(&server.client, &completion("p", only)).text(), "ab");
}

#[test]
pub fn t42_usage_comes_last_and_only_if_it_is_asked_for() {
    let server = says("hello there");
    for body in [completion("prompt", json!({ "max_tokens": 50 })), message("prompt", json!({ "max_tokens": 50 }))] {
        for n in [1, 2] {
            let body = with(body.clone(), json!({ "n": n, "temperature": 1, "seed": 1 }));
            let reply = both(&server.client, &body);
            assert_eq!(reply.usage("completion_tokens"), n * 12);
            for options in
                [json!({}), json!({ "stream_options": { "include_usage": false } }), json!({ "stream_options": null })]
            {
                let reply = streamed(&server.client, &with(body.clone(), options));
                assert!(reply.usage.is_null());
            }
        }
    }
}

#[test]
pub fn t42_usage_with_every_chunk() {
    let server = says("hello");
    let options =
        json!({ "stream_options": { "include_usage": true, "continuous_usage_stats": true }, "max_tokens": 50 });
    for body in [completion("abc", options.clone()), message("abc", options.clone())] {
        let path = super::answers::endpoint(&body);
        let events: Vec<Value> = server.client.stream(path, &body).rest();
        let counts: Vec<u64> =
            events.iter().map(|e| e["usage"]["completion_tokens"].as_u64().expect("counts")).collect();
        assert!(counts.windows(2).all(|w| w[0] <= w[1]) && counts.last() == Some(&6), "{counts:?}");
        let whole = ask(&server.client, &body.clone_without("stream_options"));
        assert_eq!(events.last().expect("events")["usage"]["prompt_tokens"], whole.usage["prompt_tokens"]);
    }
}

#[test]
pub fn t42_no_usage_of_an_answer_that_nobody_waited_for() {
    let server =
        Server::start(scripted().answers(&bytes("x".repeat(400))).step_time(std::time::Duration::from_millis(2)));
    let body = completion("abc", json!({ "max_tokens": 400, "stream_options": { "include_usage": true } }));
    let mut events = server.client.stream(COMPLETIONS, &body);
    assert!(events.by_ref().take(3).all(|e| e["usage"].is_null()));
    events.vanish();
    server.wait_idle();
    // The next one's is its own.
    let short = with(body, json!({ "max_tokens": 2 }));
    let reply = put_together(server.client.stream(COMPLETIONS, &short), true);
    assert_eq!((reply.usage("prompt_tokens"), reply.usage("completion_tokens")), (3, 2));
}

#[test]
pub fn t42_options_of_a_stream_that_is_none() {
    let server = says("x");
    let body = completion("p", json!({ "stream_options": { "include_usage": true } }));
    server.client.post(COMPLETIONS, &body).refuses("stream_options");
    let body = completion("p", json!({ "stream": true, "stream_options": 7 }));
    server.client.post(COMPLETIONS, &body).refuses("stream_options");
    let body = completion("p", json!({ "stream": "yes" }));
    server.client.post(COMPLETIONS, &body).refuses("stream");
}

trait Without {
    fn clone_without(&self, field: &str) -> Value;
}

impl Without for Value {
    fn clone_without(&self, field: &str) -> Value {
        let mut clone = self.clone();
        clone.as_object_mut().expect("an object").remove(field);
        clone
    }
}

#[test]
fn noise_is_no_text() {
    let said: Vec<u8> = (0..90).map(|at| noise(3, at) as u8).collect();
    assert!(String::from_utf8(said).is_err());
}
