//! Configurations as they are found, and as they should not be.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The configuration of a small model, with `more` on top; `null` removes a key.
fn config(more: Value) -> Value {
    let mut config = json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "rms_norm_eps": 1e-5,
        "vocab_size": 100,
    });
    let object = config.as_object_mut().unwrap();
    object.extend(more.as_object().unwrap().clone());
    config
}

fn parse(config: &Value) -> Result<ModelConfig> {
    ModelConfig::parse("dir/config.json", config)
}

fn parsed(more: Value) -> ModelConfig {
    parse(&config(more)).unwrap()
}

fn refusal(more: Value, kind: Kind) -> String {
    let error = parse(&config(more)).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().starts_with("dir/config.json: "), "{error}");
    error.message().to_owned()
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = parsed(json!({}));
    assert_eq!(config.architecture, Architecture::Llama);
    assert_eq!(config.model_type, "llama");
    assert_eq!(
        (config.head_count, config.kv_head_count, config.head_dim),
        (4, 4, 16)
    );
    assert_eq!(config.rope.theta, 10_000.0);
    assert_eq!(config.rope.scaling, RopeScaling::Default);
    assert_eq!(config.rms_norm_eps, 1e-5);
    assert_eq!(config.max_position_embeddings, None);
    assert!(!config.attention_bias && !config.mlp_bias && !config.rope.traditional);
    assert!(config.tie_word_embeddings);
    assert!(config.quantization.is_absent());
}

#[test]
fn every_setting_is_read() {
    let config = parsed(json!({
        "model_type": "mistral", "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_traditional": true,
        "rope_scaling": {"type": "linear", "factor": 2.0}, "attention_bias": true,
        "mlp_bias": true, "tie_word_embeddings": false, "sliding_window": 4096,
        "layer_types": ["full_attention", "full_attention"], "torch_dtype": "bfloat16",
        "pretraining_tp": 1, "use_cache": true, "initializer_range": {"__float__": "NaN"},
    }));
    assert_eq!(config.model_type, "mistral");
    assert_eq!((config.kv_head_count, config.head_dim), (2, 32));
    assert_eq!(config.max_position_embeddings, Some(131_072));
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 2.0 });
    assert!(config.attention_bias && config.mlp_bias && config.rope.traditional);
    assert!(!config.tie_word_embeddings);
}

#[test]
fn head_dim_zero_or_null_is_derived() {
    for head_dim in [json!(0), json!(null)] {
        assert_eq!(parsed(json!({ "head_dim": head_dim })).head_dim, 16);
    }
    // Heads need not fill the hidden size.
    assert_eq!(parsed(json!({"hidden_size": 74})).head_dim, 18);
}

#[test]
fn settings_inside_text_config_count() {
    let text = json!({
        "model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 1,
        "tie_word_embeddings": true, "rope_theta": 7.5,
    });
    let config = parsed(json!({
        "model_type": "mistral3", "text_config": text, "tie_word_embeddings": false,
    }));
    assert_eq!(
        (config.hidden_size, config.layer_count, config.vocab_size),
        (32, 1, 100)
    );
    assert_eq!(config.model_type, "mistral3");
    assert!(config.tie_word_embeddings);
    assert_eq!(config.rope.theta, 7.5);

    // Where only the outer object holds the flag, that one counts.
    let config = parsed(json!({
        "model_type": "mistral3", "tie_word_embeddings": false,
        "text_config": {"model_type": "mistral"},
    }));
    assert!(!config.tie_word_embeddings);
}

/// ml-explore/mlx-lm#648: the flag against what the weights hold.
#[test]
fn the_head_is_settled_by_the_flag_and_else_by_the_weights() {
    for (flag, weights_hold_a_head, tied) in [
        (json!(true), false, true),
        (json!(true), true, true),
        (json!(false), true, false),
        // The loader then misses the head, and says so.
        (json!(false), false, false),
        (json!(null), false, true),
        (json!(null), true, false),
    ] {
        let mut config = parsed(json!({ "tie_word_embeddings": flag }));
        config.settle_head(weights_hold_a_head);
        assert_eq!(
            config.tie_word_embeddings, tied,
            "{flag} {weights_hold_a_head}"
        );
    }
}

/// ml-explore/mlx-lm#1385: no key makes the library look for code.
#[test]
fn keys_that_name_code_are_not_looked_at() {
    let config = parsed(json!({
        "model_file": "../../evil.py",
        "auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"},
        "trust_remote_code": true,
    }));
    assert_eq!(config.architecture, Architecture::Llama);
}

#[test]
fn unsupported_architectures_are_named() {
    for (more, complaint) in [
        (json!({"model_type": "qwen9"}), "not supported: qwen9"),
        (json!({"model_type": "%s%n\n"}), "not supported: %s%n\\n"),
        (
            json!({"model_type": "mistral3", "text_config": {"model_type": "ministral3"}}),
            "not supported: mistral3 with ministral3",
        ),
        (json!({"model_type": "llava"}), "not supported: llava"),
    ] {
        assert!(refusal(more, Kind::Unsupported).ends_with(complaint));
    }
    let message = refusal(json!({"model_type": null}), Kind::ModelFormat);
    assert!(message.ends_with("missing: model_type"));
}

#[test]
fn graphs_that_the_library_does_not_have_are_refused_by_name() {
    let sliding = json!(["full_attention", "sliding_attention"]);
    for (more, complaint) in [
        (
            json!({"hidden_act": "gelu"}),
            "hidden_act is not supported: gelu",
        ),
        (
            json!({"hidden_activation": "relu2"}),
            "hidden_activation is not supported: relu2",
        ),
        (
            json!({"layer_types": sliding}),
            "a layer type is not supported: \"sliding_attention\"",
        ),
        (
            json!({"layer_types": [1]}),
            "a layer type is not supported: 1",
        ),
        (
            json!({"rope_scaling": {"type": "longrope"}}),
            "rope_scaling: type is not supported: longrope",
        ),
        (
            json!({"quantize_activations": true}),
            "quantize_activations is not supported: true",
        ),
        (
            json!({"quantization_config": {"quant_method": "fp8"}}),
            "fp8",
        ),
    ] {
        assert!(refusal(more, Kind::Unsupported).ends_with(complaint));
    }
    let message = refusal(
        json!({"layer_types": ["full_attention"]}),
        Kind::ModelFormat,
    );
    assert!(message.ends_with("num_hidden_layers is 2, and the number of layer_types: 1"));
}

#[test]
fn missing_and_impossible_sizes_are_named() {
    for key in [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "rms_norm_eps",
        "vocab_size",
    ] {
        assert!(
            refusal(json!({ key: null }), Kind::ModelFormat).ends_with(&format!("missing: {key}"))
        );
        for value in [
            json!(-1),
            json!(u64::MAX),
            json!("1"),
            json!([1]),
            json!(1e300),
            json!({"__float__": "NaN"}),
        ] {
            let message = refusal(json!({ key: value }), Kind::ModelFormat);
            assert!(message.contains(&format!("{key} is not ")), "{message}");
        }
    }
    for (more, complaint) in [
        (
            json!({"hidden_size": 0}),
            "whole number from 1 to 1048576: 0",
        ),
        (json!({"num_hidden_layers": 4097}), "from 1 to 4096: 4097"),
        (
            json!({"num_key_value_heads": 3}),
            "4 is no multiple of num_key_value_heads: 3",
        ),
        (json!({"num_key_value_heads": 0}), "from 1 to 16384: 0"),
        (
            json!({"head_dim": 15}),
            "head_dim is not an even number up to 16384: 15",
        ),
        (
            json!({"hidden_size": 2}),
            "head_dim is not an even number up to 16384: 0",
        ),
        (
            json!({"max_position_embeddings": 0}),
            "from 1 to 1073741824: 0",
        ),
        (json!({"rms_norm_eps": 1.5}), "a number from 0 to 1: 1.5"),
        (
            json!({"attention_bias": 1}),
            "attention_bias is not true or false: 1",
        ),
        (
            json!({"text_config": []}),
            "text_config is not an object: []",
        ),
    ] {
        let message = refusal(more, Kind::ModelFormat);
        assert!(message.ends_with(complaint), "{message}");
    }
    let error = parse(&json!([])).unwrap_err();
    assert_eq!(error.message(), "dir/config.json: not an object");
}

/// ml-explore/mlx-swift-lm#449: the ends of an answer are the union of all places.
#[test]
fn a_folder_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, value: Value| fs::write(dir.path().join(name), value.to_string());
    let text = json!({"model_type": "mistral", "eos_token_id": [2, 32000]});
    write(
        "config.json",
        config(json!({"model_type": "mistral3", "eos_token_id": 5, "text_config": text})),
    )
    .unwrap();
    write("generation_config.json", json!({"eos_token_id": [7, 2]})).unwrap();
    write(
        "tokenizer_config.json",
        json!({"eos_token": {"content": "</s>"}}),
    )
    .unwrap();
    let snapshot = Snapshot::inspect(dir.path()).unwrap();
    let read = ModelConfig::read(&snapshot).unwrap();
    assert_eq!(
        Vec::from_iter(read.eos.ids().iter().copied()),
        [2, 5, 7, 32000]
    );
    assert_eq!(read.eos.token(), Some("</s>"));

    write("hf_quant_config.json", json!({})).unwrap();
    let error = ModelConfig::read(&snapshot).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(
        error.message().ends_with("/hf_quant_config.json"),
        "{error}"
    );

    fs::remove_file(dir.path().join("config.json")).unwrap();
    let error = ModelConfig::read(&snapshot).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.message().ends_with("/config.json"), "{error}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..200u64).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-z_%\\n]{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "llama3",
            "yarn",
            "linear",
            "affine",
            "mxfp4",
            "full_attention"
        ])
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        "[a-z.]{0,8}".prop_map(String::from),
        prop::sample::select(vec![
            "type",
            "rope_type",
            "factor",
            "original_max_position_embeddings",
            "bits",
            "group_size",
            "mode",
            "model.layers.0.mlp",
            "quant_method",
            "model_type",
        ])
        .prop_map(String::from),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_configuration_makes_the_reader_panic(
        changes in prop::collection::vec(
            (
                prop::sample::select(vec![
                    "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim",
                    "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "vocab_size",
                    "rope_theta", "rope_scaling", "rope_parameters", "quantization",
                    "quantization_config", "text_config", "eos_token_id", "layer_types",
                    "tie_word_embeddings", "max_position_embeddings", "attention_bias",
                ]),
                any_json(),
            ),
            0..4,
        ),
    ) {
        let mut config = config(json!({}));
        for (key, value) in changes {
            config[key] = value;
        }
        match parse(&config) {
            Ok(read) => {
                prop_assert!(read.head_dim > 0 && read.head_dim % 2 == 0);
                prop_assert_eq!(read.head_count % read.kv_head_count, 0);
                prop_assert!(i32::try_from(read.head_count * read.head_dim).is_ok());
                prop_assert!(i32::try_from(read.vocab_size).is_ok());
                prop_assert!(read.rope.theta > 0.0 && read.rope.theta.is_finite());
            }
            Err(error) => prop_assert!(!error.message().contains('\n')),
        }
    }
}
