//! Loading a model for a subcommand: the options that all of them share.

use crate::Error;
use crate::chat::ChatTemplate;
use crate::gguf::Gguf;
use crate::model::{Activations, Decoder};
use crate::progress;
use crate::pull;
use crate::tokenizer::Tokenizer;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tegula::Device;
use tegula::compile::{OnProgress, Progress};
use tegula::device::CpuOptions;

/// Options of every subcommand that runs a model.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Load {
    /// A GGUF file or a model name (downloaded if it is not here)
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Threads to compute with [default: one for each core]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// What activations are multiplied in: 8-bit groups (fast), or f32 (close to the exact model, slow)
    #[arg(long, value_enum, default_value_t = Activations::Q8)]
    pub activations: Activations,
}

/// A model ready to run.
pub(super) struct Loaded {
    pub decoder: Decoder,
    pub tokenizer: Tokenizer,
    pub template: Option<ChatTemplate>,
}

impl Load {
    /// Fetches, opens, checks, packs.
    pub fn load(&self) -> Result<Loaded, Error> {
        let file = Gguf::open(pull::fetch(&self.model)?)?;
        let tokenizer = Tokenizer::from_gguf(&file)?;
        let template = if file.get::<&str>("tokenizer.chat_template")?.is_some() {
            Some(ChatTemplate::from_gguf(&file, &tokenizer)?)
        } else {
            None
        };
        let mut options = CpuOptions { on_progress: Some(compile_progress()), ..CpuOptions::default() };
        options.pool.threads = self.threads.map_or(options.pool.threads, usize::from);
        let device = Device::cpu_with(options);
        let decoder = Decoder::load(&file, &device, self.activations)?;
        Ok(Loaded { decoder, tokenizer, template })
    }
}

/// Says that kernels are being compiled: a model's first run takes seconds that later runs do not.
fn compile_progress() -> OnProgress {
    let bar = Mutex::new(None);
    let running = AtomicUsize::new(0);
    Arc::new(move |news: &Progress| {
        // The bar is drawn while compilers run. A poisoned lock would only cost the bar.
        let Ok(mut bar) = bar.lock() else { return };
        match news {
            Progress::Started { .. } => {
                running.fetch_add(1, Ordering::Relaxed);
                bar.get_or_insert_with(|| progress::spinner("compiling kernels"));
            }
            Progress::Finished { .. } => {
                if let Some(bar) = &*bar {
                    bar.inc(1);
                }
                if running.fetch_sub(1, Ordering::Relaxed) == 1
                    && let Some(bar) = bar.take()
                {
                    bar.finish_and_clear();
                }
            }
        }
    })
}
