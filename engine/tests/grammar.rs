//! Forms over a real vocabulary: what is of the form can be said in the tokens that the tokenizer makes of it, and what is
//! not cannot be said in any.

mod common;

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tegula_engine::gguf::Gguf;
use tegula_engine::grammar::{Form, Grammar, Grammars};
use tegula_engine::sampling::allows;
use tegula_engine::tokenizer::{Special, Tokenizer};

/// How many of the tokens of `text` a grammar takes; all, and none to follow but the end, if it is of the form.
fn follow(tokenizer: &Tokenizer, mut grammar: Grammar, text: &str) -> Result<(), String> {
    let mut said = vec![];
    for token in tokenizer.encode(text, Special::AsText) {
        if !allows(&grammar.mask().unwrap(), token) {
            return Err(tokenizer.decode(&said));
        }
        grammar.push(token).unwrap();
        said.push(token);
    }
    let end = tokenizer.eos().unwrap();
    if allows(&grammar.mask().unwrap(), end) { Ok(()) } else { Err(text.to_owned()) }
}

#[test]
fn forms_over_a_real_vocabulary() {
    let Some(path) = common::model("smollm2") else { return };
    let tokenizer = Arc::new(Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap());
    let start = Instant::now();
    let grammars = Grammars::new(tokenizer.clone()).unwrap();
    println!("{} tokens in {:.0?}", tokenizer.vocab_size(), start.elapsed());
    let schema = Form::JsonSchema(json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "degrees": { "type": "integer" } },
        "required": ["city", "degrees"],
    }));
    let cases = [
        (Form::JsonObject, "{\"a\": [1, 2.5, {\"b\": null}], \"é😀\": \"x\\ny\"}", None),
        (Form::JsonObject, "{\n  \"name\": \"Ada\",\n  \"born\": 1815\n}", None),
        (Form::JsonObject, "[1, 2]", Some("")),
        (Form::JsonObject, "{\"a\": 1", Some("{\"a\": 1")),
        (schema.clone(), "{\"city\": \"Zürich\", \"degrees\": -3}", None),
        (schema, "{\"city\": \"Bern\", \"degrees\": warm}", Some("{\"city\": \"Bern\", \"degrees\":")),
        (Form::Regex(r"\d{4}-\d{2}-\d{2}".into()), "2024-02-29", None),
        (Form::Regex(r"\d{4}-\d{2}-\d{2}".into()), "2024-2-29", Some("2024-2")),
        (Form::Choice(vec!["positive".into(), "negative".into()]), "negative", None),
        (Form::Choice(vec!["positive".into(), "negative".into()]), "neutral", Some("")),
    ];
    for (form, text, stuck) in cases {
        let start = Instant::now();
        let grammar = grammars.compile(&form).unwrap();
        let compiled = start.elapsed();
        let found = follow(&tokenizer, grammar, text);
        println!("{text:?}: compiled in {compiled:.0?}, all in {:.0?}", start.elapsed());
        match stuck {
            None => assert_eq!(found, Ok(()), "{form:?}"),
            Some(before) => assert!(found.as_ref().is_err_and(|said| said.starts_with(before)), "{form:?}: {found:?}"),
        }
    }
}
