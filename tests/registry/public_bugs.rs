//! Faults that others reported of hub caches, each with what is right here.

use std::{fs, os::unix::fs::symlink};

use mlxb::{
    Kind,
    registry::{ListOptions, Registry, gc::Plan},
};

use crate::hub::{Hub, blob_name, commit, config, model_files, weights};

const A: &str = "models--org--a";
const B: &str = "models--org--b";

/// huggingface_hub#4498: a repository's blob may itself be a link into a hub-wide store.
#[test]
fn a_file_in_the_shared_store_lives_as_long_as_one_repository_links_to_it() {
    let hub = Hub::new();
    let shared = weights(&["x"], 100);
    for repo in [A, B] {
        let files = [
            ("config.json", config("llama")),
            ("model.safetensors", shared.clone()),
        ];
        hub.snapshot(repo, &commit(1), &files);
        hub.share(repo, &shared);
        hub.set_ref(repo, "main", &commit(1));
    }
    let payload = hub
        .path("blobs")
        .join("00")
        .join(format!("{:0>64}", blob_name(&shared)));
    assert!(payload.is_file());

    let records = hub.list();
    assert_eq!(records.len(), 2, "the store is no repository");
    for record in &records {
        assert_eq!(record.size_bytes, shared.len() as u64);
        assert_eq!(
            record.disk_bytes,
            (shared.len() + config("llama").len()) as u64
        );
    }

    // Both keep it; then one; then nobody.
    let nothing = Plan::collect(Some(&hub.root), None, false).unwrap();
    assert_eq!(nothing.bytes(), 0);
    let first = Plan::delete(Some(&hub.root), "org/a", None).unwrap();
    assert!(
        first.bytes() < shared.len() as u64,
        "sizes are counted once"
    );
    assert_eq!(first.execute().unwrap().bytes, first.bytes());
    assert!(payload.is_file());
    let intact = hub.snapshot_path(B, &commit(1)).join("model.safetensors");
    assert_eq!(fs::read(intact).unwrap(), shared);
    assert!(!hub.path(A).exists());

    let second = Plan::delete(Some(&hub.root), "org/b", None).unwrap();
    assert!(second.bytes() > shared.len() as u64);
    let outcome = second.execute().unwrap();
    assert_eq!((outcome.bytes, outcome.left), (second.bytes(), vec![]));
    assert!(!payload.exists());
}

/// huggingface_hub#4394: a partial snapshot looked complete.
#[test]
fn a_snapshot_without_all_its_shards_is_incomplete_and_not_resolved() {
    let shard = |number| format!("model-0000{number}-of-00003.safetensors");
    let name = |number| -> &'static str { shard(number).leak() };
    let index = format!(
        r#"{{"weight_map": {{"a": "{}", "b": "{}", "c": "{}"}}}}"#,
        shard(1),
        shard(2),
        shard(3)
    );
    let two_of_three = |hub: &Hub, repo: &str, index: Option<&str>| {
        let mut files = model_files("llama", 4);
        files[1] = (name(1), weights(&["a"], 4));
        files.push((name(2), weights(&["b"], 4)));
        files.extend(index.map(|index| ("model.safetensors.index.json", index.into())));
        hub.snapshot(repo, &commit(1), &files);
        hub.set_ref(repo, "main", &commit(1));
    };
    let hub = Hub::new();
    two_of_three(&hub, A, None);
    let size = weights(&["a"], 4).len();
    let listed = (1..=3)
        .map(|number| format!(r#""{}": {{"size": {size}, "blob_id": "x"}}"#, shard(number)))
        .collect::<Vec<_>>()
        .join(",");
    hub.write(
        &format!("{A}/trees/{}.json", commit(1)),
        format!(r#"{{"format_version": 1, "files": {{{listed}}}}}"#),
    );
    two_of_three(&hub, B, Some(&index));

    let registry = hub.scanned();
    for record in registry.list(&ListOptions::default()).unwrap() {
        assert!(!record.is_complete, "{}", record.repo_id);
        assert!(record.is_canonical, "refs/main names it all the same");
        let error = registry.resolve(&record.repo_id).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.message().contains("no complete snapshot"), "{error}");
    }
    // The third shard arrives.
    for repo in [A, B] {
        let blob = weights(&["c"], 4);
        hub.write(&format!("{repo}/blobs/{}", blob_name(&blob)), &blob);
        hub.link(
            &format!("{repo}/snapshots/{}/{}", commit(1), shard(3)),
            format!("../../blobs/{}", blob_name(&blob)),
        );
    }
    registry.scan(Some(&hub.root)).unwrap();
    assert!(registry.resolve("org/a").unwrap().is_complete);
    assert!(registry.resolve("org/b").unwrap().is_complete);
}

/// huggingface_hub#2110: files of operating systems and backup tools are no damage.
#[test]
fn files_of_the_operating_system_are_ignored_everywhere() {
    let hub = Hub::new();
    hub.model(A, &commit(1), 4);
    hub.model(A, &commit(2), 8);
    hub.set_ref(A, "main", &commit(2));
    for folder in [
        String::new(),
        format!("{A}/refs/"),
        format!("{A}/snapshots/"),
        format!("{A}/snapshots/{}/", commit(1)),
        format!("{A}/snapshots/{}/", commit(2)),
        format!("{A}/blobs/"),
    ] {
        for name in [
            ".DS_Store",
            "._x",
            "CACHEDIR.TAG",
            "Thumbs.db",
            "desktop.ini",
        ] {
            hub.write(&format!("{folder}{name}"), "noise");
        }
    }
    hub.write(&format!(".locks/{A}/x.lock"), "");

    let registry = Registry::open(Some(":memory:".as_ref())).unwrap();
    let report = registry.scan(Some(&hub.root)).unwrap();
    assert_eq!((report.count, report.problems), (2, vec![]));
    let plan = Plan::collect(Some(&hub.root), None, false).unwrap();
    assert_eq!(plan.problems(), []);
    assert_eq!(
        plan.skipped(),
        [],
        "noise is not worth keeping a snapshot for"
    );
    assert_eq!(plan.pruned().len(), 1);
    plan.execute().unwrap();
    assert!(!hub.snapshot_path(A, &commit(1)).exists());
}

/// huggingface_hub#1050: an empty snapshot stopped the scan.
#[test]
fn an_empty_snapshot_is_incomplete_and_the_scan_goes_on() {
    let hub = Hub::new();
    fs::create_dir_all(hub.snapshot_path(A, &commit(1))).unwrap();
    hub.model(B, &commit(1), 4);
    let records = hub.list();
    let complete: Vec<_> = records.iter().filter(|record| record.is_complete).collect();
    assert_eq!(complete.len(), 1);
    assert_eq!(complete[0].repo_id, "org/b");
    assert!(
        records
            .iter()
            .all(|record| record.is_complete || record.disk_bytes == 0)
    );
}

/// huggingface_hub#3838: two folders whose names differ in letter case.
#[test]
fn ids_that_differ_in_letter_case_are_one_model_in_two_folders() {
    let (upper, lower) = ("models--Org--Name", "models--org--name");
    let hub = Hub::new();
    hub.model(upper, &commit(1), 4);
    hub.set_ref(upper, "main", &commit(1));
    hub.model(lower, &commit(2), 4);
    hub.set_ref(lower, "main", &commit(2));
    let registry = hub.scanned();
    for (query, repo) in [("org/name", lower), ("Org/Name", upper)] {
        let path = registry.resolve(query).unwrap().path;
        assert!(path.contains(repo), "{query}: {path}");
    }
    // Not ambiguous either.
    assert!(registry.resolve("ORG/NAME").is_ok());
    assert!(registry.resolve("g/na").is_ok());
    // Collecting and deleting look at each folder on its own.
    hub.model(lower, &commit(3), 8);
    let plan = Plan::collect(Some(&hub.root), Some("org/name"), true).unwrap();
    assert_eq!(plan.pruned().len(), 1);
    assert!(plan.pruned()[0].path.starts_with(hub.path(lower)));
    let plan = Plan::delete(Some(&hub.root), "Org/Name", None).unwrap();
    plan.execute().unwrap();
    assert!(!hub.path(upper).exists());
    assert!(
        hub.snapshot_path(lower, &commit(2))
            .join("config.json")
            .is_file()
    );
}

/// hf-hub#207: deleting raced with a download that links an old blob.
#[test]
fn a_link_made_after_the_plan_keeps_its_blob() {
    let hub = Hub::new();
    hub.model(A, &commit(1), 4);
    hub.model(A, &commit(2), 8);
    hub.set_ref(A, "main", &commit(2));
    let old = weights(&["model.embed_tokens.weight"], 4);
    let plan = Plan::collect(Some(&hub.root), None, false).unwrap();
    assert!(plan.dead_blobs().any(|blob| blob.bytes == old.len() as u64));

    // A new revision of another repository has the same file, by a link across.
    let link = hub.link(
        &format!("{B}/snapshots/{}/model.safetensors", commit(9)),
        format!("../../../{A}/blobs/{}", blob_name(&old)),
    );
    let outcome = plan.execute().unwrap();
    assert_eq!(fs::read(&link).unwrap(), old);
    let left: Vec<_> = outcome.left.iter().map(|left| &left.path).collect();
    assert_eq!(left, [&hub.path(&format!("{A}/blobs/{}", blob_name(&old)))]);
    assert!(
        !hub.snapshot_path(A, &commit(1)).exists(),
        "the rest goes on"
    );
    assert!(outcome.bytes < plan.bytes());

    // The same within the repository, for a ref, and for a file that has come.
    let hub = Hub::new();
    for number in 1..=4 {
        hub.model(A, &commit(number), number as usize);
    }
    hub.set_ref(A, "main", &commit(4));
    let plan = Plan::collect(Some(&hub.root), None, false).unwrap();
    assert_eq!(plan.pruned().len(), 3);
    hub.set_ref(A, "pr/1", &commit(1));
    hub.write(&format!("{A}/snapshots/{}/new.txt", commit(2)), "new");
    let outcome = plan.execute().unwrap();
    assert_eq!(outcome.snapshots, [hub.snapshot_path(A, &commit(3))]);
    assert!(
        hub.snapshot_path(A, &commit(1))
            .join("model.safetensors")
            .is_file()
    );
    assert!(hub.snapshot_path(A, &commit(2)).join("new.txt").is_file());
}

/// A download holds the lock of the blob that it has not linked yet.
#[test]
fn a_blob_whose_download_is_at_work_stays() {
    let hub = Hub::new();
    hub.model(A, &commit(1), 4);
    hub.set_ref(A, "main", &commit(1));
    let blob = hub.write(&format!("{A}/blobs/abc"), "just arrived");
    let lock = fs::File::create(hub.write(&format!(".locks/{A}/abc.lock"), "")).unwrap();
    lock.lock().unwrap();
    let plan = Plan::collect(Some(&hub.root), None, false).unwrap();
    assert_eq!(plan.bytes(), "just arrived".len() as u64);
    let outcome = plan.execute().unwrap();
    assert_eq!((outcome.bytes, outcome.left.len()), (0, 1));
    assert!(blob.is_file());
    drop(lock);
    assert_eq!(plan.execute().unwrap().bytes, plan.bytes());
    assert!(!blob.exists());
}

/// omlx#466: the hub's layout, as loosely as it occurs.
#[test]
fn refs_are_read_as_they_occur() {
    for (refs, canonical) in [
        (vec![("main", format!("{}\n", commit(1)))], 1),
        (vec![("main", format!(" {} ", commit(1)))], 1),
        (vec![("pr/1", commit(1))], 2),
        (vec![], 2),
        (vec![("main", commit(7))], 2),
        (vec![("main", String::new())], 2),
    ] {
        let hub = Hub::new();
        hub.model(A, &commit(1), 4);
        hub.model(A, &commit(2), 4);
        hub.snapshot(A, &commit(3), &[("config.json", config("llama"))]);
        for (number, seconds) in [(1, 1_000), (2, 2_000), (3, 3_000)] {
            let folder = fs::File::open(hub.snapshot_path(A, &commit(number))).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            folder.set_modified(time).unwrap();
        }
        for (name, content) in &refs {
            hub.set_ref(A, name, content);
        }
        let records = hub.list();
        let chosen: Vec<_> = records
            .iter()
            .filter(|record| record.is_canonical)
            .collect();
        assert_eq!(chosen.len(), 1, "{refs:?}");
        assert!(chosen[0].path.ends_with(&commit(canonical)), "{refs:?}");
        let kept = Plan::collect(Some(&hub.root), None, true)
            .unwrap()
            .kept()
            .len();
        let names_one = refs.iter().any(|(_, content)| content.trim() == commit(1));
        assert_eq!(kept, if names_one { 1 } else { 3 }, "{refs:?}");
    }
}

/// omlx#2741: what was listed could not be deleted.
#[test]
fn every_listed_id_resolves_and_can_be_deleted_alone() {
    let folders = [
        "models--gpt2",
        "models--org--name",
        "models--a--b--c",
        "models--a---b",
        "models----odd",
        "models--dots.and_more--x.y",
        "models--caf\u{e9}--cr\u{e8}me",
    ];
    for doomed in folders {
        let hub = Hub::new();
        for folder in folders {
            hub.model(folder, &commit(1), 4);
            hub.set_ref(folder, "main", &commit(1));
        }
        let registry = hub.scanned();
        let records = registry.list(&ListOptions::default()).unwrap();
        assert_eq!(records.len(), folders.len());
        let record = records.iter().find(|r| r.path.contains(doomed)).unwrap();
        assert_eq!(registry.resolve(&record.repo_id).unwrap().path, record.path);
        let plan = Plan::delete(Some(&hub.root), &record.repo_id, None).unwrap();
        let outcome = plan.execute().unwrap();
        assert_eq!((outcome.left, outcome.bytes), (vec![], plan.bytes()));
        assert!(!hub.path(doomed).exists());
        // Never returned by a read before the next scan, and the others are whole.
        let rest = registry.list(&ListOptions::default()).unwrap();
        assert_eq!(rest.len(), folders.len() - 1);
        for record in rest {
            let path = std::path::Path::new(&record.path);
            assert!(fs::read(path.join("model.safetensors")).is_ok());
        }
        let gone = registry.resolve(&record.repo_id).unwrap_err();
        assert!(
            matches!(gone.kind(), Kind::NotFound | Kind::Ambiguous),
            "{gone}"
        );
    }
}

/// lmstudio-bug-tracker#196: folder names shown in place of ids.
#[test]
fn ids_are_shown_not_folder_names() {
    let hub = Hub::new();
    for folder in ["models--a--b--c", "models--gpt2"] {
        hub.model(folder, &commit(1), 4);
    }
    let mut ids: Vec<String> = hub
        .list()
        .into_iter()
        .map(|record| record.repo_id)
        .collect();
    ids.sort();
    assert_eq!(ids, ["a/b--c", "gpt2"]);
}

/// Links across repositories of other kinds count like those of models.
#[test]
fn links_from_datasets_and_spaces_keep_blobs_alive() {
    let hub = Hub::new();
    hub.model(A, &commit(1), 4);
    hub.model(A, &commit(2), 8);
    hub.set_ref(A, "main", &commit(2));
    let old = weights(&["model.embed_tokens.weight"], 4);
    let link = hub.path("datasets--x--y/snapshots/1/file");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(format!("../../../{A}/blobs/{}", blob_name(&old)), &link).unwrap();
    let plan = Plan::collect(Some(&hub.root), None, true).unwrap();
    assert_eq!(plan.pruned().len(), 1);
    plan.execute().unwrap();
    assert_eq!(fs::read(link).unwrap(), old);
}

/// Unfinished downloads and locks are never touched; old ones are named.
#[test]
fn old_unfinished_downloads_are_reported_and_left() {
    let hub = Hub::new();
    hub.model(A, &commit(1), 4);
    hub.set_ref(A, "main", &commit(1));
    let old = hub.write(&format!("{A}/blobs/abc.12345678.incomplete"), "half");
    let young = hub.write(&format!("{A}/blobs/def.incomplete"), "half");
    let lock = hub.write(&format!(".locks/{A}/abc.lock"), "");
    for path in [&old, &lock] {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let plan = Plan::collect(Some(&hub.root), None, true).unwrap();
    let report: serde_json::Value = serde_json::from_str(&plan.report(None)).unwrap();
    let named: Vec<&str> = report["leftovers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|leftover| leftover["path"].as_str().unwrap())
        .collect();
    assert_eq!(named, [old.to_str().unwrap(), lock.to_str().unwrap()]);
    plan.execute().unwrap();
    Plan::delete(Some(&hub.root), "org/a", None)
        .unwrap()
        .execute()
        .unwrap();
    assert!(old.is_file() && young.is_file() && lock.is_file());
    // What is left of the repository is in order for others.
    assert!(hub.path(&format!("{A}/snapshots")).is_dir());
}
