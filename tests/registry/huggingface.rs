//! The current huggingface_hub beside us, on hubs that its own downloads made: the same sizes and
//! revisions, and after our collecting and deleting it finds everything in order.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use mlxb::registry::{
    ListOptions, Registry,
    gc::{Outcome, Plan},
};
use serde_json::Value;

fn python(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("tools/python"))
        .arg(root.join("tests/registry/huggingface.py"))
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What scan_cache_dir says; it must not complain.
fn scan(hub: &Path) -> Value {
    let report: Value = serde_json::from_str(&python(&["scan", hub.to_str().unwrap()])).unwrap();
    assert_eq!(report["warnings"].as_array().unwrap().len(), 0, "{report}");
    python(&["verify", hub.to_str().unwrap()]);
    report
}

/// Kind, repository, commit and bytes of each revision.
fn revisions(report: &Value) -> BTreeSet<(String, String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let revisions = report["revisions"].as_array().unwrap().iter();
    revisions
        .map(|r| {
            let bytes = r["bytes"].as_u64().unwrap();
            (
                text(&r["kind"]),
                text(&r["repo_id"]),
                text(&r["commit"]),
                bytes,
            )
        })
        .collect()
}

/// The same of models, by our scan.
fn our_revisions(hub: &Path) -> BTreeSet<(String, String, String, u64)> {
    let registry = Registry::open(Some(Path::new(":memory:"))).unwrap();
    let report = registry.scan(Some(hub)).unwrap();
    assert_eq!(report.problems, []);
    let records = registry.list(&ListOptions::default()).unwrap();
    records
        .into_iter()
        .map(|record| {
            let commit = Path::new(&record.path)
                .file_name()
                .unwrap()
                .to_str()
                .unwrap();
            (
                "model".to_owned(),
                record.repo_id,
                commit.to_owned(),
                record.disk_bytes,
            )
        })
        .collect()
}

/// Bytes of the manifests that go with shared files: huggingface_hub does not count them.
fn manifest_bytes(plan: &Plan) -> u64 {
    let manifests = plan
        .dead_blobs()
        .map(|blob| blob.path.with_extension("refs"));
    manifests
        .filter_map(|path| fs::metadata(path).ok())
        .map(|file| file.len())
        .sum()
}

fn execute(plan: &Plan) -> Outcome {
    let outcome = plan.execute().unwrap();
    assert_eq!(outcome.bytes, plan.bytes());
    outcome
}

fn commits(report: &Value) -> Vec<String> {
    let revisions = revisions(report);
    let mut commits: Vec<String> = revisions
        .iter()
        .map(|(kind, id, commit, _)| format!("{kind} {id} {}", commit.trim_start_matches('0')))
        .collect();
    commits.sort();
    commits
}

#[test]
fn both_agree_about_hubs_of_its_own_making() {
    for kind in ["plain", "shared"] {
        let folder = tempfile::tempdir().unwrap();
        let hub: PathBuf = folder.path().canonicalize().unwrap().join("hub");
        python(&["make", hub.to_str().unwrap(), kind]);
        assert_eq!(
            hub.join("blobs/.huggingface-shared-blobs").is_file(),
            kind == "shared"
        );

        let before = scan(&hub);
        let models: BTreeSet<_> = revisions(&before)
            .into_iter()
            .filter(|revision| revision.0 == "model")
            .collect();
        assert_eq!(our_revisions(&hub), models, "{kind}");
        assert_eq!(models.len(), 8, "all that was downloaded");

        // What its own strategy would free, all detached revisions given.
        let forced = Plan::collect(Some(&hub), None, true).unwrap();
        let expected = before["detached_bytes"].as_u64().unwrap();
        assert_eq!(forced.bytes() - manifest_bytes(&forced), expected, "{kind}");

        // Unforced, the one with a file of its own stays.
        let plan = Plan::collect(Some(&hub), None, false).unwrap();
        assert_eq!((plan.pruned().len(), plan.skipped().len()), (1, 1));
        assert_eq!(plan.skipped()[0].extra_files, [PathBuf::from("unique.txt")]);
        let manifests = manifest_bytes(&plan);
        let outcome = execute(&plan);
        let after = scan(&hub);
        let bytes = |report: &Value| report["bytes"].as_u64().unwrap();
        assert_eq!(
            bytes(&before) - bytes(&after),
            outcome.bytes - manifests,
            "{kind}"
        );
        assert_eq!(
            commits(&after),
            [
                "dataset org/alpha 7",
                "model org/alpha 2",
                "model org/alpha 3",
                "model org/beta 4",
                "model org/beta 5",
                "model org/gamma 8",
                "model org/gamma 9",
                "model solo 6",
            ]
        );
        assert_eq!(after["incomplete"], before["incomplete"]);

        execute(&Plan::collect(Some(&hub), Some("org/gamma"), true).unwrap());
        execute(&Plan::delete(Some(&hub), "org/beta", Some("v1")).unwrap());
        execute(&Plan::delete(Some(&hub), "org/alpha", None).unwrap());
        let outcome = execute(&Plan::delete(Some(&hub), "solo", None).unwrap());
        assert_eq!(outcome.left.len(), 1, "its unfinished download");
        let last = scan(&hub);
        assert_eq!(
            commits(&last),
            [
                "dataset org/alpha 7",
                "model org/beta 4",
                "model org/gamma 9"
            ]
        );
        assert_eq!(last["incomplete"], before["incomplete"]);
        assert!(!hub.join("models--org--alpha").exists());
        assert_eq!(our_revisions(&hub).len(), 2);
    }
}
