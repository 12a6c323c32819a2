//! The planner's decisions over a table of small hubs.

use std::path::{Path, PathBuf};

use super::{
    Plan, plan,
    request::{Request, Scope},
};
use crate::registry::{
    layout::{Blob, Content, Hub, Ref, Repo, Snapshot, SnapshotFile},
    links::{End, Identity, Way},
    names::{RepoKind, parse_repo_folder},
    store::{Manifest, Payload, Store},
};

const ROOT: &str = "/hub";

fn identity(name: &str, bytes: u64) -> Identity {
    Identity {
        device: 1,
        inode: xxhash_rust::xxh3::xxh3_64(name.as_bytes()),
        name_count: 1,
        bytes,
        modified: 0,
    }
}

/// A hub from lines of words. The first word of a line is a repository's folder; then come refs
/// (`main=1`), snapshots with their files (`1:config>b1,weights>b2`, where a blob of another
/// repository has its folder before a `/`, and a file without a link no `>`), blobs (`+b1`) and
/// blobs in the shared store (`+b2@p`). Each blob and payload has one byte. `?` behind a snapshot
/// says that not all of it could be read.
fn hub(lines: &[&str]) -> Hub {
    let mut hub = Hub {
        root: ROOT.into(),
        read_at: i64::MAX,
        ..Hub::default()
    };
    let payload = |name: &str| PathBuf::from(format!("{ROOT}/blobs/00/{name}"));
    let mut store = Store::default();
    for line in lines {
        for word in line.split(' ') {
            if let Some((blob, name)) = word.strip_prefix('+').and_then(|word| word.split_once('@'))
            {
                let path = payload(name);
                let folder = line.split(' ').next().unwrap();
                let link = PathBuf::from(format!("{ROOT}/{folder}/blobs/{blob}"));
                match store
                    .payloads
                    .iter_mut()
                    .find(|payload| payload.path == path)
                {
                    Some(Payload {
                        manifest: Manifest::Links(_, links),
                        ..
                    }) => links.push(link),
                    _ => store.payloads.push(Payload {
                        identity: identity(name, 1),
                        manifest: Manifest::Links(identity("manifest", 0), vec![link]),
                        path,
                    }),
                }
            }
        }
    }
    let shared = |folder: &str, blob: &str| -> Option<String> {
        let line = lines
            .iter()
            .find(|line| line.starts_with(&format!("{folder} ")))?;
        let at = format!("+{blob}@");
        line.split(' ')
            .find_map(|word| word.strip_prefix(&at))
            .map(str::to_owned)
    };
    let way_of_blob = |folder: &str, blob: &str| -> Way {
        let path = PathBuf::from(format!("{ROOT}/{folder}/blobs/{blob}"));
        match shared(folder, blob) {
            Some(name) => Way {
                links: vec![path],
                end: End::File(payload(&name), identity(&name, 1)),
            },
            None => Way {
                links: Vec::new(),
                end: End::File(path, identity(&format!("{folder}{blob}"), 1)),
            },
        }
    };
    for line in lines {
        let mut words = line.split(' ');
        let folder = words.next().unwrap();
        let path = Path::new(ROOT).join(folder);
        let (kind, id) = parse_repo_folder(folder).unwrap();
        let mut repo = Repo {
            path: path.clone(),
            kind,
            id,
            is_linked: false,
            refs: Vec::new(),
            has_unknown_refs: false,
            snapshots: Vec::new(),
            blobs: Vec::new(),
            bookkeeping: Vec::new(),
        };
        for word in words {
            if let Some(blob) = word.strip_prefix('+') {
                let name = blob.split('@').next().unwrap();
                let way = way_of_blob(folder, name);
                repo.blobs.push(Blob {
                    path: path.join("blobs").join(name),
                    content: if way.links.is_empty() {
                        Content::Regular(identity(&format!("{folder}{name}"), 1))
                    } else {
                        Content::Link(way)
                    },
                });
            } else if let Some((name, commit)) = word.split_once('=') {
                repo.refs.push(Ref {
                    name: name.to_owned(),
                    path: path.join("refs").join(name),
                    commit: commit.to_owned(),
                    content: Content::Regular(identity(name, 0)),
                });
            } else {
                let (commit, files) = word.split_once(':').unwrap();
                let has_unknown_files = commit.ends_with('?');
                let commit = commit.trim_end_matches('?');
                let snapshot = path.join("snapshots").join(commit);
                let file = |text: &str| {
                    let (name, target) = text.split_once('>').unwrap_or((text, ""));
                    let place = snapshot.join(name);
                    let content = if target.is_empty() {
                        Content::Regular(identity(place.to_str().unwrap(), 1))
                    } else if let Some(end) = target.strip_prefix("//") {
                        Content::Link(Way {
                            links: vec![place.clone()],
                            end: End::Folder(Path::new("/").join(end)),
                        })
                    } else {
                        let (owner, blob) = target.split_once('/').unwrap_or((folder, target));
                        let mut way = way_of_blob(owner, blob);
                        way.links.insert(0, place.clone());
                        Content::Link(way)
                    };
                    SnapshotFile {
                        path: place,
                        name: name.into(),
                        content,
                    }
                };
                repo.snapshots.push(Snapshot {
                    commit: commit.into(),
                    path: snapshot.clone(),
                    modified: 0,
                    files: files
                        .split(',')
                        .filter(|text| !text.is_empty())
                        .map(file)
                        .collect(),
                    folders: Vec::new(),
                    has_unknown_files,
                    link: None,
                });
            }
        }
        hub.repos.push(repo);
    }
    hub.store = (!store.payloads.is_empty()).then_some(store);
    hub
}

/// `pruned | skipped | dead`, each as places below the hub.
fn decision(plan: &Plan) -> String {
    let short = |path: &Path| {
        let below = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
        below
            .replace("models--", "")
            .replace("/snapshots/", ":")
            .replace("/blobs/", "+")
    };
    let join = |mut places: Vec<String>| {
        places.sort();
        places.join(" ")
    };
    format!(
        "{} | {} | {}",
        join(
            plan.pruned()
                .iter()
                .map(|pruned| short(&pruned.path))
                .collect()
        ),
        join(
            plan.skipped()
                .iter()
                .map(|skipped| short(&skipped.path))
                .collect()
        ),
        join(plan.dead_blobs().map(|blob| short(&blob.path)).collect()),
    )
}

fn request(scope: Scope) -> Request {
    Request { scope, blobs: None }
}

#[test]
fn what_collecting_takes() {
    const A: &str = "models--a main=2 1:c>b1,w>b2 2:c>b1,w>b3 +b1 +b2 +b3";
    let table: &[(&[&str], bool, &str)] = &[
        (&[A], false, "a:1 |  | a+b2"),
        // No ref, a ref to nothing, a ref to another snapshot.
        (&["models--a 1:c>b1 +b1 +b2"], true, " |  | "),
        (&["models--a main=9 1:c>b1 +b1 +b2"], true, " |  | "),
        (
            &["models--a pr=1 1:c>b1 2:c>b2 +b1 +b2"],
            false,
            "a:2 |  | a+b2",
        ),
        // A blob that nothing links to.
        (&["models--a main=1 1:c>b1 +b1 +b2"], false, " |  | a+b2"),
        // Files that no kept snapshot has, linked or not; noise does not count.
        (
            &["models--a main=2 1:c>b1,x>b2 2:c>b1 +b1 +b2"],
            false,
            " | a:1 | ",
        ),
        (
            &["models--a main=2 1:c>b1,x>b2 2:c>b1 +b1 +b2"],
            true,
            "a:1 |  | a+b2",
        ),
        (&["models--a main=2 1:c,x 2:c>b1 +b1"], false, " | a:1 | "),
        (
            &["models--a main=2 1:c,.DS_Store 2:c>b1 +b1"],
            false,
            "a:1 |  | ",
        ),
        // Two that are skipped do not stand in for each other.
        (
            &["models--a main=3 1:x>b1 2:x>b1 3:c>b2 +b1 +b2"],
            false,
            " | a:1 a:2 | ",
        ),
        // Links from other repositories of every kind.
        (&[A, "models--b 7:w>models--a/b2"], false, "a:1 |  | "),
        (&[A, "datasets--d 7:w>models--a/b2"], false, "a:1 |  | "),
        (&[A, "spaces--d 7:w>models--a/b2"], false, "a:1 |  | "),
        // ... but not from a snapshot that goes itself.
        (
            &[A, "models--b main=2 1:c>models--a/b2 2:c>b4 +b4"],
            false,
            "a:1 b:1 |  | a+b2",
        ),
        // Only models' repositories are collected.
        (
            &["datasets--d main=2 1:c>b1 2:c>b2 +b1 +b2"],
            true,
            " |  | ",
        ),
        // The shared store: gone with its last link, in whatever repository.
        (
            &["models--a main=2 1:w>b1 2:w>b2 +b1@p +b2@q"],
            false,
            "a:1 |  | a+b1 blobs/00/p",
        ),
        (
            &[
                "models--a main=2 1:w>b1 2:w>b2 +b1@p +b2@q",
                "models--b 7:w>b1 +b1@p",
            ],
            false,
            "a:1 |  | a+b1",
        ),
        (
            &[
                "models--a main=2 1:w>b1 2:w>b2 +b1@p +b2@q",
                "datasets--b +b1@p",
            ],
            false,
            "a:1 |  | a+b1",
        ),
        // What could not be read.
        (
            &["models--a main=2 1?:c>b1 2:c>b2 +b1 +b2"],
            true,
            " | a:1 | ",
        ),
        (
            &["models--a main=2 1:c>b1 2?:c>b2 +b1 +b2"],
            false,
            "a:1 |  | ",
        ),
        // A kept link to a folder keeps all that is in it.
        (
            &["models--a main=2 1:c>b1 2:c>b2,all>//hub/models--a +b1 +b2 +b3"],
            true,
            " |  | ",
        ),
        (
            &["models--a main=2 1:c>b1 2:c>b2,x>//hub/models--a/snapshots +b1 +b2 +b3"],
            true,
            " |  | a+b3",
        ),
        (&[A, "datasets--d 7:x>//"], true, " |  | "),
        (
            &[A, "datasets--d 7:x>//hub/models--a/snapshots/1"],
            true,
            " |  | ",
        ),
        (&[A, "datasets--d 7:x>//elsewhere"], true, "a:1 |  | a+b2"),
    ];
    for (lines, force, expected) in table {
        let scope = Scope::Collect {
            repo: None,
            force: *force,
        };
        let plan = plan::plan(&hub(lines), &request(scope));
        assert_eq!(decision(&plan), *expected, "{lines:?} {force}");
        let bytes = plan.dead_blobs().map(|blob| blob.bytes).sum::<u64>();
        let regular = plan.pruned().iter().flat_map(|pruned| &pruned.files);
        let regular = regular.filter(|(_, content)| matches!(content, Content::Regular(_)));
        assert_eq!(plan.bytes(), bytes + regular.count() as u64, "{lines:?}");
    }
}

#[test]
fn one_repository_is_collected_alone() {
    let lines = [
        "models--a main=2 1:w>b1 2:w>b2 +b1@p +b2@q",
        "models--b main=2 1:w>b1 2:w>b2 +b1@r +b2@q",
    ];
    let scope = Scope::Collect {
        repo: Some("/hub/models--b".into()),
        force: false,
    };
    let plan = plan::plan(&hub(&lines), &request(scope));
    assert_eq!(decision(&plan), "b:1 |  | b+b1 blobs/00/r");
}

#[test]
fn what_deleting_takes() {
    const B: &str = "models--b main=2 v1=1 1:c>b1,w>b2 2:c>b1,w>b3 +b1 +b2 +b3 +b4";
    let table: &[(&[&str], Option<&str>, &str, &str)] = &[
        (&[B], None, "b:1 b:2 |  | b+b1 b+b2 b+b3 b+b4", "main v1"),
        // A revision takes its own blobs along, and no others that are dead.
        (&[B], Some("1"), "b:1 |  | b+b2", "v1"),
        (&[B], Some("v1"), "b:1 |  | b+b2", "v1"),
        (
            &[B, "datasets--d 7:w>models--b/b2"],
            Some("1"),
            "b:1 |  | ",
            "v1",
        ),
        (
            &[B, "datasets--d 7:w>models--b/b2"],
            None,
            "b:1 b:2 |  | b+b1 b+b3 b+b4",
            "main v1",
        ),
        // Without a ref, too; the last revision takes the repository.
        (
            &["models--b 1:c>b1 +b1 +b2"],
            Some("1"),
            "b:1 |  | b+b1 b+b2",
            "",
        ),
        // One that something kept links into.
        (
            &[B, "models--c 7:x>//hub/models--b/snapshots/1"],
            None,
            "b:2 |  | b+b3 b+b4",
            "main",
        ),
        (
            &["models--b main=1 1:c>b1,x.incomplete +b1"],
            None,
            " | b:1 | ",
            "",
        ),
    ];
    for (lines, revision, expected, refs) in table {
        let hub = hub(lines);
        let request = Request::delete(&hub, "b", *revision).unwrap();
        let plan = plan::plan(&hub, &request);
        assert_eq!(decision(&plan), *expected, "{lines:?} {revision:?}");
        let gone: Vec<_> = plan
            .refs()
            .iter()
            .map(|path| path.file_name().unwrap())
            .collect();
        assert_eq!(gone.join(" ".as_ref()), **refs, "{lines:?} {revision:?}");
    }
    let hub = hub(&[B]);
    for (id, revision) in [("c", None), ("b", Some("9")), ("", None)] {
        let error = Request::delete(&hub, id, revision).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::NotFound);
    }
    assert_eq!(hub.repos[0].kind, RepoKind::Model);
}
