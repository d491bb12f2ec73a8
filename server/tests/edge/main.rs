//! The edge of the server over TCP, around a scripted model: a module for each topic.

#[path = "../conformance/answers.rs"]
#[allow(dead_code)]
mod answers;
mod auth;
#[path = "../conformance/client.rs"]
#[allow(dead_code)]
mod client;
mod fallbacks;
mod generation;
mod health;
mod host;
mod limits;
mod listen;
mod metrics;
mod models;
#[path = "../conformance/server.rs"]
#[allow(dead_code)]
mod server;
mod tokens;
#[path = "../conformance/vocabulary.rs"]
#[allow(dead_code)]
mod vocabulary;
