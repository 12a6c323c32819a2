//! Looking through a hub for models.

use std::{
    collections::{HashMap, HashSet},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::{
    index::{Changes, Entry, Fingerprint, Stamp},
    layout::{Content, Parts, Problem, Reader, RepoFolder, Snapshot, repo_folders},
    links::{Identity, nanoseconds},
    names::RepoKind,
    record,
};
use crate::error::{Error, Result};
use crate::escape::EscapedPath;

/// What a scan came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReport {
    /// The hub's folder, absolute and without links.
    pub hub: PathBuf,
    /// Snapshots that the registry holds of this hub now.
    pub count: usize,
    /// Those of them that were read, because they were new or had changed.
    pub read: usize,
    /// Snapshots that the registry held and that are gone or cannot be read any more.
    pub removed: usize,
    /// What was left out or looks wrong, and why. Nothing of it stopped the scan.
    pub problems: Vec<Problem>,
}

impl ScanReport {
    /// The report as JSON.
    pub fn json(&self) -> String {
        let skipped: Value = self
            .problems
            .iter()
            .map(|problem| {
                json!({
                    "path": problem.path.to_string_lossy(),
                    "reason": problem.reason,
                })
            })
            .collect();
        json!({
            "hub": self.hub.to_string_lossy(),
            "count": self.count,
            "read": self.read,
            "removed": self.removed,
            "skipped": skipped,
        })
        .to_string()
    }
}

/// Threads that read at once: enough to keep a disk busy, few enough for a phone-sized machine.
const MOST_THREADS: usize = 8;

/// Looks at all models of the hub. Snapshots with the same stamp as in `known` are not read.
///
/// # Errors
/// Only when `root` itself cannot be listed.
pub(crate) fn scan(root: &Path, known: &HashMap<String, Stamp>) -> Result<(Changes, ScanReport)> {
    let (folders, problems) = repo_folders(root)
        .map_err(|error| Error::io(format_args!("hub folder {}", EscapedPath(root)), error))?;
    let folders: Vec<RepoFolder> = folders
        .into_iter()
        .filter(|folder| folder.kind == RepoKind::Model && folder.is_named)
        .collect();

    let found = Mutex::new(Found {
        problems,
        ..Found::default()
    });
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Found::default();
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            mine.repo(root, folder, known);
        }
        found
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(mine);
    };
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_THREADS)
        .min(folders.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);

    let gone = known
        .keys()
        .filter(|path| !found.seen.contains(path.as_str()));
    found.changes.gone = gone.cloned().collect();
    found.problems.sort();
    let report = ScanReport {
        hub: root.to_path_buf(),
        count: found.seen.len(),
        read: found.changes.read.len(),
        removed: found.changes.gone.len(),
        problems: found.problems,
    };
    Ok((found.changes, report))
}

#[derive(Default)]
struct Found {
    changes: Changes,
    /// Paths of all models.
    seen: HashSet<String>,
    problems: Vec<Problem>,
}

impl Found {
    fn append(&mut self, mut other: Self) {
        self.changes.read.append(&mut other.changes.read);
        self.changes.touched.append(&mut other.changes.touched);
        self.seen.extend(other.seen);
        self.problems.append(&mut other.problems);
    }

    fn repo(&mut self, root: &Path, folder: &RepoFolder, known: &HashMap<String, Stamp>) {
        let mut reader = Reader::quick();
        if let Some(repo) = reader.repo(root, folder, Parts::Models) {
            let main = repo.refs.iter().find(|r| r.name == "main");
            for snapshot in &repo.snapshots {
                // A link has been named as a problem already.
                if snapshot.link.is_some() {
                    continue;
                }
                let stamp = Stamp {
                    fingerprint: fingerprint(&repo.path, snapshot),
                    is_main: main.is_some_and(|r| snapshot.commit.to_str() == Some(&r.commit)),
                    modified: snapshot.modified,
                };
                self.snapshot(&repo.path, &repo.id, snapshot, stamp, known);
            }
        }
        self.problems.append(&mut reader.problems);
    }

    fn snapshot(
        &mut self,
        repo: &Path,
        id: &str,
        snapshot: &Snapshot,
        stamp: Stamp,
        known: &HashMap<String, Stamp>,
    ) {
        let path = snapshot.path.to_str();
        if let Some((path, before)) = path.and_then(|path| known.get_key_value(path))
            && before.fingerprint == stamp.fingerprint
        {
            if *before != stamp {
                self.changes.touched.push((path.clone(), stamp));
            }
            self.seen.insert(path.clone());
            return;
        }
        match record::read(snapshot, id) {
            Ok(record) => {
                self.seen.insert(record.path.clone());
                let repo = repo.to_string_lossy().into_owned();
                self.changes.read.push(Entry {
                    repo,
                    stamp,
                    record,
                });
            }
            Err(error) => self
                .problems
                .push(Problem::new(&snapshot.path, error.message())),
        }
    }
}

/// Names, sizes and times of change of all that a record is read from.
fn fingerprint(repo: &Path, snapshot: &Snapshot) -> Fingerprint {
    let mut hash = Xxh3::new();
    let mut number = |value: u64| hash.update(&value.to_le_bytes());
    // The hub's list of the snapshot's files, which tells whether it is complete.
    let mut list = snapshot.commit.clone();
    list.push(".json");
    match repo.join("trees").join(list).symlink_metadata() {
        Ok(metadata) => {
            number(metadata.len());
            number(nanoseconds(&metadata).cast_unsigned());
        }
        Err(_) => number(u64::MAX),
    }
    for file in &snapshot.files {
        let name = file.name.as_os_str().as_bytes();
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name);
        let file = match &file.content {
            Content::Regular(identity) => Some(identity),
            Content::Link(way) => way.file().map(|(_, identity)| identity),
            Content::Other => None,
        };
        hash.update(&[u8::from(file.is_some())]);
        if let Some(Identity {
            bytes, modified, ..
        }) = file
        {
            hash.update(&bytes.to_le_bytes());
            hash.update(&modified.to_le_bytes());
        }
    }
    hash.digest128().to_le_bytes()
}
