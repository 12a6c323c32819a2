//! The prompt cache: states of token sequences that are found again, in memory, on disk, and after
//! a restart.
//!
//! The rooms below: `tree` finds by tokens, `policy` decides what serves a prompt, `shelf` holds
//! the states that nobody uses, `in_use` knows where the others are, `disk` keeps files,
//! `transfer` moves bytes between files and the engine. `shared` puts these together, `session` is
//! a generation's use of them, and `keeper` does in the background what nobody should wait for.

mod disk;
mod in_use;
mod interchange;
mod keeper;
mod namespace;
mod owners;
mod policy;
mod remembered;
mod responses;
mod session;
mod shared;
mod shelf;
mod statistics;
mod transfer;
mod tree;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

pub use self::statistics::CacheStatistics;
use self::{
    disk::Disk,
    in_use::Holder,
    keeper::Patience,
    remembered::Remembered,
    shared::{Core, Found},
};
pub(crate) use self::{namespace::Namespace, responses::ResponseStore, session::Session};
use crate::{
    engine::is_engine_thread,
    error::{Error, Kind, Result},
    escape::EscapedPath,
    model::{Kv, Model},
};

/// Told of each entry that is about to be evicted: the namespace that it was put under, and the
/// living state.
pub type OnEvict = Box<dyn Fn(&str, &Arc<Kv>) + Send + Sync>;

/// How to open a [`Cache`].
pub struct CacheOptions {
    /// Bytes of states to keep in memory. An entry larger than this goes to disk at once.
    pub memory_bytes: u64,
    /// Where to keep states on disk; None to keep none.
    pub disk: Option<DiskOptions>,
    /// Sees each entry before it is evicted, on the thread whose call evicts, and before it goes
    /// to disk. It cannot stop the eviction. [`Cache::clear`] does not call it, and neither does
    /// an entry that goes to disk for being idle, nor one whose model is gone.
    pub on_evict: Option<OnEvict>,
}

/// How to keep states on disk.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// The folder; it is made where there is none. Several processes may use one at a time.
    pub dir: PathBuf,
    /// Bytes that everything in the folder may take.
    pub bytes: u64,
    /// Whether to check what is read against its checksums.
    pub verify: bool,
    /// How long a state that was put rests before it is written.
    pub write_after: Duration,
    /// How long an entry may be unused before it goes from memory to disk; None: for ever.
    pub idle_after: Option<Duration>,
}

impl DiskOptions {
    /// The folder with the library's own numbers: 16 GiB, checksums, a second, ten minutes.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            bytes: 16 << 30,
            verify: true,
            write_after: Duration::from_secs(1),
            idle_after: Some(Duration::from_secs(600)),
        }
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            disk: None,
            on_evict: None,
        }
    }
}

/// How much of a prompt a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Tokens that need not be run thanks to a state in memory.
    pub memory_prefix: usize,
    /// Tokens that need not be run thanks to a state on disk.
    pub disk_prefix: usize,
    /// Bytes of the state in memory; 0 where none serves, or where somebody else extends it.
    pub bytes: u64,
}

/// States by the tokens that led to them. Clones share it. What is not on disk yet is written when
/// the last of them is dropped.
#[derive(Clone)]
pub struct Cache(Arc<Handle>);

/// Ends the background thread with the last clone.
struct Handle {
    core: Arc<Core>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Cache {
    /// Opens a cache, and the folder of one.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a folder that is none; what the system reports.
    pub fn open(options: CacheOptions) -> Result<Self> {
        let disk = match &options.disk {
            None => None,
            Some(on_disk) => {
                // Wherever the process goes later.
                let dir = std::path::absolute(&on_disk.dir)
                    .map_err(|error| Error::io(EscapedPath(&on_disk.dir), error))?;
                let disk = Disk::open(&dir, on_disk.bytes, on_disk.verify)?;
                let remembered = Remembered::new(&dir);
                Some((disk, remembered))
            }
        };
        let core = Arc::new(Core::new(options, disk));
        let keeper = keeper::start(&core)?;
        Ok(Self(Arc::new(Handle {
            core,
            keeper: Mutex::new(keeper),
        })))
    }

    /// Keeps a state under its tokens. The cache and `kv` share its memory until one of them is
    /// extended. A state larger than the cache goes to disk at once, or nowhere.
    ///
    /// # Errors
    /// [`Kind::Busy`] while a generation uses it, [`Kind::InvalidArgument`] for one without tokens.
    pub fn put(&self, namespace: &str, kv: &Kv) -> Result<()> {
        let core = self.core()?;
        let state = kv.state()?;
        if state.tokens.is_empty() {
            return Err(Error::new(
                Kind::InvalidArgument,
                "a state without tokens cannot be kept",
            ));
        }
        let model = kv.model();
        let space = core.namespace(&model, namespace)?;
        core.put(space, &Core::owner(&model, namespace), state);
        Ok(())
    }

    /// The state that saves most of running `tokens`, or None. It always leaves at least the last
    /// token to be run. A whole entry is handed over and no longer in the cache, until it is put
    /// again; of a longer one a shortened copy is made, which shares its memory.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for ids that the model does not have.
    pub fn take(&self, model: &Model, namespace: &str, tokens: &[u32]) -> Result<Option<Arc<Kv>>> {
        let core = self.core()?;
        model.0.check_tokens(tokens)?;
        let space = core.namespace(model, namespace)?;
        let (state, moved) = match core.find(&space, model, tokens) {
            Found::Nothing => return Ok(None),
            Found::State { state, moved } => (state, moved),
            Found::Restored(state) => (state, true),
            // Whoever takes it cannot wait for it: what is there is what the engine has by now.
            Found::Running(running, token_count) => {
                let state = core.fork_now(model, &running, token_count)?;
                let token_count = state.as_ref().map_or(0, |state| state.tokens.len());
                core.content().counters.found(token_count);
                match state {
                    Some(state) => (state, false),
                    None => return Ok(None),
                }
            }
        };
        let tokens = state.tokens.clone();
        let kv = Arc::new(Kv::from_state(Arc::clone(&model.0), state));
        if moved {
            let holder = Holder::Caller(Arc::downgrade(&kv));
            core.content().in_use.add(&space, &tokens, holder);
        }
        Ok(Some(kv))
    }

    /// How much of `tokens` could be reused. Changes nothing: neither what is evicted next nor the
    /// statistics.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for ids that the model does not have.
    pub fn peek(&self, model: &Model, namespace: &str, tokens: &[u32]) -> Result<Match> {
        let core = self.core()?;
        model.0.check_tokens(tokens)?;
        let space = core.namespace(model, namespace)?;
        Ok(core.peek(&space, tokens))
    }

    /// Whether exactly this sequence is an entry in memory, or all of it on disk. Changes nothing.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for ids that the model does not have.
    pub fn find_exact(&self, model: &Model, namespace: &str, tokens: &[u32]) -> Result<bool> {
        let core = self.core()?;
        model.0.check_tokens(tokens)?;
        let space = core.namespace(model, namespace)?;
        if tokens.is_empty() {
            return Ok(false);
        }
        let in_memory = core.content().shelf.find(&space, tokens).is_some();
        Ok(in_memory || core.disk_prefix(&space, tokens) == tokens.len())
    }

    /// Returns when everything that is to be on disk is there. Without a disk at once. What could
    /// not be written before is tried again.
    ///
    /// # Errors
    /// Why something could not be written: [`Kind::NoSpace`], [`Kind::Io`]. Everything else is.
    pub fn flush(&self) -> Result<()> {
        self.core()?.flush()
    }

    /// Brings the states in memory down to `memory_bytes`, the least recently used first, and
    /// returns when what left them is on disk: how many bytes they were.
    ///
    /// # Errors
    /// As [`Self::flush`]; the memory is free nevertheless.
    pub fn trim(&self, memory_bytes: u64) -> Result<u64> {
        let core = self.core()?;
        let failures = core.failures();
        let (before, taken) = {
            let mut content = core.content();
            let before = content.shelf.bytes();
            let taken = content.shelf.shrink_to(memory_bytes, None);
            content.counters.evictions += taken.len() as u64;
            (before, core.see_off(&mut content, taken))
        };
        core.evict(taken, Patience::Waits);
        let freed = before.saturating_sub(core.content().shelf.bytes());
        core.wait_for_spills(failures)?;
        Ok(freed)
    }

    /// Forgets all states in memory, and all conversations, without a word to anybody. What is on
    /// disk, or on its way there, stays.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] in a forked process.
    pub fn clear(&self) -> Result<()> {
        let core = self.core()?;
        core.responses.clear();
        let cleared = core.content().shelf.shrink_to(0, None);
        // Freed here, without the lock.
        drop(cleared);
        Ok(())
    }

    /// Removes all states on disk, those of other models and programs in the folder too; returns
    /// how many bytes they were.
    ///
    /// # Errors
    /// What the system reports.
    pub fn clear_disk(&self) -> Result<u64> {
        let core = self.core()?;
        match &core.disk {
            Some((disk, _)) => disk.clear(),
            None => Ok(0),
        }
    }

    /// The conversations that a later request may continue.
    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.0.core.responses
    }

    /// The numbers of an app's settings page.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] in a forked process.
    pub fn statistics(&self) -> Result<CacheStatistics> {
        let core = self.core()?;
        let facts = core.disk.as_ref().map(|(disk, _)| disk.facts());
        let facts = facts.unwrap_or_default();
        let content = core.content();
        Ok(CacheStatistics {
            entries: content.shelf.len() as u64,
            memory_bytes: content.shelf.bytes(),
            index_bytes: content.shelf.index_bytes() as u64,
            disk_bytes: facts.bytes,
            disk_files: facts.file_count as u64,
            pending_writes: content.work.pending() as u64,
            ..content.counters.snapshot()
        })
    }

    fn core(&self) -> Result<&Arc<Core>> {
        let core = &self.0.core;
        if core.process == std::process::id() {
            return Ok(core);
        }
        Err(Error::new(
            Kind::Unsupported,
            "this process was forked after the cache was opened: open one in the child",
        ))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut();
        let keeper = keeper.unwrap_or_else(PoisonError::into_inner).take();
        // In a fork there is no such thread.
        if self.core.process == std::process::id()
            && let Some(keeper) = keeper
        {
            self.core.stop_keeper();
            // A callback of the library may drop the cache on that very thread, or on the one
            // that it needs to write.
            if keeper.thread().id() != std::thread::current().id() && !is_engine_thread() {
                let _ = keeper.join();
            }
        }
    }
}
