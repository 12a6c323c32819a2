//! Giving back the disk: plan, look, execute.
//!
//! A [`Plan`] says what would go, what stays and why; making one changes nothing. Executing it
//! looks at the hub again, deletes what both looks agree on, snapshots before blobs, each after
//! another look right before, and says what it did. Several processes may do this at once, and
//! downloads may run meanwhile.

mod execute;
mod freed;
mod plan;
mod reach;
mod report;
mod request;
#[cfg(test)]
mod table;

use std::path::{Path, PathBuf};

pub(crate) use plan::disk_bytes;
use request::Request;

use super::{
    layout::{Content, Hub, Leftover, Problem, read_hub},
    root::{ProcessEnvironment, hub_root},
};
use crate::error::{Error, Result};
use crate::escape::EscapedPath;

/// What would go, and what stays.
#[derive(Clone, Debug)]
pub struct Plan {
    root: PathBuf,
    request: Request,
    kept: Vec<Skipped>,
    skipped: Vec<Skipped>,
    pruned: Vec<Pruned>,
    refs: Vec<PathBuf>,
    dead_blobs: Vec<DeadBlob>,
    dead_payloads: Vec<DeadBlob>,
    /// The repository that goes as a whole.
    repo: Option<PathBuf>,
    bookkeeping: Vec<PathBuf>,
    left: Vec<Left>,
    leftovers: Vec<Leftover>,
    problems: Vec<Problem>,
    /// What all of it frees.
    bytes: u64,
    /// When the hub was looked at, in nanoseconds since 1970.
    made: i64,
}

/// A snapshot that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Such as `org/name`.
    pub repo_id: String,
    /// The snapshot's folder name.
    pub commit: String,
    /// The snapshot's folder.
    pub path: PathBuf,
    /// Bytes of its files, those shared with others included.
    pub bytes: u64,
    /// Why it stays.
    pub reason: String,
    /// The files that no kept snapshot has.
    pub extra_files: Vec<PathBuf>,
}

/// A snapshot that goes.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// Such as `org/name`.
    pub repo_id: String,
    /// The snapshot's folder name.
    pub commit: String,
    /// The snapshot's folder.
    pub path: PathBuf,
    /// Bytes of its files, those shared with others included.
    pub bytes: u64,
    files: Vec<(PathBuf, Content)>,
    folders: Vec<PathBuf>,
}

/// A blob that no surviving snapshot needs.
#[derive(Clone, Debug)]
pub struct DeadBlob {
    /// The file, or the link to the shared store.
    pub path: PathBuf,
    /// Bytes of the file; 0 for a link.
    pub bytes: u64,
    content: Content,
}

/// Something that was not deleted though it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The file or folder.
    pub path: PathBuf,
    /// One line.
    pub reason: String,
}

impl Left {
    fn new(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

/// What an execution did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Snapshots that are gone.
    pub snapshots: Vec<PathBuf>,
    /// Blobs and shared files that are gone.
    pub blobs: Vec<PathBuf>,
    /// Refs that are gone.
    pub refs: Vec<PathBuf>,
    /// What this freed: the sizes of files whose last name is gone.
    pub bytes: u64,
    /// What the plan named and is still there.
    pub left: Vec<Left>,
}

impl Plan {
    /// What collecting the hub, or one of its repositories, would delete: snapshots that no ref
    /// names and blobs that no surviving snapshot needs. With `force`, unreferenced snapshots go
    /// even when they hold files that no kept one has.
    ///
    /// # Errors
    /// [`Kind::NotFound`](crate::Kind::NotFound) for a hub or repository that is not there,
    /// [`Kind::Io`](crate::Kind::Io) when the hub's folder cannot be listed.
    pub fn collect(hub: Option<&Path>, repo_id: Option<&str>, force: bool) -> Result<Self> {
        let hub = look(&hub_root(hub, &ProcessEnvironment)?)?;
        let request = Request::collect(&hub, repo_id, force)?;
        Ok(plan::plan(&hub, &request))
    }

    /// What deleting a repository, or the one revision that a commit or ref names, would delete.
    ///
    /// # Errors
    /// As [`Plan::collect`]; [`Kind::NotFound`](crate::Kind::NotFound) for a revision too.
    pub fn delete(hub: Option<&Path>, repo_id: &str, revision: Option<&str>) -> Result<Self> {
        let hub = look(&hub_root(hub, &ProcessEnvironment)?)?;
        let request = Request::delete(&hub, repo_id, revision)?;
        Ok(plan::plan(&hub, &request))
    }

    fn new(hub: &Hub, request: &Request) -> Self {
        Self {
            root: hub.root.clone(),
            request: request.clone(),
            kept: Vec::new(),
            skipped: Vec::new(),
            pruned: Vec::new(),
            refs: Vec::new(),
            dead_blobs: Vec::new(),
            dead_payloads: Vec::new(),
            repo: None,
            bookkeeping: Vec::new(),
            left: Vec::new(),
            leftovers: hub.leftovers.clone(),
            problems: hub.problems.clone(),
            bytes: 0,
            made: hub.read_at,
        }
    }

    /// The hub's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Snapshots that stay because something needs them.
    pub fn kept(&self) -> &[Skipped] {
        &self.kept
    }

    /// Snapshots that nothing needs and that stay all the same.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Snapshots that go.
    pub fn pruned(&self) -> &[Pruned] {
        &self.pruned
    }

    /// Blobs that go, those of the shared store last.
    pub fn dead_blobs(&self) -> impl Iterator<Item = &DeadBlob> {
        self.dead_blobs.iter().chain(&self.dead_payloads)
    }

    /// Refs that go.
    pub fn refs(&self) -> &[PathBuf] {
        &self.refs
    }

    /// What was looked at and is not touched, and why.
    pub fn left(&self) -> &[Left] {
        &self.left
    }

    /// Parts of the hub that could not be read or are none of the hub's.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What executing it frees, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Deletes what is planned and still dead, and says what it did. Something that cannot be
    /// deleted is left and named; it stops nothing else.
    ///
    /// # Errors
    /// [`Kind::Io`](crate::Kind::Io) or [`Kind::NotFound`](crate::Kind::NotFound) when the hub's
    /// folder cannot be listed any more; then nothing was deleted.
    pub fn execute(&self) -> Result<Outcome> {
        execute::execute(self)
    }

    /// The plan as JSON, with what `outcome` did where there is one.
    pub fn report(&self, outcome: Option<&Outcome>) -> String {
        report::json(self, outcome)
    }
}

fn look(root: &Path) -> Result<Hub> {
    read_hub(root)
        .map_err(|error| Error::io(format_args!("hub folder {}", EscapedPath(root)), error))
}
