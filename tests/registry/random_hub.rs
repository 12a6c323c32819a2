//! Hubs as chance makes them: shared and dangling links, folders where none should be, loops,
//! unfinished downloads, odd files, and links out of the hub.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use proptest::{collection::vec, prelude::*};

pub(crate) const REPOS: [&str; 6] = [
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
pub(crate) const REFS: [&str; 3] = ["main", "pr/1", "v1.0"];

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
pub(crate) struct Spec {
    repos: Vec<Option<Repo>>,
    payloads: Vec<u8>,
    is_marked: bool,
    pub(crate) force: bool,
    /// One repository in place of all.
    pub(crate) only: Option<u8>,
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

pub(crate) fn spec() -> impl Strategy<Value = Spec> {
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

pub(crate) fn commit(number: usize) -> String {
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
pub(crate) fn build(spec: &Spec, root: &Path) {
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
