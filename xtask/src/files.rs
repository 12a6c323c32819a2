//! What the file system lacks.

use std::{
    ffi::OsStr,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::Result;

/// The files of a folder that end in `.extension`, sorted.
pub(crate) fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    found.retain(|path| path.extension() == Some(OsStr::new(extension)));
    found.sort();
    Ok(found)
}

/// Removes a folder, if it is there, with all that is in it.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()).into())
        }
        _ => Ok(()),
    }
}
