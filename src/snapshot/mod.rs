//! A model folder: which of its files are the model, and whether it is complete.
//!
//! The loader and the registry both ask here, so that what the one lists as complete is what the
//! other can load. Nothing in a folder is executed, and keys of its `config.json` that name code
//! (`model_file`, `auto_map`) are not looked at. Names found inside files must be plain names of
//! the same folder; links that stand in the folder are followed, because the hub's snapshots
//! consist of them.

mod choose;
mod json_file;
mod lists;
mod names;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use self::{
    choose::Known,
    lists::{Index, Tree},
    names::SINGLE,
};
pub(crate) use self::{
    json_file::{number, read_json},
    names::Role,
};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    safetensors::Shard,
};

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";

/// Files that no model of this library loads without. Only these, and weights, are missed when
/// the hub lists them: people fetch parts of a repository on purpose.
const NEEDED: [&str; 2] = [CONFIG, "tokenizer.json"];

/// The longest index and list of files; some 100,000 tensors fit.
const MOST_LIST_BYTES: u64 = 64 << 20;

/// As many missing files as a message names.
const MOST_NAMED: usize = 3;

/// A weight file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeightFile {
    /// Its name in the folder.
    pub(crate) name: String,
    /// The folder's path and the name; perhaps a link.
    pub(crate) path: PathBuf,
    /// The length of what the name leads to.
    pub(crate) byte_len: u64,
    /// What the file is for.
    pub(crate) role: Role,
}

/// Whether everything that makes up the model is in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// Everything is there.
    Complete,
    /// A download that has not finished, or a damaged folder.
    Partial {
        /// The names of the files that are not there, empty, or shorter than the hub lists
        /// them.
        missing: Vec<String>,
    },
}

/// What [`inspect`](Self::inspect) found in a model folder.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    dir: PathBuf,
    weights: Vec<WeightFile>,
    sidecars: Vec<WeightFile>,
    total_parameters: Option<u64>,
    total_bytes: Option<u64>,
    completeness: Completeness,
}

impl Snapshot {
    /// Looks at the folder `dir`: names and lengths, the index, and the hub's list of files
    /// where it left one. No weight file is opened, except `model.safetensors` to see whether
    /// it is whole when the index names other files that are absent.
    ///
    /// # Errors
    /// As the system says when the folder cannot be read; [`Kind::ModelFormat`] for an index
    /// that is malformed or points out of the folder, and for weights of which nothing says
    /// which are meant. An incomplete folder is no error.
    pub(crate) fn inspect(dir: &Path) -> Result<Self> {
        let tree = read_tree(dir);
        let mut lengths = BTreeMap::new();
        let mut missing = NEEDED.map(|name| name == CONFIG || tree.0.contains_key(name));
        let mut has_index = false;
        let io = |error| Error::io(EscapedPath(dir), error);
        for entry in fs::read_dir(dir).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            // A name that is not UTF-8 can stand in no index; no model has one.
            let Some(name) = name.to_str() else { continue };
            if let Some(at) = NEEDED.iter().position(|needed| *needed == name) {
                missing[at] = missing[at] && !is_file_with_content(&dir.join(name));
            } else if name == INDEX {
                has_index = is_file_with_content(&dir.join(name));
            } else if is_weight_file(name)
                && let Some(length) = length(&dir.join(name))
            {
                lengths.insert(name.to_owned(), length);
            }
        }
        let is_usable = |name: &String, length: u64| {
            length > 0 && tree.0.get(name).is_none_or(|&listed| length >= listed)
        };
        let mut known = Known {
            present: lengths
                .iter()
                .map(|(name, &length)| (name.clone(), is_usable(name, length)))
                .collect(),
            listed: tree
                .0
                .keys()
                .filter(|name| is_weight_file(name))
                .cloned()
                .collect(),
            indexed: None,
        };
        let single_is_whole = || Shard::open(&dir.join(SINGLE)).is_ok();
        let mut index = Index::default();
        if has_index {
            match read_index(dir) {
                Ok(read) => {
                    let is_asked = !known.has_all(&read.files) && known.is_usable(SINGLE);
                    if is_asked && !single_is_whole() {
                        known.present.insert(SINGLE.to_owned(), false);
                    }
                    known.indexed = Some(read.files.clone());
                    index = read;
                }
                Err(error) if known.is_usable(SINGLE) && single_is_whole() => {
                    log::warn!("an index is passed over beside a whole {SINGLE}: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        let choice = choose::choose(&known)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", EscapedPath(dir))))?;

        let file = |name: String, role| WeightFile {
            path: dir.join(&name),
            byte_len: lengths.get(&name).copied().unwrap_or_default(),
            name,
            role,
        };
        let main = choice.main.into_iter().map(|name| file(name, Role::Main));
        let extra = choice.extra.into_iter().map(|name| file(name, Role::Extra));
        let weights = main.chain(extra).collect();
        let sidecars = choice.sidecars.into_iter();
        let sidecars = sidecars.map(|name| {
            let role = names::role(&name);
            file(name, role)
        });
        let needed = NEEDED.iter().zip(missing).filter(|(_, missing)| *missing);
        let missing: Vec<String> = needed
            .map(|(name, _)| (*name).to_owned())
            .chain(choice.missing)
            .collect();
        Ok(Self {
            dir: dir.to_owned(),
            weights,
            sidecars: sidecars.collect(),
            total_parameters: index.total_parameters,
            total_bytes: index.total_bytes,
            completeness: if missing.is_empty() {
                Completeness::Complete
            } else {
                Completeness::Partial { missing }
            },
        })
    }

    /// The folder, as it was given.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files to load, in order: those with [`Role::Main`], then those with
    /// [`Role::Extra`]. Of a partial folder, those that are there.
    pub(crate) fn weights(&self) -> &[WeightFile] {
        &self.weights
    }

    /// Weight files that are not part of the model itself, as their roles say.
    pub(crate) fn sidecars(&self) -> &[WeightFile] {
        &self.sidecars
    }

    /// The number of parameters that the index claims. It may be an index of other weights.
    pub(crate) fn total_parameters(&self) -> Option<u64> {
        self.total_parameters
    }

    /// Bytes of all tensors that the index claims. It may be an index of other weights.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// Whether everything is there.
    pub(crate) fn completeness(&self) -> &Completeness {
        &self.completeness
    }

    /// Opens the files to load, in the order of [`weights`](Self::weights).
    ///
    /// # Errors
    /// As [`require_complete`](Self::require_complete) and [`Shard::open`].
    pub(crate) fn open_weights(&self) -> Result<Vec<Shard>> {
        self.require_complete()?;
        let files = self.weights.iter();
        files.map(|file| Shard::open(&file.path)).collect()
    }

    /// Goes on only with a complete folder.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] naming the folder and the first missing files; the error's detail
    /// names them all.
    pub(crate) fn require_complete(&self) -> Result<()> {
        let Completeness::Partial { missing } = &self.completeness else {
            return Ok(());
        };
        let names: Vec<String> = missing
            .iter()
            .map(|name| Escaped(name).to_string())
            .collect();
        let shown = names.len().min(MOST_NAMED);
        let mut message = format!(
            "{}: incomplete model, missing: {}",
            EscapedPath(&self.dir),
            names[..shown].join(", ")
        );
        if names.len() > shown {
            message += &format!(" and {} more", names.len() - shown);
        }
        Err(Error::new(Kind::ModelFormat, message).with_detail(names.join("\n")))
    }
}

/// Hidden files are none of the model's: the system's own (`._model.safetensors`), or
/// unfinished downloads.
fn is_weight_file(name: &str) -> bool {
    name.ends_with(names::SUFFIX) && !name.starts_with('.')
}

/// The length of the file that `path` leads to: 0 for a link to nothing, `None` for what is no
/// file.
fn length(path: &Path) -> Option<u64> {
    match fs::metadata(path) {
        Ok(metadata) => metadata.is_file().then_some(metadata.len()),
        Err(_) => Some(0),
    }
}

fn is_file_with_content(path: &Path) -> bool {
    length(path).is_some_and(|length| length > 0)
}

fn read_index(dir: &Path) -> Result<Index> {
    let path = dir.join(INDEX);
    let json = json_file::read_if_there(&path, MOST_LIST_BYTES)?;
    // It was there a moment ago; a file that has gone meanwhile holds no list.
    json.map_or_else(|| Ok(Index::default()), |json| Index::parse(&path, &json))
}

/// The hub's list for the snapshot `dir`, which is `<repo>/snapshots/<commit>`; an empty list
/// when there is none that can be read.
fn read_tree(dir: &Path) -> Tree {
    tree_path(dir)
        .or_else(|| tree_path(&fs::canonicalize(dir).ok()?))
        .and_then(|path| json_file::read_if_there(&path, MOST_LIST_BYTES).ok()?)
        .and_then(|json| Tree::parse(&json))
        .unwrap_or_default()
}

fn tree_path(dir: &Path) -> Option<PathBuf> {
    let commit = dir.file_name()?.to_str()?;
    let snapshots = dir.parent()?;
    let repo = snapshots.parent()?;
    (snapshots.file_name()? == "snapshots")
        .then(|| repo.join("trees").join(format!("{commit}.json")))
}
