//! What else lies under the directory: it counts, and what other versions of the format left
//! goes first when room is needed.

use std::{
    fs, mem,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use super::{
    FOLDER_PREFIX,
    folder::{Name, list},
    lock::Locked,
    segment::{VERSION, namespace_from_folder_name},
};

/// A count is good for as many times as long as it took.
const COST_FACTOR: u32 = 100;

/// Files under the directory that are not in the index.
#[derive(Default)]
pub(super) struct Others {
    /// Bytes of all of them.
    pub(super) bytes: u64,
    /// Those of other versions, which may go: the one to go first is the last.
    outdated: Vec<Outdated>,
    counted_until: Option<Instant>,
}

/// A segment's file in another version's folder.
pub(super) struct Outdated {
    modified: SystemTime,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Others {
    /// Bytes of those that may not be removed.
    pub(super) fn foreign_bytes(&self) -> u64 {
        let outdated: u64 = self.outdated.iter().map(|file| file.bytes).sum();
        self.bytes - outdated
    }

    /// Takes the file that is to go first off the list.
    pub(super) fn next_outdated(&mut self) -> Option<Outdated> {
        self.outdated.pop()
    }
}

impl Locked<'_> {
    /// Counts again, unless that was done just now.
    pub(super) fn count_others(&mut self) {
        let start = Instant::now();
        if self.others.counted_until.is_some_and(|until| start < until) {
            return;
        }
        let mut others = mem::take(&mut self.others);
        others.bytes = 0;
        others.outdated.clear();
        self.count_directory(&mut others);
        others
            .outdated
            .sort_unstable_by(|a, b| (b.modified, &b.path).cmp(&(a.modified, &a.path)));
        let valid = start.elapsed().saturating_mul(COST_FACTOR);
        others.counted_until = Some(start + start.elapsed() + valid.min(Duration::from_secs(60)));
        self.others = others;
    }

    fn count_directory(&self, others: &mut Others) {
        let directory = &self.shared.directory;
        for name in list(directory).unwrap_or_default() {
            let path = directory.join(&name);
            let version = name
                .to_str()
                .and_then(|name| name.strip_prefix(FOLDER_PREFIX))
                .and_then(|version| version.parse::<u32>().ok());
            match version {
                Some(VERSION) => self.count_own(&path, others),
                Some(_) => count_outdated(&path, others),
                None => others.bytes += bytes_below(path),
            }
        }
    }

    /// What is neither in the index nor being written.
    fn count_own(&self, root: &Path, others: &mut Others) {
        let mut pending = vec![root.to_owned()];
        while let Some(folder) = pending.pop() {
            for name in list(&folder).unwrap_or_default() {
                let path = folder.join(&name);
                let is_namespace = name.to_str().and_then(namespace_from_folder_name).is_some();
                if folder == root && is_namespace && is_folder(&path) {
                    pending.push(path);
                    continue;
                }
                let is_counted = folder != root
                    && match Name::of(&name) {
                        Name::Segment(id) => self.shared.index().contains(id),
                        Name::Temporary => true,
                        Name::Other => false,
                    };
                if !is_counted {
                    others.bytes += bytes_below(path);
                }
            }
        }
    }
}

/// Another version's folder: what has the form of a segment's file there may go.
fn count_outdated(root: &Path, others: &mut Others) {
    others.bytes += bytes_below(root.to_owned());
    if !is_folder(root) {
        return;
    }
    for namespace in list(root).unwrap_or_default() {
        let folder = root.join(&namespace);
        let is_namespace = namespace.to_str().and_then(namespace_from_folder_name);
        if is_namespace.is_none() || !is_folder(&folder) {
            continue;
        }
        for name in list(&folder).unwrap_or_default() {
            let path = folder.join(&name);
            if let Name::Segment(_) = Name::of(&name)
                && let Ok(metadata) = fs::symlink_metadata(&path)
                && metadata.is_file()
            {
                others.outdated.push(Outdated {
                    modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    path,
                    bytes: metadata.len(),
                });
            }
        }
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Bytes of a file, or of all below a folder. Links are not followed.
fn bytes_below(path: PathBuf) -> u64 {
    let mut bytes = 0;
    let mut pending = vec![path];
    while let Some(path) = pending.pop() {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                let names = list(&path).unwrap_or_default();
                pending.extend(names.into_iter().map(|name| path.join(name)));
            }
            Ok(metadata) => bytes += metadata.len(),
            Err(_) => {}
        }
    }
    bytes
}
