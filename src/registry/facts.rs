//! What `config.json` says about a model, as far as a list of models shows it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Facts from the config; absent ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) model_type: Option<String>,
    /// The type in `text_config`.
    pub(crate) text_model_type: Option<String>,
    pub(crate) vision_config_type: Option<String>,
    pub(crate) quantization: Quantization,
    pub(crate) layer_count: Option<i32>,
    pub(crate) hidden_size: Option<i32>,
    pub(crate) vocab_size: Option<i32>,
    pub(crate) is_drafter: bool,
}

/// How the weights are packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quantization {
    pub(crate) bits: Option<i32>,
    pub(crate) group_size: Option<i32>,
    pub(crate) mode: Option<String>,
    /// Modules with another group size.
    pub(crate) group_sizes: BTreeMap<String, i32>,
}

/// Reads the facts. The model type is the outer one, which chooses the architecture; sizes come
/// from `text_config` where the config has one.
pub(crate) fn read(config: &Value) -> Facts {
    let Some(outer) = config.as_object() else {
        return Facts::default();
    };
    let text = outer.get("text_config").and_then(Value::as_object);
    let size = |names: &[&str]| {
        text.and_then(|text| integer(text, names))
            .or_else(|| integer(outer, names))
    };
    Facts {
        model_type: string(outer, "model_type")
            .or_else(|| text.and_then(|text| string(text, "model_type"))),
        text_model_type: text.and_then(|text| string(text, "model_type")),
        vision_config_type: vision_tower(outer),
        quantization: quantization(outer, text),
        layer_count: size(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"]),
        hidden_size: size(&["hidden_size", "n_embd", "d_model", "dim", "model_dim"]),
        vocab_size: size(&["vocab_size"]),
        is_drafter: is_drafter(outer),
    }
}

/// The nested config's type, when it names a vision tower: some text models nest their own
/// config there.
fn vision_tower(config: &Map<String, Value>) -> Option<String> {
    let vision = config.get("vision_config")?.as_object()?;
    string(vision, "model_type").filter(|name| name.ends_with("_vision"))
}

/// Whether a model with this tower type takes pictures in the language model itself.
pub(crate) fn is_unified_vision(vision_config_type: Option<&str>) -> bool {
    vision_config_type.is_some_and(|name| name.ends_with("unified_vision"))
}

fn quantization(config: &Map<String, Value>, text: Option<&Map<String, Value>>) -> Quantization {
    let block = |name: &str| {
        config
            .get(name)
            .or_else(|| text.and_then(|text| text.get(name)))
            .and_then(Value::as_object)
    };
    if let Some(block) = block("quantization") {
        let mode = string(block, "mode").unwrap_or_else(|| "affine".to_owned());
        return Quantization {
            bits: integer(block, &["bits"]),
            group_size: integer(block, &["group_size"]),
            mode: Some(mode),
            group_sizes: overrides(block),
        };
    }
    let Some(block) = block("quantization_config") else {
        return Quantization::default();
    };
    let method = string(block, "mode").or_else(|| string(block, "quant_method"));
    Quantization {
        bits: integer(block, &["bits"]),
        group_size: integer(block, &["group_size"]),
        // A mirror of mlx's own block names neither.
        mode: method.or_else(|| block.contains_key("bits").then(|| "affine".to_owned())),
        group_sizes: overrides(block),
    }
}

fn overrides(block: &Map<String, Value>) -> BTreeMap<String, i32> {
    block
        .iter()
        .filter_map(|(module, settings)| {
            let size = integer(settings.as_object()?, &["group_size"])?;
            Some((module.clone(), size))
        })
        .collect()
}

/// Whether the model only proposes tokens for another one: EAGLE, Medusa, DFlash, multi-token
/// prediction heads and the like, which cannot answer on their own.
fn is_drafter(config: &Map<String, Value>) -> bool {
    const KEYS: [&str; 6] = [
        "dflash_config",
        "eagle_config",
        "medusa_num_heads",
        "speculators_config",
        "speculators_model_type",
        "draft_vocab_size",
    ];
    const WORDS: [&str; 7] = [
        "eagle",
        "medusa",
        "dflash",
        "speculator",
        "drafter",
        "draftmodel",
        "mtpmodel",
    ];
    const ENDS: [&str; 3] = ["_mtp", "_assistant", "_draft"];
    let names = |name: &str| {
        let name = name.to_lowercase();
        WORDS.iter().any(|word| name.contains(word)) || ENDS.iter().any(|end| name.ends_with(end))
    };
    let has_key = KEYS
        .iter()
        .any(|key| config.get(*key).is_some_and(|value| !value.is_null()));
    let has_type = config
        .get("model_type")
        .and_then(Value::as_str)
        .is_some_and(names);
    let has_architecture = config
        .get("architectures")
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().filter_map(Value::as_str).any(names));
    has_key || has_type || has_architecture
}

fn string(map: &Map<String, Value>, name: &str) -> Option<String> {
    let text = map.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn integer(map: &Map<String, Value>, names: &[&str]) -> Option<i32> {
    names
        .iter()
        .find_map(|name| map.get(*name)?.as_i64())
        .and_then(|value| i32::try_from(value).ok())
        .filter(|value| *value >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_come_from_the_text_config() {
        let facts = read(&json!({
            "model_type": "gemma3",
            "hidden_size": 1,
            "text_config": { "model_type": "gemma3_text", "hidden_size": 640, "n_layer": 18 },
            "vocab_size": 262_144,
        }));
        assert_eq!(facts.model_type.as_deref(), Some("gemma3"));
        assert_eq!(facts.hidden_size, Some(640));
        assert_eq!(facts.layer_count, Some(18));
        assert_eq!(facts.vocab_size, Some(262_144));
    }

    #[test]
    fn only_a_vision_tower_is_one() {
        for (vision, expected) in [
            (
                json!({ "model_type": "qwen3_vl_vision" }),
                Some("qwen3_vl_vision"),
            ),
            (
                json!({ "model_type": "gemma4_unified_vision" }),
                Some("gemma4_unified_vision"),
            ),
            (json!({ "model_type": "qwen3_5" }), None),
            (json!({ "model_type": "vision_encoder" }), None),
            (json!({}), None),
            (json!("x"), None),
            (Value::Null, None),
        ] {
            let facts = read(&json!({ "model_type": "x", "vision_config": vision }));
            assert_eq!(facts.vision_config_type.as_deref(), expected);
        }
        assert!(is_unified_vision(Some("gemma4_unified_vision")));
        assert!(!is_unified_vision(Some("qwen3_vl_vision")));
        assert!(!is_unified_vision(None));
    }

    #[test]
    fn quantization_is_read_under_both_names() {
        let quantization = |bits, group_size, mode: Option<&str>| Quantization {
            bits,
            group_size,
            mode: mode.map(str::to_owned),
            group_sizes: BTreeMap::new(),
        };
        for (config, expected) in [
            (
                json!({ "quantization": { "bits": 4, "group_size": 64 } }),
                quantization(Some(4), Some(64), Some("affine")),
            ),
            (
                json!({ "quantization": { "bits": 4, "group_size": 32, "mode": "mxfp4" } }),
                quantization(Some(4), Some(32), Some("mxfp4")),
            ),
            (
                json!({ "quantization_config": { "bits": 8, "group_size": 32 } }),
                quantization(Some(8), Some(32), Some("affine")),
            ),
            (
                json!({ "quantization_config": { "quant_method": "fp8" } }),
                quantization(None, None, Some("fp8")),
            ),
            (
                json!({ "text_config": { "quantization": { "bits": 3, "group_size": 64 } } }),
                quantization(Some(3), Some(64), Some("affine")),
            ),
            (json!({ "quantization": null }), Quantization::default()),
            (json!({}), Quantization::default()),
        ] {
            assert_eq!(read(&config).quantization, expected, "{config}");
        }
    }

    #[test]
    fn drafters_are_told_from_models() {
        for (config, expected) in [
            (json!({ "model_type": "llama" }), false),
            (json!({ "architectures": ["LlamaForCausalLM"] }), false),
            (json!({ "architectures": ["LlamaForCausalLMEagle3"] }), true),
            (json!({ "architectures": ["DFlashDraftModel"] }), true),
            (json!({ "model_type": "qwen3", "dflash_config": {} }), true),
            (
                json!({ "model_type": "qwen3", "dflash_config": null }),
                false,
            ),
            (json!({ "model_type": "gemma4_assistant" }), true),
            (json!({ "model_type": "qwen3_5_mtp" }), true),
            (
                json!({ "model_type": "medusa", "medusa_num_heads": 4 }),
                true,
            ),
            (
                json!({ "model_type": "deepseek_v3", "num_nextn_predict_layers": 1 }),
                false,
            ),
        ] {
            assert_eq!(read(&config).is_drafter, expected, "{config}");
        }
    }

    #[test]
    fn strange_values_are_absent() {
        let facts = read(&json!({
            "model_type": 3,
            "hidden_size": "big",
            "num_hidden_layers": -1,
            "vocab_size": 1e30,
            "quantization": { "bits": 99_999_999_999_u64 },
        }));
        assert_eq!(facts.model_type, None);
        assert_eq!(
            (facts.hidden_size, facts.layer_count, facts.vocab_size),
            (None, None, None)
        );
        assert_eq!(facts.quantization.bits, None);
        assert_eq!(read(&json!([1])), Facts::default());
    }
}
