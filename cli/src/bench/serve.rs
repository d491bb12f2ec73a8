//! `tegula bench serve`: load on a server with OpenAI's API, and what its answers took.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tegula_engine::Error;
use tegula_engine::gguf::Gguf;
use tegula_engine::progress;
use tegula_engine::pull::Source;
use tegula_engine::tokenizer::Tokenizer;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::arrivals::{Ramp, Rate, schedule};
use super::client::{AGAIN, Client, Outcome, Shape};
use super::dataset::{DatasetArgs, Sample};
use super::report::{Metric, Report, Wanted};
use crate::note;
use crate::numbers::whole;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// Completions
    #[value(aliases = ["openai-completions", "vllm"])]
    Openai,
    /// Chat completions
    #[value(alias = "vllm-chat")]
    OpenaiChat,
}

/// Put load on a server with OpenAI's API and measure its answers, with the options of `vllm bench serve`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tegula bench serve --port 8000 --max-concurrency 16 --num-prompts 64 --ignore-eos\n  \
                        tegula bench serve --backend openai-chat --request-rate 4 --goodput ttft:500 tpot:50\n  \
                        tegula bench serve --dataset-name prefix_repetition --save-result"
)]
pub(super) struct Args {
    /// Which endpoint
    #[arg(long, value_enum, default_value_t = Backend::Openai)]
    backend: Backend,
    /// Where the server is, http://HOST:PORT [default: of --host and --port]
    #[arg(long)]
    base_url: Option<String>,
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// The path of the endpoint [default: the backend's]
    #[arg(long)]
    endpoint: Option<String>,
    /// A header of each request; OPENAI_API_KEY, if set, is sent as a bearer token
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = pair)]
    header: Vec<(String, String)>,
    /// The model's name at the server [default: the first that it lists]
    #[arg(long)]
    model: Option<String>,
    /// A model or GGUF file with the server's tokenizer, to make prompts of exact lengths [default: the model's name]
    #[arg(long)]
    tokenizer: Option<String>,
    #[command(flatten)]
    dataset: DatasetArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    result: ResultArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Requests per second; `inf` sends all at once
    #[arg(long, default_value = "inf", value_parser = positive)]
    request_rate: f64,
    /// How regularly: 1 is a Poisson process, less comes in bursts, more is steadier
    #[arg(long, default_value_t = 1.0, value_parser = positive_finite)]
    burstiness: f64,
    /// Most requests open at once
    #[arg(long, value_parser = whole::<usize>(1..=1_000_000), allow_negative_numbers = true)]
    max_concurrency: Option<usize>,
    /// Let the rate rise
    #[arg(long, value_enum, requires = "ramp_up_start_rps", requires = "ramp_up_end_rps")]
    ramp_up_strategy: Option<Ramp>,
    /// Requests per second at first
    #[arg(long, value_parser = positive_finite)]
    ramp_up_start_rps: Option<f64>,
    /// Requests per second at last
    #[arg(long, value_parser = positive_finite)]
    ramp_up_end_rps: Option<f64>,
    /// Requests before the clock starts
    #[arg(long, default_value_t = 0, value_parser = whole::<usize>(0..=1_000_000), allow_negative_numbers = true)]
    num_warmups: usize,
    /// How long to wait for a server that is starting; 0 does not try it
    #[arg(long, default_value_t = 600)]
    ready_check_timeout_sec: u64,
    /// No progress bar
    #[arg(long)]
    disable_tqdm: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Answers go on to their full length
    #[arg(long)]
    ignore_eos: bool,
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    #[arg(long)]
    top_p: Option<f64>,
    #[arg(long, allow_negative_numbers = true)]
    top_k: Option<i64>,
    #[arg(long)]
    min_p: Option<f64>,
    #[arg(long, allow_negative_numbers = true)]
    frequency_penalty: Option<f64>,
    #[arg(long, allow_negative_numbers = true)]
    presence_penalty: Option<f64>,
    #[arg(long)]
    repetition_penalty: Option<f64>,
    /// Log-probabilities of each token, and of so many others
    #[arg(long)]
    logprobs: Option<u32>,
    /// Further fields of each request, an object of JSON
    #[arg(long, value_parser = object)]
    extra_body: Option<Map<String, Value>>,
    /// Names requests: this, and their number
    #[arg(long)]
    request_id_prefix: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Result")]
struct ResultArgs {
    /// Of which latencies to tell: ttft, tpot, itl, e2el
    #[arg(long, default_value = "ttft,tpot,itl", value_delimiter = ',', value_parser = metric)]
    percentile_metrics: Vec<Metric>,
    /// Which percentiles
    #[arg(long, default_value = "99", value_delimiter = ',', value_parser = percent)]
    metric_percentiles: Vec<f64>,
    /// Count answers within these milliseconds, as in `ttft:500 tpot:50 e2el:10000`
    #[arg(long, num_args = 1.., value_parser = limit)]
    goodput: Vec<(Metric, f64)>,
    /// Write the figures to a file of JSON
    #[arg(long)]
    save_result: bool,
    /// And those of each request
    #[arg(long)]
    save_detailed: bool,
    /// Add a line to the file instead of writing it anew
    #[arg(long)]
    append_result: bool,
    /// The folder of that file
    #[arg(long)]
    result_dir: Option<PathBuf>,
    /// Its name [default: of backend, rate, model and time]
    #[arg(long)]
    result_filename: Option<PathBuf>,
    /// For the file's name instead of the backend
    #[arg(long)]
    label: Option<String>,
    /// Further fields of the result
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = pair)]
    metadata: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x| *x > 0.0).ok_or_else(|| "expected a number above 0, or inf".to_owned())
}

fn positive_finite(text: &str) -> Result<f64, String> {
    let finite = positive(text).ok().filter(|x| x.is_finite());
    finite.ok_or_else(|| "expected a number above 0".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|p| (0.0..=100.0).contains(p)).ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("expected an object of JSON: {e}"))
}

fn metric(text: &str) -> Result<Metric, String> {
    let found = Metric::ALL.into_iter().find(|m| m.name() == text);
    found.ok_or_else(|| "expected ttft, tpot, itl or e2el".to_owned())
}

fn limit(text: &str) -> Result<(Metric, f64), String> {
    let (name, most) = text.split_once(':').ok_or("expected NAME:MILLISECONDS, as in ttft:500")?;
    let name = metric(name).ok().filter(|m| *m != Metric::Itl).ok_or("expected ttft, tpot or e2el before the colon")?;
    Ok((name, positive_finite(most)?))
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    // One thread: the server needs the others, and reading events takes little.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Error::Io { doing: "starting the client", source })?.block_on(measure(args, out))
}

async fn measure(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let mut client = args.client()?;
    args.wait_for(&client).await?;
    client.model = match &args.model {
        Some(name) => name.clone(),
        None => client.first_model().await.map_err(|e| Error::Usage(format!("--model: {}: {e}", args.base())))?,
    };
    let tokenizer = args.tokenizer(&client.model)?;
    let (samples, spare) = args.dataset.samples(tokenizer.as_ref())?;
    if args.load.ready_check_timeout_sec > 0 {
        // Also tells a request that the server refuses before all of them are sent.
        let one = Sample { output: 1, ..spare.clone() };
        if let Some(error) = client.generate(&one, None).await.error {
            return Err(Error::Usage(format!("{}: a first request failed: {error}", args.base())));
        }
    }
    let most = args.load.max_concurrency.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
    if args.load.num_warmups > 0 {
        let warmups = vec![spare; args.load.num_warmups];
        send(&client, warmups, vec![Duration::ZERO; args.load.num_warmups], most, None, true).await?;
    }
    let arrivals = schedule(samples.len(), args.rate(), args.load.burstiness, &mut args.dataset.rng(2))?;
    client.start_clock();
    let start = Instant::now();
    let prefix = args.sampling.request_id_prefix.clone();
    let mut outcomes = send(&client, samples.clone(), arrivals, most, prefix, args.load.disable_tqdm).await?;
    let duration = start.elapsed().as_secs_f64();
    for (outcome, sample) in outcomes.iter_mut().zip(&samples) {
        // What the server does not count, the tokenizer has.
        outcome.prompt_tokens = outcome.prompt_tokens.or((!sample.tokens.is_empty()).then_some(sample.tokens.len()));
    }
    let wanted = Wanted {
        metrics: args.result.percentile_metrics.clone(),
        percentiles: args.result.metric_percentiles.clone(),
        goodput: args.result.goodput.clone(),
    };
    let report = Report::new(outcomes, duration, wanted);
    write!(out, "{}", report.text(&args.settings())).map_err(Error::output)?;
    if let Some(error) = report.first_error() {
        note(format_args!("{} requests failed; the first: {error}", report.failed()));
    }
    if args.result.save_result || args.result.append_result {
        args.save(&client.model, tokenizer.is_some(), &report)?;
    }
    if report.failed() == samples.len() {
        return Err(Error::Usage(format!("{}: no request succeeded", args.base())));
    }
    Ok(())
}

/// Sends each at its time, at most `most` at once; their outcomes in the order of the samples.
async fn send(
    client: &Client,
    samples: Vec<Sample>,
    arrivals: Vec<Duration>,
    most: usize,
    prefix: Option<String>,
    quiet: bool,
) -> Result<Vec<Outcome>, Error> {
    let (start, gate) = (tokio::time::Instant::now(), Arc::new(Semaphore::new(most)));
    let bar = (!quiet).then(|| progress::steps(samples.len() as u64, "requests"));
    let mut outcomes = vec![Outcome::default(); samples.len()];
    let mut tasks = JoinSet::new();
    for (i, (sample, at)) in samples.into_iter().zip(arrivals).enumerate() {
        let (client, gate, id) = (client.clone(), gate.clone(), prefix.as_ref().map(|p| format!("{p}{i}")));
        tasks.spawn(async move {
            tokio::time::sleep_until(start + at).await;
            // The gate is never closed. It is fair: requests are sent in their order.
            let _place = gate.acquire().await;
            (i, client.generate(&sample, id.as_deref()).await)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (i, outcome) = done.map_err(|e| Error::Usage(format!("the client failed: {e}")))?;
        outcomes[i] = outcome;
        if let Some(bar) = &bar {
            bar.inc(1);
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(outcomes)
}

impl Args {
    fn base(&self) -> String {
        self.base_url.clone().unwrap_or_else(|| {
            let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
            format!("http://{host}:{}", self.port)
        })
    }

    fn client(&self) -> Result<Client, Error> {
        let (shape, endpoint) = match self.backend {
            Backend::Openai => (Shape::Completions, "/v1/completions"),
            Backend::OpenaiChat => (Shape::Chat, "/v1/chat/completions"),
        };
        let mut headers = self.header.clone();
        if let Ok(key) = std::env::var("OPENAI_API_KEY")
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        {
            headers.push(("authorization".into(), format!("Bearer {key}")));
        }
        let mut client = Client::new(&self.base(), self.endpoint.as_deref().unwrap_or(endpoint), shape, headers)?;
        client.fields = self.sampling.fields(shape);
        Ok(client)
    }

    async fn wait_for(&self, client: &Client) -> Result<(), Error> {
        let limit = Duration::from_secs(self.load.ready_check_timeout_sec);
        let start = Instant::now();
        while !limit.is_zero() && !client.answers().await {
            if start.elapsed() + AGAIN > limit {
                let seconds = limit.as_secs();
                return Err(Error::Usage(format!("{}: no server answered within {seconds} s", self.base())));
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    /// The one that is named must be there; the one that the model's name means may be.
    fn tokenizer(&self, model: &str) -> Result<Option<Tokenizer>, Error> {
        let path = match &self.tokenizer {
            Some(name) => Some(Source::parse(name)?.fetch()?),
            None => Source::parse(model).and_then(|source| source.cached()).ok().flatten(),
        };
        Ok(path.map(|path| Tokenizer::from_gguf(&Gguf::open(path)?)).transpose()?)
    }

    fn rate(&self) -> Rate {
        let load = &self.load;
        match (load.ramp_up_strategy, load.ramp_up_start_rps, load.ramp_up_end_rps) {
            (Some(how), Some(start), Some(end)) => Rate::Rising { how, start, end },
            _ if load.request_rate.is_finite() => Rate::Constant(load.request_rate),
            _ => Rate::Infinite,
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![];
        if let Some(most) = self.load.max_concurrency {
            lines.push(("Maximum request concurrency:", most.to_string()));
        }
        match self.rate() {
            Rate::Infinite => {}
            Rate::Constant(rate) => lines.push(("Request rate configured (RPS):", format!("{rate:.2}"))),
            Rate::Rising { start, end, .. } => {
                lines.push(("Request rate configured (RPS):", format!("{start:.2} to {end:.2}")));
            }
        }
        lines
    }

    fn save(&self, model: &str, tokenizer: bool, report: &Report) -> Result<(), Error> {
        let backend = match self.backend {
            Backend::Openai => "openai",
            Backend::OpenaiChat => "openai-chat",
        };
        // JSON has no infinity; vLLM writes the word as well.
        let rate = if self.load.request_rate.is_finite() { json!(self.load.request_rate) } else { json!("inf") };
        let date = super::date::now();
        let mut result = Map::new();
        let mut put = |name: &str, value: Value| _ = result.insert(name.to_owned(), value);
        put("date", json!(date));
        put("backend", json!(backend));
        put("label", json!(self.result.label));
        put("model_id", json!(model));
        put("tokenizer_id", json!(self.tokenizer.clone().or(tokenizer.then(|| model.to_owned()))));
        put("num_prompts", json!(self.dataset.num_prompts));
        self.result.metadata.iter().for_each(|(name, value)| put(name, json!(value)));
        put("request_rate", rate.clone());
        put("burstiness", json!(self.load.burstiness));
        put("max_concurrency", json!(self.load.max_concurrency));
        result.extend(report.json(self.result.save_detailed));
        let name = self.result.result_filename.clone().unwrap_or_else(|| {
            let rate = rate.as_str().map_or_else(|| rate.to_string(), str::to_owned);
            let most = self.load.max_concurrency.map(|n| format!("-concurrency{n}")).unwrap_or_default();
            let model = model.rsplit('/').next().unwrap_or(model);
            format!("{}-{rate}qps{most}-{model}-{date}.json", self.result.label.as_deref().unwrap_or(backend)).into()
        });
        let path = self.result.result_dir.as_ref().map_or_else(|| name.clone(), |dir| dir.join(&name));
        if !self.result.append_result {
            return super::write_json(&path, &Value::Object(result));
        }
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut file| writeln!(file, "{}", Value::Object(result)))
            .map_err(|e| Error::Usage(format!("the result cannot be added to {}: {e}", path.display())))
    }
}

impl SamplingArgs {
    fn fields(&self, shape: Shape) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("temperature", Some(json!(self.temperature)));
        put("top_p", self.top_p.map(Value::from));
        put("top_k", self.top_k.map(Value::from));
        put("min_p", self.min_p.map(Value::from));
        put("frequency_penalty", self.frequency_penalty.map(Value::from));
        put("presence_penalty", self.presence_penalty.map(Value::from));
        put("repetition_penalty", self.repetition_penalty.map(Value::from));
        put("ignore_eos", self.ignore_eos.then(|| json!(true)));
        match shape {
            Shape::Completions => put("logprobs", self.logprobs.map(Value::from)),
            Shape::Chat => {
                put("logprobs", self.logprobs.map(|_| json!(true)));
                put("top_logprobs", self.logprobs.map(Value::from));
            }
        }
        fields.extend(self.extra_body.clone().unwrap_or_default());
        fields
    }
}
