//! The decision over a table, and over random folders.

use proptest::prelude::*;

use super::*;

/// Names separated by spaces; a leading `!` marks a file that cannot be used.
fn known(present: &str, listed: &str, indexed: Option<&str>) -> Known {
    let full = |name: &str| format!("{name}.safetensors");
    Known {
        present: present
            .split_whitespace()
            .map(|name| match name.strip_prefix('!') {
                Some(name) => (full(name), false),
                None => (full(name), true),
            })
            .collect(),
        listed: listed.split_whitespace().map(full).collect(),
        indexed: indexed.map(|names| names.split_whitespace().map(full).collect()),
    }
}

fn short(names: &[String]) -> String {
    let short: Vec<_> = names
        .iter()
        .map(|name| name.strip_suffix(".safetensors").unwrap())
        .collect();
    short.join(" ")
}

#[test]
fn the_table() {
    // present, listed by the hub, indexed => main, extra, sidecars, missing
    type Row = (
        &'static str,
        &'static str,
        Option<&'static str>,
        [&'static str; 4],
    );
    let rows: &[Row] = &[
        ("model", "", None, ["model", "", "", ""]),
        ("model", "", Some("model"), ["model", "", "", ""]),
        ("", "", None, ["", "", "", "model"]),
        ("!model", "", None, ["", "", "", "model"]),
        ("!model", "", Some("model"), ["", "", "", "model"]),
        // With an index: all of it, in order, or what is missing.
        ("m-b m-a", "", Some("m-a m-b"), ["m-a m-b", "", "", ""]),
        (
            "model-1-of-3 !model-2-of-3",
            "",
            Some("model-1-of-3 model-2-of-3 model-3-of-3"),
            ["model-1-of-3", "", "", "model-2-of-3 model-3-of-3"],
        ),
        // A stale index: a whole single file beats it.
        (
            "model",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["model", "", "", ""],
        ),
        (
            "model model-1-of-2",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["model", "", "", ""],
        ),
        // ... but not a missing or a broken one, and not when the index names it too.
        (
            "!model model-1-of-2",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["model-1-of-2", "", "", "model-2-of-2"],
        ),
        ("model", "", Some("model other"), ["model", "", "", "other"]),
        (
            "!model",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["", "", "", "model"],
        ),
        // ... nor does it replace an index whose files are all there.
        (
            "model model-1-of-2 model-2-of-2",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["model-1-of-2 model-2-of-2", "", "", ""],
        ),
        // A stale index beside another complete set.
        (
            "model-1-of-2 model-2-of-2",
            "",
            Some("model-1-of-3 model-2-of-3 model-3-of-3"),
            ["model-1-of-2 model-2-of-2", "", "", ""],
        ),
        (
            "model-1-of-2",
            "",
            Some("model-1-of-3 model-2-of-3"),
            ["", "", "", "model-1-of-3 model-2-of-3"],
        ),
        // Files beside the model.
        (
            "model projector mtp optiq_vision adapters consolidated",
            "",
            Some("model"),
            [
                "model",
                "projector",
                "adapters consolidated mtp optiq_vision",
                "",
            ],
        ),
        (
            "model projector mtp",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["model", "projector", "mtp", ""],
        ),
        // Sidecars are no part of the main set even where the index names them.
        (
            "model mtp",
            "",
            Some("model mtp optiq_vision"),
            ["model", "", "mtp", ""],
        ),
        ("mtp", "", Some("mtp"), ["", "", "mtp", "model"]),
        ("consolidated", "", None, ["", "", "consolidated", "model"]),
        (
            "consolidated adapters",
            "",
            Some("consolidated"),
            ["consolidated", "", "adapters", ""],
        ),
        ("model !projector !mtp", "", None, ["model", "", "", ""]),
        (
            "model !model-extra",
            "",
            None,
            ["model", "", "", "model-extra"],
        ),
        (
            "model model.fp16",
            "",
            None,
            ["model", "model.fp16", "", ""],
        ),
        (
            "model proj-1-of-2 proj-2-of-2 q-1-of-2",
            "",
            None,
            ["model", "proj-1-of-2 proj-2-of-2", "", ""],
        ),
        (
            "model-1-of-2 model-2-of-2 model-mtp",
            "",
            Some("model-1-of-2 model-2-of-2"),
            ["model-1-of-2 model-2-of-2", "model-mtp", "", ""],
        ),
        (
            "model-1-of-2 model-2-of-2",
            "",
            Some("model-1-of-2"),
            ["model-1-of-2", "model-2-of-2", "", ""],
        ),
        // Without an index: numbers tell what is missing.
        (
            "model-1-of-3 model-3-of-3",
            "",
            None,
            ["model-1-of-3 model-3-of-3", "", "", "model-2-of-3"],
        ),
        (
            "model-0-of-2 model-1-of-2",
            "",
            None,
            ["model-0-of-2 model-1-of-2", "", "", ""],
        ),
        (
            "model-1-of-2 model-1-of-3 model-2-of-2",
            "",
            None,
            ["model-1-of-2 model-2-of-2", "", "", ""],
        ),
        (
            "model model-1-of-2 model-2-of-2",
            "",
            None,
            ["model", "", "", ""],
        ),
        (
            "model-1-of-2 model-2-of-2 model.fp16-1-of-2 model.fp16-2-of-2",
            "",
            None,
            ["model-1-of-2 model-2-of-2", "", "", ""],
        ),
        ("model.fp16", "", None, ["model.fp16", "", "", ""]),
        (
            "weights.00 weights.01",
            "",
            None,
            ["weights.00 weights.01", "", "", ""],
        ),
        (
            "language-1-of-2 vision",
            "",
            None,
            ["language-1-of-2 vision", "", "", "language-2-of-2"],
        ),
        // The hub's list of files.
        (
            "model-1-of-3 model-3-of-3",
            "model-1-of-3 model-2-of-3 model-3-of-3",
            None,
            ["model-1-of-3 model-3-of-3", "", "", "model-2-of-3"],
        ),
        ("", "model", None, ["", "", "", "model"]),
        (
            "",
            "model-1-of-2 model-2-of-2 consolidated",
            None,
            ["", "", "", "model-1-of-2 model-2-of-2"],
        ),
        (
            "",
            "model",
            Some("model-1-of-2 model-2-of-2"),
            ["", "", "", "model"],
        ),
        ("model", "model projector mtp", None, ["model", "", "", ""]),
    ];
    for (present, listed, indexed, expected) in rows {
        let choice = choose(&known(present, listed, *indexed)).unwrap();
        let got = [
            short(&choice.main),
            short(&choice.extra),
            short(&choice.sidecars),
            short(&choice.missing),
        ];
        assert_eq!(got, *expected, "{present} / {listed} / {indexed:?}");
    }
}

#[test]
fn two_complete_sets_without_an_index_are_refused() {
    let files = "model-1-of-1 model-1-of-2 model-2-of-2";
    let error = choose(&known(files, "", None)).unwrap_err();
    assert_eq!(error.kind(), Kind::ModelFormat);
    assert!(
        error.message().contains("model-1-of-1.safetensors"),
        "{error}"
    );
}

fn any_names() -> impl Strategy<Value = Vec<String>> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "model",
            "projector",
            "mtp",
            "optiq_vision",
            "consolidated",
            "model.fp16",
            "model-extra",
            "weights.00",
        ])
        .prop_map(str::to_owned),
        (
            prop::sample::select(vec!["model", "model.fp16", "proj", "mtp"]),
            0..5usize,
            1..4usize,
        )
            .prop_map(|(base, number, total)| format!("{base}-{number}-of-{total}")),
    ];
    let full = name.prop_map(|name| name + ".safetensors");
    prop::collection::vec(full, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn only_usable_files_are_chosen_and_each_once(
        present in any_names(),
        usable in any::<u8>(),
        listed in any_names(),
        indexed in prop::option::of(any_names()),
    ) {
        let known = Known {
            present: present
                .into_iter()
                .enumerate()
                .map(|(at, name)| (name, usable >> at & 1 == 1))
                .collect(),
            listed: listed.into_iter().collect(),
            indexed: indexed.map(|names| names.into_iter().collect()),
        };
        let Ok(choice) = choose(&known) else {
            return Ok(());
        };
        let chosen = || choice.main.iter().chain(&choice.extra).chain(&choice.sidecars);
        prop_assert!(known.has_all(chosen()));
        prop_assert!(choice.missing.iter().all(|name| !known.is_usable(name)));
        let distinct: BTreeSet<_> = chosen().chain(&choice.missing).collect();
        prop_assert_eq!(distinct.len(), chosen().chain(&choice.missing).count());
        prop_assert!(!choice.missing.is_empty() || !choice.main.is_empty());
        // What is complete stays complete, and the same, when it is looked at again with
        // nothing else in the folder and no lists.
        if choice.missing.is_empty() && known.indexed.is_none() {
            let alone = Known {
                present: choice.main.iter().map(|name| (name.clone(), true)).collect(),
                ..Known::default()
            };
            prop_assert_eq!(choose(&alone).unwrap().main, choice.main);
        }
    }
}
