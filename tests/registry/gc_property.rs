//! Random hubs: collecting never takes a byte that something kept can reach, touches nothing
//! outside, and frees exactly what it said.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use mlxb::registry::gc::Plan;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};

const REPOS: [&str; 6] = [
    "models--org--name",
    "models--gpt2",
    "models--a--b--c",
    "models--Org--name",
    "datasets--org--name",
    "spaces--org--name",
];
const FILES: [&str; 6] = [
    "config.json",
    "model.safetensors",
    "sub/deep/file.txt",
    "with -- dashes",
    ".DS_Store",
    "README.md",
];
const REFS: [&str; 3] = ["main", "pr/1", "v1.0"];

/// A file of a snapshot; numbers choose among what there is, modulo.
#[derive(Clone, Debug)]
enum Entry {
    OwnBlob(u8),
    OwnBlobAbsolute(u8),
    OtherBlob(u8, u8),
    OtherSnapshotFile(u8, u8, u8),
    Store(u8),
    Dangling,
    Loop,
    Regular(u8),
    Unfinished,
    Folder(u8),
    Outside,
}

#[derive(Clone, Debug)]
enum Blob {
    Regular(u8),
    HardLink(u8),
    Shared(u8),
    Missing,
    Elsewhere,
    Folder,
    Unfinished,
}

#[derive(Clone, Debug)]
struct Repo {
    blobs: Vec<Blob>,
    snapshots: Vec<Vec<(u8, Entry)>>,
    refs: Vec<(u8, u8)>,
    odd: bool,
}

#[derive(Clone, Debug)]
struct Spec {
    repos: Vec<Option<Repo>>,
    payloads: Vec<u8>,
    is_marked: bool,
    force: bool,
    only: Option<u8>,
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        40 => any::<u8>().prop_map(Entry::OwnBlob),
        2 => any::<u8>().prop_map(Entry::OwnBlobAbsolute),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Entry::OtherBlob(a, b)),
        1 => (any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(a, b, c)| Entry::OtherSnapshotFile(a, b, c)),
        3 => any::<u8>().prop_map(Entry::Store),
        3 => Just(Entry::Dangling),
        1 => Just(Entry::Loop),
        3 => any::<u8>().prop_map(Entry::Regular),
        1 => Just(Entry::Unfinished),
        1 => (0_u8..8).prop_map(Entry::Folder),
        1 => Just(Entry::Outside),
    ]
}

fn blob() -> impl Strategy<Value = Blob> {
    prop_oneof![
        12 => any::<u8>().prop_map(Blob::Regular),
        1 => any::<u8>().prop_map(Blob::HardLink),
        5 => any::<u8>().prop_map(Blob::Shared),
        1 => Just(Blob::Missing),
        1 => Just(Blob::Elsewhere),
        1 => Just(Blob::Folder),
        2 => Just(Blob::Unfinished),
    ]
}

fn repo() -> impl Strategy<Value = Repo> {
    (
        vec(blob(), 0..6),
        vec(vec((any::<u8>(), entry()), 0..5), 0..4),
        vec((any::<u8>(), any::<u8>()), 0..3),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(blobs, snapshots, refs, odd)| Repo {
            blobs,
            snapshots,
            refs,
            odd,
        })
}

fn spec() -> impl Strategy<Value = Spec> {
    (
        vec(prop::option::weighted(0.6, repo()), REPOS.len()),
        vec(any::<u8>(), 0..3),
        prop::bool::weighted(0.9),
        any::<bool>(),
        prop::option::weighted(0.2, any::<u8>()),
    )
        .prop_map(|(repos, payloads, is_marked, force, only)| Spec {
            repos,
            payloads,
            is_marked,
            force,
            only,
        })
}

fn commit(number: usize) -> String {
    format!("{number:040x}")
}

fn blob_name(number: usize) -> String {
    format!("{:064x}", number + 1)
}

fn payload(hub: &Path, number: usize) -> PathBuf {
    let name = format!("{number:02x}{:062x}", 7);
    hub.join("blobs").join(&name[..2]).join(name)
}

fn pick<T>(items: &[T], number: u8) -> Option<usize> {
    (!items.is_empty()).then(|| usize::from(number) % items.len())
}

/// Makes the hub on disk. What cannot be made (two entries of one name) is left out.
fn build(spec: &Spec, root: &Path) {
    let hub = root.join("hub");
    let outside = root.join("outside");
    fs::create_dir_all(&hub).unwrap();
    fs::create_dir_all(outside.join("folder")).unwrap();
    fs::write(outside.join("file"), "outside").unwrap();
    fs::write(outside.join("folder/file"), "outside too").unwrap();
    fs::create_dir_all(hub.join(".locks/models--org--name")).unwrap();
    fs::write(hub.join(".locks/models--org--name/x.lock"), "").unwrap();
    fs::write(hub.join("CACHEDIR.TAG"), "").unwrap();
    if !spec.payloads.is_empty() {
        fs::create_dir_all(hub.join("blobs")).unwrap();
        if spec.is_marked {
            fs::write(hub.join("blobs/.huggingface-shared-blobs"), "1\n").unwrap();
        }
    }
    for (number, size) in spec.payloads.iter().enumerate() {
        let path = payload(&hub, number);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![b's'; 100 + usize::from(*size)]).unwrap();
        // Every third payload has no manifest.
        if size % 3 != 0 {
            fs::write(path.with_extension("refs"), "").unwrap();
        }
        fs::write(path.with_extension("lock"), "").unwrap();
    }
    for (name, repo) in REPOS.iter().zip(&spec.repos) {
        let Some(repo) = repo else { continue };
        let folder = hub.join(name);
        for part in ["blobs", "snapshots", "refs"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        build_blobs(spec, &hub, name, repo);
    }
    for (name, repo) in REPOS.iter().zip(&spec.repos) {
        let Some(repo) = repo else { continue };
        for (number, entries) in repo.snapshots.iter().enumerate() {
            let snapshot = hub.join(name).join("snapshots").join(commit(number));
            fs::create_dir_all(&snapshot).unwrap();
            for (file, entry) in entries {
                build_entry(spec, root, name, &snapshot, *file, entry);
            }
        }
        for (ref_name, target) in &repo.refs {
            let path = hub
                .join(name)
                .join("refs")
                .join(REFS[usize::from(*ref_name) % REFS.len()]);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Sometimes a commit that is not there.
            let target = usize::from(*target) % (repo.snapshots.len() + 1);
            fs::write(path, format!("{}\n", commit(target))).unwrap();
        }
        if repo.odd {
            fs::write(hub.join(name).join("notes.txt"), "mine").unwrap();
            fs::create_dir_all(hub.join(name).join("snapshots/.empty")).unwrap();
        }
    }
}

fn build_blobs(spec: &Spec, hub: &Path, name: &str, repo: &Repo) {
    let folder = hub.join(name).join("blobs");
    for (number, blob) in repo.blobs.iter().enumerate() {
        let path = folder.join(blob_name(number));
        match blob {
            Blob::Regular(size) => fs::write(&path, vec![b'b'; usize::from(*size)]).unwrap(),
            Blob::HardLink(other) => {
                let other = folder.join(blob_name(usize::from(*other) % (number + 1)));
                let _ = fs::hard_link(other, &path);
            }
            Blob::Shared(number) => {
                let Some(number) = pick(&spec.payloads, *number) else {
                    continue;
                };
                let target = payload(hub, number);
                let relative = target.strip_prefix(hub).unwrap();
                symlink(Path::new("../..").join(relative), &path).unwrap();
                let manifest = target.with_extension("refs");
                if let Ok(mut lines) = fs::read_to_string(&manifest) {
                    let link = path.strip_prefix(hub).unwrap();
                    lines.push_str(&format!("{}\n", link.display()));
                    fs::write(manifest, lines).unwrap();
                }
            }
            Blob::Missing => symlink("../../blobs/00/nothing", &path).unwrap(),
            Blob::Elsewhere => symlink("../../../outside/file", &path).unwrap(),
            Blob::Folder => {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("inside"), "in a blob").unwrap();
            }
            Blob::Unfinished => fs::write(path.with_extension("incomplete"), "half").unwrap(),
        }
    }
}

fn build_entry(spec: &Spec, root: &Path, repo: &str, snapshot: &Path, file: u8, entry: &Entry) {
    let hub = root.join("hub");
    let name = FILES[usize::from(file) % FILES.len()];
    let path = snapshot.join(name);
    let _ = fs::create_dir_all(path.parent().unwrap());
    let up = "../".repeat(name.matches('/').count());
    let blobs_of = |repo: usize| spec.repos[repo].as_ref().map_or(0, |repo| repo.blobs.len());
    let own = REPOS.iter().position(|name| *name == repo).unwrap();
    let at = |repo: usize, number: u8| {
        REPOS[repo].to_owned() + "/blobs/" + &blob_name(usize::from(number) % blobs_of(repo).max(1))
    };
    let target = match entry {
        Entry::OwnBlob(number) => format!("{up}../../../{}", at(own, *number)),
        Entry::OwnBlobAbsolute(number) => hub.join(at(own, *number)).display().to_string(),
        Entry::OtherBlob(repo, number) => {
            format!(
                "{up}../../../{}",
                at(usize::from(*repo) % REPOS.len(), *number)
            )
        }
        Entry::OtherSnapshotFile(repo, number, file) => format!(
            "{up}../../../{}/snapshots/{}/{}",
            REPOS[usize::from(*repo) % REPOS.len()],
            commit(usize::from(*number) % 3),
            FILES[usize::from(*file) % FILES.len()],
        ),
        Entry::Store(number) => match pick(&spec.payloads, *number) {
            Some(number) => payload(&hub, number).display().to_string(),
            None => return,
        },
        Entry::Dangling => "../../blobs/gone".to_owned(),
        Entry::Loop => path.file_name().unwrap().to_str().unwrap().to_owned(),
        Entry::Outside => root.join("outside/file").display().to_string(),
        Entry::Folder(kind) => match kind {
            0 => "/".to_owned(),
            1 => format!("{up}../.."),
            2 => format!("{up}../../blobs"),
            3 => format!("{up}../{}", commit(1)),
            4 => format!("{up}../../../models--org--name/snapshots"),
            5 => root.join("outside/folder").display().to_string(),
            6 => format!("{up}../../.."),
            _ => format!("{up}../../../blobs"),
        },
        Entry::Regular(size) => {
            if fs::symlink_metadata(&path).is_err() {
                let _ = fs::write(&path, vec![b'r'; usize::from(*size)]);
            }
            return;
        }
        Entry::Unfinished => {
            let _ = fs::write(path.with_extension("incomplete"), "half");
            return;
        }
    };
    let _ = symlink(target, &path);
}

/// Every name below `folder` without following links: what it is, and its content.
fn census(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                into.insert(path.clone(), b"folder".to_vec());
                walk(&path, into);
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                into.insert(path, target.as_os_str().as_encoded_bytes().to_vec());
            } else {
                let content = fs::read(&path).unwrap();
                into.insert(path, content);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(folder, &mut all);
    all
}

/// Bytes on disk below `folder`, each file once.
fn disk_bytes(folder: &Path) -> u64 {
    let mut files = BTreeMap::new();
    for path in census(folder).keys() {
        let metadata = fs::symlink_metadata(path).unwrap();
        if metadata.is_file() {
            files.insert((metadata.dev(), metadata.ino()), metadata.len());
        }
    }
    files.values().sum()
}

/// The real paths of all files that can be opened through `path`, folders entered.
fn reachable(path: &Path, hub: &Path, seen: &mut HashSet<PathBuf>, into: &mut BTreeSet<PathBuf>) {
    let Ok(real) = path.canonicalize() else {
        return;
    };
    if !seen.insert(real.clone()) {
        return;
    }
    if real.is_file() {
        into.insert(real);
    } else if hub.starts_with(&real) && real != hub {
        // A folder around the hub: all of the hub, and more that is not ours to look at.
        reachable(hub, hub, seen, into);
    } else {
        for entry in fs::read_dir(&real).unwrap() {
            reachable(&entry.unwrap().path(), hub, seen, into);
        }
    }
}

/// Snapshots that must stay whatever the plan says: those that a ref names, and all of
/// repositories that are no models' or have no ref to a snapshot that is there.
fn must_stay(hub: &Path) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    for repo in REPOS {
        let folder = hub.join(repo);
        let mut commits = HashSet::new();
        for name in REFS {
            if let Ok(commit) = fs::read_to_string(folder.join("refs").join(name)) {
                commits.insert(commit.trim().to_owned());
            }
        }
        let Ok(entries) = fs::read_dir(folder.join("snapshots")) else {
            continue;
        };
        let snapshots: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let is_named =
            |path: &&PathBuf| commits.contains(path.file_name().unwrap().to_str().unwrap());
        let named: Vec<PathBuf> = snapshots.iter().filter(is_named).cloned().collect();
        if named.is_empty() || !repo.starts_with("models--") {
            kept.extend(snapshots);
        } else {
            kept.extend(named);
        }
    }
    kept
}

fn unfinished(census: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<&PathBuf> {
    let ends = |path: &&PathBuf| {
        let name = path.to_str().unwrap();
        name.ends_with(".incomplete") || name.ends_with(".lock")
    };
    census.keys().filter(ends).collect()
}

static FREED: AtomicU64 = AtomicU64::new(0);
static SPARED: AtomicU64 = AtomicU64::new(0);

fn check(spec: &Spec) {
    // Thousands of small files: in memory where the system has such a place.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    };
    let root = folder.path().canonicalize().unwrap();
    build(spec, &root);
    let hub = root.join("hub");
    let before = census(&root);
    let kept = must_stay(&hub);
    let mut reached = BTreeSet::new();
    for snapshot in &kept {
        reachable(snapshot, &hub, &mut HashSet::new(), &mut reached);
    }
    let only = spec.only.and_then(|number| {
        let name = REPOS[usize::from(number) % REPOS.len()];
        let is_model = name.starts_with("models--") && hub.join(name).exists();
        is_model.then(|| mlxb::registry::parse_repo_folder(name).unwrap().1)
    });

    let plan = Plan::collect(Some(&hub), only.as_deref(), spec.force).unwrap();
    assert_eq!(census(&root), before, "a plan changes nothing");
    let bytes = disk_bytes(&hub);
    let outcome = plan.execute().unwrap();
    let after = census(&root);

    assert_eq!(
        bytes - disk_bytes(&hub),
        outcome.bytes,
        "freed is what it says"
    );
    assert_eq!(
        plan.bytes(),
        outcome.bytes,
        "freed is what was planned: {:?}",
        outcome.left
    );
    for snapshot in &kept {
        assert!(snapshot.is_dir(), "lost: {}", snapshot.display());
    }
    for path in &reached {
        let content = after.get(path);
        assert_eq!(content, before.get(path), "lost: {}", path.display());
    }
    // Snapshots that stay are whole, whoever keeps them.
    for path in before.keys() {
        let is_in_kept_snapshot = path.ancestors().any(|up| {
            up.parent()
                .is_some_and(|parent| parent.ends_with("snapshots"))
                && up.is_dir()
        });
        if is_in_kept_snapshot {
            assert_eq!(
                after.get(path),
                before.get(path),
                "changed: {}",
                path.display()
            );
        }
    }
    let outside = |census: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<(PathBuf, Vec<u8>)> {
        let is_outside = |path: &Path| {
            !path.starts_with(&hub) || {
                let below = path.strip_prefix(&hub).unwrap().to_str().unwrap();
                !below.starts_with("models--") && !below.starts_with("blobs/")
            }
        };
        census
            .iter()
            .filter(|(path, _)| is_outside(path))
            .map(|(path, content)| (path.clone(), content.clone()))
            .collect()
    };
    assert_eq!(outside(&after), outside(&before), "outside is untouched");
    assert_eq!(unfinished(&after), unfinished(&before));
    for path in after.keys() {
        assert!(before.contains_key(path), "made: {}", path.display());
    }

    let again = Plan::collect(Some(&hub), only.as_deref(), spec.force).unwrap();
    let outcome_again = again.execute().unwrap();
    assert_eq!(
        outcome_again.bytes,
        0,
        "once is enough: {}",
        again.report(None)
    );
    assert_eq!(census(&root), after);
    FREED.fetch_add(outcome.bytes, Ordering::Relaxed);
    SPARED.fetch_add(
        (plan.kept().len() + plan.skipped().len()) as u64,
        Ordering::Relaxed,
    );
}

#[test]
fn collecting_random_hubs_loses_nothing() {
    let config = Config {
        cases: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&spec(), |spec| {
            check(&spec);
            Ok(())
        })
        .unwrap();
    // The hubs are not all trivial.
    assert!(FREED.load(Ordering::Relaxed) > 100_000);
    assert!(SPARED.load(Ordering::Relaxed) > 1_000);
}
