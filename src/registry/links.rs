//! Where a symbolic link leads, and over which other links.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// What tells one file from another, and a file from its changed self.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Names that the file has; its bytes are free when the last one goes.
    pub(crate) name_count: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
}

impl PartialEq for Identity {
    /// Losing another of its names does not make it another file.
    fn eq(&self, other: &Self) -> bool {
        (self.device, self.inode, self.bytes, self.modified)
            == (other.device, other.inode, other.bytes, other.modified)
    }
}

impl Eq for Identity {}

impl Identity {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            name_count: metadata.nlink(),
            bytes: metadata.len(),
            modified: nanoseconds(metadata),
        }
    }
}

/// The time of the last change, in nanoseconds since 1970.
pub(crate) fn nanoseconds(metadata: &fs::Metadata) -> i64 {
    metadata
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(metadata.mtime_nsec())
}

/// What lies at the end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    File(PathBuf, Identity),
    Folder(PathBuf),
    /// A socket, a device, a pipe.
    Other(PathBuf),
    Missing,
    /// More links than the system follows.
    Loop,
    /// The way could not be looked at.
    Denied,
}

/// A link's way: every link on it, the first included, and its end. All paths are absolute and
/// have no link among their parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) links: Vec<PathBuf>,
    pub(crate) end: End,
}

impl Way {
    /// Every place that must stay for the link to keep its meaning.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Path> {
        let end = match &self.end {
            End::File(path, _) | End::Folder(path) | End::Other(path) => Some(path),
            End::Missing | End::Loop | End::Denied => None,
        };
        self.links.iter().chain(end).map(PathBuf::as_path)
    }

    /// The file at the end, if there is one.
    pub(crate) fn file(&self) -> Option<(&Path, &Identity)> {
        match &self.end {
            End::File(path, identity) => Some((path, identity)),
            _ => None,
        }
    }
}

/// As many as Linux follows.
const LINK_LIMIT: usize = 40;

/// Folders that were seen to be no links, for the short time in which that need not be looked at
/// again.
#[derive(Debug, Default)]
pub(crate) struct KnownFolders(HashSet<PathBuf>);

/// Follows the link at `link`, whose parent folder is an absolute path without links.
pub(crate) fn follow(link: &Path) -> Way {
    follow_past(link, None)
}

/// The same, without looking again at folders on the way that are `known`.
pub(crate) fn follow_past(link: &Path, mut known: Option<&mut KnownFolders>) -> Way {
    let mut here = link.parent().unwrap_or(Path::new("/")).to_path_buf();
    let mut pending: Vec<OsString> = link.file_name().map(OsString::from).into_iter().collect();
    let mut links = Vec::new();
    let mut end = None;
    while let Some(name) = pending.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let path = here.join(&name);
        if known.as_ref().is_some_and(|known| known.0.contains(&path)) {
            here = path;
            continue;
        }
        let step = match Step::at(&path, links.is_empty()) {
            Ok(step) => step,
            Err(error) => {
                end = Some(failure(&error));
                break;
            }
        };
        let metadata = match step {
            Step::Link(target) => {
                links.push(path);
                if links.len() > LINK_LIMIT {
                    end = Some(End::Loop);
                    break;
                }
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                let parts = target.components().rev().filter_map(|part| match part {
                    Component::Normal(name) => Some(name.to_owned()),
                    Component::ParentDir => Some(OsString::from("..")),
                    Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
                });
                pending.extend(parts);
                continue;
            }
            Step::Stop(metadata) => metadata,
        };
        if metadata.is_dir() {
            if let Some(known) = &mut known {
                known.0.insert(path.clone());
            }
            here = path;
        } else {
            // A file in the middle of a path leads nowhere.
            end = Some(if !pending.is_empty() {
                End::Missing
            } else if metadata.is_file() {
                End::File(path, Identity::of(&metadata))
            } else {
                End::Other(path)
            });
            break;
        }
    }
    Way {
        links,
        end: end.unwrap_or(End::Folder(here)),
    }
}

enum Step {
    Link(PathBuf),
    Stop(fs::Metadata),
}

impl Step {
    /// What is at `path`; `is_likely_a_link` only says what to try first.
    fn at(path: &Path, is_likely_a_link: bool) -> io::Result<Self> {
        if is_likely_a_link && let Ok(target) = fs::read_link(path) {
            return Ok(Self::Link(target));
        }
        let metadata = fs::symlink_metadata(path)?;
        if metadata.is_symlink() {
            return Ok(Self::Link(fs::read_link(path)?));
        }
        Ok(Self::Stop(metadata))
    }
}

fn failure(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::PermissionDenied => End::Denied,
        _ => End::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, os::unix::fs::symlink};

    #[test]
    fn ways_are_followed_to_their_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/file"), "12345").unwrap();
        symlink("../file", root.join("a/b/one")).unwrap();
        symlink("b/one", root.join("a/two")).unwrap();
        symlink("a/b", root.join("door")).unwrap();
        symlink("door/one", root.join("through")).unwrap();
        symlink("nothing", root.join("dangling")).unwrap();
        symlink("a/file/x", root.join("below-a-file")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/", root.join("slash")).unwrap();
        symlink(root.join("a/file"), root.join("absolute")).unwrap();

        let file = root.join("a/file");
        // Remembering folders changes nothing, in whatever order they are met.
        let known = RefCell::new(KnownFolders::default());
        let way = |name: &str| {
            let way = follow(&root.join(name));
            for _ in 0..2 {
                let past = follow_past(&root.join(name), Some(&mut known.borrow_mut()));
                assert_eq!(past, way, "{name}");
            }
            way
        };
        let links =
            |names: &[&str]| -> Vec<_> { names.iter().map(|name| root.join(name)).collect() };
        for (name, over) in [
            ("a/b/one", vec!["a/b/one"]),
            ("a/two", vec!["a/two", "a/b/one"]),
            ("through", vec!["through", "door", "a/b/one"]),
            ("absolute", vec!["absolute"]),
        ] {
            let way = way(name);
            assert_eq!(way.links, links(&over), "{name}");
            let (path, identity) = way.file().unwrap();
            assert_eq!((path, identity.bytes), (file.as_path(), 5), "{name}");
        }
        assert_eq!(way("door").end, End::Folder(root.join("a/b")));
        assert_eq!(way("slash").end, End::Folder("/".into()));
        assert_eq!(way("dangling").end, End::Missing);
        assert_eq!(way("below-a-file").end, End::Missing);
        assert_eq!(way("loop").end, End::Loop);
        assert_eq!(way("a/file").file().unwrap().0, file);
    }
}
