//! The configuration that a file's metadata stands for.

use serde_json::{Map, Value, json};

use super::{names, rope};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
    gguf::{GgmlType, Gguf, Metadata},
};

const ARCHITECTURE: &str = "general.architecture";

/// Architectures of llama.cpp that are a llama, Mistral's models included.
const LLAMA: &str = "llama";

/// Special tokens: what configurations call them, and llama.cpp.
pub(super) const SPECIAL: [(&str, &str); 4] = [
    ("bos", "bos"),
    ("eos", "eos"),
    ("pad", "padding"),
    ("unk", "unknown"),
];

pub(super) fn unsupported(what: &str, value: impl std::fmt::Display) -> Error {
    Error::new(
        Kind::Unsupported,
        format!("{what} is not supported: {value}"),
    )
}

fn missing(key: &str) -> Error {
    Error::new(Kind::ModelFormat, format!("a value is missing: {key}"))
}

/// Values of the architecture.
struct Keys<'a>(&'a Metadata);

impl Keys<'_> {
    fn count(&self, key: &str) -> Result<Option<u64>> {
        self.0.count(&format!("{LLAMA}.{key}"))
    }

    fn required(&self, key: &str) -> Result<u64> {
        self.count(key)?
            .ok_or_else(|| missing(&format!("{LLAMA}.{key}")))
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.0.number(&format!("{LLAMA}.{key}"))
    }
}

/// A float that was stored with 32 bits, as the shortest decimal that is the same.
fn shortest(value: f64) -> f64 {
    let text = format!("{}", value as f32);
    text.parse().unwrap_or(value)
}

/// The id of a special token.
pub(super) fn special_id(metadata: &Metadata, name: &str) -> Result<Option<u64>> {
    metadata.count(&format!("tokenizer.ggml.{name}_token_id"))
}

/// The content of a `config.json`.
///
/// # Errors
/// [`Kind::Unsupported`] naming what the library does not have, [`Kind::ModelFormat`] naming what
/// is missing or of the wrong kind.
pub(super) fn of(file: &Gguf) -> Result<Map<String, Value>> {
    let metadata = file.metadata();
    let architecture = metadata.text(ARCHITECTURE)?;
    match architecture {
        Some(LLAMA) => {}
        Some(other) => return Err(unsupported("architecture", Escaped(other))),
        None => return Err(missing(ARCHITECTURE)),
    }
    let keys = Keys(metadata);
    if let Some(count) = metadata.count("split.count")?.filter(|&count| count > 1) {
        return Err(unsupported("a model in several files", count));
    }
    if let Some(count) = keys.count("expert_count")?.filter(|&count| count > 0) {
        return Err(unsupported("expert_count", count));
    }
    let tensor = |name: &str| file.tensors().iter().find(|tensor| tensor.name == name);
    let embedding = tensor("token_embd.weight");
    let embedding = embedding.ok_or_else(|| missing("token_embd.weight"))?;
    let hidden = keys.required("embedding_length")?;
    let heads = keys.required("attention.head_count")?;
    let derived = hidden.checked_div(heads).unwrap_or(0);
    let head_dim = keys.count("attention.key_length")?.unwrap_or(derived);
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = keys.count(key)?.filter(|&other| other != head_dim) {
            return Err(unsupported(&format!("{key} other than {head_dim}"), other));
        }
    }
    let epsilon = "attention.layer_norm_rms_epsilon";
    let epsilon = keys.number(epsilon)?.ok_or_else(|| missing(epsilon))?;
    let theta = shortest(keys.number("rope.freq_base")?.unwrap_or(10_000.0));
    let scaling = match tensor(names::ROPE_FACTORS) {
        Some(factors) => rope::of_factors(file, factors, theta, head_dim)?,
        None => scaling(&keys)?,
    };
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
    set("architectures", json!(["LlamaForCausalLM"]));
    set("model_type", LLAMA.into());
    set("vocab_size", embedding.shape[0].into());
    set("hidden_size", hidden.into());
    set(
        "intermediate_size",
        keys.required("feed_forward_length")?.into(),
    );
    set("num_hidden_layers", keys.required("block_count")?.into());
    set("num_attention_heads", heads.into());
    set(
        "num_key_value_heads",
        keys.count("attention.head_count_kv")?
            .unwrap_or(heads)
            .into(),
    );
    set("head_dim", head_dim.into());
    set("hidden_act", "silu".into());
    if let Some(length) = keys.count("context_length")? {
        set("max_position_embeddings", length.into());
    }
    set("rms_norm_eps", shortest(epsilon).into());
    set("rope_theta", theta.into());
    set("rope_scaling", scaling);
    set("attention_bias", false.into());
    set("mlp_bias", false.into());
    set("tie_word_embeddings", tensor(names::HEAD).is_none().into());
    for (name, key) in &SPECIAL[..3] {
        if let Some(id) = special_id(metadata, key)? {
            set(&format!("{name}_token_id"), id.into());
        }
    }
    set("torch_dtype", float_type(file).into());
    Ok(config)
}

/// How positions are scaled, where no tensor says it.
fn scaling(keys: &Keys<'_>) -> Result<Value> {
    let kind = keys.0.text(&format!("{LLAMA}.rope.scaling.type"))?;
    let factor = || {
        let key = "rope.scaling.factor";
        keys.number(key)?.map(shortest).ok_or_else(|| missing(key))
    };
    Ok(match kind {
        None | Some("none") => Value::Null,
        Some("linear") => json!({"rope_type": "linear", "factor": factor()?}),
        Some("yarn") => json!({
            "rope_type": "yarn",
            "factor": factor()?,
            "original_max_position_embeddings":
                keys.required("rope.scaling.original_context_length")?,
        }),
        Some(other) => return Err(unsupported("rope.scaling.type", Escaped(other))),
    })
}

/// The type of the model's numbers: blocks have scales of 16 bits.
fn float_type(file: &Gguf) -> &'static str {
    let matrices = file
        .tensors()
        .iter()
        .filter(|tensor| tensor.shape.len() > 1);
    let mut wide = "float32";
    for tensor in matrices {
        match tensor.kind {
            GgmlType::F32 => {}
            GgmlType::BF16 => wide = "bfloat16",
            _ => return "float16",
        }
    }
    wide
}
