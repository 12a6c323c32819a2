//! What a model is, down to its bytes: states may be reused only where this is equal.

use std::{
    collections::HashMap,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use once_cell::sync::OnceCell;

use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
    regular_file,
    safetensors::Shard,
    snapshot::Snapshot,
};

/// The hash of everything that shapes a model's states, taken of the files that it was loaded from.
pub(crate) struct Identity {
    hash: OnceCell<[u8; 32]>,
    /// Until the hash is there.
    parts: Mutex<Vec<Part>>,
}

/// A file of the model.
struct Part {
    role: &'static str,
    content: Content,
}

enum Content {
    Hashed([u8; 32]),
    /// Large: hashed when somebody asks. It is held open, so that it is still the same when it
    /// has been replaced.
    Open {
        file: File,
        stamp: Stamp,
        path: PathBuf,
    },
}

/// What changes when a file does. A copy in place or an archive may restore the time of
/// modification, and a number is given to another file; the time of change tells these.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Remembers hashes of files from one process to the next.
pub(crate) trait Remember {
    fn recall(&self, stamp: &Stamp) -> Option<[u8; 32]>;
    fn remember(&self, stamp: &Stamp, hash: &[u8; 32]);
}

impl Stamp {
    pub(crate) fn of(file: &File) -> std::io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Whether the same open file was not written to in between. Renaming or unlinking it is
    /// a change, too, but none of its content.
    fn has_content_of(&self, earlier: &Self) -> bool {
        (self.size, self.modified) == (earlier.size, earlier.modified)
    }

    /// A name for it.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        for number in [self.device, self.inode, self.size] {
            hash.update(&number.to_le_bytes());
        }
        for (seconds, nanoseconds) in [self.modified, self.changed] {
            hash.update(&seconds.to_le_bytes());
            hash.update(&nanoseconds.to_le_bytes());
        }
        *hash.finalize().as_bytes()
    }
}

impl Identity {
    /// Notes the files that make up a model: its weights, its configuration, its tokenizer. Call it
    /// before the tensors are read.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn of(snapshot: &Snapshot, shards: &[Shard]) -> Result<Self> {
        let weights = shards.iter().map(|shard| {
            let content = match blob_hash(shard.path()) {
                Some(hash) => Content::Hashed(hash),
                None => {
                    let io = |error| Error::io(EscapedPath(shard.path()), error);
                    Content::Open {
                        file: shard.file().try_clone().map_err(io)?,
                        stamp: Stamp::of(shard.file()).map_err(io)?,
                        path: shard.path().to_owned(),
                    }
                }
            };
            Ok(Part {
                role: "weights",
                content,
            })
        });
        let mut parts = weights.collect::<Result<Vec<_>>>()?;
        for (role, name) in [
            ("configuration", "config.json"),
            ("tokenizer", "tokenizer.json"),
        ] {
            // What is missing or too large is for those to complain about who read it.
            let bytes = regular_file::read(&snapshot.dir().join(name), MOST_BYTES);
            parts.push(Part {
                role,
                content: Content::Hashed(*blake3::hash(&bytes.unwrap_or_default()).as_bytes()),
            });
        }
        Ok(Self {
            hash: OnceCell::new(),
            parts: Mutex::new(parts),
        })
    }

    /// The hash. The first call may read all weights; `memory` spares that the next process.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when a file has changed since the model was loaded, so that nobody
    /// can say what is in memory; what the system reports.
    pub(crate) fn hash(&self, memory: Option<&dyn Remember>) -> Result<[u8; 32]> {
        let compute = || {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let mut hash = Fields::new();
            for part in &*parts {
                hash.add(part.role, &part.content.hash(memory)?);
            }
            // Closes the files.
            parts.clear();
            Ok(hash.finish())
        };
        self.hash.get_or_try_init(compute).copied()
    }
}

/// More than any configuration or tokenizer has.
const MOST_BYTES: u64 = 1 << 30;

/// A hash over fields, each with its name and length, so that no two lists of them run together to
/// the same bytes.
pub(crate) struct Fields(blake3::Hasher);

impl Fields {
    pub(crate) fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    pub(crate) fn add(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

/// The hashes that this process has taken.
static TAKEN: Mutex<Option<HashMap<Stamp, [u8; 32]>>> = Mutex::new(None);

impl Content {
    fn hash(&self, memory: Option<&dyn Remember>) -> Result<[u8; 32]> {
        let (file, stamp, path) = match self {
            Self::Hashed(hash) => return Ok(*hash),
            Self::Open { file, stamp, path } => (file, stamp, path),
        };
        let taken = || TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = taken().as_ref().and_then(|taken| taken.get(stamp).copied());
        let recalled = known.or_else(|| memory.and_then(|memory| memory.recall(stamp)));
        let hash = match recalled {
            Some(hash) => hash,
            None => read(file, stamp, path)?,
        };
        if recalled.is_none()
            && let Some(memory) = memory
        {
            memory.remember(stamp, &hash);
        }
        taken().get_or_insert_default().insert(stamp.clone(), hash);
        Ok(hash)
    }
}

fn read(file: &File, stamp: &Stamp, path: &Path) -> Result<[u8; 32]> {
    let io = |error| Error::io(EscapedPath(path), error);
    let mut hash = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let count = regular_file::read_up_to(file, &mut buffer, offset).map_err(io)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        offset += count as u64;
    }
    // What the model holds is what was there when it was loaded.
    if !Stamp::of(file).map_err(io)?.has_content_of(stamp) {
        return Err(Error::new(
            Kind::Unsupported,
            format!(
                "a file of the model has changed since it was loaded: {}",
                EscapedPath(path)
            ),
        ));
    }
    Ok(*hash.finalize().as_bytes())
}

/// The hub names the blobs of large files by their SHA-256.
fn blob_hash(path: &Path) -> Option<[u8; 32]> {
    let target = std::fs::read_link(path).ok()?;
    let is_blob = target.parent().and_then(Path::file_name)? == "blobs";
    let name = target.file_name()?.to_str()?;
    let is_hash = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_blob || !is_hash {
        return None;
    }
    let mut hash = Fields::new();
    hash.add("sha256", name.as_bytes());
    Some(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_together() {
        let hash = |fields: &[(&str, &str)]| {
            let mut hash = Fields::new();
            for (name, value) in fields {
                hash.add(name, value.as_bytes());
            }
            hash.finish()
        };
        let all = [
            hash(&[]),
            hash(&[("adapter", "x"), ("namespace", "")]),
            hash(&[("adapter", ""), ("namespace", "x")]),
            hash(&[("namespace", ""), ("adapter", "x")]),
            hash(&[("a", "bc")]),
            hash(&[("ab", "c")]),
            hash(&[("a", "b"), ("", "c")]),
            hash(&[("a", "b"), ("c", "")]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one), "{index}");
        }
    }
}
