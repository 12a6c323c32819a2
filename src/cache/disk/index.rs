//! What is stored, in memory: the tree of segments of each namespace. No file is touched here.
//!
//! A segment continues another one at any of its positions but the first, so a branch point
//! never splits a file. Children are found by the position and their first token, which differs
//! from the parent's token there; a look-up thus goes from segment to segment, and its cost is
//! that of comparing the tokens. Where files overlap (a merged one beside those it replaces, or
//! one that was copied into the folder) all candidates are followed.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use super::segment::{Segment, SegmentId};
use crate::cache::namespace::Namespace;

#[derive(Default)]
pub(super) struct Index {
    nodes: HashMap<SegmentId, Node>,
    trees: HashMap<Namespace, Tree>,
    /// Segments that none continues, the least recently used first.
    leaves: BTreeSet<(SystemTime, SegmentId)>,
    bytes: u64,
    token_count: u64,
}

struct Node {
    segment: Arc<Segment>,
    file_bytes: u64,
    last_use: SystemTime,
    children: Children,
}

struct Tree {
    roots: Children,
    ids: HashSet<SegmentId>,
    layout: super::Layout,
}

/// The segments that continue one, or nothing.
#[derive(Default)]
struct Children {
    /// By the position they start at and the token there. Seldom more than one.
    branches: HashMap<(usize, u32), Vec<SegmentId>>,
    /// Those that start with the very token that the parent has at that position.
    overlapping: Vec<(usize, SegmentId)>,
}

impl Children {
    fn is_empty(&self) -> bool {
        self.branches.is_empty() && self.overlapping.is_empty()
    }

    fn insert(&mut self, parent: Option<&Segment>, child: &Segment) {
        match overlaps(parent, child) {
            true => self.overlapping.push((child.start, child.id)),
            false => {
                let key = (child.start, child.tokens[0]);
                self.branches.entry(key).or_default().push(child.id);
            }
        }
    }

    fn remove(&mut self, child: &Segment) {
        self.overlapping.retain(|&(_, id)| id != child.id);
        let key = (child.start, child.tokens[0]);
        if let Some(ids) = self.branches.get_mut(&key) {
            ids.retain(|&id| id != child.id);
            if ids.is_empty() {
                self.branches.remove(&key);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = SegmentId> {
        let overlapping = self.overlapping.iter().map(|&(_, id)| id);
        self.branches.values().flatten().copied().chain(overlapping)
    }
}

fn overlaps(parent: Option<&Segment>, child: &Segment) -> bool {
    parent.is_some_and(|parent| {
        let token = parent.tokens.get(child.start - parent.start);
        token == Some(&child.tokens[0])
    })
}

/// The segments that hold the beginning of a sequence of tokens, the first of them first.
#[derive(Clone, Default)]
pub(super) struct Way {
    pub(super) segments: Vec<Arc<Segment>>,
    /// How many of the tokens they hold.
    pub(super) token_count: usize,
}

impl Way {
    /// What a segment of the tokens behind would continue.
    pub(super) fn last(&self) -> Option<SegmentId> {
        self.segments.last().map(|segment| segment.id)
    }

    pub(super) fn contains(&self, id: SegmentId) -> bool {
        self.segments.iter().any(|segment| segment.id == id)
    }
}

/// Why a segment has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It continues nothing that is stored.
    Orphan,
    /// Its tensors are not those of the rest of its namespace.
    OtherLayout,
}

impl Index {
    /// Bytes of all segments' files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn file_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// Tokens of all segments.
    pub(super) fn token_count(&self) -> u64 {
        self.token_count
    }

    pub(super) fn contains(&self, id: SegmentId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Whether it is stored and none continues it.
    pub(super) fn is_leaf(&self, id: SegmentId) -> bool {
        let node = self.nodes.get(&id);
        node.is_some_and(|node| node.children.is_empty())
    }

    pub(super) fn layout(&self, namespace: &Namespace) -> Option<&super::Layout> {
        self.trees.get(namespace).map(|tree| &tree.layout)
    }

    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.trees.keys()
    }

    /// The segments of a namespace, in no order.
    pub(super) fn ids(&self, namespace: &Namespace) -> impl Iterator<Item = SegmentId> {
        let tree = self.trees.get(namespace).into_iter();
        tree.flat_map(|tree| tree.ids.iter().copied())
    }

    pub(super) fn file_bytes(&self, id: SegmentId) -> u64 {
        self.nodes.get(&id).map_or(0, |node| node.file_bytes)
    }

    /// Adds a segment behind the one that it continues; one that is there already is left.
    pub(super) fn insert(
        &mut self,
        segment: Arc<Segment>,
        file_bytes: u64,
        last_use: SystemTime,
    ) -> Result<(), Misfit> {
        if self.nodes.contains_key(&segment.id) {
            return Ok(());
        }
        let tree = self.trees.get(&segment.namespace);
        if tree.is_some_and(|tree| tree.layout != segment.layout) {
            return Err(Misfit::OtherLayout);
        }
        match segment.parent {
            None if segment.start == 0 => {
                let tree = self.trees.entry(segment.namespace);
                let tree = tree.or_insert_with(|| Tree {
                    roots: Children::default(),
                    ids: HashSet::new(),
                    layout: Arc::clone(&segment.layout),
                });
                tree.roots.insert(None, &segment);
            }
            None => return Err(Misfit::Orphan),
            Some(parent) => {
                let parent = self.nodes.get_mut(&parent).filter(|parent| {
                    let parent = &parent.segment;
                    parent.namespace == segment.namespace
                        && (parent.start + 1..=parent.end()).contains(&segment.start)
                });
                let parent = parent.ok_or(Misfit::Orphan)?;
                if parent.children.is_empty() {
                    self.leaves.remove(&(parent.last_use, parent.segment.id));
                }
                parent.children.insert(Some(&parent.segment), &segment);
            }
        }
        if let Some(tree) = self.trees.get_mut(&segment.namespace) {
            tree.ids.insert(segment.id);
        }
        self.leaves.insert((last_use, segment.id));
        self.bytes += file_bytes;
        self.token_count += segment.tokens.len() as u64;
        let node = Node {
            file_bytes,
            last_use,
            children: Children::default(),
            segment,
        };
        self.nodes.insert(node.segment.id, node);
        Ok(())
    }

    /// Takes out a segment and all that continue it; answers them, each before the one that it
    /// continues.
    pub(super) fn remove(&mut self, id: SegmentId) -> Vec<Arc<Segment>> {
        let mut found = Vec::new();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            if let Some(node) = self.nodes.get(&id) {
                pending.extend(node.children.all());
                found.push(id);
            }
        }
        let removed = found.iter().rev().filter_map(|&id| self.remove_leaf(id));
        removed.collect()
    }

    fn remove_leaf(&mut self, id: SegmentId) -> Option<Arc<Segment>> {
        let node = self.nodes.remove(&id)?;
        let segment = node.segment;
        self.leaves.remove(&(node.last_use, id));
        self.bytes -= node.file_bytes;
        self.token_count -= segment.tokens.len() as u64;
        if let Some(parent) = segment.parent
            && let Some(parent) = self.nodes.get_mut(&parent)
        {
            parent.children.remove(&segment);
            if parent.children.is_empty() {
                self.leaves.insert((parent.last_use, parent.segment.id));
            }
        }
        if let Some(tree) = self.trees.get_mut(&segment.namespace) {
            tree.ids.remove(&id);
            if segment.parent.is_none() {
                tree.roots.remove(&segment);
            }
            if tree.ids.is_empty() {
                self.trees.remove(&segment.namespace);
            }
        }
        Some(segment)
    }

    /// Says when a segment was used; it never becomes older by it.
    pub(super) fn touch(&mut self, id: SegmentId, last_use: SystemTime) {
        if let Some(node) = self.nodes.get_mut(&id)
            && node.last_use < last_use
        {
            if self.leaves.remove(&(node.last_use, id)) {
                self.leaves.insert((last_use, id));
            }
            node.last_use = last_use;
        }
    }

    /// The segment to give up first, and when it was used: of those that none continues and that
    /// are not on `kept`, the one that was not used for longest.
    pub(super) fn oldest_leaf(&self, kept: &Way) -> Option<(Arc<Segment>, SystemTime)> {
        let (last_use, id) = self.leaves.iter().find(|(_, id)| !kept.contains(*id))?;
        let node = self.nodes.get(id)?;
        Some((Arc::clone(&node.segment), *last_use))
    }

    /// How many of the tokens are stored, from the first on.
    pub(super) fn prefix(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        self.find(namespace, tokens).map_or(0, |found| found.end)
    }

    /// Where the beginning of `tokens` is stored.
    pub(super) fn way(&self, namespace: &Namespace, tokens: &[u32]) -> Way {
        let Some(found) = self.find(namespace, tokens) else {
            return Way::default();
        };
        let mut segments = Vec::with_capacity(found.depth);
        let mut next = Some(found.id);
        while let Some(node) = next.and_then(|id| self.nodes.get(&id)) {
            segments.push(Arc::clone(&node.segment));
            next = node.segment.parent;
        }
        segments.reverse();
        Way {
            segments,
            token_count: found.end,
        }
    }

    /// The segment that ends the longest way, of several the shortest chain.
    fn find(&self, namespace: &Namespace, tokens: &[u32]) -> Option<Found> {
        let roots = &self.trees.get(namespace)?.roots;
        let mut pending = Vec::new();
        let push = |pending: &mut Vec<_>, children: &Children, end: usize, depth| {
            let at_end = tokens.get(end).and_then(|&token| {
                let ids = children.branches.get(&(end, token))?;
                Some(ids.iter().copied())
            });
            let overlapping = children.overlapping.iter();
            let before = overlapping.filter(|&&(start, _)| start <= end && start < tokens.len());
            let ids = at_end.into_iter().flatten();
            pending.extend(ids.chain(before.map(|&(_, id)| id)).map(|id| (id, depth)));
        };
        push(&mut pending, roots, 0, 1);
        let mut best: Option<Found> = None;
        while let Some((id, depth)) = pending.pop() {
            let Some(node) = self.nodes.get(&id) else {
                continue;
            };
            let segment = &node.segment;
            let rest = &tokens[segment.start..];
            let same = rest.iter().zip(&segment.tokens).take_while(|(a, b)| a == b);
            let common = same.count();
            if common == 0 {
                continue;
            }
            let end = segment.start + common;
            let is_better = best.is_none_or(|best| {
                (end, std::cmp::Reverse(depth)) > (best.end, std::cmp::Reverse(best.depth))
            });
            if is_better {
                best = Some(Found { id, end, depth });
            }
            push(&mut pending, &node.children, end, depth + 1);
        }
        best
    }
}

#[derive(Clone, Copy)]
struct Found {
    id: SegmentId,
    end: usize,
    depth: usize,
}
