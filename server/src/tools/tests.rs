//! Calls beside what was written into the text, at all cuts; the prompt; the form.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use tegula_engine::chat::{ChatTemplate, Conversation, Message};
use tegula_engine::grammar::{GrammarError, Grammars};
use tegula_engine::sampling::allows;
use tegula_engine::tokenizer::{Tokenizer, small::small};

use super::*;

/// An answer as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ToolAnswer {
    /// What the model says besides calling, if anything.
    content: Option<String>,
    /// The calls, in their order.
    calls: Vec<ToolCall>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ToolCall {
    /// By which its result is sent back.
    id: String,
    /// Of the function.
    name: String,
    /// As the model wrote them; they should be a JSON object.
    arguments: String,
}

impl Extend<ToolDelta> for ToolAnswer {
    fn extend<T: IntoIterator<Item = ToolDelta>>(&mut self, deltas: T) {
        for delta in deltas {
            match delta {
                ToolDelta::Content(text) => self.content.get_or_insert_default().push_str(&text),
                ToolDelta::Call { id, name, .. } => self.calls.push(ToolCall { id, name, arguments: String::new() }),
                ToolDelta::Arguments { text, index } => {
                    if let Some(call) = self.calls.get_mut(index) {
                        call.arguments.push_str(&text);
                    }
                }
            }
        }
    }
}

/// An answer without the calls' random ids, which are checked to differ.
fn plain(answer: &ToolAnswer) -> (Option<&str>, Vec<(&str, &str)>) {
    let ids: std::collections::HashSet<&String> = answer.calls.iter().map(|call| &call.id).collect();
    assert!(ids.len() == answer.calls.len() && ids.iter().all(|id| id.starts_with("call_")));
    let calls = answer.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str()));
    (answer.content.as_deref(), calls.collect())
}

/// All deltas of a text that comes in these pieces, which must be well formed.
fn deltas<'t>(pieces: impl IntoIterator<Item = &'t str>, most_calls: usize) -> Vec<ToolDelta> {
    let mut parser = ToolParser::new(most_calls);
    let mut out = vec![];
    for piece in pieces {
        out.extend(parser.push(piece));
    }
    out.extend(parser.finish());
    let mut calls = 0;
    for delta in &out {
        match delta {
            ToolDelta::Content(text) => assert!(!text.is_empty()),
            ToolDelta::Call { index, name, .. } => {
                assert!(*index == calls && !name.is_empty());
                calls += 1;
            }
            ToolDelta::Arguments { index, text } => assert!(*index + 1 == calls && !text.is_empty()),
        }
    }
    assert_eq!(parser.num_calls(), calls);
    out
}

fn parse<'t>(pieces: impl IntoIterator<Item = &'t str>, most_calls: usize) -> ToolAnswer {
    let mut answer = ToolAnswer::default();
    answer.extend(deltas(pieces, most_calls));
    answer
}

/// The pieces of a text that is cut behind these characters.
fn cut<'t>(text: &'t str, cuts: &[usize]) -> Vec<&'t str> {
    let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| ends[cut % ends.len()]).chain([0, text.len()]).collect();
    at.sort_unstable();
    at.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

/// The answer, the same in one piece, in every two and in single characters.
fn parse_all_ways(text: &str, most_calls: usize) -> ToolAnswer {
    let whole = parse([text], most_calls);
    for i in 0..=text.chars().count() {
        assert_eq!(plain(&parse(cut(text, &[i]), most_calls)), plain(&whole), "{text:?} cut at {i}");
    }
    let single = cut(text, &(0..text.len()).collect::<Vec<_>>());
    assert_eq!(plain(&parse(single, most_calls)), plain(&whole), "{text:?}");
    whole
}

fn check(text: &str, content: Option<&str>, calls: &[(&str, &str)]) {
    assert_eq!(plain(&parse_all_ways(text, usize::MAX)), (content, calls.to_vec()), "{text:?}");
}

#[test]
fn braces_escaped_quotes_unicode_and_leading_text() {
    let arguments =
        r#"{"code": "if (a) { b[\"}\"] = '</tool_call>'; }", "name": "Zoë \ud83d\ude00 😀", "n": [{}, [1e-3]]}"#;
    let text = format!("Let me see.\n<tool_call>\n{{\"name\": \"run\", \"arguments\": {arguments}}}\n</tool_call>");
    check(&text, Some("Let me see.\n"), &[("run", arguments)]);
    assert!(serde_json::from_str::<Value>(arguments).unwrap()["code"].as_str().unwrap().contains("</tool_call>"));
}

#[test]
fn what_is_a_call() {
    for (text, content, calls) in [
        (r#"<tool_call>{"name":"f","arguments":{}}</tool_call>"#, None, vec![("f", "{}")]),
        // Any order, other keys, no arguments, no closing tag, arguments as a string.
        (r#"<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>"#, None, vec![("f", r#"{"a": 1}"#)]),
        (
            r#"<tool_call>{"id": -1.5e3, "x": [{"name": "g"}], "name": "f" , "y": null}</tool_call>"#,
            None,
            vec![("f", "{}")],
        ),
        (
            r#"<tool_call>{"name": "f", "arguments": {"a": 1}, "arguments": {"a": 2}, "name": "g"}"#,
            None,
            vec![("f", r#"{"a": 1}"#)],
        ),
        (r#"<tool_call>{"name": "f", "arguments": "{\"a\": \"\\u00e9\"}"}"#, None, vec![("f", r#"{"a": "\u00e9"}"#)]),
        (r#"<tool_call>{"arguments": "{}", "name": "\u0066"}"#, None, vec![("f", "{}")]),
        // Several.
        (
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
            None,
            vec![("f", "{}"), ("g", "{}")],
        ),
        // White space is left out beside calls only, and other text nowhere.
        ("\n\n<tool_call>{\"name\": \"f\"}</tool_call>\n", None, vec![("f", "{}")]),
        ("\n a <tool_call>{\"name\": \"f\"}</tool_call>\n b \n", Some("\n a \n b \n"), vec![("f", "{}")]),
        (" \n", Some(" \n"), vec![]),
        ("", None, vec![]),
        // What the model writes in place of JSON, once the call is out.
        (
            r#"<tool_call>{"name": "f", "arguments": {"a": True, 'b'}}</tool_call>"#,
            None,
            vec![("f", "{\"a\": True, 'b'}")],
        ),
        (
            r#"<tool_call>{"name": "f", "arguments": {"a": [}}</tool_call>x"#,
            Some("}}</tool_call>x"),
            vec![("f", r#"{"a": ["#)],
        ),
        (
            r#"<tool_call>{"name": "f", "arguments": {"a": 1</tool_call><tool_call>{"name": "g"}"#,
            None,
            vec![("f", r#"{"a": 1"#), ("g", "{}")],
        ),
        (r#"<tool_call>{"name": "f", "arguments": {"a": "x"#, None, vec![("f", r#"{"a": "x"#)]),
        (r#"<tool_call>{"name": "f", "arguments": {}} and more"#, Some(" and more"), vec![("f", "{}")]),
        ("<tool_call>{\"name\": \"f\"}\n</tool_", None, vec![("f", "{}")]),
        ("<tool_call>{\"name\": \"f\"}\n</tool_x", Some("\n</tool_x"), vec![("f", "{}")]),
    ] {
        check(text, content, &calls);
    }
}

#[test]
fn what_is_no_call_is_content() {
    for text in [
        "a < b, <tool>, <tool_calls, <<tool_call",
        "<tool_call>",
        " \n<tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"argum",
        "<tool_call>[]</tool_call>",
        "<tool_call>{}</tool_call>",
        "The tag <tool_call> begins a call and </tool_call> ends it.",
        r#"<tool_call>{"arguments": {}}</tool_call>"#,
        r#"<tool_call>{"name": ""}</tool_call>"#,
        r#"<tool_call>{"name": 3, "arguments": {}}</tool_call>"#,
        r#"<tool_call>{"name": "f", "arguments": [1]}</tool_call>"#,
        r#"<tool_call>{"name": "f", "arguments": null}</tool_call>"#,
        r#"<tool_call>{"name": "f", "arguments": "x"}</tool_call>"#,
        r#"<tool_call>{"name": "f", }</tool_call>"#,
        r#"<tool_call>{"name" "f"}</tool_call>"#,
        r#"<tool_call>{name: "f"}</tool_call>"#,
        "<tool_call>{\"na\nme\": \"f\"}</tool_call>",
        "{\"name\": \"f\", \"arguments\": {}}",
        "</tool_call>",
    ] {
        check(text, Some(text), &[]);
    }
    // A true one after it.
    let text = "<tool_call> is <tool_call>{\"name\": \"f\"}</tool_call>";
    check(text, Some("<tool_call> is "), &[("f", "{}")]);
}

#[test]
fn after_the_last_call_that_may_be_nothing_counts() {
    let two = "a<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>b";
    assert_eq!(plain(&parse_all_ways(two, 1)), (Some("a"), vec![("f", "{}")]));
    let mut parser = ToolParser::new(1);
    parser.push("a<tool_call>{\"name\": \"f\"");
    assert!(!parser.is_done());
    parser.push("}");
    assert!(parser.is_done() && parser.num_calls() == 1);
}

/// Nothing is held back that is settled.
#[test]
fn deltas_come_at_once() {
    let mut parser = ToolParser::new(9);
    let mut says = |piece: &str| -> Vec<String> {
        let shown = |delta| match delta {
            ToolDelta::Content(text) => text,
            ToolDelta::Call { index, name, .. } => format!("{index} {name}"),
            ToolDelta::Arguments { index, text } => format!("{index}: {text}"),
        };
        parser.push(piece).into_iter().map(shown).collect()
    };
    assert_eq!(says("Hi "), ["Hi "]);
    assert_eq!(says("<b"), ["<b"]);
    assert_eq!(says("> <tool"), ["> "]);
    assert_eq!(says("_call>\n{\"name\": \"f"), [""; 0]);
    assert_eq!(says("\", \"arguments\": "), [""; 0]);
    assert_eq!(says("{"), ["0 f", "0: {"]);
    assert_eq!(says("\"a\": \"}"), ["0: \"a\": \"}"]);
    assert_eq!(says("\"}}\n</tool_call>\n"), ["0: \"}"]);
    assert_eq!(says("."), ["\n."]);
    assert_eq!(says(" \n"), [" \n"]);
}

fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[a{}\"\\\\<\u{1f600}]{0,8}", Just("</tool_call><tool_call>".to_owned())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|i| Value::from(f64::from(i) / 8.0)),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..4)
                .prop_map(|items| Value::Object(items.into_iter().collect())),
        ]
    })
}

/// Arguments as models may write them, and the object.
fn arguments() -> impl Strategy<Value = (String, Value)> {
    (prop::collection::vec((any::<String>(), json_value()), 0..4), any::<bool>()).prop_map(|(items, pretty)| {
        let object = Value::Object(items.into_iter().collect());
        let text = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        (text, object)
    })
}

/// Pieces that calls are made of, and almost are.
fn junk() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<tool_",
        "call>",
        "<",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ":",
        ",",
        " ",
        "\n",
        "\"name\"",
        "\"name\": \"f\"",
        "\"arguments\"",
        "\"arguments\": {",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
        "true",
        "1",
        "é😀",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// What was written comes back, byte for byte, however the text is cut.
    #[test]
    fn calls_are_those_that_were_written(
        lead in "[a-z<>é\n ]{0,12}",
        calls in prop::collection::vec(("[a-z_é\"]{1,6}", arguments()), 1..4),
        space in "[ \n]{0,3}",
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut text = lead.clone();
        for (name, (arguments, _)) in &calls {
            let call = format!("{{{space}\"name\":{space}{}{space},\"arguments\":{space}{arguments}}}", json!(name));
            text += &format!("<tool_call>{space}{call}{space}</tool_call>{space}");
        }
        let answer = parse(cut(&text, &cuts), usize::MAX);
        let content = Some(lead.as_str()).filter(|lead| !lead.trim().is_empty());
        let want: Vec<(&str, &str)> = calls.iter().map(|(name, (text, _))| (name.as_str(), text.as_str())).collect();
        prop_assert_eq!(plain(&answer), (content, want));
        for (call, (_, (_, object))) in answer.calls.iter().zip(&calls) {
            prop_assert_eq!(&serde_json::from_str::<Value>(&call.arguments).unwrap(), object);
        }
    }

    /// Whatever the model says: the same however it is cut, and where there is no call all of it is content.
    #[test]
    fn any_text_is_the_same_however_it_is_cut(text in junk(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        let whole = parse([text.as_str()], usize::MAX);
        let pieces = parse(cut(&text, &cuts), usize::MAX);
        prop_assert_eq!(plain(&pieces), plain(&whole));
        if whole.calls.is_empty() {
            prop_assert_eq!(whole.content.unwrap_or_default(), text);
        } else {
            // Nothing is made up: all of it stands in the text.
            for call in &whole.calls {
                prop_assert!(call.name == "f" && (call.arguments == "{}" || text.contains(&call.arguments)), "{:?}", call);
            }
        }
    }
}

fn weather() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "maxLength": 6 }, "days": { "$ref": "#/$defs/days" } },
        "required": ["city", "days"],
        "additionalProperties": false,
        "$defs": { "days": { "type": "integer", "minimum": 1, "maximum": 7 } },
    });
    let function = json!({ "name": "weather", "description": "The weather.", "parameters": parameters });
    json!({ "type": "function", "function": function })
}

fn clock() -> Value {
    json!({ "type": "function", "function": { "name": "clock \"x\"" } })
}

fn tools(choice: Value, parallel: bool) -> Tools {
    Tools::new(Some(&json!([weather(), clock()])), Some(&choice), Some(parallel)).unwrap()
}

#[test]
fn mistakes_in_requests_are_told() {
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    for (tools, choice, param, says) in [
        (json!({}), Value::Null, "tools", "expected a list, found an object"),
        (json!([1]), Value::Null, "tools[0]", "expected {\"type\": \"function\""),
        (json!([{ "type": "retrieval" }]), Value::Null, "tools[0].type", "found \"retrieval\""),
        (json!([{ "type": "function" }]), Value::Null, "tools[0].function", "expected an object"),
        (json!([weather(), named("")]), Value::Null, "tools[1].function.name", "one character or more"),
        (
            json!([{ "type": "function", "function": { "name": "f", "parameters": [] } }]),
            Value::Null,
            "tools[0].function.parameters",
            "found an empty list",
        ),
        (
            json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "string" } } }]),
            Value::Null,
            "tools[0].function.parameters.type",
            "found \"string\"",
        ),
        (json!([weather()]), json!("any"), "tool_choice", "found \"any\""),
        (json!([weather()]), json!(1), "tool_choice", "found 1"),
        (json!([weather()]), json!({ "type": "allowed_tools" }), "tool_choice", "expected \"none\""),
        (json!([weather()]), named("clock"), "tool_choice.function.name", "there are weather"),
        (Value::Null, json!("required"), "tool_choice", "there are no tools"),
        (json!([]), named("weather"), "tool_choice", "there are no tools"),
    ] {
        let error = Tools::new(Some(&tools), Some(&choice), None).expect_err(says);
        assert_eq!(error.param, param);
        assert!(error.message.contains(says), "{error}");
    }
    for choice in [Value::Null, json!("auto"), json!("none")] {
        let none = Tools::new(None, Some(&choice), None).unwrap();
        assert!(none.parser().is_none() && *none.choice() == ToolChoice::None);
    }
    assert!(tools(json!("none"), true).parser().is_none());
    assert!(tools(json!("auto"), true).parser().is_some());
}

/// A byte for each token, then control tokens.
fn tokenizer(control: &[&str]) -> Arc<Tokenizer> {
    Arc::new(small(&[], control))
}

/// Draws tokens that the form allows: their text, names of visible ones included.
fn draw(tools: &Tools, tokenizer: &Arc<Tokenizer>, mut seed: u64) -> Result<String, GrammarError> {
    let visible = tools.visible(tokenizer);
    let form = tools.form(tokenizer).expect("it must call");
    let mut grammar = Grammars::new(tokenizer.clone())?.compile(&form)?;
    let mut bytes = vec![];
    for _ in 0..4000 {
        let mask = grammar.mask()?;
        let allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32).filter(|token| allows(&mask, *token)).collect();
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        // What closes something comes more often, or it might go on for ever.
        let closes = |token: &u32| *token >= 256 || matches!(*token as u8, b'"' | b'}' | b']');
        let closing: Vec<u32> = allowed.iter().copied().filter(closes).collect();
        let from = if !closing.is_empty() && random(2) == 0 { &closing } else { &allowed };
        let token = from[random(from.len())];
        grammar.push(token)?;
        if tokenizer.is_end(token) {
            return Ok(String::from_utf8(bytes).expect("a text"));
        }
        assert!(token < 256 || visible.contains(&token));
        bytes.extend(tokenizer.token_bytes(token));
    }
    panic!("never ends: {:?}", String::from_utf8_lossy(&bytes));
}

/// Whatever a model would say, under the form it is calls of these functions, and the parser finds them.
#[test]
fn forms_force_calls() {
    let (mut several, mut seen) = (0, std::collections::BTreeSet::new());
    for tokenizer in [tokenizer(&["<eos>"]), tokenizer(&["<eos>", "<tool_call>", "</tool_call>"])] {
        let control = tokenizer.vocab_size() > 257;
        for (choice, parallel) in [
            (json!("required"), true),
            (json!("required"), false),
            (json!({ "type": "function", "function": { "name": "weather" } }), true),
        ] {
            let tools = tools(choice.clone(), parallel);
            assert_eq!(tools.visible(&tokenizer), if control { vec![257, 258] } else { vec![] });
            for seed in 0..12 {
                let text = draw(&tools, &tokenizer, seed).unwrap();
                let mut parser = tools.parser().unwrap();
                let mut answer = ToolAnswer::default();
                answer.extend(parser.push(&text));
                answer.extend(parser.finish());
                assert!(answer.content.is_none() && !answer.calls.is_empty(), "{text}");
                assert!(answer.calls.len() == 1 || parallel && choice == "required", "{text}");
                several += answer.calls.len() - 1;
                for call in answer.calls {
                    let arguments: Value = serde_json::from_str(&call.arguments).expect("JSON");
                    match call.name.as_str() {
                        "weather" => {
                            assert!(arguments["city"].as_str().unwrap().chars().count() <= 6);
                            assert!((1..=7).contains(&arguments["days"].as_i64().unwrap()));
                        }
                        "clock \"x\"" => assert!(choice == "required" && arguments.is_object(), "{text}"),
                        other => panic!("no such function: {other}"),
                    }
                    seen.insert(call.name);
                }
            }
        }
    }
    assert!(several > 0 && seen.len() == 2);
}

#[test]
fn schemas_that_make_no_sense_are_told_where_they_force() {
    let bad = json!([{ "type": "function", "function": { "name": "f", "parameters": { "properties": { "a": { "type": "x" } } } } }]);
    let forced = Tools::new(Some(&bad), Some(&json!("required")), None).unwrap();
    let error = draw(&forced, &tokenizer(&["<eos>"]), 1).unwrap_err().to_string();
    assert!(error.starts_with("this grammar cannot be followed: "), "{error}");
    assert!(Tools::new(Some(&bad), None, None).unwrap().form(&tokenizer(&["<eos>"])).is_none());
}

/// A template as Qwen's models have: calls' arguments through `tojson`.
const QWEN: &str = "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\
    {{ c.function.arguments | tojson }}</tool_call>{% endfor %}{% endfor %}";
/// One that knows text alone, and whether the roles alternate.
const PLAIN: &str = "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('role') }}\
    {% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}";
const NO_SYSTEM: &str = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
    [{{ m.role }}]{{ m.content }}{% endfor %}";

fn history() -> Conversation {
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\":\"Oslo\"}" } });
    let messages = json!([
        { "role": "user", "content": "Weather?" },
        { "role": "assistant", "content": null, "tool_calls": [call, call] },
        { "role": "tool", "tool_call_id": "call_1", "content": "rain" },
        { "role": "tool", "tool_call_id": "call_2", "content": "sun" },
        { "role": "assistant", "content": "Rain." },
    ]);
    Conversation::new(serde_json::from_value::<Vec<Message>>(messages).unwrap())
}

fn rendered(template: &str, conversation: &Conversation, tools: &Tools) -> String {
    let template = ChatTemplate::new(template).unwrap();
    let mut conversation = conversation.clone();
    ToolFormat::of(&template).prepare(&mut conversation, tools);
    template.render(&conversation).unwrap()
}

#[test]
fn templates_that_know_tools_get_them() {
    let text = rendered(QWEN, &history(), &tools(json!("auto"), true));
    assert!(text.starts_with("<tools>{\"type\": \"function\", \"function\": {\"name\": \"weather\", "), "{text}");
    let call = "<tool_call>{\"city\": \"Oslo\"}</tool_call>";
    assert!(
        text.ends_with(&format!("[user]Weather?[assistant]{call}{call}[tool]rain[tool]sun[assistant]Rain.")),
        "{text}"
    );
    assert!(!rendered(QWEN, &history(), &tools(json!("none"), true)).contains("<tools>"));
}

#[test]
fn other_templates_get_instructions() {
    let auto = tools(json!("auto"), true);
    let text = rendered(PLAIN, &history(), &auto);
    let (instructions, rest) = text.split_once("[user]Weather?").unwrap();
    assert!(instructions.starts_with("[system]# Tools\n"), "{text}");
    assert!(instructions.contains("<tool_call>") && instructions.contains(&weather().to_string()), "{text}");
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>";
    let results = "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response>";
    assert_eq!(rest, format!("[assistant]{call}\n{call}[user]{results}[assistant]Rain."));
    // What the prompt shows of a call is what the parser takes.
    assert_eq!(plain(&parse([call], 9)), (None, vec![("weather", "{\"city\":\"Oslo\"}")]));

    let conversation = Conversation::new([Message::system("Be brief."), Message::user("Hi")]);
    let text = rendered(PLAIN, &conversation, &tools(json!("required"), false));
    assert!(
        text.starts_with("[system]Be brief.\n\n# Tools\n") && text.contains("You must call one of them."),
        "{text}"
    );
    assert_eq!(rendered(PLAIN, &conversation, &tools(json!("none"), true)), "[system]Be brief.[user]Hi");
    let conversation = Conversation::new([Message::user("Hi")]);
    let text = rendered(NO_SYSTEM, &conversation, &auto);
    assert!(text.starts_with("[user]# Tools\n") && text.ends_with("\n\nHi"), "{text}");
}
