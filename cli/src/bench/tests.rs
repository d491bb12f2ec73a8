//! The client against a server whose answers and times are known.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use tegula_engine::engine::{Engine, Scripted};
use tegula_engine::gguf::{Gguf, Writer};
use tegula_engine::tokenizer::small::small;
use tegula_engine::tokenizer::{Special, Tokenizer};

use super::dataset::{DatasetArgs, Sample};
use super::serve;

/// An engine whose steps take so long and answer anything.
pub fn engine(step: Duration) -> Engine {
    let tokenizer = Arc::new(small(&[], &["<end>"]));
    let model = Scripted::new(257, 16, 256, 512).answers(&[72, 105]).step_time(step);
    Engine::builder("scripted").build_on(model, tokenizer, None).unwrap()
}

pub fn sample(first: u32, input: u32, output: usize) -> Sample {
    Sample { prompt: String::new(), tokens: (0..input).map(|i| 32 + (first + i) % 64).collect(), output }
}

/// A vocabulary whose words (` aa`, ` ab`, …) are tokens: each is merged of its three bytes.
fn wordy() -> (tempfile::TempDir, String, Tokenizer) {
    let letters = || (b'a'..=b'z').map(char::from);
    // A space in the alphabet of byte-level vocabularies.
    let space = 'Ġ';
    let mut texts: Vec<String> = letters().chain([space]).map(String::from).collect();
    let mut merges = vec![];
    for first in letters() {
        texts.push(format!("{space}{first}"));
        merges.push(format!("{space} {first}"));
    }
    for (first, second) in letters().flat_map(|a| letters().map(move |b| (a, b))) {
        texts.push(format!("{space}{first}{second}"));
        merges.push(format!("{space}{first} {second}"));
    }
    texts.push("<end>".to_owned());
    let eos = texts.len() as u32 - 1;
    let mut kinds = vec![1i32; texts.len()];
    kinds[eos as usize] = 3;
    fn list(texts: &[String]) -> Vec<&str> {
        texts.iter().map(String::as_str).collect()
    }
    let mut writer = Writer::new();
    writer.meta("tokenizer.ggml.model", "gpt2");
    writer.meta("tokenizer.ggml.pre", "gpt-2");
    writer.meta("tokenizer.ggml.tokens", list(&texts).as_slice());
    writer.meta("tokenizer.ggml.token_type", kinds.as_slice());
    writer.meta("tokenizer.ggml.merges", list(&merges).as_slice());
    writer.meta("tokenizer.ggml.eos_token_id", eos);
    let bytes = writer.finish();
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("wordy.gguf");
    std::fs::write(&path, &bytes).unwrap();
    let tokenizer = Tokenizer::from_gguf(&Gguf::from_bytes("wordy", bytes).unwrap()).unwrap();
    (folder, path.to_str().unwrap().to_owned(), tokenizer)
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: serve::Args,
}

#[derive(Parser)]
struct Dataset {
    #[command(flatten)]
    args: DatasetArgs,
}

fn samples(tokenizer: Option<&Tokenizer>, args: &[&str]) -> Result<(Vec<Sample>, Sample), String> {
    let args = Dataset::try_parse_from([&["x"], args].concat()).map_err(|e| e.to_string())?.args;
    args.samples(tokenizer).map_err(|e| e.to_string())
}

/// What a server was asked: path, headers, body.
type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A server that is loading when it is first asked, and then answers `ttft` after a request with a first token and then with one each `itl`, as many as are asked for.
struct Server {
    address: String,
    asked: Asked,
    most_open: Arc<AtomicUsize>,
}

impl Server {
    fn start(ttft: Duration, itl: Duration) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (asked, open, most_open) = (Asked::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (log, most, loading) = (asked.clone(), most_open.clone(), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, open, most, loading) = (log.clone(), open.clone(), most.clone(), loading.clone());
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.unwrap());
                    while let Some((path, head, body)) = request(&mut reader) {
                        let stream = reader.get_mut();
                        if path == "/v1/models" && loading.fetch_add(1, Ordering::SeqCst) == 0 {
                            write!(stream, "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").unwrap();
                            continue;
                        }
                        if path == "/v1/models" {
                            let body = r#"{"data":[{"id":"wordy"}]}"#;
                            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
                            continue;
                        }
                        most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        log.lock().unwrap().push((path.clone(), head, body.clone()));
                        answer(stream, path.contains("chat"), &body, ttft, itl);
                        open.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Server { address, asked, most_open }
    }

    fn bench(&self, args: &[&str]) -> Result<String, String> {
        let args = [&["x", "--base-url", &self.address, "--disable-tqdm"], args].concat();
        let args = Command::try_parse_from(args).map_err(|e| e.to_string())?.args;
        let mut out = vec![];
        serve::run(args, &mut out).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, String, Value)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let path = head.split(' ').nth(1)?.to_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, head, serde_json::from_slice(&body).unwrap_or_default()))
}

fn answer(stream: &mut TcpStream, chat: bool, body: &Value, ttft: Duration, itl: Duration) {
    let prompt = if chat { &body["messages"][0]["content"] } else { &body["prompt"] }.as_str().unwrap_or_default();
    if prompt.contains("refuse") {
        let text = r#"{"error":{"message":"no such thing"}}"#;
        write!(stream, "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{text}", text.len()).unwrap();
        return;
    }
    write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n").unwrap();
    let mut event = |data: String| {
        let data = format!("data: {data}\n\n");
        write!(stream, "{:x}\r\n{data}\r\n", data.len()).and_then(|()| stream.flush()).unwrap();
    };
    let max = if chat { &body["max_completion_tokens"] } else { &body["max_tokens"] }.as_u64().unwrap();
    if chat {
        event(json!({ "choices": [{ "delta": { "role": "assistant", "content": "" } }] }).to_string());
    }
    for i in 0..max {
        thread::sleep(if i == 0 { ttft } else { itl });
        // The second token has no text of its own.
        let text = if i == 1 { "" } else { "x" };
        event(match chat {
            true => json!({ "choices": [{ "delta": { "content": text }, "finish_reason": null }] }).to_string(),
            false => json!({ "choices": [{ "text": text, "finish_reason": null }] }).to_string(),
        });
        if prompt.contains("break") && i == 2 {
            event(json!({ "error": { "message": "out of memory" } }).to_string());
            break;
        }
    }
    event(match chat {
        true => json!({ "choices": [{ "delta": {}, "finish_reason": "length" }] }).to_string(),
        false => json!({ "choices": [{ "text": "", "finish_reason": "length" }] }).to_string(),
    });
    let prompt = prompt.split_whitespace().count();
    event(json!({ "choices": [], "usage": { "prompt_tokens": prompt, "completion_tokens": max } }).to_string());
    event("[DONE]".to_owned());
    write!(stream, "0\r\n\r\n").unwrap();
}

#[test]
fn times_and_tokens_are_those_of_the_server() {
    let (folder, file, _) = wordy();
    let server = Server::start(Duration::from_millis(60), Duration::from_millis(15));
    for backend in ["openai", "openai-chat"] {
        server.asked.lock().unwrap().clear();
        let result = folder.path().join("result.json");
        let args = ["--tokenizer", &file, "--backend", backend, "--num-prompts", "6", "--max-concurrency", "3"];
        let more =
            ["--input-len", "12", "--output-len", "8", "--ignore-eos", "--num-warmups", "2", "--metadata", "a=b"];
        let saved = ["--save-detailed", "--save-result", "--result-filename", result.to_str().unwrap()];
        let body = ["--extra-body", r#"{"min_tokens": 3}"#, "--percentile-metrics", "ttft,tpot,itl,e2el"];
        let text = server.bench(&[&args[..], &more, &saved, &body].concat()).unwrap();
        for line in [
            "Successful requests:                     6\n",
            "Failed requests:                         0\n",
            "Maximum request concurrency:             3\n",
            "Total input tokens:                      72\n",
            "Total generated tokens:                  48\n",
            "Peak concurrent requests:",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        let json: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
        let near = |name: &str, least: f64, most: f64| {
            let value = json[name].as_f64().unwrap();
            assert!((least..most).contains(&value), "{name}: {value}");
        };
        // Sleeps take as long as they say, or longer where others compute as well.
        near("median_ttft_ms", 60.0, 120.0);
        near("median_itl_ms", 14.0, 30.0);
        near("median_tpot_ms", 14.5, 30.0);
        near("median_e2el_ms", 160.0, 330.0);
        near("duration", 0.33, 0.9);
        assert_eq!(json["itls"][0].as_array().unwrap().len(), 7, "a token without text is one, the end is none");
        assert_eq!((json["a"].as_str(), json["model_id"].as_str()), (Some("b"), Some("wordy")));
        assert_eq!(json["generated_texts"][0], "xxxxxxx");
        let asked = server.asked.lock().unwrap();
        assert_eq!(asked.len(), 1 + 2 + 6);
        assert_eq!(server.most_open.load(Ordering::SeqCst), 3);
        let (path, _, body) = &asked[8];
        let (own, output) = match backend {
            "openai" => ("/v1/completions", &body["max_tokens"]),
            _ => ("/v1/chat/completions", &body["max_completion_tokens"]),
        };
        assert_eq!((path.as_str(), output), (own, &json!(8)));
        assert_eq!(body["stream_options"], json!({ "include_usage": true }));
        assert_eq!(
            (&body["ignore_eos"], &body["min_tokens"], &body["temperature"]),
            (&json!(true), &json!(3), &json!(0.0))
        );
    }
}

#[test]
fn requests_come_at_their_rate_and_goodput_counts_the_good() {
    let (_folder, file, _) = wordy();
    let server = Server::start(Duration::from_millis(5), Duration::from_millis(5));
    let args = ["--tokenizer", &file, "--num-prompts", "20", "--request-rate", "50", "--input-len", "4"];
    let text =
        server.bench(&[&args[..], &["--output-len", "2", "--goodput", "ttft:1", "e2el:10000"]].concat()).unwrap();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace().last().unwrap().parse::<f64>().unwrap()
    };
    // 20 requests at 50 a second are sent within 0.4 s.
    assert!((0.4..0.8).contains(&value("Benchmark duration (s):")), "{text}");
    assert_eq!(value("Request goodput (req/s):"), 0.0);
    assert_eq!(value("Request rate configured (RPS):"), 50.0);
}

#[test]
fn failures_are_told() {
    let (folder, file, _) = wordy();
    let server = Server::start(Duration::from_millis(1), Duration::from_millis(1));
    let lines = folder.path().join("custom.jsonl");
    std::fs::write(&lines, "{\"prompt\": \"good one\", \"output_tokens\": 5}\n\n{\"prompt\": \"break it\"}\n").unwrap();
    let custom = ["--dataset-name", "custom", "--dataset-path", lines.to_str().unwrap(), "--disable-shuffle"];
    let some = ["--custom-output-len", "4", "--num-prompts", "4", "--ready-check-timeout-sec", "0", "--model", "m"];
    let text = server.bench(&[&custom[..], &some].concat()).unwrap();
    assert!(
        text.contains("Successful requests:                     2\nFailed requests:                         2\n"),
        "{text}"
    );
    assert!(text.contains("Total generated tokens:                  10\n"), "{text}");

    std::fs::write(&lines, "{\"prompt\": \"refuse\"}").unwrap();
    let error = server.bench(&[&custom[..], &["--model", "m"]].concat()).unwrap_err();
    assert!(error.contains("a first request failed: HTTP 400: {\"error\":{\"message\":\"no such thing\"}}"), "{error}");

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = Server { address: format!("http://{nobody}"), asked: Asked::default(), most_open: Arc::default() };
    let error = silent.bench(&["--tokenizer", &file, "--ready-check-timeout-sec", "1"]).unwrap_err();
    assert!(error.ends_with("no server answered within 1 s"), "{error}");
    let secure = Server { address: "https://example.org".into(), ..silent };
    assert!(secure.bench(&[]).unwrap_err().contains("expected http://HOST:PORT"));

    for (args, part) in [
        (&["--request-rate", "0"][..], "above 0, or inf"),
        (&["--metric-percentiles", "101"], "from 0 to 100"),
        (&["--goodput", "itl:5"], "ttft, tpot or e2el"),
        (&["--extra-body", "[1]"], "an object of JSON"),
        (&["--ramp-up-strategy", "linear"], "--ramp-up-start-rps"),
        (&["--model", "m"], "--tokenizer"),
        (&["--model", "m", "--dataset-name", "custom"], "--dataset-path"),
    ] {
        let error = server.bench(args).unwrap_err();
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn prompts_have_the_lengths_that_were_asked_for() {
    let (_folder, _, tokenizer) = wordy();
    let (random, spare) = samples(Some(&tokenizer), &["--num-prompts", "20", "--random-input-len", "30"]).unwrap();
    assert_eq!((random.len(), spare.tokens.len(), random[0].output), (20, 30, 128));
    for sample in &random {
        assert_eq!(sample.tokens.len(), 30);
        assert_eq!(sample.tokens, tokenizer.encode(&sample.prompt, Special::AsText));
    }
    assert!(random.iter().all(|s| *s != spare) && random[0] != random[1]);
    // The same again by the same seed, others by another.
    let again = |seed: &str| {
        samples(Some(&tokenizer), &["--num-prompts", "20", "--input-len", "30", "--seed", seed]).unwrap().0
    };
    assert_eq!(again("0"), random);
    assert_ne!(again("1"), random);

    let spread = ["--num-prompts", "200", "--input-len", "40", "--output-len", "10", "--random-range-ratio", "0.5"];
    let (spread, _) = samples(Some(&tokenizer), &[&spread[..], &["--random-prefix-len", "7"]].concat()).unwrap();
    let lengths: Vec<usize> = spread.iter().map(|s| s.tokens.len() - 7).collect();
    assert!(
        lengths.iter().all(|n| (20..=60).contains(n))
            && lengths.iter().max().unwrap() - lengths.iter().min().unwrap() > 30
    );
    assert!(spread.iter().all(|s| s.tokens[..7] == spread[0].tokens[..7] && (5..=15).contains(&s.output)));

    let groups =
        ["--dataset-name", "prefix_repetition", "--num-prompts", "12", "--prefix-repetition-num-prefixes", "3"];
    let lengths = ["--prefix-repetition-prefix-len", "9", "--prefix-repetition-suffix-len", "4", "--output-len", "6"];
    let (groups, spare) = samples(Some(&tokenizer), &[&groups[..], &lengths].concat()).unwrap();
    let mut prefixes: Vec<&[u32]> = groups.iter().map(|s| &s.tokens[..9]).collect();
    prefixes.sort();
    prefixes.dedup();
    assert_eq!((groups.len(), prefixes.len(), spare.tokens.len()), (12, 3, 13));
    assert!(groups.iter().all(|s| s.tokens.len() == 13 && s.output == 6) && !prefixes.contains(&&spare.tokens[..9]));
}

#[test]
fn conversations_are_filtered_and_repeated() {
    let (folder, _, tokenizer) = wordy();
    let file = folder.path().join("sharegpt.json");
    let turns = |prompt: &str, answer: &str| json!({ "conversations": [{ "from": "human", "value": prompt }, { "value": answer }] });
    let long = " aa".repeat(1025);
    let all = json!([
        turns(" aa bb cc dd", " ab ac ad ae af"),
        turns(" aa", " ab ac ad ae af"),
        turns(" aa bb cc dd ee", " ab"),
        turns(&long, " ab ac ad ae"),
        json!({ "conversations": [{ "value": " aa bb cc dd" }] }),
        turns(" ba bb bc bd be bf", " ab ac ad ae"),
    ]);
    std::fs::write(&file, all.to_string()).unwrap();
    let args = ["--dataset-name", "sharegpt", "--dataset-path", file.to_str().unwrap(), "--disable-shuffle"];
    let (found, _) = samples(Some(&tokenizer), &[&args[..], &["--num-prompts", "5"]].concat()).unwrap();
    let shape = |samples: &[Sample]| samples.iter().map(|s| (s.tokens.len(), s.output)).collect::<Vec<_>>();
    assert_eq!(shape(&found), [(4, 5), (6, 4), (4, 5), (6, 4), (4, 5)]);
    let (found, _) = samples(Some(&tokenizer), &[&args[..], &["--no-oversample"]].concat()).unwrap();
    assert_eq!(shape(&found), [(4, 5), (6, 4)]);
    let (found, _) =
        samples(Some(&tokenizer), &[&args[..], &["--num-prompts", "3", "--sharegpt-output-len", "9"]].concat())
            .unwrap();
    assert_eq!(shape(&found), [(4, 9), (5, 9), (6, 9)]);
    assert!(samples(None, &args).unwrap_err().contains("--sharegpt-output-len"));
    std::fs::write(&file, "{}").unwrap();
    assert!(samples(Some(&tokenizer), &args).unwrap_err().contains("expected a list of conversations"));
}
