//! The cap, and what goes first.

use std::{fs::File, time::Duration};

use super::*;
use crate::error::Kind;

const NAMESPACE: Namespace = Namespace([1; 32]);

/// Bytes of the file of so many tokens.
fn file_bytes(token_count: usize) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let tokens: Vec<u32> = (0..token_count as u32).collect();
    store(&disk, &NAMESPACE, &tokens).unwrap()
}

/// A sequence of its own.
fn sequence(number: u32) -> Vec<u32> {
    (0..20).map(|n| number * 1000 + n).collect()
}

/// Makes a file look as if it was last used so many seconds ago.
fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let one = file_bytes(20);
    let disk = Disk::open(folder.path(), 3 * one + one / 2, true).unwrap();
    let is_there = |number| disk.prefix(&NAMESPACE, &sequence(number)) == 20;
    for number in 0..3 {
        store(&disk, &NAMESPACE, &sequence(number)).unwrap();
    }
    // A restore is a use, and so is storing what is there; looking is not.
    assert!(restores(&disk, &NAMESPACE, &sequence(0), 20));
    assert_eq!(store(&disk, &NAMESPACE, &sequence(1)).unwrap(), 0);
    assert!(is_there(2));
    store(&disk, &super::namespace(2), &sequence(3)).unwrap();
    assert_eq!([0, 1, 2].map(is_there), [true, true, false]);
    store(&disk, &NAMESPACE, &sequence(4)).unwrap();
    assert_eq!([0, 1, 2, 4].map(is_there), [false, true, false, true]);
    assert_tidy(&disk, folder.path());

    // The times of use outlast the process, and those of other processes count.
    let other = Disk::open(folder.path(), 3 * one + one / 2, true).unwrap();
    assert!(restores(&other, &NAMESPACE, &sequence(1), 20));
    store(&disk, &NAMESPACE, &sequence(5)).unwrap();
    assert_eq!([1, 4, 5].map(is_there), [true, true, true]);
    assert_eq!(disk.prefix(&super::namespace(2), &sequence(3)), 0);
    assert_tidy(&disk, folder.path());
}

/// LMCache/LMCache#1116: what others continue is used whenever they are.
#[test]
fn a_beginning_outlives_what_continues_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let system = sequence(0);
    let branch = |number| [system.clone(), sequence(number)].concat();
    store(&disk, &NAMESPACE, &system).unwrap();
    let first = segment_files(folder.path());
    for number in 1..4 {
        store(&disk, &NAMESPACE, &branch(number)).unwrap();
    }
    for (seconds, path) in segment_files(folder.path()).iter().enumerate() {
        age(path, 100 + seconds as u64);
    }
    age(&first[0], 1000);
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    assert!(restores(&disk, &NAMESPACE, &branch(2), 40));
    let beginning = modified(&first[0]);
    for path in segment_files(folder.path()) {
        assert!(beginning >= modified(&path));
    }
    // However little room there is: the beginning goes last.
    for path in segment_files(folder.path()) {
        age(&path, 10);
    }
    age(&first[0], 1000);
    for most in (0..4).rev() {
        let cap_bytes = disk.bytes() * most / 4;
        let disk = Disk::open(folder.path(), cap_bytes, true).unwrap();
        assert!(disk.bytes() <= cap_bytes);
        assert_tidy(&disk, folder.path());
        assert_eq!(first[0].exists(), disk.facts().file_count > 0);
    }
}

#[test]
fn what_cannot_fit_is_refused_and_nothing_goes_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let one = file_bytes(20);
    let disk = Disk::open(folder.path(), 3 * one, true).unwrap();
    for number in 0..2 {
        store(&disk, &NAMESPACE, &sequence(number)).unwrap();
    }
    let refused = |tokens: &[u32]| {
        let layout = layout();
        let mut never = |_, _| panic!("nothing is read for it");
        let stored = disk.store(&NAMESPACE, &layout, tokens, &mut never);
        assert_eq!(stored.unwrap_err().kind(), Kind::NoSpace);
        assert_eq!(restored(&disk, &NAMESPACE, &sequence(0)), 20);
        assert_eq!(restored(&disk, &NAMESPACE, &sequence(1)), 20);
        assert_tidy(&disk, folder.path());
    };
    refused(&(5000..5200).collect::<Vec<u32>>());
    // It would fit alone, but not beside what it continues.
    let rest: Vec<u32> = (5000..)
        .take_while(|n| file_bytes(*n as usize - 4999) < 2 * one)
        .collect();
    assert!(file_bytes(rest.len() + 10) > 2 * one);
    let tokens = [sequence(0), rest, (6000..6010).collect()].concat();
    refused(&tokens);
    // And what fits makes the other one go.
    let fitting = [sequence(0), (7000..7020).collect()].concat();
    store(&disk, &NAMESPACE, &fitting).unwrap();
    store(&disk, &NAMESPACE, &[fitting.clone(), vec![1]].concat()).unwrap();
    assert_eq!(restored(&disk, &NAMESPACE, &sequence(1)), 0);
    assert_eq!(restored(&disk, &NAMESPACE, &fitting), 40);

    // Nothing fits; what was there is gone on opening.
    let disk = Disk::open(folder.path(), 0, true).unwrap();
    assert_eq!(disk.bytes(), 0);
    let error = store(&disk, &NAMESPACE, &sequence(0)).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
    assert_tidy(&disk, folder.path());
}

/// jundot/omlx#2115: what cannot be used counts, and goes before what can.
#[test]
fn files_of_other_versions_count_and_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let one = file_bytes(20);
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    store(&disk, &NAMESPACE, &sequence(0)).unwrap();
    let file = segment_files(folder.path()).remove(0);
    let inside = file.strip_prefix(folder.path().join("mlxb-kv-v1")).unwrap();
    let put = |path: PathBuf, seconds| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&file, &path).unwrap();
        age(&path, seconds);
        path
    };
    let name = |digit: &str| format!("{}.safetensors", digit.repeat(64));
    let older = put(folder.path().join("mlxb-kv-v0").join(inside), 5);
    let newer = put(folder.path().join("mlxb-kv-v7").join(inside), 9);
    let newest = put(newer.with_file_name(name("a")), 7);
    // Not of the form of a segment's file: counted and never touched.
    let foreign = put(folder.path().join("mlxb-kv-v0/notes/notes.txt"), 99);
    let beside = put(folder.path().join("theirs").join(name("b")), 99);
    let within = put(file.with_file_name("notes"), 99);
    age(&file, 1000);

    let exist = || {
        let paths = [&older, &newer, &newest, &foreign, &beside, &within, &file];
        paths.map(|path| path.exists())
    };
    assert_eq!(bytes_below(folder.path()), 7 * one);
    for (most, expected) in [
        (7, [true; 7]),
        (6, [true, false, true, true, true, true, true]),
        (5, [true, false, false, true, true, true, true]),
        (4, [false, false, false, true, true, true, true]),
        (3, [false, false, false, true, true, true, false]),
        (2, [false, false, false, true, true, true, false]),
    ] {
        drop(Disk::open(folder.path(), most * one, true).unwrap());
        assert_eq!(exist(), expected, "{most}");
    }
    assert!(!newer.parent().unwrap().exists(), "an empty folder goes");

    // Also those that come while the directory is open, and clear takes them along.
    let disk = Disk::open(folder.path(), 5 * one, true).unwrap();
    store(&disk, &NAMESPACE, &sequence(1)).unwrap();
    let file = segment_files(file.parent().unwrap()).remove(0);
    fs::create_dir_all(newer.parent().unwrap()).unwrap();
    fs::copy(&file, &newer).unwrap();
    assert_eq!(bytes_below(folder.path()), 5 * one);
    let done = std::time::Instant::now() + Duration::from_secs(10);
    while newer.exists() && std::time::Instant::now() < done {
        // A count is good for a while.
        std::thread::sleep(Duration::from_millis(20));
        store(&disk, &NAMESPACE, &sequence(2)).unwrap();
        store(&disk, &NAMESPACE, &sequence(3)).unwrap();
    }
    assert!(bytes_below(folder.path()) <= 5 * one);
    fs::create_dir_all(newer.parent().unwrap()).unwrap();
    fs::copy(&beside, &newer).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let bytes = disk.bytes();
    assert_eq!(disk.clear().unwrap(), bytes + one);
    assert_eq!(bytes_below(folder.path()), 3 * one);
}

#[test]
fn what_another_process_is_writing_counts() {
    let folder = tempfile::tempdir().unwrap();
    let one = file_bytes(20);
    let open = || Disk::open(folder.path(), 3 * one - 1, true).unwrap();
    let (ours, theirs) = (open(), open());
    store(&ours, &NAMESPACE, &sequence(0)).unwrap();
    let layout = layout();
    let (first, second) = (sequence(1), sequence(2));
    let mut source = |index, range| {
        if index == 1 {
            store(&theirs, &NAMESPACE, &second).unwrap();
            assert!(bytes_below(folder.path()) < 3 * one);
        }
        Ok(rows(&NAMESPACE, &layout, &first, index, range))
    };
    ours.store(&NAMESPACE, &layout, &first, &mut source)
        .unwrap();
    assert_eq!(restored(&ours, &NAMESPACE, &first), 20);
    assert_eq!(restored(&ours, &NAMESPACE, &second), 20);
    assert_eq!(restored(&ours, &NAMESPACE, &sequence(0)), 0);
    assert_tidy(&ours, folder.path());
}
