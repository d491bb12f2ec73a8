//! `llama`: Llama 1 to 3, SmolLM2, Mistral and their kin. Source of the keys: the GGUF specification.

use super::{Architecture, count, float};
use crate::{
    gguf::{Gguf, GgufError, Problem},
    model::Config,
};
use tegula_kernels::rope::Pairs;

pub(super) const ARCHITECTURE: Architecture = Architecture { name: "llama", config };

const EPSILON: &str = "llama.attention.layer_norm_rms_epsilon";
const SCALING: &str = "llama.rope.scaling.type";

fn config(file: &Gguf) -> Result<Config, GgufError> {
    let hidden = count(file, "llama.embedding_length")?;
    let heads = count(file, "llama.attention.head_count")?;
    let kv_heads = match file.get::<u64>("llama.attention.head_count_kv")? {
        Some(_) => count(file, "llama.attention.head_count_kv")?,
        None => heads,
    };
    if heads % kv_heads != 0 {
        let problem = Problem::KeyValue(format!("{kv_heads} KV heads do not divide {heads} heads"));
        return Err(file.key_error("llama.attention.head_count_kv", problem));
    }
    let head_dim = match file.get::<u64>("llama.attention.key_length")? {
        Some(_) => count(file, "llama.attention.key_length")?,
        None => hidden / heads,
    };
    let rotated = file.get::<u64>("llama.rope.dimension_count")?.unwrap_or(head_dim as u64);
    if rotated != head_dim as u64 || head_dim == 0 || head_dim % 2 != 0 {
        let problem = Problem::KeyValue(format!(
            "{rotated} rotated of {head_dim} coordinates; all of an even number are expected"
        ));
        return Err(file.key_error("llama.rope.dimension_count", problem));
    }
    if let Some(name) = file.get::<&str>(SCALING)?.filter(|name| *name != "none") {
        return Err(
            file.key_error(SCALING, Problem::KeyValue(format!("`{name}`: scaled rotary angles are not supported")))
        );
    }
    let positive = |v: f32| v.is_finite() && v > 0.0;
    let rope_base = float(file, "llama.rope.freq_base", positive, "a finite number above 0")?.unwrap_or(10_000.0);
    let not_negative = |v: f32| v.is_finite() && v >= 0.0;
    let Some(norm_eps) = float(file, EPSILON, not_negative, "a finite number of at least 0")? else {
        return Err(file.key_error(EPSILON, Problem::MissingKey));
    };
    let vocab = match file.find("token_embd.weight") {
        Some(t) if t.shape.len() == 2 => t.shape[1] as usize,
        _ => count(file, "llama.vocab_size")?,
    };
    Ok(Config {
        architecture: "llama".into(),
        layers: count(file, "llama.block_count")?,
        hidden,
        ffn: count(file, "llama.feed_forward_length")?,
        heads,
        kv_heads,
        head_dim,
        vocab,
        context: count(file, "llama.context_length")?,
        rope_base: f64::from(rope_base),
        rope_pairs: Pairs::Adjacent,
        norm_eps,
    })
}
