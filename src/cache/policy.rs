//! What of what is cached serves a prompt: a decision over plain data.

use super::namespace::Namespace;

/// The prompt that is to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prompt<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) token_count: usize,
}

/// Where a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory, used by nobody.
    Memory,
    /// In memory, in the hands of a generation or of a caller.
    InUse,
    /// On disk.
    Disk,
}

/// A state that might serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) place: Place,
    /// Tokens with which it and the prompt begin alike.
    pub(super) common: usize,
    /// All its tokens.
    pub(super) token_count: usize,
    /// The fewest tokens to which it can go back; `token_count` when it cannot go back at all.
    pub(super) trims_to: usize,
}

/// How a prompt is served. The index is that of the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Nothing serves.
    None,
    /// All of a state in memory, which is handed over.
    Move { index: usize },
    /// The first tokens of a state in memory, which stays where it is.
    Fork { index: usize, token_count: usize },
    /// The first tokens of a state that is in use.
    Borrow { index: usize, token_count: usize },
    /// The first tokens of a state on disk.
    Restore { index: usize, token_count: usize },
}

/// How many tokens of `candidate` the prompt can use. One token always remains to be run: the
/// next token is sampled from its logits.
pub(super) fn usable(prompt: Prompt<'_>, candidate: &Candidate<'_>) -> usize {
    if prompt.namespace != candidate.namespace {
        return 0;
    }
    let usable = candidate.common.min(prompt.token_count.saturating_sub(1));
    let must_go_back = candidate.token_count > usable;
    if must_go_back && candidate.trims_to > usable {
        return 0;
    }
    usable
}

/// The longest usable prefix wins; among equals what costs least to hand out: a move, a fork, a
/// loan, a read from disk. Among equals of one kind the first.
pub(super) fn decide(prompt: Prompt<'_>, candidates: &[Candidate<'_>]) -> Reuse {
    let reuse = |(index, candidate): (usize, &Candidate<'_>)| {
        let token_count = usable(prompt, candidate);
        let (cost, reuse) = match candidate.place {
            Place::Memory if token_count == candidate.token_count => (0, Reuse::Move { index }),
            Place::Memory => (1, Reuse::Fork { index, token_count }),
            Place::InUse => (2, Reuse::Borrow { index, token_count }),
            Place::Disk => (3, Reuse::Restore { index, token_count }),
        };
        (token_count, cost, reuse)
    };
    candidates
        .iter()
        .enumerate()
        .map(reuse)
        .filter(|(token_count, ..)| *token_count > 0)
        .min_by_key(|(token_count, cost, _)| (std::cmp::Reverse(*token_count), *cost))
        .map_or(Reuse::None, |(.., reuse)| reuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Namespace = Namespace([1; 32]);
    const B: Namespace = Namespace([2; 32]);

    /// How an entry's tokens lie to a prompt of ten.
    #[derive(Clone, Copy, Debug)]
    enum Relation {
        /// It begins with the prompt and goes on.
        Longer,
        /// The prompt begins with it and goes on.
        Shorter,
        /// The same tokens.
        Equal,
        /// They begin alike and part.
        Divergent,
        /// The first token differs.
        Unrelated,
    }
    use Relation::{Divergent, Equal, Longer, Shorter, Unrelated};

    /// How far back an entry can go.
    #[derive(Clone, Copy, Debug)]
    enum Trim {
        /// To every length.
        Any,
        /// To its last few tokens only.
        Little,
        /// Not at all.
        Never,
    }
    use Trim::{Any, Little, Never};

    fn candidate<'a>(
        relation: Relation,
        trim: Trim,
        place: Place,
        namespace: &'a Namespace,
    ) -> Candidate<'a> {
        let (common, token_count) = match relation {
            Longer => (10, 14),
            Shorter => (6, 6),
            Equal => (10, 10),
            Divergent => (4, 12),
            Unrelated => (0, 12),
        };
        let trims_to = match trim {
            Any => 0,
            Little => token_count - 2,
            Never => token_count,
        };
        Candidate {
            namespace,
            place,
            common,
            token_count,
            trims_to,
        }
    }

    /// One entry alone: relation, how far back it can go, and how many of its tokens are used.
    /// A prompt of ten can use nine.
    const ALONE: [(Relation, Trim, usize); 15] = [
        (Longer, Any, 9),
        (Longer, Little, 0),
        (Longer, Never, 0),
        (Shorter, Any, 6),
        (Shorter, Little, 6),
        (Shorter, Never, 6),
        (Equal, Any, 9),
        (Equal, Little, 9),
        (Equal, Never, 0),
        (Divergent, Any, 4),
        (Divergent, Little, 0),
        (Divergent, Never, 0),
        (Unrelated, Any, 0),
        (Unrelated, Little, 0),
        (Unrelated, Never, 0),
    ];

    #[test]
    fn every_relation_at_every_place_in_every_namespace() {
        let mut rows = 0;
        for (relation, trim, used) in ALONE {
            for place in [Place::Memory, Place::InUse, Place::Disk] {
                for namespace in [&A, &B] {
                    rows += 1;
                    let used = if namespace == &A { used } else { 0 };
                    let is_whole = matches!(relation, Shorter);
                    let index = 0;
                    let expected = match place {
                        _ if used == 0 => Reuse::None,
                        Place::Memory if is_whole => Reuse::Move { index },
                        Place::Memory => Reuse::Fork {
                            index,
                            token_count: used,
                        },
                        Place::InUse => Reuse::Borrow {
                            index,
                            token_count: used,
                        },
                        Place::Disk => Reuse::Restore {
                            index,
                            token_count: used,
                        },
                    };
                    let prompt = Prompt {
                        namespace: &A,
                        token_count: 10,
                    };
                    let entry = candidate(relation, trim, place, namespace);
                    assert_eq!(
                        decide(prompt, &[entry]),
                        expected,
                        "{relation:?} {trim:?} {place:?} {namespace:?}"
                    );
                }
            }
        }
        assert_eq!(rows, 90);
    }

    #[test]
    fn prompts_of_no_or_one_token_use_nothing() {
        for token_count in [0, 1] {
            for relation in [Longer, Shorter, Equal, Divergent] {
                let prompt = Prompt {
                    namespace: &A,
                    token_count,
                };
                let mut entry = candidate(relation, Any, Place::Memory, &A);
                entry.common = entry.common.min(token_count);
                assert_eq!(decide(prompt, &[entry]), Reuse::None);
            }
        }
    }

    #[test]
    fn among_several_the_longest_wins_then_the_cheapest() {
        use Place::{Disk, InUse, Memory};
        let fork = |index, token_count| Reuse::Fork { index, token_count };
        let borrow = |index, token_count| Reuse::Borrow { index, token_count };
        let restore = |index, token_count| Reuse::Restore { index, token_count };
        for (entries, expected) in [
            (
                vec![(Shorter, Any, Memory), (Longer, Any, Disk)],
                restore(1, 9),
            ),
            (
                vec![(Shorter, Any, Memory), (Shorter, Any, Disk)],
                Reuse::Move { index: 0 },
            ),
            (vec![(Equal, Any, Disk), (Longer, Any, Memory)], fork(1, 9)),
            (vec![(Equal, Any, InUse), (Longer, Any, Disk)], borrow(0, 9)),
            (vec![(Equal, Any, InUse), (Longer, Any, Memory)], fork(1, 9)),
            (
                vec![(Equal, Never, Memory), (Shorter, Never, Disk)],
                restore(1, 6),
            ),
            (
                vec![(Longer, Little, InUse), (Divergent, Any, Memory)],
                fork(1, 4),
            ),
            (
                vec![(Divergent, Any, Memory), (Shorter, Never, Memory)],
                Reuse::Move { index: 1 },
            ),
            (
                vec![(Divergent, Never, Memory), (Unrelated, Any, Disk)],
                Reuse::None,
            ),
            (
                vec![(Longer, Any, Memory), (Equal, Any, Memory)],
                fork(0, 9),
            ),
        ] {
            let candidates: Vec<_> = entries
                .iter()
                .map(|&(relation, trim, place)| candidate(relation, trim, place, &A))
                .collect();
            let prompt = Prompt {
                namespace: &A,
                token_count: 10,
            };
            assert_eq!(decide(prompt, &candidates), expected, "{entries:?}");
        }
        assert_eq!(
            decide(
                Prompt {
                    namespace: &A,
                    token_count: 10
                },
                &[]
            ),
            Reuse::None
        );
    }
}
