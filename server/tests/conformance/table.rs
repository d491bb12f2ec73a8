//! All rows, and which of them apply.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::figure::Figure;
use super::{rows_forms as forms, rows_model as model, rows_params as params, rows_prompt as prompt};
use super::{rows_state as state, rows_text as text};

/// What becomes of a row.
enum Row {
    /// It applies: its tests.
    Tests(&'static [fn()]),
    /// It does not: why.
    No(&'static str),
}

use Row::{No, Tests};

const SPECULATION: &str = "nothing is decoded ahead of the model";

/// Every row, in order.
const ROWS: &[(&str, Row)] = &[
    (
        "T01",
        Tests(&[
            text::t01_a_character_over_several_tokens,
            text::t01_a_character_cut_off_by_the_last_token,
            text::t01_several_answers_beside_each_other_do_not_mix_their_bytes,
        ]),
    ),
    ("T03", Tests(&[text::t03_bytes_that_are_no_text, text::t03_what_json_and_events_write_in_special_ways])),
    ("T04", Tests(&[text::t04_log_probabilities_of_bytes, text::t04_log_probabilities_of_bytes_in_completions])),
    (
        "T05",
        Tests(&[
            text::t05_a_stop_string_is_never_seen,
            text::t05_stop_strings_of_every_kind,
            text::t05_a_stop_string_inside_a_token_of_several_characters,
            text::t05_stop_strings_in_a_stream_of_several_answers,
        ]),
    ),
    (
        "T07",
        Tests(&[
            text::t07_stop_strings_are_found_in_the_text_that_is_seen,
            text::t07_tokens_of_control_are_not_seen_and_stop_strings_do_not_see_them,
        ]),
    ),
    ("T08", Tests(&[model::t08_no_end_before_there_are_enough_tokens])),
    ("T09", Tests(&[text::t09_every_end_token_ends, text::t09_tokens_that_were_asked_to_end])),
    ("T10", Tests(&[prompt::t10_a_prompt_echoed_and_nothing_more, prompt::t10_a_prompt_echoed_before_its_answer])),
    (
        "T11",
        Tests(&[
            prompt::t11_prompts_of_nothing,
            prompt::t11_a_prompt_of_nothing_behind_bos,
            prompt::t11_messages_of_nothing,
        ]),
    ),
    ("T13", Tests(&[prompt::t13_a_prompt_ten_times_too_long, prompt::t13_a_body_without_end])),
    ("T14", Tests(&[prompt::t14_an_answer_without_bounds_ends_with_the_context, prompt::t14_lengths_that_are_none])),
    ("T15", Tests(&[prompt::t15_one_bos_whatever_the_way, prompt::t15_without_bos_there_is_none])),
    (
        "T17",
        Tests(&[
            params::t17_bounds_of_numbers,
            params::t17_bounds_of_everything_else,
            params::t17_parameters_that_would_change_the_answer_are_not_dropped,
        ]),
    ),
    ("T18", Tests(&[model::t18_without_temperature_the_best_token, model::t18_of_equals_the_lowest])),
    ("T19", Tests(&[model::t19_alone_and_with_others_and_in_parts])),
    (
        "T20",
        Tests(&[
            params::t20_several_answers_are_those_of_several_seeds,
            model::t20_answers_of_several_seeds_from_a_model,
        ]),
    ),
    ("T21", Tests(&[params::t21_without_a_seed_nobody_can_tell])),
    (
        "T23",
        Tests(&[
            params::t23_biases_that_are_none,
            params::t23_more_than_can_be_wanted,
            params::t23_others_are_served_beside_what_is_refused,
        ]),
    ),
    ("T24", Tests(&[model::t24_log_probabilities_of_what_cannot_be])),
    (
        "T25",
        Tests(&[
            params::t25_log_probabilities_of_a_prompt_twice,
            params::t25_log_probabilities_of_a_prompt_in_parts,
            model::t25_log_probabilities_of_a_prompt_by_a_model,
        ]),
    ),
    ("T26", Tests(&[model::t26_log_probabilities_of_a_long_prompt_in_parts])),
    // By its salts: adapters are none.
    ("T28", Tests(&[state::t28_a_salt_keeps_blocks_apart])),
    ("T29", Tests(&[state::t29_the_cache_changes_no_answer, model::t29_a_models_cache_changes_no_answer])),
    ("T30", Tests(&[state::t30_preempted_answers_are_the_same, model::t30_a_models_preempted_answers_are_the_same])),
    ("T31", Tests(&[prompt::t31_more_than_the_pool, prompt::t31_the_queue_goes_on_behind_it])),
    (
        "T32",
        Tests(&[
            state::t32_sockets_dropped_at_any_token,
            state::t32_clients_that_vanish_before_there_is_anything_to_read,
            state::t32_half_of_many_samples_are_dropped_with_their_request,
        ]),
    ),
    ("T34", Tests(&[state::t34_metrics_agree_with_what_was_served, state::t34_metrics_after_all_were_aborted])),
    ("T35", No(SPECULATION)),
    ("T36", No(SPECULATION)),
    (
        "T37",
        Tests(&[
            forms::t37_arguments_with_all_that_confuses,
            forms::t37_several_calls,
            forms::t37_what_is_no_call_is_text,
            forms::t37_a_call_cut_off,
            forms::t37_calls_that_are_demanded,
        ]),
    ),
    (
        "T38",
        Tests(&[
            forms::t38_any_json,
            forms::t38_forms_are_kept,
            forms::t38_forms_that_are_none,
            forms::t38_a_number_ends_and_white_space_too,
        ]),
    ),
    ("T40", Tests(&[prompt::t40_the_newer_name_of_the_most_tokens])),
    (
        "T42",
        Tests(&[
            text::t42_usage_comes_last_and_only_if_it_is_asked_for,
            text::t42_usage_with_every_chunk,
            text::t42_no_usage_of_an_answer_that_nobody_waited_for,
            text::t42_options_of_a_stream_that_is_none,
        ]),
    ),
    (
        "T43",
        Tests(&[
            state::t43_a_step_that_never_ends_is_seen,
            state::t43_health_is_quick_while_all_is_busy,
            state::t43_an_engine_that_cannot_go_on_says_so,
            state::t43_a_step_that_fails_ends_its_requests_only,
        ]),
    ),
    // Its child runs the tests of this name by themselves.
    ("T44", Tests(&[state::t44_signals, state::t44_an_idle_server_ends_at_once])),
    ("T46", No("no model with a sliding window is served")),
    ("T47", No("no kernel shares a prefix within a step")),
    ("T48", No("no kernel shares a prefix within a step")),
];

/// Runs every row in turn, and counts. Each test also runs by itself.
#[test]
#[ignore = "runs all others again, for the count"]
fn every_row() {
    let (mut applies, mut passed) = (0, 0);
    for (id, row) in ROWS {
        match row {
            No(why) => println!("{id}  does not apply: {why}"),
            Tests(tests) => {
                applies += 1;
                let failed = tests.iter().filter(|test| catch_unwind(AssertUnwindSafe(test)).is_err()).count();
                passed += usize::from(failed == 0);
                println!("{id}  {} of {} tests passed", tests.len() - failed, tests.len());
            }
        }
    }
    println!("{applies} of {} rows apply; {passed} passed", ROWS.len());
    Figure::new("Serving: rows of conformance passed", passed as f64, "").at_least(applies as f64).must_hold();
}

/// Each test of a row is in the table, under the row that its name says, and there are as many rows as there should be.
#[test]
fn the_table_is_whole() {
    let sources = [
        include_str!("rows_forms.rs"),
        include_str!("rows_model.rs"),
        include_str!("rows_params.rs"),
        include_str!("rows_prompt.rs"),
        include_str!("rows_state.rs"),
        include_str!("rows_text.rs"),
    ];
    let names = sources
        .iter()
        .flat_map(|source| source.lines())
        .filter_map(|line| line.strip_prefix("pub fn t")?.split('(').next());
    // The table itself, up to what is below it.
    let table = include_str!("table.rs").split_once("fn every_row").expect("the tests are below the table").0;
    let mut found = 0;
    for name in names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit())) {
        let row = table.split_once(&format!("\"T{}\"", &name[..2])).unwrap_or_else(|| panic!("no row for t{name}")).1;
        let row = row.split("\"T").next().expect("something follows");
        let tests = row.split([',', ']']).filter(|test| test.ends_with(&format!("::t{name}")));
        assert_eq!(tests.count(), 1, "t{name} is under its row");
        found += 1;
    }
    let all: usize = ROWS.iter().map(|(_, row)| if let Tests(tests) = row { tests.len() } else { 0 }).sum();
    assert_eq!(found, all);
    let applies = ROWS.iter().filter(|(_, row)| matches!(row, Tests(_))).count();
    assert_eq!((applies, ROWS.len()), (33, 38));
}
