//! The same conversions by mlx-lm and by us: equal tensors, equal configurations, and each side
//! runs what the other made.

use std::{fs, path::Path};

use mlxb::{
    LoadOptions, Model,
    quantize::{FloatType, Matrices, Packings, QuantizationMode, Recipe, quantize},
};
use serde_json::{Map, Value};

use crate::{
    folder::{assert_same_tensors, json, names, scratch, tensors},
    reference::{Case, Logits, all_alike, make_models, packing, run},
    support::test_model,
};

use QuantizationMode::{Affine, Mxfp4, Mxfp8, Nvfp4};

const IDS: [u32; 12] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8];

const MODELS: [&str; 17] = [
    "llama_gqa",
    "llama_five_layers",
    "llama_all_biases",
    "llama_tied_extras",
    "llama_odd_sizes",
    "llama_five_shards",
    "llama_bf16",
    "llama_bf16_f32_norms",
    "llama_f16",
    "mistral3",
    "llama_affine_overrides",
    "llama_affine_bf16",
    "llama_affine_false",
    "llama_mxfp4",
    "llama_mxfp8",
    "llama_nvfp4",
    "llama_mixed_modes",
];

/// Names of cases that each side runs, too.
const CROSSED: [&str; 6] = [
    "affine_4_64",
    "mxfp8",
    "mixed_3_6",
    "four_llama_tied_extras",
    "map",
    "four_mistral3",
];

fn mixed(recipe: Recipe) -> Matrices {
    Matrices::Quantize(Packings {
        default: packing(Affine, 4, 64),
        recipe: Some(recipe),
        modules: Vec::new(),
    })
}

/// A conversion of the tiny model `model`.
fn case(models: &Path, name: &str, model: &str, matrices: Matrices) -> Case {
    Case {
        name: name.into(),
        source: models.join(model),
        matrices,
        dtype: None,
    }
}

fn cases(models: &Path) -> Vec<Case> {
    let case = |name: &str, model: &str, matrices| case(models, name, model, matrices);
    let mut cases = Vec::new();
    for bits in [2, 3, 4, 5, 6, 8] {
        for group_size in [32, 64, 128] {
            let parameters = packing(Affine, bits, group_size);
            let name = format!("affine_{bits}_{group_size}");
            cases.push(case(&name, "llama_gqa", all_alike(parameters)));
        }
    }
    for mode in [Mxfp4, Mxfp8, Nvfp4] {
        let (bits, group_size) = mode.defaults();
        let parameters = packing(mode, bits, group_size);
        cases.push(case(mode.name(), "llama_gqa", all_alike(parameters)));
        let name = format!("{}_bf16", mode.name());
        cases.push(case(&name, "llama_bf16", all_alike(parameters)));
    }
    for recipe in Recipe::all() {
        cases.push(case(recipe.name(), "llama_five_layers", mixed(recipe)));
    }
    let four = || all_alike(packing(Affine, 4, 64));
    for model in [
        "llama_all_biases",
        "llama_tied_extras",
        "llama_odd_sizes",
        "llama_five_shards",
        "llama_bf16_f32_norms",
        "llama_f16",
        "mistral3",
        "llama_affine_false",
    ] {
        cases.push(case(&format!("four_{model}"), model, four()));
    }
    for model in [
        "llama_affine_overrides",
        "llama_affine_bf16",
        "llama_mxfp4",
        "llama_mxfp8",
        "llama_nvfp4",
        "llama_mixed_modes",
    ] {
        cases.push(case(&format!("plain_{model}"), model, Matrices::Dequantize));
        cases.push(case(&format!("kept_{model}"), model, Matrices::Keep));
    }
    cases.push(case(
        "map",
        "llama_gqa",
        Matrices::Quantize(Packings {
            default: packing(Affine, 4, 64),
            recipe: None,
            modules: vec![
                ("model.embed_tokens".into(), Some(packing(Affine, 8, 32))),
                ("model.layers.0.mlp.down_proj".into(), None),
                (
                    "model.layers.1.self_attn.q_proj".into(),
                    Some(packing(Mxfp8, 8, 32)),
                ),
                ("lm_head".into(), Some(packing(Affine, 6, 128))),
            ],
        }),
    ));
    for dtype in [FloatType::Float32, FloatType::Float16, FloatType::Bfloat16] {
        for (work, matrices) in [("kept", Matrices::Keep), ("four", four())] {
            for model in ["llama_gqa", "llama_bf16", "llama_f16"] {
                let name = format!("{work}_{model}_{}", dtype.name());
                let case = case(&name, model, matrices.clone());
                cases.push(Case {
                    dtype: Some(dtype),
                    ..case
                });
            }
        }
        let name = format!("kept_affine_{}", dtype.name());
        let case = case(&name, "llama_affine_overrides", Matrices::Keep);
        cases.push(Case {
            dtype: Some(dtype),
            ..case
        });
    }
    cases
}

/// What a configuration says, without what mlx-lm leaves out: that a matrix stays plain.
fn without_false(config: &Map<String, Value>) -> Map<String, Value> {
    let mut config = config.clone();
    for key in ["quantization", "quantization_config"] {
        if let Some(said) = config.get_mut(key).and_then(Value::as_object_mut) {
            said.retain(|_, value| *value != Value::Bool(false));
        }
    }
    config
}

fn compare(case: &Case, scratch: &Path) {
    let (ours, theirs) = (case.ours(scratch), case.theirs(scratch));
    assert_same_tensors(&ours, &theirs, &case.name);
    let configs = [&ours, &theirs].map(|folder| json(&folder.join("config.json")));
    let [our_config, their_config] = &configs;
    assert_eq!(
        without_false(our_config),
        without_false(their_config),
        "{}",
        case.name
    );
    // Ours keeps the order, where theirs is sorted.
    let source = json(&case.source.join("config.json"));
    let was_there = |key: &&String| source.contains_key(*key);
    let kept: Vec<_> = our_config.keys().filter(was_there).collect();
    let expected: Vec<_> = source
        .keys()
        .filter(|key| our_config.contains_key(*key))
        .collect();
    assert_eq!(kept, expected, "{}", case.name);
    let index = "model.safetensors.index.json";
    let indices = [&ours, &theirs].map(|folder| json(&folder.join(index)));
    assert_eq!(indices[0], indices[1], "{}", case.name);
}

fn convert(case: &Case, scratch: &Path) {
    fs::create_dir_all(scratch.join("ours")).unwrap();
    let made = quantize(&case.source, &case.ours(scratch), case.options());
    made.unwrap_or_else(|error| panic!("{}: {error}", case.name));
}

fn logits(folder: &Path) -> Vec<f32> {
    let model = Model::load(folder, LoadOptions::default());
    let model = model.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    model.logits(&IDS).unwrap()
}

/// Each side runs what the other made, and gets the same.
fn cross(cases: &[&Case], scratch: &Path) {
    let expected: Vec<_> = cases
        .iter()
        .map(|case| Logits {
            folder: case.ours(scratch),
            ids: IDS.to_vec(),
            file: scratch.join(format!("{}.f32", case.name)),
        })
        .collect();
    run(&[], &expected, scratch);
    for (case, expected) in cases.iter().zip(&expected) {
        let (ours, theirs) = (logits(&case.theirs(scratch)), expected.read());
        assert!(ours == theirs, "{}: logits differ", case.name);
        assert!(ours.iter().all(|logit| logit.is_finite()));
    }
}

#[test]
fn tiny_models_of_every_kind() {
    let scratch = scratch("tiny");
    let models = make_models(&MODELS, &scratch);
    let cases = cases(&models);
    run(&cases, &[], &scratch);
    for case in &cases {
        convert(case, &scratch);
        compare(case, &scratch);
    }
    let crossed: Vec<_> = cases
        .iter()
        .filter(|case| CROSSED.contains(&case.name.as_str()))
        .collect();
    assert_eq!(crossed.len(), CROSSED.len());
    cross(&crossed, &scratch);
}

#[test]
fn the_real_model() {
    let scratch = scratch("real");
    let source = test_model("f32");
    let case = |name: &str, matrices| Case {
        name: name.into(),
        source: source.clone(),
        matrices,
        dtype: None,
    };
    let cases = [
        case("four", all_alike(packing(Affine, 4, 64))),
        case("eight", all_alike(packing(Affine, 8, 32))),
        case("mixed_3_6", mixed(Recipe::Mixed36)),
    ];
    run(&cases, &[], &scratch);
    for case in &cases {
        convert(case, &scratch);
        compare(case, &scratch);
    }
    cross(&cases.each_ref(), &scratch);
    // All that a model needs came along, as it was.
    let ours = cases[0].ours(&scratch);
    for name in names(&source) {
        if name != "config.json" && name != "model.safetensors" {
            let [ours, source] = [&ours, &source].map(|folder| fs::read(folder.join(&name)));
            assert!(ours.unwrap() == source.unwrap(), "{name}");
        }
    }
    fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn files_of_a_bounded_size() {
    let scratch = scratch("shards");
    let models = make_models(&["llama_five_shards"], &scratch);
    let case = case(&models, "case", "llama_five_shards", Matrices::Keep);
    let mut options = case.options();
    options.most_shard_bytes = 100_000;
    let ours = scratch.join("ours");
    let made = quantize(&case.source, &ours, options).unwrap();
    let files: Vec<_> = names(&ours)
        .into_iter()
        .filter(|name| name.ends_with(".safetensors"))
        .collect();
    assert!(files.len() > 5, "{files:?}");
    for (index, file) in files.iter().enumerate() {
        let expected = format!("model-{:05}-of-{:05}.safetensors", index + 1, files.len());
        assert_eq!(*file, expected);
    }
    let made_tensors = tensors(&ours);
    let largest = made_tensors
        .values()
        .map(|tensor| tensor.2.len())
        .max()
        .unwrap();
    for file in &files {
        let bytes = fs::metadata(ours.join(file)).unwrap().len();
        assert!(
            bytes < 110_000.max(largest as u64 + 10_000),
            "{file}: {bytes}"
        );
    }
    assert_eq!(made.parameter_count * 4, made.tensor_bytes);
    assert_eq!(logits(&ours), logits(&case.source));
}
