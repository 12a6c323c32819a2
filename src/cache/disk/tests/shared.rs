//! Several at one directory.

use super::*;

/// LMCache/LMCache#207: what is being written is not there yet.
#[test]
fn what_is_being_written_is_a_miss_until_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, reader) = (
        Disk::open(folder.path(), AMPLE, true).unwrap(),
        Disk::open(folder.path(), AMPLE, true).unwrap(),
    );
    let (namespace, tokens, layout) = (namespace(1), [1, 2, 3], layout());
    let mut source = |index, range| {
        reader.refresh().unwrap();
        assert_eq!(reader.prefix(&namespace, &tokens), 0);
        assert_eq!(writer.prefix(&namespace, &tokens), 0);
        let opened = Disk::open(folder.path(), AMPLE, true).unwrap();
        assert_eq!(opened.prefix(&namespace, &tokens), 0);
        Ok(rows(&namespace, &layout, &tokens, index, range))
    };
    let written = writer.store(&namespace, &layout, &tokens, &mut source);
    assert!(written.unwrap() > 0);
    assert_eq!(restored(&writer, &namespace, &tokens), 3);
    reader.refresh().unwrap();
    assert_eq!(restored(&reader, &namespace, &tokens), 3);
    assert_tidy(&reader, folder.path());
}

/// Another process stores the same, or more, or removes what is continued, in the middle of it.
#[test]
fn a_store_begins_again_when_what_is_stored_changes() {
    type Meanwhile = fn(&Disk, &Namespace, &[u32]);
    let cases: [(Meanwhile, usize, usize); 4] = [
        // What happens, times that tensor 0 is asked for, files in the end.
        (
            |disk, n, tokens| assert!(store(disk, n, tokens).unwrap() > 0),
            1,
            2,
        ),
        (
            |disk, n, tokens| assert!(store(disk, n, &tokens[..20]).unwrap() > 0),
            2,
            3,
        ),
        (|disk, _, _| assert!(disk.clear().unwrap() > 0), 2, 1),
        (
            |disk, n, _| assert!(store(disk, n, &[0, 1, 99]).unwrap() > 0),
            1,
            3,
        ),
    ];
    for (meanwhile, times, file_count) in cases {
        let folder = tempfile::tempdir().unwrap();
        let ours = Disk::open(folder.path(), AMPLE, true).unwrap();
        let theirs = Disk::open(folder.path(), AMPLE, true).unwrap();
        let (namespace, layout) = (namespace(1), layout());
        let tokens: Vec<u32> = (0..30).collect();
        store(&ours, &namespace, &tokens[..10]).unwrap();
        theirs.refresh().unwrap();
        let mut asked = 0;
        let mut source = |index, range| {
            if index == 0 {
                asked += 1;
            }
            if index == 1 && asked == 1 {
                meanwhile(&theirs, &namespace, &tokens);
            }
            Ok(rows(&namespace, &layout, &tokens, index, range))
        };
        ours.store(&namespace, &layout, &tokens, &mut source)
            .unwrap();
        assert_eq!(asked, times);
        theirs.refresh().unwrap();
        for disk in [&ours, &theirs] {
            assert_eq!(restored(disk, &namespace, &tokens), 30);
            assert_eq!(disk.facts().file_count, file_count);
            assert_tidy(disk, folder.path());
        }
    }
}

/// Two directories in one: files that overlap serve side by side.
#[test]
fn files_that_were_cut_differently_serve_together() {
    let mut random = Random(77);
    let target = tempfile::tempdir().unwrap();
    let mut stored = Vec::new();
    for _ in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
        for _ in 0..30 {
            let mut tokens = vec![1; 5 + random.below(40)];
            for _ in 0..random.below(3) {
                let at = random.below(tokens.len());
                tokens[at] = 2;
            }
            store(&disk, &namespace(1), &tokens).unwrap();
            stored.push(tokens);
        }
        for path in segment_files(folder.path()) {
            let copy = target
                .path()
                .join(path.strip_prefix(folder.path()).unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(path, copy).unwrap();
        }
    }
    let disk = Disk::open(target.path(), AMPLE, true).unwrap();
    assert!(disk.facts().token_count > 1000, "they overlap");
    for tokens in &stored {
        assert_eq!(restored(&disk, &namespace(1), tokens), tokens.len());
    }
    // And go one by one.
    for part in (0..8).rev() {
        let disk = Disk::open(target.path(), disk.bytes() * part / 8, true).unwrap();
        for tokens in &stored {
            restored(&disk, &namespace(1), tokens);
        }
        assert_tidy(&disk, target.path());
    }
}

#[test]
fn a_lock_that_somebody_keeps_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let tokens: Vec<u32> = (0..9).collect();
    store(&disk, &namespace(1), &tokens).unwrap();
    let file = segment_files(folder.path()).remove(0);
    let keeper = fs::File::open(folder.path().join("mlxb-kv-v1/lock")).unwrap();
    keeper.lock().unwrap();
    // Restoring needs no lock, and gives up on removing a bad file soon.
    assert_eq!(restored(&disk, &namespace(1), &tokens), 9);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(!restores(&disk, &namespace(1), &tokens, 9));
    assert_eq!(disk.prefix(&namespace(1), &tokens), 0);
    assert!(file.exists());
    let patience = std::time::Duration::from_millis(20);
    let error = disk.shared.lock(patience).err().unwrap();
    assert_eq!(error.kind(), crate::Kind::Locked);
    // The same within a process.
    drop(keeper);
    let locked = disk.shared.lock(patience).unwrap();
    assert_eq!(
        disk.shared.lock(patience).err().unwrap().kind(),
        crate::Kind::Locked
    );
    drop(locked);
    // What could not be removed then makes way now.
    assert!(store(&disk, &namespace(1), &tokens).unwrap() > 0);
    assert_eq!(restored(&disk, &namespace(1), &tokens), 9);
    assert_tidy(&disk, folder.path());
}

#[test]
fn a_panic_of_the_source_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let layout = layout();
    let stored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut source = |index, range| match index {
            0 => Ok(rows(&namespace(1), &layout, &[1, 2], index, range)),
            _ => panic!("the source is gone"),
        };
        disk.store(&namespace(1), &layout, &[1, 2], &mut source)
    }));
    assert!(stored.is_err());
    assert_eq!(disk.prefix(&namespace(1), &[1, 2]), 0);
    assert_tidy(&disk, folder.path());
    assert!(store(&disk, &namespace(1), &[1, 2]).unwrap() > 0);
}
