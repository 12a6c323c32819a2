//! What may be deleted: a pure function of what is in the hub.
//!
//! Everything that survives, and everything that something surviving leads to, stays. The rest
//! of what was asked for goes. What is unknown (unreadable, linked from elsewhere, made by
//! nobody we know) survives.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use super::{
    Left, Plan, Pruned, Skipped,
    freed::Removed,
    reach::Reach,
    request::{Request, Scope},
};
use crate::registry::{
    layout::{Blob, Content, Hub, Repo, Snapshot},
    links::End,
    names::{RepoKind, is_in_flight, is_noise},
    store::Manifest,
};

/// A download makes its snapshot's folder a moment before the ref and the files: an empty folder
/// younger than this many nanoseconds may be one.
const START_OF_DOWNLOAD: i64 = 60_000_000_000;

/// What happens to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// Nobody asked for it.
    Beside,
    Kept(String),
    Skipped(String, Vec<PathBuf>),
    Pruned,
}

/// The decision.
pub(super) fn plan(hub: &Hub, request: &Request) -> Plan {
    let mut fates: Vec<Vec<Fate>> = hub
        .repos
        .iter()
        .map(|repo| snapshot_fates(repo, request, hub.read_at))
        .collect();
    let candidates = BlobCandidates::of(hub, request, &fates);
    let reach = spare_what_is_reached(hub, &candidates, &mut fates);

    let mut plan = Plan::new(hub, request);
    let mut removed = Removed::default();
    for (repo, fates) in hub.repos.iter().zip(&fates) {
        for (snapshot, fate) in repo.snapshots.iter().zip(fates) {
            report_snapshot(&mut plan, &mut removed, repo, snapshot, fate);
        }
        report_refs(&mut plan, &mut removed, repo, fates, request, &reach);
        report_bookkeeping(&mut plan, &mut removed, repo, fates, request, &reach);
    }
    report_blobs(&mut plan, &mut removed, hub, &candidates, &fates, &reach);
    report_payloads(&mut plan, &mut removed, hub, request, &reach);
    plan.bytes = removed.bytes();
    plan
}

/// Why no snapshot and no blob of this repository may go.
fn protection(repo: &Repo, request: &Request) -> Option<&'static str> {
    if repo.is_linked {
        return Some("the repository's folder is a link or holds one in place of a folder");
    }
    if matches!(request.scope, Scope::Delete { .. }) {
        return None;
    }
    if repo.has_unknown_refs {
        return Some("a ref could not be read");
    }
    let is_named = |snapshot: &Snapshot| repo.refs.iter().any(|r| names(&r.commit, snapshot));
    (!repo.snapshots.iter().any(is_named)).then_some("no ref names a snapshot that is there")
}

fn names(commit: &str, snapshot: &Snapshot) -> bool {
    OsStr::new(commit) == snapshot.commit
}

fn snapshot_fates(repo: &Repo, request: &Request, now: i64) -> Vec<Fate> {
    if !request.concerns(repo) {
        return vec![Fate::Beside; repo.snapshots.len()];
    }
    if let Some(reason) = protection(repo, request) {
        return vec![Fate::Kept(reason.to_owned()); repo.snapshots.len()];
    }
    let known: HashSet<&Path> = repo
        .snapshots
        .iter()
        .filter(|snapshot| repo.refs.iter().any(|r| names(&r.commit, snapshot)))
        .flat_map(|snapshot| &snapshot.files)
        .filter(|file| file.content.file().is_some())
        .map(|file| file.name.as_path())
        .collect();
    let fate = |snapshot: &Snapshot| match &request.scope {
        Scope::Collect { force, .. } => {
            let refs: Vec<_> = repo
                .refs
                .iter()
                .filter(|r| names(&r.commit, snapshot))
                .map(|r| r.name.as_str())
                .collect();
            if !refs.is_empty() {
                return Fate::Kept(format!("named by {}", refs.join(", ")));
            }
            if snapshot.files.is_empty()
                && now.saturating_sub(snapshot.modified) < START_OF_DOWNLOAD
            {
                return Fate::Skipped(
                    "just made: a download may be starting".to_owned(),
                    Vec::new(),
                );
            }
            let extra: Vec<_> = snapshot
                .files
                .iter()
                .filter(|file| !is_noise(file.name.file_name().unwrap_or_default()))
                .filter(|file| !known.contains(file.name.as_path()))
                .map(|file| file.name.clone())
                .collect();
            if extra.is_empty() || *force {
                removable(snapshot)
            } else {
                Fate::Skipped("holds files that no kept snapshot has".to_owned(), extra)
            }
        }
        Scope::Delete {
            commit: Some(commit),
            ..
        } if !names(commit, snapshot) => Fate::Beside,
        Scope::Delete { .. } => removable(snapshot),
    };
    repo.snapshots.iter().map(fate).collect()
}

/// Whether the snapshot's folder can go as a whole.
fn removable(snapshot: &Snapshot) -> Fate {
    let odd: Vec<_> = snapshot
        .files
        .iter()
        .filter(|file| {
            is_in_flight(file.name.file_name().unwrap_or_default())
                || file.content == Content::Other
        })
        .map(|file| file.name.clone())
        .collect();
    if snapshot.link.is_some() {
        Fate::Skipped("it is a link".to_owned(), Vec::new())
    } else if snapshot.has_unknown_files {
        Fate::Skipped("not all of it could be read".to_owned(), Vec::new())
    } else if !odd.is_empty() {
        Fate::Skipped(
            "holds a lock, an unfinished download or no file".to_owned(),
            odd,
        )
    } else {
        Fate::Pruned
    }
}

/// Blobs that go unless something surviving leads to them, and why others of the same
/// repositories stay.
struct BlobCandidates<'a> {
    dead_if_unreached: BTreeMap<&'a Path, &'a Blob>,
    left: Vec<Left>,
}

impl<'a> BlobCandidates<'a> {
    fn of(hub: &'a Hub, request: &Request, fates: &[Vec<Fate>]) -> Self {
        let mut candidates = Self {
            dead_if_unreached: BTreeMap::new(),
            left: Vec::new(),
        };
        for (repo, fates) in hub.repos.iter().zip(fates) {
            if !request.concerns(repo) {
                continue;
            }
            if let Some(reason) = protection(repo, request) {
                candidates.left.push(Left::new(&repo.path, reason));
                continue;
            }
            // A named revision takes its own blobs with it; collecting takes all dead ones.
            let named: Option<HashSet<&Path>> = match (&request.blobs, &request.scope) {
                (Some(blobs), _) => Some(blobs.iter().map(PathBuf::as_path).collect()),
                (
                    None,
                    Scope::Delete {
                        commit: Some(_),
                        is_last: false,
                        ..
                    },
                ) => Some(
                    pruned(repo, fates)
                        .flat_map(|snapshot| &snapshot.files)
                        .filter_map(|file| match &file.content {
                            Content::Link(way) => Some(way.places()),
                            _ => None,
                        })
                        .flatten()
                        .collect(),
                ),
                _ => None,
            };
            for blob in &repo.blobs {
                if named
                    .as_ref()
                    .is_some_and(|named| !named.contains(blob.path.as_path()))
                {
                    continue;
                }
                match untouchable(hub, blob) {
                    Some(reason) => candidates.left.push(Left::new(&blob.path, reason)),
                    None => {
                        candidates.dead_if_unreached.insert(&blob.path, blob);
                    }
                }
            }
        }
        candidates
    }
}

fn pruned<'a>(repo: &'a Repo, fates: &'a [Fate]) -> impl Iterator<Item = &'a Snapshot> {
    repo.snapshots
        .iter()
        .zip(fates)
        .filter(|(_, fate)| **fate == Fate::Pruned)
        .map(|(snapshot, _)| snapshot)
}

/// Why a blob is left even when nothing leads to it.
fn untouchable(hub: &Hub, blob: &Blob) -> Option<&'static str> {
    let name = blob.path.file_name().unwrap_or_default();
    if name.as_encoded_bytes().starts_with(b".") {
        return Some("a download may be at work on it");
    }
    match &blob.content {
        Content::Regular(_) => None,
        Content::Other => Some("a blob that is no file"),
        Content::Link(way) => {
            let leads_to_store = match (&hub.store, &way.end) {
                (Some(_), End::File(path, _)) => {
                    path.starts_with(hub.root.join(crate::registry::store::FOLDER))
                }
                (Some(_), End::Missing) => true,
                _ => false,
            };
            (!leads_to_store || way.links.len() != 1)
                .then_some("a blob that is a link, but not to the shared store")
        }
    }
}

/// Turns the fate of snapshots that something surviving leads into, until no more are found.
fn spare_what_is_reached(
    hub: &Hub,
    candidates: &BlobCandidates<'_>,
    fates: &mut [Vec<Fate>],
) -> Reach {
    let mut reach = Reach::default();
    for blob in hub.repos.iter().flat_map(|repo| &repo.blobs) {
        if let Content::Link(way) = &blob.content
            && !candidates
                .dead_if_unreached
                .contains_key(blob.path.as_path())
        {
            reach.add(way);
        }
    }
    let mut survivors: Vec<&Snapshot> = Vec::new();
    for (repo, fates) in hub.repos.iter().zip(fates.iter()) {
        let alive = repo.snapshots.iter().zip(fates);
        survivors.extend(
            alive
                .filter(|(_, fate)| **fate != Fate::Pruned)
                .map(|(snapshot, _)| snapshot),
        );
    }
    loop {
        for snapshot in survivors.drain(..) {
            if let Some(way) = &snapshot.link {
                reach.add(way);
            }
            for file in &snapshot.files {
                if let Content::Link(way) = &file.content {
                    reach.add(way);
                }
            }
        }
        reach.add_links_in_reached_folders(hub);
        let touched = reach.folders_with_places(&hub.root);
        for (repo, fates) in hub.repos.iter().zip(fates.iter_mut()) {
            for (snapshot, fate) in repo.snapshots.iter().zip(fates) {
                let path = snapshot.path.as_path();
                if *fate == Fate::Pruned && (reach.contains(path) || touched.contains(path)) {
                    *fate = Fate::Kept("something that is kept links into it".to_owned());
                    survivors.push(snapshot);
                }
            }
        }
        if survivors.is_empty() {
            return reach;
        }
    }
}

fn report_snapshot(
    plan: &mut Plan,
    removed: &mut Removed,
    repo: &Repo,
    snapshot: &Snapshot,
    fate: &Fate,
) {
    let entry = |reason: &str, extra_files: &[PathBuf]| Skipped {
        repo_id: repo.id.clone(),
        commit: lossy(&snapshot.commit),
        path: snapshot.path.clone(),
        bytes: disk_bytes(snapshot),
        reason: reason.to_owned(),
        extra_files: extra_files.to_vec(),
    };
    match fate {
        Fate::Beside => {}
        Fate::Kept(reason) => plan.kept.push(entry(reason, &[])),
        Fate::Skipped(reason, extra) => plan.skipped.push(entry(reason, extra)),
        Fate::Pruned => {
            for file in &snapshot.files {
                removed.add_content(&file.content);
            }
            plan.pruned.push(Pruned {
                repo_id: repo.id.clone(),
                commit: lossy(&snapshot.commit),
                path: snapshot.path.clone(),
                bytes: disk_bytes(snapshot),
                files: snapshot
                    .files
                    .iter()
                    .map(|file| (file.name.clone(), file.content.clone()))
                    .collect(),
                folders: snapshot.folders.clone(),
            });
        }
    }
}

/// The bytes of all files of a snapshot, each blob once.
pub(crate) fn disk_bytes(snapshot: &Snapshot) -> u64 {
    let mut seen = HashSet::new();
    snapshot
        .files
        .iter()
        .filter_map(|file| match &file.content {
            // By the first link, as huggingface_hub counts: two blobs of a repository that share
            // their bytes are two blobs.
            Content::Link(way) => way
                .file()
                .map(|(end, identity)| (way.links.get(1).map_or(end, |p| p.as_path()), identity)),
            Content::Regular(identity) => Some((file.path.as_path(), identity)),
            Content::Other => None,
        })
        .filter(|(place, _)| seen.insert(*place))
        .map(|(_, identity)| identity.bytes)
        .sum()
}

fn lossy(name: &OsString) -> String {
    name.to_string_lossy().into_owned()
}

/// Refs go with the snapshot that they name, when the user named it.
fn report_refs(
    plan: &mut Plan,
    removed: &mut Removed,
    repo: &Repo,
    fates: &[Fate],
    request: &Request,
    reach: &Reach,
) {
    let Scope::Delete { is_last, .. } = &request.scope else {
        return;
    };
    if !request.concerns(repo) || repo.is_linked {
        return;
    }
    let goes = |commit: &str| pruned(repo, fates).any(|snapshot| names(commit, snapshot));
    let is_there = |commit: &str| repo.snapshots.iter().any(|s| names(commit, s));
    for r in &repo.refs {
        let is_needless = goes(&r.commit) || (*is_last && !is_there(&r.commit));
        if is_needless && !reach.contains(&r.path) {
            removed.add_content(&r.content);
            plan.refs.push(r.path.clone());
        }
    }
}

/// The layout's own small files go with the whole repository.
fn report_bookkeeping(
    plan: &mut Plan,
    removed: &mut Removed,
    repo: &Repo,
    fates: &[Fate],
    request: &Request,
    reach: &Reach,
) {
    let Scope::Delete { is_last: true, .. } = &request.scope else {
        return;
    };
    if !request.concerns(repo) || repo.is_linked || fates.iter().any(|fate| *fate != Fate::Pruned) {
        return;
    }
    plan.repo = Some(repo.path.clone());
    for file in &repo.bookkeeping {
        if !is_in_flight(file.path.file_name().unwrap_or_default())
            && file.content != Content::Other
            && !reach.contains(&file.path)
        {
            removed.add_content(&file.content);
            plan.bookkeeping.push(file.path.clone());
        }
    }
}

fn report_blobs(
    plan: &mut Plan,
    removed: &mut Removed,
    hub: &Hub,
    candidates: &BlobCandidates<'_>,
    fates: &[Vec<Fate>],
    reach: &Reach,
) {
    plan.left.extend(candidates.left.iter().cloned());
    for (repo, fates) in hub.repos.iter().zip(fates) {
        let survives_unread = repo
            .snapshots
            .iter()
            .zip(fates)
            .any(|(snapshot, fate)| *fate != Fate::Pruned && snapshot.has_unknown_files);
        for blob in &repo.blobs {
            if !candidates
                .dead_if_unreached
                .contains_key(blob.path.as_path())
                || reach.contains(&blob.path)
            {
                continue;
            }
            if survives_unread {
                let reason = "a snapshot that is kept could not be read and may link to it";
                plan.left.push(Left::new(&blob.path, reason));
                continue;
            }
            removed.add_content(&blob.content);
            let bytes = match &blob.content {
                Content::Regular(identity) => identity.bytes,
                _ => 0,
            };
            plan.dead_blobs.push(super::DeadBlob {
                path: blob.path.clone(),
                bytes,
                content: blob.content.clone(),
            });
        }
    }
}

/// Shared files whose last links go.
fn report_payloads(
    plan: &mut Plan,
    removed: &mut Removed,
    hub: &Hub,
    request: &Request,
    reach: &Reach,
) {
    let Some(store) = &hub.store else {
        return;
    };
    let dead: HashSet<&Path> = plan
        .dead_blobs
        .iter()
        .map(|blob| blob.path.as_path())
        .collect();
    let mut alive = HashSet::new();
    let mut released = HashSet::new();
    for blob in hub.repos.iter().flat_map(|repo| &repo.blobs) {
        if let Content::Link(way) = &blob.content
            && let Some((payload, _)) = way.file()
        {
            let side = if dead.contains(blob.path.as_path()) {
                &mut released
            } else {
                &mut alive
            };
            side.insert(payload);
        }
    }
    let takes_unused = matches!(request.scope, Scope::Collect { repo: None, .. });
    let mut payloads = Vec::new();
    let mut left = Vec::new();
    for payload in &store.payloads {
        let path = payload.path.as_path();
        let is_asked_for = takes_unused || released.contains(path);
        if !is_asked_for || alive.contains(path) || reach.contains(path) {
            continue;
        }
        match &payload.manifest {
            Manifest::Unknown => left.push(Left::new(
                path,
                "a shared file without a readable manifest: who uses it is not known",
            )),
            Manifest::Links(manifest, links)
                if links.iter().all(|link| dead.contains(link.as_path())) =>
            {
                removed.add(&payload.identity);
                removed.add(manifest);
                payloads.push(super::DeadBlob {
                    path: payload.path.clone(),
                    bytes: payload.identity.bytes,
                    content: Content::Regular(payload.identity),
                });
            }
            Manifest::Links(..) => {}
        }
    }
    plan.dead_payloads = payloads;
    plan.left.extend(left);
}

impl Request {
    /// Whether the repository is one of those that were asked for.
    fn concerns(&self, repo: &Repo) -> bool {
        if repo.kind != RepoKind::Model {
            return false;
        }
        match &self.scope {
            Scope::Collect { repo: None, .. } => true,
            Scope::Collect {
                repo: Some(path), ..
            }
            | Scope::Delete { repo: path, .. } => *path == repo.path,
        }
    }
}
