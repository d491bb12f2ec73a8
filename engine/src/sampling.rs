//! How the next token is chosen.

use crate::Error;

/// Sampling parameters, named and bounded as in vLLM.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f32,
    /// Keep the most likely tokens only, this many; 0 keeps all.
    pub top_k: u32,
    /// Keep the fewest most likely tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the most likely; 0 keeps all.
    pub min_p: f32,
    /// Seed of the noise. The token at a position depends on it, the position and the logits alone.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

impl SamplingParams {
    /// Always the most likely token.
    pub fn greedy() -> SamplingParams {
        SamplingParams { temperature: 0.0, ..SamplingParams::default() }
    }

    /// Checks the bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let bound = |ok: bool, name: &str, found: f32, wanted: &str| {
            if ok { Ok(()) } else { Err(Error::Usage(format!("{name} is {found}; it must be {wanted}"))) }
        };
        bound(self.temperature >= 0.0 && self.temperature.is_finite(), "temperature", self.temperature, "0 or more")?;
        bound(self.top_p > 0.0 && self.top_p <= 1.0, "top_p", self.top_p, "above 0 and at most 1")?;
        bound((0.0..=1.0).contains(&self.min_p), "min_p", self.min_p, "from 0 to 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_docs() {
        assert!(SamplingParams::default().validate().is_ok());
        assert!(SamplingParams::greedy().validate().is_ok());
        for (change, name) in [
            (SamplingParams { temperature: -0.5, ..Default::default() }, "temperature"),
            (SamplingParams { temperature: f32::NAN, ..Default::default() }, "temperature"),
            (SamplingParams { top_p: 0.0, ..Default::default() }, "top_p"),
            (SamplingParams { top_p: 1.5, ..Default::default() }, "top_p"),
            (SamplingParams { min_p: -0.1, ..Default::default() }, "min_p"),
        ] {
            let message = change.validate().unwrap_err().to_string();
            assert!(message.starts_with(name), "{message}");
        }
    }
}
