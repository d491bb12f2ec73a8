//! The text of an answer beside its definition on the whole.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::sampling::SamplingParams;
use crate::tokenizer::{Tokenizer, small::small};

/// Words over an alphabet so small that stop strings occur; parts of characters; control tokens, two of which end a text.
const WORDS: &[&[u8]] =
    &[b"ab", b"aba", b"bab", "é".as_bytes(), "aé".as_bytes(), b"\xf0\x9f", b"\x98\x80", b"b\xc3", b"\xa9a"];
const CONTROL: &[&str] = &["<eos>", "<|im_end|>", "<tool>"];
const FIRST_WORD: u32 = 256;
const EOS: u32 = FIRST_WORD + WORDS.len() as u32;
const IM_END: u32 = EOS + 1;
const TOOL: u32 = EOS + 2;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| small(WORDS, CONTROL));

fn params(stop: &[&str]) -> SamplingParams {
    SamplingParams { stop: stop.iter().map(|s| s.to_string()).collect(), ..Default::default() }
}

/// All deltas, those after the end and the last included.
fn stream(params: &SamplingParams, tokens: &[u32]) -> (Vec<String>, Option<StopReason>) {
    let mut text = Detokenizer::new(params);
    let (mut deltas, mut stopped) = (vec![], None);
    for &token in tokens {
        let delta = text.push(&TOKENIZER, token);
        deltas.push(delta.text);
        stopped = stopped.or(delta.stopped);
    }
    let rest = text.finish();
    deltas.push(rest.text);
    (deltas, stopped.or(rest.stopped))
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[test]
fn a_stop_string_is_never_given_out_in_part() {
    let (deltas, stopped) = stream(&params(&["DEFGHIJ"]), &bytes("ABCDEFGHIJKL"));
    assert_eq!(deltas, ["A", "B", "C", "", "", "", "", "", "", "", "", "", ""]);
    assert_eq!(stopped, Some(StopReason::Text("DEFGHIJ".into())));
    // What was only its beginning comes at once when that is clear.
    let (deltas, stopped) = stream(&params(&["DEFGHIJ"]), &bytes("ABCDEFX"));
    assert_eq!((deltas, stopped), (["A", "B", "C", "", "", "", "DEFX", ""].map(String::from).to_vec(), None));
    let (deltas, _) = stream(&params(&["DEF"]), &bytes("ABDE"));
    assert_eq!(deltas, ["A", "B", "", "", "DE"]);
}

#[test]
fn a_stop_string_can_be_included() {
    let params = SamplingParams { include_stop_str_in_output: true, ..params(&["DEF"]) };
    let (deltas, _) = stream(&params, &bytes("ABCDEFG"));
    assert_eq!(deltas.concat(), "ABCDEF");
}

#[test]
fn the_first_end_counts_and_of_equal_ends_the_longest() {
    for (stops, text, left, which) in [
        (["cd", "bcdef"], "abcdefg", "ab", "cd"),
        (["d", "bcd"], "abcdefg", "a", "bcd"),
        (["abab", "ba"], "abababab", "a", "ba"),
        (["xyz", "éé"], "aéééb", "a", "éé"),
    ] {
        for stops in [stops, [stops[1], stops[0]]] {
            let (deltas, stopped) = stream(&params(&stops), &bytes(text));
            assert_eq!((deltas.concat().as_str(), stopped), (left, Some(StopReason::Text(which.into()))), "{stops:?}");
        }
    }
}

#[test]
fn characters_come_whole() {
    let face = TOKENIZER.encode("😀", crate::tokenizer::Special::AsText);
    assert_eq!(face.len(), 4);
    let (deltas, _) = stream(&params(&[]), &[&bytes("a"), &face[..], &bytes("b")].concat());
    assert_eq!(deltas, ["a", "", "", "", "😀", "b", ""]);
    // The beginning of one, at the end.
    let (deltas, _) = stream(&params(&[]), &[97, 0xf0, 0x9f]);
    assert_eq!(deltas, ["a", "", "", "\u{fffd}"]);
}

#[test]
fn tokens_that_end() {
    let of = |params: &SamplingParams, tokens: &[u32]| {
        let (deltas, stopped) = stream(params, tokens);
        (deltas.concat(), stopped)
    };
    let plain = params(&[]);
    // All end tokens of the model, that of its metadata and those known by name.
    for end in [EOS, IM_END] {
        assert_eq!(of(&plain, &[97, end, 98]), ("a".into(), Some(StopReason::EndOfText)));
    }
    assert_eq!(of(&plain, &[97, TOOL, 98]), ("ab".into(), None));
    let ignore = SamplingParams { ignore_eos: true, ..plain.clone() };
    assert_eq!(of(&ignore, &[97, EOS, 98]), ("ab".into(), None));
    let asked = SamplingParams { stop_token_ids: vec![98, TOOL], ..plain.clone() };
    assert_eq!(of(&asked, &[97, 98, 99]), ("a".into(), Some(StopReason::Token(98))));
    assert_eq!(of(&asked, &[97, TOOL, 99]), ("a".into(), Some(StopReason::Token(TOOL))));
    let included = SamplingParams { include_stop_str_in_output: true, ..asked.clone() };
    assert_eq!(of(&included, &[97, 98, 99]), ("ab".into(), Some(StopReason::Token(98))));
    assert_eq!(of(&included, &[97, TOOL, 99]), ("a".into(), Some(StopReason::Token(TOOL))));
    let shown = SamplingParams { skip_special_tokens: false, ..included };
    assert_eq!(of(&shown, &[97, TOOL, 99]), ("a<tool>".into(), Some(StopReason::Token(TOOL))));
    let shown = SamplingParams { skip_special_tokens: false, ..plain.clone() };
    assert_eq!(of(&shown, &[97, TOOL, 99, EOS]), ("a<tool>c".into(), Some(StopReason::EndOfText)));
    let mut tags = Detokenizer::new(&params(&["l>c"])).visible(&[TOOL]);
    let mut push = |token| tags.push(&TOKENIZER, token);
    assert_eq!([push(97), push(TOOL), push(98), push(TOOL)].map(|delta| delta.text), ["a", "<too", "l>b", "<too"]);
    assert_eq!(push(99), Delta { text: String::new(), stopped: Some(StopReason::Text("l>c".into())) });
    // Not before the fifth token.
    let late = SamplingParams { min_tokens: 5, stop: vec!["b".into()], ..plain };
    assert_eq!(of(&late, &[97, EOS, 98, IM_END, 99, 98]), ("abc".into(), Some(StopReason::Text("b".into()))));
    assert_eq!(of(&late, &[97, 98, 97, 97, EOS, 98]), ("abaa".into(), Some(StopReason::EndOfText)));
    // What was held back comes before the end.
    let holds = params(&["abc"]);
    assert_eq!(of(&holds, &[97, 98, EOS]), ("ab".into(), Some(StopReason::EndOfText)));
}

#[test]
fn labels_tell_tokens_apart() {
    assert_eq!(token_label("né".as_bytes()), "né");
    assert_eq!(token_label(b"\xe4\xbd"), "bytes:\\xe4\\xbd");
    let labels: std::collections::HashSet<String> = (0..=255u8).map(|b| token_label(&[b])).collect();
    assert_eq!(labels.len(), 256);
}

/// The text of bytes to which more may come: without what may be the beginning of a character.
fn complete(bytes: &[u8]) -> String {
    let open = |k: &usize| {
        let end = &bytes[bytes.len() - k..];
        let needs = match end[0] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        // With the right continuation it would be a character.
        needs > *k
            && (0x80..=0xbfu8).any(|b| {
                let full: Vec<u8> = end.iter().copied().chain(vec![b; needs - k]).collect();
                std::str::from_utf8(&full).is_ok()
            })
    };
    let cut = (1..=bytes.len().min(3)).find(open).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..bytes.len() - cut]).into_owned()
}

/// The same, slowly, and on the whole text: what is given out after each token, and why it ends.
fn definition(params: &SamplingParams, visible: &[u32], tokens: &[u32]) -> (Vec<String>, Option<StopReason>) {
    let (mut all, mut out) = (vec![], vec![]);
    let mut before = 0;
    for (i, &token) in tokens.iter().enumerate() {
        let counts = i + 1 >= params.min_tokens;
        let named = params.stop_token_ids.contains(&token);
        let end = counts && (named || !params.ignore_eos && [EOS, IM_END].contains(&token));
        if !end || params.include_stop_str_in_output {
            let shown = !params.skip_special_tokens || token < EOS || visible.contains(&token);
            all.extend(if shown { TOKENIZER.token_bytes(token) } else { &[] });
        }
        let text = if end { String::from_utf8_lossy(&all).into_owned() } else { complete(&all) };
        if counts && let Some((stop, start, stopped_at)) = first_stop(params, &text, before) {
            let cut = if params.include_stop_str_in_output { stopped_at } else { start };
            out.push(text[..cut].to_owned());
            return (out, Some(StopReason::Text(stop)));
        }
        if end {
            let reason = if named { StopReason::Token(token) } else { StopReason::EndOfText };
            out.push(text);
            return (out, Some(reason));
        }
        before = text.len();
        let claimed =
            |k: &usize| params.stop.iter().any(|s| *k < s.len() && text.as_bytes().ends_with(&s.as_bytes()[..*k]));
        let held = (1..=text.len()).filter(claimed).max().unwrap_or(0);
        out.push(text[..text.len() - held].to_owned());
    }
    let text = String::from_utf8_lossy(&all).into_owned();
    match first_stop(params, &text, before).filter(|_| tokens.len() >= params.min_tokens) {
        Some((stop, start, end)) => {
            let cut = if params.include_stop_str_in_output { end } else { start };
            out.push(text[..cut].to_owned());
            (out, Some(StopReason::Text(stop)))
        }
        None => {
            out.push(text);
            (out, None)
        }
    }
}

/// The occurrence that ends first after `from`, of those the one that begins first: its text, beginning and end.
fn first_stop(params: &SamplingParams, text: &str, from: usize) -> Option<(String, usize, usize)> {
    let at = |stop: &String| {
        let starts = (0..text.len()).filter(|&i| text.as_bytes()[i..].starts_with(stop.as_bytes()));
        starts.map(|i| (i + stop.len(), i, stop.clone())).filter(|o| o.0 > from).min()
    };
    params.stop.iter().filter_map(at).min().map(|(end, start, stop)| (stop, start, end))
}

fn token() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => FIRST_WORD..EOS,
        3 => prop::sample::select(vec![97u32, 98]),
        2 => prop::sample::select(vec![0xc3u32, 0xa9, 0xe0, 0xf0, 0x9f, 0x80, 0xff]),
        1 => prop::sample::select(vec![EOS, IM_END, TOOL]),
    ]
}

fn stop() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[abé]{1,5}", 1 => "[ab😀\u{fffd}]{1,3}", 1 => Just("<tool>".to_owned())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// After every token exactly the text is out that the definition says, and the end is the same.
    #[test]
    fn deltas_are_those_of_the_definition(
        tokens in prop::collection::vec(token(), 0..30),
        stop in prop::collection::vec(stop(), 0..4),
        stop_token_ids in prop::collection::vec(prop::sample::select(vec![TOOL, 98, FIRST_WORD + 2]), 0..2),
        min_tokens in prop_oneof![Just(0usize), 0usize..20],
        visible in prop::collection::vec(prop::sample::select(vec![TOOL, EOS]), 0..2),
        flags in any::<[bool; 3]>(),
    ) {
        let [include_stop_str_in_output, ignore_eos, skip_special_tokens] = flags;
        let params = SamplingParams {
            stop, stop_token_ids, min_tokens, include_stop_str_in_output, ignore_eos, skip_special_tokens,
            ..Default::default()
        };
        let (want, reason) = definition(&params, &visible, &tokens);
        let mut text = Detokenizer::new(&params).visible(&visible);
        let (mut out, mut stopped) = (String::new(), None);
        for (i, &token) in tokens.iter().enumerate() {
            let delta = text.push(&TOKENIZER, token);
            out += &delta.text;
            prop_assert_eq!(&out, &want[i.min(want.len() - 1)], "after token {}", i);
            stopped = delta.stopped;
            if stopped.is_some() {
                break;
            }
        }
        let rest = text.finish();
        out += &rest.text;
        prop_assert_eq!(&out, want.last().unwrap());
        prop_assert_eq!(stopped.or(rest.stopped), reason);
        // Nothing more comes.
        prop_assert_eq!(text.push(&TOKENIZER, 97), Delta::default());
    }

    /// One piece or many: the same place.
    #[test]
    fn a_text_is_cut_at_the_same_place_however_it_comes(
        text in "[abé]{0,40}",
        stop in prop::collection::vec("[abé]{1,4}", 1..4),
        cuts in prop::collection::vec(0usize..80, 0..8),
    ) {
        let whole = StopStrings::new(&stop).push(&text, true);
        let mut pieces = StopStrings::new(&stop);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| text.is_char_boundary(c)).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let found = cuts.windows(2).find_map(|w| pieces.push(&text[w[0]..w[1]], true));
        prop_assert_eq!(found, whole);
    }
}
