//! Which of a folder's weight files are the model, and which are missing: a pure decision over
//! names.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::names::{self, Numbered, Role, SINGLE};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
};

/// As many missing files as it makes sense to name.
const MOST_MISSING: usize = 10_000;

/// What is known about a folder. All names end in `.safetensors` and are not hidden.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Files in the folder, and whether each can be used: not empty, not a link to nothing, not
    /// shorter than the hub lists it, and for `model.safetensors` beside an index of absent
    /// files, whole by its own header.
    pub(super) present: BTreeMap<String, bool>,
    /// Files that the hub lists for this revision, where it left such a list.
    pub(super) listed: BTreeSet<String>,
    /// Files that `model.safetensors.index.json` names.
    pub(super) indexed: Option<BTreeSet<String>>,
}

/// The decision. Names are in the order in which to load the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) main: Vec<String>,
    pub(super) extra: Vec<String>,
    pub(super) sidecars: Vec<String>,
    pub(super) missing: Vec<String>,
}

impl Known {
    pub(super) fn is_usable(&self, name: &str) -> bool {
        self.present.get(name) == Some(&true)
    }

    pub(super) fn has_all<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> bool {
        names.into_iter().all(|name| self.is_usable(name))
    }

    /// Names of `names` that cannot be used.
    fn lacking<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let lacking = names.into_iter().filter(|name| !self.is_usable(name));
        lacking.cloned().collect()
    }

    /// The indexed files that belong to the main set, unless the index is known to be of
    /// another revision or of another repository.
    fn index(&self) -> Option<Vec<String>> {
        let indexed = self.indexed.as_ref()?;
        let mut wanted: Vec<String> = indexed
            .iter()
            .filter(|name| {
                // These hold what the model does without, wherever they are listed.
                !matches!(names::role(name), Role::Vision | Role::MultiTokenPrediction)
            })
            .cloned()
            .collect();
        names::sort(&mut wanted);
        let none_is_listed =
            !self.listed.is_empty() && !wanted.iter().any(|name| self.listed.contains(name));
        let is_stale = none_is_listed && self.lacking(&wanted).len() == wanted.len();
        (!wanted.is_empty() && !is_stale).then_some(wanted)
    }
}

/// Decides which files are the model.
///
/// 1. The files of the index, when all are there.
/// 2. Else a whole `model.safetensors` that the index does not name: the index is stale.
/// 3. Else, when none of the index's files is there, what a folder without an index would give,
///    if that is complete or a `model.safetensors` that cannot be used.
/// 4. Without an index: `model.safetensors`; else the complete set of numbered files; else all
///    `model*` files; else all files that are not known to be something else.
///
/// # Errors
/// [`Kind::ModelFormat`] when there are several complete numbered sets and nothing says which
/// one is meant.
pub(super) fn choose(known: &Known) -> Result<Choice> {
    let sets = numbered_sets(known);
    let mut choice = match known.index() {
        None => without_index(known, &sets)?,
        Some(wanted) => {
            let missing = known.lacking(&wanted);
            let single_is_apart = !wanted.iter().any(|name| name == SINGLE);
            if missing.is_empty() {
                whole(wanted)
            } else if single_is_apart && known.is_usable(SINGLE) {
                whole(vec![SINGLE.to_owned()])
            } else {
                let none_is_there = missing.len() == wanted.len();
                let partial = Choice {
                    main: wanted
                        .into_iter()
                        .filter(|name| known.is_usable(name))
                        .collect(),
                    missing,
                    ..Choice::default()
                };
                if none_is_there {
                    let other = without_index(known, &sets)?;
                    let is_meant = other.missing.is_empty()
                        || (other.missing == [SINGLE] && known.present.contains_key(SINGLE));
                    if is_meant { other } else { partial }
                } else {
                    partial
                }
            }
        }
    };
    add_others(known, &sets, &mut choice);
    Ok(choice)
}

fn whole(main: Vec<String>) -> Choice {
    Choice {
        main,
        ..Choice::default()
    }
}

/// What is known of one set of numbered files. The names are made only when asked for, since a
/// folder may claim many large sets.
struct Set<'a> {
    sample: Numbered<'a>,
    usable: BTreeSet<usize>,
    counts_from_zero: bool,
}

impl Set<'_> {
    fn numbers(&self) -> Range<usize> {
        // Nearly everybody counts from 1.
        let first = usize::from(!self.counts_from_zero);
        first..first + self.sample.total()
    }

    fn lacking_count(&self) -> usize {
        self.sample.total() - self.usable.range(self.numbers()).count()
    }

    fn is_complete(&self) -> bool {
        self.lacking_count() == 0
    }

    fn usable(&self) -> impl Iterator<Item = String> {
        self.usable
            .range(self.numbers())
            .map(|&number| self.sample.sibling(number))
    }

    fn lacking(&self) -> impl Iterator<Item = String> {
        self.numbers()
            .filter(|number| !self.usable.contains(number))
            .map(|number| self.sample.sibling(number))
    }
}

type Sets<'a> = BTreeMap<(&'a str, &'a str, usize), Set<'a>>;

/// The numbered sets of which any file is present or listed by the hub.
fn numbered_sets(known: &Known) -> Sets<'_> {
    let mut sets = Sets::new();
    for name in known.present.keys().chain(&known.listed) {
        if names::role(name) != Role::Main {
            continue;
        }
        let Some(shard) = Numbered::parse(name) else {
            continue;
        };
        let set = sets.entry(shard.set()).or_insert_with(|| Set {
            sample: shard,
            usable: BTreeSet::new(),
            counts_from_zero: false,
        });
        set.counts_from_zero |= shard.number == 0;
        if known.is_usable(name) {
            set.usable.insert(shard.number);
        }
    }
    sets
}

fn without_index(known: &Known, sets: &Sets<'_>) -> Result<Choice> {
    if known.is_usable(SINGLE) {
        return Ok(whole(vec![SINGLE.to_owned()]));
    }
    let model_sets = || {
        sets.values()
            .filter(|set| names::is_model_base(set.sample.base))
    };
    let mut complete: Vec<_> = model_sets().filter(|set| set.is_complete()).collect();
    if complete.iter().any(|set| set.sample.base == "model") {
        complete.retain(|set| set.sample.base == "model");
    }
    match complete.as_slice() {
        [] => {}
        [set] => return Ok(whole(set.usable().collect())),
        [first, second, ..] => {
            return Err(Error::new(
                Kind::ModelFormat,
                format!(
                    "two complete sets of weights and no index that tells which to load: {}, {}",
                    Escaped(&first.sample.sibling(1)),
                    Escaped(&second.sample.sibling(1)),
                ),
            ));
        }
    }
    // The set that is nearest to being complete is the one that was being fetched.
    if let Some(set) = model_sets().min_by_key(|set| set.lacking_count()) {
        return Ok(Choice {
            main: set.usable().collect(),
            missing: set.lacking().collect(),
            ..Choice::default()
        });
    }
    if known.present.contains_key(SINGLE) || known.listed.contains(SINGLE) {
        return Ok(only_missing(SINGLE));
    }
    Ok(under_other_names(known, sets))
}

fn only_missing(name: &str) -> Choice {
    Choice {
        missing: vec![name.to_owned()],
        ..Choice::default()
    }
}

/// The model of a folder that has no file by one of the usual names.
fn under_other_names(known: &Known, sets: &Sets<'_>) -> Choice {
    let unnumbered = |is_model: bool| {
        known.present.iter().filter(move |(name, _)| {
            names::role(name) == Role::Main
                && Numbered::parse(name).is_none()
                && (!is_model || is_model_glob(name))
        })
    };
    let only_models = unnumbered(true).next().is_some();
    let mut choice = Choice::default();
    for (name, usable) in unnumbered(only_models) {
        let list = if *usable {
            &mut choice.main
        } else {
            &mut choice.missing
        };
        list.push(name.clone());
    }
    if !only_models {
        for set in sets.values() {
            choice.main.extend(set.usable());
            let room = MOST_MISSING.saturating_sub(choice.missing.len());
            choice.missing.extend(set.lacking().take(room));
        }
    }
    if choice.main.is_empty() && choice.missing.is_empty() {
        return only_missing(SINGLE);
    }
    names::sort(&mut choice.main);
    choice
}

/// What mlx-lm and others take for weights, whatever an index says.
fn is_model_glob(name: &str) -> bool {
    name.starts_with("model")
}

/// Adds the files beside the main set.
fn add_others(known: &Known, sets: &Sets<'_>, choice: &mut Choice) {
    let taken: BTreeSet<&String> = choice.main.iter().chain(&choice.missing).collect();
    let main_sets: BTreeSet<_> = choice
        .main
        .iter()
        .filter_map(|name| Numbered::parse(name).map(|shard| shard.set()))
        .collect();
    let (mut extra, mut sidecars, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (name, usable) in &known.present {
        if taken.contains(name) {
            continue;
        }
        if names::role(name) != Role::Main {
            if *usable {
                sidecars.push(name.clone());
            }
            continue;
        }
        let belongs = match Numbered::parse(name).map(|shard| shard.set()) {
            // Another set of the model's weights, or part of something.
            Some(set) if names::is_model_base(set.0) => main_sets.contains(&set),
            Some(set) => sets.get(&set).is_some_and(Set::is_complete),
            None => name != SINGLE,
        };
        if belongs && *usable {
            extra.push(name.clone());
        } else if belongs && is_model_glob(name) {
            missing.push(name.clone());
        }
    }
    names::sort(&mut extra);
    choice.extra = extra;
    choice.sidecars = sidecars;
    choice.missing.extend(missing);
}
