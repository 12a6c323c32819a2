//! The states in memory that somebody has: a generation, a caller, the writer.

use std::{collections::HashMap, sync::Weak};

use super::{
    namespace::Namespace,
    tree::{NodeId, Tree, common_prefix},
};
use crate::model::{Kv, Running, Source, State};

/// Marks where states are that have left the shelf, so that who looks for one need not miss it.
pub(super) struct InUse {
    trees: HashMap<Namespace, Tree<Vec<(Ticket, Holder)>>>,
    next: u64,
    /// Marks that were added since those of gone states were last looked for.
    added: usize,
}

/// Names one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// Who has a state.
pub(super) enum Holder {
    /// A generation extends it.
    Generation(Weak<Running>),
    /// A caller took it out.
    Caller(Weak<Kv>),
    /// It waits to be written.
    Writer(State),
}

impl Holder {
    /// What can be started from, and how much of `tokens` it begins with. None when it is gone or
    /// just not to be had.
    fn source(&self, tokens: &[u32]) -> Option<(Source, usize)> {
        let source = match self {
            Self::Generation(running) => {
                let running = running.upgrade()?;
                let token_count = running.context().len();
                Source::Running(running, token_count)
            }
            Self::Caller(kv) => kv.upgrade()?.source()?,
            Self::Writer(state) => Source::State(state.clone()),
        };
        let common = match &source {
            Source::State(state) => common_prefix(&state.tokens, tokens),
            Source::Running(running, _) => common_prefix(running.context(), tokens),
        };
        (common > 0).then_some((source, common))
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::Generation(running) => running.strong_count() == 0,
            Self::Caller(kv) => kv.strong_count() == 0,
            Self::Writer(_) => false,
        }
    }
}

impl InUse {
    pub(super) fn new() -> Self {
        Self {
            trees: HashMap::new(),
            next: 0,
            added: 0,
        }
    }

    /// Marks a state of these tokens.
    pub(super) fn add(&mut self, namespace: &Namespace, tokens: &[u32], holder: Holder) -> Ticket {
        self.forget_the_gone();
        self.next += 1;
        let ticket = Ticket(self.next);
        let tree = self.trees.entry(*namespace).or_insert_with(Tree::new);
        match tree.find(tokens).and_then(|node| tree.get_mut(node)) {
            Some(holders) => holders.push((ticket, holder)),
            None => {
                tree.insert(tokens, vec![(ticket, holder)]);
            }
        }
        ticket
    }

    /// Takes a mark away.
    pub(super) fn remove(&mut self, namespace: &Namespace, tokens: &[u32], ticket: Ticket) {
        let Some(tree) = self.trees.get_mut(namespace) else {
            return;
        };
        let Some(node) = tree.find(tokens) else {
            return;
        };
        if let Some(holders) = tree.get_mut(node) {
            holders.retain(|(other, _)| *other != ticket);
            if holders.is_empty() {
                tree.remove(node);
            }
        }
        if tree.len() == 0 {
            self.trees.remove(namespace);
        }
    }

    /// The state that shares the most of `tokens`, and how much.
    pub(super) fn find(&self, namespace: &Namespace, tokens: &[u32]) -> Option<(Source, usize)> {
        let tree = self.trees.get(namespace)?;
        let walk = tree.walk(tokens);
        if walk.matched == 0 {
            return None;
        }
        // Marks are few, and the best of them may be gone.
        let line = walk.whole.into_iter().flat_map(|node| tree.above(node));
        let nodes: Vec<NodeId> = tree
            .below(walk.from)
            .chain(walk.whole)
            .chain(line)
            .collect();
        nodes
            .into_iter()
            .filter_map(|node| tree.get(node))
            .flatten()
            .filter_map(|(_, holder)| holder.source(tokens))
            .max_by_key(|(_, common)| *common)
    }

    /// Removes the marks of states that are gone, such as those of kvs that were freed: all of
    /// them, once there are as many new marks as there were at all.
    fn forget_the_gone(&mut self) {
        self.added += 1;
        let len: usize = self.trees.values().map(Tree::len).sum();
        if self.added < len.max(16) {
            return;
        }
        self.added = 0;
        for tree in self.trees.values_mut() {
            for node in tree.all() {
                if let Some(holders) = tree.get_mut(node) {
                    holders.retain(|(_, holder)| !holder.is_gone());
                    if holders.is_empty() {
                        tree.remove(node);
                    }
                }
            }
        }
        self.trees.retain(|_, tree| tree.len() > 0);
    }
}
