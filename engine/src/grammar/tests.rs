//! Whatever is drawn under a mask is of the form; mistakes are told at once.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::sampling::allows;
use crate::tokenizer::small::small;

const WORDS: &[&[u8]] = &[
    b"{\"",
    b"\":",
    b"\",\"",
    b"\"}",
    b"true",
    b"fal",
    b"se",
    b"  ",
    b"\n",
    b"12",
    b"0.",
    "é".as_bytes(),
    b"\xf0\x9f",
    b"na",
    b"me",
    b"ab",
    b"```",
];
const EOS: u32 = 256 + WORDS.len() as u32;
const IM_END: u32 = EOS + 1;

static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(small(WORDS, &["<eos>", "<|im_end|>", "<tool>"])));
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(TOKENIZER.clone()).unwrap());

/// Draws tokens that the mask allows until one ends the answer: its text. Tokens that close something are preferred, or it
/// might never end.
fn draw(grammar: &mut Grammar, mut seed: u64) -> String {
    let mut bytes = vec![];
    for _ in 0..4000 {
        let mask = grammar.mask().unwrap();
        let allowed: Vec<u32> = (0..TOKENIZER.vocab_size() as u32).filter(|t| allows(&mask, *t)).collect();
        assert!(!allowed.is_empty(), "no way on after {:?}", String::from_utf8_lossy(&bytes));
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let closes = |t: &u32| *t >= EOS || matches!(TOKENIZER.token_bytes(*t), [b'"' | b'}' | b']']);
        let closing: Vec<u32> = allowed.iter().copied().filter(closes).collect();
        let from = if !closing.is_empty() && random(2) == 0 { &closing } else { &allowed };
        let token = from[random(from.len())];
        let ends = [EOS, IM_END].contains(&token);
        assert_eq!(ends, TOKENIZER.is_end(token));
        assert!(token < EOS || ends, "a control token");
        assert!(!ends || grammar.is_complete());
        grammar.push(token).unwrap();
        if ends {
            return String::from_utf8(bytes).expect("a text");
        }
        bytes.extend(TOKENIZER.text_bytes(token));
    }
    panic!("never ends: {:?}", String::from_utf8_lossy(&bytes));
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 8 },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" }, "maxItems": 3 },
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": false,
        "$defs": { "tag": { "enum": ["a", "b\"c", "é"] } },
    })
}

/// Whether it is JSON, which has numbers that no float holds.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<Value>(text).map_or_else(|e| e.to_string().contains("number out of range"), |_| true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_drawn_is_of_the_form(seed in any::<u64>()) {
        let compiled = |form: Form| GRAMMARS.compile(&form).unwrap();
        let object = draw(&mut compiled(Form::JsonObject), seed);
        prop_assert!(object.starts_with('{') && is_json(&object), "{object}");
        let any = draw(&mut compiled(Form::JsonSchema(json!({}))), seed);
        prop_assert!(is_json(&any), "{any}");

        let person: Value = serde_json::from_str(&draw(&mut compiled(Form::JsonSchema(person())), seed)).unwrap();
        prop_assert_eq!(person.as_object().unwrap().len(), 3);
        prop_assert!(person["name"].as_str().unwrap().chars().count() <= 8);
        prop_assert!(person["age"].as_u64().unwrap() <= 150);
        let tags = person["tags"].as_array().unwrap();
        prop_assert!(tags.len() <= 3 && tags.iter().all(|t| [json!("a"), json!("b\"c"), json!("é")].contains(t)));

        let code = draw(&mut compiled(Form::Regex("[0-9]{3}-(ab|é)+".into())), seed);
        let (digits, rest) = code.split_once('-').unwrap();
        prop_assert!(digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()));
        prop_assert!(!rest.is_empty() && rest.replace("ab", "").replace('é', "").is_empty(), "{code}");

        let choices = ["yes", "no \"never\"", "ça"];
        let choice = draw(&mut compiled(Form::Choice(choices.map(String::from).to_vec())), seed);
        prop_assert!(choices.contains(&choice.as_str()), "{choice}");

        // Balanced brackets are no regular language.
        let mut depth = 0;
        for c in draw(&mut compiled(Form::Grammar("start: \"[\" start* \"]\"".into())), seed).chars() {
            depth += if c == '[' { 1 } else { -1 };
            prop_assert!(depth >= 0);
        }
        prop_assert_eq!(depth, 0);
    }
}

#[test]
fn clones_go_their_own_ways() {
    let mut one = GRAMMARS.compile(&Form::Choice(vec!["ab".into(), "ac".into()])).unwrap();
    one.push(97).unwrap();
    let mut two = one.clone();
    one.push(98).unwrap();
    two.push(99).unwrap();
    assert!(one.is_complete() && two.is_complete());
    for end in [&mut one, &mut two] {
        let mask = end.mask().unwrap();
        let allowed: Vec<u32> = (0..TOKENIZER.vocab_size() as u32).filter(|t| allows(&mask, *t)).collect();
        assert_eq!(allowed, [EOS, IM_END]);
        end.push(EOS).unwrap();
    }
}

#[test]
fn a_token_outside_the_form_is_an_error_and_harms_nobody_else() {
    let form = Form::Choice(vec!["ab".into()]);
    let mut grammar = GRAMMARS.compile(&form).unwrap();
    assert!(grammar.push(98).unwrap_err().to_string().starts_with("the form cannot be followed any further: "));
    assert!(grammar.mask().is_err() && !grammar.is_complete());
    assert_eq!(draw(&mut GRAMMARS.compile(&form).unwrap(), 5), "ab");
    let mut ended = GRAMMARS.compile(&form).unwrap();
    [97, 98, EOS].into_iter().for_each(|t| ended.push(t).unwrap());
    assert!(ended.push(97).is_err());
}

#[test]
fn mistakes_are_told_when_the_request_comes() {
    for (form, says) in [
        (Form::Regex("a(".into()), "this regular expression cannot be followed: "),
        (Form::Regex("(?=a)b".into()), "this regular expression cannot be followed: "),
        (Form::Grammar("start: \"a\" unknown".into()), "this grammar cannot be followed: "),
        (Form::Grammar(" ".into()), "this grammar cannot be followed: it is empty"),
        (Form::Grammar("begin: \"a\"".into()), "this grammar cannot be followed: "),
        (Form::JsonSchema(json!({ "type": "strin" })), "this JSON schema cannot be followed: "),
        (Form::JsonSchema(json!("string")), "this JSON schema cannot be followed: it is \"string\""),
        (Form::JsonSchema(json!(false)), "this JSON schema cannot be followed: "),
        (Form::JsonSchema(json!({ "$ref": "#/$defs/none" })), "this JSON schema cannot be followed: "),
        (Form::JsonSchema(json!({ "$ref": "https://example.com/schema" })), "this JSON schema cannot be followed: "),
        (
            Form::JsonSchema(json!({ "type": "integer", "minimum": 5, "maximum": 4 })),
            "this JSON schema cannot be followed: ",
        ),
        // Only the second token shows that it is too much.
        (Form::Grammar(format!("start: {}\nx: \"a\"", "x? ".repeat(3000))), "this grammar cannot be followed: "),
        (Form::Choice(vec![]), "this choice cannot be followed: there is nothing to choose from"),
    ] {
        let message = GRAMMARS.compile(&form).expect_err(&format!("{form:?}")).to_string();
        assert!(message.starts_with(says), "{form:?}: {message}");
        assert!(message.len() < 500 && !message.contains("backtrace") && !message.contains("verbose"), "{message}");
    }
}

/// What is too much work in the middle of an answer only ends it there, in a few words.
#[test]
fn too_much_work_is_told_in_a_line() {
    let mut grammar = GRAMMARS.compile(&Form::Grammar("start: \"x\" start | \"x\"".into())).unwrap();
    let error = (0..4000).find_map(|_| grammar.push(u32::from(b'x')).err()).expect("a limit").to_string();
    assert!(error.starts_with("the form cannot be followed any further: ") && error.len() < 300, "{error}");
    assert!(!error.contains(['\n', '<']), "{error}");
}

/// White space ends: a model cannot fill its answer with it.
#[test]
fn white_space_is_bounded() {
    let mut grammar = GRAMMARS.compile(&Form::JsonObject).unwrap();
    grammar.push(u32::from(b'{')).unwrap();
    let space = u32::from(b'\n');
    let mut n = 0;
    while allows(&grammar.mask().unwrap(), space) {
        grammar.push(space).unwrap();
        n += 1;
        assert!(n < 100);
    }
    assert!(n >= 1);
}

/// Rules, terminals or definitions that refer to each other, as deep as the bounds on sizes allow: compilers follow such
/// chains by recursion.
#[test]
fn chains_do_not_overflow_a_stack() {
    let n = 6_000;
    let link = |i: usize| format!("r{i}: r{}\n", i + 1);
    let rules = format!("start: r0\n{}r{n}: \"z\"\n", (0..n).map(link).collect::<String>());
    let link = |i: usize| format!("T{i}: T{} \"a\"\n", i + 1);
    let terminals = format!("start: T0\n{}T{n}: \"z\"\n", (0..n).map(link).collect::<String>());
    let definition = |i: usize| match i < 2500 {
        true => (format!("a{i}"), json!({ "$ref": format!("#/$defs/a{}", i + 1) })),
        false => (format!("a{i}"), json!({ "type": "integer" })),
    };
    let definitions =
        json!({ "$ref": "#/$defs/a0", "$defs": (0..=2500).map(definition).collect::<serde_json::Map<_, _>>() });
    let brackets = |n: usize| Form::Grammar(format!("start: {}\"a\"{}", "(".repeat(n), ")".repeat(n)));
    for form in [Form::Grammar(rules), Form::Grammar(terminals), Form::JsonSchema(definitions), brackets(500)] {
        // Whether it is too much for the compiler is not the point.
        let _ = GRAMMARS.compile(&form).map(|mut grammar| grammar.mask());
    }
    let error = GRAMMARS.compile(&brackets(501)).unwrap_err().to_string();
    assert_eq!(error, "this grammar cannot be followed: it has 501 levels of brackets; it must have at most 500");
    // Brackets in quotes are none.
    let quoted = format!("start: {}", "\"(\\\"[\" ".repeat(600));
    assert_eq!(GRAMMARS.compile(&Form::Grammar(quoted)).map(|_| ()), Ok(()));
}

#[test]
fn forms_that_are_too_large_are_refused_at_once() {
    let large = |form: Form| GRAMMARS.compile(&form).unwrap_err().to_string();
    let words: Vec<String> = (0..200_000).map(|i| format!("word{i}")).collect();
    assert!(large(Form::Choice(words.clone())).contains("it must have at most 1048576"));
    assert!(large(Form::Regex("a".repeat(1 << 20))).contains("it must have at most 65536"));
    assert!(large(Form::JsonSchema(json!({ "enum": words }))).contains("it must have at most 131072"));
    assert!(
        large(Form::Grammar(format!("start: {}", "\"a\" ".repeat(1 << 20)))).contains("it must have at most 131072")
    );
}

#[test]
fn a_choice_among_very_many() {
    let words: Vec<String> = (0..20_000).map(|i| format!("word {i}. (\"{}\" \\ é)\n", i % 7)).collect();
    for seed in 0..8 {
        let text = draw(&mut GRAMMARS.compile(&Form::Choice(words.clone())).unwrap(), seed);
        assert!(words.contains(&text), "{text:?}");
    }
}
