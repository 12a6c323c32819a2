//! A disk that is full, and one that cannot be written.

use std::process::Command;

use super::{corruption::warnings, *};
use crate::error::Kind;

/// A file system of its own, in memory.
struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// Nothing where the system does not let us.
    #[expect(clippy::print_stderr, reason = "a test that is left out says so")]
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let output = command.arg(folder.path()).output();
        match output {
            Ok(output) if output.status.success() => Some(Self { folder }),
            complaint => {
                eprintln!("left out, since nothing can be mounted here: {complaint:?}");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,{options}")]);
        let output = command.arg(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("cache")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).output();
    }
}

const NAMESPACE: Namespace = Namespace([1; 32]);

fn sequence(number: u32) -> Vec<u32> {
    (0..50).map(|n| number * 1000 + n).collect()
}

/// LMCache/LMCache#4991: what could not be written is not there.
#[test]
fn a_full_disk_refuses_what_is_new_and_keeps_the_rest() {
    // By bytes, and by files: the root, the folders, the lock and two segments.
    for options in ["size=128k", "size=8m,nr_inodes=7"] {
        let Some(mounted) = Mounted::new(options) else {
            return;
        };
        let disk = Disk::open(&mounted.directory(), AMPLE, true).unwrap();
        let mut stored = 0;
        let error = loop {
            match store(&disk, &NAMESPACE, &sequence(stored)) {
                Ok(bytes) => assert!(bytes > 0),
                Err(error) => break error,
            }
            stored += 1;
        };
        assert_eq!(error.kind(), Kind::NoSpace, "{error}");
        assert!((2..40).contains(&stored), "{stored}");
        for again in 0..3 {
            assert_tidy(&disk, &mounted.directory());
            assert_eq!(disk.prefix(&NAMESPACE, &sequence(stored)), 0);
            for number in 0..stored {
                assert_eq!(restored(&disk, &NAMESPACE, &sequence(number)), 50);
            }
            let error = store(&disk, &super::namespace(2), &sequence(again)).unwrap_err();
            assert_eq!(error.kind(), Kind::NoSpace, "{error}");
        }
        // There is room again.
        assert!(disk.clear().unwrap() > 0);
        assert!(store(&disk, &NAMESPACE, &sequence(stored)).unwrap() > 0);
        assert_eq!(restored(&disk, &NAMESPACE, &sequence(stored)), 50);
    }
}

#[test]
fn a_directory_that_cannot_be_written_serves_for_reading() {
    let Some(mounted) = Mounted::new("size=1m") else {
        return;
    };
    let directory = mounted.directory();
    let disk = Disk::open(&directory, AMPLE, true).unwrap();
    store(&disk, &NAMESPACE, &sequence(0)).unwrap();
    store(&disk, &NAMESPACE, &sequence(1)).unwrap();
    let damaged = segment_files(&directory).remove(0);
    let before = (files(&directory), bytes_below(&directory));
    mounted.remount("ro");
    warnings();
    let opened = Disk::open(&directory, AMPLE, true).unwrap();
    // Less than there is: nothing can be done about it.
    let small = Disk::open(&directory, 1, true).unwrap();
    assert!(!warnings().is_empty());
    for disk in [&disk, &opened, &small] {
        for number in 0..2 {
            assert_eq!(restored(disk, &NAMESPACE, &sequence(number)), 50);
        }
        let error = store(disk, &NAMESPACE, &sequence(2)).unwrap_err();
        assert!(matches!(error.kind(), Kind::Io | Kind::NoSpace), "{error}");
        assert_eq!(disk.clear().unwrap_err().kind(), Kind::Io);
        assert_eq!(disk.prefix(&NAMESPACE, &sequence(2)), 0);
        assert_eq!(disk.facts().file_count, 2);
    }
    assert_eq!((files(&directory), bytes_below(&directory)), before);
    let error = Disk::open(&mounted.folder.path().join("new"), AMPLE, true).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);

    mounted.remount("rw");
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, &bytes[1..]).unwrap();
    mounted.remount("ro");
    for is_open_before in [true, false] {
        let opened = Disk::open(&directory, AMPLE, true).unwrap();
        let disk = if is_open_before { &disk } else { &opened };
        let hits = [0, 1].map(|number| restores(disk, &NAMESPACE, &sequence(number), 50));
        assert_eq!(hits.iter().filter(|&&hit| hit).count(), 1);
        assert!(!warnings().is_empty());
        assert_eq!(disk.facts().file_count, 1);
    }
    mounted.remount("rw");
    let disk = Disk::open(&directory, AMPLE, true).unwrap();
    assert!(!damaged.exists());
    assert_tidy(&disk, &directory);
}
