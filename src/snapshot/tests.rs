//! Real folders, inspected.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::*;

/// A small valid weight file.
fn weights() -> Vec<u8> {
    let header = json!({"t": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend([1, 2, 3]);
    bytes
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with `config.json` and these weight files.
    fn new(weight_files: &[&str]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("config.json", b"{}");
        for name in weight_files {
            folder.write(name, &weights());
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn write_index(&self, files: &[&str]) {
        let map: serde_json::Map<_, _> = files
            .iter()
            .enumerate()
            .map(|(at, file)| (format!("t{at}"), Value::from(*file)))
            .collect();
        let index =
            json!({"metadata": {"total_size": 9, "total_parameters": 7}, "weight_map": map});
        self.write(INDEX, index.to_string().as_bytes());
    }

    fn inspect(&self) -> Result<Snapshot> {
        Snapshot::inspect(self.path())
    }
}

fn names(files: &[WeightFile]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).collect()
}

fn missing(snapshot: &Snapshot) -> Vec<&str> {
    match snapshot.completeness() {
        Completeness::Complete => Vec::new(),
        Completeness::Partial { missing } => missing.iter().map(String::as_str).collect(),
    }
}

#[test]
fn a_single_file_is_a_model() {
    let folder = Folder::new(&["model.safetensors"]);
    let snapshot = folder.inspect().unwrap();
    let [file] = snapshot.weights() else {
        panic!("one file")
    };
    assert_eq!(file.path, folder.path().join("model.safetensors"));
    assert_eq!(file.byte_len, weights().len() as u64);
    assert_eq!(file.role, Role::Main);
    assert_eq!(snapshot.dir(), folder.path());
    assert_eq!(snapshot.completeness(), &Completeness::Complete);
    assert!(snapshot.sidecars().is_empty());
    snapshot.require_complete().unwrap();
}

#[test]
fn an_index_gives_order_and_totals_and_what_is_missing() {
    let shards = [1, 2, 3].map(|number| format!("model-{number:05}-of-00003.safetensors"));
    let [first, second, third] = shards.each_ref().map(String::as_str);
    let folder = Folder::new(&[third, first]);
    folder.write_index(&[third, second, first, second]);
    let snapshot = folder.inspect().unwrap();
    assert_eq!(names(snapshot.weights()), [first, third]);
    assert_eq!(missing(&snapshot), [second]);
    assert_eq!(snapshot.total_bytes(), Some(9));
    assert_eq!(snapshot.total_parameters(), Some(7));
    let error = snapshot.require_complete().unwrap_err();
    assert_eq!(error.kind(), Kind::ModelFormat);
    assert!(
        error
            .message()
            .ends_with("incomplete model, missing: model-00002-of-00003.safetensors")
    );

    folder.write(second, &weights());
    let snapshot = folder.inspect().unwrap();
    assert_eq!(names(snapshot.weights()), [first, second, third]);
    assert!(missing(&snapshot).is_empty());
}

/// lmstudio-ai/mlx-engine#117: an AppleDouble file is not a shard.
#[test]
fn hidden_files_of_the_system_are_skipped() {
    let folder = Folder::new(&["model.safetensors"]);
    folder.write("._model.safetensors", &[0, 5, 0x16, 7, 0, 2, 0, 0]);
    folder.write("._config.json", b"\0");
    folder.write(".DS_Store", b"\0");
    folder.write("Thumbs.db", b"\0");
    let snapshot = folder.inspect().unwrap();
    assert_eq!(names(snapshot.weights()), ["model.safetensors"]);
    assert!(snapshot.sidecars().is_empty());
    assert!(missing(&snapshot).is_empty());
}

/// ml-explore/mlx-swift-lm#562: the index is that of the repository that this one was made from.
#[test]
fn a_whole_single_file_beats_a_stale_index() {
    let folder = Folder::new(&[
        "model.safetensors",
        "mtp.safetensors",
        "optiq_vision.safetensors",
        "projector.safetensors",
    ]);
    folder.write_index(&[
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]);
    let snapshot = folder.inspect().unwrap();
    assert_eq!(
        names(snapshot.weights()),
        ["model.safetensors", "projector.safetensors"]
    );
    let roles: Vec<_> = snapshot.weights().iter().map(|file| file.role).collect();
    assert_eq!(roles, [Role::Main, Role::Extra]);
    assert_eq!(
        names(snapshot.sidecars()),
        ["mtp.safetensors", "optiq_vision.safetensors"]
    );
    let roles: Vec<_> = snapshot.sidecars().iter().map(|file| file.role).collect();
    assert_eq!(roles, [Role::MultiTokenPrediction, Role::Vision]);
    assert!(missing(&snapshot).is_empty());

    // Cut short, it beats nothing.
    let bytes = weights();
    folder.write("model.safetensors", &bytes[..bytes.len() - 1]);
    assert_eq!(missing(&folder.inspect().unwrap()), ["model.safetensors"]);
    folder.write("model-00001-of-00002.safetensors", &bytes);
    assert_eq!(
        missing(&folder.inspect().unwrap()),
        ["model-00002-of-00002.safetensors"]
    );
}

#[test]
fn a_broken_index_counts_only_without_a_whole_single_file() {
    for index in [
        b"{".as_slice(),
        br#"{"weight_map": {"t": "../../etc/passwd.safetensors"}}"#,
    ] {
        let folder = Folder::new(&["model-00001-of-00001.safetensors"]);
        folder.write(INDEX, index);
        let error = folder.inspect().unwrap_err();
        assert_eq!(error.kind(), Kind::ModelFormat);
        assert!(error.message().contains(INDEX), "{error}");

        folder.write("model.safetensors", &weights());
        let snapshot = folder.inspect().unwrap();
        assert_eq!(names(snapshot.weights()), ["model.safetensors"]);
    }
}

#[test]
fn empty_files_and_links_to_nothing_are_missing() {
    let shard = |number| format!("model-0000{number}-of-00004.safetensors");
    let folder = Folder::new(&[&shard(1)]);
    folder.write(&shard(2), b"");
    symlink("../../blobs/absent", folder.path().join(shard(3))).unwrap();
    symlink(shard(4), folder.path().join(shard(4))).unwrap();
    let snapshot = folder.inspect().unwrap();
    assert_eq!(names(snapshot.weights()), [shard(1)]);
    assert_eq!(missing(&snapshot), [shard(2), shard(3), shard(4)]);
    folder.write("config.json", b"");
    let error = folder.inspect().unwrap().require_complete().unwrap_err();
    let named = format!(
        "missing: config.json, {}, {} and 1 more",
        shard(2),
        shard(3)
    );
    assert!(error.message().ends_with(&named), "{error}");
}

#[test]
fn links_out_of_the_folder_are_followed() {
    let blobs = tempfile::tempdir().unwrap();
    fs::write(blobs.path().join("0a"), weights()).unwrap();
    let folder = Folder::new(&[]);
    symlink(
        blobs.path().join("0a"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let snapshot = folder.inspect().unwrap();
    assert_eq!(snapshot.weights()[0].byte_len, weights().len() as u64);
    assert!(missing(&snapshot).is_empty());
}

#[test]
fn folders_and_pipes_by_the_name_of_a_shard_are_no_shards() {
    let folder = Folder::new(&["model.safetensors"]);
    fs::create_dir(folder.path().join("projector.safetensors")).unwrap();
    fs::create_dir(folder.path().join("model-00001-of-00002.safetensors")).unwrap();
    let snapshot = folder.inspect().unwrap();
    assert_eq!(names(snapshot.weights()), ["model.safetensors"]);
    assert!(missing(&snapshot).is_empty());
}

#[test]
fn a_folder_without_a_model_is_partial() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let snapshot = folder.inspect().unwrap();
    assert_eq!(missing(&snapshot), ["config.json", "model.safetensors"]);
    let error = snapshot.require_complete().unwrap_err();
    assert!(
        error
            .message()
            .ends_with(": incomplete model, missing: config.json, model.safetensors"),
        "{error}"
    );
    assert_eq!(error.detail(), Some("config.json\nmodel.safetensors"));

    let absent = Snapshot::inspect(&folder.path().join("absent")).unwrap_err();
    assert_eq!(absent.kind(), Kind::NotFound);
    folder.write("file", b"");
    assert_eq!(
        Snapshot::inspect(&folder.path().join("file"))
            .unwrap_err()
            .kind(),
        Kind::Io
    );
}

#[test]
fn names_with_format_letters_pass_through() {
    let folder = Folder::new(&["a%s%n\n.safetensors"]);
    let snapshot = folder.inspect().unwrap();
    assert_eq!(names(snapshot.weights()), ["a%s%n\n.safetensors"]);
    folder.write_index(&["%s%n\u{1b}[1m.safetensors", "a%s%n\n.safetensors"]);
    let error = folder.inspect().unwrap().require_complete().unwrap_err();
    assert!(
        error
            .message()
            .ends_with("missing: %s%n\\u{1b}[1m.safetensors"),
        "{error}"
    );
}

/// A hub with one snapshot, made the way huggingface_hub lays it out.
fn hub_snapshot(files: &[&str], listed: &[(&str, u64)]) -> (tempfile::TempDir, PathBuf) {
    let hub = tempfile::tempdir().unwrap();
    let repo = hub.path().join("models--org--name");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let dir = repo.join("snapshots").join(commit);
    fs::create_dir_all(&dir).unwrap();
    fs::create_dir_all(repo.join("blobs")).unwrap();
    for (number, name) in files.iter().enumerate() {
        let blob = format!("{number:040}");
        fs::write(repo.join("blobs").join(&blob), weights()).unwrap();
        symlink(Path::new("../../blobs").join(&blob), dir.join(name)).unwrap();
    }
    let files: serde_json::Map<_, _> = listed
        .iter()
        .map(|(name, size)| ((*name).to_owned(), json!({"size": size, "blob_id": "00"})))
        .collect();
    fs::create_dir_all(repo.join("trees")).unwrap();
    let tree = json!({"format_version": 1, "files": files}).to_string();
    fs::write(repo.join("trees").join(format!("{commit}.json")), tree).unwrap();
    (hub, dir)
}

/// huggingface/huggingface_hub#4394: a partial snapshot looked complete.
#[test]
fn the_hubs_list_of_files_tells_what_is_missing() {
    let shard = |number| format!("model-0000{number}-of-00003.safetensors");
    let size = weights().len() as u64;
    let (_hub, dir) = hub_snapshot(
        &["config.json", "tokenizer.json", &shard(1), &shard(3)],
        &[
            (".gitattributes", 9),
            ("README.md", 9),
            ("config.json", 2),
            ("tokenizer.json", 9),
            ("consolidated.safetensors", 9),
            ("original/model.safetensors", 9),
            (&shard(1), size),
            (&shard(2), size),
            (&shard(3), size),
        ],
    );
    let snapshot = Snapshot::inspect(&dir).unwrap();
    assert_eq!(missing(&snapshot), [shard(2)]);

    // The same through a link to the snapshot, and with another way to write its path.
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("model");
    symlink(&dir, &link).unwrap();
    assert_eq!(missing(&Snapshot::inspect(&link).unwrap()), [shard(2)]);
    assert_eq!(
        missing(
            &Snapshot::inspect(
                &dir.join("../../snapshots")
                    .join(dir.file_name().unwrap())
                    .join("")
            )
            .unwrap()
        ),
        [shard(2)]
    );
}

#[test]
fn files_that_the_hub_lists_as_longer_are_missing() {
    let size = weights().len() as u64;
    let listed = [
        ("config.json", 2),
        ("tokenizer.json", 2),
        ("model.safetensors", size + 1),
    ];
    let (_hub, dir) = hub_snapshot(&["config.json", "model.safetensors"], &listed);
    let snapshot = Snapshot::inspect(&dir).unwrap();
    assert_eq!(missing(&snapshot), ["tokenizer.json", "model.safetensors"]);
}

#[test]
fn an_unreadable_list_of_files_counts_as_none() {
    let (_hub, dir) = hub_snapshot(&["config.json", "model.safetensors"], &[("x", 1)]);
    let commit = dir.file_name().unwrap().to_str().unwrap();
    let tree = dir.join("../../trees").join(format!("{commit}.json"));
    fs::write(&tree, b"{").unwrap();
    assert!(missing(&Snapshot::inspect(&dir).unwrap()).is_empty());
    fs::remove_file(&tree).unwrap();
    fs::create_dir(&tree).unwrap();
    assert!(missing(&Snapshot::inspect(&dir).unwrap()).is_empty());
}

#[test]
fn a_folder_of_many_strange_names_is_inspected_in_time() {
    let folder = Folder::new(&[]);
    for number in 0..2000 {
        folder.write(&format!("m{number}-1-of-9999.safetensors"), b"x");
    }
    let started = std::time::Instant::now();
    let snapshot = folder.inspect().unwrap();
    assert_eq!(snapshot.weights().len(), 2000);
    assert_eq!(missing(&snapshot).len(), 10_000);
    assert!(started.elapsed().as_secs() < 5);
}
