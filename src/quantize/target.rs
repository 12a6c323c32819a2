//! The target folder: written beside its place, and put there when it is complete.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::invalid;
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

/// As often as a folder may be taken away before it is locked.
const MOST_ATTEMPTS: usize = 16;

/// A folder under another name in the target's parent. Dropping it removes what is in it.
///
/// It is locked for as long as its process lives, so that what a killed process left can be told
/// from what another one writes, and goes when somebody next writes to the same target.
#[derive(Debug)]
pub(super) struct Staging {
    dir: PathBuf,
    target: PathBuf,
    overwrite: bool,
    /// The locked folder.
    lock: File,
}

impl Staging {
    /// Makes the folder for `target`, which must not exist, or with `overwrite` be a model other
    /// than the one in the folder `source`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a target that is taken, [`Kind::NotFound`] without its
    /// parent, and what the system reports.
    pub(super) fn new(target: &Path, source: &Path, overwrite: bool) -> Result<Self> {
        let name = target
            .file_name()
            .ok_or_else(|| invalid(format!("not the name of a folder: {}", EscapedPath(target))))?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent =
            fs::canonicalize(parent).map_err(|error| Error::io(EscapedPath(parent), error))?;
        let target = parent.join(name);
        check(&target, source, overwrite)?;
        // Of a fixed length, since the target's name may be as long as any.
        let hash = xxhash_rust::xxh3::xxh3_64(name.as_bytes());
        let prefix = format!(".mlxb-partial-{hash:016x}-");
        remove_leftovers(&parent, &prefix);
        let (dir, lock) = make(&parent, &prefix)?;
        Ok(Self {
            dir,
            target,
            overwrite,
            lock,
        })
    }

    /// Where to write.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Goes on only where so many bytes are free.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] naming the target.
    pub(super) fn expect_room(&self, bytes: u64) -> Result<()> {
        // A system that does not say it will say so when it is full.
        let Ok(system) = rustix::fs::statvfs(&self.dir) else {
            return Ok(());
        };
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if bytes <= free {
            return Ok(());
        }
        Err(Error::new(
            Kind::NoSpace,
            format!(
                "{bytes} bytes are needed and {free} free: {}",
                EscapedPath(&self.target)
            ),
        ))
    }

    /// Gives the folder the target's name. A model that was there goes.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when a target has appeared meanwhile, and what the system
    /// reports.
    pub(super) fn publish(self) -> Result<()> {
        let io = |error: io::Error| Error::io(EscapedPath(&self.target), error);
        self.lock.sync_all().map_err(io)?;
        match rename(&self.dir, &self.target, self.overwrite) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(taken(&self.target));
            }
            Err(error) => return Err(io(error)),
        }
        if let Some(parent) = self.target.parent() {
            // The folder is where it should be; whether its name survives a power failure at
            // this moment is the system's business.
            let _ = File::open(parent).and_then(|parent| parent.sync_all());
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Removes a folder as far as that goes.
fn remove(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != ErrorKind::NotFound
    {
        log::warn!("cannot remove {}: {error}", EscapedPath(dir));
    }
}

fn taken(target: &Path) -> Error {
    invalid(format!("the target exists: {}", EscapedPath(target)))
}

/// Refuses a target that must not be replaced.
fn check(target: &Path, source: &Path, overwrite: bool) -> Result<()> {
    let metadata = match fs::symlink_metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(EscapedPath(target), error)),
    };
    if !overwrite {
        return Err(taken(target));
    }
    let refuse = |what: &str| Err(invalid(format!("{what}: {}", EscapedPath(target))));
    if !metadata.is_dir() {
        return refuse("the target is no folder");
    }
    if fs::canonicalize(source).is_ok_and(|source| source.starts_with(target)) {
        return refuse("the target holds the source");
    }
    let mut entries =
        fs::read_dir(target).map_err(|error| Error::io(EscapedPath(target), error))?;
    let is_model = target.join("config.json").is_file() || entries.next().is_none();
    if !is_model {
        return refuse("the target is a folder without a model");
    }
    Ok(())
}

/// Removes what killed processes left.
fn remove_leftovers(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        let dir = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let Ok(lock) = File::open(&dir)
            && is_dir
            && lock.try_lock().is_ok()
        {
            remove(&dir);
        }
    }
}

/// Makes a locked folder whose name begins with `prefix`.
fn make(parent: &Path, prefix: &str) -> Result<(PathBuf, File)> {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    for _ in 0..MOST_ATTEMPTS {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!("{prefix}{}-{number}", std::process::id()));
        let dir = parent.join(name);
        let io = |error| Error::io(EscapedPath(&dir), error);
        match fs::create_dir(&dir) {
            Ok(()) => {}
            // Of a process with this number that was killed, in another namespace perhaps.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(io(error)),
        }
        // Somebody may take it for a leftover until it is locked.
        if let Ok(lock) = File::open(&dir)
            && lock.try_lock().is_ok()
            && is_still_there(&dir, &lock)
        {
            return Ok((dir, lock));
        }
    }
    Err(Error::new(
        Kind::Io,
        format!("cannot keep a folder in: {}", EscapedPath(parent)),
    ))
}

fn is_still_there(dir: &Path, lock: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (fs::metadata(dir), lock.metadata()) {
        (Ok(there), Ok(locked)) => identity(there) == identity(locked),
        _ => false,
    }
}

/// Gives `from` the name `to` at one stroke. With `replace`, what has that name then has the
/// other's, else its being there is an error.
fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    let flags = if replace && to.exists() {
        RenameFlags::EXCHANGE
    } else {
        RenameFlags::NOREPLACE
    };
    match renameat_with(CWD, from, CWD, to, flags) {
        Ok(()) => Ok(()),
        // A file system without such renames.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            rename_in_steps(from, to, replace)
        }
        Err(error) => Err(error.into()),
    }
}

/// As [`rename`], with a moment at which nothing has the name.
fn rename_in_steps(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if fs::symlink_metadata(to).is_err() {
        return fs::rename(from, to);
    }
    if !replace {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let mut aside = from.as_os_str().to_owned();
    aside.push("-old");
    fs::rename(to, &aside)?;
    match fs::rename(from, to) {
        Ok(()) => {
            remove(Path::new(&aside));
            Ok(())
        }
        Err(error) => {
            let _ = fs::rename(&aside, to);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_when_it_is_published_and_else_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x".repeat(255));
        let staging = Staging::new(&target, Path::new("/nowhere"), false).unwrap();
        fs::write(staging.dir().join("file"), "1").unwrap();
        assert!(!target.exists());
        drop(staging);
        assert!(names(dir.path()).is_empty());

        let staging = Staging::new(&target, Path::new("/nowhere"), false).unwrap();
        fs::write(staging.dir().join("file"), "1").unwrap();
        staging.publish().unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        assert_eq!(names(&target), ["file"]);
        let error = Staging::new(&target, Path::new("/nowhere"), false).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert!(error.message().starts_with("the target exists: "));
    }

    #[test]
    fn what_appears_meanwhile_is_not_replaced_unasked() {
        for in_steps in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            let rename = if in_steps { rename_in_steps } else { rename };
            for (folder, text) in [(&from, "new"), (&to, "old")] {
                fs::create_dir(folder).unwrap();
                fs::write(folder.join("file"), text).unwrap();
            }
            let error = rename(&from, &to, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "old");
            rename(&from, &to, true).unwrap();
            assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "new");
            assert!(!names(dir.path()).iter().any(|name| name.ends_with("-old")));
        }
    }

    #[test]
    fn only_another_model_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        let source = target.join("inside");
        let refused = |what: &str| {
            let error = Staging::new(&target, &source, true).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument);
            assert!(error.message().starts_with(what), "{error}");
        };
        fs::write(&target, "a file").unwrap();
        refused("the target is no folder: ");
        fs::remove_file(&target).unwrap();
        std::os::unix::fs::symlink("elsewhere", &target).unwrap();
        refused("the target is no folder: ");
        fs::remove_file(&target).unwrap();
        fs::create_dir_all(&source).unwrap();
        refused("the target holds the source: ");
        fs::remove_dir(&source).unwrap();
        fs::write(target.join("thesis.txt"), "years of work").unwrap();
        refused("the target is a folder without a model: ");
        fs::write(target.join("config.json"), "{}").unwrap();

        let staging = Staging::new(&target, &source, true).unwrap();
        fs::write(staging.dir().join("file"), "1").unwrap();
        staging.publish().unwrap();
        assert_eq!(names(&target), ["file"]);
        assert_eq!(names(dir.path()), ["model"]);
    }

    #[test]
    fn leftovers_go_and_what_others_write_stays() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        let source = Path::new("/nowhere");
        let at_work = Staging::new(&target, source, false).unwrap();
        let mut leftover = at_work.dir().as_os_str().to_owned();
        leftover.push("9");
        fs::create_dir(&leftover).unwrap();
        fs::write(Path::new(&leftover).join("file"), "1").unwrap();
        let other = Staging::new(&dir.path().join("other"), source, false).unwrap();
        assert!(Path::new(&leftover).exists());
        let again = Staging::new(&target, source, false).unwrap();
        assert!(!Path::new(&leftover).exists());
        assert!(at_work.dir().exists() && again.dir().exists() && other.dir().exists());
        drop((at_work, again, other));
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_place_without_a_parent_or_a_name_is_refused() {
        let source = Path::new("/nowhere");
        let error = Staging::new(Path::new("/no/such/place"), source, false).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        for target in ["/", "..", ""] {
            let error = Staging::new(Path::new(target), source, false).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument, "{target}");
        }
    }

    #[test]
    fn room_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let staging = Staging::new(&dir.path().join("m"), Path::new("/nowhere"), false).unwrap();
        staging.expect_room(1).unwrap();
        let error = staging.expect_room(u64::MAX).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
    }
}
