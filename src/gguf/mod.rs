//! A checked reader of GGUF files.
//!
//! A file is a magic word, counts, metadata (keys with typed values), an entry for each tensor,
//! and the tensors' data from an aligned offset on
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>). Everything that the header
//! claims is checked before anything is read by it or memory is taken for it: lengths and counts
//! against what is left of the file, and each tensor's range against its shape, the file and the
//! other tensors. Files are never mapped into memory.

mod block;
mod cursor;
#[cfg(test)]
mod fuzz;
mod header;
mod metadata;

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
};

pub(crate) use self::{
    block::{BLOCK, GgmlType, Part},
    header::TensorInfo,
    metadata::Metadata,
};
use self::{cursor::Cursor, header::Header};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    regular_file,
};

/// An open file whose header has been checked against its length.
#[derive(Debug)]
pub(crate) struct Gguf {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Gguf {
    /// Opens `path` (links followed) and reads and checks its header, and nothing else of it.
    ///
    /// # Errors
    /// As the system says; [`Kind::Corrupt`] for a header that contradicts itself or the file;
    /// [`Kind::Unsupported`] for a version of the format that is not known;
    /// [`Kind::ModelFormat`] for what is not a regular file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, file_bytes) = regular_file::open(path)?;
        let header = Header::read(&mut Cursor::new(&file, file_bytes))
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", EscapedPath(path))))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
        })
    }

    /// What the file says of itself.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// The tensors, in the header's order.
    pub(crate) fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// Reads rows of a tensor of this file, as they stand there, into `buffer`, which is exactly
    /// as long.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] when the file has become shorter, and what the system reports.
    pub(crate) fn read_rows(
        &self,
        tensor: &TensorInfo,
        rows: Range<usize>,
        buffer: &mut [u8],
    ) -> Result<()> {
        let row_bytes = tensor.row_bytes() as u64;
        let begin = tensor.begin + rows.start as u64 * row_bytes;
        debug_assert_eq!(buffer.len() as u64, rows.len() as u64 * row_bytes);
        let read = regular_file::read_up_to(&self.file, buffer, begin)
            .map_err(|error| Error::io(EscapedPath(&self.path), error))?;
        if read < buffer.len() {
            return Err(Error::new(
                Kind::Corrupt,
                format!(
                    "{}: file has become shorter, {} bytes missing of tensor: {}",
                    EscapedPath(&self.path),
                    buffer.len() - read,
                    Escaped(&tensor.name)
                ),
            ));
        }
        Ok(())
    }
}
