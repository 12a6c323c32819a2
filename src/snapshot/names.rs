//! What the name of a weight file says about it.

/// The one file of a model that is not split.
pub(super) const SINGLE: &str = "model.safetensors";

pub(super) const SUFFIX: &str = ".safetensors";

/// More shards than any model has. A larger number in a name is not taken for a count of
/// shards, since each of them could have to be named as missing.
const MOST_SHARDS: usize = 10_000;

/// What a weight file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Part of the model's weights.
    Main,
    /// A file beside the main set that is loaded with it, for architectures that look for its
    /// tensors. Where a name stands in both, the main set's tensor counts, and tensors that
    /// nobody asks for are no error.
    Extra,
    /// A vision tower kept apart.
    Vision,
    /// Layers that predict further tokens.
    MultiTokenPrediction,
    /// Adapter weights.
    Adapter,
    /// The same weights once more, under their publisher's own names.
    Duplicate,
}

/// What the file called `name` is for, going by the name alone; [`Role::Main`] for all that is
/// not known to be something else.
pub(super) fn role(name: &str) -> Role {
    let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
    let base = Numbered::parse(name).map_or(stem, |numbered| numbered.base);
    let begins = |prefix: &str| {
        base.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_', '.']))
    };
    if begins("optiq_vision") {
        Role::Vision
    } else if begins("mtp") {
        Role::MultiTokenPrediction
    } else if begins("adapter") || begins("adapters") || base.ends_with("_adapters") {
        Role::Adapter
    } else if begins("consolidated") {
        Role::Duplicate
    } else {
        Role::Main
    }
}

/// Whether files that differ only in their number belong to a model by the usual naming, going
/// by the part before the number: `model`, or with a variant `model.fp16`.
pub(super) fn is_model_base(base: &str) -> bool {
    base == "model" || base.starts_with("model.")
}

/// A name like `model-00001-of-00003.safetensors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Numbered<'a> {
    pub(super) base: &'a str,
    /// The count of shards as it is written, with its zeros.
    total_text: &'a str,
    digits: usize,
    pub(super) number: usize,
}

impl<'a> Numbered<'a> {
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (rest, total_text) = name.strip_suffix(SUFFIX)?.rsplit_once("-of-")?;
        let (base, number_text) = rest.rsplit_once('-')?;
        let total = digits(total_text)?;
        let number = digits(number_text)?;
        (total > 0 && number <= total && total <= MOST_SHARDS).then_some(Self {
            base,
            total_text,
            digits: number_text.len(),
            number,
        })
    }

    pub(super) fn total(&self) -> usize {
        digits(self.total_text).expect("parsed before")
    }

    /// What all shards of one set have in common.
    pub(super) fn set(&self) -> (&'a str, &'a str, usize) {
        (self.base, self.total_text, self.digits)
    }

    /// The name of another shard of the same set.
    pub(super) fn sibling(&self, number: usize) -> String {
        let Self {
            base,
            total_text,
            digits,
            ..
        } = self;
        format!("{base}-{number:0digits$}-of-{total_text}{SUFFIX}")
    }
}

fn digits(text: &str) -> Option<usize> {
    let all = !text.is_empty() && text.len() <= 8 && text.bytes().all(|b| b.is_ascii_digit());
    all.then(|| text.parse().expect("at most eight digits"))
}

/// Sorts names as a person would: shards by their number, whatever their padding.
pub(super) fn sort(names: &mut [String]) {
    names.sort_by(|a, b| match (Numbered::parse(a), Numbered::parse(b)) {
        (Some(x), Some(y)) if x.base == y.base => x.number.cmp(&y.number).then(a.cmp(b)),
        _ => a.cmp(b),
    });
}

/// Whether a name found inside a file can only mean a file of the same folder.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.contains(['/', '\\', '\0'])
        && name != "."
        && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_are_taken_apart_and_put_together() {
        let shard = Numbered::parse("model-00002-of-00013.safetensors").unwrap();
        assert_eq!((shard.base, shard.number, shard.total()), ("model", 2, 13));
        assert_eq!(shard.sibling(11), "model-00011-of-00013.safetensors");
        let odd = Numbered::parse("model.safetensors-1-of-2.safetensors").unwrap();
        assert_eq!(odd.base, "model.safetensors");
        assert_eq!(odd.sibling(2), "model.safetensors-2-of-2.safetensors");
        for name in [
            "model.safetensors",
            "model-00001.safetensors",
            "model-00003-of-00002.safetensors",
            "model-1-of-0.safetensors",
            "model-1-of-99999999.safetensors",
            "model-1-of-18446744073709551617.safetensors",
            "model-x-of-2.safetensors",
            "model-+1-of-2.safetensors",
            "model-1-of-2.bin",
            "-of-.safetensors",
        ] {
            assert_eq!(Numbered::parse(name), None, "{name}");
        }
    }

    #[test]
    fn roles_go_by_the_name() {
        for (name, expected) in [
            ("model.safetensors", Role::Main),
            ("model-00001-of-00002.safetensors", Role::Main),
            ("projector.safetensors", Role::Main),
            ("mtpfoo.safetensors", Role::Main),
            ("optiq_vision.safetensors", Role::Vision),
            ("mtp.safetensors", Role::MultiTokenPrediction),
            ("mtp-00001-of-00002.safetensors", Role::MultiTokenPrediction),
            ("adapters.safetensors", Role::Adapter),
            ("adapter_model.safetensors", Role::Adapter),
            ("0000100_adapters.safetensors", Role::Adapter),
            ("consolidated.safetensors", Role::Duplicate),
            ("consolidated-00001-of-00051.safetensors", Role::Duplicate),
            ("consolidated.00.safetensors", Role::Duplicate),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
    }

    #[test]
    fn shards_sort_by_number() {
        let mut names = [
            "model-10-of-10.safetensors",
            "model-9-of-10.safetensors",
            "a",
        ]
        .map(str::to_owned)
        .to_vec();
        sort(&mut names);
        assert_eq!(
            names,
            [
                "a",
                "model-9-of-10.safetensors",
                "model-10-of-10.safetensors"
            ]
        );
    }

    #[test]
    fn plain_names_stay_in_the_folder() {
        for name in ["model.safetensors", "..model", "a b", "%s%n"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", ".", "..", "/etc/passwd", "../x", "a/b", "a\\b", "a\0b"] {
            assert!(!is_plain(name), "{name}");
        }
        assert!(!is_plain(&"x".repeat(256)));
    }
}
