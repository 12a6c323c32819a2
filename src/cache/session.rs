//! A generation's use of a cache.

use std::sync::Arc;

use super::{
    Cache, Namespace,
    in_use::{Holder, Ticket},
    shared::{Content, Core, Found, Owner},
};
use crate::{
    error::Result,
    model::{Model, Running, Source, State},
};

impl Cache {
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
            owner: Core::owner(model, namespace),
            marked: None,
            borrows: false,
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
            Found::Running(running, token_count) => {
                session.borrows = true;
                Source::Running(running, token_count)
            }
            Found::Restored(state) => {
                session.restored = state.tokens.len();
                Source::State(state)
            }
        };
        Ok((source, session))
    }
}

/// From finding what it starts from to putting what is left.
pub(crate) struct Session {
    cache: Cache,
    prompt: Vec<u32>,
    running: Arc<Running>,
    owner: Owner,
    marked: Option<(Namespace, Ticket)>,
    /// Whether how much was found is to be counted at the end.
    borrows: bool,
    restored: usize,
}

impl Session {
    /// Tokens of the state that were read from disk.
    pub(crate) fn restored_tokens(&self) -> usize {
        self.restored
    }

    /// Puts what is left of a generation that needed not run `reused` tokens.
    pub(crate) fn end(mut self, state: State, reused: usize) {
        if self.borrows {
            self.cache.0.core.content().counters.found(reused);
        }
        let marked = self.unmark();
        if let Some(namespace) = marked
            && !state.tokens.is_empty()
        {
            self.cache.0.core.put(namespace, &self.owner, state);
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
