//! The cap, and what goes when it is reached: other versions' files, then leaves, the least
//! recently used first. A file that others continue never goes before them.

use std::{
    fs,
    io::{self, ErrorKind},
    time::SystemTime,
};

use super::{index::Way, lock::Locked, segment::Segment};
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

impl Locked<'_> {
    /// Makes room for `bytes` more; the files on `kept` stay.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] when all else going would not be enough, and then nothing goes; as the
    /// system says.
    pub(super) fn make_room(&mut self, bytes: u64, kept: &Way) -> Result<()> {
        self.count_others();
        let kept_bytes: u64 = {
            let index = self.shared.index();
            let ids = kept.segments.iter().map(|segment| segment.id);
            ids.map(|id| index.file_bytes(id)).sum()
        };
        let fixed = self.others.foreign_bytes() + self.temporary_bytes() + kept_bytes;
        if bytes.saturating_add(fixed) > self.shared.cap_bytes {
            return Err(self.no_space(format_args!("{bytes} bytes do not fit beside {fixed}")));
        }
        self.shrink_to(self.shared.cap_bytes - bytes, kept)
    }

    /// Removes what is over the cap, as far as it may be removed.
    ///
    /// # Errors
    /// As [`Self::make_room`].
    pub(super) fn keep_cap(&mut self) -> Result<()> {
        self.count_others();
        self.shrink_to(self.shared.cap_bytes, &Way::default())
    }

    /// Removes all that is stored; answers the bytes.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn clear(&mut self) -> Result<u64> {
        self.refresh()?;
        self.count_others();
        let mut freed = 0;
        while let Some(bytes) = self.remove_outdated()? {
            freed += bytes;
        }
        loop {
            let Some((leaf, _)) = self.shared.index().oldest_leaf(&Way::default()) else {
                return Ok(freed);
            };
            freed += self.remove_leaf(&leaf)?;
        }
    }

    fn shrink_to(&mut self, most: u64, kept: &Way) -> Result<()> {
        while self.total_bytes() > most {
            if self.remove_outdated()?.is_some() {
                continue;
            }
            let Some((leaf, last_use)) = self.shared.index().oldest_leaf(kept) else {
                let total = self.total_bytes();
                return Err(self.no_space(format_args!("what cannot go takes {total} bytes")));
            };
            if let Some(later) = self.later_use(&leaf, last_use) {
                self.shared.index().touch(leaf.id, later);
                continue;
            }
            self.remove_leaf(&leaf)?;
        }
        Ok(())
    }

    fn total_bytes(&self) -> u64 {
        self.shared.index().bytes() + self.others.bytes + self.temporary_bytes()
    }

    fn no_space(&self, what: std::fmt::Arguments<'_>) -> Error {
        Error::new(
            Kind::NoSpace,
            format!(
                "prompt cache on disk: {what} under the cap of {}: {}",
                self.shared.cap_bytes,
                EscapedPath(&self.shared.directory)
            ),
        )
    }

    /// When another process has used it since.
    fn later_use(&self, segment: &Segment, last_use: SystemTime) -> Option<SystemTime> {
        let metadata = fs::symlink_metadata(segment.path(&self.shared.root)).ok()?;
        metadata.modified().ok().filter(|&time| time > last_use)
    }

    /// Removes another version's file; answers its bytes, or nothing where there is none.
    fn remove_outdated(&mut self) -> Result<Option<u64>> {
        let Some(file) = self.others.next_outdated() else {
            return Ok(None);
        };
        let removed = self.shared.steps.remove_file(&file.path);
        if is_gone(&removed) {
            self.others.bytes -= file.bytes;
        } else {
            removed.map_err(|error| Error::io(EscapedPath(&file.path), error))?;
        }
        if let Some(folder) = file.path.parent() {
            // Fails as long as something is in it.
            let _ = self.shared.steps.remove_folder(folder);
        }
        Ok(Some(file.bytes))
    }

    /// Removes a segment that none continues; answers the bytes.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn remove_leaf(&mut self, segment: &Segment) -> Result<u64> {
        let path = segment.path(&self.shared.root);
        let removed = self.shared.steps.remove_file(&path);
        if !is_gone(&removed) {
            removed.map_err(|error| Error::io(EscapedPath(&path), error))?;
        }
        let mut index = self.shared.index();
        let bytes = index.file_bytes(segment.id);
        index.remove(segment.id);
        let is_last = index.ids(&segment.namespace).next().is_none();
        drop(index);
        if is_last {
            // Fails where somebody is writing into it.
            let folder = segment.folder(&self.shared.root);
            let _ = self.shared.steps.remove_folder(&folder);
        }
        Ok(bytes)
    }
}

fn is_gone(removed: &io::Result<()>) -> bool {
    match removed {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}
