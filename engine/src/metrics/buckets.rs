//! Upper bounds of the histograms' buckets: vLLM's, so that its dashboards and alerts fit.

/// Seconds until a first token.
pub(super) const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];

/// Seconds between two tokens.
pub(super) const NEXT_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

/// Seconds of a request, or of a part of it.
pub(super) const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// Answers to one prompt.
pub(super) const SAMPLES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Tokens of a step.
pub(super) const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// Tokens of a sequence: 1, 2, 5, 10, 20, 50, … as far as the longest sequence; at least 1.
pub(super) fn tokens(max_model_len: usize) -> Vec<f64> {
    let longest = max_model_len.max(1) as f64;
    let decades = std::iter::successors(Some(1.0), |decade| Some(decade * 10.0));
    decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * decade))
        .take_while(|bound| *bound <= longest)
        .collect()
}
