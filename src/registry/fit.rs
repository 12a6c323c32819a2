//! Whether a model with a context fits into memory: an estimate from its config and headers.
//!
//! Weights are what the headers say. The KV state is counted layer by layer: full attention
//! grows with the context in steps, a sliding window stops growing, shared layers and layers
//! with a fixed state take what they take. On top comes what one prefill chunk needs while a
//! layer is computed.

use std::path::Path;

use serde_json::{Map, Value};

use super::{
    facts::{self, Facts},
    tensors::Tensors,
};
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
    footprint::{self, KV_STEP},
    generate::DEFAULT_PREFILL_CHUNK,
    snapshot::{Snapshot, read_json},
};

/// A context is never taken for longer than this.
const MOST_TOKENS: u64 = 1 << 30;

/// What is to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitOptions {
    /// The memory that there is.
    pub budget_bytes: u64,
    /// Tokens of prompt and answer together.
    pub context_tokens: u64,
    /// Prompt tokens that are run at once.
    pub prefill_chunk: u64,
    /// Bits of a quantized KV state, with its group size; `None` for a plain one.
    pub kv_quantization: Option<(u32, u32)>,
}

impl Default for FitOptions {
    /// No limit, an empty context, the chunks of a generation's defaults and a plain KV state.
    fn default() -> Self {
        Self {
            budget_bytes: u64::MAX,
            context_tokens: 0,
            prefill_chunk: DEFAULT_PREFILL_CHUNK as u64,
            kv_quantization: None,
        }
    }
}

/// The estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Whether the whole is within the budget, and the context within the model's.
    pub fits: bool,
    /// Bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes of the KV state of that many tokens.
    pub kv_bytes: u64,
    /// Bytes that a prefill chunk takes on top at its end.
    pub transient_bytes: u64,
    /// All of these.
    pub total_bytes: u64,
    /// The largest context that fits the budget, and the model; 0 when none does.
    pub max_context_tokens: u64,
    /// The largest context that the model is made for, where its config says so.
    pub model_context_tokens: Option<u64>,
    /// Bytes of weights that one decoded token reads; of experts, only those in use.
    pub active_bytes_per_token: u64,
}

/// Estimates what the model in `folder` takes.
///
/// # Errors
/// [`Kind::NotFound`] when there is no such folder; [`Kind::ModelFormat`] for an incomplete one
/// and for a config that does not tell the sizes that the estimate needs; [`Kind::Corrupt`] for
/// weights that contradict themselves; [`Kind::InvalidArgument`] for impossible options.
pub fn fit(folder: &Path, options: &FitOptions) -> Result<Fit> {
    options.check()?;
    let snapshot = Snapshot::inspect(folder)?;
    snapshot.require_complete()?;
    let config = read_json(folder, "config.json")?.unwrap_or_default();
    let facts = facts::read(&config);
    let tensors = Tensors::read(&snapshot, &facts.quantization)?;
    let shape = Shape::of(&config, &facts, &tensors).ok_or_else(|| {
        Error::new(
            Kind::ModelFormat,
            format!(
                "config does not tell layers, heads or widths: {}",
                EscapedPath(&folder.join("config.json"))
            ),
        )
    })?;
    Ok(estimate(&shape, &tensors, options))
}

impl FitOptions {
    fn check(&self) -> Result<()> {
        let invalid = |what: &str, value: u64| {
            Err(Error::new(
                Kind::InvalidArgument,
                format!("{what}: {value}"),
            ))
        };
        if self.context_tokens > MOST_TOKENS {
            return invalid("context_tokens is too large", self.context_tokens);
        }
        if !(1..=MOST_TOKENS).contains(&self.prefill_chunk) {
            return invalid("prefill_chunk is out of range", self.prefill_chunk);
        }
        if let Some((bits, group_size)) = self.kv_quantization {
            if !matches!(bits, 2..=6 | 8) {
                return invalid("kv_bits is none of 2, 3, 4, 5, 6, 8", bits.into());
            }
            if !matches!(group_size, 32 | 64 | 128) {
                return invalid("kv_group_size is none of 32, 64, 128", group_size.into());
            }
        }
        Ok(())
    }
}

/// What a layer keeps of the tokens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerState {
    /// That many numbers for each token.
    Full { numbers: u64 },
    /// The same, for the last `window` tokens.
    Sliding { numbers: u64, window: u64 },
    /// The same size whatever the context.
    Fixed { bytes: u64 },
}

/// What the estimate depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    layers: Vec<LayerState>,
    /// The decoder's widths; its intermediate size is that of the widest product in a layer.
    decoder: footprint::Shape,
    context_tokens: Option<u64>,
    /// Experts in use for a token, of all.
    experts: Option<(u64, u64)>,
}

impl Shape {
    fn of(config: &Value, facts: &Facts, tensors: &Tensors) -> Option<Self> {
        let outer = config.as_object()?;
        let config = Config {
            outer,
            text: outer.get("text_config").and_then(Value::as_object),
        };
        let hidden_size = u64::try_from(facts.hidden_size?).ok()?;
        let head_count = config.number(&["num_attention_heads", "n_head", "n_heads"])?;
        let inner_size = config
            .number(&["intermediate_size", "n_inner", "ffn_dim"])
            .into_iter()
            .chain(config.number(&["moe_intermediate_size"]).and_then(|size| {
                let used = config.number(&EXPERTS_IN_USE)?;
                size.checked_mul(used)
            }))
            .max()
            .unwrap_or(hidden_size.saturating_mul(4));
        let decoder = footprint::Shape {
            layer_count: u64::try_from(facts.layer_count?)
                .ok()
                .filter(|count| *count <= 10_000)?,
            head_count,
            kv_head_count: config
                .number(&["num_key_value_heads", "n_head_kv"])
                .unwrap_or(head_count),
            head_dim: config
                .number(&["head_dim"])
                .or_else(|| hidden_size.checked_div(head_count))?,
            hidden_size,
            intermediate_size: inner_size,
            vocab_size: u64::try_from(facts.vocab_size?).ok()?,
            element_bytes: tensors.float_bytes,
        };
        Some(Self {
            layers: layer_states(&config, facts, &decoder),
            decoder,
            context_tokens: config.number(&[
                "max_position_embeddings",
                "n_positions",
                "max_seq_len",
                "seq_length",
            ]),
            experts: config
                .number(&EXPERTS_IN_USE)
                .zip(config.number(&["num_experts", "num_local_experts", "n_routed_experts"]))
                .filter(|(used, all)| 0 < *used && used <= all),
        })
    }

    fn kv_bytes(&self, tokens: u64, options: &FitOptions) -> u64 {
        let stepped = tokens.div_ceil(KV_STEP).saturating_mul(KV_STEP);
        self.layers
            .iter()
            .map(|layer| match *layer {
                LayerState::Full { numbers } => {
                    stepped.saturating_mul(self.kv_token_bytes(numbers, options))
                }
                // A chunk is appended before the window's front is dropped.
                LayerState::Sliding { numbers, window } => stepped
                    .min(window.saturating_add(options.prefill_chunk))
                    // Window caches are not quantized.
                    .saturating_mul(numbers.saturating_mul(self.decoder.element_bytes)),
                LayerState::Fixed { bytes } => bytes,
            })
            .fold(0, u64::saturating_add)
    }

    /// Bytes of one token's `numbers` in one layer. Quantized ones have a scale and a bias for
    /// each group.
    fn kv_token_bytes(&self, numbers: u64, options: &FitOptions) -> u64 {
        match options.kv_quantization {
            None => numbers.saturating_mul(self.decoder.element_bytes),
            Some((bits, group_size)) => {
                let packed = numbers.saturating_mul(bits.into()).div_ceil(8);
                let scales = numbers.div_ceil(group_size.into());
                packed.saturating_add(scales.saturating_mul(2 * self.decoder.element_bytes))
            }
        }
    }

    /// What the last prefill chunk of a context takes while a layer is computed.
    fn transient_bytes(&self, tokens: u64, options: &FitOptions) -> u64 {
        let chunk = options.prefill_chunk.min(tokens);
        let is_metal = cfg!(target_os = "macos");
        let decoder = footprint::Shape {
            head_count: if holds_scores(is_metal, self.decoder.head_dim) {
                self.decoder.head_count
            } else {
                0
            },
            ..self.decoder
        };
        // A buffer that grows is copied: one layer's state is there twice.
        let layer_count = u64::try_from(self.layers.len()).unwrap_or(u64::MAX);
        let growing = self.kv_bytes(tokens, options) / layer_count.max(1);
        decoder
            .transient_bytes(chunk, tokens)
            .saturating_add(growing)
    }

    fn total_bytes(&self, weights: u64, tokens: u64, options: &FitOptions) -> u64 {
        weights
            .saturating_add(self.kv_bytes(tokens, options))
            .saturating_add(self.transient_bytes(tokens, options))
    }
}

/// Whether attention over a chunk holds its scores as an array. MLX's Metal kernels do without
/// for the head widths that they are made for.
fn holds_scores(is_metal: bool, head_dim: u64) -> bool {
    !(is_metal && matches!(head_dim, 64 | 80 | 128))
}

const EXPERTS_IN_USE: [&str; 4] = [
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
];

fn estimate(shape: &Shape, tensors: &Tensors, options: &FitOptions) -> Fit {
    let tokens = options.context_tokens;
    let total = |tokens| shape.total_bytes(tensors.bytes, tokens, options);
    let total_bytes = total(tokens);
    let model_most = shape.context_tokens.unwrap_or(MOST_TOKENS).min(MOST_TOKENS);
    // The total never falls as the context grows: find the last length that fits.
    let (mut fitting, mut too_long) = (0, model_most + 1);
    while too_long - fitting > 1 {
        let middle = fitting + (too_long - fitting) / 2;
        if total(middle) <= options.budget_bytes {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    let idle_experts = shape.experts.map_or(0, |(used, all)| {
        let used_bytes = u128::from(tensors.experts_bytes) * u128::from(used) / u128::from(all);
        tensors.experts_bytes - u64::try_from(used_bytes).unwrap_or(tensors.experts_bytes)
    });
    // With a head of its own, decoding reads one row of the embedding.
    let idle_embedding = if tensors.has_head {
        tensors.embedding_bytes
    } else {
        0
    };
    Fit {
        fits: total_bytes <= options.budget_bytes && tokens <= model_most,
        weight_bytes: tensors.bytes,
        kv_bytes: shape.kv_bytes(tokens, options),
        transient_bytes: shape.transient_bytes(tokens, options),
        total_bytes,
        max_context_tokens: fitting,
        model_context_tokens: shape.context_tokens,
        active_bytes_per_token: tensors
            .bytes
            .saturating_sub(idle_experts)
            .saturating_sub(idle_embedding),
    }
}

/// A config whose `text_config`, where it has one, wins.
struct Config<'a> {
    outer: &'a Map<String, Value>,
    text: Option<&'a Map<String, Value>>,
}

impl<'a> Config<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        let value = self.text.and_then(|text| text.get(name));
        value
            .or_else(|| self.outer.get(name))
            .filter(|value| !value.is_null())
    }

    fn number(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.get(name)?.as_u64())
    }
}

fn layer_states(config: &Config<'_>, facts: &Facts, decoder: &footprint::Shape) -> Vec<LayerState> {
    let (kv_heads, head_dim) = (decoder.kv_head_count, decoder.head_dim);
    // Keys and values of all KV heads.
    let numbers = kv_heads.saturating_mul(head_dim).saturating_mul(2);
    // Compressed ones: DeepSeek's latent, and the part of the key with the position.
    let full = match config.number(&["kv_lora_rank"]) {
        Some(rank) => rank.saturating_add(config.number(&["qk_rope_head_dim"]).unwrap_or(0)),
        None => {
            let heads = config
                .number(&["num_global_key_value_heads"])
                .unwrap_or(kv_heads);
            let dim = config.number(&["global_head_dim"]).unwrap_or(head_dim);
            heads.saturating_mul(dim).saturating_mul(2)
        }
    };
    let window = config.number(&[
        "sliding_window",
        "sliding_window_size",
        "attention_window_size",
    ]);
    let fixed = LayerState::Fixed {
        bytes: linear_state_numbers(config, decoder.hidden_size)
            .saturating_mul(decoder.element_bytes),
    };
    // The last layers of some models look at the state of earlier ones.
    let own = decoder
        .layer_count
        .saturating_sub(config.number(&["num_kv_shared_layers"]).unwrap_or(0));
    (0..own)
        .map(|layer| match layer_kind(config, facts, layer) {
            LayerKind::Full => LayerState::Full { numbers: full },
            LayerKind::Sliding => match window {
                Some(window) => LayerState::Sliding { numbers, window },
                None => LayerState::Full { numbers },
            },
            LayerKind::Linear => fixed,
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    Full,
    Sliding,
    Linear,
}

/// A window in the config alone says nothing: most models that name one ignore it.
fn layer_kind(config: &Config<'_>, facts: &Facts, layer: u64) -> LayerKind {
    let is_every = |interval: u64| interval > 0 && (layer + 1).is_multiple_of(interval);
    let listed = config
        .get("layer_types")
        .and_then(Value::as_array)
        .and_then(|types| types.get(usize::try_from(layer).ok()?)?.as_str());
    if let Some(listed) = listed {
        return match listed {
            "sliding_attention" | "chunked_attention" => LayerKind::Sliding,
            "linear_attention" | "conv" | "mamba" | "recurrent" => LayerKind::Linear,
            _ => LayerKind::Full,
        };
    }
    if let Some(interval) = config.number(&["full_attention_interval"]) {
        return if is_every(interval) {
            LayerKind::Full
        } else {
            LayerKind::Linear
        };
    }
    let model_type = facts
        .text_model_type
        .as_deref()
        .or(facts.model_type.as_deref());
    let default_pattern = model_type.is_some_and(|name| name.starts_with("gemma3"));
    let pattern = config
        .number(&["sliding_window_pattern"])
        .or(default_pattern.then_some(6));
    match pattern {
        Some(interval) if !is_every(interval) => LayerKind::Sliding,
        _ => LayerKind::Full,
    }
}

/// Numbers in the state of a linear-attention or convolution layer.
fn linear_state_numbers(config: &Config<'_>, hidden_size: u64) -> u64 {
    let number = |name: &str| config.number(&[name]);
    let keys = number("linear_num_key_heads").zip(number("linear_key_head_dim"));
    let values = number("linear_num_value_heads").zip(number("linear_value_head_dim"));
    let kernel = config
        .number(&["linear_conv_kernel_dim", "conv_L_cache", "mamba_d_conv"])
        .unwrap_or(4);
    match keys.zip(values) {
        Some(((key_heads, key_dim), (value_heads, value_dim))) => {
            let state = value_heads
                .saturating_mul(value_dim)
                .saturating_mul(key_dim);
            let channels = key_heads
                .saturating_mul(key_dim)
                .saturating_mul(2)
                .saturating_add(value_heads.saturating_mul(value_dim));
            state.saturating_add(channels.saturating_mul(kernel.saturating_sub(1)))
        }
        None => hidden_size.saturating_mul(kernel.saturating_sub(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(config: &Value) -> Shape {
        let tensors = Tensors {
            float_bytes: 2,
            ..Tensors::default()
        };
        Shape::of(config, &facts::read(config), &tensors).unwrap()
    }

    fn with(base: &Value, more: &Value) -> Value {
        let mut config = base.as_object().unwrap().clone();
        config.extend(more.as_object().unwrap().clone());
        Value::Object(config)
    }

    fn base() -> Value {
        json!({
            "model_type": "x", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        })
    }

    #[test]
    fn kv_bytes_follow_the_layers() {
        // A layer's keys and values of one token: 2 heads of 16, twice, in 2 bytes.
        let token = 2 * 16 * 2 * 2;
        let state = 2 * 8 * 4 + 3 * (2 * 2 * 4 + 2 * 8);
        for (more, tokens, expected) in [
            (json!({}), 1000, 4 * 1024 * token),
            (json!({}), 0, 0),
            (
                json!({ "num_key_value_heads": null }),
                256,
                4 * 256 * token * 2,
            ),
            (json!({ "head_dim": 32 }), 256, 4 * 256 * token * 2),
            // A window that no layer uses.
            (json!({ "sliding_window": 512 }), 1024, 4 * 1024 * token),
            (
                json!({
                    "sliding_window": 100,
                    "layer_types": [
                        "sliding_attention", "full_attention",
                        "sliding_attention", "full_attention",
                    ],
                }),
                1024,
                2 * 1024 * token + 2 * (100 + 100) * token,
            ),
            (
                json!({ "sliding_window": 100, "sliding_window_pattern": 2 }),
                1024,
                2 * 1024 * token + 2 * (100 + 100) * token,
            ),
            (
                json!({ "model_type": "gemma3_text", "sliding_window": 100 }),
                1024,
                4 * 200 * token,
            ),
            (
                json!({
                    "full_attention_interval": 4,
                    "linear_num_key_heads": 2, "linear_key_head_dim": 4,
                    "linear_num_value_heads": 2, "linear_value_head_dim": 8,
                }),
                1024,
                1024 * token + 3 * state * 2,
            ),
            (json!({ "num_kv_shared_layers": 3 }), 256, 256 * token),
            (
                json!({ "kv_lora_rank": 20, "qk_rope_head_dim": 4 }),
                256,
                4 * 256 * 24 * 2,
            ),
            (
                json!({ "text_config": { "num_hidden_layers": 1, "head_dim": 8 } }),
                256,
                256 * token / 2,
            ),
        ] {
            let shape = shape(&with(&base(), &more));
            let options = FitOptions {
                prefill_chunk: 100,
                ..FitOptions::default()
            };
            assert_eq!(shape.kv_bytes(tokens, &options), expected, "{more}");
        }
    }

    #[test]
    fn a_quantized_state_has_scales() {
        let options = FitOptions {
            kv_quantization: Some((4, 32)),
            ..FitOptions::default()
        };
        let numbers = 2 * 16 * 2;
        let token = numbers / 2 + numbers / 32 * 2 * 2;
        assert_eq!(shape(&base()).kv_bytes(256, &options), 4 * 256 * token);
    }

    #[test]
    fn the_largest_context_fits_and_one_more_token_does_not() {
        let shape = shape(&with(&base(), &json!({ "max_position_embeddings": 5000 })));
        let tensors = Tensors {
            bytes: 1_000_000,
            ..Tensors::default()
        };
        for budget_bytes in [
            0,
            999_999,
            1_000_000,
            1_200_000,
            2_000_000,
            10_000_000,
            u64::MAX,
        ] {
            let options = FitOptions {
                budget_bytes,
                ..FitOptions::default()
            };
            let most = estimate(&shape, &tensors, &options).max_context_tokens;
            for (tokens, expected) in [(most, most > 0), (most + 1, false)] {
                let fit = estimate(
                    &shape,
                    &tensors,
                    &FitOptions {
                        context_tokens: tokens,
                        ..options
                    },
                );
                assert_eq!(fit.fits && tokens > 0, expected, "{budget_bytes} {tokens}");
            }
        }
        let all = estimate(&shape, &tensors, &FitOptions::default());
        assert_eq!(
            (all.max_context_tokens, all.model_context_tokens),
            (5000, Some(5000))
        );
    }

    #[test]
    fn of_experts_only_those_in_use_are_read() {
        let config = with(
            &base(),
            &json!({ "num_experts": 8, "num_experts_per_tok": 2 }),
        );
        let tensors = Tensors {
            bytes: 1000,
            experts_bytes: 800,
            embedding_bytes: 50,
            has_head: true,
            ..Tensors::default()
        };
        let fit = estimate(&shape(&config), &tensors, &FitOptions::default());
        assert_eq!(fit.active_bytes_per_token, 1000 - 600 - 50);
        let tied = Tensors {
            has_head: false,
            ..tensors
        };
        let fit = estimate(&shape(&base()), &tied, &FitOptions::default());
        assert_eq!(fit.active_bytes_per_token, 1000);
    }

    #[test]
    fn only_metal_kernels_do_without_scores() {
        for (is_metal, head_dim, expected) in [
            (false, 64, true),
            (true, 64, false),
            (true, 128, false),
            (true, 256, true),
        ] {
            assert_eq!(holds_scores(is_metal, head_dim), expected);
        }
    }

    #[test]
    fn impossible_numbers_saturate() {
        let config = with(
            &base(),
            &json!({ "head_dim": u64::MAX, "intermediate_size": u64::MAX }),
        );
        let options = FitOptions {
            context_tokens: MOST_TOKENS,
            ..FitOptions::default()
        };
        let fit = estimate(&shape(&config), &Tensors::default(), &options);
        assert_eq!(fit.total_bytes, u64::MAX);
    }
}
