//! Every change of the file system and every opening, in one place, so that tests can let each of
//! them fail.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    time::SystemTime,
};

use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

/// What is done to the file system. Outside of tests it holds nothing.
#[derive(Clone, Default)]
pub(super) struct Steps {
    #[cfg(test)]
    pub(super) faults: std::sync::Arc<super::tests::faults::Faults>,
}

impl Steps {
    #[cfg(test)]
    fn next(&self) -> io::Result<()> {
        self.faults.next()
    }

    #[cfg(not(test))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the form that tests need"
    )]
    fn next(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes a folder, and those above it, for its owner alone. One that is there is left.
    pub(super) fn create_folder(&self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            return Ok(());
        }
        self.next()?;
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    /// Makes a file of a new name, for its owner alone.
    pub(super) fn create_file(&self, path: &Path) -> io::Result<File> {
        self.next()?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    }

    /// Opens a file that serves as a lock; makes it where there is none.
    pub(super) fn open_lock(&self, path: &Path) -> io::Result<File> {
        self.next()?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
    }

    /// Locks a file, unless another one has it.
    pub(super) fn try_lock(&self, file: &File) -> Result<(), TryLockError> {
        self.next().map_err(TryLockError::Error)?;
        file.try_lock()
    }

    /// Gives a new file its length before its content.
    pub(super) fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.next()?;
        file.set_len(bytes)
    }

    /// Writes all of `bytes` at the file's cursor.
    pub(super) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        let next = self.next();
        if next.is_err() {
            // As a write is interrupted: somewhere in the middle.
            file.write_all(&bytes[..bytes.len() / 2])?;
        }
        next?;
        file.write_all(bytes)
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.next()?;
        fs::rename(from, to)
    }

    pub(super) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.next()?;
        fs::remove_file(path)
    }

    /// Removes a folder that is empty.
    pub(super) fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.next()?;
        fs::remove_dir(path)
    }

    pub(super) fn set_modified(&self, file: &File, time: SystemTime) -> io::Result<()> {
        self.next()?;
        file.set_modified(time)
    }

    /// Opens a file for reading, whatever its name may have become: a link is not followed, a pipe
    /// does not make wait.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for what is no regular file; as the system says.
    pub(super) fn open_regular(&self, path: &Path) -> Result<(File, Metadata)> {
        let irregular = || {
            Error::new(
                Kind::Corrupt,
                format!("not a regular file: {}", EscapedPath(path)),
            )
        };
        let opened = self
            .next()
            .and_then(|()| {
                OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(path)
            })
            .and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        match opened {
            Ok((file, metadata)) if metadata.is_file() => Ok((file, metadata)),
            Ok(_) => Err(irregular()),
            // A link, or a socket.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
                Err(irregular())
            }
            Err(error) => Err(Error::io(EscapedPath(path), error)),
        }
    }
}
