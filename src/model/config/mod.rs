//! What `config.json` says of a Llama-like model, checked: every size is bounded, and every
//! setting that would change the graph in a way that the library does not have is refused by
//! name. Keys that name code are not looked at.

mod fields;
mod rope;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use self::{
    fields::Fields,
    rope::{Rope, RopeScaling, Yarn},
};
use super::{eos::Eos, quantization::Quantization};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    snapshot::{Snapshot, read_json},
    supported::{self, Architecture},
};

/// Larger than any model's, and small enough that no product of two of them overflows.
const MOST_LAYERS: usize = 1 << 12;
const MOST_HEADS: usize = 1 << 14;
const MOST_HEAD_DIM: usize = 1 << 14;
const MOST_HIDDEN: usize = 1 << 20;
const MOST_INTERMEDIATE: usize = 1 << 24;
const MOST_VOCAB: usize = 1 << 24;
const MOST_CONTEXT: usize = 1 << 30;

/// The configuration of a model.
#[derive(Clone, Debug)]
pub(crate) struct ModelConfig {
    /// What runs it.
    pub(crate) architecture: Architecture,
    /// The file's own name of the architecture; that of the whole, where the text model is a
    /// part.
    pub(crate) model_type: String,
    /// Width of the hidden states.
    pub(crate) hidden_size: usize,
    /// Width inside the MLP.
    pub(crate) intermediate_size: usize,
    /// Blocks.
    pub(crate) layer_count: usize,
    /// Query heads; a multiple of `kv_head_count`.
    pub(crate) head_count: usize,
    /// Heads of keys and values.
    pub(crate) kv_head_count: usize,
    /// Width of a head; even. `head_count * head_dim` need not be `hidden_size`.
    pub(crate) head_dim: usize,
    /// Rows of the embedding.
    pub(crate) vocab_size: usize,
    /// Added to the mean square in the norms.
    pub(crate) rms_norm_eps: f32,
    /// Positions that the model was made for, where the file says it.
    pub(crate) max_position_embeddings: Option<usize>,
    /// How positions are embedded.
    pub(crate) rope: Rope,
    /// Whether the attention's four linear layers have biases.
    pub(crate) attention_bias: bool,
    /// Whether the MLP's three linear layers have biases.
    pub(crate) mlp_bias: bool,
    /// Whether the embedding is the output head too. See
    /// [`settle_head`](Self::settle_head).
    pub(crate) tie_word_embeddings: bool,
    head_is_stated: bool,
    /// How the weights are packed.
    pub(crate) quantization: Quantization,
    /// What ends an answer, by this file and its neighbours.
    pub(crate) eos: Eos,
}

impl ModelConfig {
    /// Reads the configuration of a model folder: `config.json`, and for the ends of an answer
    /// `generation_config.json` and `tokenizer_config.json`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] naming an architecture or a setting that the library does not
    /// have; [`Kind::ModelFormat`] naming the file and a value that is missing, of the wrong
    /// kind or out of range.
    pub(crate) fn read(snapshot: &Snapshot) -> Result<Self> {
        let dir = snapshot.dir();
        let place = |name: &str| EscapedPath(&dir.join(name)).to_string();
        let config_place = place("config.json");
        let missing = || Error::new(Kind::NotFound, format!("no such file: {config_place}"));
        let config = read_json(dir, "config.json")?.ok_or_else(missing)?;
        let generation = read_json(dir, "generation_config.json")?;
        let tokenizer = read_json(dir, "tokenizer_config.json")?;
        let mut read = Self::parse(&config_place, &config)?;
        if let Some(generation) = &generation {
            read.eos
                .add_ids(&place("generation_config.json"), generation)?;
        }
        if let Some(tokenizer) = &tokenizer {
            read.eos
                .add_token(&place("tokenizer_config.json"), tokenizer)?;
        }
        if read.quantization.is_absent() && read_json(dir, "hf_quant_config.json")?.is_some() {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "weights quantized by ModelOpt are not supported: {}",
                    place("hf_quant_config.json")
                ),
            ));
        }
        Ok(read)
    }

    /// Reads the content of a `config.json`; `place` is for messages.
    pub(crate) fn parse(place: &str, config: &Value) -> Result<Self> {
        let not_an_object = || Error::new(Kind::ModelFormat, format!("{place}: not an object"));
        let whole = Fields::new(place, config.as_object().ok_or_else(not_an_object)?);
        let model_type = whole.string("model_type")?;
        let model_type = model_type.ok_or_else(|| whole.missing("model_type"))?;
        let text = whole.object("text_config")?;
        let text_type = text.and_then(|text| text.get("model_type")?.as_str());
        let Some(architecture) = supported::architecture(model_type, text_type) else {
            let what = match text_type {
                Some(text_type) if text_type != model_type => format!(
                    "model type is not supported: {} with {}",
                    Escaped(model_type),
                    Escaped(text_type)
                ),
                _ => format!("model type is not supported: {}", Escaped(model_type)),
            };
            return Err(whole.error(Kind::Unsupported, what));
        };
        let fields = text.map_or(whole, |text| whole.with_inner(text));

        let count = |key, most| fields.count(key, 1..=most);
        let required = |key, most| count(key, most)?.ok_or_else(|| fields.missing(key));
        let hidden_size = required("hidden_size", MOST_HIDDEN)?;
        let layer_count = required("num_hidden_layers", MOST_LAYERS)?;
        let head_count = required("num_attention_heads", MOST_HEADS)?;
        let kv_head_count = count("num_key_value_heads", MOST_HEADS)?.unwrap_or(head_count);
        if head_count % kv_head_count != 0 {
            return Err(fields.error(
                Kind::ModelFormat,
                format_args!(
                    "num_attention_heads {head_count} is no multiple of num_key_value_heads: \
                     {kv_head_count}"
                ),
            ));
        }
        // 0 stands for none, as in Python.
        let head_dim = fields
            .count("head_dim", 0..=MOST_HEAD_DIM)?
            .filter(|&head_dim| head_dim > 0)
            .unwrap_or(hidden_size / head_count);
        if head_dim == 0 || head_dim % 2 != 0 || head_dim > MOST_HEAD_DIM {
            return Err(fields.error(
                Kind::ModelFormat,
                format_args!("head_dim is not an even number up to {MOST_HEAD_DIM}: {head_dim}"),
            ));
        }
        let epsilon = |number: f64| (0.0..1.0).contains(&number);
        let rms_norm_eps = fields
            .number("rms_norm_eps", "a number from 0 to 1", epsilon)?
            .ok_or_else(|| fields.missing("rms_norm_eps"))?;
        refuse_other_graphs(fields, layer_count)?;
        let tied = fields.boolean("tie_word_embeddings")?;
        let mut eos = Eos::default();
        eos.add_ids(place, config)?;
        Ok(Self {
            architecture,
            model_type: model_type.to_owned(),
            hidden_size,
            intermediate_size: required("intermediate_size", MOST_INTERMEDIATE)?,
            layer_count,
            head_count,
            kv_head_count,
            head_dim,
            vocab_size: required("vocab_size", MOST_VOCAB)?,
            rms_norm_eps: rms_norm_eps as f32,
            max_position_embeddings: count("max_position_embeddings", MOST_CONTEXT)?,
            rope: Rope::read(fields)?,
            attention_bias: fields.boolean("attention_bias")?.unwrap_or(false),
            mlp_bias: fields.boolean("mlp_bias")?.unwrap_or(false),
            tie_word_embeddings: tied.unwrap_or(true),
            head_is_stated: tied.is_some(),
            quantization: Quantization::read(fields)?,
            eos,
        })
    }

    /// Settles whether the embedding is the output head where the file does not say it: it is,
    /// unless the weights hold a head. transformers and mlx-lm have opposite defaults, and
    /// each is wrong for files that lean on the other's; what the weights hold is right for
    /// both, since the head of a tied model is a copy of its embedding.
    pub(crate) fn settle_head(&mut self, weights_hold_a_head: bool) {
        if !self.head_is_stated {
            self.tie_word_embeddings = !weights_hold_a_head;
        }
    }
}

/// Refuses settings that change what is computed and that the architecture does not have.
///
/// A `sliding_window` alone changes nothing: mlx-lm's models use it only in layers that
/// `layer_types` calls sliding.
fn refuse_other_graphs(fields: Fields<'_>, layer_count: usize) -> Result<()> {
    let unsupported = |what: String| Err(fields.error(Kind::Unsupported, what));
    for key in ["hidden_act", "hidden_activation"] {
        if let Some(activation) = fields.string(key)?
            && !["silu", "swish"].contains(&activation)
        {
            return unsupported(format!("{key} is not supported: {}", Escaped(activation)));
        }
    }
    if fields.boolean("quantize_activations")? == Some(true) {
        return unsupported("quantize_activations is not supported: true".to_owned());
    }
    let Some(layer_types) = fields.list("layer_types")? else {
        return Ok(());
    };
    if let Some(other) = layer_types.iter().find(|kind| *kind != "full_attention") {
        return unsupported(format!(
            "a layer type is not supported: {}",
            Escaped(&other.to_string())
        ));
    }
    if layer_types.len() != layer_count {
        return Err(fields.error(
            Kind::ModelFormat,
            format_args!(
                "num_hidden_layers is {layer_count}, and the number of layer_types: {}",
                layer_types.len()
            ),
        ));
    }
    Ok(())
}
