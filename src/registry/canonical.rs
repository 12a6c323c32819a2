//! Which of a repository's snapshots stands for it.

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// Whether `refs/main` names it.
    pub(crate) is_main: bool,
    pub(crate) is_complete: bool,
    /// The folder's time of change, in nanoseconds since 1970.
    pub(crate) modified: i64,
    pub(crate) path: &'a str,
}

/// The snapshot that `refs/main` names, complete or not; else the newest complete one, the
/// first path among equals.
pub(crate) fn canonical(candidates: &[Candidate<'_>]) -> Option<usize> {
    candidates
        .iter()
        .position(|candidate| candidate.is_main)
        .or_else(|| newest_complete(candidates))
}

/// The snapshot to load: the canonical one when it is complete, else the newest complete one.
pub(crate) fn loadable(candidates: &[Candidate<'_>]) -> Option<usize> {
    canonical(candidates)
        .filter(|&index| candidates[index].is_complete)
        .or_else(|| newest_complete(candidates))
}

fn newest_complete(candidates: &[Candidate<'_>]) -> Option<usize> {
    (0..candidates.len())
        .filter(|&index| candidates[index].is_complete)
        .min_by_key(|&index| {
            let candidate = &candidates[index];
            (std::cmp::Reverse(candidate.modified), candidate.path)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_wins_then_the_newest_complete_one() {
        const MAIN: u8 = 1;
        const COMPLETE: u8 = 2;
        type Row = (u8, i64, &'static str);
        let table: &[(&[Row], Option<usize>, Option<usize>)] = &[
            (&[], None, None),
            (&[(0, 1, "a")], None, None),
            (&[(COMPLETE, 1, "a")], Some(0), Some(0)),
            (&[(MAIN, 1, "a")], Some(0), None),
            (
                &[(COMPLETE, 9, "a"), (MAIN | COMPLETE, 1, "b")],
                Some(1),
                Some(1),
            ),
            (&[(COMPLETE, 9, "a"), (MAIN, 10, "b")], Some(1), Some(0)),
            (
                &[(COMPLETE, 1, "a"), (COMPLETE, 2, "b"), (0, 3, "c")],
                Some(1),
                Some(1),
            ),
            (&[(COMPLETE, 2, "b"), (COMPLETE, 2, "a")], Some(1), Some(1)),
        ];
        for (rows, chosen, loaded) in table {
            let candidates: Vec<_> = rows
                .iter()
                .map(|&(flags, modified, path)| Candidate {
                    is_main: flags & MAIN != 0,
                    is_complete: flags & COMPLETE != 0,
                    modified,
                    path,
                })
                .collect();
            assert_eq!(canonical(&candidates), *chosen, "{rows:?}");
            assert_eq!(loadable(&candidates), *loaded, "{rows:?}");
        }
    }
}
