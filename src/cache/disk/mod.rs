//! The disk tier: a tree of immutable files.
//!
//! Each file holds the KV of some tokens of one branch and names the file that it continues
//! ([`segment`]). So only new tokens are ever written, shared beginnings are stored once, and any
//! prefix can be restored. The files are the database: opening reads their headers into the
//! [`index`], look-ups ask that alone, and what is incomplete goes.
//!
//! A file is written under a temporary name, locked while its writer lives, and renamed when it
//! is whole. Names appear and disappear under one lock for all processes ([`lock`]), children
//! before what they continue, so that whoever dies leaves a tree. There is no fsync: after a loss
//! of power the checksums find what did not reach the disk. Every fault of a file is a miss.
//!
//! The directory never holds more than its cap, files that are being written and files of others
//! included ([`room`]). Nothing here knows MLX: bytes come from the caller and go into memory of
//! the caller.

mod chain;
mod folder;
mod index;
mod layout;
mod lock;
mod merge;
mod others;
mod room;
mod segment;
mod steps;
mod store;
#[cfg(test)]
mod tests;

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use folder::Folder;
use index::Index;
use lock::{PATIENCE, SHORT_PATIENCE};
use segment::Segment;
use steps::Steps;

use super::namespace::Namespace;
use crate::error::Result;

pub(crate) use chain::Chain;
pub(crate) use layout::{Layout, TensorLayout};

/// Folders of all versions of the format begin so.
const FOLDER_PREFIX: &str = "mlxb-kv-v";

/// A directory of stored KV. Several, in one process or more, may share a directory.
#[derive(Debug)]
pub(crate) struct Disk {
    shared: Arc<Shared>,
}

/// What is stored, for a page of settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Files of this version.
    pub(crate) file_count: usize,
    /// Of these, those that none continues.
    pub(crate) entry_count: usize,
    /// Tokens in them, shared ones once.
    pub(crate) token_count: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

struct Shared {
    directory: PathBuf,
    /// This version's folder in it.
    root: PathBuf,
    cap_bytes: u64,
    verify: bool,
    steps: Steps,
    /// Locked for moments only, and after [`Self::folder`] where both are.
    index: Mutex<Index>,
    folder: Mutex<Folder>,
    /// Whether the next look at the folder is to read all of it.
    looks_everywhere: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Disk {
    /// Opens `directory`, which is made where there is none: reads the headers of all files,
    /// removes what is incomplete, and what is over `cap_bytes`. With `verify`, checksums are
    /// compared whenever tensors are read.
    ///
    /// A directory that cannot be written serves for reading.
    ///
    /// # Errors
    /// As the system says; [`crate::Kind::Locked`] when another process holds the lock for long.
    pub(crate) fn open(directory: &Path, cap_bytes: u64, verify: bool) -> Result<Self> {
        Self::open_with(directory, cap_bytes, verify, Steps::default())
    }

    fn open_with(directory: &Path, cap_bytes: u64, verify: bool, steps: Steps) -> Result<Self> {
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            root: directory.join(format!("{FOLDER_PREFIX}{}", segment::VERSION)),
            cap_bytes,
            verify,
            steps,
            index: Mutex::default(),
            folder: Mutex::default(),
            looks_everywhere: AtomicBool::new(false),
        });
        match shared.lock(PATIENCE) {
            Ok(mut locked) => {
                locked.refresh()?;
                if let Err(error) = locked.keep_cap() {
                    log::warn!("the prompt cache exceeds its cap: {error}");
                }
            }
            Err(error) if shared.root.is_dir() && error.kind() == crate::Kind::Io => {
                log::warn!("the prompt cache can only be read: {error}");
                shared.look().refresh()?;
            }
            Err(error) => return Err(error),
        }
        Ok(Self { shared })
    }

    /// How many of `tokens` can be restored, from the first one on. No file is touched.
    pub(crate) fn prefix(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        self.shared.index().prefix(namespace, tokens)
    }

    /// Opens the files that hold the first `count` of `tokens`, and makes them recently used.
    /// Nothing where these cannot be restored; the log says why, and files that are no good are
    /// removed.
    pub(crate) fn open_chain(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        count: usize,
    ) -> Option<Chain> {
        Chain::open(&self.shared, namespace, tokens.get(..count)?)
    }

    /// Stores the KV of those of `tokens` that are not stored yet, and answers the bytes written.
    /// `rows` is asked for one tensor after the other of the layout, and answers the bytes
    /// \[heads, positions of the range, width\] of it. The range may begin before what is new,
    /// where many small files become one. It is asked again from the first tensor on when another
    /// process changed what is stored meanwhile.
    ///
    /// # Errors
    /// What `rows` reports; [`crate::Kind::NoSpace`] when the cap or the disk has no room;
    /// [`crate::Kind::InvalidArgument`] for a layout that is none, or not that of the namespace;
    /// what the system reports. Nothing is left of it then.
    pub(crate) fn store(
        &self,
        namespace: &Namespace,
        layout: &Layout,
        tokens: &[u32],
        rows: &mut dyn FnMut(usize, Range<usize>) -> Result<Vec<u8>>,
    ) -> Result<u64> {
        self.shared.store(namespace, layout, tokens, rows)
    }

    /// Looks for what other processes stored and removed.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub(crate) fn refresh(&self) -> Result<()> {
        self.shared.lock(PATIENCE)?.refresh()
    }

    /// Removes all that is stored, of all namespaces and versions, and answers the bytes.
    ///
    /// # Errors
    /// As the system says; some of it may be gone then.
    pub(crate) fn clear(&self) -> Result<u64> {
        self.shared.lock(PATIENCE)?.clear()
    }

    /// Bytes of the stored files.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.index().bytes()
    }

    /// What is stored.
    pub(crate) fn facts(&self) -> Facts {
        let index = self.shared.index();
        Facts {
            file_count: index.file_count(),
            entry_count: index.leaf_count(),
            token_count: index.token_count(),
            bytes: index.bytes(),
        }
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a segment that cannot be used, and what continues it, and removes the files.
    fn discard(&self, segment: &Segment) {
        self.index().remove(segment.id);
        match self.lock(SHORT_PATIENCE) {
            Ok(locked) => {
                // A look at the folder may have brought it back.
                for useless in self.index().remove(segment.id) {
                    let path = useless.path(&self.root);
                    locked.remove_useless(&path, "continues a file that is of no use");
                }
                let path = segment.path(&self.root);
                locked.remove_useless(&path, "its content is wrong");
            }
            Err(error) => log::warn!("a file that is of no use stays: {error}"),
        }
    }
}
