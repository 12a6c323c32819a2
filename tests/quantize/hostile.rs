//! Input that is broken, and places that cannot be written: an error that names it, and nothing
//! left behind.

use std::fs;

use mlxb::{
    Error, Flow, Kind, LoadOptions, Model,
    quantize::{FloatType, Matrices, QuantizationMode, QuantizeOptions, quantize},
};
use serde_json::json;

use crate::{
    folder::names,
    reference::{all_alike, packing},
    support::Folder,
};

const TENSOR: &str = "model.layers.1.mlp.up_proj.weight";

pub(crate) fn four<'a>() -> QuantizeOptions<'a> {
    QuantizeOptions::new(all_alike(packing(QuantizationMode::Affine, 4, 32)))
}

pub(crate) fn to_float16<'a>() -> QuantizeOptions<'a> {
    QuantizeOptions {
        dtype: Some(FloatType::Float16),
        ..QuantizeOptions::new(Matrices::Keep)
    }
}

/// Converts the folder, which must fail and leave nothing.
fn fails(folder: &Folder, options: QuantizeOptions<'_>) -> Error {
    let before = names(folder.outside());
    let error = quantize(&folder.path, &folder.outside().join("target"), options).unwrap_err();
    assert_eq!(names(folder.outside()), before, "{error}");
    error
}

#[track_caller]
pub(crate) fn check(error: &Error, kind: Kind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{part} in: {error}");
    }
}

/// Puts `bytes` where the values of [`TENSOR`] begin, `at` bytes from there.
fn change_values(folder: &Folder, at: usize, bytes: &[u8]) {
    let mut tensors = folder.tensors();
    let values = &mut tensors.0.get_mut(TENSOR).unwrap().2;
    values[at..at + bytes.len()].copy_from_slice(bytes);
    folder.write("model.safetensors", tensors.serialized());
}

#[test]
fn a_truncated_shard() {
    let folder = Folder::new();
    let shards = folder.tensors().write_shards(&folder, 3);
    let whole = fs::read(folder.file(&shards[1])).unwrap();
    for length in [0, 5, 100, whole.len() - 1] {
        folder.write(&shards[1], &whole[..length]);
        let error = fails(&folder, four());
        let kind = if length == 0 {
            Kind::ModelFormat
        } else {
            Kind::Corrupt
        };
        check(&error, kind, &[&shards[1]]);
    }
}

#[test]
fn a_shard_that_is_truncated_meanwhile() {
    let folder = Folder::new();
    let file = folder.file("model.safetensors");
    let mut truncate = |done: u64, _: u64| {
        if done > 0 {
            let file = fs::OpenOptions::new().write(true).open(&file).unwrap();
            file.set_len(50_000).unwrap();
        }
        Flow::Continue
    };
    let mut options = four();
    options.on_progress = Some(&mut truncate);
    let error = fails(&folder, options);
    check(
        &error,
        Kind::Corrupt,
        &["model.safetensors", "become shorter"],
    );
}

#[test]
fn weights_that_are_no_numbers() {
    for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let folder = Folder::new();
        change_values(&folder, 4 * 333, &value.to_le_bytes());
        for options in [four(), to_float16(), QuantizeOptions::new(Matrices::Keep)] {
            let error = fails(&folder, options);
            check(&error, Kind::ModelFormat, &["no finite number", TENSOR]);
        }
    }
}

#[test]
fn weights_that_are_too_large_for_their_new_type() {
    let folder = Folder::new();
    change_values(&folder, 0, &(-70_000f32).to_le_bytes());
    let error = fails(&folder, to_float16());
    check(&error, Kind::ModelFormat, &["too large for F16", TENSOR]);
    let target = folder.outside().join("target");
    quantize(&folder.path, &target, four()).unwrap();
}

#[test]
fn a_missing_index_entry() {
    let folder = Folder::new();
    let shards = folder.tensors().write_shards(&folder, 2);
    let index = "model.safetensors.index.json";
    folder.change(index, |index| {
        index["weight_map"].as_object_mut().unwrap().remove(TENSOR);
    });
    let error = fails(&folder, four());
    check(&error, Kind::ModelFormat, &[index, "no entry", TENSOR]);

    folder.remove(&shards[1]);
    let error = fails(&folder, four());
    check(&error, Kind::ModelFormat, &["missing", &shards[1]]);
}

#[test]
fn a_zero_size_tensor() {
    let folder = Folder::new();
    let mut tensors = folder.tensors();
    tensors
        .0
        .insert(TENSOR.into(), ("F32".into(), vec![0, 64], Vec::new()));
    folder.write("model.safetensors", tensors.serialized());
    let error = fails(&folder, four());
    check(&error, Kind::ModelFormat, &["[0, 64]", TENSOR]);
}

#[test]
fn names_that_are_formats() {
    let folder = Folder::named("%s%n%s%n");
    folder.write("%s%n.model", "a vocabulary");
    let target = folder.outside().join("%n%n target");
    quantize(&folder.path, &target, four()).unwrap();
    assert!(names(&target).contains(&"%s%n.model".into()));
    Model::load(&target, LoadOptions::default()).unwrap();

    let mut tensors = folder.tensors();
    tensors
        .0
        .insert("%s%n".into(), ("F32".into(), vec![1], vec![0; 4]));
    folder.write("model.safetensors", tensors.serialized());
    check(&fails(&folder, four()), Kind::ModelFormat, &["%s%n"]);
    folder.change("config.json", |config| {
        drop(config.insert("model_type".into(), "%s%n".into()))
    });
    check(
        &fails(&folder, four()),
        Kind::Unsupported,
        &["%s%n", "not supported"],
    );
}

#[test]
fn an_architecture_that_is_not_supported() {
    let folder = Folder::new();
    folder.change("config.json", |config| {
        drop(config.insert("model_type".into(), json!("mamba")))
    });
    check(&fails(&folder, four()), Kind::Unsupported, &["mamba"]);
}

#[test]
fn a_place_that_cannot_be_a_folder() {
    let folder = Folder::new();
    let file = folder.outside().join("file");
    fs::write(&file, "").unwrap();
    let error = quantize(&folder.path, &file.join("target"), four()).unwrap_err();
    check(&error, Kind::Io, &["file"]);
    let error = quantize(&folder.path, &folder.outside().join("no/target"), four()).unwrap_err();
    check(&error, Kind::NotFound, &["no"]);
    let error = quantize(&folder.path, &folder.path, four()).unwrap_err();
    check(&error, Kind::InvalidArgument, &["exists"]);
    let error = quantize(
        &folder.path,
        &folder.path,
        QuantizeOptions {
            overwrite: true,
            ..four()
        },
    );
    check(
        &error.unwrap_err(),
        Kind::InvalidArgument,
        &["holds the source"],
    );
    assert!(folder.file("model.safetensors").exists());
}

#[test]
fn what_is_packed_already_is_not_packed_again() {
    let folder = Folder::new();
    let target = folder.outside().join("target");
    quantize(&folder.path, &target, four()).unwrap();
    let again = folder.outside().join("again");
    let error = quantize(&target, &again, four()).unwrap_err();
    check(&error, Kind::InvalidArgument, &["packed already", "target"]);
    assert!(!again.exists());
}
