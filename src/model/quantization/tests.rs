//! Settings as they are found, and every packing from its shapes.

use serde_json::json;

use super::*;

const AFFINE: QuantizationMode = QuantizationMode::Affine;

fn read(config: Value) -> Result<Quantization> {
    Quantization::read(Fields::new("config.json", config.as_object().unwrap()))
}

fn parameters(mode: QuantizationMode, bits: usize, group_size: usize) -> QuantizationParameters {
    QuantizationParameters::new(mode, bits, group_size).unwrap()
}

fn packed(mode: QuantizationMode, bits: usize, group_size: usize) -> ModuleQuantization {
    ModuleQuantization::Packed(parameters(mode, bits, group_size))
}

#[test]
fn nothing_is_said_of_plain_weights() {
    for config in [
        json!({}),
        json!({"quantization": null, "quantization_config": null}),
    ] {
        let quantization = read(config).unwrap();
        assert!(quantization.is_absent());
        assert_eq!(
            quantization.for_module("lm_head"),
            ModuleQuantization::Unspecified
        );
    }
}

/// ml-explore/mlx-lm#1214: settings by the names in the files, looked up by module names.
#[test]
fn a_module_is_found_under_either_spelling() {
    for key in [
        "model.layers.0.mlp.up_proj",
        "model.language_model.layers.0.mlp.up_proj",
        "language_model.model.layers.0.mlp.up_proj",
        "model.language_model.layers.0.mlp.up_proj.weight",
    ] {
        let quantization = read(json!({
            "quantization": {"bits": 4, "group_size": 64, key: {"bits": 6}}
        }))
        .unwrap();
        for path in [
            "model.layers.0.mlp.up_proj",
            "model.language_model.layers.0.mlp.up_proj",
            "language_model.model.layers.0.mlp.up_proj",
        ] {
            assert_eq!(
                quantization.for_module(path),
                packed(AFFINE, 6, 64),
                "{key} {path}"
            );
        }
        let other = quantization.for_module("model.layers.1.mlp.up_proj");
        assert_eq!(other, ModuleQuantization::Unspecified);
    }
}

/// Blaizzy/mlx-vlm#1703: the mode is that of the module, not of the whole.
#[test]
fn each_module_has_its_own_mode() {
    let quantization = read(json!({
        "quantization": {
            "group_size": 32, "bits": 4, "mode": "mxfp4",
            "a": {"group_size": 64, "bits": 8, "mode": "affine"},
            "b": {"group_size": 64, "bits": 8},
            "c": false,
            "d": true,
            "e": {"mode": "nvfp4"},
            "f": {"bits": 4, "mode": "mxfp4"},
            "g": {},
            "h": {"bits": 3},
            "note": "of another tool", "version": 3,
        },
        "quantization_config": {"quant_method": "fp8"},
    }))
    .unwrap();
    assert!(!quantization.is_absent());
    for (module, expected) in [
        ("a", packed(AFFINE, 8, 64)),
        ("b", packed(AFFINE, 8, 64)),
        ("c", ModuleQuantization::NotQuantized),
        ("d", ModuleQuantization::Unspecified),
        ("e", packed(QuantizationMode::Nvfp4, 4, 16)),
        ("f", packed(QuantizationMode::Mxfp4, 4, 32)),
        ("g", ModuleQuantization::Unspecified),
        ("h", packed(AFFINE, 3, 64)),
        ("note", ModuleQuantization::Unspecified),
    ] {
        assert_eq!(quantization.for_module(module), expected, "{module}");
    }
    assert!(parameters(AFFINE, 8, 64).has_biases());
    assert!(!parameters(QuantizationMode::Mxfp4, 4, 32).has_biases());
}

#[test]
fn the_other_key_counts_where_the_first_is_absent() {
    let settings = json!({"bits": 8, "group_size": 32, "lm_head": false});
    let quantization = read(json!({ "quantization_config": settings })).unwrap();
    assert_eq!(
        quantization.for_module("lm_head"),
        ModuleQuantization::NotQuantized
    );

    let both = read(json!({
        "quantization": {"bits": 4, "group_size": 64},
        "quantization_config": settings,
    }));
    assert_eq!(
        both.unwrap().for_module("lm_head"),
        ModuleQuantization::Unspecified
    );

    for method in ["mxfp4", "mxfp8"] {
        let quantization = read(json!({"quantization_config": {"quant_method": method}}));
        assert!(!quantization.unwrap().is_absent());
    }
}

#[test]
fn what_the_library_does_not_have_is_named() {
    for method in [
        "fp8",
        "awq",
        "gptq",
        "bitsandbytes",
        "bitnet",
        "compressed-tensors",
        "modelopt",
        "%s%n",
    ] {
        let error = read(json!({"quantization_config": {"quant_method": method}})).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        let expected =
            format!("config.json: quantization_config: quant_method is not supported: {method}");
        assert_eq!(error.message(), expected);
    }
    for (settings, kind, complaint) in [
        (
            json!({"mode": "nf4"}),
            Kind::Unsupported,
            "quantization: mode is not supported: nf4",
        ),
        (
            json!({"bits": 7, "group_size": 64}),
            Kind::Unsupported,
            "mode affine is not supported with these bits and group size: 7, 64",
        ),
        (
            json!({"bits": 4, "group_size": 16}),
            Kind::Unsupported,
            "4, 16",
        ),
        (
            json!({"mode": "mxfp4", "bits": 8}),
            Kind::Unsupported,
            "mode mxfp4 is not supported with these bits and group size: 8, 32",
        ),
        (
            json!({"lm_head": {"mode": "nvfp4", "quantize_input": true}}),
            Kind::Unsupported,
            "quantization: lm_head: quantize_input is not supported: true",
        ),
        (
            json!({"global_scale": true}),
            Kind::Unsupported,
            "quantization: global_scale is not supported: true",
        ),
        (
            json!({"bits": 0}),
            Kind::ModelFormat,
            "bits is not a whole number from 1 to 64: 0",
        ),
        (
            json!({"bits": "4"}),
            Kind::ModelFormat,
            "bits is not a whole number from 1 to 64: \"4\"",
        ),
        (
            json!({"model.layers.0.mlp": {"bits": 1}}),
            Kind::Unsupported,
            "quantization: model.layers.0.mlp: mode affine is not supported with these bits and group size: 1, 64",
        ),
        (
            json!({"model.layers.0.a": {"bits": 4}, "language_model.model.layers.0.a": false}),
            Kind::ModelFormat,
            "contradict each other for: language_model.model.layers.0.a",
        ),
    ] {
        let error = read(json!({ "quantization": settings })).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.message().ends_with(complaint), "{error}");
    }
    assert_eq!(
        read(json!({"quantization": 4})).unwrap_err().kind(),
        Kind::ModelFormat
    );
}

#[test]
fn every_packing_is_found_from_its_shapes() {
    let affine = [2, 3, 4, 5, 6, 8]
        .into_iter()
        .flat_map(|bits| [32, 64, 128].map(|group_size| (AFFINE, bits, group_size)));
    let others = [
        (QuantizationMode::Mxfp4, 4, 32),
        (QuantizationMode::Mxfp8, 8, 32),
        (QuantizationMode::Nvfp4, 4, 16),
    ];
    for (mode, bits, group_size) in affine.chain(others) {
        let expected = parameters(mode, bits, group_size);
        assert_eq!(
            (expected.mode(), expected.bits(), expected.group_size()),
            (mode, bits, group_size)
        );
        for columns in [128, 384, 4096] {
            assert!(expected.divides(columns));
            let weight = [10, expected.packed_columns(columns)];
            assert_eq!(weight[1] * 32, columns * bits);
            let scales = [10, expected.group_count(columns)];
            let bytes = !expected.has_biases();
            let found = QuantizationParameters::infer("m", &weight, &scales, columns, bytes);
            assert_eq!(found.unwrap(), expected);
        }
    }
    assert!(!parameters(AFFINE, 4, 64).divides(96));
    assert!(!parameters(AFFINE, 4, 64).divides(0));
}

#[test]
fn shapes_that_no_packing_has_are_refused() {
    for (weight, scales, columns, bytes) in [
        (&[4, 7][..], &[4, 1][..], 64, false),
        (&[4, 8], &[4, 3], 64, false),
        (&[4, 8], &[4, 0], 64, false),
        (&[4, 8], &[4, 1], 0, false),
        (&[4, 14], &[4, 1], 64, false),
        (&[4, 8], &[4, 4], 64, false),
        (&[4, 8], &[4, 1], 64, true),
        (&[4, 16], &[4, 4], 64, true),
        (&[], &[4, 1], 64, false),
        (&[4, 8], &[], 64, false),
        (&[usize::MAX], &[1], 64, false),
    ] {
        let error =
            QuantizationParameters::infer("lm_head%n", weight, scales, columns, bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::ModelFormat);
        assert!(error.message().ends_with(": lm_head%n"), "{error}");
    }
}

#[test]
fn modes_have_the_names_of_mlx() {
    for (mode, name) in QuantizationMode::ALL {
        assert_eq!(mode.as_c_str(), name);
        assert_eq!(
            QuantizationMode::from_name(name.to_str().unwrap()),
            Some(mode)
        );
    }
    assert_eq!(QuantizationMode::from_name("AFFINE"), None);
}
