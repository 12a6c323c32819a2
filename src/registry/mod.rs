//! The models on this machine: which are there, which one was meant, what fits, and what may go.
//!
//! Everything is read from the Hugging Face hub cache as it is on disk: its layout is the
//! contract, no other program's cooperation is needed, and downloads may run meanwhile.
//!
//! ```no_run
//! use mlxb::registry::{ListOptions, Registry};
//!
//! let registry = Registry::open(None)?;
//! registry.scan(None)?;
//! for model in registry.list(&ListOptions::default())? {
//!     assert!(model.size_bytes < 1 << 40, "{}", model.repo_id);
//! }
//! let model = registry.resolve("Qwen3-0.6B-4bit")?;
//! assert!(model.is_complete);
//! # Ok::<(), mlxb::Error>(())
//! ```

mod canonical;
mod card;
mod facts;
mod fit;
pub mod gc;
mod index;
mod layout;
mod links;
mod list;
mod names;
mod record;
mod resolve;
mod root;
mod scan;
mod store;
mod template;
mod tensors;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

pub use fit::{Fit, FitOptions, fit};
pub use layout::Problem;
pub use list::{ListOptions, Vision};
pub use names::{RepoKind, parse_repo_folder, repo_folder};
pub use record::{ModelRecord, inspect};
pub use scan::ScanReport;

use self::{
    index::{Entry, Failure, Index},
    root::{ProcessEnvironment, default_database, hub_root},
};
use crate::error::{Error, Kind, Result};

/// An index of the models on this machine, which several threads and processes may use at once.
#[derive(Debug)]
pub struct Registry {
    path: PathBuf,
    /// Nothing after a failed attempt to make a new database.
    index: Mutex<Option<Index>>,
}

impl Registry {
    /// Opens the database at `path`, which is made when it is not there. The default is in the
    /// user's cache folder; `:memory:` is a private one that vanishes with the registry.
    ///
    /// A damaged database is set aside and a new one made, and one of another version of the
    /// library is emptied: a scan fills it again.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there is no home folder for the default,
    /// [`Kind::Locked`] when another process keeps the database busy, [`Kind::Io`] and
    /// [`Kind::NoSpace`] as the system says.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => default_database(&ProcessEnvironment)?,
        };
        let registry = Self {
            path,
            index: Mutex::new(None),
        };
        registry.with_index(|_| Ok(()))?;
        Ok(registry)
    }

    /// Looks through a hub and brings the database up to date. Without `hub`, the hub is where
    /// huggingface_hub has it. Snapshots whose files have not changed are not read again. What
    /// cannot be read is named in the report and stops nothing.
    ///
    /// # Errors
    /// [`Kind::NotFound`], [`Kind::InvalidArgument`], [`Kind::InvalidUtf8`] or [`Kind::Io`] when
    /// there is no such hub or it cannot be listed; [`Kind::Locked`], [`Kind::NoSpace`] or
    /// [`Kind::Io`] when the database cannot be written: then it is as before.
    pub fn scan(&self, hub: Option<&Path>) -> Result<ScanReport> {
        let root = hub_root(hub, &ProcessEnvironment)?;
        let hub = root
            .to_str()
            .expect("hub_root answers only with what is text")
            .to_owned();
        let known = self.with_index(|index| index.stamps(&hub))?;
        let (changes, report) = scan::scan(&root, &known)?;
        self.with_index(|index| index.apply(&hub, &changes))?;
        Ok(report)
    }

    /// The models that the last scans found and that are still there, by size of their weights,
    /// the smallest first.
    ///
    /// # Errors
    /// [`Kind::Locked`] or [`Kind::Io`] when the database cannot be read.
    pub fn list(&self, options: &ListOptions) -> Result<Vec<ModelRecord>> {
        let mut entries = self.with_index(|index| index.entries())?;
        entries.retain(|entry| is_there(&entry.record.path));
        Ok(list::list(entries, options))
    }

    /// The one model that `query` means: the exact id of a repository, else part of one, else
    /// part of a model type. Of its revisions, the one that `refs/main` names if that is
    /// complete, else the newest complete one. Drafters are never meant.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when nothing that can be loaded matches; [`Kind::Ambiguous`] when
    /// several models do: the error's detail has their ids, one a line;
    /// [`Kind::InvalidArgument`] for an empty query; [`Kind::Locked`] or [`Kind::Io`] when the
    /// database cannot be read.
    pub fn resolve(&self, query: &str) -> Result<ModelRecord> {
        let mut models = self.with_index(|index| index.models_by_id(query))?;
        models.retain(|model| is_there(&model.path));
        if models.is_empty() {
            models = self.with_index(|index| index.models_by_part(query))?;
            models.retain(|model| is_there(&model.path));
        }
        let at = resolve::resolve(query, &models)?;
        let path = models[at].path.as_str();
        let entry = self.with_index(|index| index.entry(path))?;
        let Some(Entry { mut record, .. }) = entry else {
            // Another process's scan has just removed it.
            return Err(Error::new(
                Kind::NotFound,
                format!("no model matches: {query}"),
            ));
        };
        let siblings: Vec<&resolve::Model> = models
            .iter()
            .filter(|model| model.repo == models[at].repo)
            .collect();
        let candidates: Vec<_> = siblings.iter().map(|model| model.candidate()).collect();
        record.is_canonical =
            canonical::canonical(&candidates).is_some_and(|at| siblings[at].path == path);
        Ok(record)
    }

    /// Runs one operation on the database. When SQLite finds it damaged, or another version of
    /// the library has changed its tables meanwhile, the operation is run again on a new one.
    fn with_index<T>(&self, operation: impl Fn(&mut Index) -> rusqlite::Result<T>) -> Result<T> {
        let mut slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = |slot: &mut Option<Index>| -> Result<T, Failure> {
            let index = match slot {
                Some(index) => index,
                None => slot.insert(Index::open(&self.path)?),
            };
            operation(index).map_err(|error| Failure::of(&self.path, error))
        };
        match attempt(&mut slot) {
            Ok(value) => return Ok(value),
            Err(Failure::Other(error)) => return Err(error),
            Err(Failure::Tables(_)) => *slot = None,
            Err(Failure::Damage(error)) => {
                log::warn!("a new registry replaces a damaged one: {error}");
                *slot = None;
                index::set_aside(&self.path)?;
            }
        }
        attempt(&mut slot).map_err(Failure::into_error)
    }
}

fn is_there(path: &str) -> bool {
    Path::new(path).is_dir()
}
