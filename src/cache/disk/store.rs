//! Storing what is new of a sequence of tokens.

use std::{
    collections::hash_map::RandomState,
    fs::{self, File},
    hash::{BuildHasher as _, Hasher as _},
    io,
    ops::Range,
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use super::{
    Shared,
    folder::TEMPORARY_EXTENSION,
    index::{Misfit, Way},
    layout::{self, Layout},
    lock::{Locked, PATIENCE},
    merge,
    segment::{Head, Segment},
};
use crate::{
    cache::namespace::Namespace,
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
};

/// How often to begin again when what is stored changes meanwhile.
const MOST_ATTEMPTS: usize = 8;

type Rows<'a> = dyn FnMut(usize, Range<usize>) -> Result<Vec<u8>> + 'a;

impl Shared {
    pub(super) fn store(
        &self,
        namespace: &Namespace,
        layout: &Layout,
        tokens: &[u32],
        rows: &mut Rows<'_>,
    ) -> Result<u64> {
        layout::check(layout)?;
        for _ in 0..MOST_ATTEMPTS {
            let Some(mut draft) = self.begin(namespace, layout, tokens)? else {
                return Ok(0);
            };
            draft.write(rows)?;
            if self.publish(&mut draft, tokens)? {
                return Ok(draft.head.file_bytes);
            }
        }
        Err(Error::new(
            Kind::Busy,
            format!(
                "other processes kept changing the prompt cache: {}",
                EscapedPath(&self.root)
            ),
        ))
    }

    /// Makes room, and the temporary file; nothing where all is stored.
    fn begin(
        &self,
        namespace: &Namespace,
        layout: &Layout,
        tokens: &[u32],
    ) -> Result<Option<Draft<'_>>> {
        let mut locked = self.lock(PATIENCE)?;
        locked.refresh()?;
        let way = {
            let index = self.index();
            if index
                .layout(namespace)
                .is_some_and(|stored| stored != layout)
            {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    format!(
                        "the layout is not that of the stored files: {}",
                        EscapedPath(&self.root.join(super::segment::folder_name(namespace)))
                    ),
                ));
            }
            index.way(namespace, tokens)
        };
        if way.token_count == tokens.len() {
            locked.touch(&way, SystemTime::now());
            return Ok(None);
        }
        let mut first = merge::first_replaced(&way.segments, tokens.len());
        let (segment, head) = loop {
            let next = way.segments.get(first);
            let start = next.map_or(way.token_count, |next| next.start);
            let parent = next.map_or(way.last(), |next| next.parent);
            let rest = &tokens[start..];
            let segment = Segment::new(*namespace, parent, start, rest, Arc::clone(layout))?;
            let head = segment.head();
            match locked.make_room(head.file_bytes, &way) {
                Ok(()) => break (segment, head),
                // A longer chain needs less room.
                Err(error) if error.kind() == Kind::NoSpace && next.is_some() => {
                    first = way.segments.len();
                }
                Err(error) => return Err(error),
            }
        };
        let path = segment.path(&self.root);
        if fs::symlink_metadata(&path).is_ok() {
            // The index does not know it, or it would be on the way.
            locked.remove_useless(&path, "it could not be read");
        }
        let folder = segment.folder(&self.root);
        let temporary = folder.join(temporary_name());
        let created = self
            .steps
            .create_folder(&folder)
            .and_then(|()| self.steps.create_file(&temporary));
        let file = created.map_err(|error| Error::io(EscapedPath(&temporary), error))?;
        let draft = Draft {
            shared: self,
            path,
            temporary,
            file,
            way,
            segment: Arc::new(segment),
            head,
            is_published: false,
        };
        self.steps
            .try_lock(&draft.file)
            .map_err(io::Error::from)
            .and_then(|()| self.steps.reserve(&draft.file, draft.head.file_bytes))
            .map_err(|error| draft.error(error))?;
        Ok(Some(draft))
    }

    /// Gives the file its name, unless what it continues is gone or continued further meanwhile.
    fn publish(&self, draft: &mut Draft<'_>, tokens: &[u32]) -> Result<bool> {
        let mut locked = self.lock(PATIENCE)?;
        locked.refresh()?;
        let way = self.index().way(&draft.segment.namespace, tokens);
        if (way.token_count, way.last()) != (draft.way.token_count, draft.way.last()) {
            return Ok(false);
        }
        let now = SystemTime::now();
        // A file that is a little older than it should be does no harm.
        let _ = self.steps.set_modified(&draft.file, now);
        self.steps
            .rename(&draft.temporary, &draft.path)
            .map_err(|error| draft.error(error))?;
        draft.is_published = true;
        let segment = Arc::clone(&draft.segment);
        let inserted = self.index().insert(segment, draft.head.file_bytes, now);
        debug_assert_eq!(inserted, Ok::<(), Misfit>(()));
        for segment in way.segments.iter().rev() {
            let is_held_again = draft.segment.start <= segment.start
                && tokens.get(segment.start..segment.end()) == Some(&segment.tokens);
            if !is_held_again || !self.index().is_leaf(segment.id) {
                break;
            }
            if let Err(error) = locked.remove_leaf(segment) {
                log::debug!("a file that is not needed any more stays: {error}");
                break;
            }
        }
        let way = self.index().way(&draft.segment.namespace, tokens);
        locked.touch(&way, now);
        Ok(true)
    }
}

impl Locked<'_> {
    /// Makes the files on the way recently used, for this process and others.
    fn touch(&mut self, way: &Way, now: SystemTime) {
        for segment in &way.segments {
            self.shared.index().touch(segment.id, now);
            let steps = &self.shared.steps;
            let opened = steps.open_regular(&segment.path(&self.shared.root));
            let touched = opened.and_then(|(file, _)| {
                let set = steps.set_modified(&file, now);
                set.map_err(|error| Error::io("cannot set the time of change", error))
            });
            if let Err(error) = touched {
                log::debug!("a file of the prompt cache does not become recently used: {error}");
            }
        }
    }
}

/// A file that is being written. It is removed unless it is published.
struct Draft<'a> {
    shared: &'a Shared,
    path: PathBuf,
    temporary: PathBuf,
    /// Locked, which tells others that its writer lives.
    file: File,
    /// What it continues.
    way: Way,
    segment: Arc<Segment>,
    head: Head,
    is_published: bool,
}

impl Draft<'_> {
    /// Writes the whole file from the first byte to the last.
    fn write(&mut self, rows: &mut Rows<'_>) -> Result<()> {
        self.append(&self.head.bytes)?;
        let mut checksums = self.head.checksums().to_vec();
        let range = self.segment.start..self.segment.end();
        for (index, tensor) in self.segment.layout.iter().enumerate() {
            let bytes = rows(index, range.clone())?;
            let expected = tensor.position_bytes() * range.len() as u64;
            if bytes.len() as u64 != expected {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    format!(
                        "{} bytes instead of {expected} for tensor {}",
                        bytes.len(),
                        Escaped(&tensor.name)
                    ),
                ));
            }
            checksums.push(xxhash_rust::xxh3::xxh3_64(&bytes));
            self.append(&bytes)?;
        }
        let checksums: Vec<u8> = checksums.into_iter().flat_map(u64::to_le_bytes).collect();
        self.append(&checksums)
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let written = self.shared.steps.write(&self.file, bytes);
        written.map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> Error {
        Error::io(EscapedPath(&self.temporary), error)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = self.shared.steps.remove_file(&self.temporary)
        {
            // The next look at the folder finds it without a writer.
            log::warn!("an unfinished file stays: {error}");
        }
    }
}

/// Says whose it is, for whoever looks into the folder.
fn temporary_name() -> String {
    let random = RandomState::new().build_hasher().finish();
    format!("{}-{random:016x}{TEMPORARY_EXTENSION}", std::process::id())
}
