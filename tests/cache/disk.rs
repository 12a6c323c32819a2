//! States that outlive the memory they were in.

use std::path::Path;

use mlxb::{Cache, CacheOptions, DiskOptions, Kv};

use crate::{cached, cold, difference, greedy, open, run::run, tiny_model, tokens};

/// One whose states are written when somebody asks for it, and only then.
fn unhurried(memory_bytes: u64, dir: &Path) -> Cache {
    Cache::open(CacheOptions {
        memory_bytes,
        disk: Some(DiskOptions {
            write_after: std::time::Duration::from_secs(3600),
            ..DiskOptions::new(dir)
        }),
        ..CacheOptions::default()
    })
    .unwrap()
}

#[test]
fn memory_forked_and_restored_states_are_equal_to_the_bit() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let prompt = tokens(1, 300);
    let next = [&prompt[..], &tokens(2, 10)[..]].concat();
    let split = Kv::new(&model);
    run(&model, Some(&split), &prompt, &greedy(1));
    let (_, reference) = run(&model, Some(&split), &next[300..], &greedy(64));

    let cache = unhurried(1 << 30, folder.path());
    run(&model, None, &prompt, &cached(1, &cache, ""));
    cache.flush().unwrap();
    assert!(cache.statistics().unwrap().written_bytes > 0);
    // Moved out, then forked from the longer one that took its place.
    for reused in [300, 309] {
        let (generated, told) = run(&model, None, &next, &cached(64, &cache, ""));
        assert_eq!(
            (generated.reused_tokens, generated.restored_tokens),
            (reused, 0)
        );
        assert_eq!(told.ids, reference.ids);
        if reused == 300 {
            assert_eq!(difference(&told, &reference), 0.0);
        }
    }
    cache.clear().unwrap();
    drop(cache);
    // After a restart, of which this is all that the cache sees.
    let cache = open(1 << 30, Some(folder.path()));
    let (generated, told) = run(&model, None, &next, &cached(64, &cache, ""));
    assert_eq!(
        (generated.reused_tokens, generated.restored_tokens),
        (300, 300)
    );
    assert_eq!(difference(&told, &reference), 0.0);
    assert!(cache.statistics().unwrap().last_restore > std::time::Duration::ZERO);
}

#[test]
fn closing_writes_what_is_not_written_yet() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let prompt = tokens(1, 100);
    let cache = unhurried(1 << 30, folder.path());
    run(&model, None, &prompt, &cached(5, &cache, ""));
    assert_eq!(cache.statistics().unwrap().writes, 0);
    drop(cache);
    let cache = open(1 << 30, Some(folder.path()));
    let found = cache.peek(&model, "", &prompt).unwrap();
    assert_eq!((found.memory_prefix, found.disk_prefix), (0, 99));
    let (generated, told) = run(&model, None, &prompt, &cached(5, &cache, ""));
    assert_eq!(
        (generated.reused_tokens, generated.restored_tokens),
        (99, 99)
    );
    assert_eq!(told.ids, cold(&model, &prompt, 5).ids);
}

#[test]
fn a_turn_writes_its_own_tokens_only() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = unhurried(1 << 30, folder.path());
    let mut prompt = tokens(1, 500);
    run(&model, None, &prompt, &cached(1, &cache, ""));
    cache.flush().unwrap();
    let first = cache.statistics().unwrap().written_bytes;
    prompt.extend(tokens(2, 50));
    run(&model, None, &prompt, &cached(1, &cache, ""));
    cache.flush().unwrap();
    let second = cache.statistics().unwrap().written_bytes - first;
    // 2 layers of keys and values, 2 heads of 16 numbers.
    let token = 2 * 2 * 2 * 16 * 4;
    assert!(
        first >= 500 * token && first < 500 * token + 8192,
        "{first}"
    );
    assert!(
        second >= 50 * token && second < 50 * token + 8192,
        "{second}"
    );
    cache.flush().unwrap();
    assert_eq!(cache.statistics().unwrap().writes, 2);
}

#[test]
fn what_is_evicted_trimmed_or_too_large_stays_reachable_on_disk() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let small = Kv::new(&model);
    run(&model, Some(&small), &tokens(0, 10), &greedy(1));
    let one = small.bytes().unwrap();
    let cache = unhurried(2 * one, folder.path());
    for seed in 0..5 {
        let kv = Kv::new(&model);
        run(&model, Some(&kv), &tokens(seed, 10), &greedy(1));
        cache.put("", &kv).unwrap();
        // Reachable at every moment, on its way too.
        for earlier in 0..=seed {
            let found = cache.peek(&model, "", &tokens(earlier, 10)).unwrap();
            assert_eq!(found.memory_prefix.max(found.disk_prefix), 9);
        }
    }
    let large = Kv::new(&model);
    run(&model, Some(&large), &tokens(77, 2000), &greedy(1));
    cache.put("", &large).unwrap();
    cache.trim(0).unwrap();
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.entries, statistics.pending_writes), (0, 0));
    assert_eq!((statistics.writes, statistics.oversized), (6, 1));
    for (seed, count) in [(0, 10), (4, 10), (77, 2000)] {
        let prompt = tokens(seed, count);
        let kv = cache.take(&model, "", &prompt).unwrap().unwrap();
        assert_eq!(kv.tokens().unwrap(), prompt[..count - 1]);
        let (_, told) = run(&model, Some(&kv), &prompt[count - 1..], &greedy(4));
        assert_eq!(told.ids, cold(&model, &prompt, 4).ids);
    }
}

/// However many leave at once: a trim may wait.
#[test]
fn a_trim_writes_all_that_it_evicts() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = unhurried(1 << 30, folder.path());
    for seed in 0..150 {
        run(&model, None, &tokens(seed, 10), &cached(1, &cache, ""));
    }
    assert!(cache.trim(0).unwrap() > 0);
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.entries, statistics.pending_writes), (0, 0));
    assert_eq!((statistics.writes, statistics.dropped_writes), (150, 0));
    for seed in 0..150 {
        assert!(cache.find_exact(&model, "", &tokens(seed, 10)).unwrap());
    }
}

#[test]
fn a_trim_tells_of_what_could_not_be_written() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        disk: Some(DiskOptions {
            bytes: 600_000,
            write_after: std::time::Duration::MAX,
            ..DiskOptions::new(folder.path())
        }),
        ..CacheOptions::default()
    })
    .unwrap();
    // The first to go, and too large. None begins as another, which would be a use of it.
    for first in 0..100 {
        let count = if first == 0 { 1500 } else { 5 };
        let prompt = [&[2 + first], &tokens(1, count)[..]].concat();
        run(&model, None, &prompt, &cached(1, &cache, ""));
    }
    assert_eq!(cache.trim(0).unwrap_err().kind(), mlxb::Kind::NoSpace);
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.writes, statistics.failed_writes), (99, 1));
    assert_eq!(cache.trim(0).unwrap(), 0, "it has been told");
}

#[test]
fn a_flush_tells_of_every_failure_and_the_next_one_tries_again() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        disk: Some(DiskOptions {
            bytes: 100_000,
            write_after: std::time::Duration::MAX,
            ..DiskOptions::new(folder.path())
        }),
        ..CacheOptions::default()
    })
    .unwrap();
    // In the way of what comes.
    let foreign = folder.path().join("theirs");
    std::fs::write(&foreign, [0; 90_000]).unwrap();
    let (first, second) = (tokens(1, 100), tokens(2, 5));
    run(&model, None, &first, &cached(1, &cache, ""));
    run(&model, None, &second, &cached(1, &cache, ""));
    assert_eq!(cache.flush().unwrap_err().kind(), mlxb::Kind::NoSpace);
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.writes, statistics.failed_writes), (1, 1));
    assert!(cache.flush().is_err(), "it is still not on disk");
    std::fs::remove_file(foreign).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // What others take is counted now and then.
    while cache.flush().is_err() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    cache.clear().unwrap();
    for prompt in [first, second] {
        assert!(cache.find_exact(&model, "", &prompt).unwrap());
    }
}

const STATES: &str = "MLXB_TEST_STATES";

/// What a process does that goes elsewhere after it has opened a folder.
#[test]
fn wanderer() {
    let Ok(elsewhere) = std::env::var(STATES) else {
        return;
    };
    let model = tiny_model::load(1);
    let cache = unhurried(1 << 30, Path::new("states"));
    std::env::set_current_dir(elsewhere).unwrap();
    run(&model, None, &tokens(1, 20), &cached(1, &cache, ""));
    cache.flush().unwrap();
}

#[test]
fn a_relative_folder_stays_where_it_was() {
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "disk::wanderer"])
        .env(STATES, elsewhere.path())
        .current_dir(here.path())
        .stdout(std::process::Stdio::null())
        .status();
    assert!(child.unwrap().success());
    assert_eq!(files(&here.path().join("states")).len(), 1);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_state_of_whole_numbers_is_no_state() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &tokens(1, 20), &greedy(1));
    kv.save(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    for place in 0..2000 {
        if &bytes[place..place + 5] == b"\"F32\"" {
            bytes[place + 1] = b'U';
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let error = Kv::load(&model, &path, None).unwrap_err();
    assert_eq!(error.kind(), mlxb::Kind::Corrupt, "{error}");
}

#[test]
fn one_state_is_saved_by_several_at_once() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    let states = [1, 2, 3, 4].map(|seed| {
        let kv = Kv::new(&model);
        run(&model, Some(&kv), &tokens(seed, 300), &greedy(1));
        kv
    });
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for kv in &states {
                let path = &path;
                scope.spawn(move || kv.save(path).unwrap());
            }
        });
        let loaded = Kv::load(&model, &path, None).unwrap().tokens().unwrap();
        assert!(states.iter().any(|kv| kv.tokens().unwrap() == loaded));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_rests_is_written_and_what_idles_leaves_memory() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        disk: Some(DiskOptions {
            write_after: std::time::Duration::from_millis(20),
            idle_after: Some(std::time::Duration::from_millis(300)),
            ..DiskOptions::new(folder.path())
        }),
        ..CacheOptions::default()
    })
    .unwrap();
    let prompt = tokens(1, 50);
    run(&model, None, &prompt, &cached(5, &cache, ""));
    let wait_for = |done: &dyn Fn(&mlxb::CacheStatistics) -> bool| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !done(&cache.statistics().unwrap()) {
            assert!(std::time::Instant::now() < end);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    wait_for(&|statistics| statistics.writes == 1);
    wait_for(&|statistics| statistics.entries == 0 && statistics.pending_writes == 0);
    let (generated, _) = run(&model, None, &prompt, &cached(5, &cache, ""));
    assert_eq!(generated.restored_tokens, 49);
}

#[test]
fn damage_is_a_miss_and_the_next_request_is_served() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let prompt = tokens(1, 100);
    let cache = open(1 << 30, Some(folder.path()));
    run(&model, None, &prompt, &cached(5, &cache, ""));
    cache.flush().unwrap();
    cache.clear().unwrap();
    for file in files(folder.path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    let reference = cold(&model, &prompt, 5);
    let (generated, told) = run(&model, None, &prompt, &cached(5, &cache, ""));
    assert_eq!((generated.reused_tokens, generated.restored_tokens), (0, 0));
    assert_eq!(told.ids, reference.ids);
    let (generated, told) = run(&model, None, &prompt, &cached(5, &cache, ""));
    assert_eq!(generated.reused_tokens, 99);
    assert_eq!(told.ids, reference.ids);
}

#[test]
fn a_hundred_states_are_written_while_others_decode() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        memory_bytes: 1 << 17,
        disk: Some(DiskOptions {
            write_after: std::time::Duration::ZERO,
            ..DiskOptions::new(folder.path())
        }),
        ..CacheOptions::default()
    })
    .unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let prompt = tokens(500, 20);
            let reference = cold(&model, &prompt, 30);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(run(&model, None, &prompt, &greedy(30)).1, reference);
            }
        });
        for seed in 0..100 {
            run(&model, None, &tokens(seed, 20), &cached(2, &cache, ""));
        }
        cache.flush().unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let statistics = cache.statistics().unwrap();
    assert_eq!(statistics.failed_writes, 0);
    cache.clear().unwrap();
    let lost = (0..100)
        .filter(|&seed| !cache.find_exact(&model, "", &tokens(seed, 20)).unwrap())
        .count();
    assert!(lost as u64 <= statistics.dropped_writes && lost < 50);
}

#[test]
fn what_another_process_stores_is_found_after_a_miss() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (
        open(1 << 30, Some(folder.path())),
        open(1 << 30, Some(folder.path())),
    );
    let prompt = tokens(1, 50);
    run(&model, None, &prompt, &cached(1, &one, ""));
    one.flush().unwrap();
    assert!(other.take(&model, "", &prompt).unwrap().is_none());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while other.peek(&model, "", &prompt).unwrap().disk_prefix < 49 {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// All states' files in a folder.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "safetensors") {
            found.push(path);
        }
    }
    found
}

/// A file system in memory of its own, for root on Linux.
#[cfg(target_os = "linux")]
struct SmallDisk(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl SmallDisk {
    /// None where nothing can be mounted.
    fn mount(kilobytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={kilobytes}k"))
            .arg("none")
            .arg(folder.path())
            .status()
            .unwrap();
        mounted.success().then_some(Self(folder))
    }

    fn remount_read_only(&self) {
        let mounted = std::process::Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.0.path())
            .status()
            .unwrap();
        assert!(mounted.success());
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg(self.0.path())
            .status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_full_or_read_only_disk_generation_goes_on_and_the_statistics_tell() {
    let model = tiny_model::load(1);
    let Some(disk) = SmallDisk::mount(256) else {
        return;
    };
    let cache = unhurried(1 << 30, disk.0.path());
    let prompt = tokens(1, 1000);
    let reference = cold(&model, &prompt, 5);
    let (_, told) = run(&model, None, &prompt, &cached(5, &cache, ""));
    assert_eq!(told, reference);
    assert_eq!(cache.flush().unwrap_err().kind(), mlxb::Kind::NoSpace);
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.writes, statistics.failed_writes), (0, 1));
    assert_eq!(statistics.entries, 1);
    // What fits is written nevertheless, and the other is tried again.
    let short = tokens(2, 20);
    run(&model, None, &short, &cached(1, &cache, ""));
    assert_eq!(cache.flush().unwrap_err().kind(), mlxb::Kind::NoSpace);
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.writes, statistics.failed_writes), (1, 2));
    disk.remount_read_only();
    run(&model, None, &tokens(3, 20), &cached(1, &cache, ""));
    assert!(cache.flush().is_err());
    assert_eq!(cache.statistics().unwrap().failed_writes, 4);
    cache.clear().unwrap();
    // It still serves for reading.
    let (generated, told) = run(&model, None, &short, &cached(5, &cache, ""));
    assert_eq!(generated.restored_tokens, 19);
    assert_eq!(told.ids, cold(&model, &short, 5).ids);
    drop(cache);
}
