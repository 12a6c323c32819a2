//! A radix tree over tokens: values by sequence, found by what they share with another.

/// A place in the tree. It stays the same as long as the value there does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

const ROOT: NodeId = NodeId(0);

/// Values by token sequence. Sequences that begin alike store that beginning once, and all look-ups
/// cost as much as the sequence is long, however many values there are.
pub(super) struct Tree<T> {
    nodes: Vec<Node<T>>,
    /// Nodes that are not in use.
    free: Vec<NodeId>,
    len: usize,
    /// Tokens on all edges.
    token_count: usize,
}

struct Node<T> {
    parent: NodeId,
    /// The tokens that lead here from the parent. Only the root has none.
    edge: Box<[u32]>,
    /// Tokens that lead here from the root.
    depth: usize,
    /// By the first token of their edges, ascending.
    children: Vec<NodeId>,
    value: Option<T>,
}

/// How far a sequence leads into a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Walk {
    /// Its tokens that are on edges of the tree.
    pub(super) matched: usize,
    /// The deepest value that lies on the way: its whole sequence is a prefix.
    pub(super) whole: Option<NodeId>,
    /// All sequences from here on begin with the matched tokens; at least one has a value.
    pub(super) from: NodeId,
}

impl<T> Tree<T> {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node {
                parent: ROOT,
                edge: Box::default(),
                depth: 0,
                children: Vec::new(),
                value: None,
            }],
            free: Vec::new(),
            len: 0,
            token_count: 0,
        }
    }

    /// Values in the tree.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the tree takes, but for what its values point to.
    pub(super) fn index_bytes(&self) -> usize {
        let children: usize = self.nodes.iter().map(|node| node.children.capacity()).sum();
        self.nodes.capacity() * size_of::<Node<T>>()
            + (children + self.free.capacity()) * size_of::<NodeId>()
            + self.token_count * size_of::<u32>()
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&T> {
        self.node(id).value.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut T> {
        self.node_mut(id).value.as_mut()
    }

    /// Tokens in the sequence of a value.
    pub(super) fn depth(&self, id: NodeId) -> usize {
        self.node(id).depth
    }

    /// The sequence of a value.
    pub(super) fn tokens(&self, id: NodeId) -> Vec<u32> {
        let mut edges = Vec::new();
        let mut at = id;
        while at != ROOT {
            edges.push(&*self.node(at).edge);
            at = self.node(at).parent;
        }
        edges.reverse();
        edges.concat()
    }

    /// Follows `tokens` as far as they lead.
    pub(super) fn walk(&self, tokens: &[u32]) -> Walk {
        let (mut at, mut rest) = (ROOT, tokens);
        let mut whole = None;
        loop {
            let node = self.node(at);
            if node.value.is_some() {
                whole = Some(at);
            }
            let child = rest.first().and_then(|first| self.child(at, *first).ok());
            let Some((_, child)) = child else {
                return Walk {
                    matched: node.depth,
                    whole,
                    from: at,
                };
            };
            let edge = &*self.node(child).edge;
            let common = common_prefix(edge, rest);
            if common < edge.len() {
                return Walk {
                    matched: node.depth + common,
                    whole,
                    from: child,
                };
            }
            (at, rest) = (child, &rest[common..]);
        }
    }

    /// The value of exactly these tokens.
    pub(super) fn find(&self, tokens: &[u32]) -> Option<NodeId> {
        self.walk(tokens)
            .whole
            .filter(|&id| self.depth(id) == tokens.len())
    }

    /// The values whose sequences begin with that of `from`, its own included.
    pub(super) fn below(&self, from: NodeId) -> impl Iterator<Item = NodeId> {
        let mut open = vec![from];
        std::iter::from_fn(move || {
            while let Some(id) = open.pop() {
                let node = self.node(id);
                open.extend(node.children.iter().rev());
                if node.value.is_some() {
                    return Some(id);
                }
            }
            None
        })
    }

    /// All values.
    pub(super) fn all(&self) -> Vec<NodeId> {
        self.below(ROOT).collect()
    }

    /// The values whose sequences are prefixes of that of `id`, the longest first, without itself.
    pub(super) fn above(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let mut at = id;
        std::iter::from_fn(move || {
            while at != ROOT {
                at = self.node(at).parent;
                if self.node(at).value.is_some() {
                    return Some(at);
                }
            }
            None
        })
    }

    /// Puts `value` at `tokens`, and returns what was there.
    pub(super) fn insert(&mut self, tokens: &[u32], value: T) -> (NodeId, Option<T>) {
        let walk = self.walk(tokens);
        let mut at = walk.from;
        if walk.matched < self.node(at).depth {
            at = self.split(at, walk.matched);
        }
        if walk.matched < tokens.len() {
            at = self.grow(at, &tokens[walk.matched..]);
        }
        let before = self.node_mut(at).value.replace(value);
        self.len += usize::from(before.is_none());
        (at, before)
    }

    /// Takes the value at `id` out.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<T> {
        let value = self.node_mut(id).value.take()?;
        self.len -= 1;
        let mut at = id;
        // A node without a value is there for its children only: two or more.
        while at != ROOT && self.node(at).value.is_none() {
            match self.node(at).children[..] {
                [] => at = self.prune(at),
                [child] => {
                    self.join(at, child);
                    break;
                }
                _ => break,
            }
        }
        Some(value)
    }

    fn node(&self, id: NodeId) -> &Node<T> {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<T> {
        &mut self.nodes[id.0 as usize]
    }

    /// The child of `id` whose edge begins with `first` and its index, or where it would be.
    fn child(&self, id: NodeId, first: u32) -> Result<(usize, NodeId), usize> {
        let children = &self.node(id).children;
        children
            .binary_search_by_key(&first, |&child| self.node(child).edge[0])
            .map(|index| (index, children[index]))
    }

    fn add(&mut self, node: Node<T>) -> NodeId {
        if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        let id = NodeId(u32::try_from(self.nodes.len()).expect("memory ends before that"));
        self.nodes.push(node);
        id
    }

    /// A new leaf behind `parent`, none of whose edges begins with the same token.
    fn grow(&mut self, parent: NodeId, edge: &[u32]) -> NodeId {
        let leaf = self.add(Node {
            parent,
            edge: edge.into(),
            depth: self.node(parent).depth + edge.len(),
            children: Vec::new(),
            value: None,
        });
        self.token_count += edge.len();
        if let Err(index) = self.child(parent, edge[0]) {
            self.node_mut(parent).children.insert(index, leaf);
        }
        leaf
    }

    /// A new node at `depth`, which lies inside the edge of `id`.
    fn split(&mut self, id: NodeId, depth: usize) -> NodeId {
        let node = self.node(id);
        let parent = node.parent;
        let (upper, lower) = node.edge.split_at(depth - (node.depth - node.edge.len()));
        let (upper, lower): (Box<[u32]>, Box<[u32]>) = (upper.into(), lower.into());
        let first = upper[0];
        let middle = self.add(Node {
            parent,
            edge: upper,
            depth,
            children: vec![id],
            value: None,
        });
        if let Ok((index, _)) = self.child(parent, first) {
            self.node_mut(parent).children[index] = middle;
        }
        let node = self.node_mut(id);
        (node.parent, node.edge) = (middle, lower);
        middle
    }

    /// Frees a leaf without a value; returns its parent.
    fn prune(&mut self, id: NodeId) -> NodeId {
        let parent = self.node(id).parent;
        if let Ok((index, _)) = self.child(parent, self.node(id).edge[0]) {
            self.node_mut(parent).children.remove(index);
        }
        self.release(id);
        parent
    }

    /// Frees a node without a value between its parent and its only child.
    fn join(&mut self, id: NodeId, child: NodeId) {
        let parent = self.node(id).parent;
        let edge = [&*self.node(id).edge, &*self.node(child).edge].concat();
        self.token_count += edge.len() - self.node(child).edge.len();
        if let Ok((index, _)) = self.child(parent, edge[0]) {
            self.node_mut(parent).children[index] = child;
        }
        let node = self.node_mut(child);
        (node.parent, node.edge) = (parent, edge.into());
        self.release(id);
    }

    fn release(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        let edge = std::mem::take(&mut node.edge);
        node.children = Vec::new();
        self.token_count -= edge.len();
        self.free.push(id);
    }
}

/// How many tokens two sequences begin with alike.
pub(super) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    /// Compared at once: whole blocks go by as fast as memory does.
    const BLOCK: usize = 64;
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
    let equal = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let rest = a[equal..].iter().zip(&b[equal..]);
    equal + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Checks every invariant, and that the tree holds what `expected` says.
    fn check(tree: &Tree<u32>, expected: &BTreeMap<Vec<u32>, u32>) {
        let mut token_count = 0;
        let mut reached = vec![ROOT];
        let mut used = 0;
        while let Some(id) = reached.pop() {
            used += 1;
            let node = tree.node(id);
            token_count += node.edge.len();
            if id != ROOT {
                assert!(!node.edge.is_empty());
                assert_eq!(node.depth, tree.node(node.parent).depth + node.edge.len());
                assert!(node.value.is_some() || node.children.len() > 1);
            }
            let firsts = node.children.iter().map(|&child| tree.node(child).edge[0]);
            assert!(firsts.is_sorted_by(|a, b| a < b));
            assert!(node.children.iter().all(|&c| tree.node(c).parent == id));
            reached.extend(&node.children);
        }
        assert_eq!(used + tree.free.len(), tree.nodes.len());
        assert_eq!(token_count, tree.token_count);
        assert_eq!(tree.len(), expected.len());
        for (tokens, value) in expected {
            let id = tree.find(tokens).unwrap();
            assert_eq!(tree.get(id), Some(value));
            assert_eq!(tree.tokens(id), *tokens);
            let above: Vec<usize> = tree.above(id).map(|id| tree.depth(id)).collect();
            let mut prefixes: Vec<usize> = (0..tokens.len())
                .filter(|&n| expected.contains_key(&tokens[..n]))
                .collect();
            prefixes.reverse();
            assert_eq!(above, prefixes);
        }
    }

    fn sequence() -> impl Strategy<Value = Vec<u32>> {
        // Few tokens, so that sequences often begin alike.
        prop::collection::vec(0..3_u32, 0..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn it_is_a_map_that_knows_prefixes(
            steps in prop::collection::vec((any::<bool>(), sequence(), sequence()), 1..60),
        ) {
            let mut tree = Tree::new();
            let mut expected = BTreeMap::new();
            for (number, (adds, tokens, query)) in steps.into_iter().enumerate() {
                if adds {
                    let (id, before) = tree.insert(&tokens, number as u32);
                    prop_assert_eq!(tree.tokens(id), tokens.clone());
                    prop_assert_eq!(before, expected.insert(tokens, number as u32));
                } else {
                    let removed = tree.find(&tokens).and_then(|id| tree.remove(id));
                    prop_assert_eq!(removed, expected.remove(&tokens));
                }
                check(&tree, &expected);

                let walk = tree.walk(&query);
                let matched = expected.keys().map(|key| common_prefix(key, &query)).max();
                prop_assert_eq!(walk.matched, matched.unwrap_or(0));
                let whole = expected.keys().filter(|key| query.starts_with(key)).map(Vec::len);
                prop_assert_eq!(walk.whole.map(|id| tree.depth(id)), whole.max());
                let mut below: Vec<_> = tree.below(walk.from).map(|id| tree.tokens(id)).collect();
                below.sort();
                let sharing = expected
                    .keys()
                    .filter(|key| key.starts_with(&query[..walk.matched]))
                    .cloned();
                prop_assert_eq!(below, sharing.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_id_outlives_changes_around_it() {
        let mut tree = Tree::new();
        let (id, _) = tree.insert(&[1, 2, 3, 4], 'a');
        tree.insert(&[1, 2], 'b');
        let (other, _) = tree.insert(&[1, 2, 9], 'c');
        tree.remove(tree.find(&[1, 2]).unwrap());
        tree.remove(other);
        assert_eq!(tree.get(id), Some(&'a'));
        assert_eq!(tree.tokens(id), [1, 2, 3, 4]);
        assert_eq!(tree.nodes.len() - tree.free.len(), 2);
    }

    #[test]
    fn what_sequences_share_is_stored_once() {
        let mut tree = Tree::new();
        let mut tokens: Vec<u32> = (0..1000).collect();
        for last in 0..100 {
            tokens[999] = last;
            tree.insert(&tokens, last);
        }
        assert_eq!(tree.token_count, 999 + 100);
    }
}
