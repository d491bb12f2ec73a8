//! Rows about the form of answers: tool calls, JSON, grammars.

use serde_json::{Value, json};
use tegula_engine::engine::Scripted;

use super::answers::{CHAT, COMPLETIONS, ask, both, completion, message, with};
use super::server::{Server, scripted};
use super::vocabulary::{VOCAB, bytes};

/// A model with room for what it is told of tools, which is long in bytes.
fn roomy() -> Scripted {
    Scripted::new(VOCAB, 16, 512, 4096)
}

/// A server whose model says this, then ends.
fn says(text: &str) -> Server {
    Server::start(roomy().answers(&bytes(text)))
}

fn tool(name: &str, parameters: Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "description": "Does it.", "parameters": parameters } })
}

fn with_tools(more: Value) -> Value {
    let any = json!({ "type": "object" });
    let tools = json!({ "tools": [tool("find", any.clone()), tool("keep", any)], "max_tokens": 300 });
    message("p", with(tools, more))
}

fn call(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({ "name": name, "arguments": arguments }))
}

#[test]
pub fn t37_arguments_with_all_that_confuses() {
    let all = [
        json!({ "q": "{[}]\"\\\" \\u00e9 }}}{{{" }),
        json!({ "a": { "b": [1, { "c": "</tool_call>" }], "d": "<tool_call>" }, "é": "日本😀" }),
        json!({ "empty": {}, "list": [], "none": null, "yes": true, "number": -1.5e-7, "text": "" }),
        json!({}),
        json!({ "lines": "a\nb\r\n\tc\u{1}", "quote": "\\\"\\\\\"" }),
    ];
    for arguments in all {
        for lead in ["", "Let me look: {\"a\"} ", "<tool_cal <"] {
            let server = says(&format!("{lead}{}", call("find", &arguments)));
            let reply = both(&server.client, &with_tools(json!({})));
            let choice = &reply.choices[0];
            assert_eq!(
                (choice.text.trim_end(), choice.finish.as_str()),
                (lead.trim_end(), "tool_calls"),
                "{arguments}"
            );
            assert_eq!(choice.calls.len(), 1, "{choice:?}");
            assert_eq!(choice.calls[0].0, "find");
            assert_eq!(serde_json::from_str::<Value>(&choice.calls[0].1).expect("arguments are JSON"), arguments);
        }
    }
}

#[test]
pub fn t37_several_calls() {
    let text = format!("Two:\n{}\n{}", call("find", &json!({ "x": 1 })), call("keep", &json!({ "y": "}" })));
    let server = says(&text);
    let reply = both(&server.client, &with_tools(json!({})));
    let names: Vec<&str> = reply.choices[0].calls.iter().map(|c| c.0.as_str()).collect();
    assert_eq!((names, reply.finish(), reply.text().trim()), (vec!["find", "keep"], "tool_calls", "Two:"));
    let one = both(&server.client, &with_tools(json!({ "parallel_tool_calls": false })));
    assert_eq!(one.choices[0].calls.len(), 1);
    // Several answers, each with its calls.
    let three = both(&server.client, &with_tools(json!({ "n": 3, "temperature": 1 })));
    assert!(three.choices.iter().all(|c| c.calls == reply.choices[0].calls), "{three:?}");
}

#[test]
pub fn t37_what_is_no_call_is_text() {
    for text in
        ["no tags", "<tool_call>", "<tool_call>\nnot json\n</tool_call>", "a < b and <tool", "{\"name\": \"find\"}"]
    {
        let server = says(text);
        let reply = both(&server.client, &with_tools(json!({})));
        assert!(reply.choices[0].calls.is_empty() && reply.finish() == "stop", "{reply:?}");
        assert_eq!(reply.text(), text);
    }
    // Without tools, or with none wanted, tags are text.
    let text = call("find", &json!({}));
    let server = says(&text);
    for body in [message("p", json!({ "max_tokens": 200 })), with_tools(json!({ "tool_choice": "none" }))] {
        let reply = both(&server.client, &body);
        assert_eq!((reply.text(), reply.choices[0].calls.len()), (&text[..], 0));
    }
}

#[test]
pub fn t37_a_call_cut_off() {
    let whole = call("find", &json!({ "q": "{\"}\" é" }));
    let server = says(&whole);
    for most in 1..whole.len() {
        let reply = both(&server.client, &with_tools(json!({ "max_tokens": most })));
        // Nothing but the closing tag may be missing from a call that is told as one.
        let complete = most >= whole.len() - "\n</tool_call>".len();
        if reply.finish() == "tool_calls" {
            assert!(complete, "{most}: {reply:?}");
        } else {
            assert_eq!(reply.finish(), "length", "{most}: {reply:?}");
        }
    }
}

#[test]
pub fn t37_calls_that_are_demanded() {
    // The model would say other things; the form makes it call.
    let server = Server::start(roomy());
    let parameters = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["n"], "additionalProperties": false });
    let tools = json!({ "tools": [tool("count", parameters.clone()), tool("other", parameters)], "max_tokens": 400 });
    for choice in [json!("required"), json!({ "type": "function", "function": { "name": "count" } })] {
        let reply = both(&server.client, &message("p", with(tools.clone(), json!({ "tool_choice": choice }))));
        assert_eq!(reply.finish(), "tool_calls", "{reply:?}");
        let (name, arguments) = &reply.choices[0].calls[0];
        assert!(choice == "required" || name == "count");
        let arguments: Value = serde_json::from_str(arguments).expect("arguments are JSON");
        assert!(arguments["n"].as_u64().is_some_and(|n| n <= 9), "{arguments}");
    }
    for (field, value) in [
        ("tool_choice", json!("nonsense")),
        ("tool_choice", json!({ "type": "function", "function": { "name": "nobody" } })),
        ("tool_choice", json!(5)),
        ("tools", json!([5])),
        ("tools", json!("find")),
        ("tools", json!([{ "type": "function" }])),
        ("tools", json!([{ "type": "function", "function": { "name": "" } }])),
    ] {
        let mut body = message("p", tools.clone());
        body[field] = value;
        server.client.post(CHAT, &body).refuses(field);
    }
    server.client.post(CHAT, &message("p", json!({ "tool_choice": "required" }))).error(400);
}

#[test]
pub fn t38_any_json() {
    let server = Server::start(scripted());
    let form = |schema: Value| json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    // What this model would say is random text: a number as long as it may be, or a text without end.
    for seed in 0..4 {
        for body in [
            message(
                "p",
                json!({ "response_format": form(json!({})), "seed": seed, "temperature": 1, "max_tokens": 60 }),
            ),
            completion(
                "p",
                json!({ "response_format": form(json!({})), "seed": seed, "temperature": 1, "max_tokens": 60 }),
            ),
        ] {
            let reply = both(&server.client, &body);
            if reply.finish() == "stop" {
                serde_json::from_str::<Value>(reply.text()).unwrap_or_else(|e| panic!("{e}: {:?}", reply.text()));
            }
        }
    }
}

#[test]
pub fn t38_forms_are_kept() {
    let server = Server::start(scripted());
    let check = |fields: Value, right: &dyn Fn(&str) -> bool| {
        for seed in 0..3 {
            let fields = with(fields.clone(), json!({ "seed": seed, "temperature": 1, "max_tokens": 200 }));
            for body in [message("p", fields.clone()), completion("p", fields.clone())] {
                let reply = both(&server.client, &body);
                assert_eq!(reply.finish(), "stop", "{fields}: {reply:?}");
                assert!(right(reply.text()), "{fields}: {:?}", reply.text());
            }
        }
    };
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 0, "maximum": 5 }, "b": { "enum": ["x", "y"] } },
        "required": ["a", "b"], "additionalProperties": false });
    let is_object = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        value["a"].as_u64().is_some_and(|a| a <= 5) && matches!(value["b"].as_str(), Some("x" | "y"))
    };
    check(
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema, "strict": true } } }),
        &is_object,
    );
    check(json!({ "structured_outputs": { "json": schema } }), &is_object);
    check(json!({ "structured_outputs": { "regex": "[ab]{3}-[0-9]" } }), &|text| {
        let b = text.as_bytes();
        b.len() == 5 && b[..3].iter().all(|c| b"ab".contains(c)) && b[3] == b'-' && b[4].is_ascii_digit()
    });
    check(json!({ "structured_outputs": { "choice": ["yes", "no", "d\"é\n"] } }), &|text| {
        ["yes", "no", "d\"é\n"].contains(&text)
    });
    check(json!({ "structured_outputs": { "grammar": "start: \"a\" (\"b\" | \"c\")" } }), &|text| {
        ["ab", "ac"].contains(&text)
    });
    check(
        json!({ "response_format": { "type": "text" }, "stop": ["a", "e", "i", "o", "u", " ", "1", "2", "Z", "q"], "max_tokens": 400 }),
        &|_| true,
    );
}

#[test]
pub fn t38_forms_that_are_none() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    let schema = |schema: Value| json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let formats = [
        schema(json!({ "type": "nonsense" })),
        schema(json!({ "type": 5 })),
        schema(json!("x")),
        schema(json!({ "$ref": "#/definitions/nowhere" })),
        schema(json!({ "$ref": "http://example.org/x.json" })),
        schema(json!({ "type": "string", "pattern": "(" })),
        json!({ "type": "json_schema" }),
        json!({ "type": "json_schema", "json_schema": 5 }),
        json!({ "type": "json_schema", "json_schema": {} }),
        json!({ "type": "xml" }),
        json!({}),
        json!("json"),
        json!(5),
        json!([]),
    ];
    for format in formats {
        server.client.post(CHAT, &message("p", json!({ "response_format": format }))).refuses("response_format");
        server
            .client
            .post(CHAT, &message("p", json!({ "response_format": format, "stream": true })))
            .refuses("response_format");
    }
    let outputs = [
        json!({ "regex": "(" }),
        json!({ "regex": "a(?=b)" }),
        json!({ "regex": 5 }),
        json!({ "choice": [] }),
        json!({ "choice": [5] }),
        json!({ "choice": "x" }),
        json!({ "grammar": "start: undefined_rule" }),
        json!({ "grammar": "" }),
        json!({ "grammar": "start: \"a" }),
        json!({ "json": "{" }),
        json!({ "nonsense": 1 }),
        json!({ "regex": "a", "choice": ["b"] }),
        json!(5),
    ];
    for output in outputs {
        server
            .client
            .post(COMPLETIONS, &completion("p", json!({ "structured_outputs": output })))
            .refuses("structured_outputs");
    }
    // No text is of this form: whatever becomes of it, the engine goes on.
    for regex in ["[^\\s\\S]", "a[^\\s\\S]", "(a|b){99999}", "((a*)*)*b"] {
        let answer = server
            .client
            .post(COMPLETIONS, &completion("p", json!({ "structured_outputs": { "regex": regex }, "max_tokens": 20 })));
        assert!([200, 400, 500].contains(&answer.status), "{regex}: {}", answer.status);
        if answer.status != 200 {
            answer.error(answer.status);
        }
    }
    for depth in [20, 100, 10_000] {
        let deep = format!("{}{{}}{}", r#"{"type":"array","items":"#.repeat(depth), "}".repeat(depth));
        let body = format!(r#"{{"prompt":"p","max_tokens":5,"structured_outputs":{{"json":{deep}}}}}"#);
        let answer = server.client.send("POST", COMPLETIONS, body.as_bytes());
        assert!([200, 400].contains(&answer.status), "{depth}: {}", answer.status);
    }
    assert_eq!(ask(&server.client, &completion("p", json!({}))).text(), "ok");
}

#[test]
pub fn t38_a_number_ends_and_white_space_too() {
    // Digits for ever, where a number is allowed; spaces for ever, where those are.
    let form = |schema: Value| json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let digits = Server::start(scripted().says(|_, _| u32::from(b'7')));
    let reply = both(
        &digits.client,
        &message("p", json!({ "response_format": form(json!({ "type": "number" })), "max_tokens": 12 })),
    );
    assert_eq!((reply.text(), reply.finish()), ("777777777777", "length"));
    let spaces = Server::start(scripted().says(|_, _| u32::from(b' ')));
    let object = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"], "additionalProperties": false });
    let reply = both(&spaces.client, &message("p", json!({ "response_format": form(object), "max_tokens": 400 })));
    assert_eq!(reply.finish(), "stop", "white space has an end: {reply:?}");
    assert!(serde_json::from_str::<Value>(reply.text()).expect("JSON")["a"].is_boolean());
}
