//! Requests to an engine in this process, without a server.

use tegula_engine::Error;
use tegula_engine::engine::{Engine, Request, Update};
use tegula_engine::sampling::SamplingParams;

use super::dataset::Sample;

/// Gives an engine all samples at once and waits for their answers, each as long as its sample says; how many tokens the
/// prompts and the answers had.
pub(super) fn work(engine: &Engine, samples: &[Sample], n: u32) -> Result<(usize, usize), Error> {
    let refused = |e| Error::Usage(format!("a request was refused: {e}"));
    let request = |sample: &Sample| {
        // Greedy answers to one prompt would all be the same.
        let temperature = if n == 1 { 0.0 } else { 1.0 };
        let max_tokens = Some(sample.output);
        let params =
            SamplingParams { n, temperature, seed: Some(0), ignore_eos: true, max_tokens, ..SamplingParams::default() };
        engine.generate(Request::new(sample.tokens.clone(), params)).map_err(refused)
    };
    let running = samples.iter().map(request).collect::<Result<Vec<_>, _>>()?;
    let (mut prompt, mut output) = (0, 0);
    for generation in running {
        for update in generation.blocking() {
            match update {
                Update::Started { num_prompt_tokens, .. } => prompt += num_prompt_tokens,
                Update::Finished(end) => {
                    if let Some(error) = end.error {
                        return Err(Error::Usage(format!("a request failed: {error}")));
                    }
                    output += end.num_output_tokens;
                }
                _ => {}
            }
        }
    }
    Ok((prompt, output))
}
