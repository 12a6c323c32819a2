//! Hashes of models' files, kept beside the states, so that a new process need not take them again.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher as _, Hasher as _},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::model::{Remember, Stamp};

/// A folder with a file for each hash, named by what the hash is of. A file holds the hash and a
/// checksum over it and the name: what a loss of power left must not stand for a model.
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

    fn write(&self, stamp: &Stamp, hash: &[u8; 32]) -> std::io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.dir)?;
        let random = RandomState::new().build_hasher().finish();
        let partial = self.dir.join(format!("{random:016x}.partial"));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&partial)?;
        let written = file
            .write_all(&[*hash, checksum(stamp, hash)].concat())
            .and_then(|()| fs::rename(&partial, self.path(stamp)));
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written
    }
}

impl Remember for Remembered {
    fn recall(&self, stamp: &Stamp) -> Option<[u8; 32]> {
        let bytes = fs::read(self.path(stamp)).ok()?;
        let (hash, rest) = bytes.split_first_chunk()?;
        (rest == checksum(stamp, hash)).then_some(*hash)
    }

    fn remember(&self, stamp: &Stamp, hash: &[u8; 32]) {
        if let Err(error) = self.write(stamp, hash) {
            log::info!("the hash of a model's file cannot be kept: {error}");
        }
    }
}

fn checksum(stamp: &Stamp, hash: &[u8; 32]) -> [u8; 32] {
    *blake3::hash(&[stamp.digest(), *hash].concat()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_remembered_of_a_file_is_recalled() {
        let dir = tempfile::tempdir().unwrap();
        let remembered = Remembered::new(dir.path());
        let stamp = |name: &str| {
            let path = dir.path().join(name);
            fs::write(&path, name).unwrap();
            Stamp::of(&fs::File::open(path).unwrap()).unwrap()
        };
        let (one, other) = (stamp("a"), stamp("other"));
        assert_eq!(remembered.recall(&one), None);
        remembered.remember(&one, &[7; 32]);
        remembered.remember(&one, &[7; 32]);
        assert_eq!(remembered.recall(&one), Some([7; 32]));
        assert_eq!(remembered.recall(&other), None);
        assert_eq!(fs::read_dir(&remembered.dir).unwrap().count(), 1);
        let good = fs::read(remembered.path(&one)).unwrap();
        fs::write(remembered.path(&other), &good).unwrap();
        assert_eq!(remembered.recall(&other), None, "it is another's");
        let mut flipped = good.clone();
        flipped[3] ^= 1;
        for damaged in [
            vec![],
            vec![0; 32],
            vec![0; 64],
            good[..63].to_vec(),
            flipped,
        ] {
            fs::write(remembered.path(&one), damaged).unwrap();
            assert_eq!(remembered.recall(&one), None);
        }
    }
}
