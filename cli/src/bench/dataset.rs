//! The requests of a benchmark: `random`, `prefix_repetition`, `sharegpt` and `custom`, as `vllm bench` has them.

use std::path::{Path, PathBuf};

use rand::{Rng, RngExt, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64;
use tegula_engine::Error;
use tegula_engine::tokenizer::{Special, Tokenizer};

use super::sharegpt;
use super::words::Words;
use crate::numbers::{MOST_TOKENS, whole};

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub prompt: String,
    /// The prompt's tokens, without one that begins a sequence; none where no tokenizer was given.
    pub tokens: Vec<u32>,
    /// Most tokens of the answer.
    pub output: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Name {
    /// Random words, as many as asked for
    Random,
    /// Random words, of which groups of requests share the first
    #[value(name = "prefix_repetition")]
    PrefixRepetition,
    /// Conversations, as in ShareGPT_V3_unfiltered_cleaned_split.json
    Sharegpt,
    /// A file of lines of JSON, each with `prompt` and possibly `output_tokens`
    Custom,
}

/// Options that choose the requests.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct DatasetArgs {
    /// Where the requests are from
    #[arg(long, value_enum, default_value_t = Name::Random)]
    pub dataset_name: Name,
    /// The file, for `sharegpt` and `custom`
    #[arg(long)]
    pub dataset_path: Option<PathBuf>,
    /// How many requests
    #[arg(long, default_value_t = 1000, value_parser = whole::<usize>(1..=10_000_000), allow_negative_numbers = true)]
    pub num_prompts: usize,
    /// Makes the same requests, sent at the same times, in each run
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Tokens of each prompt, whatever the dataset's own option says
    #[arg(long, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub input_len: Option<usize>,
    /// Tokens of each answer, whatever the dataset's own option says
    #[arg(long, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub output_len: Option<usize>,
    /// `random`: tokens of a prompt after its prefix
    #[arg(long, default_value_t = 1024, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub random_input_len: usize,
    /// `random`: tokens of an answer
    #[arg(long, default_value_t = 128, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub random_output_len: usize,
    /// `random`: both lengths are spread evenly over length·(1 − this) to length·(1 + this)
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub random_range_ratio: f64,
    /// `random`: tokens in front that all prompts share
    #[arg(long, default_value_t = 0, value_parser = whole::<usize>(0..=MOST_TOKENS), allow_negative_numbers = true)]
    pub random_prefix_len: usize,
    /// `prefix_repetition`: tokens that the prompts of a group share
    #[arg(long, default_value_t = 256, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub prefix_repetition_prefix_len: usize,
    /// `prefix_repetition`: tokens of a prompt's own
    #[arg(long, default_value_t = 256, value_parser = whole::<usize>(0..=MOST_TOKENS), allow_negative_numbers = true)]
    pub prefix_repetition_suffix_len: usize,
    /// `prefix_repetition`: how many groups
    #[arg(long, default_value_t = 10, value_parser = whole::<usize>(1..=1_000_000), allow_negative_numbers = true)]
    pub prefix_repetition_num_prefixes: usize,
    /// `prefix_repetition`: tokens of an answer
    #[arg(long, default_value_t = 128, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub prefix_repetition_output_len: usize,
    /// `sharegpt`: tokens of an answer [default: as many as the conversation's has]
    #[arg(long, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub sharegpt_output_len: Option<usize>,
    /// `custom`: tokens of an answer whose line does not say
    #[arg(long, default_value_t = 256, value_parser = whole::<usize>(1..=MOST_TOKENS), allow_negative_numbers = true)]
    pub custom_output_len: usize,
    /// Take the requests of a file in its order
    #[arg(long)]
    pub disable_shuffle: bool,
    /// Take each request of a file once only, even if that is fewer than --num-prompts
    #[arg(long)]
    pub no_oversample: bool,
}

/// A number from 0 to 1, without 1.
fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| (0.0..1.0).contains(x))
        .ok_or_else(|| "expected a number from 0 to less than 1".to_owned())
}

impl DatasetArgs {
    /// The generator of everything random about a run: `part` keeps requests, times and whatever else apart.
    pub fn rng(&self, part: u64) -> Pcg64 {
        Pcg64::new(u128::from(self.seed), u128::from(part))
    }

    /// The requests, and one more of their kind to try a server with and warm it up.
    ///
    /// `tokenizer` is asked for where lengths in tokens are wanted.
    pub fn samples(&self, tokenizer: Option<&Tokenizer>) -> Result<(Vec<Sample>, Sample), Error> {
        let mut rng = self.rng(1);
        let mut samples = match self.dataset_name {
            Name::Random | Name::PrefixRepetition => {
                let words = Words::of(tokenizer.ok_or_else(|| self.no_tokenizer())?)?;
                match self.dataset_name {
                    Name::Random => self.random(&words, &mut rng),
                    _ => self.prefix_repetition(&words, &mut rng),
                }
            }
            Name::Sharegpt => self.of_file(sharegpt::read(self.path()?, self.sharegpt_len(), tokenizer)?, &mut rng)?,
            Name::Custom => self.of_file(self.custom(tokenizer)?, &mut rng)?,
        };
        // The requests of a file may be fewer than asked for, and are at least one.
        let spare = if samples.len() > self.num_prompts { samples.pop() } else { samples.last().cloned() };
        spare.map(|spare| (samples, spare)).ok_or_else(|| Error::Usage("the dataset is empty".to_owned()))
    }

    fn no_tokenizer(&self) -> Error {
        Error::Usage(
            "--tokenizer: prompts of a given number of tokens take the model's tokenizer: name a model or a GGUF file"
                .to_owned(),
        )
    }

    fn path(&self) -> Result<&Path, Error> {
        let missing = || Error::Usage("--dataset-path: this dataset is read from a file; say which".to_owned());
        self.dataset_path.as_deref().ok_or_else(missing)
    }

    fn sharegpt_len(&self) -> Option<usize> {
        self.output_len.or(self.sharegpt_output_len)
    }

    fn random(&self, words: &Words<'_>, rng: &mut impl Rng) -> Vec<Sample> {
        let prefix = words.text(self.random_prefix_len, rng);
        let (input, output) =
            (self.input_len.unwrap_or(self.random_input_len), self.output_len.unwrap_or(self.random_output_len));
        let spread = |n: usize, rng: &mut _| {
            let (least, most) =
                (n as f64 * (1.0 - self.random_range_ratio), n as f64 * (1.0 + self.random_range_ratio));
            RngExt::random_range(rng, (least.floor() as usize).max(1)..=most.ceil() as usize)
        };
        (0..=self.num_prompts)
            .map(|_| {
                let (input, output) = (spread(input, rng), spread(output, rng));
                let prompt = prefix.clone() + &words.text(input, rng);
                Sample { tokens: words.tokens(&prompt), prompt, output }
            })
            .collect()
    }

    /// The groups take turns, so that each is there from the start.
    fn prefix_repetition(&self, words: &Words<'_>, rng: &mut impl Rng) -> Vec<Sample> {
        let groups = self.prefix_repetition_num_prefixes;
        let prefixes: Vec<String> = (0..groups).map(|_| words.text(self.prefix_repetition_prefix_len, rng)).collect();
        let output = self.output_len.unwrap_or(self.prefix_repetition_output_len);
        let mut samples: Vec<Sample> = (0..self.num_prompts)
            .map(|i| {
                let prompt = prefixes[i % groups].clone() + &words.text(self.prefix_repetition_suffix_len, rng);
                Sample { tokens: words.tokens(&prompt), prompt, output }
            })
            .collect();
        if !self.disable_shuffle {
            samples.shuffle(rng);
        }
        // Of no group: what warms the server up must not fill its cache with their prefixes.
        let length = self.prefix_repetition_prefix_len + self.prefix_repetition_suffix_len;
        let prompt = words.text(length, rng);
        samples.push(Sample { tokens: words.tokens(&prompt), prompt, output });
        samples
    }

    fn custom(&self, tokenizer: Option<&Tokenizer>) -> Result<Vec<Sample>, Error> {
        let path = self.path()?;
        let text = read_text(path)?;
        let line = |(i, line): (usize, &str)| {
            let wrong = |what: &str| Error::Usage(format!("{}, line {}: {what}", path.display(), i + 1));
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|e| wrong(&format!("expected an object of JSON: {e}")))?;
            let prompt = value.get("prompt").and_then(|p| p.as_str());
            let prompt = prompt.ok_or_else(|| wrong("expected `prompt`, a text"))?.to_owned();
            let said = match value.get("output_tokens") {
                None => None,
                Some(n) => Some(n.as_u64().filter(|n| (1..=MOST_TOKENS).contains(n)).ok_or_else(|| {
                    wrong(&format!("expected `output_tokens` to be a whole number from 1 to {MOST_TOKENS}"))
                })? as usize),
            };
            let output = self.output_len.or(said).unwrap_or(self.custom_output_len);
            let tokens = tokenizer.map(|t| t.encode(&prompt, Special::AsText)).unwrap_or_default();
            Ok(Sample { prompt, tokens, output })
        };
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
    }

    /// The first of them, shuffled and repeated as the options say, and one more.
    fn of_file(&self, mut samples: Vec<Sample>, rng: &mut impl Rng) -> Result<Vec<Sample>, Error> {
        if samples.is_empty() {
            return Err(Error::Usage(format!(
                "{}: there is no request in it that can be used",
                self.path()?.display()
            )));
        }
        if !self.disable_shuffle {
            samples.shuffle(rng);
        }
        let wanted = if self.no_oversample { self.num_prompts.min(samples.len()) } else { self.num_prompts + 1 };
        Ok(samples.iter().cycle().take(wanted).cloned().collect())
    }
}

/// A whole file of UTF-8.
pub(super) fn read_text(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
}

/// A generator from a seed, for what is no run of requests.
pub(super) fn generator(seed: u64) -> Pcg64 {
    Pcg64::seed_from_u64(seed)
}
