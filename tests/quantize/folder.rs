//! Reading what a conversion made.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::support::Tensors;

/// A tensor: type, shape, bytes.
pub(crate) type Tensor = (String, Vec<usize>, Vec<u8>);

/// A JSON file.
pub(crate) fn json(path: &Path) -> Map<String, Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The tensors of all weight files of a folder. The index must agree.
pub(crate) fn tensors(folder: &Path) -> BTreeMap<String, Tensor> {
    let index = json(&folder.join("model.safetensors.index.json"));
    let (mut tensors, mut bytes) = (BTreeMap::new(), 0);
    for name in names(folder) {
        if !name.ends_with(".safetensors") {
            continue;
        }
        for (tensor, value) in Tensors::read(&folder.join(&name)).0 {
            assert_eq!(index["weight_map"][&tensor], name, "{tensor}");
            bytes += value.2.len();
            assert!(tensors.insert(tensor, value).is_none());
        }
    }
    let map = index["weight_map"].as_object().unwrap();
    assert!(
        map.keys().eq(tensors.keys()),
        "the index names other tensors"
    );
    assert_eq!(index["metadata"]["total_size"], bytes);
    tensors
}

/// Panics unless two folders hold the same tensors, bit for bit.
pub(crate) fn assert_same_tensors(ours: &Path, theirs: &Path, what: &str) {
    let (ours, theirs) = (tensors(ours), tensors(theirs));
    let both: Vec<_> = [&ours, &theirs]
        .map(|tensors| tensors.keys().collect::<Vec<_>>())
        .into();
    assert_eq!(both[0], both[1], "{what}: names");
    for (name, ours) in &ours {
        let theirs = &theirs[name];
        assert_eq!((&ours.0, &ours.1), (&theirs.0, &theirs.1), "{what}: {name}");
        assert!(ours.2 == theirs.2, "{what}: {name}: the values differ");
    }
}

/// A place for the folders of a test, empty, in the build folder.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("quantize")
        .join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}
