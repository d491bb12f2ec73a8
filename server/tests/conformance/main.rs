//! The server from outside: over TCP, as clients see it.
//!
//! Rows `T01` to `T48` are faults that other engines had, one test or more for each (`table.rs`); beside the smallest input
//! that showed a fault, each test tries others of its kind. Most serve a scripted model (`server.rs`), so that what it says
//! is known; what depends on logits serves SmolLM2's first layers (`smollm2.rs`).

mod answers;
mod child;
mod client;
#[path = "../../../tests/src/figure.rs"]
mod figure;
#[path = "../../../tests/src/model.rs"]
mod model;
mod rows_forms;
mod rows_http;
mod rows_model;
mod rows_params;
mod rows_prompt;
mod rows_state;
mod rows_text;
mod server;
#[path = "../../../tests/src/shortened.rs"]
mod shortened;
#[path = "../../../tests/src/skip.rs"]
mod skip;
mod smollm2;
mod table;
mod vocabulary;
