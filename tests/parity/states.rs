//! States in files: what mlx-lm saved goes on here, and the other way round.

use std::{path::Path, process::Command};

use mlxb::{Event, Flow, GenerateOptions, Kv, Model};
use serde_json::{Value, json};

use crate::{
    load,
    oracle::{make_models, scratch},
    some_ids,
};

const TOKENS: usize = 64;

fn python(way: &str, model: &Path, file: &Path, rest: &Value) -> Vec<u32> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("tools/python"))
        .arg(root.join("tests/parity/states.py"))
        .arg(way)
        .args([model, file])
        .arg(rest.to_string())
        .output()
        .unwrap_or_else(|error| panic!("{error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("it prints a list")
}

/// The likeliest ids after `prompt`, behind the state.
fn answer(model: &Model, kv: &Kv, prompt: &[u32], count: usize) -> Vec<u32> {
    let options = GenerateOptions {
        max_tokens: Some(count as u64),
        ..GenerateOptions::default()
    };
    let mut ids = Vec::new();
    model
        .generate(Some(kv), prompt, &options, &mut |event| {
            if let Event::Token { id, .. } = event {
                ids.push(id);
            }
            Flow::Continue
        })
        .unwrap_or_else(|error| panic!("{error}"));
    ids
}

/// Both ways, with a file of each side. Answers end where the model ends them.
fn exchange(name: &str, folder: &Path, count: usize) {
    let model = load(folder);
    let ids = some_ids(240, 5..320);
    let (first, following) = ids.split_at(233);
    let dir = scratch(&format!("states-{name}"));

    let theirs = dir.join("%s%n theirs.safetensors");
    let reference = python("save", folder, &theirs, &json!([first, following, count]));
    let kv = Kv::load(&model, &theirs, Some(first)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kv.tokens().expect("nobody uses it"), first);
    let ours = answer(&model, &kv, following, count);
    assert_eq!(ours, reference[..ours.len()], "{name}");
    assert!(ours.len() == count || model.info().eos_tokens.contains(&ours[ours.len() - 1]));
    let without = Kv::load(&model, &theirs, None).map(|_| ());
    let error = without.expect_err("the file does not say it");
    assert_eq!(error.kind(), mlxb::Kind::InvalidArgument);

    let ours_file = dir.join("ours.safetensors");
    let kv = Kv::new(&model);
    answer(&model, &kv, first, 1);
    // More than what counts is in the buffers.
    answer(&model, &kv, following, 3);
    kv.trim(first.len()).expect("nobody uses it");
    kv.save(&ours_file)
        .unwrap_or_else(|error| panic!("{error}"));
    let theirs = python("load", folder, &ours_file, &json!([following, count]));
    let reference = answer(&model, &kv, following, count);
    assert_eq!(reference, theirs[..reference.len()], "{name}");
    let loaded = Kv::load(&model, &ours_file, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        answer(&model, &loaded, following, count),
        reference,
        "{name}"
    );
}

#[test]
fn a_state_goes_from_mlx_lm_to_the_library_and_back() {
    let dir = scratch("states");
    for (name, folder) in make_models(&["llama_gqa", "llama_bf16", "llama_f16"], &dir) {
        exchange(&name, &folder, TOKENS);
    }
}

#[test]
fn a_state_of_the_real_model_goes_there_and_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(root.join("tools/test-model"))
        .arg("f32")
        .output();
    let made = made.unwrap_or_else(|error| panic!("{error}"));
    let folder = String::from_utf8_lossy(&made.stdout);
    exchange("real", Path::new(folder.trim()), TOKENS);
}
