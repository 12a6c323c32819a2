//! Reading a header from its beginning to its end, never further than the file goes.

use std::io::{self, BufReader, Read};

use crate::error::{Error, Kind, Result};

/// The longest header that is read; those of real files, vocabulary included, stay under 20 MB.
const MOST_HEADER_BYTES: u64 = 64 << 20;

/// The longest text, such as a chat template.
const MOST_TEXT_BYTES: u64 = 16 << 20;

pub(super) struct Cursor<R> {
    reader: BufReader<R>,
    /// How far it has come.
    pub(super) at: u64,
    /// The length of the file.
    pub(super) file_bytes: u64,
}

pub(super) fn corrupt(what: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, what)
}

impl<R: Read> Cursor<R> {
    pub(super) fn new(reader: R, file_bytes: u64) -> Self {
        Self {
            reader: BufReader::new(reader),
            at: 0,
            file_bytes,
        }
    }

    /// Bytes that may still belong to the header.
    pub(super) fn left(&self) -> u64 {
        self.file_bytes
            .min(MOST_HEADER_BYTES)
            .saturating_sub(self.at)
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A count of things that take `least_bytes` each at least: no more than there is room for.
    pub(super) fn count(&mut self, least_bytes: u64, what: &str) -> Result<usize> {
        let count = self.u64()?;
        let most = self.left() / least_bytes;
        if count > most {
            return Err(corrupt(format!(
                "more {what} than the header has room for: {count}"
            )));
        }
        usize::try_from(count).map_err(|_| corrupt(format!("too many {what}: {count}")))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let length = self.count(1, "bytes of text")?;
        if length as u64 > MOST_TEXT_BYTES {
            return Err(corrupt(format!("text is too long, bytes: {length}")));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes)
            .map_err(|_| corrupt(format!("text is not UTF-8, before byte: {}", self.at)))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() as u64 > self.left() {
            return Err(corrupt(format!(
                "header goes on behind the end of the file, or is too long, at byte: {}",
                self.at
            )));
        }
        self.reader
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    corrupt(format!("file has become shorter than: {}", self.file_bytes))
                }
                _ => Error::io("header", error),
            })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
