use clap::Parser;
use std::sync::Arc;
use tegula_engine::chat::ChatTemplate;
use tegula_engine::engine::Scripted;
use tegula_engine::tokenizer::small::small;

use super::*;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn args(more: &[&str]) -> Args {
    Cli::try_parse_from(["serve", "model"].iter().chain(more)).unwrap().args
}

#[test]
fn names_and_keys() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "one\n\n two \n").unwrap();
    let args =
        args(&["--served-model-name", "a", "b", "--api-key", "zero", "--api-key-file", file.path().to_str().unwrap()]);
    let config = args.config().unwrap();
    assert_eq!((args.name().as_str(), config.aliases.as_slice()), ("a", &["b".to_owned()][..]));
    for (key, known) in [("zero", true), ("one", true), ("two", true), ("", false), (" two ", false), ("three", false)]
    {
        assert_eq!(config.api_keys.contains(key), known, "{key:?}");
    }
    let empty = Cli::try_parse_from(["serve", "model", "--api-key", " "]).unwrap().args;
    assert!(empty.config().unwrap_err().to_string().contains("all empty"));
}

/// Whoever means to have a key has one, or no server.
#[test]
fn a_variable_that_is_no_key_opens_nothing() {
    use std::os::unix::ffi::OsStringExt;
    assert_eq!(key_of(None).unwrap(), None);
    assert_eq!(key_of(Some("".into())).unwrap(), None);
    assert_eq!(key_of(Some("k y".into())).unwrap().as_deref(), Some("k y"));
    for (bad, why) in [(&b" "[..], "white space"), (b"\t\n", "white space"), (b"k\xff", "UTF-8"), (b"\xff", "UTF-8")] {
        let error = key_of(Some(OsString::from_vec(bad.to_vec()))).unwrap_err().to_string();
        assert!(error.contains("TEGULA_API_KEY") && error.contains(why), "{error}");
    }
}

#[test]
fn a_model_is_named_as_the_user_names_it() {
    for (model, name) in [("smollm2", "smollm2"), ("./dir/a b.gguf", "a b"), ("hf:owner/name/file.gguf", "file")] {
        assert_eq!(Cli::try_parse_from(["serve", model]).unwrap().args.name(), name);
    }
}

#[test]
fn origins_are_origins() {
    let of = |texts: &[&str]| origins(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(of(&["*"]).unwrap(), ["*"]);
    assert_eq!(
        of(&[r#"["http://a", "https://b:8443"]"#, "http://c"]).unwrap(),
        ["http://a", "https://b:8443", "http://c"]
    );
    for wrong in ["example.org", "http://", "https://a/", "ftp://a", "http://a,http://b", ""] {
        assert!(of(&[wrong]).unwrap_err().to_string().contains(&format!("`{wrong}`")), "{wrong}");
    }
}

#[test]
fn the_example_works_in_a_shell_and_at_any_address() {
    let engine = |template| {
        Engine::builder("it's")
            .build_on(Scripted::new(257, 16, 8, 64), Arc::new(small(&[], &["<end>"])), template)
            .unwrap()
    };
    let chat = engine(Some(ChatTemplate::new("{{ messages }}").unwrap()));
    let line = example(&chat, "http://127.0.0.1:1", None);
    assert!(
        line.contains("/v1/chat/completions") && line.contains(r"it'\''s") && !line.contains("Authorization"),
        "{line}"
    );
    let line = example(&engine(None), "http://127.0.0.1:1", Some("$TEGULA_API_KEY"));
    assert!(line.contains("/v1/completions") && line.contains("Bearer $TEGULA_API_KEY"), "{line}");
    assert_eq!(reachable("0.0.0.0:80".parse().unwrap()).to_string(), "127.0.0.1:80");
    assert_eq!(reachable("[::]:80".parse().unwrap()).to_string(), "[::1]:80");
    assert_eq!(reachable("192.0.2.1:80".parse().unwrap()).to_string(), "192.0.2.1:80");
}
