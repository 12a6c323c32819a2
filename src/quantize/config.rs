//! The configuration of a converted model.

use serde::Serialize as _;
use serde_json::{Map, Serializer, Value, json, ser::PrettyFormatter};

use super::plan::Change;
use crate::model::QuantizationParameters;

/// What a configuration may say of packed weights, MLX's own word first.
const KEYS: [&str; 2] = ["quantization", "quantization_config"];

/// What MLX says of how one module is packed, or all that nothing else is said of.
pub(super) fn entry(parameters: QuantizationParameters) -> Value {
    json!({
        "group_size": parameters.group_size(),
        "bits": parameters.bits(),
        "mode": parameters.mode().name(),
    })
}

/// What `config` says of its packed weights, in MLX's words; in a part of it as good as at its
/// top.
pub(super) fn quantization_of(config: &Map<String, Value>) -> Option<Map<String, Value>> {
    let text = config.get("text_config").and_then(Value::as_object);
    let said = KEYS.iter().find_map(|key| {
        let mut places = [text, Some(config)].into_iter().flatten();
        places.find_map(|place| place.get(*key)?.as_object())
    })?;
    // Others name the method alone; what it means was settled when the weights were found.
    let mode = match said.get("quant_method").and_then(Value::as_str) {
        Some(method) => crate::model::QuantizationMode::from_name(method)?,
        None => return Some(said.clone()),
    };
    let (bits, group_size) = mode.defaults();
    let parameters = QuantizationParameters::new(mode, bits, group_size)?;
    entry(parameters).as_object().cloned()
}

/// The configuration for the target: `config` with what changes, as mlx-lm's `convert` changes
/// it. All other keys keep their places; `generation` is the content of
/// `generation_config.json`, whose end tokens count.
pub(super) fn of_target(
    mut config: Map<String, Value>,
    generation: Option<&Value>,
    change: &Change,
) -> Map<String, Value> {
    // A name on its maker's disk; and a tower whose weights are not in the target.
    config.shift_remove("_name_or_path");
    config.shift_remove("vision_config");
    let ends = generation.and_then(|generation| generation.get("eos_token_id"));
    if let Some(ends) = ends.filter(|ends| is_something(ends)) {
        config.insert("eos_token_id".to_owned(), ends.clone());
    }
    let said = quantization_of(&config);
    let quantization = match change {
        Change::Removed => None,
        Change::None => said,
        Change::Added { default, entries } => {
            let mut said = said
                .or_else(|| entry(*default).as_object().cloned())
                .unwrap_or_default();
            said.extend(entries.clone());
            Some(said)
        }
    };
    if let Some(text) = config.get_mut("text_config").and_then(Value::as_object_mut) {
        for key in KEYS {
            text.shift_remove(key);
        }
    }
    for key in KEYS {
        match &quantization {
            Some(said) => drop(config.insert(key.to_owned(), Value::Object(said.clone()))),
            None => drop(config.shift_remove(key)),
        }
    }
    config
}

/// JSON as the hub's files have it, in lines indented by four spaces.
pub(super) fn pretty(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    let mut serializer = Serializer::with_formatter(&mut text, formatter);
    let written = value.serialize(&mut serializer);
    written.expect("a JSON value can be written to memory");
    String::from_utf8(text).expect("JSON is text")
}

/// What Python takes for true.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::QuantizationMode;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn added(entries: Value) -> Change {
        Change::Added {
            default: QuantizationParameters::new(QuantizationMode::Affine, 4, 64).unwrap(),
            entries: object(entries),
        }
    }

    #[test]
    fn keys_keep_their_places_and_what_is_new_comes_last() {
        let config = object(json!({
            "z": 1, "_name_or_path": "/home/me", "eos_token_id": 2, "a": {"c": 0, "b": 1.0},
            "vision_config": {}, "m": null,
        }));
        let generation = json!({"eos_token_id": [0, 2]});
        let made = of_target(config, Some(&generation), &added(json!({"lm_head": false})));
        assert_eq!(
            Value::Object(made).to_string(),
            r#"{"z":1,"eos_token_id":[0,2],"a":{"c":0,"b":1.0},"m":null,"quantization":{"group_size":64,"bits":4,"mode":"affine","lm_head":false},"quantization_config":{"group_size":64,"bits":4,"mode":"affine","lm_head":false}}"#
        );
    }

    #[test]
    fn end_tokens_count_when_there_are_any() {
        for (ends, expected) in [
            (json!(7), json!(7)),
            (json!(0), json!(2)),
            (json!([]), json!(2)),
            (json!(null), json!(2)),
            (json!([0]), json!([0])),
        ] {
            let config = object(json!({"eos_token_id": 2}));
            let generation = json!({"eos_token_id": ends});
            let made = of_target(config, Some(&generation), &Change::None);
            assert_eq!(made["eos_token_id"], expected);
        }
    }

    #[test]
    fn what_was_said_before_stays_and_is_said_twice() {
        let said = json!({"bits": 8, "group_size": 32, "lm_head": false});
        let mxfp8 = json!({"group_size": 32, "bits": 8, "mode": "mxfp8"});
        for (config, expected) in [
            (json!({"quantization": said}), &said),
            (json!({"quantization_config": said}), &said),
            (
                json!({"quantization": said, "quantization_config": {"bits": 2}}),
                &said,
            ),
            (json!({"text_config": {"quantization": said}}), &said),
            (
                json!({"quantization_config": {"quant_method": "mxfp8"}}),
                &mxfp8,
            ),
        ] {
            let made = of_target(object(config), None, &Change::None);
            assert_eq!(made["quantization"], *expected);
            assert_eq!(made["quantization_config"], *expected);
            assert_eq!(made.get("text_config").unwrap_or(&json!({})), &json!({}));
        }
        let config = object(json!({"quantization": said}));
        let made = of_target(config.clone(), None, &added(json!({"x": {"bits": 4}})));
        assert_eq!(
            made["quantization"],
            json!({"bits": 8, "group_size": 32, "lm_head": false, "x": {"bits": 4}})
        );
        let made = of_target(config, None, &Change::Removed);
        assert!(made.is_empty());
    }
}
