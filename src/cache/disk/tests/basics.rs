//! What is stored is restored, new tokens alone are written, and any prefix is there.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;
use crate::error::Kind;

#[test]
fn a_conversation_is_stored_turn_by_turn_and_restored_at_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("made/by/open");
    let disk = Disk::open(&directory, AMPLE, true).unwrap();
    let namespace = namespace(1);
    let tokens: Vec<u32> = (0..100).map(|n| n * n % 17).collect();
    assert_eq!(disk.prefix(&namespace, &tokens), 0);
    assert!(disk.open_chain(&namespace, &tokens, 1).is_none());

    let mut written = 0;
    for count in [1, 30, 31, 99, 100] {
        let new = store(&disk, &namespace, &tokens[..count]).unwrap();
        assert!(new > 0);
        written += new;
        assert_eq!(disk.prefix(&namespace, &tokens), count);
        assert_eq!(store(&disk, &namespace, &tokens[..count]).unwrap(), 0);
    }
    assert_eq!(disk.bytes(), written);
    assert_eq!(
        (disk.facts().file_count, disk.facts().token_count),
        (5, 100)
    );
    assert_eq!(disk.facts().entry_count, 1);

    for disk in [&disk, &Disk::open(&directory, AMPLE, true).unwrap()] {
        assert_tidy(disk, &directory);
        for count in 1..=100 {
            assert_eq!(disk.prefix(&namespace, &tokens[..count]), count);
            assert!(restores(disk, &namespace, &tokens, count));
        }
        assert!(disk.open_chain(&namespace, &tokens, 101).is_none());
        assert!(disk.open_chain(&namespace, &tokens, 0).is_none());
        assert_eq!(disk.prefix(&super::namespace(2), &tokens), 0);
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let root = directory.join("mlxb-kv-v1");
    assert_eq!(mode(&root), 0o700);
    for file in files(&root) {
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
    }
    assert_eq!(disk.clear().unwrap(), written);
    assert_eq!(disk.facts(), crate::cache::disk::Facts::default());
    assert_tidy(&disk, &directory);
}

#[test]
fn branches_share_what_they_have_in_common() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let namespace = namespace(1);
    // Branches from the middle of a file, from its end, from the middle of a branch's file.
    let branches: [Vec<u32>; 6] = [
        (0..50).collect(),
        (0..20).chain(100..130).collect(),
        (0..20).chain(200..210).collect(),
        (0..50).chain(300..310).collect(),
        (0..20).chain(100..105).chain([9, 9]).collect(),
        vec![7],
    ];
    for branch in &branches {
        store(&disk, &namespace, branch).unwrap();
    }
    assert_eq!(disk.facts().token_count, 50 + 30 + 10 + 10 + 2 + 1);
    assert_eq!((disk.facts().file_count, disk.facts().entry_count), (6, 4));
    let again = Disk::open(folder.path(), AMPLE, true).unwrap();
    for branch in &branches {
        assert_eq!(restored(&again, &namespace, branch), branch.len());
        let mut longer = branch.clone();
        longer.extend([1_000_000, 3]);
        assert_eq!(restored(&again, &namespace, &longer), branch.len());
    }
    assert_eq!(restored(&again, &namespace, &[0, 1, 2, 100]), 3);
    assert_eq!(restored(&again, &namespace, &[8]), 0);
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let namespace = namespace(1);
    assert_eq!(store(&disk, &namespace, &[]).unwrap(), 0);
    let layout = layout();
    let refused = |layout: &Layout, bytes: &dyn Fn(usize) -> Result<Vec<u8>>| {
        let mut source = |index, _| bytes(index);
        let stored = disk.store(&namespace, layout, &[1, 2], &mut source);
        assert_tidy(&disk, folder.path());
        stored.unwrap_err().kind()
    };
    let none: Layout = Arc::new([]);
    assert_eq!(refused(&none, &|_| Ok(vec![])), Kind::InvalidArgument);
    assert_eq!(
        refused(&layout, &|_| Ok(vec![0; 32])),
        Kind::InvalidArgument
    );
    let failing = |index| match index {
        0 => Ok(vec![0; 32]),
        _ => Err(crate::Error::new(Kind::Cancelled, "enough")),
    };
    assert_eq!(refused(&layout, &failing), Kind::Cancelled);
    assert_eq!(disk.facts().file_count, 0);

    store(&disk, &namespace, &[1]).unwrap();
    let other: Layout = layout[..1].into();
    assert_eq!(refused(&other, &|_| Ok(vec![0; 16])), Kind::InvalidArgument);

    let chain = disk.open_chain(&namespace, &[1], 1).unwrap();
    for (index, bytes, capacity) in [(0, 15, 1), (0, 16, 0), (3, 16, 1), (0, 0, usize::MAX)] {
        let error = chain
            .read(index, &mut vec![0; bytes], capacity)
            .unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
    }
    assert_eq!(restored(&disk, &namespace, &[1]), 1);
}
