//! What callers and the background thread share: finding a state, putting one, evicting others.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    CacheOptions, Match, Namespace, ResponseStore,
    disk::Disk,
    in_use::{Holder, InUse, Ticket},
    keeper::{Patience, Work},
    owners,
    policy::{self, Candidate, Prompt, Reuse, decide, usable},
    remembered::Remembered,
    shelf::{self, Fact, Shelf, Taken},
    statistics::Counters,
    transfer,
};
use crate::{
    engine::engine,
    error::Result,
    model::{Fields, Kv, LoadedModel, Model, Running, Source, State},
};

/// The parts of a cache.
pub(super) struct Core {
    pub(super) options: CacheOptions,
    pub(super) disk: Option<(Disk, Remembered)>,
    pub(super) responses: ResponseStore,
    pub(super) content: Mutex<Content>,
    /// Told of each change of the work in `content`.
    pub(super) work_changed: Condvar,
    pub(super) process: u32,
}

/// A state's layers.
type Layers = shelf::Layers<transfer::Layers>;

/// Everything under the one lock, which is never held while somebody waits for the engine, for a
/// file or for a callback.
pub(super) struct Content {
    pub(super) shelf: Shelf<transfer::Layers>,
    pub(super) in_use: InUse,
    owners: owners::Owners<LoadedModel>,
    pub(super) work: Work,
    pub(super) counters: Counters,
}

/// Who put the states of a namespace.
pub(super) type Owner = owners::Owner<LoadedModel>;

/// What a look-up came to.
pub(super) enum Found {
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
    pub(super) fn token_count(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::State { state, .. } | Self::Restored(state) => state.tokens.len(),
            Self::Running(_, token_count) => *token_count,
        }
    }
}

impl Core {
    pub(super) fn new(options: CacheOptions, disk: Option<(Disk, Remembered)>) -> Self {
        Self {
            options,
            disk,
            responses: ResponseStore::new(),
            content: Mutex::new(Content {
                shelf: Shelf::new(),
                in_use: InUse::new(),
                owners: owners::Owners::new(),
                work: Work::default(),
                counters: Counters::default(),
            }),
            work_changed: Condvar::new(),
            process: std::process::id(),
        }
    }

    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespace of what `model` computes for those who say `name`.
    pub(super) fn namespace(&self, model: &Model, name: &str) -> Result<Namespace> {
        let memory = self.disk.as_ref().map(|(_, remembered)| remembered as _);
        let mut fields = Fields::new();
        fields.add("format", FORMAT);
        fields.add("model", &model.0.identity.hash(memory)?);
        fields.add("element bytes", &model.0.shape.element_bytes.to_le_bytes());
        fields.add("namespace", name.as_bytes());
        Ok(Namespace(fields.finish()))
    }

    /// Who puts what `model` computes under a name.
    pub(super) fn owner(model: &Model, name: &str) -> Owner {
        Owner {
            name: name.into(),
            model: Arc::downgrade(&model.0),
        }
    }

    pub(super) fn disk_prefix(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let disk = self.disk.as_ref();
        disk.map_or(0, |(disk, _)| disk.prefix(namespace, tokens))
    }

    /// How much of `tokens` could be reused. Changes nothing.
    pub(super) fn peek(&self, space: &Namespace, tokens: &[u32]) -> Match {
        let reusable = all_but_last(tokens);
        let disk_prefix = self.disk_prefix(space, reusable);
        let content = self.content();
        let prompt = Prompt {
            namespace: space,
            token_count: tokens.len(),
        };
        let on_shelf = content
            .shelf
            .candidates(space, reusable)
            .map(|fact| (usable(prompt, &on_shelf(&fact)), Some(fact.place)));
        let in_use = content
            .in_use
            .find(space, reusable)
            .map(|(_, common)| (common, None));
        let best = on_shelf.chain(in_use).max_by_key(|(usable, _)| *usable);
        let (memory_prefix, place) = best.unwrap_or((0, None));
        let layers = place.and_then(|place| content.shelf.layers(place));
        Match {
            memory_prefix,
            disk_prefix,
            bytes: layers.map_or(0, |layers| layers.bytes),
        }
    }

    pub(super) fn find(&self, namespace: &Namespace, model: &Model, prompt: &[u32]) -> Found {
        self.find_and(namespace, model, prompt, |_| ()).0
    }

    /// Finds what serves `prompt`, and counts it unless it is borrowed: then it shows later how much
    /// there is. `mark` is called once, in the moment in which a state in memory
    /// leaves the shelf or a look-up turns to the disk, so that no other look-up falls in between.
    pub(super) fn find_and<T>(
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
                    self.content().counters.found(state.tokens.len());
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
        if !matches!(found, Found::Running(..)) {
            content.counters.found(found.token_count());
        }
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
    pub(super) fn fork_now(
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
    pub(super) fn put(&self, namespace: Namespace, owner: &Owner, state: State) {
        let Some(layers) = layers_of(&state) else {
            return;
        };
        let now = Instant::now();
        let taken = {
            let mut content = self.content();
            if self.options.on_evict.is_some() {
                content.note(namespace, owner);
            }
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
                    let due = now.checked_add(on_disk.write_after);
                    let due = due.unwrap_or(now + NEVER);
                    content.shelf.set_due(place, Some(due));
                    self.work_changed.notify_all();
                }
                let cap = self.options.memory_bytes;
                let taken = content.shelf.shrink_to(cap, Some(place));
                content.counters.evictions += taken.len() as u64;
                self.see_off(&mut content, taken)
            }
        };
        self.evict(taken, Patience::GivesUpTheOldest);
    }

    /// Marks entries that leave the shelf, so that they are found until they are on disk.
    pub(super) fn see_off(
        &self,
        content: &mut Content,
        taken: Vec<Taken<transfer::Layers>>,
    ) -> Vec<Leaving> {
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
                owner: content.owners.of(&taken.namespace),
                namespace: taken.namespace,
                state,
                ticket,
            }
        };
        taken.into_iter().map(mark).collect()
    }

    /// Shows entries that have left the shelf to the caller's hook, then hands them to the writer.
    pub(super) fn evict(&self, leaving: Vec<Leaving>, patience: Patience) {
        let mut panicked = None;
        for one in leaving {
            let shown = catch_unwind(AssertUnwindSafe(|| self.show(&one)));
            panicked = panicked.or(shown.err());
            if one.ticket.is_some() {
                self.enqueue(one, patience);
            }
        }
        // Not before all of them are on their way: their marks hold them.
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    fn show(&self, leaving: &Leaving) {
        if let (Some(on_evict), Some(owner)) = (&self.options.on_evict, &leaving.owner)
            && let Some(model) = owner.model.upgrade()
        {
            let kv = Arc::new(Kv::from_state(model, leaving.state.clone()));
            on_evict(&owner.name, &kv);
        }
    }
}

/// An entry that has left the shelf.
pub(super) struct Leaving {
    /// Where there is a hook that is to know.
    owner: Option<Owner>,
    pub(super) namespace: Namespace,
    pub(super) state: State,
    /// Where there is a disk.
    pub(super) ticket: Option<Ticket>,
}

impl Content {
    fn note(&mut self, namespace: Namespace, owner: &Owner) {
        let Self { owners, shelf, .. } = self;
        owners.note(namespace, owner, shelf.namespace_count(), |namespace| {
            shelf.has(namespace)
        });
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

/// Longer than any process lives.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

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
