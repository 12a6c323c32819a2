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
