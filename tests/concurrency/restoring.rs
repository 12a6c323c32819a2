//! What restoring states leaves behind, and what it takes.

#[cfg(target_os = "linux")]
use std::fs;

use mlxb::{Cache, CacheOptions, CacheUse, DiskOptions, GenerateOptions, memory};

use crate::{alone, endless, run::run, tiny_model};

const PROMPT: usize = 2000;
/// Two layers of keys and values, two heads of sixteen numbers of four bytes.
const TOKEN_BYTES: u64 = 2 * 2 * 2 * 16 * 4;

#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[cfg(target_os = "linux")]
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

#[cfg(target_os = "linux")]
fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_hundred_restores_leave_no_trace() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        disk: Some(DiskOptions::new(folder.path())),
        ..CacheOptions::default()
    })
    .unwrap();
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|n| 2 + n * 7 % 250).collect();
    let options = GenerateOptions {
        cache: Some(CacheUse {
            cache: cache.clone(),
            namespace: String::new(),
        }),
        ..endless(1, 1)
    };
    run(&model, None, &prompt, &options);
    cache.flush().unwrap();
    cache.clear().unwrap();
    let restore = || {
        let kv = cache.take(&model, "", &prompt).unwrap().unwrap();
        assert_eq!(kv.tokens().unwrap().len(), PROMPT - 1);
        // One step more, which the room to grow takes in.
        run(&model, Some(&kv), &prompt[PROMPT - 1..], &endless(1, 1));
    };
    let look = || {
        let active = memory::statistics().unwrap().active_bytes;
        (mappings(), open_files(), active, resident_bytes())
    };
    (0..10).for_each(|_| restore());
    let before = look();
    (0..100).for_each(|_| restore());
    let after = look();
    assert_eq!(cache.statistics().unwrap().restores, 110);
    assert!(
        after.0 <= before.0 + 4,
        "mappings: {} {}",
        before.0,
        after.0
    );
    assert_eq!(after.1, before.1, "open files");
    assert_eq!(after.2, before.2, "active bytes");
    let entry = PROMPT as u64 * TOKEN_BYTES;
    assert!(
        after.3 < before.3 + 2 * entry,
        "resident: {} {}",
        before.3,
        after.3
    );
}

/// The state itself, its room to grow, and what one step computes: not a second copy.
#[test]
fn a_restore_and_a_step_take_the_state_once() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        disk: Some(DiskOptions::new(folder.path())),
        ..CacheOptions::default()
    })
    .unwrap();
    let prompt: Vec<u32> = (0..15_000).map(|n| 2 + n * 7 % 250).collect();
    let options = GenerateOptions {
        cache: Some(CacheUse {
            cache: cache.clone(),
            namespace: String::new(),
        }),
        prefill_chunk: 256,
        ..endless(1, 1)
    };
    run(&model, None, &prompt, &options);
    cache.flush().unwrap();
    cache.clear().unwrap();
    let before = memory::statistics().unwrap();
    let kv = cache.take(&model, "", &prompt).unwrap().unwrap();
    let entry = kv.bytes().unwrap();
    assert!((15_000 * TOKEN_BYTES..=15_256 * TOKEN_BYTES).contains(&entry));
    let restored = memory::statistics().unwrap();
    assert_eq!(restored.active_bytes, before.active_bytes + entry);
    run(&model, Some(&kv), &prompt[14_999..], &endless(1, 1));
    let stepped = memory::statistics().unwrap();
    assert_eq!(
        stepped.active_bytes, restored.active_bytes,
        "the step wrote in place"
    );
}
