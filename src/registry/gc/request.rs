//! What is asked to go.

use std::{collections::HashSet, path::PathBuf};

use crate::{
    error::{Error, Kind, Result},
    registry::{
        layout::{Hub, Repo},
        names::{RepoKind, repo_folder},
    },
};

/// A question to the planner.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) scope: Scope,
    /// The blobs that an earlier plan took with a named revision, which may be gone by now.
    pub(crate) blobs: Option<HashSet<PathBuf>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// What nothing needs any more.
    Collect {
        /// One repository's folder, or all of them.
        repo: Option<PathBuf>,
        /// Unreferenced snapshots go even when they hold files that no kept one has.
        force: bool,
    },
    /// What the user names.
    Delete {
        repo: PathBuf,
        /// One snapshot; else all.
        commit: Option<String>,
        /// Nothing else of the repository would be left.
        is_last: bool,
    },
}

impl Request {
    /// A collection of one repository or of all.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when the hub has no such repository.
    pub(crate) fn collect(hub: &Hub, repo_id: Option<&str>, force: bool) -> Result<Self> {
        let repo = repo_id
            .map(|id| find(hub, id).map(|repo| repo.path.clone()))
            .transpose()?;
        Ok(Self {
            scope: Scope::Collect { repo, force },
            blobs: None,
        })
    }

    /// The deletion of a repository, or of the revision that a commit or a ref names.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when the hub has no such repository or the repository no such revision.
    pub(crate) fn delete(hub: &Hub, repo_id: &str, revision: Option<&str>) -> Result<Self> {
        let repo = find(hub, repo_id)?;
        let commit = revision
            .map(|revision| commit_of(repo, revision))
            .transpose()?;
        let is_last = match &commit {
            Some(commit) => repo
                .snapshots
                .iter()
                .all(|snapshot| snapshot.commit.to_str() == Some(commit)),
            None => true,
        };
        Ok(Self {
            scope: Scope::Delete {
                repo: repo.path.clone(),
                commit,
                is_last,
            },
            blobs: None,
        })
    }
}

fn find<'a>(hub: &'a Hub, repo_id: &str) -> Result<&'a Repo> {
    let folder = hub.root.join(repo_folder(RepoKind::Model, repo_id));
    hub.repos
        .iter()
        .find(|repo| repo.kind == RepoKind::Model && repo.id == repo_id && !repo_id.is_empty())
        .ok_or_else(|| {
            let below = if folder.is_dir() {
                "holds no repository"
            } else {
                "is not there"
            };
            Error::new(
                Kind::NotFound,
                format!("no repository in the hub: {repo_id}"),
            )
            .with_detail(format!("{} {below}", folder.display()))
        })
}

fn commit_of(repo: &Repo, revision: &str) -> Result<String> {
    let is_there = |commit: &str| {
        repo.snapshots
            .iter()
            .any(|snapshot| snapshot.commit.to_str() == Some(commit))
    };
    if is_there(revision) {
        return Ok(revision.to_owned());
    }
    repo.refs
        .iter()
        .find(|r| r.name == revision && is_there(&r.commit))
        .map(|r| r.commit.clone())
        .ok_or_else(|| {
            Error::new(
                Kind::NotFound,
                format!("no such revision of {}: {revision}", repo.id),
            )
        })
}
