//! Restoring: the open files that hold the beginning of a sequence of tokens.

use std::{
    fs::File,
    io::{ErrorKind, IoSliceMut, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::SystemTime,
};

use xxhash_rust::xxh3::Xxh3Default;

use super::{
    Shared,
    layout::{Layout, TensorLayout},
    segment::{Segment, read_exact_at, unreadable},
};
use crate::{
    cache::namespace::Namespace,
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
};

/// Bytes that are read and then hashed while the processor still has them at hand.
const BATCH_BYTES: usize = 256 << 10;
/// Fewer than any system takes in one read.
const MOST_SLICES: usize = 512;

/// The files of one restore, open and checked up to their tensors. What others remove meanwhile
/// stays readable.
pub(crate) struct Chain {
    shared: Arc<Shared>,
    pieces: Vec<Piece>,
    token_count: usize,
    layout: Layout,
}

/// One file, and how much of it is needed.
struct Piece {
    segment: Arc<Segment>,
    path: PathBuf,
    /// Read by its cursor, which belongs to whoever holds the lock.
    file: Mutex<File>,
    /// Positions from its first one on.
    used: usize,
    borders: Vec<u64>,
    /// Of each tensor of the layout, where they are to be compared.
    checksums: Option<Vec<u64>>,
}

impl Chain {
    /// The chain that holds `tokens`, unless that is not stored or a file is no good.
    pub(super) fn open(
        shared: &Arc<Shared>,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Option<Self> {
        let way = shared.index().way(namespace, tokens);
        if way.token_count < tokens.len() {
            log::debug!("the prompt cache on disk has become shorter");
            return None;
        }
        let layout = Arc::clone(&way.segments.first()?.layout);
        let mut pieces = Vec::with_capacity(way.segments.len());
        let ends = way.segments.iter().skip(1).map(|next| next.start);
        for (segment, end) in way.segments.iter().zip(ends.chain([tokens.len()])) {
            match Piece::open(shared, segment, end - segment.start) {
                Ok(piece) => pieces.push(piece),
                Err(error) => {
                    shared.missed(segment, &error);
                    return None;
                }
            }
        }
        let now = SystemTime::now();
        for piece in &pieces {
            piece.touch(shared, now);
        }
        Some(Self {
            shared: Arc::clone(shared),
            pieces,
            token_count: tokens.len(),
            layout,
        })
    }

    /// How many tokens it holds.
    pub(crate) fn token_count(&self) -> usize {
        self.token_count
    }

    /// The tensors, as the files say.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads tensor `index` of the layout into `destination`, which is \[heads, `capacity`,
    /// width\]; positions behind the tokens stay as they are.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a destination of another size; [`Kind::Corrupt`], or as the
    /// system says, when a file is no good. Such a file is removed: this is a miss.
    pub(crate) fn read(&self, index: usize, destination: &mut [u8], capacity: usize) -> Result<()> {
        let tensor = self.layout.get(index).filter(|tensor| {
            let bytes = (capacity as u64).checked_mul(tensor.position_bytes());
            capacity >= self.token_count && bytes == Some(destination.len() as u64)
        });
        let Some(tensor) = tensor else {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!(
                    "a destination of {} bytes for {capacity} positions of tensor number {index}",
                    destination.len()
                ),
            ));
        };
        for piece in &self.pieces {
            let read = piece.read(index, tensor, destination, capacity);
            read.inspect_err(|error| self.shared.missed(&piece.segment, error))?;
        }
        Ok(())
    }
}

impl Shared {
    /// Says why a restore fails, and removes the file where it is to blame. Otherwise the file is
    /// out of sight until the next look at the folder, so that nobody tries it again and again.
    fn missed(&self, segment: &Segment, error: &Error) {
        log::warn!("a restore from the prompt cache fails: {error}");
        if error.kind() == Kind::Corrupt {
            self.discard(segment);
        } else {
            self.index().remove(segment.id);
            self.looks_everywhere.store(true, Ordering::Relaxed);
        }
    }
}

impl Piece {
    fn open(shared: &Shared, segment: &Arc<Segment>, used: usize) -> Result<Self> {
        let path = segment.path(&shared.root);
        let corrupt =
            |what: &str| Error::new(Kind::Corrupt, format!("{}: {what}", EscapedPath(&path)));
        let (file, metadata) = shared.steps.open_regular(&path)?;
        let head = segment.head();
        if metadata.len() != head.file_bytes {
            return Err(corrupt("length is not what it should be"));
        }
        let mut found = vec![0; head.bytes.len()];
        read_exact_at(&path, &file, &mut found, 0)?;
        if found != head.bytes {
            return Err(corrupt("header is not what it was"));
        }
        let checksums = if shared.verify {
            let mut bytes = vec![0; 8 * (segment.layout.len() + 2)];
            read_exact_at(&path, &file, &mut bytes, head.checksums_at())?;
            let mut checksums: Vec<u64> = bytes
                .chunks_exact(8)
                .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks of eight")))
                .collect();
            let of_tensors = checksums.split_off(2);
            if checksums != head.checksums() {
                return Err(corrupt("checksum of the header is wrong"));
            }
            Some(of_tensors)
        } else {
            None
        };
        Ok(Self {
            segment: Arc::clone(segment),
            path,
            file: Mutex::new(file),
            used,
            borders: head.borders,
            checksums,
        })
    }

    fn touch(&self, shared: &Shared, now: SystemTime) {
        shared.index().touch(self.segment.id, now);
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = shared.steps.set_modified(&file, now) {
            log::debug!("a file of the prompt cache does not become recently used: {error}");
        }
    }

    fn read(
        &self,
        index: usize,
        tensor: &TensorLayout,
        destination: &mut [u8],
        capacity: usize,
    ) -> Result<()> {
        let row_bytes = tensor.row_bytes();
        let used = self.segment.start * row_bytes..(self.segment.start + self.used) * row_bytes;
        let heads = destination
            .chunks_exact_mut(capacity * row_bytes)
            .map(|head| &mut head[used.clone()]);
        let unused_bytes = (self.segment.tokens.len() - self.used) * row_bytes;
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cursor = Cursor {
            piece: self,
            file: &file,
            hasher: self.checksums.is_some().then(Xxh3Default::new),
        };
        cursor.seek(SeekFrom::Start(self.borders[index]))?;
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        let mut scratch = Vec::new();
        for head in heads {
            for span in head.chunks_mut(BATCH_BYTES) {
                if batch.len() == MOST_SLICES || batch_bytes + span.len() > BATCH_BYTES {
                    cursor.fill(&mut batch)?;
                    batch_bytes = 0;
                }
                batch_bytes += span.len();
                batch.push(span);
            }
            if unused_bytes > 0 {
                cursor.fill(&mut batch)?;
                batch_bytes = 0;
                cursor.pass(unused_bytes, &mut scratch)?;
            }
        }
        cursor.fill(&mut batch)?;
        let found = cursor.hasher.map(|hasher| hasher.digest());
        if found != self.checksums.as_ref().map(|checksums| checksums[index]) {
            return Err(Error::new(
                Kind::Corrupt,
                format!(
                    "{}: checksum is wrong, of tensor {}",
                    EscapedPath(&self.path),
                    Escaped(&tensor.name)
                ),
            ));
        }
        Ok(())
    }
}

/// Reads a tensor in the order of the file.
struct Cursor<'a> {
    piece: &'a Piece,
    file: &'a File,
    /// Where the checksum is to be compared.
    hasher: Option<Xxh3Default>,
}

impl Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> Result<()> {
        let moved = self.file.seek(to);
        moved
            .map(|_| ())
            .map_err(|error| unreadable(&self.piece.path, error))
    }

    /// Fills the spans of a batch, which is empty then.
    fn fill(&mut self, batch: &mut Vec<&mut [u8]>) -> Result<()> {
        let mut slices: Vec<_> = batch.iter_mut().map(|span| IoSliceMut::new(span)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match self.file.read_vectored(left) {
                Ok(0) => {
                    return Err(unreadable(
                        &self.piece.path,
                        ErrorKind::UnexpectedEof.into(),
                    ));
                }
                Ok(count) => IoSliceMut::advance_slices(&mut left, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&self.piece.path, error)),
            }
        }
        if let Some(hasher) = &mut self.hasher {
            batch.iter().for_each(|span| hasher.update(span));
        }
        batch.clear();
        Ok(())
    }

    /// Goes on behind `bytes` that nobody needs but the checksum.
    fn pass(&mut self, bytes: usize, scratch: &mut Vec<u8>) -> Result<()> {
        if self.hasher.is_none() {
            let bytes = i64::try_from(bytes).expect("within a file");
            return self.seek(SeekFrom::Current(bytes));
        }
        scratch.resize(bytes.min(BATCH_BYTES), 0);
        let mut left = bytes;
        while left > 0 {
            let span = &mut scratch[..left.min(BATCH_BYTES)];
            left -= span.len();
            self.fill(&mut vec![span])?;
        }
        Ok(())
    }
}
