//! Making an engine for a subcommand: the options that say how much it does at once, under vLLM's names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tegula_engine::Engine;
use tegula_engine::engine::{EngineBuilder, KvMemory};
use tegula_engine::pull::models_dir;

use super::numbers::{MOST_TOKENS, whole};

/// Options of every subcommand that runs an engine.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Engine")]
pub(super) struct EngineArgs {
    /// Longest sequence in tokens, prompt and answer [default: what the model was made for]
    #[arg(long, value_name = "TOKENS", value_parser = whole::<usize>(2..=MOST_TOKENS), allow_negative_numbers = true)]
    max_model_len: Option<usize>,

    /// Most sequences that are computed at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<usize>(1..=4096), allow_negative_numbers = true)]
    max_num_seqs: usize,

    /// Most tokens of a step [default: 512, on a GPU 2048]
    #[arg(long, value_name = "TOKENS", value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    max_num_batched_tokens: Option<usize>,

    /// Most tokens of one prompt in a step; 0: as many as there is room for
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = whole::<usize>(0..=MOST_TOKENS), allow_negative_numbers = true)]
    long_prefill_token_threshold: usize,

    /// Memory for keys and values: 2GiB, 65536 tokens, or auto
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    kv_memory: KvMemory,

    /// Compute all of each prompt, whatever others have computed before
    #[arg(long)]
    no_enable_prefix_caching: bool,

    /// Plan each step when the one before is done, instead of while it runs
    #[arg(long)]
    no_overlap: bool,

    /// Most sequences that may wait, one for each answer; more are refused with 429
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = whole::<usize>(1..=1 << 20), allow_negative_numbers = true)]
    max_waiting: usize,

    /// Most alternatives for which log-probabilities can be asked
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u32>(0..=1024), allow_negative_numbers = true)]
    max_logprobs: u32,

    /// Seconds that a device with work may be silent before the engine counts as stalled
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = whole::<u64>(1..=3600), allow_negative_numbers = true)]
    heartbeat: u64,

    /// Where a step that fails leaves what is needed to plan it again, prompts included, readable by its owner only: a
    /// folder, or `off` [default: ~/.cache/tegula/faults]
    #[arg(long, value_name = "DIR")]
    fault_log: Option<PathBuf>,
}

impl EngineArgs {
    /// A builder of an engine as these options want it.
    pub fn builder(&self, name: &str) -> EngineBuilder {
        let mut builder = Engine::builder(name)
            .max_num_seqs(self.max_num_seqs)
            .long_prefill_token_threshold(self.long_prefill_token_threshold)
            .kv_memory(self.kv_memory)
            .prefix_cache(!self.no_enable_prefix_caching)
            .overlap(!self.no_overlap)
            .max_waiting(self.max_waiting)
            .max_logprobs(self.max_logprobs)
            .heartbeat(Duration::from_secs(self.heartbeat));
        if let Some(tokens) = self.max_model_len {
            builder = builder.max_model_len(tokens);
        }
        if let Some(tokens) = self.max_num_batched_tokens {
            builder = builder.max_num_batched_tokens(tokens);
        }
        match self.faults() {
            Some(folder) => builder.fault_log(folder),
            None => builder,
        }
    }

    /// The folder of fault logs: beside that of models, unless another one or none is asked for.
    fn faults(&self) -> Option<PathBuf> {
        match &self.fault_log {
            Some(folder) if folder == Path::new("off") => None,
            Some(folder) => Some(folder.clone()),
            None => models_dir().ok().map(|models| models.with_file_name("faults")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        engine: EngineArgs,
    }

    #[test]
    fn faults_go_beside_the_models_unless_it_says_otherwise() {
        let of = |args: &[&str]| Cli::try_parse_from([&["x"], args].concat()).unwrap().engine.faults();
        assert_eq!(of(&["--fault-log", "off"]), None);
        assert_eq!(of(&["--fault-log", "/a/b"]), Some("/a/b".into()));
        assert_eq!(of(&[]).unwrap().parent(), models_dir().unwrap().parent());
    }
}
