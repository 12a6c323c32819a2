//! Carrying out a plan.
//!
//! Nothing is deleted on the word of the plan alone: the hub is read again first, and right
//! before each deletion the refs, links and files that it depends on are looked at once more. A
//! link that a download makes in between keeps its blob. Only names that were listed are
//! unlinked, one by one, and a folder goes only when it is empty, so nothing is lost that was
//! never looked at.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    DeadBlob, Left, Outcome, Plan, Pruned, look, plan, reach,
    request::{Request, Scope},
};
use crate::{
    error::Result,
    registry::{
        layout::{Content, Hub, Parts, Reader, Ref, Repo, RepoFolder},
        links::{Identity, follow},
        names::RepoKind,
        store,
    },
};

pub(super) fn execute(plan: &Plan) -> Result<Outcome> {
    let second = plan::plan(&look(&plan.root)?, &plan.request);
    let mut run = Run {
        plan,
        outcome: Outcome::default(),
        freed: HashMap::new(),
    };
    run.refs(&second);
    run.snapshots(&second);
    // What the blobs' fate depends on has just changed.
    run.blobs()?;
    let hub = look(&plan.root)?;
    run.payloads(&hub);
    run.rest(&plan::plan(&hub, &run.request_again()));
    run.outcome.bytes = run.freed.values().sum();
    Ok(run.outcome)
}

/// A look at the whole hub is trusted for this long, or for as many times as long as it took.
const LOOK_TRUSTED: Duration = Duration::from_millis(250);
const LOOK_COST_FACTOR: u32 = 4;

struct Run<'a> {
    plan: &'a Plan,
    outcome: Outcome,
    /// Bytes of files whose last name went, by device and inode.
    freed: HashMap<(u64, u64), u64>,
}

impl Run<'_> {
    fn left(&mut self, path: &Path, reason: impl Into<String>) {
        self.outcome.left.push(Left::new(path, reason));
    }

    /// Refs first: a snapshot without a ref is in order, a ref without a snapshot is not.
    fn refs(&mut self, second: &Plan) {
        for path in &self.plan.refs {
            if !second.refs.contains(path) {
                self.left(path, "changed since the plan");
            } else if self.unlink(path) {
                self.outcome.refs.push(path.clone());
            }
        }
    }

    fn snapshots(&mut self, second: &Plan) {
        let agreed: HashMap<&Path, &Pruned> = second
            .pruned
            .iter()
            .map(|pruned| (pruned.path.as_path(), pruned))
            .collect();
        for pruned in &self.plan.pruned {
            if fs::symlink_metadata(&pruned.path).is_err() {
                continue;
            }
            let Some(again) = agreed.get(pruned.path.as_path()) else {
                let reason = why_kept(second, &pruned.path);
                self.left(&pruned.path, reason);
                continue;
            };
            if !are_same_names(
                pruned,
                again.files.iter().map(|(name, content)| (name, content)),
            ) {
                self.left(&pruned.path, "its files changed since the plan");
            } else if let Some(reason) = self.snapshot_changed(again) {
                self.left(&pruned.path, reason);
            } else {
                self.remove_snapshot(again);
            }
        }
    }

    /// The last look before a snapshot goes.
    fn snapshot_changed(&self, pruned: &Pruned) -> Option<String> {
        let Some(repo) = reread(&pruned.path, Parts::Models) else {
            return Some("its repository cannot be read any more".to_owned());
        };
        let now = repo.snapshots.iter().find(|s| s.path == pruned.path)?;
        let is_named = |r: &&Ref| std::ffi::OsStr::new(&r.commit) == now.commit;
        if let Some(r) = repo.refs.iter().find(is_named) {
            return Some(format!("{} names it since the plan", r.name));
        }
        if repo.has_unknown_refs && matches!(self.plan.request.scope, Scope::Collect { .. }) {
            return Some("a ref could not be read".to_owned());
        }
        let files = now.files.iter().map(|file| (&file.name, &file.content));
        let is_same = !now.has_unknown_files && are_same_names(pruned, files);
        (!is_same).then(|| "its files changed since the plan".to_owned())
    }

    fn remove_snapshot(&mut self, pruned: &Pruned) {
        let mut is_gone = true;
        for (name, _) in &pruned.files {
            is_gone &= self.unlink(&pruned.path.join(name));
        }
        // Children come after their parents.
        for folder in pruned.folders.iter().rev() {
            is_gone &= self.remove_folder(folder);
        }
        if is_gone && self.remove_folder(&pruned.path) {
            self.outcome.snapshots.push(pruned.path.clone());
        }
    }

    /// The request once more, about the blobs that were planned.
    fn request_again(&self) -> Request {
        let blobs = self.plan.dead_blobs.iter().map(|blob| blob.path.clone());
        Request {
            scope: self.plan.request.scope.clone(),
            blobs: Some(blobs.collect()),
        }
    }

    fn blobs(&mut self) -> Result<()> {
        let mut dead = HashSet::new();
        let mut look_until: Option<Instant> = None;
        for blob in &self.plan.dead_blobs {
            if fs::symlink_metadata(&blob.path).is_err() {
                continue;
            }
            if look_until.is_none_or(|until| Instant::now() > until) {
                let start = Instant::now();
                let again = plan::plan(&look(&self.plan.root)?, &self.request_again());
                dead = again.dead_blobs.into_iter().map(|blob| blob.path).collect();
                let trusted = LOOK_TRUSTED.max(start.elapsed() * LOOK_COST_FACTOR);
                look_until = Some(start + trusted);
            }
            if !dead.contains(&blob.path) {
                self.left(&blob.path, "something links to it, or may");
            } else if let Err(reason) = self.remove_blob(blob) {
                self.left(&blob.path, reason);
            }
        }
        Ok(())
    }

    /// The last look before a blob goes, under its download lock where there is one.
    fn remove_blob(&mut self, blob: &DeadBlob) -> Result<(), String> {
        let _lock = match download_lock(&self.plan.root, &blob.path) {
            Some(path) => Lock::of_existing(&path)?,
            None => None,
        };
        if !is_unchanged(blob) {
            return Err("changed since the plan".to_owned());
        }
        let Some(repo) = reread(&blob.path, Parts::Models) else {
            return Err("its repository cannot be read any more".to_owned());
        };
        for snapshot in &repo.snapshots {
            if snapshot.has_unknown_files {
                return Err("a snapshot that may link to it could not be read".to_owned());
            }
            let links_to_it = snapshot.files.iter().any(|file| match &file.content {
                Content::Link(way) => way.places().any(|place| blob.path.starts_with(place)),
                _ => false,
            });
            if links_to_it {
                return Err("a snapshot links to it since the plan".to_owned());
            }
        }
        if self.unlink(&blob.path) {
            self.outcome.blobs.push(blob.path.clone());
        }
        Ok(())
    }

    fn payloads(&mut self, hub: &Hub) {
        let linked = reach::linked_places(hub);
        for payload in &self.plan.dead_payloads {
            if fs::symlink_metadata(&payload.path).is_err() {
                continue;
            }
            if linked.contains(payload.path.as_path()) {
                self.left(&payload.path, "something links to it");
            } else if let Err(reason) = self.remove_payload(payload) {
                self.left(&payload.path, reason);
            }
        }
    }

    /// As huggingface_hub does: under the payload's lock, by its manifest.
    fn remove_payload(&mut self, payload: &DeadBlob) -> Result<(), String> {
        let root = self.plan.root.clone();
        let _lock = Lock::of_payload(&payload.path)?;
        if !store::is_store(&root) || !is_unchanged(payload) {
            return Err("changed since the plan".to_owned());
        }
        match store::read_manifest(&root, &payload.path) {
            store::Manifest::Links(_, links) if links.is_empty() => {}
            store::Manifest::Links(..) => {
                return Err("a repository links to it".to_owned());
            }
            store::Manifest::Unknown => {
                return Err("its manifest cannot be read".to_owned());
            }
        }
        if self.unlink(&payload.path) {
            self.unlink(&store::manifest_path(&payload.path));
            self.outcome.blobs.push(payload.path.clone());
        }
        Ok(())
    }

    /// What remains of a repository that goes as a whole.
    fn rest(&mut self, last: &Plan) {
        let Some(repo) = &self.plan.repo else {
            return;
        };
        if last.repo.as_ref() != Some(repo) {
            self.left(repo, "something in it is kept");
            return;
        }
        for path in &self.plan.bookkeeping {
            if last.bookkeeping.contains(path) {
                self.unlink(path);
            }
        }
        for name in ["refs", "blobs", "trees", ".no_exist"] {
            remove_empty_folders(&repo.join(name));
        }
        // A repository without a snapshots folder counts as damaged, so it goes only when
        // nothing else is left.
        let mut reader = Reader::default();
        let others: Vec<PathBuf> = reader
            .entries(repo)
            .0
            .into_iter()
            .map(|(_, path, _)| path)
            .filter(|path| path.file_name().is_none_or(|name| name != "snapshots"))
            .collect();
        if others.is_empty() {
            remove_empty_folders(&repo.join("snapshots"));
            let _ = fs::remove_dir(repo);
        }
        for path in others {
            self.left(&path, "not deleted: in use, or none of the hub's files");
        }
    }

    /// Removes one name; `false` and a note when that fails.
    fn unlink(&mut self, path: &Path) -> bool {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_dir() => metadata,
            Ok(_) => {
                self.left(path, "a folder has taken its place");
                return false;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(error) => {
                self.left(path, error.to_string());
                return false;
            }
        };
        if path.parent().is_none_or(|parent| !is_real_folder(parent)) {
            self.left(path, "a link has taken the place of its folder");
            return false;
        }
        if let Err(error) = fs::remove_file(path) {
            if error.kind() == io::ErrorKind::NotFound {
                return true;
            }
            self.left(path, error.to_string());
            return false;
        }
        let identity = Identity::of(&metadata);
        if metadata.is_file() && identity.name_count == 1 {
            self.freed
                .insert((identity.device, identity.inode), identity.bytes);
        }
        true
    }

    fn remove_folder(&mut self, folder: &Path) -> bool {
        match fs::remove_dir(folder) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => {
                self.left(folder, error.to_string());
                false
            }
        }
    }
}

/// Whether a snapshot still holds what was planned to go. Where its links lead may change
/// meanwhile: losing a link loses nothing else, and blobs are looked at on their own.
fn are_same_names<'a>(
    planned: &Pruned,
    now: impl Iterator<Item = (&'a PathBuf, &'a Content)>,
) -> bool {
    let is_same = |(planned, now): (&(PathBuf, Content), (&PathBuf, &Content))| {
        let is_same_kind = match (&planned.1, now.1) {
            (Content::Link(_), Content::Link(_)) => true,
            (planned, now) => planned == now,
        };
        planned.0 == *now.0 && is_same_kind
    };
    let now: Vec<_> = now.collect();
    now.len() == planned.files.len() && planned.files.iter().zip(now).all(is_same)
}

fn why_kept(plan: &Plan, path: &Path) -> String {
    plan.kept
        .iter()
        .chain(&plan.skipped)
        .find(|kept| kept.path == path)
        .map_or_else(
            || "changed since the plan".to_owned(),
            |kept| kept.reason.clone(),
        )
}

/// The repository around a snapshot or blob, as it is now.
fn reread(part: &Path, parts: Parts) -> Option<Repo> {
    let path = part.parent()?.parent()?;
    let folder = RepoFolder {
        path: path.to_path_buf(),
        kind: RepoKind::Model,
        id: String::new(),
        is_named: true,
    };
    let repo = Reader::default().repo(path.parent()?, &folder, parts)?;
    (!repo.is_linked).then_some(repo)
}

fn is_unchanged(blob: &DeadBlob) -> bool {
    let Ok(metadata) = fs::symlink_metadata(&blob.path) else {
        return false;
    };
    match &blob.content {
        Content::Regular(planned) => metadata.is_file() && Identity::of(&metadata) == *planned,
        Content::Link(planned) => metadata.is_symlink() && follow(&blob.path) == *planned,
        Content::Other => false,
    }
}

/// Whether the path is a folder and none of its parents is a link.
fn is_real_folder(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| real == path)
}

/// Removes folders as far as they are empty.
fn remove_empty_folders(folder: &Path) {
    let mut reader = Reader::default();
    for (_, path, metadata) in reader.entries(folder).0 {
        if metadata.is_dir() {
            remove_empty_folders(&path);
        }
    }
    let _ = fs::remove_dir(folder);
}

/// The lock that a download of this blob holds.
fn download_lock(root: &Path, blob: &Path) -> Option<PathBuf> {
    let repo = blob.parent()?.parent()?.file_name()?;
    let mut name = blob.file_name()?.to_owned();
    name.push(".lock");
    Some(root.join(".locks").join(repo).join(name))
}

/// An advisory lock as huggingface_hub takes it; released when dropped.
struct Lock {
    _file: fs::File,
}

impl Lock {
    /// Nothing when there is no lock file: then no download has ever used it.
    fn of_existing(path: &Path) -> Result<Option<Self>, String> {
        match open_lock(path, false) {
            Ok(file) => Self::take(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("its lock cannot be opened: {error}")),
        }
    }

    /// Made when there is none, so that nobody publishes or links the payload meanwhile.
    fn of_payload(payload: &Path) -> Result<Self, String> {
        let file = open_lock(&store::lock_path(payload), true)
            .map_err(|error| format!("its lock cannot be opened: {error}"))?;
        Self::take(file)
    }

    fn take(file: fs::File) -> Result<Self, String> {
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(fs::TryLockError::WouldBlock) => Err("a download is at work on it".to_owned()),
            Err(fs::TryLockError::Error(error)) => Err(format!("cannot be locked: {error}")),
        }
    }
}

fn open_lock(path: &Path, create: bool) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;

    let file = fs::OpenOptions::new()
        .write(true)
        .create(create)
        .mode(0o666)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a file"));
    }
    Ok(file)
}
