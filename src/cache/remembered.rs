//! Hashes of models' files, kept beside the states, so that a new process need not take them again.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::model::{Remember, Stamp};

/// A folder with a file for each hash, named by what the hash is of.
pub(super) struct Remembered {
    dir: PathBuf,
}

impl Remembered {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.join("mlxb-hashes-v1"),
        }
    }

    fn path(&self, stamp: &Stamp) -> PathBuf {
        self.dir
            .join(blake3::Hash::from_bytes(stamp.digest()).to_hex().as_str())
    }

    fn write(&self, path: &Path, hash: &[u8; 32]) -> std::io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.dir)?;
        let partial = path.with_extension(format!("{}.partial", std::process::id()));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options
            .open(&partial)
            .and_then(|mut file| file.write_all(hash))
            .and_then(|()| fs::rename(&partial, path));
        if written.is_err() {
            // Of another run with this process's number, or of this one.
            let _ = fs::remove_file(&partial);
        }
        written
    }
}

impl Remember for Remembered {
    fn recall(&self, stamp: &Stamp) -> Option<[u8; 32]> {
        fs::read(self.path(stamp)).ok()?.try_into().ok()
    }

    fn remember(&self, stamp: &Stamp, hash: &[u8; 32]) {
        if let Err(error) = self.write(&self.path(stamp), hash) {
            log::info!("the hash of a model's file cannot be kept: {error}");
        }
    }
}
