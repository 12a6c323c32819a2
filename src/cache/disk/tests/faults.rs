//! Letting the n-th change of the file system fail.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::*;
use crate::cache::disk::steps::Steps;

/// Counts the steps, and fails one of them, or it and all that follow, as if the process had
/// ended there.
#[derive(Default)]
pub(crate) struct Faults {
    count: AtomicUsize,
    /// The number of the step that fails; 0 for none.
    fails_at: AtomicUsize,
    stops: AtomicBool,
}

impl Faults {
    pub(crate) fn next(&self) -> io::Result<()> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let fails_at = self.fails_at.load(Ordering::Relaxed);
        let fails = match self.stops.load(Ordering::Relaxed) {
            true => fails_at > 0 && number >= fails_at,
            false => number == fails_at,
        };
        match fails {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    pub(crate) fn arm(&self, fails_at: usize, stops: bool) {
        self.count.store(0, Ordering::Relaxed);
        self.stops.store(stops, Ordering::Relaxed);
        self.fails_at.store(fails_at, Ordering::Relaxed);
    }

    /// Steps since [`Self::arm`].
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// What ran before the fault, and what is checked after it.
struct Scene {
    folder: tempfile::TempDir,
    cap_bytes: u64,
}

const NAMESPACE: Namespace = Namespace([1; 32]);
const OTHER: Namespace = Namespace([2; 32]);

fn sequences() -> [(Namespace, Vec<u32>); 4] {
    [
        (NAMESPACE, (0..30).collect()),
        (NAMESPACE, (0..20).chain(50..60).collect()),
        (OTHER, (0..40).collect()),
        (OTHER, (70..90).collect()),
    ]
}

impl Scene {
    /// Two stored sequences, the first in two files, and beside them an unfinished file, one
    /// that is cut off, one of another namespace, and one that continues nothing.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
        let [(a, first), (_, second), (b, third), _] = sequences();
        store(&disk, &a, &first[..10]).unwrap();
        store(&disk, &a, &first[..20]).unwrap();
        store(&disk, &b, &third).unwrap();
        let good = segment_files(folder.path());
        let cap_bytes = disk.bytes() + 3000;

        let elsewhere = tempfile::tempdir().unwrap();
        let disk = Disk::open(elsewhere.path(), AMPLE, true).unwrap();
        store(&disk, &a, &first[..15]).unwrap();
        let parent = segment_files(elsewhere.path()).remove(0);
        store(&disk, &a, &second).unwrap();
        let mut child = segment_files(elsewhere.path());
        child.retain(|path| *path != parent);
        let bytes = fs::read(&child[0]).unwrap();
        let own = good[0].parent().unwrap();
        let others = good[2].parent().unwrap();
        assert_ne!(own, others);
        let name = child[0].file_name().unwrap();
        fs::write(own.join(name), &bytes).unwrap();
        fs::write(others.join(name), &bytes).unwrap();
        let cut_off = format!("{}.safetensors", "ab".repeat(32));
        fs::write(own.join(cut_off), &bytes[..100]).unwrap();
        fs::write(own.join("1-0.tmp"), &bytes).unwrap();
        Self { folder, cap_bytes }
    }

    fn disk(&self, steps: Steps) -> Result<Disk> {
        Disk::open_with(self.folder.path(), self.cap_bytes, true, steps)
    }

    /// Opens, stores with and without the need to make room, restores, clears.
    fn play(&self, steps: &Steps) {
        let Ok(disk) = self.disk(steps.clone()) else {
            return;
        };
        let sequences = sequences();
        for (namespace, tokens) in &sequences {
            let _ = store(&disk, namespace, tokens);
            for (namespace, tokens) in &sequences {
                // A fault may hide what is there, but what is there is right.
                let count = disk.prefix(namespace, tokens);
                let _ = restores(&disk, namespace, tokens, count);
            }
        }
        // Half of the rounds keep what is stored.
        if steps.faults.count().is_multiple_of(2) {
            let _ = disk.clear();
        }
    }

    fn check(&self) {
        let disk = self.disk(Steps::default()).unwrap();
        for (namespace, tokens) in sequences() {
            restored(&disk, &namespace, &tokens);
        }
        assert_tidy(&disk, self.folder.path());
        assert!(bytes_below(self.folder.path()) <= self.cap_bytes);
        for (namespace, tokens) in sequences() {
            store(&disk, &namespace, &tokens).unwrap();
            assert_eq!(restored(&disk, &namespace, &tokens), tokens.len());
        }
    }
}

/// A lock that cannot be had or a file that cannot be opened for a moment costs a miss and no more.
#[test]
fn a_passing_fault_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let tokens: Vec<u32> = (0..40).collect();
    for count in [10, 20, 40] {
        store(&disk, &NAMESPACE, &tokens[..count]).unwrap();
    }
    for fails_at in 1.. {
        let steps = Steps::default();
        steps.faults.arm(fails_at, false);
        if let Ok(disk) = Disk::open_with(folder.path(), AMPLE, true, steps.clone()) {
            if disk.prefix(&NAMESPACE, &tokens) == 40 {
                let is_hit = restores(&disk, &NAMESPACE, &tokens, 40);
                // A file that fails is not tried again right away.
                assert!(is_hit || disk.prefix(&NAMESPACE, &tokens) < 40);
                let _ = disk.refresh();
                let is_whole = disk.prefix(&NAMESPACE, &tokens) == 40;
                let _ = is_whole && restores(&disk, &NAMESPACE, &tokens, 40);
                // The fault has passed.
                if steps.faults.count() > fails_at {
                    disk.refresh().unwrap();
                    assert_eq!(restored(&disk, &NAMESPACE, &tokens), 40);
                }
            }
            let _ = disk.refresh();
            let _ = store(&disk, &NAMESPACE, &tokens);
        }
        let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
        assert_eq!(restored(&disk, &NAMESPACE, &tokens), 40, "{fails_at}");
        assert_tidy(&disk, folder.path());
        if fails_at > steps.faults.count() {
            assert!(fails_at > 15, "{fails_at}");
            break;
        }
    }
}

/// raullenchai/Rapid-MLX#187, LMCache/LMCache#4991: each step of a run fails, or is the last one
/// that the process does.
#[test]
fn a_fault_at_any_step_leaves_whole_entries_or_none() {
    for stops in [false, true] {
        let mut fails_at = 0;
        loop {
            let scene = Scene::new();
            let steps = Steps::default();
            steps.faults.arm(fails_at, stops);
            scene.play(&steps);
            let count = steps.faults.count();
            scene.check();
            if fails_at > count {
                assert!(count > 80, "{count}");
                break;
            }
            fails_at += 1;
        }
    }
}
