//! The states in memory that nobody uses, by namespace and tokens.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use super::{
    namespace::Namespace,
    tree::{NodeId, Tree},
};

/// Entries, least recently used first out. `L` is what holds a state's layers; entries that share
/// one `Arc` of it share its memory, which counts once.
pub(super) struct Shelf<L> {
    trees: HashMap<Namespace, Tree<Entry<L>>>,
    /// By the entry's turn, the least recently used first.
    order: BTreeMap<u64, Place>,
    /// By when they are to be written, and their turn at that time.
    due: BTreeMap<(Instant, u64), Place>,
    turn: u64,
    /// How many entries hold an `Arc`, and its bytes.
    buffers: HashMap<usize, (usize, u64)>,
    bytes: u64,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) namespace: Namespace,
    node: NodeId,
}

/// The layers of a state, and what there is to know about them without MLX.
#[derive(Debug)]
pub(super) struct Layers<L> {
    pub(super) layers: Arc<L>,
    /// Bytes of their buffers.
    pub(super) bytes: u64,
    /// The fewest tokens to which they can go back.
    pub(super) trims_to: usize,
}

impl<L> Clone for Layers<L> {
    fn clone(&self) -> Self {
        Self {
            layers: Arc::clone(&self.layers),
            ..*self
        }
    }
}

struct Entry<L> {
    layers: Layers<L>,
    turn: u64,
    used: Instant,
    due: Option<(Instant, u64)>,
    /// Whether it could not be written when it was due.
    is_unwritten: bool,
}

/// An entry that is not on the shelf any more.
#[derive(Debug)]
pub(super) struct Taken<L> {
    pub(super) namespace: Namespace,
    pub(super) tokens: Vec<u32>,
    pub(super) layers: Layers<L>,
}

/// What is known of an entry while it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) place: Place,
    /// Tokens with which it and the query begin alike.
    pub(super) common: usize,
    pub(super) token_count: usize,
    pub(super) trims_to: usize,
}

impl<L> Shelf<L> {
    pub(super) fn new() -> Self {
        Self {
            trees: HashMap::new(),
            order: BTreeMap::new(),
            due: BTreeMap::new(),
            turn: 0,
            buffers: HashMap::new(),
            bytes: 0,
        }
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Namespaces that have entries.
    pub(super) fn namespace_count(&self) -> usize {
        self.trees.len()
    }

    /// Whether a namespace has entries.
    pub(super) fn has(&self, namespace: &Namespace) -> bool {
        self.trees.contains_key(namespace)
    }

    /// Bytes of all buffers. What entries share counts once.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that finding them takes.
    pub(super) fn index_bytes(&self) -> usize {
        self.trees.values().map(Tree::index_bytes).sum()
    }

    /// The entries worth looking at for these tokens: the longest that is a prefix of them, and
    /// one that shares the most of them and can go back to that.
    pub(super) fn candidates(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> impl Iterator<Item = Fact> {
        let found = self.trees.get(namespace).map(|tree| {
            let walk = tree.walk(tokens);
            let fact = |node, common| {
                tree.get(node).map(|entry| Fact {
                    place: Place {
                        namespace: *namespace,
                        node,
                    },
                    common,
                    token_count: tree.depth(node),
                    trims_to: entry.layers.trims_to,
                })
            };
            let whole = walk.whole.and_then(|node| fact(node, tree.depth(node)));
            let serves = |node: &NodeId| {
                tree.get(*node)
                    .is_some_and(|e| e.layers.trims_to <= walk.matched)
            };
            let longer = tree
                .below(walk.from)
                .filter(|&node| Some(node) != walk.whole)
                .find(serves)
                .and_then(|node| fact(node, walk.matched));
            [whole, longer]
        });
        found.into_iter().flatten().flatten()
    }

    /// The entry of exactly these tokens.
    pub(super) fn find(&self, namespace: &Namespace, tokens: &[u32]) -> Option<Place> {
        let node = self.trees.get(namespace)?.find(tokens)?;
        Some(Place {
            namespace: *namespace,
            node,
        })
    }

    /// Puts an entry on the shelf, in place of one of the same tokens and of those that it makes
    /// superfluous: prefixes to which it can go back.
    pub(super) fn put(
        &mut self,
        namespace: &Namespace,
        tokens: &[u32],
        layers: Layers<L>,
        now: Instant,
    ) -> Place {
        if let Some(place) = self.find(namespace, tokens) {
            self.take(place);
        }
        self.hold(&layers);
        let trims_to = layers.trims_to;
        let tree = self.trees.entry(*namespace).or_insert_with(Tree::new);
        let entry = Entry {
            layers,
            turn: 0,
            used: now,
            due: None,
            is_unwritten: false,
        };
        let (node, _) = tree.insert(tokens, entry);
        let place = Place {
            namespace: *namespace,
            node,
        };
        let superfluous: Vec<NodeId> = tree
            .above(node)
            .filter(|&above| tree.depth(above) >= trims_to)
            .collect();
        self.touch(place, now);
        for node in superfluous {
            self.take(Place { node, ..place });
        }
        place
    }

    /// Counts as used now, and so do its prefixes: they are of no less use.
    pub(super) fn touch(&mut self, place: Place, now: Instant) {
        let Some(tree) = self.trees.get_mut(&place.namespace) else {
            return;
        };
        let line: Vec<NodeId> = std::iter::once(place.node)
            .chain(tree.above(place.node))
            .collect();
        for node in line {
            if let Some(entry) = tree.get_mut(node) {
                self.order.remove(&entry.turn);
                self.turn += 1;
                (entry.turn, entry.used) = (self.turn, now);
                self.order.insert(self.turn, Place { node, ..place });
            }
        }
    }

    /// The layers of an entry, which stays.
    pub(super) fn layers(&self, place: Place) -> Option<Layers<L>> {
        let entry = self.trees.get(&place.namespace)?.get(place.node)?;
        Some(entry.layers.clone())
    }

    /// The tokens of an entry.
    pub(super) fn tokens(&self, place: Place) -> Option<Vec<u32>> {
        Some(self.trees.get(&place.namespace)?.tokens(place.node))
    }

    /// Takes an entry off the shelf.
    pub(super) fn take(&mut self, place: Place) -> Option<Taken<L>> {
        let tree = self.trees.get_mut(&place.namespace)?;
        tree.get(place.node)?;
        let tokens = tree.tokens(place.node);
        let entry = tree.remove(place.node)?;
        if tree.len() == 0 {
            self.trees.remove(&place.namespace);
        }
        self.order.remove(&entry.turn);
        if let Some(due) = entry.due {
            self.due.remove(&due);
        }
        self.let_go(&entry.layers);
        Some(Taken {
            namespace: place.namespace,
            tokens,
            layers: entry.layers,
        })
    }

    /// Takes the least recently used ones until at most `bytes` remain; never `newcomer`.
    pub(super) fn shrink_to(&mut self, bytes: u64, newcomer: Option<Place>) -> Vec<Taken<L>> {
        let mut taken = Vec::new();
        while self.bytes > bytes {
            let oldest = self.order.values().find(|&&place| Some(place) != newcomer);
            let Some(&oldest) = oldest else { break };
            taken.extend(self.take(oldest));
        }
        taken
    }

    /// Takes the least recently used one, if it was last used before `limit`.
    pub(super) fn take_idle(&mut self, limit: Instant) -> Option<Taken<L>> {
        let (place, used) = self.oldest()?;
        (used <= limit).then(|| self.take(place)).flatten()
    }

    /// When the least recently used one was used.
    pub(super) fn oldest_use(&self) -> Option<Instant> {
        self.oldest().map(|(_, used)| used)
    }

    /// Says when an entry is to be written.
    pub(super) fn set_due(&mut self, place: Place, when: Option<Instant>) {
        let entry = self
            .trees
            .get_mut(&place.namespace)
            .and_then(|tree| tree.get_mut(place.node));
        if let Some(entry) = entry {
            if let Some(due) = entry.due.take() {
                self.due.remove(&due);
            }
            entry.is_unwritten = false;
            if let Some(when) = when {
                entry.due = Some((when, entry.turn));
                self.due.insert((when, entry.turn), place);
            }
        }
    }

    /// Says that an entry could not be written. It may be another one by now, which does no harm.
    pub(super) fn set_unwritten(&mut self, place: Place) {
        let tree = self.trees.get_mut(&place.namespace);
        if let Some(entry) = tree.and_then(|tree| tree.get_mut(place.node)) {
            entry.is_unwritten = true;
        }
    }

    /// Has the entries that could not be written be written at `when`.
    pub(super) fn retry_unwritten(&mut self, when: Instant) {
        let is_unwritten = |place: &&Place| {
            let entry = self.trees.get(&place.namespace)?.get(place.node)?;
            Some(entry.is_unwritten)
        };
        let places = self.order.values();
        let places: Vec<Place> = places
            .filter(|place| is_unwritten(place) == Some(true))
            .copied()
            .collect();
        for place in places {
            self.set_due(place, Some(when));
        }
    }

    /// The entry that is to be written next, and when.
    pub(super) fn next_due(&self) -> Option<(Instant, Place)> {
        let ((when, _), place) = self.due.first_key_value()?;
        Some((*when, *place))
    }

    fn oldest(&self) -> Option<(Place, Instant)> {
        let place = *self.order.values().next()?;
        let entry = self.trees.get(&place.namespace)?.get(place.node)?;
        Some((place, entry.used))
    }

    fn hold(&mut self, layers: &Layers<L>) {
        let key = Arc::as_ptr(&layers.layers) as usize;
        let (holders, _) = self.buffers.entry(key).or_insert((0, layers.bytes));
        *holders += 1;
        if *holders == 1 {
            self.bytes += layers.bytes;
        }
    }

    fn let_go(&mut self, layers: &Layers<L>) {
        let key = Arc::as_ptr(&layers.layers) as usize;
        if let Some((holders, bytes)) = self.buffers.get_mut(&key) {
            *holders -= 1;
            if *holders == 0 {
                self.bytes -= *bytes;
                self.buffers.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: Namespace = Namespace([1; 32]);
    const B: Namespace = Namespace([2; 32]);

    fn layers(bytes: u64) -> Layers<()> {
        Layers {
            layers: Arc::new(()),
            bytes,
            trims_to: 0,
        }
    }

    /// Tokens on the shelf, the least recently used first.
    fn contents(shelf: &Shelf<()>) -> Vec<Vec<u32>> {
        let places = shelf.order.values();
        places.map(|&place| shelf.tokens(place).unwrap()).collect()
    }

    #[test]
    fn the_least_recently_used_goes_first_and_never_the_newcomer() {
        let now = Instant::now();
        let mut shelf = Shelf::new();
        for token in 1..=3 {
            shelf.put(&A, &[token], layers(10), now);
        }
        shelf.touch(shelf.find(&A, &[1]).unwrap(), now);
        let newcomer = shelf.put(&B, &[1], layers(25), now);
        let gone = shelf.shrink_to(40, Some(newcomer));
        let gone: Vec<_> = gone.into_iter().map(|taken| taken.tokens).collect();
        assert_eq!(gone, [[2], [3]]);
        assert_eq!(contents(&shelf), [[1], [1]]);
        assert_eq!(shelf.bytes(), 35);
        shelf.shrink_to(0, Some(newcomer));
        assert_eq!((shelf.len(), shelf.bytes()), (1, 25));
        shelf.shrink_to(0, None);
        assert_eq!((shelf.len(), shelf.bytes()), (0, 0));
        assert!(shelf.trees.is_empty() && shelf.buffers.is_empty());
    }

    #[test]
    fn a_used_entry_refreshes_its_prefixes() {
        let now = Instant::now();
        let mut shelf = Shelf::new();
        let stuck = |token_count| Layers {
            trims_to: token_count,
            ..layers(1)
        };
        shelf.put(&A, &[1], stuck(1), now);
        shelf.put(&A, &[1, 2], stuck(2), now);
        shelf.put(&A, &[9], stuck(1), now);
        shelf.touch(shelf.find(&A, &[1, 2]).unwrap(), now);
        // [1] leaves after [1, 2]: one that serves more prompts is not the first to go.
        assert_eq!(contents(&shelf), [vec![9], vec![1, 2], vec![1]]);
    }

    #[test]
    fn an_entry_replaces_its_like_and_supersedes_what_it_can_go_back_to() {
        let now = Instant::now();
        let mut shelf = Shelf::new();
        shelf.put(&A, &[1, 2], layers(1), now);
        shelf.put(&A, &[1, 2], layers(7), now);
        assert_eq!((shelf.len(), shelf.bytes()), (1, 7));
        shelf.put(&A, &[1], layers(2), now);
        assert_eq!(shelf.len(), 2, "a longer one is not superseded");
        let little = Layers {
            trims_to: 2,
            ..layers(4)
        };
        shelf.put(&A, &[1, 2, 3], little, now);
        assert_eq!(contents(&shelf), [vec![1, 2, 3], vec![1]]);
    }

    #[test]
    fn what_entries_share_counts_once() {
        let now = Instant::now();
        let mut shelf = Shelf::new();
        let shared = layers(10);
        shelf.put(&A, &[1, 2], shared.clone(), now);
        shelf.put(&A, &[1, 3], shared, now);
        shelf.put(&A, &[4], layers(5), now);
        assert_eq!(shelf.bytes(), 15);
        shelf.take(shelf.find(&A, &[1, 2]).unwrap());
        assert_eq!(shelf.bytes(), 15);
        shelf.take(shelf.find(&A, &[1, 3]).unwrap());
        assert_eq!(shelf.bytes(), 5);
    }

    #[test]
    fn entries_fall_due_and_idle_in_their_order() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut shelf = Shelf::new();
        let first = shelf.put(&A, &[1], layers(1), at(0));
        let second = shelf.put(&A, &[2], layers(1), at(5));
        shelf.set_due(first, Some(at(9)));
        shelf.set_due(second, Some(at(8)));
        shelf.touch(second, at(6));
        assert_eq!(shelf.next_due(), Some((at(8), second)));
        shelf.set_due(second, None);
        assert_eq!(shelf.next_due(), Some((at(9), first)));
        assert_eq!(shelf.oldest_use(), Some(at(0)));
        let idle = shelf.take_idle(at(5)).unwrap();
        assert_eq!(idle.tokens, [1]);
        assert_eq!(shelf.next_due(), None);
        assert!(shelf.take_idle(at(5)).is_none());
    }
}
