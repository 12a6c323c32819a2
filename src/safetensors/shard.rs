//! One open safetensors file.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

use super::{
    Header, TensorInfo,
    header::{self, PREFIX_BYTES},
};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    regular_file,
};

/// Read together with the header's length, so that a small header costs one read.
const FIRST_READ_BYTES: usize = 4096;

/// An open file whose header has been checked against its length. Tensors are read by position,
/// so one shard may be read from several threads at once.
#[derive(Debug)]
pub(crate) struct Shard {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Shard {
    /// Opens `path` (links followed) and reads and checks its header, and nothing else of it.
    ///
    /// # Errors
    /// As the system says; [`Kind::Corrupt`] for a header that contradicts itself or the file;
    /// [`Kind::ModelFormat`] for what is not a regular file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, file_bytes) = regular_file::open(path)?;
        let io = |error| Error::io(EscapedPath(path), error);
        let mut first = [0; FIRST_READ_BYTES];
        let read = regular_file::read_up_to(&file, &mut first, 0).map_err(io)?;
        let first = &first[..read];
        let header_bytes = Header::check_length(path, first, file_bytes)?;
        let header_bytes = usize::try_from(header_bytes).expect("checked to be at most 100 MB");
        let after_prefix = &first[PREFIX_BYTES as usize..];
        // A long header is not fetched for nothing.
        Header::check_first_byte(path, after_prefix)?;
        let header = if let Some(json) = after_prefix.get(..header_bytes) {
            Header::parse(path, json, file_bytes)?
        } else {
            let mut json = vec![0; header_bytes];
            json[..after_prefix.len()].copy_from_slice(after_prefix);
            let rest = &mut json[after_prefix.len()..];
            let rest_bytes = rest.len();
            let read = regular_file::read_up_to(&file, rest, first.len() as u64).map_err(io)?;
            if read < rest_bytes {
                return Err(header::corrupt(
                    path,
                    format!(
                        "file became shorter than its header, bytes missing: {}",
                        rest_bytes - read
                    ),
                ));
            }
            Header::parse(path, &json, file_bytes)?
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
        })
    }

    /// The path that it was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The tensors, in the header's order.
    pub(crate) fn tensors(&self) -> &[TensorInfo] {
        self.header.tensors()
    }

    /// The writer's strings by name.
    pub(crate) fn metadata(&self) -> &BTreeMap<String, String> {
        self.header.metadata()
    }

    /// Reads one tensor of this shard into `buffer`, which is exactly as long as the tensor.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for an element type that the library cannot use,
    /// [`Kind::InvalidArgument`] for a buffer of another length, [`Kind::Corrupt`] when the
    /// file has become shorter than its header says, and what the system reports. All name the
    /// shard and the tensor.
    pub(crate) fn read_exact_at(&self, tensor: &TensorInfo, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 != tensor.byte_len() {
            return Err(self.error(
                Kind::InvalidArgument,
                tensor,
                format_args!(
                    "a buffer of {} bytes for a tensor of {}",
                    buffer.len(),
                    tensor.byte_len()
                ),
            ));
        }
        self.read_part_at(tensor, 0, buffer)
    }

    /// Reads a part of one tensor: as many bytes as `buffer` has, from `offset` on.
    ///
    /// # Errors
    /// As [`read_exact_at`](Self::read_exact_at); [`Kind::InvalidArgument`] for a part that ends
    /// behind the tensor.
    pub(crate) fn read_part_at(
        &self,
        tensor: &TensorInfo,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        if !tensor.dtype.is_readable() {
            return Err(self.error(
                Kind::Unsupported,
                tensor,
                format_args!("unsupported dtype {}", Escaped(tensor.dtype_name())),
            ));
        }
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > tensor.byte_len()) {
            return Err(self.error(
                Kind::InvalidArgument,
                tensor,
                format_args!(
                    "{} bytes from {offset} on of a tensor of {}",
                    buffer.len(),
                    tensor.byte_len()
                ),
            ));
        }
        let begin = tensor.begin + offset;
        let read = regular_file::read_up_to(&self.file, buffer, begin).map_err(|error| {
            Error::io(
                format_args!(
                    "{}: cannot read tensor {}",
                    EscapedPath(&self.path),
                    Escaped(&tensor.name)
                ),
                error,
            )
        })?;
        if read < buffer.len() {
            return Err(self.error(
                Kind::Corrupt,
                tensor,
                format_args!(
                    "file has become shorter, {} bytes missing of tensor",
                    buffer.len() - read
                ),
            ));
        }
        Ok(())
    }

    fn error(&self, kind: Kind, tensor: &TensorInfo, what: impl std::fmt::Display) -> Error {
        Error::new(
            kind,
            format!(
                "{}: {what}: {}",
                EscapedPath(&self.path),
                Escaped(&tensor.name)
            ),
        )
    }
}
