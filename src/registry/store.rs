//! The hub-wide blob store of huggingface_hub 1.32 and later: files that several repositories
//! share.
//!
//! `<hub>/blobs/<first two digits>/<hash>` holds the bytes; a repository's `blobs/<etag>` is then
//! a link to it. `<hash>.refs` beside it lists these links, one path below the hub a line. Its
//! lines are hints: each counts only when the link is really there. The store is one only with
//! its marker file.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::{
    layout::{Problem, Reader, read_small},
    links::Identity,
    names::{is_in_flight, is_noise, parse_repo_folder},
};

/// The store's folder below the hub.
pub(crate) const FOLDER: &str = "blobs";
const MARKER: &str = ".huggingface-shared-blobs";
const VERSION: &[u8] = b"1\n";
const MANIFEST: &str = "refs";

/// The store's files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Ordered by path.
    pub(crate) payloads: Vec<Payload>,
}

/// One shared file.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) manifest: Manifest,
}

/// Which links use a payload, by its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manifest {
    /// The links that the manifest names and that are really there.
    Links(Identity, Vec<PathBuf>),
    /// No manifest, or one that cannot be checked: the payload's users are not known.
    Unknown,
}

/// The manifest beside a payload.
pub(crate) fn manifest_path(payload: &Path) -> PathBuf {
    payload.with_extension(MANIFEST)
}

/// The lock that huggingface_hub takes for a payload.
pub(crate) fn lock_path(payload: &Path) -> PathBuf {
    payload.with_extension("lock")
}

/// Whether the hub has a store of the known version.
pub(crate) fn is_store(root: &Path) -> bool {
    let folder = root.join(FOLDER);
    let is_folder = fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_dir());
    let marker = folder.join(MARKER);
    let is_file = fs::symlink_metadata(&marker).is_ok_and(|metadata| metadata.is_file());
    is_folder && is_file && read_small(&marker).is_ok_and(|content| content == VERSION)
}

/// Reads the store; nothing when the hub has none.
pub(crate) fn read(root: &Path, reader: &mut Reader) -> Option<Store> {
    let folder = root.join(FOLDER);
    if fs::symlink_metadata(&folder).is_err() {
        return None;
    }
    if !is_store(root) {
        reader.problems.push(Problem::new(
            folder,
            "not a blob store of the known version",
        ));
        return None;
    }
    let mut payloads = Vec::new();
    for (prefix, path, metadata) in reader.entries(&folder).0 {
        let is_prefix = prefix.len() == 2 && is_hexadecimal(prefix.as_encoded_bytes());
        if !is_prefix || !metadata.is_dir() {
            if prefix != MARKER && !is_noise(&prefix) {
                reader
                    .problems
                    .push(Problem::new(path, "not part of the blob store"));
            }
            continue;
        }
        for (name, path, metadata) in reader.entries(&path).0 {
            let bytes = name.as_encoded_bytes();
            if bytes.len() == 64
                && is_hexadecimal(bytes)
                && bytes.starts_with(prefix.as_encoded_bytes())
                && metadata.is_file()
            {
                payloads.push(Payload {
                    manifest: read_manifest(root, &path),
                    identity: Identity::of(&metadata),
                    path,
                });
            } else if !is_in_flight(&name) && path.extension().is_none_or(|end| end != MANIFEST) {
                reader
                    .problems
                    .push(Problem::new(path, "not part of the blob store"));
            }
        }
    }
    Some(Store { payloads })
}

fn is_hexadecimal(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
}

/// The links that use `payload`, as far as its manifest can be trusted.
pub(crate) fn read_manifest(root: &Path, payload: &Path) -> Manifest {
    let path = manifest_path(payload);
    let identity = match fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_file() => Identity::of(&metadata),
        _ => return Manifest::Unknown,
    };
    let Some(content) = read_small(&path)
        .ok()
        .and_then(|content| String::from_utf8(content).ok())
    else {
        return Manifest::Unknown;
    };
    let mut links = Vec::new();
    for line in content.lines().filter(|line| is_blob_of_a_repo(line)) {
        let link = root.join(line);
        match fs::read_link(&link) {
            Ok(target) if leads_to(&link, &target, payload) => links.push(link),
            Ok(_) => {}
            // No link there, or nothing at all.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::NotADirectory
                ) => {}
            Err(_) => return Manifest::Unknown,
        }
    }
    links.sort();
    links.dedup();
    Manifest::Links(identity, links)
}

fn is_blob_of_a_repo(line: &str) -> bool {
    let parts: Vec<_> = Path::new(line).components().collect();
    match parts.as_slice() {
        [
            Component::Normal(repo),
            Component::Normal(blobs),
            Component::Normal(_),
        ] => {
            *blobs == "blobs"
                && repo
                    .to_str()
                    .is_some_and(|repo| parse_repo_folder(repo).is_some())
        }
        _ => false,
    }
}

/// Whether the link's target, taken as written, is the payload. The way there has no links of
/// its own in a hub that huggingface_hub made; other ways are seen when links are followed.
fn leads_to(link: &Path, target: &Path, payload: &Path) -> bool {
    let mut place = link.parent().unwrap_or(Path::new("/")).to_path_buf();
    for part in target.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => place = PathBuf::from("/"),
            Component::CurDir => {}
            Component::ParentDir => {
                place.pop();
            }
            Component::Normal(name) => place.push(name),
        }
    }
    place == payload
}
