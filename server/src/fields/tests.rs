use axum::response::IntoResponse;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn fields(value: Value) -> Fields {
    Fields::parse(value.to_string().as_bytes()).unwrap()
}

/// The message about a parameter of this type with this value.
fn refused<T: Field + std::fmt::Debug>(value: Value) -> String {
    let error = fields(json!({ "x": value })).take::<T>("x").unwrap_err();
    assert_eq!(error.param.as_deref(), Some("x"));
    assert_eq!(error.status, 400);
    error.message
}

#[test]
fn parameters_have_their_types() {
    let mut all = fields(json!({
        "f": 1.5, "i": -3, "whole": 5.0, "big": u64::MAX, "s": "text", "b": false, "l": [1, 2], "one": "a", "o": {"k": 1}
    }));
    assert_eq!(all.take::<f32>("f").unwrap(), Some(1.5));
    assert_eq!(all.take::<i64>("i").unwrap(), Some(-3));
    assert_eq!(all.take::<u32>("whole").unwrap(), Some(5));
    assert_eq!(all.take::<u64>("big").unwrap(), Some(u64::MAX));
    assert_eq!(all.take::<String>("s").unwrap().as_deref(), Some("text"));
    assert_eq!(all.take::<bool>("b").unwrap(), Some(false));
    assert_eq!(all.take::<OneOrMany<u32>>("l").unwrap(), Some(OneOrMany(vec![1, 2])));
    assert_eq!(all.take::<OneOrMany<String>>("one").unwrap(), Some(OneOrMany(vec!["a".into()])));
    assert_eq!(all.take::<Map<String, Value>>("o").unwrap().unwrap()["k"], 1);
    assert_eq!(all.finish(true).unwrap(), Ignored::default());
}

#[test]
fn a_wrong_type_names_the_parameter_and_what_was_found() {
    assert_eq!(refused::<f64>(json!("0.5")), "x: expected a number, found \"0.5\"");
    assert_eq!(refused::<bool>(json!(1)), "x: expected true or false, found 1");
    assert_eq!(refused::<String>(json!(["a"])), "x: expected a string, found a list of 1");
    assert_eq!(refused::<u32>(json!(-1)), "x: expected a whole number from 0 to 4294967295, found -1");
    assert_eq!(refused::<u32>(json!(0.5)), "x: expected a whole number from 0 to 4294967295, found 0.5");
    assert_eq!(refused::<u32>(json!(1e10)), "x: expected a whole number from 0 to 4294967295, found 10000000000.0");
    assert!(
        refused::<f32>(json!(1e300)).contains("found 1e+300") || refused::<f32>(json!(1e300)).contains("found 1e300")
    );
    assert_eq!(refused::<Vec<bool>>(json!([true, "no"])), "x: expected a list, each of it true or false, found \"no\"");
    assert_eq!(refused::<OneOrMany<String>>(json!([{}])), "x: expected a string, or a list of such, found an object");
    let long = refused::<bool>(json!("é".repeat(1000)));
    assert!(long.ends_with("é…") && long.chars().count() < 100, "{long}");
}

#[test]
fn null_is_unset_and_a_missing_parameter_is_named() {
    let mut all = fields(json!({ "stop": null, "model": null }));
    assert!(!all.has("stop") && !all.has("absent"));
    assert_eq!(all.take::<String>("stop").unwrap(), None);
    let error = all.require::<String>("model").unwrap_err();
    assert_eq!(
        (error.message.as_str(), error.param.as_deref()),
        ("model: missing; it must be a string", Some("model"))
    );
    assert!(fields(json!({ "unknown": null })).finish(true).is_ok(), "null of an unknown parameter asks for nothing");
}

#[test]
fn a_body_is_one_object_without_a_key_twice() {
    for (body, says) in [
        ("", "not valid JSON: EOF"),
        ("{", "not valid JSON: EOF"),
        ("[1]", "must be a JSON object, found a list of 1"),
        ("null", "must be a JSON object, found null"),
        ("{} {}", "not valid JSON: trailing characters"),
        (r#"{"n": 1, "n": 2}"#, r#"the key "n" is there twice at line 1 column 12"#),
        (r#"{"a": [{"b": 1, "b": 1}]}"#, r#"the key "b" is there twice"#),
        (r#"{"x": 1e999}"#, "out of range"),
        ("{\"x\": \"\u{0}\"}", "control character"),
        (r#"{"x": "\ud800"}"#, "not valid JSON"),
        (r#"{"x": NaN}"#, "not valid JSON"),
    ] {
        let error = Fields::parse(body.as_bytes()).unwrap_err();
        assert_eq!(error.status, 400);
        assert!(error.message.contains(says), "{body}: {}", error.message);
    }
    assert!(Fields::parse(b"{\"x\": \"\xff\"}").is_err(), "not UTF-8");
    let deep = format!("{{\"x\": {}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(Fields::parse(deep.as_bytes()).unwrap_err().message.contains("recursion limit"));
}

#[test]
fn what_is_left_is_named_or_refused() {
    let all = || {
        let mut all = fields(json!({ "colour": 1, "stream_options": { "include_usage": true, "speed": 2 }, "n": 1 }));
        let mut options = all.take_object("stream_options").unwrap().unwrap();
        assert_eq!(options.take::<bool>("include_usage").unwrap(), Some(true));
        all.finished(options);
        all.accept("n");
        all
    };
    assert_eq!(all().finish(false).unwrap().names(), ["stream_options.speed", "colour"]);
    let error = all().finish(true).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("stream_options.speed"));

    let mut nested = fields(json!({ "stream_options": { "include_usage": "yes" } }));
    let error = nested.take_object("stream_options").unwrap().unwrap().take::<bool>("include_usage").unwrap_err();
    assert_eq!(error.param.as_deref(), Some("stream_options.include_usage"));
}

#[test]
fn parameters_that_would_change_the_answer_are_refused() {
    let beam = |value: Value| {
        let neutral = |value: &Value| value == &json!(false);
        fields(json!({ "use_beam_search": value })).reject_unless("use_beam_search", "not supported", neutral)
    };
    assert!(beam(json!(false)).is_ok() && beam(Value::Null).is_ok());
    let error = beam(json!(true)).unwrap_err();
    assert_eq!(error.message, "use_beam_search: not supported (found true)");
    assert_eq!(fields(json!({ "suffix": "x" })).reject("suffix", "no").unwrap_err().param.as_deref(), Some("suffix"));
    assert!(fields(json!({})).reject("suffix", "no").is_ok());
}

#[test]
fn the_header_is_safe_and_bounded() {
    let ignored = Ignored(vec!["a,b\r\nset-cookie: x".into(), "größe".into(), "logit_bias.k".into()]);
    let response = (ignored, "").into_response();
    assert_eq!(response.headers()[IGNORED], "a%2Cb%0D%0Aset-cookie%3A%20x,gr%C3%B6%C3%9Fe,logit_bias.k");
    let many = Ignored((0..10_000).map(|n| format!("parameter{n}")).collect());
    let header = many.header();
    assert!(header.len() < MOST_HEADER + 100 && header.ends_with(" more"), "{header}");
    assert_eq!((Ignored::default(), "").into_response().headers().get(IGNORED), None);
}

proptest! {
    /// What is parsed is what serde_json parses, if no key is there twice.
    #[test]
    fn values_are_those_of_the_text(value in values()) {
        let text = json!({ "x": value }).to_string();
        let mut all = Fields::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(all.take::<Value>("x").unwrap().unwrap_or(Value::Null), value);
    }

    /// Any bytes are a request or an error, and no panic.
    #[test]
    fn any_bytes_are_fine_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Err(error) = Fields::parse(&bytes) {
            prop_assert_eq!(error.status, 400);
        }
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[a-z\"\\\\é\u{1f600}]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]{1,2}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}
