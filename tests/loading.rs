//! Folders that are not what they should be, through the whole way of loading: the right model, or
//! one error that names what is wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
};

use mlxb::{Error, Event, Flow, GenerateOptions, Kind, LoadOptions, Model};
use serde_json::{Value, json};
use support::Folder;

fn load(folder: &Folder) -> Result<Model, Error> {
    Model::load(&folder.path, LoadOptions::default())
}

fn error(folder: &Folder) -> Error {
    load(folder).err().expect("the folder should be refused")
}

fn expect_error(folder: &Folder, kind: Kind, named: &[&str]) {
    let error = error(folder);
    assert_eq!(error.kind(), kind, "{error}");
    for name in named {
        assert!(error.message().contains(name), "{error} should name {name}");
    }
}

/// The first greedy tokens after a prompt: the same for folders that hold the same model.
fn first_tokens(model: &Model) -> Vec<u32> {
    let mut tokens = Vec::new();
    let options = GenerateOptions {
        max_tokens: Some(12),
        ..GenerateOptions::default()
    };
    let mut keep = |event: Event<'_>| {
        if let Event::Token { id, .. } = event {
            tokens.push(id);
        }
        Flow::Continue
    };
    model
        .generate(None, &[5, 36, 67, 98], &options, &mut keep)
        .unwrap();
    tokens
}

fn expect_same_model(folder: &Folder) {
    let expected = first_tokens(&load(&Folder::new()).unwrap());
    assert_eq!(first_tokens(&load(folder).unwrap()), expected);
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes)
        .unwrap();
}

#[test]
fn shards_and_links_make_the_same_model() {
    let folder = Folder::new();
    folder.tensors().write_shards(&folder, 3);
    expect_same_model(&folder);

    // A snapshot of the hub: links to blobs outside the folder.
    let blobs = folder.outside().join("blobs");
    fs::create_dir(&blobs).unwrap();
    for (index, entry) in fs::read_dir(&folder.path).unwrap().enumerate() {
        let path = entry.unwrap().path();
        let blob = blobs.join(format!("blob{index}"));
        fs::rename(&path, &blob).unwrap();
        symlink(blob, path).unwrap();
    }
    expect_same_model(&folder);
}

#[test]
fn a_shard_without_its_last_byte_is_named() {
    let folder = Folder::new();
    cut(&folder.file("model.safetensors"), 1);
    expect_error(&folder, Kind::Corrupt, &["model.safetensors"]);

    let folder = Folder::new();
    let shards = folder.tensors().write_shards(&folder, 3);
    cut(&folder.file(&shards[1]), 1);
    expect_error(&folder, Kind::Corrupt, &[&shards[1]]);
}

#[test]
fn a_shard_that_becomes_shorter_while_it_is_read_is_named() {
    let folder = Folder::new();
    let shards = folder.tensors().write_shards(&folder, 2);
    let mut events = 0;
    let mut shorten = |_, _| {
        events += 1;
        if events == 2 {
            for shard in &shards {
                cut(&folder.file(shard), 40_000);
            }
        }
        Flow::Continue
    };
    let options = LoadOptions {
        on_progress: Some(&mut shorten),
        ..LoadOptions::default()
    };
    let error = Model::load(&folder.path, options).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.message().contains("-of-00002.safetensors"), "{error}");
    assert!(events >= 2);
}

#[test]
fn files_of_macos_beside_the_weights_are_skipped() {
    let folder = Folder::new();
    let apple_double = [0, 5, 22, 7, 0, 2, 0, 0, b'M', b'a', b'c'];
    folder.write("._model.safetensors", apple_double);
    folder.write("._config.json", apple_double);
    folder.write(".DS_Store", "x");
    expect_same_model(&folder);
}

#[test]
fn a_complete_file_beats_a_stale_index_and_side_files_stay_aside() {
    let folder = Folder::new();
    folder.write(
        "model.safetensors.index.json",
        json!({"weight_map": {"a": "gone-1.safetensors", "b": "gone-2.safetensors"}}).to_string(),
    );
    // Were its tensors taken for the model's, one would be in two places.
    fs::copy(
        folder.file("model.safetensors"),
        folder.file("mtp.safetensors"),
    )
    .unwrap();
    expect_same_model(&folder);
}

#[test]
fn a_missing_shard_is_named() {
    let folder = Folder::new();
    let shards = folder.tensors().write_shards(&folder, 3);
    folder.remove(&shards[2]);
    expect_error(&folder, Kind::ModelFormat, &[&shards[2]]);
}

#[test]
fn what_must_be_there_is_missed_by_name() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = Folder::new();
        folder.remove(name);
        let error = error(&folder);
        assert_eq!(error.kind(), Kind::ModelFormat, "{error}");
        let named = name.trim_start_matches("model");
        assert!(
            error.message().contains(named),
            "{error} should name {name}"
        );
    }
    let error = Model::load("/no/such/folder", LoadOptions::default());
    assert_eq!(error.err().unwrap().kind(), Kind::NotFound);
}

#[test]
fn names_in_files_do_not_lead_outside() {
    let folder = Folder::new();
    let tensors = folder.tensors();
    fs::write(folder.outside().join("x.safetensors"), tensors.serialized()).unwrap();
    folder.remove("model.safetensors");
    let absolute = folder.outside().join("x.safetensors");
    for path in ["../x.safetensors", absolute.to_str().unwrap()] {
        let weight_map: serde_json::Map<_, _> = tensors
            .0
            .keys()
            .map(|name| (name.clone(), path.into()))
            .collect();
        let index = json!({"weight_map": weight_map});
        folder.write("model.safetensors.index.json", index.to_string());
        let error = error(&folder);
        assert_eq!(error.kind(), Kind::ModelFormat, "{error}");
    }
}

#[test]
fn code_that_the_configuration_names_is_not_even_opened() {
    let folder = Folder::new();
    folder.change("config.json", |config| {
        config.insert("model_file".into(), "evil.py".into());
        config.insert("auto_map".into(), json!({"AutoModel": "evil.Model"}));
        config.insert("trust_remote_code".into(), true.into());
    });
    // Opening a pipe that nobody writes to would wait for ever.
    let pipe = CString::new(folder.file("evil.py").as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    expect_same_model(&folder);
}

#[test]
fn a_head_is_there_or_the_embedding_serves() {
    // What the configuration says, whether there is a head, and whether the result is the model
    // with its own head, with the embedding as head, or none.
    let own = first_tokens(&load(&Folder::new()).unwrap());
    let mut with_embedding = None;
    for (tied, head) in [(true, false), (true, true), (false, true), (false, false)] {
        let folder = Folder::new();
        folder.change("config.json", |config| {
            config.insert("tie_word_embeddings".into(), tied.into());
        });
        if !head {
            let mut tensors = folder.tensors();
            tensors.0.remove("lm_head.weight").unwrap();
            folder.write("model.safetensors", tensors.serialized());
        }
        match (tied, head) {
            (true, _) => {
                let tokens = first_tokens(&load(&folder).unwrap());
                assert_ne!(tokens, own);
                assert_eq!(*with_embedding.get_or_insert(tokens.clone()), tokens);
            }
            (false, true) => assert_eq!(first_tokens(&load(&folder).unwrap()), own),
            (false, false) => expect_error(&folder, Kind::ModelFormat, &["lm_head.weight"]),
        }
    }
}

#[test]
fn end_tokens_are_gathered_from_every_place() {
    let eos = |config: Value, generation: Value| {
        let folder = Folder::new();
        folder.change("config.json", |file| {
            file.insert("eos_token_id".into(), config);
        });
        folder.change("generation_config.json", |file| {
            file.insert("eos_token_id".into(), generation);
        });
        load(&folder).unwrap().info().eos_tokens.clone()
    };
    // The tokenizer's own end token is 2.
    assert_eq!(eos(json!(7), json!([9, 8])), [2, 7, 8, 9]);
    assert_eq!(eos(Value::Null, Value::Null), [2]);
    assert_eq!(eos(json!([5]), json!(5)), [2, 5]);
}

#[test]
fn a_text_model_inside_a_larger_one_is_taken_out() {
    let folder = Folder::new();
    folder.change("config.json", |config| {
        let mut text = std::mem::take(config);
        text.insert("eos_token_id".into(), json!([7, 9]));
        config.insert("model_type".into(), "mistral3".into());
        config.insert("eos_token_id".into(), json!(5));
        config.insert("text_config".into(), text.into());
    });
    let mut tensors = folder.tensors();
    tensors.0 = std::mem::take(&mut tensors.0)
        .into_iter()
        .map(|(name, tensor)| (format!("language_model.{name}"), tensor))
        .collect();
    let tower = ("F32".into(), vec![1], vec![0; 4]);
    tensors.0.insert("vision_tower.patch.weight".into(), tower);
    folder.write("model.safetensors", tensors.serialized());
    expect_same_model(&folder);
    assert_eq!(load(&folder).unwrap().info().eos_tokens, [0, 2, 5, 7, 9]);
}

#[test]
fn no_rope_scaling_may_be_said_in_several_ways() {
    for nothing in [Value::Null, json!({}), json!({"rope_type": "default"})] {
        let folder = Folder::new();
        folder.change("config.json", |config| {
            config.insert("rope_scaling".into(), nothing);
        });
        expect_same_model(&folder);
    }
}

#[test]
fn a_tensor_that_is_missing_surplus_or_of_another_shape_is_named() {
    let name = "model.layers.1.mlp.up_proj.weight";
    let folder = Folder::new();
    let whole = folder.tensors();

    let mut tensors = whole.clone();
    tensors.0.remove(name).unwrap();
    folder.write("model.safetensors", tensors.serialized());
    expect_error(&folder, Kind::ModelFormat, &[name]);

    let mut tensors = whole.clone();
    tensors.0.get_mut(name).unwrap().1.reverse();
    folder.write("model.safetensors", tensors.serialized());
    expect_error(&folder, Kind::ModelFormat, &[name, "[64, 160]"]);

    let mut tensors = whole.clone();
    let copy = tensors.0[name].clone();
    tensors
        .0
        .insert("model.layers.2.mlp.up_proj.weight".into(), copy);
    folder.write("model.safetensors", tensors.serialized());
    expect_error(&folder, Kind::ModelFormat, &["model.layers.2.mlp.up_proj"]);

    let mut tensors = whole;
    tensors.0.get_mut(name).unwrap().0 = "I32".into();
    folder.write("model.safetensors", tensors.serialized());
    expect_error(&folder, Kind::ModelFormat, &[name, "I32"]);
}

#[test]
fn an_architecture_that_the_library_lacks_is_named() {
    let folder = Folder::new();
    folder.change("config.json", |config| {
        config.insert("model_type".into(), "perceptron".into());
        config.insert("architectures".into(), json!(["PerceptronForCausalLM"]));
    });
    expect_error(&folder, Kind::Unsupported, &["perceptron"]);
}

// MLX's own error handler takes messages for formats: such a name wrote to wild addresses.
#[test]
fn names_that_look_like_formats_are_only_names() {
    const NAME: &str = "%s%n%s%n%s%n%1000000d";
    let folder = Folder::named(NAME);
    expect_same_model(&folder);

    let whole = folder.tensors();
    let mut tensors = whole.clone();
    let tensor = tensors.0["model.norm.weight"].clone();
    tensors.0.insert(NAME.into(), tensor);
    folder.write("model.safetensors", tensors.serialized());
    expect_error(&folder, Kind::ModelFormat, &[NAME]);

    let mut tensors = whole.clone();
    tensors.0.get_mut("model.norm.weight").unwrap().0 = NAME.into();
    folder.write("model.safetensors", tensors.serialized());
    let message = error(&folder).message().to_owned();
    assert!(
        message.contains("model.norm.weight") || message.contains(NAME),
        "{message}"
    );

    folder.write("model.safetensors", whole.serialized());
    cut(&folder.file("model.safetensors"), 1);
    expect_error(&folder, Kind::Corrupt, &[NAME]);

    folder.write("model.safetensors", whole.serialized());
    folder.change("config.json", |config| {
        config.insert("model_type".into(), NAME.into());
    });
    expect_error(&folder, Kind::Unsupported, &[NAME]);

    folder.remove("model.safetensors");
    let index = json!({"weight_map": {"a": format!("{NAME}.safetensors")}});
    folder.write("model.safetensors.index.json", index.to_string());
    error(&folder);
}
