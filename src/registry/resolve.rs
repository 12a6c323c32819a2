//! Which one model a query means.

use std::{collections::HashMap, hash::Hash};

use super::canonical::{Candidate, loadable};
use crate::error::{Error, Kind, Result};

/// A snapshot as far as resolving looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The folder of the repository; snapshots with the same one are its revisions.
    pub(crate) repo: String,
    pub(crate) repo_id: String,
    pub(crate) model_type: Option<String>,
    pub(crate) is_drafter: bool,
    pub(crate) is_main: bool,
    pub(crate) is_complete: bool,
    pub(crate) modified: i64,
    pub(crate) path: String,
}

/// The model that `query` means, as an index into `models`.
///
/// The first rule that matches anything decides: the exact repository id; the id in other
/// letter case; part of the id; part of the model type. The hub takes ids that differ only in
/// letter case for one, and so do the rules: among folders of such ids the exact one wins, else
/// the one with the newest snapshot that can be loaded. Revisions of a repository are one model.
/// Drafters are no candidates.
///
/// # Errors
/// [`Kind::InvalidArgument`] for an empty query; [`Kind::NotFound`] when nothing matches, or only
/// what cannot be loaded; [`Kind::Ambiguous`] when several models match, with their ids, one a
/// line, as the detail.
pub(crate) fn resolve(query: &str, models: &[Model]) -> Result<usize> {
    if query.is_empty() {
        return Err(Error::new(Kind::InvalidArgument, "the query is empty"));
    }
    let lower = query.to_lowercase();
    let rules: [&dyn Fn(&Model) -> bool; 4] = [
        &|model| model.repo_id == query,
        &|model| model.repo_id.to_lowercase() == lower,
        &|model| model.repo_id.to_lowercase().contains(&lower),
        &|model| {
            let model_type = model.model_type.as_deref().unwrap_or_default();
            model_type.to_lowercase().contains(&lower)
        },
    ];
    let mut unloadable: Vec<&Model> = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        let matching: Vec<usize> = (0..models.len()).filter(|&at| rule(&models[at])).collect();
        let mut chosen: Vec<usize> = Vec::new();
        for repo in group(&matching, |at| models[at].repo.clone()) {
            match best_of_repo(&repo, models) {
                Some(at) => chosen.push(at),
                None => unloadable.push(&models[repo[0]]),
            }
        }
        let groups = group(&chosen, |at| models[at].repo_id.to_lowercase());
        match groups.as_slice() {
            [] => {}
            [one] => return Ok(newest(one, models)),
            several => return Err(ambiguous(query, several, models)),
        }
        // An exact id that cannot be loaded is what was meant all the same.
        if number == 1 && !unloadable.is_empty() {
            break;
        }
    }
    Err(not_found(query, &unloadable))
}

/// Splits `indices` by key, in the order of first appearance.
fn group<K: Eq + Hash>(indices: &[usize], key: impl Fn(usize) -> K) -> Vec<Vec<usize>> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &at in indices {
        let place = *places.entry(key(at)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(at);
    }
    groups
}

fn best_of_repo(repo: &[usize], models: &[Model]) -> Option<usize> {
    let indices: Vec<usize> = repo
        .iter()
        .copied()
        .filter(|&at| !models[at].is_drafter)
        .collect();
    let candidates: Vec<Candidate<'_>> = indices.iter().map(|&at| models[at].candidate()).collect();
    loadable(&candidates).map(|at| indices[at])
}

fn newest(indices: &[usize], models: &[Model]) -> usize {
    *indices
        .iter()
        .min_by_key(|&&at| (std::cmp::Reverse(models[at].modified), &models[at].path))
        .expect("a group has at least one member")
}

fn ambiguous(query: &str, groups: &[Vec<usize>], models: &[Model]) -> Error {
    let mut ids: Vec<&str> = groups
        .iter()
        .map(|group| models[newest(group, models)].repo_id.as_str())
        .collect();
    ids.sort_unstable();
    Error::new(
        Kind::Ambiguous,
        format!("{} models match: {query}", ids.len()),
    )
    .with_detail(ids.join("\n"))
}

fn not_found(query: &str, unloadable: &[&Model]) -> Error {
    let Some(model) = unloadable.first() else {
        return Error::new(Kind::NotFound, format!("no model matches: {query}"));
    };
    let reason = if model.is_drafter {
        "is a drafter, which works only beside another model"
    } else {
        "has no complete snapshot"
    };
    let mut ids: Vec<&str> = unloadable
        .iter()
        .map(|model| model.repo_id.as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    Error::new(
        Kind::NotFound,
        format!("what matches {reason}: {}", model.repo_id),
    )
    .with_detail(ids.join("\n"))
}

impl Model {
    pub(crate) fn candidate(&self) -> Candidate<'_> {
        Candidate {
            is_main: self.is_main,
            is_complete: self.is_complete,
            modified: self.modified,
            path: &self.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `id @commit flags`: m = main, c = complete, d = drafter; later ones are newer.
    fn models(lines: &[&str]) -> Vec<Model> {
        let model = |(number, line): (usize, &&str)| {
            let mut parts = line.split(' ');
            let id = parts.next().unwrap();
            let commit = parts.next().unwrap();
            let flags = parts.next().unwrap_or_default();
            Model {
                repo: format!("/hub/{id}"),
                repo_id: id.to_owned(),
                model_type: Some("llama".to_owned()),
                is_drafter: flags.contains('d'),
                is_main: flags.contains('m'),
                is_complete: flags.contains('c'),
                modified: number as i64,
                path: format!("/hub/{id}/snapshots/{commit}"),
            }
        };
        lines.iter().enumerate().map(model).collect()
    }

    #[test]
    fn a_query_means_one_model_or_an_error_says_why() {
        let shelf = models(&[
            "org/tiny 1 mc",
            "org/tiny-big 1 mc",
            "org/tiny-big 2 c",
            "org/draft-eagle 1 mcd",
            "org/partial 1 m",
            "org/moved 1 c",
            "org/moved 2 c",
            "org/moved 3 m",
            "Case/Name 1 mc",
            "case/name 1 mc",
            "case/other 1 mc",
        ]);
        for (query, expected) in [
            ("org/tiny", Ok("org/tiny/snapshots/1")),
            ("ORG/tiny", Ok("org/tiny/snapshots/1")),
            ("tiny-b", Ok("org/tiny-big/snapshots/1")),
            ("tiny", Err(Kind::Ambiguous)),
            ("eagle", Err(Kind::NotFound)),
            ("org/draft-eagle", Err(Kind::NotFound)),
            ("org/partial", Err(Kind::NotFound)),
            ("moved", Ok("org/moved/snapshots/2")),
            ("case/name", Ok("case/name/snapshots/1")),
            ("Case/Name", Ok("Case/Name/snapshots/1")),
            ("CASE/NAME", Ok("case/name/snapshots/1")),
            ("se/na", Ok("case/name/snapshots/1")),
            ("case/", Err(Kind::Ambiguous)),
            ("llama", Err(Kind::Ambiguous)),
            ("nothing", Err(Kind::NotFound)),
            ("%", Err(Kind::NotFound)),
            ("", Err(Kind::InvalidArgument)),
        ] {
            let found = resolve(query, &shelf).map(|at| shelf[at].path["/hub/".len()..].to_owned());
            match (found, expected) {
                (Ok(path), Ok(expected)) => assert_eq!(path, expected, "{query}"),
                (Err(error), Err(kind)) => assert_eq!(error.kind(), kind, "{query}: {error}"),
                (found, expected) => panic!("{query}: {found:?} in place of {expected:?}"),
            }
        }
        let detail = resolve("tiny", &shelf).unwrap_err();
        assert_eq!(detail.detail(), Some("org/tiny\norg/tiny-big"));
    }

    #[test]
    fn the_model_type_counts_when_no_id_matches() {
        let shelf = models(&["a/b 1 mc"]);
        assert_eq!(resolve("LLAMA", &shelf).unwrap(), 0);
    }
}
