//! How answers end.

use tegula_engine::engine::{Answer, Request, Scripted, Update};
use tegula_engine::grammar::Form;
use tegula_engine::sampling::SamplingParams;
use tegula_engine::schedule::FinishReason;
use tegula_engine::text::StopReason;

use super::support::{Checked, END, start};

/// An engine that always answers this.
fn says(text: &str) -> Checked {
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    start(Scripted::new(257, 4, 64, 200).answers(&tokens), |b| b)
}

fn ask(engine: &Checked, params: SamplingParams) -> Answer {
    engine.generate(Request::new(vec![1, 2, 3], params)).unwrap().wait().answers.remove(0)
}

fn end(answer: &Answer) -> (FinishReason, Option<StopReason>, usize) {
    let end = answer.end.clone().unwrap();
    (end.reason, end.stop, end.num_output_tokens)
}

fn text(stop: &str) -> Option<StopReason> {
    Some(StopReason::Text(stop.into()))
}

#[test]
fn of_themselves_by_a_token_a_text_or_for_length() {
    let engine = says("one two three");
    let params = |max_tokens| SamplingParams { max_tokens, ..SamplingParams::greedy() };
    let answer = ask(&engine, params(None));
    assert_eq!(
        (answer.text.as_str(), end(&answer)),
        ("one two three", (FinishReason::Stop, Some(StopReason::EndOfText), 14))
    );
    let answer = ask(&engine, params(Some(5)));
    assert_eq!((answer.text.as_str(), end(&answer)), ("one t", (FinishReason::Length, None, 5)));
    let answer = ask(&engine, SamplingParams { stop: vec!["two".into()], ..params(None) });
    assert_eq!((answer.text.as_str(), end(&answer)), ("one ", (FinishReason::Stop, text("two"), 7)));
    let stop = SamplingParams { stop: vec!["two".into()], include_stop_str_in_output: true, ..params(None) };
    assert_eq!(ask(&engine, stop).text, "one two");
    let token = u32::from(b'w');
    let answer = ask(&engine, SamplingParams { stop_token_ids: vec![token], ..params(None) });
    assert_eq!(
        (answer.text.as_str(), end(&answer)),
        ("one t", (FinishReason::Stop, Some(StopReason::Token(token)), 6))
    );
}

/// A stop string that is complete with the last token that an answer may have: it stopped, and was not cut off.
#[test]
fn the_text_comes_before_the_number_of_tokens() {
    let engine = says("one two three");
    let params = |max_tokens| SamplingParams { max_tokens, stop: vec!["two".into()], ..SamplingParams::greedy() };
    let answer = ask(&engine, params(Some(7)));
    assert_eq!((answer.text.as_str(), end(&answer)), ("one ", (FinishReason::Stop, text("two"), 7)));
    // One less, and what was held back for it is text.
    let answer = ask(&engine, params(Some(6)));
    assert_eq!((answer.text.as_str(), end(&answer)), ("one tw", (FinishReason::Length, None, 6)));
    let all = "one two three".len() + 1;
    let answer = ask(&engine, SamplingParams { max_tokens: Some(all), ..SamplingParams::greedy() });
    assert_eq!(end(&answer), (FinishReason::Stop, Some(StopReason::EndOfText), all));
}

#[test]
fn not_before_the_least_number_of_tokens() {
    let engine = says("aXbXcXd");
    let params = |min_tokens| SamplingParams {
        min_tokens,
        max_tokens: Some(20),
        stop: vec!["X".into()],
        ..SamplingParams::greedy()
    };
    let answers: Vec<String> = (0..7).map(|least| ask(&engine, params(least)).text).collect();
    assert_eq!(answers, ["a", "a", "a", "aXb", "aXb", "aXbXc", "aXbXc"]);
}

#[test]
fn end_tokens_can_be_ignored() {
    let model = Scripted::new(257, 4, 64, 200).says(|_, answer| if answer.len() == 2 { END } else { 65 });
    let engine = start(model, |b| b);
    let params = SamplingParams { max_tokens: Some(5), ignore_eos: true, ..SamplingParams::greedy() };
    let answer = ask(&engine, params.clone());
    assert_eq!((answer.text.as_str(), answer.tokens.len()), ("AAAA", 5));
    assert_eq!(end(&answer), (FinishReason::Length, None, 5));
    // Unless somebody asks for that one in particular.
    let answer = ask(&engine, SamplingParams { stop_token_ids: vec![END], ..params });
    assert_eq!((answer.text.as_str(), end(&answer)), ("AA", (FinishReason::Stop, Some(StopReason::Token(END)), 3)));
}

/// Characters of several tokens, and a beginning of one at the end.
#[test]
fn text_comes_in_whole_characters() {
    let engine = says("aé€\u{1F600}");
    let params = SamplingParams { max_tokens: Some(9), ..SamplingParams::greedy() };
    let generation = engine.generate(Request::new(vec![1], params)).unwrap();
    let (mut parts, mut rest) = (vec![], String::new());
    for update in generation.blocking() {
        match update {
            Update::Token(token) => parts.push(token.text),
            Update::Finished(end) => rest = end.text,
            _ => {}
        }
    }
    assert_eq!(parts, ["a", "", "é", "", "", "€", "", "", ""]);
    assert_eq!(rest, "\u{FFFD}");
}

/// An answer under a form follows it, with steps planned ahead, and ends when it is complete.
#[test]
fn forms_are_followed_with_steps_planned_ahead() {
    for overlap in [false, true] {
        let model = Scripted::new(257, 4, 64, 200).says(|_, answer| u32::from(b"zebra"[answer.len() % 5]));
        let engine = start(model, |b| b.overlap(overlap));
        let params = SamplingParams { max_tokens: Some(50), seed: Some(1), n: 2, ..SamplingParams::default() };
        let form = Form::Choice(vec!["zebra crossing".into(), "zoo".into()]);
        let request = Request { form: Some(form), ..Request::new(vec![1, 2], params) };
        let completion = engine.generate(request).unwrap().wait();
        for answer in &completion.answers {
            assert_eq!(answer.text, "zebra crossing");
            assert_eq!(answer.end.as_ref().unwrap().reason, FinishReason::Stop);
        }
    }
}
