//! Which models a list shows, and in which order.

use std::collections::HashMap;

use super::{
    canonical::{Candidate, canonical},
    index::Entry,
    record::ModelRecord,
};

/// Whether models must take pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vision {
    /// With and without.
    #[default]
    Any,
    /// Only those that do.
    Yes,
    /// Only those that do not.
    No,
}

/// What a list shows; the default is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Part of the repository's id or of the model type, in any letter case and without
    /// wildcards.
    pub query: Option<String>,
    /// The most bytes of weights.
    pub max_bytes: Option<u64>,
    /// Whether models must take pictures.
    pub vision: Vision,
    /// Only the snapshot that stands for its repository.
    pub canonical_only: bool,
}

/// Chooses each repository's canonical snapshot first, then applies the filters; ordered by
/// the weights' size, then by path.
pub(crate) fn list(entries: Vec<Entry>, options: &ListOptions) -> Vec<ModelRecord> {
    let mut repos: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        repos.entry(&entry.repo).or_default().push(at);
    }
    let canonical: Vec<usize> = repos
        .values()
        .filter_map(|repo| {
            let candidates: Vec<_> = repo.iter().map(|&at| entries[at].candidate()).collect();
            canonical(&candidates).map(|at| repo[at])
        })
        .collect();
    let mut records: Vec<ModelRecord> = entries.into_iter().map(|entry| entry.record).collect();
    for at in canonical {
        records[at].is_canonical = true;
    }
    records.retain(|record| options.admits(record));
    records.sort_by(|a, b| (a.size_bytes, &a.path).cmp(&(b.size_bytes, &b.path)));
    records
}

impl ListOptions {
    fn admits(&self, record: &ModelRecord) -> bool {
        let contains = |text: &str, query: &str| text.to_lowercase().contains(query);
        let matches_query = self.query.as_ref().is_none_or(|query| {
            let query = query.to_lowercase();
            let model_type = record.model_type.as_deref().unwrap_or_default();
            contains(&record.repo_id, &query) || contains(model_type, &query)
        });
        let matches_vision = match self.vision {
            Vision::Any => true,
            Vision::Yes => record.is_vision_capable(),
            Vision::No => !record.is_vision_capable(),
        };
        matches_query
            && matches_vision
            && self.max_bytes.is_none_or(|most| record.size_bytes <= most)
            && (record.is_canonical || !self.canonical_only)
    }
}

impl Entry {
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            is_main: self.stamp.is_main,
            is_complete: self.record.is_complete,
            modified: self.stamp.modified,
            path: &self.record.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::index::Stamp;

    /// `id path size flags type`: m = main, c = complete, s = sidecar; later ones are newer.
    fn entries(lines: &[&str]) -> Vec<Entry> {
        let entry = |(number, line): (usize, &&str)| {
            let parts: Vec<&str> = line.split(' ').collect();
            let [id, path, size, flags, tower] = parts[..] else {
                panic!("{line}");
            };
            Entry {
                repo: id.to_owned(),
                stamp: Stamp {
                    fingerprint: [0; 16],
                    is_main: flags.contains('m'),
                    modified: i64::try_from(number).unwrap(),
                },
                record: ModelRecord {
                    path: path.to_owned(),
                    repo_id: id.to_owned(),
                    model_type: Some("Llama_100%".to_owned()),
                    size_bytes: size.parse().unwrap(),
                    is_complete: flags.contains('c'),
                    has_vision_sidecar: flags.contains('s'),
                    vision_config_type: (tower != "-").then(|| tower.to_owned()),
                    ..ModelRecord::default()
                },
            }
        };
        lines.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn filters_apply_after_the_choice_of_the_canonical_one() {
        let shelf = [
            "o/a p1 100 mc -",
            "o/a p2 10 c -",
            "o/b_x p3 50 c gemma4_unified_vision",
            "o/b_x p4 50 c -",
            "o/cyx p5 50 s x_vision",
            "o/d p0 50 m -",
        ];
        let options = |change: fn(&mut ListOptions)| {
            let mut options = ListOptions::default();
            change(&mut options);
            options
        };
        for (options, expected) in [
            (options(|_| {}), "p2 p0 p3 p4 p5 p1*"),
            (options(|o| o.canonical_only = true), "p0 p4 p1"),
            // The small revision is not the canonical one, so a small budget shows neither.
            (
                options(|o| {
                    o.canonical_only = true;
                    o.max_bytes = Some(10);
                }),
                "",
            ),
            (options(|o| o.max_bytes = Some(50)), "p2 p0 p3 p4 p5"),
            (options(|o| o.vision = Vision::Yes), "p3 p5"),
            (options(|o| o.vision = Vision::No), "p2 p0 p4 p1"),
            (options(|o| o.query = Some("B_X".into())), "p3 p4"),
            (options(|o| o.query = Some("%".into())), "p2 p0 p3 p4 p5 p1"),
            (options(|o| o.query = Some("o/_".into())), ""),
            (
                options(|o| o.query = Some("100%".into())),
                "p2 p0 p3 p4 p5 p1",
            ),
            (options(|o| o.query = Some("\\".into())), ""),
        ] {
            let shown: Vec<String> = list(entries(&shelf), &options)
                .into_iter()
                .map(|record| record.path)
                .collect();
            assert_eq!(shown.join(" "), expected.replace('*', ""), "{options:?}");
        }
        let records = list(entries(&shelf), &ListOptions::default());
        let canonical: Vec<_> = records.iter().filter(|r| r.is_canonical).collect();
        assert_eq!(canonical.len(), 3);
        assert!(
            !canonical[0].is_complete,
            "flagged: refs/main names an incomplete one"
        );
    }
}
