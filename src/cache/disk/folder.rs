//! Looking at the folder: what other processes added and removed, and what is left of those that
//! ended in the middle of something.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::{self, Metadata},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use super::{
    index::Misfit,
    lock::Locked,
    others::Others,
    segment::{Segment, SegmentId, folder_name, namespace_from_folder_name},
};
use crate::{
    cache::namespace::Namespace,
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

pub(super) const TEMPORARY_EXTENSION: &str = ".tmp";
/// Changes within this time may leave a folder's time of change as it is.
const CLOCK_GRAIN: Duration = Duration::from_secs(2);

/// What was seen at the last look.
#[derive(Default)]
pub(super) struct Folder {
    namespaces: HashMap<Namespace, Seen>,
    pub(super) others: Others,
}

struct Seen {
    modified: SystemTime,
    /// Whether a later change would show in the time.
    is_settled: bool,
    /// Of files that are being written.
    temporary_bytes: u64,
}

impl Folder {
    /// Bytes of files that are being written.
    pub(super) fn temporary_bytes(&self) -> u64 {
        self.namespaces
            .values()
            .map(|seen| seen.temporary_bytes)
            .sum()
    }
}

/// What a name in a namespace's folder stands for.
pub(super) enum Name {
    Segment(SegmentId),
    Temporary,
    Other,
}

impl Name {
    pub(super) fn of(name: &std::ffi::OsStr) -> Self {
        match name.to_str() {
            Some(name) if name.ends_with(TEMPORARY_EXTENSION) => Self::Temporary,
            Some(name) => SegmentId::from_file_name(name).map_or(Self::Other, Self::Segment),
            None => Self::Other,
        }
    }
}

impl Locked<'_> {
    /// Brings the index up to date with the folder. Only folders that changed are read.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let root = self.shared.root.clone();
        if self.shared.looks_everywhere.swap(false, Ordering::Relaxed) {
            for seen in self.namespaces.values_mut() {
                seen.is_settled = false;
            }
        }
        let mut present = HashSet::new();
        for name in list(&root)? {
            let Some(namespace) = name.to_str().and_then(namespace_from_folder_name) else {
                continue;
            };
            let path = root.join(name);
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    self.refresh_namespace(namespace, &path, &metadata)?;
                    present.insert(namespace);
                }
                _ => {}
            }
        }
        self.namespaces
            .retain(|namespace, _| present.contains(namespace));
        let mut index = self.shared.index();
        let gone: Vec<Namespace> = index
            .namespaces()
            .filter(|namespace| !present.contains(*namespace))
            .copied()
            .collect();
        for namespace in gone {
            let ids: Vec<SegmentId> = index.ids(&namespace).collect();
            for id in ids {
                index.remove(id);
            }
        }
        Ok(())
    }

    fn refresh_namespace(
        &mut self,
        namespace: Namespace,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<()> {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let seen = self.namespaces.get(&namespace);
        if seen.is_some_and(|seen| seen.is_settled && seen.modified == modified) {
            return Ok(());
        }
        let age = SystemTime::now().duration_since(modified);
        let mut seen = Seen {
            modified,
            is_settled: age.is_ok_and(|age| age > CLOCK_GRAIN),
            temporary_bytes: 0,
        };
        let names = list(path)?;
        let mut is_empty = true;
        let mut ids = HashSet::new();
        for name in names {
            match Name::of(&name) {
                Name::Segment(id) => {
                    ids.insert(id);
                }
                Name::Temporary => {
                    let bytes = self.temporary(&path.join(name));
                    seen.is_settled &= bytes == 0;
                    is_empty &= bytes == 0;
                    seen.temporary_bytes += bytes;
                }
                Name::Other => is_empty = false,
            }
        }
        self.forget_gone(namespace, &ids);
        let is_complete = self.add_new(namespace, path, &ids);
        seen.is_settled &= is_complete;
        self.namespaces.insert(namespace, seen);
        if is_empty && self.is_exclusive() && self.shared.index().ids(&namespace).next().is_none() {
            // Fails where something is left in it, and that is as well.
            let _ = self.shared.steps.remove_folder(path);
        }
        Ok(())
    }

    /// Bytes of a file that somebody is writing; one whose writer is gone goes.
    fn temporary(&self, path: &Path) -> u64 {
        let Ok((file, metadata)) = self.shared.steps.open_regular(path) else {
            return 0;
        };
        if self.is_exclusive() && self.shared.steps.try_lock(&file).is_ok() {
            log::info!("an unfinished file is removed: {}", EscapedPath(path));
            return match self.shared.steps.remove_file(path) {
                Ok(()) => 0,
                Err(_) => metadata.len(),
            };
        }
        metadata.len()
    }

    fn forget_gone(&self, namespace: Namespace, ids: &HashSet<SegmentId>) {
        let mut orphans = Vec::new();
        let mut index = self.shared.index();
        let gone: Vec<SegmentId> = index
            .ids(&namespace)
            .filter(|id| !ids.contains(id))
            .collect();
        for id in gone {
            orphans.extend(index.remove(id));
        }
        drop(index);
        for orphan in orphans.iter().filter(|orphan| ids.contains(&orphan.id)) {
            self.remove_useless(
                &orphan.path(&self.shared.root),
                "continues a file that is gone",
            );
        }
    }

    /// Reads the headers of files that the index does not know; answers whether all could be
    /// read.
    fn add_new(&self, namespace: Namespace, path: &Path, ids: &HashSet<SegmentId>) -> bool {
        let (new, mut layout) = {
            let index = self.shared.index();
            let is_new = |id: &SegmentId| !index.contains(*id);
            let new: Vec<SegmentId> = ids.iter().copied().filter(is_new).collect();
            (new, index.layout(&namespace).cloned())
        };
        let mut is_complete = true;
        let mut found = Vec::with_capacity(new.len());
        for id in new {
            let path = path.join(id.file_name());
            let opened = self.shared.steps.open_regular(&path);
            let read = opened.and_then(|(file, metadata)| {
                let known = layout.as_ref();
                let bytes = metadata.len();
                let segment = Segment::read(&path, &file, bytes, namespace, id, known)?;
                Ok((segment, metadata))
            });
            match read {
                Ok((segment, metadata)) => {
                    layout.get_or_insert_with(|| Arc::clone(&segment.layout));
                    let last_use = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((segment, metadata.len(), last_use));
                }
                Err(error) if error.kind() == Kind::Corrupt => {
                    self.remove_useless(&path, error.message());
                }
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => {
                    log::warn!("a file of the prompt cache cannot be read: {error}");
                    is_complete = false;
                }
            }
        }
        // A segment starts behind the start of the one that it continues.
        found.sort_unstable_by_key(|(segment, ..)| segment.start);
        for (segment, bytes, last_use) in found {
            let path = path.join(segment.id.file_name());
            let inserted = self
                .shared
                .index()
                .insert(Arc::new(segment), bytes, last_use);
            match inserted {
                Ok(()) => {}
                // It may continue a file that could not be read just now.
                Err(Misfit::Orphan) if !is_complete => {}
                Err(Misfit::Orphan) => {
                    self.remove_useless(&path, "continues a file that is gone");
                }
                Err(Misfit::OtherLayout) => {
                    self.remove_useless(&path, "holds other tensors than its namespace");
                }
            }
        }
        is_complete
    }

    /// Removes what stands under the name of one of our files and cannot be used.
    pub(super) fn remove_useless(&self, path: &Path, why: &str) {
        log::warn!(
            "a file of the prompt cache is of no use and removed: {}: {why}",
            EscapedPath(path)
        );
        if !self.is_exclusive() {
            return;
        }
        let steps = &self.shared.steps;
        let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let removed = match is_folder {
            true => steps.remove_folder(path),
            false => steps.remove_file(path),
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                log::warn!("it cannot be removed: {}: {error}", EscapedPath(path));
            }
            _ => {}
        }
    }
}

impl Segment {
    /// The folder of its file.
    pub(super) fn folder(&self, root: &Path) -> PathBuf {
        root.join(folder_name(&self.namespace))
    }

    /// Its file.
    pub(super) fn path(&self, root: &Path) -> PathBuf {
        self.folder(root).join(self.id.file_name())
    }
}

/// The names in a folder; none where it does not exist.
pub(super) fn list(path: &Path) -> Result<Vec<OsString>> {
    let names = fs::read_dir(path).and_then(|entries| {
        let names = entries.map(|entry| Ok(entry?.file_name()));
        names.collect::<io::Result<_>>()
    });
    match names {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| Error::io(EscapedPath(path), error)),
    }
}
