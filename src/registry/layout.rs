//! What is in the hub's folder: repositories, their refs, snapshots and blobs, as plain data.
//!
//! Reading never follows a link to a folder, so it ends on every hub, hostile ones too. What
//! could not be read is named in the problems and marked where it is, because what is unknown
//! must not be taken for absent.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    links::{End, Identity, KnownFolders, Way, follow, follow_past, nanoseconds},
    names::{RepoKind, is_in_flight, is_noise, parse_repo_folder},
    store::{self, Store},
};

/// Something that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file or folder concerned.
    pub path: PathBuf,
    /// One line.
    pub reason: String,
}

impl Problem {
    pub(crate) fn new(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }

    fn io(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        Self::new(path, format!("cannot be read: {error}"))
    }
}

/// The whole hub.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hub {
    /// Absolute, without links.
    pub(crate) root: PathBuf,
    /// Ordered by folder name.
    pub(crate) repos: Vec<Repo>,
    /// The hub-wide blob store, where the hub has one.
    pub(crate) store: Option<Store>,
    /// Lock files and unfinished downloads anywhere in the hub.
    pub(crate) leftovers: Vec<Leftover>,
    pub(crate) problems: Vec<Problem>,
    /// When it was read, in nanoseconds since 1970.
    pub(crate) read_at: i64,
}

/// One repository's folder.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    pub(crate) path: PathBuf,
    pub(crate) kind: RepoKind,
    pub(crate) id: String,
    /// The folder, or one of its parts, is a link to somewhere else: read, never changed.
    pub(crate) is_linked: bool,
    pub(crate) refs: Vec<Ref>,
    /// A ref could not be read, so there may be more.
    pub(crate) has_unknown_refs: bool,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) blobs: Vec<Blob>,
    /// Files of the layout beside refs, snapshots and blobs: `trees/`, `.no_exist/`.
    pub(crate) bookkeeping: Vec<SnapshotFile>,
}

/// A name for a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ref {
    /// Below `refs/`, such as `main` or `pr/1`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The file's content without white space around it.
    pub(crate) commit: String,
    pub(crate) content: Content,
}

/// The files of one commit.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) commit: OsString,
    pub(crate) path: PathBuf,
    /// The folder's own time of change, in nanoseconds since 1970.
    pub(crate) modified: i64,
    /// Ordered by path.
    pub(crate) files: Vec<SnapshotFile>,
    /// Folders in it, parents before children.
    pub(crate) folders: Vec<PathBuf>,
    /// Not all of it could be read.
    pub(crate) has_unknown_files: bool,
    /// The snapshot is itself a link.
    pub(crate) link: Option<Way>,
}

/// A file, link or other thing in a folder.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    /// Absolute; its parents are no links.
    pub(crate) path: PathBuf,
    /// Below the folder that was read.
    pub(crate) name: PathBuf,
    pub(crate) content: Content,
}

/// What an entry of a folder is, folders apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Regular(Identity),
    Link(Way),
    /// A folder where none should be, a socket, a device, a pipe.
    Other,
}

impl Content {
    /// Where the bytes are.
    pub(crate) fn file(&self) -> Option<&Identity> {
        match self {
            Self::Regular(identity) => Some(identity),
            Self::Link(way) => way.file().map(|(_, identity)| identity),
            Self::Other => None,
        }
    }
}

/// An entry of a repository's `blobs/`.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

/// A lock file or an unfinished download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
}

/// How deep folders may nest in a snapshot; deeper ones count as unreadable.
const DEPTH_LIMIT: usize = 32;

/// The commit that a ref's file names.
pub(crate) fn parse_ref(content: &[u8]) -> String {
    String::from_utf8_lossy(content)
        .trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}' || c == '\0')
        .to_owned()
}

/// The repositories' folders below `root`, ordered by name, and what is no repository.
pub(crate) fn repo_folders(root: &Path) -> io::Result<(Vec<RepoFolder>, Vec<Problem>)> {
    let mut folders = Vec::new();
    let mut problems = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if is_noise(&name) || name == ".locks" || name == store::FOLDER {
            continue;
        }
        let Some(text) = name.to_str() else {
            // Its links may keep blobs alive, so it is read, but it has no name to be listed by.
            if looks_like_a_repo(&name) {
                problems.push(Problem::new(&path, "name is not valid UTF-8"));
                let id = name.to_string_lossy().into_owned();
                folders.push(RepoFolder {
                    path,
                    kind: RepoKind::Model,
                    id,
                    is_named: false,
                });
            } else {
                problems.push(Problem::new(
                    &path,
                    "not a repository: name is not valid UTF-8",
                ));
            }
            continue;
        };
        match parse_repo_folder(text) {
            Some((kind, id)) => folders.push(RepoFolder {
                path,
                kind,
                id,
                is_named: true,
            }),
            None if is_in_flight(&name) => {}
            None => problems.push(Problem::new(path, "not a repository")),
        }
    }
    folders.sort_by(|a, b| a.path.cmp(&b.path));
    problems.sort();
    Ok((folders, problems))
}

/// A folder that bears a repository's name.
#[derive(Clone, Debug)]
pub(crate) struct RepoFolder {
    pub(crate) path: PathBuf,
    pub(crate) kind: RepoKind,
    pub(crate) id: String,
    /// Whether the name is text, so that callers can name the repository.
    pub(crate) is_named: bool,
}

fn looks_like_a_repo(name: &OsStr) -> bool {
    parse_repo_folder(&name.to_string_lossy()).is_some()
}

/// How much of a repository to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Refs and snapshots.
    Models,
    /// Blobs and bookkeeping too.
    All,
}

/// Reads everything.
///
/// # Errors
/// Only when `root` itself cannot be listed.
pub(crate) fn read_hub(root: &Path) -> io::Result<Hub> {
    let read_at = now();
    let (folders, mut problems) = repo_folders(root)?;
    let mut leftovers = Vec::new();
    let mut repos = Vec::new();
    for folder in &folders {
        let mut reader = Reader::default();
        repos.extend(reader.repo(root, folder, Parts::All));
        problems.append(&mut reader.problems);
        leftovers.append(&mut reader.leftovers);
    }
    let mut reader = Reader::default();
    reader.locks(&root.join(".locks"));
    let store = store::read(root, &mut reader);
    problems.append(&mut reader.problems);
    leftovers.append(&mut reader.leftovers);
    Ok(Hub {
        root: root.to_path_buf(),
        repos,
        store,
        leftovers,
        problems,
        read_at,
    })
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
}

/// Reads folders and gathers what stands out.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) problems: Vec<Problem>,
    pub(crate) leftovers: Vec<Leftover>,
    known: Option<KnownFolders>,
}

impl Reader {
    /// One that takes folders on the ways of links for what they were when it met them first:
    /// quick, and good enough where nothing is deleted on its word.
    pub(crate) fn quick() -> Self {
        Self {
            known: Some(KnownFolders::default()),
            ..Self::default()
        }
    }

    /// One repository; nothing when its folder holds none.
    pub(crate) fn repo(&mut self, root: &Path, folder: &RepoFolder, parts: Parts) -> Option<Repo> {
        let mut path = folder.path.clone();
        let mut is_linked = !folder.is_named;
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) if metadata.is_symlink() => {
                let End::Folder(target) = follow(&path).end else {
                    self.problem(&path, "a link that leads to no folder");
                    return None;
                };
                if root.starts_with(&target) {
                    self.problem(&path, "a link to the hub or a folder around it");
                    return None;
                }
                if target.parent() == Some(root)
                    && target.file_name().is_some_and(looks_like_a_repo)
                {
                    self.problem(&path, "a link to another repository of this hub");
                    return None;
                }
                is_linked = true;
                path = target;
            }
            Ok(_) => {
                self.problem(&path, "not a folder");
                return None;
            }
            Err(error) => {
                self.problems.push(Problem::io(&path, &error));
                return None;
            }
        }

        let snapshots = match self.part(&path, "snapshots", &mut is_linked) {
            Part::Folder(folder) => self.snapshots(&folder),
            Part::Absent => {
                self.problem(&path, "has no snapshots folder");
                Vec::new()
            }
            Part::Unknown => Vec::new(),
        };
        let (mut refs, mut has_unknown_refs) = (Vec::new(), false);
        match self.part(&path, "refs", &mut is_linked) {
            Part::Folder(folder) => self.refs(&folder, &mut refs, &mut has_unknown_refs),
            Part::Absent => {}
            Part::Unknown => has_unknown_refs = true,
        }
        let mut repo = Repo {
            path,
            kind: folder.kind,
            id: folder.id.clone(),
            is_linked,
            refs,
            has_unknown_refs,
            snapshots,
            blobs: Vec::new(),
            bookkeeping: Vec::new(),
        };
        if parts == Parts::All {
            if let Part::Folder(folder) = self.part(&repo.path, "blobs", &mut repo.is_linked) {
                repo.blobs = self.blobs(&folder);
            }
            for name in ["trees", ".no_exist"] {
                if let Part::Folder(folder) = self.part(&repo.path, name, &mut repo.is_linked) {
                    repo.bookkeeping.extend(self.tree(&folder, i64::MAX).files);
                }
            }
        }
        Some(repo)
    }

    fn problem(&mut self, path: &Path, reason: &str) {
        self.problems.push(Problem::new(path, reason));
    }

    fn part(&mut self, repo: &Path, name: &str, is_linked: &mut bool) -> Part {
        let path = repo.join(name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Part::Folder(path),
            Ok(metadata) => {
                let reason = if metadata.is_symlink() {
                    "a link where a folder should be"
                } else {
                    "not a folder"
                };
                self.problem(&path, reason);
                *is_linked = true;
                Part::Unknown
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Part::Absent,
            Err(error) => {
                self.problems.push(Problem::io(&path, &error));
                Part::Unknown
            }
        }
    }

    fn refs(&mut self, folder: &Path, refs: &mut Vec<Ref>, has_unknown: &mut bool) {
        let tree = self.tree(folder, i64::MAX);
        *has_unknown |= tree.has_unknown_files;
        for file in tree.files {
            if file.name.file_name().is_some_and(is_noise) {
                continue;
            }
            match read_small(&file.path) {
                Ok(content) => refs.push(Ref {
                    name: file.name.to_string_lossy().into_owned(),
                    commit: parse_ref(&content),
                    path: file.path,
                    content: file.content,
                }),
                Err(error) => {
                    *has_unknown = true;
                    self.problems.push(Problem::io(file.path, &error));
                }
            }
        }
    }

    fn snapshots(&mut self, folder: &Path) -> Vec<Snapshot> {
        let mut snapshots = Vec::new();
        for (name, path, metadata) in self.entries(folder).0 {
            if is_noise(&name) {
                continue;
            }
            if metadata.is_dir() {
                snapshots.push(self.tree(&path, nanoseconds(&metadata)));
            } else if metadata.is_symlink() {
                self.problem(&path, "a snapshot that is a link");
                snapshots.push(Snapshot {
                    commit: name,
                    modified: nanoseconds(&metadata),
                    files: Vec::new(),
                    folders: Vec::new(),
                    has_unknown_files: true,
                    link: Some(follow(&path)),
                    path,
                });
            } else {
                self.problem(&path, "not a snapshot's folder");
            }
        }
        snapshots
    }

    fn blobs(&mut self, folder: &Path) -> Vec<Blob> {
        let mut blobs = Vec::new();
        for (name, path, metadata) in self.entries(folder).0 {
            if is_in_flight(&name) {
                self.leftover(&path, &metadata);
            } else if !is_noise(&name) {
                let content = self.content(&path, &Look::of(metadata));
                if content == Content::Other {
                    self.problem(&path, "a blob that is no file");
                }
                blobs.push(Blob { path, content });
            }
        }
        blobs
    }

    /// All lock files below the hub's `.locks`.
    fn locks(&mut self, folder: &Path) {
        if !fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir()) {
            return;
        }
        self.tree(folder, i64::MAX);
    }

    /// Every file below `folder`, which is a real folder.
    pub(crate) fn tree(&mut self, folder: &Path, modified: i64) -> Snapshot {
        let mut snapshot = Snapshot {
            commit: folder.file_name().unwrap_or_default().to_owned(),
            path: folder.to_path_buf(),
            modified,
            files: Vec::new(),
            folders: Vec::new(),
            has_unknown_files: false,
            link: None,
        };
        self.walk(folder, Path::new(""), 0, &mut snapshot);
        snapshot
    }

    fn walk(&mut self, folder: &Path, below: &Path, depth: usize, into: &mut Snapshot) {
        if depth > DEPTH_LIMIT {
            self.problem(folder, "folders are nested too deep");
            into.has_unknown_files = true;
            return;
        }
        let (entries, is_complete) = self.list(folder, Look::at);
        into.has_unknown_files |= !is_complete;
        for (name, path, look) in entries {
            let below = below.join(&name);
            if matches!(&look, Look::NoLink(metadata) if metadata.is_dir()) {
                into.folders.push(path.clone());
                self.walk(&path, &below, depth + 1, into);
                continue;
            }
            if is_in_flight(&name)
                && let Ok(metadata) = fs::symlink_metadata(&path)
            {
                self.leftover(&path, &metadata);
            }
            let content = self.content(&path, &look);
            self.odd(&path, &content);
            into.files.push(SnapshotFile {
                path,
                name: below,
                content,
            });
        }
    }

    fn content(&mut self, path: &Path, look: &Look) -> Content {
        match look {
            Look::Link => Content::Link(follow_past(path, self.known.as_mut())),
            Look::NoLink(metadata) if metadata.is_file() => {
                Content::Regular(Identity::of(metadata))
            }
            Look::NoLink(_) => Content::Other,
        }
    }

    /// Links and things that the hub does not make.
    fn odd(&mut self, path: &Path, content: &Content) {
        let reason = match content {
            Content::Regular(_) => return,
            Content::Other => "neither a file nor a link",
            Content::Link(way) => match &way.end {
                End::File(..) => return,
                End::Folder(_) => "a link to a folder",
                End::Other(_) => "a link to something that is no file",
                End::Missing => "a link that leads nowhere",
                End::Loop => "a link that leads in a circle",
                End::Denied => "a link whose way may not be looked at",
            },
        };
        self.problem(path, reason);
    }

    fn leftover(&mut self, path: &Path, metadata: &fs::Metadata) {
        self.leftovers.push(Leftover {
            path: path.to_path_buf(),
            bytes: if metadata.is_file() {
                metadata.len()
            } else {
                0
            },
            modified: nanoseconds(metadata),
        });
    }

    /// The entries of a folder ordered by name, and whether these are all.
    pub(crate) fn entries(&mut self, folder: &Path) -> (Vec<Entry<fs::Metadata>>, bool) {
        self.list(folder, fs::DirEntry::metadata)
    }

    /// The same, each with what `look` says of it.
    fn list<T>(
        &mut self,
        folder: &Path,
        look: impl Fn(&fs::DirEntry) -> io::Result<T>,
    ) -> (Vec<Entry<T>>, bool) {
        let listing = match fs::read_dir(folder) {
            Ok(listing) => listing,
            // Gone since its parent was listed: nothing is hidden there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), true),
            Err(error) => {
                self.problems.push(Problem::io(folder, &error));
                return (Vec::new(), false);
            }
        };
        let mut entries = Vec::new();
        let mut is_complete = true;
        for entry in listing {
            let entry = entry.and_then(|entry| {
                let look = look(&entry)?;
                Ok((entry.file_name(), entry.path(), look))
            });
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    is_complete = false;
                    self.problems.push(Problem::io(folder, &error));
                }
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        (entries, is_complete)
    }
}

type Entry<T> = (OsString, PathBuf, T);

/// What an entry of a folder is. Folders mostly hold links, of which their listing says that
/// they are.
enum Look {
    Link,
    NoLink(fs::Metadata),
}

impl Look {
    fn at(entry: &fs::DirEntry) -> io::Result<Self> {
        if entry.file_type()?.is_symlink() {
            return Ok(Self::Link);
        }
        entry.metadata().map(Self::of)
    }

    fn of(metadata: fs::Metadata) -> Self {
        if metadata.is_symlink() {
            Self::Link
        } else {
            Self::NoLink(metadata)
        }
    }
}

enum Part {
    Folder(PathBuf),
    Absent,
    Unknown,
}

/// Refs and manifests are a few lines; what is larger is something else.
const SMALL: u64 = 16 * 1024 * 1024;

/// The content of a small regular file.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    let file = fs::OpenOptions::new()
        .read(true)
        // A pipe in a file's place must not make the call wait.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a file"));
    }
    let mut content = Vec::new();
    if file.take(SMALL + 1).read_to_end(&mut content)? as u64 > SMALL {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_are_read_leniently() {
        for content in ["abc", "abc\n", " abc \r\n", "\u{feff}abc"] {
            assert_eq!(parse_ref(content.as_bytes()), "abc");
        }
        assert_eq!(parse_ref(b""), "");
    }
}
