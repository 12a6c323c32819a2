//! The prompt cache: states of token sequences that are found again, in memory, on disk, and after
//! a restart.
//!
//! The rooms below: `tree` finds by tokens, `policy` decides what serves a prompt, `shelf` holds
//! the states that nobody uses, `in_use` knows where the others are, `disk` keeps files,
//! `transfer` moves bytes between files and the engine, `keeper` does in the background what
//! nobody should wait for.

mod disk;
mod in_use;
mod interchange;
mod keeper;
mod namespace;
mod policy;
mod remembered;
mod responses;
mod shelf;
mod statistics;
mod transfer;
mod tree;

use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread::JoinHandle,
    time::{Duration, Instant},
};

pub use self::statistics::CacheStatistics;
use self::{
    disk::Disk,
    in_use::{Holder, InUse, Ticket},
    keeper::Work,
    policy::{Candidate, Prompt, Reuse, decide, usable},
    remembered::Remembered,
    shelf::{Fact, Shelf, Taken},
    statistics::Counters,
};
pub(crate) use self::{namespace::Namespace, responses::ResponseStore};
use crate::{
    engine::engine,
    error::{Error, Kind, Result},
    model::{Fields, Kv, LoadedModel, Model, Running, Source, State},
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

/// What callers and the background thread share.
struct Core {
    options: CacheOptions,
    disk: Option<(Disk, Remembered)>,
    responses: ResponseStore,
    content: Mutex<Content>,
    /// Told of each change of the work in `content`.
    work_changed: Condvar,
    process: u32,
}

/// A state's layers.
type Layers = shelf::Layers<transfer::Layers>;

/// Everything under the one lock, which is never held while somebody waits for the engine, for a
/// file or for a callback.
struct Content {
    shelf: Shelf<transfer::Layers>,
    in_use: InUse,
    known: HashMap<Namespace, Known>,
    work: Work,
    counters: Counters,
}

/// What a namespace stands for.
struct Known {
    name: String,
    model: Weak<LoadedModel>,
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
                let disk = Disk::open(&on_disk.dir, on_disk.bytes, on_disk.verify)?;
                let remembered = Remembered::new(&on_disk.dir);
                Some((disk, remembered))
            }
        };
        let core = Arc::new(Core {
            options,
            disk,
            responses: ResponseStore::new(),
            content: Mutex::new(Content {
                shelf: Shelf::new(),
                in_use: InUse::new(),
                known: HashMap::new(),
                work: Work::default(),
                counters: Counters::default(),
            }),
            work_changed: Condvar::new(),
            process: std::process::id(),
        });
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
        core.put(space, state);
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
                match core.fork_now(model, &running, token_count)? {
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
        let reusable = all_but_last(tokens);
        let disk_prefix = core.disk_prefix(&space, reusable);
        let content = core.content();
        let prompt = Prompt {
            namespace: &space,
            token_count: tokens.len(),
        };
        let on_shelf = content
            .shelf
            .candidates(&space, reusable)
            .map(|fact| (usable(prompt, &on_shelf(&fact)), Some(fact.place)));
        let in_use = content
            .in_use
            .find(&space, reusable)
            .map(|(_, common)| (common, None));
        let best = on_shelf.chain(in_use).max_by_key(|(usable, _)| *usable);
        let (memory_prefix, place) = best.unwrap_or((0, None));
        let layers = place.and_then(|place| content.shelf.layers(place));
        Ok(Match {
            memory_prefix,
            disk_prefix,
            bytes: layers.map_or(0, |layers| layers.bytes),
        })
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

    /// Returns when everything that is to be on disk is there. Without a disk at once.
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
        let (before, taken) = {
            let mut content = core.content();
            let before = content.shelf.bytes();
            let taken = content.shelf.shrink_to(memory_bytes, None);
            content.counters.evictions += taken.len() as u64;
            (before, core.see_off(&mut content, taken))
        };
        core.evict(taken);
        let freed = before.saturating_sub(core.content().shelf.bytes());
        core.wait_for_spills()?;
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

    /// What a generation can start from, and the mark under which others find it meanwhile.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] in a forked process.
    pub(crate) fn begin(
        &self,
        model: &Model,
        namespace: &str,
        prompt: &[u32],
        running: &Arc<Running>,
    ) -> Result<(Source, Session)> {
        let core = self.core()?;
        let mut session = Session {
            cache: self.clone(),
            prompt: prompt.to_vec(),
            running: Arc::clone(running),
            marked: None,
            restored: 0,
        };
        let space = match core.namespace(model, namespace) {
            Ok(space) => space,
            Err(error) => {
                log::warn!("the cache is passed over: {error}");
                return Ok((Source::default(), session));
            }
        };
        let mark = |content: &mut Content| {
            let holder = Holder::Generation(Arc::downgrade(running));
            (space, content.in_use.add(&space, prompt, holder))
        };
        let (found, marked) = core.find_and(&space, model, prompt, mark);
        session.marked = Some(marked);
        let source = match found {
            Found::Nothing => Source::default(),
            Found::State { state, .. } => Source::State(state),
            Found::Running(running, token_count) => Source::Running(running, token_count),
            Found::Restored(state) => {
                session.restored = state.tokens.len();
                Source::State(state)
            }
        };
        Ok((source, session))
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
            // A callback of the library may drop the cache on that very thread.
            if keeper.thread().id() != std::thread::current().id() {
                let _ = keeper.join();
            }
        }
    }
}

/// A generation's use of a cache, from finding what it starts from to putting what is left.
pub(crate) struct Session {
    cache: Cache,
    prompt: Vec<u32>,
    running: Arc<Running>,
    marked: Option<(Namespace, Ticket)>,
    restored: usize,
}

impl Session {
    /// Tokens of the state that were read from disk.
    pub(crate) fn restored_tokens(&self) -> usize {
        self.restored
    }

    /// Puts what is left.
    pub(crate) fn end(mut self, state: State) {
        let marked = self.unmark();
        if let Some(namespace) = marked
            && !state.tokens.is_empty()
        {
            self.cache.0.core.put(namespace, state);
        }
    }

    fn unmark(&mut self) -> Option<Namespace> {
        let (namespace, ticket) = self.marked.take()?;
        let mut content = self.cache.0.core.content();
        content.in_use.remove(&namespace, &self.prompt, ticket);
        Some(namespace)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unmark();
        // For those who wait for a generation that has not come to run.
        self.running.is_over();
    }
}

/// What a look-up came to.
enum Found {
    Nothing,
    State {
        state: State,
        /// Whether it has left the shelf.
        moved: bool,
    },
    Running(Arc<Running>, usize),
    Restored(State),
}

impl Found {
    fn token_count(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::State { state, .. } | Self::Restored(state) => state.tokens.len(),
            Self::Running(_, token_count) => *token_count,
        }
    }
}

impl Core {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespace of what `model` computes for those who say `name`.
    fn namespace(&self, model: &Model, name: &str) -> Result<Namespace> {
        let memory = self.disk.as_ref().map(|(_, remembered)| remembered as _);
        let mut fields = Fields::new();
        fields.add("format", FORMAT);
        fields.add("model", &model.0.identity.hash(memory)?);
        fields.add("element bytes", &model.0.shape.element_bytes.to_le_bytes());
        fields.add("namespace", name.as_bytes());
        let namespace = Namespace(fields.finish());
        let mut content = self.content();
        let known = content.known.entry(namespace).or_insert_with(|| Known {
            name: name.to_owned(),
            model: Weak::new(),
        });
        if known.model.strong_count() == 0 {
            known.model = Arc::downgrade(&model.0);
        }
        Ok(namespace)
    }

    fn disk_prefix(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let disk = self.disk.as_ref();
        disk.map_or(0, |(disk, _)| disk.prefix(namespace, tokens))
    }

    fn find(&self, namespace: &Namespace, model: &Model, prompt: &[u32]) -> Found {
        self.find_and(namespace, model, prompt, |_| ()).0
    }

    /// Finds what serves `prompt`. `mark` is called once, in the moment in which a state in memory
    /// leaves the shelf or a look-up turns to the disk, so that no other look-up falls in between.
    fn find_and<T>(
        &self,
        namespace: &Namespace,
        model: &Model,
        prompt: &[u32],
        mark: impl FnOnce(&mut Content) -> T,
    ) -> (Found, T) {
        let reusable = all_but_last(prompt);
        let disk_prefix = self.disk_prefix(namespace, reusable);
        let mut content = self.content();
        let mut found = content.find(namespace, prompt, disk_prefix);
        let marked = mark(&mut content);
        while let Decided::OnDisk(token_count) = found {
            drop(content);
            match self.restore(namespace, model, &reusable[..token_count]) {
                Some(state) => {
                    self.content().counters.hit(state.tokens.len());
                    return (Found::Restored(state), marked);
                }
                None => {
                    // Less where a file was to blame; else reading it again would fail again.
                    let disk_prefix = match self.disk_prefix(namespace, reusable) {
                        shorter if shorter < token_count => shorter,
                        _ => 0,
                    };
                    content = self.content();
                    found = content.find_unmarked(namespace, prompt, disk_prefix);
                }
            }
        }
        let found = match found {
            Decided::Found(found) => found,
            Decided::OnDisk(_) => unreachable!("the loop ends with another"),
        };
        if found.token_count() < reusable.len() {
            self.has_missed(&mut content);
        }
        content.counters.found(&found);
        (found, marked)
    }

    /// Reads a state from disk, or says in the log why not.
    fn restore(&self, namespace: &Namespace, model: &Model, tokens: &[u32]) -> Option<State> {
        let (disk, _) = self.disk.as_ref()?;
        let started = Instant::now();
        let restored = engine().and_then(|engine| {
            let open = || disk.open_chain(namespace, tokens, tokens.len());
            transfer::restore(engine, open, &model.0, tokens)
        });
        match restored {
            Ok(None) => None,
            Ok(Some(state)) => {
                self.content().counters.restored(started.elapsed());
                Some(state)
            }
            Err(error) => {
                log::warn!("a cached state cannot be restored: {error}");
                None
            }
        }
    }

    /// What a generation holds of a state right now, for a caller that does not wait for it.
    fn fork_now(
        &self,
        model: &Model,
        running: &Arc<Running>,
        token_count: usize,
    ) -> Result<Option<State>> {
        let (model, running) = (Arc::clone(&model.0), Arc::clone(running));
        engine()?.run(move |mlx| {
            let (layers, token_count) = running.borrow_now(token_count, mlx);
            drop(model);
            (token_count > 0)
                .then(|| State::new(running.context()[..token_count].to_vec(), layers, mlx))
        })
    }

    /// Puts a state, and evicts what must make room for it.
    fn put(&self, namespace: Namespace, state: State) {
        let Some(layers) = layers_of(&state) else {
            return;
        };
        let now = Instant::now();
        let taken = {
            let mut content = self.content();
            if layers.bytes > self.options.memory_bytes {
                content.counters.oversized += 1;
                let newcomer = Taken {
                    namespace,
                    tokens: state.tokens,
                    layers,
                };
                self.see_off(&mut content, vec![newcomer])
            } else {
                let place = content.shelf.put(&namespace, &state.tokens, layers, now);
                if let Some(on_disk) = &self.options.disk {
                    let due = now + on_disk.write_after;
                    content.shelf.set_due(place, Some(due));
                    self.work_changed.notify_all();
                }
                let cap = self.options.memory_bytes;
                let taken = content.shelf.shrink_to(cap, Some(place));
                content.counters.evictions += taken.len() as u64;
                self.see_off(&mut content, taken)
            }
        };
        self.evict(taken);
    }

    /// Marks entries that leave the shelf, so that they are found until they are on disk.
    fn see_off(&self, content: &mut Content, taken: Vec<Taken<transfer::Layers>>) -> Vec<Leaving> {
        let mark = |taken: Taken<transfer::Layers>| {
            let state = State {
                tokens: taken.tokens,
                layers: Some(taken.layers.layers),
                bytes: taken.layers.bytes,
                trims_to: taken.layers.trims_to,
            };
            let ticket = self.disk.is_some().then(|| {
                let holder = Holder::Writer(state.clone());
                content.in_use.add(&taken.namespace, &state.tokens, holder)
            });
            Leaving {
                namespace: taken.namespace,
                state,
                ticket,
            }
        };
        taken.into_iter().map(mark).collect()
    }

    /// Shows entries that have left the shelf to the caller's hook, then hands them to the writer.
    fn evict(&self, leaving: Vec<Leaving>) {
        for one in leaving {
            let owner = self.content().owner(&one.namespace);
            if let (Some(on_evict), Some((name, model))) = (&self.options.on_evict, owner) {
                let kv = Arc::new(Kv::from_state(model, one.state.clone()));
                on_evict(&name, &kv);
            }
            if one.ticket.is_some() {
                self.enqueue(one);
            }
        }
    }
}

/// An entry that has left the shelf.
struct Leaving {
    namespace: Namespace,
    state: State,
    /// Where there is a disk.
    ticket: Option<Ticket>,
}

impl Content {
    fn owner(&self, namespace: &Namespace) -> Option<(String, Arc<LoadedModel>)> {
        let known = self.known.get(namespace)?;
        Some((known.name.clone(), known.model.upgrade()?))
    }

    /// Decides what serves `prompt`, and takes it.
    fn find(&mut self, namespace: &Namespace, prompt: &[u32], disk_prefix: usize) -> Decided {
        let reusable = all_but_last(prompt);
        let in_use = self.in_use.find(namespace, reusable);
        self.choose(namespace, prompt, in_use, disk_prefix)
    }

    /// As [`Self::find`], when a mark of the caller's own is there already.
    fn find_unmarked(
        &mut self,
        namespace: &Namespace,
        prompt: &[u32],
        disk_prefix: usize,
    ) -> Decided {
        self.choose(namespace, prompt, None, disk_prefix)
    }

    fn choose(
        &mut self,
        namespace: &Namespace,
        prompt: &[u32],
        in_use: Option<(Source, usize)>,
        disk_prefix: usize,
    ) -> Decided {
        let reusable = all_but_last(prompt);
        let facts: Vec<Fact> = self.shelf.candidates(namespace, reusable).collect();
        let mut candidates: Vec<Candidate<'_>> = facts.iter().map(on_shelf).collect();
        let elsewhere = |place, common| Candidate {
            namespace,
            place,
            common,
            // No kind of layer is there yet that could not go back.
            token_count: common,
            trims_to: 0,
        };
        candidates.push(elsewhere(policy::Place::Disk, disk_prefix));
        if let Some((_, common)) = &in_use {
            candidates.push(elsewhere(policy::Place::InUse, *common));
        }
        let prompt = Prompt {
            namespace,
            token_count: prompt.len(),
        };
        let now = Instant::now();
        let state = |tokens: &[u32], layers: Layers| State {
            tokens: tokens.to_vec(),
            layers: Some(layers.layers),
            bytes: layers.bytes,
            trims_to: layers.trims_to,
        };
        let found = match decide(prompt, &candidates) {
            Reuse::Move { index } => {
                self.shelf
                    .take(facts[index].place)
                    .map(|taken| Found::State {
                        state: state(&taken.tokens, taken.layers),
                        moved: true,
                    })
            }
            Reuse::Fork { index, token_count } => {
                let place = facts[index].place;
                self.shelf.touch(place, now);
                self.shelf.layers(place).map(|layers| Found::State {
                    state: state(&reusable[..token_count], layers),
                    moved: false,
                })
            }
            Reuse::Borrow { token_count, .. } => in_use.map(|(source, _)| match source {
                Source::State(state) => Found::State {
                    state: state.truncated(token_count),
                    moved: false,
                },
                Source::Running(running, _) => Found::Running(running, token_count),
            }),
            Reuse::Restore { token_count, .. } => return Decided::OnDisk(token_count),
            Reuse::None => None,
        };
        Decided::Found(found.unwrap_or(Found::Nothing))
    }
}

/// What a look-up decided on.
enum Decided {
    Found(Found),
    /// To be read: so many tokens.
    OnDisk(usize),
}

/// Changes whenever states are computed or stored in another way.
const FORMAT: &[u8] = b"full kv 1";

/// What of a prompt may be reused: the last token must be run, to get at the next.
fn all_but_last(prompt: &[u32]) -> &[u32] {
    prompt.split_last().map_or(&[], |(_, rest)| rest)
}

fn on_shelf(fact: &Fact) -> Candidate<'_> {
    Candidate {
        namespace: &fact.place.namespace,
        place: policy::Place::Memory,
        common: fact.common,
        token_count: fact.token_count,
        trims_to: fact.trims_to,
    }
}

fn layers_of(state: &State) -> Option<Layers> {
    let layers = state.layers.as_ref()?;
    Some(shelf::Layers {
        layers: Arc::clone(layers),
        bytes: state.bytes,
        trims_to: state.trims_to,
    })
}
