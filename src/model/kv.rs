//! The KV state of one token sequence, as callers hold it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx_rs::transforms;

use super::{LayerCache, LoadedModel, Model, Running};
use crate::{
    engine::{Mlx, Owned},
    error::{Error, Kind, Result},
};

/// The state of a sequence: continue from it instead of running its tokens again. It keeps its
/// model alive. Nothing here waits for the engine: forks share memory until one of them grows,
/// and a trim takes effect when the state is used next.
pub struct Kv {
    model: Arc<LoadedModel>,
    slot: Mutex<Slot>,
}

enum Slot {
    Idle(State),
    /// With the generation, once it has one.
    Busy(Option<Arc<Running>>),
    Poisoned,
}

/// What another sequence can start from.
pub(crate) enum Source {
    /// A state that is there.
    State(State),
    /// So many tokens of one that a generation extends.
    Running(Arc<Running>, usize),
}

impl Default for Source {
    fn default() -> Self {
        Self::State(State::default())
    }
}

/// Tokens, and layers that have seen at least these.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) tokens: Vec<u32>,
    /// None before the first use.
    pub(crate) layers: Option<Arc<Owned<Vec<LayerCache>>>>,
    /// Bytes of the layers' buffers.
    pub(crate) bytes: u64,
    /// The fewest tokens to which the layers can go back.
    pub(crate) trims_to: usize,
}

impl State {
    /// Puts away layers that have seen `tokens`, and maybe more after them.
    ///
    /// # Panics
    /// When a layer has seen fewer: continuing from such a state would give wrong tokens.
    pub(crate) fn new(tokens: Vec<u32>, layers: Vec<LayerCache>, mlx: &Mlx) -> Self {
        assert!(
            layers.iter().all(|layer| layer.offset() >= tokens.len()),
            "a layer has not seen all tokens of its state"
        );
        // A layer that was trimmed holds the buffers that it was cut from until it is computed.
        if let Err(error) = transforms::async_eval(layers.iter().flat_map(LayerCache::arrays)) {
            log::warn!("a state cannot be computed: {error}");
        }
        Self {
            tokens,
            bytes: layers.iter().map(|layer| layer.bytes() as u64).sum(),
            trims_to: layers.iter().map(LayerCache::trims_to).max().unwrap_or(0),
            layers: Some(Arc::new(Owned::new(layers, mlx))),
        }
    }

    /// Its first tokens, at most so many.
    #[must_use]
    pub(crate) fn truncated(mut self, token_count: usize) -> Self {
        self.tokens.truncate(token_count);
        self
    }

    /// Its layers for another sequence, and of how many tokens they are. They share their buffers
    /// until one side writes.
    pub(super) fn lend(&self, mlx: &Mlx) -> (Vec<LayerCache>, usize) {
        let Some(layers) = &self.layers else {
            return (Vec::new(), 0);
        };
        let mut layers = layers.get(mlx).clone();
        for layer in &mut layers {
            layer.trim_to(self.tokens.len());
        }
        (layers, self.tokens.len())
    }

    /// Whether other states hold the same layers: the next to write copies them.
    pub(crate) fn is_shared(&self) -> bool {
        self.layers
            .as_ref()
            .is_some_and(|layers| Arc::strong_count(layers) > 1)
    }

    /// The layers of exactly these tokens, for the engine to go on with. Moved where nobody
    /// shares them.
    pub(crate) fn into_layers(self, model: &LoadedModel, mlx: &Mlx) -> Vec<LayerCache> {
        let Some(layers) = self.layers else {
            return model.network(mlx).new_cache();
        };
        let mut layers = match Arc::try_unwrap(layers) {
            Ok(layers) => layers.into_inner(mlx),
            Err(shared) => shared.get(mlx).clone(),
        };
        for layer in &mut layers {
            layer.trim_to(self.tokens.len());
        }
        layers
    }
}

impl Kv {
    /// The state of no tokens.
    pub fn new(model: &Model) -> Self {
        Self::from_state(Arc::clone(&model.0), State::default())
    }

    pub(crate) fn from_state(model: Arc<LoadedModel>, state: State) -> Self {
        Self {
            model,
            slot: Mutex::new(Slot::Idle(state)),
        }
    }

    /// Another state of the same tokens.
    ///
    /// # Errors
    /// [`Kind::Busy`] while a generation uses it.
    pub fn fork(&self) -> Result<Self> {
        let state = self.with_idle(|state| Ok(state.clone()))?;
        Ok(Self::from_state(Arc::clone(&self.model), state))
    }

    /// Goes back to the first `token_count` tokens.
    ///
    /// # Errors
    /// [`Kind::Busy`] while a generation uses it, [`Kind::InvalidArgument`] when it has fewer
    /// tokens. The state is unchanged then.
    pub fn trim(&self, token_count: usize) -> Result<()> {
        self.with_idle(|state| {
            if token_count > state.tokens.len() {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    format!(
                        "a kv of {} tokens cannot be trimmed to {token_count}",
                        state.tokens.len()
                    ),
                ));
            }
            state.tokens.truncate(token_count);
            Ok(())
        })
    }

    /// The tokens that the state has seen.
    ///
    /// # Errors
    /// [`Kind::Busy`] while a generation uses it.
    pub fn tokens(&self) -> Result<Vec<u32>> {
        self.with_idle(|state| Ok(state.tokens.clone()))
    }

    /// Bytes of its buffers, room to grow included. What forks share counts for each of them.
    ///
    /// # Errors
    /// [`Kind::Busy`] while a generation uses it.
    pub fn bytes(&self) -> Result<u64> {
        self.with_idle(|state| Ok(state.bytes))
    }

    /// Whether it was made from `model`.
    pub(crate) fn is_of(&self, model: &Model) -> bool {
        Arc::ptr_eq(&self.model, &model.0)
    }

    /// The model that it was made from.
    pub(crate) fn model(&self) -> Model {
        Model(Arc::clone(&self.model))
    }

    /// A copy of its state, which shares its memory.
    ///
    /// # Errors
    /// [`Kind::Busy`] while a generation uses it.
    pub(crate) fn state(&self) -> Result<State> {
        self.with_idle(|state| Ok(state.clone()))
    }

    /// What another sequence can start from, without waiting for anybody. None when it is
    /// unusable.
    pub(crate) fn source(&self) -> Option<Source> {
        match &*self.slot() {
            Slot::Idle(state) => Some(Source::State(state.clone())),
            Slot::Busy(Some(running)) => {
                let running = Arc::clone(running);
                let token_count = running.context().len();
                Some(Source::Running(running, token_count))
            }
            Slot::Busy(None) | Slot::Poisoned => None,
        }
    }

    /// Takes the state for exclusive use, until [`Lease::give_back`].
    pub(crate) fn lease(&self) -> Result<Lease<'_>> {
        let mut slot = self.slot();
        match std::mem::replace(&mut *slot, Slot::Busy(None)) {
            Slot::Idle(state) => Ok(Lease {
                kv: self,
                state: Some(state),
            }),
            other => {
                let error = other.error();
                *slot = other;
                Err(error)
            }
        }
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        match &mut *self.slot() {
            Slot::Idle(state) => work(state),
            other => Err(other.error()),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Kv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kv").finish_non_exhaustive()
    }
}

impl Slot {
    fn error(&self) -> Error {
        match self {
            Self::Poisoned => Error::new(
                Kind::Poisoned,
                "an earlier failure left the kv unusable: free it",
            ),
            Self::Busy(_) | Self::Idle(_) => {
                Error::new(Kind::Busy, "the kv is in use by a generation")
            }
        }
    }
}

/// Exclusive use of a [`Kv`]'s state. Dropped while the state is away, it leaves the kv poisoned.
pub(crate) struct Lease<'a> {
    kv: &'a Kv,
    state: Option<State>,
}

impl Lease<'_> {
    /// Tokens of the state.
    pub(crate) fn token_count(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.tokens.len())
    }

    /// The state, to be given back.
    pub(crate) fn take(&mut self) -> State {
        self.state.take().unwrap_or_default()
    }

    /// Says which generation has the state.
    pub(crate) fn is_run_by(&mut self, running: &Arc<Running>) {
        *self.kv.slot() = Slot::Busy(Some(Arc::clone(running)));
    }

    /// Makes the kv usable again.
    pub(crate) fn give_back(&mut self, state: State) {
        self.state = Some(state);
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        *self.kv.slot() = match self.state.take() {
            Some(state) => Slot::Idle(state),
            None => Slot::Poisoned,
        };
    }
}
