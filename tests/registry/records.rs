//! What a record says about a folder.

use std::fs;

use mlxb::{
    Kind,
    registry::{FitOptions, fit, inspect},
};

use crate::hub::{Hub, commit, config, model_files, weights};

const A: &str = "models--org--a";

#[test]
fn a_record_holds_what_the_files_say() {
    let hub = Hub::new();
    let config = r#"{
        "model_type": "mistral3", "architectures": ["X"],
        "text_config": {
            "model_type": "mistral", "num_hidden_layers": 3, "hidden_size": 4, "vocab_size": 9
        },
        "vision_config": { "model_type": "gemma4_unified_vision" },
        "quantization": { "bits": 4, "group_size": 32 }
    }"#;
    let sidecar = weights(&["vision.patch.weight"], 7);
    let model = weights(
        &[
            "model.embed_tokens.weight",
            "model.layers.0.mlp.experts.gate.weight",
        ],
        3,
    );
    let template = r#"{"chat_template": "{% if tools %}{{ tools }}{% endif %}"}"#;
    hub.snapshot(
        A,
        &commit(1),
        &[
            ("config.json", config.into()),
            ("model.safetensors", model.clone()),
            ("optiq_vision.safetensors", sidecar.clone()),
            ("kv_config.json", b"{}".to_vec()),
            ("tokenizer.json", b"{}".to_vec()),
            ("tokenizer_config.json", template.into()),
            (
                "README.md",
                b"---\nlicense: other\nlicense_name: x-1\n---\n# Hi".to_vec(),
            ),
            ("nested/extra.bin", vec![0; 100]),
        ],
    );
    let record = inspect(&hub.snapshot_path(A, &commit(1)), None).unwrap();
    assert_eq!(
        record.path,
        hub.snapshot_path(A, &commit(1)).to_str().unwrap()
    );
    assert_eq!(record.repo_id, "org/a");
    assert_eq!(record.model_type.as_deref(), Some("mistral3"));
    assert_eq!(record.size_bytes, model.len() as u64);
    assert_eq!(record.sidecar_bytes, sidecar.len() as u64);
    assert_eq!(record.experts_bytes, 3 * 4 * 2);
    assert_eq!(record.parameter_count, Some(2 * 3 * 4));
    assert_eq!(
        (record.quant_bits, record.quant_group_size),
        (Some(4), Some(32))
    );
    assert_eq!(record.quant_mode.as_deref(), Some("affine"));
    assert_eq!(
        record.vision_config_type.as_deref(),
        Some("gemma4_unified_vision")
    );
    assert_eq!(record.license.as_deref(), Some("x-1"));
    assert_eq!(
        (record.layer_count, record.hidden_size, record.vocab_size),
        (Some(3), Some(4), Some(9))
    );
    assert!(record.has_vision_sidecar && record.is_vision_capable());
    assert!(record.has_kv_config && record.has_tool_template);
    assert!(record.is_complete && record.is_supported() && !record.is_drafter);
    let files = fs::read_dir(hub.path(&format!("{A}/blobs"))).unwrap();
    // The two {} are one blob.
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(record.disk_bytes, bytes);
    // The scan says the same.
    let mut listed = hub.list().remove(0);
    listed.scanned_at_ms = record.scanned_at_ms;
    assert!(
        listed.is_canonical && !record.is_canonical,
        "no ref: only siblings can tell"
    );
    listed.is_canonical = false;
    assert_eq!(listed, record);
}

#[test]
fn parameters_come_from_the_index_unless_it_speaks_of_other_weights() {
    for (metadata, expected) in [
        (
            r#"{"total_parameters": 1000, "total_size": 64}"#,
            Some(1000),
        ),
        (r#"{"total_parameters": 1000}"#, Some(1000)),
        (
            r#"{"total_parameters": 1000, "total_size": 9999}"#,
            Some(32),
        ),
        (r#"{"total_size": 64}"#, Some(32)),
    ] {
        let hub = Hub::new();
        let index =
            format!(r#"{{"metadata": {metadata}, "weight_map": {{"a": "model.safetensors"}}}}"#);
        let mut files = model_files("llama", 4);
        files[1].1 = weights(&["a", "b"], 4);
        files.push(("model.safetensors.index.json", index.into()));
        hub.snapshot(A, &commit(1), &files);
        let record = inspect(&hub.snapshot_path(A, &commit(1)), None).unwrap();
        assert_eq!(record.parameter_count, expected, "{metadata}");
    }
}

#[test]
fn a_folder_outside_of_a_hub_is_inspected_too() {
    let hub = Hub::new();
    for (name, content) in model_files("llama", 4) {
        hub.write(&format!("plain/{name}"), content);
    }
    let record = inspect(&hub.path("plain"), None).unwrap();
    assert_eq!(record.repo_id, "plain");
    assert!(record.is_canonical && record.is_complete);
    assert_eq!(
        inspect(&hub.path("plain/"), Some("my/id")).unwrap().repo_id,
        "my/id"
    );

    let kind = |below: &str| inspect(&hub.path(below), None).unwrap_err().kind();
    assert_eq!(kind("nothing"), Kind::NotFound);
    assert_eq!(kind("plain/config.json"), Kind::InvalidArgument);
    fs::write(hub.path("plain/config.json"), "{").unwrap();
    assert_eq!(kind("plain"), Kind::ModelFormat);
    fs::write(hub.path("plain/config.json"), config("llama")).unwrap();
    fs::write(hub.path("plain/model.safetensors"), "short").unwrap();
    assert_eq!(kind("plain"), Kind::Corrupt);
}

#[test]
fn drafters_vision_towers_and_other_packings_are_told_apart() {
    let hub = Hub::new();
    let mut files = model_files("llama", 4);
    files[0].1 = br#"{"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"]}"#.into();
    hub.snapshot("models--org--eagle", &commit(1), &files);
    files[0].1 = br#"{"model_type": "qwen3_vl", "vision_config": {"model_type": "qwen3_5"},
        "quantization_config": {"quant_method": "fp8"}}"#
        .into();
    hub.snapshot("models--org--text", &commit(1), &files);
    let registry = hub.scanned();
    let error = registry.resolve("org/eagle").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    let record = registry.resolve("text").unwrap();
    assert_eq!(record.vision_config_type, None, "a text model's own config");
    assert!(!record.is_vision_capable());
    assert_eq!(record.quant_mode.as_deref(), Some("fp8"));
    assert_eq!((record.quant_bits, record.quant_group_size), (None, None));
}

#[test]
fn fitting_needs_a_complete_model_with_known_sizes() {
    let hub = Hub::new();
    let mut files = model_files("llama", 4);
    let snapshot = hub.snapshot(A, &commit(1), &files);
    let error = fit(&snapshot, &FitOptions::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::ModelFormat);
    assert!(error.message().contains("config.json"), "{error}");

    files[0].1 = br#"{"model_type": "llama", "hidden_size": 4, "num_hidden_layers": 2,
        "vocab_size": 16, "num_attention_heads": 2, "intermediate_size": 8}"#
        .into();
    let snapshot = hub.snapshot(A, &commit(2), &files);
    let options = FitOptions {
        context_tokens: 256,
        ..FitOptions::default()
    };
    let estimate = fit(&snapshot, &options).unwrap();
    assert!(estimate.fits);
    assert_eq!(estimate.weight_bytes, 4 * 4 * 2);
    assert_eq!(estimate.kv_bytes, 2 * 256 * 4 * 2 * 2);
    let too_small = FitOptions {
        budget_bytes: estimate.total_bytes - 1,
        ..options
    };
    assert!(!fit(&snapshot, &too_small).unwrap().fits);

    fs::remove_file(snapshot.join("model.safetensors")).unwrap();
    assert_eq!(
        fit(&snapshot, &options).unwrap_err().kind(),
        Kind::ModelFormat
    );
    for options in [
        FitOptions {
            prefill_chunk: 0,
            ..options
        },
        FitOptions {
            kv_quantization: Some((7, 64)),
            ..options
        },
        FitOptions {
            kv_quantization: Some((4, 0)),
            ..options
        },
        FitOptions {
            context_tokens: u64::MAX,
            ..options
        },
    ] {
        assert_eq!(
            fit(&snapshot, &options).unwrap_err().kind(),
            Kind::InvalidArgument
        );
    }
}
