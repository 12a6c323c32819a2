//! Opening and reading regular files: whatever a name turns out to be, opening it neither waits
//! nor has a side effect, and no read asks for more memory than was agreed.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
};

/// Opens `path` (links followed) for reading and answers its length in bytes.
///
/// # Errors
/// As the system says, and [`Kind::ModelFormat`] for a folder, a pipe or a device.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    // Without O_NONBLOCK a named pipe would hold the caller until somebody writes to it.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| Error::io(EscapedPath(path), error))?;
    let metadata = file
        .metadata()
        .map_err(|error| Error::io(EscapedPath(path), error))?;
    if !metadata.is_file() {
        return Err(Error::new(
            Kind::ModelFormat,
            format!("not a regular file: {}", EscapedPath(path)),
        ));
    }
    Ok((file, metadata.len()))
}

/// Reads the whole of `path`, which must not be longer than `most_bytes`.
///
/// # Errors
/// As [`open`], and [`Kind::ModelFormat`] for a longer file.
pub(crate) fn read(path: &Path, most_bytes: u64) -> Result<Vec<u8>> {
    let (file, length) = open(path)?;
    if length > most_bytes {
        return Err(Error::new(
            Kind::ModelFormat,
            format!(
                "{} is larger than {most_bytes} bytes: {length}",
                EscapedPath(path)
            ),
        ));
    }
    let mut bytes = vec![0; usize::try_from(length).expect("files of this size fit into memory")];
    let read =
        read_up_to(&file, &mut bytes, 0).map_err(|error| Error::io(EscapedPath(path), error))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Fills `buffer` from `offset` on, or as much of it as the file holds; answers how much.
pub(crate) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn only_regular_files_open_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/null")] {
            let error = open(path).unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat, "{error}");
        }
        let absent = open(&dir.path().join("ab\nsent")).unwrap_err();
        assert_eq!(absent.kind(), Kind::NotFound);
        assert!(absent.message().contains("ab\\nsent"), "{absent}");
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!(error.kind(), Kind::ModelFormat);
        assert!(error.message().ends_with("larger than 4 bytes: 5"));
    }

    #[test]
    fn reading_stops_at_the_end_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"12345").unwrap();
        let (file, length) = open(&path).unwrap();
        assert_eq!(length, 5);
        let mut buffer = [0; 4];
        assert_eq!(read_up_to(&file, &mut buffer, 3).unwrap(), 2);
        assert_eq!(&buffer[..2], b"45");
        assert_eq!(read_up_to(&file, &mut buffer, 9).unwrap(), 0);
    }
}
