//! Every tensor counts: changed, it changes the logits; missing, in another shape or one too
//! many, it is named.

use std::{
    fs,
    path::{Path, PathBuf},
};

use mlxb::{Error, LoadOptions, Model};

use crate::{
    load,
    oracle::{make_models, scratch},
    some_ids,
    tensors::{Tensor, Tensors},
};

/// Models of one file that between them have every kind of tensor.
const MODELS: [&str; 6] = [
    "llama_all_biases",
    "llama_bf16",
    "llama_f16",
    "llama_affine_biases",
    "llama_mxfp8",
    "llama_nvfp4",
];

/// A copy of a model, whose weights a test rewrites.
struct Copy {
    folder: PathBuf,
    tensors: Tensors,
}

impl Copy {
    fn of(model: &Path) -> Self {
        let folder = model.with_extension("copy");
        fs::create_dir_all(&folder).expect("the build folder is writable");
        for entry in fs::read_dir(model).expect("the model was just made") {
            let path = entry.expect("the model was just made").path();
            let name = path.file_name().expect("entries have names");
            fs::copy(&path, folder.join(name)).expect("the build folder is writable");
        }
        Self {
            tensors: Tensors::read(&folder),
            folder,
        }
    }

    /// Loads the model with one tensor replaced.
    fn load_with(&self, name: &str, tensor: Option<Tensor>) -> Result<Model, Error> {
        let mut tensors = self.tensors.clone();
        match tensor {
            Some(tensor) => tensors.0.insert(name.to_owned(), tensor),
            None => tensors.0.remove(name),
        };
        tensors.write(&self.folder);
        Model::load(&self.folder, LoadOptions::default())
    }

    /// The message with which the model fails to load.
    fn refusal(&self, name: &str, tensor: Option<Tensor>) -> String {
        match self.load_with(name, tensor) {
            Ok(_) => panic!("{}: loads in spite of {name}", self.folder.display()),
            Err(error) => error.to_string(),
        }
    }
}

/// Of a tensor's name, what a message must hold: without its scales, a packed weight is itself
/// the one that is wrong.
fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(module, _)| module)
}

#[test]
fn changing_any_tensor_changes_the_logits() {
    let ids = some_ids(9, 0..320);
    for (model, folder) in make_models(&MODELS, &scratch("changed")) {
        let logits = load(&folder).logits(&ids).unwrap();
        let copy = Copy::of(&folder);
        for (name, tensor) in &copy.tensors.0 {
            let changed = copy.load_with(name, Some(tensor.perturbed())).unwrap();
            let changed = changed.logits(&ids).unwrap();
            assert!(changed.iter().all(|x| x.is_finite()), "{model}: {name}");
            assert!(changed != logits, "{model}: {name} has no effect");
        }
        let same = copy.load_with("", None).unwrap().logits(&ids).unwrap();
        assert_eq!(same, logits, "{model}: the copy as it was");
    }
}

#[test]
fn a_missing_tensor_is_named() {
    for (model, folder) in make_models(&MODELS, &scratch("missing")) {
        let copy = Copy::of(&folder);
        for name in copy.tensors.0.keys() {
            let message = copy.refusal(name, None);
            assert!(
                message.contains(module_of(name)),
                "{model}: {name}: {message}"
            );
        }
    }
}

#[test]
fn a_tensor_of_another_shape_is_named() {
    for (model, folder) in make_models(&MODELS, &scratch("shapes")) {
        let copy = Copy::of(&folder);
        for (name, tensor) in &copy.tensors.0 {
            for wrong in [tensor.flattened(), tensor.shortened()] {
                let shape = wrong.shape.clone();
                let message = copy.refusal(name, Some(wrong));
                assert!(
                    message.contains(module_of(name)),
                    "{model}: {name} {shape:?}: {message}"
                );
            }
        }
    }
}

#[test]
fn a_surplus_tensor_is_named() {
    for (model, folder) in make_models(
        &["llama_gqa", "llama_tied", "llama_affine_tied"],
        &scratch("surplus"),
    ) {
        let copy = Copy::of(&folder);
        let norm = &copy.tensors.0["model.norm.weight"];
        for surplus in [
            "model.layers.0.self_attn.q_norm.weight",
            "model.layers.0.self_attn.q_proj.bias",
            "model.layers.2.input_layernorm.weight",
            "model.norm.bias",
            "unheard_of",
        ] {
            let message = copy.refusal(surplus, Some(norm.clone()));
            assert!(message.contains(surplus), "{model}: {surplus}: {message}");
        }
    }
}
