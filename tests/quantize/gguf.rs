//! GGUF files: to the bit what MLX's own reader and the project's reference code make of them.

use std::{fs, path::Path};

use mlxb::{
    Kind, LoadOptions, Model, Tokenizer,
    quantize::{FloatType, Matrices, QuantizationMode, QuantizeOptions, quantize},
};
use serde_json::json;

use crate::{
    folder::{assert_same_tensors, json, names, scratch, tensors},
    reference::{Logits, all_alike, packing, python, run},
    support::{Folder, Tensors, test_model},
};

fn options(matrices: Matrices, dtype: Option<FloatType>) -> QuantizeOptions<'static> {
    let mut options = QuantizeOptions::new(matrices);
    options.dtype = dtype;
    options
}

#[test]
fn a_tiny_file_of_every_type() {
    let scratch = scratch("gguf");
    python("tests/quantize/make_gguf.py", &[&scratch]);
    let file = scratch.join("model.gguf");
    let (kept, plain) = (scratch.join("kept"), scratch.join("plain-made"));
    let made = quantize(&file, &kept, options(Matrices::Keep, None)).unwrap();
    assert_same_tensors(&kept, &scratch.join("packed"), "packed");
    assert_eq!((made.packed_count, made.plain_count), (14, 9));
    let config = json(&kept.join("config.json"));
    assert_eq!(config["torch_dtype"], "float16");
    assert_eq!(config["tie_word_embeddings"], false);

    let wide = options(Matrices::Dequantize, Some(FloatType::Float32));
    quantize(&file, &plain, wide).unwrap();
    assert_same_tensors(&plain, &scratch.join("plain"), "plain");
    let config = json(&plain.join("config.json"));
    assert_eq!(config["torch_dtype"], "float32");
    assert!(!config.contains_key("quantization"));

    // What is plain is packed, what is packed stays.
    let more = scratch.join("more");
    let four = all_alike(packing(QuantizationMode::Affine, 4, 32));
    let made = quantize(&file, &more, options(four, Some(FloatType::Float32))).unwrap();
    assert_eq!((made.packed_count, made.plain_count), (23, 0));

    // Both sides run all of them, the tokenizer included.
    let ids = vec![0, 70, 80, 90, 258, 5];
    let cases: Vec<_> = [&plain, &more]
        .into_iter()
        .map(|folder| Logits {
            folder: folder.clone(),
            ids: ids.clone(),
            file: folder.with_extension("f32"),
        })
        .collect();
    run(&[], &cases, &scratch);
    for case in &cases {
        let model = Model::load(&case.folder, LoadOptions::default()).unwrap();
        assert!(
            model.logits(&ids).unwrap() == case.read(),
            "{}",
            case.folder.display()
        );
        let tokenizer = model.tokenizer();
        assert_eq!(tokenizer.encode("the", true).unwrap(), [0, 259]);
        assert_eq!(model.info().eos_tokens, [1]);
    }
    // A tokenizer beside the file counts more than what the file says of one.
    fs::copy(
        test_model("tiny").join("tokenizer.json"),
        scratch.join("tokenizer.json"),
    )
    .unwrap();
    let beside = scratch.join("beside");
    quantize(&file, &beside, options(Matrices::Keep, None)).unwrap();
    assert!(!names(&beside).contains(&"tokenizer_config.json".into()));
    let [copied, own] = [&beside, &scratch].map(|f| fs::read(f.join("tokenizer.json")).unwrap());
    assert!(copied == own);
}

#[test]
fn the_real_model_is_what_the_reference_code_makes_of_it() {
    let scratch = scratch("gguf-real");
    let [f32, mlx4] = ["f32", "mlx4"].map(test_model);
    let file = f32.parent().unwrap().join("gguf/model.gguf");
    let (plain, packed) = (scratch.join("plain"), scratch.join("packed"));
    let wide = options(Matrices::Dequantize, Some(FloatType::Float32));
    quantize(&file, &plain, wide).unwrap();
    quantize(&file, &packed, options(Matrices::Keep, None)).unwrap();
    for (ours, theirs) in [(&plain, &f32), (&packed, &mlx4)] {
        let expected = Tensors::read(&theirs.join("model.safetensors")).0;
        assert!(tensors(ours) == expected, "{}", ours.display());
        let [ours_config, theirs_config] =
            [ours, theirs].map(|folder| json(&folder.join("config.json")));
        for (key, value) in &theirs_config {
            if !key.starts_with("quantization") {
                assert_eq!(ours_config[key], *value, "{key}");
            }
        }
    }
    let said = json(&packed.join("config.json"))["quantization"].clone();
    assert_eq!(
        said,
        json!({
            "group_size": 32, "bits": 4, "mode": "affine",
            "model.embed_tokens": {"group_size": 32, "bits": 8, "mode": "affine"},
        })
    );
    // The same tokenizer: ids of text with all that its rules are about.
    let [ours, theirs] = [&plain, &f32].map(|folder| Tokenizer::load(folder).unwrap());
    let text = "It's 12345 o'clock,\n\n\tnaïve 日本語 🦀 <|im_start|>user  x= y_1;\u{a0}don't!";
    for add_special in [false, true] {
        let ids = ours.encode(text, add_special).unwrap();
        assert_eq!(ids, theirs.encode(text, add_special).unwrap());
        assert_eq!(ours.decode(&ids, false), text);
    }
    let ids: Vec<u32> = (500..520).collect();
    let [ours, theirs] = [&plain, &f32].map(|folder| {
        let model = Model::load(folder, LoadOptions::default()).unwrap();
        model.logits(&ids).unwrap()
    });
    assert!(ours == theirs);
    fs::remove_dir_all(&scratch).unwrap();
}

/// A header of these keys (values with their types) and tensors (name, shape, type).
fn file(keys: &[(&str, &[u8])], tensors: &[(&str, &[u64], u32)], data_bytes: usize) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        bytes.extend(text(key));
        bytes.extend(*value);
    }
    for (name, shape, kind) in tensors {
        bytes.extend(text(name));
        bytes.extend((shape.len() as u32).to_le_bytes());
        shape
            .iter()
            .rev()
            .for_each(|size| bytes.extend(size.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32) + data_bytes, 0);
    bytes
}

fn refused(bytes: &[u8]) -> mlxb::Error {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("%s%n.gguf");
    fs::write(&path, bytes).unwrap();
    let target = dir.path().join("target");
    let error = quantize(&path, &target, options(Matrices::Keep, None)).unwrap_err();
    assert_eq!(names(dir.path()), ["%s%n.gguf"]);
    assert!(error.message().contains("%s%n.gguf: "), "{error}");
    error
}

#[test]
fn what_is_not_supported_is_named() {
    let llama = b"\x08\0\0\0\x05\0\0\0\0\0\0\0llama";
    let qwen = b"\x08\0\0\0\x05\0\0\0\0\0\0\0q%s%n";
    let four = b"\x04\0\0\0\x04\0\0\0";
    let architecture = ("general.architecture", &llama[..]);
    for (bytes, kind, part) in [
        (
            b"GGUF".to_vec(),
            Kind::Corrupt,
            "behind the end of the file",
        ),
        (b"GGML\x03\0\0\0".to_vec(), Kind::Corrupt, "not a GGUF file"),
        (
            b"GGUF\x01\0\0\0\0\0\0\0".to_vec(),
            Kind::Unsupported,
            "version is not supported: 1",
        ),
        (
            file(&[], &[], 0),
            Kind::ModelFormat,
            "missing: general.architecture",
        ),
        (
            file(&[("general.architecture", &qwen[..])], &[], 0),
            Kind::Unsupported,
            "architecture is not supported: q%s%n",
        ),
        (
            file(&[architecture, ("llama.expert_count", four)], &[], 0),
            Kind::Unsupported,
            "expert_count is not supported: 4",
        ),
        (
            file(&[architecture], &[("a%s%n", &[2, 32], 0)], 255),
            Kind::Corrupt,
            "file ends 1 bytes before a tensor's end: a%s%n",
        ),
    ] {
        let error = refused(&bytes);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(part), "{error}");
    }
}

/// The tiny file with one change of its bytes, which must have the same length.
fn changed(from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let scratch = tempfile::tempdir().unwrap();
    python("tests/quantize/make_gguf.py", &[scratch.path()]);
    let mut bytes = fs::read(scratch.path().join("model.gguf")).unwrap();
    let found = bytes.windows(from.len()).position(|part| part == from);
    let at = found.unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn a_tokenizer_that_cannot_be_made_is_asked_for() {
    for (from, to, part) in [
        (
            &b"gpt2"[..],
            &b"bert"[..],
            "no tokenizer.json beside the file, and one of this kind cannot be made from metadata: bert",
        ),
        (
            b"gpt-2",
            b"weird",
            "one with such words cannot be made from metadata: weird",
        ),
        (
            b"ggml.merges",
            b"ggml.nothing",
            "missing: tokenizer.ggml.merges",
        ),
    ] {
        let to = &to[..from.len()];
        let error = refused(&changed(from, to));
        assert_eq!(error.kind(), Kind::ModelFormat);
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn tensors_that_the_model_lacks_or_has_too_many_are_named() {
    for (from, to, kind, part) in [
        (
            &b"blk.1.ffn_up.weight"[..],
            &b"blk.1.ffn_xx.weight"[..],
            Kind::ModelFormat,
            "a tensor is missing: blk.1.ffn_up.weight",
        ),
        (
            b"\x0d\0\0\0\0\0\0\0output.weight",
            b"\x0d\0\0\0\0\0\0\0OUTPUT.weight",
            Kind::Unsupported,
            "belongs to no part of the model: OUTPUT.weight",
        ),
    ] {
        let error = refused(&changed(from, to));
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(part), "{error}");
    }
    // Beside a model that is whole, a broken file is still the one that was asked for.
    let folder = Folder::new();
    folder.write("x.gguf", "not one");
    let target = folder.outside().join("target");
    let error = quantize(
        &folder.file("x.gguf"),
        &target,
        options(Matrices::Keep, None),
    );
    assert!(error.unwrap_err().message().contains("x.gguf"));
    assert!(!Path::new(&target).exists());
}
