//! The lock under which files appear and disappear.
//!
//! One process at a time changes what is in the folder; each holds the lock for the moment of
//! looking again, making room, publishing or removing, never while it writes data. Readers take
//! no lock: a file that is removed under them stays readable, and one that is gone is a miss.

use std::{
    fs::{self, File, TryLockError},
    ops::{Deref, DerefMut},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{MutexGuard, PoisonError, TryLockError as TryFolderError},
    thread,
    time::{Duration, Instant},
};

use super::{Shared, folder::Folder};
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

/// How long to wait for other processes, which hold the lock for milliseconds unless stopped.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The same where a caller waits for tokens.
pub(super) const SHORT_PATIENCE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What is known of the folder, for as long as this process may change it.
pub(super) struct Locked<'a> {
    pub(super) shared: &'a Shared,
    folder: MutexGuard<'a, Folder>,
    /// Nothing where the folder cannot be written: then nobody needs a lock.
    lock: Option<File>,
}

impl Locked<'_> {
    /// Whether files may be removed.
    pub(super) fn is_exclusive(&self) -> bool {
        self.lock.is_some()
    }
}

impl Deref for Locked<'_> {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Folder {
        &mut self.folder
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // Closing it would not do where the process was forked meanwhile.
            let _ = lock.unlock();
        }
    }
}

impl Shared {
    /// Waits for the lock, and makes the folder where there is none.
    ///
    /// # Errors
    /// [`Kind::Locked`] after `patience`; what the system reports.
    pub(super) fn lock(&self, patience: Duration) -> Result<Locked<'_>> {
        let path = self.root.join("lock");
        let mut wait = Wait::new(patience);
        let folder = loop {
            match self.folder.try_lock() {
                Ok(folder) => break folder,
                Err(TryFolderError::Poisoned(folder)) => break folder.into_inner(),
                Err(TryFolderError::WouldBlock) => wait.or_give_up(&path)?,
            }
        };
        let mut opened = None;
        loop {
            let file = match opened.take() {
                Some(file) => file,
                None => self.open_lock(&path)?,
            };
            match self.steps.try_lock(&file) {
                // Somebody may have emptied the folder meanwhile: then this lock is nobody's.
                Ok(()) if is_at(&file, &path) => {
                    return Ok(Locked {
                        shared: self,
                        folder,
                        lock: Some(file),
                    });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => opened = Some(file),
                Err(TryLockError::Error(error)) => {
                    return Err(Error::io(EscapedPath(&path), error));
                }
            }
            wait.or_give_up(&path)?;
        }
    }

    /// The same without a lock, to look and change nothing.
    pub(super) fn look(&self) -> Locked<'_> {
        Locked {
            shared: self,
            folder: self.folder.lock().unwrap_or_else(PoisonError::into_inner),
            lock: None,
        }
    }

    fn open_lock(&self, path: &Path) -> Result<File> {
        self.steps
            .create_folder(&self.root)
            .and_then(|()| self.steps.open_lock(path))
            .map_err(|error| Error::io(EscapedPath(path), error))
    }
}

/// Looks again and again, less and less often.
struct Wait {
    deadline: Instant,
    pause: Duration,
}

impl Wait {
    fn new(patience: Duration) -> Self {
        Self {
            deadline: Instant::now() + patience,
            pause: FIRST_PAUSE,
        }
    }

    fn or_give_up(&mut self, path: &Path) -> Result<()> {
        if Instant::now() >= self.deadline {
            return Err(Error::new(
                Kind::Locked,
                format!("another one holds the lock: {}", EscapedPath(path)),
            ));
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Whether `path` names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
}
