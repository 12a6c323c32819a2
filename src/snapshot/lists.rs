//! The two lists of files that may come with a model: the index of its shards, and the hub's
//! list of what the repository holds at this revision.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::names;
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
};

/// What `model.safetensors.index.json` says.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The files that hold the tensors.
    pub(super) files: BTreeSet<String>,
    /// The number of parameters, where the writer gave it.
    pub(super) total_parameters: Option<u64>,
    /// Bytes of all tensors, where the writer gave it.
    pub(super) total_bytes: Option<u64>,
}

impl Index {
    /// Parses the index found at `path`.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] naming the file, for malformed JSON and for a shard that is not
    /// the plain name of a safetensors file.
    pub(super) fn parse(path: &Path, json: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            metadata: Value,
            weight_map: Files,
        }

        let format_error =
            |what: String| Error::new(Kind::ModelFormat, format!("{}: {what}", EscapedPath(path)));
        let raw: Raw = serde_json::from_slice(json)
            .map_err(|error| format_error(format!("malformed: {}", Escaped(&error.to_string()))))?;
        let Files(files) = raw.weight_map;
        for name in &files {
            if !names::is_plain(name) || !name.ends_with(names::SUFFIX) {
                return Err(format_error(format!(
                    "a shard is not the plain name of a safetensors file: {}",
                    Escaped(name)
                )));
            }
        }
        Ok(Self {
            files,
            total_parameters: count(&raw.metadata["total_parameters"]),
            total_bytes: count(&raw.metadata["total_size"]),
        })
    }
}

/// A count; some writers give a float.
fn count(value: &Value) -> Option<u64> {
    let float = || {
        let float = value.as_f64()?;
        (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
    };
    value.as_u64().or_else(float)
}

/// The distinct values of a map of strings; the map itself, which may have 100,000 entries, is
/// not kept.
struct Files(BTreeSet<String>);

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FilesVisitor;

        impl<'de> Visitor<'de> for FilesVisitor {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of file names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let mut files = BTreeSet::new();
                while let Some((_, file)) = map.next_entry::<IgnoredAny, String>()? {
                    files.insert(file);
                }
                Ok(Files(files))
            }
        }

        deserializer.deserialize_map(FilesVisitor)
    }
}

/// The files at the top of a repository and their sizes, as huggingface_hub lists them in
/// `trees/<commit>.json`.
#[derive(Debug, Default)]
pub(super) struct Tree(pub(super) BTreeMap<String, u64>);

impl Tree {
    /// Parses a list; one of another format, or a malformed one, counts as none: the hub's own
    /// reader ignores it too.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Raw {
            format_version: u64,
            files: TopFiles,
        }

        let raw: Raw = serde_json::from_slice(json).ok()?;
        (raw.format_version == 1).then_some(Self(raw.files.0))
    }
}

struct TopFiles(BTreeMap<String, u64>);

impl<'de> Deserialize<'de> for TopFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry {
            size: u64,
        }

        struct FilesVisitor;

        impl<'de> Visitor<'de> for FilesVisitor {
            type Value = TopFiles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TopFiles, A::Error> {
                let mut files = BTreeMap::new();
                while let Some((name, Entry { size })) = map.next_entry::<String, Entry>()? {
                    if names::is_plain(&name) {
                        files.insert(name, size);
                    }
                }
                Ok(TopFiles(files))
            }
        }

        deserializer.deserialize_map(FilesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(json: &str) -> Result<Index> {
        Index::parse(
            Path::new("dir/model.safetensors.index.json"),
            json.as_bytes(),
        )
    }

    #[test]
    fn an_index_gives_its_files_once_and_its_totals() {
        let index = index(
            r#"{"metadata": {"total_size": 1.5e3, "total_parameters": 700, "x": []},
                "weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}"#,
        )
        .unwrap();
        assert_eq!(
            Vec::from_iter(index.files),
            ["1.safetensors", "2.safetensors"]
        );
        assert_eq!(index.total_bytes, Some(1500));
        assert_eq!(index.total_parameters, Some(700));
    }

    #[test]
    fn totals_that_are_no_counts_are_none() {
        for metadata in [
            "null",
            "{}",
            "[]",
            "\"x\"",
            r#"{"total_size": -1}"#,
            r#"{"total_size": 1.5}"#,
        ] {
            let json = format!(r#"{{"metadata": {metadata}, "weight_map": {{}}}}"#);
            assert_eq!(index(&json).unwrap().total_bytes, None, "{metadata}");
        }
        assert!(index(r#"{"weight_map": {}}"#).unwrap().files.is_empty());
    }

    #[test]
    fn an_index_cannot_point_out_of_the_folder() {
        for name in [
            "../x.safetensors",
            "/x.safetensors",
            "a/b.safetensors",
            "..",
            "",
            "x.bin",
            "a\\u0000.safetensors",
        ] {
            let json = format!(r#"{{"weight_map": {{"t": "{name}"}}}}"#);
            let error = index(&json).unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat);
            assert!(
                error
                    .message()
                    .contains("model.safetensors.index.json: a shard"),
                "{error}"
            );
            assert!(!error.message().contains('\0'));
        }
    }

    #[test]
    fn a_malformed_index_is_named() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"weight_map": []}"#,
            r#"{"weight_map": {"a": 1}}"#,
            "{\"weight_map",
        ] {
            let error = index(json).unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat);
            assert!(error.message().contains("index.json: malformed"), "{error}");
        }
    }

    #[test]
    fn a_tree_gives_the_files_at_the_top() {
        let tree = Tree::parse(
            br#"{"format_version": 1, "files": {
                "config.json": {"size": 519, "blob_id": "0a"},
                "model.safetensors": {"size": 1234, "blob_id": "0b", "lfs_sha256": "0c", "lfs_size": 1234},
                "onnx/model.safetensors": {"size": 5, "blob_id": "0d"},
                "../../x": {"size": 5, "blob_id": "0e"}}}"#,
        )
        .unwrap();
        let files: Vec<_> = tree.0.into_iter().collect();
        assert_eq!(
            files,
            [
                ("config.json".to_owned(), 519),
                ("model.safetensors".to_owned(), 1234)
            ]
        );
    }

    #[test]
    fn a_tree_of_another_format_counts_as_none() {
        for json in [
            "",
            "[]",
            r#"{"files": {}}"#,
            r#"{"format_version": 2, "files": {}}"#,
            r#"{"format_version": 1, "files": {"a": {}}}"#,
            r#"{"format_version": 1, "files": {"a": {"size": -1}}}"#,
        ] {
            assert!(Tree::parse(json.as_bytes()).is_none(), "{json}");
        }
    }
}
