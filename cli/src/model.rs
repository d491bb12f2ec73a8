//! Loading a model for a subcommand: the options that all of them share.

use super::note;
use super::numbers::whole;
use super::table::counted;
use std::ffi::OsString;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tegula::Device;
use tegula::compile::{OnProgress, Progress};
use tegula::device::Settings;
use tegula::pool::{MOST_THREADS, PoolOptions};
use tegula_engine::chat::ChatTemplate;
use tegula_engine::engine::EngineBuilder;
use tegula_engine::gguf::Gguf;
use tegula_engine::model::{Activations, Config, Decoder, arch};
use tegula_engine::progress;
use tegula_engine::pull::Source;
use tegula_engine::tokenizer::Tokenizer;
use tegula_engine::{Engine, Error};

/// Options of every subcommand that runs a model.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Load {
    /// A GGUF file or a model name (downloaded if it is not here)
    #[arg(value_name = "MODEL")]
    model: OsString,
    /// Threads to compute with [default: one for each core, or what TEGULA_THREADS says]
    #[arg(short, long, value_parser = whole::<usize>(1..=MOST_THREADS as u64), allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Where to compute: cpu, cpu:x86-64-v3, cuda:0 (an NVIDIA GPU), emulated:sm_80 or emulated:sm_90a (a GPU, emulated:
    /// for tests), the same with `:fast` (fewer checks), oracle
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// What activations are multiplied in
    #[arg(long, value_parser = activations(), default_value = "q8")]
    activations: Activations,
}

/// A model whose file was opened and checked. Its weights are not packed yet: mistakes in the other arguments are told
/// before that.
pub(super) struct Opened {
    file: Gguf,
    device: Device,
    activations: Activations,
    pub config: Config,
    pub tokenizer: Tokenizer,
    pub template: Option<ChatTemplate>,
}

impl Load {
    /// Fetches, opens, checks.
    pub fn open(&self) -> Result<Opened, Error> {
        let (file, device) = self.file_and_device()?;
        let config = (arch::of(&file)?.config)(&file)?;
        let tokenizer = Tokenizer::from_gguf(&file)?;
        let template = match file.get::<&str>("tokenizer.chat_template")? {
            Some(_) => Some(ChatTemplate::from_gguf(&file, &tokenizer)?),
            None => None,
        };
        Ok(Opened { file, device, activations: self.activations, config, tokenizer, template })
    }

    /// An engine on the model.
    pub fn engine(&self, builder: EngineBuilder) -> Result<Engine, Error> {
        let (file, device) = self.file_and_device()?;
        builder.build(&file, &device, self.activations)
    }

    /// What to call the model: as the user does, or by its file's name.
    pub fn name(&self) -> String {
        let text = self.model.to_string_lossy();
        let name = text.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".gguf").unwrap_or(name).to_owned()
    }

    fn file_and_device(&self) -> Result<(Gguf, Device), Error> {
        let settings = Settings { pool: self.pool()?, on_progress: Some(compile_progress()) };
        let device = Device::named(&self.device, settings).map_err(|e| Error::Usage(format!("--{e}")))?;
        let source = Source::parse(&self.model)?;
        if let Source::Catalog(entry) = source
            && !entry.can_run()
        {
            return Err(Error::Usage(format!(
                "`{}` cannot be run yet: its architecture is `{}`, and those that can be run are: {}",
                entry.name,
                entry.architecture,
                arch::names()
            )));
        }
        Ok((Gguf::open(source.fetch()?)?, device))
    }

    fn pool(&self) -> Result<PoolOptions, Error> {
        let mut pool = PoolOptions::from_env().map_err(|e| Error::Usage(e.to_string()))?;
        pool.threads = self.threads.unwrap_or(pool.threads);
        let cpus = std::thread::available_parallelism().map_or(pool.threads, |n| n.get());
        if pool.threads > cpus {
            note(format_args!(
                "{} on {}: more threads than CPUs make a model slower",
                counted(pool.threads, "thread"),
                counted(cpus, "CPU")
            ));
        }
        Ok(pool)
    }
}

impl Opened {
    /// Packs the weights.
    pub fn decoder(&self) -> Result<Decoder, Error> {
        Decoder::load(&self.file, &self.device, self.activations)
    }

    /// That sequences of `tokens`, which `option` asks for, are not longer than the model can take.
    pub fn check_length(&self, option: &str, tokens: usize) -> Result<(), Error> {
        let most = self.config.context;
        if tokens <= most {
            return Ok(());
        }
        Err(Error::Usage(format!("{option} {tokens}: the model was made for {}", counted(most, "token"))))
    }
}

/// Activations, by name.
fn activations() -> impl clap::builder::TypedValueParser<Value = Activations> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    // The parser lets known names through only.
    PossibleValuesParser::new(Activations::NAMES.map(|(name, _)| name)).map(|name| {
        Activations::NAMES.into_iter().find(|(known, _)| *known == name).map_or(Activations::Q8, |(_, kind)| kind)
    })
}

/// Says that kernels are being compiled: a model's first run takes seconds that later runs do not.
pub(super) fn compile_progress() -> OnProgress {
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
