//! Hubs for tests, laid out as huggingface_hub lays them out.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use mlxb::registry::{ListOptions, ModelRecord, Registry};

/// A hub in a temporary folder, with a place beside it that must stay as it is.
pub(crate) struct Hub {
    folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

impl Hub {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("hub");
        fs::create_dir(&root).unwrap();
        Self { folder, root }
    }

    pub(crate) fn beside(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub(crate) fn snapshot_path(&self, repo: &str, commit: &str) -> PathBuf {
        self.root.join(repo).join("snapshots").join(commit)
    }

    /// Writes a file and the folders above it.
    pub(crate) fn write(&self, below: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn link(&self, below: &str, target: impl AsRef<Path>) -> PathBuf {
        let path = self.root.join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, &path).unwrap();
        path
    }

    /// A snapshot whose files are links to blobs named by their content.
    pub(crate) fn snapshot(&self, repo: &str, commit: &str, files: &[(&str, Vec<u8>)]) -> PathBuf {
        let snapshot = self.snapshot_path(repo, commit);
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(self.root.join(repo).join("refs")).unwrap();
        for (name, content) in files {
            let blob = blob_name(content);
            if !self.path(&format!("{repo}/blobs/{blob}")).exists() {
                self.write(&format!("{repo}/blobs/{blob}"), content);
            }
            let up = "../".repeat(2 + name.matches('/').count());
            self.link(
                &format!("{repo}/snapshots/{commit}/{name}"),
                format!("{up}blobs/{blob}"),
            );
        }
        snapshot
    }

    /// A snapshot of a small whole model.
    pub(crate) fn model(&self, repo: &str, commit: &str, rows: usize) -> PathBuf {
        self.snapshot(repo, commit, &model_files("llama", rows))
    }

    pub(crate) fn set_ref(&self, repo: &str, name: &str, content: &str) {
        self.write(&format!("{repo}/refs/{name}"), content);
    }

    /// Puts the bytes of a repository's blob into the hub-wide store, as huggingface_hub does.
    pub(crate) fn share(&self, repo: &str, content: &[u8]) -> PathBuf {
        let hash = format!("{:0>64}", blob_name(content));
        let payload = self.root.join("blobs").join(&hash[..2]).join(&hash);
        self.write("blobs/.huggingface-shared-blobs", "1\n");
        let blob = self.root.join(repo).join("blobs").join(blob_name(content));
        if !payload.exists() {
            fs::create_dir_all(payload.parent().unwrap()).unwrap();
            fs::rename(&blob, &payload).unwrap();
            fs::write(payload.with_extension("lock"), "").unwrap();
        } else {
            fs::remove_file(&blob).unwrap();
        }
        let below = payload.strip_prefix(&self.root).unwrap();
        symlink(Path::new("../..").join(below), &blob).unwrap();
        let manifest = payload.with_extension("refs");
        let mut lines = fs::read_to_string(&manifest).unwrap_or_default();
        lines += &format!("{}\n", blob.strip_prefix(&self.root).unwrap().display());
        fs::write(manifest, lines).unwrap();
        payload
    }

    /// Scans into a database in memory and lists everything.
    pub(crate) fn list(&self) -> Vec<ModelRecord> {
        self.scanned().list(&ListOptions::default()).unwrap()
    }

    pub(crate) fn scanned(&self) -> Registry {
        let registry = Registry::open(Some(Path::new(":memory:"))).unwrap();
        registry.scan(Some(&self.root)).unwrap();
        registry
    }
}

/// A blob's name: any text that depends on the content only.
pub(crate) fn blob_name(content: &[u8]) -> String {
    let mut hash = DefaultHasher::new();
    content.hash(&mut hash);
    format!("{:016x}", hash.finish())
}

pub(crate) fn commit(number: u32) -> String {
    format!("{number:040x}")
}

pub(crate) fn config(model_type: &str) -> Vec<u8> {
    format!(
        r#"{{"model_type": "{model_type}", "hidden_size": 4, "num_hidden_layers": 2, "vocab_size": 16}}"#
    )
    .into()
}

/// A safetensors file of BF16 tensors with the given names, each of `rows` rows of 4.
pub(crate) fn weights(names: &[&str], rows: usize) -> Vec<u8> {
    let mut header = String::from("{");
    let mut end = 0;
    for name in names {
        let begin = end;
        end += rows * 4 * 2;
        let comma = if begin == 0 { "" } else { "," };
        header += &format!(
            r#"{comma}"{name}":{{"dtype":"BF16","shape":[{rows},4],"data_offsets":[{begin},{end}]}}"#
        );
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend((0..end).map(|byte| byte as u8));
    file
}

pub(crate) fn model_files(model_type: &str, rows: usize) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("config.json", config(model_type)),
        (
            "model.safetensors",
            weights(&["model.embed_tokens.weight"], rows),
        ),
        ("tokenizer.json", b"{}".to_vec()),
    ]
}
