//! Files that are not what they were: always a miss that the log tells of, never a wrong byte.

use std::{
    cell::RefCell,
    ffi::CString,
    os::unix::{ffi::OsStrExt as _, fs::symlink, net::UnixListener},
    sync::Once,
};

use super::*;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps each thread's warnings for the test that runs on it.
struct Keeper;

impl log::Log for Keeper {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// The warnings since the last call.
pub(super) fn warnings() -> Vec<String> {
    static KEEPER: Once = Once::new();
    KEEPER.call_once(|| {
        log::set_logger(&Keeper).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    LINES.take()
}

/// A chain of two files, the second of which begins within the first, and another namespace.
struct Stage {
    folder: tempfile::TempDir,
    /// The first, the second, the other namespace's.
    files: [(PathBuf, Vec<u8>); 3],
    tokens: Vec<u32>,
    disk: Disk,
}

const NAMESPACE: Namespace = Namespace([1; 32]);
const OTHER: Namespace = Namespace([2; 32]);
const FIRST: usize = 0;
const SECOND: usize = 1;

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
        let tokens: Vec<u32> = (0..60).chain(1000..1050).collect();
        let mut files = Vec::new();
        let others: Vec<u32> = (0..90).collect();
        for (namespace, tokens) in [(NAMESPACE, &others), (NAMESPACE, &tokens), (OTHER, &others)] {
            store(&disk, &namespace, tokens).unwrap();
            let mut found = segment_files(folder.path());
            found.retain(|path| !files.iter().any(|(known, _)| known == path));
            files.push((found[0].clone(), fs::read(&found[0]).unwrap()));
        }
        warnings();
        Self {
            folder,
            files: files.try_into().unwrap(),
            tokens,
            disk,
        }
    }

    fn mend(&self) {
        for (path, bytes) in &self.files {
            if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
                fs::remove_dir_all(path).unwrap();
            } else if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
                fs::remove_file(path).unwrap();
            }
            if fs::read(path).ok().as_ref() != Some(bytes) {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                replace(path, bytes);
            }
        }
        warnings();
    }

    /// Does the damage under an open store, before opening, and before opening one that does not
    /// compare checksums.
    fn check(&self, what: &str, damage: &dyn Fn()) {
        self.mend();
        let count = self.tokens.len();
        self.disk.refresh().unwrap();
        assert_eq!(self.disk.prefix(&NAMESPACE, &self.tokens), count, "{what}");
        damage();
        assert!(
            !restores(&self.disk, &NAMESPACE, &self.tokens, count),
            "{what}"
        );
        assert!(!warnings().is_empty(), "{what}");
        let left = self.disk.prefix(&NAMESPACE, &self.tokens);
        assert!(left < count, "{what}");

        self.mend();
        damage();
        let disk = Disk::open(self.folder.path(), AMPLE, true).unwrap();
        assert!(!restores(&disk, &NAMESPACE, &self.tokens, count), "{what}");
        // Before opening, nobody knows of a file that is gone.
        assert!(!warnings().is_empty() || what.ends_with("gone"), "{what}");
        let left = disk.prefix(&NAMESPACE, &self.tokens);
        assert!(
            left == 0 || restores(&disk, &NAMESPACE, &self.tokens, left),
            "{what}"
        );

        self.mend();
        damage();
        let disk = Disk::open(self.folder.path(), AMPLE, false).unwrap();
        let Some(chain) = disk.open_chain(&NAMESPACE, &self.tokens, count) else {
            return;
        };
        for (index, tensor) in layout().iter().enumerate() {
            let mut read = vec![0; tensor.position_bytes() as usize * count];
            let _ = chain.read(index, &mut read, count);
        }
    }

    fn overwrite(&self, file: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let (path, bytes) = &self.files[file];
        let mut bytes = bytes.clone();
        change(&mut bytes);
        replace(path, &bytes);
    }
}

/// A new file instead of new content, which file systems hurry to the disk.
fn replace(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// Where the tensors of a file begin, and the file ends.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let data = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let mut borders: Vec<usize> = header
        .iter()
        .map(|(_, tensor)| tensor.data().as_ptr() as usize - bytes.as_ptr() as usize)
        .collect();
    borders.extend([data, bytes.len()]);
    borders.sort_unstable();
    borders.dedup();
    borders
}

#[test]
fn no_flipped_byte_passes() {
    let stage = Stage::new();
    for file in [FIRST, SECOND] {
        let bytes = &stage.files[file].1;
        let borders = borders(bytes);
        let checksums = borders[borders.len() - 2];
        let tokens_end = borders[1];
        for at in 0..bytes.len() {
            // Each byte of header, tokens and checksums, and some of the tensors.
            if at < tokens_end || at >= checksums || at % 37 == 0 || borders.contains(&(at + 1)) {
                let flip = 1u8 << (at % 8);
                stage.check(&format!("{file}: {at}"), &|| {
                    stage.overwrite(file, |bytes| bytes[at] ^= flip);
                });
            }
        }
    }
}

/// ggml-org/llama.cpp#14434 among them: a file that was just begun.
#[test]
fn no_truncated_or_longer_file_passes() {
    let stage = Stage::new();
    let bytes = &stage.files[SECOND].1;
    let borders = borders(bytes);
    let near = borders.iter().flat_map(|&at| [at - 1, at, at + 1]);
    let lengths = (0..=4096).chain(near).filter(|&at| at != bytes.len());
    for length in lengths {
        stage.check(&format!("length {length}"), &|| {
            stage.overwrite(SECOND, |bytes| bytes.resize(length, 0));
        });
    }
    for at in borders {
        if at < bytes.len() {
            stage.check(&format!("zeros from {at}"), &|| {
                stage.overwrite(SECOND, |bytes| bytes[at..].fill(0));
            });
        }
    }
}

#[test]
fn no_other_file_passes_in_place_of_one() {
    let stage = Stage::new();
    let path = |file: usize| stage.files[file].0.as_path();
    let swap = |a: usize, b: usize| {
        stage.overwrite(a, |bytes| bytes.clone_from(&stage.files[b].1));
        stage.overwrite(b, |bytes| bytes.clone_from(&stage.files[a].1));
    };
    stage.check("swapped between namespaces", &|| swap(FIRST, 2));
    stage.check("swapped within a namespace", &|| swap(FIRST, SECOND));
    for file in [FIRST, SECOND] {
        stage.check("gone", &|| fs::remove_file(path(file)).unwrap());
        let elsewhere = stage.folder.path().join("elsewhere");
        fs::write(&elsewhere, &stage.files[file].1).unwrap();
        let instead = |what: &str, make: &dyn Fn(&Path)| {
            stage.check(what, &|| {
                fs::remove_file(path(file)).unwrap();
                make(path(file));
            });
            // It is in nobody's way, unless somebody else's files are in it.
            let disk = Disk::open(stage.folder.path(), AMPLE, true).unwrap();
            let stored = store(&disk, &NAMESPACE, &stage.tokens);
            assert!(stored.is_ok() || what == "a full folder", "{what}");
            disk.clear().unwrap();
        };
        instead("a link to the same", &|path| {
            symlink(&elsewhere, path).unwrap();
        });
        instead("a dangling link", &|path| symlink("nowhere", path).unwrap());
        instead("a link to itself", &|path| symlink(path, path).unwrap());
        instead("an empty folder", &|path| fs::create_dir(path).unwrap());
        instead("a full folder", &|path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "not ours").unwrap();
        });
        instead("a pipe", &|path| {
            let name = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: a NUL-terminated path.
            assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        });
        instead("a socket", &|path| {
            // Its name may not be long.
            let short = stage.folder.path().join("s");
            drop(UnixListener::bind(&short).unwrap());
            fs::rename(short, path).unwrap();
        });
        fs::remove_file(elsewhere).unwrap();
    }
    stage.check("its folder is gone", &|| {
        fs::remove_dir_all(path(FIRST).parent().unwrap()).unwrap();
    });
    stage.check("all is gone", &|| {
        fs::remove_dir_all(stage.folder.path().join("mlxb-kv-v1")).unwrap();
    });
    // And goes on.
    store(&stage.disk, &NAMESPACE, &stage.tokens).unwrap();
    assert_eq!(
        restored(&stage.disk, &NAMESPACE, &stage.tokens),
        stage.tokens.len()
    );
}

/// Headers that the reader of the format accepts, and that are no segment's.
#[test]
fn no_made_up_file_passes_or_costs_much() {
    let stage = Stage::new();
    let bytes = &stage.files[SECOND].1;
    let data = borders(bytes)[0];
    let header = String::from_utf8(bytes[8..data].to_vec()).unwrap();
    let changes: [(&str, &str); 14] = [
        ("\"token_count\":\"50\"", "\"token_count\":\"0\""),
        ("\"token_count\":\"50\"", "\"token_count\":\"49\""),
        (
            "\"token_count\":\"50\"",
            "\"token_count\":\"18446744073709551615\"",
        ),
        (
            "\"token_count\":\"50\"",
            "\"token_count\":\"4611686018427387904\"",
        ),
        ("\"start\":\"60\"", "\"start\":\"0\""),
        ("\"start\":\"60\"", "\"start\":\"18446744073709551615\""),
        ("\"start\":\"60\"", "\"start\":\"-1\""),
        ("\"parent\":\"", "\"parent\":\"00"),
        ("\"version\":\"1\"", "\"version\":\"2\""),
        ("layers.0.keys", "layers.0.keyz"),
        ("[1,2,50,4]", "[1,4,50,2]"),
        ("[1,2,50,4]", "[1,8,50,1]"),
        ("\"BF16\"", "\"F16\""),
        ("{\"__metadata__\"", " {\"__metadata__\""),
    ];
    for (from, to) in changes {
        assert!(header.contains(from), "{from}");
        let changed = header.replacen(from, to, 1);
        stage.check(to, &|| {
            stage.overwrite(SECOND, |bytes| {
                let length = (changed.len() as u64).to_le_bytes();
                let data = bytes.split_off(data);
                *bytes = [&length, changed.as_bytes(), &data].concat();
            });
        });
    }
    // A sparse file of 16 TB that is all tokens.
    let count = 1u64 << 42;
    let json = format!(
        "{{\"__metadata__\":{{\"parent\":\"\",\"start\":\"0\",\"token_count\":\"{count}\"}}}}"
    );
    stage.check("sparse", &|| {
        let header = [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat();
        fs::write(&stage.files[SECOND].0, header).unwrap();
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&stage.files[SECOND].0);
        // Not every file system has files of this size.
        let _ = file.unwrap().set_len(4 * count);
    });
}
