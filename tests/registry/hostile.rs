//! Hubs that mean harm: nothing crashes, nothing outside is touched, and each oddity is named.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use mlxb::registry::{ListOptions, Registry, gc::Plan};

use crate::hub::{Hub, commit, config, weights};

const A: &str = "models--org--a";

/// Every name below a folder with its content, links as they are.
fn census(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            all.push((path, content));
        }
    }
    all.sort();
    all
}

fn hostile_hub() -> Hub {
    let hub = Hub::new();
    let outside = hub.beside().join("outside");
    fs::create_dir_all(outside.join("snapshots/x")).unwrap();
    fs::write(outside.join("snapshots/x/config.json"), config("outside")).unwrap();
    fs::write(outside.join("precious"), "precious").unwrap();
    // A model in order, with something to collect.
    hub.model(A, &commit(1), 4);
    hub.model(A, &commit(2), 8);
    hub.set_ref(A, "main", &commit(2));

    hub.link("models--evil--root", "/");
    hub.link("models--evil--up", "../..");
    hub.link("models--evil--outside", &outside);
    hub.link("models--evil--self", ".");
    hub.link("models--evil--alias", A);
    hub.link("models--evil--nowhere", "nothing");
    hub.write("models--evil--file", "a file");
    hub.write("models--evil--nothing/readme", "no snapshots");
    hub.write("not-a-repo", "");

    let evil = "models--evil--snapshot";
    let snapshot = format!("{evil}/snapshots/{}", commit(1));
    hub.set_ref(evil, "main", &commit(1));
    hub.link(&format!("{snapshot}/circle"), "circle");
    hub.link(&format!("{snapshot}/precious"), outside.join("precious"));
    hub.link(&format!("{snapshot}/passwords"), "/etc/passwd");
    hub.link(
        &format!("{snapshot}/config.json"),
        outside.join("snapshots/x/config.json"),
    );
    hub.link(&format!("{evil}/snapshots/linked"), &outside);
    hub.write(&format!("{evil}/snapshots/file"), "");
    fs::create_dir_all(hub.path(&format!("{evil}/blobs/folder"))).unwrap();
    hub.write(
        &format!("{evil}/blobs/folder/inside"),
        "inside a folder that is a blob",
    );
    hub.link(&format!("{evil}/blobs/out"), outside.join("precious"));
    hub.link(&format!("{evil}/refs/link"), "/etc/passwd");

    let deep = format!("models--evil--deep/snapshots/{}", "d/".repeat(60));
    hub.write(&format!("{deep}config.json"), config("llama"));
    hub.link("models--evil--parts/snapshots", &outside);
    hub.link("models--evil--parts/blobs", &outside);

    let huge = "models--evil--header";
    let mut header = 200_000_000_u64.to_le_bytes().to_vec();
    header.extend(b"{}");
    hub.write(&format!("{huge}/snapshots/1/config.json"), config("llama"));
    hub.write(&format!("{huge}/snapshots/1/tokenizer.json"), "{}");
    hub.write(&format!("{huge}/snapshots/1/model.safetensors"), header);
    hub.write(
        "models--evil--json/snapshots/1/config.json",
        "[".repeat(1_000_000),
    );
    let tensors = "models--evil--weights/snapshots/1";
    hub.write(&format!("{tensors}/config.json"), config("%s%n"));
    hub.write(&format!("{tensors}/tokenizer.json"), "{}");
    let mut lying = weights(&["a"], 4);
    lying.truncate(lying.len() - 1);
    hub.write(&format!("{tensors}/model.safetensors"), lying);

    let invalid = OsStr::from_bytes(b"models--evil--\xff\xfe");
    fs::create_dir_all(hub.root.join(invalid).join("snapshots/1")).unwrap();
    fs::write(
        hub.root.join(invalid).join("snapshots/1/config.json"),
        config("x"),
    )
    .unwrap();
    let names = hub.path("models--evil--names/snapshots");
    fs::create_dir_all(names.join(OsStr::from_bytes(b"\xff"))).unwrap();
    fs::create_dir_all(names.join("%s%n\n")).unwrap();
    fs::write(
        names
            .join("%s%n\n")
            .join(OsStr::from_bytes(b"\xff.safetensors")),
        "x",
    )
    .unwrap();
    hub
}

const NAMED: [&str; 19] = [
    "models--evil--root",
    "models--evil--up",
    "models--evil--self",
    "models--evil--alias",
    "models--evil--nowhere",
    "models--evil--file",
    "models--evil--nothing",
    "not-a-repo",
    "circle",
    "snapshots/linked",
    "snapshots/file",
    "models--evil--deep",
    "models--evil--parts/snapshots",
    "models--evil--header",
    "models--evil--json",
    "models--evil--weights",
    "models--evil--\u{fffd}",
    "models--evil--names/snapshots/\u{fffd}",
    "models--evil--names/snapshots/%s%n",
];

#[test]
fn scanning_names_what_is_odd_and_goes_on() {
    let hub = hostile_hub();
    let before = census(&hub.beside());
    let registry = Registry::open(Some(Path::new(":memory:"))).unwrap();
    let report = registry.scan(Some(&hub.root)).unwrap();
    assert_eq!(census(&hub.beside()), before);
    let named: Vec<String> = report
        .problems
        .iter()
        .map(|problem| format!("{}: {}", problem.path.to_string_lossy(), problem.reason))
        .collect();
    // An empty snapshot with a strange name is a record, an incomplete one.
    let records = registry.list(&ListOptions::default()).unwrap();
    let listed: Vec<&str> = records.iter().map(|record| record.path.as_str()).collect();
    for name in NAMED {
        let is_named = named.iter().any(|line| line.contains(name))
            || records
                .iter()
                .any(|r| !r.is_complete && r.path.contains(name));
        assert!(is_named, "{name} is missing in {named:#?} and {listed:#?}");
    }
    assert!(registry.resolve("org/a").is_ok());
    assert!(!report.json().is_empty());
}

#[test]
fn collecting_and_deleting_touch_nothing_outside() {
    let hub = hostile_hub();
    let outside = hub.beside().join("outside");
    let before = census(&outside);
    let plan = Plan::collect(Some(&hub.root), None, true).unwrap();
    for name in [
        "models--evil--root",
        "blobs/folder",
        "snapshots/linked",
        "models--evil--parts",
    ] {
        let is_named = plan
            .problems()
            .iter()
            .any(|p| p.path.to_string_lossy().contains(name))
            || plan
                .left()
                .iter()
                .any(|l| l.path.to_string_lossy().contains(name));
        assert!(is_named, "{name}");
    }
    assert!(plan.report(None).contains("models--evil--root"));
    let outcome = plan.execute().unwrap();
    assert_eq!(outcome.bytes, plan.bytes());
    assert_eq!(outcome.snapshots, [hub.snapshot_path(A, &commit(1))]);
    assert_eq!(census(&outside), before);

    // Named deletions of all that can be named.
    for entry in fs::read_dir(&hub.root).unwrap() {
        let name = entry.unwrap().file_name();
        let Some((_, id)) = name.to_str().and_then(mlxb::registry::parse_repo_folder) else {
            continue;
        };
        if let Ok(plan) = Plan::delete(Some(&hub.root), &id, None) {
            let outcome = plan.execute().unwrap();
            assert_eq!(outcome.bytes, plan.bytes(), "{id}");
        }
    }
    assert_eq!(census(&outside), before);
    assert!(Path::new("/etc/passwd").is_file());
    let left: Vec<_> = census(&hub.root)
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("a folder that is a blob"))
        .collect();
    assert!(left.is_empty());
    assert!(
        hub.path("models--evil--snapshot/blobs/folder/inside")
            .is_file()
    );
}

/// A folder link to everything makes everything reachable, and so nothing may go.
#[test]
fn a_kept_link_to_the_root_keeps_all() {
    for target in ["/", "../../..", "../../../.."] {
        let hub = Hub::new();
        hub.model(A, &commit(1), 4);
        hub.model(A, &commit(2), 8);
        hub.set_ref(A, "main", &commit(2));
        hub.link(&format!("{A}/snapshots/{}/all", commit(2)), target);
        let before = census(&hub.beside());
        let plan = Plan::collect(Some(&hub.root), None, true).unwrap();
        assert_eq!((plan.bytes(), plan.pruned().len()), (0, 0), "{target}");
        plan.execute().unwrap();
        assert_eq!(census(&hub.beside()), before);
        assert!(
            plan.problems()
                .iter()
                .any(|problem| problem.path.ends_with("all"))
        );
    }
}

/// What takes the place of a folder between plan and execution is not followed.
#[test]
fn a_link_in_the_place_of_a_planned_folder_is_not_followed() {
    let hub = Hub::new();
    let outside = hub.beside().join("outside");
    hub.model(A, &commit(1), 4);
    hub.model(A, &commit(2), 8);
    hub.set_ref(A, "main", &commit(2));
    for part in ["snapshots", "blobs"] {
        let plan = Plan::collect(Some(&hub.root), None, true).unwrap();
        assert!(plan.bytes() > 0);
        fs::rename(hub.path(&format!("{A}/{part}")), &outside).unwrap();
        symlink(&outside, hub.path(&format!("{A}/{part}"))).unwrap();
        let before = census(&outside);
        let outcome = plan.execute().unwrap();
        assert_eq!((outcome.bytes, outcome.snapshots.len()), (0, 0), "{part}");
        assert_eq!(census(&outside), before);
        fs::remove_file(hub.path(&format!("{A}/{part}"))).unwrap();
        fs::rename(&outside, hub.path(&format!("{A}/{part}"))).unwrap();
    }
}

const UNPRIVILEGED: &str = "MLXB_TEST_UNPRIVILEGED_HUB";

/// Root may read everything, so the test runs itself as nobody.
#[test]
fn what_may_not_be_read_is_named_and_left() {
    let Ok(root) = std::env::var(UNPRIVILEGED) else {
        let hub = Hub::new();
        hub.model(A, &commit(1), 4);
        hub.model(A, &commit(2), 8);
        hub.set_ref(A, "main", &commit(2));
        let b = "models--org--b";
        hub.model(b, &commit(1), 4);
        hub.model(b, &commit(2), 8);
        hub.set_ref(b, "main", &commit(2));
        hub.write(&format!("{b}/snapshots/{}/secret/file", commit(2)), "x");
        hub.model("models--org--c", &commit(1), 4);
        hub.set_ref("models--org--c", "main", &commit(1));
        hub.model("models--org--c", &commit(2), 8);
        hub.model("models--org--d", &commit(1), 4);
        // nobody owns the hub but for what is closed to him.
        let status = Command::new("chown")
            .args(["-R", "65534"])
            .arg(hub.beside())
            .status();
        assert!(status.unwrap().success());
        let closed = [
            hub.path(&format!("{b}/snapshots/{}/secret", commit(2))),
            hub.path("models--org--c/refs/main"),
            hub.path("models--org--d"),
        ];
        for path in &closed {
            std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        }
        // The test's own file need not be readable for others where it is.
        let copy = hub.beside().join("test");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let output = Command::new(&copy)
            .args([
                "--exact",
                "hostile::what_may_not_be_read_is_named_and_left",
                "--nocapture",
            ])
            .env(UNPRIVILEGED, &hub.root)
            .env("LD_LIBRARY_PATH", libraries)
            .uid(65534)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(text.contains("1 passed"), "{text}");
        return;
    };
    let root = Path::new(&root);
    let registry = Registry::open(Some(Path::new(":memory:"))).unwrap();
    let report = registry.scan(Some(root)).unwrap();
    let is_named = |name: &str| {
        let reason = |p: &&mlxb::registry::Problem| p.reason.contains("denied");
        let mut denied = report.problems.iter().filter(reason);
        denied.any(|problem| problem.path.to_string_lossy().contains(name))
    };
    for name in ["secret", "refs/main", "models--org--d"] {
        assert!(is_named(name), "{name}: {:?}", report.problems);
    }
    assert!(registry.resolve("org/a").is_ok());
    let plan = Plan::collect(Some(root), None, true).unwrap();
    let outcome = plan.execute().unwrap();
    // Of b the snapshot goes; its blobs may be linked from what could not be read.
    let gone = |repo: &str, number| {
        !root
            .join(repo)
            .join("snapshots")
            .join(commit(number))
            .exists()
    };
    assert!(gone(A, 1) && gone("models--org--b", 1) && !gone("models--org--c", 2));
    assert_eq!(outcome.bytes, plan.bytes());
    let old = weights(&["model.embed_tokens.weight"], 4).len() as u64;
    assert_eq!(outcome.bytes, old);
}
