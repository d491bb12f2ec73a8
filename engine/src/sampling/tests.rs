//! Parameters, rules and their meaning on a device.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::json;
use tegula::{Device, Stream};

use super::*;

static CPU: LazyLock<Stream> = LazyLock::new(|| Device::cpu().stream());

#[test]
fn defaults_are_those_of_the_docs() {
    let limits = Limits::new(10);
    assert!(SamplingParams::default().check(&limits).is_ok());
    assert!(SamplingParams::greedy().check(&limits).is_ok());
    let empty: SamplingParams = serde_json::from_value(json!({})).unwrap();
    assert_eq!(empty, SamplingParams::default());
    let error = serde_json::from_value::<SamplingParams>(json!({ "topk": 3 })).unwrap_err().to_string();
    assert!(error.contains("topk"), "{error}");
}

#[test]
fn bounds_are_checked_and_errors_name_field_value_and_what_would_be_right() {
    let of = |json: serde_json::Value| serde_json::from_value::<SamplingParams>(json).unwrap();
    let limits = Limits { max_n: 8, ..Limits::new(100) };
    let good = [
        json!({ "top_p": 1.0, "top_k": -1, "min_p": 1.0, "typical_p": 1.0, "temperature": 0.0 }),
        json!({ "top_k": 0, "seed": 0, "n": 8, "logprobs": 20, "prompt_logprobs": 0 }),
        json!({ "presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 0.1 }),
        json!({ "max_tokens": 5, "min_tokens": 5, "stop": ["a"], "stop_token_ids": [0, 99] }),
        json!({ "max_tokens": null, "min_tokens": 500, "logit_bias": { "99": -100.0, "0": 100.0 } }),
        json!({ "bad_words": [[1, 99]], "allowed_token_ids": [5] }),
    ];
    good.into_iter().for_each(|params| assert_eq!(of(params.clone()).check(&limits), Ok(()), "{params}"));
    let bad = [
        (json!({ "temperature": -0.5 }), "temperature is -0.5; it must be 0 or more"),
        (json!({ "top_p": 0.0 }), "top_p is 0; it must be above 0 and at most 1"),
        (json!({ "top_p": 1.01 }), "top_p is 1.01; it must be above 0 and at most 1"),
        (json!({ "top_p": -0.1 }), "top_p is -0.1; it must be above 0 and at most 1"),
        (json!({ "top_k": -2 }), "top_k is -2; it must be 1 or more, or 0 or -1 to keep all tokens"),
        (json!({ "min_p": -0.1 }), "min_p is -0.1; it must be from 0 to 1"),
        (json!({ "typical_p": 0.0 }), "typical_p is 0; it must be above 0 and at most 1"),
        (json!({ "repetition_penalty": 0.0 }), "repetition_penalty is 0; it must be above 0"),
        (json!({ "presence_penalty": 2.5 }), "presence_penalty is 2.5; it must be from -2 to 2"),
        (json!({ "frequency_penalty": -2.5 }), "frequency_penalty is -2.5; it must be from -2 to 2"),
        (json!({ "n": 0 }), "n is 0; it must be 1 or more"),
        (json!({ "n": 9 }), "n is 9; it must be at most 8"),
        (
            json!({ "n": 2, "temperature": 0.0 }),
            "n is 2; it must be 1 with a temperature of 0: all answers would be the same",
        ),
        (json!({ "max_tokens": 0 }), "max_tokens is 0; it must be 1 or more"),
        (json!({ "max_tokens": 3, "min_tokens": 4 }), "min_tokens is 4; it must be at most max_tokens, 3"),
        (json!({ "stop": ["a", ""] }), "stop is [\"a\", \"\"]; it must be of texts of one character or more"),
        (json!({ "bad_words": [[]] }), "bad_words is [[]]; it must be of sequences of one token or more"),
        (json!({ "allowed_token_ids": [] }), "allowed_token_ids is []; it must be of one token or more, or unset"),
        (json!({ "logprobs": 21 }), "logprobs is 21; it must be at most 20"),
        (json!({ "prompt_logprobs": 21 }), "prompt_logprobs is 21; it must be at most 20"),
        (
            json!({ "logit_bias": { "100": 1.0 } }),
            "logit_bias is of token 100; it must be of tokens of the vocabulary, 0 to 99",
        ),
        (json!({ "logit_bias": { "5": 1e30 } }), "logit_bias is 1e30 for token 5; it must be from -100 to 100"),
        (
            json!({ "stop_token_ids": [3, 100] }),
            "stop_token_ids is of token 100; it must be of tokens of the vocabulary, 0 to 99",
        ),
        (
            json!({ "allowed_token_ids": [101] }),
            "allowed_token_ids is of token 101; it must be of tokens of the vocabulary, 0 to 99",
        ),
        (
            json!({ "bad_words": [[1], [7, 100]] }),
            "bad_words is of token 100; it must be of tokens of the vocabulary, 0 to 99",
        ),
        (json!({ "stop": vec!["a"; 65] }), "stop is of 65 texts; it must be of at most 64"),
        (json!({ "stop": ["b", "a".repeat(1025)] }), "stop is of 1025 bytes in one text; it must be of at most 1024"),
        (json!({ "stop_token_ids": vec![1; 1025] }), "stop_token_ids is of 1025 tokens; it must be of at most 1024"),
        (json!({ "bad_words": vec![[1]; 1025] }), "bad_words is of 1025 sequences; it must be of at most 1024"),
        (json!({ "bad_words": [vec![1; 65]] }), "bad_words is of 65 tokens in one sequence; it must be of at most 64"),
        (
            json!({ "logit_bias": (0..1025).map(|t| (t.to_string(), 1.0)).collect::<BTreeMap<_, _>>() }),
            "logit_bias is of 1025 tokens; it must be of at most 1024",
        ),
    ];
    for (params, message) in bad {
        assert_eq!(of(params.clone()).check(&limits).unwrap_err().to_string(), message, "{params}");
    }
    for x in [f32::NAN, f32::INFINITY] {
        for params in [
            SamplingParams { temperature: x, ..Default::default() },
            SamplingParams { repetition_penalty: x, ..Default::default() },
            SamplingParams { presence_penalty: x, ..Default::default() },
            SamplingParams { logit_bias: [(1, x)].into(), ..Default::default() },
        ] {
            assert!(params.check(&limits).is_err(), "{params:?}");
        }
    }
}

#[test]
fn biases_of_requests() {
    let of = |value: serde_json::Value| logit_bias_from_json(&value).map_err(|e| e.to_string());
    assert_eq!(of(json!({ "5": 1, "50256": -100.0 })), Ok([(5, 1.0), (50256, -100.0)].into()));
    assert_eq!(of(json!({})), Ok([].into()));
    for (bad, says) in [
        (json!({ "-1": 1 }), "logit_bias is given for \"-1\""),
        (json!({ "abc": 1 }), "logit_bias is given for \"abc\""),
        (json!({ "+5": 1 }), "logit_bias is given for \"+5\""),
        (json!({ "4294967296": 1 }), "logit_bias is given for \"4294967296\""),
        (json!({ "5": "1" }), "logit_bias is \"1\" for token 5; it must be a number"),
        (json!([1]), "logit_bias is [1]; it must be an object"),
    ] {
        let message = of(bad.clone()).unwrap_err();
        assert!(message.starts_with(says), "{bad}: {message}");
    }
}

#[test]
fn answers_have_seeds_of_their_own_and_no_seed_is_not_zero() {
    let params = SamplingParams { n: 3, seed: Some(1), ..Default::default() };
    assert_eq!(params.draws().iter().map(|d| d.seed).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(params.draws(), params.draws());
    // The second of three is the one answer of the second seed.
    assert_eq!(params.draws()[1], SamplingParams { n: 1, seed: Some(2), ..params.clone() }.draws()[0]);
    let unset = SamplingParams { seed: None, ..params };
    let seeds: std::collections::HashSet<u64> = (0..50).map(|_| unset.draws()[0].seed).collect();
    assert_eq!(seeds.len(), 50);
    assert_eq!(SamplingParams { n: 2, seed: Some(u64::MAX), ..unset }.draws()[1].seed, 0);
}

#[test]
fn tokens_that_end_an_answer() {
    let params = SamplingParams { stop_token_ids: vec![7, 3], ..Default::default() };
    assert_eq!(params.ending_tokens([2, 3, 1]), [1, 2, 3, 7]);
    assert_eq!(SamplingParams { ignore_eos: true, ..params }.ending_tokens([2, 3, 1]), [3, 7]);
}

fn rules(params: SamplingParams, prompt: &[u32], ends: &[u32]) -> LogitRules {
    LogitRules::new(Arc::new(params), prompt, ends, 100)
}

#[test]
fn penalties_count_what_was_said() {
    let params = SamplingParams {
        repetition_penalty: 1.5,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        logit_bias: [(4, 2.0), (9, -1.0)].into(),
        ..Default::default()
    };
    let mut rules = rules(params, &[4, 5], &[]);
    rules.push(6);
    rules.push(4);
    rules.push(6);
    let edit = |token, bias, repetition, penalty| Edit { token, bias, repetition, penalty };
    let want = [edit(4, 2.0, 1.5, 0.75), edit(5, 0.0, 1.5, 0.0), edit(6, 0.0, 1.5, 1.0), edit(9, -1.0, 1.0, 0.0)];
    assert_eq!(rules.edits(None), want);
    // Bias first, then repetition by the sign, then the others.
    assert_eq!(want[0].of(1.0), 3.0 / 1.5 - 0.75);
    assert_eq!(want[0].of(-4.0), -2.0 * 1.5 - 0.75);
}

#[test]
fn no_end_before_its_time() {
    let params = SamplingParams { min_tokens: 3, logit_bias: [(7, 5.0)].into(), ..Default::default() };
    let mut rules = rules(params, &[1], &[7, 8]);
    for n in 0..5 {
        let edits = rules.edits(None);
        let bans: Vec<u32> = edits.iter().filter(|e| e.is_ban()).map(|e| e.token).collect();
        assert_eq!(bans, if n < 3 { vec![7, 8] } else { vec![] }, "after {n} tokens");
        rules.push(50);
    }
}

#[test]
fn bad_words_end_before_their_last_token() {
    let bad_words = vec![vec![5], vec![1, 2, 3], vec![2, 2]];
    let params = SamplingParams { bad_words, ..Default::default() };
    // What the prompt says does not count.
    let mut rules = rules(params, &[1, 2], &[]);
    let mut banned = vec![];
    for token in [9, 1, 2, 2, 1, 1, 2, 3] {
        banned.push(rules.edits(None).iter().map(|e| e.token).collect::<Vec<_>>());
        rules.push(token);
    }
    assert_eq!(banned, [&[5][..], &[5], &[5], &[2, 3, 5], &[2, 5], &[5], &[5], &[2, 3, 5]]);
}

/// A mask that a ban would empty wins: the answer can go on.
#[test]
fn bans_leave_something_of_a_mask() {
    let params = SamplingParams { min_tokens: 3, allowed_token_ids: Some(vec![7, 200]), ..Default::default() };
    let rules = rules(params, &[1], &[7]);
    let mask = rules.mask().unwrap();
    assert_eq!(mask, mask_of(&[7], 100));
    assert_eq!(rules.edits(Some(mask)), []);
    assert_eq!(rules.edits(Some(&mask_of(&[7, 64], 100))), [Edit::ban(7)]);
}

/// Bans of all tokens there are would end everything: then there are none.
#[test]
fn bans_leave_something_of_the_vocabulary() {
    let all_but = |but: u32| (0..100).filter(|t| *t != but).map(|t| vec![t]).collect();
    let params = SamplingParams { bad_words: all_but(100), ..Default::default() };
    assert_eq!(rules(params, &[1], &[]).edits(None), []);
    let params = SamplingParams { bad_words: all_but(50), min_tokens: 2, ..Default::default() };
    let mut with_ends = rules(params.clone(), &[1], &[50]);
    assert_eq!(with_ends.edits(None), []);
    [50, 50].into_iter().for_each(|token| with_ends.push(token));
    assert_eq!(with_ends.edits(None).len(), 99);
    assert!(rules(params, &[1], &[]).edits(None).iter().all(|e| e.is_ban() && e.token != 50));
}

fn some_edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (prop_oneof![Just(f32::NEG_INFINITY), -50f32..50.0], 0.3f32..2.5, -3f32..3.0);
    prop::collection::btree_map(0u32..75, edit, 0..40).prop_map(|edits| {
        let of = |(token, (bias, repetition, penalty))| Edit { token, bias, repetition, penalty };
        edits.into_iter().map(of).collect()
    })
}

proptest! {
    /// Edits are kept up as tokens come: they are what the prompt and the answer as a whole give.
    #[test]
    fn edits_follow_from_prompt_and_answer_as_a_whole(
        prompt in prop::collection::vec(0u32..30, 1..20),
        answer in prop::collection::vec(0u32..30, 0..40),
        bias in prop::collection::btree_map(0u32..30, -5f32..5.0, 0..6),
        (repetition_penalty, presence_penalty, frequency_penalty) in
            (prop_oneof![Just(1f32), 0.5f32..2.0], prop_oneof![Just(0f32), -2f32..2.0], prop_oneof![Just(0f32), -2f32..2.0]),
        word in prop::collection::vec(0u32..30, 1..3),
    ) {
        let params = SamplingParams {
            repetition_penalty, presence_penalty, frequency_penalty, logit_bias: bias.clone(),
            bad_words: vec![word.clone()], ..Default::default()
        };
        let mut rules = rules(params, &prompt, &[]);
        answer.iter().for_each(|&token| rules.push(token));
        let mut logits = vec![1.25f32; 100];
        apply(&rules.edits(None), None, &mut logits);
        for token in 0..100u32 {
            let count = answer.iter().filter(|t| **t == token).count();
            let mut want = 1.25 + bias.get(&token).copied().unwrap_or(0.0);
            if count > 0 || prompt.contains(&token) {
                want = if want > 0.0 { want / repetition_penalty } else { want * repetition_penalty };
            }
            if count > 0 {
                want -= frequency_penalty * count as f32 + presence_penalty;
            }
            let (last, before) = word.split_last().unwrap();
            if token == *last && answer.ends_with(before) {
                want = f32::NEG_INFINITY;
            }
            prop_assert_eq!(logits[token as usize], want, "token {}", token);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The device does what the host says, bit for bit, to the rows that have rules and to no other; and log-probabilities
    /// are near those of float64, with the same tokens.
    #[test]
    fn the_device_does_what_the_host_says(
        logits in prop::collection::vec(prop_oneof![9 => -20f32..20.0, 1 => Just(f32::NEG_INFINITY)], 3 * 70),
        edits in [some_edits(), some_edits()],
        mask in prop::option::of(prop::collection::vec(any::<u32>(), 1..4)),
        chosen in 0u32..70,
        top in 0u32..25,
    ) {
        const V: usize = 70;
        let chooser = Chooser::new(CPU.device()).unwrap();
        let mut tensor = CPU.device().tensor([3, V], &logits).unwrap();
        let rules = [
            RowRules { row: 2, edits: &edits[0], mask: None },
            RowRules { row: 0, edits: &edits[1], mask: mask.as_deref() },
        ];
        let mut want = logits.clone();
        for rule in &rules {
            apply(rule.edits, rule.mask, &mut want[rule.row * V..][..V]);
        }
        chooser.apply(&CPU, &mut tensor, &rules).unwrap();
        let got = tensor.as_slice().to_vec();
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            prop_assert!(g.to_bits() == w.to_bits(), "row {}, token {}: {g} is not {w}", i / V, i % V);
        }

        let items = [LogprobsOf { row: 1, token: chosen, top }, LogprobsOf { row: 0, token: chosen, top: 3 }];
        let found = chooser.logprobs(&CPU, &tensor, &items).unwrap();
        for (item, found) in items.iter().zip(found) {
            let want = host_logprobs(&got[item.row * V..][..V], item.token, item.top as usize).unwrap();
            prop_assert_eq!(found.rank, want.rank);
            prop_assert_eq!(found.top.len(), want.top.len());
            let pairs = found.top.iter().zip(&want.top).chain([(&found.chosen, &want.chosen)]);
            for (f, w) in pairs {
                prop_assert_eq!(f.token, w.token);
                prop_assert!((f.logprob - w.logprob).abs() < 2e-5 * (1.0 + w.logprob.abs()), "{f:?} is not {w:?}");
                prop_assert!(f.logprob.is_finite());
            }
        }
    }
}

#[test]
fn logprobs_are_numbers() {
    let logits = [f32::NEG_INFINITY, 0.0, f32::NAN, 0.0];
    let all = host_logprobs(&logits, 2, 4).unwrap();
    assert_eq!(all.top.iter().map(|l| l.token).collect::<Vec<_>>(), [1, 3, 0, 2]);
    assert_eq!(all.chosen.logprob, LEAST_LOGPROB);
    assert_eq!(all.rank, 4);
    assert!((all.top[0].logprob + 2f32.ln()).abs() < 1e-6);
    assert!(serde_json::to_string(&all).unwrap().contains("-9999.0"));
    assert_eq!(host_logprobs(&logits, 4, 1), None);
    let nothing = host_logprobs(&[f32::NAN; 3], 1, 1).unwrap();
    assert_eq!((nothing.chosen.logprob, nothing.top[0].token), (LEAST_LOGPROB, 0));
}

/// A row without usable logits gives none, its neighbours what they give alone; a copy of a row is what it was.
#[test]
fn a_row_without_logits_is_its_own_affair() {
    let (v, chooser) = (7, Chooser::new(CPU.device()).unwrap());
    let logits: Vec<f32> = [[1.0; 7], [f32::NAN; 7], [0.25; 7], [f32::NEG_INFINITY; 7]].concat();
    let mut tensor = CPU.device().tensor([4, v], &logits).unwrap();
    let draw = SamplingParams::default().draw(3);
    let of = |row: usize| {
        let alone = CPU.device().tensor([1, v], &logits[row * v..][..v]).unwrap();
        chooser.draw(&CPU, &alone, &[(draw, 9)]).unwrap()[0]
    };
    let rows = [(draw, 9); 4];
    assert_eq!(chooser.draw(&CPU, &tensor, &rows).unwrap(), [of(0), None, of(2), None]);
    assert!(of(0).is_some() && of(2).is_some());

    let mut kept = CPU.device().zeros([4, v]).unwrap();
    chooser.copy(&CPU, &tensor, &[2, 0], &mut kept).unwrap();
    chooser.apply(&CPU, &mut tensor, &[RowRules { row: 2, edits: &[Edit::ban(1)], mask: None }]).unwrap();
    assert_eq!(kept.as_slice(), [[0.25; 7], [1.0; 7], [0.0; 7], [0.0; 7]].concat());
    assert_eq!(tensor.as_slice()[2 * v + 1], f32::NEG_INFINITY);
}

/// A greedy row is the argmax after its rules, whatever filters and seed.
#[test]
fn greedy_is_independent_of_filters_and_seed() {
    let logits = [0.5, 3.0, 3.0, -1.0, 2.0];
    let tensor = CPU.device().tensor([1, 5], &logits).unwrap();
    let chooser = Chooser::new(CPU.device()).unwrap();
    for (top_p, top_k, seed) in [(1.0, 0, 0), (0.1, 5, 7), (0.5, 1, u64::MAX)] {
        let params = SamplingParams { top_p, top_k, seed: Some(seed), ..SamplingParams::greedy() };
        assert_eq!(chooser.draw(&CPU, &tensor, &[(params.draws()[0], 9)]).unwrap(), [Some(1)]);
    }
}
