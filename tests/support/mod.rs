//! Model folders for tests.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Map, Value, json};

/// A test model's folder, made by the first call: f32, bf16, mlx4 or tiny.
pub(crate) fn test_model(form: &str) -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/test-model");
    let output = Command::new(tool).arg(form).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// A copy of the tiny model to change.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
    /// The folder itself.
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self::named("model")
    }

    pub(crate) fn named(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        for entry in fs::read_dir(test_model("tiny")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        Self { dir, path }
    }

    /// Its parent, for what lies outside.
    pub(crate) fn outside(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(name), bytes).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    /// Changes a JSON file, which becomes an empty object where there is none.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) {
        let text = fs::read_to_string(self.file(name)).unwrap_or_else(|_| "{}".into());
        let mut value: Map<String, Value> = serde_json::from_str(&text).unwrap();
        change(&mut value);
        self.write(name, Value::Object(value).to_string());
    }

    pub(crate) fn tensors(&self) -> Tensors {
        Tensors::read(&self.file("model.safetensors"))
    }
}

/// The tensors of a safetensors file, by name: data type, shape, bytes.
#[derive(Clone)]
pub(crate) struct Tensors(pub(crate) BTreeMap<String, (String, Vec<usize>, Vec<u8>)>);

impl Tensors {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Map<String, Value> =
            serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
        let data = &bytes[8 + header_bytes..];
        let tensors = header
            .into_iter()
            .filter(|(name, _)| name != "__metadata__");
        Self(
            tensors
                .map(|(name, info)| {
                    let number = |value: &Value| value.as_u64().unwrap() as usize;
                    let offsets = &info["data_offsets"];
                    let bytes = data[number(&offsets[0])..number(&offsets[1])].to_vec();
                    let shape = info["shape"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(number)
                        .collect();
                    let dtype = info["dtype"].as_str().unwrap().to_owned();
                    (name, (dtype, shape, bytes))
                })
                .collect(),
        )
    }

    /// The file's bytes.
    pub(crate) fn serialized(&self) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (name, (dtype, shape, bytes)) in &self.0 {
            let offsets = [data.len(), data.len() + bytes.len()];
            data.extend_from_slice(bytes);
            header.insert(
                name.clone(),
                json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}),
            );
        }
        let header = Value::Object(header).to_string();
        [
            &(header.len() as u64).to_le_bytes(),
            header.as_bytes(),
            &data,
        ]
        .concat()
    }

    /// The tensors in `count` files with an index; `folder`'s single file goes away.
    pub(crate) fn write_shards(&self, folder: &Folder, count: usize) -> Vec<String> {
        folder.remove("model.safetensors");
        let mut shards = vec![Self(BTreeMap::new()); count];
        let mut weight_map = Map::new();
        let file = |shard| format!("model-{:05}-of-{count:05}.safetensors", shard + 1);
        for (index, (name, tensor)) in self.0.iter().enumerate() {
            shards[index % count].0.insert(name.clone(), tensor.clone());
            weight_map.insert(name.clone(), file(index % count).into());
        }
        for (index, shard) in shards.iter().enumerate() {
            folder.write(&file(index), shard.serialized());
        }
        let index = json!({"metadata": {}, "weight_map": weight_map});
        folder.write("model.safetensors.index.json", index.to_string());
        (0..count).map(file).collect()
    }
}
