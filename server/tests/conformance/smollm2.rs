//! SmolLM2's first layers, served. Its numbers are those of the whole model's kernels; what it says makes little sense.

use std::sync::OnceLock;

use tegula::Device;
use tegula_engine::engine::{Engine, EngineBuilder, KvMemory};
use tegula_engine::gguf::Gguf;
use tegula_engine::model::Activations;
use tegula_server::ServerConfig;

use super::model::model;
use super::server::Server;
use super::shortened::{shortened, shortened_with};

const LAYERS: u32 = 2;

/// The device that all servers here share.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(Device::cpu)
}

/// The model's first layers, once; `None`, which is told, if the model is not here.
fn file() -> Option<&'static Gguf> {
    static FILE: OnceLock<Option<Gguf>> = OnceLock::new();
    let load = || Some(gguf(shortened(&whole()?, LAYERS)));
    FILE.get_or_init(load).as_ref()
}

fn whole() -> Option<Gguf> {
    Some(Gguf::open(model("smollm2")?).expect("a model file"))
}

fn gguf(bytes: Vec<u8>) -> Gguf {
    Gguf::from_bytes("smollm2", bytes).expect("what the writer writes")
}

fn serve(file: &Gguf, tune: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Server {
    let builder = Engine::builder("smollm2").kv_memory(KvMemory::Tokens(8192)).max_num_seqs(16);
    let engine = tune(builder).build(file, device(), Activations::Q8).expect("an engine");
    Server::of(engine, ServerConfig::default())
}

/// A server with room for 8,192 tokens.
pub fn server() -> Option<Server> {
    with(|engine| engine)
}

/// One that is built in another way.
pub fn with(tune: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Option<Server> {
    Some(serve(file()?, tune))
}

/// One with so many tokens' room.
pub fn with_room(tokens: usize) -> Option<Server> {
    with(|engine| engine.kv_memory(KvMemory::Tokens(tokens)))
}

/// One whose token `twin` has all weights of `token`.
pub fn with_twins(token: u32, twin: u32) -> Option<Server> {
    let whole = whole()?;
    let embeddings = whole.tensors().iter().find(|t| t.name == "token_embd.weight").expect("embeddings");
    let rows = *embeddings.shape.last().expect("a shape") as usize;
    let bytes = shortened_with(&whole, LAYERS, |name, data| {
        if name == embeddings.name {
            let row = data.len() / rows;
            data.copy_within(token as usize * row..(token as usize + 1) * row, twin as usize * row);
        }
    });
    Some(serve(&gguf(bytes), |engine| engine))
}
